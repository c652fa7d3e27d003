"""The callers that can read and revoke, and concurrent changes (security Z-5, Z-6)."""

from typing import TYPE_CHECKING

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.api_scopes import ApiScope
from core.kernel.values import new_id
from tests.accounts.email_changes import change_email
from tests.applications.api.service_users import check_counts
from tests.fakes.outside import FakeClock
from tests.support.builders import PASSWORD, Answer, add_account, run_concurrently, run_during, run_sql, sign_in
from tests.support.personal_tokens import add_personal_token
from tests.support.refusals import FORBIDDEN, MISSING, NOT_ACTIVE, UNAUTHORIZED, refused
from tests.support.services import add_api_key
from tests.support.tenants import Tenants

if TYPE_CHECKING:
    from collections.abc import Mapping
from tests.applications.api.end_users.applications import Applications


async def test_callers_from_outside_are_refused(apps: Applications, tenants: Tenants) -> None:
    await apps.person("ada", "shop", "other")
    stranger = (await sign_in(tenants.ports, await add_account(tenants.ports))).access_token
    tokens: Mapping[str | None, tuple[int, str]] = {
        None: UNAUTHORIZED,
        stranger: FORBIDDEN,
        apps.other_tenant.token("owner"): FORBIDDEN,
        (await apps.session("ada", "shop")).access_token: FORBIDDEN,
    }
    before = await tenants.everything()
    for token, refusal in tokens.items():
        for user in (str(apps.people["ada"].id), "x"):
            assert refused(await tenants.api.get(f"{apps.acme.path}/users?limit=x", token=token)) == refusal
            assert refused(await tenants.api.get(f"{apps.acme.path}/users/{user}", token=token)) == refusal
            assert refused(await tenants.api.delete(f"{apps.acme.path}/users/{user}/sessions", token=token)) == refusal
    assert refused(await tenants.api.get("/api/organizations/nothing-there/users", token=stranger)) == MISSING
    assert await tenants.everything() == before


async def test_plain_members_can_read_but_not_revoke(apps: Applications) -> None:
    await apps.person("ada", "shop")
    session = await apps.session("ada", "shop")
    assert (await apps.show("ada", by="member")).status == 200
    assert refused(await apps.revoke("ada", by="member")) == FORBIDDEN
    missing = f"{apps.acme.path}/users/{new_id()}/sessions"
    assert refused(await apps.acme.api.delete(missing, token=apps.acme.token("member"))) == FORBIDDEN, (
        "refused before the user is looked up"
    )
    assert await apps.live_sessions(session) == [True]


async def test_an_organization_hides_end_users_from_plain_members(apps: Applications) -> None:
    await apps.person("ada", "shop")
    org, admin = apps.acme.path, apps.acme.token("admin")
    assert (await apps.acme.api.get(org, token=admin)).json["members_see_end_users"] is True
    answer = await apps.acme.api.patch(org, {"members_see_end_users": False}, token=admin)
    assert (answer.status, answer.json["members_see_end_users"]) == (200, False)
    assert refused(await apps.show("ada", by="member")) == FORBIDDEN
    assert refused(await apps.page(by="member")) == FORBIDDEN
    assert refused(await apps.acme.api.get(f"{org}/analytics/recent-logins", token=apps.acme.token("member"))) == FORBIDDEN
    assert (await apps.show("ada", by="admin")).status == 200
    entry = await apps.acme.entry("organization.updated")
    assert entry["details"] == {"members_see_end_users": {"old": True, "new": False}}
    account = apps.acme.people["owner"]
    narrow = (await add_personal_token(apps.acme.ports, account, apps.acme.org, (ApiScope.ORGANIZATION_WRITE,))).text
    assert refused(await apps.acme.api.patch(org, {"members_see_end_users": True}, token=narrow)) == FORBIDDEN
    assert (await apps.acme.api.patch(org, {"members_see_end_users": False, "name": "New"}, token=narrow)).status == 200, "no change"
    assert (await apps.acme.api.patch(org, {"members_see_end_users": True}, token=admin)).status == 200
    assert (await apps.show("ada", by="member")).status == 200


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_inactive_organizations_are_refused(apps: Applications, status: str) -> None:
    await apps.person("ada", "shop")
    await apps.acme.set_status(status)
    for answer in (await apps.page(), await apps.show("ada"), await apps.revoke("ada")):
        assert refused(answer) == NOT_ACTIVE
    assert refused(await apps.revoke("ada", by="member")) == FORBIDDEN


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ("update memberships set role = 'member' where org_id = %(org)s and user_id = %(admin)s", FORBIDDEN),
        ("delete from memberships where org_id = %(org)s and user_id = %(admin)s", FORBIDDEN),
        ("update organizations set status = 'suspended' where id = %(org)s", NOT_ACTIVE),
        ("delete from end_users where org_id = %(org)s", MISSING),
    ],
)
async def test_a_revocation_sees_the_change_that_it_waited_for(apps: Applications, change: str, refusal: tuple[int, str]) -> None:
    await apps.person("ada", "shop")
    session = await apps.session("ada", "shop")
    names = {"org": apps.acme.org, "admin": apps.acme.people["admin"].id}
    lock = ("select 1 from organizations where id = %(org)s for update", names)
    assert refused(await run_during(apps.acme.pool, [lock, (change, names)], lambda: apps.revoke("ada"))) == refusal
    assert await run_sql(apps.acme.pool, "select ended_at from sessions where id = %s", session.session_id) == [(None,)]


async def test_a_concurrently_removed_end_user_is_not_found(apps: Applications) -> None:
    user = await apps.person("ada", "shop")
    changes = [
        ("select 1 from users where id = %s for update", (user.id,)),
        ("delete from end_users where user_id = %s", (user.id,)),
    ]
    assert refused(await run_during(apps.acme.pool, changes, lambda: apps.revoke("ada"))) == MISSING


async def test_a_revocation_does_not_wait_for_accounts_of_other_organizations(apps: Applications, pool: Pool) -> None:
    eve = await apps.person("eve", "other")
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("select from users where id = %s for update", (eve.id,))
        [answer] = await run_concurrently(1, lambda _: apps.revoke("eve"))
    assert refused(answer) == MISSING


async def test_a_revocation_waits_for_a_login_in_progress_and_ends_it(apps: Applications, clock: FakeClock) -> None:
    user = await apps.person("ada", "shop")
    names = {"user": user.id, "org": apps.acme.org, "service": apps.services["shop"], "now": clock.now()}
    signing_in = [
        ("select 1 from users where id = %(user)s for no key update", names),
        (
            """
            insert into sessions (id, user_id, org_id, service_id, created_at, expires_at, ends_at)
            values (gen_random_uuid(), %(user)s, %(org)s, %(service)s, %(now)s, %(now)s + interval '1 day', %(now)s + interval '1 day')""",
            names,
        ),
    ]
    answer = await run_during(apps.acme.pool, signing_in, lambda: apps.revoke("ada"))
    assert answer.json["sessions_revoked"] == 1


# Concurrency


@pytest.mark.slow
async def test_concurrent_refreshes_do_not_survive_a_revocation(apps: Applications) -> None:
    await apps.person("ada")
    sessions = [await apps.session("ada", ("shop", "wiki")[number % 2]) for number in range(19)]

    async def act(number: int) -> Answer:
        if number == 10:
            return await apps.revoke("ada")
        session = sessions[number if number < 10 else number - 1]
        return await apps.acme.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})

    answers = await run_concurrently(20, act)
    [revoked] = [answer.json["sessions_revoked"] for answer in answers if "sessions_revoked" in answer.json]
    assert revoked == 19, "regardless of which came first"
    for answer in answers:
        if "refresh_token" in answer.json:
            assert (await apps.acme.api.get("/api/user", token=answer.json["access_token"])).status == 401
            assert (await apps.acme.api.post("/api/auth/refresh", {"refresh_token": answer.json["refresh_token"]})).status == 401
        else:
            assert answer.status in (200, 401)


@pytest.mark.slow
async def test_twenty_concurrent_revocations_end_each_session_once(apps: Applications) -> None:
    await apps.person("ada")
    for number in range(6):
        await apps.session("ada", ("shop", "wiki", "other")[number % 3])
    answers = await run_concurrently(20, lambda number: apps.revoke("ada", ("owner", "admin")[number % 2]))
    assert [answer.status for answer in answers] == [200] * 20
    assert sum(answer.json["sessions_revoked"] for answer in answers) == 4
    assert (await apps.acme.actions())["user.sessions_revoked"] == 20


@pytest.mark.slow
async def test_concurrent_changes_of_end_users_do_not_deadlock_and_keep_counters_correct(apps: Applications) -> None:
    """The changes are logins, email changes, revocations by two organizations, removals by API keys, and a service deletion."""
    api, ports, pool = apps.acme.api, apps.acme.ports, apps.acme.pool
    people = [await add_account(ports, f"p{number}@people.example") for number in range(4)]
    key = await add_api_key(pool, apps.services["shop"])
    for person in people:
        apps.people[str(person.id)] = person
        for service in apps.services:
            await apps.use(str(person.id), service)
    own_tokens = [(await sign_in(ports, person)).access_token for person in people]
    revocations = 0

    async def act(number: int) -> Answer:
        nonlocal revocations
        person = people[number % 4]
        match number // 4:
            case 0:
                return await apps.revoke(str(person.id), of=(apps.acme, apps.other_tenant)[number % 2])
            case 1:
                revocations += 1
                return await change_email(api, ports, own_tokens[number % 4], f"moved-{revocations}@people.example")
            case 2 if number % 4 < 3:
                return await api.delete(f"/api/service/users/{person.id}", headers={"X-Api-Key": key})
            case 2:
                return await api.delete(f"{apps.acme.path}/services/wiki", token=apps.acme.token("owner"))
        org, service = (("acme", "shop"), ("acme", "wiki"), ("twin", "shop"))[number % 3]
        body = {"email": person.email, "password": PASSWORD, "org_slug": org, "service_slug": service}
        return await api.post("/api/auth/login", body)

    for _ in range(2):
        answers = await run_concurrently(24, act)
        assert {answer.status for answer in answers} <= {200, 204, 401, 404}, [answer.text for answer in answers if answer.status >= 500]
        await check_counts(pool)
        # Verify the addresses again, so that the users can sign in in the next round.
        await run_sql(
            pool,
            "update users set email = 'p' || n - 1 || '@people.example', email_verified_at = now() from unnest(%s) "
            "with ordinality as u (id, n) where users.id = u.id",
            [person.id for person in people],
        )
    addresses = await run_sql(pool, "select id, email from users")
    for table in ("service_users", "end_users"):
        assert set(await run_sql(pool, f"select user_id, email from {table}")) <= set(addresses)  # noqa: S608
