"""Storage for home realm routes, and the route that applies to a domain."""

from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.kernel.connections import PLATFORM_CONNECTIONS, ConnectionSlug
from core.kernel.values import Domain
from core.tenancy.model.domains import HomeRealmMatch
from tests.support.builders import add_organization, run_sql
from tests.support.rows import within

A, B, C = PLATFORM_CONNECTIONS


async def replace(storage: Postgres, org: UUID, **routes: ConnectionSlug) -> None:
    """Replace the routes. The names are domains, with `_` for the dot."""
    providers = {Domain(name.replace("_", ".")): provider for name, provider in routes.items()}
    await within(storage, lambda tx: tx.home_realm.replace(org, providers))


async def routes(storage: Postgres, org: UUID) -> dict[str, str]:
    async with storage.reading() as read:
        return {str(route.domain): route.slug for route in await read.home_realm.routes(org)}


async def verified(storage: Postgres, org: UUID) -> list[str]:
    async with storage.reading() as read:
        return [str(route.domain) for route in await read.home_realm.routes(org) if route.verified]


async def prove(pool: Pool, org: UUID, domain: str, verified_at: str | None = "now") -> None:
    insert = "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, %s, 'x', %s::timestamptz, now())"
    await run_sql(pool, insert, org, domain, verified_at)


async def match(storage: Postgres, domain: str) -> HomeRealmMatch | None:
    async with storage.reading() as read:
        return await read.home_realm.match(Domain(domain))


async def test_routes_are_replaced_in_one_organization(storage: Postgres, pool: Pool) -> None:
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    await replace(storage, other_tenant, a_example=C, x_example=A)
    await replace(storage, acme, a_example=A, b_example=B, c_example=C)
    assert await routes(storage, acme) == {"a.example": A, "b.example": B, "c.example": C}
    await replace(storage, acme, b_example=C, c_example=C, d_example=A)
    assert await routes(storage, acme) == {"b.example": C, "c.example": C, "d.example": A}
    await replace(storage, acme)
    assert [await routes(storage, org) for org in (acme, uuid4())] == [{}, {}]
    assert await routes(storage, other_tenant) == {"a.example": C, "x.example": A}


async def test_a_route_applies_if_its_domain_or_a_parent_is_verified(storage: Postgres, pool: Pool) -> None:
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    await prove(pool, acme, "acme.example")
    await prove(pool, other_tenant, "twin.example", None)
    for org in (acme, other_tenant):
        await replace(storage, org, acme_example=A, eu_acme_example=B, twin_example=C, eacme_example=C)
    assert await match(storage, "acme.example") == HomeRealmMatch("acme", A)
    assert await match(storage, "eu.acme.example") == HomeRealmMatch("acme", B)
    assert [await verified(storage, org) for org in (acme, other_tenant)] == [["acme.example", "eu.acme.example"], []]
    for domain in ("us.acme.example", "x.eu.acme.example", "twin.example", "eacme.example", "other.example"):
        assert await match(storage, domain) is None, domain


async def test_the_closest_verified_domain_decides_even_without_a_route(storage: Postgres, pool: Pool) -> None:
    acme, other_tenant, third = [await add_organization(pool, slug) for slug in ("acme", "twin", "third")]
    await replace(storage, acme, acme_example=A, eu_acme_example=A, de_eu_acme_example=A)
    await replace(storage, other_tenant, eu_acme_example=B)
    await replace(storage, third, acme_example=C, eu_acme_example=C, de_eu_acme_example=C)
    domains = ("acme.example", "eu.acme.example", "de.eu.acme.example")
    await prove(pool, acme, "acme.example")
    assert [await match(storage, domain) for domain in domains] == [HomeRealmMatch("acme", A)] * 3
    await prove(pool, other_tenant, "eu.acme.example")
    assert [await match(storage, domain) for domain in domains] == [HomeRealmMatch("acme", A), HomeRealmMatch("twin", B), None]
    assert [await verified(storage, org) for org in (acme, other_tenant, third)] == [["acme.example"], ["eu.acme.example"], []]
    await run_sql(pool, "update organizations set status = 'suspended' where id = %s", other_tenant)
    assert [await match(storage, domain) for domain in domains] == [HomeRealmMatch("acme", A), None, None]
    # An unverified claim has no effect.
    await run_sql(pool, "update domains set verified_at = null where org_id = %s", other_tenant)
    assert [await match(storage, domain) for domain in domains] == [HomeRealmMatch("acme", A)] * 3


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_routes_of_inactive_organizations_do_not_apply(storage: Postgres, pool: Pool, status: str) -> None:
    acme = await add_organization(pool, "acme", status)
    await prove(pool, acme, "acme.example")
    await replace(storage, acme, acme_example=A)
    assert await match(storage, "acme.example") is None


async def test_routes_are_deleted_with_their_organization(storage: Postgres, pool: Pool) -> None:
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    for org in (acme, other_tenant):
        await replace(storage, org, acme_example=A)
    await run_sql(pool, "delete from organizations where id = %s", acme)
    assert await run_sql(pool, "select org_id, domain from home_realm_routes") == [(other_tenant, "acme.example")]
