"""Verifying XML signatures with lxml and cryptography, in the form that SAML prescribes.

`verify` returns a new document: the signed element's canonical form. Its callers read that document, and not the
document that they passed. If the callers accept the document, they ask `second_judge` last (docs/adr/0045).

Sources: XML Signature section 3.2; SAML core section 5.4; security X-13.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from lxml import etree

from adapters.crypto import is_signed_by
from adapters.saml.parsing import parse
from adapters.saml.signatures import DSIG, ENVELOPED, EXCLUSIVE_C14N, RSA_SHA256, SHA256
from core.federation.connections.model import saml_responses
from core.federation.saml.model.messages import SamlMessageInvalid

# The accepted algorithms, with the digest names for hashlib. SHA-1 is refused (security X-6).
RSA_ALGORITHMS: Final = {
    RSA_SHA256: "sha256",
    "http://www.w3.org/2001/04/xmldsig-more#rsa-sha384": "sha384",
    "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512": "sha512",
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

_NCNAME = re.compile(r"[^\W\d][\w.-]{0,255}")  # other IDs could be read as an XPointer
_SPACES = re.compile(r"[ \t\r\n]+")
_SIGNATURE_LENGTHS: Final = range(256, 1025)  # bytes, for RSA keys with 2048 to 8192 bits
_MAX_PREFIXES: Final = 32  # every prefix is looked up for every element


@dataclass(frozen=True, slots=True)
class SignedPart:
    """A signed element: the root of a separate document, which was parsed from the signed bytes."""

    root: Any
    certificate: str  # PEM of the certificate that verified it
    document: Any  # as received, with the Signature, without its KeyInfo: only for the second judge


@dataclass(frozen=True, slots=True)
class _SignedInfo:
    """A SignedInfo's content: an element's digest, and how the SignedInfo and the element are canonicalized."""

    prefixes: list[str]  # over the SignedInfo's canonical form
    signed_digest: str  # the digest algorithm that was signed, for hashlib
    digest: bytes  # refers to the element
    digest_algorithm: str  # for hashlib
    content_prefixes: list[str]  # over the element's canonical form


def verify(element: Any, certificates: Sequence[str]) -> SignedPart:
    """Return the signed content of an element with a Signature as direct child.

    Signatures deeper in the element are ignored: they belong to its content. KeyInfo is ignored.

    Raises: SamlResponseRefused.
    """
    # A separate document: it can change, and the reference can only mean the whole document.
    root = parse(etree.tostring(element, encoding="UTF-8", with_tail=False))
    signatures = root.findall(SIGNATURE)
    if len(signatures) != 1:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_PLACE)
    [signature] = signatures
    has_key_info = len(signature) == 3
    received, value, *_ = _children(signature, _SIGNED_INFO, _SIGNATURE_VALUE, *([_KEY_INFO] if has_key_info else []))
    # No signature covers these attributes and namespaces, and xmlsec would read them.
    if any(part.keys() not in ([], ["Id"]) for part in (signature, value)) or value.nsmap != signature.nsmap:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_SHAPE)
    # The SignedInfo's shape is checked first, so that its canonical form is short. The SignedInfo's values are read
    # from the signed bytes.
    signed_bytes = _canonicalize(received, _read(received, root.get("ID", "")).prefixes)
    info, signature_value = _read(_parse(signed_bytes), root.get("ID", "")), _decode(value)
    if len(signature_value) not in _SIGNATURE_LENGTHS:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_SHAPE)
    signers = (pem for pem in certificates if is_signed_by(pem, info.signed_digest, signature_value, signed_bytes))
    signer = next(signers, None)
    if signer is None:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_WRONG)
    del signature[2:]  # the KeyInfo
    document = deepcopy(root)
    _remove(signature)
    content = _canonicalize(root, info.content_prefixes)
    if hashlib.new(info.digest_algorithm, content).digest() != info.digest:
        raise saml_responses.SamlResponseRefused(
            saml_responses.SamlFault.SIGNATURE_SHAPE if "#default" in info.content_prefixes else saml_responses.SamlFault.SIGNATURE_WRONG
        )
    return SignedPart(_parse(content), signer, document)


def _canonicalize(element: Any, prefixes: list[str]) -> bytes:
    """Return an element's exclusive canonical form without comments. lxml ignores `#default` in a PrefixList."""
    try:
        return bytes(etree.tostring(element, method="c14n", exclusive=True, with_comments=False, inclusive_ns_prefixes=prefixes))
    except etree.C14NError:  # such as a relative namespace
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_WRONG) from None


def _parse(canonical: bytes) -> Any:
    # libxml2 does not escape namespaces in a canonical form, so it can be malformed.
    try:
        return parse(canonical)
    except SamlMessageInvalid:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_SHAPE) from None


def _remove(signature: Any) -> None:
    """Remove the signature, and keep the text after it, which is signed. lxml's `remove` drops the text, too."""
    parent, previous = signature.getparent(), signature.getprevious()
    if previous is None:
        parent.text = (parent.text or "") + (signature.tail or "")
    else:
        previous.tail = (previous.tail or "") + (signature.tail or "")
    parent.remove(signature)


def _read(signed_info: Any, id_: str) -> _SignedInfo:
    """Return a SignedInfo's content, which must be as SAML prescribes it and refer to this ID."""
    canonicalization, method, reference = _children(signed_info, _CANONICALIZATION, _METHOD, _REFERENCE)
    transforms, digest_method, digest_value = _children(reference, _TRANSFORMS, _DIGEST_METHOD, _DIGEST_VALUE)
    enveloped, exclusive = _children(transforms, _TRANSFORM, _TRANSFORM)
    if not _NCNAME.fullmatch(id_) or reference.get("URI") != f"#{id_}" or reference.keys() not in (["URI"], ["URI", "Id"], ["Id", "URI"]):
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_SHAPE)
    _children(enveloped)
    _children(method)
    _children(digest_method)
    if _algorithm(enveloped) != ENVELOPED or _algorithm(exclusive) != EXCLUSIVE_C14N or _algorithm(canonicalization) != EXCLUSIVE_C14N:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_SHAPE)
    if _algorithm(method) not in RSA_ALGORITHMS or _algorithm(digest_method) not in DIGESTS:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_ALGORITHM)
    return _SignedInfo(
        prefixes=_prefixes(canonicalization),
        signed_digest=RSA_ALGORITHMS[_algorithm(method)],
        digest=_decode(digest_value),
        digest_algorithm=DIGESTS[_algorithm(digest_method)],
        content_prefixes=_prefixes(exclusive),
    )


def _children(element: Any, *tags: str) -> list[Any]:
    """Return an element's children, which must have these tags in this order, and no text between them."""
    children = list(element)
    texts = [element.text, *(child.tail for child in children)]
    if [child.tag for child in children] != [*tags] or any(text.strip() for text in texts if text):
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_SHAPE)
    return children


def _algorithm(element: Any) -> str:
    if element.keys() != ["Algorithm"]:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_SHAPE)
    return str(element.get("Algorithm"))


def _prefixes(element: Any) -> list[str]:
    """Return a canonicalization's PrefixList (Exclusive XML Canonicalization section 3)."""
    if len(element) == 0:
        _children(element)
        return []
    [inclusive] = _children(element, _INCLUSIVE)
    _children(inclusive)
    prefixes: list[str] = inclusive.get("PrefixList", "").split()
    if len(prefixes) > _MAX_PREFIXES or inclusive.keys() != ["PrefixList"]:
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_SHAPE)
    return prefixes


def _decode(element: Any) -> bytes:
    if len(element):
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_SHAPE)
    try:
        return base64.b64decode(_SPACES.sub("", element.text or ""), validate=True)
    except (binascii.Error, ValueError):
        raise saml_responses.SamlResponseRefused(saml_responses.SamlFault.SIGNATURE_SHAPE) from None
