"""Signing keys: the entity and its refusal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.kernel.errors import TokenInvalid

if TYPE_CHECKING:
    from datetime import datetime


class UnknownKey(TokenInvalid):
    """The access token is signed with a key that is not in use. Sign in again."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An RSA key pair. The newest key signs; older keys still verify until they retire. Times are UTC."""

    kid: str
    private_key: bytes = field(repr=False)  # PKCS #8 in PEM
    created_at: datetime
    retires_at: datetime | None
