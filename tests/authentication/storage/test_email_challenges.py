"""Storage for the emails in pending sign-ins."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.accounts import Account
from core.accounts.model.attempt_limits import AttemptLimit
from core.accounts.model.devices import KnownBy, Location
from core.authentication.flow.model import MAX_OPEN, ChallengeOrigin, EmailAttempt, EmailChallenge, Flow, FlowTarget, new_flow
from core.kernel.proofs import first_proof
from core.kernel.values import digest
from ports.crypto import SealBroken
from tests.support.builders import add_organization, make_device, run_concurrently, run_sql
from tests.support.rows import ADA, EVE, NOW, SECOND, account, add, within
from tests.support.services import add_service

TTL = timedelta(minutes=15)
BROWSER, OTHER_BROWSER = digest("a browser"), digest("another browser")
SECRET, LINK, TRIES = digest("secret"), digest("link"), 5
ORIGIN = ChallengeOrigin("203.0.113.9", "agent", Location("Berlin", "DE"))
STRANGER = KnownBy()


def page(at: timedelta = timedelta(), browser: bytes = BROWSER, **values: Any) -> Flow:
    return new_flow(NOW + at, FlowTarget.PAGE, "/app/account", browser, **values)


def client(secret: bytes = SECRET) -> Flow:
    return new_flow(NOW, FlowTarget.API, "", secret_hash=secret)


def requested(flow: Flow, **changes: Any) -> EmailChallenge:
    challenge = EmailChallenge(id=uuid4(), flow=flow, email=EVE, origin=ORIGIN, begun_at=NOW, expires_at=NOW + TTL)
    return replace(challenge, **changes)


async def begin(storage: Postgres, flow: Flow | None = None, **changes: Any) -> EmailChallenge:
    """Start an email, and return it as it is read."""
    challenge = requested(flow or page(), **changes)
    assert await within(storage, lambda tx: tx.flows.start(challenge))
    return replace(challenge, flow=replace(challenge.flow, is_stored=True))


async def issue(storage: Postgres, challenge: EmailChallenge, link: bytes = LINK) -> Account:
    person = await add(storage, account())
    await within(storage, lambda tx: tx.flows.issue_email(challenge, person.id, link, "012345"))
    return person


async def count_attempt(
    storage: Postgres,
    challenge: EmailChallenge,
    *,
    holder: bytes | None = None,
    in_browser: bool | None = None,
    after: timedelta = timedelta(),
    limit: int = 100,
    known: KnownBy = STRANGER,
) -> EmailAttempt | None:
    flow = challenge.flow
    holder = holder or flow.browser_hash or flow.secret_hash
    assert holder is not None
    flow_id = flow.id if (flow.in_browser if in_browser is None else in_browser) else None
    async with storage.autocommit() as statements:
        return await statements.flows.count_email_attempt(flow_id, holder, known, TRIES, AttemptLimit(limit, TTL), NOW + after)


async def find(storage: Postgres, challenge: EmailChallenge, at: timedelta = timedelta()) -> list[EmailChallenge | None]:
    """Look the email up by its flow and by its link."""
    async with storage.reading() as read:
        of_flow = await read.flows.email_of(challenge.flow.id, challenge.flow.browser_hash or b"", NOW + at)
        return [of_flow, await read.flows.email_by_link(LINK, NOW + at)]


async def left(pool: Pool) -> set[UUID]:
    """Return the emails that can still be used."""
    return {row[0] for row in await run_sql(pool, "select challenge_id from sign_in_flows where challenge_id is not null")}


@pytest.mark.parametrize(
    "origin", [ORIGIN, ChallengeOrigin(None, None, None), replace(ORIGIN, location=Location(None, "DE"))], ids=["all", "none", "country"]
)
async def test_an_email_is_found_by_its_flow_and_its_link_until_it_is_used_or_expires(storage: Postgres, origin: ChallengeOrigin) -> None:
    challenge = await begin(storage, origin=origin)
    await begin(storage, client())
    person = await issue(storage, challenge)
    found = replace(challenge, user_id=person.id)
    assert await find(storage, challenge) == [found, found]
    assert await find(storage, challenge, TTL - SECOND) == [found, found]
    assert await find(storage, challenge, TTL) == [None, None]
    async with storage.reading() as read:
        assert await read.flows.email_of(challenge.flow.id, OTHER_BROWSER, NOW) is None
        assert await read.flows.email_of(uuid4(), BROWSER, NOW) is None
        assert await read.flows.email_by_link(digest("another"), NOW) is None
    assert await within(storage, lambda tx: tx.flows.redeem_email(challenge.id, NOW))
    assert await find(storage, challenge) == [None, None]


async def test_the_newest_email_of_a_flow_replaces_the_one_before_and_the_proofs(storage: Postgres, pool: Pool) -> None:
    person = await add(storage, account(EVE))
    flow = page(user_id=person.id, proofs=(first_proof("password", NOW),), proofs_expire_at=NOW + TTL)
    await within(storage, lambda tx: tx.flows.add(flow))
    first = await begin(storage, replace(flow, is_stored=True))
    await issue(storage, first)
    assert await count_attempt(storage, first) is not None
    unproved = replace(first.flow, user_id=None, proofs=(), proofs_expire_at=None, expires_at=NOW + 99 * TTL)
    second = await begin(storage, unproved, email=ADA)
    assert await find(storage, second) == [second, None]
    assert await run_sql(pool, "select failures, challenge_code from sign_in_flows") == [(0, None)]
    assert await within(storage, lambda tx: tx.flows.find_email(first.id, NOW)) is None
    assert not await within(storage, lambda tx: tx.flows.redeem_email(first.id, NOW))


async def test_proofs_replace_the_email_of_a_flow(storage: Postgres) -> None:
    challenge = await begin(storage)
    person = await issue(storage, challenge)
    proved = replace(challenge.flow, user_id=person.id, proofs=(first_proof("password", NOW),), proofs_expire_at=NOW + TTL)
    assert await within(storage, lambda tx: tx.flows.save_proofs(proved))
    assert await find(storage, challenge) == [None, None]
    assert await count_attempt(storage, challenge) is None


async def test_no_email_is_started_on_a_flow_that_has_ended_or_of_another_browser(storage: Postgres, pool: Pool) -> None:
    challenge = await begin(storage)
    before = await run_sql(pool, "select t::text from sign_in_flows t")
    for other in (replace(challenge.flow, browser_hash=OTHER_BROWSER), replace(challenge.flow, browser_hash=None)):
        assert not await within(storage, lambda tx, other=other: tx.flows.start(requested(other)))  # type: ignore[misc]
    assert await run_sql(pool, "select t::text from sign_in_flows t") == before
    await issue(storage, challenge)
    assert await within(storage, lambda tx: tx.flows.close(challenge.flow, NOW))
    assert not await within(storage, lambda tx: tx.flows.start(requested(challenge.flow)))
    assert await count_attempt(storage, challenge) is None, "no code goes on with a flow that has ended"
    assert (await find(storage, challenge))[1] is not None, "the link goes on in any browser"


async def test_a_flow_that_is_added_with_its_email_pushes_out_the_oldest(storage: Postgres, pool: Pool) -> None:
    oldest = page(-SECOND)
    await within(storage, lambda tx: tx.flows.add(oldest))
    for number in range(MAX_OPEN):
        await begin(storage, page(number * SECOND))
    assert await run_sql(pool, "select id from sign_in_flows where closed_at is not null") == [(oldest.id,)]


async def test_an_email_names_its_service_and_is_not_sent_without_it(pool: Pool, storage: Postgres) -> None:
    org, other = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    service = await add_service(pool, org)
    challenge = await begin(storage, page(org_id=org, service_id=service))
    of_another, of_none = (
        await begin(storage, page(org_id=other, service_id=service)),
        await begin(storage, page(org_id=org, service_id=uuid4())),
    )
    assert await within(storage, lambda tx: tx.flows.find_email(challenge.id, NOW)) == (challenge, "Shop", None)
    for wrong in (of_another, of_none):
        assert await within(storage, lambda tx, wrong=wrong: tx.flows.find_email(wrong.id, NOW)) is None  # type: ignore[misc]
    of_platform = await begin(storage)
    assert await within(storage, lambda tx: tx.flows.find_email(of_platform.id, NOW)) == (of_platform, None, None)
    await run_sql(pool, "delete from services")
    assert await within(storage, lambda tx: tx.flows.find_email(challenge.id, NOW)) is None


async def test_the_code_is_encrypted_for_its_flow(pool: Pool, storage: Postgres) -> None:
    challenge, other = await begin(storage), await begin(storage)
    await issue(storage, challenge)
    [(sealed,)] = await run_sql(pool, "select challenge_code from sign_in_flows where challenge_code is not null")
    assert b"012345" not in sealed
    found = await within(storage, lambda tx: tx.flows.find_email(challenge.id, NOW))
    assert found is not None
    assert found[2] == "012345"
    await run_sql(pool, "update sign_in_flows set challenge_code = %s", sealed)
    with pytest.raises(SealBroken):
        await count_attempt(storage, other)


async def test_an_email_is_redeemed_once_and_not_after_its_expiry(storage: Postgres) -> None:
    challenge, late = await begin(storage), await begin(storage)
    answers = await run_concurrently(20, lambda _: within(storage, lambda tx: tx.flows.redeem_email(challenge.id, NOW)))
    assert Counter(answers) == {True: 1, False: 19}
    assert await count_attempt(storage, challenge) is None
    assert not await within(storage, lambda tx: tx.flows.redeem_email(late.id, NOW + TTL))
    async with storage.reading() as read:
        assert await read.flows.load(challenge.flow.id, BROWSER) == challenge.flow, "the flow goes on"


async def test_older_emails_to_an_address_and_emails_to_a_user_are_forgotten(pool: Pool, storage: Postgres) -> None:
    await begin(storage, begun_at=NOW - SECOND)
    new, other = await begin(storage, client()), await begin(storage, email=ADA, begun_at=NOW - SECOND)
    await within(storage, lambda tx: tx.flows.remove_older_emails(EVE, new.begun_at))
    assert await left(pool) == {new.id, other.id}
    person = await issue(storage, new)
    await within(storage, lambda tx: tx.flows.forget_user(uuid4()))
    assert await left(pool) == {new.id, other.id}
    await within(storage, lambda tx: tx.flows.forget_user(person.id))
    assert await left(pool) == {other.id}
    assert await count_attempt(storage, new) is None


async def test_attempts_from_a_known_device_are_counted_for_the_device(storage: Postgres) -> None:
    challenge = await begin(storage)
    person = await issue(storage, challenge)
    device = make_device(person.id, NOW, client_hash=digest("own"))
    await within(storage, lambda tx: tx.devices.add(device))
    for known, subject in (
        (KnownBy(client_hash=digest("own")), sha256(device.id.bytes).digest()),
        (KnownBy(client_hash=digest("other")), digest(EVE)),
    ):
        attempt = await count_attempt(storage, challenge, known=known)
        assert attempt is not None
        assert attempt.subject == subject


@pytest.mark.parametrize("in_browser", [True, False])
async def test_attempts_are_counted_for_the_flow_and_its_address(pool: Pool, storage: Postgres, in_browser: bool) -> None:
    flow = page(secret_hash=SECRET) if in_browser else client()
    challenge = await begin(storage, flow)
    assert await count_attempt(storage, challenge, holder=SECRET if in_browser else None, in_browser=not in_browser) is None
    assert await count_attempt(storage, challenge, holder=digest("unknown")) is None
    assert await count_attempt(storage, challenge, after=TTL) is None
    assert await run_sql(pool, "select count(*) from guesses") == [(0,)]
    assert await count_attempt(storage, challenge) == EmailAttempt(challenge, None, digest(EVE), None)
    person = await issue(storage, challenge)
    for failures in range(1, 5):
        counted = replace(challenge, user_id=person.id, flow=replace(challenge.flow, failures=failures))
        assert await count_attempt(storage, challenge) == EmailAttempt(counted, "012345", digest(EVE), None)
    assert await count_attempt(storage, challenge) is None
    assert await run_sql(pool, "select secret, subject, failures from guesses") == [("email_code", digest(EVE), 5)]


async def test_concurrent_attempts_are_all_counted(storage: Postgres) -> None:
    challenge = await begin(storage)
    results = await run_concurrently(20, lambda _: count_attempt(storage, challenge))
    assert sum(result is not None for result in results) == TRIES


async def test_a_blocked_attempt_is_not_counted(pool: Pool, storage: Postgres) -> None:
    challenge = await begin(storage)
    assert await count_attempt(storage, challenge, limit=1) is not None
    blocked = await count_attempt(storage, challenge, limit=1)
    assert blocked is not None
    assert blocked.blocked_until is not None
    assert await run_sql(pool, "select failures from sign_in_flows") == [(1,)]
