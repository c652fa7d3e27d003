"""Values that tell whether encryption keys belong to a backup, without revealing anything about the keys."""

import base64
import binascii
from collections.abc import Mapping
from typing import Final

from adapters.crypto.vault import AesVault, parse_keys
from ports.crypto import SealBroken, SecretContext

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
    except (SealBroken, binascii.Error, ValueError):
        return False


def _context(key_id: str) -> SecretContext:
    return SecretContext("backup", key_id, "key_checks")
