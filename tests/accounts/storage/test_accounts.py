"""Every statement about accounts: fields, conditions, locks, and that other accounts do not change."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import trio

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres, Transaction
from core.accounts.model.accounts import Account, AccountOrigin, EmailTaken
from core.accounts.model.email_queue import OneTimeToken, TokenPurpose
from core.accounts.model.profiles import OwnProfile
from core.kernel.causes import SYSTEM
from core.kernel.values import Email, digest
from tests.accounts.profiles import FULL_PROFILE
from tests.support.builders import add_organization, run_concurrently, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, NOW, SECOND, account, add, begin, in_another_task, is_locked, until_blocked, within
from tests.support.services import add_service, enroll_user

FULL: dict[str, Any] = {
    "email_verified_at": NOW - 1 * SECOND,
    "password_hash": "$argon2id$x",
    "is_platform_owner": True,
    "origin": AccountOrigin.SCIM,
    "deactivated_at": NOW - 2 * SECOND,
    "anonymized_at": NOW - 3 * SECOND,
    "created_at": NOW - 4 * SECOND,
    "profile": FULL_PROFILE,
}


async def test_every_query_returns_every_field_of_an_account(storage: Postgres, pool: Pool) -> None:
    full = account(**FULL, origin_org_id=await add_organization(pool, "acme"))
    await add(storage, full, account(EVE, email_verified_at=None, password_hash=None))
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.one_time_tokens.add(
            OneTimeToken(digest("t"), TokenPurpose.RESET_PASSWORD, full.id, ADA, created_at=NOW, expires_at=NOW + HOUR)
        )
        assert await tx.accounts.by_email(ADA) == full
        assert await tx.accounts.by_id(full.id) == full
        assert await tx.accounts.own_profile(full.id, NOW) == OwnProfile(ADA, None, full.profile)
        assert await tx.accounts.own_profile(uuid4(), NOW) is None
        assert await tx.accounts.lock(full.id) == full
        assert await tx.accounts.lock_by_email(ADA) == full
        assert await tx.accounts.lock_by_token(digest("t"), TokenPurpose.RESET_PASSWORD) == full
    async with storage.reading() as read:
        eve = await read.accounts.by_email(EVE)
    assert eve is not None
    assert (eve.email_verified_at, eve.password_hash, eve.origin_org_id, eve.deactivated_at, eve.anonymized_at) == (None,) * 5
    assert await run_sql(pool, "select distinct updated_at - created_at from users") == [(timedelta(),)]


CLOSURES: dict[str, tuple[str, bool]] = {
    "deactivate": ("directory", True),
    "reactivate": ("directory", False),
    "deactivate_by_platform": ("platform", True),
    "reactivate_by_platform": ("platform", False),
    "close_until": ("user", True),
    "reopen": ("user", False),
}


@pytest.mark.slow
async def test_a_directory_the_platform_and_the_user_each_open_only_what_they_closed(storage: Postgres) -> None:
    """The test compares all sequences of four actions with the set of users who have closed the account."""
    users = iter([account(f"user-{number}@example.com") for number in range(len(CLOSURES) ** 4)])
    for actions in product(CLOSURES, repeat=4):
        user, closed_by = next(users), set[str]()
        async with storage.transaction(by=SYSTEM) as tx:
            await tx.accounts.add(user)
            for number, action in enumerate(actions):
                side, closes = CLOSURES[action]
                if side != "directory" and closes == (side in closed_by):
                    continue  # the use case changes nothing
                (closed_by.add if closes else closed_by.discard)(side)
                now = NOW + number * SECOND
                arguments = (now + DAY, now) if action == "close_until" else (now,)
                await getattr(tx.accounts, action)(user.id, *arguments)
            stored = await tx.accounts.lock(user.id)
            assert stored is not None
            assert stored.is_usable == (not closed_by), actions
            assert (stored.platform_deactivated_at is not None) == ("platform" in closed_by), actions
            assert (stored.closed_at is not None) == ("user" in closed_by), actions


@pytest.mark.parametrize("origin", list(AccountOrigin))
async def test_every_origin_is_stored(storage: Postgres, origin: AccountOrigin) -> None:
    user = await add(storage, account(origin=origin))
    async with storage.reading() as read:
        assert await read.accounts.by_id(user.id) == user


async def test_unknown_accounts_are_not_found(storage: Postgres) -> None:
    await add(storage, account())
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.accounts.by_email(EVE) is None
        assert await tx.accounts.by_id(uuid4()) is None
        assert await tx.accounts.lock(uuid4()) is None
        assert await tx.accounts.lock_by_email(EVE) is None
        assert await tx.accounts.lock_by_token(digest("t"), TokenPurpose.RESET_PASSWORD) is None


async def test_an_address_belongs_to_one_account(storage: Postgres) -> None:
    await add(storage, account(), eve := account(EVE))
    with pytest.raises(EmailTaken):
        await add(storage, account(deactivated_at=NOW))
    with pytest.raises(EmailTaken):
        await within(storage, lambda tx: tx.accounts.change_email(eve.id, ADA, NOW))


async def test_an_account_is_added_if_its_address_is_free(storage: Postgres, pool: Pool) -> None:
    full = account(**FULL, origin_org_id=await add_organization(pool, "acme"))
    assert await within(storage, lambda tx: tx.accounts.add_if_free(full))
    assert not await within(storage, lambda tx: tx.accounts.add_if_free(account()))
    async with storage.reading() as read:
        assert await read.accounts.by_email(ADA) == full
    assert await run_sql(pool, "select count(*) from users") == [(1,)]


async def test_of_20_concurrent_accounts_with_one_address_one_is_added(storage: Postgres, pool: Pool) -> None:
    results = await run_concurrently(20, lambda _: within(storage, lambda tx: tx.accounts.add_if_free(account())))
    assert sorted(results) == [False] * 19 + [True]
    assert await run_sql(pool, "select count(*) from users") == [(1,)]


async def test_another_violated_constraint_is_not_a_refusal(storage: Postgres) -> None:
    existing = await add(storage, account())
    with pytest.raises(psycopg.errors.UniqueViolation):
        await add(storage, replace(existing, email=EVE))


async def test_changes_affect_one_account_only(storage: Postgres) -> None:
    user, eve = account(email_verified_at=None), account(EVE, email_verified_at=None)
    await add(storage, user, eve)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.mark_verified(user.id, NOW)
        await tx.accounts.set_password(user.id, "another hash", NOW)
        await tx.accounts.promote(user.id, NOW)
        assert await tx.accounts.by_id(user.id) == replace(
            user, email_verified_at=NOW, first_verified_at=NOW, password_hash="another hash", is_platform_owner=True
        )
        await tx.accounts.change_email(user.id, Email("lovelace@example.com"), NOW)
        user_after = await tx.accounts.by_id(user.id)
        assert user_after is not None
        assert (user_after.email, user_after.email_verified_at, user_after.password_hash) == ("lovelace@example.com", None, "another hash")
        assert await tx.accounts.by_id(eve.id) == eve


async def test_a_change_of_address_locks_service_users_before_end_users(storage: Postgres, pool: Pool) -> None:
    """Deleting a service locks them in this order. The foreign keys that copy the address have no fixed order."""
    user = await add(storage, account())
    service = await add_service(pool, await add_organization(pool, "acme"))
    await within(storage, lambda tx: enroll_user(tx, service, user.id, NOW))

    async def change() -> None:
        await within(storage, lambda tx: tx.accounts.change_email(user.id, EVE, NOW))

    async with trio.open_nursery() as nursery, pool.connection() as connection, connection.transaction():
        await connection.execute("select from service_users for no key update")
        nursery.start_soon(change)
        await until_blocked(pool)
        assert not await is_locked(pool, "end_users", "user_id = %s", user.id)
        assert not await is_locked(pool, "users", "id = %s", user.id), "the foreign keys have not run yet"
    addresses = (
        "select u.email, r.email, e.email from users u join service_users r on r.user_id = u.id join end_users e on e.user_id = u.id"
    )
    assert await run_sql(pool, addresses) == [(EVE, EVE, EVE)]


async def test_the_first_time_of_verification_stays(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account(email_verified_at=NOW))
    await within(storage, lambda tx: tx.accounts.mark_verified(user.id, NOW + HOUR))
    assert await run_sql(pool, "select email_verified_at, updated_at from users") == [(NOW, NOW + HOUR)]


async def test_platform_owner_exists(storage: Postgres) -> None:
    user = await add(storage, account())
    async with storage.transaction(by=SYSTEM) as tx:
        assert not await tx.accounts.platform_owner_exists()
        await tx.accounts.promote(user.id, NOW)
        assert await tx.accounts.platform_owner_exists()


LOCKS: dict[str, Callable[[Transaction, Account], Awaitable[Any]]] = {
    "lock": lambda tx, user: tx.accounts.lock(user.id),
    "lock_by_email": lambda tx, user: tx.accounts.lock_by_email(user.email),
    "lock_by_token": lambda tx, user: tx.accounts.lock_by_token(digest("t"), TokenPurpose.VERIFY_EMAIL),
    "lock_for_login": lambda tx, user: tx.accounts.lock_for_login(user.id, "hash"),
}


@pytest.mark.parametrize("name", LOCKS)
async def test_a_lock_blocks_writers_of_this_account_only(storage: Postgres, pool: Pool, name: str) -> None:
    user, eve = account(), account(EVE)
    await add(storage, user, eve)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.one_time_tokens.add(
            OneTimeToken(digest("t"), TokenPurpose.VERIFY_EMAIL, user.id, ADA, created_at=NOW, expires_at=NOW + HOUR)
        )
    async with storage.transaction(by=SYSTEM) as tx:
        assert await LOCKS[name](tx, user)
        assert await is_locked(pool, "users", "id = %s", user.id)
        assert not await is_locked(pool, "users", "id = %s", eve.id)
        # Rows that refer to the account can be inserted: a login does not wait for an address
        # change.
        assert not await is_locked(pool, "users", "id = %s", user.id, mode="for key share")
        await in_another_task(lambda: begin(storage, user.id, "token"))
    assert not await is_locked(pool, "users", "id = %s", user.id)


async def test_a_login_needs_a_usable_verified_account_with_the_same_password(storage: Postgres) -> None:
    variants = {
        "good": account("good@example.com"),
        "unverified": account("unverified@example.com", email_verified_at=None),
        "passwordless": account("passwordless@example.com", password_hash=None),
        "changed": account("changed@example.com", password_hash="another hash"),
        "deactivated": account("deactivated@example.com", deactivated_at=NOW),
        "anonymized": account("anonymized@example.com", anonymized_at=NOW),
    }
    await add(storage, *variants.values())
    async with storage.transaction(by=SYSTEM) as tx:
        names = [name for name, one in variants.items() if await tx.accounts.lock_for_login(one.id, "hash")]
        assert names == ["good"]
        assert not await tx.accounts.lock_for_login(uuid4(), "hash")


async def test_changes_of_platform_owners_take_turns(storage: Postgres) -> None:
    running = 0

    async def change(_: int) -> int:
        nonlocal running
        async with storage.transaction(by=SYSTEM) as tx:
            await tx.accounts.lock_platform_owners()
            running += 1
            most = running
            await tx.accounts.platform_owner_exists()
            running -= 1
            return most

    assert await run_concurrently(8, change) == [1] * 8
