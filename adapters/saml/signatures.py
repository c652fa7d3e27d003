"""Signatures in our SAML messages.

Sources: XML Signature; SAML core section 5.4; SAML bindings section 3.4.4.1; security X-6.
"""

import base64
from collections.abc import Mapping
from copy import deepcopy
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, urlencode

from lxml import etree

from adapters.crypto import sign_sha256
from core.federation.saml.model.configuration import SamlCertificate
from core.federation.saml.model.messages import encode_post

DSIG: Final = "http://www.w3.org/2000/09/xmldsig#"
ENVELOPED: Final = f"{DSIG}enveloped-signature"
EXCLUSIVE_C14N: Final = "http://www.w3.org/2001/10/xml-exc-c14n#"
SHA256: Final = "http://www.w3.org/2001/04/xmlenc#sha256"
RSA_SHA256: Final = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"

# Parsed once, and copied for every signature
_SIGNATURE: Final = etree.fromstring(f"""
<ds:Signature xmlns:ds="{DSIG}"><ds:SignedInfo
    ><ds:CanonicalizationMethod Algorithm="{EXCLUSIVE_C14N}"/><ds:SignatureMethod Algorithm="{RSA_SHA256}"/><ds:Reference
    ><ds:Transforms><ds:Transform Algorithm="{ENVELOPED}"/><ds:Transform Algorithm="{EXCLUSIVE_C14N}"/></ds:Transforms
    ><ds:DigestMethod Algorithm="{SHA256}"/><ds:DigestValue/></ds:Reference></ds:SignedInfo><ds:SignatureValue/><ds:KeyInfo
    ><ds:X509Data><ds:X509Certificate/></ds:X509Data></ds:KeyInfo></ds:Signature>""")


def sign(element: Any, certificate: SamlCertificate) -> None:
    """Sign the element.

    The signature is inserted after its first child, the Issuer, as the schema requires.
    """
    signature = deepcopy(_SIGNATURE)
    signed_info, value, key_info = signature
    reference = signed_info[-1]
    reference.set("URI", f"#{element.get('ID')}")
    # Before the signature is inserted: the digest does not cover it (the transform `ENVELOPED`).
    reference[-1].text = base64.b64encode(sha256(_canonicalize(element)).digest())
    value.text = base64.b64encode(sign_sha256(certificate.private_key, _canonicalize(signed_info)))
    key_info[0][0].text = base64_of(certificate.certificate)
    element.insert(1, signature)


def _canonicalize(element: Any) -> bytes:
    return bytes(etree.tostring(element, method="c14n", exclusive=True, with_comments=False))


def sign_query(fields: Mapping[str, str], certificate: SamlCertificate) -> str:
    """Return a query with these fields and their signature, which covers the query exactly as sent."""
    query = urlencode({**fields, "SigAlg": RSA_SHA256}, quote_via=quote, safe="")
    signature = sign_sha256(certificate.private_key, query.encode())
    return f"{query}&{urlencode({'Signature': encode_post(signature)}, quote_via=quote, safe='')}"


def base64_of(pem: str) -> str:
    """Return the base64 text of a PEM without its first and last line."""
    return "".join(line for line in pem.splitlines() if not line.startswith("-----"))
