"""Registration tokens: the initial access tokens with which clients register themselves as applications (RFC 7591 section 3)."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from core.kernel import errors, scannable_secrets
from core.kernel.callers import OrganizationStatus
from core.programs.model.organization_tokens import is_expired

MAX_USES: Final = 1_000
TOKEN_PREFIX: Final = "gthr"  # noqa: S105  (a prefix, not a secret)


class RegistrationTokenInvalid(errors.Unauthenticated):
    """The registration token is unknown, expired, used up or deleted. Ask an admin of the organization for another one."""

    token_sent = True


class RegistrationTokenNotFound(errors.NotFound):
    """This registration token does not exist. See the list of registration tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationToken:
    """A registration token, without its secret. Times are UTC."""

    id: UUID
    org_id: UUID
    name: str
    prefix: str  # how the secret starts
    uses_left: int  # applications that can still register with it
    expires_at: datetime | None
    created_by: UUID  # this account may no longer exist
    created_at: datetime
    last_used_at: datetime | None = None

    def is_spent(self, now: datetime) -> bool:
        """Return whether the token has no uses left, or has expired."""
        return self.uses_left == 0 or is_expired(self.expires_at, now)


@dataclass(frozen=True, slots=True)
class RegistrationTokenRecord:
    """A registration token that can be used now, and its organization, as loaded for a request."""

    token: RegistrationToken
    status: OrganizationStatus


def new_token() -> tuple[str, str]:
    """Return a new token's secret, and its prefix."""
    secret = scannable_secrets.generate(TOKEN_PREFIX)
    return secret, secret[: scannable_secrets.SHOWN_LENGTH]


def is_well_formed(secret: str) -> bool:
    """Return whether a registration token can have this text. The answer needs no database query."""
    return scannable_secrets.is_well_formed(secret, TOKEN_PREFIX)
