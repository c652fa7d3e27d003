"""The base URL that follows from the listening address and the last start."""

from ipaddress import ip_network
from typing import Any

from entrypoints.addresses import base_url
from entrypoints.settings import Settings
from tests.tables import table

TLS = {"tls_certificate": "certificate.pem", "tls_key": "key.pem"}
OLD = "http://127.0.0.1:8080"


@table(
    ("settings", "stored", "expected"),
    [
        ({}, None, "http://localhost:8080"),  # a new installation
        ({}, "http://localhost:8080", "http://localhost:8080"),
        ({}, OLD, OLD),  # an existing installation keeps its address
        ({}, "http://[::1]:8080", "http://[::1]:8080"),
        ({"bind": "localhost:9090"}, OLD, "http://localhost:9090"),  # its address changes in any case
        ({"bind": "localhost:80"}, None, "http://localhost"),
        ({"bind": "localhost:80"}, "http://127.0.0.1", "http://127.0.0.1"),
        ({}, "https://id.example.com", "http://localhost:8080"),  # SSO_BASE_URL is not set any longer
        ({}, "https://localhost:8080", "http://localhost:8080"),
        ({}, "http://id.example.com:8080", "http://localhost:8080"),
        ({"bind": ":8080"}, None, "http://localhost:8080"),
        ({"bind": "0.0.0.0:8080"}, None, "http://localhost:8080"),
        ({"bind": "[::]:8080"}, None, "http://localhost:8080"),
        ({"bind": "0.0.0.0:8080"}, OLD, OLD),
        ({"bind": "127.0.0.1:8080"}, None, OLD),  # the operator's choice
        ({"bind": "127.0.0.1:8080"}, "http://localhost:8080", OLD),
        ({"bind": "[::1]:8080"}, OLD, "http://[::1]:8080"),
        ({"bind": "192.0.2.1:8080"}, OLD, "http://192.0.2.1:8080"),
        (TLS, OLD, "https://localhost:8080"),
        (TLS, "https://127.0.0.1:8080", "https://127.0.0.1:8080"),
        (TLS | {"bind": ":443"}, None, "https://localhost"),
        ({"base_url": "https://id.example.com"}, OLD, "https://id.example.com"),
        ({"base_url": "http://localhost:8080"}, OLD, "http://localhost:8080"),
        ({"bind": "localhost:0"}, "http://127.0.0.1:50123", "http://127.0.0.1:50123"),  # a command beside a service
        ({"bind": "localhost:0"}, "http://localhost:50123", "http://localhost:50123"),
    ],
)
def test_the_base_url_follows_from_the_settings_and_the_last_start(settings: dict[str, Any], stored: str | None, expected: str) -> None:
    assert base_url(Settings(**settings), stored=stored) == expected


@table(
    ("bind", "trusted", "added"),
    [
        ("localhost:8080", ("127.0.0.1/32",), True),
        ("localhost:8080", ("10.0.0.0/8", "::1/128"), True),
        ("localhost:8080", ("127.0.0.0/8",), True),
        ("localhost:8080", ("10.0.0.0/8",), False),
        ("localhost:8080", (), False),
        ("127.0.0.1:8080", ("127.0.0.1/32",), False),
    ],
)
def test_trust_in_a_proxy_at_one_loopback_address_is_trust_in_both(bind: str, trusted: tuple[str, ...], added: bool) -> None:
    """A proxy in front of an existing installation that connects to `localhost` now comes from ::1, too."""
    networks = tuple(ip_network(network) for network in trusted)
    both = (ip_network("127.0.0.1"), ip_network("::1"))
    assert Settings(bind=bind, trusted_proxies=networks).proxy_networks == networks + (both if added else ())
