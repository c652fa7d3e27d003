"""The small location database for tests, geoip.mmdb.

`.venv/bin/python -m tests.fakes.geoip` creates it.
"""

from pathlib import Path
from typing import Any, Final

from mmdb_writer import MMDBWriter
from netaddr import IPSet  # type: ignore[import-untyped]

SHIPPED: Final = Path(__file__).with_name("geoip.mmdb")

# By network, from the ranges for documentation (RFC 5737, RFC 3849). The last records are
# malformed.
RECORDS: Final[dict[str, Any]] = {
    "203.0.113.0/24": {"city": {"names": {"de": "Lissabon", "en": "Lisbon"}}, "country": {"iso_code": "PT", "names": {"en": "Portugal"}}},
    "198.51.100.0/25": {"city": {"names": {"en": "São Paulo"}}, "country": {"iso_code": "BR"}, "location": {"latitude": -23.5}},
    "198.51.100.128/25": {"country": {"iso_code": "JP"}},
    "2001:db8:1::/48": {"city": {"names": {"en": "Oslo"}}, "country": {"iso_code": "NO"}},
    "192.0.2.0/28": {"city": {"names": {"en": "Atlantis"}}},
    "192.0.2.16/28": {"city": "Rome", "country": {"iso_code": "IT"}},
    "192.0.2.32/28": {"city": {"names": {"en": "Lon\ndon" + "n" * 200}}, "country": {"iso_code": "GB"}},
    "192.0.2.48/28": {"country": ["FR"]},
    "192.0.2.64/28": "Paris",
    "192.0.2.80/28": {"country": {"iso_code": ""}},
}


def write(path: Path) -> None:
    """Create the file."""
    writer = MMDBWriter(6, "Gatehouse-Test-City", languages=["en"], ipv4_compatible=True)
    for network, record in RECORDS.items():
        writer.insert_network(IPSet([network]), record)
    writer.to_db_file(str(path))


if __name__ == "__main__":
    write(SHIPPED)
