"""Storage for pending sign-ins (security J-8)."""

import json
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.authentication.flows import identity_context
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.attempt_limits import AttemptLimit
from core.accounts.model.mfa import FirstFactor, attempt_subject
from core.authentication.flow.model import (
    CLOSED_TTL,
    FLOW_TTL,
    MAX_OPEN,
    ChallengeOrigin,
    EmailChallenge,
    Flow,
    FlowTarget,
    ProviderRequest,
    new_flow,
)
from core.authentication.model.identities import PendingIdentity
from core.kernel.causes import SYSTEM
from core.kernel.connections import ConnectionSlug, ProviderTokens
from core.kernel.proofs import first_proof
from core.kernel.values import Email, digest
from core.maintenance.model.housekeeping import Sweep
from ports.crypto import SealBroken
from tests.support.builders import make_vault, run_concurrently, run_sql
from tests.support.rows import EVE, NOW, SECOND, account, add, session, within

TTL = timedelta(seconds=600)
TRIES = 5
MISSING = object()
BROWSER, OTHER_BROWSER = digest("a browser"), digest("another browser")
TOKENS = ProviderTokens("an access token", "a refresh token", NOW, ("repo", "user"))
IDENTITY = PendingIdentity(uuid4(), ConnectionSlug("codehost"), "https://codehost.example", "4711", EVE, TOKENS, known_elsewhere=True)
PLAIN_IDENTITY = PendingIdentity(
    None, ConnectionSlug("codehost"), "https://codehost.example", "1", None, ProviderTokens("x", None, None, ()), known_elsewhere=False
)


def page(at: timedelta = timedelta(), browser: bytes = BROWSER, **values: Any) -> Flow:
    return new_flow(NOW + at, FlowTarget.PAGE, "/app", browser, **values)


async def add_flow(storage: Postgres, flow: Flow) -> Flow:
    """Add the flow, and return it as it is read."""
    await within(storage, lambda tx: tx.flows.add(flow))
    return replace(flow, is_stored=True)


async def begin(storage: Postgres, email: Email = EVE, browser: bytes | None = BROWSER, **values: Any) -> Flow:
    """Add a flow with a right password, which waits for the second factor."""
    person = await add(storage, account(email=email))
    proofs = (first_proof("password", NOW),)
    target = FlowTarget.API if browser is None else FlowTarget.PAGE
    flow = new_flow(NOW, target, "/app", browser, user_id=person.id, proofs=proofs, proofs_expire_at=NOW + TTL)
    return await add_flow(storage, replace(flow, **values))


async def load(storage: Postgres, flow: Flow, browser: bytes = BROWSER) -> Flow | None:
    async with storage.reading() as read:
        return await read.flows.load(flow.id, browser)


async def count_attempt(storage: Postgres, flow: Flow, *, after: timedelta = timedelta(), tries: int = TRIES) -> Flow | None:
    assert flow.user_id is not None
    async with storage.autocommit() as statements:
        counted = await statements.flows.count_attempt(flow, tries, attempt_subject(flow.user_id), AttemptLimit(12, TTL), NOW + after)
    if counted is None:
        return None
    async with storage.reading() as read:
        assert counted.account == await read.accounts.by_id(flow.user_id)
        assert counted.enrollment == await read.mfa.enrollment(flow.user_id)
    return counted.flow if counted.blocked_until is None else None


async def failures(pool: Pool, user_id: UUID | None) -> int:
    """Return how many attempts at the user's second factor were counted."""
    rows = await run_sql(pool, "select failures from guesses where secret = 'mfa' and subject = %s", digest(str(user_id)))
    return int(rows[0][0]) if rows else 0


def first_factor(flow: Flow) -> FirstFactor:
    assert flow.user_id is not None
    assert flow.proofs_expire_at is not None
    return FirstFactor(flow.id, flow.browser_hash, flow.user_id, flow.proofs_expire_at)


async def redeem(storage: Postgres, flow: Flow, step: int = 1000, at: datetime = NOW) -> bool | None:
    """Redeem the code for a time step. Return whether the step was accepted, or None if the proofs have ended."""
    assert flow.user_id is not None
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.mfa.save_pending_secret(flow.user_id, "SECRET", NOW)
        accepted = await tx.mfa.redeem_step(first_factor(flow), NOW, step, SYSTEM, at)
    return None if accepted is None else accepted.code_taken


async def open_flows(pool: Pool) -> set[UUID]:
    return {row[0] for row in await run_sql(pool, "select id from sign_in_flows where closed_at is null")}


# What is stored


@pytest.mark.parametrize("identity", [None, IDENTITY, PLAIN_IDENTITY])
async def test_all_values_are_stored(storage: Postgres, identity: PendingIdentity | None) -> None:
    person = await add(storage, account())
    started = session(person.id)
    await within(storage, lambda tx: tx.sessions.begin(started, digest("refresh")))
    proofs = (first_proof("codehost", NOW, is_fresh=False), first_proof("password", NOW + SECOND))
    flow = await add_flow(
        storage,
        Flow(
            id=uuid4(),
            browser_hash=BROWSER,
            target=FlowTarget.OAUTH,
            request="client_id=1",
            secret_hash=digest("secret"),
            org_id=uuid4(),
            service_id=uuid4(),
            wants_fresh=True,
            keeps_trust=False,
            first_session_id=uuid4(),
            user_id=person.id,
            proofs=proofs,
            proofs_expire_at=NOW + TTL,
            identity=identity,
            session_id=started.id,
            begun_at=NOW,
            expires_at=NOW + FLOW_TTL,
            closed_at=NOW + SECOND,
        ),
    )
    assert await load(storage, flow) == flow
    plain = await add_flow(storage, page())
    assert await load(storage, plain) == plain


async def test_another_browser_sees_and_changes_nothing(storage: Postgres, pool: Pool) -> None:
    flow = await begin(storage)
    stranger, client = replace(flow, browser_hash=OTHER_BROWSER), replace(flow, browser_hash=None)
    before = await run_sql(pool, "select t::text from sign_in_flows t")
    assert await load(storage, flow, OTHER_BROWSER) is None
    for other in (stranger, client, replace(flow, id=uuid4())):
        assert not await within(storage, lambda tx, other=other: tx.flows.save_proofs(other))  # type: ignore[misc]
        assert not await within(storage, lambda tx, other=other: tx.flows.close(other, NOW))  # type: ignore[misc]
        assert await count_attempt(storage, other) is None
    assert await run_sql(pool, "select t::text from sign_in_flows t") == before
    assert await failures(pool, flow.user_id) == 0


async def test_the_identity_is_encrypted_for_its_flow(storage: Postgres, pool: Pool) -> None:
    flow = await begin(storage, identity=IDENTITY)
    other = await begin(storage, Email("grace@example.com"), identity=PLAIN_IDENTITY)
    for (row,) in await run_sql(pool, "select identity from sign_in_flows"):
        assert not any(text in row for text in (b"token", b"4711", b"codehost", b"eve@"))
    sql = "update sign_in_flows set identity = (select o.identity from sign_in_flows o where o.id = %s) where id = %s"
    await run_sql(pool, sql, other.id, flow.id)
    with pytest.raises(SealBroken):
        await load(storage, flow)
    with pytest.raises(SealBroken):
        await count_attempt(storage, flow)
    assert await load(storage, other) == other


# A browser's flows


async def test_the_oldest_open_flow_of_a_browser_goes(storage: Postgres, pool: Pool) -> None:
    elsewhere = await add_flow(storage, page(-SECOND, OTHER_BROWSER))
    client = await add_flow(storage, new_flow(NOW - SECOND, FlowTarget.API, ""))
    flows = [await add_flow(storage, page(number * SECOND)) for number in range(MAX_OPEN)]
    assert await open_flows(pool) == {flow.id for flow in (elsewhere, client, *flows)}
    newest = await add_flow(storage, page(MAX_OPEN * SECOND))
    assert await open_flows(pool) == {flow.id for flow in (elsewhere, client, *flows[1:], newest)}
    end = newest.begun_at
    assert await load(storage, flows[0]) == replace(flows[0], closed_at=end, expires_at=end + CLOSED_TTL)
    assert await within(storage, lambda tx: tx.flows.close(flows[5], end))
    await add_flow(storage, page(MAX_OPEN * SECOND + SECOND))
    assert len(await open_flows(pool)) == 2 + MAX_OPEN, "a closed flow leaves room for another"


@pytest.mark.slow
async def test_concurrent_flows_of_a_browser_do_not_wait_for_one_another(storage: Postgres, pool: Pool) -> None:
    for number in range(MAX_OPEN):
        await add_flow(storage, page(number * SECOND))
    await run_concurrently(20, lambda number: add_flow(storage, page((MAX_OPEN + number) * SECOND)))
    last = await add_flow(storage, page(99 * SECOND))
    flows = await open_flows(pool)
    assert (len(flows), last.id in flows) == (MAX_OPEN, True)


async def test_exactly_one_request_closes_a_flow(storage: Postgres) -> None:
    flow, late = await add_flow(storage, page()), await add_flow(storage, page())
    outcomes = await run_concurrently(20, lambda _: within(storage, lambda tx: tx.flows.close(flow, NOW + SECOND)))
    assert Counter(outcomes) == {True: 1, False: 19}
    assert await load(storage, flow) == replace(flow, closed_at=NOW + SECOND, expires_at=NOW + SECOND + CLOSED_TTL)
    assert not await within(storage, lambda tx: tx.flows.close(late, NOW + FLOW_TTL))
    client = await add_flow(storage, new_flow(NOW, FlowTarget.API, ""))
    assert await within(storage, lambda tx: tx.flows.close(client, NOW))


async def test_an_open_flow_is_found_by_its_secret_in_its_browser(storage: Postgres) -> None:
    secret = digest("secret")
    flow = await add_flow(storage, page(secret_hash=secret, identity=IDENTITY))

    async def find(secret: bytes = secret, browser: bytes = BROWSER, at: datetime = NOW) -> Flow | None:
        async with storage.reading() as read:
            return await read.flows.by_secret(secret, browser, at)

    assert await find() == await find(at=NOW + FLOW_TTL - SECOND) == flow
    assert await find(at=NOW + FLOW_TTL) is await find(digest("another")) is await find(browser=OTHER_BROWSER) is None
    async with storage.autocommit() as statements:
        assert await statements.flows.close(flow, NOW)
    assert await find() is None


async def test_ended_flows_are_swept_in_batches(storage: Postgres, pool: Pool) -> None:
    for number in range(5):
        await add_flow(storage, page(number * SECOND, digest(str(number))))
    sweeps = [
        await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.SIGN_IN_FLOWS, NOW + FLOW_TTL + 4 * SECOND, 3)) for _ in range(3)
    ]
    assert sweeps == [3, 1, 0]
    assert len(await open_flows(pool)) == 1


async def test_expired_proofs_and_challenges_are_removed_and_their_flow_stays(storage: Postgres, pool: Pool) -> None:
    proved, new = await begin(storage, identity=IDENTITY), await begin(storage, Email("grace@example.com"), proofs_expire_at=NOW + 2 * TTL)
    origin = ChallengeOrigin("203.0.113.9", "agent", None)
    email = EmailChallenge(id=uuid4(), flow=page(), email=EVE, origin=origin, begun_at=NOW, expires_at=NOW + TTL)
    request = ProviderRequest(flow=page(), connection_id=uuid4(), begun_at=NOW, expires_at=NOW + TTL)
    assert [await within(storage, lambda tx, each=each: tx.flows.start(each, digest(str(each)))) for each in (email, request)] == [True] * 2  # type: ignore[misc]
    at = NOW + TTL + SECOND
    sweeps = [await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.FLOW_SECRETS, at, 2)) for _ in range(3)]
    assert sweeps == [2, 1, 0]
    for flow in (proved, email.flow, request.flow):
        assert await load(storage, flow) == replace(flow, proofs=(), proofs_expire_at=None, identity=None, is_stored=True)
    sealed = (
        "select count(identity), count(challenge_code), count(challenge_email), count(challenge_hash) from sign_in_flows where id <> %s"
    )
    assert await run_sql(pool, sealed, new.id) == [(0, 0, 0, 0)]
    assert await load(storage, new) == new


@pytest.mark.parametrize("change", [{"color": "red"}, {"subject": MISSING}, {"tokens": {}}, {"service_id": "shop"}])
async def test_an_identity_that_another_release_stored_takes_the_proofs_away(storage: Postgres, pool: Pool, change: dict[str, Any]) -> None:
    flow, vault = await begin(storage, identity=IDENTITY), make_vault()
    [(sealed,)] = await run_sql(pool, "select identity from sign_in_flows")
    fields = json.loads(vault.open(sealed, identity_context(flow.id))) | change
    fields = {name: value for name, value in fields.items() if value is not MISSING}
    await run_sql(pool, "update sign_in_flows set identity = %s", vault.seal(json.dumps(fields).encode(), identity_context(flow.id)))
    assert await load(storage, flow) == replace(flow, user_id=None, proofs=(), proofs_expire_at=None, identity=None)
    assert await count_attempt(storage, flow) is None


# Proofs


async def test_new_proofs_replace_those_of_a_flow(storage: Postgres, pool: Pool) -> None:
    flow = await begin(storage, identity=IDENTITY)
    assert await count_attempt(storage, flow) == flow
    other = await add(storage, account("grace@example.com"))
    again = replace(
        flow, user_id=other.id, proofs=(first_proof("email", NOW),), proofs_expire_at=NOW + 2 * TTL, identity=None, expires_at=NOW + 3 * TTL
    )
    assert await within(storage, lambda tx: tx.flows.save_proofs(again))
    assert await load(storage, flow) == again
    assert await run_sql(pool, "select failures from sign_in_flows") == [(0,)]
    assert await count_attempt(storage, flow) is None, "the proofs are those of another user"
    assert await within(storage, lambda tx: tx.flows.close(flow, NOW))
    assert not await within(storage, lambda tx: tx.flows.save_proofs(again))


async def test_proofs_are_stored_with_a_new_flow(storage: Postgres) -> None:
    person = await add(storage, account())
    for browser in (BROWSER, None):
        flow = new_flow(
            NOW, FlowTarget.API, "", browser, user_id=person.id, proofs=(first_proof("password", NOW),), proofs_expire_at=NOW + TTL
        )
        assert await within(storage, lambda tx, flow=flow: tx.flows.save_proofs(flow))  # type: ignore[misc]
        assert await count_attempt(storage, flow) == replace(flow, is_stored=True)


async def test_proofs_of_a_user_are_forgotten(storage: Postgres, pool: Pool) -> None:
    flow, other = await begin(storage, identity=IDENTITY), await begin(storage, Email("grace@example.com"))
    client = replace(flow, id=uuid4(), target=FlowTarget.API, browser_hash=None)
    await within(storage, lambda tx: tx.flows.add(client))
    assert flow.user_id is not None
    await within(storage, lambda tx: tx.flows.forget_user(flow.user_id))  # type: ignore[arg-type]
    assert await load(storage, flow) == replace(flow, user_id=None, proofs=(), proofs_expire_at=None, identity=None)
    assert await load(storage, other) == other
    assert await open_flows(pool) == {flow.id, other.id}
    assert await redeem(storage, flow) is None
    assert await count_attempt(storage, flow) is None


# Attempts at the second factor


async def test_after_the_last_attempt_nothing_more_is_counted(storage: Postgres, pool: Pool) -> None:
    flow = await begin(storage)
    results = await run_concurrently(20, lambda _: count_attempt(storage, flow))
    assert sum(result is not None for result in results) == TRIES
    assert await failures(pool, flow.user_id) == TRIES


async def test_counting_an_attempt_leaves_the_connection_synchronous(storage: Postgres, pool: Pool) -> None:
    flow = await begin(storage)
    await run_sql(pool, "set synchronous_commit = on")  # it is off in the tests
    try:
        assert await count_attempt(storage, flow) == flow
        assert await run_sql(pool, "show synchronous_commit") == [("on",)]
    finally:
        await run_sql(pool, "reset synchronous_commit")


async def test_attempts_at_all_flows_of_a_user_count_together_and_a_blocked_attempt_does_not(storage: Postgres, pool: Pool) -> None:
    flow = await begin(storage)
    flows = [flow, *[await add_flow(storage, replace(flow, id=uuid4())) for _ in range(3)]]
    results = await run_concurrently(20, lambda number: count_attempt(storage, flows[number % 4]))
    assert sum(result is not None for result in results) == 12
    assert await failures(pool, flow.user_id) == 12
    assert await run_sql(pool, "select sum(failures) from sign_in_flows") == [(12,)]
    assert flow.user_id is not None
    async with storage.autocommit() as statements:
        counted = await statements.flows.count_attempt(flow, 100, attempt_subject(flow.user_id), AttemptLimit(12, TTL), NOW + SECOND)
    assert counted is not None
    assert counted.blocked_until == NOW + timedelta(seconds=30)


@pytest.mark.parametrize("browser", [BROWSER, None])
async def test_proofs_live_until_they_expire(storage: Postgres, browser: bytes | None) -> None:
    flow = await begin(storage, browser=browser)
    assert await count_attempt(storage, flow, after=TTL - SECOND) == flow
    assert await count_attempt(storage, flow, after=TTL) is None
    assert await redeem(storage, flow, at=NOW + TTL) is None
    assert await redeem(storage, flow, at=NOW + TTL - SECOND) is True


async def test_a_redeemed_code_uses_the_proofs_up(storage: Postgres, pool: Pool) -> None:
    flow, client = await begin(storage, identity=IDENTITY), await begin(storage, Email("grace@example.com"), None)
    assert await redeem(storage, flow, at=NOW + SECOND)
    later = NOW + SECOND + FLOW_TTL
    assert await load(storage, flow) == replace(flow, user_id=None, proofs=(), proofs_expire_at=None, identity=None, expires_at=later)
    assert await within(storage, lambda tx: tx.flows.close(flow, NOW)), "the browser's flow goes on"
    assert await redeem(storage, client)
    assert not await within(storage, lambda tx: tx.flows.close(client, NOW)), "an API client has no next step"
    [row] = await run_sql(pool, "select user_id, proofs, closed_at, expires_at from sign_in_flows where browser_hash is null")
    assert row == (None, [], NOW, NOW + CLOSED_TTL)


@pytest.mark.parametrize("browser", [BROWSER, None])
async def test_a_code_continues_only_the_first_factor_that_it_was_verified_for(storage: Postgres, browser: bytes | None) -> None:
    flow = await begin(storage, browser=browser, identity=IDENTITY)
    again = replace(flow, proofs_expire_at=NOW + 2 * TTL, identity=None)
    assert await within(storage, lambda tx: tx.flows.save_proofs(again))
    for other in (flow, replace(again, browser_hash=OTHER_BROWSER), replace(again, browser_hash=None if browser else BROWSER)):
        assert await redeem(storage, other) is None
    assert await redeem(storage, again)


@pytest.mark.parametrize("browser", [BROWSER, None])
async def test_exactly_one_request_redeems_a_code(storage: Postgres, browser: bytes | None) -> None:
    flow = await begin(storage, browser=browser)
    outcomes = await run_concurrently(20, lambda number: redeem(storage, flow, number + 1))
    assert Counter(outcomes) == {None: 19, True: 1}
    assert await count_attempt(storage, flow) is None


async def test_no_code_is_redeemed_after_the_flow_closed_or_for_another_user(storage: Postgres) -> None:
    flow, other = await begin(storage), await begin(storage, Email("grace@example.com"))
    assert await redeem(storage, replace(flow, user_id=other.user_id)) is None
    assert await count_attempt(storage, flow) == flow
    assert await within(storage, lambda tx: tx.flows.close(flow, NOW))
    assert await count_attempt(storage, flow) is None
    assert await redeem(storage, flow) is None
