"""Single logout (decisions, point 183; security.md X-9; SAML profiles, section 4.4): whoever signs out, here or at a service, is signed
out at every service that this browser's session has signed them in to.

The browser goes from service to service, with a cookie that says which logout it is about. No key of a service is known here, so nothing
that a service says is believed: what ends is the session of the very browser that brings the request, if it is the one that is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from core import saml, saml_messages
from core.errors import Invalid, refuse
from core.saml_messages import LogoutRequest, LogoutResponse, MessageInvalid, NameId, Status
from core.values import digest, new_id, new_secret

if TYPE_CHECKING:
    from core.access import Caller, Visitor
    from core.saml import IdentityProvider
    from ports import Ports
    from ports.storage import Transaction

LOGOUT_TTL: Final = timedelta(minutes=15)
MOST_INDEXES: Final = 100  # in one request; a browser has one at a service


class NoSloUrl(Invalid):
    """This application has no address registered to which its users could be sent back after signing out. Nobody was signed out."""


class LogoutUnknown(Invalid):
    """There is no sign-out under way in this browser, or it took too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation:
    """That a browser's session has signed somebody in to a service, and as whom; by what names before that."""

    org_id: UUID
    service_id: UUID
    session_index: str
    name_id: NameId
    former_names: tuple[str, ...] = ()

    @property
    def names(self) -> list[NameId]:
        """All that the service may know them by."""
        return [self.name_id, *(replace(self.name_id, value=name) for name in self.former_names)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Logout:
    """A logout under way. What a service asked for is in the fields that are None where our own page began it, and where that goes
    on in `after`. Times are UTC.

    `name_id` is whom the service names, None where that can be nobody whom it knows from us.
    `matched` says that it was about the browser's own session, `is_partial` that not every service could be told, or has done it.
    """

    id: UUID
    browser_hash: bytes
    org_id: UUID | None = None
    service_id: UUID | None = None
    request_id: str | None = None
    relay_state: str | None = None
    name_id: NameId | None = None
    session_indexes: tuple[str, ...] = ()
    after: str | None = None
    user_id: UUID | None = None
    begun_at: datetime | None = None
    matched: bool = False
    is_partial: bool = False
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class GoThere:
    """Where the browser goes next; after the last step it does not come back for this."""

    address: str
    is_last: bool


@dataclass(frozen=True, slots=True)
class SignedOut:
    """It is over, and no service waits to hear it: `after` is where our own page goes on. `is_partial` says that the person may still be
    signed in somewhere."""

    is_partial: bool
    after: str | None


@dataclass(frozen=True, slots=True)
class Started:
    """A logout that has begun: the path on which the browser goes on, and the cookie that it must have there."""

    path: str
    cookie: str = field(repr=False)


# What services say


async def receive_request(
    ports: Ports, base_url: str, caller: Caller, org_slug: str, service_slug: str, document: bytes, relay_state: str | None
) -> Started:
    """Keep that a service wants to have somebody signed out; whose session it is, is looked at when the browser comes with its cookies.

    Raises NoSloUrl, and what saml.find, check_relay_state and check_said raise.
    """
    provider, now = await _find(ports, org_slug, service_slug), ports.clock.now()
    saml_messages.check_relay_state(relay_state)
    request = await ports.saml.read(document)
    if not isinstance(request, LogoutRequest) or len(request.session_indexes) > MOST_INDEXES:
        raise MessageInvalid
    saml_messages.check_said(request, provider, saml.address(base_url, provider.service, "slo"), now)
    if provider.slo_url is None:
        raise NoSloUrl
    cookie, issuer = new_secret(), saml.address(base_url, provider.service)
    logout = Logout(
        id=new_id(),
        browser_hash=digest(cookie),
        org_id=provider.service.org_id,
        service_id=provider.service.id,
        request_id=request.id,
        relay_state=relay_state,
        name_id=saml_messages.understood(request.name_id, provider, issuer),
        # Longer ones are none of ours.
        session_indexes=tuple(index for index in request.session_indexes if len(index) <= saml_messages.LONGEST_NAME),
        created_at=now,
        expires_at=now + LOGOUT_TTL,
    )
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.saml_logouts.begin(logout):
            raise saml.SamlOff
    return Started(saml.path(org_slug, service_slug, "slo"), cookie)


async def receive_response(
    ports: Ports, base_url: str, caller: Caller, org_slug: str, service_slug: str, document: bytes, cookie: str | None
) -> str:
    """Keep what a service says to a request of ours, in the browser with the cookie of that sign-out; the path on which it goes on.

    Raises LogoutUnknown, and what saml.find and check_said raise.
    """
    provider, now = await _find(ports, org_slug, service_slug), ports.clock.now()
    response = await ports.saml.read(document)
    if not isinstance(response, LogoutResponse):
        raise MessageInvalid
    saml_messages.check_said(response, provider, saml.address(base_url, provider.service, "slo"), now)
    async with ports.storage.transaction(by=caller) as tx:
        service = provider.service
        taken = await tx.saml_logouts.take_answer(
            digest(cookie or ""), service.org_id, service.id, response.in_response_to, now, is_success=response.is_success
        )
        if not taken:
            raise LogoutUnknown
    return saml.path(org_slug, service_slug, "slo")


async def _find(ports: Ports, org_slug: str, service_slug: str) -> IdentityProvider:
    async with ports.storage.reading() as read:
        return await saml.find(read, org_slug, service_slug, ports.clock.now())


# What the browser does


async def sign_out(ports: Ports, visitor: Visitor, after: str) -> Started | None:
    """End the browser's session, at the services as well, and go on to this path in the end; None where it has signed the person in to
    none that could be told."""
    now, cookie = ports.clock.now(), new_secret()
    logout = Logout(
        id=new_id(),
        browser_hash=digest(cookie),
        after=after,
        user_id=visitor.user_id,
        begun_at=now,
        matched=True,
        created_at=now,
        expires_at=now + LOGOUT_TTL,
    )
    async with ports.storage.transaction(by=visitor) as tx:
        there = await _leave(tx, visitor, now)
        told = [found for found in there if found[1] is not None and found[1].slo_url is not None]
        if not told:
            return None
        await tx.saml_logouts.begin(logout)
        await _ask(tx, logout, there)
        first = told[0][1]
        assert first is not None, "who is told is there"
    return Started(saml.path(first.service.org_slug, first.service.slug, "slo"), cookie)


async def go_on(ports: Ports, cookie: str | None, visitor: Visitor | None, caller: Caller) -> GoThere | SignedOut:
    """The next step of the logout that this cookie is about, in this browser, in which `visitor` is signed in still.

    A service that was asked and did not send the browser back is not asked again: it has not answered. One that is closed or deleted
    meanwhile is passed over, so it has not answered either; where that is the one that began it, our own page says how it ended.

    Raises LogoutUnknown; and Limited where too many documents wait to be signed, in which case the service that was next counts as one
    that has not answered. LogoutUnknown and NoSloUrl are raised, too, where nobody was signed out, and nobody is there any more to hear it.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=visitor or caller) as tx:
        logout = await tx.saml_logouts.lock(digest(cookie or ""), now) or refuse(LogoutUnknown)
        if logout.begun_at is None:
            logout = await _begin(tx, logout, visitor, now)
        while (asked := await tx.saml_logouts.next_request(logout.id, now)) is not None:
            request_id, to = asked
            provider = await _open(tx, to.org_id, to.service_id, now)
            if provider is not None and provider.slo_url is not None:
                break
            # Its identity provider was closed, or the service deleted, meanwhile.
        else:
            is_partial = await tx.saml_logouts.end(logout.id)
            asker = None
            if logout.org_id is not None and logout.service_id is not None:
                asker = await _open(tx, logout.org_id, logout.service_id, now)
    if asked is not None:
        assert provider is not None, "it is open"
        return GoThere(await ports.saml.logout_request(provider, request_id, to.name_id, to.session_index), is_last=False)
    if asker is None or asker.slo_url is None:
        if not logout.matched:
            raise LogoutUnknown if asker is None else NoSloUrl
        return SignedOut(is_partial, logout.after)
    assert logout.request_id is not None, "a service has asked"
    status = Status.UNKNOWN_PRINCIPAL if not logout.matched else Status.PARTIAL_LOGOUT if is_partial else None
    return GoThere(await ports.saml.logout_response(asker, logout.request_id, status, logout.relay_state), is_last=True)


async def give_way(ports: Ports, before: Visitor, session_id: UUID) -> None:
    """End a browser's session in whose place another one has come; if that is the same person's, it can still be signed out everywhere."""
    async with ports.storage.transaction(by=before) as tx:
        await tx.saml_logouts.keep_participations(before.session_id, session_id)
        await tx.sessions.end(before.session_id, ports.clock.now())


async def _begin(tx: Transaction, logout: Logout, visitor: Visitor | None, now: datetime) -> Logout:
    """End the browser's session if it is the one that the service means."""
    matched, meant = False, logout.name_id
    if visitor is not None and meant is not None:
        there = await tx.saml_logouts.participations(visitor.session_id)
        matched = any(
            part.service_id == logout.service_id
            and part.session_index in logout.session_indexes
            and any(meant.means(name) for name in part.names)
            for part in there
        )
    user_id = visitor.user_id if visitor is not None and matched else None
    if visitor is not None and matched:
        others = [found for found in await _leave(tx, visitor, now) if found[0].service_id != logout.service_id]
        await _ask(tx, logout, others)
    await tx.saml_logouts.mark(logout.id, user_id, now, matched=matched)
    return replace(logout, matched=matched, begun_at=now)


async def _leave(tx: Transaction, visitor: Visitor, now: datetime) -> Sequence[tuple[Participation, IdentityProvider | None]]:
    """End the browser's session; the services that it has signed the person in to, and their identity providers where these are open."""
    # Whoever makes the person unknown holds the account: they meet what follows, or this finds no names any more (security.md Y-2).
    await tx.accounts.lock(visitor.user_id)
    there = await tx.saml_logouts.participations(visitor.session_id)
    await tx.saml_logouts.end_participations(visitor.session_id)
    await tx.sessions.end(visitor.session_id, now)
    return [(part, await _open(tx, part.org_id, part.service_id, now)) for part in there]


async def _ask(tx: Transaction, logout: Logout, there: Sequence[tuple[Participation, IdentityProvider | None]]) -> None:
    """Have these services told; those that cannot be make it a logout in part."""
    for part, provider in there:
        is_open = provider is not None and provider.slo_url is not None
        if not (is_open and await tx.saml_logouts.add_request(logout.id, saml_messages.new_id(), part)):
            await tx.saml_logouts.mark_partial(logout.id)


async def _open(tx: Transaction, org_id: UUID, service_id: UUID, now: datetime) -> IdentityProvider | None:
    setup = await tx.saml.setup_of(org_id, service_id)
    return None if setup is None else saml.opened(setup, now)
