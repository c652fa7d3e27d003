"""Entities, refusals and pure rules of `core.authentication.identities`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Invalid, Limited, NotFound
from core.kernel.values import new_id

if TYPE_CHECKING:
    from uuid import UUID

    from core.kernel.providers import Provider, ProviderTokens
    from core.kernel.values import Email

# How long the address that links an account is good for: as long as it takes to open it (decisions, point 75).
TICKET_TTL: Final = timedelta(seconds=60)
# How long others wait at most for somebody who renews a token, and may have died over it: longer than a provider can take.
RENEWAL_TTL: Final = timedelta(seconds=15)


class AlreadyLinked(Invalid):
    """You have linked an account at this identity provider already. Unlink it first."""


class NotLinked(NotFound):
    """You have not linked an account at this identity provider."""


class LastSignInMethod(Invalid):
    """You could not sign in any more. Set a password and verify your address, or link another account, before you unlink this one."""


class RenewalInProgress(Limited):
    """The token is being renewed at this moment. Ask again in a second."""


class NoProviderToken(NotFound):
    """There is no token of yours from this identity provider. Sign in through it to get one."""


@dataclass(frozen=True, slots=True)
class LinkTicket:
    """Leave to link an account at a provider, for whoever started that in this session. It is kept as SHA-256. Times are UTC."""

    token_hash: bytes
    user_id: UUID
    session_id: UUID
    service_id: UUID | None  # where it is linked, if not in the account itself
    provider: Provider
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Identity:
    """An account at a provider that belongs to somebody here, in the account itself or in a service, and what came with it.
    Times are UTC."""

    id: UUID
    user_id: UUID
    service_id: UUID | None
    provider: Provider
    issuer: str
    subject: str
    email: Email | None
    linked_at: datetime
    tokens: ProviderTokens


@dataclass(frozen=True, slots=True)
class PendingIdentity:
    """An account at a provider that has opened somebody's here, and is to be linked to it in this context. `known_elsewhere` says that it
    opened it by being linked in another one, and not by its address."""

    service_id: UUID | None
    provider: Provider
    issuer: str
    subject: str
    email: Email | None
    tokens: ProviderTokens
    known_elsewhere: bool

    def of(self, user_id: UUID, now: datetime) -> Identity:
        """What it is when it is linked."""
        return Identity(new_id(), user_id, self.service_id, self.provider, self.issuer, self.subject, self.email, now, self.tokens)


@dataclass(frozen=True, slots=True)
class IdentityMatch:
    """Of an identity, whose it is, and whether it is one of the context that was asked about."""

    id: UUID
    user_id: UUID
    is_here: bool


@dataclass(frozen=True, slots=True)
class TokenRenewal:
    """Leave to ask the provider for new tokens in the place of those of an identity, for one at a time, until then, in UTC."""

    identity_id: UUID
    refresh_token: str = field(repr=False)
    until: datetime


@dataclass(frozen=True, slots=True)
class ProviderToken:
    """What somebody's programs reach a provider with. `expires_at`, in UTC, is None if the provider has not said."""

    access_token: str = field(repr=False)
    expires_at: datetime | None
    scopes: tuple[str, ...]
    can_be_renewed: bool = False
