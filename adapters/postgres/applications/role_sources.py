"""The SQL of the roles that users have at applications: their own roles, and those of their groups."""

from typing import LiteralString

from adapters.postgres.applications.service_access import is_of_organization


def role_sources(org_id: LiteralString, user_id: LiteralString, service_id: LiteralString | None = None) -> LiteralString:
    """Return a query for the roles of this user at this service, or at all services of the organization.

    The columns are role_id, group_id and assigned_at. A role has one row for each group that gives it, and one without a group
    if the user has it alone.
    """
    assert user_id[:2] not in ("h.", "i.", "j.", "m.", "e."), "a subquery has a table with this alias"
    own: LiteralString = "" if service_id is None else f"and h.service_id = {service_id}"
    of_group: LiteralString = "" if service_id is None else f"and j.service_id = {service_id}"
    # A directory can put members into groups before they confirm the membership. Then a group gives no role yet.
    return f"""
        select h.role_id, null::uuid as group_id, h.assigned_at from service_role_users h
        where h.user_id = {user_id} and h.org_id = {org_id} {own}
        union all
        select j.role_id, j.group_id, j.assigned_at
        from group_members i join service_role_groups j on j.group_id = i.group_id and j.org_id = i.org_id
        where i.org_id = {org_id} and i.user_id = {user_id} {of_group} and {is_of_organization("i.org_id", "i.user_id")}"""
