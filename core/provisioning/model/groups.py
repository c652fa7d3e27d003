"""SCIM groups, and the changes that clients send.

A group can have so many members that building the whole resource to change it would be too slow. Operations therefore
become sets of ids to add and to remove.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Any, Final
from uuid import UUID

from core.kernel import errors, roles
from core.kernel.callers import ScimClient
from core.kernel.values import KEEP, Keep, is_visible, parse_id
from core.provisioning.model import filters, grammar, patches, resources, schemas
from core.tenancy.model.organizations import Organization

BATCH_SIZE: Final = 2000  # members per statement


class GroupNotFound(errors.NotFound):
    """This group does not exist. List the groups at /Groups. Groups of a directory need a token with directory groups."""


class GroupCreationUnsupported(errors.Unsupported):
    """This token cannot create groups. Switch on directory groups for it in the settings of the directory."""


class GroupDeletionForbidden(errors.Forbidden):
    """This group is the organization or one of its applications, so SCIM cannot delete it. Its owner can delete these."""


class GroupNameMissing(errors.Invalid):
    """The attribute displayName is missing, or has no visible character. Send the name of the group."""


class AssigneeUnknown(errors.Invalid):
    """Members must be users that your directory provisioned, or other end users or confirmed members. Nothing was changed."""


class GroupKind(Enum):
    """The things that a directory sees as groups."""

    ORGANIZATION = auto()
    SERVICE = auto()  # with the policy `assigned`
    DIRECTORY = auto()  # created by a directory


@dataclass(frozen=True, slots=True)
class ScimGroup:
    """A group as a directory sees it. Times are UTC."""

    id: UUID
    name: str
    external_id: str | None  # from the directory
    created_at: datetime
    updated_at: datetime
    kind: GroupKind


@dataclass(frozen=True, slots=True)
class GroupMember:
    """The group state that a user has if the directory knows the user."""

    user_id: UUID
    role: roles.RoleName | None  # None: not in the group
    is_blocked: bool  # by the directory, and therefore not a member until it activates the user
    is_platform_owner: bool
    is_provisioned: bool  # by this directory
    is_anonymized: bool

    @property
    def is_protected(self) -> bool:
        """Return whether SCIM cannot remove this user from the group (security C-3)."""
        return self.role == roles.OWNER or self.is_platform_owner


def to_group(organization: Organization, external_id: str | None) -> ScimGroup:
    """Return the organization as a group."""
    updated_at = max(organization.updated_at, organization.members_changed_at or organization.updated_at)
    return ScimGroup(organization.id, organization.name, external_id, organization.created_at, updated_at, GroupKind.ORGANIZATION)


def require_own_group(caller: ScimClient, group_id: UUID) -> None:
    """Check that the id names the caller's organization."""
    if group_id != caller.org_id:
        raise GroupNotFound


def named_member_ids(filter_: filters.ScimFilter) -> set[UUID]:
    """Return the member ids that the filter names. Only these members need to be loaded for `matches_group`."""
    values = {test.value for test in filters.comparisons(filter_) if test.field is filters.ScimField.MEMBER}
    return {id_ for value in values if isinstance(value, str) and (id_ := parse_id(value)) is not None}


def matches_group(filter_: filters.ScimFilter, group: ScimGroup, member_ids: Collection[UUID], *, has_members: bool = True) -> bool:
    """Return whether the group matches the filter. `member_ids`: which of the members that the filter names are in the group."""
    values: dict[filters.ScimField, filters.FieldValue] = {
        filters.ScimField.ID: str(group.id),
        filters.ScimField.EXTERNAL_ID: group.external_id,
        filters.ScimField.DISPLAY_NAME: group.name,
        filters.ScimField.RESOURCE_TYPE: "Group",
        filters.ScimField.CREATED: group.created_at,
        filters.ScimField.LAST_MODIFIED: group.updated_at,
        filters.ScimField.MEMBER: frozenset(map(str, member_ids))
        if has_members
        else None,  # an empty list is no value (RFC 7644 section 3.4.2.2)
    }
    return filters.matches(filter_, values.__getitem__)


class GroupMemberUnknown(errors.Invalid):
    """Members must be existing members, or users that your directory provisioned. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class MemberChanges:
    """Changes to the group's members. With `replace_all`, `added` replaces all present members."""

    replace_all: bool = False
    added: frozenset[UUID] = frozenset()
    removed: frozenset[UUID] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupChanges:
    """The changes to a group: to provisioned and other members, to the external id and to the name.

    The changes for provisioned and for other members are equal, unless a patch removes all members from the
    organization or from a service. Such a patch removes only the members that the directory provisioned. `nested` are
    the ids of groups that were named as members, and are ignored. Only directory groups have name changes and nested
    groups.
    """

    provisioned: MemberChanges = MemberChanges()
    others: MemberChanges = MemberChanges()
    external_id: str | Keep | None = KEEP
    name: str | Keep = KEEP
    nested: list[str] = field(default_factory=list, compare=False)

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
        added = frozenset(parse_id(text) or errors.refuse(GroupMemberUnknown) for text in self.added)
        return MemberChanges(self.replace_all, added, frozenset(id_ for text in self.removed if (id_ := parse_id(text)) is not None))


EXTERNAL_ID: Final = "externalId"
DISPLAY_NAME: Final = "displayName"


def parse_group(kind: GroupKind, body: Mapping[str, Any]) -> GroupChanges:
    """Return the changes that a whole group means.

    If the request lacks `members` or `externalId`, the group keeps them: a client that renames a group does not mean to
    empty the organization. The name is checked and then ignored for a group that the directory did not create.
    """
    schema, edits, skipped = schemas.group_schema(directory_groups=kind is GroupKind.DIRECTORY), _GroupEdits(kind), resources.SkippedParts()
    for name, value in resources.flatten_containers("the body", body, schema, skipped).items():
        attribute = schema.attribute(schema.without_urn(name))
        if attribute is None:
            continue
        if attribute.name == "members" and value is not None:
            ids = edits.read_ids(attribute, value)
            edits.provisioned.replace(ids)
            edits.others.replace(ids)
        elif attribute.name in (EXTERNAL_ID, DISPLAY_NAME):
            edits.assign(attribute, value)
    skipped.raise_error()
    return edits.parse()


def parse_group_patch(kind: GroupKind, operations: Iterable[patches.PatchOperation]) -> GroupChanges:
    """Return the changes that a patch means.

    Other group attributes stay as they are.
    """
    schema, edits = schemas.group_schema(directory_groups=kind is GroupKind.DIRECTORY), _GroupEdits(kind)
    for operation in operations:
        for target, value in _group_targets(schema, operation):
            if target.attribute.name in (EXTERNAL_ID, DISPLAY_NAME):
                edits.assign(target.attribute, None if operation.op is patches.PatchOp.REMOVE else value)
                continue
            ids = _ids_of(target, value, operation, edits)
            if ids is None:
                edits.remove_all()
                continue
            for members in (edits.provisioned, edits.others):
                if operation.op is patches.PatchOp.ADD:
                    members.add(ids)
                elif operation.op is patches.PatchOp.REMOVE:
                    members.remove(ids)
                elif value is not None:  # null is ignored, because it would empty the organization
                    members.replace(ids)
    return edits.parse()


@dataclass(slots=True)
class _GroupEdits:
    """The changes to a group of this kind that a request has made so far."""

    kind: GroupKind
    provisioned: _MemberEdits = field(default_factory=_MemberEdits)
    others: _MemberEdits = field(default_factory=_MemberEdits)
    external_id: str | Keep | None = KEEP
    name: str | Keep = KEEP
    nested: list[str] = field(default_factory=list)

    def assign(self, attribute: schemas.ScimAttribute, value: Any) -> None:
        """Set the name or the external id."""
        text = resources.read_value(attribute, value)
        if attribute.name == EXTERNAL_ID:
            self.external_id = text
        elif self.kind is GroupKind.DIRECTORY:
            self.name = text if text and is_visible(text) else errors.refuse(GroupNameMissing)

    def read_ids(self, attribute: schemas.ScimAttribute, value: Any) -> set[str]:
        """Return the ids of members in a value, without the ids of groups."""
        if self.kind is GroupKind.DIRECTORY and value is not None:
            value = value if isinstance(value, list) else [value]
            if not all(isinstance(item, Mapping) for item in value):
                raise resources.AttributeValueInvalid(attribute.name, "a list of objects with a value each")
            self.nested += [str(item.get("value", "")) for item in value if _is_group(item)]
            value = [item for item in value if not _is_group(item)]
        return set(read_member_ids(attribute, value))

    def remove_all(self) -> None:
        """Remove all members: in the organization and in a service, only members that the directory provisioned."""
        self.provisioned.replace(set())
        if self.kind is GroupKind.DIRECTORY:
            self.others.replace(set())

    def parse(self) -> GroupChanges:
        """Return the changes. Raises: GroupMemberUnknown."""
        changes = self.provisioned.parse()
        others = changes if self.others == self.provisioned else self.others.parse()
        return GroupChanges(changes, others, self.external_id, self.name, self.nested)


def _is_group(item: Any) -> bool:
    """Return whether the member in a list is a group, by its type or by its URL."""
    if not isinstance(item, Mapping) or item.keys() == _ONLY_VALUE:
        return False
    texts = {name.lower(): text for name, text in item.items() if isinstance(text, str)}
    return texts.get("type", "").lower() == "group" or "/groups/" in texts.get("$ref", "").lower()


def _group_targets(schema: schemas.ScimSchema, operation: patches.PatchOperation) -> list[tuple[patches.PatchTarget, Any]]:
    if operation.path is None or patches.is_without_path(schema, operation):
        skipped = resources.SkippedParts()
        targets = patches.targets_in_value(schema, operation, skipped)
        skipped.raise_error()
        written = ("members", EXTERNAL_ID, DISPLAY_NAME)
        return [(target, value) for target, value in targets if target.attribute.name in written and _is_writable(target.attribute)]
    target = patches.target_of_path(schema, operation.path)
    if target is None:
        if grammar.parse_path(operation.path).filter is not None:
            raise patches.NoTarget("The path selects no value that can be changed. Add members, or remove them.")
        return []
    is_name = target.attribute.name == DISPLAY_NAME and operation.op is not patches.PatchOp.REMOVE  # checked, whatever the kind is
    if not (_is_writable(target.attribute) or is_name):
        raise patches.AttributeNotWritable(target.attribute.name)
    return [(target, operation.value_for_path)]


def _is_writable(attribute: schemas.ScimAttribute) -> bool:
    return attribute.mutability is not schemas.Mutability.READ_ONLY


def _ids_of(target: patches.PatchTarget, value: Any, operation: patches.PatchOperation, edits: _GroupEdits) -> set[str] | None:
    """Return the ids in an operation. To remove members without a value means all members: return None. A null means no members."""
    if target.sub is not None:
        raise patches.AttributeNotWritable(f"members.{target.sub.name}")
    if target.filter is not None:
        if operation.op is not patches.PatchOp.REMOVE:
            raise patches.NoTarget("Send the members to add in the value, not in the path.")
        return _ids_in_filter(target.filter)
    if operation.op is patches.PatchOp.REMOVE and operation.value is KEEP:
        return None
    return edits.read_ids(target.attribute, value)


_ONLY_VALUE: Final = {"value"}


def read_member_ids(attribute: schemas.ScimAttribute, value: Any) -> list[str]:
    """Return the ids in a value for the attribute `members`, in lower case."""
    ids: list[str] = []
    for item in [] if value is None else value if isinstance(value, list) else [value]:
        if isinstance(item, dict) and item.keys() == _ONLY_VALUE and isinstance(item["value"], str):
            ids.append(item["value"].strip().lower())  # most members in large groups
            continue
        member_id = (resources.read_single_value(attribute, item) or {}).get("value")
        if member_id is None:
            raise resources.AttributeValueInvalid("members", "a list of objects with a value each")
        ids.append(member_id.lower())
    return ids


def _ids_in_filter(filter_: grammar.ParsedFilter) -> set[str]:
    match filter_:
        case grammar.ParsedComparison("value", grammar.FilterOperator.EQ, str() as literal):
            return {literal.lower()}
        case grammar.Or(operands):
            return set[str]().union(*(_ids_in_filter(operand) for operand in operands))
    raise grammar.FilterInvalid("members can only be selected by value eq, joined by or")
