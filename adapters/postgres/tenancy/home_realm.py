"""Home realm routes."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from adapters.postgres.kernel.verified_domains import verified_owner
from core.kernel.connections import TEST_PROVIDER, ConnectionRef
from core.kernel.values import Domain, Slug
from core.tenancy.model.domains import HomeRealmMatch, HomeRealmRoute

REF: Final = "c.id, c.org_id, c.slug, c.name, c.state = 'active'"


def to_ref(row: Row) -> ConnectionRef | None:
    return None if row[0] is None else ConnectionRef(row[0], row[1], Slug(row[2]), row[3], row[4])


class HomeRealm(Repository):
    """Implements `ports.storage.tenancy.settings.HomeRealm`."""

    async def routes(self, org_id: UUID) -> list[HomeRealmRoute]:
        sql = f"""
            select r.domain, r.provider, coalesce({verified_owner("r.domain")} = r.org_id, false), {REF}
            from home_realm_routes r left join connections c on c.org_id = r.org_id and c.id = r.connection_id
            where r.org_id = %(org_id)s order by r.domain collate "C\""""
        return await self._all(lambda row: HomeRealmRoute(Domain(row[0]), row[1], to_ref(row[3:]), row[2]), sql, org_id=org_id)

    async def connections(self, org_id: UUID) -> list[ConnectionRef]:
        sql = f"""
            select {REF} from connections c where c.org_id = %(org_id)s and c.preset is distinct from '{TEST_PROVIDER}'
            order by c.slug collate "C\""""
        return [ref for ref in await self._all(to_ref, sql, org_id=org_id) if ref is not None]

    async def match(self, domain: Domain) -> HomeRealmMatch | None:
        # The organization that verified the closest domain decides, even if it has no route or is
        # not active.
        sql = f"""
            select o.slug, r.provider, {REF} from organizations o join home_realm_routes r on r.org_id = o.id
            left join connections c on c.org_id = r.org_id and c.id = r.connection_id
            where o.id = {verified_owner("%(domain)s::text")} and o.status = 'active' and r.domain = %(domain)s
              and (r.connection_id is null or c.state = 'active')"""
        return await self._one(lambda row: HomeRealmMatch(row[0], row[1], to_ref(row[2:])), sql, domain=domain)

    async def leads_to_connections(self) -> bool:
        sql = f"""
            select exists (
                select from home_realm_routes r join organizations o on o.id = r.org_id and o.status = 'active'
                join connections c on c.org_id = r.org_id and c.id = r.connection_id and c.state = 'active'
                where r.connection_id is not null and {verified_owner("r.domain")} = r.org_id)"""
        return bool(await self._one(lambda row: row[0], sql))

    async def replace(self, org_id: UUID, routes: Mapping[Domain, str]) -> None:
        sql = """
            with removed as (delete from home_realm_routes where org_id = %(org_id)s and domain <> all(%(domains)s::text[]))
            insert into home_realm_routes (org_id, domain, provider, connection_id)
            select %(org_id)s, n.domain, case when c.id is null then n.slug end, c.id
            from unnest(%(domains)s::text[], %(slugs)s::text[]) as n (domain, slug)
            left join connections c on c.org_id = %(org_id)s and c.slug = n.slug
            on conflict (org_id, domain) do update set provider = excluded.provider, connection_id = excluded.connection_id"""
        await self._run(sql, org_id=org_id, domains=[str(domain) for domain in routes], slugs=list(routes.values()))
