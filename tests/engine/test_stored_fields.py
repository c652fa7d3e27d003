"""The fields in every stored record are stored and read back, with generated values."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from importlib import import_module
from ipaddress import IPv4Network, IPv6Network
from pkgutil import walk_packages
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest

import adapters.postgres
from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.records import Record
from core.kernel.proofs import Method, Proof
from core.kernel.roles import CUSTOMIZABLE, Capability
from core.kernel.sign_in_policy.rules import Rules
from tests.support.rows import NOW

VALUES: Mapping[Any, Any] = {
    Any: lambda number: number,
    bool: lambda number: number % 2 == 0,
    int: lambda number: number,
    str: lambda number: f"text {number}",
    bytes: lambda number: bytes([number]) * 32,
    UUID: lambda number: UUID(int=number),
    datetime: lambda number: NOW + timedelta(microseconds=number),
    timedelta: lambda number: timedelta(days=number),
    IPv4Network: lambda number: IPv4Network((number << 8, 24)),
    IPv6Network: lambda number: IPv6Network((number << 80, 48)),
    Callable[[], bytes]: lambda number: partial(bytes, number),
    Capability: lambda number: sorted(CUSTOMIZABLE)[number % len(CUSTOMIZABLE)],
    # Which fields are stored depends on the values of other fields. They have their own tests.
    Proof: lambda number: Proof(Method.PASSWORD, NOW + timedelta(microseconds=number)),
    Rules: lambda number: Rules(min_password_length=number),
}
EXCEPTIONS = {
    # Other records read what these write.
    "adapters.postgres.authentication.sessions.SESSION",
    "adapters.postgres.tenancy.sign_in_policies.STORED",
    "adapters.postgres.authentication.challenges.EMAIL",  # the challenge and its sign-in are one row, with the same id
}
NUMBERS = range(1, 26)  # more than any record's enumeration has members


def value_of(kind: Any, number: int) -> Any:
    """Return a value for this type. Another number gives another value. An odd number gives None where the type allows it."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in VALUES:
        return VALUES[kind](number)
    if origin in (Union, UnionType):
        kinds = tuple(each for each in arguments if each is not NoneType)
        return None if NoneType in arguments and number % 2 else value_of(kinds[number // 2 % len(kinds)], number)
    if origin is tuple:
        kinds = arguments[:1] * 2 if arguments[-1] is ... else arguments
        return tuple(value_of(each, number + place) for place, each in enumerate(kinds))
    if origin in (frozenset, list):
        return origin(value_of(arguments[0], number + place) for place in range(2))
    if origin is Mapping:
        return {value_of(arguments[0], number): value_of(arguments[1], number)}
    if is_dataclass(kind):
        return instance(kind, number)
    if hasattr(kind, "__supertype__"):
        return value_of(kind.__supertype__, number)
    if origin is Literal or issubclass(kind, Enum):
        members = arguments or list(kind)
        return members[number % len(members)]
    assert issubclass(kind, str), kind
    return kind(f"text-{number}.example")


def instance(kind: Any, number: int, defaults: Mapping[str, object] | None = None) -> Any:
    """Return an instance with different values in its fields. `defaults` are fields that are not stored."""
    values = dict(defaults or {})
    types = get_type_hints(kind)
    for place, field in enumerate(fields(kind)):
        if field.name not in values:
            values[field.name] = value_of(types[field.name], number + place)
    return kind(**values)


def stored_records() -> Iterator[tuple[str, Record[Any], set[str]]]:
    """Yield the names and columns of the records that can be stored in one table."""
    for module in walk_packages(adapters.postgres.__path__, "adapters.postgres."):
        for name, record in vars(import_module(module.name)).items():
            if isinstance(record, Record) and all(part.values for part in record._parts.values()):
                try:
                    yield f"{module.name}.{name}", record, set(record._stored)
                except TypeError:
                    continue  # it has columns from several tables, or expressions


@pytest.mark.slow
async def test_every_field_is_stored_and_read_back(pool: Pool) -> None:
    """The table is a copy without constraints, which generated values would break."""
    findings, count = [], 0
    async with pool.connection() as connection:
        cursor = await connection.execute("""
            select attrelid::regclass::text, array_agg(attname::text) from pg_attribute join pg_class c on c.oid = attrelid
            where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and attnum > 0 and not attisdropped
            group by 1 order by count(*), 1""")
        tables = await cursor.fetchall()
        for name, record, columns in stored_records():
            if name in EXCEPTIONS:
                continue
            source = next((table for table, all_columns in tables if columns <= set(all_columns)), None)
            if source is None:
                continue  # it is read from a query with its own names
            count += 1
            await connection.execute(f"create temp table stored as select {', '.join(columns)} from {source} limit 0")  # noqa: S608  (names of the schema)
            read = record.read.__globals__
            for number in NUMBERS:
                written = instance(read["kind"], number, read["defaults"])
                await connection.execute(record.insert("stored"), record.values(written))
                cursor = await connection.execute(f"select {record.columns} from stored {record._alias}")  # noqa: S608
                found = [record.read(row) for row in await cursor.fetchall()]
                if found != [written]:
                    findings.append((name, written, found))
                await connection.execute("truncate stored")
            await connection.execute("drop table stored")
    assert findings == []
    assert count > 40
