"""Entities, refusals and pure rules of `core.provisioning.tokens`."""

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

MOST: Final = 100  # of one organization
LONGEST: Final = 256  # characters; what is longer is none of our tokens, and is not hashed
START: Final = "scim_live_"
LABEL: Final = 6  # how many characters of a token tell it from others in a list
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"  # of base32, in lower case


class ScimTokenInvalid(Unauthenticated):
    """The SCIM token is unknown, expired or revoked. Send one that is valid in the header Authorization."""

    token_sent = True


class ScimTokenNotFound(NotFound):
    """There is no such SCIM token."""


class ScimTokenExpiryPast(Invalid):
    """A token expires at a time that is still to come."""


class TooManyScimTokens(Invalid):
    """The organization has as many SCIM tokens as it can have, which is 100. Revoke one that is not needed any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScimToken:
    """A token of an organization, without its text, which nobody has but its holder. Times are UTC; `expires_at` None is never."""

    id: UUID
    org_id: UUID
    name: str
    prefix: str
    expires_at: datetime | None
    created_by: UUID  # the account may be gone by now
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ScimTokenRecord:
    """What one statement knows of a token that has not expired, and of its organization."""

    token_id: UUID
    token_hash: bytes = field(repr=False)
    org_id: UUID
    org_slug: str
    status: OrganizationStatus


def new_token() -> tuple[str, str]:
    """A token of 256 random bits, and its prefix, by which lists show it."""
    prefix = START + "".join(secrets.choice(_ALPHABET) for _ in range(LABEL))
    return f"{prefix}_{new_secret()}", prefix
