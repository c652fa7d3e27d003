"""The strict reader for ceremonies in the W3C's JSON.

JSON has many spellings for the same content, and only the browsers' spelling is accepted.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from core.accounts.model import passkeys

MAX_CLIENT_DATA: Final = 4096  # bytes
MAX_ATTESTATION_OBJECT: Final = 16_384
MAX_AUTHENTICATOR_DATA: Final = 2048
MAX_SIGNATURE: Final = 1024
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+")
_TO_BASE64: Final = bytes.maketrans(b"-_", b"+/")
_LAST: Final = (None, "", "AQgw", "AEIMQUYcgkosw048")  # by the length modulo 4: the last characters that have zeros as spare bits
_MAX_DEPTH: Final = 8


def encode(data: bytes) -> str:
    """Return the bytes in base64url without padding (RFC 4648 section 5)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: object, limit: int) -> bytes:
    """Return the bytes in base64url without padding, at least 1 and at most `limit`. Raises: CeremonyRefused."""
    if not isinstance(text, str) or len(text) > (limit * 4 + 2) // 3 or not _BASE64URL.fullmatch(text):
        _fail()
    last = _LAST[len(text) % 4]
    if last is not None and text[-1] not in last:
        _fail()
    return binascii.a2b_base64(text.encode().translate(_TO_BASE64) + b"==")


def read_credential(credential: Mapping[str, Any]) -> tuple[bytes, Mapping[str, Any]]:
    """Return the credential id and the member `response`. Raises: CeremonyRefused."""
    id_, response = credential.get("id"), credential.get("response")
    if credential.get("type") != "public-key" or credential.get("rawId") != id_ or not isinstance(response, Mapping):
        _fail()
    return decode(id_, passkeys.MAX_CREDENTIAL_ID), response


def read_client_data(raw: bytes) -> Mapping[str, Any]:
    """Return the object in `clientDataJSON`, without doubled names. Raises: CeremonyRefused."""
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
        _check_depth(value, _MAX_DEPTH)
    except (ValueError, RecursionError):
        _fail()
    return value if isinstance(value, dict) else _fail()


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("duplicate name")
    return value


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError("not JSON")


def _check_depth(value: Any, left: int) -> None:
    if not isinstance(value, (dict, list)):
        return
    if left == 0:
        raise ValueError("too deep")
    for item in value.values() if isinstance(value, dict) else value:
        _check_depth(item, left - 1)


def _fail() -> NoReturn:
    raise passkeys.CeremonyRefused(passkeys.PasskeyReason.MALFORMED) from None
