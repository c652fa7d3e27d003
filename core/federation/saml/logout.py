"""Single logout (decisions, point 183; security.md X-9; SAML profiles, section 4.4): whoever signs out, here or at a service, is signed
out at every service that this browser's session has signed them in to.

The browser goes from service to service, with a cookie that says which logout it is about; it is in one at a time. No key of a service is
known here, so nothing that a service says is believed: what ends is the session of the very browser that brings the request, if it is the
one that is meant. Any page can send the browser here with a request, so one that means nobody here leaves what is under way as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from core.federation.saml import bindings as saml_bindings
from core.federation.saml import configuration as saml
from core.federation.saml import configuration_rules as saml_rules
from core.federation.saml import messages as saml_messages
from core.federation.saml.logout_rules import (
    LOGOUT_TTL,
    MAX_SESSION_INDEXES,
    LogoutCookies,
    LogoutFinished,
    LogoutInitiator,
    LogoutNotFound,
    LogoutStarted,
    NoMatchingSession,
    Redirect,
    SamlLogout,
    SamlSession,
    SloUrlMissing,
)
from core.federation.saml.messages import LogoutRequest, LogoutResponse, SamlMessageInvalid, SamlStatus
from core.kernel.errors import refuse
from core.kernel.values import digest, new_id

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime
    from uuid import UUID

    from core.federation.saml.configuration_rules import SamlIdentityProvider
    from core.kernel.principals import Caller, Visitor
    from ports import Ports
    from ports.storage import Transaction


@dataclass(frozen=True, slots=True)
class _Ask:
    """The next step is to ask this service."""

    provider: SamlIdentityProvider
    request_id: str
    to: SamlSession


@dataclass(frozen=True, slots=True)
class _Over:
    """That was all; `provider` is that of the service which waits to hear it, if there is one."""

    is_partial: bool
    provider: SamlIdentityProvider | None


# What services say


async def receive_request(
    ports: Ports,
    base_url: str,
    visitor: Visitor | None,
    caller: Caller,
    shown: LogoutCookies,
    org_slug: str,
    service_slug: str,
    document: bytes,
    relay_state: str | None,
) -> Redirect | LogoutFinished | NoMatchingSession:
    """The first step of the sign-out that a service asks for in this browser, in which `visitor` is signed in.

    If it means the session that is there, that ends; where another logout is under way, they go on as one, which tells everybody whom
    either has still to tell. If it means one that the logout under way has ended, it takes that over: it has signed the person out itself,
    and the others are still to be told. Either way the newest asker hears how it ends, and those before do not, who began by signing the
    person out. The same message once more leads to where it led before.

    Raises NoSloUrl, Limited as `go_on` does, and what saml.find, check_relay_state and check_said raise.
    """
    provider, now = await _find(ports, org_slug, service_slug), ports.clock.now()
    saml_bindings.check_relay_state(relay_state)
    request = await ports.saml.read(document)
    if not isinstance(request, LogoutRequest) or len(request.session_indexes) > MAX_SESSION_INDEXES:
        raise SamlMessageInvalid
    service = provider.service
    saml_messages.check_message(request, provider, saml_rules.endpoint_url(base_url, service, "slo"), now)
    if provider.slo_url is None:
        raise SloUrlMissing
    asker = LogoutInitiator(org_id=service.org_id, service_id=service.id, request_id=request.id, relay_state=relay_state)
    name_id = saml_messages.resolve_name_id(request.name_id, provider, saml_rules.endpoint_url(base_url, service))

    def meant(there: Sequence[SamlSession]) -> list[SamlSession]:
        return [
            part
            for part in there
            if part.service_id == service.id
            and part.session_index in request.session_indexes
            and name_id is not None
            and any(name_id.matches(name) for name in part.names)
        ]

    async with ports.storage.transaction(by=visitor or caller) as tx:
        there = await _participations(tx, visitor)
        under_way = await _under_way(tx, shown, now)
        next_step: _Ask | _Over | None = None
        if visitor is not None and (own := meant(there)):
            secret, logout = await _leave(tx, visitor, shown, under_way, asker, now)
            await _add_requests(tx, logout, visitor, there, own, now)
            next_step = await _next(tx, logout, now)
        elif under_way is not None and under_way[1].asker == asker:
            secret, logout = under_way
            next_step = await _next(tx, logout, now, once_more=True)
        elif under_way is not None and (own := meant(await tx.saml_logouts.concerned(under_way[1].id))):
            secret, logout = under_way[0], replace(under_way[1], asker=asker)
            await tx.saml_logouts.hand_over(logout)
            for part in own:
                await tx.saml_logouts.set_done(logout.id, part, now)
            next_step = await _next(tx, logout, now)
    if next_step is None:
        return NoMatchingSession(await ports.saml.logout_response(provider, request.id, SamlStatus.UNKNOWN_PRINCIPAL, relay_state))
    return await _take(ports, caller, secret, logout, next_step)


async def receive_response(
    ports: Ports, base_url: str, caller: Caller, org_slug: str, service_slug: str, document: bytes, secret: str | None
) -> str | Redirect:
    """Keep what a service says to a request of ours, in the browser with the secret of that sign-out; the path on which it goes on.

    What it has said before it may say again, as by a double click, which changes nothing: it leads to where the browser was sent meanwhile.
    Raises LogoutUnknown, Limited as `go_on` does, and what saml.find and check_said raise.
    """
    provider, now = await _find(ports, org_slug, service_slug), ports.clock.now()
    response = await ports.saml.read(document)
    if not isinstance(response, LogoutResponse):
        raise SamlMessageInvalid
    saml_messages.check_message(response, provider, saml_rules.endpoint_url(base_url, provider.service, "slo"), now)
    async with ports.storage.transaction(by=caller) as tx:
        service = provider.service
        taken = await tx.saml_logouts.take_answer(
            digest(secret or ""), service.org_id, service.id, response.in_response_to, now, is_success=response.is_success
        )
        pending = None if taken else await _meanwhile(tx, provider, response.in_response_to, secret, now)
    if pending is not None:
        return await _go_there(ports, secret, pending)
    return saml_rules.endpoint_path(org_slug, service_slug, "slo")


async def _meanwhile(tx: Transaction, provider: SamlIdentityProvider, request_id: str, secret: str | None, now: datetime) -> _Ask | None:
    """Whom the browser was sent to since this service has answered that request; None if it is still to go on.

    Raises LogoutUnknown where the service was not asked that in the sign-out of this browser.
    """
    logout = await tx.saml_logouts.lock(digest(secret or ""), now) or refuse(LogoutNotFound)
    if not await tx.saml_logouts.has_answered(logout.id, provider.service.org_id, provider.service.id, request_id):
        raise LogoutNotFound
    return await _asked_last(tx, logout, now)


async def _find(ports: Ports, org_slug: str, service_slug: str) -> SamlIdentityProvider:
    async with ports.storage.reading() as read:
        return await saml.find_provider(read, org_slug, service_slug, ports.clock.now())


# What the browser does


async def sign_out(ports: Ports, visitor: Visitor | None, caller: Caller, shown: LogoutCookies, after: str) -> LogoutStarted | None:
    """End the browser's session, at the services as well, and go on to this path in the end; None where it has signed the person in to
    none that could be told.

    Where another logout is under way they go on as one, and our page is where that ends. Without a session there is only that one, which
    goes on as it is.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=visitor or caller) as tx:
        there = await _participations(tx, visitor)
        under_way = await _under_way(tx, shown, now)
        concerned = [] if under_way is None else await tx.saml_logouts.concerned(under_way[1].id)
        first = await _first_open(tx, (*there, *concerned), now)
        if first is None:
            if visitor is not None:
                await _end_session(tx, visitor, now)
            return None
        if visitor is not None:
            under_way = await _leave(tx, visitor, shown, under_way, LogoutInitiator(after=after), now)
            await _add_requests(tx, under_way[1], visitor, there, (), now)
        assert under_way is not None, "somebody is told of it"
    return LogoutStarted(saml_rules.endpoint_path(first.service.org_slug, first.service.slug, "slo"), under_way[0])


async def resume(ports: Ports, secret: str | None, caller: Caller) -> Redirect | LogoutFinished:
    """The next step of the logout under way in the browser with this secret.

    A service that was asked and has not answered is asked the same once more, because the browser may not have got there: somebody has
    clicked twice, or gone back. If it does not answer then either, it is given up. One that is closed or deleted meanwhile is passed over,
    so it has not answered either; where that is the one that began it, our own page says how it ended.

    Raises LogoutUnknown; and Limited where too many documents wait to be signed, in which case the service that was next counts as asked,
    and whoever waits to hear how it ended is answered as soon as the page is loaded again.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        logout = await tx.saml_logouts.lock(digest(secret or ""), now) or refuse(LogoutNotFound)
        next_step = await _next(tx, logout, now)
    return await _take(ports, caller, secret, logout, next_step)


async def is_in_progress(ports: Ports, caller: Caller, secret: str) -> bool:
    """Whether there is a logout to go on with in the browser that knows it by this secret."""
    async with ports.storage.transaction(by=caller) as tx:
        return await tx.saml_logouts.lock(digest(secret), ports.clock.now()) is not None


async def replace_session(ports: Ports, caller: Caller, cookie: str, session_id: UUID) -> None:
    """End the browser's session that this cookie stands for, in whose place another one has come. If that is the same person's, it can
    still be signed out everywhere: also where the first had ended already, by signing out everywhere else or by another password."""
    async with ports.storage.transaction(by=caller) as tx:
        await tx.saml_logouts.keep_participations(digest(cookie), session_id)
        await tx.sessions.end_in_browser(digest(cookie), ports.clock.now())


async def _participations(tx: Transaction, visitor: Visitor | None) -> list[SamlSession]:
    """Where the browser's session has signed the person in to, whose account is held from here on."""
    if visitor is None:
        return []
    # Whoever makes the person unknown holds the account: they meet what follows, or this finds no names any more (security.md Y-2). And of
    # several who end one session the first finds something here.
    await tx.accounts.lock(visitor.user_id)
    return await tx.saml_logouts.participations(visitor.session_id)


async def _under_way(tx: Transaction, shown: LogoutCookies, now: datetime) -> tuple[str, SamlLogout] | None:
    """The logout under way in this browser, and the secret by which it knows it; locked until the transaction ends."""
    for secret in (shown.logout, shown.session):
        if secret is not None and (logout := await tx.saml_logouts.lock(digest(secret), now)) is not None:
            return secret, logout
    return None


async def _leave(
    tx: Transaction, visitor: Visitor, shown: LogoutCookies, under_way: tuple[str, SamlLogout] | None, asker: LogoutInitiator, now: datetime
) -> tuple[str, SamlLogout]:
    """End the browser's session, by a logout of its own or by the one that is under way. Raises SamlOff."""
    await _end_session(tx, visitor, now)
    if under_way is not None:
        secret, logout = under_way
        logout = replace(logout, asker=asker, expires_at=now + LOGOUT_TTL)
        await tx.saml_logouts.hand_over(logout)
        return secret, logout
    assert shown.session is not None, "that is how the visitor is known"
    logout = SamlLogout(id=new_id(), browser_hash=digest(shown.session), asker=asker, created_at=now, expires_at=now + LOGOUT_TTL)
    if not await tx.saml_logouts.begin(logout):
        raise saml_rules.SamlDisabled
    return shown.session, logout


async def _end_session(tx: Transaction, visitor: Visitor, now: datetime) -> None:
    await tx.saml_logouts.end_participations(visitor.session_id)
    await tx.sessions.end(visitor.session_id, now)


async def _add_requests(
    tx: Transaction, logout: SamlLogout, visitor: Visitor, there: Sequence[SamlSession], own: Collection[SamlSession], now: datetime
) -> None:
    """Have the services told where the session has signed the person in to, other than the asker's `own`, which is done, and kept so that
    it can ask again. Those that cannot be told make it a logout in part."""
    for part in there:
        is_own = part in own
        reached = is_own or await _open(tx, part.org_id, part.service_id, now) is not None
        done_at = now if is_own else None
        if not (reached and await tx.saml_logouts.add_request(logout.id, saml_messages.new_message_id(), visitor.user_id, part, done_at)):
            await tx.saml_logouts.mark_partial(logout.id)


async def _next(tx: Transaction, logout: SamlLogout, now: datetime, *, once_more: bool = False) -> _Ask | _Over:
    """Whom to ask next, or `once_more` whoever was asked last and has not answered, which does not count as another time; if that was all,
    the logout is over."""
    if once_more and (last := await _asked_last(tx, logout, now)) is not None:
        return last
    while (asked := await tx.saml_logouts.next_request(logout.id, now)) is not None:
        if (ask := await _to_ask(tx, *asked, now)) is not None:
            return ask
    is_partial, asker = await tx.saml_logouts.end(logout.id), logout.asker
    if asker.org_id is None or asker.service_id is None:
        return _Over(is_partial, None)
    return _Over(is_partial, await _open(tx, asker.org_id, asker.service_id, now))


async def _asked_last(tx: Transaction, logout: SamlLogout, now: datetime) -> _Ask | None:
    """Whoever was asked last, to be asked the same, if they have not answered."""
    asked = await tx.saml_logouts.last_request(logout.id)
    return None if asked is None else await _to_ask(tx, *asked, now)


async def _to_ask(tx: Transaction, request_id: str, to: SamlSession, now: datetime) -> _Ask | None:
    """None where its identity provider was closed, or the service deleted, meanwhile."""
    provider = await _open(tx, to.org_id, to.service_id, now)
    return None if provider is None else _Ask(provider, request_id, to)


async def _take(ports: Ports, caller: Caller, secret: str | None, logout: SamlLogout, step: _Ask | _Over) -> Redirect | LogoutFinished:
    """Take this step. Raises Limited where too many documents wait to be signed: a logout that is over is under way again then, with nobody
    left to tell, so that loading the page once more is enough. So it is where the key cannot be opened."""
    if isinstance(step, _Ask):
        return await _go_there(ports, secret, step)
    asker = logout.asker
    if step.provider is None:
        return LogoutFinished(step.is_partial, asker.after)
    assert asker.request_id is not None, "a service has asked"
    status = SamlStatus.PARTIAL_LOGOUT if step.is_partial else None
    try:
        return Redirect(await ports.saml.logout_response(step.provider, asker.request_id, status, asker.relay_state), None)
    except Exception:
        async with ports.storage.transaction(by=caller, in_session=False) as tx:
            if await tx.saml_logouts.begin(logout) and step.is_partial:
                await tx.saml_logouts.mark_partial(logout.id)
        raise


async def _go_there(ports: Ports, secret: str | None, ask: _Ask) -> Redirect:
    """Raises Limited."""
    return Redirect(await ports.saml.logout_request(ask.provider, ask.request_id, ask.to.name_id, ask.to.session_index), secret)


async def _open(tx: Transaction, org_id: UUID, service_id: UUID, now: datetime) -> SamlIdentityProvider | None:
    """The identity provider, if it is open, and the service can be told anything."""
    setup = await tx.saml.setup_by_id(org_id, service_id)
    provider = None if setup is None else saml.active_provider(setup, now)
    return None if provider is None or provider.slo_url is None else provider


async def _first_open(tx: Transaction, parts: Sequence[SamlSession], now: datetime) -> SamlIdentityProvider | None:
    """That of the first service which can be told anything."""
    for part in parts:
        if (provider := await _open(tx, part.org_id, part.service_id, now)) is not None:
            return provider
    return None
