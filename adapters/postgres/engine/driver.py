"""psycopg on Trio: its asynchronous connection, with Trio doing the waiting, and a short path for single statements.

`rows`, `row` and `run` send prepared statements over `psycopg.pq`, psycopg's interface to libpq. Values
are converted by psycopg, so they have the same types as in its cursors (docs/adr/0025). For all other
features use psycopg's own methods, such as `execute`, `cursor` and `notifies`. psycopg implements them
in generators that yield the readiness of the socket that they need next, and `wait` drives these.

Private interfaces of psycopg 3.3 that this module uses to wait with Trio (run its tests before an upgrade to a new
minor version): `AsyncConnection.wait` and `.lock` are replaced, and `._closed`, `._should_cancel` and
`errors._WaitTimeout` are used. Native support for Trio would replace this. It is requested in
https://github.com/psycopg/psycopg/issues/29; an attempt, pull request 146, was not merged.
"""

import logging
import math
import select
from collections.abc import Mapping, Sequence
from itertools import count
from types import MappingProxyType, TracebackType
from typing import Any, LiteralString, NamedTuple, TypeVar

import psycopg
import trio
from psycopg import errors, pq
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import Transformer
from psycopg.waiting import Wait

from adapters.postgres.engine.placeholders import to_positional
from adapters.postgres.engine.readiness import READY_R, R, complete_handshake, ready_now, wait_ready, wait_ready_until

T = TypeVar("T")
Row = tuple[Any, ...]

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

_NO_PARAMETERS: Mapping[str, object] = MappingProxyType({})

_log = logging.getLogger(__name__)


class Connection(psycopg.AsyncConnection[Row]):
    """A database session, for one task at a time. `connect` opens it."""

    lock: Any  # psycopg's own lock belongs to asyncio

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        super().__init__(pgconn)
        self.lock = trio.Lock()
        # psycopg's cursors prepare nothing, because with their own prepared statements they would
        # deallocate those of this class.
        self.prepare_threshold = None
        # Seconds for each statement. Without a limit, a task would wait forever for a server that
        # hangs or is unreachable. The owner calls `finish_if_silent` from time to time.
        self.answer_within = math.inf
        self._answer_due = math.inf  # while a task waits for the server, the time by which it must answer
        self.server_process = pgconn.backend_pid  # still known after the connection was closed
        self._transformer = Transformer(self)
        self._statement_names: dict[_Key, bytes] = {}  # the names of the prepared statements
        self._numbers = count()
        self._batch: list[_Statement] = []  # sent with the next statement
        self._in_flight = 1  # statements in the current round trip
        self._incoming = select.poll()
        self._incoming.register(pgconn.socket, select.POLLIN)

    # Single statements. They have named parameters, `%(name)s`, and are prepared at their first use.

    async def rows(self, text: LiteralString, parameters: Mapping[str, object] = _NO_PARAMETERS) -> list[Row]:
        """Execute a statement and return all rows."""
        result = await self._execute(text, parameters)
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)

    async def row(self, text: LiteralString, parameters: Mapping[str, object] = _NO_PARAMETERS) -> Row | None:
        """Execute a statement and return its first row, or None if there is none."""
        return self._first_row(await self._execute(text, parameters))

    async def run(self, text: LiteralString, parameters: Mapping[str, object] = _NO_PARAMETERS) -> int:
        """Execute a statement and return the number of affected rows, or -1 for a statement that affects none."""
        affected = (await self._execute(text, parameters)).command_tuples
        return -1 if affected is None else affected

    def run_with_next(self, text: LiteralString, parameters: Mapping[str, object] = _NO_PARAMETERS) -> None:
        """Send a statement together with the next one, in one round trip. Its result is not read.

        The next statement raises the errors of both. Use this only in transactions: a commit follows every other statement.
        """
        self._append(text, parameters, None)

    def pipeline_next(self, text: LiteralString, parameters: Mapping[str, object] = _NO_PARAMETERS) -> "Answer":
        """Send a statement together with the next one, like `run_with_next`, and return its answer. The next statement fills the answer."""
        answer = Answer()
        self._append(text, parameters, answer)
        return answer

    def join_next(self, text: LiteralString, parameters: Mapping[str, object] = _NO_PARAMETERS) -> "Answer":
        """Execute a statement in autocommit mode in one round trip with the next one, and return its answer.

        Both are one transaction, which the next statement commits. `send_pending` executes it alone,
        and `forget_pending` drops it.
        """
        assert not self.in_transaction, "in a transaction, use pipeline_next"
        answer = Answer()
        self._batch.append(self._statement(text, parameters, answer))
        return answer

    def forget_pending(self) -> None:
        """Drop the statements that wait for the next one."""
        self._batch = []

    async def send_pending(self) -> None:
        """Send the statements that wait for the next one now, and fill their answers."""
        if self._batch:
            await self._run_batch()
        else:
            await trio.lowlevel.checkpoint()

    @property
    def prepared_count(self) -> int:
        """The number of prepared statements that the server keeps for this session."""
        return len(self._statement_names)

    def _append(self, text: LiteralString, parameters: Mapping[str, object], answer: "Answer | None") -> None:
        assert self.in_transaction, "outside of a transaction there may be no next statement"
        self._batch.append(self._statement(text, parameters, answer))

    def _statement(self, text: LiteralString, parameters: Mapping[str, object], answer: "Answer | None" = None) -> "_Statement":
        sql, _, values_of, formats = to_positional(text)
        transformer = self._transformer
        values = transformer.dump_sequence(values_of(parameters), formats)
        # The types belong to the key, because PostgreSQL may understand the same text differently
        # with others, such as text and bytea.
        return _Statement((sql, transformer.types or ()), values, transformer.formats, answer)

    async def _execute(self, text: LiteralString, parameters: Mapping[str, object] = _NO_PARAMETERS) -> pq.abc.PGresult:
        if self.pgconn.transaction_status == _ACTIVE:
            raise RuntimeError("another task executes a statement on this connection")
        statement = self._statement(text, parameters)
        name = self._statement_names.get(statement.key)
        if name is not None and not self._batch:
            (result,) = await self.wait(self._single_gen(name, statement))
            return result
        self._batch.append(statement)
        return await self._run_batch()

    async def _run_batch(self) -> pq.abc.PGresult:
        """Send the batch, fill its answers, and return the result of its last statement."""
        batch, self._batch = self._batch, []
        self._in_flight = len(batch)
        try:
            results = await self.wait(self._batch_gen(batch))
        finally:
            self._in_flight = 1
        for (*_, answer), result in zip(batch, results, strict=True):
            if answer is not None:
                answer.row = self._first_row(result)
        return results[-1]

    def _first_row(self, result: pq.abc.PGresult) -> Row | None:
        if not result.ntuples:
            return None
        self._transformer.set_pgresult(result)
        return self._transformer.load_row(0, tuple)

    def _single_gen(self, name: bytes, statement: "_Statement") -> PQGen[list[pq.abc.PGresult]]:
        self.pgconn.send_query_prepared(name, statement.values, statement.formats, _BINARY)
        results = yield from self._results_gen(in_pipeline=False)
        return self._checked(results, 1)

    def _batch_gen(self, batch: "list[_Statement]") -> PQGen[list[pq.abc.PGresult]]:
        """Send the statements in one pipeline, and prepare those that are not prepared yet. Return a result for each."""
        pgconn = self.pgconn
        pgconn.enter_pipeline_mode()
        try:
            sent: list[_Key | None] = []  # the statement that is prepared, or None for an execution
            for key, values, formats, _ in batch:
                name = self._statement_names.get(key)
                if name is None:
                    name = self._statement_names[key] = b"s%d" % next(self._numbers)
                    pgconn.send_prepare(name, *key)
                    sent.append(key)
                pgconn.send_query_prepared(name, values, formats, _BINARY)
                sent.append(None)
            pgconn.pipeline_sync()
            results = yield from self._results_gen(in_pipeline=True)
            if pgconn.status != _BAD:
                pgconn.exit_pipeline_mode()
        except BaseException:
            self.finish()  # the position in the pipeline is unknown
            raise
        for prepared, result in zip(sent, results, strict=False):
            if prepared is not None and result.status != _COMMAND_OK:  # it failed, or was skipped after an error
                del self._statement_names[prepared]
        checked = self._checked(results, len(sent))
        return [result for prepared, result in zip(sent, checked, strict=True) if prepared is None]

    def _results_gen(self, *, in_pipeline: bool) -> PQGen[list[pq.abc.PGresult]]:
        """Send what libpq has not sent yet, and return all results."""
        pgconn = self.pgconn
        results: list[pq.abc.PGresult] = []
        while pgconn.flush():
            if (yield Wait.RW) & READY_R:
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

    def _checked(self, results: list[pq.abc.PGresult], count: int) -> list[pq.abc.PGresult]:
        for result in results:
            if result.status == _FATAL_ERROR:
                raise errors.error_from_result(result)
        if len(results) != count:
            raise errors.OperationalError("the connection was lost")
        return results

    # A transaction on a connection in autocommit mode

    def begin(self) -> None:
        """Start a transaction together with the next statement."""
        self._batch.append(self._statement("begin", _NO_PARAMETERS))

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun, or begins with the next statement."""
        return bool(self._batch) or not self.is_idle

    async def commit(self, *, then: tuple[LiteralString, Mapping[str, object]] | None = None) -> None:
        """Commit the transaction, and `then` execute a statement of its own in the same round trip.

        If none of its statements was sent yet, they are sent as one pipeline, which is a transaction without `begin` and `commit`.
        Without statements, nothing is sent.
        """
        if then is not None:
            self._batch.append(self._statement("commit", _NO_PARAMETERS))
            await self._execute(*then)
        elif self.is_idle:
            del self._batch[:1]  # begin
            await self.send_pending()
        else:
            await self._execute("commit")

    async def rollback(self) -> None:
        """Roll back the transaction, if there is one."""
        self._batch = []
        if not self.is_idle:
            await self._execute("rollback")

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
                    ready = await wait_ready_until(deadline, fd, needed)
                elif needed != R and (ready := ready_now(fd, needed)):
                    pass  # usually there is room to write, and the wait for the answer comes later
                else:
                    # The pool enforces this limit. A cancel scope for each statement would cost as much as
                    # the wait itself.
                    self._answer_due = trio.current_time() + self.answer_within * self._in_flight
                    if needed == R:  # every statement waits here once, and most wait only here
                        await trio.lowlevel.wait_readable(fd)
                        ready = READY_R
                    else:
                        ready = await wait_ready(fd, needed)
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


_Key = tuple[bytes, tuple[int, ...]]  # a text, and the types of its parameters as object ids


class _Statement(NamedTuple):
    key: _Key
    values: Sequence[Buffer | None]
    formats: list[pq.Format] | None
    answer: Answer | None
