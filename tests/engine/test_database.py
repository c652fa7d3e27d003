"""Test run databases: tests leave no rows behind, and a killed run leaves no directories behind."""

import os
import time

import psycopg
import pytest

from adapters.postgres.engine import embedded
from adapters.postgres.engine.migrate import SQL_FILES, read_migrations
from tests.support import database
from tests.support.database import Database, reachable_directory


def test_clone_of_the_template_is_migrated_and_separate(server: str) -> None:
    with Database(server) as one, Database(server) as other:
        with psycopg.connect(one.conninfo) as connection:
            names = [name for (name,) in connection.execute("select name from schema_migrations order by number")]
            connection.execute("create table mine (n int)")
        assert names == [migration.name for migration in read_migrations(SQL_FILES)]
        with psycopg.connect(other.conninfo) as connection:
            assert connection.execute("select to_regclass('mine')").fetchone() == (None,)


def test_empty_deletes_every_row_but_the_seeded_ones(server: str) -> None:
    with Database(server, template="template1") as blank, psycopg.connect(blank.conninfo, autocommit=True) as connection:
        connection.execute("create table schema_migrations (n int)")
        connection.execute("create table a_parent (n int primary key)")
        connection.execute("create table b_child (n int references a_parent, m int generated always as identity)")
        connection.execute("create function no() returns trigger language plpgsql as $$ begin raise 'never'; end $$")
        connection.execute("create trigger keep before delete on b_child execute function no()")
        for _ in range(2):
            connection.execute("insert into schema_migrations values (1)")
            connection.execute("insert into a_parent values (1)")
            connection.execute("insert into b_child values (1)")
            blank.empty()
        counts = connection.execute(
            "select (select count(*) from a_parent), (select count(*) from b_child), count(*) from schema_migrations"
        )
        assert counts.fetchone() == (0, 0, 2)


@pytest.mark.slow
def test_directories_of_a_killed_run_are_deleted_and_those_of_a_running_one_are_not() -> None:
    with reachable_directory() as home:
        hour_ago = time.time() - 3600
        dead, living, starting = (home / f"gatehouse-test-{name}" for name in ("dead", "living", "starting"))
        for directory in (dead, living, starting):
            directory.mkdir(mode=0o711)
            directory.chmod(0o711)
            (directory / "postgres.lock").touch()
            os.utime(directory / "postgres.lock", (hour_ago, hour_ago))
        os.utime(starting / "postgres.lock")
        with embedded.start(living / "postgres", durable=False):
            os.utime(living / "postgres.lock", (hour_ago, hour_ago))
            database._sweep(home)
            assert not dead.exists()
            assert living.exists()
            assert starting.exists()
