"""Deleting a user through an API key: for good, or from the service only (identity.md sections 3 and 4.5, rule 4; decisions, points 110 and
111; security.md Terms, K-3, K-4, L-5, R-4 and T-1)."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from core.accounts import events
from core.accounts.accounts_rules import Account, AccountOrigin
from core.accounts.one_time_tokens import TokenPurpose
from core.kernel.principals import SYSTEM, Person, Role
from core.kernel.values import digest, new_secret
from tests.applications.api.service_users import Shop, check_counts, open_shop, traces
from tests.fakes.outside import FakeClock
from tests.support.builders import PASSWORD, Answer, add_account, add_organization, run_sql
from tests.support.services import add_plan, add_service, add_service_user, add_subscription, service_context, sign_in_to
from tests.support.tenants import Tenant, Tenants

EMAIL = "mine@example.com"


@pytest.fixture
async def shop(acme: Tenant) -> Shop:
    return await open_shop(acme)


@pytest.fixture
async def second(shop: Shop) -> Shop:
    """Another service of the same organization."""
    return await open_shop(shop.tenant, "second")


@pytest.fixture
async def other(twin: Tenant) -> Shop:
    """A service of another organization."""
    return await open_shop(twin)


async def live(shop: Shop, account: Account, clock: FakeClock) -> list[str]:
    """Everything that somebody leaves behind who uses a service: logins, subscriptions, an identity. The refresh tokens, renewed once."""
    tenant = shop.tenant
    slug = (await service_context(tenant.pool, shop.id)).slug
    credentials = {"email": account.email, "password": PASSWORD, "org_slug": tenant.slug, "service_slug": slug}
    tokens = []
    for _ in range(2):
        clock.advance(timedelta(days=1))
        answer = await tenant.api.post("/api/auth/login", credentials)
        assert answer.status == 200, answer.text
        tokens.append((await renew(tenant, answer.json["refresh_token"])).json["refresh_token"])
    for status in ("cancelled", "active"):
        plan = await add_plan(tenant.pool, shop.id)
        await add_subscription(tenant.ports, tenant.pool, shop.id, account.id, plan, status, ends=clock.now() + timedelta(days=30))
    await link_identity(tenant, account, shop.id)
    return tokens


async def renew(tenant: Tenant, refresh_token: str) -> Answer:
    return await tenant.api.post("/api/auth/refresh", {"refresh_token": refresh_token})


async def link_identity(tenant: Tenant, account: Account, service: UUID | None) -> None:
    insert = """
        insert into identities (id, user_id, service_id, provider, provider_user_id, email, linked_at)
        values (gen_random_uuid(), %s, %s, 'codehost', %s, null, now())"""
    await run_sql(tenant.pool, insert, account.id, service, str(uuid4()))


async def live_on_the_platform(tenant: Tenant, account: Account, clock: FakeClock) -> str:
    """The same besides all services: a login, one that failed, links of mails, an identity. The refresh token."""
    answer = await tenant.api.login(account.email)
    token: str = answer.json["refresh_token"]
    await tenant.api.login(account.email, "wrong password")
    async with tenant.ports.storage.transaction(by=SYSTEM) as tx:
        for purpose in TokenPurpose:
            until = clock.now() + timedelta(hours=1)
            await tx.one_time_tokens.add(digest(new_secret()), purpose, account.id, account.email, created_at=clock.now(), expires_at=until)
    await link_identity(tenant, account, None)
    return token


async def record_a_password(tenant: Tenant, account: Account) -> None:
    """What is recorded where somebody chooses another password: in every log that hears of it."""
    caller = Person(user_id=account.id, email=account.email, session_id=uuid4(), address="203.0.113.9")
    async with tenant.ports.storage.transaction(by=caller, in_session=False) as tx:
        tx.record(events.password_changed(account.id, "change"))


# For good


@pytest.mark.slow
async def test_an_account_that_only_the_organization_knows_is_gone_for_good(
    shop: Shop, second: Shop, other: Shop, tenants: Tenants, clock: FakeClock
) -> None:
    acme, twin, api = shop.tenant, other.tenant, tenants.api
    account = await shop.add_own_user(EMAIL, PASSWORD)
    bystander = await shop.add_own_user("bystander@example.com", PASSWORD)
    await record_a_password(acme, account)  # nobody hears of it but the platform
    # Once a member elsewhere, of which nothing is left but what the logs say.
    await twin.join("former", account, Role.ADMIN)
    await record_a_password(twin, account)
    assert (await twin.remove("owner", "former")).status == 200
    # And a user of two organizations that are gone: one as a deletion leaves it, and one that is half cleared away.
    for slug in ("gone", "cleared"):
        gone = await add_organization(tenants.pool, slug)
        await add_service_user(tenants.ports, await add_service(tenants.pool, gone, slug), account.id)
        await run_sql(tenants.pool, "delete from organizations where id = %s", gone)
        await run_sql(tenants.pool, "insert into deleted_organizations (id, deleted_at) values (%s, now())", gone)
    await run_sql(tenants.pool, "delete from service_users where org_id = %s", gone)
    # A member here, too, who has invited somebody.
    await acme.join("mine", account, Role.ADMIN)
    invitation = (await acme.invite("guest@example.com", by="mine"))["invitation"]["id"]
    await record_a_password(acme, account)
    tokens = [await live_on_the_platform(acme, account, clock)]
    for one in (shop, second):
        tokens += await live(one, account, clock)
    await live(shop, bystander, clock)
    await acme.sign_in("mine")
    fresh = [acme.token("mine"), (await sign_in_to(tenants.ports, tenants.pool, second.id, account)).access_token]
    clock.advance(timedelta(seconds=1))
    await check_counts(tenants.pool)
    before = {email: await traces(tenants.pool, id_) for email, id_ in ((EMAIL, account.id), (bystander.email, bystander.id))}
    assert {"sessions.user_id", "login_events.user_id", "subscriptions.user_id", "identities.user_id"} <= before[EMAIL]

    answer = await shop.delete(account.id)
    assert (answer.status, answer.text) == (204, "")

    # Nothing knows the id any more but those who tell what organizations did with the person, and the person with them.
    assert await traces(tenants.pool, account.id) == {
        *("audit_log.target_id", "audit_log.actor_id", "events.target_id", "events.actor_id", "invitations.invited_by"),
    }
    assert await traces(tenants.pool, bystander.id) == before[bystander.email]
    await check_counts(tenants.pool)
    assert {(await renew(acme, token)).status for token in tokens} == {401}
    assert {(await api.get("/api/user", token=token)).status for token in fresh} == {401}
    assert (await shop.get(account.id)).status == (await shop.delete(account.id)).status == 404
    assert [(await one.list_users()).json["total"] for one in (shop, second)] == [1, 0]
    assert (await acme.members()).keys() == {f"{name}@acme.example" for name in ("owner", "admin", "member")}
    log = await acme.log()
    assert [(entry["action"], entry["target_id"], entry["details"]) for entry in log if entry["action"] != "user.invited"] == [
        ("user.removed", str(account.id), {"service_slug": "shop", "permanently": True, "role": "admin"}),
        ("invitation.revoked", invitation, {"invited_email": "guest@example.com", "role": "member"}),
    ]
    assert [entry["action"] for entry in await twin.log()] == ["user.removed"], (
        "that they were removed from there is about the organization"
    )
    assert await run_sql(tenants.pool, "select action from audit_log where org_id is null") == []

    # The address is free, and whoever takes it is somebody else.
    created = await shop.create(EMAIL)
    assert created.json["id"] != str(account.id)
    assert (await shop.delete(created.json["id"])).status == 204
    assert (await api.post("/api/auth/register", {"email": EMAIL, "password": "another long password"})).status == 200
    assert await run_sql(tenants.pool, "select id from users where email = %s", EMAIL) not in ([], [(account.id,)])


async def test_what_the_person_did_in_the_organization_stays_in_its_log(shop: Shop, tenants: Tenants) -> None:
    account = await shop.add_own_user(EMAIL)
    await shop.tenant.join("mine", account, Role.ADMIN)
    made = await shop.tenant.invite("guest@example.com", by="mine")
    assert (await shop.delete(account.id)).status == 204
    answer = await tenants.api.get(f"{shop.tenant.path}/audit-log", token=shop.tenant.token("owner"))
    shown = {entry["action"]: entry["actor"] for entry in answer.json["logs"]}
    assert shown["user.invited"] == {"id": "unknown", "email": "deleted-user@unknown", "is_platform_owner": False}
    assert shown["user.removed"]["email"] == shown["invitation.revoked"]["email"] == "api-key@internal"
    assert (await tenants.api.post("/api/invitations/accept", {"token": made["token"]})).status == 400


@pytest.mark.parametrize("origin", [AccountOrigin.API_KEY, AccountOrigin.SCIM, AccountOrigin.SIGN_UP])
@pytest.mark.parametrize("how", ["untouched", "with a password", "with an identity", "a member here"])
async def test_however_it_was_born_here_and_whatever_it_has(shop: Shop, tenants: Tenants, origin: AccountOrigin, how: str) -> None:
    account = await shop.add_own_user(EMAIL, PASSWORD if how == "with a password" else None, origin)
    if how == "with an identity":
        await link_identity(shop.tenant, account, None)
    if how == "a member here":
        await shop.tenant.join("mine", account)
    assert (await shop.delete(account.id)).status == 204
    assert await run_sql(tenants.pool, "select 1 from users where id = %s", account.id) == []
    assert (await shop.tenant.entry("user.removed"))["details"]["permanently"] is True
    await check_counts(tenants.pool)


# From the service only

Tie = Callable[[Shop, Shop, Tenants], Awaitable[Account]]


async def _plain(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    account = await add_account(tenants.ports, EMAIL)
    await add_service_user(tenants.ports, shop.id, account.id)
    return account


async def _born_elsewhere(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    account = await add_account(tenants.ports, EMAIL, origin=AccountOrigin.API_KEY, origin_org_id=other.tenant.org)
    await add_service_user(tenants.ports, shop.id, account.id)
    return account


async def _born_where_is_nothing(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    account = await add_account(tenants.ports, EMAIL, origin=AccountOrigin.API_KEY, origin_org_id=uuid4())
    await add_service_user(tenants.ports, shop.id, account.id)
    return account


async def _member_elsewhere(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    account = await shop.add_own_user(EMAIL, PASSWORD)
    await other.tenant.join("theirs", account)
    await run_sql(tenants.pool, "update memberships set confirmed_at = null where user_id = %s", account.id)
    return account


async def _end_user_elsewhere(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    account = await shop.add_own_user(EMAIL, PASSWORD)
    await add_service_user(tenants.ports, other.id, account.id, signed_in=False)
    return account


async def _platform_owner(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    return await shop.add_own_user(EMAIL, PASSWORD, is_platform_owner=True)


async def _owner(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    account = await shop.add_own_user(EMAIL, PASSWORD)
    await run_sql(tenants.pool, "update memberships set role = 'admin' where org_id = %s and role = 'owner'", shop.tenant.org)
    await shop.tenant.join("mine", account, Role.OWNER)
    return account


SHARED: dict[str, Tie] = {
    "born on the platform": _plain,
    "born at another organization": _born_elsewhere,
    "born at an organization that is gone": _born_where_is_nothing,
    "a member of another organization, who never took part": _member_elsewhere,
    "an end user of another organization": _end_user_elsewhere,
    "a platform owner": _platform_owner,
    "the owner of the organization": _owner,
}


async def state(tenants: Tenants, account: Account, without: Shop | None = None) -> list[Any]:
    """All that there is of the person, apart from a service."""
    service = None if without is None else without.id
    of_others = "user_id = %s and (%s::uuid is null or service_id is distinct from %s)"
    return [
        await run_sql(tenants.pool, "select * from users where id = %s", account.id),
        await run_sql(tenants.pool, "select * from memberships where user_id = %s order by id", account.id),
        *[
            await run_sql(tenants.pool, f"select * from {table} where {of_others} order by 1, 2", account.id, service, service)  # noqa: S608
            for table in ("sessions", "login_events", "identities", "subscriptions", "service_users")
        ],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("who", SHARED)
async def test_an_account_that_others_know_is_detached_from_this_service_only(
    shop: Shop, second: Shop, other: Shop, tenants: Tenants, clock: FakeClock, who: str
) -> None:
    account = await SHARED[who](shop, other, tenants)
    bystander = await shop.add_own_user("bystander@example.com", PASSWORD)
    await live(shop, bystander, clock)
    kept = [await live_on_the_platform(shop.tenant, account, clock), *await live(second, account, clock)]
    lost = await live(shop, account, clock)
    fresh = (await sign_in_to(tenants.ports, tenants.pool, shop.id, account)).access_token
    before, bystanders = await state(tenants, account, shop), await state(tenants, bystander)

    answer = await shop.delete(account.id)
    assert (answer.status, answer.text) == (204, "")

    assert await state(tenants, account, shop) == before
    assert await state(tenants, account) == before, "of this service nothing is left"
    assert await state(tenants, bystander) == bystanders
    await check_counts(tenants.pool)
    assert (await tenants.api.get("/api/user", token=fresh)).status == 401
    assert [(await renew(shop.tenant, token)).status for token in [*lost, *kept]] == [401, 401, 200, 200, 200]
    assert [(await one.get(account.id)).status for one in (shop, second)] == [404, 200]
    assert (await shop.delete(account.id)).status == 404
    entry = await shop.tenant.entry("user.removed")
    assert (entry["target_id"], entry["details"]) == (str(account.id), {"service_slug": "shop", "permanently": False})
    # Whoever signs in again is a user again, as if for the first time.
    login = {"email": EMAIL, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"}
    assert (await tenants.api.post("/api/auth/login", login)).status == 200
    [(since, first)] = await run_sql(
        tenants.pool, "select created_at, first_login_at from service_users where service_id = %s and user_id = %s", shop.id, account.id
    )
    assert since == first == clock.now()
    await check_counts(tenants.pool)


async def test_who_uses_no_service_of_the_organization_any_more_is_no_end_user_of_it(shop: Shop, second: Shop, tenants: Tenants) -> None:
    account = await add_account(tenants.ports, EMAIL)
    for one in (shop, second):
        await add_service_user(tenants.ports, one.id, account.id)

    async def end_users() -> list[Any]:
        await check_counts(tenants.pool)
        return await run_sql(tenants.pool, "select user_id from end_users where org_id = %s", shop.tenant.org)

    assert (await shop.delete(account.id)).status == 204
    assert await end_users() == [(account.id,)]
    assert (await second.delete(account.id)).status == 204
    assert await end_users() == []


async def test_a_token_of_the_service_is_worth_nothing_from_that_moment_on(shop: Shop, tenants: Tenants) -> None:
    account = await add_account(tenants.ports, EMAIL)
    session = await sign_in_to(tenants.ports, tenants.pool, shop.id, account)
    assert (await tenants.api.get("/api/user", token=session.access_token)).status == 200
    assert (await shop.delete(account.id)).status == 204
    answer = await tenants.api.get("/api/user", token=session.access_token)
    assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
    assert (await tenants.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})).status == 401
    # Not even when the person is back: the session is another one.
    await add_service_user(tenants.ports, shop.id, account.id)
    assert (await tenants.api.get("/api/user", token=session.access_token)).status == 401
