"""Home realm routes, and the lookup by email address (decision 103; security B-4, T-6)."""

from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.outside import FakeTxtRecords
from tests.support.builders import BASE_URL, Answer, Api, add_account, run_concurrently, run_during, run_sql
from tests.support.services import add_service
from tests.support.tenants import Tenant, Tenants
from tests.tenancy.domains import prove_domain

NOWHERE = {"provider": None, "connection": None, "org_slug": None, "authorization_url": None}


async def get_routes(team: Tenant, by: str = "owner") -> Answer:
    return await team.api.get(f"{team.path}/hrd", token=team.token(by))


async def put_routes(team: Tenant, routes: Any, by: str = "owner") -> Answer:
    return await team.api.call("PUT", f"{team.path}/hrd", {"domains": routes}, token=team.token(by))


def routes(**providers: str) -> list[dict[str, str]]:
    """Return routes. The names are domains, with `_` for the dot."""
    return [{"domain": domain.replace("_", "."), "provider": provider} for domain, provider in providers.items()]


def route(domain: str, provider: str | None, *, connection: dict[str, str] | None = None, verified: bool = False) -> dict[str, Any]:
    return {"domain": domain, "provider": provider, "connection": connection, "verified": verified}


async def look_up(api: Api, email: str) -> dict[str, Any]:
    answer = await api.post("/api/auth/lookup-email", {"email": email})
    assert answer.status == 200, answer.text
    match: dict[str, Any] = answer.json
    return match


def provider_match(slug: str, provider: str) -> dict[str, Any]:
    return {"provider": provider, "connection": None, "org_slug": slug, "authorization_url": f"{BASE_URL}/auth/{provider}?org={slug}"}


# Routes


async def test_an_organization_has_no_routes_at_first(acme: Tenant) -> None:
    answer = await get_routes(acme)
    assert (answer.status, answer.json) == (200, {"domains": []})


@pytest.mark.parametrize("by", ["owner", "admin"])
async def test_managers_set_home_realm_routes(acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords, by: str) -> None:
    await prove_domain(acme, dns, "acme.example")
    new_routes = routes(other_example="codehost", acme_example="websuite", eu_acme_example="officesuite", notacme_example="codehost")
    answer = await put_routes(acme, new_routes, by)
    assert answer.status == 200
    assert answer.json == {
        "domains": [
            route("acme.example", "websuite", verified=True),
            route("eu.acme.example", "officesuite", verified=True),
            route("notacme.example", "codehost", verified=False),
            route("other.example", "codehost", verified=False),
        ]
    }
    assert (await get_routes(acme)).json == answer.json
    assert (await get_routes(other_tenant)).json == {"domains": []}
    entry = await acme.entry("hrd.updated")
    assert (entry["target_type"], entry["target_id"], entry["actor_id"]) == ("organization", str(acme.org), acme.people[by].id)
    assert entry["details"] == {"domains": {route["domain"]: {"old": None, "new": route["provider"]} for route in new_routes}}


async def test_new_routes_replace_all_old_ones(acme: Tenant, other_tenant: Tenant) -> None:
    await put_routes(other_tenant, other_routes := routes(kept_example="websuite"))
    await put_routes(acme, routes(kept_example="codehost", gone_example="codehost", moved_example="codehost"))
    await run_sql(acme.pool, "delete from audit_log")
    answer = await put_routes(acme, routes(moved_example="websuite", new_example="officesuite", kept_example="codehost"))
    assert [(route["domain"], route["provider"]) for route in answer.json["domains"]] == [
        ("kept.example", "codehost"),
        ("moved.example", "websuite"),
        ("new.example", "officesuite"),
    ]
    assert (await acme.entry("hrd.updated"))["details"]["domains"] == {
        "gone.example": {"old": "codehost", "new": None},
        "moved.example": {"old": "codehost", "new": "websuite"},
        "new.example": {"old": None, "new": "officesuite"},
    }
    assert (await put_routes(acme, [])).json == {"domains": []} == (await get_routes(acme)).json
    assert [(route["domain"], route["provider"]) for route in (await get_routes(other_tenant)).json["domains"]] == [
        ("kept.example", "websuite")
    ]
    assert len(other_routes) == 1


async def test_setting_the_same_routes_again_changes_nothing(acme: Tenant) -> None:
    new_routes = routes(a_example="codehost", b_example="websuite")
    first = await put_routes(acme, new_routes)
    assert (await put_routes(acme, [{**route, "domain": route["domain"].upper()} for route in reversed(new_routes)])).json == first.json
    assert await acme.actions() == {"hrd.updated": 1}


async def test_an_organization_can_have_a_hundred_routes(acme: Tenant) -> None:
    new_routes = [{"domain": f"d{number}.example", "provider": "codehost"} for number in range(101)]
    assert len((await put_routes(acme, new_routes[:100])).json["domains"]) == 100
    assert (await put_routes(acme, new_routes)).status == 400
    assert len((await get_routes(acme)).json["domains"]) == 100


async def test_an_invalid_route_is_refused_and_changes_nothing(acme: Tenant) -> None:
    good = routes(acme_example="codehost")
    before = (await put_routes(acme, good)).json
    answer = await put_routes(acme, routes(acme_example="other"))
    assert answer.status == 400
    assert all(name in answer.json["error"] for name in ("codehost", "websuite", "officesuite"))
    twice = await put_routes(acme, [*good, {"domain": "ACME.example", "provider": "websuite"}])
    assert (twice.status, "acme.example" in twice.json["error"]) == (400, True)
    wrongs: list[Any] = [
        *(None, {}, "acme.example", ["acme.example"], [None], [{}]),
        *([{"domain": "acme.example"}], [{"provider": "codehost"}], [{"domain": "acme.example", "provider": None}]),
        *([{"domain": domain, "provider": "codehost"}] for domain in ("", "com", "@acme.example", "*.acme.example", "10.0.0.1", 5)),
        *([{"domain": "acme.example", "provider": provider}] for provider in ("", "Codehost", "codehost ", 1, ["codehost"])),
    ]
    for wrong in wrongs:
        answer = await put_routes(acme, wrong)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), wrong
    assert (await acme.api.call("PUT", f"{acme.path}/hrd", {}, token=acme.token("owner"))).status == 400
    assert (await get_routes(acme)).json == before


async def put_route(team: Tenant, domain: str, provider: str = "websuite", by: str = "owner") -> Answer:
    return await team.api.call("PUT", f"{team.path}/hrd/{domain}", {"provider": provider}, token=team.token(by))


async def remove_route(team: Tenant, domain: str, by: str = "owner") -> Answer:
    return await team.api.delete(f"{team.path}/hrd/{domain}", token=team.token(by))


async def test_one_route_is_set_and_removed_and_the_others_stay(acme: Tenant) -> None:
    await put_routes(acme, routes(acme_example="codehost"))
    added = await put_route(acme, "EU.acme.example")
    assert (added.status, added.json) == (200, route("eu.acme.example", "websuite"))
    assert (await put_route(acme, "eu.acme.example", "officesuite")).status == 200
    assert (await get_routes(acme)).json["domains"] == [
        route("acme.example", "codehost"),
        route("eu.acme.example", "officesuite"),
    ]
    assert [(await remove_route(acme, domain)).status for domain in ("acme.example", "acme.example", "com")] == [204, 404, 404]
    assert [(await put_route(acme, *wrong)).status for wrong in (("com",), ("acme.example", "nothing"))] == [400, 400]
    changes = [entry["details"]["domains"] for entry in await acme.log() if entry["action"] == "hrd.updated"]
    assert changes == [
        {"acme.example": {"old": None, "new": "codehost"}},
        {"eu.acme.example": {"old": None, "new": "websuite"}},
        {"eu.acme.example": {"old": "websuite", "new": "officesuite"}},
        {"acme.example": {"old": "codehost", "new": None}},
    ]


@pytest.mark.slow
async def test_no_route_is_lost_among_twenty_at_once_and_a_hundred_are_the_most(acme: Tenant) -> None:
    await put_routes(acme, [{"domain": f"{number}.example", "provider": "codehost"} for number in range(90)])
    answers = await run_concurrently(20, lambda number: put_route(acme, f"new{number}.example"))
    assert sorted(answer.status for answer in answers) == [200] * 10 + [400] * 10
    assert len((await get_routes(acme)).json["domains"]) == 100
    assert (await put_route(acme, "1.example")).status == 200, "it has a route already"


async def test_only_managers_read_and_change_routes(acme: Tenant) -> None:
    assert [(await get_routes(acme, "member")).status, (await put_routes(acme, [], "member")).status] == [403, 403]


async def test_a_change_that_waited_for_a_demotion_is_refused(acme: Tenant) -> None:
    changes = [
        ("select 1 from organizations where id = %s for no key update", (acme.org,)),
        ("update memberships set role = 'member' where user_id = %s", (acme.people["admin"].id,)),
    ]
    assert (await run_during(acme.pool, changes, lambda: put_routes(acme, routes(acme_example="codehost"), "admin"))).status == 403
    assert (await get_routes(acme)).json == {"domains": []}


@pytest.mark.slow
async def test_twenty_concurrent_changes_leave_the_routes_of_one_of_them(acme: Tenant) -> None:
    sets = [
        routes(**{f"d{number}_example": "codehost", "all_example": "websuite", f"e{number % 3}_example": "codehost"})
        for number in range(20)
    ]
    answers = await run_concurrently(20, lambda number: put_routes(acme, sets[number]))
    assert {answer.status for answer in answers} == {200}
    assert (await get_routes(acme)).json in [answer.json for answer in answers]
    assert await acme.actions() == {"hrd.updated": 20}


# Lookup


async def test_users_of_a_verified_domain_get_the_route_of_its_organization(
    api: Api, acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords
) -> None:
    await prove_domain(acme, dns, "acme.example")
    await prove_domain(other_tenant, dns, "twin.example")
    await put_routes(acme, routes(acme_example="websuite", eu_acme_example="officesuite", twin_example="codehost"))
    await put_routes(other_tenant, routes(twin_example="codehost", acme_example="codehost"))
    expected = {
        "ada@acme.example": provider_match("acme", "websuite"),
        " ADA@ACME.example ": provider_match("acme", "websuite"),
        "ada@eu.acme.example": provider_match("acme", "officesuite"),
        "ada@us.acme.example": NOWHERE,  # has no route
        "ada@a.eu.acme.example": NOWHERE,
        "ada@notacme.example": NOWHERE,
        "ada@twin.example": provider_match("twin", "codehost"),
        "ada@example.com": NOWHERE,
    }
    assert {email: await look_up(api, email) for email in expected} == expected


async def test_an_unverified_domain_has_no_effect(api: Api, acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords) -> None:
    await put_routes(acme, routes(acme_example="websuite"))
    assert await look_up(api, "ada@acme.example") == NOWHERE
    await acme.api.post(f"{acme.path}/domains", {"domain": "acme.example"}, token=acme.token("owner"))
    await prove_domain(other_tenant, dns, "twin.example")
    assert await look_up(api, "ada@acme.example") == NOWHERE
    await prove_domain(acme, dns, "acme.example")
    assert await look_up(api, "ada@acme.example") == provider_match("acme", "websuite")
    await acme.api.delete(f"{acme.path}/domains/acme.example", token=acme.token("owner"))
    assert await look_up(api, "ada@acme.example") == NOWHERE
    assert (await get_routes(acme)).json == {"domains": [route("acme.example", "websuite")]}


async def test_the_organization_that_verified_the_closest_domain_decides(
    api: Api, acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords
) -> None:
    await prove_domain(acme, dns, "acme.example")
    await put_routes(acme, routes(acme_example="websuite", eu_acme_example="websuite", de_eu_acme_example="websuite"))
    assert await look_up(api, "ada@de.eu.acme.example") == provider_match("acme", "websuite")
    await prove_domain(other_tenant, dns, "eu.acme.example")
    await put_routes(other_tenant, routes(eu_acme_example="codehost", acme_example="codehost"))
    assert await look_up(api, "ada@eu.acme.example") == provider_match("twin", "codehost")
    assert await look_up(api, "ada@de.eu.acme.example") == NOWHERE, (
        "the organization that verified eu.acme.example has no route for this domain"
    )
    assert await look_up(api, "ada@acme.example") == provider_match("acme", "websuite")


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_the_routes_of_an_inactive_organization_have_no_effect(api: Api, acme: Tenant, dns: FakeTxtRecords, status: str) -> None:
    await prove_domain(acme, dns, "acme.example")
    await put_routes(acme, routes(acme_example="websuite"))
    await acme.set_status(status)
    assert await look_up(api, "ada@acme.example") == NOWHERE


async def test_the_lookup_depends_on_the_domain_only(api: Api, tenants: Tenants, acme: Tenant, dns: FakeTxtRecords) -> None:
    await prove_domain(acme, dns, "acme.example")
    await put_routes(acme, routes(acme_example="websuite"))
    await add_account(tenants.ports, "known@other.example")
    for known_email, unknown_email in (("owner@acme.example", "unknown@acme.example"), ("known@other.example", "unknown@other.example")):
        first, second = [await api.post("/api/auth/lookup-email", {"email": email}) for email in (known_email, unknown_email)]
        assert (first.status, first.text) == (second.status, second.text)
    # The caller makes no difference.
    answer = await api.post("/api/auth/lookup-email", {"email": "a@acme.example"}, token="not.a.token")
    assert answer.json == provider_match("acme", "websuite")


async def test_the_lookup_carries_an_application_that_may_use_the_provider(
    api: Api, acme: Tenant, other_tenant: Tenant, dns: FakeTxtRecords, ports: Ports
) -> None:
    await prove_domain(acme, dns, "acme.example")
    await put_routes(acme, routes(acme_example="websuite"))
    for team in (acme, other_tenant):
        await add_service(team.pool, team.org, "shop")
    own = f"{BASE_URL}/auth/websuite?org=acme"

    async def url(**fields: object) -> str:
        answer = await api.post("/api/auth/lookup-email", {"email": "ada@acme.example", **fields})
        assert answer.status == 200, answer.text
        return str(answer.json["authorization_url"])

    async def urls() -> list[str]:
        return [await url(org=team.slug, service="shop") for team in (acme, other_tenant)]

    carried = [f"{BASE_URL}/auth/websuite?org={team.slug}&service=shop" for team in (acme, other_tenant)]
    assert await urls() == [own, own], "there are no credentials at the provider"
    put = {"client_id": "x", "client_secret": "y"}
    path = f"{other_tenant.path}/services/shop/oauth-credentials/websuite"
    assert (await api.call("PUT", path, put, token=other_tenant.token("owner"))).status == 200
    assert await urls() == [own, carried[1]]
    await other_tenant.set_status("suspended")
    assert await urls() == [own, own]
    await other_tenant.set_status("active")
    for fields in ({}, {"org": "twin"}, {"service": "shop"}, {"org": "twin", "service": "x"}, {"org": "x", "service": "shop"},
                   {"org": None, "service": None}, {"org": "", "service": ""}):  # fmt: skip
        assert await url(**fields) == own, fields


async def test_an_invalid_email_address_is_refused(api: Api, pool: Pool) -> None:
    for body in ({"email": "acme.example"}, {"email": "a@localhost"}, {"email": ""}, {}, {"email": 5}, {"email": "a@b@acme.example"}):
        answer = await api.post("/api/auth/lookup-email", body)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), body
