"""The payload of a sealed client id."""

import zlib

from core.federation.oauth.model.client_registration import from_payload, has_sealed_form, parse_registration, to_payload
from core.kernel.policy import Policy
from tests.support.rows import NOW
from tests.tables import table

METADATA = {"client_name": "Ünïcode 助手", "redirect_uris": ["http://127.0.0.1/callback", "https://client.example/callback"]}


def test_a_payload_has_all_metadata() -> None:
    metadata = parse_registration(METADATA, Policy()).metadata
    document = from_payload("registered:a", to_payload(metadata, NOW))
    assert document is not None
    assert (document.address, document.name, document.redirect_uris) == ("registered:a", metadata.name, metadata.redirect_uris)
    assert (document.is_native, document.method.value, document.fetched_at) == (True, "none", NOW.replace(microsecond=0))


@table("text", [b"", b"{}", b"[]", b"1", b'{"t":"now","n":"a","r":[],"a":0}', b'{"t":1e300,"n":"a","r":[],"a":0}', b" " * 10_000_000])
def test_another_payload_is_no_client(text: bytes) -> None:
    """The payload comes from a later release, or grows when it is unpacked."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    assert from_payload("registered:a", packer.compress(text) + packer.flush()) is None
    assert from_payload("registered:a", text) is None


@table(
    ("text", "fits"),
    [("registered:Az09_-", True), ("registered:", False), ("registered:a=", False), ("registered:a\n", False), ("a", False)],
)
def test_the_form_of_a_sealed_client_id(text: str, fits: bool) -> None:
    assert has_sealed_form(text) is fits


def test_a_sealed_client_id_has_at_most_2000_characters() -> None:
    assert has_sealed_form("registered:" + "a" * 1989)
    assert not has_sealed_form("registered:" + "a" * 1990)
