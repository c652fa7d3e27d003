"""The organizations' domains, and their home realm routes."""

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Record
from adapters.postgres.kernel.connections import verified_owner
from core.kernel import values
from core.kernel.connections import TEST_PROVIDER, ConnectionRef
from core.tenancy.model import domains

CLAIM: Final = Record(domains.DomainClaim, "d", domain=values.Domain)
VERIFIED_OWNER: Final = verified_owner("%(host)s")
# Keep the pattern: an index finds the addresses at the domain and its subdomains by this pattern. A
# subdomain may belong to another organization.
AT_DOMAIN: Final = f"""
    reverse('.' || split_part(email, '@', 2)) like reverse('.' || %(domain)s) || '%%'
    and {verified_owner("split_part(email, '@', 2)")} = %(org_id)s"""
FOREIGN_ACCOUNTS: Final = f"""
    select id, email, created_at, origin_org_id as by_org from users
    where origin_org_id is not null and origin_org_id <> %(org_id)s and {AT_DOMAIN}"""
FOREIGN_INVITATIONS: Final = f"""
    select id, email, created_at, org_id as by_org, expires_at from invitations
    where status = 'pending' and expires_at > %(now)s and org_id <> %(org_id)s and {AT_DOMAIN}"""


def _page(matching: LiteralString) -> LiteralString:
    return f"""
        with matching as materialized ({matching}),
        page as (select * from matching order by created_at desc, id limit %(limit)s offset %(offset)s)
        select counted.total, p.*, o.slug, o.name
        from (select count(*) as total from matching) counted
        left join (page p left join organizations o on o.id = p.by_org) on true
        order by p.created_at desc, p.id"""


def _to_id(row: statements.Row) -> UUID:
    return UUID(str(row[0]))


class Domains(statements.Repository):
    """Implements `ports.storage.tenancy.settings.Domains`."""

    constraints: ClassVar = {"domains_one_organization": domains.DomainTaken}

    async def of_organization(self, org_id: UUID) -> list[domains.DomainClaim]:
        sql = f'select {CLAIM.columns} from domains d where d.org_id = %(org_id)s order by d.domain collate "C"'
        return await self._all(CLAIM.read, sql, org_id=org_id)

    async def find(self, org_id: UUID, domain: values.Domain) -> domains.DomainClaim | None:
        sql = f"select {CLAIM.columns} from domains d where d.org_id = %(org_id)s and d.domain = %(domain)s"
        return await self._one(CLAIM.read, sql, org_id=org_id, domain=domain)

    async def verified_owner_of_host(self, host: str) -> UUID | None:
        return await self._one(_to_id, VERIFIED_OWNER, host=host)

    def verified_owner(self, email: values.Email) -> statements.Answer[UUID | None]:
        return self._one(_to_id, VERIFIED_OWNER, host=email.domain)

    async def foreign_accounts(self, org_id: UUID, domain: values.Domain, page: values.Page) -> values.PageResult[domains.ForeignAccount]:
        return await self._page(
            lambda row: domains.ForeignAccount(row[0], values.Email(row[1]), row[2], row[4], row[5]),
            _page(FOREIGN_ACCOUNTS),
            org_id=org_id,
            domain=domain,
            limit=page.limit,
            offset=page.offset,
        )

    async def foreign_invitations(
        self, org_id: UUID, domain: values.Domain, page: values.Page, now: datetime
    ) -> values.PageResult[domains.ForeignInvitation]:
        return await self._page(
            lambda row: domains.ForeignInvitation(values.Email(row[1]), row[2], row[4], row[5], row[6]),
            _page(FOREIGN_INVITATIONS),
            org_id=org_id,
            domain=domain,
            limit=page.limit,
            offset=page.offset,
            now=now,
        )

    async def add(self, claim: domains.DomainClaim) -> None:
        await self._run(CLAIM.insert("domains"), **CLAIM.values(claim))

    async def mark_verified(self, org_id: UUID, domain: values.Domain, now: datetime) -> domains.DomainClaim:
        sql = f"""
            update domains d set verified_at = %(now)s where d.org_id = %(org_id)s and d.domain = %(domain)s
            returning {CLAIM.columns}"""
        verified = await self._one(CLAIM.read, sql, org_id=org_id, domain=domain, now=now)
        assert verified is not None, "the caller has locked the organization and read the claim"
        return verified

    async def remove(self, org_id: UUID, domain: values.Domain) -> None:
        await self._run("delete from domains where org_id = %(org_id)s and domain = %(domain)s", org_id=org_id, domain=domain)


REF: Final = "c.id, c.org_id, c.slug, c.name, c.state = 'active'"


def to_ref(row: statements.Row) -> ConnectionRef | None:
    return None if row[0] is None else ConnectionRef(row[0], row[1], values.Slug(row[2]), row[3], row[4])


class HomeRealm(statements.Repository):
    """Implements `ports.storage.tenancy.settings.HomeRealm`."""

    async def routes(self, org_id: UUID) -> list[domains.HomeRealmRoute]:
        sql = f"""
            select r.domain, r.provider, coalesce({verified_owner("r.domain")} = r.org_id, false), {REF}
            from home_realm_routes r left join connections c on c.org_id = r.org_id and c.id = r.connection_id
            where r.org_id = %(org_id)s order by r.domain collate "C\""""
        return await self._all(
            lambda row: domains.HomeRealmRoute(values.Domain(row[0]), row[1], to_ref(row[3:]), row[2]), sql, org_id=org_id
        )

    async def connections(self, org_id: UUID) -> list[ConnectionRef]:
        sql = f"""
            select {REF} from connections c where c.org_id = %(org_id)s and c.preset is distinct from '{TEST_PROVIDER}'
            order by c.slug collate "C\""""
        return [ref for ref in await self._all(to_ref, sql, org_id=org_id) if ref is not None]

    async def match(self, domain: values.Domain) -> domains.HomeRealmMatch | None:
        # The organization that verified the closest domain decides, even if it has no route or is
        # not active.
        sql = f"""
            select o.slug, r.provider, {REF} from organizations o join home_realm_routes r on r.org_id = o.id
            left join connections c on c.org_id = r.org_id and c.id = r.connection_id
            where o.id = {verified_owner("%(domain)s::text")} and o.status = 'active' and r.domain = %(domain)s
              and (r.connection_id is null or c.state = 'active')"""
        return await self._one(lambda row: domains.HomeRealmMatch(row[0], row[1], to_ref(row[2:])), sql, domain=domain)

    async def leads_to_connections(self) -> bool:
        sql = f"""
            select exists (
                select from home_realm_routes r join organizations o on o.id = r.org_id and o.status = 'active'
                join connections c on c.org_id = r.org_id and c.id = r.connection_id and c.state = 'active'
                where r.connection_id is not null and {verified_owner("r.domain")} = r.org_id)"""
        return bool(await self._one(lambda row: row[0], sql))

    async def replace(self, org_id: UUID, routes: Mapping[values.Domain, str]) -> None:
        sql = """
            with removed as (delete from home_realm_routes where org_id = %(org_id)s and domain <> all(%(domains)s::text[]))
            insert into home_realm_routes (org_id, domain, provider, connection_id)
            select %(org_id)s, n.domain, case when c.id is null then n.slug end, c.id
            from unnest(%(domains)s::text[], %(slugs)s::text[]) as n (domain, slug)
            left join connections c on c.org_id = %(org_id)s and c.slug = n.slug
            on conflict (org_id, domain) do update set provider = excluded.provider, connection_id = excluded.connection_id"""
        await self._run(sql, org_id=org_id, domains=[str(domain) for domain in routes], slugs=list(routes.values()))
