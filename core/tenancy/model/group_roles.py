"""The roles that groups give to their members, and the question whether their givers may still give them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from core.kernel.errors import Conflict, Forbidden
from core.kernel.roles import NO_RIGHTS, Capability, Rights, Role, RoleName


class GroupGivesMore(Forbidden):
    """This group gives a role that you may not give. Ask a member with the right to manage roles and all rights of the role."""

    audited = True


class RightsByGroupItself(Forbidden):
    """You have the rights of this role only by groups that depend on this one. Ask a member who has them in another way."""

    audited = True


class DirectoryCreatorsHaveLess(Conflict):
    """A directory fills this group, and the creator of its SCIM token does not have all rights of the role. Create the token anew."""

    audited = True

    def __init__(self, names: Iterable[str], missing: Iterable[Capability]) -> None:
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
    role: RoleName
    rights: Rights  # that the role has
    mapper_rights: Rights
    mapper_groups: frozenset[UUID]
    of_directory: bool = False  # whether a directory fills the group


@dataclass(frozen=True, slots=True)
class DirectoryCreator:
    """A SCIM token that fills groups, and the rights that its creator has now. The creator may still have a copy of the token."""

    token_id: UUID
    name: str
    rights: Rights


def may_map(giver: Rights, rights: Rights) -> bool:
    """Return whether a member with the rights `giver` may let a group give a role with these rights.

    The member manages roles, and has every right that the role has. The ownership is transferred, and no group gives
    it.
    """
    return Capability.ROLES_MANAGE in giver and rights <= giver and Capability.ORGANIZATION_OWN not in rights


def require_mappable(giver: Rights, role: Role | None) -> None:
    """Check that a member with these rights may let a group give this role. None is an unknown role."""
    if role is None or not may_map(giver, role.rights):
        raise GroupGivesMore


def find_unfounded(mappings: Sequence[GroupMapping]) -> list[GroupMapping]:
    """Return the organization's active mappings that their givers may no longer give.

    A giver may have the rights by other groups, if the mappings for these groups are founded themselves. The search begins without any
    mapping, so that mappings do not hold each other up in a circle.
    """
    founded: dict[UUID, Rights] = {}
    rest = list(mappings)
    while True:
        found = {each.group_id: each.rights for each in rest if may_map(_rights_of_mapper(each, founded), each.rights)}
        if not found:
            return rest
        founded |= found
        rest = [each for each in rest if each.group_id not in found]


def _rights_of_mapper(mapping: GroupMapping, founded: dict[UUID, Rights]) -> Rights:
    by_groups = (founded.get(group_id, NO_RIGHTS) for group_id in mapping.mapper_groups)
    return mapping.mapper_rights.union(*by_groups)


def rights_by_directories(mappings: Iterable[GroupMapping]) -> Rights:
    """Return the rights that a directory can give by these mappings."""
    return NO_RIGHTS.union(*(each.rights for each in mappings if each.of_directory))


def require_equal_creators(creators: Iterable[DirectoryCreator], rights: Rights) -> None:
    """Check that the creators of these tokens have the rights that a directory's groups give."""
    weak = [creator for creator in creators if not rights <= creator.rights]
    if weak:
        missing = rights - frozenset.intersection(*(creator.rights for creator in weak))
        raise DirectoryCreatorsHaveLess([creator.name for creator in weak], sorted(missing))
