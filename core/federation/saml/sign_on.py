"""SAML single sign-on: the responses to services.

Implements security X-5, X-6 and X-8, and decisions 174, 175, 177.

The response to the request of a sign-on (`core.federation.saml.target`) has an assertion if the user is
signed in on our pages.
"""

from dataclasses import replace
from hmac import compare_digest
from typing import Final
from uuid import UUID

from core.applications.model import users
from core.authentication import admissions
from core.authentication.flow import flows
from core.authentication.flow.methods import record_failure
from core.authentication.flow.model import Flow, WaitingApplication
from core.authentication.model import login, sessions
from core.authentication.service_access import find_refusal
from core.authentication.sessions import end_replaced, new_session
from core.federation.destination import Asked
from core.federation.saml import assertions
from core.federation.saml.model import messages
from core.federation.saml.model import messages as saml_messages
from core.federation.saml.model.sign_on import LOGIN_PROVIDER, SignOnNotFound, SignOnResult, SubjectMismatch
from core.federation.saml.target import WaitingSignOn
from core.kernel import access, callers, proofs, values
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from core.kernel.judgement import PolicyPath
from core.kernel.sign_in_policy import steps
from ports import Ports

_REASONS: Final = {
    users.NoAccessToService: login.LoginFailure.ACCESS,
    users.BlockedByAdmin: login.LoginFailure.BLOCKED,
    access.AddressNotVerified: login.LoginFailure.UNVERIFIED,
}
_STATUSES: Final = {steps.Step.LOGIN_REQUIRED: messages.SamlStatus.NO_PASSIVE, steps.Step.TOO_WEAK: messages.SamlStatus.NO_AUTHN_CONTEXT}


async def resume(
    ports: Ports,
    caller: Caller,
    waiting: WaitingSignOn,
    visitor: callers.Visitor | None,
    ticket: str | None = None,
    session_cookie: str | None = None,
) -> SignOnResult | Asked:
    """Return the response to a sign-on, or the next step of this browser, in which `visitor` is signed in, if any.

    `ticket` comes from a sign-in through the API, which replaces the browser session of `session_cookie`.
    A session without the required second factor never counts.

    If IsPassive is set and the user would have to interact, the response is NoPassive. It is also
    NoPassive if the user has no access: an error page for these users would tell the service that
    they have a session here. Only one of several parallel calls gets the response.

    Raises: SignOnNotFound, MfaMissing, NoAccessToService, AddressNotVerified; the errors of
    `configuration.find_provider`.
    """
    flow, sign_on = waiting.flow, waiting.sign_on
    if sign_on.status is not None:
        return await _respond_with_status(ports, caller, waiting, sign_on.status)
    api_session_id, user = None, None if visitor is None or visitor.mfa_missing else visitor
    if ticket is not None and compare_digest(flow.ticket_hash or b"", values.digest(ticket)):
        api_session_id, user = flow.session_id, await _visitor_over_api(ports, flow, caller)
    step, admission = await _find_step(ports, waiting, user, api_session_id)
    if step is steps.Step.CHECK_ACCESS:
        assert user is not None, "the access of a user is checked"
        try:
            result = await _respond_with_assertion(ports, user, waiting, admission, api_session_id=api_session_id)
        except (SubjectMismatch, users.NoAccessToService, access.AddressNotVerified):
            if sign_on.subject is not None:  # a user without access, or without a name, cannot be the requested subject either
                return await _respond_with_status(ports, caller, waiting, messages.SamlStatus.UNKNOWN_PRINCIPAL)
            if not sign_on.is_passive:
                raise
            step = steps.Step.LOGIN_REQUIRED
        else:
            if session_cookie is not None and result.signed_in is not None:
                await end_replaced(ports, caller, session_cookie, result.signed_in[0])
            return result
    if step in _STATUSES:
        return await _respond_with_status(ports, caller, waiting, _STATUSES[step])
    return Asked(step, admission=admission, wants_fresh=waiting.needs.needs_fresh_sign_in or admission.decision.wants_fresh)


async def _find_step(
    ports: Ports, waiting: WaitingSignOn, user: callers.Visitor | None, api_session_id: UUID | None
) -> tuple[steps.Step, admissions.Admission]:
    """Return the next step of this user, and the verdict about their session."""
    flow, service, now = waiting.flow, waiting.provider.service, ports.clock.now()
    admission = await admissions.judge_at_application(ports, PolicyPath.SAML, service, user, api_session_id)
    facts = steps.Facts(
        needs=waiting.needs,
        now=now,
        begun_at=flow.begun_at,
        first_session_id=flow.first_session_id,
        session=None if user is None else user.browser,
        service=service,
        user_id=None if user is None else user.user_id,
        factors=admission.factors,
        reachable=await flows.find_reachable(ports, user, service, waiting.needs),
        verdict=admission.verdict,
        is_reminded=admission.is_reminded(now),
    )
    step = steps.next_step(facts)
    if step is steps.Step.TOO_WEAK:
        # A policy can lead to the factor that the application requires. Otherwise a page says that it is missing.
        step = steps.next_step(replace(facts, needs=replace(waiting.needs, required=proofs.Strength.ONE)))
    return step, admission


async def _visitor_over_api(ports: Ports, flow: Flow, caller: Caller) -> callers.Visitor:
    """Return the user who signed in through the API, with the browser session that starts now.

    The API sign-in verified all required factors. The browser session gets the start time of the
    API session, so it is too old for later sign-ons with ForceAuthn.

    Raises: SignOnNotFound if the API session has ended.
    """
    if flow.user_id is None or flow.session_id is None:
        raise SignOnNotFound
    async with ports.storage.reading() as read:
        context = await read.session_contexts.load(flow.session_id, flow.user_id, None, ports.clock.now()) or refuse(SignOnNotFound)
        factors = await read.session_sign_ins.load_factors(flow.session_id, flow.user_id) or refuse(SignOnNotFound)
    browser = replace(factors, id=values.new_id())
    return callers.Visitor(
        user_id=context.user_id,
        email=context.email,
        email_verified=context.email_verified_at is not None,
        session_id=browser.id,
        restricted_to=context.restricted_to,
        mfa_missing=context.mfa_missing,
        sign_in=context.sign_in,
        address=caller.address,
        agent=caller.agent,
        request_id=caller.request_id,
        browser=browser,
    )


async def _respond_with_assertion(
    ports: Ports, visitor: callers.Visitor, waiting: WaitingSignOn, admission: admissions.Admission, *, api_session_id: UUID | None = None
) -> SignOnResult:
    """Finish the sign-on with an assertion.

    With `api_session_id`, the visitor's browser session does not exist yet and starts here.

    If the response cannot be signed, the recorded login event stays, and a retry records another one.
    """
    signed_in, sign_on, service = None, waiting.sign_on, waiting.provider.service
    try:
        # `authorize_assertion` locks the session.
        async with ports.storage.transaction(by=visitor, in_session=False) as tx:
            user = await assertions.authorize_assertion(
                ports, tx, visitor, service.org_slug, service.slug, session_id=api_session_id or visitor.session_id, flow=waiting.flow
            )
            if not admission.has_access:  # the user got it during this request, and the policy was not asked
                raise users.NoAccessToService
            now = ports.clock.now()
            name_id = await assertions.find_name_id(tx, user, visitor.browser, sign_on.subject, now)
            if api_session_id is not None:
                start = sessions.SessionStart(
                    id=visitor.session_id,
                    user_id=user.account.id,
                    caller=visitor,
                    device_id=visitor.browser.device_id,
                    proofs=visitor.browser.proofs,
                    risk_is_high=visitor.browser.risk_is_high,
                )
                session, secret = new_session(ports, start, proofs.proved_at(proofs.in_session(start.proofs))), values.new_secret()
                await tx.sessions.begin_in_browser(session, values.digest(secret))
                signed_in = session, secret
            recorded = await assertions.record_assertion(
                ports, tx, user, name_id, now, browser=visitor.browser, context_class=sign_on.context_class
            )
    except (users.NoAccessToService, access.AddressNotVerified, SubjectMismatch) as refusal:
        reason = _REASONS.get(type(refusal), login.LoginFailure.SAML)
        if reason is login.LoginFailure.ACCESS:
            async with ports.storage.reading() as read:
                reason = login.failure_of(await find_refusal(read, service.org_id, visitor.user_id))
        await record_failure(ports, visitor, reason, LOGIN_PROVIDER, visitor.user_id, WaitingApplication(service.org_id, service.id))
        raise
    response = messages.SamlResponse(
        id=saml_messages.new_message_id(), in_response_to=sign_on.request_id, issued_at=now, assertion=await recorded.after_commit()
    )
    return await _sign(ports, visitor, replace(waiting, provider=user.provider), response, signed_in)


async def _respond_with_status(ports: Ports, caller: Caller, waiting: WaitingSignOn, status: messages.SamlStatus) -> SignOnResult:
    now, request_id = ports.clock.now(), waiting.sign_on.request_id
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.flows.close(waiting.flow, now):
            raise SignOnNotFound
    response = messages.SamlResponse(
        id=saml_messages.new_message_id(), in_response_to=request_id, issued_at=now, assertion=None, status=status
    )
    return await _sign(ports, caller, waiting, response)


async def _sign(
    ports: Ports,
    caller: Caller,
    waiting: WaitingSignOn,
    response: messages.SamlResponse,
    signed_in: tuple[sessions.Session, str] | None = None,
) -> SignOnResult:
    """Sign the response to a finished sign-on.

    Signing fails with Limited if too many documents are queued, and with SealBroken if the key
    cannot be decrypted. Then the sign-on becomes pending again, so that reloading the page retries
    it. A session that started with this sign-on ends, because no browser got its cookie.
    """
    try:
        document = await ports.saml.response(waiting.provider, response)
    except Exception:
        async with ports.storage.transaction(by=caller, in_session=False) as tx:
            await tx.flows.reopen(waiting.flow)
            if signed_in is not None:
                await tx.sessions.end(signed_in[0].id, ports.clock.now())
        raise
    encoded = saml_messages.encode_post(document)
    return SignOnResult(waiting.provider.acs_url, encoded, waiting.sign_on.relay_state, response.assertion is None, signed_in)


async def idp_initiated(ports: Ports, caller: callers.Person, org_slug: str, service_slug: str, relay_state: str | None) -> SignOnResult:
    """Return a response for a sign-in that the service did not request.

    In a browser with a session, the response is bound to it, so that single logout reaches the
    session at the service. The response to an access token is not bound to a browser session. Only a
    program sends an access token, so it confirms a membership (docs/specification/security.md, Terms).

    Raises: OwnProofNeeded; the errors of `authorize_assertion`, `configuration.find_provider` and `check_relay_state`.
    """
    saml_messages.check_relay_state(relay_state)
    now, browser = ports.clock.now(), caller.browser if isinstance(caller, callers.Visitor) else None
    if caller.restricted_to is not None:  # before all else: an unknown organization gets the same answer
        async with ports.storage.reading() as read:
            access.require_reach(caller, await read.organizations.id_by_slug(org_slug))
    async with ports.storage.transaction(by=caller, in_session=False) as tx:  # `authorize_assertion` locks the session
        user = await assertions.authorize_assertion(
            ports, tx, caller, org_slug, service_slug, session_id=caller.session_id, confirm_membership=browser is None
        )
        recorded = await assertions.record_assertion(ports, tx, user, await assertions.new_name_id(tx, user, now), now, browser=browser)
    response = messages.SamlResponse(
        id=saml_messages.new_message_id(), in_response_to=None, issued_at=now, assertion=await recorded.after_commit()
    )
    document = await ports.saml.response(user.provider, response)
    return SignOnResult(user.provider.acs_url, saml_messages.encode_post(document), relay_state)
