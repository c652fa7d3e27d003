"""psycopg on Trio: psycopg's asynchronous connection, with Trio doing the waiting.

psycopg implements the protocol in generators. Each generator yields the readiness of the socket
that it needs next, and `Connection.wait` drives it. Cursors, transactions, COPY and LISTEN all use
`wait` and `lock`, so they work as psycopg documents them.

Private interfaces of psycopg 3.3 that this module uses (run its tests before an upgrade to a new minor version):

- to wait with Trio: `AsyncConnection.wait` and `.lock` are replaced, and `._closed`, `._should_cancel`
  and `errors._WaitTimeout` are used. Native support for Trio would replace this. It is requested in
  https://github.com/psycopg/psycopg/issues/29; an attempt, pull request 146, was not merged.
- to send several statements in one system call: `AsyncPipeline._enter_gen`, `._exit_gen`,
  `._communicate_gen`, `._fetch_gen`, `._process_results`, `._enqueue_sync`, `.command_queue`,
  `AsyncCursor._execute_gen`, `AsyncConnection._pipeline` and `generators.send`. A pipeline that sends
  nothing before its end would replace this. No issue requests one yet.
- to keep prepared statements over a rollback: `AsyncConnection._exec_command` and `._prepared`. psycopg
  forgets all of them after ROLLBACK, DROP and ALTER (pull requests 1307 and 1409 narrow that down for
  DISCARD only). A setting that excludes ROLLBACK would replace this.
"""

import logging
import math
import select
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import psycopg
import trio
from psycopg import errors, pq
from psycopg.abc import Params, PQGen, QueryNoTemplate
from psycopg.generators import send
from psycopg.waiting import Ready, Wait

T = TypeVar("T")
Row = tuple[Any, ...]

# Prepare a statement at its second execution. Preparing at the first one would fail for a text of
# several statements, such as a migration, and psycopg cannot recognize such a text.
PREPARE_THRESHOLD = 1
# The service has more statements than psycopg's default of 100. A cache that is too small costs a
# second round trip each time.
PREPARED_MAX = 1000
# Seconds in which a canceled task tries to cancel its statement at the server. statement_timeout
# ends the statement in any case.
CANCEL_TIMEOUT = 2.0

# Plain integers: an operation on psycopg's enumerations costs more than the system calls around it.
_R, _W = int(Wait.R), int(Wait.W)
_READY_R, _READY_W = int(Ready.R), int(Ready.W)
_ACTIVE = pq.TransactionStatus.ACTIVE
_IDLE = pq.TransactionStatus.IDLE

_log = logging.getLogger(__name__)


class Connection(psycopg.AsyncConnection[Row]):
    """A database session, for one task at a time. `connect` opens it."""

    lock: Any  # psycopg's own lock belongs to asyncio

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        super().__init__(pgconn)
        self.lock = _Lock()
        self.prepare_threshold = PREPARE_THRESHOLD
        self.prepared_max = PREPARED_MAX
        # Seconds for each statement. Without a limit, a task would wait forever for a server that
        # hangs or is unreachable.
        self.answer_within = math.inf
        self.server_process = pgconn.backend_pid  # still known after the connection was closed
        self._cursor = self.cursor()
        self._sink = self.cursor()  # for results that are not read
        self._in_flight = 1  # statements in the current round trip
        self._batch: list[tuple[QueryNoTemplate, Params | None, Answer | None]] = []  # sent with the next statement
        self._incoming = select.poll()
        self._incoming.register(pgconn.socket, select.POLLIN)

    # Single statements; much cheaper than `execute`, because they share one cursor

    async def rows(self, query: QueryNoTemplate, params: Params | None = None) -> list[Row]:
        """Execute a statement and return all rows."""
        # Between the answer and the end of the fetch there is no await, so no other task can use
        # the cursor.
        await self._execute(query, params, binary=True)
        return await self._cursor.fetchall()

    async def row(self, query: QueryNoTemplate, params: Params | None = None) -> Row | None:
        """Execute a statement and return its first row, or None if there is none."""
        await self._execute(query, params, binary=True)
        return await self._cursor.fetchone()

    async def run(self, query: QueryNoTemplate, params: Params | None = None) -> int:
        """Execute a statement and return the number of affected rows."""
        await self._execute(query, params)
        return self._cursor.rowcount

    def run_with_next(self, query: QueryNoTemplate, params: Params | None = None) -> None:
        """Send a statement together with the next one, in one round trip. Its result is not read.

        The next statement raises the errors of both. Use this only in transactions: a commit follows every other statement.
        """
        self._append(query, params, None)

    def pipeline_next(self, query: QueryNoTemplate, params: Params | None = None) -> "Answer":
        """Send a statement together with the next one, like `run_with_next`, and return its answer. The next statement fills the answer."""
        answer = Answer()
        self._append(query, params, answer)
        return answer

    def _append(self, query: QueryNoTemplate, params: Params | None, answer: "Answer | None") -> None:
        assert self.in_transaction, "outside of a transaction there may be no next statement"
        self._batch.append((query, params, answer))

    async def _execute(self, query: QueryNoTemplate, params: Params | None = None, *, binary: bool = False) -> None:
        if not self._batch:
            await self._cursor.execute(query, params, binary=binary)
            return
        statements, self._batch = self._batch, []
        cursors = {answer: self.cursor() for *_, answer in statements if answer is not None}
        batch = [
            (self._sink, query, params, False) if answer is None else (cursors[answer], query, params, True)
            for query, params, answer in statements
        ]
        self._in_flight = len(batch) + 1
        try:
            async with self.lock:
                await self.wait(self._batch_gen([*batch, (self._cursor, query, params, binary)]))
        finally:
            self._in_flight = 1
        for answer, cursor in cursors.items():
            answer.row = await cursor.fetchone()

    def _batch_gen(self, statements: list[tuple[psycopg.AsyncCursor[Row], QueryNoTemplate, Params | None, bool]]) -> PQGen[None]:
        self._pipeline = pipeline = _BatchPipeline(self)
        try:
            yield from pipeline._enter_gen()
            try:
                for cursor, query, params, binary in statements:
                    yield from cursor._execute_gen(query, params, binary=binary)
            except Exception:  # a parameter of a type that PostgreSQL does not have
                # Send the earlier statements anyway, because psycopg has already noted them as
                # prepared.
                yield from pipeline._exit_gen()
                raise
            yield from pipeline._exit_gen()
        finally:
            self._pipeline = None
            if pipeline.is_broken:
                # The server skips everything after an error, but psycopg has noted the skipped
                # statements as prepared. So forget all of them.
                self._prepared.clear()
            if self.pgconn.status != pq.ConnStatus.BAD:
                self.pgconn.exit_pipeline_mode()

    # A transaction on a connection in autocommit mode

    def begin(self) -> None:
        """Start a transaction together with the next statement."""
        self._batch.append(("begin", None, None))

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun, or begins with the next statement."""
        return bool(self._batch) or not self.is_idle

    async def commit(self) -> None:
        """Commit the transaction. One without statements has not begun, so nothing is sent."""
        if self.is_idle and len(self._batch) <= 1:
            self._batch = []
            await trio.lowlevel.checkpoint()
        else:
            await self._execute("commit")

    async def rollback(self) -> None:
        """Roll back the transaction, if there is one, and keep the prepared statements.

        psycopg's own rollback forgets them, because the transaction may have created the tables
        that they use. Our transactions create no tables, and refusals often roll back.
        """
        self._batch = []
        async with self.lock:
            if not self.is_idle:
                await self.wait(self._exec_command(b"rollback"))

    # The end of a session

    @property
    def is_idle(self) -> bool:
        """Whether another task can use the connection: it is open, in no transaction, and executes nothing."""
        return self.pgconn.transaction_status == _IDLE

    @property
    def has_ended(self) -> bool:
        """Whether the server has ended the idle session. This takes one system call and no round trip.

        A server sends nothing to an idle session without LISTEN, except when it ends the session.
        It also reports changed defaults after a reload of its configuration. Then the pool closes a
        usable connection, which does no harm.
        """
        return self.closed or bool(self._incoming.poll(0))

    def finish(self) -> None:
        """Close at once, in any state. A task that waits on this connection gets an OperationalError."""
        self._closed = True
        if self.pgconn.status != pq.ConnStatus.BAD:
            trio.lowlevel.notify_closing(self.pgconn.socket)
        self.pgconn.finish()

    async def close(self) -> None:
        """Close the connection."""
        self.finish()
        await trio.lowlevel.checkpoint()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            self.finish()  # also if the rollback or commit above was canceled

    # Waiting

    async def wait(self, gen: PQGen[T], interval: float = 0.0, timeout: float | None = None) -> T:  # noqa: ASYNC109 (psycopg's)
        """Run one of psycopg's generators to its end. A cancellation in the middle of a statement closes the connection."""
        # Check for a cancellation before anything is sent. Afterwards, a cancellation closes the
        # connection.
        await trio.lowlevel.checkpoint_if_cancelled()
        deadline = None if timeout is None else trio.current_time() + timeout
        needed: int = 0
        try:
            needed = next(gen)
            fd = self.pgconn.socket
            while True:
                if deadline is not None:
                    ready = await _readiness_until(deadline, fd, needed)
                elif needed != _R and (ready := _readiness_now(fd, needed)):
                    pass  # usually there is room to write, and the wait for the answer comes later
                else:
                    with trio.move_on_after(self.answer_within * self._in_flight) as time_limit:
                        if needed == _R:  # every statement waits here once, and most wait only here
                            await trio.lowlevel.wait_readable(fd)
                            ready = _READY_R
                        else:
                            ready = await _readiness(fd, needed)
                    if time_limit.cancelled_caught:
                        self.finish()
                        raise errors.OperationalError("the server did not answer in time")
                needed = gen.send(ready)
        except StopIteration as end:
            if not needed:  # the generator did not wait, as in a commit without a transaction
                await trio.lowlevel.cancel_shielded_checkpoint()
            result: T = end.value
            return result
        except (OSError, trio.ClosedResourceError) as error:
            raise errors.OperationalError("the connection was closed") from error
        except (trio.Cancelled, KeyboardInterrupt, BaseExceptionGroup):
            if self.pgconn.transaction_status == _ACTIVE:
                await self._abandon()
            raise

    async def cancel_safe(self, *, timeout: float = CANCEL_TIMEOUT) -> None:  # noqa: ASYNC109 (psycopg's)
        """Ask the server to cancel the statement that this connection executes."""
        if not self._should_cancel():
            return
        request = self.pgconn.cancel_conn()
        try:
            with trio.fail_after(timeout):
                request.start()
                await complete_handshake(request, request.poll)
        except trio.TooSlowError:
            raise errors.CancellationTimeout("the server did not accept the request to cancel in time") from None
        finally:
            request.finish()

    async def _abandon(self) -> None:
        """Cancel the current statement at the server, and close the session, because its state is unknown."""
        try:
            with trio.CancelScope(shield=True):
                await self.cancel_safe(timeout=CANCEL_TIMEOUT)
        except (errors.Error, OSError) as error:
            _log.info("a canceled statement may still be running: %s", error)
        finally:
            self.finish()


class Answer:
    """The first row of a statement that was sent together with the next one, or None if it returned no row. The next statement sets it."""

    row: Row | None


class _BatchPipeline(psycopg.AsyncPipeline):
    """A pipeline that is sent as a whole when it ends.

    psycopg's own pipeline makes system calls for each statement, and wakes the server with the first one.
    """

    is_broken = False  # a statement was skipped because an earlier one failed

    def _process_results(self, queued: Any, results: list[pq.abc.PGresult]) -> None:
        self.is_broken = self.is_broken or any(result.status == pq.ExecStatus.PIPELINE_ABORTED for result in results)
        super()._process_results(queued, results)

    def _communicate_gen(self) -> PQGen[None]:
        yield from ()

    def _exit_gen(self) -> PQGen[None]:
        self._enqueue_sync()
        while self.command_queue:
            self.command_queue.popleft()()
        yield from send(self.pgconn)
        yield from self._fetch_gen(flush=False)


class _Lock:
    """A Trio lock without a checkpoint when it is free. Every use is followed by `wait`, which is a checkpoint."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def __aenter__(self) -> Self:
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            await self._lock.acquire()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()


async def _readiness(fd: int, needed: int) -> int:
    if needed == _R:
        await trio.lowlevel.wait_readable(fd)
        return _READY_R
    if needed == _W:
        await trio.lowlevel.wait_writable(fd)
        return _READY_W
    # Wait for both directions while sending much data: the server may have to send before it reads
    # more.
    ready = 0
    async with trio.open_nursery() as nursery:

        async def first(one: int) -> None:
            nonlocal ready
            try:
                ready |= await _readiness(fd, one)
            except (OSError, trio.ClosedResourceError):
                ready |= one  # the next use of the socket raises the reason
            nursery.cancel_scope.cancel()

        nursery.start_soon(first, _R)
        nursery.start_soon(first, _W)
    return ready


async def _readiness_until(deadline: float, fd: int, needed: int) -> int:
    # Look at the socket first, so that a timeout of 0 finds data that has already arrived.
    if not (ready := _readiness_now(fd, needed)):
        with trio.move_on_at(deadline):
            ready = await _readiness(fd, needed)
    if not ready:
        raise errors._WaitTimeout("wait timeout expired")
    return ready


def _readiness_now(fd: int, needed: int) -> int:
    poll = select.poll()
    poll.register(fd, (select.POLLIN if needed & _R else 0) | (select.POLLOUT if needed & _W else 0))
    events = sum(event for _, event in poll.poll(0))
    # An error or the end of the stream counts as both, because reading or writing raises the
    # reason.
    broken = events & ~(select.POLLIN | select.POLLOUT)
    return (_READY_R if events & select.POLLIN or broken else 0) | (_READY_W if events & select.POLLOUT or broken else 0)


async def complete_handshake(connection: pq.abc.PGconn | pq.abc.PGcancelConn, poll: Callable[[], int]) -> None:
    """Run libpq's steps until a started connection is open. libpq may change the socket in between."""
    status: int = pq.PollingStatus.WRITING  # libpq's manual prescribes this before the first step
    while status != pq.PollingStatus.OK:
        if connection.status == pq.ConnStatus.BAD or status == pq.PollingStatus.FAILED:
            raise errors.OperationalError(connection.get_error_message("utf-8"))
        if status == pq.PollingStatus.READING:
            await trio.lowlevel.wait_readable(connection.socket)
        else:
            await trio.lowlevel.wait_writable(connection.socket)
        status = poll()
