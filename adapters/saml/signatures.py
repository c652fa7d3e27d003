"""Signatures of SAML messages with xmlsec: our own ones, and those of services.

Sources: XML Signature; SAML core section 5.4; SAML bindings section 3.4.4.1; security X-6 and X-9.
"""

import base64
import binascii
from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, urlencode

import xmlsec
from lxml import etree

from core.federation.saml.bindings import encode_post
from core.federation.saml.configuration_rules import SamlCertificate
from core.federation.saml.messages import LogoutSignatureInvalid, QuerySignature

DSIG: Final = "http://www.w3.org/2000/09/xmldsig#"
ENVELOPED: Final = f"{DSIG}enveloped-signature"
EXCLUSIVE_C14N: Final = "http://www.w3.org/2001/10/xml-exc-c14n#"
SHA256: Final = "http://www.w3.org/2001/04/xmlenc#sha256"
RSA_SHA256: Final = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"

# The algorithms of services. SHA-1 is refused (security X-6).
RSA_ALGORITHMS: Final = {
    RSA_SHA256: xmlsec.constants.TransformRsaSha256,
    "http://www.w3.org/2001/04/xmldsig-more#rsa-sha384": xmlsec.constants.TransformRsaSha384,
    "http://www.w3.org/2001/04/xmldsig-more#rsa-sha512": xmlsec.constants.TransformRsaSha512,
}
DIGESTS: Final = (SHA256, "http://www.w3.org/2001/04/xmldsig-more#sha384", "http://www.w3.org/2001/04/xmlenc#sha512")

# Parsed once, and copied for each signature. The functions of xmlsec.template would do the same,
# but each call releases the GIL and has to wait until it gets the GIL back.
_SIGNATURE: Final = etree.fromstring(f"""
<ds:Signature xmlns:ds="{DSIG}"><ds:SignedInfo
    ><ds:CanonicalizationMethod Algorithm="{EXCLUSIVE_C14N}"/><ds:SignatureMethod Algorithm="{RSA_SHA256}"/><ds:Reference
    ><ds:Transforms><ds:Transform Algorithm="{ENVELOPED}"/><ds:Transform Algorithm="{EXCLUSIVE_C14N}"/></ds:Transforms
    ><ds:DigestMethod Algorithm="{SHA256}"/><ds:DigestValue/></ds:Reference></ds:SignedInfo><ds:SignatureValue/><ds:KeyInfo
    ><ds:X509Data><ds:X509Certificate/></ds:X509Data></ds:KeyInfo></ds:Signature>""")


# Our signatures


def sign(element: Any, certificate: SamlCertificate) -> None:
    """Sign the element.

    The signature is inserted after its first child, the Issuer, as the schema requires.
    """
    signature = deepcopy(_SIGNATURE)
    signature.find(f".//{{{DSIG}}}Reference").set("URI", f"#{element.get('ID')}")
    signature.find(f".//{{{DSIG}}}X509Certificate").text = base64_of(certificate.certificate)
    element.insert(1, signature)
    context = xmlsec.SignatureContext()
    context.key = _load_key(certificate.private_key())
    context.register_id(element, "ID")
    context.sign(signature)


def sign_query(fields: Mapping[str, str], certificate: SamlCertificate) -> str:
    """Return a query with these fields and their signature, which covers the query exactly as sent."""
    query = urlencode({**fields, "SigAlg": RSA_SHA256}, quote_via=quote, safe="")
    context = xmlsec.SignatureContext()
    context.key = _load_key(certificate.private_key())
    signature = context.sign_binary(query.encode(), xmlsec.constants.TransformRsaSha256)
    return f"{query}&{urlencode({'Signature': encode_post(signature)}, quote_via=quote, safe='')}"


def base64_of(pem: str) -> str:
    """Return the base64 text of a PEM without its first and last line."""
    return "".join(line for line in pem.splitlines() if not line.startswith("-----"))


@lru_cache(maxsize=64)
def _load_key(private_key: bytes) -> Any:
    """Return the parsed key.

    Parsing takes a third of the time of a signature, so recent keys are cached.
    """
    return xmlsec.Key.from_memory(private_key, xmlsec.constants.KeyDataFormatPem)


# Signatures of services


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
