"""Signing people in for applications: OAuth with authorization codes and PKCE (identity.md section 4.9; decisions, points 86 to 94;
security.md section 12; RFC 6749, RFC 7636, RFC 8252, RFC 9207).

An application sends the browser to us with a request. Whoever is signed in in the browser goes back with a code, which the application
exchanges for tokens: these never travel in an address.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode

from core import access, login, services, sessions, uris
from core.access import OrganizationStatus, Person
from core.errors import ClientInvalid, GrantInvalid, Invalid, NotFound, OrganizationNotActive, Refusal, refuse
from core.login_failures import LoginFailure
from core.services import ServiceNotFound
from core.sessions import SOMEBODY, Grant, Presenter, RefreshTokenInvalid, RefreshTokenNotYours
from core.values import digest, is_plain, new_id, new_secret, parse_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from core.access import BrowserSession, Caller, ServiceContext, Visitor
    from core.services import Service
    from core.sessions import TokenPair
    from core.values import Email
    from ports import Ports
    from ports.storage import Reading

# The client id of the platform's own application, which is public and signs people in to the platform itself (decisions, point 88).
FRONTEND: Final = "frontend"
AUTHORIZE: Final = "/auth/authorize"
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")  # of S256 (RFC 7636 section 4.2)
_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")  # RFC 7636 section 4.1
STATE_LENGTH: Final = 1024
CODE_TTL: Final = timedelta(seconds=60)


class ServiceHalfNamed(Invalid):
    """To sign in to a service, send both org and service; to sign in to your account, neither."""


class ClientNotThatService(Invalid):
    """The client_id is not that of the service which org and service name. Send the client_id alone, or org and service alone."""


class CodeInvalid(GrantInvalid):
    """The code is unknown, expired, used, or another application's, redirect_uri's or code_challenge's. Ask for another one."""


class RedirectUriMissing(Invalid):
    """Send redirect_uri: only an application that has registered exactly one may leave it out."""


class RedirectUriUnknown(Invalid):
    """This redirect URI is not one that the application has registered. Nobody was sent there."""


class ChallengeMissing(Invalid):
    """This application has to send code_challenge, with code_challenge_method S256 (PKCE, RFC 7636)."""


class ChallengeInvalid(Invalid):
    """The code_challenge must be 43 characters of base64url, and code_challenge_method S256 (PKCE, RFC 7636)."""


class StateInvalid(Invalid):
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
        return f"{AUTHORIZE}?{self.query}" if self.query else AUTHORIZE


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
class Application:
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


async def judge(ports: Ports, wanted: AuthorizationRequest) -> Authorization:
    """The request, if it is sound. Of one that is not, nobody but the person in the browser may hear: never the address that it names.

    Raises ServiceHalfNamed, OrganizationNotFound, OrganizationNotActive, ServiceNotFound, ClientNotThatService, RedirectUriMissing,
    RedirectUriUnknown, ChallengeMissing, ChallengeInvalid, StateInvalid.
    """
    if wanted.state is not None and (len(wanted.state) > STATE_LENGTH or not is_plain(wanted.state)):
        raise StateInvalid
    async with ports.storage.reading() as read:
        found = await application(read, wanted)
    if found is None:
        callback = _frontend_callback(ports)
        if wanted.redirect_uri not in (None, callback):
            raise RedirectUriUnknown
        if callback is not None:
            check_challenge(None, wanted.code_challenge, wanted.code_challenge_method)
        return Authorization(wanted, None, None, callback)
    service, context = found
    redirect_uri = choose_redirect_uri(service, wanted.redirect_uri)
    check_challenge(context, wanted.code_challenge, wanted.code_challenge_method)
    return Authorization(wanted, service, context, redirect_uri)


async def application(read: Reading, wanted: AuthorizationRequest) -> tuple[Service, ServiceContext] | None:
    """The service that is wanted, which can be signed in to; None for the platform itself.

    Raises ServiceHalfNamed, OrganizationNotFound, OrganizationNotActive, ServiceNotFound, ClientNotThatService.
    """
    if (wanted.org is None) != (wanted.service is None):
        raise ServiceHalfNamed
    if not is_plain(f"{wanted.org}{wanted.service}"):  # PostgreSQL cannot even be asked for some of what no slug has
        raise access.OrganizationNotFound
    if wanted.org is not None and wanted.service is not None:
        org_slug, found = wanted.org, await read.services.named(wanted.org, wanted.service)
    elif wanted.client_id in (None, FRONTEND):
        return None
    else:
        client_id = parse_id(wanted.client_id or "") or refuse(ServiceNotFound)
        found = await read.services.of_client(client_id) or refuse(ServiceNotFound)
        org_slug = found[1].org_slug
    await services.check_open(read, org_slug, found[1] if found else None)
    service, context = found or refuse(ServiceNotFound)
    if wanted.client_id not in (None, str(service.client_id)):
        raise ClientNotThatService
    return service, context


def _frontend_callback(ports: Ports) -> str | None:
    return None if ports.policy.frontend_url is None else f"{ports.policy.frontend_url}/auth/callback"


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
    if service.service_type.is_public and any(uris.is_same_but_for_port(registered, asked) for registered in service.redirect_uris):
        return asked
    raise RedirectUriUnknown


def check_challenge(service: ServiceContext | None, challenge: str | None, method: str | None) -> None:
    """Whoever can keep no secret needs a challenge; None is the platform's frontend. Raises ChallengeMissing, ChallengeInvalid."""
    if challenge is None and method is None:
        if service is None or service.is_public:
            raise ChallengeMissing
    elif method != "S256" or challenge is None or not _CHALLENGE.fullmatch(challenge):
        raise ChallengeInvalid  # without a method it would be `plain` (RFC 7636 section 4.3)


def challenge_of(verifier: str) -> str:
    """The S256 challenge that belongs to a verifier (RFC 7636 section 4.6)."""
    return urlsafe_b64encode(sha256(verifier.encode("utf-8", "surrogatepass")).digest()).rstrip(b"=").decode()


def failure(authorization: Authorization, error: str, base_url: str) -> str:
    """Where the browser goes when nothing comes of a request that has a redirect URI; `error` is a code of RFC 6749 section 4.1.2.1."""
    return _back(authorization, base_url, error=error)


def _back(authorization: Authorization, base_url: str, **answer: str) -> str:
    """The redirect URI with the answer, the state as it came, and who says so (RFC 6749 section 4.1.2, RFC 9207)."""
    assert authorization.redirect_uri is not None, "the hosted pages have none"
    if authorization.wanted.state is not None:
        answer["state"] = authorization.wanted.state
    separator = "&" if "?" in authorization.redirect_uri else "?"
    return f"{authorization.redirect_uri}{separator}{urlencode({**answer, 'iss': base_url})}"


async def judge_path(ports: Ports, path: str) -> Authorization | None:
    """The request that continues at this path of ours, if there is one, and it is sound."""
    start, _, query = path.partition("?")
    if start != AUTHORIZE:
        return None
    try:
        return await judge(ports, AuthorizationRequest.of(dict(parse_qsl(query))))
    except Refusal:
        return None


# Whoever is signed in


async def is_admitted(ports: Ports, visitor: Visitor, authorization: Authorization) -> bool:
    """Whether the organization lets the person use its services: whom its directory keeps out does not get as far as a code."""
    context = authorization.context
    if context is None:
        return True
    async with ports.storage.reading() as read:
        return not await read.scim_users.is_kept_out(context.org_id, visitor.user_id)


async def must_ask(ports: Ports, visitor: Visitor, authorization: Authorization) -> bool:
    """Whether the person has to say first that they want to be signed in there.

    An organization that does not know them yet would learn who visits it; and what is not the web's may be any program on their machine
    that says it is the application (RFC 8252 section 8.6).
    """
    context = authorization.context
    if context is None:
        return False
    if not (authorization.redirect_uri or "").startswith("https:"):
        return True
    async with ports.storage.reading() as read:
        return not await read.end_users.knows(context.org_id, visitor.user_id)


async def issue(ports: Ports, visitor: Visitor, authorization: Authorization, base_url: str) -> str:
    """Where the browser goes with a code, which is good once and for a minute (security.md O-4).

    Raises MfaMissing, ServiceNotFound, and what access.enter raises.
    """
    access.require_mfa(visitor)
    now, code = ports.clock.now(), new_secret()
    issued = AuthorizationCode(
        service=authorization.context,
        user_id=visitor.user_id,
        browser_session_id=visitor.session_id,
        redirect_uri=authorization.wanted.redirect_uri,
        code_challenge=authorization.wanted.code_challenge,
        created_at=now,
        expires_at=now + CODE_TTL,
    )
    async with ports.storage.transaction(by=visitor) as tx:
        await access.enter(tx, visitor, now)
        if not await tx.authorization_codes.add(issued, digest(code)):
            raise ServiceNotFound
    return _back(authorization, base_url, code=code)


# Applications


async def identify(ports: Ports, client_id: str | None, client_secret: str | None) -> Application | None:
    """The application that says it is this one; None if it says nothing. A secret that is sent must be right (RFC 6749 section 2.3).

    Raises ClientInvalid.
    """
    if client_id is None:
        return None if client_secret is None else refuse(ClientInvalid)
    if client_id == FRONTEND and client_secret is None and ports.policy.frontend_url is not None:
        return Application(None, None, authenticated=True, relies_on_pkce=True)
    known_by = parse_id(client_id) or refuse(ClientInvalid)
    async with ports.storage.reading() as read:
        service, context = await read.services.of_client(known_by) or refuse(ClientInvalid)
    if client_secret is None:
        needs_none = context.is_public or service.pkce_without_secret
        return Application(service, context, authenticated=needs_none, relies_on_pkce=True)
    if not compare_digest(digest(client_secret), service.client_secret_hash or b""):
        raise ClientInvalid
    return Application(service, context, authenticated=True, relies_on_pkce=False)


async def exchange(ports: Ports, application: Application, code: str, redirect_uri: str | None, verifier: str | None) -> TokenPair:
    """The first tokens of a session that a code is good for (decisions, points 88 to 93; security.md O-3 and O-4).

    It is one of the person, in the browser of theirs, whose address it has: what the application's own is says nothing about them. A code
    that comes a second time ends it. Raises ClientInvalid, CodeInvalid, OrganizationNotActive.
    """
    if not application.authenticated:
        raise ClientInvalid
    if application.context is not None and application.context.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    try:
        return await _redeem(ports, application, digest(code), redirect_uri, verifier)
    except CodeInvalid:
        ports.metrics.login_failed(LoginFailure.AUTHORIZATION_CODE)
        raise


async def _redeem(ports: Ports, application: Application, code_hash: bytes, redirect_uri: str | None, verifier: str | None) -> TokenPair:
    challenge = None
    if verifier is not None:
        challenge = challenge_of(verifier) if _VERIFIER.fullmatch(verifier) else refuse(CodeInvalid)
    elif application.relies_on_pkce:
        raise CodeInvalid
    async with ports.storage.reading() as read:
        issued = await read.authorization_codes.find(code_hash, application.context) or refuse(CodeInvalid)
    now, registered = ports.clock.now(), redirect_uri in _registered(ports, application)
    person = Person(
        user_id=issued.user_id,
        email=issued.email,
        email_verified=issued.email_verified,
        session_id=new_id(),
        service=application.context,
        address=issued.address,
        agent=issued.agent,
    )
    signed_in = None
    try:
        async with ports.storage.transaction(by=person, in_session=False) as tx:
            locked = tx.accounts.lock_usable(issued.user_id)
            redeemed = await tx.authorization_codes.redeem(
                code_hash, application.context, redirect_uri, challenge, person.session_id, now, registered=registered
            )
            account = locked.value or refuse(CodeInvalid)
            if redeemed:
                provider = issued.browser.provider or login.PASSWORD  # a session that an earlier release began does not say
                signed_in = await login.begin_at_service(
                    ports, tx, person, account, application.context, provider, issued.browser.device_id, Grant.AUTHORIZATION_CODE, now
                )
            elif (given := await tx.authorization_codes.given(code_hash, application.context)) is not None:
                await tx.sessions.end(given, now)
    except NotFound:  # the service, by now
        raise CodeInvalid from None
    if signed_in is None:
        raise CodeInvalid
    return login.tokens(ports, signed_in)


def _registered(ports: Ports, application: Application) -> tuple[str | None, ...]:
    return (_frontend_callback(ports),) if application.service is None else application.service.redirect_uris


async def refresh(ports: Ports, caller: Caller, application: Application | None, refresh_token: str) -> TokenPair:
    """New tokens for a refresh token, as sessions.refresh gives them; None is an application that does not say which one it is.

    Raises ClientInvalid where a client secret is missing, GrantInvalid, OrganizationNotActive, MembershipEnded.
    """
    presenter = _presenter(application)
    try:
        return await sessions.refresh(ports, caller, refresh_token, presenter)
    except RefreshTokenInvalid as refusal:
        if isinstance(refusal, RefreshTokenNotYours) and not presenter.is_authenticated:
            raise ClientInvalid from None
        raise GrantInvalid(refusal.message) from None


async def revoke(ports: Ports, caller: Caller, application: Application | None, token: str) -> None:
    """Make a token worthless, and the session that it is of (RFC 7009 section 2.1). What is not the application's stays as it is.

    Raises ClientInvalid where nothing came of it and a client secret was missing: of the application that is named, or else of the one
    whose token it is.
    """
    revoked = await sessions.revoke(ports, caller, token, _presenter(application))
    lacks_secret = revoked is False if application is None else not revoked and not application.authenticated
    if lacks_secret:
        raise ClientInvalid


def _presenter(application: Application | None) -> Presenter:
    return SOMEBODY if application is None else application.presenter
