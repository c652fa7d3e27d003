"""Storage on PostgreSQL: readings, transactions and statements that commit by themselves."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final

import trio

from adapters.postgres.engine.driver import Connection
from adapters.postgres.engine.pool import Lease, Pool, translated
from adapters.postgres.engine.statements import Answer, PendingSignals
from adapters.postgres.eventing import event_log
from adapters.postgres.kernel.rate_limits import take_tokens
from adapters.postgres.repositories import Repositories
from core.authentication.model.dpop import ProofUse
from core.kernel import errors, event_catalog, rate_limits
from core.kernel.callers import Person
from core.kernel.causes import Caller
from ports.crypto import Vault
from ports.observe import Clock
from ports.signals import NoSignals, Signal, Signals
from ports.storage import Transaction as TransactionPort

ROLLBACK_DEADLINE: Final = 5.0  # seconds
PING_DEADLINE: Final = 3.0  # seconds; readiness probes should get an answer soon


class Transaction(Repositories, TransactionPort):
    """Implements `ports.storage.Transaction`."""

    def __init__(
        self, connection: Connection, vault: Vault, signals: Signals, clock: Clock, by: Caller, in_session: bool, webhook_delay: timedelta
    ) -> None:
        self._pending = PendingSignals(signals)
        super().__init__(connection, vault, self._pending, webhook_delay)
        self._clock = clock
        self._caller = by
        self._in_session = in_session
        self._events: list[event_catalog.Event] = []
        self._queued: Awaitable[event_log.QueuedWork | None] | None = None

    def acts_as(self, person: Person) -> None:
        self._caller = person

    def record(self, *events: event_catalog.Event) -> None:
        self._events.extend(events)

    async def write_events(self) -> None:
        """Write the recorded events in a single statement, together with the commit, which raises SessionEnded if the session has ended."""
        if not self._events:
            return
        now = self._clock.now()
        # Lock order: the session comes after all remaining locks except the audit log's totals. So
        # there is no deadlock with a transaction that ends sessions and holds further locks. A SAML
        # sign-on locks its session itself (`SamlSignOns.lock_session`).
        if self._in_session and isinstance(self._caller, Person):
            await self.sessions.require_live(self._caller, now)
        self._queued = await event_log.EventLog(self).add(self._events, self._caller, now)

    async def commit(self) -> None:
        with translated():
            await self.connection.commit()

    async def send_signals(self) -> None:
        """Notify this process's actors about their work. Call this after the commit."""
        queued = None if self._queued is None else await self._queued
        if queued is not None and queued.deliveries:
            self._pending.send(Signal.DELIVERIES_DUE)
        if queued is not None and queued.siem_entries:
            self._pending.send(Signal.SIEM_ENTRIES_DUE)
        if any(event.kind.name == event_catalog.SIGNED_UP for event in self._events):
            self._pending.send(Signal.USER_SIGNED_UP)
        await self._pending.flush()


def _waiting_tokens() -> rate_limits.RequestTokens | None:
    """Return the tokens that wait for the current request's first query, if any."""
    tokens = rate_limits.request_tokens.get()
    return tokens if tokens is not None and tokens.join_reading and not tokens.are_taken else None


async def _take_waiting(lease: Lease, connection: Connection) -> None:
    """Take the waiting tokens before statements that can change something. Raises: Limited."""
    if (tokens := _waiting_tokens()) is not None:
        try:
            await take_tokens(connection, tokens)
        except BaseException as error:
            await lease.__aexit__(None, error, None)
            raise


class _Open:
    """A connection in autocommit mode for as long as a block runs.

    In a reading, the first statement also uses up a DPoP proof, and takes the request's tokens that wait for its first query, in the same
    round trip. When the block ends, it raises ProofReplayed or NonceKeyLost, unless it has already raised an exception. The block raises
    Limited also in place of a refusal.

    `_Open` is a class, because every request uses it and a generator would cost twice as much.
    """

    __slots__ = ("_connection", "_lease", "_proof", "_reads", "_taken", "_used", "_wrap")

    _connection: Connection
    _taken: Answer[None] | None
    _used: Awaitable[None] | None

    def __init__(self, pool: Pool, wrap: Callable[[Connection], Repositories], proof: ProofUse | None = None, *, reads: bool) -> None:
        self._lease = pool.connection()
        self._wrap = wrap
        self._reads = reads
        self._proof = proof

    async def __aenter__(self) -> Repositories:
        self._connection = connection = await self._lease.__aenter__()
        repositories = self._wrap(connection)
        if not self._reads:
            await _take_waiting(self._lease, connection)
        tokens, proof = _waiting_tokens() if self._reads else None, self._proof
        self._taken = None if tokens is None else take_tokens(connection, tokens)
        self._used = None if proof is None else repositories.dpop_proofs.use(proof)
        return repositories

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        connection = self._connection
        if self._taken is None and self._used is None and not connection.has_queue:
            await self._lease.__aexit__(kind, error, trace)
            return
        try:
            # Before an outage, an earlier round trip may have taken the tokens.
            if self._taken is not None and (
                error is None or isinstance(error, errors.Refusal) or (isinstance(error, errors.Outage) and self._taken.is_done)
            ):
                await self._taken
            if error is None:
                if self._used is not None:
                    await self._used
                if connection.has_queue:  # the block did not await the answer to its last statements
                    with translated():
                        await connection.send()
        except BaseException as raised:
            error = raised
            raise
        finally:
            connection.forget_queue()
            await self._lease.__aexit__(None, error, None)


class _OpenTransaction:
    """A transaction for as long as a block runs. The transaction is committed with its events, or rolled back if anything was raised."""

    __slots__ = ("_connection", "_lease", "_transaction", "_wrap")

    _connection: Connection
    _transaction: Transaction

    def __init__(self, pool: Pool, wrap: Callable[[Connection], Transaction]) -> None:
        self._lease = pool.connection()
        self._wrap = wrap

    async def __aenter__(self) -> Transaction:
        self._connection = await self._lease.__aenter__()
        self._transaction = self._wrap(self._connection)
        await _take_waiting(self._lease, self._connection)
        self._connection.begin()
        return self._transaction

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                await self._transaction.write_events()
                await self._transaction.commit()
                await self._transaction.send_signals()
        except BaseException as raised:
            error = raised
            raise
        finally:
            if error is not None:
                await self._roll_back()
            await self._lease.__aexit__(None, error, None)

    async def _roll_back(self) -> None:
        # If the rollback fails, the original error still goes to the caller, and the connection is
        # closed, which rolls back as well.
        with trio.move_on_after(ROLLBACK_DEADLINE, shield=True):
            try:
                with translated():
                    await self._connection.rollback()
            except errors.StorageDown:
                self._connection.finish()


class Postgres:
    """Implements `ports.storage.Storage`. The vault encrypts the few columns that must be readable again."""

    def __init__(
        self,
        pool: Pool,
        vault: Vault,
        clock: Clock,
        webhook_delay: timedelta = timedelta(),
        signals: Signals = NoSignals(),  # noqa: B008 (it has no state)
    ) -> None:
        """`webhook_delay` is the time between an event and its first delivery to webhooks."""
        self._pool = pool
        self._vault = vault
        self._clock = clock
        self._webhook_delay = webhook_delay
        self._signals = signals

    def transaction(self, by: Caller, *, in_session: bool = True) -> _OpenTransaction:
        return _OpenTransaction(
            self._pool,
            lambda connection: Transaction(connection, self._vault, self._signals, self._clock, by, in_session, self._webhook_delay),
        )

    def reading(self, *, using: ProofUse | None = None) -> _Open:
        return _Open(self._pool, self._repositories, using, reads=True)

    def autocommit(self) -> _Open:
        return _Open(self._pool, self._repositories, reads=False)

    def _repositories(self, connection: Connection) -> Repositories:
        return Repositories(connection, self._vault, self._signals, self._webhook_delay)

    async def about(self) -> tuple[int, datetime]:
        """Return the server's version number, such as 150004, and its clock in UTC, for `gatehouse doctor`."""
        async with self._pool.connection() as connection:
            with translated():
                row = await connection.row("select current_setting('server_version_num')::int, clock_timestamp()")
        assert row is not None, "a select without a table returns one row"
        return row[0], row[1]

    async def ping(self) -> None:
        try:
            with trio.fail_after(PING_DEADLINE):
                async with self._pool.connection() as connection:
                    with translated():
                        await connection.row("select 1")
        except trio.TooSlowError:
            raise errors.StorageDown from None
