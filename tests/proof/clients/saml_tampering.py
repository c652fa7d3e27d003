"""Tampered copies of a SAML response (security X-6).

The attacks come from "On Breaking SAML" (USENIX Security 2012). The forged copy of an assertion names another user, and
no signature covers it.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final

from lxml import etree

from tests.support.saml import NS

EVIL: Final = "eve@example.com"
SAML, SAMLP, DS = (f"{{{NS[prefix]}}}" for prefix in ("saml", "samlp", "ds"))


def _evil(element: Any) -> Any:
    """Return a forged copy of the assertion: another user, another id, no signature."""
    forgery = deepcopy(element)
    forgery.set("ID", "_evil")
    for signature in list(forgery.iter(f"{DS}Signature")):
        signature.getparent().remove(signature)
    for name in forgery.iter(f"{SAML}NameID"):
        name.text = EVIL
    for value in forgery.iter(f"{SAML}AttributeValue"):
        value.text = EVIL
    return forgery


def _assertion(root: Any) -> Any:
    return root.find(f"{SAML}Assertion")


def _signature(element: Any) -> Any:
    return element.find(f"{DS}Signature")


def _name(root: Any) -> Any:
    return root.find(f".//{SAML}NameID")


def _change_name(root: Any) -> Any:
    _name(root).text = EVIL
    return root


def _cut_name(root: Any) -> Any:
    """Insert a comment into the name.

    A parser that stops at comments would read another user's name.
    """
    name = _name(root)
    name.text, rest = name.text[:3], name.text[3:]
    comment = etree.Comment("x")
    comment.tail = rest
    name.append(comment)
    return root


def _change_audience(root: Any) -> Any:
    root.find(f".//{SAML}Audience").text = "https://evil.example.com"
    return root


def _change_attribute(root: Any) -> Any:
    root.find(f".//{SAML}AttributeValue").text = EVIL
    return root


def _change_recipient(root: Any) -> Any:
    root.find(f".//{SAML}SubjectConfirmationData").set("Recipient", "https://evil.example.com/acs")
    return root


def _change_request(root: Any) -> Any:
    root.set("InResponseTo", "_another")
    return root


def _prolong(root: Any) -> Any:
    root.find(f".//{SAML}Conditions").set("NotOnOrAfter", "2099-01-01T00:00:00Z")
    return root


def _unsigned(root: Any) -> Any:
    for signature in list(root.iter(f"{DS}Signature")):
        signature.getparent().remove(signature)
    return root


def _unsigned_and_changed(root: Any) -> Any:
    return _change_name(_unsigned(root))


def _assertion_unsigned(root: Any) -> Any:
    assertion = _assertion(root)
    assertion.remove(_signature(assertion))
    return root


def _response_unsigned(root: Any) -> Any:
    root.remove(_signature(root))
    return root


def _without_digest(root: Any) -> Any:
    for value in root.iter(f"{DS}DigestValue"):
        value.text = ""
    return root


def _weaker(root: Any) -> Any:
    for method in root.iter(f"{DS}SignatureMethod"):
        method.set("Algorithm", "http://www.w3.org/2000/09/xmldsig#rsa-sha1")
    return root


def _as_hmac(root: Any) -> Any:
    for method in root.iter(f"{DS}SignatureMethod"):
        method.set("Algorithm", "http://www.w3.org/2000/09/xmldsig#hmac-sha256")
    return root


def _xsw1(root: Any) -> Any:
    evil, original = _evil(root), deepcopy(root)
    signature = deepcopy(_signature(root))
    original.remove(_signature(original))
    evil.insert(1, signature)
    signature.append(original)
    return evil


def _xsw2(root: Any) -> Any:
    evil, original = _evil(root), deepcopy(root)
    signature = deepcopy(_signature(root))
    original.remove(_signature(original))
    evil.insert(1, signature)
    evil.insert(1, original)
    return evil


def _xsw3(root: Any) -> Any:
    assertion = _assertion(root)
    assertion.addprevious(_evil(assertion))
    return root


def _xsw4(root: Any) -> Any:
    assertion = _assertion(root)
    evil = _evil(assertion)
    root.replace(assertion, evil)
    evil.append(assertion)
    return root


def _xsw5(root: Any) -> Any:
    assertion = _assertion(root)
    evil, signature = _evil(assertion), _signature(assertion)
    assertion.remove(signature)
    evil.insert(1, signature)
    root.replace(assertion, evil)
    root.append(assertion)
    return root


def _xsw6(root: Any) -> Any:
    assertion = _assertion(root)
    evil, signature = _evil(assertion), _signature(assertion)
    assertion.remove(signature)
    evil.insert(1, signature)
    root.replace(assertion, evil)
    signature.append(assertion)
    return root


def _xsw7(root: Any) -> Any:
    assertion = _assertion(root)
    extensions = etree.Element(f"{SAMLP}Extensions")
    extensions.append(_evil(assertion))
    assertion.addprevious(extensions)
    return root


def _xsw8(root: Any) -> Any:
    assertion = _assertion(root)
    evil, signature = _evil(assertion), _signature(assertion)
    assertion.remove(signature)
    evil.insert(1, signature)
    root.replace(assertion, evil)
    etree.SubElement(signature, f"{DS}Object").append(assertion)
    return root


# By name. Every function gets a copy of the response.
TAMPERINGS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "another name": _change_name,
    "another audience": _change_audience,
    "another attribute": _change_attribute,
    "another recipient": _change_recipient,
    "an answer to another request": _change_request,
    "a later expiry": _prolong,
    "no signature": _unsigned,
    "no signature, and another name": _unsigned_and_changed,
    "no signature of the assertion": _assertion_unsigned,
    "no signature of the response": _response_unsigned,
    "empty digests": _without_digest,
    "a weaker algorithm": _weaker,
    "the certificate as a shared secret": _as_hmac,
    "XSW1: the response in the signature of its forgery": _xsw1,
    "XSW2: the response before the signature of its forgery": _xsw2,
    "XSW3: a forgery before the assertion": _xsw3,
    "XSW4: a forgery around the assertion": _xsw4,
    "XSW5: a forgery with the assertion's signature": _xsw5,
    "XSW6: the assertion in the signature of its forgery": _xsw6,
    "XSW7: a forgery in an extension": _xsw7,
    "XSW8: the assertion in an object of its forgery": _xsw8,
}


def tampered(document: bytes) -> dict[str, bytes]:
    """Return all tampered copies of the response by name."""
    return {how: etree.tostring(change(etree.fromstring(document))) for how, change in TAMPERINGS.items()}


def with_comment(document: bytes) -> bytes:
    """Return the response with a comment in the name, which signatures ignore.

    Parsers must read the whole name or refuse it.
    """
    return bytes(etree.tostring(_cut_name(etree.fromstring(document))))


def with_assertion_of(document: bytes, other: bytes) -> bytes:
    """Return the response with another response's assertion."""
    root = etree.fromstring(document)
    root.replace(_assertion(root), _assertion(etree.fromstring(other)))
    return bytes(etree.tostring(root))
