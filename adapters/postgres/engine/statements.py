"""How every repository runs its statements: as a rule one method, one statement, rows into values by a function of their kind."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, LiteralString, TypeVar

from adapters.postgres.engine.driver import Answer, Connection
from adapters.postgres.engine.pool import translated
from ports.crypto import Vault

T = TypeVar("T")
Row = tuple[Any, ...]


class Repository:
    """A set of questions asked over one connection."""

    __slots__ = ("_connection",)

    # A unique violation becomes the refusal that its constraint stands for.
    constraints: ClassVar[Mapping[str, type[Exception]]] = {}

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def _one(self, to_value: Callable[[Row], T], sql: LiteralString, **parameters: object) -> T | None:
        with translated(self.constraints):
            row = await self._connection.row(sql, parameters)
        return None if row is None else to_value(row)

    async def _all(self, to_value: Callable[[Row], T], sql: LiteralString, **parameters: object) -> list[T]:
        with translated(self.constraints):
            rows = await self._connection.rows(sql, parameters)
        return [to_value(row) for row in rows]

    async def _run(self, sql: LiteralString, **parameters: object) -> int:
        """How many rows it touched."""
        with translated(self.constraints):
            return await self._connection.run(sql, parameters)

    async def _write(self, sql: LiteralString, **parameters: object) -> None:
        """Execute a statement that has no answer and is never refused: with the next one of the transaction, its commit at the latest, or
        at once where there is none."""
        if self._connection.in_transaction:
            self._connection.ahead(sql, parameters)
        else:
            await self._run(sql, **parameters)

    def _one_deferred(self, to_value: Callable[[Row], T], sql: LiteralString, **parameters: object) -> "DeferredRow[T]":
        """The same as `_one` in a transaction, with its next statement."""
        return DeferredRow(self._connection.pipeline_next(sql, parameters), to_value)

    async def _exists(self, sql: LiteralString, **parameters: object) -> bool:
        """Whether the statement returned a row."""
        return await self._one(lambda _: True, sql, **parameters) or False


class DeferredRow(Generic[T]):
    """core.kernel.deferred.Deferred, for one row."""

    __slots__ = ("_answer", "_to_value")

    def __init__(self, answer: Answer, to_value: Callable[[Row], T]) -> None:
        self._answer = answer
        self._to_value = to_value

    @property
    def value(self) -> T | None:
        return None if self._answer.row is None else self._to_value(self._answer.row)


class SealingRepository(Repository):
    """One that has something to keep which must be readable again, and is sealed."""

    __slots__ = ("_vault",)

    def __init__(self, connection: Connection, vault: Vault) -> None:
        super().__init__(connection)
        self._vault = vault
