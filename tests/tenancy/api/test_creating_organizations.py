"""Creating organizations."""

from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.policy import Policy
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import (
    FREE_ID,
    Answer,
    Api,
    add_account,
    add_organization,
    add_person,
    add_platform_owner,
    impersonate,
    run_concurrently,
    run_sql,
)
from tests.support.direct import change_ports
from tests.tenancy.organizations import ACME, NOT_ACTIVE, NOW, log, recorded_events, set_status, token_of


async def test_a_new_organization_is_pending_on_the_free_tier_and_owned_by_its_creator(api: Api, ports: Ports, pool: Pool) -> None:
    user, token = await add_person(ports, pool, "ada")
    answer = await api.post("/api/organizations", {"slug": "acme", "name": "  Acme Ltd. "}, token=token)
    assert answer.status == 200
    org = answer.json["organization"]["id"]
    assert answer.json == {
        "organization": {
            "id": org,
            "slug": "acme",
            "name": "Acme Ltd.",
            "status": "pending",
            "tier_id": FREE_ID,
            "max_services": None,
            "max_users": None,
            "device_trust_days": 30,
            "personal_tokens": True,
            "members_see_end_users": True,
            "created_at": NOW,
            "updated_at": NOW,
            "approved_at": None,
        },
        "membership": {
            "id": answer.json["membership"]["id"],
            "org_id": org,
            "user_id": str(user.id),
            "role": "owner",
            "roles": ["owner"],
            "created_at": NOW,
        },
    }
    details = {"slug": "acme", "name": "Acme Ltd.", "status": "pending"}
    assert await log(pool) == [(UUID(org), "organization.created", "organization", org, user.id, details)]
    assert await recorded_events(pool) == [(UUID(org), "organization.created", org, details)]
    assert await run_sql(pool, "select member_count from organizations") == [(1,)]


async def test_its_creator_is_a_confirmed_member(api: Api, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    _, token = await add_person(ports, pool, "ada")
    await api.post("/api/organizations", {"slug": "acme", "name": "Acme"}, token=token)
    assert await run_sql(pool, "select confirmed_at from memberships") == [(clock.now(),)]


async def test_an_impersonator_cannot_create_an_organization(api: Api, ports: Ports, pool: Pool) -> None:
    user, _ = await add_person(ports, pool, "ada")
    token = await impersonate(ports, await add_platform_owner(ports), user)
    assert (await api.post("/api/organizations", {"slug": "acme", "name": "Acme"}, token=token)).status == 403
    assert await run_sql(pool, "select * from organizations") == []


async def test_a_new_organization_is_active_if_approval_is_turned_off(api: Api, app: QuartTrio, ports: Ports, pool: Pool) -> None:
    change_ports(app, policy=Policy(auto_approve_organizations=True))
    _, token = await add_person(ports, pool, "ada")
    created = (await api.post("/api/organizations", {"slug": "acme", "name": "Acme"}, token=token)).json["organization"]
    assert (created["status"], created["approved_at"]) == ("active", NOW)
    assert (await api.post(f"{ACME}/select", token=token)).status == 200


async def test_creating_an_organization_needs_a_verified_address(api: Api, ports: Ports, pool: Pool) -> None:
    account = await add_account(ports, "eve@example.com", None, verified=False)
    token = await token_of(ports, account)
    for body in ({"slug": "acme", "name": "Acme"}, {}, {"slug": 5}):
        answer = await api.post("/api/organizations", body, token=token)
        assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert "erify your email address" in answer.json["error"]
    assert await run_sql(pool, "select * from organizations") == []
    await run_sql(pool, "update users set email_verified_at = now()")
    assert (await api.post("/api/organizations", {"slug": "acme", "name": "Acme"}, token=token)).status == 200


INVALID_SLUGS = [
    "",
    "-",
    "a-",
    "-a",
    "a--b",
    "A",
    "Acme",
    "a_b",
    "a b",
    " acme",
    "acme ",
    "a.b",
    "ä",
    "a" * 64,
    "acme\n",
    "api",
    "admin",
    "select",
]


async def test_an_invalid_slug_is_refused(api: Api, ports: Ports, pool: Pool) -> None:
    _, token = await add_person(ports, pool, "ada")
    for slug in INVALID_SLUGS:
        answer = await api.post("/api/organizations", {"slug": slug, "name": "Acme"}, token=token)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), slug
    assert await run_sql(pool, "select * from organizations") == []


async def test_valid_slugs_are_accepted(api: Api, ports: Ports, pool: Pool) -> None:
    _, token = await add_person(ports, pool, "ada")
    for slug in ("a", "7", "a1-b2-c3", "a" * 63):
        assert (await api.post("/api/organizations", {"slug": slug, "name": "Acme"}, token=token)).json["organization"]["slug"] == slug


INVALID_NAMES = ["", " ", "\u2003", "x" * 101, "a\x00b", "a\nb", "name\n", "\u202egnp.exe", "\x85"]


async def test_an_invalid_name_is_refused(api: Api, ports: Ports, pool: Pool) -> None:
    _, token = await add_person(ports, pool, "ada")
    for name in INVALID_NAMES:
        answer = await api.post("/api/organizations", {"slug": "acme", "name": name}, token=token)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), name
        assert '"name"' in answer.json["error"]
    assert await run_sql(pool, "select * from organizations") == []


async def test_a_name_has_up_to_a_hundred_characters_of_any_script(api: Api, ports: Ports, pool: Pool) -> None:
    _, token = await add_person(ports, pool, "ada")
    for number, name in enumerate(["x", "x" * 100, f"  {'x' * 100}  ", "Zoë & Söhne 株式会社 <b>"]):
        answer = await api.post("/api/organizations", {"slug": f"acme-{number}", "name": name}, token=token)
        assert answer.json["organization"]["name"] == name.strip()


async def test_a_slug_is_unique_across_all_statuses(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    _, own_token = await add_person(ports, pool, "ada", org, "owner")
    _, strange = await add_person(ports, pool, "eve")
    answers = []
    for status in ("active", *NOT_ACTIVE):
        await set_status(pool, status)
        answers += [await api.post("/api/organizations", {"slug": "acme", "name": "Acme"}, token=token) for token in (own_token, strange)]
    assert {(answer.status, answer.code) for answer in answers} == {(400, "BAD_REQUEST")}
    assert len({answer.json["error"] for answer in answers}) == 1
    assert await run_sql(pool, "select count(*) from memberships") == [(1,)]


@pytest.mark.slow
async def test_one_of_twenty_concurrent_requests_gets_the_slug(api: Api, ports: Ports, pool: Pool) -> None:
    tokens = [(await add_person(ports, pool, f"person-{number}"))[1] for number in range(10)]

    async def create(number: int) -> Answer:
        return await api.post("/api/organizations", {"slug": "acme", "name": f"Acme {number}"}, token=tokens[number % 10])

    answers = await run_concurrently(20, create)
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert {answer.code for answer in answers if answer.status == 400} == {"BAD_REQUEST"}
    [winner] = [answer.json for answer in answers if answer.status == 200]
    assert await run_sql(pool, "select id, name, member_count from organizations") == [
        (UUID(winner["organization"]["id"]), winner["organization"]["name"], 1)
    ]
    assert await run_sql(pool, "select user_id, role from memberships") == [(UUID(winner["membership"]["user_id"]), "owner")]
    assert await run_sql(pool, "select count(*) from audit_log") == [(1,)]


async def create(api: Api, token: str, slug: str) -> Answer:
    return await api.post("/api/organizations", {"slug": slug, "name": slug.title()}, token=token)


async def test_five_organizations_of_one_account_can_wait_for_approval(api: Api, ports: Ports, pool: Pool) -> None:
    _, token = await add_person(ports, pool, "ada")
    _, other = await add_person(ports, pool, "eve")
    answers = await run_concurrently(20, lambda number: create(api, token, f"org-{number}"))
    assert sorted(answer.status for answer in answers) == [200] * 5 + [400] * 15
    assert {answer.code for answer in answers if answer.status == 400} == {"BAD_REQUEST"}
    assert await run_sql(pool, "select count(*) from organizations") == [(5,)]
    assert (await create(api, other, "theirs")).status == 200, "another account has a limit of its own"
    await run_sql(pool, "update organizations set status = 'active' where id = (select min(id::text)::uuid from organizations)")
    assert {(await create(api, token, f"next-{number}")).status for number in range(2)} >= {400}


async def test_an_organization_of_a_platform_owner_is_active_at_once_on_the_page(owner_browser: FakeBrowser, pool: Pool) -> None:
    """In the API it waits, as all organizations do."""
    await run_sql(pool, "update users set is_platform_owner = true")
    created = await owner_browser.submit("/app/organizations/new", "/app/organizations/new", name="Globex", slug="")
    assert leads_to(created) == "/app/organizations/globex"
    stored = "select status, approved_at is not null, member_count, tier_id is not null from organizations where slug = 'globex'"
    assert await run_sql(pool, stored) == [("active", True, 1, True)]
    assert await run_sql(
        pool, "select role, confirmed_at is not null from memberships m join organizations o on o.id = m.org_id where o.slug = 'globex'"
    ) == [("owner", True)]
    actions = await run_sql(pool, "select name from events where org_id = (select id from organizations where slug = 'globex')")
    assert {"organization.created", "organization.approved"} <= {name for (name,) in actions}
    again = await owner_browser.submit("/app/organizations/new", "/app/organizations/new", name="Globex", slug="globex")
    assert (again.status, "already" in again.text) == (400, True)


async def test_an_organization_of_another_user_waits_on_the_page(owner_browser: FakeBrowser, pool: Pool) -> None:
    created = await owner_browser.submit("/app/organizations/new", "/app/organizations/new", name="Globex", slug="")
    assert leads_to(created) == "/app/account/organizations"
    assert await run_sql(pool, "select status from organizations where slug = 'globex'") == [("pending",)]
