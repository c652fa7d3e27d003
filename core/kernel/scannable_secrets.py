"""Secrets that scanners of source code find: a prefix of ours, 256 random bits, and a checksum.

Programs keep such secrets in their configuration, from where they leak. The prefix makes them easy to
find, and the checksum tells them from other text without asking us.
"""

from __future__ import annotations

import secrets
import zlib
from typing import Final

CREDENTIAL_PREFIX: Final = "gthc"  # of service accounts and API resources
PERSONAL_TOKEN_PREFIX: Final = "gthp"  # noqa: S105  (not a secret)
# The form of all of them, for scanners. The documentation shows it.
PATTERN: Final = r"\bgth[cp]_[0-9A-Za-z]{49}\b"

_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_LENGTH: Final = 43  # 256 bits
_CHECKSUM_LENGTH: Final = 6  # of CRC-32
LENGTH: Final = len(CREDENTIAL_PREFIX) + 1 + _RANDOM_LENGTH + _CHECKSUM_LENGTH
SHOWN_LENGTH: Final = len(CREDENTIAL_PREFIX) + 1 + 6  # lists show the start of a secret, which tells it from others


def generate(prefix: str) -> str:
    """Return a new secret with this prefix, in ASCII letters and digits."""
    start = f"{prefix}_" + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_LENGTH))
    return start + _checksum(start)


def is_well_formed(text: str, prefix: str) -> bool:
    """Return whether a secret with this prefix can have this text. Mistyped and invented secrets are found without a lookup."""
    start, checksum = text[:-_CHECKSUM_LENGTH], text[-_CHECKSUM_LENGTH:]
    return len(text) == LENGTH and text.startswith(f"{prefix}_") and text.isascii() and checksum == _checksum(start)


def _checksum(text: str) -> str:
    value, digits = zlib.crc32(text.encode()), ""
    for _ in range(_CHECKSUM_LENGTH):
        value, digit = divmod(value, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits
