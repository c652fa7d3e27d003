"""Provider requests at platform identity providers: to sign in, to link an account, or to sign in again for a session.

`core.federation.connections.provider_requests` says how a provider request starts and ends. We exchange the code for the user's identity.
Applications get no code or token here: the flow continues at their request (security A-4, A-7, O-1, O-5, O-6).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias
from uuid import UUID

from core.applications.model.services import Service
from core.authentication import oauth_credentials
from core.authentication.flow.methods import record_failure
from core.authentication.flow.model import FLOW_TTL, Flow, FlowEnded, FlowTarget, ProviderRequest, new_flow
from core.authentication.model import identities
from core.authentication.model.login import LoginFailure
from core.federation.connections import openid, platform_identities, provider_requests
from core.federation.connections.model import platform
from core.federation.connections.model.openid import OpenIdAnswerRefused, OpenIdClient, OpenIdErrorReturned
from core.federation.connections.model.saml import ProviderRedirect
from core.federation.connections.platform_identities import ProviderIdentity
from core.federation.connections.routing import KnownRoutes
from core.federation.model import sign_in
from core.federation.oauth import requests
from core.federation.oauth import target as oauth_target
from core.federation.oauth.model import device_flow
from core.federation.oauth.model.authorization import AuthorizationRequest, AuthorizationResponse, RequestUriInvalid
from core.federation.oauth.model.openid_requests import check_request
from core.federation.oauth.requests import WaitingRequest
from core.kernel import access, callers, errors, values
from core.kernel.causes import Caller
from core.kernel.connections import (
    PLATFORM_CONNECTIONS,
    Connection,
    ConnectionSlug,
    FederatedIdentity,
    ReauthenticationNotConfirmed,
)
from core.kernel.page_paths import HOME_PATH
from core.kernel.sign_in_age import SignInAge
from ports import Ports


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


PlatformRequestResult: TypeAlias = (
    ErrorReported | Authenticated | IdentityLinked | sign_in.SignedInAgain | provider_requests.ProviderRequestFailed
)


# The sign-in page


async def available_providers(ports: Ports, known: KnownRoutes, flow: Flow, service: Service | None) -> list[ConnectionSlug]:
    """Return the identity providers at which a user can sign in.

    The platform or the application of the waiting authorization request must have credentials there. If the flow wants a
    fresh sign-in, the provider must also be able to reauthenticate the user.
    """
    await known.refresh(ports)
    connections = [each for each in known.platform_connections if each.can_reauthenticate or not flow.wants_fresh]
    own: Mapping[ConnectionSlug, identities.ServiceOAuthCredentials] = {}
    if connections and service is not None and flow.target is FlowTarget.OAUTH:
        async with ports.storage.reading() as read:
            own = await read.oauth_credentials.list_of_service(service.org_id, service.id)
    return [each.slug for each in connections if each.settings.client_id is not None or each.slug in own]


# To the provider


async def begin(ports: Ports, caller: Caller, provider: ConnectionSlug, device_cookie: str, base_url: str, flow: Flow) -> ProviderRedirect:
    """Return the place at the provider at which the user signs in. `device_cookie` is the secret in the browser's device cookie.

    Raises: ProviderUnknown if neither the service nor the platform has credentials there; FlowEnded.
    """
    flow = replace(flow, expires_at=ports.clock.now() + FLOW_TTL)
    return await _start(ports, caller, flow, provider, device_cookie, base_url)


async def begin_flow(
    ports: Ports,
    caller: Caller,
    visitor: callers.Visitor | None,
    request: AuthorizationRequest,
    provider: ConnectionSlug | None,
    user_code: str | None,
    browser_hash: bytes,
    base_url: str,
) -> Flow | None:
    """Return the flow of a sign-in that starts at this provider, or at a connection. None: the authorization endpoint answers the request.

    With the user code of a device, the browser continues at the page that approves it. A request with `org` alone
    comes from the lookup of an email domain (`routing.find_sign_in`): the user signs in to their own account.
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
    ports: Ports,
    caller: Caller,
    visitor: callers.Visitor | None,
    waiting: WaitingRequest,
    provider: ConnectionSlug | None,
    browser_hash: bytes,
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
    if not values.is_printable(org_slug):
        raise access.OrganizationNotFound
    async with ports.storage.reading() as read:
        status = await read.organizations.status_by_slug(org_slug) or errors.refuse(access.OrganizationNotFound)
    if status is not callers.OrganizationStatus.ACTIVE:
        raise errors.OrganizationNotActive


async def begin_with_ticket(
    ports: Ports, caller: Caller, provider_name: str, device_cookie: str, base_url: str, ticket: str, visitor: callers.Visitor | None
) -> ProviderRedirect:
    """Return the place at the provider at which the user links an account, or signs in again for their session.

    Source: security O-6.

    The browser opened a URL with a ticket. `visitor` is the user who is signed in in this browser. The
    ticket works only in the browser of the session that it was made for. If that session has none, the
    user shows with a fresh sign-in that the browser is theirs. Other browsers do not use the ticket up.

    Raises: ProviderUnknown, LinkTicketInvalid, BrowserSignInNeeded, SignedInAsAnotherUser, LinkOfAnotherBrowser, SignInNotRecent.
    """
    provider, now = identities.parse_provider(provider_name), ports.clock.now()
    async with ports.storage.reading() as read:
        if provider not in {each.slug for each in await read.oauth_credentials.list_connections()}:
            raise identities.ProviderUnknown
        provider_request = await read.flows.ticket(values.digest(ticket), id_of(provider), now) or errors.refuse(sign_in.LinkTicketInvalid)
    flow = provider_request.flow
    if visitor is None:
        raise sign_in.BrowserSignInNeeded if flow.first_session_id is None else sign_in.LinkOfAnotherBrowser
    # An attacker could send a ticket's URL to a victim, to link the victim's provider account to
    # the attacker's account.
    if visitor.user_id != provider_request.user_id:
        raise sign_in.SignedInAsAnotherUser
    if flow.first_session_id is None:
        access.require_sign_in(visitor, SignInAge.FRESH, ports.policy, now)
    elif visitor.session_id != flow.first_session_id:
        raise sign_in.LinkOfAnotherBrowser
    flow = replace(
        flow,
        browser_hash=values.digest(device_cookie),
        secret_hash=None,
        first_session_id=visitor.session_id,
        expires_at=now + sign_in.STATE_TTL,
    )
    return await _start(ports, caller, flow, provider, device_cookie, base_url, provider_request.user_id)


async def _start(
    ports: Ports,
    caller: Caller,
    flow: Flow,
    provider: ConnectionSlug,
    device_cookie: str,
    base_url: str,
    user_id: UUID | None = None,
) -> ProviderRedirect:
    now, state = ports.clock.now(), values.new_secret()
    provider_request = ProviderRequest(
        flow=flow, connection_id=id_of(provider), user_id=user_id, begun_at=now, expires_at=now + sign_in.STATE_TTL
    )
    if provider_request.org_id is not None and provider_request.service_id is not None:
        async with ports.storage.reading() as read:
            service = await read.services.by_id(provider_request.org_id, provider_request.service_id) or errors.refuse(FlowEnded)
        provider_request = replace(provider_request, scopes=service.scopes_at(provider))
    connection, client = await _load(ports, provider, provider_request)
    request = platform.make_request(connection, provider_request, state, device_cookie, base_url)
    try:
        await provider_requests.store(ports, caller, provider_request, state)
    except FlowEnded:
        raise FlowEnded if user_id is None else sign_in.LinkTicketInvalid from None
    return ProviderRedirect(await openid.start(ports, client, request))


def id_of(provider: ConnectionSlug) -> UUID:
    """Return this platform connection's id."""
    return PLATFORM_CONNECTIONS[provider][0]


async def _load(ports: Ports, provider: ConnectionSlug, provider_request: ProviderRequest) -> tuple[Connection, OpenIdClient]:
    """Return a provider request's connection, and the client to use there. Raises: ProviderUnknown."""
    connection, client = await oauth_credentials.load_client(ports, provider, provider_request.org_id, provider_request.service_id)
    return connection, platform.to_client(connection, client)


# Back from the provider


async def finish(
    ports: Ports,
    caller: Caller,
    visitor: callers.Visitor | None,
    provider: ConnectionSlug,
    returned: provider_requests.ConnectionReturn,
    base_url: str,
) -> PlatformRequestResult:
    """Return the answer of the provider as a method, or do for the session of the browser what it went to the provider for.

    If the provider failed or the user refused, return the response that reports it to the waiting
    application. Without a waiting application, return the problem. Problems are the errors of
    `_fetch_identity` and `platform_identities.complete_for_session`.

    Raises: Limited, ProviderStateUnknown.
    """
    provider_request, _ = await provider_requests.take(ports, caller, returned, provider)
    try:
        return await _finish(ports, caller, visitor, provider, provider_request, returned, base_url)
    except (errors.Refusal, errors.ProviderFailed) as problem:
        return provider_requests.ProviderRequestFailed(problem, provider_request.flow)


async def _finish(
    ports: Ports,
    caller: Caller,
    visitor: callers.Visitor | None,
    provider: ConnectionSlug,
    provider_request: ProviderRequest,
    returned: provider_requests.ConnectionReturn,
    base_url: str,
) -> PlatformRequestResult:
    flow = provider_request.flow
    try:
        identity = await _fetch_identity(ports, provider, provider_request, returned, base_url)
    except (sign_in.ProviderAnswerInvalid, sign_in.ProviderConsentDenied, ReauthenticationNotConfirmed, errors.ProviderFailed) as failure:
        await record_failure(ports, caller, LoginFailure.PROVIDER, provider, None, flow.application)
        error = "access_denied" if isinstance(failure, sign_in.ProviderConsentDenied) else "server_error"
        is_reported = isinstance(failure, (sign_in.ProviderConsentDenied, errors.ProviderFailed)) and flow.target is FlowTarget.OAUTH
        response = await oauth_target.fail(ports, flow, error, base_url) if is_reported else None
        if response is None:
            raise
        return ErrorReported(response, failure.code)
    if flow.target not in (FlowTarget.LINK, FlowTarget.REAUTHENTICATION):
        return Authenticated(flow, ProviderIdentity(provider_request, identity))
    await platform_identities.complete_for_session(ports, caller, provider_request, identity, visitor)
    return IdentityLinked() if flow.target is FlowTarget.LINK else sign_in.SignedInAgain(flow.request)


async def _fetch_identity(
    ports: Ports, provider: ConnectionSlug, provider_request: ProviderRequest, returned: provider_requests.ConnectionReturn, base_url: str
) -> FederatedIdentity:
    """Exchange the provider's code for the identity of the user.

    Raises: ProviderAnswerInvalid for an answer that a provider never sends; ProviderConsentDenied
    if the user, or their administrator, refused; ReauthenticationNotConfirmed, ProviderFailed,
    ProviderUnknown.
    """
    answer, browser, state = returned.answer, returned.browser, returned.state
    if not isinstance(answer, sign_in.ProviderAnswer) or browser is None or state is None:
        raise sign_in.ProviderAnswerInvalid
    try:
        connection, client = await _load(ports, provider, provider_request)
    except identities.ProviderUnknown:  # the credentials were removed while the user was there
        if answer.error == "access_denied":
            raise sign_in.ProviderConsentDenied from None
        raise
    request = platform.make_request(connection, provider_request, state, browser, base_url)
    try:
        received = await openid.redeem(ports, client, request, answer, ("email",))
    except OpenIdErrorReturned as refusal:
        if refusal.error == "access_denied":
            raise sign_in.ProviderConsentDenied from None
        raise errors.ProviderFailed(f"{provider} answered with an error instead of a code") from None
    except OpenIdAnswerRefused:  # `exchange` raises ProviderFailed instead
        raise sign_in.ProviderAnswerInvalid from None
    return platform.to_identity(connection, client.issuer, request, received, ports.clock.now())
