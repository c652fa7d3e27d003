"""Patches against a model that does the same in the plainest way (RFC 7644 section 3.5.2)."""

import copy
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.kernel.errors import Invalid
from core.provisioning.patches import MemberChanges, NoTarget, PatchOp, PatchOperation, AttributeValueInvalid, parse_member_changes, apply_operations, read_resource
from core.provisioning.schemas import GROUP, USER

BEFORE: dict[str, Any] = {
    "userName": "ada@example.com",
    "name": {"givenName": "Ada", "familyName": "Lovelace"},
    "emails": [{"value": "ada@example.com", "type": "work", "primary": True}],
    "active": True,
}
texts = st.sampled_from(["a", "b", "c"])
NAMES = ["externalId", "displayName", "name.givenName", "name.familyName", "name.formatted"]


def cased(name: str, loud: bool) -> str:
    return name.upper() if loud else name


@st.composite
def operations(draw: st.DrawFn) -> tuple[PatchOperation, dict[str, str | None]]:
    """An operation on single values, in one of its dialects, and what it makes of them."""
    op = draw(st.sampled_from(list(PatchOp)))
    name, value, loud = draw(st.sampled_from(NAMES)), draw(texts), draw(st.booleans())
    if op is PatchOp.REMOVE:
        return PatchOperation(op, cased(name, loud), None), {name: None}
    match draw(st.sampled_from(["path", "urn", "whole", "dotted", "wrapped"])):
        case "path":
            return PatchOperation(op, cased(name, loud), value), {name: value}
        case "urn":
            return PatchOperation(op, f"{USER.id}:{name}", value), {name: value}
        case "dotted":
            return PatchOperation(op, None, {name: value, "unknown": "x"}), {name: value}
        case "wrapped":
            return PatchOperation(op, name, [{"value": value}]), {name: value}
    outer, _, inner = name.partition(".")
    return PatchOperation(op, None, {cased(outer, loud): {cased(inner, loud): value} if inner else value}), {name: value}


def flat(resource: dict[str, Any]) -> dict[str, str | None]:
    return {name: _at(resource, name) for name in NAMES}


def _at(resource: dict[str, Any], name: str) -> str | None:
    value: Any = resource
    for part in name.split("."):
        value = (value or {}).get(part)
    found: str | None = value
    return found


@given(st.lists(operations(), max_size=6))
def test_single_values_become_what_the_operations_say_one_after_the_other(given_: list[tuple[PatchOperation, dict[str, str | None]]]) -> None:
    model = flat(BEFORE)
    for _, change in given_:
        model |= change
    before = copy.deepcopy(BEFORE)
    after = apply_operations(USER, before, [operation for operation, _ in given_])
    assert flat(after) == model
    assert before == BEFORE
    assert (after["userName"], after["emails"], after["active"]) == (BEFORE["userName"], BEFORE["emails"], True)


KEYS = st.sampled_from(["value", "type", "primary", "userName", "name", "members"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "x", "True", "a@b.example"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=5,
)  # fmt: skip
paths = st.none() | st.sampled_from(
    ["userName", "name", "emails", "emails.value", 'emails[type eq "work"]', 'emails[type eq "home"].value', "emails[primary eq true].type",
     "active", "id", "meta.created", "schemas", "nothing", "members", 'members[value eq "x"]', "displayName", 'emails[value co 5]', "a["]
)  # fmt: skip


@given(st.lists(st.builds(PatchOperation, st.sampled_from(PatchOp), paths, anything), max_size=4))
def test_whatever_is_asked_for_is_done_or_refused(given_: list[PatchOperation]) -> None:
    try:
        after = apply_operations(USER, BEFORE, given_)
    except Invalid:
        pass
    else:
        assert after["userName"]
        assert set(after) <= {"externalId", "userName", "name", "displayName", "emails", "active"}
        assert sum(bool(each.get("primary")) for each in after.get("emails", [])) <= 1
    with suppress(Invalid):
        parse_member_changes(GROUP, given_)


ids = st.sampled_from([f"00000000-0000-4000-8000-00000000000{number}" for number in range(3)])
lists = st.lists(ids, max_size=3)


@st.composite
def moves(draw: st.DrawFn) -> tuple[PatchOperation, Any]:
    """An operation on members in one of its dialects, and what it does to a set of them."""
    op, named = draw(st.sampled_from(list(PatchOp))), draw(lists)
    values = [{"value": each} for each in named]
    if op is PatchOp.REMOVE:
        match draw(st.sampled_from(["all", "one", "beside"])):
            case "all":
                return PatchOperation(op, "members"), lambda there: set()
            case "one":
                one = draw(ids)
                return PatchOperation(op, f'members[value eq "{one}"]'), lambda there: there - {one}
        return PatchOperation(op, "members", values or draw(st.sampled_from([None, []]))), lambda there: there - set(named)
    operation = PatchOperation(op, "members", values) if draw(st.booleans()) else PatchOperation(op, None, {"members": values})
    return operation, (lambda there: there | set(named)) if op is PatchOp.ADD else (lambda there: set(named))


@given(st.lists(moves(), max_size=6), st.sets(ids))
def test_members_become_what_the_operations_say_one_after_the_other(given_: list[tuple[PatchOperation, Any]], before: set[str]) -> None:
    model = set(before)
    for _, move in given_:
        model = move(model)
    changes = parse_member_changes(GROUP, [operation for operation, _ in given_])
    left = (set() if changes.afresh else before) - {str(each) for each in changes.removed}
    assert left | {str(each) for each in changes.added} == model


def test_one_address_is_primary() -> None:
    new = {"value": "b@example.com", "type": "home", "primary": True}
    after = apply_operations(USER, BEFORE, [PatchOperation(PatchOp.ADD, "emails", [new])])
    assert after["emails"] == [{**BEFORE["emails"][0], "primary": False}, new]
    after = apply_operations(USER, BEFORE, [PatchOperation(PatchOp.ADD, 'emails[type eq "home"].value', "b@example.com")])
    assert after["emails"][1] == {"type": "home", "value": "b@example.com"}
    after = apply_operations(USER, BEFORE, [PatchOperation(PatchOp.REMOVE, 'emails[type eq "work"]', None)])
    assert "emails" not in after
    with pytest.raises(NoTarget):
        apply_operations(USER, BEFORE, [PatchOperation(PatchOp.ADD, 'emails[type co "home"].value', "b@example.com")])
    with pytest.raises(AttributeValueInvalid):
        apply_operations(USER, BEFORE, [PatchOperation(PatchOp.REPLACE, 'emails[type eq "work"]', [new, new])])


def test_nothing_that_clients_cannot_set_comes_in_with_a_resource() -> None:
    given_ = {"ID": "x", "meta": {}, "password": "x", "USERNAME": "a", "emails": {"value": "a", "display": "x"}, "active": "True"}
    assert read_resource(USER, given_) == {"userName": "a", "emails": [{"value": "a"}], "active": True}
    assert parse_member_changes(GROUP, [PatchOperation(PatchOp.REPLACE, "displayName", "x")]) == MemberChanges()
