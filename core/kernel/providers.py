"""The data that is exchanged with identity providers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from core.kernel.errors import Invalid
from core.kernel.values import Email


class ReauthenticationNotConfirmed(Invalid):
    """The application requires you to sign in again, and the identity provider did not confirm that you did. Sign in another way."""


@dataclass(frozen=True, slots=True)
class ProviderClient:
    """The OAuth client that is registered at a provider: the platform's, or a service's own."""

    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AuthenticationRequest:
    """The parameters in a redirect to a provider. The callback is checked against these parameters.

    `scopes` are requested in addition to the identifying scopes; None means the platform's defaults. With
    `fresh_since`, the user must authenticate at the provider after that time, in UTC. Sources: RFC 6749 section 4.1.1,
    RFC 7636, OpenID Connect Core section 3.1.2.1.
    """

    client: ProviderClient
    redirect_uri: str
    state: str = field(repr=False)
    nonce: str = field(repr=False)
    code_verifier: str = field(repr=False)
    scopes: Sequence[str] | None
    fresh_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class ProviderTokens:
    """A provider's API tokens for one user. `expires_at` is in UTC, or None if the provider did not say."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    expires_at: datetime | None
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FederatedIdentity:
    """The user that a provider authenticated. Provider, issuer and subject identify them, never the email address (security O-5).

    `email` is None if the provider returned no valid address. `email_verified` is true only if the provider asserts it,
    which `officesuite` never does. `is_fresh` is true if the provider authenticated the user again on request, which
    `codehost` cannot do.
    """

    issuer: str
    subject: str
    email: Email | None
    email_verified: bool
    tokens: ProviderTokens
    is_fresh: bool = False
