"""Encoding SAML messages: the signed part of a query."""

from core.federation.saml.model.messages import query_signature
from tests.tables import table


@table("relay_state", [b"\xe9", b"%E9", b"\xc3\xa9", b"a+b", b""])
def test_the_signed_bytes_of_a_query_are_those_that_were_sent(relay_state: bytes) -> None:
    signed = b"SAMLRequest=x&RelayState=" + relay_state + b"&SigAlg=a"
    signature = query_signature((signed + b"&Signature=s").decode("latin-1"))
    assert signature is not None
    assert signature.signed == signed
