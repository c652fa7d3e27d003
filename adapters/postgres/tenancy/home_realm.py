"""Home realm routes."""

from collections.abc import Mapping
from uuid import UUID

from adapters.postgres.engine.statements import Repository, Row
from adapters.postgres.kernel.verified_domains import verified_owner
from core.kernel.connections import ConnectionSlug
from core.kernel.values import Domain
from core.tenancy.model.domains import HomeRealmMatch, HomeRealmRoute


def to_route(row: Row) -> HomeRealmRoute:
    return HomeRealmRoute(domain=Domain(row[0]), provider=row[1], verified=row[2])


class HomeRealm(Repository):
    """Implements `ports.storage.tenancy.settings.HomeRealm`."""

    async def routes(self, org_id: UUID) -> list[HomeRealmRoute]:
        sql = f"""
            select r.domain, r.provider, coalesce({verified_owner("r.domain")} = r.org_id, false)
            from home_realm_routes r where r.org_id = %(org_id)s order by r.domain collate "C\""""
        return await self._all(to_route, sql, org_id=org_id)

    async def match(self, domain: Domain) -> HomeRealmMatch | None:
        # The organization that verified the closest domain decides, even if it has no route or is
        # not active.
        sql = f"""
            select o.slug, r.provider from organizations o join home_realm_routes r on r.org_id = o.id
            where o.id = {verified_owner("%(domain)s::text")} and o.status = 'active' and r.domain = %(domain)s"""
        return await self._one(lambda row: HomeRealmMatch(row[0], row[1]), sql, domain=domain)

    async def replace(self, org_id: UUID, routes: Mapping[Domain, ConnectionSlug]) -> None:
        sql = """
            with removed as (delete from home_realm_routes where org_id = %(org_id)s and domain <> all(%(domains)s::text[]))
            insert into home_realm_routes (org_id, domain, provider)
            select %(org_id)s, * from unnest(%(domains)s::text[], %(providers)s::text[])
            on conflict (org_id, domain) do update set provider = excluded.provider"""
        await self._run(sql, org_id=org_id, domains=[str(domain) for domain in routes], providers=list(routes.values()))
