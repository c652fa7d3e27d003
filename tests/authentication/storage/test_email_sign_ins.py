"""Tests of the storage of sign-ins by email."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.accounts.model.accounts import Account
from core.accounts.model.attempt_limits import AttemptLimit
from core.accounts.model.devices import KnownBy, Location
from core.authentication.model.login import EmailCodeAttempt, EmailSignIn
from core.kernel.values import digest
from ports.crypto import SealBroken
from tests.support.builders import add_organization, make_device, run_concurrently, run_sql
from tests.support.rows import ADA, EVE, NOW, SECOND, account, add, within
from tests.support.services import add_service

TTL = timedelta(minutes=15)
SECRET, LINK, TRIES = digest("secret"), digest("link"), 5


def requested(**changes: Any) -> EmailSignIn:
    sign_in = EmailSignIn(
        id=uuid4(),
        in_browser=True,
        email=EVE,
        org_id=None,
        service_id=None,
        after="/app/account",
        saml_state="state",
        address="203.0.113.9",
        agent="agent",
        location=Location("Berlin", "DE"),
        created_at=NOW,
        expires_at=NOW + TTL,
    )
    return replace(sign_in, **changes)


async def begin(storage: Postgres, secret: bytes = SECRET, **changes: Any) -> EmailSignIn:
    sign_in = requested(**changes)
    assert await within(storage, lambda tx: tx.email_sign_ins.add(sign_in, secret))
    return sign_in


async def issue(storage: Postgres, sign_in: EmailSignIn, link: bytes = LINK) -> Account:
    person = await add(storage, account())
    await within(storage, lambda tx: tx.email_sign_ins.issue(sign_in.id, person.id, link, "012345"))
    return person


STRANGER = KnownBy()


async def count_attempt(
    storage: Postgres,
    secret: bytes = SECRET,
    *,
    in_browser: bool = True,
    after: timedelta = timedelta(),
    limit: int = 100,
    known: KnownBy = STRANGER,
) -> EmailCodeAttempt | None:
    async with storage.autocommit() as statements:
        return await statements.email_sign_ins.count_attempt(secret, in_browser, known, TRIES, AttemptLimit(limit, TTL), NOW + after)


async def test_a_request_is_found_by_its_secret_and_its_link_until_it_is_used_or_expires(storage: Postgres) -> None:
    sign_in = await begin(storage)
    await begin(storage, digest("other"), email=ADA, location=None, in_browser=False)
    person = await issue(storage, sign_in)
    found = replace(sign_in, user_id=person.id)

    async def find(at: timedelta) -> list[EmailSignIn | None]:
        async with storage.reading() as read:
            return [await read.email_sign_ins.by_request(SECRET, NOW + at), await read.email_sign_ins.by_link(LINK, NOW + at)]

    assert await find(timedelta()) == [found, found]
    assert await find(TTL - SECOND) == [found, found]
    assert await find(TTL) == [None, None]
    assert await within(storage, lambda tx: tx.email_sign_ins.redeem(sign_in.id, NOW))
    assert await find(timedelta()) == [None, None]
    async with storage.reading() as read:
        assert await read.email_sign_ins.by_request(digest("other"), NOW) is None, "an API client has no page"


async def test_a_request_names_its_service_and_goes_with_it(pool: Pool, storage: Postgres) -> None:
    org, other = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    service = await add_service(pool, org)
    sign_in = await begin(storage, org_id=org, service_id=service)
    assert await within(storage, lambda tx: tx.email_sign_ins.find(sign_in.id, NOW)) == (sign_in, "Shop", None)
    of_another, of_none = requested(org_id=other, service_id=service), requested(org_id=org, service_id=uuid4())
    assert not await within(storage, lambda tx: tx.email_sign_ins.add(of_another, digest("another")))
    assert not await within(storage, lambda tx: tx.email_sign_ins.add(of_none, digest("another")))
    await run_sql(pool, "delete from services")
    assert await within(storage, lambda tx: tx.email_sign_ins.find(sign_in.id, NOW)) is None


async def test_the_code_is_encrypted(pool: Pool, storage: Postgres) -> None:
    sign_in = await begin(storage)
    await issue(storage, sign_in)
    [(sealed,)] = await run_sql(pool, "select code from email_sign_ins")
    assert b"012345" not in sealed
    found = await within(storage, lambda tx: tx.email_sign_ins.find(sign_in.id, NOW))
    assert found is not None
    assert found[2] == "012345"
    await run_sql(pool, "update email_sign_ins set code = %s", sealed[:-1])
    with pytest.raises(SealBroken):
        await count_attempt(storage)


async def test_a_request_is_redeemed_once_and_not_after_its_expiry(storage: Postgres) -> None:
    sign_in, late = await begin(storage), await begin(storage, digest("late"))
    answers = await run_concurrently(20, lambda _: within(storage, lambda tx: tx.email_sign_ins.redeem(sign_in.id, NOW)))
    assert Counter(answers) == {True: 1, False: 19}
    assert not await within(storage, lambda tx: tx.email_sign_ins.redeem(late.id, NOW + TTL))


async def test_older_requests_of_an_address_and_requests_of_a_user_are_deleted(pool: Pool, storage: Postgres) -> None:
    await begin(storage, digest("old"), created_at=NOW - SECOND)
    new, other = await begin(storage), await begin(storage, digest("other"), email=ADA, created_at=NOW - SECOND)
    await within(storage, lambda tx: tx.email_sign_ins.remove_older(EVE, new.created_at))

    async def left() -> set[UUID]:
        return {row[0] for row in await run_sql(pool, "select id from email_sign_ins")}

    assert await left() == {new.id, other.id}
    person = await issue(storage, new)
    await within(storage, lambda tx: tx.email_sign_ins.void(uuid4()))
    assert await left() == {new.id, other.id}
    await within(storage, lambda tx: tx.email_sign_ins.void(person.id))
    assert await left() == {other.id}


async def test_attempts_from_a_known_device_are_counted_for_the_device(storage: Postgres) -> None:
    person = await issue(storage, await begin(storage))
    device = make_device(person.id, NOW, client_hash=digest("own"))
    await within(storage, lambda tx: tx.devices.save(device))
    for known, subject in (
        (KnownBy(client_hash=digest("own")), sha256(device.id.bytes).digest()),
        (KnownBy(client_hash=digest("other")), digest(EVE)),
    ):
        attempt = await count_attempt(storage, known=known)
        assert attempt is not None
        assert attempt.subject == subject


async def test_attempts_are_counted_for_the_request_and_its_address(pool: Pool, storage: Postgres) -> None:
    sign_in = await begin(storage)
    assert await count_attempt(storage, in_browser=False) is None
    assert await count_attempt(storage, digest("unknown")) is None
    assert await count_attempt(storage, after=TTL) is None
    assert await run_sql(pool, "select count(*) from guesses") == [(0,)]
    assert await count_attempt(storage) == EmailCodeAttempt(sign_in, None, digest(EVE), None)
    person = await issue(storage, sign_in)
    for _ in range(4):
        assert await count_attempt(storage) == EmailCodeAttempt(replace(sign_in, user_id=person.id), "012345", digest(EVE), None)
    assert await count_attempt(storage) is None
    assert await run_sql(pool, "select secret, subject, failures from guesses") == [("email_code", digest(EVE), 5)]


async def test_a_blocked_attempt_is_not_counted(pool: Pool, storage: Postgres) -> None:
    await begin(storage)
    assert await count_attempt(storage, limit=1) is not None
    blocked = await count_attempt(storage, limit=1)
    assert blocked is not None
    assert blocked.blocked_until is not None
    assert await run_sql(pool, "select failures from email_sign_ins") == [(1,)]
