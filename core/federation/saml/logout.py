"""SAML single logout, and the end of a user's sessions at a service in all browsers (SAML profiles section 4.4; security X-9).

A user who signs out, here or at a service, is signed out at every service that this browser session
has signed them in to. The browser is redirected from service to service, with a cookie that
identifies the logout. A browser has one logout at a time.

An unsigned message proves nothing. A LogoutRequest can end only the session of the browser that
delivers it, and only if it names that session. Any web page can make a browser deliver a
LogoutRequest, so a request that matches no session changes nothing. If the service has registered a
certificate, a request without SessionIndex that is signed with it ends the user's sessions in all
browsers that are signed in to this service.

The other services of these browsers cannot be notified, because a logout needs the browser.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from core.federation.saml import configuration as saml
from core.federation.saml.model import configuration as saml_model
from core.federation.saml.model import messages, sign_on
from core.federation.saml.model import messages as saml_messages
from core.federation.saml.model.configuration import SamlIdentityProvider
from core.kernel import callers, values
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from core.tenancy import events
from ports import Ports
from ports.storage import Transaction


@dataclass(frozen=True, slots=True)
class _SendRequest:
    """The next step of a logout: send a LogoutRequest for this session to its service."""

    provider: SamlIdentityProvider
    request_id: str
    session: sign_on.SamlSession


@dataclass(frozen=True, slots=True)
class _Finish:
    """The last step of a logout: report the result. The initiating service gets it, or our own page if `provider` is None."""

    is_partial: bool
    provider: SamlIdentityProvider | None


# Messages of services


async def receive_request(
    ports: Ports,
    base_url: str,
    visitor: callers.Visitor | None,
    caller: Caller,
    cookies: sign_on.LogoutCookies,
    received: messages.ReceivedDocument,
) -> sign_on.Redirect | sign_on.LogoutFinished | sign_on.LogoutAnswered:
    """Start a logout by a service's LogoutRequest.

    `visitor` is the user who is signed in in this browser, or None.

    If the request names the current session, that session ends, and its other services are
    notified. While a logout is in progress in this browser, they are not: the service gets
    PartialLogout immediately. A request that names a session that the logout in progress has ended
    gets PartialLogout too. The request that started this logout leads to the current step again.

    A signed request without SessionIndex also ends the sessions of the user's other browsers, with
    an event. Their other services cannot be notified without these browsers, and then the result is
    partial.

    Raises: SloUrlMissing; LogoutSignatureInvalid; Limited, as in `resume`; the errors of
    `configuration.find_provider`, `check_relay_state` and `check_message`.
    """
    provider, now = await _find_provider(ports, received), ports.clock.now()
    saml_messages.check_relay_state(received.relay_state)
    request = await ports.saml.read(received.document)
    if not isinstance(request, messages.LogoutRequest) or len(request.session_indexes) > sign_on.MAX_SESSION_INDEXES:
        raise messages.SamlMessageInvalid
    initiating = await _check_request(ports, base_url, provider, request, received, now)
    # No event names the visitor, who may not be the user of the request.
    async with ports.storage.transaction(by=caller) as tx:
        users = await find_users_everywhere(tx, provider.service, initiating, now)
        sessions = await _lock_sessions(tx, visitor, now, users)
        in_progress = await _lock_logout(tx, cookies, now)
        named = initiating.select_named(sessions)
        ended = [] if in_progress is None else initiating.select_named(await tx.saml_logouts.requested_sessions(in_progress.id))
        continued = None  # the logout that the browser continues
        if visitor is not None and named:
            await tx.sessions.end(visitor.session_id, now)
            if initiating.is_everywhere:
                users = {*users, visitor.user_id}
            if in_progress is None:
                continued = await _start_logout(tx, visitor, cookies, initiating.initiator, sessions, named, now)
        elif in_progress is not None and in_progress.initiator == initiating.initiator:
            continued = in_progress
        elsewhere = await end_sessions_everywhere(tx, provider.service, users, now)
        if continued is not None and elsewhere.have_other_services:
            await tx.saml_logouts.mark_partial(continued.id)
        step = None if continued is None else await _next_step(tx, continued, now, repeat=continued is in_progress)
    if continued is not None and step is not None:
        return await _take_step(ports, caller, cookies.secret_of(continued), continued, step)
    status = None if elsewhere.count else messages.SamlStatus.UNKNOWN_PRINCIPAL
    if named or ended or elsewhere.have_other_services:
        status = messages.SamlStatus.PARTIAL_LOGOUT
    return sign_on.LogoutAnswered(await ports.saml.logout_response(provider, request.id, status, received.relay_state))


async def _check_request(
    ports: Ports,
    base_url: str,
    provider: SamlIdentityProvider,
    request: messages.LogoutRequest,
    received: messages.ReceivedDocument,
    now: datetime,
) -> sign_on.InitiatingRequest:
    """Check a LogoutRequest and its signature, and resolve the name of the user."""
    service = provider.service
    saml_messages.check_message(request, provider, saml_model.endpoint_url(base_url, service, "slo"), now)
    if provider.slo_url is None:
        raise sign_on.SloUrlMissing
    initiating = sign_on.InitiatingRequest(
        sign_on.LogoutInitiator(org_id=service.org_id, service_id=service.id, request_id=request.id, relay_state=received.relay_state),
        request.session_indexes,
        saml_messages.resolve_name_id(request.name_id, provider, saml_model.endpoint_url(base_url, service)),
    )
    if provider.slo_certificate is None or not await ports.saml.is_signed(received, provider.slo_certificate):
        return initiating
    if request.destination is None:  # a signed message without it could be for another address (SAML bindings section 3.4.5.2)
        raise messages.DestinationMismatch
    return replace(initiating, is_signed=True)


async def receive_response(
    ports: Ports, base_url: str, caller: Caller, received: messages.ReceivedDocument, secret: str | None
) -> str | sign_on.Redirect:
    """Record a service's response to our LogoutRequest.

    `secret` identifies the logout of the browser that delivers the response.

    Return the path where the logout continues. A response that arrives twice, for example after a
    double click, changes nothing: then return the redirect with the request that followed the first
    response, or that path if no request followed.

    Raises: LogoutNotFound; Limited, as in `resume`; the errors of `configuration.find_provider` and
    `check_message`.
    """
    provider, now = await _find_provider(ports, received), ports.clock.now()
    response = await ports.saml.read(received.document)
    if not isinstance(response, messages.LogoutResponse):
        raise messages.SamlMessageInvalid
    service = provider.service
    saml_messages.check_message(response, provider, saml_model.endpoint_url(base_url, service, "slo"), now)
    async with ports.storage.transaction(by=caller) as tx:
        logout = await tx.saml_logouts.lock(values.digest(secret or ""), now) or refuse(sign_on.LogoutNotFound)
        is_first = await tx.saml_logouts.record_response(
            logout.id, service.org_id, service.id, response.in_response_to, now, is_success=response.is_success
        )
        if is_first is None:
            raise sign_on.LogoutNotFound
        pending = None if is_first else await _last_request(tx, logout, now)
    if pending is not None:
        return await _send_request(ports, secret, pending)
    return saml_model.endpoint_path(received.org_slug, received.service_slug, "slo")


async def _find_provider(ports: Ports, received: messages.ReceivedDocument) -> SamlIdentityProvider:
    async with ports.storage.reading() as read:
        return await saml.find_provider(read, received.org_slug, received.service_slug, ports.clock.now())


# Steps of the browser


async def sign_out(
    ports: Ports, visitor: callers.Visitor | None, caller: Caller, cookies: sign_on.LogoutCookies, after: str
) -> sign_on.Redirect | sign_on.LogoutFinished | None:
    """End the browser session here, and return the start of the logout that ends it at the services.

    The browser continues at the path `after` when the logout is finished. Return None if no service
    can be notified.

    While another logout is in progress, the services of this session are not notified: then the
    logout of this session is finished, and partial. Without a session to end, for example after a
    double click, the logout in progress continues.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=visitor or caller) as tx:
        sessions = await _lock_sessions(tx, visitor, now)
        logout = await _lock_logout(tx, cookies, now)
        if visitor is not None:
            await tx.sessions.end(visitor.session_id, now)
        if logout is not None and sessions:
            return sign_on.LogoutFinished(is_partial=True, after=after)
        unfinished = sessions if logout is None else await tx.saml_logouts.requested_sessions(logout.id)
        provider = await _first_open_provider(tx, unfinished, now)
        if provider is None:
            return None
        if logout is None:
            assert visitor is not None, "only a visitor has sessions"
            logout = await _start_logout(tx, visitor, cookies, sign_on.LogoutInitiator(after=after), sessions, (), now)
    return sign_on.Redirect(saml_model.endpoint_path(provider.service.org_slug, provider.service.slug, "slo"), cookies.secret_of(logout))


async def resume(ports: Ports, secret: str | None, caller: Caller) -> sign_on.Redirect | sign_on.LogoutFinished:
    """Take the next step of the logout in progress in the browser with this secret.

    A service that has not responded gets the same request a second time, because the user may have
    clicked twice or gone back before the browser reached the service. After that the service counts
    as not notified. Services that were disabled or deleted are skipped and count as not notified
    too. If the initiating service is one of these, our own page reports the result.

    Raises: LogoutNotFound; Limited if too many documents wait for a signature. The request that
    could not be signed counts as sent. If only the result was left, reloading the page sends it.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        logout = await tx.saml_logouts.lock(values.digest(secret or ""), now) or refuse(sign_on.LogoutNotFound)
        step = await _next_step(tx, logout, now)
    return await _take_step(ports, caller, secret, logout, step)


async def _lock_sessions(
    tx: Transaction, visitor: callers.Visitor | None, now: datetime, users: Collection[UUID] = ()
) -> list[sign_on.SamlSession]:
    """Lock the accounts that the visitor and these users have, and return the browser session's SAML sessions."""
    # Anonymization takes this lock too. If it comes later, it finds the requests that this
    # transaction adds. If it came before, the names are already deleted (security Y-2). Of several
    # calls that end one session, only the first finds SAML sessions. Lock order: by id.
    for user_id in sorted({*users} if visitor is None else {*users, visitor.user_id}):
        await tx.accounts.lock(user_id)
    return [] if visitor is None else await tx.saml_logouts.sessions(visitor.session_id, now)


async def _lock_logout(tx: Transaction, cookies: sign_on.LogoutCookies, now: datetime) -> sign_on.SamlLogout | None:
    """Lock and return the logout in progress in this browser, or return None."""
    for secret in (cookies.logout, cookies.session):
        if secret is not None and (logout := await tx.saml_logouts.lock(values.digest(secret), now)) is not None:
            return logout
    return None


async def _start_logout(
    tx: Transaction,
    visitor: callers.Visitor,
    cookies: sign_on.LogoutCookies,
    initiator: sign_on.LogoutInitiator,
    sessions: Sequence[sign_on.SamlSession],
    done: Collection[sign_on.SamlSession],
    now: datetime,
) -> sign_on.SamlLogout:
    """Add a logout with a request for each session.

    The initiator ended the sessions in `done` itself, so their requests are stored as answered. A
    service that cannot be notified makes the logout partial.
    """
    assert cookies.session is not None, "a visitor has a session cookie"
    logout = sign_on.SamlLogout(
        id=values.new_id(),
        browser_hash=values.digest(cookies.session),
        initiator=initiator,
        created_at=now,
        expires_at=now + sign_on.LOGOUT_TTL,
    )
    if not await tx.saml_logouts.add(logout):
        raise saml_model.SamlDisabled
    for session in sessions:
        is_done = session in done
        is_reachable = is_done or await _find_open_provider(tx, session.org_id, session.service_id, now) is not None
        request_id, done_at = saml_messages.new_message_id(), now if is_done else None
        if not (is_reachable and await tx.saml_logouts.add_request(logout.id, request_id, visitor.user_id, session, done_at)):
            await tx.saml_logouts.mark_partial(logout.id)
    return logout


async def _next_step(tx: Transaction, logout: sign_on.SamlLogout, now: datetime, *, repeat: bool = False) -> _SendRequest | _Finish:
    """Return the next request to send. After the last one, delete the logout and return its result.

    With `repeat`, return the request that was sent last if it has no response. That does not count
    as a second attempt.
    """
    if repeat and (last := await _last_request(tx, logout, now)) is not None:
        return last
    while (request := await tx.saml_logouts.next_request(logout.id, now)) is not None:
        if (step := await _request_step(tx, *request, now)) is not None:
            return step
    is_partial, initiator = await tx.saml_logouts.delete(logout.id), logout.initiator
    if initiator.org_id is None or initiator.service_id is None:
        return _Finish(is_partial, None)
    return _Finish(is_partial, await _find_open_provider(tx, initiator.org_id, initiator.service_id, now))


async def _last_request(tx: Transaction, logout: sign_on.SamlLogout, now: datetime) -> _SendRequest | None:
    """Return the request that was sent last, or None if it has a response or cannot be sent again."""
    request = await tx.saml_logouts.last_request(logout.id)
    return None if request is None else await _request_step(tx, *request, now)


async def _request_step(tx: Transaction, request_id: str, session: sign_on.SamlSession, now: datetime) -> _SendRequest | None:
    """Return the step that sends this request, or None if the service cannot be notified."""
    provider = await _find_open_provider(tx, session.org_id, session.service_id, now)
    return None if provider is None else _SendRequest(provider, request_id, session)


async def _take_step(
    ports: Ports, caller: Caller, secret: str | None, logout: sign_on.SamlLogout, step: _SendRequest | _Finish
) -> sign_on.Redirect | sign_on.LogoutFinished:
    """Sign the message of this step, and return the redirect that delivers it, or the end of the logout.

    Signing fails with Limited if too many documents are queued, and with SealBroken if the key
    cannot be decrypted. A finished logout is then stored again, without requests, so that reloading
    the page sends the result.
    """
    if isinstance(step, _SendRequest):
        return await _send_request(ports, secret, step)
    initiator = logout.initiator
    if step.provider is None:
        return sign_on.LogoutFinished(step.is_partial, initiator.after)
    assert initiator.request_id is not None, "a service starts a logout with a request"
    status = messages.SamlStatus.PARTIAL_LOGOUT if step.is_partial else None
    try:
        return sign_on.Redirect(await ports.saml.logout_response(step.provider, initiator.request_id, status, initiator.relay_state), None)
    except Exception:
        async with ports.storage.transaction(by=caller, in_session=False) as tx:
            if await tx.saml_logouts.add(logout) and step.is_partial:
                await tx.saml_logouts.mark_partial(logout.id)
        raise


async def _send_request(ports: Ports, secret: str | None, step: _SendRequest) -> sign_on.Redirect:
    session = step.session
    return sign_on.Redirect(await ports.saml.logout_request(step.provider, step.request_id, session.name_id, session.session_index), secret)


async def _find_open_provider(tx: Transaction, org_id: UUID, service_id: UUID, now: datetime) -> SamlIdentityProvider | None:
    """Return the active identity provider of a service with an SLO URL, or None."""
    setup = await tx.saml.setup_by_id(org_id, service_id)
    provider = None if setup is None else saml.active_provider(setup, now)
    return None if provider is None or provider.slo_url is None else provider


async def _first_open_provider(tx: Transaction, sessions: Sequence[sign_on.SamlSession], now: datetime) -> SamlIdentityProvider | None:
    """Return the identity provider of the first session with a service that can be notified, or None."""
    for session in sessions:
        if (provider := await _find_open_provider(tx, session.org_id, session.service_id, now)) is not None:
            return provider
    return None


async def find_users_everywhere(
    tx: Transaction, service: callers.ServiceContext, initiating: sign_on.InitiatingRequest, now: datetime
) -> Collection[UUID]:
    """Return the users whose sessions the request ends in all browsers."""
    if not initiating.is_everywhere or initiating.name_id is None:
        return ()
    return await tx.saml_logouts.find_users(service.org_id, service.id, initiating.name_id, now)


async def end_sessions_everywhere(
    tx: Transaction, service: callers.ServiceContext, users: Collection[UUID], now: datetime
) -> sign_on.EndedSessions:
    """End all browser sessions that have signed these users in to the service. The accounts are locked."""
    count, have_other_services = 0, False
    for user_id in users:
        ended = await tx.saml_logouts.end_sessions_at(service.org_id, service.id, user_id, now)
        if ended.count:
            tx.record(events.sessions_revoked(service.org_id, user_id, ended.count))
        count, have_other_services = count + ended.count, have_other_services or ended.have_other_services
    return sign_on.EndedSessions(count, have_other_services)
