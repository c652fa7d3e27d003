"""The end-user list: fields, pages, filters and search (security T-2, T-3)."""

from datetime import timedelta
from urllib.parse import urlencode

import pytest

from core.kernel.values import new_id
from tests.accounts.email_changes import change_email
from tests.applications.api.end_users.applications import Applications, format_time
from tests.fakes.outside import FakeClock
from tests.support.builders import PASSWORD, add_account, run_sql, sign_in
from tests.support.refusals import BAD, refused
from tests.support.services import add_service_user


async def test_an_end_user_is_listed_with_the_services_of_the_organization(apps: Applications, clock: FakeClock) -> None:
    user = await apps.person("ada", "wiki")
    await run_sql(apps.acme.pool, "update users set mfa_enabled_at = now() where id = %s", user.id)
    began = clock.now()
    clock.advance(timedelta(minutes=1))
    await apps.use("ada", "shop")
    clock.advance(timedelta(minutes=1))
    await apps.use("ada", "other")
    answer = await apps.page()
    assert answer.status == 200
    assert answer.json == {
        "users": [
            {
                "id": str(user.id),
                "email": "ada@people.example",
                "created_at": format_time(user.created_at),
                "last_login_at": format_time(began + timedelta(minutes=1)),
                "mfa_enabled": True,
                "protection": "protected",
                "factors": ["app"],
                "services": ["shop", "wiki"],
                "blocked": False,
            }
        ],
        "pagination": {"page": 1, "limit": 50, "total": 1, "total_pages": 1, "has_next": False, "has_prev": False},
    }
    [other_entry] = (await apps.page(of=apps.other_tenant)).json["users"]
    assert (other_entry["services"], other_entry["last_login_at"]) == (["shop"], format_time(clock.now()))


async def test_a_user_created_by_an_api_key_is_listed_before_the_first_login(apps: Applications) -> None:
    await apps.person("ada")
    await apps.use("ada", "shop", signed_in=False)
    [user] = (await apps.page()).json["users"]
    assert (user["services"], user["last_login_at"], user["mfa_enabled"]) == (["shop"], None, False)


async def test_a_login_to_a_service_makes_an_end_user(apps: Applications) -> None:
    account = await add_account(apps.acme.ports)
    body = {"email": account.email, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"}
    assert (await apps.acme.api.post("/api/auth/login", body)).status == 200
    assert await apps.names() == ([account.email.partition("@")[0]], 1)


@pytest.mark.parametrize("by", ["owner", "admin", "member"])
async def test_every_member_can_list_end_users_and_members_are_not_end_users(apps: Applications, clock: FakeClock, by: str) -> None:
    await apps.person("ada", "shop")
    await apps.person("eve", "other")
    answer = await apps.page(by=by)
    assert [user["email"] for user in answer.json["users"]] == ["ada@people.example"]
    # A member who is also an end user appears in the member list and in the end-user list.
    clock.advance(timedelta(seconds=1))
    apps.people["member"] = apps.acme.people["member"]
    await apps.use("member", "wiki")
    assert [user["email"] for user in (await apps.page(by=by)).json["users"]] == ["member@acme.example", "ada@people.example"]


async def test_pages_are_newest_first(apps: Applications, clock: FakeClock) -> None:
    for number in range(5):
        clock.advance(timedelta(seconds=1))
        await apps.person(f"p{number}", "shop", "other")
    assert await apps.names() == (["p4", "p3", "p2", "p1", "p0"], 5)
    assert await apps.names("?limit=2") == (["p4", "p3"], 5)
    assert await apps.names("?limit=2&page=3") == (["p0"], 5)
    assert await apps.names("?limit=2&page=4") == ([], 5)
    answer = await apps.page("?limit=2&page=2")
    assert answer.json["pagination"] == {"page": 2, "limit": 2, "total": 5, "total_pages": 3, "has_next": True, "has_prev": True}
    clamped = (await apps.page(f"?limit={10**30}&page=-5")).json["pagination"]
    assert (clamped["limit"], clamped["page"]) == (100, 1)
    assert await apps.names(f"?page={10**30}") == ([], 5)
    for query in ("?limit=x", "?page=1.5", "?limit=", "?search=%00", "?search=" + "x" * 2049):
        assert refused(await apps.page(query)) == BAD, query


async def test_the_list_can_be_filtered_by_service(apps: Applications, clock: FakeClock) -> None:
    for name, services in (("ada", ("shop", "other")), ("bob", ("wiki",)), ("eve", ("wiki", "shop")), ("joe", ("other",))):
        clock.advance(timedelta(seconds=1))
        await apps.person(name, *services)
    assert await apps.names(f"?service_id={apps.services['shop']}") == (["eve", "ada"], 2)
    assert await apps.names(f"?service_id={apps.services['wiki']}") == (["eve", "bob"], 2)
    clock.advance(timedelta(seconds=1))
    await apps.use("ada", "wiki")
    assert await apps.names(f"?service_id={apps.services['wiki']}") == (["ada", "eve", "bob"], 3)
    assert await apps.names(f"?service_id={apps.services['wiki']}&limit=1&page=2") == (["eve"], 3)
    [eve] = [user for user in (await apps.page(f"?service_id={apps.services['shop']}")).json["users"] if "eve" in user["email"]]
    assert eve["services"] == ["shop", "wiki"], "the filter selects users, not their services"


async def test_a_filter_by_an_unknown_service_matches_no_users(apps: Applications) -> None:
    await apps.person("ada", "shop", "other")
    for service in (apps.services["other"], new_id(), str(apps.services["shop"]).upper(), "x", "", "shop"):
        for search in ("", "&search=ada"):
            assert await apps.names(f"?service_id={service}{search}") == ([], 0), service


async def test_a_search_matches_parts_of_email_addresses_in_any_case(apps: Applications, clock: FakeClock) -> None:
    for name in ("ada_l", "bob", "eve%"):
        clock.advance(timedelta(seconds=1))
        await apps.person(name, "shop", "other")
    await apps.person("ada-of-twin", "other")
    for search, names in (
        ("ada", ["ada_l"]),
        ("ADA", ["ada_l"]),
        ("%20Ada%20", ["ada_l"]),
        ("people.EXAMPLE", ["eve%", "bob", "ada_l"]),
        ("_", ["ada_l"]),
        ("%25", ["eve%"]),
        ("%5C", []),
        ("a%25", []),
        ("unmatched", []),
        ("%C3%9C", []),
        ("", ["eve%", "bob", "ada_l"]),
        ("%20", ["eve%", "bob", "ada_l"]),
    ):
        assert await apps.names(f"?search={search}") == (names, len(names)), search
        assert await apps.names(f"?search={search}&service_id={apps.services['shop']}") == (names, len(names)), search
        assert await apps.names(f"?search={search}&service_id={apps.services['wiki']}") == ([], 0), search
        assert await apps.names(f"?search={search}&limit=1&page=2") == (names[1:2], len(names)), search


async def test_a_search_matches_both_forms_of_a_domain(apps: Applications) -> None:
    account = await add_account(apps.acme.ports, "ada@m\u00fcnchen.example", None)
    await add_service_user(apps.acme.ports, apps.services["shop"], account.id)
    for search in ("m\u00fcnchen", "@M\u00dcNCHEN.", "da@m\u00fcnchen.example", "xn--mnchen-3ya"):
        assert await apps.names(f"?{urlencode({'search': search})}") == (["ada"], 1), search
    for search in ("m\u00fcnch", "\u00fc@m\u00fcnchen.example", "m\u00fcnchen..example", "\uff4d\u00fcnchen", "\u00fc" * 2048):
        assert await apps.names(f"?{urlencode({'search': search})}") == ([], 0), search


async def test_a_changed_email_address_is_listed_and_matched(apps: Applications) -> None:
    user = await apps.person("ada", "shop", "other")
    token = (await sign_in(apps.acme.ports, user)).access_token
    assert (await change_email(apps.acme.api, apps.acme.ports, token, "countess@people.example")).status == 200
    for tenant in (apps.acme, apps.other_tenant):
        assert await apps.names(of=tenant) == await apps.names("?search=countess", of=tenant) == (["countess"], 1)
        assert await apps.names("?search=ada", of=tenant) == ([], 0)


async def test_deactivated_users_are_not_listed(apps: Applications) -> None:
    user = await apps.person("ada", "shop")
    await apps.person("eve", "shop", deactivated_at=None)
    await run_sql(apps.acme.pool, "update users set deactivated_at = now() where id = %s", user.id)
    for query in ("", "?search=people", f"?service_id={apps.services['shop']}", f"?search=people&service_id={apps.services['shop']}"):
        assert await apps.names(query) == (["eve"], 1)
    assert (await apps.show("ada")).status == 200, "the details are still available by id"
