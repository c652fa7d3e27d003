"""psycopg on Trio: its asynchronous connection, with Trio doing the waiting, and a queue for prepared statements.

`queue` and `send`, with `rows`, `row` and `run` for single statements, use `psycopg.pq`, psycopg's interface to libpq. Values are converted
by psycopg, so they have the same types as in its cursors (docs/adr/0025). For all other features use psycopg's own methods, such as
`execute`, `cursor` and `notifies`. psycopg implements them in generators that yield the socket readiness that they need next, and `wait`
drives these.

Private interfaces in psycopg 3.3 that this module uses to wait with Trio (run its tests before an upgrade to a new
minor version): `AsyncConnection.wait` and `.lock` are replaced, and `._closed`, `._should_cancel` and
`errors._WaitTimeout` are used. Native support for Trio would replace this. Such support is requested in
https://github.com/psycopg/psycopg/issues/29; an attempt, pull request 146, was not merged.
"""

import logging
import math
import select
from collections.abc import Mapping, Sequence
from itertools import count
from types import MappingProxyType, TracebackType
from typing import Any, Final, LiteralString, TypeVar

import psycopg
import trio
from psycopg import errors, pq
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.waiting import Wait

from adapters.postgres.engine import queued, readiness

T = TypeVar("T")

# Seconds in which a canceled task tries to cancel its statement at the server. statement_timeout
# ends the statement in any case.
CANCEL_TIMEOUT = 2.0

_BINARY = pq.Format.BINARY
_ACTIVE = int(pq.TransactionStatus.ACTIVE)
_IDLE = int(pq.TransactionStatus.IDLE)
_BAD = int(pq.ConnStatus.BAD)
_COMMAND_OK = int(pq.ExecStatus.COMMAND_OK)
_FATAL_ERROR = int(pq.ExecStatus.FATAL_ERROR)
_PIPELINE_SYNC = int(pq.ExecStatus.PIPELINE_SYNC)
_COPYING = frozenset({int(pq.ExecStatus.COPY_IN), int(pq.ExecStatus.COPY_OUT), int(pq.ExecStatus.COPY_BOTH)})

_NO_PARAMETERS: Final[Mapping[str, object]] = MappingProxyType({})
_NO_REFUSALS: Final[Mapping[str, type[Exception]]] = MappingProxyType({})

_log = logging.getLogger(__name__)


class Connection(psycopg.AsyncConnection[queued.Row]):
    """A database session, for a single task at a time. `connect` opens it."""

    lock: Any  # psycopg's own lock belongs to asyncio

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        super().__init__(pgconn)
        self.lock = trio.Lock()
        # psycopg's cursors prepare nothing, because with their own prepared statements they would
        # deallocate this class's statements.
        self.prepare_threshold = None
        # Seconds for a statement. Without a limit, a task would wait forever for a server that
        # hangs or is unreachable. The owner calls `finish_if_silent` from time to time.
        self.answer_within = math.inf
        self._answer_due = math.inf  # while a task waits for the server, the time by which it must answer
        self.server_process = pgconn.backend_pid  # still known after the connection was closed
        self._transformer = Transformer(self)
        self._statement_names: dict[queued.Key, bytes] = {}  # the prepared statements' names
        self._numbers = count()
        self._queue: list[queued.Statement] = []  # sent in the next round trip
        self._begin = self._statement("begin", _NO_PARAMETERS, _NO_REFUSALS)
        self._after_commit: queued.Statement | None = None
        self._in_flight = 1  # statements in the current round trip
        self._incoming = select.poll()
        self._incoming.register(pgconn.socket, select.POLLIN)

    # Statements have named parameters, `%(name)s`, and are prepared at their first use.

    def queue(
        self,
        text: LiteralString,
        parameters: Mapping[str, object] = _NO_PARAMETERS,
        refusals: Mapping[str, type[Exception]] = _NO_REFUSALS,
    ) -> queued.Statement:
        """Put a statement into the queue. The next round trip executes all statements in the queue.

        Outside a transaction, the queue is a single transaction, which its round trip commits.

        `refusals`: the errors to raise when the statement violates a constraint, by constraint name. The round trip raises the failed
        statement's error, and the server skips the statements behind it.
        """
        statement = self._statement(text, parameters, refusals)
        self._queue.append(statement)
        return statement

    async def send(self, statement: queued.Statement | None = None) -> None:
        """Send the queue now, if it has statements, in a single round trip.

        `statement` must wait in the queue. If its round trip has failed already, raise the error again.
        """
        queue, self._queue = self._queue, []
        if self.pgconn.transaction_status == _ACTIVE:
            raise RuntimeError("another task executes a statement on this connection")
        if statement is not None and statement not in queue:
            self._queue = queue
            raise statement.error or RuntimeError("the statement was never sent, because its block has ended with an error")
        try:
            if len(queue) == 1 and (name := self._statement_names.get(queue[0].key)) is not None:
                (result,) = await self.wait(self._single_gen(name, queue[0]))
                self._set_result(queue[0], result)
            elif queue:
                self._in_flight = len(queue)
                results = await self.wait(self._pipeline_gen(queue))
                for each, result in zip(queue, results, strict=True):
                    self._set_result(each, result)
            else:
                await trio.lowlevel.checkpoint()
        except Exception as error:
            for each in queue:
                each.error = error
            raise
        finally:
            self._in_flight = 1

    def _set_result(self, statement: queued.Statement, result: pq.abc.PGresult) -> None:
        statement.result = result
        if count := result.ntuples:
            self._transformer.set_pgresult(result)
            statement.rows = self._transformer.load_rows(0, count, tuple)
        statement.is_done = True

    @property
    def has_queue(self) -> bool:
        """Whether statements wait for the next round trip."""
        return bool(self._queue)

    def forget_queue(self) -> None:
        """Drop the statements that wait for the next round trip."""
        self._queue = []

    async def rows(self, text: LiteralString, parameters: Mapping[str, object] = _NO_PARAMETERS) -> list[queued.Row]:
        """Execute a statement, with the queue before it, and return all rows."""
        statement = self.queue(text, parameters)
        await self.send()
        return statement.rows

    async def row(self, text: LiteralString, parameters: Mapping[str, object] = _NO_PARAMETERS) -> queued.Row | None:
        """Execute a statement, with the queue before it, and return its first row, or None if there is none."""
        rows = await self.rows(text, parameters)
        return rows[0] if rows else None

    async def run(self, text: LiteralString, parameters: Mapping[str, object] = _NO_PARAMETERS) -> int:
        """Execute a statement, with the queue before it, and return `Statement.affected`."""
        statement = self.queue(text, parameters)
        await self.send()
        return statement.affected

    @property
    def prepared_count(self) -> int:
        """How many prepared statements the server keeps for this session."""
        return len(self._statement_names)

    def _statement(
        self, text: LiteralString, parameters: Mapping[str, object], refusals: Mapping[str, type[Exception]]
    ) -> queued.Statement:
        sql, _, values_of, formats = queued.to_positional(text)
        transformer = self._transformer
        values = transformer.dump_sequence(values_of(parameters), formats)
        # The types belong to the key, because PostgreSQL may understand the same text differently
        # with different types, such as text and bytea.
        return queued.Statement((sql, transformer.types or ()), values, transformer.formats, refusals)

    def _single_gen(self, name: bytes, statement: queued.Statement) -> PQGen[list[pq.abc.PGresult]]:
        self.pgconn.send_query_prepared(name, statement.values, statement.formats, _BINARY)
        results = yield from self._results_gen(in_pipeline=False)
        return self._checked(results, [statement])

    def _pipeline_gen(self, queue: Sequence[queued.Statement]) -> PQGen[list[pq.abc.PGresult]]:
        """Send the statements in a single pipeline, and prepare statements that are not prepared yet. Return a result per statement."""
        pgconn = self.pgconn
        pgconn.enter_pipeline_mode()
        try:
            sent: list[queued.Statement] = []  # a statement that is prepared stands twice
            prepared: dict[int, queued.Key] = {}  # the preparations, by place in `sent`
            for statement in queue:
                name = self._statement_names.get(statement.key)
                if name is None:
                    name = self._statement_names[statement.key] = b"s%d" % next(self._numbers)
                    pgconn.send_prepare(name, *statement.key)
                    prepared[len(sent)] = statement.key
                    sent.append(statement)
                pgconn.send_query_prepared(name, statement.values, statement.formats, _BINARY)
                sent.append(statement)
            pgconn.pipeline_sync()
            results = yield from self._results_gen(in_pipeline=True)
            if pgconn.status != _BAD:
                pgconn.exit_pipeline_mode()
        except BaseException:
            self.finish()  # the position in the pipeline is unknown
            raise
        for place, key in prepared.items():
            if place < len(results) and results[place].status != _COMMAND_OK:  # it failed, or was skipped after an error
                del self._statement_names[key]
        checked = self._checked(results, sent)
        return [result for place, result in enumerate(checked) if place not in prepared] if prepared else checked

    def _results_gen(self, *, in_pipeline: bool) -> PQGen[list[pq.abc.PGresult]]:
        """Send what libpq has not sent yet, and return all results."""
        pgconn = self.pgconn
        results: list[pq.abc.PGresult] = []
        while pgconn.flush():
            if (yield Wait.RW) & readiness.READY_R:
                pgconn.consume_input()
        ends = 0  # in a row
        while ends < (2 if in_pipeline else 1):
            try:
                while pgconn.is_busy():
                    yield Wait.R
                    pgconn.consume_input()
            except errors.OperationalError:
                # A server that ends the session says why before it closes the connection.
                if any(result.status == _FATAL_ERROR for result in results):
                    break
                raise
            result = pgconn.get_result()
            if result is None:
                ends += 1
                continue
            ends = 0
            status = result.status
            if status == _PIPELINE_SYNC:
                break
            if status in _COPYING:
                self.finish()
                raise errors.NotSupportedError("use a cursor of psycopg for COPY")
            results.append(result)
        return results

    def _checked(self, results: list[pq.abc.PGresult], sent: Sequence[queued.Statement]) -> list[pq.abc.PGresult]:
        """Return these statements' results. Raises: the error of the failed statement, or its refusal."""
        for place, result in enumerate(results):
            if result.status == _FATAL_ERROR:
                error = errors.error_from_result(result)
                if isinstance(error, errors.IntegrityError) and place < len(sent):
                    refusal = sent[place].refusals.get(error.diag.constraint_name or "")
                    if refusal is not None:
                        raise refusal from error
                raise error
        if len(results) != len(sent):
            raise errors.OperationalError("the connection was lost")
        return results

    # A transaction on a connection in autocommit mode

    def begin(self) -> None:
        """Start a transaction together with the next statement."""
        begin = self._begin
        self._queue.append(queued.Statement(begin.key, begin.values, begin.formats, begin.refusals))

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun, or begins with the next statement."""
        return not self.is_idle or (bool(self._queue) and self._queue[0].key is self._begin.key)

    def queue_after_commit(self, text: LiteralString, parameters: Mapping[str, object] = _NO_PARAMETERS) -> None:
        """Execute a statement in the same round trip as the commit, as a separate transaction. A rollback drops the statement."""
        self._after_commit = self._statement(text, parameters, _NO_REFUSALS)

    async def commit(self) -> None:
        """Commit the transaction.

        If no statement was sent yet, all statements are sent as a single pipeline, which is a transaction without `begin` and `commit`.
        Without statements, nothing is sent.
        """
        after, self._after_commit = self._after_commit, None
        if after is not None:
            self.queue("commit")
            self._queue.append(after)
        elif self.is_idle:
            del self._queue[:1]  # begin
        else:
            self.queue("commit")
        await self.send()

    async def rollback(self) -> None:
        """Roll back the transaction, if any."""
        self._queue, self._after_commit = [], None
        if not self.is_idle:
            await self.run("rollback")

    # Ending a session

    @property
    def is_idle(self) -> bool:
        """Whether another task can use the connection: it is open, in no transaction, and executes nothing."""
        return self.pgconn.transaction_status == _IDLE

    @property
    def has_ended(self) -> bool:
        """Whether the server has ended the idle session. The check takes a system call and no round trip.

        A server sends nothing to an idle session without LISTEN, except when it ends the session. The server also
        reports changed defaults after its configuration was reloaded. Then the pool closes a usable connection, which
        does no harm.
        """
        return self.closed or bool(self._incoming.poll(0))

    def finish(self) -> None:
        """Close at once, in any state. A task that waits on this connection gets an OperationalError."""
        self._closed = True
        if self.pgconn.status != pq.ConnStatus.BAD:
            trio.lowlevel.notify_closing(self.pgconn.socket)
        self.pgconn.finish()

    def finish_if_silent(self) -> None:
        """Close the connection if the server has not answered in time. The waiting task gets an OperationalError."""
        if trio.current_time() > self._answer_due:
            self.finish()

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
        """Run a psycopg generator to its end. A cancellation in the middle of a statement closes the connection."""
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
                    ready = await readiness.wait_ready_until(deadline, fd, needed)
                elif needed != readiness.R and (ready := readiness.ready_now(fd, needed)):
                    pass  # usually there is room to write, and the wait for the answer comes later
                else:
                    # The pool enforces this limit. A cancel scope for every statement would cost as much as the wait
                    # itself.
                    self._answer_due = trio.current_time() + self.answer_within * self._in_flight
                    if needed == readiness.R:  # every statement waits here once, and most wait only here
                        await trio.lowlevel.wait_readable(fd)
                        ready = readiness.READY_R
                    else:
                        ready = await readiness.wait_ready(fd, needed)
                needed = gen.send(ready)
        except StopIteration as end:
            if not needed:  # the generator did not wait, as in a commit without a transaction
                await trio.lowlevel.cancel_shielded_checkpoint()
            result: T = end.value
            return result
        except (OSError, trio.ClosedResourceError) as error:
            is_silent = trio.current_time() > self._answer_due
            raise errors.OperationalError("the server did not answer in time" if is_silent else "the connection was closed") from error
        except (trio.Cancelled, KeyboardInterrupt, BaseExceptionGroup):
            if self.pgconn.transaction_status == _ACTIVE:
                await self._abandon()
            raise
        finally:
            self._answer_due = math.inf

    async def cancel_safe(self, *, timeout: float = CANCEL_TIMEOUT) -> None:  # noqa: ASYNC109 (psycopg's)
        """Ask the server to cancel the statement that this connection executes."""
        if not self._should_cancel():
            return
        request = self.pgconn.cancel_conn()
        try:
            with trio.fail_after(timeout):
                request.start()
                await readiness.complete_handshake(request, request.poll)
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
