"""Encrypting stored secrets with AES-GCM, and values that tell whether the keys belong to a backup."""

import base64
import binascii
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ports import crypto

_VERSION = 1
_NONCE = 12  # 96 bits
_TAG = 16
_KEY_BYTES = 32
_KEY_ID = re.compile(r"[A-Za-z0-9_.-]{1,32}")


class AesVault:
    """Implements `ports.crypto.Vault` with AES-256-GCM (security L-1, L-2).

    An encrypted value has these parts: version (1 byte), the key id's length (1 byte), key id, nonce (12 bytes),
    ciphertext with its tag. The tag also covers the context. Every column has its own derived key.
    """

    def __init__(self, keys: Sequence[tuple[str, bytes]]) -> None:
        """The first key encrypts; all keys decrypt. Raises: ValueError with a message for the operator."""
        if not keys:
            raise ValueError("At least one encryption key is needed.")
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

    def seal(self, plaintext: bytes, context: crypto.SecretContext) -> bytes:
        nonce = os.urandom(_NONCE)
        head = bytes((_VERSION, len(self._active))) + self._active.encode()
        return head + nonce + self._cipher(self._active, context).encrypt(nonce, plaintext, _associated_data(context, self._active))

    def open(self, sealed: bytes, context: crypto.SecretContext) -> bytes:
        key_id, start = _key_id(sealed)
        if key_id is None:
            _fail(context, "is not an encrypted value")
        if key_id not in self._keys:
            _fail(context, f"is encrypted with the key {key_id!r}, which is not configured")
        nonce, ciphertext = sealed[start : start + _NONCE], sealed[start + _NONCE :]
        try:
            return self._cipher(key_id, context).decrypt(nonce, ciphertext, _associated_data(context, key_id))
        except InvalidTag:
            _fail(context, f"cannot be decrypted with the key {key_id!r}: it was changed, or copied from another row or column")

    def is_current(self, sealed: bytes) -> bool:
        return _key_id(sealed)[0] == self._active

    def _cipher(self, key_id: str, context: crypto.SecretContext) -> AESGCM:
        purpose = (key_id, context.table, context.column)
        cipher = self._derived.get(purpose)
        if cipher is None:
            label = _join_with_lengths(b"gatehouse vault", context.table.encode(), context.column.encode())
            derived = HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=label).derive(self._keys[key_id])
            cipher = self._derived[purpose] = AESGCM(derived)
        return cipher


def parse_keys(text: str) -> tuple[tuple[str, bytes], ...]:
    """Parse keys in the form `id:base64,id:base64`. Raises: ValueError with a message that contains no secret."""
    keys = []
    for position, entry in enumerate(text.split(","), 1):
        key_id, colon, encoded = entry.strip().partition(":")
        # Either base64 alphabet is accepted, with or without padding: `openssl rand -base64 32` and
        # Python's secrets module differ.
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
    """Return a new encryption key with a random id, in the form `id:base64` that `parse_keys` reads."""
    return f"{secrets.token_hex(4)}:{base64.b64encode(os.urandom(_KEY_BYTES)).decode()}"


def _key_id(sealed: bytes) -> tuple[str | None, int]:
    """Return the key id in an encrypted value and where its nonce starts. The id is None if the value is malformed."""
    start = 2 + sealed[1] if len(sealed) > 1 else 0
    if len(sealed) < start + _NONCE + _TAG or sealed[0] != _VERSION:
        return None, 0
    key_id = sealed[2:start].decode("latin-1")
    return (key_id, start) if _KEY_ID.fullmatch(key_id) else (None, 0)


def _associated_data(context: crypto.SecretContext, key_id: str) -> bytes:
    purpose = f"{context.table}.{context.column}"
    return bytes((_VERSION,)) + _join_with_lengths(
        *(part.encode() for part in (purpose, context.table, context.row, context.column, key_id))
    )


def _join_with_lengths(*parts: bytes) -> bytes:
    """Join the parts, with their lengths before them, so that different lists never give the same bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _fail(context: crypto.SecretContext, fact: str) -> NoReturn:
    raise crypto.SealBroken(f"{context.table}.{context.column} of {context.row} {fact}.") from None


_TEXT: Final = b"gatehouse backup"


def make_key_checks(keys: str) -> dict[str, str]:
    """Return checks by key id: a fixed text, encrypted with the key. Raises: ValueError."""
    return {key_id: base64.b64encode(AesVault([(key_id, key)]).seal(_TEXT, _context(key_id))).decode() for key_id, key in parse_keys(keys)}


def keys_that_do_not_fit(keys: str, checks: Mapping[str, str]) -> list[str]:
    """Return the check ids for which `keys` lacks the key, or has another key with this id. Raises: ValueError."""
    vault = AesVault(parse_keys(keys))
    return [key_id for key_id, check in checks.items() if not _fits(vault, key_id, check)]


def _fits(vault: AesVault, key_id: str, check: str) -> bool:
    try:
        return vault.open(base64.b64decode(check, validate=True), _context(key_id)) == _TEXT
    except (crypto.SealBroken, binascii.Error, ValueError):
        return False


def _context(key_id: str) -> crypto.SecretContext:
    return crypto.SecretContext("backup", key_id, "key_checks")
