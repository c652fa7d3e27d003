"""Services, read by members: the list, and access (security T-1, T-2)."""

from datetime import timedelta
from typing import Any

import pytest

from tests.applications.api.service_fields import FIELDS
from tests.applications.api.services import Workshop
from tests.fakes.outside import FakeClock
from tests.support.builders import run_sql, sign_in
from tests.support.platform import Platform
from tests.support.refusals import BAD, FORBIDDEN, MISSING, NOT_ACTIVE, refused
from tests.support.services import add_plan, add_service
from tests.support.tenants import Tenant
from tests.tenancy.organizations import NOT_ACTIVE as STATUSES


async def fill(clock: FakeClock, acme: Tenant, *kinds: str) -> None:
    for number, kind in enumerate(kinds):
        service = await add_service(acme.pool, acme.org, f"s{number}", kind)
        at = clock.now() + timedelta(minutes=number)
        await run_sql(acme.pool, "update services set created_at = %s where id = %s", at, service)


def slugs(listing: dict[str, Any]) -> list[str]:
    return [service["slug"] for service in listing["services"]]


async def test_services_are_listed_oldest_first_with_their_counts(
    shops: Workshop, acme: Tenant, other_tenant: Tenant, clock: FakeClock
) -> None:
    await fill(clock, acme, "web", "mobile")
    await add_service(acme.pool, other_tenant.org, "foreign")
    [(second,)] = await run_sql(acme.pool, "select id from services where slug = 's1'")
    for name in ("Free", "Gold"):
        await add_plan(acme.pool, second, name)
    await run_sql(acme.pool, "update services set subscription_count = 7, user_count = 9 where id = %s", second)
    for reader in ("member", "admin", "owner"):
        listing = await shops.list_services(by=reader)
        assert slugs(listing) == ["s0", "s1"]
        assert listing["usage"] == {"current_services": 2, "max_services": 3, "tier": "Free"}
    for service, counts in zip(listing["services"], [(0, 0), (2, 7)], strict=True):
        assert list(service) == [*FIELDS, "plan_count", "subscription_count"]
        assert (service.pop("plan_count"), service.pop("subscription_count")) == counts
        assert (await shops.get(service["slug"])).json == service


@pytest.mark.slow
async def test_the_list_is_complete_without_a_limit(shops: Workshop, acme: Tenant, clock: FakeClock) -> None:
    await fill(clock, acme, *["web", "api"] * 60)
    all_slugs = [f"s{number}" for number in range(120)]
    assert slugs(await shops.list_services()) == all_slugs
    for query, expected in {
        "limit=2": all_slugs[:2],
        "limit=119": all_slugs[:119],
        "limit=100000000000000000000000": all_slugs,
        "limit=0": all_slugs[:1],
        "limit=-5": all_slugs[:1],
        "offset=118": all_slugs[118:],
        "offset=-1": all_slugs,
        "offset=120": [],
        "offset=99999999999999999999999": [],
        "limit=3&offset=7": all_slugs[7:10],
        "service_type=api": all_slugs[1::2],
        "service_type=web&limit=2&offset=50": all_slugs[100:104:2],
        "service_type=mobile": [],
        "search=%20S11": [*all_slugs[11:12], *all_slugs[110:120]],
        "search=S11&service_type=api&limit=1&offset=1": all_slugs[111:112],
        "search=%25": [],
        "sort=name": sorted(all_slugs),
        "sort=name&limit=3&offset=2": sorted(all_slugs)[2:5],
        "unknown=1": all_slugs,
    }.items():
        listing = await shops.list_services(f"?{query}")
        assert slugs(listing) == expected, query
        assert listing["usage"] == {"current_services": 120, "max_services": 3, "tier": "Free"}
    [second] = (await shops.list_services("?limit=1&offset=1"))["services"]
    assert slugs(await shops.list_services(f"?search={second['client_id'].upper()}")) == [second["slug"]]


async def test_invalid_queries_are_refused(shops: Workshop, acme: Tenant) -> None:
    for query in ("limit=x", "limit=", "limit=1.5", "offset=x", "offset=1e3", "service_type=", "service_type=WEB"):
        assert refused(await acme.api.get(f"{shops.path}?{query}", token=acme.token("member"))) == BAD, query


async def test_an_organization_without_services_has_an_empty_list(shops: Workshop) -> None:
    assert await shops.list_services() == {"services": [], "usage": {"current_services": 0, "max_services": 3, "tier": "Free"}}


async def test_inactive_organizations_cannot_read_services(shops: Workshop, acme: Tenant) -> None:
    await add_service(acme.pool, acme.org)
    for status in STATUSES:
        await acme.set_status(status)
        assert refused(await acme.api.get(shops.path, token=acme.token("owner"))) == NOT_ACTIVE
        assert refused(await shops.get()) == NOT_ACTIVE


# Access


async def test_a_service_is_found_only_in_its_organization(shops: Workshop, acme: Tenant, other_tenant: Tenant) -> None:
    await add_service(acme.pool, acme.org)
    await add_service(acme.pool, other_tenant.org, "foreign")
    [(id_,)] = await run_sql(acme.pool, "select id from services where slug = 'shop'")
    assert (await shops.get()).json["id"] == str(id_)
    for slug in ("foreign", "Shop", "sho", "shop-", str(id_), "%27", "nothing there", "a" * 3000):
        assert refused(await shops.get(slug)) == MISSING, slug


@pytest.mark.slow
async def test_a_missing_service_is_refused_before_the_body_is_parsed(shops: Workshop, acme: Tenant, other_tenant: Tenant) -> None:
    await add_service(acme.pool, other_tenant.org, "foreign")
    before = await shops.stored_rows()
    for slug in ("foreign", "unknown"):
        for body in (b"{", b"[]", b"{}", b'{"name": "New"}', b'{"name": 5}'):
            for method, path in (("PATCH", slug), ("POST", f"{slug}/plans"), ("PATCH", f"{slug}/plans/x")):
                answer = await acme.api.call(method, f"{shops.path}/{path}", raw=body, token=acme.token("owner"))
                assert refused(answer) == MISSING, (method, path, body)
                assert refused(await acme.api.call(method, f"{shops.path}/{path}", raw=body, token=acme.token("member"))) == FORBIDDEN
        for answer in (await shops.rotate(slug=slug), await shops.delete(slug=slug), await shops.delete_plan("x", slug=slug)):
            assert refused(answer) == MISSING
        assert refused(await acme.api.get(f"{shops.path}/{slug}/plans", token=acme.token("owner"))) == MISSING
    assert await shops.stored_rows() == before


@pytest.mark.slow
async def test_callers_from_outside_are_refused(shops: Workshop, acme: Tenant, other_tenant: Tenant, platform: Platform) -> None:
    service = await add_service(acme.pool, acme.org)
    plan = await add_plan(acme.pool, service)
    before = await shops.stored_rows()
    calls: list[tuple[str, str, Any]] = [
        ("GET", "", None),
        ("POST", "", {"slug": "other", "name": "Other", "service_type": "web"}),
        ("GET", "/shop", None),
        ("PATCH", "/shop", {"name": "Theirs"}),
        ("POST", "/shop/rotate-secret", {}),
        ("DELETE", "/shop", None),
        ("GET", "/shop/plans", None),
        ("POST", "/shop/plans", {"name": "Gold", "price_cents": 1, "currency": "eur"}),
        ("PATCH", f"/shop/plans/{plan}", {"name": "Theirs"}),
        ("DELETE", f"/shop/plans/{plan}", None),
    ]
    foreign = (await sign_in(acme.ports, other_tenant.people["owner"], other_tenant.org)).access_token
    for method, path, body in calls:
        for token in (foreign, platform.token):
            assert refused(await acme.api.call(method, f"{shops.path}{path}", body, token=token)) == FORBIDDEN
        assert (await acme.api.call(method, f"{shops.path}{path}", body)).code == "UNAUTHORIZED"
    assert await shops.stored_rows() == before
