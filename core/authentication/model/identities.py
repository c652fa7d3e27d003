"""Identities at providers, and an organization's credentials there."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.kernel import connections, errors, values

# The lease ends after this time, because the process that renews the token may have crashed. It is
# longer than the timeout of a request to the provider.
RENEWAL_TTL: Final = timedelta(seconds=15)


class AlreadyLinked(errors.Invalid):
    """You have already linked an account at this identity provider. Unlink it first."""


class OtherIdentityLinked(errors.Forbidden):
    """Your account is linked with another one at this identity provider. Sign in with that one, or in another way, and unlink it first."""


class NotLinked(errors.NotFound):
    """You have not linked an account at this identity provider."""


class LastSignInMethod(errors.Invalid):
    """This is your only way to sign in. Set a password and verify your email address, or link another account, before you unlink it."""


class RenewalInProgress(errors.Limited):
    """The token is being renewed. Try again in a second."""


class NoProviderToken(errors.NotFound):
    """You have no token from this identity provider. Sign in through it to get one."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An account at a provider that is linked to a user's account, with the tokens of the provider. Times are UTC."""

    id: UUID
    user_id: UUID
    service_id: UUID | None  # the service that it is linked in, or None for the account itself
    provider: connections.ConnectionSlug
    issuer: str
    subject: str
    email: values.Email | None
    linked_at: datetime
    tokens: connections.ProviderTokens


@dataclass(frozen=True, slots=True)
class PendingIdentity:
    """An identity that is linked when all required factors of the sign-in are verified.

    `known_elsewhere`: our account was found by the same identity in another context, and not by its email address.
    """

    service_id: UUID | None  # the service to link it in, or None for the account itself
    provider: connections.ConnectionSlug
    issuer: str
    subject: str
    email: values.Email | None
    tokens: connections.ProviderTokens
    known_elsewhere: bool

    def of(self, user_id: UUID, now: datetime) -> Identity:
        """Return the identity, linked to this user now."""
        return Identity(values.new_id(), user_id, self.service_id, self.provider, self.issuer, self.subject, self.email, now, self.tokens)


@dataclass(frozen=True, slots=True)
class LinkedPlace:
    """The account itself, or an application, where a user has linked an account at a provider."""

    provider: connections.ConnectionSlug
    org_id: UUID | None = None
    service_id: UUID | None = None  # None for the account itself
    service_name: str | None = None
    has_credentials: bool = False  # the application has its own at the provider


@dataclass(frozen=True, slots=True)
class IdentityMatch:
    """The user of a known identity. `is_here`: it is linked in the requested context."""

    id: UUID
    user_id: UUID
    is_here: bool


@dataclass(frozen=True, slots=True)
class TokenRenewal:
    """A lease to renew the tokens of an identity. A single request holds it, until `until` (UTC) at the latest."""

    identity_id: UUID
    refresh_token: str = field(repr=False)
    until: datetime


@dataclass(frozen=True, slots=True)
class ProviderToken:
    """A user's access token at a provider. `expires_at` (UTC) is None if the provider did not send it."""

    access_token: str = field(repr=False)
    expires_at: datetime | None
    scopes: tuple[str, ...]
    can_be_renewed: bool = False


class ProviderUnknown(errors.NotFound):
    """This identity provider does not exist, or it is not set up here. Use another one, or ask the operator of Gatehouse to set it up."""


class CredentialsNotSet(errors.NotFound):
    """This application has no credentials of its own at this identity provider. It uses those of the platform."""


@dataclass(frozen=True, slots=True)
class ServiceOAuthCredentials:
    """The OAuth client id of a service at an identity provider. The client secret is stored too, but never returned (security W-7)."""

    provider: connections.ConnectionSlug
    client_id: str
    updated_at: datetime


def parse_provider(name: str) -> connections.ConnectionSlug:
    """Return the provider with this name."""
    if name not in connections.PLATFORM_CONNECTIONS:
        raise ProviderUnknown
    return connections.ConnectionSlug(name)
