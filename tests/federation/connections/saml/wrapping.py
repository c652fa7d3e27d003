"""Signature wrapping: forged content beside content that the identity provider has signed.

The numbers come from Somorovsky et al., "On Breaking SAML" (USENIX Security 2012).
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final

from lxml import etree

from tests.support.saml import NS
from tests.support.saml.identity_provider import GCM, Content, IdentityProvider, build, encrypt, find, serialize, sign

DS: Final = NS["ds"]
SAML: Final = NS["saml"]
SAMLP: Final = NS["samlp"]


def signed_response(provider: IdentityProvider) -> Any:
    response = build(Content())
    sign(response, provider.certificate)
    return response


def signed_assertion(provider: IdentityProvider) -> Any:
    response = build(Content())
    sign(find(response, "saml:Assertion"), provider.certificate)
    return response


def forge(element: Any, *, id_: str | None = "_forged") -> Any:
    """Return a copy about the victim, without a signature. `id_`: the copy's ID, or None to keep it."""
    copy = deepcopy(element)
    for signature in copy.xpath("ds:Signature", namespaces=NS):
        copy.remove(signature)
    find(copy, ".//saml:NameID").text = "victim"
    if id_ is not None:
        copy.set("ID", id_)
    return copy


def without_signature(element: Any) -> tuple[Any, Any]:
    """Return a copy of the element, and its signature."""
    copy = deepcopy(element)
    signature = find(copy, "ds:Signature")
    copy.remove(signature)
    return copy, signature


def _response_in(place: Callable[[Any, Any, Any], None]) -> Callable[[IdentityProvider], bytes]:
    """Return a case in which `place` puts the signature and the signed response into a forged response."""

    def case(provider: IdentityProvider) -> bytes:
        response = signed_response(provider)
        original, signature = without_signature(response)
        forged = forge(response)
        place(forged, original, signature)
        return serialize(forged)

    return case


def _assertion_in(place: Callable[[Any, Any, Any, Any], None]) -> Callable[[IdentityProvider], bytes]:
    """Return a case in which `place` changes a Response with a signed assertion, which it gets with a forged assertion."""

    def case(provider: IdentityProvider) -> bytes:
        response = signed_assertion(provider)
        assertion = find(response, "saml:Assertion")
        bare, signature = without_signature(assertion)
        forged = forge(assertion)
        if place in (_xsw3, _xsw4, _xsw7):
            place(response, assertion, forged, None)
        else:
            response.replace(assertion, forged)
            place(response, bare, forged, signature)
        return serialize(response)

    return case


def _xsw1(forged: Any, original: Any, signature: Any) -> None:
    forged.insert(1, signature)
    signature.append(original)


def _xsw2(forged: Any, original: Any, signature: Any) -> None:
    forged.insert(1, original)
    forged.insert(2, signature)


def _xsw3(response: Any, assertion: Any, forged: Any, _: Any) -> None:
    assertion.addprevious(forged)


def _xsw4(response: Any, assertion: Any, forged: Any, _: Any) -> None:
    response.replace(assertion, forged)
    forged.append(assertion)


def _xsw5(response: Any, bare: Any, forged: Any, signature: Any) -> None:
    forged.insert(1, signature)
    response.append(bare)


def _xsw6(response: Any, bare: Any, forged: Any, signature: Any) -> None:
    forged.insert(1, signature)
    signature.append(bare)


def _xsw7(response: Any, assertion: Any, forged: Any, _: Any) -> None:
    extensions = etree.Element(f"{{{SAMLP}}}Extensions")
    response.insert(1, extensions)
    extensions.append(forged)


def _xsw8(response: Any, bare: Any, forged: Any, signature: Any) -> None:
    forged.insert(1, signature)
    etree.SubElement(signature, f"{{{DS}}}Object").append(bare)


def _hidden_in(path: str) -> Callable[[IdentityProvider], bytes]:
    """Return a case with the signed assertion in a new element below the forged assertion or the Response, by a path from the Response."""

    def case(provider: IdentityProvider) -> bytes:
        response = signed_assertion(provider)
        assertion = find(response, "saml:Assertion")
        response.replace(assertion, forge(assertion))
        parent_path, _, name = path.rpartition("/")
        parent = find(response, parent_path) if parent_path else response
        prefix, _, local = name.partition(":")
        etree.SubElement(parent, f"{{{NS[prefix]}}}{local}").append(assertion)
        return serialize(response)

    return case


def _same_id(provider: IdentityProvider) -> bytes:
    """The forged assertion has the signed assertion's ID, and comes before it."""
    response = signed_assertion(provider)
    assertion = find(response, "saml:Assertion")
    assertion.addprevious(forge(assertion, id_=None))
    return serialize(response)


def _moved_signature(provider: IdentityProvider) -> bytes:
    """An assertion's signature stands in a forged Response, and its assertion deep inside."""
    response = signed_assertion(provider)
    bare, signature = without_signature(find(response, "saml:Assertion"))
    forged = forge(response)
    forged.insert(1, signature)
    etree.SubElement(find(forged, "samlp:Status"), f"{{{SAMLP}}}StatusDetail").append(bare)
    return serialize(forged)


def _nested_response(provider: IdentityProvider) -> bytes:
    forged = forge(build(Content()))
    forged.append(signed_response(provider))
    return serialize(forged)


def _encrypted_beside_signed(provider: IdentityProvider) -> bytes:
    """A forged assertion, encrypted to us, stands beside the signed assertion."""
    response = signed_assertion(provider)
    other = forge(build(Content()))
    other.append(deepcopy(find(response, "saml:Assertion")))
    response.append(encrypt(other, provider.ours, GCM))
    return serialize(response)


def _encrypted_around_signed(provider: IdentityProvider) -> bytes:
    """The plaintext is a forged assertion with the signed assertion in its Advice."""
    response = signed_assertion(provider)
    assertion = find(response, "saml:Assertion")
    forged = forge(assertion)
    response.replace(assertion, forged)
    etree.SubElement(forged, f"{{{SAML}}}Advice").append(assertion)
    encrypt(response, provider.ours, GCM)
    return serialize(response)


def _signature_of_another(provider: IdentityProvider) -> bytes:
    """The signature belongs to another response with the same ID."""
    _, signature = without_signature(signed_response(provider))
    forged = forge(build(Content()), id_=None)
    forged.insert(1, signature)
    return serialize(forged)


WRAPPED: Final[Mapping[str, Callable[[IdentityProvider], bytes]]] = {
    "XSW1": _response_in(_xsw1),
    "XSW2": _response_in(_xsw2),
    "XSW3": _assertion_in(_xsw3),
    "XSW4": _assertion_in(_xsw4),
    "XSW5": _assertion_in(_xsw5),
    "XSW6": _assertion_in(_xsw6),
    "XSW7": _assertion_in(_xsw7),
    "XSW8": _assertion_in(_xsw8),
    "in Extensions": _hidden_in("samlp:Extensions"),
    "in Advice": _hidden_in("saml:Assertion/saml:Advice"),
    "in Status": _hidden_in("samlp:Status/samlp:StatusDetail"),
    "in Subject": _hidden_in("saml:Assertion/saml:Subject/saml:SubjectConfirmation/saml:SubjectConfirmationData"),
    "in an attribute value": _hidden_in("saml:Assertion/saml:AttributeStatement/saml:Attribute/saml:AttributeValue"),
    "in another namespace": _hidden_in("md:Extensions"),
    "same ID": _same_id,
    "signature moved": _moved_signature,
    "nested response": _nested_response,
    "encrypted beside signed": _encrypted_beside_signed,
    "encrypted around signed": _encrypted_around_signed,
    "signature of another": _signature_of_another,
}
