"""Trips of browsers to identity providers: to sign in, to link an account, or to sign in again for a session.

The browser goes to the identity provider with a state, and returns once with this state and a code.
We exchange the code for the identity of the user. Applications get no code or token here: the flow
continues at their request (security A-4, A-7, O-1, O-5, O-6).
"""

import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias
from uuid import UUID

from core.applications.model.services import Service
from core.authentication import oauth_credentials
from core.authentication.flow.methods import record_failure
from core.authentication.flow.model import FLOW_TTL, Flow, FlowEnded, FlowTarget, ProviderTrip, new_flow
from core.authentication.model.identities import ProviderUnknown, parse_provider
from core.authentication.model.login import LoginFailure
from core.federation.model.sign_in import (
    MAX_STATE_LENGTH,
    STATE_TTL,
    BrowserSignInNeeded,
    LinkOfAnotherBrowser,
    LinkTicketInvalid,
    ProviderAnswer,
    ProviderAnswerInvalid,
    ProviderConsentDenied,
    ProviderStateUnknown,
    SignedInAgain,
    SignedInAsAnotherUser,
    derive_secret,
)
from core.federation.oauth import requests
from core.federation.oauth import target as oauth_target
from core.federation.oauth.model import device_flow
from core.federation.oauth.model.authorization import AuthorizationRequest, AuthorizationResponse
from core.federation.oauth.model.openid_requests import check_request
from core.federation.oauth.model.pushed_requests import RequestUriInvalid
from core.federation.oauth.requests import WaitingRequest
from core.federation.upstream import session_links
from core.federation.upstream.provider_method import ProviderIdentity
from core.kernel.access import OrganizationNotFound, require_sign_in
from core.kernel.callers import OrganizationStatus, Visitor
from core.kernel.causes import Caller
from core.kernel.connections import ConnectionSlug
from core.kernel.errors import OrganizationNotActive, ProviderFailed, Refusal, refuse
from core.kernel.page_paths import HOME_PATH
from core.kernel.providers import AuthenticationRequest, FederatedIdentity, ReauthenticationNotConfirmed
from core.kernel.sign_in_age import SignInAge
from core.kernel.values import digest, is_printable, new_secret
from ports import Ports

_CODE_OR_ERROR: Final = re.compile("[ -~]{1,4096}")  # RFC 6749 appendices A.7 and A.11


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderReturn:
    """The answer that a browser brings from an identity provider, and the browser's secrets."""

    provider_name: str
    browser: str | None = field(repr=False)  # the secret in the device cookie
    state: str | None = field(repr=False)
    answer: ProviderAnswer


@dataclass(frozen=True, slots=True)
class ErrorReported:
    """The response that reports a failed sign-in to the application, and the code of the failure."""

    response: AuthorizationResponse
    code: str


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The provider authenticated a user, who is now signed in with this method in this flow."""

    flow: Flow
    method: ProviderIdentity


@dataclass(frozen=True, slots=True)
class IdentityLinked:
    """The identity was linked to the account of the session."""


@dataclass(frozen=True, slots=True)
class TripFailed:
    """The trip failed. The user can go back to the flow, or to the page from which they linked an account or signed in again."""

    problem: Refusal | ProviderFailed
    flow: Flow


TripResult: TypeAlias = ErrorReported | Authenticated | IdentityLinked | SignedInAgain | TripFailed


# The sign-in page


async def available_providers(ports: Ports, flow: Flow, service: Service | None) -> list[ConnectionSlug]:
    """Return the identity providers at which a user can sign in.

    The platform or the application of the waiting authorization request must have credentials there. If the flow wants a
    fresh sign-in, the provider must also be able to reauthenticate the user.
    """
    connections = ports.providers.connections.values()
    configured = [connection.slug for connection in connections if connection.can_reauthenticate or not flow.wants_fresh]
    available = oauth_credentials.platform_providers(ports)
    if configured and service is not None and flow.target is FlowTarget.OAUTH:
        async with ports.storage.reading() as read:
            available |= (await read.oauth_credentials.list_of_service(service.org_id, service.id)).keys()
    return [provider for provider in configured if provider in available]


# To the provider


async def begin(ports: Ports, caller: Caller, flow: Flow, provider: ConnectionSlug, device_cookie: str, base_url: str) -> str:
    """Return the URL of the provider at which the user signs in. `device_cookie` is the secret in the browser's device cookie.

    Raises: ProviderUnknown if neither the service nor the platform has credentials there; FlowEnded.
    """
    flow = replace(flow, expires_at=ports.clock.now() + FLOW_TTL)
    return await _start(ports, caller, flow, provider, device_cookie, base_url)


async def begin_flow(
    ports: Ports,
    caller: Caller,
    visitor: Visitor | None,
    request: AuthorizationRequest,
    provider: ConnectionSlug | None,
    user_code: str | None,
    browser_hash: bytes,
    base_url: str,
) -> Flow | None:
    """Return the flow of a sign-in that starts at this provider, or at a connection. None: the authorization endpoint answers the request.

    With the user code of a device, the browser continues at the page that approves it. A request with `org` alone
    comes from the lookup of an email domain (`home_realm.find_sign_in`): the user signs in to their own account.
    """
    now = ports.clock.now()
    if user_code is not None:
        async with ports.storage.reading() as read:
            client = await requests.find_service(read, request)
        org_id, service_id = (None, None) if client is None else (client[0].org_id, client[0].id)
        return new_flow(now, FlowTarget.PAGE, device_flow.verification_url(user_code), browser_hash, org_id=org_id, service_id=service_id)
    if request.org is not None and request == AuthorizationRequest(org=request.org):
        await _require_active(ports, request.org)
        return new_flow(now, FlowTarget.PAGE, HOME_PATH, browser_hash)
    try:
        waiting = await requests.check(ports, request, base_url)
        authorization = waiting.authorization
        if authorization.context is None and authorization.redirect_uri is None:  # nothing waits: the platform has no frontend
            return new_flow(now, FlowTarget.PAGE, HOME_PATH, browser_hash)
        if waiting.refusal is None:
            return await begin_request(ports, caller, visitor, waiting, provider, browser_hash)
    except RequestUriInvalid:  # this browser may have begun a flow with it
        return None
    check_request(waiting.authorization)
    return None


async def begin_request(
    ports: Ports, caller: Caller, visitor: Visitor | None, waiting: WaitingRequest, provider: ConnectionSlug | None, browser_hash: bytes
) -> Flow:
    """Begin the sign-in of a request at this provider, or at a connection.

    Raises: ProviderUnknown if neither the application nor the platform has credentials there; RequestUriInvalid.
    """
    context = waiting.authorization.context
    org_id, service_id = (None, None) if context is None else (context.org_id, context.id)
    if provider is not None:
        await oauth_credentials.load_client(ports, provider, org_id, service_id)
    return await requests.begin(ports, caller, visitor, waiting, browser_hash)


async def _require_active(ports: Ports, org_slug: str) -> None:
    """Check that the organization is active. Raises: OrganizationNotFound, OrganizationNotActive."""
    if not is_printable(org_slug):
        raise OrganizationNotFound
    async with ports.storage.reading() as read:
        status = await read.organizations.status_by_slug(org_slug) or refuse(OrganizationNotFound)
    if status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive


async def begin_with_ticket(
    ports: Ports, caller: Caller, provider_name: str, device_cookie: str, base_url: str, ticket: str, visitor: Visitor | None
) -> str:
    """Return the URL of the provider at which the user links an account, or signs in again for their session.

    Source: security O-6.

    The browser opened a URL with a ticket. `visitor` is the user who is signed in in this browser. The
    ticket works only in the browser of the session that it was made for. If that session has none, the
    user shows with a fresh sign-in that the browser is theirs. Other browsers do not use the ticket up.

    Raises: ProviderUnknown, LinkTicketInvalid, BrowserSignInNeeded, SignedInAsAnotherUser, LinkOfAnotherBrowser, SignInNotRecent.
    """
    provider, now = find_provider(ports, provider_name), ports.clock.now()
    async with ports.storage.reading() as read:
        trip = await read.flows.ticket(digest(ticket), provider, now) or refuse(LinkTicketInvalid)
    flow = trip.flow
    if visitor is None:
        raise BrowserSignInNeeded if flow.first_session_id is None else LinkOfAnotherBrowser
    # An attacker could send a ticket's URL to a victim, to link the victim's provider account to
    # the attacker's account.
    if visitor.user_id != trip.user_id:
        raise SignedInAsAnotherUser
    if flow.first_session_id is None:
        require_sign_in(visitor, SignInAge.FRESH, ports.policy, now)
    elif visitor.session_id != flow.first_session_id:
        raise LinkOfAnotherBrowser
    flow = replace(
        flow, browser_hash=digest(device_cookie), secret_hash=None, first_session_id=visitor.session_id, expires_at=now + STATE_TTL
    )
    return await _start(ports, caller, flow, provider, device_cookie, base_url, trip.user_id)


async def _start(
    ports: Ports,
    caller: Caller,
    flow: Flow,
    provider: ConnectionSlug,
    device_cookie: str,
    base_url: str,
    user_id: UUID | None = None,
) -> str:
    now, state = ports.clock.now(), new_secret()
    trip = ProviderTrip(flow=flow, provider=provider, user_id=user_id, begun_at=now, expires_at=now + STATE_TTL)
    if trip.org_id is not None and trip.service_id is not None:
        async with ports.storage.reading() as read:
            service = await read.services.by_id(trip.org_id, trip.service_id) or refuse(FlowEnded)
        trip = replace(trip, scopes=service.scopes_at(provider))
    request = await _authentication_request(ports, trip, state, device_cookie, base_url)
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.flows.start(trip, digest(state)):
            raise FlowEnded if user_id is None else LinkTicketInvalid
    return ports.providers.authorization_url(provider, request)


def find_provider(ports: Ports, provider_name: str) -> ConnectionSlug:
    """Return the identity provider with this name."""
    provider = parse_provider(provider_name)
    if provider not in ports.providers.connections:
        raise ProviderUnknown
    return provider


async def _authentication_request(ports: Ports, trip: ProviderTrip, state: str, device_cookie: str, base_url: str) -> AuthenticationRequest:
    """Return the request to the provider. It is the same before the redirect and after it."""
    return AuthenticationRequest(
        client=await oauth_credentials.load_client(ports, trip.provider, trip.org_id, trip.service_id),
        redirect_uri=f"{base_url}/auth/{trip.provider}/callback",
        state=state,
        nonce=derive_secret("nonce", state, device_cookie),
        code_verifier=derive_secret("verifier", state, device_cookie),
        scopes=trip.scopes,
        fresh_since=_fresh_since(ports, trip),
    )


def _fresh_since(ports: Ports, trip: ProviderTrip) -> datetime | None:
    """Return the time (UTC) since when the provider must have authenticated the user, or None if that does not matter.

    It is that of the trip: in a flow that has been open for hours, the provider may have asked before.
    """
    if trip.flow.target is FlowTarget.REAUTHENTICATION:
        connection = ports.providers.connections.get(trip.provider)
        return trip.begun_at if connection is not None and connection.can_reauthenticate else None
    return trip.begun_at if trip.flow.wants_fresh else None


# Back from the provider


async def finish(ports: Ports, caller: Caller, visitor: Visitor | None, returned: ProviderReturn, base_url: str) -> TripResult:
    """Return the answer of the provider as a method, or do for the session of the browser what it went to the provider for.

    If the provider failed or the user refused, return the response that reports it to the waiting
    application. Without a waiting application, return the problem, as all others of a trip: those of
    `_fetch_identity` and `session_links.complete_for_session`.

    Raises: Limited, ProviderStateUnknown.
    """
    browser, state = returned.browser, returned.state
    trip, provider = None, parse_provider(returned.provider_name)
    if browser is not None and state is not None and len(state) <= MAX_STATE_LENGTH:
        async with ports.storage.transaction(by=caller) as tx:
            trip = await tx.flows.take_trip(digest(state), digest(browser), provider, ports.clock.now())
    if trip is None or browser is None or state is None:
        await record_failure(ports, caller, LoginFailure.STATE, provider or "", None)
        raise ProviderStateUnknown
    try:
        return await _finish(ports, caller, visitor, trip, browser, state, returned.answer, base_url)
    except (Refusal, ProviderFailed) as problem:
        return TripFailed(problem, trip.flow)


async def _finish(
    ports: Ports,
    caller: Caller,
    visitor: Visitor | None,
    trip: ProviderTrip,
    browser: str,
    state: str,
    answer: ProviderAnswer,
    base_url: str,
) -> TripResult:
    flow = trip.flow
    try:
        identity = await _fetch_identity(ports, caller, trip, browser, state, base_url, answer)
    except (ProviderConsentDenied, ProviderFailed) as failure:
        error = "access_denied" if isinstance(failure, ProviderConsentDenied) else "server_error"
        response = await oauth_target.fail(ports, flow, error, base_url) if flow.target is FlowTarget.OAUTH else None
        if response is None:
            raise
        return ErrorReported(response, failure.code)
    if flow.target not in (FlowTarget.LINK, FlowTarget.REAUTHENTICATION):
        return Authenticated(flow, ProviderIdentity(trip, identity))
    await session_links.complete_for_session(ports, caller, trip, identity, visitor)
    return IdentityLinked() if flow.target is FlowTarget.LINK else SignedInAgain(flow.request)


async def _fetch_identity(
    ports: Ports, caller: Caller, trip: ProviderTrip, device_cookie: str, state: str, base_url: str, answer: ProviderAnswer
) -> FederatedIdentity:
    """Exchange the provider's code for the identity of the user.

    Raises: ProviderAnswerInvalid for an answer that a provider never sends; ProviderConsentDenied
    if the user, or their administrator, refused; ReauthenticationNotConfirmed, ProviderFailed,
    ProviderUnknown.
    """
    try:
        connection = ports.providers.connections.get(trip.provider)
        if answer.issuer is not None and not (connection and connection.is_issuer(answer.issuer)):
            raise ProviderAnswerInvalid
        if not _CODE_OR_ERROR.fullmatch(answer.error or answer.code or ""):
            raise ProviderAnswerInvalid
        if answer.error == "access_denied":
            raise ProviderConsentDenied
        if answer.error is not None or answer.code is None:
            raise ProviderFailed(f"{trip.provider} answered with an error instead of a code")
        request = await _authentication_request(ports, trip, state, device_cookie, base_url)
        return await ports.providers.identify(trip.provider, request, answer.code)
    except (ProviderAnswerInvalid, ProviderConsentDenied, ReauthenticationNotConfirmed, ProviderFailed):
        await record_failure(ports, caller, LoginFailure.PROVIDER, trip.provider, None, trip.flow.application)
        raise
