"""Form texts that can hold a private key. A refused page shows none again (security G-1).

Users paste keys into every field, with any headers or without headers. So this does not only look for the known spellings of a key. A field
for certificates, keys or metadata comes back only if all its long values are public. Another field comes back unless a value begins like a
key, or is longer than any name.
"""

import html
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

# The fields for certificates, keys and metadata.
KEY_FIELDS: Final = frozenset({"certificate", "new_certificate", "slo_certificate", "metadata", "new_metadata", "public_key", "jwks"})

# The headers in RFC 7468, also misspelled, and the dumps that OpenSSL and xxd print, which have a key's bytes in hexadecimal.
_HEADER: Final = re.compile(
    r"-\s*(?:begin|end)\b[^-]{0,40}private\s*key|private\s*key\s*--|private-?(?:key|exponent):|\bpriv:|\[hex dump\]:"
    r"|(?:\b[0-9a-f]{2}[:\s]+){15}|(?:\b0x[0-9a-f]{2}[,\s]+){15}|\b[0-9a-f]{7,8}:?\s+(?:[0-9a-f]{4}\s+){4}",
    re.IGNORECASE,
)
# A JWK's private member (RFC 7518 sections 6.2.2, 6.3.2 and 6.4.1), and a private member with a long value in any text.
_PRIVATE_MEMBER: Final = re.compile(r"""["'](?:d|k)["']\s*:""")
_LONG_MEMBER: Final = re.compile(r"""(?<![\w.-])["']?(?:d|k)["']?\s*:\s*["']?[\w-]{40,}""")
# Public values besides certificates: addresses, JWK members, and a signature, a digest or a key name in metadata.
_PUBLIC: Final = re.compile(
    r"""\b(?:https?://|urn:)[^\s"'<>?]*"""  # without the query, which can hold anything
    r"""|"(?:n|x|y|e|kid|x5t(?:#S256)?)"\s*:\s*"[^"]*\""""
    r"""|<(?:\w+:)?(?:SignatureValue|DigestValue|KeyName)\b[^<>]*>[^<]*<"""
    r"""|-----(?:BEGIN|END)\ CERTIFICATE-----"""
)
_URL: Final = re.compile(r"""\b(?:https?://|urn:)[^\s"'<>]*""")
_ESCAPED: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
_WORD: Final = re.compile(r"[A-Za-z0-9+/_-]{40,}")
_WRAPPED: Final = re.compile(r"[A-Za-z0-9+/_-]{16,}(?:\s+[A-Za-z0-9+/_-]+)*")
_SHORTEST: Final = 40  # characters: 32 bytes in base64 are 43
_LONGEST_NAME: Final = 128  # such as a client id
_SEQUENCE, _INTEGER, _VERSION = 0x30, 0x02, 0xA0  # DER tags (X.690 section 8)
_OPENSSH: Final = b"openssh-key-v1"


def can_hold_private_key(name: str, text: str) -> bool:
    """Return whether the text in the field `name` can hold a private key, also percent-encoded or escaped as in JSON or HTML."""
    try:
        spellings = {text, once := _unescape(text), _unescape(once)}
    except ValueError:
        return True
    return any(_can_hold_private_key(name, spelling) for spelling in spellings)


def _unescape(text: str) -> str:
    """Return the text without its escapes. Raises: ValueError for a character number with thousands of digits."""
    text = html.unescape(unquote(text))
    text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
    return re.sub(r"\\[nrt]", "\n", text).replace("\\", "")


def _can_hold_private_key(name: str, text: str) -> bool:
    if _HEADER.search(text) or ("kty" in text and _PRIVATE_MEMBER.search(text)) or _LONG_MEMBER.search(text):
        return True
    if len(text) < _SHORTEST:
        return False
    if name in KEY_FIELDS:
        rest = _PUBLIC.sub(" | ", text)
        return any(_is_random(value) and not _is_certificate(_decode(value)) for value in _values(_WRAPPED, rest))
    is_long = any(_is_random(value) and len(value) > _LONGEST_NAME for value in _values(_WORD, _PUBLIC.sub(" | ", _URL.sub(" | ", text))))
    return is_long or any(_begins_as_key(_decode(value)) for value in _values(_WORD, text))


def _values(form: re.Pattern[str], text: str) -> Iterator[str]:
    for match in form.finditer(text):
        value = "".join(match[0].split())
        if len(value) >= _SHORTEST:
            yield value


def _is_random(value: str) -> bool:
    """Return whether the value is no path, no word and no list of words."""
    is_hex = len(value) >= 64 and re.fullmatch(r"[0-9a-fA-F]+", value) is not None
    return is_hex or all(re.search(kind, value) for kind in ("[a-z]", "[A-Z]", "[0-9]"))


def _decode(value: str) -> bytes:
    """Return the bytes in a base64 or base64url value, without an incomplete end."""
    whole = value.translate(str.maketrans("+/", "-_"))
    return urlsafe_b64decode(whole + "=" * (-len(whole) % 4)) if len(whole) % 4 != 1 else urlsafe_b64decode(whole[:-1])


def _is_certificate(der: bytes) -> bool:
    """Return whether the bytes are a single X.509 certificate and nothing more.

    A private key begins with an INTEGER, and an encrypted private key has an OBJECT IDENTIFIER there.
    """
    start, end = _read_sequence(der, 0)
    inner, _ = _read_sequence(der, start)
    return end == len(der) and inner > start > 0 and der[inner : inner + 1] in (bytes([_VERSION]), bytes([_INTEGER]))


def _begins_as_key(value: bytes) -> bool:
    start, _ = _read_sequence(value, 0)
    is_der = start > 0 and value[start : start + 1] in (bytes([_INTEGER]), bytes([_SEQUENCE])) and not _is_certificate(value)
    return is_der or value.startswith(_OPENSSH) or b"PRIVATE KEY" in value


def _read_sequence(der: bytes, at: int) -> tuple[int, int]:
    """Return where the content of the SEQUENCE at this place starts and ends, or zeros."""
    if at + 2 > len(der) or der[at] != _SEQUENCE:
        return 0, 0
    size = der[at + 1]
    if size < 0x80:
        return at + 2, at + 2 + size
    start = at + 2 + (size & 0x7F)
    return start, start + int.from_bytes(der[at + 2 : start])
