"""psycopg on Trio: its asynchronous connection, with the waiting done by Trio.

psycopg writes the protocol as generators that name the readiness of the socket they need next, and `Connection.wait`
drives them. Cursors, transactions, pipelines, COPY and LISTEN all go through `wait` and `lock`, so they work as psycopg
documents them. Written against psycopg 3.3; a new minor version is taken only with the tests of this file.
"""

import ipaddress
import logging
import math
import select
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import psycopg
import trio
from psycopg import errors, pq
from psycopg.abc import Params, PQGen, QueryNoTemplate
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.generators import send
from psycopg.waiting import Ready, Wait

T = TypeVar("T")
Row = tuple[Any, ...]

# A statement is prepared when it is executed for the second time. Not the first: a text of several statements, such as a
# migration, cannot be prepared, and psycopg learns that by executing it.
PREPARE_THRESHOLD = 1
# The service has more statements than psycopg's 100, and a cache that is too small costs a second round trip each time.
PREPARED_MAX = 1000
# How long a cancelled task goes on to tell the server so. The server's statement_timeout ends the query in any case.
CANCEL_PATIENCE = 2.0

_DEFAULTS = {
    "client_encoding": "UTF8",
    "gssencmode": "disable",  # or libpq looks for Kerberos tickets before every connection
    # A server that vanished without a word is noticed within half a minute, not after the kernel's quarter of an hour.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

# Plain integers: an operation on psycopg's own enumerations costs more than the system calls around it.
_R, _W = int(Wait.R), int(Wait.W)
_READY_R, _READY_W = int(Ready.R), int(Ready.W)
_ACTIVE = pq.TransactionStatus.ACTIVE
_IDLE = pq.TransactionStatus.IDLE

_log = logging.getLogger(__name__)


class Connection(psycopg.AsyncConnection[Row]):
    """A session of the database, for one task at a time. `connect` makes it."""

    lock: Any  # psycopg's own is asyncio's

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        super().__init__(pgconn)
        self.lock = _Lock()
        self.prepare_threshold = PREPARE_THRESHOLD
        self.prepared_max = PREPARED_MAX
        # Seconds for each statement: a server that is frozen, or cut off in silence, would be waited for for ever.
        self.answer_within = math.inf
        self.server_process = pgconn.backend_pid  # still known after the connection was closed
        self._cursor = self.cursor()
        self._sink = self.cursor()  # for results that nobody asks for
        self._under_way = 1  # statements that the next answer is of
        self._ahead: list[tuple[QueryNoTemplate, Params | None, Answer | None]] = []
        self._incoming = select.poll()
        self._incoming.register(pgconn.socket, select.POLLIN)

    # -- one statement each; a good deal cheaper than `execute`, because all use one cursor

    async def rows(self, query: QueryNoTemplate, params: Params | None = None) -> list[Row]:
        """All rows of a statement."""
        # Nothing is awaited between the answer and the end of the fetch, so no other task can use the cursor in between.
        await self._execute(query, params, binary=True)
        return await self._cursor.fetchall()

    async def row(self, query: QueryNoTemplate, params: Params | None = None) -> Row | None:
        """The first row of a statement, or None if it has none."""
        await self._execute(query, params, binary=True)
        return await self._cursor.fetchone()

    async def run(self, query: QueryNoTemplate, params: Params | None = None) -> int:
        """Execute a statement; how many rows it touched."""
        await self._execute(query, params)
        return self._cursor.rowcount

    def ahead(self, query: QueryNoTemplate, params: Params | None = None) -> None:
        """Execute a statement whose result nobody asks for with the next one: before it, in the same round trip.

        That one raises what is wrong with either. For transactions, which end with a statement: their commit.
        """
        self._append(query, params, None)

    def pipeline_next(self, query: QueryNoTemplate, params: Params | None = None) -> "Answer":
        """The same with a result, which is known when the next statement has been executed."""
        answer = Answer()
        self._append(query, params, answer)
        return answer

    def _append(self, query: QueryNoTemplate, params: Params | None, answer: "Answer | None") -> None:
        assert self.in_transaction, "outside of one there may never be a next statement"
        self._ahead.append((query, params, answer))

    async def _execute(self, query: QueryNoTemplate, params: Params | None = None, *, binary: bool = False) -> None:
        if not self._ahead:
            await self._cursor.execute(query, params, binary=binary)
            return
        statements, self._ahead = self._ahead, []
        asked = [(answer, self.cursor()) for *_, answer in statements if answer is not None]
        cursors = dict(asked)
        exchange = [
            (self._sink, query, params, False) if answer is None else (cursors[answer], query, params, True)
            for query, params, answer in statements
        ]
        self._under_way = len(exchange) + 1
        try:
            async with self.lock:
                await self.wait(self._together([*exchange, (self._cursor, query, params, binary)]))
        finally:
            self._under_way = 1
        for answer, cursor in asked:
            answer.row = await cursor.fetchone()

    def _together(self, statements: list[tuple[psycopg.AsyncCursor[Row], QueryNoTemplate, Params | None, bool]]) -> PQGen[None]:
        self._pipeline = pipeline = _Together(self)
        try:
            yield from pipeline._enter_gen()
            try:
                for cursor, query, params, binary in statements:
                    yield from cursor._execute_gen(query, params, binary=binary)
            except Exception:  # a parameter of no type that PostgreSQL has; the statements before must go, for psycopg has noted them
                yield from pipeline._exit_gen()
                raise
            yield from pipeline._exit_gen()
        finally:
            self._pipeline = None
            if pipeline.is_broken:
                # What follows an error is skipped, preparing included, which psycopg has noted as done. It prepares everything anew.
                self._prepared.clear()
            if self.pgconn.status != pq.ConnStatus.BAD:
                self.pgconn.exit_pipeline_mode()

    # -- a transaction on a connection in autocommit

    def begin(self) -> None:
        """Begin a transaction with the next statement."""
        self._ahead.append(("begin", None, None))

    @property
    def in_transaction(self) -> bool:
        """Whether one has begun, or will with the next statement."""
        return bool(self._ahead) or not self.is_idle

    async def commit(self) -> None:
        """Commit the transaction; one in which nothing was done has not begun."""
        if self.is_idle and len(self._ahead) <= 1:
            self._ahead = []
            await trio.lowlevel.checkpoint()
        else:
            await self._execute("commit")

    async def rollback(self) -> None:
        """Roll back the transaction, if there is one.

        psycopg would also throw away every prepared statement, in case the transaction had made the tables that they use.
        Refusals roll back often here, and transactions make no tables.
        """
        self._ahead = []
        async with self.lock:
            if not self.is_idle:
                await self.wait(self._exec_command(b"rollback"))

    # -- the end of a session

    @property
    def is_idle(self) -> bool:
        """Open, outside of a transaction and with no statement under way: fit for another task."""
        return self.pgconn.transaction_status == _IDLE

    @property
    def has_ended(self) -> bool:
        """Whether the server has ended an idle session. One system call, no round trip.

        To a session that is idle and listens to nothing the server speaks only to take leave. (It also reports a changed
        default, after its configuration was reloaded; that costs a connection, and is not worth telling apart.)
        """
        return self.closed or bool(self._incoming.poll(0))

    def finish(self) -> None:
        """Close at once, whatever is under way. A task that waits on this connection gets an OperationalError."""
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
            self.finish()  # also when the rollback or commit above was cancelled

    # -- the waiting

    async def wait(self, gen: PQGen[T], interval: float = 0.0, timeout: float | None = None) -> T:  # noqa: ASYNC109 (psycopg's)
        """Drive one of psycopg's generators to its end. Cancelled in the middle of a statement, the connection is closed."""
        # Before anything is sent: a task that is cancelled already must not cost the connection.
        await trio.lowlevel.checkpoint_if_cancelled()
        deadline = None if timeout is None else trio.current_time() + timeout
        wanted: int = 0
        try:
            wanted = next(gen)
            fd = self.pgconn.socket
            while True:
                if deadline is not None:
                    ready = await _readiness_until(deadline, fd, wanted)
                elif wanted != _R and (ready := _readiness_now(fd, wanted)):
                    pass  # there is room to write as a rule, and the answer is waited for later
                else:
                    with trio.move_on_after(self.answer_within * self._under_way) as patience:
                        if wanted == _R:  # every statement waits here once, and most wait only here
                            await trio.lowlevel.wait_readable(fd)
                            ready = _READY_R
                        else:
                            ready = await _readiness(fd, wanted)
                    if patience.cancelled_caught:
                        self.finish()
                        raise errors.OperationalError("the server did not answer in time")
                wanted = gen.send(ready)
        except StopIteration as end:
            if not wanted:  # there was nothing to wait for, as when commit finds no transaction
                await trio.lowlevel.cancel_shielded_checkpoint()
            result: T = end.value
            return result
        except (OSError, trio.ClosedResourceError) as error:
            raise errors.OperationalError("the connection was closed") from error
        except (trio.Cancelled, KeyboardInterrupt, BaseExceptionGroup):
            if self.pgconn.transaction_status == _ACTIVE:
                await self._abandon()
            raise

    async def cancel_safe(self, *, timeout: float = CANCEL_PATIENCE) -> None:  # noqa: ASYNC109 (psycopg's)
        """Ask the server to give up the statement that this connection executes."""
        if not self._should_cancel():
            return
        request = self.pgconn.cancel_conn()
        try:
            with trio.fail_after(timeout):
                request.start()
                await _shake_hands(request, request.poll)
        except trio.TooSlowError:
            raise errors.CancellationTimeout("the server did not take the request to cancel in time") from None
        finally:
            request.finish()

    async def _abandon(self) -> None:
        """Leave a statement half way: tell the server to stop its work, then give up the session, whose state is unknown."""
        try:
            with trio.CancelScope(shield=True):
                await self.cancel_safe(timeout=CANCEL_PATIENCE)
        except (errors.Error, OSError) as error:
            _log.info("a cancelled statement may still be running: %s", error)
        finally:
            self.finish()


class Answer:
    """The first row of a statement that was sent ahead, or None if it has none; once it is known."""

    row: Row | None


class _Together(psycopg.AsyncPipeline):
    """A pipeline that goes off as a whole when it ends. psycopg's own takes system calls for each statement, and wakes the server with the
    first of them."""

    is_broken = False  # a statement was skipped, for one before it failed

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
    """A Trio lock that is free of charge when it is free: `wait`, which follows in every use, is the checkpoint."""

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


async def _readiness(fd: int, wanted: int) -> int:
    if wanted == _R:
        await trio.lowlevel.wait_readable(fd)
        return _READY_R
    if wanted == _W:
        await trio.lowlevel.wait_writable(fd)
        return _READY_W
    # Both are wanted when much is sent: the server may have to be heard before it reads on.
    ready = 0
    async with trio.open_nursery() as nursery:

        async def first(one: int) -> None:
            nonlocal ready
            try:
                ready |= await _readiness(fd, one)
            except (OSError, trio.ClosedResourceError):
                ready |= one  # using the socket is what tells the reason
            nursery.cancel_scope.cancel()

        nursery.start_soon(first, _R)
        nursery.start_soon(first, _W)
    return ready


async def _readiness_until(deadline: float, fd: int, wanted: int) -> int:
    # The socket is asked first, so that a timeout of 0 hears what has arrived.
    if not (ready := _readiness_now(fd, wanted)):
        with trio.move_on_at(deadline):
            ready = await _readiness(fd, wanted)
    if not ready:
        raise errors._WaitTimeout("wait timeout expired")
    return ready


def _readiness_now(fd: int, wanted: int) -> int:
    poll = select.poll()
    poll.register(fd, (select.POLLIN if wanted & _R else 0) | (select.POLLOUT if wanted & _W else 0))
    events = sum(event for _, event in poll.poll(0))
    # An error or the end of the stream counts as both: reading or writing is what tells the reason.
    broken = events & ~(select.POLLIN | select.POLLOUT)
    return (_READY_R if events & select.POLLIN or broken else 0) | (_READY_W if events & select.POLLOUT or broken else 0)


async def _shake_hands(connection: pq.abc.PGconn | pq.abc.PGcancelConn, poll: Callable[[], int]) -> None:
    """libpq's steps from a started connection to a finished one. It may change sockets in between."""
    status: int = pq.PollingStatus.WRITING  # what libpq's manual prescribes before the first step
    while status != pq.PollingStatus.OK:
        if connection.status == pq.ConnStatus.BAD or status == pq.PollingStatus.FAILED:
            raise errors.OperationalError(connection.get_error_message("utf-8"))
        if status == pq.PollingStatus.READING:
            await trio.lowlevel.wait_readable(connection.socket)
        else:
            await trio.lowlevel.wait_writable(connection.socket)
        status = poll()


# -- connecting --------------------------------------------------------------------------------------------------------


def parse_address(conninfo: str) -> dict[str, Any]:
    """The parts of a URL or connection string. Raises ValueError with a clause to follow the setting's name."""
    try:
        return conninfo_to_dict(conninfo)
    except errors.ProgrammingError:  # its message quotes the text, and with it the password
        raise ValueError("is not a valid URL or connection string, such as postgresql://user:password@host/database") from None


async def connect(
    conninfo: str,
    *,
    timeout: float,  # noqa: ASYNC109 (shared out among the addresses, which a scope around the call could not do)
    autocommit: bool = True,
    application_name: str = "gatehouse",
    statement_timeout_ms: int = 0,
    lock_timeout_ms: int = 0,
    idle_in_transaction_session_timeout_ms: int = 0,
) -> Connection:
    """Open a session within `timeout` seconds; 0 for one of the other timeouts means none. Raises OperationalError."""
    settings = {
        "TimeZone": "UTC",
        "statement_timeout": statement_timeout_ms,
        "lock_timeout": lock_timeout_ms,
        "idle_in_transaction_session_timeout": idle_in_transaction_session_timeout_ms,
        # A request to cancel that overtakes its query has no effect. Then the server notices by this that nobody listens any more.
        "client_connection_check_interval": 1000,
    }
    try:
        given = parse_address(conninfo)
    except ValueError as error:
        raise errors.OperationalError(f"the address of the database {error}") from None
    # With the start of the session, not by statements after it, which would cost a round trip. What the URL says comes last and wins.
    options = " ".join([*(f"-c {name}={value}" for name, value in settings.items()), str(given.get("options") or "")])
    parameters = {**_DEFAULTS, "application_name": application_name, **given, "options": options}
    deadline = trio.current_time() + timeout
    failure: errors.OperationalError = errors.ConnectionTimeout("the name of the database's host was not resolved in time")
    with trio.move_on_at(deadline):
        attempts = await _attempts(parameters)
        failure = errors.ConnectionTimeout("the database did not answer in time")
        for left, attempt in zip(range(len(attempts), 0, -1), attempts, strict=True):
            # libpq would wait for ever on an address that swallows packets, and never come to the next one.
            with trio.move_on_at(trio.current_time() + (deadline - trio.current_time()) / left):
                try:
                    return await _open(make_conninfo("", **attempt), autocommit=autocommit)
                except errors.OperationalError as error:
                    failure = error
    raise failure


async def _open(conninfo: str, *, autocommit: bool) -> Connection:
    pgconn = pq.PGconn.connect_start(conninfo.encode())
    try:
        await _shake_hands(pgconn, pgconn.connect_poll)
        pgconn.nonblocking = 1
        connection = Connection(pgconn)
        await connection.set_autocommit(autocommit)
    except OSError as error:
        pgconn.finish()
        raise errors.OperationalError("the connection was closed") from error
    except BaseException:
        pgconn.finish()
        raise
    return connection


async def _attempts(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """One set of parameters for each address to try. libpq itself would resolve the names, and block everything meanwhile."""
    hosts = str(parameters.get("host") or "").split(",")
    addresses = str(parameters.get("hostaddr") or "").split(",")
    ports = str(parameters.get("port") or "").split(",")
    attempts: list[dict[str, Any]] = []
    failure: OSError | None = None
    for index in range(max(len(hosts), len(addresses))):
        host, address = hosts[index : index + 1], addresses[index : index + 1]
        attempt = parameters | {"host": "".join(host), "hostaddr": "".join(address), "port": ports[index % len(ports)]}
        if attempt["hostaddr"] or not attempt["host"] or attempt["host"].startswith(("/", "@")):
            attempts.append(attempt)
            continue
        try:
            attempts.extend(attempt | {"hostaddr": found} for found in await _resolved(attempt["host"]))
        except OSError as error:
            failure = error
    if not attempts:
        raise errors.OperationalError(f"the name of the database's host was not resolved: {failure}") from failure
    return [{name: value for name, value in attempt.items() if value != ""} for attempt in attempts]


_resolvers: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("postgres_resolvers")


async def _resolved(host: str) -> list[str]:
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    # Threads of its own: other lookups, which outsiders can make slow, must not keep the service from its database.
    try:
        limiter = _resolvers.get()
    except LookupError:
        _resolvers.set(limiter := trio.CapacityLimiter(4))
    found = await trio.to_thread.run_sync(_getaddrinfo, host, limiter=limiter, abandon_on_cancel=True)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _getaddrinfo(host: str) -> list[Any]:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
