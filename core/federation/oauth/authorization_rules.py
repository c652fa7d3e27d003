"""Entities, refusals and pure rules of `core.federation.oauth.authorization`."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from core.authentication.sessions_rules import Presenter
from core.kernel import uris
from core.kernel.errors import GrantInvalid, Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from core.applications.services_rules import Service
    from core.kernel.principals import BrowserSession, ServiceContext
    from core.kernel.values import Email

# The client id of the platform's own application, which is public and signs people in to the platform itself (decisions, point 88).
FRONTEND_CLIENT_ID: Final = "frontend"
AUTHORIZE_PATH: Final = "/auth/authorize"
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # of S256 (RFC 7636 section 4.2)
MAX_STATE_LENGTH: Final = 1024
CODE_TTL: Final = timedelta(seconds=60)


class OrgOrServiceMissing(Invalid):
    """To sign in to a service, send both org and service; to sign in to your account, neither."""


class ClientIdMismatch(Invalid):
    """The client_id is not that of the service which org and service name. Send the client_id alone, or org and service alone."""


class AuthorizationCodeInvalid(GrantInvalid):
    """The code is unknown, expired, used, or another application's, redirect_uri's or code_challenge's. Ask for another one."""


class RedirectUriMissing(Invalid):
    """Send redirect_uri: only an application that has registered exactly one may leave it out."""


class RedirectUriNotRegistered(Invalid):
    """This redirect URI is not one that the application has registered. Nobody was sent there."""


class CodeChallengeMissing(Invalid):
    """This application has to send code_challenge, with code_challenge_method S256 (PKCE, RFC 7636)."""


class CodeChallengeInvalid(Invalid):
    """The code_challenge must be 43 characters of base64url, and code_challenge_method S256 (PKCE, RFC 7636)."""


class OAuthStateInvalid(Invalid):
    """The state is too long, or has control characters in it: 1024 characters at most, all of them printable."""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """What an application asks for, as it came; `org` and `service` are slugs, None for the platform itself. Clients of OAuth that know
    nothing of these say the `client_id` instead."""

    org: str | None = None
    service: str | None = None
    redirect_uri: str | None = None
    state: str | None = None
    code_challenge: str | None = None
    code_challenge_method: str | None = None
    client_id: str | None = None

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> AuthorizationRequest:
        """What these fields ask for; those that are empty are taken for left out, and others ignored (RFC 6749 section 3.1)."""
        return cls(**{name: fields[name] for name in cls.__slots__ if fields.get(name)})

    @property
    def query(self) -> str:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return urlencode({name: value for name, value in fields.items() if value is not None})

    @property
    def path(self) -> str:
        """The address, on our own pages, at which this is asked for."""
        return f"{AUTHORIZE_PATH}?{self.query}" if self.query else AUTHORIZE_PATH


@dataclass(frozen=True, slots=True)
class Authorization:
    """A request that is sound: where a code goes, and for whom. `redirect_uri` is the one that counts, chosen or the only one there is;
    `service` and `context` are None for the platform's own frontend."""

    wanted: AuthorizationRequest
    service: Service | None
    context: ServiceContext | None
    redirect_uri: str | None  # None: on the hosted pages, for the platform without a frontend


@dataclass(frozen=True, slots=True)
class AuthorizationCode:
    """A code, as it is given: to whom, in the session of which browser, and what its exchange has to agree with. `service` is None for the
    platform's frontend, `redirect_uri` None where nobody named one. Times are UTC."""

    service: ServiceContext | None
    user_id: UUID
    browser_session_id: UUID
    redirect_uri: str | None
    code_challenge: str | None
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class IssuedCode:
    """Whose a code is, and the session of the browser that it was given to, with where that came from."""

    user_id: UUID
    email: Email
    email_verified: bool
    address: str | None
    agent: str | None
    browser: BrowserSession


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """An application that asks for tokens: a service, or None for the platform's frontend; `authenticated` if it has shown its client
    secret, or need not. Then it relies on PKCE."""

    service: Service | None
    context: ServiceContext | None
    authenticated: bool
    relies_on_pkce: bool

    @property
    def service_id(self) -> UUID | None:
        return None if self.service is None else self.service.id

    @property
    def client_id(self) -> UUID | None:
        """What a service is known by; the frontend goes by a name."""
        return None if self.service is None else self.service.client_id

    @property
    def presenter(self) -> Presenter:
        return Presenter(is_named=True, service_id=self.service_id, is_authenticated=self.authenticated)


def choose_redirect_uri(service: Service, asked: str | None) -> str:
    """Where a code goes: to what was asked for, if it is registered, character by character (security.md O-2).

    Only the port of the loopback interface is left to those who run there. Raises RedirectUriMissing, RedirectUriUnknown.
    """
    if asked is None:
        if len(service.redirect_uris) != 1:
            raise RedirectUriMissing
        return service.redirect_uris[0]
    if asked in service.redirect_uris:
        return asked
    if service.service_type.is_public and any(uris.equals_except_loopback_port(registered, asked) for registered in service.redirect_uris):
        return asked
    raise RedirectUriNotRegistered


def check_code_challenge(service: ServiceContext | None, challenge: str | None, method: str | None) -> None:
    """Whoever can keep no secret needs a challenge; None is the platform's frontend. Raises ChallengeMissing, ChallengeInvalid."""
    if challenge is None and method is None:
        if service is None or service.is_public:
            raise CodeChallengeMissing
    elif method != "S256" or challenge is None or not _CHALLENGE.fullmatch(challenge):
        raise CodeChallengeInvalid  # without a method it would be `plain` (RFC 7636 section 4.3)


def s256_challenge(verifier: str) -> str:
    """The S256 challenge that belongs to a verifier (RFC 7636 section 4.6)."""
    return urlsafe_b64encode(sha256(verifier.encode("utf-8", "surrogatepass")).digest()).rstrip(b"=").decode()


def error_uri(authorization: Authorization, error: str, base_url: str) -> str:
    """Where the browser goes when nothing comes of a request that has a redirect URI; `error` is a code of RFC 6749 section 4.1.2.1."""
    return response_uri(authorization, base_url, error=error)


def response_uri(authorization: Authorization, base_url: str, **answer: str) -> str:
    """The redirect URI with the answer, the state as it came, and who says so (RFC 6749 section 4.1.2, RFC 9207)."""
    assert authorization.redirect_uri is not None, "the hosted pages have none"
    if authorization.wanted.state is not None:
        answer["state"] = authorization.wanted.state
    separator = "&" if "?" in authorization.redirect_uri else "?"
    return f"{authorization.redirect_uri}{separator}{urlencode({**answer, 'iss': base_url})}"
