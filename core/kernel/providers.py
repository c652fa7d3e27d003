"""The external identity providers, in the specification's neutral words, and what they say about people.

Two of them speak OpenID Connect; `codehost` speaks plain OAuth, and is asked for the address in a call of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from core.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from core.kernel.values import Email


class Provider(StrEnum):
    """Who vouches for people beside us (the conventions of both documents)."""

    CODEHOST = "codehost"
    WEBSUITE = "websuite"
    OFFICESUITE = "officesuite"


# Those that can be asked to have people show who they are again (OpenID Connect Core section 3.1.2.1); plain OAuth has no words for it.
ASKS_AGAIN: Final = frozenset({Provider.WEBSUITE, Provider.OFFICESUITE})


class NotAfresh(Invalid):
    """The application wants you to sign in afresh, which the identity provider did not ask of you. Sign in in another way."""


@dataclass(frozen=True, slots=True)
class ProviderClient:
    """By what a provider knows us: the platform, or a service with credentials of its own (decisions, point 211)."""

    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AuthenticationRequest:
    """What a browser is sent to a provider with, and what it must come back with (RFC 6749 section 4.1.1, RFC 7636, OpenID Connect Core
    section 3.1.2.1). `scopes` are those beyond what identifies the person, None for the platform's default ones (decisions, point 102).
    With `fresh_since` the person has to show there who they are, and not before that time, in UTC.
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
    """What a provider gives to use its own interface in somebody's name. `expires_at`, in UTC, is None if it has not said."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    expires_at: datetime | None
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FederatedIdentity:
    """Whom a provider vouches for: the key of an identity is provider, issuer and subject, never an address (security.md O-5).

    `email` is None if it says none that can be one; `email_verified` only if it asserts that, which `officesuite` never does (decisions,
    point 101). `is_fresh` if the person was to show again who they are, which is never said of `codehost`.
    """

    issuer: str
    subject: str
    email: Email | None
    email_verified: bool
    tokens: ProviderTokens
    is_fresh: bool = False
