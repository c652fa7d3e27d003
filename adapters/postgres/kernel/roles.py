"""Roles in SQL: members' and service accounts' rights, and role names as literals.

A row with a role has its name in `role`. If the organization has defined the role, `role_id` is its id.
"""

from collections.abc import Iterable
from typing import Final, LiteralString

from adapters.postgres.engine.records import Columns
from adapters.postgres.engine.statements import Row
from core.kernel import roles
from core.kernel.roles import MEMBER, Capability, names_with


def to_list(names: Iterable[str]) -> LiteralString:
    """Return names as values in an SQL list, such as `'owner', 'admin'`."""
    return ", ".join(f"'{name}'" for name in names)


def to_array(names: Iterable[str]) -> LiteralString:
    """Return names as an SQL array."""
    return f"array[{to_list(sorted(names))}]"


_ADMINS: Final = to_list(role for role in roles.ROLES if roles.needs_roles_manage(role))
_OF_MEMBERS: Final = to_array(roles.ROLES[MEMBER].rights)
_OF_BLIND_MEMBERS: Final = to_array(roles.rights_of(MEMBER, members_see_end_users=False))
# The built-in roles' rights, for statements that compare them with other roles' rights
_BY_GROUP: Final = (roles.ADMIN, MEMBER)  # the built-in roles that a group can give
_VIEW: Final = f"array['{Capability.ORGANIZATION_VIEW}']"  # a right that every role has
_BUILT_IN: Final = " ".join(f"when '{role.name}' then {to_array(role.rights)}" for role in roles.ROLES.values())


def _has_groups(member: LiteralString, organization: LiteralString) -> LiteralString:
    """Return the condition that groups may give a role to the membership with this alias: it is confirmed."""
    return f"({organization}.maps_groups and {member}.confirmed_at is not null)"


def rights_columns(member: LiteralString, organization: LiteralString) -> Columns:
    """Return the columns with the rights of the membership with this alias, in the organization with the second alias.

    The third column has capabilities, and names of built-in roles that groups give. A function reads these rights, because a subquery costs
    every statement that has it, also in organizations that have no roles of their own and give groups no roles.
    """
    by_groups = _has_groups(member, organization)
    further = f"""
    case when {member}.role_id is not null or {by_groups}
         then further_rights({member}.org_id, {member}.user_id, {member}.role_id, {by_groups}) end"""
    return Columns(f"{member}.role, {organization}.members_see_end_users, {further}", 3, to_rights)


def own_rights_columns(holder: LiteralString, organization: LiteralString) -> Columns:
    """Return the columns with the rights that a membership or a service account with this alias has by its own role."""
    further = f"""
    case when {holder}.role_id is not null then (
        select gr.capabilities || {_VIEW} from organization_roles gr where gr.id = {holder}.role_id) end"""
    return Columns(f"{holder}.role, {organization}.members_see_end_users, {further}", 3, to_rights)


def group_roles(member: LiteralString, organization: LiteralString) -> LiteralString:
    """Return the column with the roles that groups give to the membership with this alias, or null if they give none."""
    return f"""
    case when {_has_groups(member, organization)}
         then nullif(array_remove(roles_by_groups({member}.org_id, {member}.user_id), {member}.role), '{{}}') end"""


def to_rights(row: Row) -> roles.Rights:
    """Return the rights in the columns from `rights_columns`. Without a role there are no rights."""
    role, members_see_end_users, further = row
    sees = members_see_end_users is not False
    rights = roles.rights_of(role, members_see_end_users=sees)
    if not further or role is None:
        return rights
    return rights.union(
        roles.custom_rights(further), *(roles.rights_of(name, members_see_end_users=sees) for name in _BY_GROUP if name in further)
    )


def role_label(holder: LiteralString) -> LiteralString:
    """Return the column with a role's name, if the organization has defined the role, for the row with this alias."""
    return f"case when {holder}.role_id is not null then (select gr.name from organization_roles gr where gr.id = {holder}.role_id) end"


def _sees_end_users(org_id: LiteralString) -> LiteralString:
    return f"(select os.members_see_end_users from organizations os where os.id = {org_id}) is not false"


def rights_array(holder: LiteralString) -> LiteralString:
    """Return the array with the rights that the own role gives to the row with this alias, or null without a role."""
    return f"""
    case when {holder}.role = '{MEMBER}' and not {_sees_end_users(f"{holder}.org_id")} then {_OF_BLIND_MEMBERS}
        else case {holder}.role {_BUILT_IN}
        else (select gr.capabilities || {_VIEW} from organization_roles gr where gr.id = {holder}.role_id) end end"""


def member_rights_array(member: LiteralString) -> LiteralString:
    """Return the array with all rights that the membership with this alias has, or null without a role."""
    return f"""
    ({rights_array(member)} || case when (select o.maps_groups from organizations o where o.id = {member}.org_id) then array(
        select unnest({rights_array("gg")}) from groups_with_roles({member}.org_id, {member}.user_id) gg
        where {member}.confirmed_at is not null) end)"""


def _by_groups(member: LiteralString, org_id: LiteralString, condition: LiteralString) -> LiteralString:
    """Return the condition that a group gives the member a role that meets a condition on `gg`.

    An index on the users serves this condition.
    """
    return f"""
    {member}.user_id = any(array(
        select gi.user_id from groups gg join group_members gi on gi.group_id = gg.id and gi.org_id = gg.org_id
        where gg.org_id = {org_id} and gg.role is not null and gg.mapping_stopped_at is null and {condition}
          and (select gm.confirmed_at from memberships gm where gm.org_id = gi.org_id and gm.user_id = gi.user_id) is not null
          and not (select gu.is_platform_owner from users gu where gu.id = gi.user_id)))"""


def holds(capability: Capability, member: LiteralString, org_id: LiteralString) -> LiteralString:
    """Return the condition that the membership has this right in the organization."""
    hidden = f"and ({member}.role <> '{MEMBER}' or {_sees_end_users(org_id)})" if capability is Capability.END_USERS_VIEW else ""
    return f"""
    ({member}.role = any({to_array(names_with(capability))} || array(
        select gr.slug from organization_roles gr where gr.org_id = {org_id} and gr.capabilities @> array['{capability}'])) {hidden}
     or {_by_groups(member, org_id, f"{rights_array('gg')} @> array['{capability}']")})"""


def admin_conditions(member: LiteralString, org_id: LiteralString) -> tuple[LiteralString, LiteralString, LiteralString]:
    """Return three conditions. The member counts as an admin by a built-in role, by a role that the organization defined, or by a group.

    No condition is null. Every condition is served by an index: a query with limits has to union them, because with `or` it reads all
    members.
    """
    return (
        f"{member}.role in ({_ADMINS})",
        f"""{member}.role_id is not null and {member}.role_id = any(array(
            select gr.id from organization_roles gr where gr.org_id = {org_id} and not gr.capabilities <@ {_OF_MEMBERS}))""",
        _by_groups(member, org_id, f"not {rights_array('gg')} <@ {_OF_MEMBERS}"),
    )


def is_admin(member: LiteralString, org_id: LiteralString) -> LiteralString:
    """Return the condition that the member counts as an admin, as `core.kernel.roles.is_admin`."""
    built_in, own, by_group = admin_conditions(member, org_id)
    return f"({built_in} or {own} or {by_group})"
