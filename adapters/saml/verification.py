"""Verification of the signatures of services, with xmlsec.

Sources: XML Signature; SAML core section 5.4; SAML bindings section 3.4.4.1; security X-9.
"""

import base64
import binascii
from functools import lru_cache
from typing import Any, Final

import xmlsec

from adapters.saml.signatures import DSIG, ENVELOPED, EXCLUSIVE_C14N, RSA_SHA256, SHA256
from core.federation.saml.model.messages import LogoutSignatureInvalid, QuerySignature

# The algorithms of services. SHA-1 is refused (security X-6).
RSA_ALGORITHMS: Final = {
    RSA_SHA256: xmlsec.constants.TransformRsaSha256,
    "http://www.w3.org/2001/04/xmldsig-more#rsa-sha384": xmlsec.constants.TransformRsaSha384,
    "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512": xmlsec.constants.TransformRsaSha512,
}
DIGESTS: Final = (SHA256, "http://www.w3.org/2001/04/xmldsig-more#sha384", "http://www.w3.org/2001/04/xmlenc#sha512")


def verify_query(signature: QuerySignature, certificate: str) -> None:
    """Check that the query is signed with the key of this certificate. Raises: LogoutSignatureInvalid."""
    context = xmlsec.SignatureContext()
    context.key = _load_certificate(certificate)
    try:
        context.verify_binary(signature.signed, RSA_ALGORITHMS[signature.algorithm], base64.b64decode(signature.value, validate=True))
    except (KeyError, binascii.Error, ValueError, xmlsec.Error):
        raise LogoutSignatureInvalid from None


def verify(root: Any, certificate: str) -> bool:
    """Return whether the document is signed, with the key of this certificate.

    The only accepted signature is a child of the root, and its only reference is the root. So the
    signature covers the elements that are read, and signed elements cannot be moved (signature
    wrapping). KeyInfo is ignored.

    Raises: LogoutSignatureInvalid.
    """
    signatures = list(root.iter(f"{{{DSIG}}}Signature"))
    if not signatures:
        return False
    if len(signatures) != 1 or signatures[0].getparent() is not root or not _covers(signatures[0], root):
        raise LogoutSignatureInvalid
    context = xmlsec.SignatureContext()
    context.key = _load_certificate(certificate)
    try:
        context.register_id(root, "ID")
        context.verify(signatures[0])
    except xmlsec.Error:
        raise LogoutSignatureInvalid from None
    return True


def _covers(signature: Any, root: Any) -> bool:
    """Return whether the signature has accepted algorithms only, and its only reference is the root."""
    algorithms = {
        tag: [element.get("Algorithm") for element in signature.iter(f"{{{DSIG}}}{tag}")]
        for tag in ("CanonicalizationMethod", "SignatureMethod", "Transform", "DigestMethod")
    }
    references = [element.get("URI") for element in signature.iter(f"{{{DSIG}}}Reference")]
    return (
        bool(root.get("ID"))
        and references == [f"#{root.get('ID')}"]
        and algorithms["CanonicalizationMethod"] == [EXCLUSIVE_C14N]
        and algorithms["Transform"] == [ENVELOPED, EXCLUSIVE_C14N]
        and len(algorithms["SignatureMethod"]) == len(algorithms["DigestMethod"]) == 1
        and algorithms["SignatureMethod"][0] in RSA_ALGORITHMS
        and algorithms["DigestMethod"][0] in DIGESTS
    )


@lru_cache(maxsize=64)
def _load_certificate(pem: str) -> Any:
    return xmlsec.Key.from_memory(pem.encode(), xmlsec.constants.KeyDataFormatCertPem)
