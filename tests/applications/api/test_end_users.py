"""End users: the list, the details, and the revocation of sessions.

The rules are decisions 9, 11, 13, 16, 58, 133, 202, 203, and security S-4, T-2, T-3, Z-5, Z-6. The
module is longer than 400 lines, because its tests share fixtures and helpers.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.kernel.values import new_id
from tests.applications.api.service_users import check_counts
from tests.fakes.outside import FakeClock
from tests.support.builders import (
    PASSWORD,
    Answer,
    SignedIn,
    add_account,
    add_member,
    add_platform_owner,
    impersonate,
    run_concurrently,
    run_during,
    run_sql,
    sign_in,
)
from tests.support.refusals import BAD, FORBIDDEN, MISSING, NOT_ACTIVE, UNAUTHORIZED, refused
from tests.support.services import add_api_key, add_service, add_service_user, sign_in_to
from tests.support.tenants import Tenant, Tenants

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True)
class Applications:
    """Services of two organizations, and their users."""

    acme: Tenant
    other_tenant: Tenant
    services: dict[str, UUID] = field(default_factory=dict)
    people: dict[str, Account] = field(default_factory=dict)

    async def person(self, name: str, *services: str, **changes: Any) -> Account:
        """Add an account that has just signed in to these services."""
        account = await add_account(self.acme.ports, f"{name}@people.example", None, **changes)
        self.people[name] = account
        for service in services:
            await self.use(name, service)
        return account

    async def use(self, name: str, service: str, *, signed_in: bool = True) -> None:
        await add_service_user(self.acme.ports, self.services[service], self.people[name].id, signed_in=signed_in)

    async def session(self, name: str, service: str) -> SignedIn:
        return await sign_in_to(self.acme.ports, self.acme.pool, self.services[service], self.people[name])

    async def page(self, query: str = "", by: str = "member", of: Tenant | None = None) -> Answer:
        tenant = of or self.acme
        return await tenant.api.get(f"{tenant.path}/users{query}", token=tenant.token(by))

    async def names(self, query: str = "", of: Tenant | None = None) -> tuple[list[str], int]:
        answer = await self.page(query, of=of)
        assert answer.status == 200, answer.text
        return [user["email"].partition("@")[0] for user in answer.json["users"]], answer.json["pagination"]["total"]

    async def show(self, name: str, by: str = "member", of: Tenant | None = None) -> Answer:
        tenant = of or self.acme
        return await tenant.api.get(f"{tenant.path}/users/{self.people[name].id}", token=tenant.token(by))

    async def revoke(self, name: str, by: str = "admin", of: Tenant | None = None) -> Answer:
        tenant = of or self.acme
        return await tenant.api.delete(f"{tenant.path}/users/{self.people[name].id}/sessions", token=tenant.token(by))

    async def live_sessions(self, *sessions: SignedIn) -> list[bool]:
        """Return the sessions with working access and refresh tokens."""
        found = []
        for session in sessions:
            read = await self.acme.api.get("/api/user", token=session.access_token)
            renewed = await self.acme.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})
            assert {read.status, renewed.status} in ({200}, {401})
            found.append(read.status == 200)
        return found


@pytest.fixture
async def apps(acme: Tenant, other_tenant: Tenant) -> Applications:
    services = {
        "shop": await add_service(acme.pool, acme.org, "shop"),
        "wiki": await add_service(acme.pool, acme.org, "wiki"),
        "other": await add_service(acme.pool, other_tenant.org, "shop"),
    }
    return Applications(acme, other_tenant, services)


def shown(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


# The list


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
                "created_at": shown(user.created_at),
                "last_login_at": shown(began + timedelta(minutes=1)),
                "mfa_enabled": True,
                "services": ["shop", "wiki"],
            }
        ],
        "pagination": {"page": 1, "limit": 50, "total": 1, "total_pages": 1, "has_next": False, "has_prev": False},
    }
    [elsewhere] = (await apps.page(of=apps.other_tenant)).json["users"]
    assert (elsewhere["services"], elsewhere["last_login_at"]) == (["shop"], shown(clock.now()))


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
    # A member who is also an end user appears in both lists.
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
        ("nobody", []),
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
    assert (await apps.acme.api.patch("/api/user", {"email": "countess@people.example"}, token=token)).status == 200
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


# Details


async def test_the_details_contain_only_data_of_the_organization(apps: Applications, clock: FakeClock) -> None:
    user = await apps.person("ada")
    began = clock.now()
    first = await apps.session("ada", "shop")
    clock.advance(timedelta(minutes=1))
    await apps.session("ada", "shop")
    await apps.use("ada", "wiki", signed_in=False)
    clock.advance(timedelta(minutes=1))
    await apps.session("ada", "other")
    await sign_in(apps.acme.ports, user)
    await run_sql(apps.acme.pool, "update users set updated_at = %s where id = %s", clock.now(), user.id)
    for service, provider, subject in (
        (apps.services["wiki"], "websuite", "w-1"),
        (apps.services["other"], "codehost", "c-1"),
        (None, "codehost", "c-2"),
    ):
        await run_sql(
            apps.acme.pool,
            """
            insert into identities (id, user_id, service_id, provider, provider_user_id, email, linked_at)
            values (gen_random_uuid(), %s, %s, %s, %s, 'ada@elsewhere.example', %s)""",
            user.id,
            service,
            provider,
            subject,
            began,
        )
    answer = await apps.show("ada")
    assert answer.status == 200
    assert answer.json == {
        "id": str(user.id),
        "email": "ada@people.example",
        "created_at": shown(user.created_at),
        "last_login_at": shown(began + timedelta(minutes=1)),
        "mfa_enabled": False,
        "email_verified": True,
        "updated_at": shown(clock.now()),
        "linked_identities": [
            {"provider": "websuite", "provider_user_id": "w-1", "email": "ada@elsewhere.example", "linked_at": shown(began)}
        ],
        "services": [
            {
                "id": str(apps.services["shop"]),
                "slug": "shop",
                "name": "Shop",
                "first_login_at": shown(began),
                "last_login_at": shown(began + timedelta(minutes=1)),
            },
            {"id": str(apps.services["wiki"]), "slug": "wiki", "name": "Wiki", "first_login_at": None, "last_login_at": None},
        ],
        "sessions": {"active_count": 2, "last_created_at": shown(began + timedelta(minutes=1))},
    }
    assert (await apps.acme.api.post("/api/auth/logout", token=first.access_token)).status == 200
    assert (await apps.show("ada")).json["sessions"]["active_count"] == 1
    clock.advance(timedelta(days=31))
    await apps.acme.sign_in("member")
    assert (await apps.show("ada")).json["sessions"] == {"active_count": 0, "last_created_at": None}


async def test_users_of_other_organizations_are_not_found(apps: Applications) -> None:
    await apps.person("eve", "other")
    await apps.person("nobody")
    apps.people["member"] = apps.acme.people["member"]
    answers = [
        *[await apps.show(name) for name in ("eve", "nobody", "member")],
        *[await apps.revoke(name) for name in ("eve", "nobody", "member")],
    ]
    for user in (str(new_id()), "x", str(apps.people["eve"].id).upper(), "00000000-0000-0000-0000-000000000000"):
        answers.append(await apps.acme.api.get(f"{apps.acme.path}/users/{user}", token=apps.acme.token("owner")))
        answers.append(await apps.acme.api.delete(f"{apps.acme.path}/users/{user}/sessions", token=apps.acme.token("owner")))
    assert {(refused(answer), answer.json["error"]) for answer in answers} == {(MISSING, answers[0].json["error"])}
    assert (await apps.show("eve", of=apps.other_tenant)).status == 200


# Revocation


async def test_revocation_ends_only_sessions_in_the_organization(apps: Applications, tenants: Tenants, clock: FakeClock) -> None:
    user, ports = await apps.person("ada"), tenants.ports
    await apps.person("eve")
    for tenant in (apps.acme, apps.other_tenant):
        await add_member(tenants.pool, tenant.org, user.id)
    ended = [await apps.session("ada", "shop"), await apps.session("ada", "wiki"), await sign_in(ports, user, apps.acme.org)]
    kept = [
        await apps.session("ada", "other"),
        await sign_in(ports, user),
        await sign_in(ports, user, apps.other_tenant.org),
        await apps.session("eve", "shop"),
    ]
    answer = await apps.revoke("ada")
    assert (answer.status, set(answer.json), answer.json["sessions_revoked"]) == (200, {"message", "sessions_revoked"}, 3)
    assert await apps.live_sessions(*ended) == [False] * 3
    assert await apps.live_sessions(*kept) == [True] * 4
    assert (await apps.show("ada")).json["sessions"] == {"active_count": 0, "last_created_at": None}
    [entry] = await apps.acme.log()
    assert entry == {
        "action": "user.sessions_revoked",
        "target_type": "user",
        "target_id": str(user.id),
        "actor_id": apps.acme.people["admin"].id,
        "impersonator_id": None,
        "address": entry["address"],
        "details": {"sessions_revoked": 3},
    }
    assert await apps.acme.webhook_events() == [("user.sessions_revoked", str(user.id), {"sessions_revoked": 3})]
    assert await apps.other_tenant.log() == []
    again = await apps.session("ada", "shop")
    assert await apps.live_sessions(again) == [True], "the user can sign in again"


async def test_revocation_without_sessions_succeeds(apps: Applications, clock: FakeClock) -> None:
    await apps.person("ada", "shop")
    lapsed = await apps.session("ada", "shop")
    clock.advance(timedelta(days=31))
    await apps.acme.sign_in("admin")
    await apps.session("ada", "other")
    answer = await apps.revoke("ada")
    assert (answer.status, answer.json["sessions_revoked"]) == (200, 0)
    assert await run_sql(apps.acme.pool, "select ended_at from sessions where id = %s", lapsed.session_id) == [(None,)]
    assert (await apps.acme.entry("user.sessions_revoked"))["details"] == {"sessions_revoked": 0}


async def test_admins_can_revoke_their_own_sessions(apps: Applications) -> None:
    apps.people["admin"] = apps.acme.people["admin"]
    await apps.use("admin", "shop")
    assert (await apps.revoke("admin")).json["sessions_revoked"] == 1
    assert (await apps.page(by="admin")).status == 401


async def test_a_revocation_by_an_impersonator_records_both_accounts(apps: Applications, tenants: Tenants) -> None:
    steward, owner = await add_platform_owner(tenants.ports), apps.acme.people["owner"]
    await apps.person("ada")
    await apps.session("ada", "shop")
    token = await impersonate(tenants.ports, steward, owner)
    path = f"{apps.acme.path}/users/{apps.people['ada'].id}/sessions"
    assert (await tenants.api.delete(path, token=token)).json["sessions_revoked"] == 1
    entry = await apps.acme.entry("user.sessions_revoked")
    assert (entry["actor_id"], entry["impersonator_id"]) == (owner.id, steward.id)


# Access


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
async def test_a_revocation_that_waited_sees_the_change_it_waited_for(apps: Applications, change: str, refusal: tuple[int, str]) -> None:
    await apps.person("ada", "shop")
    session = await apps.session("ada", "shop")
    names = {"org": apps.acme.org, "admin": apps.acme.people["admin"].id}
    held = ("select 1 from organizations where id = %(org)s for update", names)
    assert refused(await run_during(apps.acme.pool, [held, (change, names)], lambda: apps.revoke("ada"))) == refusal
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
async def test_concurrent_changes_of_end_users_cause_no_deadlock_and_keep_counters_right(apps: Applications) -> None:
    """Logins, email changes, revocations by two organizations, removals by API keys, and the deletion of a service."""
    api, ports, pool = apps.acme.api, apps.acme.ports, apps.acme.pool
    people = [await add_account(ports, f"p{number}@people.example") for number in range(4)]
    key = await add_api_key(pool, apps.services["shop"])
    for person in people:
        apps.people[str(person.id)] = person
        for service in apps.services:
            await apps.use(str(person.id), service)
    own = [(await sign_in(ports, person)).access_token for person in people]
    moved = 0

    async def act(number: int) -> Answer:
        nonlocal moved
        person = people[number % 4]
        match number // 4:
            case 0:
                return await apps.revoke(str(person.id), of=(apps.acme, apps.other_tenant)[number % 2])
            case 1:
                moved += 1
                return await api.patch("/api/user", {"email": f"moved-{moved}@people.example"}, token=own[number % 4])
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
