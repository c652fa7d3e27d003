"""Statements about services: fields, order and isolation."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications.model.services import Service, ServiceSlugTaken, ServiceType
from core.applications.model.users import AccessSettings
from core.kernel.connections import OFFICESUITE, WEBSUITE
from core.kernel.values import Slug, digest
from tests.applications.storage.services import by_id, put, service
from tests.support.builders import add_organization, run_sql
from tests.support.rows import HOUR, NOW, within
from tests.support.services import add_plan

BARE: dict[str, Any] = {
    "client_secret_hash": None,
    "connection_scopes": {WEBSUITE: ()},
    "redirect_uris": (),
    "device_activation_uri": None,
    "pkce_without_secret": False,
    "email_sign_in": None,
    "is_trusted": False,
    "id_token_claims": True,
    "post_logout_redirect_uris": (),
    "backchannel_logout_uri": None,
    "jwks": None,
    "jwks_uri": "https://example.com/keys",
    "former_secret_hash": None,
    "former_secret_expires_at": None,
}


@pytest.mark.parametrize("kind", list(ServiceType))
@pytest.mark.parametrize("changes", [{}, BARE], ids=["full", "bare"])
async def test_all_fields_of_a_service_are_stored_and_returned(
    storage: Postgres, pool: Pool, kind: ServiceType, changes: dict[str, Any]
) -> None:
    org = await add_organization(pool, "acme")
    secret = None if kind.is_public else digest("secret")
    one = await put(storage, service(org, service_type=kind, **{**changes, "client_secret_hash": secret}), service(org, "other"))
    async with storage.reading() as read:
        assert await read.services.by_id(org, one.id) == one
        assert await read.services.by_slug(org, "shop") == one


async def test_a_service_is_found_only_in_its_organization(storage: Postgres, pool: Pool) -> None:
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    one = await put(storage, service(org))
    async with storage.reading() as read:
        assert await read.services.by_id(other_tenant, one.id) is None
        assert await read.services.by_slug(other_tenant, "shop") is None
        assert await read.services.by_id(org, uuid4()) is None
        assert await read.services.by_slug(org, "SHOP") is None
        assert await read.services.list_after(other_tenant, None, None, 100, 0) == []
        assert (await read.services.count(org), await read.services.count(other_tenant)) == (1, 0)


async def test_an_organization_has_the_origins_of_its_redirect_uris_and_launch_urls(storage: Postgres, pool: Pool) -> None:
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    access = AccessSettings(launch_url="https://launch.example:8443/")
    await put(storage, service(org, redirect_uris=("https://App.example/callback", "https://bare.example"), access=access))
    tried = {"https://app.example", "https://bare.example", "https://launch.example:8443"}
    async with storage.reading() as read:
        for origin in (*tried, "https://app", "https://launch.example", "https://launch.example:84", "http://app.example", ""):
            assert await read.services.has_origin(org, origin) is (origin in tried), origin
            assert not await read.services.has_origin(other_tenant, origin)


async def test_a_slug_can_be_reused_in_other_organizations(storage: Postgres, pool: Pool) -> None:
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    await put(storage, service(org), service(other_tenant))
    with pytest.raises(ServiceSlugTaken):
        await put(storage, service(org))
    assert await run_sql(pool, "select count(*) from services") == [(2,)]


@pytest.mark.parametrize(("kind", "secret"), [("web", None), ("api", None), ("spa", b"x"), ("mobile", b"x"), ("desktop", b"x")])
async def test_the_database_requires_a_secret_of_confidential_clients_only(
    storage: Postgres, pool: Pool, kind: str, secret: bytes | None
) -> None:
    org = await add_organization(pool, "acme")
    with pytest.raises(Exception, match="services_check"):
        await put(storage, service(org, service_type=ServiceType(kind), client_secret_hash=secret))


async def test_saving_writes_only_the_fields_that_can_change(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    one, other = service(org), service(org, "other")
    await put(storage, one, other)
    await run_sql(pool, "update services set user_count = 7, subscription_count = 8")  # counters from other transactions
    new_service = service(
        org,
        id=one.id,
        client_id=one.client_id,
        name="Other",
        service_type=ServiceType.MOBILE,
        client_secret_hash=None,
        connection_scopes={WEBSUITE: (), OFFICESUITE: ("a", "b")},
        redirect_uris=("com.example.app:/callback",),
        device_activation_uri="https://example.com/other",
        subscription_count=8,
        updated_at=NOW,
    )
    other_fields = replace(new_service, slug=Slug("x"), client_id=uuid4(), created_at=NOW, subscription_count=99)
    await within(storage, lambda tx: tx.services.save(other_fields))
    assert await by_id(storage, one) == new_service
    bare = replace(new_service, **BARE)
    await within(storage, lambda tx: tx.services.save(bare))
    assert await by_id(storage, one) == bare
    await within(storage, lambda tx: tx.services.save(replace(bare, org_id=uuid4(), name="Foreign")))
    assert await by_id(storage, one) == bare
    assert await by_id(storage, other) == replace(other, subscription_count=8)
    assert await run_sql(pool, "select distinct user_count from services") == [(7,)]


# The list


async def slugs(storage: Postgres, org: UUID, kind: ServiceType | None, after: Service | None, limit: int, offset: int) -> list[str]:
    async with storage.reading() as read:
        return [str(one.service.slug) for one in await read.services.list_after(org, kind, after, limit, offset)]


async def test_services_are_listed_oldest_first_from_any_service_on(storage: Postgres, pool: Pool) -> None:
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    ages = {"a": 3, "b": 2, "c": 2, "d": 2, "e": 1}
    services = [service(org, slug, created_at=NOW - age * HOUR, id=UUID(int=number)) for number, (slug, age) in enumerate(ages.items(), 1)]
    mobile: dict[str, Any] = {"service_type": ServiceType.MOBILE, "client_secret_hash": None}
    services[1], services[4] = replace(services[1], **mobile), replace(services[4], **mobile)
    await put(storage, *reversed(services), service(other_tenant))
    assert await slugs(storage, org, None, None, 100, 0) == ["a", "b", "c", "d", "e"]
    assert await slugs(storage, org, None, None, 2, 1) == ["b", "c"]
    assert await slugs(storage, org, None, None, 2, 2**31 - 1) == []
    for number, one in enumerate(services):
        assert await slugs(storage, org, None, one, 100, 0) == ["a", "b", "c", "d", "e"][number + 1 :]
    assert await slugs(storage, org, None, services[0], 2, 0) == ["b", "c"]
    assert await slugs(storage, org, ServiceType.MOBILE, None, 100, 0) == ["b", "e"]
    assert await slugs(storage, org, ServiceType.MOBILE, None, 100, 1) == ["e"]
    assert await slugs(storage, org, ServiceType.MOBILE, services[1], 100, 0) == ["e"]
    assert await slugs(storage, org, ServiceType.API, None, 100, 0) == []


async def test_a_listed_service_counts_its_plans_without_deleted_ones(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    one, other = service(org), service(org, "other", created_at=NOW)
    await put(storage, one, other)
    for name in ("Free", "Gold", "Old"):
        await add_plan(pool, one.id, name)
    await run_sql(pool, "update plans set removed_at = now() where name = 'Old'")
    await run_sql(pool, "update services set subscription_count = 4 where id = %s", one.id)
    async with storage.reading() as read:
        services = await read.services.list_after(org, None, None, 100, 0)
    assert [(each.service, each.plan_count) for each in services] == [(replace(one, subscription_count=4), 2), (other, 0)]
