"""The SQL for the roles that users have at applications: their own roles, and their groups' roles."""

from typing import LiteralString

from adapters.postgres.applications.service_access import is_of_organization


def role_sources(org_id: LiteralString, user_id: LiteralString, service_id: LiteralString | None = None) -> LiteralString:
    """Return a query for this user's roles at this service, or at all services in the organization.

    The columns are role_id, group_id and assigned_at. A role has a row per group that gives it, and a row without a group if the user has
    it alone. A database function has the query for a single service, because `application_facts` needs it, too.
    """
    if service_id is not None:
        return f"select * from service_roles_of({org_id}, {user_id}, {service_id})"
    assert user_id[:2] not in ("h.", "i.", "j.", "m.", "e."), "a subquery has a table with this alias"
    return f"""
        select h.role_id, null::uuid as group_id, h.assigned_at from service_role_users h
        where h.user_id = {user_id} and h.org_id = {org_id}
        union all
        select j.role_id, j.group_id, j.assigned_at
        from group_members i join service_role_groups j on j.group_id = i.group_id and j.org_id = i.org_id
        where i.org_id = {org_id} and i.user_id = {user_id} and {is_of_organization("i.org_id", "i.user_id")}"""
