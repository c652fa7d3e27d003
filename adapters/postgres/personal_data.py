"""Storage for exports and for the logs about an account: a statement per list, and a method that reads all lists."""

from collections.abc import Callable, Collection, Mapping
from typing import Final, LiteralString, TypeVar
from uuid import UUID

from adapters.postgres.applications.role_assignments import role_sources
from adapters.postgres.engine import statements
from adapters.postgres.federation.oauth.consents import API_ACCESS
from adapters.postgres.kernel.roles import group_roles
from adapters.postgres.kernel.shared_sql import JOIN_PLATFORM_OWNER
from core.eventing.model import audit
from core.kernel import values
from core.privacy.model import personal_data
from core.privacy.model.personal_data import NO_ADDRESS, NO_AGENT

# The items in every list. A column is the response field with its name, if there is such a field. `at` and `id` order
# the list, and `organization_id` tells to which organization an item belongs.
SELECT: Final[Mapping[personal_data.ExportedList, LiteralString]] = {
    personal_data.ExportedList.MEMBERSHIPS: f"""
        select m.created_at as at, m.id, o.id as organization_id, o.slug as organization_slug, m.role,
               m.role || coalesce({group_roles("m", "o")}, '{{}}') as roles, m.created_at as joined_at
        from memberships m join organizations o on o.id = m.org_id where m.user_id = %(user_id)s""",
    personal_data.ExportedList.LOGIN_EVENTS: f"""
        select l.created_at as at, l.id, case when l.seen_by = 'all' then l.org_id end as organization_id, l.created_at as timestamp,
               l.provider, l.success, l.reason, l.blocked_seconds, l.attempts, l.risk_score, l.risk_factors,
               case when a.id is null then l.request_id end as request_id,
               case when w.id is not null then null when a.id is null then l.address else '{NO_ADDRESS}' end as ip_address,
               case when w.id is not null then null when a.id is null then l.agent else '{NO_AGENT}' end as user_agent,
               case when a.id is null and w.id is null then l.country end as geo_country,
               case when a.id is null and w.id is null then l.city end as geo_city
        from login_events l left join users a on a.id = l.user_id and a.anonymized_at is not null
        {JOIN_PLATFORM_OWNER} and %(within)s::uuid[] is not null where l.user_id = %(user_id)s""",
    personal_data.ExportedList.OAUTH_IDENTITIES: """
        select i.linked_at as at, i.id, v.org_id as organization_id, i.provider, i.provider_user_id, i.linked_at
        from identities i left join services v on v.id = i.service_id where i.user_id = %(user_id)s""",
    personal_data.ExportedList.MFA_EVENTS: """
        select created_at as at, id, event_type, created_at as timestamp, success from mfa_events where user_id = %(user_id)s""",
    personal_data.ExportedList.PASSKEYS: """
        select created_at as at, id, name, aaguid, backup_eligible, created_at, last_used_at from passkeys where user_id = %(user_id)s""",
    # The column `old_email` is the address after an undo. In a chain of changes, a change's earlier address comes from the change before
    # it.
    personal_data.ExportedList.EMAIL_CHANGES: """
        select c.requested_at as at, c.id, coalesce(before.new_email, c.old_email) as old_email, c.new_email, c.requested_at, c.proved_at,
               c.undone_at
        from email_changes c left join lateral (
            select b.new_email from email_changes b
            where b.user_id = c.user_id and b.position < c.position and b.proved_at is not null and b.undo_until > c.requested_at
              and (b.undone_at is null or b.undone_at > c.requested_at)
            order by b.position desc limit 1) before on true
        where c.user_id = %(user_id)s""",
    personal_data.ExportedList.SECURITY_NOTICES: """
        select created_at as at, id, kind, detail, address, created_at, undone_at from security_notices where user_id = %(user_id)s""",
    personal_data.ExportedList.CONSENTS: f"""
        select c.granted_at as at, c.service_id as id, o.id as organization_id, o.slug as organization_slug, v.id as service_id,
               v.slug as service_slug, v.name as service_name, v.client_uri, c.scope as scopes, c.granted_at,
               array(select jsonb_build_object('name', a -> 1, 'identifier', a -> 2, 'scopes', jsonb_path_query_array(a, '$[3][*][0]'))
                     from jsonb_array_elements({API_ACCESS}) as access (a)) as api_resources
        from consents c join services v on v.org_id = c.org_id and v.id = c.service_id join organizations o on o.id = c.org_id
        where c.user_id = %(user_id)s""",
    personal_data.ExportedList.APPLICATION_BLOCKS: """
        select b.since as at, b.org_id as id, o.id as organization_id, o.slug as organization_slug, b.email, b.since
        from end_user_blocks b join organizations o on o.id = b.org_id where b.user_id = %(user_id)s""",
    personal_data.ExportedList.FORMER_MEMBERSHIPS: """
        select f.left_at as at, f.org_id as id, o.id as organization_id, o.slug as organization_slug, f.email, f.name, f.left_at
        from former_members f join organizations o on o.id = f.org_id where f.user_id = %(user_id)s""",
    # A role has an item per group that gives it. The item ids differ, because a page may end between them.
    personal_data.ExportedList.APPLICATION_ROLES: f"""
        select s.assigned_at as at, case when g.id is null then r.id else md5(r.id::text || g.id)::uuid end as id,
               o.id as organization_id, o.slug as organization_slug, v.id as service_id, v.slug as service_slug,
               r.slug as role, r.name, r.permissions, s.assigned_at, g.name as group
        from (select org_id from service_role_users where user_id = %(user_id)s
              union select org_id from group_members where user_id = %(user_id)s) t
        cross join lateral ({role_sources("t.org_id", "%(user_id)s")}) s
        join service_roles r on r.id = s.role_id and r.org_id = t.org_id join services v on v.org_id = r.org_id and v.id = r.service_id
        join organizations o on o.id = v.org_id left join groups g on g.id = s.group_id""",
    personal_data.ExportedList.GROUPS: """
        select m.added_at as at, m.group_id as id, o.id as organization_id, o.slug as organization_slug, g.id as group_id, g.name,
               coalesce(y.attributes, '{}') as attributes, m.added_at
        from group_members m join groups g on g.id = m.group_id join organizations o on o.id = m.org_id
        left join group_attribute_values y on y.group_id = g.id
        where m.user_id = %(user_id)s""",
    personal_data.ExportedList.ATTRIBUTES: """
        select a.changed_at as at, a.org_id as id, o.id as organization_id, o.slug as organization_slug, a.attributes as values,
               a.changed_at
        from attribute_values a join organizations o on o.id = a.org_id where a.user_id = %(user_id)s""",
    personal_data.ExportedList.SERVICE_ACCOUNTS: """
        select a.created_at as at, a.id, a.name, o.id as organization_id, o.slug as organization_slug, a.created_at
        from service_accounts a left join organizations o on o.id = a.org_id
        left join memberships m on m.org_id = a.org_id and m.user_id = a.owner_id
        where a.owner_id = %(user_id)s
          and case when a.org_id is null then exists (select from users u where u.id = a.owner_id and u.is_platform_owner)
              else m.id is not null end""",
    personal_data.ExportedList.PERSONAL_TOKENS: """
        select t.created_at as at, t.session_id as id, t.name, t.prefix, t.scopes, o.id as organization_id, o.slug as organization_slug,
               t.created_at, t.expires_at, t.last_used_at, s.ended_at
        from sessions s join personal_tokens t on t.session_id = s.id left join organizations o on o.id = t.org_id
        where s.user_id = %(user_id)s""",
}


class PersonalData(statements.Repository):
    """Implements `ports.storage.privacy.PersonalDataRead`."""

    async def count_logins(self, user_id: UUID, within: Collection[UUID] | None) -> int:
        in_orgs = "" if within is None else "and org_id = any(%(within)s) and seen_by = 'all'"
        sql = f"select count(*) from login_events where user_id = %(user_id)s {in_orgs}"
        return await self._count(sql, user_id=user_id, within=None if within is None else list(within))

    async def items(
        self,
        list_: personal_data.ExportedList,
        user_id: UUID,
        within: Collection[UUID] | None,
        last: personal_data.ExportedItem | None,
        limit: int,
    ) -> list[personal_data.ExportedItem]:
        order, further = ("desc", "<") if list_ in personal_data.NEWEST_FIRST else ("asc", ">")
        in_orgs = "" if within is None else "and organization_id = any(%(within)s)"
        later = "" if last is None else f"and (at, id) {further} (%(at)s, %(id)s)"
        return await self._all(
            lambda row: personal_data.ExportedItem(*row),
            f"""
            select at, id, to_json(item) from ({SELECT[list_]}) item
            where true {in_orgs} {later} order by at {order}, id {order} limit %(limit)s""",
            user_id=user_id,
            within=None if within is None else list(within),
            at=last and last.at,
            id=last and last.id,
            limit=limit,
        )


T = TypeVar("T")


def to_mfa_log_entry(row: statements.Row) -> personal_data.MfaLogEntry:
    id_, event_type, success, at, address, agent, reason = row[:7]
    actor, impersonator = _to_actor(*row[7:10]), _to_actor(*row[10:13])
    return personal_data.MfaLogEntry(id_, event_type, success, at, address, agent, reason, actor, impersonator)


def to_privacy_log_entry(row: statements.Row) -> personal_data.PrivacyLogEntry:
    id_, event_type, at, address, agent = row[:5]
    return personal_data.PrivacyLogEntry(id_, event_type, at, address, agent, _to_actor(*row[5:8]) or audit.DELETED_ACCOUNT)


def _to_actor(user_id: UUID | None, email: str | None, is_platform_owner: bool | None) -> audit.AuditActor | None:
    if user_id is None:
        return None
    return audit.DELETED_ACCOUNT if email is None else audit.AuditActor(str(user_id), email, bool(is_platform_owner))


class AccountLogs(statements.Repository):
    """Implements the port AccountLogsRead."""

    async def mfa(self, user_id: UUID, page: values.Page) -> values.PageResult[personal_data.MfaLogEntry]:
        entries = """
            select l.id, l.event_type, l.success, l.created_at, l.address, l.agent, l.reason,
                   l.actor_id, a.email, a.is_platform_owner, l.impersonator_id, i.email, i.is_platform_owner
            from page l left join users a on a.id = l.actor_id left join users i on i.id = l.impersonator_id"""
        return await self._page_of("mfa_events", entries, to_mfa_log_entry, user_id, page)

    async def privacy(self, user_id: UUID, page: values.Page) -> values.PageResult[personal_data.PrivacyLogEntry]:
        entries = """
            select l.id, l.event_type, l.created_at, l.address, l.agent, l.actor_id, a.email, a.is_platform_owner
            from page l left join users a on a.id = l.actor_id"""
        return await self._page_of("privacy_log", entries, to_privacy_log_entry, user_id, page)

    async def _page_of(
        self, table: LiteralString, entries: LiteralString, to_entry: Callable[[statements.Row], T], user_id: UUID, page: values.Page
    ) -> values.PageResult[T]:
        count = f"select count(*) from (select from {table} where user_id = %(user_id)s limit %(most)s) counted"
        total = await self._count(count, user_id=user_id, most=personal_data.MAX_LISTED)
        if page.offset >= total:
            return values.PageResult([], total)
        sql = f"""
            with page as (
                select * from {table} where user_id = %(user_id)s order by created_at desc, id desc limit %(limit)s offset %(offset)s)
            {entries} order by l.created_at desc, l.id desc"""
        return values.PageResult(await self._all(to_entry, sql, user_id=user_id, limit=page.limit, offset=page.offset), total)
