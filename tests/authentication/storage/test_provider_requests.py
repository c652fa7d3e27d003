"""Storage for provider requests, and for their tickets (security O-1, O-6)."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.authentication.flow.model import ChallengeOrigin, EmailChallenge, Flow, FlowTarget, ProviderRequest, new_flow
from core.kernel.causes import SYSTEM
from core.kernel.connections import PLATFORM_CONNECTIONS
from core.kernel.proofs import first_proof
from core.kernel.values import digest
from tests.support.builders import run_concurrently, run_sql
from tests.support.rows import EVE, HOUR, NOW, SECOND, account, add, begin, within

FIRST, OTHER = [id_ for id_, _ in PLATFORM_CONNECTIONS.values()][:2]
TTL = timedelta(minutes=15)
BROWSER, OTHER_BROWSER = digest("a browser"), digest("another browser")
STATE, SECRET = digest("state"), digest("secret")


def page(browser: bytes = BROWSER, **values: Any) -> Flow:
    return new_flow(NOW, FlowTarget.PAGE, "/app/account", browser, **values)


def provider_request_of(flow: Flow, **changes: Any) -> ProviderRequest:
    return replace(ProviderRequest(flow=flow, connection_id=FIRST, begun_at=NOW, expires_at=NOW + TTL), **changes)


def ticket_of(user_id: UUID, session_id: UUID, secret: bytes = SECRET, **changes: Any) -> ProviderRequest:
    return provider_request_of(new_flow(NOW, FlowTarget.LINK, "", secret_hash=secret, session_id=session_id), user_id=user_id, **changes)


def opened(ticket: ProviderRequest, browser: bytes = BROWSER) -> ProviderRequest:
    """Return the provider request in the browser that opens this ticket."""
    flow = replace(stored(ticket).flow, browser_hash=browser, secret_hash=None, first_session_id=uuid4(), expires_at=NOW + TTL)
    return replace(ticket, flow=flow)


def stored(provider_request: ProviderRequest) -> ProviderRequest:
    return replace(provider_request, flow=replace(provider_request.flow, is_stored=True))


async def start(storage: Postgres, provider_request: ProviderRequest, state: bytes | None = STATE) -> bool:
    return await within(storage, lambda tx: tx.flows.start(provider_request, state))


async def take(
    storage: Postgres, state: bytes = STATE, browser: bytes = BROWSER, connection_id: UUID = FIRST, after: timedelta = timedelta()
) -> ProviderRequest | None:
    return await within(storage, lambda tx: tx.flows.take_provider_request(state, browser, connection_id, NOW + after))


async def by_ticket(
    storage: Postgres, secret: bytes = SECRET, connection_id: UUID = FIRST, after: timedelta = timedelta()
) -> ProviderRequest | None:
    async with storage.reading() as read:
        return await read.flows.ticket(secret, connection_id, NOW + after)


@pytest.fixture
async def ticket(storage: Postgres) -> ProviderRequest:
    """A user's ticket, which no browser has opened."""
    user_id = (await add(storage, account())).id
    added = ticket_of(user_id, (await begin(storage, user_id, "live")).id)
    assert await start(storage, added, None)
    return added


# Provider requests


@pytest.mark.parametrize("scopes", [None, (), ("repo", "user")])
async def test_all_values_of_a_provider_request_are_stored(storage: Postgres, scopes: tuple[str, ...] | None) -> None:
    person = await add(storage, account())
    session_id = (await begin(storage, person.id, "live")).id
    flow = page(org_id=uuid4(), service_id=uuid4(), wants_fresh=True, keeps_trust=False, first_session_id=uuid4())
    provider_request = provider_request_of(flow, scopes=scopes)
    of_session = provider_request_of(
        new_flow(NOW, FlowTarget.REAUTHENTICATION, "/app/account", BROWSER, session_id=session_id), connection_id=OTHER, user_id=person.id
    )
    assert [await start(storage, provider_request), await start(storage, of_session, digest("another"))] == [True, True]
    assert await take(storage) == stored(provider_request)
    assert await take(storage, digest("another"), connection_id=OTHER) == stored(of_session)


async def test_a_provider_request_ends_only_in_its_browser_at_its_provider_and_in_time(storage: Postgres, pool: Pool) -> None:
    provider_request = provider_request_of(page())
    assert await start(storage, provider_request)
    before = await run_sql(pool, "select t::text from sign_in_flows t")
    for attempt in (
        take(storage, digest("guessed")),
        take(storage, browser=OTHER_BROWSER),
        take(storage, connection_id=OTHER),
        take(storage, after=TTL),
    ):
        assert await attempt is None
    assert await run_sql(pool, "select t::text from sign_in_flows t") == before, "other browsers do not use it up"
    assert await take(storage, after=TTL - SECOND) == stored(provider_request)
    assert await take(storage) is None
    assert await run_sql(pool, "select challenge, challenge_hash, challenge_user_id, challenge_begun_at, challenge_expires_at"
                               " from sign_in_flows") == [(None,) * 5]  # fmt: skip


@pytest.mark.slow
async def test_a_provider_request_at_a_connection_ends_once_in_its_browser_at_this_connection(storage: Postgres) -> None:
    """The state from a request at a platform provider ends no such request, and the reverse holds too."""
    user_id = (await add(storage, account())).id
    times: Any = {"begun_at": NOW, "expires_at": NOW + TTL}
    provider_request = ProviderRequest(flow=page(wants_fresh=True), connection_id=uuid4(), **times)
    tested = ProviderRequest(
        flow=new_flow(NOW, FlowTarget.TEST, "/app", BROWSER), connection_id=provider_request.connection_id, user_id=user_id, **times
    )
    at_provider = provider_request_of(page())

    async def take_one(
        state: bytes = STATE, browser: bytes = BROWSER, id_: UUID = provider_request.connection_id, at: datetime = NOW
    ) -> object:
        async with storage.transaction(by=SYSTEM) as tx:
            return await tx.flows.take_provider_request(state, browser, id_, at)

    async def start_one(each: ProviderRequest, state: bytes) -> bool:
        return await within(storage, lambda tx: tx.flows.start(each, state))

    assert await start_one(provider_request, STATE)
    assert await start_one(tested, digest("tested"))
    assert await start_one(at_provider, digest("provider"))
    for attempt in (
        take_one(digest("guessed")),
        take_one(digest("provider")),
        take_one(browser=OTHER_BROWSER),
        take_one(id_=uuid4()),
        take_one(at=NOW + TTL),
        take(storage),
    ):
        assert await attempt is None
    id_, late = provider_request.connection_id, NOW + TTL
    named = ((STATE, BROWSER, id_, NOW), (STATE, OTHER_BROWSER, id_, NOW), (STATE, BROWSER, uuid4(), NOW), (STATE, BROWSER, id_, late))
    async with storage.reading() as read:
        seen = [await read.flows.provider_request(*each) for each in named]
    assert seen == [replace(provider_request, flow=replace(provider_request.flow, is_stored=True)), None, None, None], "it goes on"
    taken = await run_concurrently(20, lambda _: take_one())
    assert [each for each in taken if each] == [replace(provider_request, flow=replace(provider_request.flow, is_stored=True))]
    assert await take_one(digest("tested")) == replace(tested, flow=replace(tested.flow, is_stored=True))


@pytest.mark.slow
async def test_of_twenty_parallel_returns_one_gets_the_provider_request(storage: Postgres) -> None:
    assert await start(storage, provider_request_of(page()))
    provider_requests = await run_concurrently(20, lambda _: take(storage))
    assert Counter(provider_request is not None for provider_request in provider_requests) == {True: 1, False: 19}


async def test_the_newest_provider_request_of_a_flow_wins(storage: Postgres) -> None:
    """With two tabs in a flow, the older tab finds no provider request when it comes back."""
    older = provider_request_of(page())
    newer = replace(stored(older), connection_id=OTHER, begun_at=NOW + SECOND, expires_at=NOW + SECOND + TTL)
    assert [await start(storage, older), await start(storage, newer, digest("newer"))] == [True, True]
    assert await take(storage) is None
    assert await take(storage, digest("newer"), connection_id=OTHER) == newer


async def test_a_provider_request_starts_only_in_an_open_flow_of_its_browser(storage: Postgres, pool: Pool) -> None:
    first = provider_request_of(page())
    assert await start(storage, first)
    again = stored(first)
    before = await run_sql(pool, "select t::text from sign_in_flows t")
    for flow in (replace(again.flow, browser_hash=OTHER_BROWSER), replace(again.flow, id=uuid4())):
        assert not await start(storage, replace(again, flow=flow), digest("stolen"))
    assert await run_sql(pool, "select t::text from sign_in_flows t") == before
    assert await within(storage, lambda tx: tx.flows.close(again.flow, NOW))
    assert not await start(storage, again, digest("late"))
    assert await take(storage) is None, "the flow has ended since"


async def test_a_provider_request_replaces_the_email_of_its_flow_and_its_proofs(storage: Postgres) -> None:
    person = await add(storage, account())
    proofs = (first_proof("password", NOW),)
    flow = page(user_id=person.id, proofs=proofs, proofs_expire_at=NOW + TTL)
    email = EmailChallenge(id=uuid4(), flow=flow, email=EVE, origin=ChallengeOrigin(None, None, None), begun_at=NOW, expires_at=NOW + TTL)
    assert await within(storage, lambda tx: tx.flows.start(email))
    assert await start(storage, stored(provider_request_of(flow)))
    async with storage.reading() as read:
        assert await read.flows.email_of(flow.id, BROWSER, NOW) is None
        kept = await read.flows.load(flow.id, BROWSER)
    assert kept is not None
    assert (kept.user_id, kept.proofs) == (None, ())
    taken = await take(storage)
    assert taken is not None
    assert taken.flow == kept


# Tickets


async def test_a_ticket_needs_a_live_session_of_its_user(storage: Postgres, pool: Pool) -> None:
    user, eve = [(await add(storage, account(email))).id for email in ("ada@example.com", EVE)]
    live_session = (await begin(storage, user, "live", expires_at=NOW + SECOND, ends_at=NOW + HOUR)).id
    ended_session = (await begin(storage, user, "ended")).id
    await within(storage, lambda tx: tx.sessions.end(ended_session, NOW))
    expired_session = (await begin(storage, user, "lapsed", expires_at=NOW)).id
    for session, target in ((ended_session, user), (expired_session, user), (uuid4(), user), (live_session, eve)):
        assert await start(storage, ticket_of(target, session), None) is False
    assert await run_sql(pool, "select * from sign_in_flows") == []
    link = ticket_of(user, live_session)
    flow = new_flow(
        NOW,
        FlowTarget.REAUTHENTICATION,
        "/app/account",
        secret_hash=digest("another"),
        session_id=live_session,
        first_session_id=live_session,
    )
    again = provider_request_of(flow, connection_id=OTHER, user_id=user, expires_at=NOW + HOUR)
    assert [await start(storage, ticket, None) for ticket in (link, again)] == [True, True]
    assert [await by_ticket(storage), await by_ticket(storage, digest("another"), OTHER)] == [stored(link), stored(again)]


@pytest.mark.parametrize(("expires_in", "is_added"), [(HOUR, True), (timedelta(0), False)])
async def test_a_link_needs_a_session_that_has_not_expired(storage: Postgres, expires_in: timedelta, is_added: bool) -> None:
    user = await add(storage, account())
    session = await begin(storage, user.id, "token", expires_at=NOW + expires_in)
    flow = new_flow(NOW, FlowTarget.LINK, "", BROWSER, session_id=session.id)
    assert await start(storage, provider_request_of(flow, user_id=user.id)) is is_added


async def test_a_ticket_is_found_by_its_secret_for_its_provider_and_in_time(storage: Postgres, ticket: ProviderRequest) -> None:
    assert await by_ticket(storage, digest("guessed")) is None
    assert await by_ticket(storage, connection_id=OTHER) is None
    assert await by_ticket(storage, after=TTL) is None
    assert await by_ticket(storage, after=TTL - SECOND) == await by_ticket(storage) == stored(ticket)


async def test_only_tickets_are_found_by_their_secret(storage: Postgres) -> None:
    assert await start(storage, provider_request_of(page(secret_hash=SECRET)))
    assert await by_ticket(storage) is None, "it is the state of a SAML sign-on, or the name of a pushed request"


async def test_tickets_stay_when_the_emails_to_their_user_are_forgotten(storage: Postgres, ticket: ProviderRequest) -> None:
    assert ticket.user_id is not None
    await within(storage, lambda tx: tx.flows.forget_user(ticket.user_id))  # type: ignore[arg-type]
    assert await by_ticket(storage) == stored(ticket)
    provider_request = opened(ticket)
    assert await start(storage, provider_request)
    await within(storage, lambda tx: tx.flows.forget_user(ticket.user_id))  # type: ignore[arg-type]
    assert await take(storage) == provider_request


async def test_without_an_opened_ticket_no_browser_returns(storage: Postgres, ticket: ProviderRequest) -> None:
    """The ticket's secret is no state, and its flow belongs to no browser."""
    assert await take(storage, SECRET) is None
    async with storage.reading() as read:
        assert await read.flows.load(ticket.flow.id, BROWSER) is None
        assert await read.flows.by_secret(SECRET, BROWSER, NOW) is None
    assert await by_ticket(storage) == stored(ticket)


@pytest.mark.slow
@pytest.mark.parametrize("browsers", [(BROWSER,), (BROWSER, OTHER_BROWSER)], ids=["one browser", "two browsers"])
async def test_of_twenty_parallel_starts_one_uses_the_ticket(
    storage: Postgres, ticket: ProviderRequest, browsers: tuple[bytes, ...]
) -> None:
    provider_requests = [opened(ticket, browsers[number % len(browsers)]) for number in range(20)]
    started = await run_concurrently(20, lambda number: start(storage, provider_requests[number], digest(str(number))))
    assert Counter(started) == {True: 1, False: 19}
    assert await by_ticket(storage) is None
    winner = started.index(True)
    for number in range(20):
        for browser in (BROWSER, OTHER_BROWSER):
            taken = await take(storage, digest(str(number)), browser)
            is_of_winner = number == winner and browser == provider_requests[winner].flow.browser_hash
            assert taken == (provider_requests[winner] if is_of_winner else None)


async def test_an_opened_ticket_starts_no_second_provider_request(storage: Postgres, ticket: ProviderRequest) -> None:
    provider_request = opened(ticket)
    assert await start(storage, provider_request)
    for browser in (BROWSER, OTHER_BROWSER):
        assert not await start(storage, opened(ticket, browser), digest("again"))
    assert await take(storage) == provider_request
    assert not await start(storage, provider_request, digest("after the return"))


async def test_the_session_must_still_live_when_a_browser_opens_the_ticket(storage: Postgres, ticket: ProviderRequest) -> None:
    session_id = ticket.flow.session_id
    assert session_id is not None
    await within(storage, lambda tx: tx.sessions.end(session_id, NOW))
    assert not await start(storage, opened(ticket))
    assert await take(storage) is None


@pytest.mark.parametrize("table", ["sessions", "users"])
@pytest.mark.parametrize("is_opened", [False, True])
async def test_tickets_are_deleted_with_their_session(
    storage: Postgres, pool: Pool, ticket: ProviderRequest, table: str, is_opened: bool
) -> None:
    if is_opened:
        assert await start(storage, opened(ticket))
    await run_sql(pool, f"delete from {table}")  # noqa: S608
    assert await run_sql(pool, "select count(*) from sign_in_flows") == [(0,)]
