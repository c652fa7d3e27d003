"""Backups: what they contain, that a restore gives it back or changes nothing, and which backups are refused."""

import base64
import gzip
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import psycopg
import pytest
import trio
from psycopg import sql
from pydantic import SecretStr

from adapters.clock import SystemClock
from adapters.crypto.vault import make_key_checks
from adapters.postgres.backup import BackupError, transfer
from adapters.postgres.backup.catalog import COLUMNS_LEFT_OUT, TABLES_LEFT_OUT
from adapters.postgres.engine import embedded, migrate
from adapters.postgres.engine.locks import MIGRATIONS_LOCK
from adapters.postgres.engine.migrate import SQL_FILES, read_migrations
from adapters.postgres.engine.pool import Pool
from entrypoints import adapters_of_settings, backup
from entrypoints.adapters_of_settings import key_file
from entrypoints.settings import Settings
from ports.crypto import SealBroken
from tests.engine.catalog import catalog
from tests.fakes.outside import FakeMailTransport, FakeMetrics
from tests.proof.access.state import journaled_database
from tests.proof.access.world import make_world
from tests.support.builders import make_ports
from tests.support.storage_fixtures import *  # noqa: F403

pytestmark = pytest.mark.usefixtures("restored_logging")

KEYS: Final = f"test:{base64.b64encode(bytes(range(32))).decode()}"  # belongs to the vault of `make_ports`
OTHER_KEYS: Final = f"test:{base64.b64encode(bytes(32)).decode()}"

TABLES: Final = "select tablename from pg_tables where schemaname = 'public' order by 1"

# Tables with a secret's hash or an expiry that a backup keeps, and why.
KEPT: Final = {
    "api_keys": "keys of programs, which no user can type in again",
    "backup_codes": "second factors",
    "email_changes": "changes of addresses",
    "security_notices": "emails about ways into accounts, with the links that undo the changes",
    "client_assertions": "assertions of clients that must not work a second time",
    "credentials": "keys of programs, which no user can type in again",
    "devices": "the list of a user's devices; their trust is left out",
    "invitations": "pending invitations",
    "mails": "emails that wait, with their sealed tokens",
    "scim_tokens": "keys of directories",
    "registration_tokens": "keys of programs, which no user can type in again",
    "services": "secrets of applications",
    "users": "passwords",
}


def settings_of(conninfo: str, home: Path, keys: str = KEYS) -> Settings:
    return Settings(
        database_url=SecretStr(conninfo),
        encryption_keys=SecretStr(keys),
        data_dir=home / "var",
        argon2_memory_kib=8,
        argon2_time_cost=1,
        argon2_parallelism=1,
    )


def ask(conninfo: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(conninfo) as connection:
        return connection.execute(query.encode()).fetchall()


def rows_of(conninfo: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows by table, without the columns that a backup leaves out."""
    with psycopg.connect(conninfo) as connection:
        rows = {}
        for (table,) in ask(conninfo, TABLES):
            query = sql.SQL("select (to_jsonb(t) - %s::text[])::text from {} t order by 1").format(sql.Identifier(table))
            rows[table] = connection.execute(query, [list(COLUMNS_LEFT_OUT.get(table, ()))]).fetchall()
        return rows


@pytest.fixture(scope="module")
def world(server: str) -> Iterator[str]:
    """A database with rows in nearly all tables. Tests only read it."""

    async def fill(conninfo: str) -> None:
        pool = Pool(conninfo, size=2)
        await make_world(await make_ports(pool, SystemClock(), FakeMailTransport(), FakeMetrics()), pool)
        await pool.aclose()

    with journaled_database() as connection:
        trio.run(fill, connection.info.dsn)
        connection.execute("drop schema journal cascade")  # only the other tests in this world need it
        yield connection.info.dsn


@pytest.fixture(scope="module")
def made(world: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup from the world in `backup`, and its keys in `keys`. Tests only read it."""
    home = tmp_path_factory.mktemp("made")
    backup.create(settings_of(world, home), home / "backup", home / "keys")
    return home


def test_a_restore_gives_back_all_rows_and_the_whole_schema(made: Path, world: str, fresh: str, tmp_path: Path) -> None:
    restored = backup.restore(settings_of(fresh, tmp_path), made / "backup", None)
    before, after = rows_of(world), rows_of(fresh)
    unlogged = {name for (name,) in ask(world, "select relname from pg_class where relpersistence = 'u' and relkind = 'r'")}
    left_out = (TABLES_LEFT_OUT | unlogged) - {"schema_migrations"}
    assert {name: rows for name, rows in after.items() if name in left_out and rows} == {}
    kept = before.keys() - left_out - {"schema_migrations"}
    assert {name for name in kept if before[name] != after[name]} == set()
    assert {name: table.rows for name, table in restored.tables.items()} == {name: len(before[name]) for name in kept}
    assert len([name for name in kept if before[name]]) > 30, "the world fills most tables"
    assert catalog(fresh) == catalog(world)
    sequences = "select sequencename, last_value from pg_sequences order by 1"
    assert ask(fresh, sequences) == ask(world, sequences)
    trusted = "select count(*) from devices where trust_hash is not null"
    assert ask(world, trusted) > ask(fresh, trusted) == [(0,)]


def test_a_backup_has_no_keys_and_is_readable_by_its_owner_only(made: Path) -> None:
    assert (made / "keys" / "encryption-keys").read_text() == f"{KEYS}\n"
    files = [path for path in (made / "backup").rglob("*") if path.is_file()]
    contents = b"".join(gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes() for file in files)
    key = bytes(range(32))
    for secret in (key, base64.b64encode(key).rstrip(b"="), key.hex().encode(), b"PRIVATE KEY"):
        assert secret not in contents
    modes = {oct(path.stat().st_mode & 0o777) for name in ("backup", "keys") for path in [made / name, *(made / name).rglob("*")]}
    assert modes == {"0o600", "0o700"}
    assert sorted(path.name for path in made.iterdir()) == ["backup", "keys"], "nothing else is left beside them"


def test_every_table_with_secrets_or_an_expiry_is_left_out_or_kept_for_a_reason(world: str) -> None:
    """A new table with one-time secrets belongs into TABLES_LEFT_OUT."""
    suspects = ask(
        world,
        r"""select distinct table_name from information_schema.columns
            where table_schema = 'public' and (column_name like '%\_hash' or column_name = 'expires_at') and table_name <> 'rates'""",
    )
    unlogged = {"guesses", "rates", "sign_in_charges"}
    assert {name for (name,) in suspects} - TABLES_LEFT_OUT - unlogged == KEPT.keys()


def test_verify_restores_counts_decrypts_and_signs_in(made: Path, tmp_path: Path) -> None:
    unused = settings_of("host=/nonexistent", tmp_path, OTHER_KEYS)
    manifest, secrets = backup.verify(unused, made / "backup", made / "keys")
    assert manifest.rows > 100
    assert secrets > 10
    with pytest.raises(BackupError, match="SSO_ENCRYPTION_KEYS do not fit this backup: test are missing or different"):
        backup.verify(unused, made / "backup", None)


def test_verify_decrypts_each_secret_and_does_not_trust_the_description(
    made: Path, fresh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backup's key checks fit the second key, but its secrets do not."""
    monkeypatch.setattr(embedded, "scratch", lambda: nullcontext(SimpleNamespace(conninfo=fresh)))  # a new server takes seconds
    forged = tmp_path / "forged"
    shutil.copytree(made / "backup", forged)
    change_description(forged, lambda text: text.update(key_checks=make_key_checks(OTHER_KEYS)))
    with pytest.raises(SealBroken, match="cannot be decrypted"):
        backup.verify(settings_of("host=/nonexistent", tmp_path, OTHER_KEYS), forged, None)


# Damaged and changed backups


def change_description(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = directory / "backup.json"
    description = json.loads(file.read_text())
    change(description)
    file.write_text(json.dumps(description))


def change_rows(table: str, change: Callable[[bytes], bytes], *, packed: bool = True) -> Callable[[Path], None]:
    """Return a change to a table's file that also corrects its checksum."""

    def apply(directory: Path) -> None:
        file = directory / "tables" / f"{table}.copy.gz"
        changed = change(gzip.decompress(file.read_bytes()) if packed else file.read_bytes())
        file.write_bytes(gzip.compress(changed) if packed else changed)
        checksum = hashlib.sha256(file.read_bytes()).hexdigest()
        change_description(directory, lambda text: text["tables"][table].update(sha256=checksum))

    return apply


def described(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    return lambda directory: change_description(directory, change)


def rename(old: str, new: str) -> Callable[[Path], None]:
    def apply(directory: Path) -> None:
        file = directory / "tables" / f"{old}.copy.gz"
        if "/" not in new:
            file.rename(file.with_name(f"{new}.copy.gz"))
        change_description(directory, lambda text: text["tables"].update({new: text["tables"].pop(old)}))

    return apply


def truncate(directory: Path) -> None:
    file = directory / "tables" / "users.copy.gz"
    file.write_bytes(file.read_bytes()[:-20])


MADE_BEFORE: Final = r"was made before version 1\.0\.0, and cannot be restored\. Start with a new, empty database"
DAMAGES: Final[dict[str, tuple[Callable[[Path], object], str]]] = {
    "no description": (lambda path: (path / "backup.json").unlink(), "is not a complete backup"),
    "no JSON": (lambda path: (path / "backup.json").write_bytes(b"\xff\x00"), "was changed or is damaged"),
    "a list": (lambda path: (path / "backup.json").write_text("[]"), "was changed or is damaged"),
    "deep JSON": (lambda path: (path / "backup.json").write_text("[" * 100_000), "was changed or is damaged"),
    "rows as text": (described(lambda text: text["tables"]["users"].update(rows="7")), r"tables\.users\.rows: Input should be"),
    "no tables": (described(lambda text: text.pop("tables")), "tables: Field required"),
    "another format": (described(lambda text: text.update(format=2)), "has the format 2"),
    "no key checks": (described(lambda text: text.update(key_checks={})), "do not fit this backup"),
    "key checks of no form": (described(lambda text: text.update(key_checks={"test": "?"})), "do not fit this backup"),
    "a newer release": (
        described(lambda text: text["migrations"].append({"number": 9999, "name": "9999_later", "sha256": ""})),
        "was made by a newer release",
    ),
    "no migrations": (described(lambda text: text.update(migrations=[])), MADE_BEFORE),
    "another schema": (described(lambda text: text["migrations"][0].update(sha256="0")), MADE_BEFORE),
    "the migrations of an unreleased revision": (described(lambda text: text["migrations"][0].update(number=77)), MADE_BEFORE),
    "a path as a table": (rename("users", "../../../etc/passwd"), "cannot be the name of a table"),
    "another table": (rename("users", "other_users"), "disagree about the tables other_users, users"),
    "another column": (described(lambda text: text["tables"]["users"]["columns"].append('"x')), 'does not have: "x'),
    "another sequence": (described(lambda text: text["sequences"].update({"x'; drop table users": 1})), "disagree about the sequences"),
    "a huge sequence": (
        described(lambda text: text["sequences"].update(dict.fromkeys(text["sequences"], 10**30))),
        "refused the data",
    ),
    "a missing file": (lambda path: (path / "tables" / "users.copy.gz").unlink(), "is incomplete: .*users.copy.gz is missing"),
    "a truncated file": (truncate, "users.copy.gz was changed or is damaged"),
    "an unpacked file": (change_rows("users", gzip.decompress, packed=False), "cannot be unpacked"),
    "a row less": (change_rows("users", lambda text: text.partition(b"\n")[2]), "backup.json says"),
    "rows of no user": (change_rows("mfa", lambda text: b"0" * 8 + text[8:]), "refused the data: .*foreign key"),
    "text for rows": (change_rows("users", lambda _: b"text\n"), "refused the data: invalid input syntax for type uuid"),
}


def test_a_damaged_or_changed_backup_is_refused_with_a_sentence_and_nothing_changes(made: Path, fresh: str, tmp_path: Path) -> None:
    wrong = {}
    for name, (damage, sentence) in DAMAGES.items():
        damaged = tmp_path / name
        shutil.copytree(made / "backup", damaged)
        damage(damaged)
        with pytest.raises(BackupError) as refused:
            backup.restore(settings_of(fresh, tmp_path), damaged, None)
        if re.search(sentence, str(refused.value)) is None or ask(fresh, TABLES):
            wrong[name] = str(refused.value)
    assert wrong == {}


def test_a_restore_needs_an_empty_database(made: Path, world: str, tmp_path: Path) -> None:
    before = rows_of(world)
    with pytest.raises(BackupError, match="The database is not empty, so nothing was changed"):
        backup.restore(settings_of(world, tmp_path), made / "backup", None)
    assert rows_of(world) == before


def test_a_restore_keeps_the_keys_of_a_service_that_starts_at_the_same_time(
    made: Path, fresh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapters_of_settings, "known_keys", lambda _: None)  # the file appears a moment later
    settings = settings_of(fresh, tmp_path)
    settings.data_dir.mkdir()
    key_file(settings).write_text(OTHER_KEYS)
    with pytest.raises(BackupError, match=r"A service has just created .*encryption-keys"):
        backup.restore(settings, made / "backup", made / "keys")
    assert (key_file(settings).read_text(), ask(fresh, TABLES)) == (OTHER_KEYS, [])


def test_a_backup_with_a_changed_migration_is_refused(made: Path, fresh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = replace(read_migrations(SQL_FILES)[0], number=9999, name="9999_later", sha256="1")
    monkeypatch.setattr(migrate, "read_migrations", lambda directory: [*read_migrations(directory), later])
    shutil.copytree(made / "backup", tmp_path / "backup")
    change_description(tmp_path / "backup", lambda text: text["migrations"].append({"number": 9999, "name": "9999_later", "sha256": "0"}))
    with pytest.raises(BackupError, match="The migration 9999_later of the backup differs from the one of this release"):
        backup.restore(settings_of(fresh, tmp_path), tmp_path / "backup", None)
    assert ask(fresh, TABLES) == []


# Making a backup


def test_a_backup_is_of_one_moment(world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export_table = transfer._export_table

    def change_and_export(connection: Any, name: str, *arguments: Any) -> Any:
        if name == "api_keys":  # the first table; the changed table follows
            with psycopg.connect(world) as other:
                other.execute("insert into tiers values (gen_random_uuid(), 'late', 'Late', 1, 1, 0)")
        return export_table(connection, name, *arguments)

    monkeypatch.setattr(transfer, "_export_table", change_and_export)
    try:
        manifest = backup.create(settings_of(world, tmp_path), tmp_path / "backup", None)
        assert ask(world, "select count(*) from tiers") == [(manifest.tables["tiers"].rows + 1,)]
    finally:
        with psycopg.connect(world) as other:
            other.execute("delete from tiers where name = 'late'")


def test_a_backup_during_a_migration_is_refused(world: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "MIGRATION_PATIENCE", 0)
    with psycopg.connect(world) as other:
        other.execute("select pg_advisory_xact_lock(%s)", [MIGRATIONS_LOCK])
        with pytest.raises(BackupError, match="A migration of the database is running"):
            backup.create(settings_of(world, tmp_path), tmp_path / "backup", None)
    assert list(tmp_path.iterdir()) == [], "what was begun is removed"


def test_a_backup_overwrites_nothing_and_needs_a_database(world: str, blank: str, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    new, full = tmp_path / "new", tmp_path / "full"
    refused: list[tuple[str, Path, Path | None, str]] = [
        (world, full, None, "already exists and is not an empty directory"),
        (world, full / "file", None, "already exists and is not an empty directory"),
        (world, new, full, "already exists and is not an empty directory"),
        (world, new, new / "keys", "The keys must be apart from the backup"),
        (world, tmp_path / "missing" / "new", None, "missing does not exist"),
        (blank, new, None, "no tables of Gatehouse"),
        ("host=/nonexistent", new, None, "cannot be reached"),
    ]
    for conninfo, directory, keys_dir, sentence in refused:
        with pytest.raises(BackupError, match=sentence):
            backup.create(settings_of(conninfo, tmp_path), directory, keys_dir)
    with psycopg.connect(blank) as connection:
        connection.execute("create table schema_migrations (number int, name text, sha256 text)")
        connection.execute("insert into schema_migrations values (1, '0001_baseline', 'earlier')")
    with pytest.raises(BackupError, match=r"was made before version 1\.0\.0"):
        backup.create(settings_of(blank, tmp_path), new, None)
    with pytest.raises(BackupError, match="There is no database in"):
        backup.create(Settings(data_dir=tmp_path / "var", encryption_keys=SecretStr(KEYS)), new, None)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
