"""Changes to the members of the SCIM group, read from patches and from whole groups.

A group can have so many members that building the whole resource to change it would be too slow. So
operations become sets of ids to add and to remove.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.kernel.errors import Invalid, refuse
from core.kernel.values import KEEP, parse_id
from core.provisioning.grammar import FilterInvalid, FilterOperator, Or, ParsedComparison, ParsedFilter, PathInvalid, parse_path
from core.provisioning.patches import (
    AttributeNotWritable,
    NoTarget,
    PatchOp,
    PatchOperation,
    PatchTarget,
    find_target,
    is_without_path,
    targets_in_value,
)
from core.provisioning.resources import AttributeValueInvalid, check_unique_names, read_single_value, read_value
from core.provisioning.schemas import Mutability

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from uuid import UUID

    from core.provisioning.schemas import ScimAttribute, ScimSchema


class GroupMemberUnknown(Invalid):
    """Members must be existing members, or users that your directory provisioned. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class MemberChanges:
    """The changes to the members of the group.

    With `replace_all`, `added` replaces all present members.
    """

    replace_all: bool = False
    added: frozenset[UUID] = frozenset()
    removed: frozenset[UUID] = frozenset()

    @classmethod
    def parse(cls, added: Collection[str], removed: Collection[str] = (), *, replace_all: bool = False) -> MemberChanges:
        """Parse the ids.

        A text that is not an id has no effect in `removed`.

        Raises: GroupMemberUnknown if a text in `added` is not an id.
        """
        added_ids = frozenset(parse_id(text) or refuse(GroupMemberUnknown) for text in added)
        return cls(replace_all, added_ids, frozenset(id_ for text in removed if (id_ := parse_id(text)) is not None))


def parse_member_replacement(schema: ScimSchema, body: Mapping[str, Any]) -> MemberChanges:
    """Return the changes of a whole group.

    Without the attribute `members`, the members stay: a client that renames a group does not mean
    to empty the organization. The name is checked and then ignored (decisions 135, 136).

    Raises: AttributeValueInvalid, GroupMemberUnknown.
    """
    check_unique_names("the body", body, schema)
    attributes = [
        (attribute, value) for name, value in body.items() if (attribute := schema.attribute(schema.without_urn(name))) is not None
    ]
    for attribute, value in attributes:
        if attribute.name == "displayName":
            read_value(attribute, value)
    for attribute, value in attributes:
        if attribute.name == "members" and value is not None:
            return MemberChanges.parse(set(read_member_ids(attribute, value)), replace_all=True)
    return MemberChanges()


def parse_member_changes(schema: ScimSchema, operations: Iterable[PatchOperation]) -> MemberChanges:
    """Return the changes of a patch.

    Other attributes of the group stay as they are (decision 136).

    Raises: AttributeValueInvalid, PatchValueMissing, AttributeNotWritable, NoTarget, PathInvalid,
    FilterInvalid, GroupMemberUnknown.
    """
    replace_all, added, removed = False, set[str](), set[str]()
    for operation in operations:
        for target, value in _member_targets(schema, operation):
            ids = _ids_of(target, value, operation)
            if operation.op is PatchOp.REPLACE and value is None:  # ignored, because it would empty the organization
                continue
            match operation.op:
                case PatchOp.ADD:
                    added |= ids or set()
                    removed -= ids or set()
                case PatchOp.REMOVE if ids is not None:
                    added -= ids
                    removed |= ids
                case _:
                    replace_all, added, removed = True, set(ids or ()), set()
    return MemberChanges.parse(added, removed, replace_all=replace_all)


def _member_targets(schema: ScimSchema, operation: PatchOperation) -> list[tuple[PatchTarget, Any]]:
    if is_without_path(schema, operation):
        return [(target, value) for target, value in targets_in_value(schema, operation) if target.attribute.name == "members"]
    target = find_target(schema, parse_path(operation.path or ""))
    if target is None:
        raise PathInvalid
    value = operation.value_for_path
    if target.attribute.name == "displayName" and operation.op is not PatchOp.REMOVE:
        read_value(target.attribute, value)
        return []
    if target.attribute.mutability is Mutability.READ_ONLY:
        raise AttributeNotWritable(target.attribute.name)
    return [(target, value)]


def _ids_of(target: PatchTarget, value: Any, operation: PatchOperation) -> set[str] | None:
    """Return the ids of an operation.

    An operation without a value means all members: return None. A null means no members.
    """
    if target.sub is not None:
        raise AttributeNotWritable(f"members.{target.sub.name}")
    if target.filter is not None:
        if operation.op is not PatchOp.REMOVE:
            raise NoTarget("Send the members to add in the value, not in the path.")
        return _ids_in_filter(target.filter)
    if operation.value is KEEP:
        return None
    return set(read_member_ids(target.attribute, value))


def read_member_ids(attribute: ScimAttribute, value: Any) -> list[str]:
    """Return the ids in a value of the attribute `members`. Raises: AttributeValueInvalid."""
    ids: list[str] = []
    for item in [] if value is None else value if isinstance(value, list) else [value]:
        member_id = (read_single_value(attribute, item) or {}).get("value")
        if member_id is None:
            raise AttributeValueInvalid("members", "a list of objects with a value each")
        ids.append(member_id)
    return ids


def _ids_in_filter(filter_: ParsedFilter) -> set[str]:
    match filter_:
        case ParsedComparison("value", FilterOperator.EQ, str() as literal):
            return {literal}
        case Or(operands):
            return set[str]().union(*(_ids_in_filter(operand) for operand in operands))
    raise FilterInvalid("members can only be selected by value eq, joined by or")
