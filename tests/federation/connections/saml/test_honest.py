"""Responses of honest identity providers are accepted, and give the identity that the provider stated."""

from itertools import product

import pytest

from core.federation.connections.model.saml_responses import SamlFault, SamlResponseRefused
from ports.saml import SamlResponses
from tests.support.saml.identity_provider import CBC, GCM, NOW, REQUEST, Content, Form, IdentityProvider, identity

SIGNED = (("response",), ("assertion",), ("assertion", "response"))
ENCRYPTED = {"plain": None, "GCM": GCM, "CBC": CBC}
FORMS = {"no prefixes": Form(), "prefixes": Form(prefixes="xs xsi")}


@pytest.mark.slow
async def test_every_usual_form_of_a_response_gives_the_stated_identity(verifier: SamlResponses, provider: IdentityProvider) -> None:
    content = Content()
    one = provider.partner()
    second_of_three = provider.partner(
        certificates=(provider.others[0].certificate, provider.certificate.certificate, provider.others[1].certificate)
    )
    findings = []
    for signed, (cipher, encryption), (form_name, form) in product(SIGNED, ENCRYPTED.items(), FORMS.items()):
        document = provider.respond(content, signed=signed, encryption=encryption, form=form)
        assert await verifier.in_response_to(document) == REQUEST
        for partner in (one, second_of_three):
            try:
                read: object = await verifier.read(document, partner, NOW, expected=REQUEST)
            except SamlResponseRefused as refusal:
                read = refusal.fault
            # AES-CBC must be inside a signed Response.
            is_oracle = cipher == "CBC" and "response" not in signed
            expected = SamlFault.DECRYPTION if is_oracle else identity(content, provider.certificate.certificate)
            findings += [(signed, cipher, form_name, read)] if read != expected else []
    assert findings == []
