"""Signing people in to services with SAML (organizations.md section 4.3; decisions, points 173 to 182; security.md section 14).

A service sends the browser with a request, which is kept. The browser comes back for the answer with the state of that request and the
cookie that it got with it: somebody who is signed in on our pages by then goes on to the service with an assertion.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from core.authentication import events, login
from core.authentication.login_failures import LoginFailure
from core.authentication.service_access import may_use_service
from core.authentication.sessions import new_session
from core.authentication.sessions_rules import SessionStart
from core.federation.saml import bindings as saml_bindings
from core.federation.saml import configuration as saml
from core.federation.saml import configuration_rules as saml_rules
from core.federation.saml import messages as saml_messages
from core.federation.saml.configuration_rules import AttributeSource, NameIdFormat, SamlIdentityProvider
from core.federation.saml.messages import (
    PASSWORD_CONTEXT,
    UNSPECIFIED_CONTEXT,
    AuthnRequest,
    NameId,
    SamlAssertion,
    SamlMessageInvalid,
    SamlResponse,
    SamlStatus,
)
from core.federation.saml.sign_on_rules import (
    LOGIN_PROVIDER,
    STATE_TTL,
    AuthnRequestReplayed,
    LoginRequired,
    NoAccessToService,
    SamlSignOn,
    SignOnNotFound,
    SignOnResult,
    SignOnStarted,
    SubjectMismatch,
)
from core.kernel.errors import OrganizationNotActive, SessionEnded, refuse
from core.kernel.principals import AddressNotVerified, BrowserSession, OrganizationStatus, Visitor, require_mfa
from core.kernel.providers import Provider
from core.kernel.values import digest, new_id, new_secret

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.accounts.accounts_rules import Account
    from core.applications.services_rules import Service
    from core.authentication.login_rules import SignedIn
    from core.authentication.sessions_rules import Session
    from core.kernel.principals import Caller, Member, Person
    from ports import Ports
    from ports.storage import Transaction

# What services ask for


async def begin(
    ports: Ports, base_url: str, caller: Caller, org_slug: str, service_slug: str, document: bytes, relay_state: str | None
) -> SignOnStarted:
    """Keep what a service asks for. What it cannot have, it is told when the browser comes for the answer. Raises RequestRepeated, and what
    saml.find, check_relay_state and check_asked raise; nothing was sent anywhere then."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        provider = await saml.find_provider(read, org_slug, service_slug, now)
    saml_bindings.check_relay_state(relay_state)
    request = await ports.saml.read(document)
    if not isinstance(request, AuthnRequest):
        raise SamlMessageInvalid
    saml_messages.check_authn_request(request, provider, saml_rules.endpoint_url(base_url, provider.service, "sso"), now)
    state, cookie, issuer = new_secret(), new_secret(), saml_rules.endpoint_url(base_url, provider.service)
    sign_on = SamlSignOn(
        state_hash=digest(state),
        browser_hash=digest(cookie),
        org_id=provider.service.org_id,
        service_id=provider.service.id,
        request_id=request.id,
        relay_state=relay_state,
        force_authn=request.force_authn,
        is_passive=request.is_passive,
        status=saml_messages.refusal_status(request, provider, issuer),
        subject=None if request.subject is None else saml_messages.resolve_name_id(request.subject, provider, issuer),
        context_class=None if request.context is None else saml_messages.choose_context_class(request.context),
        created_at=now,
        expires_at=now + STATE_TTL,
    )
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.saml_sign_ons.begin(sign_on):
            await saml.find_provider(tx, org_slug, service_slug, now)  # it may have been deleted meanwhile
            raise AuthnRequestReplayed
    return SignOnStarted(_continuation(org_slug, service_slug, state), state, cookie)


def _continuation(org_slug: str, service_slug: str, state: str, ticket: str | None = None) -> str:
    fields = {"saml_state": state} | ({} if ticket is None else {"ticket": ticket})
    return f"{saml_rules.endpoint_path(org_slug, service_slug, 'authenticate')}?{urlencode(fields)}"


async def resume(
    ports: Ports,
    org_slug: str,
    service_slug: str,
    state: str,
    cookie: str | None,
    ticket: str | None,
    visitor: Visitor | None,
    caller: Caller,
) -> SignOnResult | LoginRequired:
    """What comes of it in this browser, which has this cookie and in which `visitor` is signed in.

    A session that is older than the request is not enough where the service asks for a fresh sign-in, nor one that began with an identity
    provider, unless that was asked for the person anew; and nowhere is one in which the second factor is missing. Where it asks that nobody
    is bothered, it is told that somebody would have to be: by us, also if that is only to read that they have no access, so that a service
    cannot find out either who has a session here. Exactly one of many at once gets the answer.

    Raises StateUnknown, MfaMissing, NotAUser, AddressNotVerified, and what saml.find raises.
    """
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        provider = await saml.find_provider(read, org_slug, service_slug, now)
        service = provider.service
        sign_on = await read.saml_sign_ons.find(service.org_id, service.id, digest(state), digest(cookie or ""), now) or refuse(
            SignOnNotFound
        )
    if sign_on.status is not None:
        return await _without_assertion(ports, caller, provider, sign_on, sign_on.status)
    try:
        if ticket is not None and compare_digest(sign_on.ticket_hash or b"", digest(ticket)):
            return await _after_login(ports, sign_on, provider, caller)
        if visitor is not None and not visitor.mfa_missing and (not sign_on.force_authn or _is_fresh(visitor, sign_on)):
            return await _answer(ports, visitor, provider, sign_on)
    except (SubjectMismatch, NoAccessToService, AddressNotVerified):
        if sign_on.subject is not None:  # whom nobody is who has no name there
            return await _without_assertion(ports, caller, provider, sign_on, SamlStatus.UNKNOWN_PRINCIPAL)
        if not sign_on.is_passive:
            raise
    if sign_on.is_passive:
        return await _without_assertion(ports, caller, provider, sign_on, SamlStatus.NO_PASSIVE)
    return LoginRequired(_continuation(org_slug, service_slug, state))


def _is_fresh(visitor: Visitor, sign_on: SamlSignOn) -> bool:
    """Whether the person has shown who they are since the service asked: a provider in which they are signed in lets anybody in who is at
    the browser."""
    if visitor.browser.created_at <= sign_on.created_at:
        return False
    return visitor.browser.provider not in frozenset(Provider) or sign_on.vouched_for == visitor.user_id


async def _after_login(ports: Ports, sign_on: SamlSignOn, provider: SamlIdentityProvider, caller: Caller) -> SignOnResult:
    """Somebody has signed in for it over the interface, with all factors: their browser is signed in as well then, since that moment: what
    asks for a fresh sign-in after it is not content with that one."""
    assert sign_on.user_id is not None, "a ticket is somebody's"
    assert sign_on.session_id is not None, "a ticket is that of a session"
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        standing = await read.sessions.load_session_context(sign_on.session_id, sign_on.user_id, None, now) or refuse(SignOnNotFound)
        began, device_id = await read.sessions.load_start(sign_on.session_id, sign_on.user_id) or refuse(SignOnNotFound)
    browser = BrowserSession(new_id(), "password", device_id, began)
    person = Visitor(
        user_id=standing.user_id,
        email=standing.email,
        email_verified=standing.email_verified_at is not None,
        session_id=browser.id,
        mfa_missing=standing.mfa_missing,
        address=caller.address,
        agent=caller.agent,
        browser=browser,
    )
    return await _answer(ports, person, provider, sign_on, login=sign_on.session_id)


async def _answer(
    ports: Ports, person: Visitor, provider: SamlIdentityProvider, sign_on: SamlSignOn, *, login: UUID | None = None
) -> SignOnResult:
    """The answer with an assertion. With `login` the session of `person` does not exist yet: it begins now, since that one lives.

    Raises what `_signed` raises: that the person was let in stays recorded then, and is once more when they come again.
    """
    signed_in = None
    try:
        async with ports.storage.transaction(by=person) as tx:
            service = provider.service
            session_id = login or person.session_id
            account, provider = await authorize_assertion(ports, tx, person, service.org_id, service.org_slug, service.slug, session_id)
            now = ports.clock.now()
            if not await tx.saml_sign_ons.answer(sign_on.org_id, sign_on.service_id, sign_on.state_hash, now):
                raise SignOnNotFound
            name_id = await _named(tx, sign_on.subject, provider, account, person.browser, now)
            if login is not None:
                start = SessionStart(
                    id=person.session_id,
                    user_id=account.id,
                    caller=person,
                    device_id=person.browser.device_id,
                    provider=person.browser.provider,
                )
                session, secret = new_session(ports, start, person.browser.created_at), new_secret()
                await tx.sessions.begin_in_browser(session, digest(secret))
                signed_in = session, secret
            assertion = await _assert(ports, tx, person, account, provider, name_id, now, person.browser, sign_on.context_class)
    except (NoAccessToService, AddressNotVerified, SubjectMismatch):
        ports.metrics.login_failed(LoginFailure.SAML)
        raise
    response = SamlResponse(id=saml_messages.new_message_id(), in_response_to=sign_on.request_id, issued_at=now, assertion=assertion)
    return await _signed(ports, person, provider, sign_on, response, signed_in)


async def _without_assertion(
    ports: Ports, caller: Caller, provider: SamlIdentityProvider, sign_on: SamlSignOn, status: SamlStatus
) -> SignOnResult:
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        if not await tx.saml_sign_ons.answer(sign_on.org_id, sign_on.service_id, sign_on.state_hash, now):
            raise SignOnNotFound
    response = SamlResponse(
        id=saml_messages.new_message_id(), in_response_to=sign_on.request_id, issued_at=now, assertion=None, status=status
    )
    return await _signed(ports, caller, provider, sign_on, response)


async def _signed(
    ports: Ports,
    caller: Caller,
    provider: SamlIdentityProvider,
    sign_on: SamlSignOn,
    response: SamlResponse,
    signed_in: tuple[Session, str] | None = None,
) -> SignOnResult:
    """The answer to a sign-on, which is over by now. Raises Limited where too many documents wait: the sign-on waits again then, so that
    loading the page once more is enough, and a session that has begun with it ends, since no browser knows of it. So it is where the key
    cannot be opened."""
    try:
        document = await ports.saml.response(provider, response)
    except Exception:
        async with ports.storage.transaction(by=caller, in_session=False) as tx:
            await tx.saml_sign_ons.reopen(sign_on.org_id, sign_on.service_id, sign_on.state_hash)
            if signed_in is not None:
                await tx.sessions.end(signed_in[0].id, ports.clock.now())
        raise
    packed = saml_bindings.encode_post(document)
    return SignOnResult(provider.acs_url, packed, sign_on.relay_state, response.assertion is None, signed_in)


# Who is signed in, and as whom


async def authorize_assertion(
    ports: Ports, tx: Transaction, person: Person, org_id: UUID, org_slug: str, service_slug: str, session_id: UUID
) -> tuple[Account, SamlIdentityProvider]:
    """The person's account, locked, and the identity provider as it is by now, if they may have an assertion: a member of the organization
    or an end user of the service, whose session lives (decisions, point 178; security.md X-8). They are counted among its users then; a
    member who was none is one until they leave the organization.

    Raises MfaMissing, NotAUser, AddressNotVerified, SessionEnded, and what saml.find raises.
    """
    require_mfa(person)
    now = ports.clock.now()
    standing = tx.saml_sign_ons.lock_person(org_id, service_slug, person.user_id, session_id, now)
    enrolled = tx.end_users.enroll_member_deferred(org_id, service_slug, person.user_id, now)
    provider = await saml.find_provider(tx, org_slug, service_slug, now)
    # Whatever held the account before may have ended the session (security.md Z-5).
    account = standing.account.value or refuse(SessionEnded)
    if standing.session_lives.value is None:
        raise SessionEnded
    if standing.membership.value is None and (standing.use.value is None or not await may_use_service(tx, org_id, account.id)):
        raise NoAccessToService
    if provider.name_id_format is NameIdFormat.EMAIL and account.email_verified_at is None:
        raise AddressNotVerified
    if enrolled.value is None:
        raise saml_rules.SamlDisabled  # the service is being deleted
    return account, provider


async def _assert(
    ports: Ports,
    tx: Transaction,
    person: Person,
    account: Account,
    provider: SamlIdentityProvider,
    name_id: NameId,
    now: datetime,
    browser: BrowserSession | None,
    context_class: str | None = None,
) -> SamlAssertion:
    """What is said of the person, who is admitted; and the records of that. With a browser it can be signed out again.

    What is said of how they signed in is true, also where the service wants to hear of a password and they came by other means: most
    services want that because a library of theirs does so by itself, and those that mean it look at what they get.
    """
    service = provider.service
    session_index = saml_messages.new_message_id()
    if browser is not None:
        session_index = await tx.saml_sign_ons.take_part(browser.id, service.org_id, service.id, session_index, name_id, now)
    start = SessionStart(id=person.session_id, user_id=account.id, caller=person, service=service)
    await tx.logins.succeeded(new_session(ports, start, now), LOGIN_PROVIDER)
    tx.record(events.signed_in(account.id, LOGIN_PROVIDER, service))
    known = {AttributeSource.ID: str(account.id)} | (
        {} if account.email_verified_at is None else {AttributeSource.EMAIL: str(account.email)}
    )
    return SamlAssertion(
        id=saml_messages.new_message_id(),
        name_id=name_id,
        session_index=session_index,
        authenticated_at=now if browser is None else browser.created_at,
        context_class=context_class or PASSWORD_CONTEXT if browser is not None and browser.provider == "password" else UNSPECIFIED_CONTEXT,
        attributes={name: known[AttributeSource(source)] for source, name in provider.attribute_mapping.items() if source in known},
    )


async def _named(
    tx: Transaction, subject: NameId | None, provider: SamlIdentityProvider, account: Account, browser: BrowserSession, now: datetime
) -> NameId:
    """How the service is to know this account. Raises SomebodyElse where it has asked for one that it knows otherwise (SAML core, section
    3.4.1.4; SAML profiles, section 4.1.4.1)."""
    name_id = NameId(await _name(tx, provider, account, now), provider.name_id_format)
    known = [name_id]
    if provider.name_id_format is NameIdFormat.TRANSIENT:  # a new one each time, so those of before are meant
        known = [
            name
            for part in await tx.saml_logouts.participations(browser.id)
            if part.service_id == provider.service.id
            for name in part.names
        ]
    if subject is not None and not any(subject.matches(name) for name in known):
        raise SubjectMismatch
    return name_id


async def _name(tx: Transaction, provider: SamlIdentityProvider, account: Account, now: datetime) -> str:
    """By what the service is to know this account (decisions, point 181)."""
    match provider.name_id_format:
        case NameIdFormat.EMAIL:
            return account.email
        case NameIdFormat.UNSPECIFIED:
            return str(account.id)
        case NameIdFormat.TRANSIENT:
            return saml_messages.new_message_id()
        case NameIdFormat.PERSISTENT:
            return await tx.saml_sign_ons.name_of(
                provider.service.org_id, provider.service.id, account.id, saml_messages.new_message_id(), now
            )


# What nobody has asked for


async def idp_initiated(ports: Ports, caller: Member, service_slug: str, relay_state: str | None) -> SignOnResult:
    """An answer that the service has not asked for, since the caller begins here (decisions, point 177). No browser is known to hold it, so
    single logout does not reach it. Raises what `_admit` and check_relay_state raise."""
    saml_bindings.check_relay_state(relay_state)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account, provider = await authorize_assertion(
            ports, tx, caller, caller.acts_in.id, caller.acts_in.slug, service_slug, caller.session_id
        )
        name_id = NameId(await _name(tx, provider, account, now), provider.name_id_format)
        assertion = await _assert(ports, tx, caller, account, provider, name_id, now, None)
    response = SamlResponse(id=saml_messages.new_message_id(), in_response_to=None, issued_at=now, assertion=assertion)
    document = await ports.saml.response(provider, response)
    return SignOnResult(provider.acs_url, saml_bindings.encode_post(document), relay_state)


# Signing in for it over the interface


async def check_pending(ports: Ports, state: str) -> None:
    """Whether a sign-on with this state waits, and of an active organization (decisions, point 175; security.md T-5). Raises StateUnknown,
    OrganizationNotActive."""
    async with ports.storage.reading() as read:
        _, service = await read.saml_sign_ons.waiting(digest(state), ports.clock.now()) or refuse(SignOnNotFound)
    if service.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive


async def service_at(ports: Ports, path: str) -> Service | None:
    """The service that somebody signs in to who goes on at this path of ours, if a sign-on waits there."""
    state = _state_in(path)
    if state is None:
        return None
    async with ports.storage.reading() as read:
        found = await read.saml_sign_ons.waiting(digest(state), ports.clock.now())
    if found is None or path.partition("?")[0] != saml_rules.endpoint_path(found[1].org_slug, found[1].slug, "authenticate"):
        return None
    return found[0]


def _state_in(path: str) -> str | None:
    return dict(parse_qsl(path.partition("?")[2])).get("saml_state")


async def fresh_login_since(ports: Ports, path: str) -> datetime | None:
    """Since when somebody has to have shown who they are who goes on at this path of ours; None where no sign-on waits there that asks for
    a fresh sign-in."""
    state = _state_in(path)
    if state is None:
        return None
    async with ports.storage.reading() as read:
        return await read.saml_sign_ons.fresh_since(digest(state), ports.clock.now())


async def record_fresh_login(tx: Transaction, path: str, user_id: UUID) -> None:
    """An identity provider that was asked for this person anew has vouched for them, who go on at this path; the account is locked."""
    state = _state_in(path)
    if state is not None:
        await tx.saml_sign_ons.vouch(digest(state), user_id)


async def complete_login(ports: Ports, caller: Caller, state: str, signed_in: SignedIn) -> str:
    """The path on which the browser of whoever has signed in for this sign-on, over the interface and with all factors, gets the answer.

    What the browser got with the state, its cookie, is not known here, so this gives a ticket besides: with both in one browser it is the
    one in which the person signed in. Else anybody could have somebody else sign in for a state of their own. Raises StateUnknown.
    """
    ticket, session = new_secret(), signed_in.session
    async with ports.storage.transaction(by=caller) as tx:
        completed = await tx.saml_sign_ons.complete(digest(state), session.user_id, session.id, digest(ticket), ports.clock.now())
    org_id, org_slug, service_slug = completed or refuse(SignOnNotFound)
    await login.confirm_membership(ports, signed_in, org_id)
    return _continuation(org_slug, service_slug, state, ticket)
