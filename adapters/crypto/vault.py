"""Secrets at rest with AES-GCM."""

import base64
import binascii
import os
import re
import secrets
from collections.abc import Sequence
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ports.crypto import SecretContext, SealBroken

_VERSION = 1
_NONCE = 12  # 96 bits
_TAG = 16
_KEY_BYTES = 32
_KEY_ID = re.compile(r"[A-Za-z0-9_.-]{1,32}")


class AesVault:
    """ports.crypto.Vault with AES-256-GCM (security.md L-1, L-2).

    A sealed value is: version (1 byte), length of the key id (1 byte), key id, nonce (12 bytes), ciphertext with its tag. Where it
    is kept is part of what the tag covers, and every purpose, which is a table and a column, has a key of its own.
    """

    def __init__(self, keys: Sequence[tuple[str, bytes]]) -> None:
        """The first key encrypts, all decrypt. Raises ValueError with a sentence for the operator."""
        if not keys:
            raise ValueError("There is no encryption key; at least one is needed.")
        for position, (key_id, key) in enumerate(keys, 1):
            if not _KEY_ID.fullmatch(key_id):
                raise ValueError(f"The id of encryption key {position} must be 1 to 32 of the characters A-Z a-z 0-9 _ . -")
            if len(key) != _KEY_BYTES:
                raise ValueError(f"Encryption key {key_id!r} has {len(key)} bytes; it must have {_KEY_BYTES}.")
        self._keys = dict(keys)
        if len(self._keys) != len(keys):
            raise ValueError("Two encryption keys have the same id.")
        self._active = keys[0][0]
        self._derived: dict[tuple[str, str, str], AESGCM] = {}

    def seal(self, plaintext: bytes, place: SecretContext) -> bytes:
        """The value, encrypted under the active key."""
        nonce = os.urandom(_NONCE)
        head = bytes((_VERSION, len(self._active))) + self._active.encode()
        return head + nonce + self._cipher(self._active, place).encrypt(nonce, plaintext, _associated(place, self._active))

    def open(self, sealed: bytes, place: SecretContext) -> bytes:
        """The plaintext. Raises SealBroken."""
        key_id, start = _key_id(sealed)
        if key_id is None:
            _broken(place, "is not a sealed value")
        if key_id not in self._keys:
            _broken(place, f"is sealed under the key {key_id!r}, which is not configured")
        nonce, ciphertext = sealed[start : start + _NONCE], sealed[start + _NONCE :]
        try:
            return self._cipher(key_id, place).decrypt(nonce, ciphertext, _associated(place, key_id))
        except InvalidTag:
            _broken(place, f"does not open with the key {key_id!r}: it was changed, or comes from another place")

    def is_current(self, sealed: bytes) -> bool:
        """Whether the value was sealed under the active key."""
        return _key_id(sealed)[0] == self._active

    def _cipher(self, key_id: str, place: SecretContext) -> AESGCM:
        purpose = (key_id, place.table, place.column)
        cipher = self._derived.get(purpose)
        if cipher is None:
            label = _prefixed(b"gatehouse vault", place.table.encode(), place.column.encode())
            derived = HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=label).derive(self._keys[key_id])
            cipher = self._derived[purpose] = AESGCM(derived)
        return cipher


def parse_keys(text: str) -> tuple[tuple[str, bytes], ...]:
    """The keys of `id:base64,id:base64`. Raises ValueError with a sentence that repeats nothing secret."""
    keys = []
    for position, entry in enumerate(text.split(","), 1):
        key_id, colon, encoded = entry.strip().partition(":")
        # Both alphabets, with or without padding: what `openssl rand -base64 32` and Python's secrets module print.
        standard = encoded.replace("-", "+").replace("_", "/").rstrip("=")
        try:
            key = base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
        except (binascii.Error, ValueError):
            colon = ""
        if not colon:
            raise ValueError(f"Encryption key {position} is not of the form id:base64.")
        keys.append((key_id, key))
    return tuple(keys)


def generate_key() -> str:
    """A new encryption key as `parse_keys` reads it: `id:base64`, with a random id."""
    return f"{secrets.token_hex(4)}:{base64.b64encode(os.urandom(_KEY_BYTES)).decode()}"


def _key_id(sealed: bytes) -> tuple[str | None, int]:
    """The id of the key that a value is sealed under, and where its nonce starts; None for what is not a sealed value."""
    start = 2 + sealed[1] if len(sealed) > 1 else 0
    if len(sealed) < start + _NONCE + _TAG or sealed[0] != _VERSION:
        return None, 0
    key_id = sealed[2:start].decode("latin-1")
    return (key_id, start) if _KEY_ID.fullmatch(key_id) else (None, 0)


def _associated(place: SecretContext, key_id: str) -> bytes:
    purpose = f"{place.table}.{place.column}"
    return bytes((_VERSION,)) + _prefixed(*(part.encode() for part in (purpose, place.table, place.row, place.column, key_id)))


def _prefixed(*parts: bytes) -> bytes:
    """Each part behind its length, so that no two lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _broken(place: SecretContext, fact: str) -> NoReturn:
    raise SealBroken(f"{place.table}.{place.column} of {place.row} {fact}.") from None
