"""An installation's RP ID, and the origins that need a file on its host."""

from core.accounts.relying_party import choose_id, foreign_origins
from core.kernel.policy import Policy
from tests.tables import table

BASE = "https://id.example.com"


@table(
    ("base_url", "setting", "stored", "rp_id"),
    [
        (BASE, None, None, "id.example.com"),
        ("https://ID.Bücher.example", None, None, "id.xn--bcher-kva.example"),
        (BASE, None, "old.example", "old.example"),
        (BASE, "example.com", None, "example.com"),
        (BASE, "example.com", "old.example", "example.com"),
        (BASE, None, "localhost", "id.example.com"),
        ("http://localhost:8080", None, "localhost", "localhost"),
        ("http://localhost:8080", None, "id.example.com", "id.example.com"),
        ("http://127.0.0.1:8080", None, "id.example.com", None),
        ("http://[::1]:8080", "example.com", None, None),
    ],
)
def test_the_rp_id_is_chosen_by_the_operator_or_stays(base_url: str, setting: str | None, stored: str | None, rp_id: str | None) -> None:
    assert choose_id(Policy(passkey_rp_id=setting), base_url, stored) == rp_id


@table(
    ("frontend_url", "rp_id", "origins"),
    [
        (None, "id.example.com", []),
        (None, "example.com", []),
        (None, "d.example.com", [BASE]),
        (None, "evil.id.example.com", [BASE]),
        (None, "old.example", [BASE]),
        ("https://app.example.com/console", "example.com", []),
        ("https://app.example.com/console", "id.example.com", []),
        ("https://app.example.org:8443", "id.example.com", []),
        ("https://app.example.org:8443", "example.com", ["https://app.example.org:8443"]),
        ("https://app.example.com", "old.example", [BASE, "https://app.example.com"]),
    ],
)
def test_origins_of_other_hosts_need_a_file_of_the_rp_id(frontend_url: str | None, rp_id: str, origins: list[str]) -> None:
    """Our own host's file lists them already."""
    assert foreign_origins(Policy(frontend_url=frontend_url), BASE, rp_id) == origins
