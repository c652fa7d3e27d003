"""Sample rows and times for the repository tests."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import trio
import trio.testing
from psycopg import sql

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres, Transaction
from core.accounts.model.accounts import Account, AccountOrigin
from core.accounts.model.email_queue import EmailKind, QueuedEmail
from core.authentication.model.login import LoginFailure
from core.authentication.model.sessions import Session
from core.authentication.model.sign_in_log import FailedLogin
from core.kernel.causes import SYSTEM
from core.kernel.proofs import Strength
from core.kernel.sign_in_age import LastSignIn
from core.kernel.values import Email, digest, new_id
from tests.support.waiting import eventually

T = TypeVar("T")

NOW = datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC)
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
SIGN_IN = LastSignIn(NOW - HOUR, is_proof=True, strength=Strength.ONE, required=Strength.ONE)  # what the sessions from `session` contain
ADA, EVE = Email("ada@example.com"), Email("eve@example.com")


async def within(storage: Postgres, act: Callable[[Transaction], Awaitable[T]]) -> T:
    """Run `act` in its own transaction."""
    async with storage.transaction(by=SYSTEM) as tx:
        return await act(tx)


async def in_another_task(act: Callable[[], Awaitable[T]]) -> T:
    """Run in another task, because a task can hold only a single connection."""
    results: list[T] = []

    async def run() -> None:
        results.append(await act())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
    return results[0]


async def is_locked(pool: Pool, table: str, condition: str, *parameters: object, mode: str = "for no key update") -> bool:
    """Return whether the row is locked in a way that conflicts with `mode`."""
    query = sql.SQL("select 1 from {} where {} {} skip locked").format(
        sql.Identifier(table),
        sql.SQL(condition),
        sql.SQL(mode),
    )

    async def look() -> bool:
        async with pool.connection() as connection:
            return not await (await connection.execute(query, parameters)).fetchall()

    return await in_another_task(look)


async def until_blocked(pool: Pool, count: int = 1) -> None:
    """Return as soon as `count` transactions wait for locks, which the caller may hold."""

    async def look() -> bool:
        waiting = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        async with pool.connection() as connection:
            return len(await connection.rows(waiting)) >= count

    await eventually(lambda: in_another_task(look), f"{count} transactions wait for locks")


def account(email: str = ADA, **changes: Any) -> Account:
    plain = Account(
        id=uuid4(),
        email=Email(email),
        email_verified_at=NOW,
        password_hash="hash",
        is_platform_owner=False,
        origin=AccountOrigin.PLATFORM,
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
    """Add a session with this refresh token, and return it.

    With an impersonator, it also adds the session from which the impersonation started.
    """
    new_session = session(user_id, **changes)
    if new_session.impersonator_id is not None and new_session.impersonator_session_id is None:
        behind = await begin(storage, new_session.impersonator_id, f"behind {token}")
        new_session = replace(new_session, impersonator_session_id=behind.id)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.begin(new_session, digest(token))
    return new_session


def mail(**changes: Any) -> QueuedEmail:
    plain = QueuedEmail(id=uuid4(), kind=EmailKind.RESET_PASSWORD, address=ADA, created_at=NOW - HOUR, due_at=NOW - SECOND)
    return replace(plain, **changes)


async def queue(storage: Postgres, *mails: QueuedEmail) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for one in mails:
            await tx.email_queue.add(one)


def failed_login(user_id: UUID | None, **changes: Any) -> FailedLogin:
    """Return this user's wrong password at the platform itself."""
    values: dict[str, Any] = {"reason": LoginFailure.CREDENTIALS, "provider": "password", "at": NOW}
    return FailedLogin(id=new_id(), user_id=user_id, **{**values, **changes})
