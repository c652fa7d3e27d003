"""Organizations and their tiers."""

from collections.abc import Collection
from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Record
from adapters.postgres.maintenance.housekeeping import OF_ORGANIZATIONS
from adapters.postgres.tenancy.invitations import HAS_TOKEN
from adapters.postgres.tenancy.members import MEMBERSHIP
from core.accounts.model import accounts
from core.kernel import values
from core.kernel.callers import OrganizationStatus
from core.kernel.display import PRODUCT
from core.tenancy.model import organizations
from ports.signals import Signal

TIER: Final = Record(organizations.Tier, "t")
PUT_TIER: Final = f"{TIER.insert('tiers')} on conflict (name) do update set {TIER.overwrites(without=('id', 'name'))}"


class Tiers(statements.Repository):
    """Implements `ports.storage.tenancy.organizations.Tiers`."""

    async def all(self) -> list[organizations.Tier]:
        return await self._all(TIER.read, f"select {TIER.columns} from tiers t order by price_cents, default_max_users, name")

    async def by_id(self, tier_id: UUID) -> organizations.Tier | None:
        return await self._one(TIER.read, f"select {TIER.columns} from tiers t where id = %(tier_id)s", tier_id=tier_id)

    async def by_name(self, name: str) -> organizations.Tier | None:
        return await self._one(TIER.read, f"select {TIER.columns} from tiers t where name = %(name)s", name=name)

    async def put(self, tier: organizations.Tier) -> None:
        await self._run(PUT_TIER, **TIER.values(tier))


ORGANIZATION: Final = Record(organizations.Organization, "o", slug=values.Slug, status=OrganizationStatus, tier=TIER.as_field(if_any="id"))
OF_TIER: Final = "left join tiers t on t.id = o.tier_id"
SELECT: Final = f"select {ORGANIZATION.columns} from organizations o {OF_TIER} "
# Keep the lock in a materialized CTE before the join. A statement that waited for a lock reads only
# the locked row again. A plain join would combine the new organization row with its old tier.
LOCKED: Final = """
    with o as materialized (
        select id, slug, name, status, tier_id, max_services, max_users, device_trust_days, member_count, created_at, updated_at,
               approved_at, rejected_reason, suspended_reason, members_changed_at, personal_tokens,
               members_see_end_users
        from organizations where id = """
LOCK: Final = f"""
        for no key update)
    select {ORGANIZATION.columns} from o {OF_TIER}"""
# Every row in the page starts with the count of matching organizations. The outer join returns a row even
# if the page is empty. Keep the lateral join for the owners: with a plain join the planner reads
# all memberships to find a page's owners.
OWNER: Final = """
    select a.id, a.email, a.is_platform_owner, a.created_at
    from memberships m join users a on a.id = m.user_id
    where m.org_id = o.id and m.role = 'owner' limit 1"""
WITH_OWNER: Final = f"""
    select {ORGANIZATION.columns}, u.id, u.email, u.is_platform_owner, u.created_at
    from organizations o {OF_TIER} left join lateral ({OWNER}) u on true where o.id = %(org_id)s"""
PAGE_WITH_OWNERS: Final = f"""
    with matching as not materialized (
        select * from organizations
        where (%(status)s::text is null or status = %(status)s) and (%(tier_id)s::uuid is null or tier_id = %(tier_id)s)
          and (%(search)s::text is null or strpos(slug, %(search)s) > 0 or strpos(lower(name), %(search)s) > 0)),
    page as (select * from matching order by created_at desc, id desc limit %(limit)s offset %(offset)s)
    select counted.total, {ORGANIZATION.columns}, u.id, u.email, u.is_platform_owner, u.created_at
    from (select count(*) as total from matching) counted
    left join (page o {OF_TIER}
               left join lateral ({OWNER}) u on true) on true
    order by o.created_at desc, o.id desc"""


# The names that an organization's name or slug contains: the product's name, and other
# organizations' names. Every part of the canonical texts is looked up, so the work does not grow
# with the number of organizations.
RESEMBLED: Final = """
    select p.id, array(
        select found.name from (
            select 0 as rank, %(product)s::text as name
            where strpos(p.canonical_name, canonical_name(%(product)s)) > 0 or strpos(p.canonical_slug, canonical_name(%(product)s)) > 0
            union
            select 1, o.name from organizations o
            where o.id <> p.id and o.status <> 'rejected' and (o.canonical_name = any(parts.texts) or o.canonical_slug = any(parts.texts))
        ) as found order by found.rank, found.name limit 5)
    from organizations p cross join lateral (
        select array_agg(distinct substr(whole, start, length)) || array[nullif(p.canonical_name, ''), p.canonical_slug] as texts
        from unnest(array[p.canonical_name, p.canonical_slug]) as whole,
             generate_series(1, char_length(whole) - 3) as start,
             generate_series(4, char_length(whole) - start + 1) as length) as parts
    where p.id = any(%(org_ids)s)"""


def to_listed_organization(row: statements.Row) -> organizations.ListedOrganization:
    owner = row[ORGANIZATION.width :]
    return organizations.ListedOrganization(
        ORGANIZATION.read(row), accounts.DELETED_ACCOUNT if owner[0] is None else accounts.AccountSummary(str(owner[0]), *owner[1:])
    )


class Organizations(statements.Repository):
    """Implements `ports.storage.tenancy.organizations.Organizations`."""

    constraints: ClassVar = {"organizations_slug_key": organizations.SlugTaken}

    async def by_id(self, org_id: UUID) -> organizations.Organization | None:
        return await self._one(ORGANIZATION.read, SELECT + "where o.id = %(org_id)s", org_id=org_id)

    async def status_by_slug(self, slug: str) -> OrganizationStatus | None:
        return await self._one(lambda row: OrganizationStatus(row[0]), "select status from organizations where slug = %(slug)s", slug=slug)

    async def id_by_slug(self, slug: str) -> UUID | None:
        return await self._one(lambda row: row[0], "select id from organizations where slug = %(slug)s", slug=slug)

    async def by_member(self, user_id: UUID) -> list[tuple[organizations.Organization, organizations.Membership]]:
        sql = f"""
            select {ORGANIZATION.columns}, {MEMBERSHIP.columns}
            from memberships m join organizations o on o.id = m.org_id {OF_TIER}
            where m.user_id = %(user_id)s order by o.slug"""
        return await self._all(lambda row: (ORGANIZATION.read(row), MEMBERSHIP.read(row[ORGANIZATION.width :])), sql, user_id=user_id)

    async def owner_address(self, org_id: UUID) -> values.Email | None:
        sql = """
            select u.email from memberships m join users u on u.id = m.user_id
            where m.org_id = %(org_id)s and m.role = 'owner' and u.deactivated_at is null and u.anonymized_at is null"""
        return await self._one(lambda row: values.Email(row[0]), sql, org_id=org_id)

    async def with_owner(self, org_id: UUID) -> organizations.ListedOrganization | None:
        return await self._one(to_listed_organization, WITH_OWNER, org_id=org_id)

    async def counts(self) -> dict[OrganizationStatus, int]:
        sql = "select status, count(*) from organizations group by status"
        numbers = dict(await self._all(lambda row: (OrganizationStatus(row[0]), int(row[1])), sql))
        return {status: numbers.get(status, 0) for status in OrganizationStatus}

    async def page_with_owners(
        self, status: OrganizationStatus | None, tier_id: UUID | None, limit: int, offset: int, search: str | None = None
    ) -> values.PageResult[organizations.ListedOrganization]:
        return await self._page(
            to_listed_organization, PAGE_WITH_OWNERS, status=status, tier_id=tier_id, search=search, limit=limit, offset=offset
        )

    # "for no key update" makes concurrent writers to the organization wait, but still allows
    # inserts with rows that reference it.
    def lock(self, org_id: UUID) -> statements.Answer[organizations.Organization | None]:
        return self._one(ORGANIZATION.read, LOCKED + "%(org_id)s" + LOCK, org_id=org_id)

    async def lock_by_invitation_token(self, token_hash: bytes) -> organizations.Organization | None:
        return await self._one(
            ORGANIZATION.read, LOCKED + f"(select i.org_id from invitations i where {HAS_TOKEN})" + LOCK, token_hash=token_hash
        )

    async def resembled(self, org_ids: Collection[UUID]) -> dict[UUID, tuple[str, ...]]:
        found = await self._all(lambda row: (row[0], tuple(row[1])), RESEMBLED, org_ids=list(org_ids), product=PRODUCT)
        return dict(found)

    async def count_waiting(self, user_id: UUID) -> int:
        sql = """
            select count(*) from memberships m join organizations o on o.id = m.org_id
            where m.user_id = %(user_id)s and m.role = 'owner' and o.status = 'pending'"""
        return await self._count(sql, user_id=user_id)

    async def add(self, organization: organizations.Organization) -> None:
        sql = """
            insert into organizations (id, slug, name, status, tier_id, max_services, max_users, device_trust_days, personal_tokens,
                                       members_see_end_users, created_at, updated_at, approved_at, rejected_reason, suspended_reason)
            values (%(id)s, %(slug)s, %(name)s, %(status)s, %(tier_id)s, %(max_services)s, %(max_users)s, %(device_trust_days)s,
                    %(personal_tokens)s, %(members_see_end_users)s,
                    %(created_at)s, %(updated_at)s, %(approved_at)s, %(rejected_reason)s, %(suspended_reason)s)"""
        await self._run(sql, **_values(organization))
        self._signals.send(Signal.FIGURES_CHANGED)

    async def save(self, organization: organizations.Organization) -> None:
        # When an organization becomes active, its pending deliveries may be due. The caller has
        # locked the row, so `before` is its current state.
        sql = """
            with saved as (
                update organizations o set
                    name = %(name)s, status = %(status)s, tier_id = %(tier_id)s, max_services = %(max_services)s,
                    max_users = %(max_users)s, device_trust_days = %(device_trust_days)s, personal_tokens = %(personal_tokens)s,
                    members_see_end_users = %(members_see_end_users)s, updated_at = %(updated_at)s,
                    approved_at = %(approved_at)s, rejected_reason = %(rejected_reason)s, suspended_reason = %(suspended_reason)s
                from organizations before
                where o.id = %(id)s and before.id = %(id)s
                returning o.status = 'active' and before.status <> 'active' as became_active)
            select pg_notify('webhooks', ''), pg_notify('siem', '') from saved where became_active"""
        await self._run(sql, **_values(organization))
        if organization.status is OrganizationStatus.ACTIVE:
            self._signals.send(Signal.DELIVERIES_DUE)
            self._signals.send(Signal.SIEM_ENTRIES_DUE)

    async def delete(self, org_id: UUID, now: datetime) -> None:
        sql = """
            with deleted as (delete from organizations where id = %(org_id)s returning id),
            sessions_of_tokens as (
                select s.id from personal_tokens t join sessions s on s.id = t.session_id
                where t.org_id = %(org_id)s and s.ended_at is null for update of s skip locked),
            tokens as (update sessions s set ended_at = %(now)s from sessions_of_tokens t where s.id = t.id),
            webhooks_too as (insert into deleted_webhooks (id, deleted_at) select id, %(now)s from webhooks where org_id = %(org_id)s)
            insert into deleted_organizations (id, deleted_at) select id, %(now)s from deleted"""
        await self._run(sql, org_id=org_id, now=now)
        self._signals.send(Signal.FIGURES_CHANGED)

    async def purge(self, org_id: UUID, limit: int) -> None:
        await self._run(f"{OF_ORGANIZATIONS.delete_sql('select %(org_id)s::uuid as id')} select 1 from records", org_id=org_id, limit=limit)


def _values(organization: organizations.Organization) -> dict[str, object]:
    return ORGANIZATION.values(organization) | {"tier_id": organization.tier.id if organization.tier else None}
