"""Authorization requests: reading and checking them, and the flows that keep them.

Sources: OpenID Connect Core section 3.1.2, RFC 6749, RFC 9126.

A request that a session is enough for is answered at once. Otherwise a flow begins, which keeps the
request, so that no user can change it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from urllib.parse import parse_qsl, urlencode

from core.applications import services
from core.applications.model.client_settings import known_name
from core.applications.model.services import Service, ServiceNotFound
from core.applications.model.users import AccessPolicy
from core.authentication.flow import flows
from core.authentication.flow.model import Flow, FlowEnded, FlowTarget, new_flow
from core.authentication.model.agreements import ClientFacts
from core.federation.destination import Destination
from core.federation.oauth import connection_choice, external_clients
from core.federation.oauth.external_clients import ExternalClient
from core.federation.oauth.model import openid_requests
from core.federation.oauth.model.authorization import (
    AUTHORIZE_PATH,
    Authorization,
    AuthorizationRefused,
    AuthorizationRequest,
    ClientIdMismatch,
    OrgOrServiceMissing,
    PushedRequest,
    PushedRequestRequired,
    RedirectUriNotRegistered,
    RequestUriInvalid,
    choose_redirect_uri,
    hash_of,
    is_pushed,
    parse_client_id,
)
from core.federation.oauth.model.client_documents import ClientDocumentUnavailable
from core.federation.oauth.model.client_registration import SealedClientInvalid
from core.federation.oauth.model.external_clients import (
    ClientDocumentsLimited,
    ClientNotAdmitted,
    ClientRedirectUnknown,
    ClientResourceUnknown,
    ExternalRequestRefused,
    ExternalResourceRefused,
    facts_of,
    is_external,
)
from core.federation.oauth.model.external_clients import choose_redirect_uri as choose_published_uri
from core.federation.oauth.model.openid_requests import Prompt
from core.kernel import callers, errors, proofs, uris, values
from core.kernel.access import OrganizationNotFound
from core.kernel.causes import Caller
from core.kernel.claims import FRONTEND_CLIENT_ID
from core.kernel.connections import ConnectionRef
from core.kernel.sign_in_policy.steps import Needs
from core.programs import api_resources
from core.programs.model.api_resources import NoAccessToResource
from ports import Ports
from ports.storage import Reading


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A request with a valid application and redirect URI. With a `refusal`, the application gets its error."""

    authorization: Authorization
    openid: openid_requests.OpenIdRequest = field(default_factory=openid_requests.OpenIdRequest)
    needs: Needs = field(default_factory=Needs)
    refusal: AuthorizationRefused | None = None
    document_failure: errors.Refusal | None = None  # of an external client: its stored document is good only for users who agreed before
    connections: Sequence[ConnectionRef] = ()  # at which the user can sign in; with one, without the sign-in page
    client: ClientFacts | None = None  # what a consent covers of an external client; None for others
    is_on_device: bool = False  # the redirect URI leads to a program on the user's device, as each one does that is not https

    @property
    def destination(self) -> Destination:
        """The destination that the pages of the sign-in name."""
        service, context, request = self.authorization.service, self.authorization.context, self.authorization.request
        return Destination(
            service=service,
            has_sign_in_policy=context is not None and context.has_sign_in_policy,
            org_slug=None if context is None else context.org_slug,
            login_hint=request.login_hint,
            domain_hint=request.domain_hint,
            offers_sign_up=_offers_sign_up(service),
            api=self.authorization.api,
            redirect_uri=self.authorization.redirect_uri,
            required=self.needs.required,
            connections=self.connections,
        )

    @property
    def connection(self) -> ConnectionRef | None:
        """The connection to which the request leads, or None."""
        return self.connections[0] if len(self.connections) == 1 else None


async def check(
    ports: Ports, request: AuthorizationRequest, base_url: str, visitor: callers.Visitor | None = None, pushed_by: Service | None = None
) -> WaitingRequest:
    """Return the request with its application and redirect URI, which are valid, and its parameters.

    The errors that are raised are shown on an error page, because the browser must not be redirected to an
    unvalidated redirect URI. If the request refers to one that its client has pushed, the pushed request is returned.

    The document of an external client is loaded for a `visitor` only. Until then its redirect URI is missing. `pushed_by` is
    the client that pushes this request.

    Raises: the errors of `external_clients`; RequestUriInvalid, OrgOrServiceMissing, OrganizationNotFound, OrganizationNotActive,
    ServiceNotFound, ClientIdMismatch, RedirectUriMissing, RedirectUriNotRegistered.
    """
    waiting = await _check(ports, request, base_url, visitor, pushed_by)
    if waiting.refusal is not None:
        return waiting
    authorization = waiting.authorization
    try:
        connections = await connection_choice.choose_connections(ports, authorization.request, authorization.context)
    except AuthorizationRefused as refusal:
        return replace(waiting, refusal=refusal)
    return replace(waiting, connections=connections) if connections else waiting


async def _check(
    ports: Ports, request: AuthorizationRequest, base_url: str, visitor: callers.Visitor | None, pushed_by: Service | None
) -> WaitingRequest:
    async with ports.storage.reading() as read:
        if request.request_uri is not None and not isinstance(request, PushedRequest):
            request = await _load_pushed(ports, read, request)
        if is_external(request.client_id):
            try:
                external = await external_clients.find(ports, read, _address_of(request), request.resource)
            except (ClientResourceUnknown, ClientNotAdmitted) as refusal:
                redirect_uri = None if pushed_by is not None else external_clients.find_registered_uri(ports, request)
                if redirect_uri is None:
                    raise
                kind = ExternalResourceRefused if isinstance(refusal, ClientResourceUnknown) else ExternalRequestRefused
                return WaitingRequest(Authorization(request, None, None, redirect_uri), refusal=kind(refusal))
            client = None
        else:
            external, client = None, await find_service(read, request)
        api = None
        if client is not None and request.resource is not None:
            api = await api_resources.find_requested(ports, read, client[0].id, request.resource)
    if external is not None:
        return await _check_external(ports, request, base_url, external, visitor, pushed_by)
    if client is None:
        callback = frontend_callback(ports)
        if request.redirect_uri is not None and uris.find_registered((callback,), request.redirect_uri) is None:
            raise RedirectUriNotRegistered
        return check_parameters(ports, Authorization(request, None, None, callback), base_url)
    service, context = client
    authorization = Authorization(request, service, context, choose_redirect_uri(service, request.redirect_uri), api)
    return check_parameters(ports, authorization, base_url)


async def _check_external(
    ports: Ports,
    request: AuthorizationRequest,
    base_url: str,
    client: ExternalClient,
    visitor: callers.Visitor | None,
    pushed_by: Service | None,
) -> WaitingRequest:
    redirect_uri = None
    if pushed_by is not None:
        client = replace(client, service=pushed_by)
    elif visitor is not None:
        client = await external_clients.load(ports, visitor, client, request.redirect_uri)
    if pushed_by is not None or visitor is not None:
        redirect_uri = choose_published_uri(client.service, request.redirect_uri)
    authorization = Authorization(request, client.service, client.context, redirect_uri, client.api)
    waiting = replace(check_parameters(ports, authorization, base_url), document_failure=client.failure)
    if redirect_uri is None and (waiting.refusal is not None or waiting.needs.is_silent):
        # The error page offers the way back to a client that registered itself. No other page leads there before the sign-in.
        return replace(waiting, authorization=replace(authorization, redirect_uri=external_clients.find_registered_uri(ports, request)))
    return waiting


def _address_of(request: AuthorizationRequest) -> str:
    """Return the address of the request's external client."""
    if request.org is not None or request.service is not None:
        raise ClientIdMismatch
    return request.client_id or ""


async def _load_pushed(ports: Ports, read: Reading, request: AuthorizationRequest) -> AuthorizationRequest:
    """Return the pushed request of this client, or the request itself if its request_uri is not ours.

    The other parameters are ignored (RFC 9126 section 4).
    """
    request_uri = request.request_uri or ""
    if not is_pushed(request_uri):
        return request
    client_uri = request.client_id if is_external(request.client_id) else None
    client_id = None if client_uri is not None else parse_client_id(request.client_id)
    parameters = await read.pushed_requests.load(hash_of(request_uri), client_id, ports.clock.now(), client_uri)
    return PushedRequest.from_parameters(parameters or errors.refuse(RequestUriInvalid), request_uri)


async def find_service(read: Reading, request: AuthorizationRequest) -> tuple[Service, callers.ServiceContext] | None:
    """Return the registered service that the request names, or None for the platform itself.

    Raises: OrgOrServiceMissing, OrganizationNotFound, OrganizationNotActive, ServiceNotFound,
    ClientIdMismatch.
    """
    if (request.org is None) != (request.service is None):
        raise OrgOrServiceMissing
    if not values.is_printable(f"{request.org}{request.service}"):  # PostgreSQL rejects some characters even as parameters, such as NUL
        raise OrganizationNotFound
    if request.org is not None and request.service is not None:
        org_slug, client = request.org, await read.services.client_by_slug(request.org, request.service)
    elif request.client_id in (None, FRONTEND_CLIENT_ID):
        return None
    else:
        client_id = values.parse_id(request.client_id or "") or errors.refuse(ServiceNotFound)
        client = await read.services.by_client_id(client_id) or errors.refuse(ServiceNotFound)
        org_slug = client[1].org_slug
    await services.require_open(read, org_slug, client[1] if client else None)
    service, context = client or errors.refuse(ServiceNotFound)
    if request.client_id not in (None, service.client_name):
        raise ClientIdMismatch
    return service, context


def frontend_callback(ports: Ports) -> str | None:
    """Return the redirect URI of the platform's frontend, if it has one."""
    return None if ports.policy.frontend_url is None else f"{ports.policy.frontend_url}/auth/callback"


def check_parameters(ports: Ports, authorization: Authorization, base_url: str) -> WaitingRequest:
    """Return the request with its parameters, or with the reason why they are refused."""
    context, request = authorization.context, authorization.request
    try:
        if context is not None and context.require_pushed_authorization_requests and not isinstance(request, PushedRequest):
            raise PushedRequestRequired
        hint = None
        if request.id_token_hint is not None:
            hint = ports.tokens.read_id_token_hint(request.id_token_hint) or errors.refuse(openid_requests.IdTokenHintInvalid)
            client_id = FRONTEND_CLIENT_ID if context is None else context.client_name
            if hint.client_id != client_id:
                raise openid_requests.IdTokenHintInvalid
        openid = openid_requests.parse(authorization, base_url, None if hint is None else hint.user_id)
    except AuthorizationRefused as refusal:
        return WaitingRequest(authorization, refusal=refusal)
    service, redirect_uri = authorization.service, authorization.redirect_uri or ""
    is_external = context is not None and context.is_external
    return WaitingRequest(
        authorization,
        openid,
        _needs(openid, service),
        client=None if service is None else facts_of(service, authorization.redirect_uri),
        is_on_device=uris.is_on_device(redirect_uri) if is_external else not redirect_uri.startswith("https:"),
    )


def _needs(openid: openid_requests.OpenIdRequest, service: Service | None) -> Needs:
    """Return the requirements of the request for the sign-in."""
    acr = openid.required_acr or openid.wished_acr
    return Needs(
        is_silent=Prompt.NONE in openid.prompt,
        sign_up=Prompt.CREATE in openid.prompt and _offers_sign_up(service),
        subject=openid.subject,
        fresh=Prompt.LOGIN in openid.prompt or openid.max_age == timedelta(),
        max_age=openid.max_age,
        required=_strength(openid.required_acr),
        wished=_strength(openid.wished_acr),
        select=Prompt.SELECT_ACCOUNT in openid.prompt,
        consent=Prompt.CONSENT in openid.prompt and service is not None,  # the platform itself needs none
        keeps_trust=not (openid.prompt or openid.max_age is not None or acr is not None or openid.subject is not None),
    )


def _offers_sign_up(service: Service | None) -> bool:
    """Return whether users can sign up on the way. Only applications that admit anyone have a sign-up."""
    return service is None or service.access.policy is AccessPolicy.ANYONE


def ask_for_sign_up(address: str) -> str:
    """Return the address of a request with `prompt=create` added. A silent request and any other address stay as they are."""
    path, _, query = address.partition("?")
    fields = parse_qsl(query)
    prompts = [prompt for name, value in fields if name == "prompt" for prompt in value.split(" ")]
    if path != AUTHORIZE_PATH or not {Prompt.NONE, Prompt.CREATE}.isdisjoint(prompts):
        return address
    others = [(name, value) for name, value in fields if name != "prompt"]
    return f"{path}?{urlencode([*others, ('prompt', ' '.join([*prompts, Prompt.CREATE]))])}"


def _strength(acr: proofs.Acr | None) -> proofs.Strength:
    return proofs.Strength.ONE if acr is None else acr.strength


# The flow


async def begin(ports: Ports, caller: Caller, visitor: callers.Visitor | None, waiting: WaitingRequest, browser_hash: bytes) -> Flow:
    """Begin the sign-in of a request. A pushed request is used up. Raises: RequestUriInvalid if it was used before."""
    now, authorization = ports.clock.now(), waiting.authorization
    request, context = authorization.request, authorization.context
    pushed = request if isinstance(request, PushedRequest) else None
    flow = new_flow(
        now,
        FlowTarget.OAUTH,
        request.query if pushed is None else urlencode({"request_uri": pushed.request_uri}) + "&" + pushed.parameters,
        browser_hash,
        secret_hash=None if pushed is None else pushed.hash,
        org_id=None if context is None else context.org_id,
        service_id=None if context is None or context.is_external else context.id,  # it may not be stored yet
        external_client=None if context is None or context.client_uri is None else known_name(context.client_uri),
        wants_fresh=waiting.needs.needs_fresh_sign_in,
        keeps_trust=waiting.needs.keeps_trust,
        first_session_id=None if visitor is None else visitor.session_id,
    )
    async with ports.storage.transaction(by=caller) as tx:
        if pushed is not None and not await tx.pushed_requests.use(pushed.hash, now):
            raise RequestUriInvalid
        await tx.flows.add(flow)
    return replace(flow, is_stored=True)


async def find_begun(ports: Ports, request: AuthorizationRequest, browser_hash: bytes) -> Flow | None:
    """Return the flow that this browser began with this pushed request, if any. A pushed request is presented once."""
    if not is_pushed(request.request_uri):
        return None
    async with ports.storage.reading() as read:
        return await read.flows.by_secret(hash_of(request.request_uri or ""), browser_hash, ports.clock.now())


async def load(ports: Ports, flow: Flow, base_url: str, visitor: callers.Visitor | None = None) -> WaitingRequest:
    """Return the request of a flow, checked again for this visitor: the application may have changed.

    If it has more requirements than when the flow began, a trusted device no longer skips the second factor.

    Raises: FlowEnded if the application no longer accepts the request; ClientDocumentUnavailable, ClientDocumentsLimited,
    SealedClientInvalid, ClientRedirectUnknown, NoAccessToResource, which the user must see, because the sign-in was right.
    """
    try:
        waiting = await check(ports, _request_of(flow), base_url, visitor)
    except (ClientDocumentUnavailable, ClientDocumentsLimited, SealedClientInvalid, ClientRedirectUnknown, NoAccessToResource):
        raise
    except errors.Refusal:
        raise FlowEnded from None
    if waiting.refusal is None:
        await flows.ask_for_more(ports, flow, waiting.needs)
    return waiting


async def find_destination(ports: Ports, flow: Flow, base_url: str) -> Destination:
    """Return the destination that the pages of the sign-in name. Raises: FlowEnded."""
    return (await load(ports, flow, base_url)).destination


def address(flow: Flow) -> str | None:
    """Return the address of the request itself, at which another browser begins again. Its user has signed up by then.

    A pushed request is used once, so it has none.
    """
    request = _request_of(flow)
    if isinstance(request, PushedRequest):
        return None
    prompts = " ".join(prompt for prompt in (request.prompt or "").split(" ") if prompt != Prompt.CREATE)
    return replace(request, prompt=prompts or None).path


def _request_of(flow: Flow) -> AuthorizationRequest:
    fields = dict(parse_qsl(flow.request))
    return (PushedRequest if is_pushed(fields.get("request_uri")) else AuthorizationRequest).from_fields(fields)
