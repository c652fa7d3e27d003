"""An organization's attributes: kinds, writers, and the values from several groups."""

from typing import Any, Final
from uuid import UUID

import pytest

from core.tenancy.model.attributes import (
    MAX_ITEMS,
    Attribute,
    AttributeKind,
    AttributeLabelInvalid,
    AttributeMerge,
    AttributeMergeInvalid,
    AttributeValues,
    AttributeWriter,
    UserAttributeNameInvalid,
    UserAttributeNotWritable,
    UserAttributeValueInvalid,
)
from tests.support.rows import NOW
from tests.tables import table

ADMIN: Final = AttributeWriter.ADMIN


def attribute(
    name: str = "cost_center", kind: str = "text", merge: str = "first", *writers: AttributeWriter, label: str = "L"
) -> Attribute:
    return Attribute(
        org_id=UUID(int=1),
        name=name,
        label=label,
        kind=AttributeKind(kind),
        writers=writers or (ADMIN,),
        merge=AttributeMerge(merge),
        created_at=NOW,
    )


@table(
    ("kind", "good", "bad"),
    [
        ("text", ["a", "ü b", "x" * 500], ["", " ", "a\n", "x" * 501, 5, True, ["a"]]),
        ("number", [0, -1, 1.5], [True, "1", 2**60, float("inf"), float("nan"), [1]]),
        ("boolean", [True, False], [0, "true", []]),
        ("date", ["2026-12-31"], ["2026-02-30", "20261231", "2026-1-1", "", 20261231]),
        ("list", [[], ["a", "b"]], ["a", [1], [""], ["a"] * (MAX_ITEMS + 1), ["x" * 101]]),
    ],
)
def test_a_value_has_the_kind_of_its_attribute(kind: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        attribute(kind=kind).check(value)
    for value in bad:
        with pytest.raises(UserAttributeValueInvalid):
            attribute(kind=kind).check(value)


def test_an_attribute_has_a_name_a_label_and_a_merge_rule_of_its_kind() -> None:
    for name in ("", "A", "1a", "a-b", "a b", "a" * 51, "ä"):
        with pytest.raises(UserAttributeNameInvalid):
            attribute(name).checked()
    for label in ("", " ", "a\n", "a" * 101):
        with pytest.raises(AttributeLabelInvalid):
            attribute(label=label).checked()
    for kind, merge in (("text", "union"), ("text", "least"), ("list", "greatest"), ("boolean", "least")):
        with pytest.raises(AttributeMergeInvalid):
            attribute(kind=kind, merge=merge).checked()
    attribute(kind="list", merge="union").checked()


@table(
    ("kind", "merge", "own", "of_groups", "effective"),
    [
        ("text", "first", None, [None, "b", "a"], "b"),
        ("text", "first", "own", ["b", "a"], "own"),
        ("list", "union", None, [["b", "a"], None, ["a", "c"]], ["b", "a", "c"]),
        ("list", "union", ["own"], [["b"]], ["own"]),
        ("list", "union", None, [[f"a{n}" for n in range(50)], ["z"]], [*(f"a{n}" for n in range(50)), "z"]),
        ("list", "first", None, [["b"], ["a"]], ["b"]),
        ("number", "greatest", None, [1, 3.5, 2], 3.5),
        ("number", "least", 0, [-1], 0),
        ("number", "least", None, [2, None, -1], -1),
        ("date", "least", None, ["2026-12-31", "2026-01-01"], "2026-01-01"),
        ("date", "greatest", None, ["2026-12-31", "2027-01-01"], "2027-01-01"),
        ("number", "least", None, [], None),
        ("number", "least", None, [None], None),
        ("boolean", "first", None, [False, True], False),
        ("boolean", "first", False, [True], False),
    ],
)
def test_a_user_has_the_own_value_or_that_of_the_groups_by_the_rule(
    kind: str, merge: str, own: Any, of_groups: list[Any], effective: Any
) -> None:
    def values(value: Any) -> dict[str, Any]:
        return {} if value is None else {"cost_center": value}

    declared = attribute(kind=kind, merge=merge)
    shown = AttributeValues([declared], values(own), [{**values(value), "deleted": "x"} for value in of_groups])
    assert shown.effective == values(effective)


def test_a_writer_changes_only_its_own_attributes() -> None:
    own = attribute("nick", "text", "first", AttributeWriter.USER)
    values = AttributeValues([own, attribute()], {"cost_center": "1"})
    assert values.change({"nick": "a"}, AttributeWriter.USER) == {"cost_center": "1", "nick": "a"}
    assert values.change({"cost_center": None}, ADMIN) == {}
    for name, writer in (("nick", ADMIN), ("cost_center", AttributeWriter.USER), ("cost_center", AttributeWriter.APPLICATION)):
        with pytest.raises(UserAttributeNotWritable):
            values.change({name: None}, writer)
    with pytest.raises(UserAttributeValueInvalid):
        values.change({"unknown": "x"}, ADMIN)
