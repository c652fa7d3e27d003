"""Reading and creating a service's users in the service API (security A-9, E-3, K-3, T-1)."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from core.accounts.model.accounts import AccountOrigin
from core.kernel.values import rfc3339
from tests.applications.api.service_accounts import SECOND, account_of
from tests.applications.api.service_users import USERS, Shop, check_counts
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import Answer, add_account, deliver, link, run_sql
from tests.support.refusals import BAD, MISSING, refused
from tests.support.services import add_service, add_service_user
from tests.support.tenants import Tenants

# Reading


async def test_users_are_listed_earliest_first(shop: Shop, foreign: Shop, clock: FakeClock) -> None:
    second = await add_service(shop.tenant.pool, shop.tenant.org, "second")
    accounts = [
        await add_account(shop.tenant.ports, f"n{number}@example.com", created_at=clock.now() - number * SECOND) for number in range(5)
    ]
    for number, account in enumerate(accounts):
        clock.advance(SECOND)
        await add_service_user(shop.tenant.ports, shop.id, account.id, signed_in=number % 2 == 0)
    for number in (7, 8):
        other = await add_account(shop.tenant.ports, f"n{number}@example.com")
        await add_service_user(shop.tenant.ports, second if number == 7 else foreign.id, other.id)
    await add_service_user(shop.tenant.ports, foreign.id, accounts[0].id)
    entries = [{"id": str(one.id), "email": one.email, "created_at": rfc3339(one.created_at)} for one in accounts]
    assert (await shop.list_users()).json == {"users": entries, "total": 5}
    for query, expected in (
        ("?limit=2", entries[:2]),
        ("?limit=2&offset=3", entries[3:]),
        ("?offset=5", []),
        ("?limit=-3&offset=-3", entries[:1]),
        (f"?limit={10**30}&offset=1", entries[1:]),
        (f"?offset={10**30}", []),
    ):
        assert (await shop.list_users(query)).json == {"users": expected, "total": 5}, query
    for query in ("?limit=x", "?offset=1.5", "?offset="):
        assert refused(await shop.list_users(query)) == BAD, query
    for one in entries:
        assert (await shop.get(one["id"])).json == one


async def test_a_service_without_users_has_an_empty_list(shop: Shop) -> None:
    assert (await shop.list_users()).json == {"users": [], "total": 0}


Call = Callable[[Shop, object], Awaitable[Answer]]
CALLS: dict[str, Call] = {
    "one": lambda shop, user: shop.get(user),
    "change": lambda shop, user: shop.update(user, email="new@example.com"),
    "delete": lambda shop, user: shop.delete(user),
}


@pytest.mark.parametrize("call", CALLS)
async def test_accounts_that_do_not_use_the_service_are_not_found(shop: Shop, foreign: Shop, tenants: Tenants, call: str) -> None:
    neighbour = Shop(shop.tenant, await add_service(shop.tenant.pool, shop.tenant.org, "second"), "")
    user = str((await shop.add_own_user("n0@example.com")).id)
    other_users = {
        "user of another service": (await neighbour.add_own_user("n1@example.com")).id,
        "user of another organization": (await foreign.add_own_user("n2@example.com")).id,
        "member": shop.tenant.people["member"].id,
        "account of the organization without services": (
            await add_account(tenants.ports, "n3@example.com", origin=AccountOrigin.API_KEY, origin_org_id=shop.tenant.org)
        ).id,
        "other account": (await add_account(tenants.ports, "n4@example.com")).id,
        "unknown id": uuid4(),
        "id of the service": shop.id,
        "not an id": "x",
        "id in upper case": user.upper(),
        "id with a space": f"{user}%20",
    }
    before = await run_sql(tenants.pool, "select * from users order by id")
    answers = {case: await CALLS[call](shop, other) for case, other in other_users.items()}
    assert {case: refused(answer) for case, answer in answers.items()} == dict.fromkeys(other_users, MISSING)
    assert len({answer.json["error"] for answer in answers.values()}) == 1
    assert await run_sql(tenants.pool, "select * from users order by id") == before
    assert await shop.tenant.log() == []
    await check_counts(tenants.pool)


async def test_an_unknown_user_is_refused_before_the_body_is_parsed(shop: Shop) -> None:
    answers = [
        await shop.tenant.api.call("PATCH", f"{USERS}/{uuid4()}", raw=raw, headers={**shop.headers, **headers})
        for raw, headers in ((b"{", {}), (b'{"email": 5}', {}), (b"x", {"Content-Type": "text/plain"}), (None, {}))
    ]
    assert {refused(answer) for answer in answers} == {MISSING}


# Creation


async def test_a_new_user_originates_from_the_organization_and_uses_the_service(
    shop: Shop, clock: FakeClock, sent: FakeMailTransport
) -> None:
    answer = await shop.create("  New@Example.COM ")
    assert answer.status == 200
    user = answer.json["id"]
    assert answer.json == {"id": user, "email": "new@example.com", "created_at": rfc3339(clock.now())}
    assert (await shop.get(user)).json == answer.json
    assert (await shop.list_users()).json == {"users": [answer.json], "total": 1}
    account = await account_of(shop, "new@example.com")
    assert account is not None
    assert (account.origin, account.origin_org_id, account.password_hash) == (AccountOrigin.API_KEY, shop.tenant.org, None)
    assert account.email_verified_at is account.first_verified_at is None
    assert await run_sql(shop.tenant.pool, "select org_id, service_id, first_login_at, last_login_at from service_users") == [
        (shop.tenant.org, shop.id, None, None)
    ]
    assert await run_sql(shop.tenant.pool, "select org_id, user_id, email from end_users") == [(shop.tenant.org, account.id, account.email)]
    await check_counts(shop.tenant.pool)
    # The sign-up event goes to webhooks, but not into the audit log (docs/reference/events.md).
    created = {"service_slug": "shop"}
    assert await shop.tenant.webhook_events() == [
        ("user.signup.success", user, {"service_id": str(shop.id)}),
        ("user.created", user, created),
    ]
    [entry] = await shop.tenant.log()
    assert (entry["action"], entry["target_type"], entry["target_id"], entry["details"]) == ("user.created", "user", user, created)
    assert await run_sql(shop.tenant.pool, "select 1 from mails") == []
    # A second request returns the same user.
    clock.advance(SECOND)
    assert (await shop.create("NEW@example.com")).json == answer.json
    assert len(await shop.tenant.webhook_events()) == 2
    await deliver(shop.tenant.ports)
    assert sent.emails == []


async def test_a_new_user_signs_in_after_setting_a_password_with_a_reset_link(shop: Shop, sent: FakeMailTransport) -> None:
    api = shop.tenant.api
    user = await shop.add_user("new@example.com")
    assert (await api.login("new@example.com")).status == 401
    await api.post("/api/auth/forgot-password", {"email": "new@example.com"})
    await deliver(shop.tenant.ports)
    [letter] = sent.emails
    assert (await api.post("/api/auth/reset-password", {"token": link(letter), "new_password": "a good long password"})).status == 200
    login = {"email": "new@example.com", "password": "a good long password", "org_slug": "acme", "service_slug": "shop"}
    token = (await api.post("/api/auth/login", login)).json["access_token"]
    profile = (await api.get("/api/user", token=token)).json
    assert [profile[field] for field in ("id", "email", "org", "service")] == [str(user), "new@example.com", "acme", "shop"]
    assert (await shop.list_users()).json["total"] == 1
    await check_counts(shop.tenant.pool)


async def test_an_existing_account_is_returned_and_does_not_become_a_user(shop: Shop, foreign: Shop, tenants: Tenants) -> None:
    second = Shop(shop.tenant, await add_service(shop.tenant.pool, shop.tenant.org, "second"), "")
    existing = [
        await add_account(tenants.ports, "plain@example.com"),
        await add_account(tenants.ports, "unverified@example.com", verified=False),
        await foreign.add_own_user("theirs@example.com"),
        await second.add_own_user("ours@example.com"),
        shop.tenant.people["member"],
    ]
    before = [
        *await tenants.everything(),
        *await run_sql(tenants.pool, "select * from service_users order by 1, 2"),
        *await run_sql(tenants.pool, "select * from end_users order by 1, 2"),
        *await run_sql(tenants.pool, "select * from users order by id"),
    ]
    for account in existing:
        answer = await shop.create(account.email.upper())
        assert (answer.status, answer.json) == (
            200,
            {"id": str(account.id), "email": account.email, "created_at": rfc3339(account.created_at)},
        )
        for call in CALLS.values():
            assert refused(await call(shop, account.id)) == MISSING, account.email
    assert (await shop.list_users()).json == {"users": [], "total": 0}
    assert [
        *await tenants.everything(),
        *await run_sql(tenants.pool, "select * from service_users order by 1, 2"),
        *await run_sql(tenants.pool, "select * from end_users order by 1, 2"),
        *await run_sql(tenants.pool, "select * from users order by id"),
    ] == before
    # After signing in, the account is a user in the service.
    await add_service_user(tenants.ports, shop.id, existing[0].id)
    assert (await shop.get(existing[0].id)).status == 200


async def test_invalid_email_addresses_are_refused_on_creation(shop: Shop) -> None:
    for email in (
        "",
        " ",
        "x",
        "a@b",
        "a@@b.example",
        "a b@example.com",
        "a@[127.0.0.1]",
        "\uff41@example.com",
        5,
        None,
        ["a@example.com"],
    ):
        assert refused(await shop.create(email)) == BAD, email
    assert await shop.stored_emails() == []
