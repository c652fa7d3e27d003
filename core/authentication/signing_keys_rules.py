"""Entities, refusals and pure rules of `core.authentication.signing_keys`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.kernel.errors import TokenInvalid

if TYPE_CHECKING:
    from datetime import datetime

    pass


class UnknownKey(TokenInvalid):
    """The access token is signed with a key that is not in use."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An RSA key pair; `private_key` is PKCS #8 in PEM. The newest signs, those not yet retired are still believed. Times are UTC."""

    kid: str
    private_key: bytes = field(repr=False)
    created_at: datetime
    retires_at: datetime | None
