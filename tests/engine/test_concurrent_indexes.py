"""Migrations build indexes on existing tables while writers go on, and continue an interrupted build."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import psycopg
import pytest
import trio
from psycopg import errors

from adapters.postgres.engine.migrate import SQL_FILES, MigrationRefused, migrate, pending, read_migrations
from tests import ROOT
from tests.support.waiting import eventually, until

FILE: Final = "migrations/0002_indexes.sql"
CONCURRENT: Final = """-- concurrently
-- A comment; with a semicolon
create index concurrently if not exists one_by_n on one (n);
create unique index concurrently if not exists one_by_m on one (m)
    where m is not null;
"""
INDEXES: Final = """
    select c.relname, i.indisvalid, c.oid from pg_index i join pg_class c on c.oid = i.indexrelid
    where i.indrelid = 'one'::regclass order by 1"""
BUILDING: Final = (
    "select pid from pg_stat_progress_create_index where datname = current_database() and phase = 'waiting for writers before build'"
)
MIGRATE: Final = """
import sys, trio, pathlib
from adapters.postgres.engine.migrate import migrate
print(*trio.run(migrate, sys.argv[1], pathlib.Path(sys.argv[2])))
"""


@pytest.fixture
def directory(fresh: str, tmp_path: Path) -> Path:
    """Migrations from which the database lacks only the migration that builds two indexes."""
    (tmp_path / "migrations").mkdir()
    (tmp_path / "schema").mkdir()
    (tmp_path / "schema/01_one.sql").write_text("create table one (n int, m int);")
    trio.run(migrate, fresh, tmp_path)
    (tmp_path / FILE).write_text(CONCURRENT)
    return tmp_path


def start(conninfo: str, directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MIGRATE, conninfo, str(directory)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def test_others_write_while_an_index_is_built(fresh: str, directory: Path) -> None:
    with psycopg.connect(fresh) as writer, psycopg.connect(fresh, autocommit=True) as other:
        writer.execute("insert into one values (1, 1)")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(migrate, fresh, directory)
            await eventually(lambda: other.execute(BUILDING).fetchall(), "the build waits for the open transaction")
            other.execute("set lock_timeout = '1s'")
            other.execute("insert into one values (2, 2)")
            other.execute("update one set m = 3 where n = 2")
            assert await pending(fresh, directory) == ["0002_indexes"]
            writer.commit()
        assert [row[:2] for row in other.execute(INDEXES).fetchall()] == [("one_by_m", True), ("one_by_n", True)]
    assert await pending(fresh, directory) == []


@pytest.mark.slow
async def test_a_build_whose_process_is_killed_is_continued(fresh: str, directory: Path) -> None:
    """An index that was complete is kept, and the incomplete index is built again."""
    with psycopg.connect(fresh) as writer, psycopg.connect(fresh, autocommit=True) as other:
        other.execute("create index one_by_n on one (n)")
        complete = other.execute(INDEXES).fetchall()
        writer.execute("insert into one values (1, 1)")
        process = start(fresh, directory)
        until(lambda: other.execute(BUILDING).fetchall(), "the build waits for the open transaction")
        process.kill()
        process.communicate()
        until(lambda: not other.execute(BUILDING).fetchall(), "the server has noticed the end of the process")
        left = other.execute(INDEXES).fetchall()
        assert [row[:2] for row in left] == [("one_by_m", False), ("one_by_n", True)]
        writer.commit()
        assert await migrate(fresh, directory) == ["0002_indexes"]
        continued = other.execute(INDEXES).fetchall()
    assert [row[:2] for row in continued] == [("one_by_m", True), ("one_by_n", True)]
    assert continued[1:] == complete
    assert continued[0][2] != left[0][2]


@pytest.mark.slow
def test_two_processes_build_an_index_once(fresh: str, directory: Path) -> None:
    """The second process holds no snapshot while it waits, because the build would wait for that."""
    with psycopg.connect(fresh) as writer, psycopg.connect(fresh, autocommit=True) as other:
        writer.execute("insert into one values (1, 1)")
        first = start(fresh, directory)
        until(lambda: other.execute(BUILDING).fetchall(), "the build waits for the open transaction")
        second = start(fresh, directory)
        sessions = "select from pg_stat_activity where datname = current_database() and application_name = 'gatehouse migrate'"
        until(lambda: len(other.execute(sessions).fetchall()) == 2, "the second process is connected")
        writer.commit()
        outputs = [process.communicate(timeout=60) for process in (first, second)]
    assert outputs == [("0002_indexes\n", ""), ("\n", "")]


async def test_a_failed_build_is_tried_again(fresh: str, directory: Path) -> None:
    with psycopg.connect(fresh, autocommit=True) as other:
        other.execute("insert into one values (1, 1), (2, 1)")
        with pytest.raises(errors.UniqueViolation) as caught:
            await migrate(fresh, directory)
        assert "in the migration 0002_indexes" in caught.value.__notes__
        assert [row[:2] for row in other.execute(INDEXES).fetchall()] == [("one_by_m", False), ("one_by_n", True)]
        other.execute("delete from one where n = 2")
        assert await migrate(fresh, directory) == ["0002_indexes"]
        assert [row[:2] for row in other.execute(INDEXES).fetchall()] == [("one_by_m", True), ("one_by_n", True)]


@pytest.mark.parametrize(
    "statements",
    [
        "",
        "create index concurrently if not exists one_by_n on one (n); update one set n = 1;",
        "create index concurrently one_by_n on one (n);",
        "create index if not exists one_by_n on one (n);",
        "create index concurrently if not exists one_by_n on one (n)",
    ],
)
def test_a_concurrent_migration_only_builds_indexes(directory: Path, statements: str) -> None:
    (directory / FILE).write_text(f"-- concurrently\n{statements}\n")
    with pytest.raises(MigrationRefused, match="0002_indexes is concurrent"):
        read_migrations(directory)


def blocking_indexes(directory: Path) -> list[str]:
    """Return the migrations that make writers on an existing table wait for an index."""
    found = []
    for migration in read_migrations(directory)[1:]:
        sql = re.sub("--.*", "", migration.sql.decode().lower())
        created = set(re.findall(r"create table (?:if not exists )?(\w+)", sql))
        indexed = set(re.findall(r"create (?:unique )?index (?:if not exists )?\w+ on (?:only )?(\w+)", sql))
        indexed |= set(re.findall(r"alter table (?:only )?(\w+)[^;]*?\b(?:unique|primary key|exclude)\b(?! using index)", sql))
        if indexed - created and not migration.indexes:
            found.append(migration.name)
    return found


def test_every_migration_builds_indexes_of_existing_tables_concurrently() -> None:
    """Otherwise sign-ins wait while a large table gets an index (docs/contributing/adding-an-endpoint.md)."""
    assert blocking_indexes(SQL_FILES) == []


@pytest.mark.parametrize(
    "statement",
    [
        "create index login_events_by_agent on login_events (agent);",
        "create table two (n int);\nCREATE UNIQUE INDEX IF NOT EXISTS audit_log_by_agent ON audit_log (agent);",
        "alter table users\n    add column handle text unique;",
    ],
)
def test_a_migration_that_blocks_writers_is_found(directory: Path, statement: str) -> None:
    (directory / "migrations/0003_later.sql").write_text(statement)
    assert blocking_indexes(directory) == ["0003_later"]
