"""Address locations from the operator's GeoIP file."""

import random
from pathlib import Path

import pytest

from adapters.geoip import FileUnreadable, GeoIpFile, NoGeoIp
from core.accounts.model.devices import Location
from entrypoints.adapters_of_settings import geoip
from entrypoints.settings import Settings, SettingsInvalid
from tests.fakes.geoip import SHIPPED, write

LISBON = Location("Lisbon", "PT")


@pytest.fixture(scope="module")
def file() -> GeoIpFile:
    return GeoIpFile(SHIPPED)


@pytest.mark.parametrize(
    ("address", "location"),
    [
        ("203.0.113.0", LISBON),
        ("203.0.113.255", LISBON),
        ("198.51.100.127", Location("São Paulo", "BR")),
        ("198.51.100.128", Location(None, "JP")),
        ("2001:db8:1::5", Location("Oslo", "NO")),
    ],
)
def test_an_address_has_the_city_and_country_of_its_network(file: GeoIpFile, address: str, location: Location) -> None:
    assert file.locate(address) == location


@pytest.mark.parametrize(
    "address", ["203.0.112.255", "127.0.0.1", "::1", "2001:db8:2::5", None, "", "unix:", "fe80::1%eth0", "203.0.113.9:80"]
)
def test_other_addresses_have_no_location(file: GeoIpFile, address: str | None) -> None:
    assert file.locate(address) is None


@pytest.mark.parametrize(
    ("address", "location"),
    [
        ("192.0.2.1", None),  # a city without a country
        ("192.0.2.17", Location(None, "IT")),  # a city that is not an object
        ("192.0.2.33", Location("Lon?don" + "n" * 93, "GB")),  # a control character, and an overlong name
        ("192.0.2.49", None),
        ("192.0.2.65", None),
        ("192.0.2.81", None),
    ],
)
def test_the_usable_parts_of_a_malformed_record_are_used(file: GeoIpFile, address: str, location: Location | None) -> None:
    assert file.locate(address) == location


def test_without_a_file_every_location_is_unknown() -> None:
    assert NoGeoIp().locate("203.0.113.9") is None


def test_the_shipped_file_equals_the_output_of_its_script(tmp_path: Path) -> None:
    write(tmp_path / "made.mmdb")
    # Everything except the creation time.
    assert len((tmp_path / "made.mmdb").read_bytes()) == len(SHIPPED.read_bytes())
    assert GeoIpFile(tmp_path / "made.mmdb").locate("203.0.113.9") == LISBON


def broken_files() -> dict[str, bytes]:
    good = SHIPPED.read_bytes()
    return {
        "empty": b"",
        "something else": b"x" * 5000,
        "its first half": good[: len(good) // 2],
        "its second half": good[len(good) // 2 :],
    }


@pytest.mark.parametrize("content", broken_files().values(), ids=broken_files())
def test_a_file_that_cannot_be_used_is_refused_at_start(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cities.mmdb"
    path.write_bytes(content)
    with pytest.raises(FileUnreadable) as caught:
        GeoIpFile(path)
    assert str(caught.value) == f"{path} is not a file in MaxMind's format"


def test_a_file_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match=r"missing\.mmdb cannot be read: No such file or directory$"):
        GeoIpFile(tmp_path / "missing.mmdb")
    with pytest.raises(FileUnreadable, match=r"cannot be read: Is a directory$"):
        GeoIpFile(tmp_path)


def test_a_damaged_record_raises_no_error(tmp_path: Path) -> None:
    good, chance = SHIPPED.read_bytes(), random.Random(0)  # noqa: S311
    for number in range(100):
        content = bytearray(good)
        for _ in range(20):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path = tmp_path / f"{number}.mmdb"
        path.write_bytes(content)
        try:
            file = GeoIpFile(path)
        except FileUnreadable:
            continue
        for address in ("203.0.113.9", "198.51.100.1", "2001:db8:1::5"):
            assert isinstance(file.locate(address), Location | None)


def test_the_setting_names_the_file(tmp_path: Path) -> None:
    assert isinstance(geoip(Settings()), NoGeoIp)
    assert geoip(Settings(geoip_database=SHIPPED)).locate("203.0.113.9") == LISBON
    with pytest.raises(SettingsInvalid, match=r"^SSO_GEOIP_DATABASE is not usable: .*missing\.mmdb cannot be read: No such file"):
        geoip(Settings(geoip_database=tmp_path / "missing.mmdb"))
