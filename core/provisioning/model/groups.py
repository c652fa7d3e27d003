"""The SCIM group: the organization as a group, and changes that clients send.

A group can have so many members that building the whole resource to change it would be too slow. So
operations become sets of ids to add and to remove.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from core.kernel.callers import ScimClient
from core.kernel.errors import Invalid, NotFound, Unsupported, refuse
from core.kernel.roles import OWNER, RoleName
from core.kernel.values import KEEP, Keep, parse_id
from core.provisioning.model.filters import FieldValue, ScimField, ScimFilter, comparisons, matches
from core.provisioning.model.grammar import FilterInvalid, FilterOperator, Or, ParsedComparison, ParsedFilter
from core.provisioning.model.patches import (
    AttributeNotWritable,
    NoTarget,
    PatchOp,
    PatchOperation,
    PatchTarget,
    is_without_path,
    target_of_path,
    targets_in_value,
)
from core.provisioning.model.resources import AttributeValueInvalid, SkippedParts, flatten_containers, read_single_value, read_value
from core.provisioning.model.schemas import Mutability, ScimAttribute, ScimSchema
from core.tenancy.model.organizations import Organization

BATCH_SIZE: Final = 2000  # members per statement


class GroupNotFound(NotFound):
    """This group does not exist. The groups are the organization of the token, and its applications that only assigned users may use."""


class GroupCreationUnsupported(Unsupported):
    """Groups cannot be created by SCIM. The groups are the organization of the token and its applications."""


@dataclass(frozen=True, slots=True)
class ScimGroup:
    """The organization, or one of its services, as a group. Times are UTC."""

    id: UUID
    name: str
    external_id: str | None  # from the directory
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class GroupMember:
    """The group state of a user that the directory knows."""

    user_id: UUID
    role: RoleName | None  # None: not in the group
    is_blocked: bool  # by the directory, and therefore not a member until it activates the user
    is_platform_owner: bool
    is_provisioned: bool  # by this directory

    @property
    def is_protected(self) -> bool:
        """Return whether SCIM cannot remove this user from the group (security C-3)."""
        return self.role == OWNER or self.is_platform_owner


def to_group(organization: Organization, external_id: str | None) -> ScimGroup:
    """Return the organization as a group."""
    updated_at = max(organization.updated_at, organization.members_changed_at or organization.updated_at)
    return ScimGroup(organization.id, organization.name, external_id, organization.created_at, updated_at)


def require_own_group(caller: ScimClient, group_id: UUID) -> None:
    """Check that the id is that of the caller's organization. Raises: GroupNotFound."""
    if group_id != caller.org_id:
        raise GroupNotFound


def named_member_ids(filter_: ScimFilter) -> set[UUID]:
    """Return the ids of the members that the filter names. Only these need to be loaded for `matches_group`."""
    values = {test.value for test in comparisons(filter_) if test.field is ScimField.MEMBER}
    return {id_ for value in values if isinstance(value, str) and (id_ := parse_id(value)) is not None}


def matches_group(filter_: ScimFilter, group: ScimGroup, member_ids: Collection[UUID]) -> bool:
    """Return whether the group with these members matches the filter."""
    values: dict[ScimField, FieldValue] = {
        ScimField.ID: str(group.id),
        ScimField.EXTERNAL_ID: group.external_id,
        ScimField.DISPLAY_NAME: group.name,
        ScimField.RESOURCE_TYPE: "Group",
        ScimField.CREATED: group.created_at,
        ScimField.LAST_MODIFIED: group.updated_at,
        ScimField.MEMBER: frozenset(map(str, member_ids)),
    }
    return matches(filter_, values.__getitem__)


class GroupMemberUnknown(Invalid):
    """Members must be existing members, or users that your directory provisioned. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class MemberChanges:
    """Changes to the members of the group. With `replace_all`, `added` replaces all present members."""

    replace_all: bool = False
    added: frozenset[UUID] = frozenset()
    removed: frozenset[UUID] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupChanges:
    """The changes to the group: to the members that the directory provisioned, to the others, and to the external id.

    The changes to both kinds of members are equal, unless a patch removes all members: this removes
    only those that the directory provisioned.
    """

    provisioned: MemberChanges = MemberChanges()
    others: MemberChanges = MemberChanges()
    external_id: str | Keep | None = KEEP

    def of(self, *, provisioned: bool) -> MemberChanges:
        """Return the changes to this kind of members."""
        return self.provisioned if provisioned else self.others


@dataclass(slots=True)
class _MemberEdits:
    """The operations on one kind of members so far, with ids as texts."""

    replace_all: bool = False
    added: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)

    def add(self, ids: set[str]) -> None:
        self.added |= ids
        self.removed -= ids

    def remove(self, ids: set[str]) -> None:
        self.added -= ids
        self.removed |= ids

    def replace(self, ids: set[str]) -> None:
        self.replace_all, self.added, self.removed = True, set(ids), set()

    def parse(self) -> MemberChanges:
        """Parse the ids. A text that is not an id has no effect in `removed`.

        Raises: GroupMemberUnknown if a text in `added` is not an id.
        """
        added = frozenset(parse_id(text) or refuse(GroupMemberUnknown) for text in self.added)
        return MemberChanges(self.replace_all, added, frozenset(id_ for text in self.removed if (id_ := parse_id(text)) is not None))


EXTERNAL_ID: Final = "externalId"


def parse_group(schema: ScimSchema, body: Mapping[str, Any]) -> GroupChanges:
    """Return the changes of a whole group.

    Without the attributes `members` and `externalId`, these stay: a client that renames a group does
    not mean to empty the organization. The name is checked and then ignored.

    Raises: AttributeValueInvalid, GroupMemberUnknown.
    """
    members, skipped = _MemberEdits(), SkippedParts()
    external_id: str | Keep | None = KEEP
    for name, value in flatten_containers("the body", body, schema, skipped).items():
        attribute = schema.attribute(schema.without_urn(name))
        if attribute is None:
            continue
        if attribute.name == "members" and value is not None:
            members.replace(set(read_member_ids(attribute, value)))
        elif attribute.name == EXTERNAL_ID:
            external_id = read_value(attribute, value)
        elif attribute.name == "displayName":
            read_value(attribute, value)
    skipped.raise_error()
    changes = members.parse()
    return GroupChanges(changes, changes, external_id)


def parse_group_patch(schema: ScimSchema, operations: Iterable[PatchOperation]) -> GroupChanges:
    """Return the changes of a patch.

    Other attributes of the group stay as they are.

    Raises: AttributeValueInvalid, PatchValueMissing, AttributeNotWritable, NoTarget, PathInvalid,
    FilterInvalid, GroupMemberUnknown.
    """
    provisioned, others, removes_all = _MemberEdits(), _MemberEdits(), False
    external_id: str | Keep | None = KEEP
    for operation in operations:
        for target, value in _group_targets(schema, operation):
            if target.attribute.name == EXTERNAL_ID:
                external_id = None if operation.op is PatchOp.REMOVE else read_value(target.attribute, value)
                continue
            ids = _ids_of(target, value, operation)
            if ids is None:
                provisioned.replace(set())
                removes_all = True
                continue
            for members in (provisioned, others):
                if operation.op is PatchOp.ADD:
                    members.add(ids)
                elif operation.op is PatchOp.REMOVE:
                    members.remove(ids)
                elif value is not None:  # null is ignored, because it would empty the organization
                    members.replace(ids)
    changes = provisioned.parse()
    return GroupChanges(changes, others.parse() if removes_all else changes, external_id)


def _group_targets(schema: ScimSchema, operation: PatchOperation) -> list[tuple[PatchTarget, Any]]:
    if operation.path is None or is_without_path(schema, operation):
        skipped = SkippedParts()
        targets = targets_in_value(schema, operation, skipped)
        skipped.raise_error()
        return [(target, value) for target, value in targets if target.attribute.name in ("members", EXTERNAL_ID)]
    target = target_of_path(schema, operation.path)
    if target is None:
        return []
    value = operation.value_for_path
    if target.attribute.name == "displayName" and operation.op is not PatchOp.REMOVE:
        read_value(target.attribute, value)
        return []
    if target.attribute.mutability is Mutability.READ_ONLY:
        raise AttributeNotWritable(target.attribute.name)
    return [(target, value)]


def _ids_of(target: PatchTarget, value: Any, operation: PatchOperation) -> set[str] | None:
    """Return the ids of an operation. To remove members without a value means all members: return None. A null means no members."""
    if target.sub is not None:
        raise AttributeNotWritable(f"members.{target.sub.name}")
    if target.filter is not None:
        if operation.op is not PatchOp.REMOVE:
            raise NoTarget("Send the members to add in the value, not in the path.")
        return _ids_in_filter(target.filter)
    if operation.op is PatchOp.REMOVE and operation.value is KEEP:
        return None
    return set(read_member_ids(target.attribute, value))


_ONLY_VALUE: Final = {"value"}


def read_member_ids(attribute: ScimAttribute, value: Any) -> list[str]:
    """Return the ids in a value of the attribute `members`. Raises: AttributeValueInvalid."""
    ids: list[str] = []
    for item in [] if value is None else value if isinstance(value, list) else [value]:
        if isinstance(item, dict) and item.keys() == _ONLY_VALUE and isinstance(item["value"], str):
            ids.append(item["value"].strip())  # most members of large groups
            continue
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
