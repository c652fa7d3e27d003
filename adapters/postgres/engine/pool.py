"""The connections of one process: a limit, a stack, and the translation of psycopg's errors into ours.

The stack hands out the connection that was used last, so that a quiet process keeps few of them warm.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Final

import trio
from psycopg import errors

from adapters.postgres.engine.driver import Connection, connect
from core.kernel.errors import StorageDown

SILENCE: Final = 5.0  # seconds beyond the statement timeout, after which the server is taken to be gone
IDLE_IN_TRANSACTION_TIMEOUT: Final = 60.0  # a task that hangs between two statements must not hold its locks for ever

_NO_CONSTRAINTS: Final[Mapping[str, type[Exception]]] = MappingProxyType({})


class translated:  # noqa: N801 (it is used as a function, like contextlib.suppress)
    """Around calls of psycopg: what the database failed to do leaves as StorageDown, what it refused as the refusal it stands for.

    `constraints` maps the names of constraints to exceptions. A violation of any other one is a defect of ours and is not
    touched, and neither is any error in a statement.
    """

    __slots__ = ("_constraints",)

    def __init__(self, constraints: Mapping[str, type[Exception]] = _NO_CONSTRAINTS) -> None:
        self._constraints = constraints

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # OperationalError: no connection, connection lost, server going down, out of resources, statement_timeout, lock_timeout, deadlock.
        if isinstance(error, errors.OperationalError | errors.InterfaceError | OSError):
            raise StorageDown from error
        if isinstance(error, errors.IntegrityError):
            refusal = self._constraints.get(error.diag.constraint_name or "")
            if refusal is not None:
                raise refusal from error


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Open connections, those of them not in use, and how many there may be."""

    total: int
    idle: int
    maximum: int


class Pool:
    """At most `size` connections, opened when they are needed.

    A connection that comes back with a transaction open, a statement under way or broken is closed and replaced; one that
    the server ended while it was idle, as a restart does with all of them, is noticed before anybody gets it.

    A lock is waited for less long than a statement may take: whoever deletes something large holds some for seconds, and those who wait
    must not have all connections meanwhile.
    """

    def __init__(
        self, conninfo: str, *, size: int, acquire_timeout: float = 5.0, statement_timeout: float = 15.0, lock_timeout: float = 5.0
    ) -> None:
        self._conninfo = conninfo
        self._size = size
        self._acquire_timeout = acquire_timeout
        self._statement_timeout = statement_timeout
        self._lock_timeout = lock_timeout
        self._limiter = trio.CapacityLimiter(size)
        self._idle: list[Connection] = []
        self._closed = False

    def connection(self) -> "Lease":
        """`async with pool.connection() as connection`: in autocommit, this task's alone until the block ends.

        Raises StorageDown when none is free or can be opened in time, and RuntimeError when the task holds one already:
        two connections for one task would deadlock as soon as every task held its first one.
        """
        return Lease(self)

    @property
    def stats(self) -> PoolStats:
        """How many connections there are now."""
        return PoolStats(total=self._limiter.borrowed_tokens + len(self._idle), idle=len(self._idle), maximum=self._size)

    async def aclose(self) -> None:
        """Close the idle connections now, and those in use when they come back."""
        self._closed = True
        while self._idle:
            self._idle.pop().finish()
        await trio.lowlevel.checkpoint()

    async def _acquire(self, task: trio.lowlevel.Task) -> Connection:
        if self._closed:
            raise RuntimeError("the pool is closed")
        deadline = trio.current_time() + self._acquire_timeout
        try:
            self._limiter.acquire_on_behalf_of_nowait(task)
        except trio.WouldBlock:
            with trio.move_on_at(deadline) as waiting:
                await self._limiter.acquire_on_behalf_of(task)
            if waiting.cancelled_caught:
                raise StorageDown from None
        except RuntimeError:
            raise RuntimeError(
                "this task holds a database connection already: a transaction or reading was opened inside another; use the outer one"
            ) from None
        try:
            return self._waiting_one() or await self._open(max(0.0, deadline - trio.current_time()))
        except BaseException:
            self._limiter.release_on_behalf_of(task)
            raise

    def _waiting_one(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_ended:
                return connection
            connection.finish()
        return None

    async def _open(self, timeout: float) -> Connection:  # noqa: ASYNC109 (the driver shares it out among addresses)
        with translated():
            connection = await connect(
                self._conninfo,
                timeout=timeout,
                statement_timeout_ms=round(self._statement_timeout * 1000),
                lock_timeout_ms=round(self._lock_timeout * 1000),
                idle_in_transaction_session_timeout_ms=round(IDLE_IN_TRANSACTION_TIMEOUT * 1000),
            )
        # The server ends a long statement itself, and says so; this is for a server that says nothing any more.
        connection.answer_within = self._statement_timeout + SILENCE
        return connection

    def _release(self, task: trio.lowlevel.Task, connection: Connection, error: BaseException | None) -> None:
        # A migration that ran beside us can invalidate prepared statements ("cached plan must not change result type").
        if self._closed or not connection.is_idle or isinstance(error, errors.FeatureNotSupported):
            connection.finish()
        else:
            self._idle.append(connection)
        self._limiter.release_on_behalf_of(task)


class Lease:
    """One task's use of one connection: what `Pool.connection` returns."""

    __slots__ = ("_connection", "_pool", "_task")

    _connection: Connection
    _task: trio.lowlevel.Task

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def __aenter__(self) -> Connection:
        self._task = trio.lowlevel.current_task()
        self._connection = await self._pool._acquire(self._task)
        return self._connection

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # Without a checkpoint: giving back must work in a task that is cancelled.
        self._pool._release(self._task, self._connection, error)
