"""Storage on PostgreSQL: readings, transactions and statements that commit by themselves."""

from collections.abc import Callable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final

import trio

from adapters.postgres.authentication.dpop import USE, check_use, use_parameters
from adapters.postgres.authentication.sessions import Sessions
from adapters.postgres.engine.driver import Answer, Connection
from adapters.postgres.engine.pool import Pool, translated
from adapters.postgres.engine.scope import PendingSignals
from adapters.postgres.eventing.event_log import EventLog, QueuedWork
from adapters.postgres.kernel.rate_limits import GIVE_BACK, charge_parameters, charge_sql, check_charge, refund_parameters
from adapters.postgres.repositories import Repositories
from core.kernel.callers import Person
from core.kernel.causes import Caller
from core.kernel.deferred import Deferred
from core.kernel.errors import StorageDown
from core.kernel.event_catalog import SIGNED_UP, Event
from core.kernel.rate_limits import Charge, Refund
from ports.crypto import Vault
from ports.observe import Clock
from ports.signals import NoSignals, Signal, Signals
from ports.storage import Joined

ROLLBACK_DEADLINE: Final = 5.0  # seconds
PING_DEADLINE: Final = 3.0  # seconds; readiness probes should get an answer soon


class Transaction(Repositories):
    """Implements `ports.storage.Transaction`."""

    def __init__(
        self, connection: Connection, vault: Vault, signals: Signals, clock: Clock, by: Caller, in_session: bool, webhook_delay: timedelta
    ) -> None:
        self._pending = PendingSignals(signals)
        super().__init__(connection, vault, self._pending, webhook_delay)
        self._clock = clock
        self._caller = by
        self._in_session = in_session
        self._events: list[Event] = []
        self._queued: Deferred[QueuedWork] | None = None
        self._refund: Refund | None = None

    def acts_as(self, person: Person) -> None:
        self._caller = person

    def record(self, *events: Event) -> None:
        self._events.extend(events)

    def give_back(self, refund: Refund) -> None:
        self._refund = refund

    async def send_deferred(self) -> None:
        with translated():
            await self.connection.send_pending()

    async def write_events(self) -> None:
        """Write the recorded events in one statement, together with the commit, which raises SessionEnded if the session has ended."""
        if not self._events:
            return
        now = self._clock.now()
        # Lock order: the session comes after all other locks except the totals of the audit log. So
        # there is no deadlock with a transaction that ends sessions and holds other locks. A SAML
        # sign-on locks its session itself (`SamlSignOns.lock_session_deferred`).
        if self._in_session and isinstance(self._caller, Person):
            await self.sessions.require_live(self._caller, now)
        self._queued = await EventLog(self).add(self._events, self._caller, now)

    async def commit(self) -> None:
        refund, then = self._refund, None
        if refund is not None:
            values = refund_parameters(refund.sign_in_hash, refund.charge.client, refund.buckets, self._clock.now())
            then = (GIVE_BACK, values)
        with translated(Sessions.constraints):
            await self.connection.commit(then=then)

    def send_signals(self) -> None:
        """Notify the actors of this process about their work. Call this after the commit."""
        queued = None if self._queued is None else self._queued.value
        if queued is not None and queued.deliveries:
            self._pending.send(Signal.DELIVERIES_DUE)
        if queued is not None and queued.siem_entries:
            self._pending.send(Signal.SIEM_ENTRIES_DUE)
        if any(event.kind.name == SIGNED_UP for event in self._events):
            self._pending.send(Signal.USER_SIGNED_UP)
        self._pending.flush()


class _Open:
    """A connection in autocommit mode for the length of a block.

    It is a class, because every request uses it and a generator would cost twice as much.
    """

    __slots__ = ("_lease", "_wrap")

    def __init__(self, pool: Pool, wrap: Callable[[Connection], Repositories]) -> None:
        self._lease = pool.connection()
        self._wrap = wrap

    async def __aenter__(self) -> Repositories:
        return self._wrap(await self._lease.__aenter__())

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._lease.__aexit__(kind, error, trace)


class _OpenOnce:
    """A connection as of `_Open`. Its first statement also uses up a DPoP proof, or charges rate limits, in the same round trip.

    The end of the block raises ProofReplayed, NonceKeyLost or Limited if it cannot. An exception in the block wins.
    """

    __slots__ = ("_answer", "_connection", "_lease", "_use", "_wrap")

    _connection: Connection
    _answer: Answer

    def __init__(self, pool: Pool, wrap: Callable[[Connection], Repositories], use: Joined) -> None:
        self._lease = pool.connection()
        self._wrap = wrap
        self._use = use

    async def __aenter__(self) -> Repositories:
        self._connection = await self._lease.__aenter__()
        use = self._use
        if isinstance(use, Charge):
            statement, parameters = charge_sql(len(use.buckets)), charge_parameters(use.client, use.buckets, use.at)
        else:
            statement, parameters = USE, use_parameters(use)
        self._answer = self._connection.join_next(statement, parameters)
        return self._wrap(self._connection)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                with translated():
                    await self._connection.send_pending()  # if the block had no statement
                if isinstance(self._use, Charge):
                    check_charge(self._use, self._answer.row)
                else:
                    check_use(self._answer.row)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._connection.forget_pending()
            await self._lease.__aexit__(None, error, None)


class _OpenTransaction:
    """A transaction for the length of a block. It is committed with its events, or rolled back if anything was raised."""

    __slots__ = ("_connection", "_lease", "_transaction", "_wrap")

    _connection: Connection
    _transaction: Transaction

    def __init__(self, pool: Pool, wrap: Callable[[Connection], Transaction]) -> None:
        self._lease = pool.connection()
        self._wrap = wrap

    async def __aenter__(self) -> Transaction:
        self._connection = await self._lease.__aenter__()
        self._connection.begin()
        self._transaction = self._wrap(self._connection)
        return self._transaction

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if error is None:
                await self._transaction.write_events()
                await self._transaction.commit()
                self._transaction.send_signals()
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
            except StorageDown:
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

    def reading(self, *, using: Joined | None = None) -> _Open | _OpenOnce:
        return self.autocommit() if using is None else _OpenOnce(self._pool, self._repositories, using)

    def autocommit(self) -> _Open:
        return _Open(self._pool, self._repositories)

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
            raise StorageDown from None
