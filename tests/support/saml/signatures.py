"""SAML applications' signatures, made without the code under test."""

from functools import cache
from urllib.parse import quote, urlencode

import xmlsec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from lxml import etree

from core.federation.saml.model.configuration import SamlCertificate
from tests.support.saml import NS, deflate, encode_base64

MORE = "http://www.w3.org/2001/04/xmldsig-more#"
SHA1 = f"{NS['ds']}rsa-sha1"
HASHES: dict[str, hashes.HashAlgorithm] = {
    f"{MORE}rsa-sha256": hashes.SHA256(),
    f"{MORE}rsa-sha384": hashes.SHA384(),
    f"{MORE}rsa-sha512": hashes.SHA512(),
    SHA1: hashes.SHA1(),  # noqa: S303
}


def signed_url(
    path: str, message: bytes, key: SamlCertificate, algorithm: str = f"{MORE}rsa-sha256", relay_state: str | None = "a b"
) -> str:
    """Return the path and query that sends a signed LogoutRequest with HTTP-Redirect.

    The parameters are in an unusual order, and quoted as many libraries do.
    """
    relay = {} if relay_state is None else {"RelayState": relay_state}
    query = urlencode({"SAMLRequest": encode_base64(deflate(message)), **relay, "SigAlg": algorithm}, quote_via=quote)
    signature = encode_base64(_private_key(key.private_key()).sign(query.encode(), padding.PKCS1v15(), HASHES[algorithm]))
    return f"{path}?Signature={quote(signature, safe='')}&" + "&".join(reversed(query.split("&")))


@cache
def _private_key(pem: bytes) -> rsa.RSAPrivateKey:
    """Return the key. Loading a key checks it, which takes longer than a signature, so every key is loaded once."""
    key = load_pem_private_key(pem, None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def signed_document(message: bytes, key: SamlCertificate, algorithm: str = f"{MORE}rsa-sha256") -> bytes:
    """Return the message with a signature over its root after the Issuer."""
    root = etree.fromstring(message)
    method = xmlsec.constants.TransformRsaSha1 if algorithm == SHA1 else xmlsec.constants.TransformRsaSha256
    signature = xmlsec.template.create(root, xmlsec.constants.TransformExclC14N, method, ns="ds")
    root.insert(1, signature)
    reference = xmlsec.template.add_reference(signature, xmlsec.constants.TransformSha256, uri=f"#{root.get('ID')}")
    xmlsec.template.add_transform(reference, xmlsec.constants.TransformEnveloped)
    xmlsec.template.add_transform(reference, xmlsec.constants.TransformExclC14N)
    xmlsec.template.add_x509_data(xmlsec.template.ensure_key_info(signature))
    context = xmlsec.SignatureContext()
    context.key = xmlsec.Key.from_memory(key.private_key(), xmlsec.constants.KeyDataFormatPem)
    context.key.load_cert_from_memory(key.certificate, xmlsec.constants.KeyDataFormatPem)
    context.register_id(root, "ID")
    context.sign(signature)
    return bytes(etree.tostring(root))
