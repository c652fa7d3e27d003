"""Records: select lists, rows, and the values of inserts and updates."""

from dataclasses import dataclass

import pytest
from psycopg.types.json import Jsonb

from adapters.postgres.engine.records import Column, Record
from core.kernel.roles import Role


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


OWNER = Record(Owner, "o", role=Column(sql="m.role", read=Role))
ITEM = Record(Item, "i", owner=OWNER.as_field(if_any=True), names=tuple, note=None, size="i.width * i.height")
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
    assert OWNER.read_if_any((None, None)) is None


def test_inserts_and_updates_name_each_column_once() -> None:
    assert KEYS.insert("keyrings", "org_id") == "insert into keyrings (keys, is_live, org_id) values (%(keys)s, %(is_live)s, %(org_id)s)"
    assert KEYS.assignments(without=["keys"]) == "is_live = %(is_live)s"


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="Owner has no field"):
        Record(Owner, "o", email="o.email")
