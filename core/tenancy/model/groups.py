"""An organization's groups, the rules for their names, and the roles that they give to their members."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final
from unicodedata import normalize
from uuid import UUID

from core.kernel import errors, roles, values

MAX_GROUPS: Final = 1000  # per organization
MAX_GROUP_MEMBERS: Final = 200_000
MEMBERS_PER_EVENT: Final = 1000


class OrganizationGroupNotFound(errors.NotFound):
    """This group does not exist."""


class NotInGroup(errors.NotFound):
    """This user is not a member of the group."""


class GroupUserNotFound(errors.NotFound):
    """This user is neither an end user nor a confirmed member of the organization. Invite them, and add them when they have joined."""


class GroupAboveOwn(errors.Forbidden):
    """A member in this group has rights that you do not have yourself. Ask the owner of the organization."""

    audited = True


# The rights to give a user what groups give their users: application roles, access to applications, and access to API
# resources
GIVEN_BY_GROUPS: Final[roles.Rights] = frozenset(
    {roles.Capability.SERVICE_ROLES_ASSIGN, roles.Capability.END_USERS_MANAGE, roles.Capability.RESOURCES_MANAGE}
)


class GroupOpensMore(errors.Forbidden):
    """The users of this group get roles or access that you may not give or take. Ask an admin of the organization."""

    audited = True

    def __init__(self, missing: roles.Capability) -> None:
        super().__init__(f"The users of this group get more than you may give or take: that needs the right {missing}. Ask an admin.")


class GroupWithoutRole(errors.NotFound):
    """This group gives no role. Nothing was changed."""


class NoGroupChanges(errors.Invalid):
    """The request changes nothing. Send a name or a description."""


class TooManyGroups(errors.Invalid):
    """The organization has the maximum number of groups. Delete a group first."""

    audited = True
    scim_type = None

    def __init__(self) -> None:
        super().__init__(f"The organization already has the maximum of {MAX_GROUPS:,} groups. Delete one that you no longer need.")


class GroupFull(errors.Invalid):
    """The group has the maximum number of members. Remove a member first."""

    scim_type = None

    def __init__(self) -> None:
        super().__init__(f"A group can have at most {MAX_GROUP_MEMBERS:,} members. Divide the users among several groups.")


class NameKind(StrEnum):
    """What shares names in an organization: a directory sees all of it as groups."""

    ORGANIZATION = "organization"
    SERVICE = "service"  # with the policy `assigned`
    GROUP = "group"


class GroupNameTaken(errors.Conflict):
    """The organization, a group or an application for assigned users already has this name. Choose another name."""

    def __init__(self, kind: NameKind) -> None:
        super().__init__(f"{_NAMED[kind]} already has this name. Choose another name. Case does not count.")


class SharedNameTaken(errors.Conflict):
    """A directory could not tell the organization, its groups and its applications for assigned users apart. Choose another name."""

    def __init__(self, kind: NameKind) -> None:
        super().__init__(f"{_NAMED[kind]} already has this name. Choose another name, or rename the other first. Case does not count.")


_NAMED: Final = {
    NameKind.ORGANIZATION: "The organization itself",
    NameKind.SERVICE: "An application that only assigned users may use",
    NameKind.GROUP: "A group of the organization",
}


class ManagedByDirectory(errors.Conflict):
    """Your directory manages this group. Change it there."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"The directory {directory} manages this group. Change the group there.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group with users, in an organization. Times are UTC."""

    id: UUID
    org_id: UUID
    name: str
    description: str | None
    external_id: str | None  # from the directory
    scim_token_id: UUID | None  # the token that created it, which may be revoked; None: an admin created it
    directory: str | None  # the directory token's name, if a directory manages it now; None: admins manage it
    member_count: int
    created_at: datetime
    updated_at: datetime
    members_changed_at: datetime
    role: roles.RoleName | None = None  # in the organization, which the group gives to its confirmed members
    role_label: str | None = None  # this role's name, if the organization has defined it
    mapped_by: UUID | None = None  # the member who gave the group the role
    mapped_at: datetime | None = None
    mapping_stopped_at: datetime | None = None  # when this member lost the rights to: the group gives nothing since

    @property
    def gives_role(self) -> bool:
        return self.role is not None and self.mapping_stopped_at is None

    @property
    def name_key(self) -> str:
        """Return the name without regard to case, which is unique in the organization."""
        return to_name_key(self.name)


def to_name_key(name: str) -> str:
    """Return the name for comparisons, which ignore case, invisible characters, and Unicode forms."""
    return normalize("NFKC", normalize("NFKC", values.without_invisible(name)).casefold())


@dataclass(frozen=True, slots=True)
class AssignedGroup:
    """A group that is assigned to a service or an API resource, or has a service's role. The time is UTC."""

    group_id: UUID
    name: str
    member_count: int
    assigned_at: datetime


@dataclass(frozen=True, slots=True)
class MemberOfGroup:
    """A user in a group. The time is UTC."""

    user_id: UUID
    email: values.Email
    added_at: datetime


class GroupGivesMore(errors.Forbidden):
    """This group gives a role that you may not give. Ask a member with the right to manage roles and all rights of the role."""

    audited = True


class RightsByGroupItself(errors.Forbidden):
    """You have the rights of this role only by groups that depend on this one. Ask a member who has them in another way."""

    audited = True


class DirectoryCreatorsHaveLess(errors.Conflict):
    """A directory fills this group, and the creator of its SCIM token does not have all rights of the role. Create the token anew."""

    audited = True

    def __init__(self, names: Iterable[str], missing: Iterable[roles.Capability]) -> None:
        super().__init__(
            f"A directory fills groups with this role, and the creators of its SCIM tokens do not have the rights {', '.join(missing)}: "
            f"{', '.join(names)}. A member with these rights creates these tokens anew."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMapping:
    """A role that a group gives, and the facts about the member who gave it to the group.

    `mapper_rights` come from the member's own role, and are empty for a user who is not a usable, confirmed member.
    `mapper_groups` are the groups with roles that the member is in, except stopped groups.
    """

    group_id: UUID
    group_name: str
    role: roles.RoleName
    rights: roles.Rights  # that the role has
    mapper_rights: roles.Rights
    mapper_groups: frozenset[UUID]
    of_directory: bool = False  # whether a directory fills the group


@dataclass(frozen=True, slots=True)
class DirectoryCreator:
    """A SCIM token that fills groups, and the rights that its creator has now. The creator may still have a copy of the token."""

    token_id: UUID
    name: str
    rights: roles.Rights


def may_map(giver: roles.Rights, rights: roles.Rights) -> bool:
    """Return whether a member with the rights `giver` may let a group give a role with these rights.

    The member manages roles, and has every right that the role has. The ownership is transferred, and no group gives
    it.
    """
    return roles.Capability.ROLES_MANAGE in giver and rights <= giver and roles.Capability.ORGANIZATION_OWN not in rights


def require_mappable(giver: roles.Rights, role: roles.Role | None) -> None:
    """Check that a member with these rights may let a group give this role. None is an unknown role."""
    if role is None or not may_map(giver, role.rights):
        raise GroupGivesMore


def find_unfounded(mappings: Sequence[GroupMapping]) -> list[GroupMapping]:
    """Return the organization's active mappings that their givers may no longer give.

    A giver may have the rights by other groups, if the mappings for these groups are founded themselves. The search begins without any
    mapping, so that mappings do not hold each other up in a circle.
    """
    founded: dict[UUID, roles.Rights] = {}
    rest = list(mappings)
    while True:
        found = {each.group_id: each.rights for each in rest if may_map(_rights_of_mapper(each, founded), each.rights)}
        if not found:
            return rest
        founded |= found
        rest = [each for each in rest if each.group_id not in found]


def _rights_of_mapper(mapping: GroupMapping, founded: dict[UUID, roles.Rights]) -> roles.Rights:
    by_groups = (founded.get(group_id, roles.NO_RIGHTS) for group_id in mapping.mapper_groups)
    return mapping.mapper_rights.union(*by_groups)


def rights_by_directories(mappings: Iterable[GroupMapping]) -> roles.Rights:
    """Return the rights that a directory can give by these mappings."""
    return roles.NO_RIGHTS.union(*(each.rights for each in mappings if each.of_directory))


def require_equal_creators(creators: Iterable[DirectoryCreator], rights: roles.Rights) -> None:
    """Check that the creators of these tokens have the rights that a directory's groups give."""
    weak = [creator for creator in creators if not rights <= creator.rights]
    if weak:
        missing = rights - frozenset.intersection(*(creator.rights for creator in weak))
        raise DirectoryCreatorsHaveLess([creator.name for creator in weak], sorted(missing))
