"""SAML single sign-on: requests of services, and the responses to them.

Implements security X-1, X-3, X-5, X-6 and X-8, and decisions 174, 175, 177.

A service sends the browser here with an AuthnRequest, which is stored as a pending sign-on. The
browser gets a state and a cookie. It comes back with both for the response, which has an assertion
if the user is signed in on our pages.
"""

from __future__ import annotations

from dataclasses import replace
from hmac import compare_digest
from typing import TYPE_CHECKING
from uuid import UUID

from core.applications.model.users import NoAccessToService
from core.authentication.model.login import LoginFailure
from core.authentication.model.sessions import Session, SessionStart
from core.authentication.sessions import end_replaced, new_session
from core.federation.saml import configuration as saml
from core.federation.saml.assertions import authorize_assertion, find_name_id, new_name_id, record_assertion
from core.federation.saml.model import bindings as saml_bindings
from core.federation.saml.model import configuration as saml_model
from core.federation.saml.model import messages as saml_messages
from core.federation.saml.model.configuration import SamlIdentityProvider
from core.federation.saml.model.messages import AuthnRequest, ReceivedDocument, SamlMessageInvalid, SamlResponse, SamlStatus
from core.federation.saml.model.sign_on import (
    STATE_TTL,
    AuthnRequestReplayed,
    LoginRequired,
    SamlSignOn,
    SignOnNotFound,
    SignOnResult,
    SignOnReturn,
    SignOnStarted,
    SubjectMismatch,
)
from core.federation.saml.pending import continuation_path
from core.kernel.access import AddressNotVerified
from core.kernel.callers import Person, Visitor
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from core.kernel.proofs import is_by_provider, proved_at
from core.kernel.values import digest, new_id, new_secret

if TYPE_CHECKING:
    from ports import Ports


async def begin(ports: Ports, base_url: str, provider: SamlIdentityProvider, received: ReceivedDocument) -> SignOnStarted:
    """Store a service's AuthnRequest as a pending sign-on.

    `provider` was loaded for this request.

    If this raises, the service gets no message. A valid request with an option that we refuse is
    stored too: the service gets the SAML status when the browser comes back for the response.

    Raises: AuthnRequestReplayed; the errors of `configuration.find_provider`, `check_relay_state`
    and `check_authn_request`.
    """
    now = ports.clock.now()
    saml_bindings.check_relay_state(received.relay_state)
    request = await ports.saml.read(received.document)
    if not isinstance(request, AuthnRequest):
        raise SamlMessageInvalid
    saml_messages.check_authn_request(request, provider, saml_model.endpoint_url(base_url, provider.service, "sso"), now)
    state, cookie, issuer = new_secret(), new_secret(), saml_model.endpoint_url(base_url, provider.service)
    sign_on = SamlSignOn(
        state_hash=digest(state),
        browser_hash=digest(cookie),
        org_id=provider.service.org_id,
        service_id=provider.service.id,
        request_id=request.id,
        relay_state=received.relay_state,
        force_authn=request.force_authn,
        is_passive=request.is_passive,
        status=saml_messages.refusal_status(request, provider, issuer),
        subject=None if request.subject is None else saml_messages.resolve_name_id(request.subject, provider, issuer),
        context_class=None if request.context is None else saml_messages.choose_context_class(request.context),
        created_at=now,
        expires_at=now + STATE_TTL,
    )
    async with ports.storage.autocommit() as statements:
        is_new = await statements.saml_sign_ons.add(sign_on)
    if not is_new:
        await saml.load_provider(ports, received.org_slug, received.service_slug)  # raises if the service was deleted
        raise AuthnRequestReplayed
    return SignOnStarted(continuation_path(received.org_slug, received.service_slug, state), state, cookie)


async def resume(ports: Ports, caller: Caller, returned: SignOnReturn, visitor: Visitor | None) -> SignOnResult | LoginRequired:
    """Continue a pending sign-on in this browser, in which `visitor` is signed in, if any.

    With ForceAuthn, the session must have started after the request. If it started through an
    identity provider, the provider must also have reauthenticated this user. A session without the
    required second factor never counts.

    If IsPassive is set and the user would have to interact, the response is NoPassive. It is also
    NoPassive if the user has no access: an error page for these users would tell the service that
    they have a session here. Only one of several parallel calls gets the response.

    Raises: SignOnNotFound, MfaMissing, NoAccessToService, AddressNotVerified; the errors of
    `configuration.find_provider`.
    """
    now = ports.clock.now()
    org_slug, service_slug, state_hash = returned.org_slug, returned.service_slug, digest(returned.state)
    async with ports.storage.reading() as read:
        pending = await read.saml_sign_ons.find(org_slug, service_slug, state_hash, digest(returned.cookie or ""), now)
        setup, sign_on = pending or (None, None)
        provider = await saml.require_provider(read, org_slug, setup, now)
    if sign_on is None:
        raise SignOnNotFound
    if sign_on.status is not None:
        return await _respond_with_status(ports, caller, provider, sign_on, sign_on.status)
    try:
        if returned.ticket is not None and compare_digest(sign_on.ticket_hash or b"", digest(returned.ticket)):
            return await _respond_after_api_sign_in(ports, sign_on, provider, caller, returned.session_cookie)
        if visitor is not None and not visitor.mfa_missing and (not sign_on.force_authn or _is_fresh(visitor, sign_on)):
            return await _respond_with_assertion(ports, visitor, provider, sign_on)
    except (SubjectMismatch, NoAccessToService, AddressNotVerified):
        if sign_on.subject is not None:  # a user without access, or without a name, cannot be the requested subject either
            return await _respond_with_status(ports, caller, provider, sign_on, SamlStatus.UNKNOWN_PRINCIPAL)
        if not sign_on.is_passive:
            raise
    if sign_on.is_passive:
        return await _respond_with_status(ports, caller, provider, sign_on, SamlStatus.NO_PASSIVE)
    return LoginRequired(continuation_path(returned.org_slug, returned.service_slug, returned.state))


def _is_fresh(visitor: Visitor, sign_on: SamlSignOn) -> bool:
    """Return whether the user authenticated after the service's request.

    While a user has a session at an identity provider, every person at this browser can sign in as
    this user without a password. So a new session here proves nothing by itself.
    """
    if proved_at(visitor.browser.proofs) <= sign_on.created_at:
        return False
    return not is_by_provider(visitor.browser.proofs) or sign_on.vouched_for == visitor.user_id


async def _respond_after_api_sign_in(
    ports: Ports, sign_on: SamlSignOn, provider: SamlIdentityProvider, caller: Caller, replaced_cookie: str | None
) -> SignOnResult:
    """Respond to a sign-on after a sign-in through the API, and start a browser session.

    The API sign-in verified all required factors. The browser session gets the start time of the
    API session, so it is too old for later sign-ons with ForceAuthn. It replaces the session of
    `replaced_cookie`, after the response is signed.
    """
    assert sign_on.user_id is not None, "a sign-on with a ticket has a user"
    assert sign_on.session_id is not None, "a sign-on with a ticket has a session"
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        context = await read.session_contexts.load(sign_on.session_id, sign_on.user_id, None, now) or refuse(SignOnNotFound)
        factors = await read.session_sign_ins.load_factors(sign_on.session_id, sign_on.user_id) or refuse(SignOnNotFound)
    browser = replace(factors, id=new_id())
    visitor = Visitor(
        user_id=context.user_id,
        email=context.email,
        email_verified=context.email_verified_at is not None,
        session_id=browser.id,
        mfa_missing=context.mfa_missing,
        sign_in=context.sign_in,
        address=caller.address,
        agent=caller.agent,
        browser=browser,
    )
    result = await _respond_with_assertion(ports, visitor, provider, sign_on, api_session_id=sign_on.session_id)
    if replaced_cookie is not None and result.signed_in is not None:
        await end_replaced(ports, caller, replaced_cookie, result.signed_in[0])
    return result


async def _respond_with_assertion(
    ports: Ports, visitor: Visitor, provider: SamlIdentityProvider, sign_on: SamlSignOn, *, api_session_id: UUID | None = None
) -> SignOnResult:
    """Finish the sign-on with an assertion.

    With `api_session_id`, the visitor's browser session does not exist yet and starts here.

    If the response cannot be signed, the recorded login event stays, and a retry records another one.
    """
    signed_in, service = None, provider.service
    try:
        # `authorize_assertion` locks the session.
        async with ports.storage.transaction(by=visitor, in_session=False) as tx:
            user = await authorize_assertion(
                ports, tx, visitor, service.org_slug, service.slug, session_id=api_session_id or visitor.session_id, sign_on=sign_on
            )
            now = ports.clock.now()
            name_id = await find_name_id(tx, user, visitor.browser, sign_on.subject, now)
            if api_session_id is not None:
                start = SessionStart(
                    id=visitor.session_id,
                    user_id=user.account.id,
                    caller=visitor,
                    device_id=visitor.browser.device_id,
                    proofs=visitor.browser.proofs,
                )
                session, secret = new_session(ports, start, proved_at(start.proofs)), new_secret()
                await tx.sessions.begin_in_browser(session, digest(secret))
                signed_in = session, secret
            recorded = await record_assertion(ports, tx, user, name_id, now, browser=visitor.browser, context_class=sign_on.context_class)
    except (NoAccessToService, AddressNotVerified, SubjectMismatch):
        ports.metrics.login_failed(LoginFailure.SAML)
        raise
    response = SamlResponse(
        id=saml_messages.new_message_id(), in_response_to=sign_on.request_id, issued_at=now, assertion=recorded.after_commit()
    )
    return await _sign(ports, visitor, user.provider, sign_on, response, signed_in)


async def _respond_with_status(
    ports: Ports, caller: Caller, provider: SamlIdentityProvider, sign_on: SamlSignOn, status: SamlStatus
) -> SignOnResult:
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.saml_sign_ons.finish(sign_on.org_id, sign_on.service_id, sign_on.state_hash, now):
            raise SignOnNotFound
    response = SamlResponse(
        id=saml_messages.new_message_id(), in_response_to=sign_on.request_id, issued_at=now, assertion=None, status=status
    )
    return await _sign(ports, caller, provider, sign_on, response)


async def _sign(
    ports: Ports,
    caller: Caller,
    provider: SamlIdentityProvider,
    sign_on: SamlSignOn,
    response: SamlResponse,
    signed_in: tuple[Session, str] | None = None,
) -> SignOnResult:
    """Sign the response to a finished sign-on.

    Signing fails with Limited if too many documents are queued, and with SealBroken if the key
    cannot be decrypted. Then the sign-on becomes pending again, so that reloading the page retries
    it. A session that started with this sign-on ends, because no browser got its cookie.
    """
    try:
        document = await ports.saml.response(provider, response)
    except Exception:
        async with ports.storage.transaction(by=caller, in_session=False) as tx:
            await tx.saml_sign_ons.reopen(sign_on.org_id, sign_on.service_id, sign_on.state_hash)
            if signed_in is not None:
                await tx.sessions.end(signed_in[0].id, ports.clock.now())
        raise
    encoded = saml_bindings.encode_post(document)
    return SignOnResult(provider.acs_url, encoded, sign_on.relay_state, response.assertion is None, signed_in)


async def idp_initiated(ports: Ports, caller: Person, org_slug: str, service_slug: str, relay_state: str | None) -> SignOnResult:
    """Return a response for a sign-in that the service did not request.

    In a browser with a session, the response is bound to it, so that single logout reaches the
    session at the service. The response to an access token is not bound to a browser session. Only a
    program sends an access token, so it confirms a membership (docs/specification/security.md, Terms).

    Raises: the errors of `authorize_assertion`, `configuration.find_provider` and `check_relay_state`.
    """
    saml_bindings.check_relay_state(relay_state)
    now, browser = ports.clock.now(), caller.browser if isinstance(caller, Visitor) else None
    async with ports.storage.transaction(by=caller, in_session=False) as tx:  # `authorize_assertion` locks the session
        user = await authorize_assertion(
            ports, tx, caller, org_slug, service_slug, session_id=caller.session_id, confirm_membership=browser is None
        )
        recorded = await record_assertion(ports, tx, user, await new_name_id(tx, user, now), now, browser=browser)
    response = SamlResponse(id=saml_messages.new_message_id(), in_response_to=None, issued_at=now, assertion=recorded.after_commit())
    document = await ports.saml.response(user.provider, response)
    return SignOnResult(user.provider.acs_url, saml_bindings.encode_post(document), relay_state)
