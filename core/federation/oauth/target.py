"""The steps of an authorization request, and its answers.

Sources: OpenID Connect Core section 3.1.2, RFC 6749, RFC 9126.
"""

from dataclasses import dataclass, replace
from typing import Final

from core.authentication import admissions
from core.authentication.flow import flows
from core.authentication.flow.methods import record_failure
from core.authentication.flow.model import Flow, FlowEnded, WaitingApplication
from core.authentication.model import login
from core.authentication.model.agreements import Agreement
from core.authentication.model.openid import OpenIdGrant
from core.authentication.service_access import find_refusal
from core.federation import destination
from core.federation.oauth import authorization as oauth
from core.federation.oauth import consents, requests
from core.federation.oauth.model import openid_requests
from core.federation.oauth.model.authorization import AuthorizationRequest, AuthorizationResponse, PushedRequest, RequestUriInvalid, respond
from core.federation.oauth.model.client_registration import SealedClientInvalid
from core.federation.oauth.requests import WaitingRequest
from core.kernel import callers, proofs
from core.kernel.judgement import PolicyPath
from core.kernel.sign_in_policy import steps
from ports import Ports

_REFUSALS: Final = {
    steps.Step.LOGIN_REQUIRED: openid_requests.SignInRequired,
    steps.Step.OTHER_USER: openid_requests.SignInRequired,
    steps.Step.TOO_WEAK: openid_requests.AuthenticationUnmet,
    steps.Step.CONSENT_REQUIRED: openid_requests.ConsentRequired,
}
_SENTENCES: Final = {steps.Step.OTHER_USER: "Another user has signed in."}


@dataclass(frozen=True, slots=True)
class Answered:
    """The response to the application, or None if the user signed in to the platform itself and it has no frontend."""

    response: AuthorizationResponse | None


async def advance(
    ports: Ports,
    visitor: callers.Visitor | None,
    waiting: WaitingRequest,
    flow: Flow | None,
    base_url: str,
    reply: destination.PageAnswer | None = None,
) -> destination.Asked | Answered:
    """Return the next step, or the answer to the application.

    `reply` is what the user answered on our page, or None if the page did not ask. It is ignored if the application asks for something else
    by now.

    Raises: SignInRequired, ConsentRequired, AuthenticationUnmet, AccessDenied; the refusal of the request;
    the errors of `oauth.issue_code`.
    """
    if reply is not None and not reply.is_yes:
        raise openid_requests.AccessDenied
    asked = await find_step(ports, visitor, waiting, flow, reply)
    if asked.step is not steps.Step.DONE or visitor is None:
        return asked
    if waiting.authorization.redirect_uri is None:
        return Answered(None)
    agreed = reply is not None and reply.question == replace(asked, step=steps.Step.CONSENT).question
    code = await oauth.issue_code(ports, visitor, waiting, asked.grant, flow, agreed=agreed)
    return Answered(respond(waiting.authorization, base_url, code=code))


async def find_step(
    ports: Ports,
    visitor: callers.Visitor | None,
    waiting: WaitingRequest,
    flow: Flow | None = None,
    reply: destination.PageAnswer | None = None,
    *,
    path: PolicyPath = PolicyPath.AUTHORIZATION,
) -> destination.Asked:
    """Return the next step for this visitor, who has all required factors.

    `reply` says yes. It counts if it answers the question of the step.

    Raises: SignInRequired, ConsentRequired, AuthenticationUnmet, AccessDenied; the refusal for the request, and for the document of an
    external client to which the user has not agreed before.
    """
    if waiting.refusal is not None:
        raise waiting.refusal
    authorization, now = waiting.authorization, ports.clock.now()
    admission = await admissions.judge_at_application(ports, path, authorization.context, visitor, external_for=authorization.external_for)
    facts = steps.Facts(
        needs=waiting.needs,
        now=now,
        begun_at=None if flow is None else flow.begun_at,
        first_session_id=None if flow is None else flow.first_session_id,
        session=None if visitor is None else visitor.browser,
        service=authorization.context,
        user_id=None if visitor is None else visitor.user_id,
        factors=admission.factors,
        reachable=await flows.find_reachable(ports, visitor, authorization.context, waiting.needs),
        verdict=admission.verdict,
        is_reminded=path is PolicyPath.PREVIEW or admission.is_reminded(now),
    )
    if not facts.factors:
        facts = replace(facts, factors=await _load_factors(ports, facts))
    wants_fresh = waiting.needs.needs_fresh_sign_in or admission.decision.wants_fresh
    asked = destination.Asked(
        steps.next_step(facts), waiting.destination, admission=admission, client=waiting.client, wants_fresh=wants_fresh
    )
    if asked.step is steps.Step.CHECK_ACCESS:
        assert visitor is not None, "the access of a user is checked"
        await _require_access(ports, visitor, waiting, facts)
        grant, missing, before = await _find_missing_consent(ports, visitor, waiting)
        facts = replace(facts, agreement=missing)
        asked = replace(asked, step=steps.next_step(facts), grant=grant, agreement=before)
        # A redirect URI on the user's device asks for consent although an earlier consent covers the grant.
        is_covered = grant is not None and before is not None and before.covers(grant, waiting.client)
        if asked.step is steps.Step.CONSENT and waiting.document_failure is not None and not is_covered:
            raise waiting.document_failure
        if not admission.has_access:  # the user got it during this request, and the policy was not asked
            raise openid_requests.AccessDenied
        if reply is not None and reply.question == asked.question:
            is_choice = asked.step is steps.Step.SELECT
            asked = replace(asked, step=steps.next_step(replace(facts, has_agreed=not is_choice, has_selected=is_choice)))
    if asked.step in _REFUSALS:
        is_refused = asked.step is steps.Step.TOO_WEAK and not admission.is_allowed
        raise _REFUSALS[asked.step](admission.refusal(ports, visitor).message if is_refused else _SENTENCES.get(asked.step))
    return asked


async def _load_factors(ports: Ports, facts: steps.Facts) -> tuple[proofs.Factor, ...]:
    """Return the factors of the account, where a session that began without one may be too weak, for example on a trusted device."""
    needs = facts.needs
    if facts.user_id is None or needs.keeps_trust or proofs.session_strength(facts.seen) >= max(proofs.Strength.TWO, needs.wished):
        return ()
    async with ports.storage.reading() as read:
        account = await read.accounts.by_id(facts.user_id)
    return () if account is None else account.factors


async def _require_access(ports: Ports, visitor: callers.Visitor, waiting: WaitingRequest, facts: steps.Facts) -> None:
    """Check that the user may use the application and the API resource of the request."""
    context, grant = waiting.authorization.context, waiting.openid.grant
    if context is None or context.is_external:  # the API resource alone decides about external clients (`external_clients.load`)
        return
    api = None if grant is None else grant.api
    async with ports.storage.reading() as read:
        if not await read.end_users.may_use(context.org_id, context.id, visitor.user_id, facts.now):
            reason = login.failure_of(await find_refusal(read, context.org_id, visitor.user_id))
            refusal = openid_requests.AccessDenied()
        elif api is not None and not await read.api_resources.may_use(context.org_id, api.id, visitor.user_id):
            reason, refusal = login.LoginFailure.ACCESS, openid_requests.AccessDenied("The user may not use this API.")
        else:
            return
    method = proofs.first_method_of(facts.seen) or ""
    await record_failure(ports, visitor, reason, method, visitor.user_id, WaitingApplication(context.org_id, context.id))
    raise refusal


async def _find_missing_consent(
    ports: Ports, visitor: callers.Visitor, waiting: WaitingRequest
) -> tuple[OpenIdGrant | None, steps.Consents, Agreement | None]:
    """Return the grant, the part that needs consent first, and the earlier consent.

    Without OpenID Connect, the user must agree if the organization does not know them yet, as an end user or a
    confirmed member. Otherwise any web page could send the user here, and the organization would learn who they are.
    With OpenID Connect, and for an API resource, the user agrees once to each scope. A trusted application does not ask
    the confirmed members in its organization.

    Any program on the user's machine can claim a redirect URI that is not https (RFC 8252 section 8.6), and an external
    client is no better known at `https://localhost`. For such a URI the user must agree each time. Exception: the
    application has a secret, which another program lacks, and the user has agreed to these scopes before.

    Every user must agree each time if the application is set to always ask.

    `offline_access` counts only if the user is asked, has agreed to it before, or if the application
    is trusted. An external client that asks for further scopes of an API keeps its earlier ones.
    """
    authorization, grant = waiting.authorization, waiting.openid.grant
    context, service = authorization.context, authorization.service
    if context is None or service is None:
        return grant, steps.Consents.COVERED, None
    is_claimable = waiting.is_on_device and (grant is None or context.is_public or service.pkce_without_secret)
    asks_always = service.always_ask_consent or is_claimable
    async with ports.storage.reading() as read:
        if grant is None:
            is_asked = asks_always or not await read.end_users.is_known(context.org_id, visitor.user_id)
            return None, steps.Consents.FIRST_TIME if is_asked else steps.Consents.COVERED, None
        is_asked = openid_requests.Prompt.CONSENT in waiting.openid.prompt
        grant, agreement, is_covered = await consents.compare(
            read, service, visitor.user_id, grant, is_asked=is_asked, counts_trust=not waiting.is_on_device, client=waiting.client
        )
    if context.is_external and authorization.api is not None:  # a step-up
        grant = agreement.widen(grant, authorization.api.scope_names)
    return grant, steps.Consents.COVERED if is_covered and not asks_always else steps.Consents.SCOPES, agreement


async def use_up(ports: Ports, request: AuthorizationRequest, flow: Flow | None) -> None:
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
    """End the flow, and return the response that reports an error to the application, or None if it cannot be told.

    `error` is a code of RFC 6749 section 4.1.2.1.

    Raises: FlowEnded if the flow ended during the request.
    """
    try:
        authorization = (await requests.load(ports, flow, base_url)).authorization
    except (FlowEnded, SealedClientInvalid):  # the application no longer accepts the request
        return None
    if authorization.redirect_uri is None:
        return None
    await flows.close(ports, flow)
    return respond(authorization, base_url, error=error)
