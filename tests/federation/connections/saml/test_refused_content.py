"""Encrypted assertions in other forms, and signed content for another party or time, are refused."""

from typing import Any, Final

import pytest
from lxml import etree

from core.federation.connections.model.saml_responses import (
    FAULTS,
    SamlFault,
    SamlResponseRefused,
    SamlStatusReturned,
)
from ports.saml import SamlProviders
from tests.federation.connections.saml.refusals import Case, Cases, refusals
from tests.federation.connections.saml.wrapping import signed_assertion, signed_response
from tests.support.saml import NS, STATUS, format_instant
from tests.support.saml.identity_provider import (
    CBC,
    GCM,
    NOW,
    REQUEST,
    Content,
    Encryption,
    IdentityProvider,
    attribute,
    build,
    constants,
    encrypt,
    find,
    serialize,
    sign,
)

LATER: Final = "2026-11-27T12:02:00Z"
EARLIER: Final = "2026-11-27T11:58:00Z"


# Encryption


def _encrypted(encryption: Encryption = GCM, *, signed: tuple[str, ...] = ("assertion",), path: str = "", value: str = "") -> Case:
    """Return an encrypted response. `path` is an element or attribute that gets this value before the Response is signed."""

    def case(provider: IdentityProvider) -> bytes:
        response = signed_assertion(provider) if "assertion" in signed else build(Content())
        holder = encrypt(response, provider.ours, encryption)
        name, _, key = path.partition("@")
        if key:
            find(holder, name).set(key, value)
        elif name:
            element = find(holder, name)
            element.text = value or ("B" if element.text.strip()[0] == "A" else "A") + element.text.strip()[1:]
        if "response" in signed:
            sign(response, provider.certificate)
        return serialize(response)

    return case


def _encrypted_text(plaintext: str) -> Case:
    """Return a signed response with this text encrypted, written in place of a value."""

    def case(provider: IdentityProvider) -> bytes:
        response = build(Content())
        assertion = find(response, "saml:Assertion")
        response.replace(assertion, etree.fromstring(f'<x:Assertion xmlns:x="{NS["saml"]}">{plaintext}</x:Assertion>'))
        encrypt(response, provider.ours, GCM)
        sign(response, provider.certificate)
        return serialize(response)

    return case


def _with_unsigned_namespace(provider: IdentityProvider) -> bytes:
    """The plaintext needs a namespace that the signed Response's canonical form does not have."""
    attributes = f'{Content().response_attributes} xmlns:q="urn:q"'
    content = Content(response_attributes=attributes, values=attribute("a", "<q:X>b</q:X>"))
    return provider.respond(content, signed=["response"], encryption=GCM)


XENC11: Final = "http://www.w3.org/2009/xmlenc11#"
MGF: Final = f"{{{XENC11}}}MGF"
DATA_METHOD: Final = "xenc:EncryptedData/xenc:EncryptionMethod@Algorithm"
KEY_METHOD: Final = ".//xenc:EncryptedKey/xenc:EncryptionMethod@Algorithm"
DATA_VALUE: Final = "xenc:EncryptedData/xenc:CipherData/xenc:CipherValue"
KEY_VALUE: Final = ".//xenc:EncryptedKey//xenc:CipherValue"
IN_RESPONSE: Final = ("response",)
ENCRYPTED: Final[Cases] = {
    "unsigned": (SamlFault.UNSIGNED, _encrypted(signed=())),
    "GCM, altered": (SamlFault.DECRYPTION, _encrypted(path=DATA_VALUE)),
    "CBC, altered": (SamlFault.DECRYPTION, _encrypted(CBC, signed=IN_RESPONSE, path=DATA_VALUE, value="A" * 64)),
    "CBC, unsigned": (SamlFault.DECRYPTION, _encrypted(CBC)),
    "key altered": (SamlFault.DECRYPTION, _encrypted(path=KEY_VALUE)),
    "CBC, key altered": (SamlFault.DECRYPTION, _encrypted(CBC, signed=IN_RESPONSE, path=KEY_VALUE)),
    "RSA 1.5": (SamlFault.DECRYPTION, _encrypted(Encryption(transport=constants.TransformRsaPkcs1))),
    "said to be RSA 1.5": (SamlFault.DECRYPTION, _encrypted(path=KEY_METHOD, value="http://www.w3.org/2001/04/xmlenc#rsa-1_5")),
    "CBC said to be GCM": (SamlFault.DECRYPTION, _encrypted(CBC, path=DATA_METHOD, value="http://www.w3.org/2009/xmlenc11#aes128-gcm")),
    "AES-192-CBC": (
        SamlFault.DECRYPTION,
        _encrypted(Encryption(cipher=constants.TransformAes192Cbc, bits=192), signed=IN_RESPONSE),
    ),
    "mask of another digest": (
        SamlFault.DECRYPTION,
        _encrypted(Encryption(algorithm=f"{XENC11}rsa-oaep", parts={MGF: f"{XENC11}mgf1sha512"})),
    ),
    "Triple DES": (
        SamlFault.DECRYPTION,
        _encrypted(signed=IN_RESPONSE, path=DATA_METHOD, value="http://www.w3.org/2001/04/xmlenc#tripledes-cbc"),
    ),
    "after signing": (SamlFault.SIGNATURE_WRONG, lambda provider: _encrypt_signed(provider)),
    "unsigned namespace around": (SamlFault.DECRYPTION, _with_unsigned_namespace),
    "no assertion inside": (SamlFault.MALFORMED, _encrypted_text("x")),
}


def _encrypt_signed(provider: IdentityProvider) -> bytes:
    response = signed_response(provider)
    encrypt(response, provider.ours, GCM)
    return serialize(response)


async def test_encrypted_assertions_are_signed_and_use_accepted_algorithms(verifier: SamlProviders, provider: IdentityProvider) -> None:
    assert await refusals(verifier, provider, ENCRYPTED) == []
    foreign_key = {"other key": (SamlFault.DECRYPTION, _encrypted())}
    assert await refusals(verifier, provider, foreign_key, decryption_keys=(provider.attacker.private_key,)) == []
    assert await refusals(verifier, provider, foreign_key, decryption_keys=()) == []


# Content


def _stated(**changes: Any) -> Case:
    return lambda provider: provider.respond(Content(**changes), signed=["assertion", "response"])


def _response(attributes: str, *, signed: str = "response") -> Case:
    return lambda provider: provider.respond(Content(response_attributes=attributes), signed=[signed])


def _bearer(recipient: str = Content().bearer.split('"')[1], request: str = REQUEST, end: str = LATER, more: str = "") -> Case:
    return _stated(bearer=f'Recipient="{recipient}" InResponseTo="{request}" NotOnOrAfter="{end}" {more}')


ACS: Final = Content().bearer.split('"')[1]
RESTRICTION: Final = Content().restrictions
BROKEN_NAMES: Final = {
    "empty": "<saml:NameID> </saml:NameID>",
    "long": f"<saml:NameID>{'a' * 1025}</saml:NameID>",
    "control character": "<saml:NameID>a&#13;b</saml:NameID>",
    "child": "<saml:NameID>a<saml:X/></saml:NameID>",
    "two": "<saml:NameID>a</saml:NameID><saml:NameID>b</saml:NameID>",
    "encrypted": "<saml:EncryptedID/>",
    "BaseID": "<saml:NameID>a</saml:NameID><saml:BaseID/>",
}
CONTENTS: Final[Cases] = {
    "issuer": (SamlFault.ISSUER, _stated(issuer="https://other.example.com")),
    "issuer of the response only": (
        SamlFault.ISSUER,
        lambda provider: serialize(signed_assertion(provider)).replace(b"/metadata</", b"/other</", 1),
    ),
    "destination": (SamlFault.DESTINATION, _response(f'Destination="{ACS}/" InResponseTo="{REQUEST}"')),
    "no destination": (SamlFault.DESTINATION, _response(f'InResponseTo="{REQUEST}"')),
    "destination, unsigned": (SamlFault.DESTINATION, _response(f'Destination="x" InResponseTo="{REQUEST}"', signed="assertion")),
    "another request": (SamlFault.IN_RESPONSE_TO, _response(f'Destination="{ACS}" InResponseTo="_other"')),
    "no request": (SamlFault.IN_RESPONSE_TO, _response(f'Destination="{ACS}"')),
    "another request, unsigned": (SamlFault.IN_RESPONSE_TO, _response('InResponseTo="_other"', signed="assertion")),
    "issued tomorrow": (SamlFault.TIME, _stated(issued="2026-11-28T12:00:00Z")),
    "issued at no time": (SamlFault.TIME, _stated(issued="now")),
    "recipient": (SamlFault.RECIPIENT, _bearer(recipient="https://sso.example.com/other")),
    "bearer for another request": (SamlFault.IN_RESPONSE_TO, _bearer(request="_other")),
    "bearer expired": (SamlFault.TIME, _bearer(end="2026-11-27T11:59:00Z")),
    "bearer without end": (SamlFault.TIME, _stated(bearer=f'Recipient="{ACS}" InResponseTo="{REQUEST}"')),
    "bearer with a beginning": (SamlFault.TIME, _bearer(more=f'NotBefore="{EARLIER}"')),
    "audience": (SamlFault.AUDIENCE, _stated(restrictions=RESTRICTION.replace("connections/1", "connections/2"))),
    "no audience": (SamlFault.AUDIENCE, _stated(restrictions="")),
    "second restriction": (SamlFault.AUDIENCE, _stated(restrictions=RESTRICTION + RESTRICTION.replace("/1", "/2"))),
    "unknown condition": (SamlFault.CONDITION, _stated(restrictions=f"{RESTRICTION}<saml:Condition/>")),
    "not yet": (SamlFault.TIME, _stated(conditions=f'NotBefore="{LATER}"')),
    "expired": (SamlFault.TIME, _stated(conditions='NotOnOrAfter="2026-11-27T11:59:00Z"')),
    "no statement": (SamlFault.AUTHN_STATEMENT, _stated(statement="")),
    "statement without time": (SamlFault.AUTHN_STATEMENT, _stated(statement="<saml:AuthnStatement/>")),
    "signed in later": (SamlFault.TIME, _stated(statement=f'<saml:AuthnStatement AuthnInstant="{LATER}"/>')),
    "session ended": (
        SamlFault.TIME,
        _stated(statement=f'<saml:AuthnStatement AuthnInstant="{EARLIER}" SessionNotOnOrAfter="{format_instant(NOW)}"/>'),
    ),
    **{f"name: {name}": (SamlFault.NAME_ID, _stated(name_id=text)) for name, text in BROKEN_NAMES.items()},
    "value with markup": (SamlFault.ATTRIBUTES, _stated(values=attribute("a", "b<saml:X/>"))),
    "value with two elements": (SamlFault.ATTRIBUTES, _stated(values=attribute("a", "<saml:X/><saml:X/>"))),
    "value too deep": (SamlFault.ATTRIBUTES, _stated(values=attribute("a", "<saml:X><saml:Y/></saml:X>"))),
    "attribute without name": (SamlFault.ATTRIBUTES, _stated(values=attribute("", "b"))),
}  # fmt: skip


@pytest.mark.slow
async def test_signed_content_for_another_party_or_time_is_refused(verifier: SamlProviders, provider: IdentityProvider) -> None:
    assert await refusals(verifier, provider, CONTENTS) == []
    unsolicited = {"answer": (SamlFault.IN_RESPONSE_TO, _response(f'Destination="{ACS}"'))}
    with pytest.raises(SamlResponseRefused) as refused:
        await verifier.read(await verifier.parse(unsolicited["answer"][1](provider)), provider.partner(), NOW, expected=None)
    assert refused.value.fault is SamlFault.IN_RESPONSE_TO, "the bearer names a request"


async def test_a_failure_of_the_provider_is_reported_by_known_codes(verifier: SamlProviders, provider: IdentityProvider) -> None:
    inner = f'<samlp:StatusCode Value="{STATUS}%s"/>'
    cases = {
        f'<samlp:StatusCode Value="{STATUS}Responder">{inner % "NoPassive"}</samlp:StatusCode>': ("Responder", "NoPassive"),
        f'<samlp:StatusCode Value="{STATUS}Requester"/>': ("Requester", None),
        f'<samlp:StatusCode Value="urn:x">{inner % "Hello"}</samlp:StatusCode>': ("Unknown", "Unknown"),
    }
    for status, expected in cases.items():
        with pytest.raises(SamlStatusReturned) as returned:
            await verifier.read(await verifier.parse(serialize(build(Content(status=status)))), provider.partner(), NOW, expected=REQUEST)
        assert (returned.value.status, returned.value.detail) == expected


def test_each_fault_has_a_sentence_for_admins() -> None:
    assert set(FAULTS) == set(SamlFault)
