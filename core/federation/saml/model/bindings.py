"""The encoding of SAML messages for the HTTP-Redirect and HTTP-POST bindings.

Sources: SAML bindings sections 3.4 and 3.5.
"""

import base64
import binascii
import zlib
from typing import Final
from urllib.parse import unquote_plus

from core.federation.saml.model.messages import QuerySignature, RelayStateInvalid, SamlMessageInvalid, SamlMessageMissing
from core.kernel.values import is_printable

MAX_ENCODED_LENGTH: Final = 64 * 1024  # characters of base64
MAX_DOCUMENT_LENGTH: Final = 256 * 1024
MAX_RELAY_STATE: Final = 4096  # bytes; products put a whole return address into it


def decode_redirect(text: str) -> bytes:
    """Return the message in a query field (SAML bindings section 3.4.4.1)."""
    return _inflate(_decode_base64(text))


def _inflate(deflated: bytes) -> bytes:
    inflater = zlib.decompressobj(-15)
    try:
        document = inflater.decompress(deflated, MAX_DOCUMENT_LENGTH)
    except zlib.error:
        raise SamlMessageInvalid from None
    # Without `eof` the message is too long or truncated. Data after its end is refused.
    if not inflater.eof or inflater.unused_data:
        raise SamlMessageInvalid
    return document


def query_signature(query: str) -> QuerySignature | None:
    """Return the signature in this raw query, or None (SAML bindings section 3.4.4.1).

    `query` has one character for each byte (Latin-1), because the signature is about the bytes.
    """
    parts: dict[str, str] = {}
    for part in query.split("&"):
        parts.setdefault(unquote_plus(part.partition("=")[0]), part)
    if "Signature" not in parts:
        return None
    signed = [parts[name] for name in ("SAMLRequest", "SAMLResponse", "RelayState", "SigAlg") if name in parts]
    algorithm, value = (unquote_plus(parts.get(name, "").partition("=")[2]) for name in ("SigAlg", "Signature"))
    return QuerySignature("&".join(signed).encode("latin-1"), algorithm, value)


def decode_post(text: str) -> bytes:
    """Return the message in a form field, which may have line breaks (SAML bindings section 3.5.4).

    A deflated message is accepted too: node-saml sends these by default.
    """
    document = _decode_base64("".join(text.split()) if len(text) <= MAX_ENCODED_LENGTH else text)
    return document if document.lstrip()[:1] == b"<" else _inflate(document)


def _decode_base64(text: str) -> bytes:
    if not text:
        raise SamlMessageMissing
    if len(text) > MAX_ENCODED_LENGTH:
        raise SamlMessageInvalid
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SamlMessageInvalid from None


def encode_redirect(message: bytes) -> str:
    """Return the message as a query value, before URL quoting."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    return base64.b64encode(deflater.compress(message) + deflater.flush()).decode()


def encode_post(message: bytes) -> str:
    return base64.b64encode(message).decode()


def check_relay_state(relay_state: str | None) -> None:
    """Check the length and the characters of a RelayState (security X-10)."""
    if relay_state is None:
        return
    if len(relay_state.encode("utf-8", "surrogatepass")) > MAX_RELAY_STATE or not is_printable(relay_state):
        raise RelayStateInvalid
