"""SCIM tokens: the entity, its limits, and the format of the secret."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Invalid, NotFound, Unauthenticated
from core.kernel.values import new_secret

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.kernel.principals import OrganizationStatus

MAX_TOKENS: Final = 100  # of one organization
MAX_TOKEN_LENGTH: Final = 256  # longer texts cannot be valid tokens and are not hashed
TOKEN_START: Final = "scim_live_"  # noqa: S105  (a prefix, not a secret)
_PREFIX_LENGTH: Final = 6  # random characters that identify a token in lists
_BASE32: Final = "abcdefghijklmnopqrstuvwxyz234567"


class ScimTokenInvalid(Unauthenticated):
    """The SCIM token is unknown, expired or revoked. Send a valid token in the header Authorization."""

    token_sent = True


class ScimTokenNotFound(NotFound):
    """This SCIM token does not exist."""


class ScimTokenExpiryPast(Invalid):
    """The expiry of the token must be in the future."""


class TooManyScimTokens(Invalid):
    """The organization already has the maximum number of SCIM tokens. Revoke a token first."""

    audited = True

    def __init__(self) -> None:
        super().__init__(f"The organization already has the maximum of {MAX_TOKENS} SCIM tokens. Revoke one that you no longer need.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScimToken:
    """A SCIM token of an organization, without its secret. Times are UTC."""

    id: UUID
    org_id: UUID
    name: str
    prefix: str  # the first characters of the secret, to recognize the token in lists
    expires_at: datetime | None  # None: does not expire
    created_by: UUID  # the account may no longer exist
    created_at: datetime


@dataclass(frozen=True, slots=True)
class TokenEnd:
    """The consequences of revoking a token. Times are UTC."""

    token: ScimToken
    users: int  # the users that its directory sees
    last_used_at: datetime | None  # of its last request that is still in the log


@dataclass(frozen=True, slots=True)
class ScimTokenRecord:
    """A token and its organization, as one statement reads them."""

    token_id: UUID
    token_hash: bytes = field(repr=False)
    org_id: UUID
    org_slug: str
    status: OrganizationStatus
    is_expired: bool


def new_token() -> tuple[str, str]:
    """Return a new secret with 256 random bits, and its prefix."""
    prefix = TOKEN_START + "".join(secrets.choice(_BASE32) for _ in range(_PREFIX_LENGTH))
    return f"{prefix}_{new_secret()}", prefix
