"""Every statement on the real database: each field, each condition, and that it touches nobody else's rows."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg
import pytest
import trio
import trio.testing
from psycopg import sql

from adapters.crypto import AesVault
from adapters.postgres.driver import connect
from adapters.postgres.platform import SWEEPS
from adapters.postgres.pool import Pool
from adapters.postgres.storage import Postgres, Transaction
from core import accounts, events, housekeeping, sessions
from core.access import SYSTEM, OrganizationStatus, Person, Role, Standing
from core.accounts import Account, EmailTaken, Origin
from core.errors import Outage, Refusal, StorageDown
from core.guesses import Allowance, Secret
from core.limits import Bucket
from core.mails import Mail, MailKind, Outcome, Purpose
from core.platform import Figures
from core.policy import Policy
from core.sessions import Presented, Refreshed, Session
from core.signing_keys import SigningKey
from core.values import Email, digest
from ports import Ports
from tests.builders import PASSWORD, add_account, deliver, everyone, link, make_vault
from tests.fakes.outside import FakeClock, FakeMailTransport

T = TypeVar("T")

NOW = datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC)
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
ADA, EVE = Email("ada@example.com"), Email("eve@example.com")


@pytest.fixture
def storage(pool: Pool, clock: FakeClock) -> Postgres:
    return Postgres(pool, make_vault(), clock)


async def rows(pool: Pool, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    async with pool.connection() as connection:
        return await (await connection.execute(query, parameters)).fetchall()


async def run_sql(pool: Pool, query: str, *parameters: object) -> None:
    async with pool.connection() as connection:
        await connection.execute(query, parameters)


async def within(storage: Postgres, act: Callable[[Transaction], Awaitable[T]]) -> T:
    """`act` in a transaction of its own."""
    async with storage.transaction(by=SYSTEM) as tx:
        return await act(tx)


async def in_another_task(act: Callable[[], Awaitable[T]]) -> T:
    """A task may hold only one connection, so whoever meets a transaction of ours must be another one."""
    results: list[T] = []

    async def run() -> None:
        results.append(await act())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
    return results[0]


async def is_locked(pool: Pool, table: str, condition: str, *parameters: object, mode: str = "for no key update") -> bool:
    """Whether somebody holds a lock on the row that `mode` would wait for."""
    query = sql.SQL("select 1 from {} where {} {} skip locked").format(
        sql.Identifier(table),
        sql.SQL(condition),
        sql.SQL(mode),
    )

    async def look() -> bool:
        async with pool.connection() as connection:
            return not await (await connection.execute(query, parameters)).fetchall()

    return await in_another_task(look)


async def add_organization(pool: Pool, slug: str, status: str = "active") -> UUID:
    org = uuid4()
    await run_sql(pool, "insert into organizations values (%s, %s, %s, %s, %s)", org, slug, slug.title(), status, NOW)
    return org


async def join(pool: Pool, org: UUID, user: UUID, role: str = "member") -> None:
    await run_sql(pool, "insert into memberships values (%s, %s, %s, %s, %s)", uuid4(), org, user, role, NOW)


def account(email: str = ADA, **changes: Any) -> Account:
    plain = Account(
        id=uuid4(),
        email=Email(email),
        email_verified_at=NOW,
        password_hash="hash",
        is_platform_owner=False,
        origin=Origin.PLATFORM,
        origin_org_id=None,
        deactivated_at=None,
        anonymized_at=None,
        created_at=NOW - DAY,
        first_verified_at=changes.get("email_verified_at", NOW),
    )
    return replace(plain, **changes)


async def add(storage: Postgres, *added: Account) -> Account:
    async with storage.transaction(by=SYSTEM) as tx:
        for one in added:
            await tx.accounts.add(one)
    return added[0]


def session(user_id: UUID, **changes: Any) -> Session:
    plain = Session(
        id=uuid4(),
        user_id=user_id,
        created_at=NOW - HOUR,
        expires_at=NOW + 30 * DAY,
        ends_at=NOW + 90 * DAY,
        address="203.0.113.9",
        agent="tests",
    )
    return replace(plain, **changes)


async def begin(storage: Postgres, user_id: UUID, token: str, **changes: Any) -> Session:
    begun = session(user_id, **changes)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.begin(begun, digest(token))
    return begun


# Transactions


async def test_leaving_a_transaction_commits_and_an_error_rolls_back(storage: Postgres) -> None:
    await add(storage, account())
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (what comes before the error is the point)
        async with storage.transaction(by=SYSTEM) as tx:
            await tx.accounts.add(account(EVE))
            assert await tx.accounts.by_email(EVE)
            raise ZeroDivisionError
    async with storage.reading() as read:
        assert await read.accounts.by_email(ADA)
        assert await read.accounts.by_email(EVE) is None


async def test_cancellation_rolls_back_and_leaves_the_pool_clean(storage: Postgres, pool: Pool) -> None:
    with trio.CancelScope() as scope:
        async with storage.transaction(by=SYSTEM) as tx:
            await tx.accounts.add(account())
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    async with storage.reading() as read:
        assert await read.accounts.by_email(ADA) is None
    assert pool.stats.total == pool.stats.idle


async def test_a_transaction_that_failed_in_the_database_can_be_left(storage: Postgres) -> None:
    await add(storage, account())
    with pytest.raises(EmailTaken):
        await add(storage, account())
    await add(storage, account(EVE))


async def test_what_counts_survives_the_refusal_it_leads_to(storage: Postgres, pool: Pool) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (what comes before the error is the point)
        async with storage.counting() as count:
            await count.guesses.charge(Secret.PASSWORD, b"x", Allowance(10, HOUR), NOW)
            raise ZeroDivisionError
    assert await rows(pool, "select failures from guesses") == [(1,)]


async def test_a_database_that_is_away_is_storage_down(clock: FakeClock) -> None:
    pool = Pool("host=127.0.0.1 port=1 dbname=nothing", size=1, acquire_timeout=0.2)
    storage = Postgres(pool, make_vault(), clock)
    for attempt in (storage.ping, lambda: add(storage, account())):
        with pytest.raises(StorageDown):
            await attempt()
    await pool.aclose()


async def test_ping(storage: Postgres) -> None:
    await storage.ping()


# Accounts

FULL: dict[str, Any] = {
    "email_verified_at": NOW - 1 * SECOND,
    "password_hash": "$argon2id$x",
    "is_platform_owner": True,
    "origin": Origin.SCIM,
    "deactivated_at": NOW - 2 * SECOND,
    "anonymized_at": NOW - 3 * SECOND,
    "created_at": NOW - 4 * SECOND,
}


async def test_every_field_of_an_account_comes_back_from_every_question(storage: Postgres, pool: Pool) -> None:
    full = account(**FULL, origin_org_id=await add_organization(pool, "acme"))
    await add(storage, full, account(EVE, email_verified_at=None, password_hash=None))
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.one_time_tokens.add(digest("t"), Purpose.RESET_PASSWORD, full.id, ADA, created_at=NOW, expires_at=NOW + HOUR)
        assert await tx.accounts.by_email(ADA) == full
        assert await tx.accounts.by_id(full.id) == full
        assert await tx.accounts.lock(full.id) == full
        assert await tx.accounts.lock_by_email(ADA) == full
        assert await tx.accounts.lock_by_token(digest("t"), Purpose.RESET_PASSWORD) == full
    async with storage.reading() as read:
        eve = await read.accounts.by_email(EVE)
    assert eve is not None
    assert (eve.email_verified_at, eve.password_hash, eve.origin_org_id, eve.deactivated_at, eve.anonymized_at) == (None,) * 5
    assert await rows(pool, "select distinct updated_at - created_at from users") == [(timedelta(),)]


@pytest.mark.parametrize("origin", list(Origin))
async def test_every_origin_is_stored(storage: Postgres, origin: Origin) -> None:
    stored = await add(storage, account(origin=origin))
    async with storage.reading() as read:
        assert await read.accounts.by_id(stored.id) == stored


async def test_nobody_is_nobody(storage: Postgres) -> None:
    await add(storage, account())
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.accounts.by_email(EVE) is None
        assert await tx.accounts.by_id(uuid4()) is None
        assert await tx.accounts.lock(uuid4()) is None
        assert await tx.accounts.lock_by_email(EVE) is None
        assert await tx.accounts.lock_by_token(digest("t"), Purpose.RESET_PASSWORD) is None


async def test_an_address_belongs_to_one_account(storage: Postgres) -> None:
    await add(storage, account(), eve := account(EVE))
    with pytest.raises(EmailTaken):
        await add(storage, account(deactivated_at=NOW))
    with pytest.raises(EmailTaken):
        await within(storage, lambda tx: tx.accounts.change_email(eve.id, ADA, NOW))


async def test_another_constraint_is_a_defect_and_no_refusal(storage: Postgres) -> None:
    taken = await add(storage, account())
    with pytest.raises(psycopg.errors.UniqueViolation):
        await add(storage, replace(taken, email=EVE))
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        await add(storage, account(EVE, origin_org_id=uuid4()))


async def test_changes_touch_one_account_only(storage: Postgres) -> None:
    ada, eve = account(email_verified_at=None), account(EVE, email_verified_at=None)
    await add(storage, ada, eve)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.mark_verified(ada.id, NOW)
        await tx.accounts.set_password(ada.id, "another hash", NOW)
        await tx.accounts.promote(ada.id, NOW)
        assert await tx.accounts.by_id(ada.id) == replace(
            ada, email_verified_at=NOW, first_verified_at=NOW, password_hash="another hash", is_platform_owner=True
        )
        await tx.accounts.change_email(ada.id, Email("lovelace@example.com"), NOW)
        changed = await tx.accounts.by_id(ada.id)
        assert changed is not None
        assert (changed.email, changed.email_verified_at, changed.password_hash) == ("lovelace@example.com", None, "another hash")
        assert await tx.accounts.by_id(eve.id) == eve


async def test_the_first_proof_of_a_mailbox_is_remembered(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account(email_verified_at=NOW))
    await within(storage, lambda tx: tx.accounts.mark_verified(ada.id, NOW + HOUR))
    assert await rows(pool, "select email_verified_at, updated_at from users") == [(NOW, NOW + HOUR)]


async def test_whether_there_is_a_platform_owner(storage: Postgres) -> None:
    ada = await add(storage, account())
    async with storage.transaction(by=SYSTEM) as tx:
        assert not await tx.accounts.platform_owner_exists()
        await tx.accounts.promote(ada.id, NOW)
        assert await tx.accounts.platform_owner_exists()


LOCKS: dict[str, Callable[[Transaction, Account], Awaitable[Any]]] = {
    "lock": lambda tx, ada: tx.accounts.lock(ada.id),
    "lock_by_email": lambda tx, ada: tx.accounts.lock_by_email(ada.email),
    "lock_by_token": lambda tx, ada: tx.accounts.lock_by_token(digest("t"), Purpose.VERIFY_EMAIL),
    "lock_for_login": lambda tx, ada: tx.accounts.lock_for_login(ada.id, "hash"),
}


@pytest.mark.parametrize("name", LOCKS)
async def test_a_lock_holds_off_writers_of_this_account_only(storage: Postgres, pool: Pool, name: str) -> None:
    ada, eve = account(), account(EVE)
    await add(storage, ada, eve)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.one_time_tokens.add(digest("t"), Purpose.VERIFY_EMAIL, ada.id, ADA, created_at=NOW, expires_at=NOW + HOUR)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await LOCKS[name](tx, ada)
        assert await is_locked(pool, "users", "id = %s", ada.id)
        assert not await is_locked(pool, "users", "id = %s", eve.id)
        # Rows that merely point to the account still come in: a login does not wait for a change of address.
        assert not await is_locked(pool, "users", "id = %s", ada.id, mode="for key share")
        await in_another_task(lambda: begin(storage, ada.id, "token"))
    assert not await is_locked(pool, "users", "id = %s", ada.id)


async def test_a_login_goes_through_only_with_the_password_that_was_verified_on_an_account_in_good_standing(storage: Postgres) -> None:
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
        found = [name for name, one in variants.items() if await tx.accounts.lock_for_login(one.id, "hash")]
        assert found == ["good"]
        assert not await tx.accounts.lock_for_login(uuid4(), "hash")


async def test_platform_owners_are_changed_by_one_at_a_time(storage: Postgres) -> None:
    inside = 0

    async def change(_: int) -> int:
        nonlocal inside
        async with storage.transaction(by=SYSTEM) as tx:
            await tx.accounts.lock_platform_owners()
            inside += 1
            most = inside
            await tx.accounts.platform_owner_exists()
            inside -= 1
            return most

    assert await everyone(8, change) == [1] * 8


# One-time tokens


async def add_token(
    tx: Transaction, token: str, purpose: Purpose, user: UUID, email: Email = ADA, expires_at: datetime = NOW + HOUR
) -> None:
    await tx.one_time_tokens.add(digest(token), purpose, user, email, created_at=NOW - HOUR, expires_at=expires_at)


async def test_every_field_of_a_token_is_stored_and_the_token_is_not(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    await within(storage, lambda tx: add_token(tx, "t", Purpose.RESET_PASSWORD, ada.id))
    stored = await rows(pool, "select purpose, token_hash, user_id, email, created_at, expires_at, used_at from one_time_tokens")
    assert stored == [("reset_password", digest("t"), ada.id, ADA, NOW - HOUR, NOW + HOUR, None)]


async def test_a_token_is_good_once_for_one_purpose_until_it_expires(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    async with storage.transaction(by=SYSTEM) as tx:
        tokens = tx.one_time_tokens
        await add_token(tx, "t", Purpose.RESET_PASSWORD, ada.id)
        await add_token(tx, "other", Purpose.RESET_PASSWORD, ada.id, EVE)
        assert await tokens.is_live(digest("t"), Purpose.RESET_PASSWORD, NOW)
        assert await tokens.is_live(digest("t"), Purpose.RESET_PASSWORD, NOW + HOUR - MICROSECOND)
        assert not await tokens.is_live(digest("t"), Purpose.RESET_PASSWORD, NOW + HOUR)
        assert not await tokens.is_live(digest("t"), Purpose.VERIFY_EMAIL, NOW)
        assert not await tokens.is_live(digest("T"), Purpose.RESET_PASSWORD, NOW)
        assert await tokens.redeem(digest("t"), Purpose.RESET_PASSWORD, NOW + HOUR) is None
        assert await tokens.redeem(digest("t"), Purpose.VERIFY_EMAIL, NOW) is None
        assert await tokens.redeem(digest("x"), Purpose.RESET_PASSWORD, NOW) is None
        assert await tokens.redeem(digest("t"), Purpose.RESET_PASSWORD, NOW) == ADA
        assert await tokens.redeem(digest("t"), Purpose.RESET_PASSWORD, NOW) is None
        assert not await tokens.is_live(digest("t"), Purpose.RESET_PASSWORD, NOW)
        assert await tokens.redeem(digest("other"), Purpose.RESET_PASSWORD, NOW + SECOND) == EVE
    assert await rows(pool, "select used_at from one_time_tokens order by used_at") == [(NOW,), (NOW + SECOND,)]


async def test_of_twenty_who_redeem_one_token_one_wins(storage: Postgres) -> None:
    ada = await add(storage, account())
    await within(storage, lambda tx: add_token(tx, "t", Purpose.VERIFY_EMAIL, ada.id))
    won = await everyone(20, lambda _: within(storage, lambda tx: tx.one_time_tokens.redeem(digest("t"), Purpose.VERIFY_EMAIL, NOW)))
    assert sorted(won, key=str) == [None] * 19 + [ADA] or sorted(won, key=str) == [ADA] + [None] * 19


async def test_voiding_takes_one_persons_tokens_of_one_purpose(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    async with storage.transaction(by=SYSTEM) as tx:
        for user, name in ((ada, "ada"), (eve, "eve")):
            for purpose in Purpose:
                await add_token(tx, f"{name} {purpose} 1", purpose, user.id)
                await add_token(tx, f"{name} {purpose} 2", purpose, user.id)
        await tx.one_time_tokens.void(ada.id, Purpose.RESET_PASSWORD)
    left = await rows(pool, "select user_id, purpose, count(*) from one_time_tokens group by 1, 2")
    assert set(left) == {(ada.id, "verify_email", 2), (eve.id, "verify_email", 2), (eve.id, "reset_password", 2)}


async def test_a_token_leads_to_its_own_account(storage: Postgres) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    async with storage.transaction(by=SYSTEM) as tx:
        await add_token(tx, "ada", Purpose.VERIFY_EMAIL, ada.id)
        await add_token(tx, "eve", Purpose.VERIFY_EMAIL, eve.id)
        assert await tx.accounts.lock_by_token(digest("eve"), Purpose.VERIFY_EMAIL) == eve
        assert await tx.accounts.lock_by_token(digest("eve"), Purpose.RESET_PASSWORD) is None


# Sessions


async def test_every_field_of_a_session_is_stored_and_its_token_is_not(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "token")
    stored = await rows(pool, "select id, user_id, created_at, expires_at, ends_at, address, agent, org_id, ended_at from sessions")
    assert stored == [(begun.id, ada.id, NOW - HOUR, NOW + 30 * DAY, NOW + 90 * DAY, "203.0.113.9", "tests", None, None)]
    tokens = await rows(pool, "select token_hash, session_id, generation, rotated_at, created_at from refresh_tokens")
    assert tokens == [(digest("token"), begun.id, 1, None, NOW - HOUR)]


async def test_standing_tells_everything_a_request_is_judged_by(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account(is_platform_owner=True))
    begun = await begin(storage, ada.id, "token")
    org = await add_organization(pool, "acme", "suspended")
    twin = await add_organization(pool, "twin")
    await join(pool, org, ada.id, "admin")
    plain = Standing(user_id=ada.id, email=ADA, email_verified_at=NOW, is_platform_owner=True)
    async with storage.reading() as read:
        standing = read.sessions.standing
        assert await standing(begun.id, ada.id, None, NOW) == plain
        assert await standing(begun.id, ada.id, uuid4(), NOW) == plain
        assert await standing(begun.id, ada.id, org, NOW) == replace(
            plain,
            organization_id=org,
            organization_slug="acme",
            organization_status=OrganizationStatus.SUSPENDED,
            role=Role.ADMIN,
        )
        elsewhere = await standing(begun.id, ada.id, twin, NOW)
        assert elsewhere is not None
        assert elsewhere.role is None, "being a member of one organization says nothing in another"


async def test_standing_is_of_ones_own_session_only(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE, is_platform_owner=True))
    mine, hers = await begin(storage, ada.id, "ada"), await begin(storage, eve.id, "eve")
    org = await add_organization(pool, "acme")
    await join(pool, org, eve.id, "owner")
    async with storage.reading() as read:
        assert await read.sessions.standing(hers.id, ada.id, None, NOW) is None
        assert await read.sessions.standing(mine.id, eve.id, None, NOW) is None
        assert await read.sessions.standing(uuid4(), ada.id, None, NOW) is None
        found = await read.sessions.standing(mine.id, ada.id, org, NOW)
    assert found is not None
    assert (found.role, found.is_platform_owner) == (None, False)


@pytest.mark.parametrize(
    "end",
    [
        "update sessions set ended_at = %(now)s",
        "update sessions set expires_at = %(now)s",
        "update users set deactivated_at = %(now)s",
        "update users set anonymized_at = %(now)s",
        "delete from users",
        "delete from sessions",
    ],
)
async def test_a_session_that_is_over_stands_for_nobody(storage: Postgres, pool: Pool, end: str) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "token")
    async with storage.reading() as read:
        assert await read.sessions.standing(begun.id, ada.id, None, NOW)
    async with pool.connection() as connection:
        await connection.execute(end, {"now": NOW})
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.standing(begun.id, ada.id, None, NOW) is None
        assert await tx.sessions.rotate(digest("token"), digest("next"), NOW, NOW + 30 * DAY) is None
        presented = await tx.sessions.presented(digest("token"), NOW)
    assert presented is None or not presented.session_is_live


async def test_rotation_tells_whose_session_it_is_and_makes_a_successor(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    begun, other = await begin(storage, ada.id, "first"), await begin(storage, eve.id, "eve")
    org = await add_organization(pool, "acme")
    await add_organization(pool, "twin")
    await join(pool, org, ada.id)
    await run_sql(pool, "update sessions set org_id = %s where id = %s", org, begun.id)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.rotate(digest("unknown"), digest("next"), NOW, NOW + DAY) is None
        assert await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + 31 * DAY) == Refreshed(
            session_id=begun.id,
            user_id=ada.id,
            email=ADA,
            email_verified_at=NOW,
            ends_at=NOW + 90 * DAY,
            org_id=org,
            org_slug="acme",
        )
        assert await tx.sessions.rotate(digest("first"), digest("third"), NOW, NOW + DAY) is None
    tokens = await rows(
        pool, "select token_hash, session_id, generation, rotated_at, created_at from refresh_tokens order by generation, 2"
    )
    assert sorted(tokens, key=str) == sorted(
        [
            (digest("eve"), other.id, 1, None, NOW - HOUR),
            (digest("first"), begun.id, 1, NOW, NOW - HOUR),
            (digest("second"), begun.id, 2, None, NOW),
        ],
        key=str,
    )
    lives = await rows(pool, "select id, expires_at from sessions")
    assert set(lives) == {(begun.id, NOW + 31 * DAY), (other.id, NOW + 30 * DAY)}


async def test_rotation_never_outlives_the_absolute_end(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    await begin(storage, ada.id, "first")
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + 365 * DAY)
    assert await rows(pool, "select expires_at = ends_at from sessions") == [(True,)]


@pytest.mark.parametrize(
    ("status", "member", "passes"),
    [("active", True, True), ("active", False, False), ("suspended", True, False), ("pending", True, False), ("rejected", True, False)],
)
async def test_rotation_asks_for_an_active_organization_and_membership(
    storage: Postgres, pool: Pool, status: str, member: bool, passes: bool
) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    begun = await begin(storage, ada.id, "first")
    org, twin = await add_organization(pool, "acme", status), await add_organization(pool, "twin")
    await join(pool, twin, ada.id, "owner")  # of another organization, which does not help
    await join(pool, org, eve.id)  # somebody else, who does not either
    if member:
        await join(pool, org, ada.id, "admin")
    await run_sql(pool, "update sessions set org_id = %s", org)
    async with storage.transaction(by=SYSTEM) as tx:
        rotated = await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + DAY)
        assert (rotated is not None) == passes
        if not passes:
            assert await tx.sessions.presented(digest("first"), NOW) == Presented(
                session_id=begun.id,
                rotated_at=None,
                is_previous=False,
                session_is_live=True,
                org_id=org,
                organization_status=OrganizationStatus(status),
                role=Role.ADMIN if member else None,
            )


async def test_what_is_known_of_a_token_that_was_used(storage: Postgres) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "1")
    async with storage.transaction(by=SYSTEM) as tx:
        for number in (1, 2):
            assert await tx.sessions.rotate(digest(f"{number}"), digest(f"{number + 1}"), NOW + number * SECOND, NOW + DAY)
        known = [await tx.sessions.presented(digest(f"{number}"), NOW + 3 * SECOND) for number in (1, 2, 3, 4)]
    plain = Presented(
        session_id=begun.id, rotated_at=None, is_previous=False, session_is_live=True, org_id=None, organization_status=None, role=None
    )
    assert known == [
        replace(plain, rotated_at=NOW + SECOND),
        replace(plain, rotated_at=NOW + 2 * SECOND, is_previous=True),
        plain,
        None,
    ]


async def test_of_twenty_rotations_of_one_token_one_wins(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    await begin(storage, ada.id, "first")

    async def rotate(number: int) -> bool:
        async with storage.transaction(by=SYSTEM) as tx:
            return await tx.sessions.rotate(digest("first"), digest(f"next {number}"), NOW, NOW + DAY) is not None

    assert sum(await everyone(20, rotate)) == 1
    assert await rows(pool, "select generation from refresh_tokens order by 1") == [(1,), (2,)]


async def test_an_end_that_waits_for_a_rotation_ends_its_successor_too(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "first")
    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + DAY)
        nursery.start_soon(within, storage, lambda tx: tx.sessions.end(begun.id, NOW))
        await trio.testing.wait_all_tasks_blocked()
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.rotate(digest("second"), digest("third"), NOW, NOW + DAY) is None


async def test_a_rotation_that_waits_for_an_end_makes_no_successor(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "first")
    outcome: list[object] = []

    async def rotate() -> None:
        async with storage.transaction(by=SYSTEM) as tx:
            outcome.append(await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + DAY))

    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.end(begun.id, NOW)
        nursery.start_soon(rotate)
        await trio.testing.wait_all_tasks_blocked()
    assert outcome == [None]
    assert await rows(pool, "select count(*) from refresh_tokens where token_hash = %s", digest("second")) == [(0,)]


async def test_ending_sessions_touches_whom_it_names(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    one, two, three = [await begin(storage, ada.id, f"ada {number}") for number in range(3)]
    hers = await begin(storage, eve.id, "eve")

    async def ended() -> set[tuple[Any, ...]]:
        return set(await rows(pool, "select id, ended_at from sessions where ended_at is not null"))

    await within(storage, lambda tx: tx.sessions.end(one.id, NOW))
    assert await ended() == {(one.id, NOW)}
    await within(storage, lambda tx: tx.sessions.end_others(ada.id, two.id, NOW + SECOND))
    assert await ended() == {(one.id, NOW), (three.id, NOW + SECOND)}  # when it ended first is what counts
    await within(storage, lambda tx: tx.sessions.end_all(ada.id, NOW + 2 * SECOND))
    assert await ended() == {(one.id, NOW), (three.id, NOW + SECOND), (two.id, NOW + 2 * SECOND)}
    await within(storage, lambda tx: tx.sessions.end_others(eve.id, hers.id, NOW))
    assert hers.id not in {found[0] for found in await ended()}


# The record of logins


async def test_every_field_of_a_login_is_stored(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    begun = uuid4()
    await within(storage, lambda tx: tx.logins.succeeded(ada.id, begun, "websuite", NOW, "203.0.113.9", "tests"))
    async with storage.counting() as count:
        await count.logins.failed(ada.id, "password", NOW + SECOND, "2001:db8::1", None)
    query = "select user_id, session_id, provider, success, address, agent, created_at, org_id from login_events order by created_at"
    assert await rows(pool, query) == [
        (ada.id, begun, "websuite", True, "203.0.113.9", "tests", NOW, None),
        (ada.id, None, "password", False, "2001:db8::1", None, NOW + SECOND, None),
    ]


async def test_a_failed_login_leaves_the_connection_as_careful_as_it_was(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    async with pool.connection() as connection:
        before = await connection.row("show synchronous_commit")
    async with storage.counting() as count:
        await count.logins.failed(ada.id, "password", NOW, None, None)
    async with pool.connection() as connection:
        assert await connection.row("show synchronous_commit") == before


# Mails


def mail(**changes: Any) -> Mail:
    plain = Mail(id=uuid4(), kind=MailKind.RESET_PASSWORD, address=ADA, created_at=NOW - HOUR, due_at=NOW - SECOND, org_slug="acme")
    return replace(plain, **changes)


async def queue(storage: Postgres, *mails: Mail) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for one in mails:
            await tx.mails.queue(one)


async def claim(storage: Postgres, limit: int = 10, now: datetime = NOW, lease: timedelta = HOUR) -> list[Mail]:
    return await within(storage, lambda tx: tx.mails.claim(now, now + lease, limit))


@pytest.mark.parametrize("kind", list(MailKind))
async def test_every_field_of_a_mail_comes_back(storage: Postgres, kind: MailKind) -> None:
    queued = mail(kind=kind)
    await queue(storage, queued)
    await within(storage, lambda tx: tx.mails.keep_token(queued.id, "the token", NOW))
    assert await claim(storage) == [replace(queued, claims=1, due_at=NOW + HOUR, token="the token")]


async def test_due_mails_are_claimed_oldest_first_and_no_more_than_asked_for(storage: Postgres) -> None:
    mails = [mail(created_at=NOW - age * SECOND, due_at=NOW - age * SECOND) for age in (3, 9, 1, 7, 5, 0)]
    late = mail(created_at=NOW - DAY, due_at=NOW + MICROSECOND)
    await queue(storage, *mails, late)
    ages = [(NOW - found.created_at) // SECOND for found in await claim(storage, 4)]
    assert ages == [9, 7, 5, 3]
    assert [(NOW - found.created_at) // SECOND for found in await claim(storage)] == [1, 0]
    assert await claim(storage) == []


async def test_a_lease_that_ends_makes_a_mail_due_again(storage: Postgres) -> None:
    await queue(storage, mail())
    [first] = await claim(storage)
    assert await claim(storage, now=NOW + HOUR - MICROSECOND) == []
    [second] = await claim(storage, now=NOW + HOUR)
    assert (first.claims, second.claims, second.attempts) == (1, 2, 0)


async def test_no_two_claims_get_the_same_mail(storage: Postgres) -> None:
    await queue(storage, *(mail() for _ in range(40)))
    claimed = await everyone(8, lambda _: claim(storage, 7))
    ids = [found.id for some in claimed for found in some]
    assert len(ids) == len(set(ids)) == 40
    assert max(len(some) for some in claimed) <= 7


async def test_a_claim_does_not_wait_for_another(storage: Postgres) -> None:
    await queue(storage, mail(), mail())
    async with storage.transaction(by=SYSTEM) as tx:
        assert len(await tx.mails.claim(NOW, NOW + HOUR, 1)) == 1
        assert len(await in_another_task(lambda: claim(storage))) == 1


async def test_a_token_is_kept_sealed(storage: Postgres, pool: Pool) -> None:
    queued, other = mail(), mail()
    await queue(storage, queued, other)
    await within(storage, lambda tx: tx.mails.keep_token(queued.id, "the token", NOW))
    stored = dict(await rows(pool, "select id, token from mails"))
    assert b"the token" not in stored[queued.id]
    assert stored[other.id] is None
    # In another row it opens nothing.
    await run_sql(pool, "update mails set token = %s where id = %s", stored[queued.id], other.id)
    tokens = {found.id: found.token for found in await claim(storage)}
    assert tokens == {queued.id: "the token", other.id: None}


@pytest.mark.parametrize(("outcome", "attempts"), [(Outcome.SENT, 1), (Outcome.GIVEN_UP, 1), (Outcome.DROPPED, 0)])
async def test_a_mail_that_is_done_with_keeps_no_token_and_comes_no_more(
    storage: Postgres, pool: Pool, outcome: Outcome, attempts: int
) -> None:
    queued, other = mail(), mail()
    await queue(storage, queued, other)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.mails.keep_token(queued.id, "t", NOW)
        await tx.mails.keep_token(other.id, "t", NOW)
        await tx.mails.finish(queued.id, outcome, NOW, reason="because")
        await tx.mails.finish(queued.id, Outcome.SENT, NOW + HOUR)  # the first outcome stands
    query = "select finished_at, outcome, token, attempts, last_failure from mails where id = %s"
    assert await rows(pool, query, queued.id) == [(NOW, outcome, None, attempts, "because")]
    [left] = await claim(storage)
    assert (left.id, left.token) == (other.id, "t")


async def test_a_failed_attempt_is_counted_and_put_off(storage: Postgres, pool: Pool) -> None:
    await queue(storage, mail(), other := mail(due_at=NOW + HOUR))
    [claimed] = await claim(storage)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.mails.postpone(claimed, NOW + 5 * SECOND, "421 try later")
    query = "select attempts, due_at, last_failure, finished_at from mails where id = %s"
    assert await rows(pool, query, claimed.id) == [(1, NOW + 5 * SECOND, "421 try later", None)]
    assert await rows(pool, query, other.id) == [(0, NOW + HOUR, None, None)]
    [again] = await claim(storage, now=NOW + 5 * SECOND)
    assert (again.attempts, again.claims) == (1, 2)


async def test_whoever_lost_its_lease_puts_nothing_off(storage: Postgres, pool: Pool) -> None:
    await queue(storage, mail())
    [stale] = await claim(storage)
    [current] = await claim(storage, now=NOW + HOUR)
    await within(storage, lambda tx: tx.mails.postpone(stale, NOW + DAY, "late news"))
    assert await rows(pool, "select due_at, attempts from mails") == [(current.due_at, 0)]


async def test_the_limit_per_recipient_counts_tokens_that_were_made(storage: Postgres) -> None:
    mails = [mail(), mail(), mail(), mail(address=EVE)]
    await queue(storage, *mails)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.mails.keep_token(mails[0].id, "t", NOW - HOUR)
        await tx.mails.keep_token(mails[1].id, "t", NOW - HOUR + MICROSECOND)
        await tx.mails.keep_token(mails[3].id, "t", NOW)
        await tx.mails.finish(mails[1].id, Outcome.SENT, NOW)  # sent ones count as well
        assert await tx.mails.token_mails_since(ADA, NOW - HOUR) == 1
        assert await tx.mails.token_mails_since(ADA, NOW - HOUR - MICROSECOND) == 2
        assert await tx.mails.token_mails_since(EVE, NOW - HOUR) == 1
        assert await tx.mails.token_mails_since(Email("nobody@example.com"), NOW - HOUR) == 0


async def test_mailers_are_woken_when_the_transaction_commits(storage: Postgres, conninfo: str) -> None:
    listening = await connect(conninfo, timeout=5.0)
    try:
        await listening.execute("listen mails")
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 (what comes before the error is the point)
            async with storage.transaction(by=SYSTEM) as tx:
                await tx.mails.queue(mail())
                raise ZeroDivisionError
        await queue(storage, mail(), mail())
        heard = [note.channel async for note in listening.notifies(timeout=1.0, stop_after=1)]
        assert heard == ["mails"]
    finally:
        await listening.close()


# Signing keys


async def test_every_field_of_a_signing_key_comes_back_newest_first(storage: Postgres, pool: Pool) -> None:
    old, new = SigningKey("old", b"old pem", NOW - DAY, None), SigningKey("new", b"new pem", NOW, None)
    async with storage.transaction(by=SYSTEM) as tx:
        assert not await tx.signing_keys.has_active()
        await tx.signing_keys.add(old)
        assert await tx.signing_keys.has_active()
        await tx.signing_keys.retire_all(NOW + HOUR)
        assert not await tx.signing_keys.has_active()
        await tx.signing_keys.add(new)
    async with storage.reading() as read:
        assert await read.signing_keys.live(NOW) == [new, replace(old, retires_at=NOW + HOUR)]
        assert await read.signing_keys.live(NOW + HOUR - MICROSECOND) == [new, replace(old, retires_at=NOW + HOUR)]
        assert await read.signing_keys.live(NOW + HOUR) == [new]
    sealed = await rows(pool, "select private_key from signing_keys")
    assert all(b"pem" not in bytes(value) for (value,) in sealed)


async def test_there_is_one_active_key(storage: Postgres) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.add(SigningKey("one", b"pem", NOW, None))
    with pytest.raises(psycopg.errors.UniqueViolation):
        await within(storage, lambda tx: tx.signing_keys.add(SigningKey("two", b"pem", NOW, None)))


async def test_retiring_again_does_not_extend_a_key(storage: Postgres) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.add(SigningKey("one", b"pem", NOW, None))
        await tx.signing_keys.retire_all(NOW + HOUR)
        await tx.signing_keys.retire_all(NOW + DAY)
        assert await tx.signing_keys.live(NOW + HOUR) == []


async def test_keys_are_rotated_by_one_at_a_time_while_others_still_read(storage: Postgres) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.signing_keys.lock()
        await tx.signing_keys.add(SigningKey("one", b"pem", NOW, None))

        async def read() -> list[SigningKey]:
            async with storage.reading() as read:
                return await read.signing_keys.live(NOW)

        assert await in_another_task(read) == []

    inside = 0

    async def rotate(_: int) -> int:
        nonlocal inside
        async with storage.transaction(by=SYSTEM) as tx:
            await tx.signing_keys.lock()
            inside += 1
            most = inside
            await tx.signing_keys.has_active()
            inside -= 1
            return most

    assert await everyone(6, rotate) == [1] * 6


async def test_all_processes_hear_of_a_new_key(storage: Postgres, conninfo: str) -> None:
    listening = await connect(conninfo, timeout=5.0)
    try:
        await listening.execute("listen signing_keys")
        await within(storage, lambda tx: tx.signing_keys.add(SigningKey("one", b"pem", NOW, None)))
        assert [note.channel async for note in listening.notifies(timeout=1.0, stop_after=1)] == ["signing_keys"]
    finally:
        await listening.close()


# Events and the audit log

PERSON = Person(
    user_id=UUID(int=1),
    email=ADA,
    session_id=UUID(int=2),
    impersonator_id=UUID(int=3),
    address="203.0.113.9",
    agent="tests",
)
AUDIT = (
    "select org_id, action, target_type, target_id, actor_id, impersonator_id, address, agent, success, details, created_at from audit_log"
)
TOLD = "select org_id, name, actor_id, impersonator_id, target_id, data, created_at from events"


async def test_every_field_of_an_event_is_recorded(storage: Postgres, pool: Pool, clock: FakeClock) -> None:
    org = await add_organization(pool, "acme")
    await add_organization(pool, "twin")
    kind = events.CATALOGUE["service.created"]
    event = events.Event(kind, "service-1", org_id=org, details={"name": "Shop"}, data={"x": [1]})
    async with storage.transaction(by=PERSON) as tx:
        await tx.record(event)
    now = clock.now()
    assert await rows(pool, AUDIT) == [
        (org, "service.created", "service", "service-1", UUID(int=1), UUID(int=3), "203.0.113.9", "tests", True, {"name": "Shop"}, now)
    ]
    assert await rows(pool, TOLD) == [(org, "service.created", UUID(int=1), UUID(int=3), "service-1", {"x": [1]}, now)]


async def test_an_event_of_the_service_has_no_actor(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.record(events.Event(events.CATALOGUE["invitation.expired"], "x", org_id=org))
    assert await rows(pool, "select actor_id, impersonator_id, address, agent from audit_log") == [(None, None, None, None)]


async def test_what_concerns_a_person_is_told_to_each_of_their_organizations(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    one, two, other = [await add_organization(pool, slug) for slug in ("one", "two", "other")]
    for org in (one, two):
        await join(pool, org, ada.id)
    await join(pool, other, eve.id)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.record(events.password_changed(ada.id, "reset"))
    assert {row[0] for row in await rows(pool, AUDIT)} == {row[0] for row in await rows(pool, TOLD)} == {one, two}
    assert len(await rows(pool, AUDIT)) == len(await rows(pool, TOLD)) == 2


async def test_a_named_organization_goes_before_those_of_the_person(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    one, two = [await add_organization(pool, slug) for slug in ("one", "two")]
    await join(pool, one, ada.id)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.record(events.Event(events.CATALOGUE["user.removed"], str(ada.id), org_id=two, of_person=ada.id))
    assert [row[0] for row in await rows(pool, AUDIT)] == [two]


async def test_what_concerns_no_organization_goes_into_the_platforms_own_log(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.record(events.password_changed(ada.id, "set"))
    assert [(row[0], row[1]) for row in await rows(pool, AUDIT)] == [(None, "security.password.changed")]
    assert [row[0] for row in await rows(pool, TOLD)] == [None]


async def test_an_event_that_is_no_audit_action_is_told_only(storage: Postgres, pool: Pool) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.record(events.signed_up(uuid4()))
    assert await rows(pool, AUDIT) == []
    assert [row[1] for row in await rows(pool, TOLD)] == ["user.signup.success"]


async def test_a_record_goes_with_its_transaction(storage: Postgres, pool: Pool) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (what comes before the error is the point)
        async with storage.transaction(by=SYSTEM) as tx:
            await tx.record(events.password_changed(uuid4(), "set"))
            raise ZeroDivisionError
    assert await rows(pool, AUDIT) == await rows(pool, TOLD) == []


# Figures and leases


async def test_figures_count_accounts_that_are_active(storage: Postgres, pool: Pool) -> None:
    await add(
        storage,
        account(),
        account(EVE, email_verified_at=None),
        account("c@example.com", deactivated_at=NOW),
        account("d@example.com", anonymized_at=NOW),
    )
    for slug, status in (("one", "active"), ("two", "pending"), ("three", "suspended")):
        await add_organization(pool, slug, status)
    await run_sql(pool, "update users set mfa_enabled_at = %s where email <> %s", NOW, EVE)
    async with storage.reading() as read:
        assert await read.platform.figures() == Figures(active_users=2, organizations=3, mfa_enabled_users=1)


async def test_due_work_is_what_could_start_now(storage: Postgres) -> None:
    await queue(storage, mail(), mail(due_at=NOW), mail(due_at=NOW + MICROSECOND), done := mail())
    await within(storage, lambda tx: tx.mails.finish(done.id, Outcome.SENT, NOW))
    async with storage.reading() as read:
        assert await read.platform.due_jobs(NOW) == 2


async def test_a_lease_has_one_holder_until_it_ends(storage: Postgres) -> None:
    one, two = uuid4(), uuid4()

    async def take(holder: UUID, now: datetime, name: str = "work") -> bool:
        return await within(storage, lambda tx: tx.leases.take(name, holder, now, now + HOUR))

    assert await take(one, NOW)
    assert not await take(two, NOW)
    assert await take(two, NOW, "other work")
    assert await take(one, NOW + HOUR - SECOND)  # extended ...
    assert not await take(two, NOW + HOUR)  # ... so it has not ended yet
    assert await take(two, NOW + 2 * HOUR - SECOND)
    assert not await take(one, NOW + 2 * HOUR)


async def test_of_ten_who_want_a_lease_one_gets_it(storage: Postgres) -> None:
    taken = await everyone(10, lambda _: within(storage, lambda tx: tx.leases.take("work", uuid4(), NOW, NOW + HOUR)))
    assert sum(taken) == 1
    again = await everyone(10, lambda _: within(storage, lambda tx: tx.leases.take("work", uuid4(), NOW + HOUR, NOW + DAY)))
    assert sum(again) == 1


# Housekeeping


async def fill_for_sweeping(storage: Postgres, pool: Pool, old: datetime, fresh: datetime) -> None:
    """In every table one row that is past its use at `old`, and one that is not before `fresh`."""
    await add(storage, ada := account())
    async with storage.transaction(by=SYSTEM) as tx:
        for when in (old, fresh):
            await tx.one_time_tokens.add(digest(str(when)), Purpose.VERIFY_EMAIL, ada.id, ADA, created_at=NOW, expires_at=when)
            await tx.sessions.begin(session(ada.id, expires_at=when, ends_at=fresh), digest(f"expires {when}"))
            await tx.sessions.begin(ended := session(ada.id, expires_at=fresh + DAY, ends_at=fresh + DAY), digest(f"ends {when}"))
            await tx.sessions.end(ended.id, when)
            await tx.signing_keys.add(SigningKey(str(when), b"pem", NOW, None))
            await tx.signing_keys.retire_all(when)
            done = mail()
            await tx.mails.queue(done)
            await tx.mails.finish(done.id, Outcome.SENT, when)
            await tx.accounts.add(account(f"unverified-{when.microsecond}@example.com", email_verified_at=None, created_at=when))
        await tx.mails.queue(mail())
        await tx.signing_keys.add(SigningKey("active", b"pem", NOW, None))
    for when in (old, fresh):
        await run_sql(pool, "insert into rates values (%s, '{}', 0, %s)", str(when), when)
        await run_sql(pool, "insert into guesses values ('password', %s, 1, false, %s, null, %s)", str(when).encode(), NOW, when)
        await run_sql(pool, "insert into events values (%s, null, 'x', null, null, 'x', '{}', %s)", uuid4(), when)


SWEPT_TABLES = {
    "one_time_tokens": ("one_time_tokens", 1),
    "signing_keys": ("signing_keys", 1),
    "sessions": ("sessions", 2),
    "rates": ("rates", 1),
    "guesses": ("guesses", 1),
    "mails": ("mails", 1),
    "events": ("events", 1),
    "unverified_accounts": ("users", 1),
}


def test_every_sweep_is_tested() -> None:
    assert SWEPT_TABLES.keys() == SWEEPS.keys()


@pytest.mark.parametrize("what", SWEPT_TABLES)
async def test_a_sweep_takes_what_was_past_its_use_and_nothing_else(storage: Postgres, pool: Pool, what: str) -> None:
    await fill_for_sweeping(storage, pool, NOW - MICROSECOND, NOW)
    table, expected = SWEPT_TABLES[what]
    counted = sql.SQL("select count(*) from {}").format(sql.Identifier(table))

    async def count() -> int:
        async with pool.connection() as connection:
            return int((await (await connection.execute(counted)).fetchall())[0][0])

    before = await count()
    assert await within(storage, lambda tx: tx.housekeeping.sweep(what, NOW, 100)) == expected
    assert await count() == before - expected
    assert await within(storage, lambda tx: tx.housekeeping.sweep(what, NOW, 100)) == 0
    assert await within(storage, lambda tx: tx.housekeeping.sweep(what, NOW + 2 * DAY, 1)) == 1


async def test_a_swept_session_takes_its_refresh_tokens_along(storage: Postgres, pool: Pool) -> None:
    ada = await add(storage, account())
    await begin(storage, ada.id, "old", expires_at=NOW - DAY)
    kept = await begin(storage, ada.id, "kept")
    await within(storage, lambda tx: tx.sessions.rotate(digest("kept"), digest("next"), NOW, NOW + DAY))
    await within(storage, lambda tx: tx.housekeeping.sweep("sessions", NOW, 100))
    # A rotated token stays as long as its session: its reuse must be recognised (security.md N-9).
    assert set(await rows(pool, "select session_id, generation from refresh_tokens")) == {(kept.id, 1), (kept.id, 2)}


async def test_only_accounts_that_never_proved_anything_are_purged(storage: Postgres, pool: Pool) -> None:
    """Self-registered with a password, never verified, without membership (security.md A-7)."""
    old = {"email_verified_at": None, "created_at": NOW - 8 * DAY}
    org = await add_organization(pool, "acme")
    kept = {
        "verified": account("verified@example.com", created_at=NOW - 8 * DAY),
        "young": account("young@example.com", email_verified_at=None, created_at=NOW - 6 * DAY),
        "member": account("member@example.com", **old),
        "owner": account("owner@example.com", **old, is_platform_owner=True),
        "scim": account("scim@example.com", **old, origin=Origin.SCIM, origin_org_id=org),
        "api": account("api@example.com", **old, origin=Origin.API_KEY, origin_org_id=org),
        "sign-up": account("sign-up@example.com", **old, origin=Origin.SIGN_UP, origin_org_id=org),
        "passwordless": account("passwordless@example.com", **old, password_hash=None),
    }
    await add(storage, *kept.values(), account("never@example.com", **old))
    await join(pool, org, kept["member"].id)
    assert await within(storage, lambda tx: tx.housekeeping.sweep("unverified_accounts", NOW - 7 * DAY, 100)) == 1
    assert {email for (email,) in await rows(pool, "select email from users")} == {one.email for one in kept.values()}


async def test_whoever_changed_a_verified_address_is_not_purged(storage: Postgres, pool: Pool) -> None:
    """The account was proved once; that its new address is not yet proved must not cost it (security.md A-7, A-9)."""
    ada = await add(storage, account(created_at=NOW - 400 * DAY, email_verified_at=NOW - 399 * DAY))
    await within(storage, lambda tx: tx.accounts.change_email(ada.id, EVE, NOW - HOUR))
    assert await within(storage, lambda tx: tx.housekeeping.sweep("unverified_accounts", NOW - 7 * DAY, 100)) == 0
    assert await rows(pool, "select email from users") == [(EVE,)]


async def test_a_sweep_leaves_alone_what_somebody_is_using(storage: Postgres, pool: Pool) -> None:
    await add(storage, *(account(f"{number}@example.com", email_verified_at=None, created_at=NOW - 8 * DAY) for number in range(3)))
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.accounts.lock_by_email(Email("1@example.com"))
        swept = await in_another_task(lambda: within(storage, lambda tx: tx.housekeeping.sweep("unverified_accounts", NOW, 100)))
    assert swept == 2
    assert await rows(pool, "select email from users") == [("1@example.com",)]


@pytest.mark.slow
async def test_housekeeping_takes_everything_in_bounded_batches(
    ports: Ports, storage: Postgres, pool: Pool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[tuple[str, int]] = []
    swept = type((await _open(storage)).housekeeping).sweep

    async def watched(self: Any, what: str, before: datetime, limit: int) -> int:
        count = await swept(self, what, before, limit)
        assert count <= limit
        limits.append((what, count))
        return count

    monkeypatch.setattr(type((await _open(storage)).housekeeping), "sweep", watched)
    monkeypatch.setattr(housekeeping, "BATCH", 10)
    await run_sql(
        pool,
        "insert into events select gen_random_uuid(), null, 'x', null, null, 'x', '{}', %s from generate_series(1, 35)",
        NOW - 31 * DAY,
    )
    await run_sql(pool, "insert into events values (gen_random_uuid(), null, 'fresh', null, null, 'x', '{}', %s)", clock.now())
    await run_sql(pool, "insert into rates select n::text, '{}', 0, %s from generate_series(1, 10) n", NOW - DAY)
    assert await housekeeping.sweep(ports, uuid4()) == {"rates": 10, "events": 35}
    assert [count for what, count in limits if what == "events"] == [10, 10, 10, 5]
    assert [count for what, count in limits if what == "rates"] == [10, 0]
    assert await rows(pool, "select name from events") == [("fresh",)]
    assert {what for what, _ in limits} == SWEEPS.keys()


async def _open(storage: Postgres) -> Transaction:
    async with storage.transaction(by=SYSTEM) as tx:
        return tx


@pytest.mark.slow
async def test_only_one_process_sweeps(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    one, two = uuid4(), uuid4()
    assert await housekeeping.sweep(ports, one) == {}
    assert await housekeeping.sweep(ports, two) is None
    assert await housekeeping.sweep(ports, one) == {}
    clock.advance(housekeeping.LEASE)
    assert await housekeeping.sweep(ports, two) == {}
    assert await housekeeping.sweep(ports, one) is None


@pytest.mark.slow
async def test_of_five_processes_at_once_one_sweeps(ports: Ports, pool: Pool) -> None:
    await run_sql(pool, "insert into rates select n::text, '{}', 0, %s from generate_series(1, 50) n", NOW - DAY)
    results = await everyone(5, lambda _: housekeeping.sweep(ports, uuid4()))
    assert sorted(results, key=str) == sorted([{"rates": 50}, None, None, None, None], key=str)


@pytest.mark.slow
async def test_housekeeping_keeps_what_is_still_needed(ports: Ports, storage: Postgres, pool: Pool, clock: FakeClock) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "token")
    await within(storage, lambda tx: tx.sessions.end(begun.id, NOW))
    young = account("young@example.com", email_verified_at=None, created_at=NOW)
    await add(storage, young)
    await within(storage, lambda tx: tx.logins.succeeded(ada.id, begun.id, "password", NOW - 1000 * DAY, None, None))
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.record(events.password_changed(ada.id, "set"))
    clock.advance(23 * HOUR)
    assert await housekeeping.sweep(ports, uuid4()) == {}
    clock.advance(2 * HOUR)
    assert await housekeeping.sweep(ports, uuid4()) == {"sessions": 1}  # reuse of its tokens was recognised for a day
    clock.advance(ports.policy.unverified_purge)
    assert await housekeeping.sweep(ports, uuid4()) == {"unverified_accounts": 1}
    clock.advance(400 * DAY)
    await housekeeping.sweep(ports, uuid4())
    assert await rows(pool, "select count(*) from login_events") == await rows(pool, "select count(*) from audit_log") == [(1,)]


# Sealed values


async def test_every_sealed_value_comes_under_the_new_key(
    ports: Ports, pool: Pool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "BATCH", 3)
    old, new = ("old", bytes(range(32))), ("new", bytes(range(32, 64)))
    before, both, after = [replace(ports, storage=Postgres(pool, AesVault(keys), clock)) for keys in ([old], [new, old], [new])]
    await run_sql(pool, "delete from signing_keys")
    mails = [mail() for _ in range(8)]
    async with before.storage.transaction(by=SYSTEM) as tx:
        for number in range(4):
            await tx.signing_keys.add(SigningKey(f"key {number}", b"pem %d" % number, NOW + number * SECOND, None))
            await tx.signing_keys.retire_all(NOW + DAY)
        for number, one in enumerate(mails):
            await tx.mails.queue(one)
            if number != 5:
                await tx.mails.keep_token(one.id, f"token {number}", NOW)
    async with both.storage.transaction(by=SYSTEM) as tx:
        await tx.mails.keep_token(mails[0].id, "already new", NOW)
    assert await housekeeping.reencrypt(both) == 4 + 6
    assert await housekeeping.reencrypt(both) == 0
    assert await housekeeping.reencrypt(after) == 0
    async with after.storage.reading() as read:
        assert [key.private_key for key in await read.signing_keys.live(NOW)] == [b"pem 3", b"pem 2", b"pem 1", b"pem 0"]
    async with after.storage.transaction(by=SYSTEM) as tx:
        tokens = {found.id: found.token for found in await tx.mails.claim(NOW, NOW + HOUR, 100)}
    expected = {one.id: f"token {number}" for number, one in enumerate(mails)}
    assert tokens == {**expected, mails[0].id: "already new", mails[5].id: None}


async def test_every_column_that_is_sealed_is_known(pool: Pool) -> None:
    """Whoever adds a column of bytes says here whether `keys reencrypt` must know it."""
    from adapters.postgres.sealed import SEALED

    columns = await rows(
        pool,
        "select table_name::text, column_name::text from information_schema.columns where table_schema = 'public' and data_type = 'bytea'",
    )
    hashes = {("refresh_tokens", "token_hash"), ("one_time_tokens", "token_hash"), ("guesses", "subject")}
    assert set(columns) - hashes == {(known.table, known.column) for known in SEALED}


# Rates

LOGIN, AUTH = Bucket("login", 6.0, 10), Bucket("auth", 1.0, 20)


async def charge(storage: Postgres, client: str, *buckets: Bucket, at: float = 0.0) -> float:
    async with storage.counting() as count:
        return await count.rates.charge(client, buckets, NOW + timedelta(seconds=at))


async def test_a_bucket_gives_its_burst_and_then_its_rate(storage: Postgres) -> None:
    bucket = Bucket("x", 10.0, 3)
    assert [await charge(storage, "a", bucket) for _ in range(3)] == [0.0] * 3
    assert [await charge(storage, "a", bucket) for _ in range(3)] == [pytest.approx(10.0, abs=1e-5)] * 3
    assert await charge(storage, "a", bucket, at=4.0) == pytest.approx(6.0, abs=1e-5)
    assert await charge(storage, "a", bucket, at=9.999) > 0
    assert await charge(storage, "a", bucket, at=10.0) == 0
    assert await charge(storage, "a", bucket, at=10.0) == pytest.approx(10.0, abs=1e-5)
    assert [await charge(storage, "a", bucket, at=1000.0) == 0 for _ in range(4)] == [True, True, True, False]


async def test_a_bucket_of_one(storage: Postgres) -> None:
    bucket = Bucket("x", 0.5, 1)
    assert await charge(storage, "a", bucket) == 0
    assert await charge(storage, "a", bucket) == pytest.approx(0.5, abs=1e-5)
    assert await charge(storage, "a", bucket, at=0.5) == 0


async def test_all_buckets_or_none(storage: Postgres) -> None:
    narrow, wide = Bucket("narrow", 60.0, 1), Bucket("wide", 1.0, 3)
    assert await charge(storage, "a", narrow, wide) == 0
    for _ in range(5):
        assert await charge(storage, "a", narrow, wide) == pytest.approx(60.0, abs=1e-5)
    assert [await charge(storage, "a", wide) == 0 for _ in range(3)] == [True, True, False]
    # Both are empty now: the longest wait is told, in whichever order they come.
    for buckets in ((narrow, wide), (wide, narrow)):
        assert await charge(storage, "a", *buckets) == pytest.approx(60.0, abs=1e-5)


async def test_clients_and_buckets_do_not_share(storage: Postgres) -> None:
    bucket = Bucket("x", 10.0, 1)
    assert await charge(storage, "a", bucket) == 0
    assert await charge(storage, "b", bucket) == 0
    assert await charge(storage, "a", Bucket("y", 10.0, 1)) == 0
    assert await charge(storage, "a", bucket) > 0
    assert await charge(storage, "b", bucket) > 0


@pytest.mark.parametrize("behind", [0.5, 3600.0])
async def test_a_clock_that_runs_behind_does_not_give_more(storage: Postgres, behind: float) -> None:
    bucket = Bucket("x", 10.0, 2)
    assert [await charge(storage, "a", bucket) for _ in range(2)] == [0.0] * 2
    assert await charge(storage, "a", bucket, at=-behind) == pytest.approx(10.0 + behind, abs=1e-5)


@pytest.mark.slow
async def test_parallel_charges_admit_exactly_the_burst(storage: Postgres) -> None:
    waits = await everyone(40, lambda _: charge(storage, "a", LOGIN, AUTH))
    assert sum(wait == 0 for wait in waits) == 10
    waits = await everyone(40, lambda _: charge(storage, "a", AUTH))
    assert sum(wait == 0 for wait in waits) == 10


@pytest.mark.slow
async def test_parallel_charges_of_different_buckets_and_clients_do_not_deadlock(storage: Postgres) -> None:
    buckets = [(LOGIN, AUTH), (AUTH, LOGIN), (AUTH,)]
    waits = await everyone(60, lambda number: charge(storage, f"client {number % 4}", *buckets[number % 3]))
    assert all(wait >= 0 and math.isfinite(wait) for wait in waits)


async def test_a_bucket_that_is_full_again_can_be_swept(storage: Postgres, pool: Pool) -> None:
    await charge(storage, "a", LOGIN, AUTH)
    await charge(storage, "a", AUTH)
    [(expires_at,)] = await rows(pool, "select expires_at from rates")
    assert expires_at == pytest.approx(NOW + 6 * SECOND, abs=MICROSECOND * 10)
    assert await within(storage, lambda tx: tx.housekeeping.sweep("rates", NOW + 5 * SECOND, 10)) == 0
    assert await within(storage, lambda tx: tx.housekeeping.sweep("rates", NOW + 7 * SECOND, 10)) == 1


# Guesses

ALLOWANCE = Allowance(limit=3, window=timedelta(minutes=15))


async def guess(
    storage: Postgres, subject: bytes = b"ada", at: timedelta = timedelta(), allowance: Allowance = ALLOWANCE
) -> datetime | None:
    async with storage.counting() as count:
        return await count.guesses.charge(Secret.PASSWORD, subject, allowance, NOW + at)


async def test_the_guess_after_the_limit_waits_and_each_later_one_longer(storage: Postgres) -> None:
    assert [await guess(storage) for _ in range(3)] == [None] * 3
    at = timedelta()
    for seconds in (30, 60, 120, 240, 480, 900, 900, 900):
        wait = timedelta(seconds=seconds)
        for early in (timedelta(), wait - MICROSECOND):
            assert await guess(storage, at=at + early) == NOW + at + wait
        at += wait
        assert await guess(storage, at=at) is None


async def test_a_refused_guess_counts_nothing(storage: Postgres) -> None:
    for _ in range(3):
        await guess(storage)
    for _ in range(50):
        assert await guess(storage) == NOW + timedelta(seconds=30)
    assert await guess(storage, at=timedelta(seconds=30)) is None
    assert await guess(storage, at=timedelta(seconds=30)) == NOW + timedelta(seconds=90)


async def test_the_window_begins_with_the_first_guess(storage: Postgres) -> None:
    await guess(storage)
    for minutes in (14, 14):
        assert await guess(storage, at=timedelta(minutes=minutes)) is None
    assert await guess(storage, at=timedelta(minutes=14, seconds=1)) is not None


async def test_a_new_window_forgets(storage: Postgres) -> None:
    for minutes in (0, 15, 30):
        assert [await guess(storage, at=timedelta(minutes=minutes)) for _ in range(2)] == [None] * 2


async def test_after_a_block_a_quiet_window_forgets(storage: Postgres) -> None:
    for _ in range(3):
        await guess(storage)
    quiet = timedelta(seconds=30) + ALLOWANCE.window
    assert [await guess(storage, at=quiet) for _ in range(3)] == [None] * 3
    assert await guess(storage, at=quiet) == NOW + quiet + timedelta(seconds=30)


async def test_a_limit_of_one(storage: Postgres) -> None:
    allowance = Allowance(limit=1, window=HOUR)
    assert await guess(storage, allowance=allowance) is None
    assert await guess(storage, allowance=allowance) == NOW + timedelta(seconds=30)


async def test_subjects_do_not_share_and_clearing_forgets_one(storage: Postgres) -> None:
    for subject in (b"ada", b"eve"):
        for _ in range(3):
            assert await guess(storage, subject) is None
        assert await guess(storage, subject) is not None
    async with storage.counting() as count:
        await count.guesses.clear(Secret.PASSWORD, b"ada")
        await count.guesses.clear(Secret.PASSWORD, b"nobody")
    assert await guess(storage, b"ada") is None
    assert await guess(storage, b"eve") is not None


@pytest.mark.slow
async def test_parallel_guesses_lose_no_count(storage: Postgres, pool: Pool) -> None:
    outcomes = await everyone(40, lambda _: guess(storage, allowance=Allowance(10, HOUR)))
    assert outcomes.count(None) == 10
    assert await rows(pool, "select failures from guesses") == [(10,)]


async def test_counters_are_swept_only_when_they_say_nothing_any_more(storage: Postgres) -> None:
    for _ in range(3):
        await guess(storage)
    # Blocked for at most a quarter of an hour, and remembered for a window more.
    later = timedelta(minutes=15) + ALLOWANCE.window
    assert await within(storage, lambda tx: tx.housekeeping.sweep("guesses", NOW + later, 10)) == 0
    assert await within(storage, lambda tx: tx.housekeeping.sweep("guesses", NOW + later + SECOND, 10)) == 1


def test_the_defaults_are_those_of_the_rules() -> None:
    policy, allowance = Policy(), Allowance(10, timedelta(minutes=15))
    assert (policy.account_guess_limit, policy.guess_window) == (10, timedelta(minutes=15))
    assert (allowance.first_wait, allowance.longest_wait) == (timedelta(seconds=30), timedelta(minutes=15))
    assert (policy.access_token_ttl, policy.refresh_token_ttl, policy.session_absolute_ttl) == (timedelta(seconds=900), 30 * DAY, 90 * DAY)
    assert (policy.refresh_grace, policy.verification_ttl, policy.reset_ttl) == (10 * SECOND, 24 * HOUR, HOUR)
    assert (policy.mails_per_recipient, policy.unverified_purge, policy.common_passwords) == (5, 7 * DAY, frozenset())


# Lock order (security.md Z-6)


@pytest.mark.slow
async def test_everything_at_once_on_two_accounts_ends_without_a_deadlock(ports: Ports, sent: FakeMailTransport, pool: Pool) -> None:
    """Whoever takes its locks in another order than account, tokens, sessions is found here as StorageDown (a deadlock is one)."""
    people = [await add_account(ports), await add_account(ports, EVE)]
    pairs = [await sessions.login(ports, SYSTEM, person.email, PASSWORD) for person in people for _ in range(4)]
    callers = [await sessions.authenticate(ports, pair.access_token, address=None, agent=None) for pair in pairs]
    for person in people:
        await accounts.forgot_password(ports, SYSTEM, person.email)
    await deliver(ports)
    resets = [link(letter) for letter in sent.letters]
    holder = uuid4()

    def acts(person: int, number: int) -> Awaitable[object]:
        caller, pair = callers[4 * person + number % 4], pairs[4 * person + number % 4]
        match number % 9:
            case 0:
                return sessions.refresh(ports, SYSTEM, pair.refresh_token)
            case 1:
                return sessions.logout(ports, caller)
            case 2:
                return sessions.login(ports, SYSTEM, people[person].email, PASSWORD)
            case 3:
                return accounts.change_password(ports, caller, PASSWORD, f"another password {number}")
            case 4:
                return accounts.reset_password(ports, SYSTEM, resets[person], f"reset password {number}")
            case 5:
                return accounts.change_email(ports, caller, Email(f"changed-{person}-{number}@example.com"))
            case 6:
                return accounts.forgot_password(ports, SYSTEM, people[person].email)
            case 7:
                return deliver(ports)
            case _:
                return housekeeping.sweep(ports, holder)

    async def act(number: int) -> BaseException | None:
        try:
            await acts(number % 2, number // 2)
        except (Refusal, Outage, psycopg.Error) as error:
            return error
        return None

    for _ in range(3):
        outcomes = await everyone(36, act)
        assert [outcome for outcome in outcomes if outcome is not None and not isinstance(outcome, Refusal)] == []
    query = "select count(*) from refresh_tokens t join sessions s on s.id = t.session_id where rotated_at is null group by s.id"
    assert set(await rows(pool, query)) == {(1,)}
