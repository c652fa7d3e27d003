"""Password logins to a service (decisions 57, 58; security S-1)."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.accounts.profiles import NO_FIELDS
from tests.authentication.api.service_sessions.shop import Shop, claims
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.builders import EMAIL, PASSWORD, add_account, add_member, run_during, run_sql
from tests.support.refusals import BAD, MISSING, NOT_ACTIVE, UNAUTHORIZED, refused
from tests.support.services import add_plan, add_service, add_subscription
from tests.support.tenants import Tenant, Tenants


async def test_a_token_of_a_service_is_for_its_application(shop: Shop, clock: FakeClock, metrics: FakeMetrics) -> None:
    pair = await shop.tokens()
    assert list(pair) == ["access_token", "refresh_token", "expires_in"]
    payload = claims(pair)
    now = int(clock.now().timestamp())
    assert {name: value for name, value in payload.items() if name not in ("jti", "sid")} == {
        "iss": "http://gatehouse.test",
        "aud": str(shop.client_id),
        "client_id": str(shop.client_id),
        "sub": str(shop.user.id),
        "email": EMAIL,
        "email_verified": True,
        "iat": now,
        "exp": now + 900,
        "token_use": "access",
        "auth_time": now,
        "acr": "pwd",
        "amr": ["pwd"],
        "org": "acme",
        "org_id": str(shop.tenant.org),
        "service": "shop",
    }
    profile = {"id": str(shop.user.id), "email": EMAIL, "org": "acme", "service": "shop", **NO_FIELDS, "pending_email": None}
    assert (await shop.profile(pair)).json == profile
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
    answer = await shop.refresh(pair)
    assert answer.status == 200
    monkeypatch.undo()
    assert (await shop.profile(answer.json)).status == 200


async def test_a_refresh_is_not_recorded_as_a_login(shop: Shop) -> None:
    pair = await shop.tokens()
    before = await shop.login_rows()
    assert (await shop.refresh(pair)).status == 200
    assert await shop.login_rows() == before


async def test_a_login_to_the_account_does_not_touch_any_service(shop: Shop) -> None:
    pool = shop.tenant.pool
    payload = claims((await shop.login(None, None)).json)
    assert (payload["aud"], {"org", "org_id", "service"} & payload.keys()) == ("http://gatehouse.test/api", set())
    assert await run_sql(pool, "select org_id, service_id from login_events") == [(None, None)]
    assert await run_sql(pool, "select org_id, data->>'service_id' from events") == [(None, None)]
    for table in ("login_totals", "service_users", "end_users"):
        assert await run_sql(pool, f"select count(*) from {table}") == [(0,)]  # noqa: S608


@pytest.mark.parametrize(("org", "service"), [("acme", None), (None, "shop"), ("", None), ("nothing-there", None)])
async def test_a_service_needs_both_slugs(shop: Shop, org: str | None, service: str | None) -> None:
    before = await shop.login_rows()
    answer = await shop.login(org, service)
    assert refused(answer) == BAD
    assert "org_slug" in answer.json["error"]
    assert await shop.login_rows() == before


async def test_null_slugs_count_as_absent(shop: Shop) -> None:
    body = {"email": EMAIL, "password": PASSWORD}
    assert (await shop.api.post("/api/auth/login", body | {"org_slug": None, "service_slug": None})).status == 200
    assert refused(await shop.api.post("/api/auth/login", body | {"org_slug": "acme", "service_slug": None})) == BAD


async def test_an_unknown_service_is_not_found(shop: Shop, other_tenant: Tenant, tenants: Tenants) -> None:
    await add_service(tenants.pool, other_tenant.org, "theirs")
    before = await shop.login_rows()
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
    assert await shop.login_rows() == before


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_an_inactive_organization_refuses_logins(shop: Shop, tenants: Tenants, status: str) -> None:
    await add_service(tenants.pool, shop.tenant.org, "mobile", "mobile")
    await shop.tenant.set_status(status)
    before = await shop.login_rows()
    for service in ("shop", "mobile", "nothing-there"):
        for password in (PASSWORD, "wrong password"):
            assert refused(await shop.login(service=service, password=password)) == NOT_ACTIVE
    assert await shop.login_rows() == before
    await shop.tenant.set_status("active")
    assert (await shop.login()).status == 200


@pytest.mark.parametrize(("service_type", "status"), [("web", 200), ("api", 200), ("mobile", 400), ("desktop", 400)])
async def test_public_applications_refuse_passwords(shop: Shop, tenants: Tenants, service_type: str, status: int) -> None:
    await add_service(tenants.pool, shop.tenant.org, "other", service_type)
    before = await shop.login_rows()
    answer = await shop.login(service="other")
    assert answer.status == status
    if status == 400:
        assert answer.code == "BAD_REQUEST"
        assert "PKCE" in answer.json["error"]
        assert await shop.login_rows() == before


@pytest.mark.parametrize("setting", ["enterprise = true", "required_acr = 'mfa'"])
async def test_applications_with_stricter_sign_ins_refuse_passwords(shop: Shop, setting: str) -> None:
    await run_sql(shop.tenant.pool, f"update services set {setting}")  # noqa: S608
    before = await shop.login_rows()
    assert refused(await shop.login()) == BAD
    assert await shop.login_rows() == before


async def test_a_refused_login_to_a_service_has_the_same_response_and_changes_nothing(shop: Shop, tenants: Tenants) -> None:
    await add_account(tenants.ports, "unverified@example.com", verified=False)
    await add_account(tenants.ports, "gone@example.com", deactivated_at=tenants.ports.clock.now())
    before = await shop.login_rows()
    for changes in (
        {"password": "wrong password"},
        {"email": "unknown@example.com"},
        {"email": "gone@example.com"},
        {"email": "unverified@example.com"},
    ):
        with_service, without = await shop.login(**changes), await shop.login(None, None, **changes)
        assert (refused(with_service), with_service.json["error"]) == (refused(without), without.json["error"])
        assert refused(with_service) == UNAUTHORIZED
    assert [row for row in await shop.login_rows() if row[0] != "login_events"] == [row for row in before if row[0] != "login_events"]
    rows = await run_sql(tenants.pool, "select distinct org_id, service_id, success from login_events")
    assert set(rows) == {(None, None, False), (shop.tenant.org, shop.id, False)}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("update organizations set status = 'suspended' where id = %(org)s", NOT_ACTIVE),
        ("update services set service_type = 'mobile', client_secret_hash = null where id = %(service)s", BAD),
        ("update services set enterprise = true where id = %(service)s", BAD),
        ("delete from services where id = %(service)s", MISSING),
        ("update users set deactivated_at = now() where id = %(user)s", UNAUTHORIZED),
    ],
)
async def test_changes_during_the_password_check_are_respected(shop: Shop, change: str, expected: tuple[int, str]) -> None:
    before = await shop.login_rows()
    names = {"org": shop.tenant.org, "service": shop.id, "user": shop.user.id}
    lock = ("select 1 from users where id = %(user)s for update", names)
    answer = await run_during(shop.tenant.pool, [lock, (change, names)], shop.login)
    assert refused(answer) == expected
    if expected != UNAUTHORIZED:  # the password was right
        assert await run_sql(shop.tenant.pool, "select 1 from guesses") == []
    lost_tables = {"user_count"} if "delete" in change else set()
    assert [row for row in await shop.login_rows() if row[0] not in lost_tables] == [row for row in before if row[0] not in lost_tables]


# The user's entitlement to the service


async def test_a_token_states_the_entitlement_and_a_refresh_updates_it(shop: Shop, tenants: Tenants, clock: FakeClock) -> None:
    ports, pool = tenants.ports, tenants.pool
    twin_service = await add_service(pool, (await tenants.add("twin")).org, "shop")
    await add_plan(pool, twin_service, "Free")
    twin_plan = await add_plan(pool, twin_service, "Theirs")
    await add_subscription(ports, pool, twin_service, shop.user.id, twin_plan, ends=clock.now() + timedelta(days=9))
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
