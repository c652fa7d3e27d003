"""Secrets that source code scanners find: our prefix, 256 random bits, and a checksum.

Programs keep such secrets in their configuration, which often leaks. The prefix makes the secrets easy to find. With
the checksum, a scanner recognizes them without a request to us. The checksum is the CRC-32 over everything before it,
in base62 (digits, upper case, lower case).
"""

import secrets
import zlib
from typing import Final

CREDENTIAL_PREFIX: Final = "gthc"  # for service accounts and API resources
# The form of credentials, for scanners. The documentation shows this form.
PATTERN: Final = r"\bgthc_[0-9A-Za-z]{49}\b"

_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_LENGTH: Final = 43  # 256 bits
_CHECKSUM_LENGTH: Final = 6  # a CRC-32
LENGTH: Final = len(CREDENTIAL_PREFIX) + 1 + _RANDOM_LENGTH + _CHECKSUM_LENGTH  # a whole credential
SHOWN_LENGTH: Final = len(CREDENTIAL_PREFIX) + 1 + 6  # the credential's start, which lists show


def generate(prefix: str) -> str:
    """Return a new secret with this prefix. An underscore, ASCII letters and digits follow it."""
    start = f"{prefix}_" + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_LENGTH))
    return start + _checksum(start)


def is_well_formed(text: str, prefix: str) -> bool:
    """Return whether a credential with this prefix can have this text. The answer needs no database query."""
    return len(text) == LENGTH and text.startswith(f"{prefix}_") and text.isascii() and has_valid_checksum(text)


def has_valid_checksum(text: str) -> bool:
    """Return whether the text ends with the right checksum for everything before it."""
    return text[-_CHECKSUM_LENGTH:] == _checksum(text[:-_CHECKSUM_LENGTH])


def _checksum(text: str) -> str:
    value, digits = zlib.crc32(text.encode()), ""
    for _ in range(_CHECKSUM_LENGTH):
        value, digit = divmod(value, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits
