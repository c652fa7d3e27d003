"""A changed honest response is harmless or refused.

All nodes and attributes in a response are changed, removed, doubled and moved, one at a time. The independent judges
are xmlsec, and signxml, which shares only the canonicalization with the code under test.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from itertools import product
from typing import Any, Final

import pytest
import xmlsec
from lxml import etree
from signxml.exceptions import SignXMLException
from signxml.verifier import SignatureConfiguration, XMLVerifier

from core.federation.connections.model.saml_responses import SamlFault, SamlPartner, SamlResponseRefused, SamlStatusReturned
from ports.saml import SamlProviders
from tests.federation.connections.saml.test_honest import SIGNED
from tests.support.saml import NS
from tests.support.saml.identity_provider import GCM, NOW, REQUEST, Content, IdentityProvider, identity, serialize

CONTENT: Final = Content(attributes=[("mail", ["ada@example.com"])])
FORMS: Final = (*((signed, None) for signed in SIGNED), (("assertion",), GCM))
SIGNATURE: Final = f"{{{NS['ds']}}}Signature"


def _change(root: Any, element: Any) -> None:
    element.text = f"{element.text or ''}x"


def _change_letter(root: Any, element: Any) -> None:
    text = element.text or ""
    position = len(text) // 2
    element.text = text[:position] + ("B" if text[position : position + 1] == "A" else "A") + text[position + 1 :]


def _change_tail(root: Any, element: Any) -> None:
    element.tail = f"{element.tail or ''}x"


def _rename(root: Any, element: Any) -> None:
    element.tag = f"{element.tag}x"


def _change_namespace(root: Any, element: Any) -> None:
    element.tag = f"{{urn:x}}{etree.QName(element).localname}"


def _remove(root: Any, element: Any) -> None:
    element.getparent().remove(element)


def _unwrap(root: Any, element: Any) -> None:
    for child in list(element):
        element.addprevious(child)
    element.getparent().remove(element)


def _double(root: Any, element: Any) -> None:
    element.addnext(deepcopy(element))


def _move_to_front(root: Any, element: Any) -> None:
    root.insert(0, element)


def _move_to_end(root: Any, element: Any) -> None:
    root.append(element)


def _move_up(root: Any, element: Any) -> None:
    element.getparent().addprevious(element) if element.getparent() is not root else root.append(element)


NODES: Final = (
    _change,
    _change_letter,
    _change_tail,
    _rename,
    _change_namespace,
    _remove,
    _unwrap,
    _double,
    _move_to_front,
    _move_to_end,
    _move_up,
)


def _change_value(element: Any, name: str) -> None:
    element.set(name, f"{element.get(name)}x")


def _remove_attribute(element: Any, name: str) -> None:
    del element.attrib[name]


def _rename_attribute(element: Any, name: str) -> None:
    element.set(f"{name}x", element.attrib.pop(name))


def _qualify(element: Any, name: str) -> None:
    element.set(f"{{urn:x}}{etree.QName(name).localname}", element.attrib.pop(name))


ATTRIBUTES: Final = (_change_value, _remove_attribute, _rename_attribute, _qualify)


def _edit(edit: Callable[[Any, str], None], name: str, root: Any, element: Any) -> None:
    edit(element, name)


def _mutations(document: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the name and document of every change."""
    elements = list(etree.fromstring(document).iter())

    def mutate(number: int, change: Callable[[Any, Any], None]) -> bytes:
        root = etree.fromstring(document)
        change(root, list(root.iter())[number])
        return serialize(root)

    for number, element in enumerate(elements):
        tag = etree.QName(element).localname
        for change in NODES if number > 0 else NODES[:1]:
            yield f"{tag} {number} {change.__name__}", mutate(number, change)
        for name, edit in product(element.keys(), ATTRIBUTES):
            yield f"{tag} {number} {name} {edit.__name__}", mutate(number, partial(_edit, edit, name))


def _is_accepted_by_judges(document: bytes, certificate: str) -> bool:
    """Return whether all plain signatures verify, without their KeyInfo."""
    key = xmlsec.Key.from_memory(certificate, xmlsec.constants.KeyDataFormatCertPem)
    for signature in etree.fromstring(document).iter(SIGNATURE):
        element = etree.fromstring(etree.tostring(signature.getparent(), with_tail=False))
        for key_info in element.findall("ds:Signature/ds:KeyInfo", NS):
            key_info.getparent().remove(key_info)
        context = xmlsec.SignatureContext()
        context.key = key
        try:
            context.register_id(element, "ID")
            context.verify(element.find("ds:Signature", NS))
            XMLVerifier().verify(element, x509_cert=certificate, id_attribute="ID", expect_config=SignatureConfiguration(location="./"))
        except (xmlsec.Error, SignXMLException, etree.DocumentInvalid):
            return False
    return True


async def _outcome(verifier: SamlProviders, document: bytes, partner: SamlPartner) -> object:
    """Return the identity, or None for a refusal. If both judges disagree, this is returned: no mutation may cause it."""
    try:
        return await verifier.read(await verifier.parse(document), partner, NOW, expected=REQUEST)
    except SamlResponseRefused as refusal:
        return refusal.fault if refusal.fault is SamlFault.SIGNATURE_DISPUTED else None
    except SamlStatusReturned:
        return None


@pytest.mark.slow
async def test_a_changed_response_is_refused_or_gives_the_same_identity(verifier: SamlProviders, provider: IdentityProvider) -> None:
    partner = provider.partner(decryption_keys=(provider.ours.private_key,))
    certificate = provider.certificate.certificate
    stated = identity(CONTENT, certificate)
    findings = []
    for signed, encryption in FORMS:
        document = provider.respond(CONTENT, signed=signed, encryption=encryption)
        assert await _outcome(verifier, document, partner) == stated
        for name, mutation in _mutations(document):
            outcome = await _outcome(verifier, mutation, partner)
            if outcome is None:
                continue
            if outcome != stated or not _is_accepted_by_judges(mutation, certificate):
                findings.append((signed, encryption, name, outcome))
    assert findings == []
