"""Bulk loading for generated rows. Indexes are built at the end."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, LiteralString
from uuid import UUID

import psycopg
from psycopg import sql

from ops.bench.processes import MeasurementFailed
from ops.bench.row import Say
from ops.bench.service import Service

FREE_TIER: Final = "00000000-0000-4000-8000-000000000001"
AGENTS: Final = [
    f"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{version}.0.0.0 Safari/537.36"
    for version in range(120, 128)
]


def add_organization(service: Service, slug: str, members: int = 0) -> UUID:
    """Add an organization with a limit that allows millions of members, and return its id."""
    [(org_id,)] = service.query(
        """
        insert into organizations (id, slug, name, status, tier_id, member_count, max_users, created_at, updated_at, approved_at)
        values (gen_random_uuid(), %(slug)s, initcap(%(slug)s), 'active', %(tier)s, %(members)s, 10000000, now(), now(), now())
        returning id""",
        slug=slug,
        tier=FREE_TIER,
        members=members,
    )
    assert isinstance(org_id, UUID)
    return org_id


def id_of(text: str) -> str:
    """Return the id of the object with this name, such as "person 7". The database computes it as md5(text)::uuid."""
    return str(UUID(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()))


@contextmanager
def filling(conninfo: str) -> Iterator[psycopg.Connection[Any]]:
    """Connect for a transaction that adds millions of rows. It checks no foreign keys, and runs no triggers."""
    # ClientCursor puts the values into the statements, which then need no types.
    with psycopg.connect(conninfo, cursor_factory=psycopg.ClientCursor) as connection:
        # The foreign keys are correct, and checking millions of rows would take minutes.
        connection.execute("set local session_replication_role = replica")
        connection.execute("set local maintenance_work_mem = '512MB'")
        connection.execute("set local work_mem = '256MB'")
        connection.execute("set local enable_mergejoin = off")  # it would sort rows that are already ordered by time
        connection.execute("select setseed(0.5)")  # reproducible data
        yield connection


@contextmanager
def without_indexes(connection: psycopg.Connection[Any], table: LiteralString, say: Say) -> Iterator[None]:
    """Drop the table's indexes and build them again at the end, which takes a tenth as long as updating them row by row."""
    before = _indexes(connection, table)
    name = sql.Identifier(table)
    for index, _, constraint in before:
        statement = sql.SQL("alter table {} drop constraint {}" if constraint else "drop index {1}")
        connection.execute(statement.format(name, sql.Identifier(index)))
    yield
    for index, definition, constraint in before:
        say(f"  index {index} ...")
        if constraint:
            connection.execute(sql.SQL("alter table {} add constraint {} {}").format(name, sql.Identifier(index), sql.SQL(constraint)))
        else:
            connection.execute(definition)
    if _indexes(connection, table) != before:
        raise MeasurementFailed(f"The indexes of {table} have changed.")


def _indexes(connection: psycopg.Connection[Any], table: str) -> list[tuple[Any, ...]]:
    """Return every index's name and definition, and its constraint's definition, if any."""
    return connection.execute(
        """
        select c.relname, pg_get_indexdef(i.indexrelid), pg_get_constraintdef(k.oid)
        from pg_index i join pg_class c on c.oid = i.indexrelid left join pg_constraint k on k.conindid = i.indexrelid
        where i.indrelid = %s::regclass order by c.relname""",
        [table],
    ).fetchall()
