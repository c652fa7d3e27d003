"""Verification of XML signatures with xmlsec, in the form that SAML prescribes.

`verify` returns a new document: the canonical form of the signed element. Its callers read that
document, and not the one that they passed (docs/adr/0045).

Sources: XML Signature; SAML core section 5.4; security X-13.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import xmlsec
from lxml import etree

from adapters.crypto import public_key_of
from adapters.saml.parsing import parse
from adapters.saml.signatures import DSIG, ENVELOPED, EXCLUSIVE_C14N, RSA_SHA256, SHA256
from core.federation.connections.model.saml_responses import SamlFault, SamlResponseRefused

# The accepted algorithms. SHA-1 is refused (security X-6).
RSA_ALGORITHMS: Final = {
    RSA_SHA256: xmlsec.constants.TransformRsaSha256,
    "http://www.w3.org/2001/04/xmldsig-more#rsa-sha384": xmlsec.constants.TransformRsaSha384,
    "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512": xmlsec.constants.TransformRsaSha512,
}
DIGESTS: Final = {
    SHA256: "sha256",
    "http://www.w3.org/2001/04/xmldsig-more#sha384": "sha384",
    "http://www.w3.org/2001/04/xmlenc#sha512": "sha512",
}
SIGNATURE: Final = f"{{{DSIG}}}Signature"

_SIGNED_INFO: Final = f"{{{DSIG}}}SignedInfo"
_SIGNATURE_VALUE: Final = f"{{{DSIG}}}SignatureValue"
_KEY_INFO: Final = f"{{{DSIG}}}KeyInfo"
_CANONICALIZATION: Final = f"{{{DSIG}}}CanonicalizationMethod"
_METHOD: Final = f"{{{DSIG}}}SignatureMethod"
_REFERENCE: Final = f"{{{DSIG}}}Reference"
_TRANSFORMS: Final = f"{{{DSIG}}}Transforms"
_TRANSFORM: Final = f"{{{DSIG}}}Transform"
_DIGEST_METHOD: Final = f"{{{DSIG}}}DigestMethod"
_DIGEST_VALUE: Final = f"{{{DSIG}}}DigestValue"
_INCLUSIVE: Final = f"{{{EXCLUSIVE_C14N}}}InclusiveNamespaces"

_NCNAME = re.compile(r"[^\W\d][\w.-]{0,255}")  # others could be read as an XPointer
_SIGNATURE_LENGTHS: Final = range(256, 1025)  # bytes, of RSA keys of 2048 to 8192 bits
_MAX_PREFIXES: Final = 32  # each is looked up for each element


@dataclass(frozen=True, slots=True)
class SignedPart:
    """A signed element: the root of a document of its own, which was parsed from the signed bytes."""

    root: Any
    certificate: str  # PEM of the certificate that verified it


@dataclass(frozen=True, slots=True)
class _Reference:
    """The parts of a SignedInfo that the canonical form needs."""

    digest: str  # the name for hashlib
    value: bytes
    prefixes: list[str]  # of the canonicalization


def verify(element: Any, certificates: Sequence[str]) -> SignedPart:
    """Return the signed content of an element with a Signature as direct child.

    Signatures deeper in the element are not looked at: they are part of its content. KeyInfo is
    ignored.

    Raises: SamlResponseRefused.
    """
    # The element becomes a document of its own, so that no other element can be what a library
    # finds by the ID (signature wrapping).
    root = parse(etree.tostring(element, encoding="UTF-8", with_tail=False))
    signatures = root.findall(SIGNATURE)
    if len(signatures) != 1:
        raise SamlResponseRefused(SamlFault.SIGNATURE_PLACE)
    [signature] = signatures
    reference = _check_shape(signature, root.get("ID", ""))
    certificate = next((pem for pem in certificates if _is_signed(root, signature, pem)), None)
    if certificate is None:
        raise SamlResponseRefused(SamlFault.SIGNATURE_WRONG)
    return SignedPart(parse(_signed_bytes(root, signature, reference)), certificate)


def _signed_bytes(root: Any, signature: Any, reference: _Reference) -> bytes:
    """Return the canonical form of the document without its signature."""
    _remove(signature)
    canonical = bytes(etree.tostring(root, method="c14n", exclusive=True, with_comments=False, inclusive_ns_prefixes=reference.prefixes))
    # xmlsec has compared the digest of its own canonical form, which it does not hand out. This
    # comparison proves that it is the same as ours. For example, lxml ignores `#default` in a
    # PrefixList.
    if hashlib.new(reference.digest, canonical).digest() != reference.value:
        raise SamlResponseRefused(SamlFault.SIGNATURE_SHAPE)
    return canonical


def _remove(signature: Any) -> None:
    """Remove the signature, and keep the text after it, which is signed. `remove` of lxml drops both."""
    parent, previous = signature.getparent(), signature.getprevious()
    if previous is None:
        parent.text = (parent.text or "") + (signature.tail or "")
    else:
        previous.tail = (previous.tail or "") + (signature.tail or "")
    parent.remove(signature)


def _is_signed(root: Any, signature: Any, certificate: str) -> bool:
    context = xmlsec.SignatureContext()
    context.key = load_certificate(certificate)
    try:
        context.register_id(root, "ID")  # fails if another element has it as xml:id
        context.verify(signature)
    except xmlsec.Error:
        return False
    return True


@lru_cache(maxsize=256)
def load_certificate(pem: str) -> Any:
    """Return the public key of a certificate (PEM) for xmlsec, which would copy the whole certificate for each signature."""
    return xmlsec.Key.from_memory(public_key_of(pem), xmlsec.constants.KeyDataFormatPem)


# The shape of a signature


def _check_shape(signature: Any, id_: str) -> _Reference:
    """Check that the signature is as SAML prescribes it and refers to this ID. Remove its KeyInfo."""
    # Without KeyInfo, no library can take a key or an address from it.
    for key_info in signature.findall(_KEY_INFO)[:1]:
        _remove(key_info)
    signed_info, value = _children(signature, _SIGNED_INFO, _SIGNATURE_VALUE)
    canonicalization, method, reference = _children(signed_info, _CANONICALIZATION, _METHOD, _REFERENCE)
    transforms, digest_method, digest_value = _children(reference, _TRANSFORMS, _DIGEST_METHOD, _DIGEST_VALUE)
    enveloped, exclusive = _children(transforms, _TRANSFORM, _TRANSFORM)
    if not _NCNAME.fullmatch(id_) or reference.get("URI") != f"#{id_}" or reference.keys() not in (["URI"], ["URI", "Id"], ["Id", "URI"]):
        raise SamlResponseRefused(SamlFault.SIGNATURE_SHAPE)
    _children(enveloped)
    _children(method)
    _children(digest_method)
    _prefixes(canonicalization)
    if _algorithm(enveloped) != ENVELOPED or _algorithm(exclusive) != EXCLUSIVE_C14N or _algorithm(canonicalization) != EXCLUSIVE_C14N:
        raise SamlResponseRefused(SamlFault.SIGNATURE_SHAPE)
    if _algorithm(method) not in RSA_ALGORITHMS or _algorithm(digest_method) not in DIGESTS:
        raise SamlResponseRefused(SamlFault.SIGNATURE_ALGORITHM)
    if len(_decode(value)) not in _SIGNATURE_LENGTHS:
        raise SamlResponseRefused(SamlFault.SIGNATURE_SHAPE)
    return _Reference(DIGESTS[_algorithm(digest_method)], _decode(digest_value), _prefixes(exclusive))


def _children(element: Any, *tags: str) -> list[Any]:
    """Return the children of an element, which must have these tags in this order, and no text between them."""
    children = list(element)
    texts = [element.text, *(child.tail for child in children)]
    if [child.tag for child in children] != [*tags] or any(text.strip() for text in texts if text):
        raise SamlResponseRefused(SamlFault.SIGNATURE_SHAPE)
    return children


def _algorithm(element: Any) -> str:
    if element.keys() != ["Algorithm"]:
        raise SamlResponseRefused(SamlFault.SIGNATURE_SHAPE)
    return str(element.get("Algorithm"))


def _prefixes(element: Any) -> list[str]:
    """Return the PrefixList of a canonicalization (Exclusive XML Canonicalization section 3)."""
    if len(element) == 0:
        _children(element)
        return []
    [inclusive] = _children(element, _INCLUSIVE)
    _children(inclusive)
    prefixes: list[str] = inclusive.get("PrefixList", "").split()
    if len(prefixes) > _MAX_PREFIXES or inclusive.keys() != ["PrefixList"]:
        raise SamlResponseRefused(SamlFault.SIGNATURE_SHAPE)
    return prefixes


def _decode(element: Any) -> bytes:
    if len(element):
        raise SamlResponseRefused(SamlFault.SIGNATURE_SHAPE)
    try:
        return base64.b64decode("".join((element.text or "").split()), validate=True)
    except (binascii.Error, ValueError):
        raise SamlResponseRefused(SamlFault.SIGNATURE_SHAPE) from None
