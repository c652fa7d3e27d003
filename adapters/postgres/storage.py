"""ports.storage.Storage on PostgreSQL: transactions that expose repositories, plain SQL beside its method."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

import trio

from adapters.postgres.accounts import Accounts, OneTimeTokens
from adapters.postgres.driver import Connection
from adapters.postgres.limits import Guesses, Rates
from adapters.postgres.mails import Mails
from adapters.postgres.platform import Housekeeping, Leases, Platform
from adapters.postgres.pool import Pool, translated
from adapters.postgres.records import Records
from adapters.postgres.sealed import Sealed
from adapters.postgres.sessions import Logins, Sessions
from adapters.postgres.signing_keys import SigningKeys
from core.access import Caller
from core.events import Event
from ports.crypto import Vault
from ports.observe import Clock

ROLLBACK_DEADLINE: Final = 5.0  # seconds


class Reading:
    """ports.storage.Reading."""

    __slots__ = ("accounts", "one_time_tokens", "platform", "sessions", "signing_keys")

    def __init__(self, connection: Connection, vault: Vault) -> None:
        self.accounts = Accounts(connection)
        self.one_time_tokens = OneTimeTokens(connection)
        self.sessions = Sessions(connection)
        self.signing_keys = SigningKeys(connection, vault)
        self.platform = Platform(connection)


class Counting:
    """ports.storage.Counting."""

    __slots__ = ("guesses", "logins", "rates")

    def __init__(self, connection: Connection) -> None:
        self.rates = Rates(connection)
        self.guesses = Guesses(connection)
        self.logins = Logins(connection)


class Transaction:
    """ports.storage.Transaction."""

    __slots__ = (
        "_clock",
        "_records",
        "accounts",
        "housekeeping",
        "leases",
        "logins",
        "mails",
        "one_time_tokens",
        "sealed",
        "sessions",
        "signing_keys",
    )

    def __init__(self, connection: Connection, vault: Vault, clock: Clock, by: Caller) -> None:
        self._clock = clock
        self._records = Records(connection, by)
        self.accounts = Accounts(connection)
        self.one_time_tokens = OneTimeTokens(connection)
        self.sessions = Sessions(connection)
        self.logins = Logins(connection)
        self.mails = Mails(connection, vault)
        self.signing_keys = SigningKeys(connection, vault)
        self.leases = Leases(connection)
        self.housekeeping = Housekeeping(connection)
        self.sealed = Sealed(connection, vault)

    async def record(self, event: Event) -> None:
        await self._records.add(event, self._clock.now())


class Postgres:
    """ports.storage.Storage. The vault seals the few columns that must be readable again."""

    def __init__(self, pool: Pool, vault: Vault, clock: Clock) -> None:
        self._pool = pool
        self._vault = vault
        self._clock = clock

    @asynccontextmanager
    async def transaction(self, by: Caller) -> AsyncIterator[Transaction]:
        async with self._pool.connection() as connection:
            with translated():
                await connection.begin()
            try:
                yield Transaction(connection, self._vault, self._clock, by)
            except BaseException:
                # A connection that was cancelled in mid-query is closed by then, which rolls back as well.
                with trio.move_on_after(ROLLBACK_DEADLINE, shield=True), translated():
                    if not connection.closed:
                        await connection.rollback()
                raise
            with translated():
                await connection.commit()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Reading]:
        async with self._pool.connection() as connection:
            yield Reading(connection, self._vault)

    @asynccontextmanager
    async def counting(self) -> AsyncIterator[Counting]:
        async with self._pool.connection() as connection:
            yield Counting(connection)

    async def about(self) -> tuple[int, datetime]:
        """The server's version number, such as 150004, and its clock, in UTC; for `gatehouse doctor`."""
        async with self._pool.connection() as connection:
            with translated():
                row = await connection.row("select current_setting('server_version_num')::int, clock_timestamp()")
        assert row is not None, "it always answers"
        return row[0], row[1]

    async def ping(self) -> None:
        async with self._pool.connection() as connection:
            with translated():
                await connection.row("select 1")
