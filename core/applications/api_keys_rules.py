"""Entities, refusals and pure rules of `core.applications.api_keys`."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Invalid, NotFound, Unauthenticated
from core.kernel.principals import Permission, ServiceContext
from core.kernel.values import new_secret

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID


# How exact `last_used_at` is (decisions, point 107): a key that is used all the time costs one write in so long.
LAST_USED_PRECISION: Final = timedelta(minutes=1)
LONGEST: Final = 256  # characters; what is longer is none of our keys, and is not hashed
LABEL: Final = 6  # how many characters of a key tell it from others in a list
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"  # of base32, in lower case


class ApiKeyInvalid(Unauthenticated):
    """The API key is missing, unknown, expired or deleted. Send one that is valid in the header X-Api-Key."""


class ApiKeyNotFound(NotFound):
    """There is no such API key."""


class NoPermissions(Invalid):
    """An API key has at least one permission. Name what it is to do."""


class PermissionTwice(Invalid):
    """A permission is named twice. Name each only once."""


class PermissionUnknown(Invalid):
    """There is no such permission."""

    def __init__(self) -> None:
        super().__init__(f"There is no such permission. There are: {', '.join(Permission)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key of one service, without its text, which nobody has but its holder. Times are UTC; `expires_at` None is never."""

    id: UUID
    org_id: UUID
    service_id: UUID
    name: str
    prefix: str
    permissions: tuple[Permission, ...]
    last_used_at: datetime | None
    expires_at: datetime | None
    created_by: UUID  # the account may be gone by now
    created_at: datetime


@dataclass(frozen=True, slots=True)
class KeyStanding:
    """What one statement knows of a key that has not expired, and of the service that it is for."""

    key_id: UUID
    key_hash: bytes = field(repr=False)
    permissions: frozenset[Permission]
    last_used_at: datetime | None
    service: ServiceContext


def new_key(environment: str | None = None) -> tuple[str, str]:
    """A key, and its prefix, by which lists show it; both name the environment, if there is one (decisions, point 104)."""
    label = "".join(secrets.choice(_ALPHABET) for _ in range(LABEL))
    prefix = "_".join(["sk", *([] if environment is None else [environment]), label])
    return f"{prefix}_{new_secret()}", prefix


def grantable(names: Sequence[str]) -> tuple[Permission, ...]:
    """The permissions of these names, if a key can have them (security.md K-2).

    Raises NoPermissions, PermissionUnknown, PermissionTwice.
    """
    if not names:
        raise NoPermissions
    if not set(names) <= set(Permission):
        raise PermissionUnknown
    if len(set(names)) < len(names):
        raise PermissionTwice
    return tuple(Permission(name) for name in names)
