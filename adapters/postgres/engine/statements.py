"""The base of all repositories: one method runs one statement, and a function turns each row into a value."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, Generic, LiteralString, TypeVar

from adapters.postgres.engine.driver import Answer
from adapters.postgres.engine.pool import translated
from adapters.postgres.engine.scope import Scope
from core.kernel.values import Page, PageResult

T = TypeVar("T")
Row = tuple[Any, ...]

# A CTE that makes the commit asynchronous if the statement reads it: the commit does not wait for
# the disk, so a crash of the database can take it back.
ASYNC_COMMIT: Final = "async_commit as (select set_config('synchronous_commit', 'off', true))"


def matching_email(column: LiteralString, search: str | None) -> LiteralString:
    """Return the condition that an email address contains `search`, or nothing without one.

    Emails are stored in lower case. strpos needs no escaping of wildcards.
    """
    return f"and strpos({column}, %(search)s) > 0" if search else ""


class Repository:
    """The statements about one kind of entity, run on one connection."""

    __slots__ = ("_connection", "_signals")

    # The refusal to raise when a constraint is violated, by the name of the constraint.
    constraints: ClassVar[Mapping[str, type[Exception]]] = {}

    def __init__(self, scope: Scope) -> None:
        self._connection = scope.connection
        self._signals = scope.signals

    async def _one(self, to_value: Callable[[Row], T], sql: LiteralString, **parameters: object) -> T | None:
        """Return the value of the first row, or None if there is no row."""
        with translated(self.constraints):
            row = await self._connection.row(sql, parameters)
        return None if row is None else to_value(row)

    async def _all(self, to_value: Callable[[Row], T], sql: LiteralString, **parameters: object) -> list[T]:
        """Return the values of all rows."""
        with translated(self.constraints):
            rows = await self._connection.rows(sql, parameters)
        return [to_value(row) for row in rows]

    async def _count(self, sql: LiteralString, **parameters: object) -> int:
        """Return the number in the first row, or 0 if there is no row."""
        return await self._one(lambda row: int(row[0]), sql, **parameters) or 0

    async def _page(self, to_value: Callable[[Row], T], sql: LiteralString, **parameters: object) -> PageResult[T]:
        """Return the page in rows that start with the total, followed by a column that is never null in a row of the page.

        For an empty page, the statement returns one row with nulls, or none.
        """
        rows = await self._all(lambda row: row, sql, **parameters)
        return PageResult([to_value(row[1:]) for row in rows if row[1] is not None], rows[0][0] if rows else 0)

    async def _counted_page(
        self,
        to_value: Callable[[Row], T],
        columns: LiteralString,
        listed: LiteralString,
        order: LiteralString,
        page: Page,
        **parameters: object,
    ) -> PageResult[T]:
        """Return a page of these columns of `listed`, which begins with `from`. The first column is never null."""
        # The outer join returns one row with the total if the page is empty.
        sql = f"""
            select counted.total, p.* from (select count(*) as total {listed}) counted
            left join (
                select {columns}, row_number() over (order by {order}) as place {listed}
                order by {order} limit %(limit)s offset %(offset)s) p on true
            order by p.place"""
        return await self._page(lambda row: to_value(row[:-1]), sql, **parameters, limit=page.limit, offset=page.offset)

    async def _run(self, sql: LiteralString, **parameters: object) -> int:
        """Execute the statement and return the number of affected rows."""
        with translated(self.constraints):
            return await self._connection.run(sql, parameters)

    async def _write(self, sql: LiteralString, **parameters: object) -> None:
        """Execute a statement that returns no rows and never causes a refusal.

        In a transaction it is sent together with the next statement, at the latest with the commit.
        Outside of one it is sent at once.
        """
        if self._connection.in_transaction:
            self._connection.run_with_next(sql, parameters)
        else:
            await self._run(sql, **parameters)

    async def _allow_statements_of(self, seconds: float) -> None:
        """Let each further statement of the transaction take this long, instead of the time of all others."""
        await self._write("select set_config('statement_timeout', %(milliseconds)s, true)", milliseconds=str(round(seconds * 1000)))
        self._connection.answer_within += seconds  # until the pool gets the connection back

    async def _notify(self, channel: str, at: datetime) -> None:
        """Notify the actors of other processes that work falls due at this time, which may be before their next poll."""
        await self._write("select pg_notify(%(channel)s, %(at)s)", channel=channel, at=at.isoformat())

    def _one_deferred(self, to_value: Callable[[Row], T], sql: LiteralString, **parameters: object) -> "DeferredRow[T]":
        """Return the result of `_one` as a value that is available after the next statement of the transaction."""
        return DeferredRow(self._connection.pipeline_next(sql, parameters), to_value)

    async def _exists(self, sql: LiteralString, **parameters: object) -> bool:
        """Return whether the statement returns a row."""
        return await self._one(lambda _: True, sql, **parameters) or False


class DeferredRow(Generic[T]):
    """A row that is available after the next statement. Implements core.kernel.deferred.Deferred."""

    __slots__ = ("_answer", "_to_value")

    def __init__(self, answer: Answer, to_value: Callable[[Row], T]) -> None:
        self._answer = answer
        self._to_value = to_value

    @property
    def value(self) -> T | None:
        return None if self._answer.row is None else self._to_value(self._answer.row)


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
        # The parameters of `kernel.event_delivery.DELIVER`
        self._delivery_values = {"status": "waiting" if scope.webhook_delay else "due", "delay": scope.webhook_delay}
