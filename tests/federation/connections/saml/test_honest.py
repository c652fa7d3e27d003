"""Honest identity providers' responses are accepted, and give the identity that the provider stated."""

from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from core.federation.connections.model.saml_responses import SamlFault, SamlPartner, SamlResponseRefused
from ports.saml import SamlProviders
from tests.support.saml import NS, format_instant
from tests.support.saml.identity_provider import (
    ACS_URL,
    AUDIENCE,
    CBC,
    ENTITY_ID,
    GCM,
    NOW,
    REQUEST,
    XENC,
    Content,
    Encryption,
    Form,
    IdentityProvider,
    attribute,
    constants,
    identity,
)
from tests.tables import table

XENC11: Final = "http://www.w3.org/2009/xmlenc11#"
OAEP: Final = f"{XENC11}rsa-oaep"
XML: Final = b"http://www.w3.org/XML/1998/namespace"
RECORDED: Final = Path(__file__).parent / "recorded"
SIGNED: Final = (("response",), ("assertion",), ("assertion", "response"))
ENCRYPTED: Final = {"plain": None, "GCM": GCM, "CBC": CBC}
FORMS: Final = {
    "no prefixes": Form(),
    "prefixes": Form(prefixes="xs xsi"),
    "prefixes of SignedInfo": Form(signed_info_prefixes="xs samlp"),
}


@pytest.mark.slow
async def test_every_usual_form_of_a_response_gives_the_stated_identity(verifier: SamlProviders, provider: IdentityProvider) -> None:
    content = Content()
    one = provider.partner()
    second_of_three = provider.partner(
        certificates=(provider.others[0].certificate, provider.certificate.certificate, provider.others[1].certificate)
    )
    findings = []
    for signed, (cipher, encryption), (form_name, form) in product(SIGNED, ENCRYPTED.items(), FORMS.items()):
        document = provider.respond(content, signed=signed, encryption=encryption, form=form)
        answer = await verifier.parse(document)
        assert answer.in_response_to == REQUEST
        for partner in (one, second_of_three):
            try:
                read: object = await verifier.read(answer, partner, NOW, expected=REQUEST)
            except SamlResponseRefused as refusal:
                read = refusal.fault
            # AES-CBC must be inside a signed Response.
            is_oracle = cipher == "CBC" and "response" not in signed
            expected = SamlFault.DECRYPTION if is_oracle else identity(content, provider.certificate.certificate)
            findings += [(signed, cipher, form_name, read)] if read != expected else []
    assert findings == []


async def test_encrypted_keys_are_read_in_every_usual_form(verifier: SamlProviders, provider: IdentityProvider) -> None:
    """The key is inside or beside the data, and RSA-OAEP has the name and the parts from XML Encryption 1.0 or 1.1."""
    stated = identity(Content(), provider.certificate.certificate)
    digest = {f"{{{NS['ds']}}}DigestMethod": f"{XENC}sha256"}
    forms = (
        Encryption(cipher=constants.TransformAes128Gcm, bits=128),
        Encryption(cipher=constants.TransformAes192Gcm, bits=192, is_beside=True),
        Encryption(parts=digest),
        Encryption(algorithm=OAEP),
        Encryption(algorithm=OAEP, parts={**digest, f"{{{XENC11}}}MGF": f"{XENC11}mgf1sha1"}),
        Encryption(algorithm=OAEP, parts={**digest, f"{{{XENC11}}}MGF": f"{XENC11}mgf1sha256"}),
    )
    for encryption in forms:
        document = provider.respond(Content(), signed=["assertion"], encryption=encryption)
        assert await verifier.read(await verifier.parse(document), provider.partner(), NOW, expected=REQUEST) == stated, encryption
        # Declarations without their own meaning change nothing.
        document = document.replace(b"<saml:EncryptedAssertion", b'<saml:EncryptedAssertion xmlns="" xmlns:xml="%s"' % XML)
        assert await verifier.read(await verifier.parse(document), provider.partner(), NOW, expected=REQUEST) == stated


@table(
    ("ahead", "skew", "off"),
    [
        (60, 60, None),
        (100, 60, 100),
        (100, 300, None),
        (300, 300, None),
        (301, 300, 301),
        (-59, 60, None),
        (-100, 60, -100),
        (-299, 300, None),
    ],
)
async def test_the_clock_of_the_identity_provider_may_be_off_as_far_as_the_connection_says(
    verifier: SamlProviders, provider: IdentityProvider, ahead: int, skew: int, off: int | None
) -> None:
    time = format_instant(NOW + timedelta(seconds=ahead))
    later = f'NotBefore="{time}"' if ahead > 0 else f'NotOnOrAfter="{time}"'
    partner = provider.partner(clock_skew=timedelta(seconds=skew))
    document = provider.respond(Content(conditions=later), signed=["assertion"])
    if off is None:
        await verifier.read(await verifier.parse(document), partner, NOW, expected=REQUEST)
        return
    with pytest.raises(SamlResponseRefused) as refused:
        await verifier.read(await verifier.parse(document), partner, NOW, expected=REQUEST)
    assert (refused.value.fault, refused.value.seconds_off) == (SamlFault.TIME, off)


async def test_responses_of_other_programs_are_accepted(verifier: SamlProviders) -> None:
    """The responses were recorded from pysaml2 7.5.5 and samlify 2.13.1, with separate keys for both sides."""
    partner = SamlPartner(
        entity_id=ENTITY_ID,
        certificates=((RECORDED / "identity_provider.crt").read_text(),),
        audience=AUDIENCE,
        acs_url=ACS_URL,
        decryption_keys=((RECORDED / "decryption.key").read_bytes,),
    )
    mails = {}
    for path in RECORDED.glob("*.xml"):
        read = await verifier.read(
            await verifier.parse(path.read_bytes()), partner, datetime(2026, 11, 27, 18, 31, tzinfo=UTC), expected=REQUEST
        )
        assert read.name_id is not None
        mails[path.stem] = read.name_id.value, read.attributes[0].values
    assert mails == dict.fromkeys(["pysaml2", "samlify", "samlify-encrypted"], ("7f3a", ("ada@example.com",)))


async def test_the_unusual_parts_of_a_response_are_read(verifier: SamlProviders, provider: IdentityProvider) -> None:
    """An unrequested response has no InResponseTo. Later statements, further audiences, confirmations and elements in values count."""
    statement = Content().statement.replace("_session", "_older").replace("11:58", "11:50")
    holder_of_key = '<saml:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:holder-of-key"/>'
    content = Content(
        response_attributes=f'Destination="{ACS_URL}"',
        bearer=f'Recipient="{ACS_URL}" NotOnOrAfter="{format_instant(NOW - timedelta(seconds=59))}"',
        conditions=f'NotBefore="{format_instant(NOW + timedelta(seconds=60))}"',
        name_id="",
        confirmations=holder_of_key,
        restrictions=Content().restrictions.replace("<saml:Audience>", "<saml:Audience>urn:other</saml:Audience><saml:Audience>")
        + "<saml:OneTimeUse/>",
        statement=statement + Content().statement + statement,
        attributes=[("groups", ["staff"]), ("mail", []), ("groups", ["admins"])],
        values=attribute("targeted", "<saml:NameID>77</saml:NameID>", "plain"),
    )
    read = await verifier.read(await verifier.parse(provider.respond(content, signed=["response"])), provider.partner(), NOW, expected=None)
    assert (read.name_id, read.in_response_to, read.session_index) == (None, None, "_session")
    assert read.valid_until == NOW - timedelta(seconds=59)
    values = {each.name: each.values for each in read.attributes}
    assert values == {"groups": ("staff", "admins"), "mail": (), "targeted": ("77", "plain")}
