"""The base for all repositories: a method runs a single statement, and a function turns rows into values."""

from collections.abc import Awaitable, Callable, Generator, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Generic, LiteralString, TypeVar

from adapters.postgres.engine.driver import Connection
from adapters.postgres.engine.pool import raise_outage
from adapters.postgres.engine.queued import Statement
from core.kernel import values
from ports.crypto import Vault
from ports.signals import Signal, Signals


class Scope:
    """A database connection with everything that its repositories need."""

    def __init__(self, connection: Connection, vault: Vault, signals: Signals, webhook_delay: timedelta = timedelta()) -> None:
        self.connection = connection
        self.vault = vault
        self.signals = signals
        self.webhook_delay = webhook_delay  # between an event and its first delivery


class PendingSignals:
    """An open transaction's signals, kept until it is committed. Implements ports.signals.Signals."""

    __slots__ = ("_pending", "_signals")

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._pending: list[tuple[Signal, datetime | None, Awaitable[bool] | None]] = []

    def send(self, signal: Signal, at: datetime | None = None) -> None:
        self._pending.append((signal, at, None))

    def send_if(self, is_due: Awaitable[bool], signal: Signal) -> None:
        """Report work that is due at once, if this is true after the commit."""
        self._pending.append((signal, None, is_due))

    async def flush(self) -> None:
        """Send the signals to the actors. Call this after the commit."""
        for signal, at, is_due in self._pending:
            if is_due is None or await is_due:
                self._signals.send(signal, at)


T = TypeVar("T")
Row = tuple[Any, ...]

# A CTE that makes the commit asynchronous if the statement reads it: the commit does not wait for
# the disk, so a database crash can take it back.
ASYNC_COMMIT: Final = "async_commit as (select set_config('synchronous_commit', 'off', true))"


def matching_email(column: LiteralString, search: str | None) -> LiteralString:
    """Return the condition that an email address contains `search`, or nothing without a search.

    Emails are stored in lower case. strpos needs no escaped wildcards.
    """
    return f"and strpos({column}, %(search)s) > 0" if search else ""


class Answer(Generic[T]):
    """The answer to a statement that was put into its connection's queue.

    `await` sends the queue, unless the statement was sent already. So a statement with an answer that is awaited later shares a round trip
    with the next statement. A statement without a reader is executed with the next statement, or with the commit.
    """

    __slots__ = ("_connection", "_read", "_statement")

    def __init__(self, connection: Connection, statement: Statement, read: Callable[[Statement], T]) -> None:
        self._connection = connection
        self._statement = statement
        self._read = read

    @property
    def is_done(self) -> bool:
        """Whether the statement was executed, so that `await` sends nothing."""
        return self._statement.is_done

    def __await__(self) -> Generator[Any, Any, T]:
        statement = self._statement
        if not statement.is_done:
            try:  # `translated` would take a tenth of the time that a statement takes in this process
                yield from self._connection.send(statement).__await__()
            except Exception as error:
                raise_outage(error)
                raise
        return self._read(statement)


class Repository:
    """The statements about a single kind of entity, run on a single connection.

    `_one`, `_all`, `_rows`, `_count`, `_exists` and `_run` put their statement into the queue when they are called.
    """

    __slots__ = ("_connection", "_signals")

    # The refusal to raise when a constraint is violated, by constraint name.
    constraints: ClassVar[Mapping[str, type[Exception]]] = {}

    def __init__(self, scope: Scope) -> None:
        self._connection = scope.connection
        self._signals = scope.signals

    def _ask(self, read: Callable[[Statement], T], sql: LiteralString, parameters: Mapping[str, object]) -> Answer[T]:
        connection = self._connection
        return Answer(connection, connection.queue(sql, parameters, self.constraints), read)

    def _one(self, to_value: Callable[[Row], T], sql: LiteralString, **parameters: object) -> Answer[T | None]:
        """Return the first row's value, or None if there is no row."""
        connection = self._connection  # most statements come here, so it does not call `_ask`
        statement = connection.queue(sql, parameters, self.constraints)
        return Answer(connection, statement, lambda done: to_value(done.rows[0]) if done.rows else None)

    def _all(self, to_value: Callable[[Row], T], sql: LiteralString, **parameters: object) -> Answer[list[T]]:
        """Return the values in all rows."""
        return self._ask(lambda done: [to_value(row) for row in done.rows], sql, parameters)

    def _rows(self, sql: LiteralString, **parameters: object) -> Answer[list[Row]]:
        """Return all rows as they are."""
        return self._ask(lambda done: done.rows, sql, parameters)

    def _count(self, sql: LiteralString, **parameters: object) -> Answer[int]:
        """Return the number in the first row, or 0 if there is no row."""
        return self._ask(lambda done: int(done.rows[0][0]) if done.rows else 0, sql, parameters)

    def _exists(self, sql: LiteralString, **parameters: object) -> Answer[bool]:
        """Return whether the statement returns a row."""
        return self._ask(lambda done: bool(done.rows), sql, parameters)

    def _run(self, sql: LiteralString, **parameters: object) -> Answer[int]:
        """Execute the statement and return how many rows were affected."""
        return self._ask(lambda done: done.affected, sql, parameters)

    async def _page(self, to_value: Callable[[Row], T], sql: LiteralString, **parameters: object) -> values.PageResult[T]:
        """Return the page in rows that start with the total, followed by a column that is never null in a page row.

        For an empty page, the statement returns a row with nulls, or no row.
        """
        rows = await self._rows(sql, **parameters)
        return values.PageResult([to_value(row[1:]) for row in rows if row[1] is not None], rows[0][0] if rows else 0)

    async def _counted_page(
        self,
        to_value: Callable[[Row], T],
        columns: LiteralString,
        listed: LiteralString,
        order: LiteralString,
        page: values.Page,
        **parameters: object,
    ) -> values.PageResult[T]:
        """Return a page with these columns from `listed`, which begins with `from`. The first column is never null."""
        # The outer join returns a single row with the total if the page is empty.
        sql = f"""
            select counted.total, p.* from (select count(*) as total {listed}) counted
            left join (
                select {columns}, row_number() over (order by {order}) as place {listed}
                order by {order} limit %(limit)s offset %(offset)s) p on true
            order by p.place"""
        return await self._page(lambda row: to_value(row[:-1]), sql, **parameters, limit=page.limit, offset=page.offset)

    async def _write(self, sql: LiteralString, **parameters: object) -> None:
        """Execute a statement that returns no rows and never causes a refusal.

        In a transaction it is sent together with the next statement, at the latest with the commit. Outside a
        transaction it is sent at once.
        """
        answer = self._run(sql, **parameters)
        if not self._connection.in_transaction:
            await answer

    async def _allow_statements_of(self, seconds: float) -> None:
        """Let every further statement in the transaction take this long, instead of the usual time."""
        await self._write("select set_config('statement_timeout', %(milliseconds)s, true)", milliseconds=str(round(seconds * 1000)))
        self._connection.answer_within += seconds  # until the pool gets the connection back

    async def _notify(self, channel: str, at: datetime) -> None:
        """Notify actors in other processes that work falls due at this time, which may be before their next poll."""
        await self._write("select pg_notify(%(channel)s, %(at)s)", channel=channel, at=at.isoformat())


class SealingRepository(Repository):
    """A repository with columns that are encrypted at rest and must be readable again."""

    __slots__ = ("_vault",)

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self._vault = scope.vault


class DeliveringRepository(Repository):
    """A repository with statements that queue deliveries to webhooks."""

    __slots__ = ("_delivery_values",)

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        # The parameters for `kernel.shared_sql.DELIVER`
        self._delivery_values = {"status": "waiting" if scope.webhook_delay else "due", "delay": scope.webhook_delay}
