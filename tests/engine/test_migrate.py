"""Any number of processes apply migrations once, in order, completely or not at all."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import pytest
import trio
import trio.testing
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.driver import Connection
from adapters.postgres.engine.migrate import CREATE_TABLE, SQL_FILES, MigrationRefused, migrate, pending, read_migrations
from core.kernel.errors import StorageDown
from tests import ROOT
from tests.engine.catalog import catalog
from tests.support.waiting import PATIENCE

BASELINE = "create table one (n int);"
FIRST = "insert into one values (1);"
SECOND = "alter table one add column m int; update one set m = 2;"

NAMES = ["0001_schema", "0002_first", "0003_second"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for path, text in {"schema/01_one.sql": BASELINE, "migrations/0002_first.sql": FIRST, "migrations/0003_second.sql": SECOND}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "migrations/README.md").write_text("not a migration")
    return tmp_path


@asynccontextmanager
async def session(conninfo: str) -> AsyncIterator[Connection]:
    connection = await connect(conninfo, timeout=PATIENCE)
    try:
        yield connection
    finally:
        connection.finish()


async def test_migrations_are_applied_in_order_and_once(fresh: str, directory: Path) -> None:
    assert await pending(fresh, directory) == NAMES
    assert await migrate(fresh, directory) == NAMES
    assert await migrate(fresh, directory) == []
    assert await pending(fresh, directory) == []
    async with session(fresh) as connection:
        assert await connection.rows("select n, m from one") == [(1, 2)]
        rows = await connection.rows("select number, name, sha256, applied_at from schema_migrations order by number")
    assert [row[:3] for row in rows] == [
        (1, "0001_schema", sha256(BASELINE.encode()).hexdigest()),
        (2, "0002_first", sha256(FIRST.encode()).hexdigest()),
        (3, "0003_second", sha256(SECOND.encode()).hexdigest()),
    ]
    assert all(isinstance(row[3], datetime) for row in rows)


async def test_a_new_file_is_applied_later_and_a_comment_in_the_baseline_can_change(fresh: str, directory: Path) -> None:
    await migrate(fresh, directory)
    (directory / "schema/01_one.sql").write_text(f"-- A table\n{BASELINE}  -- of numbers\n")
    (directory / "migrations/0010_third.sql").write_text("drop table one")
    assert await pending(fresh, directory) == ["0010_third"]
    assert await migrate(fresh, directory) == ["0010_third"]


MADE_BEFORE = {
    "an earlier version": "insert into schema_migrations values (1, '0001_first_slice', md5('')), (76, '0076_last', md5(''))",
    "an unreleased revision": "insert into schema_migrations values (77, '0077_baseline', md5('')), (78, '0078_later', md5(''))",
    "another schema": "insert into schema_migrations values (1, '0001_schema', md5(''))",
}


@pytest.mark.parametrize("statement", MADE_BEFORE.values(), ids=MADE_BEFORE)
async def test_a_database_that_was_made_before_1_0_0_is_refused_and_unchanged(fresh: str, directory: Path, statement: str) -> None:
    async with session(fresh) as connection:
        await connection.run(CREATE_TABLE)
        await connection.execute(statement.encode())
    before = catalog(fresh)
    for attempt in (pending, migrate):
        with pytest.raises(MigrationRefused, match=r"made before version 1\.0\.0, .* start with a new, empty database"):
            await attempt(fresh, directory)
    assert catalog(fresh) == before
    async with session(fresh) as connection:
        [[count]] = await connection.rows("select count(*) from schema_migrations")
    assert count == statement.count("md5")


@pytest.mark.parametrize("name", ["schema_migrations", "one"])
async def test_a_database_of_another_program_is_refused_and_unchanged(fresh: str, directory: Path, name: str) -> None:
    async with session(fresh) as connection:
        await connection.execute(f"create table {name} (version text)".encode())
    before = catalog(fresh)
    with pytest.raises(MigrationRefused, match="tables of another program: start with a new, empty database"):
        await migrate(fresh, directory)
    assert catalog(fresh) == before


async def test_a_failed_migration_is_rolled_back_and_the_ones_before_stay(fresh: str, directory: Path) -> None:
    (directory / "migrations/0004_broken.sql").write_text("create table three (n int); insert into nowhere values (1);")
    with pytest.raises(errors.UndefinedTable) as caught:
        await migrate(fresh, directory)
    assert "in the migration 0004_broken" in caught.value.__notes__
    async with session(fresh) as connection:
        assert await connection.row("select to_regclass('three')::text") == (None,)
    assert await pending(fresh, directory) == ["0004_broken"]


async def test_file_changed_after_it_was_applied_is_refused(fresh: str, directory: Path) -> None:
    await migrate(fresh, directory)
    (directory / "migrations/0002_first.sql").write_text(FIRST + " -- improved")
    (directory / "migrations/0004_third.sql").write_text("create table three (n int)")
    with pytest.raises(MigrationRefused, match="0002_first was changed after it was applied"):
        await migrate(fresh, directory)
    with pytest.raises(MigrationRefused, match="0002_first"):
        await pending(fresh, directory)
    async with session(fresh) as connection:
        assert await connection.row("select to_regclass('three')::text") == (None,)


async def test_older_release_runs_on_a_newer_database(fresh: str, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    await migrate(fresh, directory)
    (directory / "migrations/0003_second.sql").unlink()
    with caplog.at_level("INFO"):
        assert await migrate(fresh, directory) == []
    assert "ahead of this release by 0003_second" in caplog.text


async def test_file_numbered_before_an_applied_one_is_refused(fresh: str, directory: Path) -> None:
    (directory / "migrations/0003_second.sql").rename(directory / "migrations/0009_second.sql")
    await migrate(fresh, directory)
    (directory / "migrations/0004_late.sql").write_text("select 1")
    with pytest.raises(MigrationRefused, match="0004_late comes before 0009_second"):
        await migrate(fresh, directory)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("0003_other.sql", "have the same number"), ("4_short.sql", "is not named like"), ("0004.sql", "is not named like")],
)
async def test_badly_named_files_are_refused(directory: Path, name: str, reason: str) -> None:
    (directory / "migrations" / name).write_text("select 1")
    with pytest.raises(MigrationRefused, match=reason):
        await migrate("host=/nonexistent", directory)


async def test_migration_may_not_end_its_own_transaction(fresh: str, directory: Path) -> None:
    (directory / "migrations/0004_commits.sql").write_text("create table three (n int); commit;")
    with pytest.raises(MigrationRefused, match="0004_commits ends its own transaction"):
        await migrate(fresh, directory)


async def test_tasks_that_migrate_concurrently_share_the_work(fresh: str, directory: Path) -> None:
    applied: list[str] = []

    async def run() -> None:
        applied.extend(await migrate(fresh, directory))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(run)
    assert sorted(applied) == NAMES


@pytest.mark.slow
def test_processes_that_migrate_concurrently_share_the_work(fresh: str, directory: Path) -> None:
    for number in range(4, 21):
        (directory / f"migrations/{number:04}_more.sql").write_text(f"create table more_{number} (n int); select pg_sleep(0.01);")
    code = "import sys, trio, pathlib\nfrom adapters.postgres.engine.migrate import migrate\nsys.stdin.read(1)\n"
    code += "print(*trio.run(migrate, sys.argv[1], pathlib.Path(sys.argv[2])), sep='\\n')"
    command = [sys.executable, "-c", code, fresh, str(directory)]
    processes = [subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in processes:  # both processes have finished their imports and wait for this
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(outputs[0] + outputs[1]) == [migration.name for migration in read_migrations(directory)]


async def test_a_database_that_stays_down_is_an_outage(directory: Path) -> None:
    with pytest.raises(StorageDown):
        await migrate("host=/nonexistent", directory, patience=0.05)


async def test_a_database_that_starts_later_is_waited_for(fresh: str, directory: Path, tmp_path: Path) -> None:
    socket_dir = tmp_path / "s"
    applied: list[str] = []

    async def run() -> None:
        applied.extend(await migrate(make_conninfo(fresh, host=str(socket_dir)), directory, patience=PATIENCE))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()  # it found no server and waits
        socket_dir.symlink_to(str(conninfo_to_dict(fresh)["host"]))
    assert applied == NAMES


async def test_all_migrations_of_the_service_apply(fresh: str) -> None:
    applied = await migrate(fresh)
    assert applied == [migration.name for migration in read_migrations(SQL_FILES)]
    assert await pending(fresh) == []
