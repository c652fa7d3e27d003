"""An authorization request as the target of a sign-in: what it needs, and what answers it.

Sources: OpenID Connect Core section 3.1.2, RFC 6749, RFC 9126.

A request that a session is enough for is answered at once. Otherwise a flow begins, which keeps the
request, so that no user can change it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode

from core.applications.model.client_settings import ClientSettings
from core.applications.model.users import AccessPolicy
from core.authentication.flow import flows
from core.authentication.flow.model import Flow, FlowTarget, new_flow
from core.authentication.flow.steps import Consents, Facts, Needs, Step, next_step
from core.authentication.model.openid import SESSION_EXPIRY, OpenIdGrant, Scope
from core.federation.destination import Asked, Destination
from core.federation.oauth import authorization as oauth
from core.federation.oauth.consents import load_agreement
from core.federation.oauth.model import openid_requests
from core.federation.oauth.model.authorization import (
    AUTHORIZE_PATH,
    Authorization,
    AuthorizationRequest,
    AuthorizationResponse,
    check_request,
    respond,
)
from core.federation.oauth.model.openid_requests import (
    AccessDenied,
    AuthenticationUnmet,
    ConsentRequired,
    IdTokenHintInvalid,
    OpenIdRequest,
    Prompt,
    SignInRequired,
)
from core.federation.oauth.model.pushed_requests import PushedRequest, PushedRequestRequired, RequestUriInvalid, hash_of, is_pushed
from core.kernel import proofs
from core.kernel.callers import Visitor
from core.kernel.causes import Caller
from core.kernel.claims import FRONTEND_CLIENT_ID
from core.kernel.errors import refuse
from core.kernel.proofs import Acr, Factor, Strength

if TYPE_CHECKING:
    from ports import Ports

_REFUSALS: Final = {Step.LOGIN_REQUIRED: SignInRequired, Step.TOO_WEAK: AuthenticationUnmet, Step.CONSENT_REQUIRED: ConsentRequired}


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A checked authorization request."""

    authorization: Authorization
    openid: OpenIdRequest

    @property
    def needs(self) -> Needs:
        """What the request asks of the sign-in."""
        openid, service = self.openid, self.authorization.service
        return Needs(
            is_silent=Prompt.NONE in openid.prompt,
            # Only applications that admit anyone have a sign-up.
            sign_up=Prompt.CREATE in openid.prompt and (service is None or service.access.policy is AccessPolicy.ANYONE),
            subject=openid.subject,
            fresh=Prompt.LOGIN in openid.prompt or openid.max_age == timedelta(),
            max_age=openid.max_age,
            required=_strength(openid.required_acr),
            wished=_strength(openid.wished_acr),
            select=Prompt.SELECT_ACCOUNT in openid.prompt,
            consent=Prompt.CONSENT in openid.prompt and self.authorization.context is not None,  # the platform itself needs none
            keeps_trust=not self.asks_for_more,
        )

    @property
    def asks_for_more(self) -> bool:
        """Whether a session alone may not be enough."""
        openid = self.openid
        acr = openid.required_acr or openid.wished_acr
        return bool(openid.prompt) or openid.max_age is not None or acr is not None or openid.subject is not None


@dataclass(frozen=True, slots=True)
class Answered:
    """The response to the application, or None if the user signed in to the platform itself and it has no frontend."""

    response: AuthorizationResponse | None


def _strength(acr: Acr | None) -> Strength:
    return Strength.TWO if acr is Acr.MFA else Strength.ONE


def check(ports: Ports, authorization: Authorization, base_url: str) -> WaitingRequest:
    """Return the request with its parameters of OpenID Connect. Raises: PushedRequestRequired, IdTokenHintInvalid."""
    context, request = authorization.context, authorization.request
    if context is not None and context.require_pushed_authorization_requests and not isinstance(request, PushedRequest):
        raise PushedRequestRequired
    hint = None
    if request.id_token_hint is not None:
        hint = ports.tokens.read_id_token_hint(request.id_token_hint) or refuse(IdTokenHintInvalid)
        client_id = FRONTEND_CLIENT_ID if context is None else str(context.client_id)
        if hint.client_id != client_id:
            raise IdTokenHintInvalid
    openid = openid_requests.parse(request, base_url, None if hint is None else hint.user_id, authorization.api)
    check_request(authorization)
    return WaitingRequest(authorization, openid if authorization.service is None else _with_settings(openid, authorization.service))


def _with_settings(openid: OpenIdRequest, settings: ClientSettings) -> OpenIdRequest:
    """Return the request with the claims and the authentication class that the application's settings add to each request."""
    if settings.required_acr is not None:
        openid = replace(openid, required_acr=Acr(settings.required_acr))
    if settings.enterprise:
        names = {*openid.claims.id_token, SESSION_EXPIRY}
        openid = replace(openid, claims=replace(openid.claims, id_token=tuple(sorted(names))))
    return openid


# The flow


async def find_pushed(ports: Ports, request: AuthorizationRequest, browser_hash: bytes) -> Flow | None:
    """Return the flow that this browser began with this pushed request, if any. A pushed request is presented once."""
    if not is_pushed(request.request_uri):
        return None
    async with ports.storage.reading() as read:
        return await read.flows.by_secret(hash_of(request.request_uri or ""), browser_hash, ports.clock.now())


async def begin(ports: Ports, caller: Caller, visitor: Visitor | None, waiting: WaitingRequest, browser_hash: bytes) -> Flow:
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
        service_id=None if context is None else context.id,
        wants_fresh=waiting.asks_for_more,
        keeps_trust=not waiting.asks_for_more,
        first_session_id=None if visitor is None else visitor.session_id,
    )
    async with ports.storage.transaction(by=caller) as tx:
        if pushed is not None and not await tx.pushed_requests.use(pushed.hash, now):
            raise RequestUriInvalid
        await tx.flows.add(flow)
    return replace(flow, is_stored=True)


async def load(ports: Ports, flow: Flow, base_url: str) -> WaitingRequest:
    """Return the request of a flow, checked again: the application may have changed. Raises: the errors of `oauth.validate` and `check`."""
    fields = dict(parse_qsl(flow.request))
    request = PushedRequest(**fields) if is_pushed(fields.get("request_uri")) else AuthorizationRequest.from_fields(fields)
    return check(ports, await oauth.validate(ports, request), base_url)


async def find_destination(ports: Ports, flow: Flow, base_url: str) -> Destination:
    """Return what the pages of the sign-in show."""
    return _destination(await load(ports, flow, base_url))


def _destination(waiting: WaitingRequest) -> Destination:
    service, context = waiting.authorization.service, waiting.authorization.context
    return Destination(
        service=service,
        org_slug=None if context is None else context.org_slug,
        login_hint=waiting.authorization.request.login_hint,
        offers_sign_up=service is None or service.access.policy is AccessPolicy.ANYONE,
        api=waiting.authorization.api,
    )


def address(flow: Flow) -> str:
    """Return the address of the request itself, at which another browser begins again. Its user has signed up by then."""
    fields = dict(parse_qsl(flow.request, keep_blank_values=True))
    prompts = fields.get("prompt", "").split(" ")
    if Prompt.CREATE not in prompts:
        return f"{AUTHORIZE_PATH}?{flow.request}"
    others = " ".join(prompt for prompt in prompts if prompt != Prompt.CREATE)
    fields = {name: value for name, value in fields.items() if name != "prompt"} | ({"prompt": others} if others else {})
    return f"{AUTHORIZE_PATH}?{urlencode(fields)}"


# The steps


async def advance(
    ports: Ports, visitor: Visitor | None, waiting: WaitingRequest, flow: Flow | None, base_url: str, answer: str | None = None
) -> Asked | Answered:
    """Return the next step, or the answer to the application. `answer` is that of the user to our page, or None if it did not ask.

    `continue` agrees to the scopes, `select` continues with this account, and every other answer refuses.

    Raises: SignInRequired, ConsentRequired, AuthenticationUnmet, AccessDenied; the errors of `oauth.issue_code`.
    """
    if answer not in (None, "continue", "select"):
        raise AccessDenied
    step, grant = await find_step(ports, visitor, waiting, flow, agreed=answer == "continue", selected=answer == "select")
    authorization = waiting.authorization
    if step is not Step.DONE or visitor is None:
        return Asked(step, _destination(waiting), grant)
    if authorization.redirect_uri is None:
        return Answered(None)
    code = await oauth.issue_code(ports, visitor, authorization, grant, flow, agreed=answer == "continue")
    return Answered(respond(authorization, base_url, code=code))


async def find_step(
    ports: Ports,
    visitor: Visitor | None,
    waiting: WaitingRequest,
    flow: Flow | None = None,
    *,
    agreed: bool = False,
    selected: bool = False,
) -> tuple[Step, OpenIdGrant | None]:
    """Return the next step for this visitor, who has all required factors, and the grant of OpenID Connect, if any.

    Raises: SignInRequired, ConsentRequired, AuthenticationUnmet, AccessDenied.
    """
    facts = Facts(
        needs=waiting.needs,
        now=ports.clock.now(),
        begun_at=None if flow is None else flow.begun_at,
        first_session_id=None if flow is None else flow.first_session_id,
        session=None if visitor is None else visitor.browser,
        user_id=None if visitor is None else visitor.user_id,
        factors=() if visitor is None else await _factors(ports, visitor, waiting),
        has_agreed=agreed,
        has_selected=selected,
    )
    step, grant = next_step(facts), None
    if step is Step.CHECK_ACCESS:
        assert visitor is not None, "the access of a user is checked"
        await _require_access(ports, visitor, waiting)
        grant, agreement = await _grant(ports, visitor, waiting)
        step = next_step(replace(facts, agreement=agreement))
    if step is Step.OTHER_USER:
        raise SignInRequired("Another user has signed in.")
    if step in _REFUSALS:
        raise _REFUSALS[step]
    return step, grant


async def _factors(ports: Ports, visitor: Visitor, waiting: WaitingRequest) -> tuple[Factor, ...]:
    """Return the factors of the account, where a session that began without one may be too weak, for example on a trusted device."""
    if not waiting.asks_for_more or proofs.strength_of(visitor.browser.proofs) >= Strength.TWO:
        return ()
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(visitor.user_id)
    return () if account is None else account.factors


async def _require_access(ports: Ports, visitor: Visitor, waiting: WaitingRequest) -> None:
    """Check that the user may use the application and the API resource of the request. Raises: AccessDenied."""
    context, api = waiting.authorization.context, waiting.openid.api
    if context is None:
        return
    async with ports.storage.reading() as read:
        if not await read.end_users.may_use(context.org_id, context.id, visitor.user_id, ports.clock.now()):
            raise AccessDenied
        if api is not None and not await read.api_resources.may_use(context.org_id, api.id, visitor.user_id):
            raise AccessDenied("The user may not use this API.")


async def _grant(ports: Ports, visitor: Visitor, waiting: WaitingRequest) -> tuple[OpenIdGrant | None, Consents]:
    """Return the grant, and what the user must agree to first.

    Without OpenID Connect, the user must agree if the organization does not know them yet, as an end
    user or a confirmed member. Otherwise any web page could send the user here, and the organization
    would learn who they are. With OpenID Connect, and for an API resource, the user agrees once to each
    scope, unless they are a confirmed member of the organization of a trusted application.

    Any program on the user's machine can claim a redirect URI that is not https (RFC 8252 section
    8.6). For such a URI the user must agree each time. Exception: the application has a secret, which
    another program lacks, and the user has agreed to these scopes before.

    Every user must agree each time if the application is set to always ask.

    `offline_access` counts only if the user is asked, has agreed to it before, or if the application
    is trusted.
    """
    authorization, grant = waiting.authorization, waiting.openid.grant
    context, service = authorization.context, authorization.service
    if context is None or service is None:
        return grant, Consents.COVERED
    is_https = (authorization.redirect_uri or "").startswith("https:")
    is_claimable = not is_https and (context.is_public or service.pkce_without_secret)
    always = service.always_ask_consent
    async with ports.storage.reading() as read:
        if grant is None:
            is_asked = always or not is_https or not await read.end_users.is_known(context.org_id, visitor.user_id)
            return None, Consents.FIRST_TIME if is_asked else Consents.COVERED
        agreement = await load_agreement(read, service, visitor.user_id, grant, counts_trust=is_https)
    if Scope.OFFLINE_ACCESS not in agreement.scope and Prompt.CONSENT not in waiting.openid.prompt:
        grant = replace(grant, scope=tuple(scope for scope in grant.scope if scope is not Scope.OFFLINE_ACCESS))
    is_covered = agreement.covers(grant) and not always and not is_claimable
    return grant, Consents.COVERED if is_covered else Consents.SCOPES


async def finish(ports: Ports, request: AuthorizationRequest, flow: Flow | None) -> None:
    """End the flow, or use up a pushed request, because an error goes to the client.

    Raises: FlowEnded, RequestUriInvalid if this was done before.
    """
    if flow is not None:
        await flows.close(ports, flow)
    elif isinstance(request, PushedRequest):
        async with ports.storage.autocommit() as statements:
            if not await statements.pushed_requests.use(request.hash, ports.clock.now()):
                raise RequestUriInvalid


async def fail(ports: Ports, flow: Flow, error: str, base_url: str) -> AuthorizationResponse | None:
    """End the flow, and return the response that reports an error to the application, if it has a redirect URI.

    `error` is a code of RFC 6749 section 4.1.2.1.

    Raises: FlowEnded; the errors of `load`.
    """
    authorization = (await load(ports, flow, base_url)).authorization
    if authorization.redirect_uri is None:
        return None
    await flows.close(ports, flow)
    return respond(authorization, base_url, error=error)
