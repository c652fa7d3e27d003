"""Signing people in for applications: OAuth with authorization codes and PKCE (identity.md section 4.9; decisions, points 86 to 94;
security.md section 12; RFC 6749, RFC 7636, RFC 8252, RFC 9207).

An application sends the browser to us with a request. Whoever is signed in in the browser goes back with a code, which the application
exchanges for tokens: these never travel in an address.
"""

from __future__ import annotations

import re
from hmac import compare_digest
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from core.accounts import own_account
from core.applications import services
from core.applications.services_rules import ServiceNotFound
from core.authentication import login, login_rules, sessions
from core.authentication.login_failures import LoginFailure
from core.authentication.sessions_rules import UNNAMED_PRESENTER, Grant, Presenter, RefreshTokenInvalid, RefreshTokenNotYours
from core.kernel import principals
from core.kernel.errors import ClientInvalid, GrantInvalid, NotFound, OrganizationNotActive, Refusal, refuse
from core.kernel.principals import OrganizationStatus, Person
from core.kernel.values import digest, is_printable, new_id, new_secret, parse_id

if TYPE_CHECKING:
    from core.applications.services_rules import Service
    from core.authentication.sessions_rules import TokenPair
    from core.kernel.principals import Caller, ServiceContext, Visitor
    from ports import Ports
    from ports.storage import Reading
from core.federation.oauth.authorization_rules import (
    AUTHORIZE_PATH,
    CODE_TTL,
    FRONTEND_CLIENT_ID,
    MAX_STATE_LENGTH,
    OAuthClient,
    Authorization,
    AuthorizationCode,
    AuthorizationRequest,
    ClientIdMismatch,
    AuthorizationCodeInvalid,
    RedirectUriNotRegistered,
    OrgOrServiceMissing,
    OAuthStateInvalid,
    response_uri,
    s256_challenge,
    check_code_challenge,
    choose_redirect_uri,
)

_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")  # RFC 7636 section 4.1


async def validate(ports: Ports, wanted: AuthorizationRequest) -> Authorization:
    """The request, if it is sound. Of one that is not, nobody but the person in the browser may hear: never the address that it names.

    Raises ServiceHalfNamed, OrganizationNotFound, OrganizationNotActive, ServiceNotFound, ClientNotThatService, RedirectUriMissing,
    RedirectUriUnknown, ChallengeMissing, ChallengeInvalid, StateInvalid.
    """
    if wanted.state is not None and (len(wanted.state) > MAX_STATE_LENGTH or not is_printable(wanted.state)):
        raise OAuthStateInvalid
    async with ports.storage.reading() as read:
        found = await find_service(read, wanted)
    if found is None:
        callback = _frontend_callback(ports)
        if wanted.redirect_uri not in (None, callback):
            raise RedirectUriNotRegistered
        if callback is not None:
            check_code_challenge(None, wanted.code_challenge, wanted.code_challenge_method)
        return Authorization(wanted, None, None, callback)
    service, context = found
    redirect_uri = choose_redirect_uri(service, wanted.redirect_uri)
    check_code_challenge(context, wanted.code_challenge, wanted.code_challenge_method)
    return Authorization(wanted, service, context, redirect_uri)


async def find_service(read: Reading, wanted: AuthorizationRequest) -> tuple[Service, ServiceContext] | None:
    """The service that is wanted, which can be signed in to; None for the platform itself.

    Raises ServiceHalfNamed, OrganizationNotFound, OrganizationNotActive, ServiceNotFound, ClientNotThatService.
    """
    if (wanted.org is None) != (wanted.service is None):
        raise OrgOrServiceMissing
    if not is_printable(f"{wanted.org}{wanted.service}"):  # PostgreSQL cannot even be asked for some of what no slug has
        raise principals.OrganizationNotFound
    if wanted.org is not None and wanted.service is not None:
        org_slug, found = wanted.org, await read.services.client_by_slug(wanted.org, wanted.service)
    elif wanted.client_id in (None, FRONTEND_CLIENT_ID):
        return None
    else:
        client_id = parse_id(wanted.client_id or "") or refuse(ServiceNotFound)
        found = await read.services.by_client_id(client_id) or refuse(ServiceNotFound)
        org_slug = found[1].org_slug
    await services.require_open(read, org_slug, found[1] if found else None)
    service, context = found or refuse(ServiceNotFound)
    if wanted.client_id not in (None, str(service.client_id)):
        raise ClientIdMismatch
    return service, context


def _frontend_callback(ports: Ports) -> str | None:
    return None if ports.policy.frontend_url is None else f"{ports.policy.frontend_url}/auth/callback"


async def authorization_at(ports: Ports, path: str) -> Authorization | None:
    """The request that continues at this path of ours, if there is one, and it is sound."""
    start, _, query = path.partition("?")
    if start != AUTHORIZE_PATH:
        return None
    try:
        return await validate(ports, AuthorizationRequest.of(dict(parse_qsl(query))))
    except Refusal:
        return None


# Whoever is signed in


async def is_admitted(ports: Ports, visitor: Visitor, authorization: Authorization) -> bool:
    """Whether the organization lets the person use its services: whom its directory keeps out does not get as far as a code."""
    context = authorization.context
    if context is None:
        return True
    async with ports.storage.reading() as read:
        return not await read.scim_users.is_blocked(context.org_id, visitor.user_id)


async def needs_consent(ports: Ports, visitor: Visitor, authorization: Authorization) -> bool:
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
        return not await read.end_users.is_known(context.org_id, visitor.user_id)


async def issue_code(ports: Ports, visitor: Visitor, authorization: Authorization, base_url: str) -> str:
    """Where the browser goes with a code, which is good once and for a minute (security.md O-4).

    Raises MfaMissing, ServiceNotFound, and what access.enter raises.
    """
    principals.require_mfa(visitor)
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
        await own_account.lock_own_account(tx, visitor, now)
        if not await tx.authorization_codes.add(issued, digest(code)):
            raise ServiceNotFound
    return response_uri(authorization, base_url, code=code)


# Applications


async def identify_client(ports: Ports, client_id: str | None, client_secret: str | None) -> OAuthClient | None:
    """The application that says it is this one; None if it says nothing. A secret that is sent must be right (RFC 6749 section 2.3).

    Raises ClientInvalid.
    """
    if client_id is None:
        return None if client_secret is None else refuse(ClientInvalid)
    if client_id == FRONTEND_CLIENT_ID and client_secret is None and ports.policy.frontend_url is not None:
        return OAuthClient(None, None, authenticated=True, relies_on_pkce=True)
    known_by = parse_id(client_id) or refuse(ClientInvalid)
    async with ports.storage.reading() as read:
        service, context = await read.services.by_client_id(known_by) or refuse(ClientInvalid)
    if client_secret is None:
        needs_none = context.is_public or service.pkce_without_secret
        return OAuthClient(service, context, authenticated=needs_none, relies_on_pkce=True)
    if not compare_digest(digest(client_secret), service.client_secret_hash or b""):
        raise ClientInvalid
    return OAuthClient(service, context, authenticated=True, relies_on_pkce=False)


async def exchange_code(ports: Ports, application: OAuthClient, code: str, redirect_uri: str | None, verifier: str | None) -> TokenPair:
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
    except AuthorizationCodeInvalid:
        ports.metrics.login_failed(LoginFailure.AUTHORIZATION_CODE)
        raise


async def _redeem(ports: Ports, application: OAuthClient, code_hash: bytes, redirect_uri: str | None, verifier: str | None) -> TokenPair:
    challenge = None
    if verifier is not None:
        challenge = s256_challenge(verifier) if _VERIFIER.fullmatch(verifier) else refuse(AuthorizationCodeInvalid)
    elif application.relies_on_pkce:
        raise AuthorizationCodeInvalid
    async with ports.storage.reading() as read:
        issued = await read.authorization_codes.find(code_hash, application.context) or refuse(AuthorizationCodeInvalid)
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
            account = locked.value or refuse(AuthorizationCodeInvalid)
            if redeemed:
                provider = issued.browser.provider or login_rules.PASSWORD  # a session that an earlier release began does not say
                signed_in = await login.begin_at_service(
                    ports, tx, person, account, application.context, provider, issued.browser.device_id, Grant.AUTHORIZATION_CODE, now
                )
            elif (given := await tx.authorization_codes.given(code_hash, application.context)) is not None:
                await tx.sessions.end(given, now)
    except NotFound:  # the service, by now
        raise AuthorizationCodeInvalid from None
    if signed_in is None:
        raise AuthorizationCodeInvalid
    return login.tokens(ports, signed_in)


def _registered(ports: Ports, application: OAuthClient) -> tuple[str | None, ...]:
    return (_frontend_callback(ports),) if application.service is None else application.service.redirect_uris


async def refresh_tokens(ports: Ports, caller: Caller, application: OAuthClient | None, refresh_token: str) -> TokenPair:
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


async def revoke_token(ports: Ports, caller: Caller, application: OAuthClient | None, token: str) -> None:
    """Make a token worthless, and the session that it is of (RFC 7009 section 2.1). What is not the application's stays as it is.

    Raises ClientInvalid where nothing came of it and a client secret was missing: of the application that is named, or else of the one
    whose token it is.
    """
    revoked = await sessions.revoke(ports, caller, token, _presenter(application))
    lacks_secret = revoked is False if application is None else not revoked and not application.authenticated
    if lacks_secret:
        raise ClientInvalid


def _presenter(application: OAuthClient | None) -> Presenter:
    return UNNAMED_PRESENTER if application is None else application.presenter
