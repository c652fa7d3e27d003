"""Migrations are applied once, in order, completely or not at all, by any number of processes."""

import shutil
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
from adapters.postgres.engine.migrate import MIGRATIONS, MigrationRefused, migrate, pending
from core.kernel.errors import StorageDown
from tests import ROOT
from tests.support.waiting import PATIENCE

FIRST = "create table one (n int); insert into one values (1);"
SECOND = "alter table one add column m int; update one set m = 2;"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "0001_first.sql").write_text(FIRST)
    (tmp_path / "0002_second.sql").write_text(SECOND)
    (tmp_path / "README.md").write_text("not a migration")
    return tmp_path


@asynccontextmanager
async def session(conninfo: str) -> AsyncIterator[Connection]:
    connection = await connect(conninfo, timeout=PATIENCE)
    try:
        yield connection
    finally:
        connection.finish()


async def test_migrations_are_applied_in_order_and_once(fresh: str, directory: Path) -> None:
    assert await pending(fresh, directory) == ["0001_first", "0002_second"]
    assert await migrate(fresh, directory) == ["0001_first", "0002_second"]
    assert await migrate(fresh, directory) == []
    assert await pending(fresh, directory) == []
    async with session(fresh) as connection:
        assert await connection.rows("select n, m from one") == [(1, 2)]
        rows = await connection.rows("select number, name, sha256, applied_at from schema_migrations order by number")
    assert [row[:3] for row in rows] == [
        (1, "0001_first", sha256(FIRST.encode()).hexdigest()),
        (2, "0002_second", sha256(SECOND.encode()).hexdigest()),
    ]
    assert all(isinstance(row[3], datetime) for row in rows)


async def test_a_new_file_is_applied_later(fresh: str, directory: Path) -> None:
    await migrate(fresh, directory)
    (directory / "0010_third.sql").write_text("drop table one")
    assert await pending(fresh, directory) == ["0010_third"]
    assert await migrate(fresh, directory) == ["0010_third"]


async def test_a_failed_migration_is_rolled_back_and_the_ones_before_stay(fresh: str, directory: Path) -> None:
    (directory / "0003_broken.sql").write_text("create table three (n int); insert into nowhere values (1);")
    with pytest.raises(errors.UndefinedTable) as caught:
        await migrate(fresh, directory)
    assert "in the migration 0003_broken" in caught.value.__notes__
    async with session(fresh) as connection:
        assert await connection.row("select to_regclass('three')::text") == (None,)
    assert await pending(fresh, directory) == ["0003_broken"]


async def test_file_changed_after_it_was_applied_is_refused(fresh: str, directory: Path) -> None:
    await migrate(fresh, directory)
    (directory / "0001_first.sql").write_text(FIRST + " -- improved")
    (directory / "0003_third.sql").write_text("create table three (n int)")
    with pytest.raises(MigrationRefused, match="0001_first was changed after it was applied"):
        await migrate(fresh, directory)
    with pytest.raises(MigrationRefused, match="0001_first"):
        await pending(fresh, directory)
    async with session(fresh) as connection:
        assert await connection.row("select to_regclass('three')::text") == (None,)


async def test_older_release_runs_on_a_newer_database(fresh: str, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    await migrate(fresh, directory)
    (directory / "0002_second.sql").unlink()
    with caplog.at_level("INFO"):
        assert await migrate(fresh, directory) == []
    assert "ahead of this release by 0002_second" in caplog.text


async def test_file_numbered_before_an_applied_one_is_refused(fresh: str, directory: Path) -> None:
    (directory / "0002_second.sql").rename(directory / "0005_second.sql")
    await migrate(fresh, directory)
    (directory / "0003_late.sql").write_text("select 1")
    with pytest.raises(MigrationRefused, match="0003_late comes before 0005_second"):
        await migrate(fresh, directory)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("0002_other.sql", "have the same number"), ("3_short.sql", "is not named like"), ("0003.sql", "is not named like")],
)
async def test_badly_named_files_are_refused(directory: Path, name: str, reason: str) -> None:
    (directory / name).write_text("select 1")
    with pytest.raises(MigrationRefused, match=reason):
        await migrate("host=/nonexistent", directory)


async def test_migration_may_not_end_its_own_transaction(fresh: str, directory: Path) -> None:
    (directory / "0003_commits.sql").write_text("create table three (n int); commit;")
    with pytest.raises(MigrationRefused, match="0003_commits ends its own transaction"):
        await migrate(fresh, directory)


async def test_tasks_that_migrate_concurrently_share_the_work(fresh: str, directory: Path) -> None:
    applied: list[str] = []

    async def run() -> None:
        applied.extend(await migrate(fresh, directory))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(run)
    assert sorted(applied) == ["0001_first", "0002_second"]


@pytest.mark.slow
def test_processes_that_migrate_concurrently_share_the_work(fresh: str, directory: Path) -> None:
    for number in range(3, 20):
        (directory / f"{number:04}_more.sql").write_text(f"create table more_{number} (n int); select pg_sleep(0.01);")
    code = "import sys, trio, pathlib\nfrom adapters.postgres.engine.migrate import migrate\nsys.stdin.read(1)\n"
    code += "print(*trio.run(migrate, sys.argv[1], pathlib.Path(sys.argv[2])), sep='\\n')"
    command = [sys.executable, "-c", code, fresh, str(directory)]
    processes = [subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in processes:  # both have finished their imports and wait for this
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(outputs[0] + outputs[1]) == sorted(path.stem for path in directory.glob("*.sql"))


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
    assert applied == ["0001_first", "0002_second"]


async def test_all_migrations_of_the_service_apply(fresh: str) -> None:
    applied = await migrate(fresh)
    assert applied == sorted(path.stem for path in MIGRATIONS.glob("*.sql"))
    assert await pending(fresh) == []


async def test_keys_of_earlier_releases_are_rotated_by_age_some_days_after_the_upgrade(fresh: str, tmp_path: Path) -> None:
    """Processes of the previous release can run beside the new ones, and sign with a new key at once."""
    for path in MIGRATIONS.glob("*.sql"):
        if path.name < "0070":
            shutil.copy(path, tmp_path)
    await migrate(fresh, tmp_path)
    async with session(fresh) as connection:
        added = "insert into signing_keys (kid, private_key, created_at) select 'old', '', now() - interval '1 year' returning created_at"
        assert await connection.row(added) is not None
        await migrate(fresh)
        age = "select now() - signs_at between interval '80 days' and interval '81 days' from signing_keys"
        assert await connection.row(age) == (True,)
