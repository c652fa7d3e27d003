"""SCIM patches, compared with a simple model (RFC 7644 section 3.5.2)."""

import copy
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.kernel.errors import Invalid
from core.provisioning.model.groups import GroupChanges, GroupKind, parse_group_patch
from core.provisioning.model.patches import NoTarget, PatchOp, PatchOperation, apply_operations
from core.provisioning.model.resources import AttributeValueInvalid, Resource, SkippedParts, read_resource
from core.provisioning.model.schemas import ENTERPRISE_URN, USER

STORED_USER: dict[str, Any] = {
    "userName": "ada@example.com",
    "name": {"givenName": "Ada", "familyName": "Lovelace"},
    "emails": [{"value": "ada@example.com", "type": "work", "primary": True}],
    "active": True,
}


def apply(*operations: PatchOperation) -> Resource:
    """Return the user after the operations. Raises the first error."""
    result = apply_operations(USER, STORED_USER, operations)
    if result.skipped.error is not None:
        raise result.skipped.error
    return result.resource


texts = st.sampled_from(["a", "b", "c"])
NAMES = ["externalId", "displayName", "title", "name.givenName", "name.familyName", "name.formatted"]


def with_case(name: str, in_capitals: bool) -> str:
    return name.upper() if in_capitals else name


@st.composite
def operations(draw: st.DrawFn) -> tuple[PatchOperation, dict[str, str | None]]:
    """An operation on a single value, written in some way, and the expected change."""
    op = draw(st.sampled_from(list(PatchOp)))
    name, value, in_capitals = draw(st.sampled_from(NAMES)), draw(texts), draw(st.booleans())
    if op is PatchOp.REMOVE:
        return PatchOperation(op, with_case(name, in_capitals), None), {name: None}
    match draw(st.sampled_from(["path", "urn", "whole", "dotted", "wrapped"])):
        case "path":
            return PatchOperation(op, with_case(name, in_capitals), value), {name: value}
        case "urn":
            return PatchOperation(op, f"{USER.id}:{name}", value), {name: value}
        case "dotted":
            return PatchOperation(op, None, {name: value, "unknown": "x"}), {name: value}
        case "wrapped":
            return PatchOperation(op, name, [{"value": value}]), {name: value}
    outer, _, inner = name.partition(".")
    return PatchOperation(op, None, {with_case(outer, in_capitals): {with_case(inner, in_capitals): value} if inner else value}), {
        name: value
    }


def to_flat(resource: dict[str, Any]) -> dict[str, str | None]:
    return {name: _get(resource, name) for name in NAMES}


def _get(resource: dict[str, Any], name: str) -> str | None:
    value: Any = resource
    for part in name.split("."):
        value = (value or {}).get(part)
    result: str | None = value
    return result


@given(st.lists(operations(), max_size=6))
def test_operations_on_single_values_are_applied_in_order(patch: list[tuple[PatchOperation, dict[str, str | None]]]) -> None:
    model = to_flat(STORED_USER)
    for _, change in patch:
        model |= change
    before = copy.deepcopy(STORED_USER)
    result = apply_operations(USER, before, [operation for operation, _ in patch])
    after = result.resource
    assert (result.skipped.error, result.skipped.refused) == (None, {})
    assert to_flat(after) == model
    assert before == STORED_USER
    assert (after["userName"], after["emails"], after["active"]) == (STORED_USER["userName"], STORED_USER["emails"], True)


KEYS = st.sampled_from(["value", "type", "primary", "userName", "name", "members"])
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "x", "True", "a@b.example"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=5,
)  # fmt: skip
paths = st.none() | st.sampled_from(
    ["userName", "name", "emails", "emails.value", 'emails[type eq "work"]', 'emails[type eq "home"].value', "emails[primary eq true].type",
     "active", "title", "phoneNumbers", 'phoneNumbers[type eq "x"].value', f"{ENTERPRISE_URN}:manager", ENTERPRISE_URN, "nickName",
     "id", "meta.created", "schemas", "nothing", "members", 'members[value eq "x"]', "displayName", 'emails[value co 5]', "a["]
)  # fmt: skip


@given(st.lists(st.builds(PatchOperation, st.sampled_from(PatchOp), paths, any_json), max_size=4))
def test_any_operation_is_applied_or_refused(patch: list[PatchOperation]) -> None:
    result = apply_operations(USER, STORED_USER, patch)
    after = result.resource
    assert after["userName"]
    assert {attribute.lower() for attribute in after} <= {name.rpartition(":")[2] for name in USER.by_name}
    assert sum(bool(email.get("primary")) for email in after.get("emails", [])) <= 1
    assert (result.skipped.error is None) == (not result.skipped.refused)
    # The operations that are refused do not matter.
    applied = [operation for operation in patch if apply_operations(USER, after, [operation]).skipped.error is None]
    assert result.skipped.error is not None or apply_operations(USER, STORED_USER, applied).resource == after
    with suppress(Invalid):
        parse_group_patch(GroupKind.ORGANIZATION, patch)


IDS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(4)]
PROVISIONED = set(IDS[:2])
ids = st.sampled_from(IDS)
lists = st.lists(ids, max_size=3)


@st.composite
def member_operations(draw: st.DrawFn) -> tuple[PatchOperation, Any]:
    """An operation on members, written in some way, and the same change on a set."""
    op, ids_in_value = draw(st.sampled_from(list(PatchOp))), draw(lists)
    values = [{"value": id_} for id_ in ids_in_value]
    if op is PatchOp.REMOVE:
        match draw(st.sampled_from(["all", "one", "beside"])):
            case "all":
                return PatchOperation(op, "members"), lambda members: members - PROVISIONED
            case "one":
                one = draw(ids)
                return PatchOperation(op, f'members[value eq "{one}"]'), lambda members: members - {one}
        return PatchOperation(op, "members", values or draw(st.sampled_from([None, []]))), lambda members: members - set(ids_in_value)
    operation = PatchOperation(op, "members", values) if draw(st.booleans()) else PatchOperation(op, None, {"members": values})
    return operation, (lambda members: members | set(ids_in_value)) if op is PatchOp.ADD else (lambda members: set(ids_in_value))


@given(st.lists(member_operations(), max_size=6), st.sets(ids))
def test_operations_on_members_are_applied_in_order(patch: list[tuple[PatchOperation, Any]], before: set[str]) -> None:
    model = set(before)
    for _, change in patch:
        model = change(model)
    group_changes = parse_group_patch(GroupKind.ORGANIZATION, [operation for operation, _ in patch])
    after = set()
    for kind in (PROVISIONED, set(IDS) - PROVISIONED):
        changes = group_changes.of(provisioned=kind is PROVISIONED)
        remaining = (set() if changes.replace_all else before) - {str(id_) for id_ in changes.removed}
        after |= kind & (remaining | {str(id_) for id_ in changes.added})
    assert after == model
    assert group_changes.provisioned.added <= group_changes.others.added


def test_at_most_one_address_is_primary() -> None:
    new = {"value": "b@example.com", "type": "home", "primary": True}
    after = apply(PatchOperation(PatchOp.ADD, "emails", [new]))
    assert after["emails"] == [{**STORED_USER["emails"][0], "primary": False}, new]
    after = apply(PatchOperation(PatchOp.ADD, 'emails[type eq "home"].value', "b@example.com"))
    assert after["emails"][1] == {"type": "home", "value": "b@example.com"}
    after = apply(PatchOperation(PatchOp.REMOVE, 'emails[type eq "work"]', None))
    assert "emails" not in after
    with pytest.raises(NoTarget):
        apply(PatchOperation(PatchOp.ADD, 'emails[type co "home"].value', "b@example.com"))
    with pytest.raises(AttributeValueInvalid):
        apply(PatchOperation(PatchOp.REPLACE, 'emails[type eq "work"]', [new, new]))


def test_a_resource_keeps_only_attributes_that_clients_can_set() -> None:
    body = {"ID": "x", "meta": {}, "password": "x", "USERNAME": "a", "emails": {"value": "a", "display": "x"}, "active": "True"}
    assert read_resource(USER, body, SkippedParts()) == {"userName": "a", "emails": [{"value": "a"}], "active": True}
    assert parse_group_patch(GroupKind.ORGANIZATION, [PatchOperation(PatchOp.REPLACE, "displayName", "x")]) == GroupChanges()
