"""The statements about users' grants to external clients."""

from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.authentication.model.openid import OpenIdGrant, ResourceGrant
from core.federation.oauth.model.consents import ExternalGrant
from core.kernel.callers import ServiceContext
from core.kernel.values import Email, Page, PageResult
from tests.support.builders import run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, NOW, account, add, begin, within
from tests.support.services import add_api_resource, enroll_user

CLAUDE = "https://claude.ai/oauth/client"
PAGE = Page(1, 50)


@pytest.fixture
async def claude(pool: Pool, shop: ServiceContext) -> ServiceContext:
    """Acme's external client."""
    await run_sql(
        pool, "update services set client_uri = %s, service_type = 'spa', client_secret_hash = null where id = %s", CLAUDE, shop.id
    )
    return shop


async def agree(storage: Postgres, client: ServiceContext, user: UUID, resource: UUID, *scope: str) -> None:
    await within(storage, lambda tx: tx.consents.add(client.org_id, client.id, user, (), NOW))
    grant = ResourceGrant(resource, scope, None)
    await within(storage, lambda tx: tx.consents.add_api(client.org_id, client.id, user, grant, NOW + HOUR))


async def test_the_grants_of_a_resource_are_those_to_external_clients(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, claude: ServiceContext
) -> None:
    ada, eve = [(await add(storage, account(email))).id for email in (ADA, EVE)]
    orders, bills = [await add_api_resource(pool, acme, f"https://{name}.example.com/") for name in ("orders", "bills")]
    for user in (eve, ada):
        await within(storage, lambda tx: enroll_user(tx, claude.id, user, NOW))  # noqa: B023
        await agree(storage, claude, user, orders, "orders:write", "orders:read", "orders:gone")
    await agree(storage, claude, ada, bills)
    api = ResourceGrant(orders, ("orders:read",), 600)
    await begin(storage, ada, "one", service=claude, openid=OpenIdGrant((), resource="https://orders.example.com/", api=api))

    def grant(user: UUID, email: str, *scopes: str, **changes: object) -> ExternalGrant:
        values = {"last_used_at": None, "scopes": scopes, "granted_at": NOW + HOUR, **changes}
        name = {"client_id": claude.client_id, "service_id": claude.id, "client_uri": CLAUDE, "client_name": "Shop"}
        return ExternalGrant(user_id=user, email=Email(email), **name, **values)  # type: ignore[arg-type]

    both = ("orders:read", "orders:write")
    expected = [grant(ada, ADA, *both, last_used_at=NOW - HOUR), grant(eve, EVE, *both)]
    async with storage.reading() as read:
        assert await read.external_grants.page(acme, orders, PAGE) == PageResult(expected, 2)
        assert await read.external_grants.page(acme, orders, Page(2, 1)) == PageResult(expected[1:], 2)
        assert await read.external_grants.page(acme, orders, PAGE, search=EVE[:3]) == PageResult(expected[1:], 1)
        assert await read.external_grants.page(acme, orders, PAGE, search="%") == PageResult([], 0)
        assert await read.external_grants.page(acme, bills, PAGE) == PageResult([grant(ada, ADA)], 1)
        assert await read.external_grants.page(other_tenant, orders, PAGE) == PageResult([], 0)
        assert await read.external_grants.find(acme, orders, ada, claude.client_id) == expected[0]
        assert await read.external_grants.find(other_tenant, orders, ada, claude.client_id) is None
    await run_sql(pool, "update services set client_uri = null")
    async with storage.reading() as read:
        assert await read.external_grants.page(acme, orders, PAGE) == PageResult([], 0), "an application"
        assert await read.external_grants.find(acme, orders, ada, claude.client_id) is None


async def test_the_last_grant_of_a_client_takes_the_consent_along(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, claude: ServiceContext
) -> None:
    ada, eve = [(await add(storage, account(email))).id for email in (ADA, EVE)]
    orders, bills = [await add_api_resource(pool, acme, f"https://{name}.example.com/") for name in ("orders", "bills")]
    for user, resource in ((ada, orders), (ada, bills), (eve, orders)):
        await agree(storage, claude, user, resource)

    async def remove(resource: UUID, org: UUID = acme, user: UUID = ada) -> bool:
        return await within(storage, lambda tx: tx.external_grants.remove(org, resource, user, claude.client_id)) is not None

    async def left() -> tuple[int, int]:
        [counts] = await run_sql(
            pool,
            """
            select (select count(*) from api_consents a where a.user_id = u.id), (select count(*) from consents c where c.user_id = u.id)
            from users u where u.id = %s""",
            ada,
        )
        return counts

    assert not await remove(orders, other_tenant)
    assert await remove(orders)
    assert not await remove(orders)
    assert await left() == (1, 1)
    assert await remove(bills)
    assert await left() == (0, 0)
    assert await remove(orders, user=eve), "the grants of other users stay"


async def test_sessions_for_one_resource_end_alone(storage: Postgres, pool: Pool, acme: UUID, claude: ServiceContext) -> None:
    ada = (await add(storage, account(ADA))).id
    await within(storage, lambda tx: enroll_user(tx, claude.id, ada, NOW))
    resources = [await add_api_resource(pool, acme, f"https://{name}.example.com/") for name in ("orders", "bills")]
    for number, resource in enumerate(resources):
        grant = OpenIdGrant((), resource=f"https://{number}.example/", api=ResourceGrant(resource, (), 600))
        await begin(storage, ada, str(number), service=claude, openid=grant)
    await within(storage, lambda tx: tx.organization_sessions.end_consented(acme, claude.id, ada, NOW + DAY, resources[0]))
    assert await run_sql(pool, "select api_resource_id from sessions where ended_at is not null") == [(resources[0],)]
    await within(storage, lambda tx: tx.organization_sessions.end_consented(acme, claude.id, ada, NOW + DAY))
    assert await run_sql(pool, "select 1 from sessions where ended_at is null") == []


async def test_external_clients_are_removed_by_their_origin(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, claude: ServiceContext
) -> None:
    orders = await add_api_resource(pool, acme, services=(claude.id,))

    async def remove(*origins: str | None, org: UUID = acme) -> bool:
        await within(storage, lambda tx: tx.api_resources.remove_external_clients(org, orders, origins))
        return await run_sql(pool, "select 1 from api_resource_clients") == []

    async def origins(org: UUID = acme) -> list[str | None]:
        return await within(storage, lambda tx: tx.api_resources.origins_of_external_clients(org, orders))

    async with storage.reading() as read:
        assert await read.api_resources.clients(acme, orders, PAGE) == PageResult([], 0), "they are not applications"
    assert (await origins(), await origins(other_tenant)) == (["https://claude.ai"], [])
    for kept in ((), (None,), ("https://claude.com",), ("https://claude",)):
        assert not await remove(*kept), kept
    assert not await remove("https://claude.ai", org=other_tenant)
    await run_sql(pool, "update services set client_uri = null")
    assert (await origins(), await remove("https://claude.ai", None)) == ([], False), "an application"
    await run_sql(pool, "update services set client_uri = 'sealed'")
    assert (await origins(), await remove("https://claude.ai"), await remove(None)) == ([None], False, True)
