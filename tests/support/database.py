"""The test run's own PostgreSQL: a single server, a migrated template, and a database per worker.

The run's controller calls `start_server` in `pytest_configure` and `stop` in `pytest_unconfigure`; workers find the
server by the environment, clone the template with `Database`, and call `empty` after every test.
"""

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import psycopg
import trio
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from adapters.postgres.engine import embedded
from adapters.postgres.engine.embedded.location import has_owner
from adapters.postgres.engine.migrate import migrate
from adapters.postgres.engine.pool import Pool

if TYPE_CHECKING:
    from adapters.postgres.engine.driver import Connection

# Tables with rows from the schema. `empty` skips them, so a test that writes there must restore
# them.
SEEDED: Final = frozenset({"schema_migrations", "tiers"})
# Tables with some rows from the schema, and the condition for the other rows.
PARTLY_SEEDED: Final = {"connections": sql.SQL("where org_id is not null")}

SERVER_VARIABLE: Final = "GATEHOUSE_TEST_SERVER"
TEMPLATE: Final = "gatehouse_template"

POOL_SIZE: Final = 24

_PREFIX: Final = "gatehouse-test-"
_ENOUGH_MEMORY: Final = 1024**3  # containers often give /dev/shm 64 MB


def roomy_directory() -> Path:
    """Return the directory for test databases: in memory if more than 1 GiB is free, otherwise a temporary directory."""
    # A database is many small files, and creating them takes most time. Memory matters more than
    # fsync.
    memory = Path("/dev/shm")  # noqa: S108
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _ENOUGH_MEMORY:
        return memory
    return Path(tempfile.gettempdir())


def _without_seeds(table: str) -> sql.SQL:
    return PARTLY_SEEDED.get(table, sql.SQL(""))


@contextmanager
def reachable_directory() -> Iterator[Path]:
    """Yield a directory that the database's account can enter.

    If root runs the tests, only root can enter pytest's directories. A database that root creates there is moved
    elsewhere, and stays there.
    """
    # Beside the run's server: the next run deletes a killed run's leftovers.
    server = os.environ.get(SERVER_VARIABLE)
    beside = Path(str(conninfo_to_dict(server)["host"])).parent if server else roomy_directory()
    path = Path(tempfile.mkdtemp(prefix="own-", dir=beside)).resolve()
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path)


class Server:
    """This run's server. `conninfo` connects as the superuser."""

    def __init__(self, running: embedded.Running, home: Path) -> None:
        self.conninfo = running.conninfo
        self._running = running
        self._home = home

    def stop(self) -> None:
        """Stop the server and remove its files."""
        os.environ.pop(SERVER_VARIABLE, None)
        self._running.stop()
        shutil.rmtree(self._home, ignore_errors=True)


def start_server(*, with_template: bool = True) -> Server:
    """Start this run's server, in memory if there is enough, and create the migrated template, unless no test needs it.

    The controller calls this in its main thread. Workers that start later find the server by
    SERVER_VARIABLE.
    """
    parent = roomy_directory()
    _sweep(parent)
    home = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    home.chmod(0o711)  # root's server runs as the account nobody, which must be able to enter
    try:
        server = Server(embedded.start(home / "postgres", durable=False), home)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
    try:
        if with_template:
            make_template(server.conninfo)
    except BaseException:
        server.stop()
        raise
    os.environ[SERVER_VARIABLE] = server.conninfo
    return server


def make_template(server: str) -> None:
    """Create the database that all test databases are cloned from."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(TEMPLATE)))
        trio.run(migrate, make_conninfo(server, dbname=TEMPLATE))
        # A database with connections cannot be cloned, so connections are forbidden, including
        # autovacuum.
        connection.execute(sql.SQL("alter database {} with is_template true allow_connections false").format(sql.Identifier(TEMPLATE)))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Rows in several tables, as statements that insert them."""

    inserts: sql.Composed


class KeptConnections:
    """A worker's idle connections to its database, which its tests pass on.

    A new connection costs the server a process with cold caches: its first statements take several times as long. Race
    tests use up to POOL_SIZE connections, so all are kept.
    """

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        self.idle: list[Connection] = []

    def close(self) -> None:
        while self.idle:
            self.idle.pop().pgconn.finish()  # `Connection.finish` needs a running Trio


class PoolOfKept(Pool):
    """A pool that starts with the idle connections from earlier tests, and leaves its own to the next.

    Settings and plans are kept, because resetting them takes a sixth of the whole run. A test that changes a
    setting opens its own pool. So do the plan tests in `tests/proof/volume`.
    """

    def __init__(self, kept: KeptConnections) -> None:
        super().__init__(kept.conninfo, size=POOL_SIZE)
        self._kept = kept
        self._idle, kept.idle = kept.idle, []
        self._open_connections.update((connection.server_process, connection) for connection in self._idle)

    async def aclose(self) -> None:
        """Leave the idle connections to the next test."""
        # In the same order: the pool takes the last connection first, which has the most plans.
        self._kept.idle.extend(connection for connection in self._idle if not connection.has_ended)
        self._idle.clear()
        await super().aclose()


class Database:
    """A database that is cloned from the template in about 10 ms.

    As a context manager, it is dropped at the end. A worker needs a single database, with `empty` after every test. A
    test that changes the schema needs a fresh database.
    """

    def __init__(self, server: str, name: str | None = None, *, template: str = TEMPLATE) -> None:
        self.server = server
        name = name or f"test_{secrets.token_hex(6)}"
        self._name = sql.Identifier(name)
        self.conninfo = make_conninfo(server, dbname=name)
        with psycopg.connect(server, autocommit=True) as connection:
            # file_copy skips the write-ahead log, which the default writes for crash safety.
            connection.execute(sql.SQL("create database {} template {} strategy file_copy").format(self._name, sql.Identifier(template)))

    @cached_property
    def _connection(self) -> psycopg.Connection:
        # A replica does not check foreign keys and triggers, so the tables can come in any order.
        options = "-c session_replication_role=replica -c lock_timeout=5s"
        return psycopg.connect(self.conninfo, autocommit=True, options=options)

    @cached_property
    def _tables(self) -> list[str]:
        tables = """
            select relname from pg_class
            where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition and relname <> all(%s)"""
        return [name for (name,) in self._connection.execute(tables, [list(SEEDED)])]

    @cached_property
    def _delete_call(self) -> str:
        """Create a temporary function that deletes all rows, and return the call.

        PostgreSQL keeps the plans for statements in a function, but not for a list of statements.
        """
        statements = sql.SQL(" ").join(
            sql.SQL("delete from {} {};").format(sql.Identifier(name), _without_seeds(name)) for name in self._tables
        )
        if "connections" in self._tables:  # the platform's rows stay, and a start of the service fills them
            statements += sql.SQL(
                " update connections set settings = null, client_secret = null, client_secret_set_at = null where settings is not null;"
            )
        body = sql.Literal(sql.SQL("begin {} end").format(statements).as_string(self._connection))
        self._connection.execute(sql.SQL("create function pg_temp.empty() returns void language plpgsql as {}").format(body))
        return "select pg_temp.empty()"

    def empty(self) -> None:
        """Delete all rows in all tables but SEEDED in a single round trip.

        Sequences continue, so no test can expect a certain number. A lock that a test left behind
        is an error after five seconds.
        """
        self._connection.execute(self._delete_call)

    def snapshot(self, *, without: Collection[str] = ()) -> Snapshot:
        """Return the rows in all tables but SEEDED and the tables in `without`."""
        columns = """
            select string_agg(quote_ident(attname), ', ') from pg_attribute
            where attrelid = %s::regclass and attnum > 0 and attgenerated = '' and not attisdropped"""
        stored = "select jsonb_agg(to_jsonb(t))::text from {table} t {condition}"
        insert = "insert into {table} ({columns}) select {columns} from jsonb_populate_recordset(null::{table}, {rows})"
        inserts = []
        for name in self._tables:
            if name in without:
                continue
            table = sql.Identifier(name)
            [(rows,)] = self._connection.execute(sql.SQL(stored).format(table=table, condition=_without_seeds(name)))
            if rows is not None:
                [(listed,)] = self._connection.execute(columns, [name])
                inserts.append(sql.SQL(insert).format(table=table, columns=sql.SQL(listed), rows=sql.Literal(rows)))
        return Snapshot(sql.SQL("; ").join(inserts))

    def restore(self, snapshot: Snapshot) -> None:
        """Insert a snapshot's rows, which can come from another database."""
        self._connection.execute(snapshot.inserts)

    def reset(self, snapshot: Snapshot) -> None:
        """Replace all rows by a snapshot's rows at once: a running service does not add a row in between."""
        with self._connection.transaction():
            self.empty()
            self.restore(snapshot)

    def plan_once(self) -> None:
        """Let new sessions plan every statement once, not for its first values: with few rows, the plans are alike."""
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(sql.SQL("alter database {} set plan_cache_mode = force_generic_plan").format(self._name))

    def drop(self) -> None:
        """Remove the database, even if connections are open."""
        if "_connection" in self.__dict__:
            self._connection.close()
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(self._name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.drop()


def settle(connection: psycopg.Connection, *tables: str) -> None:
    """Vacuum and analyze until every page is visible to all transactions, so that index-only scans are planned.

    A single vacuum is not enough. It skips rows that the oldest snapshot might not see, and a client that is just
    connecting has a snapshot for all databases. The connection must be in autocommit mode.
    """
    connection.execute("set synchronous_commit = on")  # unflushed pages are not visible to all transactions either
    names = sql.SQL(", ").join(map(sql.Identifier, tables))
    deadline = time.monotonic() + 60
    while True:
        connection.execute(sql.SQL("vacuum analyze {}").format(names))
        unsettled = "select relname, relallvisible, relpages from pg_class where relname = any(%s) and relallvisible < relpages"
        left = connection.execute(unsettled, [list(tables)]).fetchall()
        if not left:
            return
        if time.monotonic() > deadline:
            message = f"rows are still not visible to all transactions after 60 s: {left}"
            raise TimeoutError(message)
        time.sleep(0.05)


def _sweep(parent: Path) -> None:
    """Remove the directories that killed runs left behind."""
    for home in parent.glob(f"{_PREFIX}*"):
        lock = home / "postgres.lock"
        try:
            # Keep the newest: a starting run creates the file an instant before it takes the lock.
            left_behind = lock.stat().st_uid == os.geteuid() and time.time() - lock.stat().st_mtime > 60
        except OSError:
            continue
        if left_behind and not has_owner(home / "postgres"):
            shutil.rmtree(home, ignore_errors=True)
