"""Organizations for their members: listing, reading, changing (decisions 48, 54, 207)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import (
    FREE_ID,
    Answer,
    Api,
    add_account,
    add_member,
    add_organization,
    add_person,
    add_platform_owner,
    run_concurrently,
    run_sql,
)
from tests.tenancy.organizations import ACME, NOT_ACTIVE, ROLES, log, recorded_events, refresh, set_status, token_of

# Listing and reading


async def test_a_user_lists_their_own_organizations_in_any_status(api: Api, ports: Ports, pool: Pool) -> None:
    user, token = await add_person(ports, pool, "ada")
    _, other = await add_person(ports, pool, "eve")
    for slug, status, role in (
        ("b", "suspended", "owner"),
        ("c", "pending", "admin"),
        ("a", "active", "member"),
        ("d", "rejected", "owner"),
    ):
        await add_member(pool, await add_organization(pool, slug, status), user.id, role)
    await add_organization(pool, "foreign")
    organizations = (await api.get("/api/organizations", token=token)).json
    assert [(item["organization"]["slug"], item["organization"]["status"], item["membership"]["role"]) for item in organizations] == [
        ("a", "active", "member"),
        ("b", "suspended", "owner"),
        ("c", "pending", "admin"),
        ("d", "rejected", "owner"),
    ]
    assert {item["membership"]["user_id"] for item in organizations} == {str(user.id)}
    assert all(item["membership"]["org_id"] == item["organization"]["id"] for item in organizations)
    assert (await api.get("/api/organizations", token=other)).json == []


@pytest.mark.parametrize("role", ROLES)
async def test_every_member_reads_the_organization_in_any_status(api: Api, ports: Ports, pool: Pool, role: str) -> None:
    org = await add_organization(pool, "acme")
    _, token = await add_person(ports, pool, "ada", org, role)
    for status in ("active", *NOT_ACTIVE):
        await set_status(pool, status)
        answer = await api.get(ACME, token=token)
        assert (answer.status, answer.json["id"], answer.json["status"]) == (200, str(org), status)


async def test_the_response_has_every_field_except_the_reasons(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme", "suspended")
    _, token = await add_person(ports, pool, "ada", org, "owner")
    changes = """
        update organizations set name = 'Acme Ltd.', max_services = 7, max_users = 8, device_trust_days = 9,
               created_at = %s, updated_at = %s, approved_at = %s, rejected_reason = 'why not', suspended_reason = 'because'"""
    times = [datetime(2026, 1, day, 12, 30, tzinfo=UTC) for day in (1, 2, 3)]
    await run_sql(pool, changes, *times)
    answer = await api.get(ACME, token=token)
    assert answer.json == {
        "id": str(org),
        "slug": "acme",
        "name": "Acme Ltd.",
        "status": "suspended",
        "tier_id": FREE_ID,
        "max_services": 7,
        "max_users": 8,
        "device_trust_days": 9,
        "personal_tokens": True,
        "members_see_end_users": True,
        "created_at": "2026-01-01T12:30:00Z",
        "updated_at": "2026-01-02T12:30:00Z",
        "approved_at": "2026-01-03T12:30:00Z",
        "limits": {"max_users": 8, "max_users_source": "organization", "max_services": 7, "max_services_source": "organization"},
    }
    [organization] = (await api.get("/api/organizations", token=token)).json
    assert organization["organization"] == {name: value for name, value in answer.json.items() if name != "limits"}


async def test_a_limit_comes_from_the_organization_the_tier_or_the_default(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    _, token = await add_person(ports, pool, "ada", org)

    async def limits() -> list[object]:
        return list((await api.get(ACME, token=token)).json["limits"].values())

    assert await limits() == [100, "tier", 3, "tier"]
    await run_sql(pool, "update organizations set tier_id = (select id from tiers where name = 'professional'), max_users = 0")
    assert await limits() == [0, "organization", 10, "tier"]
    await run_sql(pool, "update organizations set tier_id = null, max_users = null")
    assert await limits() == [5, "default", 5, "default"]


REQUESTS: list[tuple[str, str, Any]] = [
    ("GET", ACME, None),
    ("PATCH", ACME, {"name": "Theirs"}),
    ("DELETE", ACME, None),
    ("POST", f"{ACME}/select", None),
]


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
async def test_non_members_cannot_reach_the_organization(api: Api, ports: Ports, pool: Pool, method: str, path: str, body: Any) -> None:
    """Platform owners and the owners of other organizations are not members either (decision 19)."""
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    await add_person(ports, pool, "ada", org, "owner")
    twins_owner, _ = await add_person(ports, pool, "eve", other_tenant, "owner")
    stranger = await add_account(ports, "stranger@example.com", None)
    boss = await add_platform_owner(ports)
    before = await run_sql(pool, "select * from organizations order by slug")
    for account, context in ((stranger, None), (twins_owner, None), (twins_owner, other_tenant), (boss, None)):
        answer = await api.call(method, path, body, token=await token_of(ports, account, context))
        assert (answer.status, answer.code) == (403, "FORBIDDEN")
        for slug in ("acme-two", "ACME", "acm", "%27", "nothing there"):
            unknown = await api.call(method, path.replace("acme", slug), body, token=await token_of(ports, account, context))
            assert (unknown.status, unknown.code) == (404, "NOT_FOUND"), slug
    assert (await api.call(method, path, body)).code == "UNAUTHORIZED"
    assert await run_sql(pool, "select * from organizations order by slug") == before
    assert await log(pool) == []


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
async def test_a_token_of_a_deleted_organization_does_not_work_in_its_successor(
    api: Api, ports: Ports, pool: Pool, method: str, path: str, body: Any
) -> None:
    """Slug and owner are the same, but the id in the token is not (security J-6)."""
    org = await add_organization(pool, "acme")
    user, token = await add_person(ports, pool, "ada", org, "owner")
    of_old = await token_of(ports, user, org)
    assert (await api.delete(ACME, token=of_old)).status == 204
    created = await api.post("/api/organizations", {"slug": "acme", "name": "Acme"}, token=token)
    assert created.status == 200
    await set_status(pool, "active")
    answer = await api.call(method, path, body, token=of_old)
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert (await api.call(method, path, body, token=token)).status in (200, 204)


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
async def test_a_token_of_another_organization_works_because_its_organization_is_only_context(
    api: Api, ports: Ports, pool: Pool, method: str, path: str, body: Any
) -> None:
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    user, _ = await add_person(ports, pool, "ada", org, "owner")
    await add_member(pool, other_tenant, user.id)
    assert (await api.call(method, path, body, token=await token_of(ports, user, other_tenant))).status in (200, 204)
    assert await run_sql(pool, "select name from organizations where slug = 'twin'") == [("Twin",)]


@pytest.mark.parametrize("end", ["delete from organizations where id = %s", "delete from memberships where org_id = %s"])
async def test_routes_outside_of_organizations_accept_a_token_of_a_deleted_one(api: Api, ports: Ports, pool: Pool, end: str) -> None:
    """The organization in the token is only context (decision 54).

    The profile shows it, and is refused.
    """
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    user, _ = await add_person(ports, pool, "ada", org, "owner")
    await add_member(pool, other_tenant, user.id)
    token = await token_of(ports, user, org)
    await run_sql(pool, end, org)
    assert [item["organization"]["slug"] for item in (await api.get("/api/organizations", token=token)).json] == ["twin"]
    assert (await api.get("/api/invitations", token=token)).json == []
    created = await api.post("/api/organizations", {"slug": "acme-two", "name": "Acme Two"}, token=token)
    assert (created.status, created.json["membership"]["role"]) == (200, "owner")
    answer = await api.get("/api/user", token=token)
    assert (answer.status, answer.code) == (403, "FORBIDDEN")


# Inactive organizations


@pytest.mark.parametrize("role", ROLES)
async def test_an_inactive_organization_can_only_be_read(api: Api, ports: Ports, pool: Pool, role: str) -> None:
    org = await add_organization(pool, "acme")
    _, token = await add_person(ports, pool, "ada", org, role)
    for status in NOT_ACTIVE:
        await set_status(pool, status)
        for method, path, body in REQUESTS[1:]:
            answer = await api.call(method, path, body, token=token)
            lacks = {"PATCH": ("member",), "DELETE": ("admin", "member"), "POST": ()}[method]
            # The role is checked before the status.
            assert (answer.status, answer.code) == (403, "FORBIDDEN" if role in lacks else "ORGANIZATION_NOT_ACTIVE")
    assert await run_sql(pool, "select name from organizations") == [("Acme",)]


async def test_suspension_takes_effect_with_the_next_request_and_activation_restores_access(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    _, token = await add_person(ports, pool, "ada", org, "owner")
    selection = (await api.post(f"{ACME}/select", token=token)).json
    token = selection["access_token"]
    assert (await api.patch(ACME, {"name": "One"}, token=token)).status == 200
    await set_status(pool, "suspended")
    for answer in (
        await api.patch(ACME, {"name": "Two"}, token=token),
        await api.delete(ACME, token=token),
        await api.post(f"{ACME}/select", token=token),
        await refresh(api, selection["refresh_token"]),
    ):
        assert (answer.status, answer.code) == (403, "ORGANIZATION_NOT_ACTIVE")
    # Routes outside the organization still work (decision 48).
    assert (await api.get("/api/user", token=token)).json["org"] == "acme"
    assert (await api.get("/api/organizations", token=token)).status == 200
    assert (await api.get(ACME, token=token)).json["status"] == "suspended"
    await set_status(pool, "active")
    assert (await api.patch(ACME, {"name": "Two"}, token=token)).status == 200
    assert (await refresh(api, selection["refresh_token"])).status == 200


# Changing


async def test_owner_and_admins_change_the_name_and_the_device_trust_period(api: Api, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    org = await add_organization(pool, "acme")
    other_tenant = await add_organization(pool, "twin")
    _, owner = await add_person(ports, pool, "ada", org, "owner")
    admin, admins = await add_person(ports, pool, "bob", org, "admin")
    clock.advance(timedelta(minutes=5))
    before = (await api.get(ACME, token=owner)).json
    answer = await api.patch(ACME, {"name": " Acme Ltd.", "device_trust_days": 90}, token=admins)
    assert answer.status == 200
    assert answer.json == {**before, "name": "Acme Ltd.", "device_trust_days": 90, "updated_at": "2026-03-14T15:14:26.535897Z"}
    assert (await api.get(ACME, token=owner)).json == answer.json
    clock.advance(timedelta(minutes=5))
    assert (await api.patch(ACME, {"device_trust_days": 1}, token=owner)).json["device_trust_days"] == 1
    assert await run_sql(pool, "select name, device_trust_days from organizations where id = %s", other_tenant) == [("Twin", 30)]
    first, second = await log(pool)
    details = {"name": {"old": "Acme", "new": "Acme Ltd."}, "device_trust_days": {"old": 30, "new": 90}}
    assert first == (org, "organization.updated", "organization", str(org), admin.id, details)
    assert second[-1] == {"device_trust_days": {"old": 90, "new": 1}}
    assert [row[3] for row in await recorded_events(pool)] == [first[-1], second[-1]]


async def test_an_old_session_changes_no_setting(api: Api, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    org = await add_organization(pool, "acme")
    _, token = await add_person(ports, pool, "ada", org, "owner")
    await run_sql(pool, "update organizations set personal_tokens = false")
    await run_sql(pool, "update sessions set authenticated_at = %s", clock.now() - timedelta(minutes=61))
    for body in ({"device_trust_days": 29}, {"personal_tokens": True}, {"name": "Other"}, {"members_see_end_users": False}):
        answer = await api.patch(ACME, body, token=token)
        assert (answer.status, answer.json["error_code"]) == (401, "UNAUTHORIZED"), answer.text
    assert await run_sql(pool, "select personal_tokens, device_trust_days from organizations") == [(False, 30)]


async def test_an_update_without_a_change_writes_nothing(api: Api, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    org = await add_organization(pool, "acme")
    _, token = await add_person(ports, pool, "ada", org, "owner")
    before = (await api.get(ACME, token=token)).json
    clock.advance(timedelta(minutes=5))
    for body in ({"name": "Acme"}, {"device_trust_days": 30}, {"name": " Acme ", "device_trust_days": 30}):
        answer = await api.patch(ACME, body, token=token)
        assert (answer.status, answer.json) == (200, before)
    assert await log(pool) == []
    await api.patch(ACME, {"name": "Acme", "device_trust_days": 31}, token=token)
    assert [entry[-1] for entry in await log(pool)] == [{"device_trust_days": {"old": 30, "new": 31}}]


INVALID_NAMES = ["", " ", "\u2003", "x" * 101, "a\x00b", "a\nb", "name\n", "\u202egnp.exe", "\x85"]
DAYS: list[Any] = [0, -1, 91, 10**18, True, 30.0, 30.5, "30", [30], {}]
CHANGES: list[Any] = [
    {},
    {"unknown": 1},
    {"slug": "other"},
    {"status": "active"},
    {"name": None},
    {"device_trust_days": None},
    {"name": "Acme", "device_trust_days": None},
    *({"name": name} for name in INVALID_NAMES),
    {"name": 5},
    *({"device_trust_days": days} for days in DAYS),
    *({"personal_tokens": value} for value in (None, 1, "true", "off")),
    *({"members_see_end_users": value} for value in (None, 1, "true", "off")),
]


async def test_an_invalid_change_is_refused(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    _, token = await add_person(ports, pool, "ada", org, "owner")
    for body in CHANGES:
        answer = await api.patch(ACME, body, token=token)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), body
    assert await run_sql(pool, "select name, device_trust_days, status from organizations") == [("Acme", 30, "active")]
    assert await log(pool) == []


async def test_other_fields_cannot_be_changed(api: Api, ports: Ports, pool: Pool) -> None:
    """Unknown fields are ignored (security N-5)."""
    org = await add_organization(pool, "acme")
    _, token = await add_person(ports, pool, "ada", org, "owner")
    body = {"name": "New", "slug": "other", "status": "pending", "tier_id": None, "max_users": 10**6, "max_services": 10**6, "id": "x"}
    assert (await api.patch(ACME, body, token=token)).status == 200
    row = await run_sql(pool, "select slug, name, status, tier_id::text, max_users, max_services from organizations")
    assert row == [("acme", "New", "active", FREE_ID, None, None)]


async def test_members_cannot_change_and_admins_cannot_delete_the_organization(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    _, member = await add_person(ports, pool, "bob", org, "member")
    _, admin = await add_person(ports, pool, "cid", org, "admin")
    for answer in (
        await api.patch(ACME, {"name": "New"}, token=member),
        await api.patch(ACME, {}, token=member),
        await api.delete(ACME, token=member),
        await api.delete(ACME, token=admin),
    ):
        assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert await run_sql(pool, "select name from organizations") == [("Acme",)]


async def test_concurrent_changes_are_all_kept(api: Api, ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    _, token = await add_person(ports, pool, "ada", org, "owner")

    async def change(number: int) -> Answer:
        return await api.patch(ACME, {"name": "New"} if number % 2 else {"device_trust_days": 60}, token=token)

    assert {answer.status for answer in await run_concurrently(20, change)} == {200}
    assert await run_sql(pool, "select name, device_trust_days from organizations") == [("New", 60)]
    assert len(await log(pool)) == 2
