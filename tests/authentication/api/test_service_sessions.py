"""Tests of password logins to a service, and of the application's tokens.

Sources: decisions 36, 37, 38, 39, 40, 48, 52, 53, 57, 58, 61; security J-3, J-5, J-6, J-9, S-1,
S-2, S-3, T-5. The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import jwt
import pytest
from quart_trio import QuartTrio

from core.accounts.accounts_rules import Account
from core.kernel.values import new_id
from entrypoints.http.edge.access import access_of
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.proof.access.calls import routes
from tests.support.builders import EMAIL, PASSWORD, Answer, Api, add_account, add_member, run_concurrently, run_during, run_sql, sign_in
from tests.support.paths import PATH_VALUES, add_ruler, filled
from tests.support.refusals import BAD, FORBIDDEN, MISSING, NOT_ACTIVE, UNAUTHORIZED, refused
from tests.support.services import add_plan, add_service, add_subscription, service_context, sign_in_to
from tests.support.tenants import Tenant, Tenants


@dataclass(frozen=True, slots=True)
class Shop:
    """A service, and a user who has never used it."""

    tenant: Tenant
    id: UUID
    client_id: UUID
    user: Account

    @property
    def api(self) -> Api:
        return self.tenant.api

    async def login(self, org: str | None = "acme", service: str | None = "shop", **changes: Any) -> Answer:
        """Log in with the slugs that are not None."""
        body = {"email": EMAIL, "password": PASSWORD, "org_slug": org, "service_slug": service} | changes
        return await self.api.post("/api/auth/login", {name: value for name, value in body.items() if value is not None})

    async def tokens(self) -> dict[str, Any]:
        answer = await self.login()
        assert answer.status == 200, answer.text
        pair: dict[str, Any] = answer.json
        return pair

    async def refresh(self, pair: Mapping[str, Any]) -> Answer:
        return await self.api.post("/api/auth/refresh", {"refresh_token": pair["refresh_token"]})

    async def profile(self, pair: Mapping[str, Any]) -> Answer:
        return await self.api.get("/api/user", token=pair["access_token"])

    async def detach(self) -> None:
        """Remove the user from the service without an end of their sessions."""
        await run_sql(self.tenant.pool, "delete from service_users where service_id = %s and user_id = %s", self.id, self.user.id)

    async def recorded(self) -> list[tuple[Any, ...]]:
        """Return the rows of all tables that a login changes."""
        left = [("user_count", await run_sql(self.tenant.pool, "select coalesce(sum(user_count), 0) from services"))]
        for table in ("sessions", "login_events", "login_totals", "service_users", "end_users", "end_user_totals", "events"):
            left.append((table, await run_sql(self.tenant.pool, f"select count(*) from {table}")))  # noqa: S608
        return left


@pytest.fixture
async def shop(acme: Tenant, tenants: Tenants) -> Shop:
    id_ = await add_service(tenants.pool, acme.org, "shop")
    context = await service_context(tenants.pool, id_)
    return Shop(acme, id_, context.client_id, await add_account(tenants.ports))


def claims(pair: Mapping[str, Any]) -> dict[str, Any]:
    decoded: dict[str, Any] = jwt.decode(pair["access_token"], options={"verify_signature": False})
    return decoded


# Signing in


async def test_a_token_of_a_service_is_for_its_application(shop: Shop, clock: FakeClock, metrics: FakeMetrics) -> None:
    pair = await shop.tokens()
    assert list(pair) == ["access_token", "refresh_token", "expires_in"]
    payload = claims(pair)
    now = int(clock.now().timestamp())
    assert {name: value for name, value in payload.items() if name not in ("jti", "sid")} == {
        "iss": "http://gatehouse.test",
        "aud": str(shop.client_id),
        "sub": str(shop.user.id),
        "email": EMAIL,
        "email_verified": True,
        "iat": now,
        "exp": now + 900,
        "token_use": "access",
        "org": "acme",
        "org_id": str(shop.tenant.org),
        "service": "shop",
    }
    assert (await shop.profile(pair)).json == {"id": str(shop.user.id), "email": EMAIL, "org": "acme", "service": "shop"}
    assert metrics.tokens_issued == 1


async def test_a_login_makes_the_user_an_end_user_and_is_recorded(shop: Shop, clock: FakeClock) -> None:
    pool, org, now = shop.tenant.pool, shop.tenant.org, clock.now()
    session = UUID(claims(await shop.tokens())["sid"])
    assert await run_sql(pool, "select id, user_id, service_id, org_id from sessions where service_id is not null") == [
        (session, shop.user.id, shop.id, org)
    ]
    assert await run_sql(pool, "select service_id, user_id, org_id, first_login_at, last_login_at from service_users") == [
        (shop.id, shop.user.id, org, now, now)
    ]
    assert await run_sql(pool, "select org_id, user_id, email from end_users") == [(org, shop.user.id, EMAIL)]
    assert await run_sql(pool, "select total from end_user_totals where org_id = %s", org) == [(1,)]
    assert await run_sql(pool, "select user_count from services") == [(1,)]
    login = "select user_id, session_id, org_id, service_id, provider, success, created_at from login_events"
    assert await run_sql(pool, login) == [(shop.user.id, session, org, shop.id, "password", True, now)]
    assert await run_sql(pool, "select org_id, service_id, day, provider, sum(total) from login_totals group by 1, 2, 3, 4") == [
        (org, shop.id, now.date(), "password", 1)
    ]
    expected = [(str(shop.user.id), shop.user.id, {"provider": "password", "service_id": str(shop.id)})]
    assert (
        await run_sql(pool, "select target_id, actor_id, data from events where name = 'user.login.success' and org_id = %s", org)
        == expected
    )
    assert await shop.tenant.log() == [], "a login is not in the audit log"


async def test_a_refresh_that_committed_returns_its_token_during_an_outage(
    shop: Shop, outage_after_commit: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old token is used up: if the client sent it again, the session would end."""
    outage_after_commit()
    pair = await shop.tokens()  # the database refuses reads after this commit
    again = await shop.refresh(pair)
    assert again.status == 200
    monkeypatch.undo()
    assert (await shop.profile(again.json)).status == 200


async def test_a_refresh_is_not_recorded_as_a_login(shop: Shop) -> None:
    pair = await shop.tokens()
    before = await shop.recorded()
    assert (await shop.refresh(pair)).status == 200
    assert await shop.recorded() == before


async def test_a_login_to_the_account_does_not_touch_any_service(shop: Shop) -> None:
    pool = shop.tenant.pool
    payload = claims((await shop.login(None, None)).json)
    assert (payload["aud"], {"org", "org_id", "service"} & payload.keys()) == ("http://gatehouse.test", set())
    assert await run_sql(pool, "select org_id, service_id from login_events") == [(None, None)]
    assert await run_sql(pool, "select org_id, data->>'service_id' from events") == [(None, None)]
    for table in ("login_totals", "service_users", "end_users"):
        assert await run_sql(pool, f"select count(*) from {table}") == [(0,)]  # noqa: S608


@pytest.mark.parametrize(("org", "service"), [("acme", None), (None, "shop"), ("", None), ("nothing-there", None)])
async def test_a_service_needs_both_slugs(shop: Shop, org: str | None, service: str | None) -> None:
    before = await shop.recorded()
    answer = await shop.login(org, service)
    assert refused(answer) == BAD
    assert "org_slug" in answer.json["error"]
    assert await shop.recorded() == before


async def test_null_slugs_count_as_absent(shop: Shop) -> None:
    body = {"email": EMAIL, "password": PASSWORD}
    assert (await shop.api.post("/api/auth/login", body | {"org_slug": None, "service_slug": None})).status == 200
    assert refused(await shop.api.post("/api/auth/login", body | {"org_slug": "acme", "service_slug": None})) == BAD


async def test_an_unknown_service_is_not_found(shop: Shop, other_tenant: Tenant, tenants: Tenants) -> None:
    await add_service(tenants.pool, other_tenant.org, "theirs")
    before = await shop.recorded()
    for org, service in (
        ("nothing-there", "shop"),
        ("acme", "nothing-there"),
        ("acme", "theirs"),
        ("twin", "shop"),
        ("ACME", "shop"),
        ("acme", "Shop"),
        ("acme", "sho_"),
        ("", ""),
        ("acme", str(shop.id)),
    ):
        for password in (PASSWORD, "wrong password"):
            assert refused(await shop.login(org, service, password=password)) == MISSING, (org, service)
    assert await shop.recorded() == before


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_an_inactive_organization_refuses_logins(shop: Shop, tenants: Tenants, status: str) -> None:
    await add_service(tenants.pool, shop.tenant.org, "mobile", "mobile")
    await shop.tenant.set_status(status)
    before = await shop.recorded()
    for service in ("shop", "mobile", "nothing-there"):
        for password in (PASSWORD, "wrong password"):
            assert refused(await shop.login(service=service, password=password)) == NOT_ACTIVE
    assert await shop.recorded() == before
    await shop.tenant.set_status("active")
    assert (await shop.login()).status == 200


@pytest.mark.parametrize(("service_type", "status"), [("web", 200), ("api", 200), ("mobile", 400), ("desktop", 400)])
async def test_public_applications_refuse_passwords(shop: Shop, tenants: Tenants, service_type: str, status: int) -> None:
    await add_service(tenants.pool, shop.tenant.org, "other", service_type)
    before = await shop.recorded()
    answer = await shop.login(service="other")
    assert answer.status == status
    if status == 400:
        assert answer.code == "BAD_REQUEST"
        assert "PKCE" in answer.json["error"]
        assert await shop.recorded() == before


async def test_a_refused_login_looks_the_same_with_a_service_and_changes_nothing_there(shop: Shop, tenants: Tenants) -> None:
    await add_account(tenants.ports, "unverified@example.com", verified=False)
    await add_account(tenants.ports, "gone@example.com", deactivated_at=tenants.ports.clock.now())
    before = await shop.recorded()
    for changes in (
        {"password": "wrong password"},
        {"email": "nobody@example.com"},
        {"email": "gone@example.com"},
        {"email": "unverified@example.com"},
    ):
        with_service, without = await shop.login(**changes), await shop.login(None, None, **changes)
        assert (refused(with_service), with_service.json["error"]) == (refused(without), without.json["error"])
        assert refused(with_service) == UNAUTHORIZED
    assert [row for row in await shop.recorded() if row[0] != "login_events"] == [row for row in before if row[0] != "login_events"]
    assert await run_sql(tenants.pool, "select distinct org_id, service_id, success from login_events") == [(None, None, False)]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("update organizations set status = 'suspended' where id = %(org)s", NOT_ACTIVE),
        ("update services set service_type = 'mobile', client_secret_hash = null where id = %(service)s", BAD),
        ("delete from services where id = %(service)s", MISSING),
        ("update users set deactivated_at = now() where id = %(user)s", UNAUTHORIZED),
    ],
)
async def test_changes_during_the_password_check_are_respected(shop: Shop, change: str, expected: tuple[int, str]) -> None:
    before = await shop.recorded()
    names = {"org": shop.tenant.org, "service": shop.id, "user": shop.user.id}
    held = ("select 1 from users where id = %(user)s for update", names)
    answer = await run_during(shop.tenant.pool, [held, (change, names)], shop.login)
    assert refused(answer) == expected
    if expected != UNAUTHORIZED:  # the password was right
        assert await run_sql(shop.tenant.pool, "select 1 from guesses") == []
    lost = {"user_count"} if "delete" in change else set()
    assert [row for row in await shop.recorded() if row[0] not in lost] == [row for row in before if row[0] not in lost]


# The user's entitlement to the service


async def test_a_token_states_the_entitlement_and_a_refresh_updates_it(shop: Shop, tenants: Tenants, clock: FakeClock) -> None:
    ports, pool = tenants.ports, tenants.pool
    elsewhere = await add_service(pool, (await tenants.add("twin")).org, "shop")
    await add_plan(pool, elsewhere, "Free")
    theirs = await add_plan(pool, elsewhere, "Theirs")
    await add_subscription(ports, pool, elsewhere, shop.user.id, theirs, ends=clock.now() + timedelta(days=9))
    pair = await shop.tokens()

    def has(pair: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(claims(pair).get(name, "absent") for name in ("plan", "subscription_status", "features"))

    async def renewed() -> tuple[Any, ...]:
        nonlocal pair
        pair = (await shop.refresh(pair)).json
        return has(pair)

    assert has(pair) == await renewed() == ("absent", "absent", "absent")
    await add_plan(pool, shop.id, "Free", features=["basics"])
    assert await renewed() == ("Free", "absent", ["basics"])
    gold = await add_plan(pool, shop.id, "Gold", features=["basics", "exports"])
    await add_subscription(ports, pool, shop.id, shop.user.id, gold, ends=clock.now() + timedelta(minutes=5))
    assert await renewed() == has(await shop.tokens()) == ("Gold", "active", ["basics", "exports"])
    await run_sql(pool, "update subscriptions set status = 'past_due' where service_id = %s", shop.id)
    assert await renewed() == ("Gold", "past_due", ["basics", "exports"])
    await run_sql(pool, "update subscriptions set status = 'active' where service_id = %s", shop.id)
    clock.advance(timedelta(minutes=5))
    assert await renewed() == ("Gold", "expired", ["basics", "exports"])
    assert has((await shop.login(None, None)).json) == ("absent", "absent", "absent")


# Confirmed memberships


async def test_a_members_login_to_a_service_confirms_the_membership(
    shop: Shop, other_tenant: Tenant, tenants: Tenants, clock: FakeClock
) -> None:
    eve = await add_account(tenants.ports, "eve@example.com")
    for org, account in ((shop.tenant.org, shop.user), (other_tenant.org, shop.user), (shop.tenant.org, eve)):
        await add_member(tenants.pool, org, account.id)
    unconfirmed = "select org_id, user_id from memberships where confirmed_at is null"
    assert (await shop.login(None, None)).status == 200
    assert (await shop.login(password="wrong password")).status == 401
    assert len(await run_sql(tenants.pool, unconfirmed)) == 3
    assert (await shop.login()).status == 200
    assert set(await run_sql(tenants.pool, unconfirmed)) == {(other_tenant.org, shop.user.id), (shop.tenant.org, eve.id)}
    first = clock.now()
    clock.advance(timedelta(minutes=1))
    await shop.login()
    confirmed = "select confirmed_at from memberships where org_id = %s and user_id = %s"
    assert await run_sql(tenants.pool, confirmed, shop.tenant.org, shop.user.id) == [(first,)]


async def test_a_login_to_a_service_makes_the_user_no_member(shop: Shop) -> None:
    before = await shop.tenant.members()
    await shop.tokens()
    assert await shop.tenant.members() == before


# Refresh


async def test_a_refresh_keeps_the_service(shop: Shop, clock: FakeClock) -> None:
    first = await shop.tokens()
    clock.advance(timedelta(minutes=20))
    second = (await shop.refresh(first)).json
    fixed = ("iss", "aud", "sub", "email", "sid", "org", "org_id", "service", "token_use")
    assert [claims(second)[name] for name in fixed] == [claims(first)[name] for name in fixed]
    assert claims(second)["jti"] != claims(first)["jti"]
    assert (await shop.profile(second)).json["service"] == "shop"
    assert refused(await shop.profile(first)) == (401, "TOKEN_EXPIRED")


async def test_a_suspension_refuses_refreshes_but_not_the_profile(shop: Shop) -> None:
    pair = await shop.tokens()
    for status in ("suspended", "rejected", "pending"):
        await shop.tenant.set_status(status)
        assert refused(await shop.refresh(pair)) == NOT_ACTIVE
        assert (await shop.profile(pair)).json["service"] == "shop"
    await shop.tenant.set_status("active")
    assert (await shop.refresh(pair)).status == 200


async def test_a_user_removed_from_the_service_is_refused(shop: Shop, tenants: Tenants) -> None:
    await add_member(tenants.pool, shop.tenant.org, shop.user.id, "admin")  # membership of the organization does not help
    pair, other = await shop.tokens(), await shop.tokens()
    await shop.detach()
    assert refused(await shop.profile(pair)) == FORBIDDEN
    assert refused(await shop.refresh(pair)) == UNAUTHORIZED
    assert refused(await shop.api.get("/api/organizations/acme", token=pair["access_token"])) == FORBIDDEN
    await shop.tenant.set_status("suspended")
    assert refused(await shop.refresh(pair)) == UNAUTHORIZED, "an activation of the organization would not change this"
    await shop.tenant.set_status("active")
    assert (await shop.api.post("/api/auth/logout", token=other["access_token"])).status == 200, "a sign-out always works"
    assert (await shop.profile(await shop.tokens())).status == 200, "a new login works"


async def test_tokens_of_a_deleted_service_are_invalid_for_its_successor(shop: Shop, tenants: Tenants) -> None:
    pair = await shop.tokens()

    async def check() -> None:
        assert refused(await shop.profile(pair)) == UNAUTHORIZED
        assert refused(await shop.refresh(pair)) == UNAUTHORIZED
        assert refused(await shop.api.post("/api/auth/logout", token=pair["access_token"])) == UNAUTHORIZED

    await run_sql(tenants.pool, "delete from services where id = %s", shop.id)
    await check()
    successor = await add_service(tenants.pool, shop.tenant.org, "shop")
    await sign_in_to(tenants.ports, tenants.pool, successor, shop.user)
    await check()


async def test_tokens_of_a_deleted_organization_are_invalid_for_its_successor(shop: Shop, tenants: Tenants) -> None:
    pair = await shop.tokens()
    await run_sql(tenants.pool, "delete from organizations where id = %s", shop.tenant.org)
    assert refused(await shop.profile(pair)) == UNAUTHORIZED
    successor = await tenants.add("acme", cast={})
    await sign_in_to(tenants.ports, tenants.pool, await add_service(tenants.pool, successor.org, "shop"), shop.user)
    assert refused(await shop.profile(pair)) == UNAUTHORIZED
    assert refused(await shop.refresh(pair)) == UNAUTHORIZED


async def test_reuse_ends_the_whole_session_of_the_service_and_no_other(shop: Shop, clock: FakeClock) -> None:
    first, other, plain = await shop.tokens(), await shop.tokens(), (await shop.login(None, None)).json
    second = (await shop.refresh(first)).json
    clock.advance(timedelta(seconds=10))
    assert refused(await shop.refresh(first)) == UNAUTHORIZED
    assert (await shop.profile(second)).status == 200, "two tabs may race"
    clock.advance(timedelta(microseconds=1))
    assert refused(await shop.refresh(first)) == UNAUTHORIZED
    assert refused(await shop.profile(second)) == UNAUTHORIZED
    assert refused(await shop.refresh(second)) == UNAUTHORIZED
    for pair in (other, plain):
        assert (await shop.refresh(pair)).status == 200


async def test_logout_ends_this_session_only(shop: Shop) -> None:
    mine, other, plain = await shop.tokens(), await shop.tokens(), (await shop.login(None, None)).json
    assert (await shop.api.post("/api/auth/logout", token=mine["access_token"])).status == 200
    assert refused(await shop.profile(mine)) == UNAUTHORIZED
    assert refused(await shop.refresh(mine)) == UNAUTHORIZED
    for pair in (other, plain):
        assert (await shop.profile(pair)).status == 200


async def test_events_that_end_all_sessions_of_a_user_end_those_of_services(shop: Shop) -> None:
    pair, plain = await shop.tokens(), (await shop.login(None, None)).json
    body = {"current_password": PASSWORD, "new_password": "another good password"}
    assert (await shop.api.post("/api/user/change-password", body, token=plain["access_token"])).status == 200
    assert refused(await shop.profile(pair)) == UNAUTHORIZED
    assert refused(await shop.refresh(pair)) == UNAUTHORIZED


async def test_a_session_of_a_service_slides_and_ends_like_any_session(shop: Shop, clock: FakeClock) -> None:
    pair = await shop.tokens()
    for _ in range(3):
        clock.advance(timedelta(days=30) - timedelta(seconds=1))
        pair = (await shop.refresh(pair)).json
    assert pair["expires_in"] == 3  # the absolute end after 90 days
    clock.advance(timedelta(seconds=3))
    assert refused(await shop.refresh(pair)) == UNAUTHORIZED


# Tokens with wrong claims


async def test_a_token_is_only_valid_with_its_own_application_and_session(shop: Shop, other_tenant: Tenant, tenants: Tenants) -> None:
    """The tokens have a valid signature and wrong claims: a bug in the issuer alone must not be enough for an attack."""
    ports, pool = tenants.ports, tenants.pool
    wiki, theirs = await add_service(pool, shop.tenant.org, "wiki"), await add_service(pool, other_tenant.org, "shop")
    for tenant in (shop.tenant, other_tenant):
        await add_member(pool, tenant.org, shop.user.id, "admin")
    in_shop, in_wiki, in_theirs = [await sign_in_to(ports, pool, service, shop.user) for service in (shop.id, wiki, theirs)]
    plain, selected = await sign_in(ports, shop.user), await sign_in(ports, shop.user, shop.tenant.org)
    of_shop, of_wiki, of_plain, of_org = [
        ports.tokens.read(session.access_token, ports.clock.now()) for session in (in_shop, in_wiki, plain, selected)
    ]
    assert refused(await shop.profile({"access_token": in_shop.access_token + "x"})) == (401, "JWT_ERROR")
    for payload in (
        replace(of_shop, client_id=of_wiki.client_id, service="wiki"),  # another service of the organization
        replace(of_shop, client_id=of_wiki.client_id),
        replace(of_wiki, session_id=in_shop.session_id),
        replace(of_shop, session_id=in_theirs.session_id),
        replace(of_shop, session_id=plain.session_id),  # a session that is not an application's
        replace(of_shop, session_id=selected.session_id),
        replace(of_shop, client_id=None, service=""),  # an application's session presented as the user's own
        replace(of_shop, client_id=None, service="", org="", org_id=None),
        replace(of_plain, session_id=in_shop.session_id),
        replace(of_org, session_id=in_shop.session_id),
        replace(of_shop, client_id=new_id()),
        replace(of_shop, client_id=shop.id),
    ):
        token = ports.tokens.sign(payload)
        assert refused(await shop.profile({"access_token": token})) == UNAUTHORIZED, payload
        assert (await shop.api.get("/api/organizations/acme", token=token)).status in (401, 403), payload
    for session, org, service in (
        (in_shop, "acme", "shop"),
        (in_wiki, "acme", "wiki"),
        (in_theirs, "twin", "shop"),
        (selected, "acme", ""),
    ):
        profile = (await shop.profile({"access_token": session.access_token})).json
        assert (profile["org"], profile["service"]) == (org, service)


async def test_organization_and_plan_claims_give_no_rights(shop: Shop, other_tenant: Tenant, tenants: Tenants) -> None:
    session = await sign_in_to(tenants.ports, tenants.pool, shop.id, shop.user)
    payload = tenants.ports.tokens.read(session.access_token, tenants.ports.clock.now())
    token = tenants.ports.tokens.sign(replace(payload, org="twin", org_id=other_tenant.org, service="other", plan="Gold"))
    assert (await shop.profile({"access_token": token})).json == {"id": str(shop.user.id), "email": EMAIL, "org": "acme", "service": "shop"}


# Rights of an application


LETS_APPLICATIONS_IN = {
    *("GET /api/user", "POST /api/auth/logout", "GET /api/privacy/export/<user_id>"),
    *("GET /api/user/mfa/status", "GET /api/user/devices", "GET /api/user/devices/<device_id>"),
    *("GET /api/user/identities", "DELETE /api/user/identities/<provider>", "GET /api/provider-token/<provider>", "GET /api/subscription"),
}


@pytest.mark.slow
async def test_an_application_has_no_other_rights_even_for_an_owner(app: QuartTrio, tenants: Tenants) -> None:
    """The signed-in user owns the organization and is a platform owner."""
    api, ports, pool = tenants.api, tenants.ports, tenants.pool
    ruler, _ = await add_ruler(ports, pool)
    service = await add_service(pool, UUID(PATH_VALUES["org_id"]), "application")
    token = (await sign_in_to(ports, pool, service, ruler)).access_token
    assert (await api.get("/api/user", token=token)).status == 200
    before = await tenants.everything()
    let_in, kept_out, keys = set(), set(), set()
    for route, view in routes(app):
        access, (method, rule) = access_of(view), route.split()
        if access.security in (None, "cookie", "billing_signature"):
            continue
        if access.applications:
            let_in.add(route)
            continue
        for body in (None, {}, {"name": "Changed", "email": "changed@example.com", "token": "x", "slug": "changed"}):
            answer = await api.call(method, filled(rule), None if method == "GET" else body, token=token)
            if rule.startswith("/scim/"):
                assert answer.status == 401, route
                keys.add(route)
            elif access.permission is not None or access.name == "pre_auth":
                assert refused(answer) == UNAUTHORIZED, route
                keys.add(route)
            else:
                assert refused(answer) == FORBIDDEN, route
                assert "application" in answer.json["error"], route
                kept_out.add(route)
    assert let_in == LETS_APPLICATIONS_IN
    assert {"PATCH /api/user", "GET /api/invitations", "POST /api/invitations/accept", "POST /api/organizations"} <= kept_out
    assert {"GET /api/organizations/<org_slug>", "GET /api/platform/tiers", "POST /api/user/change-password"} <= kept_out
    assert await tenants.everything() == before


async def test_an_application_cannot_read_organizations(shop: Shop, other_tenant: Tenant) -> None:
    token = (await shop.tokens())["access_token"]
    answers = [await shop.api.get(f"/api/organizations/{slug}", token=token) for slug in ("acme", "twin", "nothing-there", "A")]
    assert {(refused(answer), answer.json["error"]) for answer in answers} == {(FORBIDDEN, answers[0].json["error"])}


# Concurrent requests


@pytest.mark.slow
async def test_twenty_concurrent_first_logins_make_one_end_user(shop: Shop) -> None:
    pool = shop.tenant.pool
    answers = await run_concurrently(20, lambda _: shop.login())
    # At most as many attempts as the limit run at the same time; the others must wait.
    assert {answer.status for answer in answers} <= {200, 429}
    signed_in = [answer.json for answer in answers if answer.status == 200]
    assert len(signed_in) >= 10
    assert await run_sql(pool, "select count(*) from service_users") == [(1,)]
    assert await run_sql(pool, "select count(*) from end_users") == [(1,)]
    assert await run_sql(pool, "select user_count from services") == [(1,)]
    assert await run_sql(pool, "select total from end_user_totals") == [(1,)]
    assert await run_sql(pool, "select sum(total) from login_totals") == [(len(signed_in),)]
    assert await run_sql(pool, "select count(*) from login_events where success and service_id = %s", shop.id) == [(len(signed_in),)]
    assert [(await shop.profile(pair)).status for pair in signed_in] == [200] * len(signed_in)


@pytest.mark.slow
async def test_twenty_concurrent_users_make_twenty_end_users(shop: Shop, tenants: Tenants) -> None:
    people = [await add_account(tenants.ports, f"person-{number}@example.com") for number in range(20)]
    await add_service(tenants.pool, shop.tenant.org, "wiki")
    answers = await run_concurrently(20, lambda number: shop.login(service=("shop", "wiki")[number % 2], email=people[number].email))
    assert [answer.status for answer in answers] == [200] * 20
    assert await run_sql(tenants.pool, "select user_count from services") == [(10,), (10,)]
    assert await run_sql(tenants.pool, "select total from end_user_totals") == [(20,)]
    assert await run_sql(tenants.pool, "select sum(total) from login_totals") == [(20,)]


@pytest.mark.slow
async def test_of_twenty_concurrent_refreshes_with_one_token_one_succeeds(shop: Shop) -> None:
    first = await shop.tokens()
    answers = await run_concurrently(20, lambda _: shop.refresh(first))
    assert sorted(answer.status for answer in answers) == [200] + [401] * 19
    [winner] = [answer.json for answer in answers if answer.status == 200]
    assert (await shop.refresh(winner)).status == 200
