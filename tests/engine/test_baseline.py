"""The baseline is the schema of version 0.9.0, and a database of this version is adopted."""

import psycopg
import pytest

from adapters.postgres.engine.migrate import SQL_FILES, MigrationRefused, migrate, pending, read_migrations
from tests import ROOT
from tests.engine.catalog import catalog, catalog_of

RECORDED = "select * from schema_migrations order by number"
# The new schema validates a constraint, names the constraints of a renamed table by its name, and has a comment in the file.
DIFFERENCES = """
    alter table setup_links validate constraint setup_links_ended_by_check;
    do $$
    declare old text;
    begin
        for old in select conname from pg_constraint where conrelid = 'used_provider_messages'::regclass and contype in ('f', 'n') loop
            execute format('alter table used_provider_messages rename constraint %I to %I', old,
                           replace(replace(old, 'used_assertions', 'used_provider_messages'), 'assertion_hash', 'message_hash'));
        end loop;
    end $$;
    comment on column used_provider_messages.message_hash is null;
    drop table schema_migrations;"""


async def test_the_new_schema_files_make_the_same_database(fresh: str, blank: str) -> None:
    await migrate(fresh)
    with psycopg.connect(fresh) as migrated, psycopg.connect(blank) as new:
        migrated.execute(DIFFERENCES)
        for path in sorted((ROOT / "tests/engine/next_schema").glob("*.sql")):
            new.execute(path.read_bytes())
        for table in ("tiers", "connections"):
            rows = f"select * from {table} order by id"  # noqa: S608
            assert new.execute(rows).fetchall() == migrated.execute(rows).fetchall()
        migrated.commit()
        assert catalog(fresh) == catalog_of(new)
        new.rollback()


async def test_an_upgraded_database_equals_a_new_one(old: psycopg.Connection, fresh: str) -> None:
    before = old.execute(RECORDED).fetchall()
    names = [migration.name for migration in read_migrations(SQL_FILES)]
    conninfo = old.info.dsn
    assert await pending(conninfo) == await migrate(conninfo) == await migrate(fresh) == names
    assert catalog(conninfo) == catalog(fresh)
    with psycopg.connect(fresh) as new:
        tiers = "select * from tiers order by id"
        assert new.execute(tiers).fetchall() == old.execute(tiers).fetchall()
        last_rows = [row[:3] for row in new.execute(RECORDED)]
    after = old.execute(RECORDED).fetchall()
    assert after[:76] == before, "version 0.9.0 needs these rows to run on the upgraded database"
    assert [row[:3] for row in after[76:]] == last_rows


@pytest.mark.parametrize(
    "change",
    [
        "delete from schema_migrations where number = 76",
        "delete from schema_migrations where number = 12",
        "update schema_migrations set sha256 = md5('') where number = 30",
        "update schema_migrations set name = name || '_too' where number = 30",
        "insert into schema_migrations values (90, '0090_later', '')",
    ],
)
async def test_a_database_with_other_migrations_is_refused(old: psycopg.Connection, change: str) -> None:
    old.execute(change.encode())
    before = old.execute(RECORDED).fetchall()
    for attempt in (pending, migrate):
        with pytest.raises(MigrationRefused, match=r"older than version 0\.9\.0.*: upgrade it to version 0\.9\.0 first"):
            await attempt(old.info.dsn)
    assert old.execute(RECORDED).fetchall() == before
