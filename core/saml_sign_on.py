"""Signing people in to services with SAML (organizations.md section 4.3; decisions, points 173 to 182; security.md section 14).

A service sends the browser with a request, which is kept. The browser comes back for the answer with the state of that request and the
cookie that it got with it: somebody who is signed in on our pages by then goes on to the service with an assertion.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode
from uuid import UUID

from core import events, saml, saml_messages
from core.access import AddressNotVerified, BrowserSession, Visitor
from core.errors import Forbidden, Invalid, SessionEnded, refuse
from core.saml import IdentityProvider, NameIdFormat, Source
from core.saml_messages import Assertion, AuthnRequest, MessageInvalid, NameId, Response, Status
from core.sessions import new_session
from core.values import digest, new_id, new_secret

if TYPE_CHECKING:
    from core.access import Caller, Member, Person
    from core.accounts import Account
    from core.login import SignedIn
    from core.sessions import Session
    from ports import Ports
    from ports.storage import Soon, Transaction

PROVIDER: Final = "saml"  # what the records call this way to sign in
STATE_TTL: Final = timedelta(minutes=15)
# How somebody signed in (SAML authentication context classes).
BY_PASSWORD: Final = "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport"  # noqa: S105
BY_OTHER_MEANS: Final = "urn:oasis:names:tc:SAML:2.0:ac:classes:unspecified"


class RequestRepeated(MessageInvalid):
    """This SAML request has been used already. Start again at the application."""


class StateUnknown(Invalid):
    """This sign-in is unknown, was finished already, has expired, or was begun in another browser. Start again at the application."""


class NotAUser(Forbidden):
    """You have no access to this application: its organization has to give you some. Ask those who run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOn:
    """What a service asked a browser to sign in for. Times are UTC.

    `session` is the one in which somebody has signed in for it over the interface, and `ticket_hash` the SHA-256 of what they were given to
    show for that.
    """

    state_hash: bytes
    browser_hash: bytes
    org_id: UUID
    service_id: UUID
    request_id: str
    relay_state: str | None
    force_authn: bool
    is_passive: bool
    created_at: datetime
    expires_at: datetime
    user_id: UUID | None = None
    session_id: UUID | None = None
    ticket_hash: bytes | None = None


@dataclass(frozen=True, slots=True)
class Locked:
    """Somebody's membership and account, locked in this order, and what was read after that: whether their session lives, and whether they
    use the service."""

    membership: Soon[bool]
    account: Soon[Account]
    session_lives: Soon[bool]
    use: Soon[bool]


@dataclass(frozen=True, slots=True)
class Begun:
    """Where the browser goes on, and the cookie that it must have there, besides the state."""

    path: str
    state: str = field(repr=False)
    cookie: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the browser posts to the service. `signed_in` is the browser's session, if one has begun with it."""

    acs_url: str
    saml_response: str = field(repr=False)
    relay_state: str | None
    signed_in: tuple[Session, str] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SignInFirst:
    """Somebody has to sign in before there is an answer, and to come back to this path."""

    path: str


# What services ask for


async def begin(
    ports: Ports, base_url: str, caller: Caller, org_slug: str, service_slug: str, document: bytes, relay_state: str | None
) -> Begun:
    """Keep what a service asks for. Raises RequestRepeated, and what saml.find, check_relay_state and check_asked raise; nothing was sent
    anywhere then."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        provider = await saml.find(read, org_slug, service_slug, now)
    saml_messages.check_relay_state(relay_state)
    request = await ports.saml.read(document)
    if not isinstance(request, AuthnRequest):
        raise MessageInvalid
    saml_messages.check_asked(request, provider, saml.address(base_url, provider.service, "sso"), now)
    state, cookie = new_secret(), new_secret()
    sign_on = SignOn(
        state_hash=digest(state),
        browser_hash=digest(cookie),
        org_id=provider.service.org_id,
        service_id=provider.service.id,
        request_id=request.id,
        relay_state=relay_state,
        force_authn=request.force_authn,
        is_passive=request.is_passive,
        created_at=now,
        expires_at=now + STATE_TTL,
    )
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.saml.begin_sign_on(sign_on):
            raise RequestRepeated
    return Begun(_continuation(org_slug, service_slug, state), state, cookie)


def _continuation(org_slug: str, service_slug: str, state: str, ticket: str | None = None) -> str:
    fields = {"saml_state": state} | ({} if ticket is None else {"ticket": ticket})
    return f"{saml.path(org_slug, service_slug, 'authenticate')}?{urlencode(fields)}"


async def go_on(
    ports: Ports,
    org_slug: str,
    service_slug: str,
    state: str,
    cookie: str | None,
    ticket: str | None,
    visitor: Visitor | None,
    caller: Caller,
) -> Answer | SignInFirst:
    """What comes of it in this browser, which has this cookie and in which `visitor` is signed in.

    A session that is older than the request is not enough where the service asks for a fresh sign-in; where it asks that nobody is
    bothered, it is told that somebody would have to be. Exactly one of many at once gets the answer.

    Raises StateUnknown, NotAUser, AddressNotVerified, and what saml.find raises.
    """
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        provider = await saml.find(read, org_slug, service_slug, now)
        sign_on = await read.saml.sign_on(provider.service.id, digest(state), digest(cookie or ""), now) or refuse(StateUnknown)
    if ticket is not None and sign_on.ticket_hash == digest(ticket):
        return await _after_login(ports, sign_on, provider, caller)
    if visitor is not None and not (sign_on.force_authn and visitor.browser.created_at <= sign_on.created_at):
        return await _answer(ports, visitor, provider, sign_on)
    if sign_on.is_passive:
        return await _without_assertion(ports, caller, provider, sign_on, Status.NO_PASSIVE)
    return SignInFirst(_continuation(org_slug, service_slug, state))


async def _after_login(ports: Ports, sign_on: SignOn, provider: IdentityProvider, caller: Caller) -> Answer:
    """Somebody has signed in for it over the interface, with all factors: their browser is signed in as well then."""
    assert sign_on.user_id is not None, "a ticket is somebody's"
    assert sign_on.session_id is not None, "a ticket is that of a session"
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        standing = await read.sessions.standing(sign_on.session_id, sign_on.user_id, None, now) or refuse(StateUnknown)
    browser = BrowserSession(new_id(), "password", None, now)
    person = Visitor(
        user_id=standing.user_id,
        email=standing.email,
        email_verified=standing.email_verified_at is not None,
        session_id=browser.id,
        address=caller.address,
        agent=caller.agent,
        browser=browser,
    )
    return await _answer(ports, person, provider, sign_on, login=sign_on.session_id)


async def _answer(ports: Ports, person: Visitor, provider: IdentityProvider, sign_on: SignOn, *, login: UUID | None = None) -> Answer:
    """The answer with an assertion. With `login` the session of `person` does not exist yet: it begins now, since that one lives."""
    signed_in = None
    try:
        async with ports.storage.transaction(by=person) as tx:
            service = provider.service
            session_id = login or person.session_id
            account, provider = await _admit(ports, tx, person, service.org_id, service.org_slug, service.slug, session_id)
            now = ports.clock.now()
            if not await tx.saml.answer_sign_on(sign_on.service_id, sign_on.state_hash, now):
                raise StateUnknown
            if login is not None:
                session = new_session(ports, account.id, person, None, now, id_=person.session_id, provider=person.browser.provider)
                secret = new_secret()
                await tx.sessions.begin_in_browser(session, digest(secret))
                signed_in = session, secret
            assertion = await _assert(ports, tx, person, account, provider, now, person.browser)
    except (NotAUser, AddressNotVerified):
        ports.metrics.login_failed("saml")
        raise
    response = Response(id=saml_messages.new_id(), in_response_to=sign_on.request_id, issued_at=now, assertion=assertion)
    document = await ports.saml.response(provider, response)
    return Answer(provider.acs_url, saml_messages.packed_for_post(document), sign_on.relay_state, signed_in)


async def _without_assertion(ports: Ports, caller: Caller, provider: IdentityProvider, sign_on: SignOn, status: Status) -> Answer:
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.saml.answer_sign_on(sign_on.service_id, sign_on.state_hash, now):
            raise StateUnknown
    response = Response(id=saml_messages.new_id(), in_response_to=sign_on.request_id, issued_at=now, assertion=None, status=status)
    document = await ports.saml.response(provider, response)
    return Answer(provider.acs_url, saml_messages.packed_for_post(document), sign_on.relay_state)


# Who is signed in, and as whom


async def _admit(
    ports: Ports, tx: Transaction, person: Person, org_id: UUID, org_slug: str, service_slug: str, session_id: UUID
) -> tuple[Account, IdentityProvider]:
    """The person's account, locked, and the identity provider as it is by now, if they may have an assertion: a member of the organization
    or an end user of the service, whose session lives (decisions, point 178; security.md X-8). They are counted among its users then.

    Raises NotAUser, AddressNotVerified, SessionEnded, and what saml.find raises.
    """
    now = ports.clock.now()
    standing = tx.saml.lock_person(org_id, service_slug, person.user_id, session_id, now)
    provider = await saml.find(tx, org_slug, service_slug, now)
    # Whatever held the account before may have ended the session (security.md Z-5).
    account = standing.account.value or refuse(SessionEnded)
    if standing.session_lives.value is None:
        raise SessionEnded
    if standing.membership.value is None and standing.use.value is None:
        raise NotAUser
    if provider.name_id_format is NameIdFormat.EMAIL and account.email_verified_at is None:
        raise AddressNotVerified
    if not await tx.end_users.add(provider.service.id, account.id, now, signed_in=True):
        raise saml.SamlOff  # the service is being deleted
    return account, provider


async def _assert(
    ports: Ports,
    tx: Transaction,
    person: Person,
    account: Account,
    provider: IdentityProvider,
    now: datetime,
    browser: BrowserSession | None,
) -> Assertion:
    """What is said of the person, who is admitted; and the records of that. With a browser it can be signed out again."""
    service = provider.service
    name_id = NameId(await _name(tx, provider, account, now), provider.name_id_format)
    session_index = saml_messages.new_id()
    if browser is not None:
        session_index = await tx.saml.take_part(browser.id, service.org_id, service.id, session_index, name_id, now)
    await tx.logins.succeeded(new_session(ports, account.id, person, service, now, id_=person.session_id), PROVIDER)
    tx.record(events.signed_in(account.id, PROVIDER, service))
    known = {Source.ID: str(account.id)} | ({} if account.email_verified_at is None else {Source.EMAIL: str(account.email)})
    return Assertion(
        id=saml_messages.new_id(),
        name_id=name_id,
        session_index=session_index,
        authenticated_at=now if browser is None else browser.created_at,
        context_class=BY_PASSWORD if browser is not None and browser.provider == "password" else BY_OTHER_MEANS,
        attributes={name: known[Source(source)] for source, name in provider.attribute_mapping.items() if source in known},
    )


async def _name(tx: Transaction, provider: IdentityProvider, account: Account, now: datetime) -> str:
    """By what the service is to know this account (decisions, point 181)."""
    match provider.name_id_format:
        case NameIdFormat.EMAIL:
            return account.email
        case NameIdFormat.UNSPECIFIED:
            return str(account.id)
        case NameIdFormat.TRANSIENT:
            return saml_messages.new_id()
        case NameIdFormat.PERSISTENT:
            return await tx.saml.name_of(provider.service.org_id, provider.service.id, account.id, saml_messages.new_id(), now)


# What nobody has asked for


async def unasked(ports: Ports, caller: Member, service_slug: str, relay_state: str | None) -> Answer:
    """An answer that the service has not asked for, since the caller begins here (decisions, point 177). No browser is known to hold it, so
    single logout does not reach it. Raises NotAUser, AddressNotVerified, SessionEnded, and what saml.find and check_relay_state raise."""
    saml_messages.check_relay_state(relay_state)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account, provider = await _admit(ports, tx, caller, caller.acts_in.id, caller.acts_in.slug, service_slug, caller.session_id)
        assertion = await _assert(ports, tx, caller, account, provider, now, None)
    response = Response(id=saml_messages.new_id(), in_response_to=None, issued_at=now, assertion=assertion)
    document = await ports.saml.response(provider, response)
    return Answer(provider.acs_url, saml_messages.packed_for_post(document), relay_state)


# Signing in for it over the interface


async def check_state(ports: Ports, state: str) -> None:
    """Whether a sign-on with this state waits (decisions, point 175). Raises StateUnknown."""
    async with ports.storage.reading() as read:
        await read.saml.waits(digest(state), ports.clock.now()) or refuse(StateUnknown)


async def complete(ports: Ports, caller: Caller, state: str, signed_in: SignedIn) -> str:
    """The path on which the browser of whoever has signed in for this sign-on, over the interface and with all factors, gets the answer.

    What the browser got with the state, its cookie, is not known here, so this gives a ticket besides: with both in one browser it is the
    one in which the person signed in. Else anybody could have somebody else sign in for a state of their own. Raises StateUnknown.
    """
    ticket, session = new_secret(), signed_in.session
    async with ports.storage.transaction(by=caller) as tx:
        service = await tx.saml.complete_sign_on(digest(state), session.user_id, session.id, digest(ticket), ports.clock.now())
    return _continuation(*(service or refuse(StateUnknown)), state, ticket)
