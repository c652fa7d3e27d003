"""Records: select lists, rows, and values for inserts and updates."""

from dataclasses import FrozenInstanceError, dataclass, field, replace
from enum import StrEnum
from typing import LiteralString

import pytest
from psycopg.types.json import Jsonb

from adapters.postgres.engine.records import Column, Record
from tests.tables import table


class Role(StrEnum):
    OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Owner:
    name: str
    role: Role | None


@dataclass(frozen=True, slots=True)
class Item:
    id: int
    owner: Owner | None
    names: tuple[str, ...]
    note: str = "none"
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    keys: tuple[str, ...] | None
    is_live: bool = True


@dataclass(frozen=True, slots=True)
class Log:
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Completed:
    name: str

    def __post_init__(self) -> None:
        self.name = self.name.strip()


OWNER = Record(Owner, "o", role=Column(sql="m.role", read=Role))
ITEM = Record(Item, "i", owner=OWNER.as_field(if_any="name"), names=tuple, note=None, size="i.width * i.height")
STORED_ITEM = Record(Item, "i", owner=Record(Owner, "i", role=Role).as_field(if_any="name"), names=tuple, note=None, size=None)
KEYS = Record(Keys, "k", keys=Column(read=tuple, write=Jsonb))


def test_columns_are_those_of_the_fields_with_nested_records_last() -> None:
    assert ITEM.columns == "i.id, i.names, i.width * i.height, o.name, m.role"
    assert ITEM.width == 5


def test_a_row_is_read_with_conversions_and_defaults() -> None:
    assert ITEM.read((1, ["a"], None, "Ada", "owner", "further")) == Item(1, Owner("Ada", Role.OWNER), ("a",))
    assert ITEM.read((1, [], 6, None, None)) == Item(1, None, (), size=6)
    assert KEYS.read((["a"], False)) == Keys(keys=("a",), is_live=False)


def test_null_is_not_converted() -> None:
    assert OWNER.read(("Ada", None)) == Owner("Ada", None)
    assert KEYS.values(Keys(keys=None)) == {"keys": None, "is_live": True}


def test_a_row_of_an_outer_join_without_a_match_is_none() -> None:
    assert OWNER.if_any("name")((None, None)) is None
    assert OWNER.if_any("name")(("Ada", None)) == Owner("Ada", None)
    assert OWNER.if_any("role")(("Ada", None)) is None


def test_a_nested_record_that_is_missing_is_stored_as_nulls() -> None:
    item = Item(1, None, ("a",))
    assert STORED_ITEM.values(item) == {"id": 1, "names": ["a"], "name": None, "role": None}
    assert STORED_ITEM.values(replace(item, owner=Owner("Ada", Role.OWNER))) == {"id": 1, "names": ["a"], "name": "Ada", "role": Role.OWNER}


def test_only_the_values_of_the_table_are_stored() -> None:
    assert ITEM.values(Item(1, Owner("Ada", None), (), size=6)) == {"id": 1, "names": []}


def test_inserts_and_updates_name_each_column_once() -> None:
    assert KEYS.insert("keyrings", "org_id") == "insert into keyrings (keys, is_live, org_id) values (%(keys)s, %(is_live)s, %(org_id)s)"
    assert KEYS.assignments(without=["keys"]) == "is_live = %(is_live)s"
    assert KEYS.overwrites(without=["keys"]) == "is_live = excluded.is_live"
    source = "where not exists (select from keyrings)"
    assert KEYS.insert("keyrings", source=source) == f"insert into keyrings (keys, is_live) select %(keys)s, %(is_live)s {source}"


@table("sql", ["coalesce(k.keys, k.old_keys)", "k.keys, k.old_keys", "k.width * k.height"])
def test_only_columns_of_the_table_are_stored(sql: LiteralString) -> None:
    record = Record(Keys, "k", keys=sql)
    with pytest.raises(TypeError, match="only columns of the table"):
        record.insert("keyrings")
    with pytest.raises(TypeError, match="only columns of the table"):
        record.assignments(without=[])


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="Owner has no field"):
        Record(Owner, "o", email="o.email")


def test_a_field_without_a_column_has_a_default_value() -> None:
    with pytest.raises(TypeError, match=r"Keys\.keys has no default"):
        Record(Keys, "k", keys=None)
    with pytest.raises(TypeError, match=r"Log\.lines has no default"):
        Record(Log, "l", lines=None)


def test_a_record_is_frozen_and_of_the_class_itself() -> None:
    owner = OWNER.read(("Ada", None))
    assert type(owner) is Owner
    with pytest.raises(FrozenInstanceError):
        owner.name = "Eve"  # type: ignore[misc]


def test_a_class_that_completes_its_own_instances_is_refused() -> None:
    with pytest.raises(TypeError, match="Completed has a __post_init__"):
        Record(Completed, "c")
