"""A process's connection pool, and translating psycopg's errors into core errors.

The pool hands out the connection that was returned last, so that a process with few requests uses few connections.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

import trio
from psycopg import errors

from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.driver import Connection
from core.kernel import shares
from core.kernel.errors import Limited, StorageDown

SILENCE: Final = 5.0  # seconds beyond the statement timeout, after which the server counts as down
KEPT_FREE: Final = 2  # connections that a share leaves free while no other share holds a connection
WATCH_INTERVAL: Final = 0.5  # seconds between two looks for silent servers, and for tasks that have waited too long
# The server keeps up to 50 kB per prepared statement. Most connections never have as many prepared
# statements as the limit.
PREPARED_MAX: Final = 1000
IDLE_IN_TRANSACTION_TIMEOUT: Final = 60.0  # seconds; a task that hangs between two statements must not hold its locks forever


def raise_outage(error: BaseException) -> None:
    """Raise StorageDown if psycopg's error means that the database has failed."""
    # OperationalError: no connection, connection lost, server going down, out of resources,
    # statement_timeout, lock_timeout, deadlock.
    if isinstance(error, errors.OperationalError | errors.InterfaceError | OSError):
        raise StorageDown from error


class translated:  # noqa: N801 (it is used as a function, like contextlib.suppress)
    """A block around psycopg calls that raises StorageDown when the database fails.

    An error in a statement, and a constraint violation without a refusal (`Connection.queue`), are defects in this program, so they are not
    translated.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            raise_outage(error)


@dataclass(frozen=True, slots=True)
class PoolStats:
    """How many connections are open, how many of them are idle, and the limit."""

    total: int
    idle: int
    maximum: int


class Pool:
    """Up to `size` connections, opened when they are needed.

    A connection is closed if it is returned broken, in a transaction, in the middle of a statement, or with too many
    prepared statements. Before a task gets an idle connection, the pool checks whether the server has closed it, for
    example in a restart.

    The lock timeout is shorter than the statement timeout. Deleting an organization or a service holds locks for
    seconds, and the tasks that wait for these locks must not use up all connections. So a share leaves KEPT_FREE
    connections free while no second share holds a connection. If a second share holds connections, a share takes another
    connection only while it holds fewer than are free. The process's own work has no such limit.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        size: int,
        acquire_timeout: float = 5.0,
        statement_timeout: float = 15.0,
        lock_timeout: float = 5.0,
        on_use: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_use` is called before a task waits for a connection, and when the task returns it."""
        self._on_use = on_use
        self._conninfo = conninfo
        self._size = size
        self._acquire_timeout = acquire_timeout
        self._statement_timeout = statement_timeout
        self._lock_timeout = lock_timeout
        # A trio.CapacityLimiter and a cancel scope for every wait would cost three times as much.
        self._holders: dict[trio.lowlevel.Task, shares.Share] = {}  # the tasks that have or open a connection
        self._held: dict[shares.Share, int] = {}  # how many holders there are by share, without OWN
        self._queue: shares.FairQueue[trio.lowlevel.Task] = shares.FairQueue()
        self._waiting: dict[
            trio.lowlevel.Task, tuple[shares.Share, float]
        ] = {}  # the tasks in the queue, with the times when their waits end
        self._idle: list[Connection] = []
        self._open_connections: dict[int, Connection] = {}  # by server process
        self._returned = 0  # connections, so far
        self._is_watched = False
        self._closed = False

    def connection(self) -> "Lease":
        """Lease a connection in autocommit mode for a single task: `async with pool.connection() as connection`.

        Raises: StorageDown if no connection becomes free or can be opened in time; Limited if only other tasks got
        connections; RuntimeError if the task holds a connection already. If tasks could hold two connections, all could
        wait forever for the second.
        """
        return Lease(self)

    @property
    def stats(self) -> PoolStats:
        """Return how many connections there are now."""
        return PoolStats(total=len(self._holders) + len(self._idle), idle=len(self._idle), maximum=self._size)

    def owns(self, server_process: int) -> bool:
        """Return whether the server process with this id serves an open connection."""
        return server_process in self._open_connections

    async def aclose(self) -> None:
        """Close the idle connections now, and leased connections when they are returned."""
        self._closed = True
        while self._idle:
            self._discard(self._idle.pop())
        await trio.lowlevel.checkpoint()

    async def _acquire(self, task: trio.lowlevel.Task) -> Connection:
        if self._closed:
            raise RuntimeError("the pool is closed")
        self._on_use()
        if task in self._holders:
            raise RuntimeError(
                "this task already holds a database connection: a transaction or reading was opened inside another; use the outer one"
            )
        deadline = trio.current_time() + self._acquire_timeout
        share = shares.current_share.get()
        if self._may_hold(share):  # then no task in this share waits
            self._hold(task, share)
        else:
            await self._wait(task, share, deadline)
        try:
            return self._take_idle() or await self._open(max(0.0, deadline - trio.current_time()))
        except BaseException:
            self._pass_on(task)
            raise

    def _may_hold(self, share: shares.Share) -> bool:
        free = self._size - len(self._holders)
        # A share that waits while connections are free holds connections itself. So a share is alone if it is the only
        # holder.
        return self._held.get(share, 0) < free or (free > KEPT_FREE and len(self._held) == 1)

    def _hold(self, task: trio.lowlevel.Task, share: shares.Share) -> None:
        self._holders[task] = share
        if share is not shares.OWN:
            self._held[share] = self._held.get(share, 0) + 1

    async def _wait(self, task: trio.lowlevel.Task, share: shares.Share, deadline: float) -> None:
        """Wait until another task lets this task hold a connection.

        Raises: StorageDown or Limited at the deadline, or up to WATCH_INTERVAL later.
        """

        def abort(_: object) -> trio.lowlevel.Abort:
            self._queue.remove(self._waiting.pop(task)[0], task)
            return trio.lowlevel.Abort.SUCCEEDED

        returned = self._returned
        self._queue.add(share, task)
        self._waiting[task] = share, deadline
        self._start_watch()
        await trio.lowlevel.wait_task_rescheduled(abort)
        if task not in self._holders:
            # If a task has returned a connection during the wait, the database works.
            raise Limited(shares.RETRY_AFTER) if share is not shares.OWN and self._returned > returned else StorageDown

    def _pass_on(self, task: trio.lowlevel.Task) -> None:
        """Let the next tasks in the queue hold a connection in place of `task`."""
        share = self._holders.pop(task)
        self._returned += 1
        if share is not shares.OWN:
            self._held[share] -= 1
            if not self._held[share]:
                del self._held[share]
        while self._waiting and (following := self._queue.pop(self._may_hold)) is not None:
            share, successor = following
            del self._waiting[successor]
            self._hold(successor, share)
            trio.lowlevel.reschedule(successor)

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_ended:
                return connection
            self._discard(connection)
        return None

    async def _open(self, timeout: float) -> Connection:  # noqa: ASYNC109 (the driver divides it among the addresses)
        with translated():
            connection = await connect(
                self._conninfo,
                timeout=timeout,
                statement_timeout_ms=round(self._statement_timeout * 1000),
                lock_timeout_ms=round(self._lock_timeout * 1000),
                idle_in_transaction_session_timeout_ms=round(IDLE_IN_TRANSACTION_TIMEOUT * 1000),
            )
        self._limit_silence(connection)
        self._open_connections[connection.server_process] = connection
        self._start_watch()
        return connection

    def _limit_silence(self, connection: Connection) -> None:
        # The server itself ends a long statement with an error. This limit is for a server that has
        # gone silent.
        connection.answer_within = self._statement_timeout + SILENCE

    def _start_watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            trio.lowlevel.spawn_system_task(self._watch)

    async def _watch(self) -> None:
        """Close connections to a silent server, and end the waits that take too long."""
        try:
            while self._open_connections or self._waiting:
                await trio.sleep(WATCH_INTERVAL)
                for connection in self._open_connections.values():
                    connection.finish_if_silent()
                now = trio.current_time()
                for task, share in [(task, share) for task, (share, deadline) in self._waiting.items() if deadline <= now]:
                    del self._waiting[task]
                    self._queue.remove(share, task)
                    trio.lowlevel.reschedule(task)
        finally:
            self._is_watched = False

    def _discard(self, connection: Connection) -> None:
        self._open_connections.pop(connection.server_process, None)
        connection.finish()

    def _release(self, task: trio.lowlevel.Task, connection: Connection, error: BaseException | None) -> None:
        # A migration by another process can invalidate prepared statements ("cached plan must not
        # change result type").
        is_outdated = isinstance(error, errors.FeatureNotSupported) or connection.prepared_count > PREPARED_MAX
        if self._closed or is_outdated or not connection.is_idle:
            self._discard(connection)
        else:
            self._limit_silence(connection)  # a transaction may have raised it
            self._idle.append(connection)
        self._pass_on(task)
        self._on_use()


class Lease:
    """A task's use of a connection, as returned by `Pool.connection`."""

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
        # No checkpoint: a canceled task must be able to return its connection.
        self._pool._release(self._task, self._connection, error)
