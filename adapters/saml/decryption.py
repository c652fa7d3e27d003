"""Decrypting assertions with xmlsec.

xmlsec gets a new EncryptedData, which has the received values and only the accepted algorithms. So xmlsec follows no
reference and does not read the sender's KeyInfo.

Sources: XML Encryption 1.1; SAML core section 2.3.4; security X-14.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import xmlsec
from lxml import etree

from adapters.saml import parsing
from adapters.saml.signatures import DSIG, SHA256
from core.federation.connections.model import saml_responses
from core.federation.saml.model.messages import SamlMessageInvalid

XENC: Final = "http://www.w3.org/2001/04/xmlenc#"
XENC11: Final = "http://www.w3.org/2009/xmlenc11#"

_DATA: Final = f"{{{XENC}}}EncryptedData"
_KEY: Final = f"{{{XENC}}}EncryptedKey"
_METHOD: Final = f"{{{XENC}}}EncryptionMethod"
_CIPHER: Final = f"{{{XENC}}}CipherData/{{{XENC}}}CipherValue"
_DIGEST_METHOD: Final = f"{{{DSIG}}}DigestMethod"
_MGF: Final = f"{{{XENC11}}}MGF"

_OAEP: Final = f"{XENC}rsa-oaep-mgf1p"  # with MGF1 and SHA-1
_OAEP11: Final = f"{XENC11}rsa-oaep"
_SHA1: Final = f"{DSIG}sha1"
_MGF_SHA1: Final = f"{XENC11}mgf1sha1"
_MGF_SHA256: Final = f"{XENC11}mgf1sha256"
_GCM: Final = frozenset(f"{XENC11}aes{bits}-gcm" for bits in (128, 192, 256))
_CBC: Final = frozenset(f"{XENC}aes{bits}-cbc" for bits in (128, 256))

_OUR_KEY: Final = "ours"

# Identity providers declare these namespaces on the Response, and use them in values only.
_USUAL_NAMESPACES: Final[Mapping[str | None, str]] = {
    "xs": "http://www.w3.org/2001/XMLSchema",
    "xsi": "http://www.w3.org/2001/XMLSchema-instance",
}


def decrypt(encrypted: Any, keys: Sequence[Callable[[], bytes]], *, is_signed: bool) -> Any:
    """Return the only element in an EncryptedAssertion, in a new document.

    `is_signed` says whether a verified signature covers the ciphertext. AES-CBC is accepted only with a signature:
    otherwise our answers would decrypt foreign ciphertexts (padding oracle). All failures look the same.

    Raises: SamlResponseRefused.
    """
    template = _template(encrypted, _GCM | _CBC if is_signed else _GCM)
    plaintext = next((text for key in keys if (text := _decrypt(template, key)) is not None), None)
    if plaintext is None:
        raise _failed()
    return _parse(plaintext, encrypted.nsmap)


def _parse(plaintext: bytes, namespaces: Mapping[str | None, str]) -> Any:
    """Parse the plaintext with the namespaces in scope, which it may need (XML Encryption 1.1 section 4.4)."""
    start_tag = etree.tostring(etree.Element("context", nsmap={**_USUAL_NAMESPACES, **namespaces})).removesuffix(b"/>") + b">"
    try:
        context = parsing.parse(start_tag + plaintext + b"</context>")
    except SamlMessageInvalid:
        raise _failed() from None
    if len(context) != 1 or (context.text or "").strip() or (context[0].tail or "").strip():
        raise _failed()
    return context[0]


def _failed() -> saml_responses.SamlResponseRefused:
    return saml_responses.SamlResponseRefused(saml_responses.SamlFault.DECRYPTION)


def _template(encrypted: Any, ciphers: frozenset[str]) -> bytes:
    """Return an EncryptedData with the received values.

    The EncryptedKey is in the EncryptedData's KeyInfo, or beside the EncryptedData. There is only one EncryptedKey, so
    the reference to it is not checked.
    """
    data, keys = encrypted.findall(_DATA), list(encrypted.iter(_KEY))
    if len(data) != 1 or len(keys) != 1:
        raise _failed()
    cipher, transport = data[0].find(_METHOD), keys[0].find(_METHOD)
    if cipher is None or cipher.get("Algorithm") not in ciphers or transport is None:
        raise _failed()
    root = etree.Element(_DATA, nsmap={"xenc": XENC, "xenc11": XENC11, "ds": DSIG})
    etree.SubElement(root, _METHOD, Algorithm=cipher.get("Algorithm"))
    key = etree.SubElement(etree.SubElement(root, f"{{{DSIG}}}KeyInfo"), _KEY)
    _add_transport(key, transport)
    etree.SubElement(etree.SubElement(key, f"{{{DSIG}}}KeyInfo"), f"{{{DSIG}}}KeyName").text = _OUR_KEY
    for parent, source in ((key, keys[0]), (root, data[0])):
        values = source.findall(_CIPHER)
        if len(values) != 1:
            raise _failed()
        etree.SubElement(etree.SubElement(parent, f"{{{XENC}}}CipherData"), f"{{{XENC}}}CipherValue").text = values[0].text
    return bytes(etree.tostring(root))


def _add_transport(key: Any, received: Any) -> None:
    """Add the encrypted key's method: RSA-OAEP without a label, with SHA-1 or SHA-256."""
    algorithm = received.get("Algorithm")
    method = etree.SubElement(key, _METHOD, Algorithm=algorithm or "")
    parts = {child.tag: child.get("Algorithm") for child in received}
    digest, mask = parts.pop(_DIGEST_METHOD, _SHA1), parts.pop(_MGF, _MGF_SHA1)
    accepted = {_OAEP: [_MGF_SHA1], _OAEP11: [_MGF_SHA1, _MGF_SHA256]}
    if parts or digest not in (_SHA1, SHA256) or mask not in accepted.get(algorithm, []):
        raise _failed()
    etree.SubElement(method, _DIGEST_METHOD, Algorithm=digest)
    if algorithm == _OAEP11:
        etree.SubElement(method, _MGF, Algorithm=mask)


def _decrypt(template: bytes, private_key: Callable[[], bytes]) -> bytes | None:
    try:
        # Without a type, the result is bytes, and xmlsec parses nothing.
        plaintext = xmlsec.EncryptionContext(_load(private_key)).decrypt(etree.fromstring(template))
    except xmlsec.Error:
        return None
    return bytes(plaintext)


# A new manager takes 13 ms, because it reads the system's certificates. The cache compares the
# functions, as the cache in `adapters/crypto/rsa_signatures.py` does.
@lru_cache(maxsize=64)
def _load(private_key: Callable[[], bytes]) -> Any:
    key = xmlsec.Key.from_memory(private_key(), xmlsec.constants.KeyDataFormatPem)
    key.name = _OUR_KEY
    manager = xmlsec.KeysManager()
    manager.add_key(key)
    return manager
