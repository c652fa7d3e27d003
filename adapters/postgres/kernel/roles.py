"""Roles in SQL: the rights of members and service accounts, and the names of roles as literals.

A row with a role has its name in `role`. If the organization has defined the role, `role_id` is its id.
"""

from collections.abc import Iterable
from typing import Final, LiteralString

from adapters.postgres.engine.records import Columns
from adapters.postgres.engine.statements import Row
from core.kernel.roles import MEMBER, ROLES, Capability, Rights, custom_rights, names_with, needs_roles_manage, rights_of


def to_list(names: Iterable[str]) -> LiteralString:
    """Return names as the values of an SQL list, such as `'owner', 'admin'`."""
    return ", ".join(f"'{name}'" for name in names)


def _array(names: Iterable[str]) -> LiteralString:
    return f"array[{to_list(sorted(names))}]"


_ADMINS: Final = _array(role for role in ROLES if needs_roles_manage(role))
_OF_MEMBERS: Final = _array(ROLES[MEMBER].rights)
# The rights of the built-in roles, for statements that compare them with those of other roles
_BUILT_IN: Final = " ".join(f"when '{role.name}' then {_array(role.rights)}" for role in ROLES.values())


def rights_columns(member: LiteralString, organization: LiteralString) -> Columns:
    """Return the columns of the rights of the membership with this alias, in the organization with the other alias.

    The subquery is not run in organizations without roles of their own.
    """
    further = f"""
    case when {member}.role_id is not null or {organization}.maps_groups then array(
        select unnest(g.capabilities) from organization_roles g where g.id = {member}.role_id) end"""
    return Columns(f"{member}.role, {organization}.members_see_end_users, {further}", 3, to_rights)


def account_rights_columns(account: LiteralString, organization: LiteralString) -> Columns:
    """Return the columns of the rights of the service account with this alias. Groups have no service accounts."""
    further = f"""
    case when {account}.role_id is not null then (
        select g.capabilities from organization_roles g where g.id = {account}.role_id) end"""
    return Columns(f"{account}.role, {organization}.members_see_end_users, {further}", 3, to_rights)


def to_rights(row: Row) -> Rights:
    """Return the rights in the columns of `rights_columns`. Without a role there are none."""
    role, members_see_end_users, further = row
    rights = rights_of(role, members_see_end_users=members_see_end_users is not False)
    return rights if further is None or role is None else rights | custom_rights(further)


def role_label(holder: LiteralString) -> LiteralString:
    """Return the column with the name of a role that the organization has defined, of the row with this alias."""
    return f"case when {holder}.role_id is not null then (select g.name from organization_roles g where g.id = {holder}.role_id) end"


def rights_array(holder: LiteralString) -> LiteralString:
    """Return the names of the rights of the membership or service account with this alias as an array, or null without a role."""
    return f"""
    case {holder}.role {_BUILT_IN}
        else (
            select g.capabilities || array['{Capability.ORGANIZATION_VIEW}'] from organization_roles g where g.id = {holder}.role_id) end"""


def holds(capability: Capability, member: LiteralString, org_id: LiteralString) -> LiteralString:
    """Return the condition that the membership of the organization holds this right. An index on the names of roles serves it."""
    return f"""
    {member}.role = any({_array(names_with(capability))} || array(
        select g.slug from organization_roles g where g.org_id = {org_id} and g.capabilities @> array['{capability}']))"""


def is_admin(member: LiteralString, org_id: LiteralString) -> LiteralString:
    """Return the condition that the member counts as an admin, as `core.kernel.roles.is_admin`. The same index serves it."""
    return f"""
    {member}.role = any({_ADMINS} || array(
        select g.slug from organization_roles g where g.org_id = {org_id} and not g.capabilities <@ {_OF_MEMBERS}))"""
