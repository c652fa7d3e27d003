"""An API key deletes a user permanently, or from the service only.

The rules are decision 111, and security K-3, K-4, L-5, R-4, T-1.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from core.accounts import events
from core.accounts.events import identity_unlinked
from core.accounts.model.accounts import Account, AccountOrigin
from core.accounts.model.email_queue import OneTimeToken, TokenPurpose
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM
from core.kernel.connections import CODEHOST
from core.kernel.roles import ADMIN, OWNER
from core.kernel.values import digest, new_secret
from tests.applications.api.service_users import Shop, check_counts, open_shop, traces
from tests.fakes.outside import FakeClock
from tests.support.builders import PASSWORD, Answer, add_account, add_organization, run_sql
from tests.support.services import add_consent, add_plan, add_service, add_service_user, add_subscription, service_context, sign_in_to
from tests.support.tenants import Tenant, Tenants

EMAIL = "mine@example.com"

OF_USER = {"is_platform_owner": False, "kind": "user", "name": None}


@pytest.fixture
async def other_service(shop: Shop) -> Shop:
    """Another service in the same organization."""
    return await open_shop(shop.tenant, "other_service")


async def use_service(shop: Shop, account: Account, clock: FakeClock) -> list[str]:
    """Create everything that a service user leaves behind: logins, subscriptions and an identity. Return refreshed refresh tokens."""
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
    await add_consent(tenant.pool, shop.id, account.id)
    return tokens


async def renew(tenant: Tenant, refresh_token: str) -> Answer:
    return await tenant.api.post("/api/auth/refresh", {"refresh_token": refresh_token})


async def link_identity(tenant: Tenant, account: Account, service: UUID | None) -> None:
    insert = """
        insert into identities (id, user_id, service_id, provider, provider_user_id, email, linked_at)
        values (gen_random_uuid(), %s, %s, 'codehost', %s, null, now())"""
    await run_sql(tenant.pool, insert, account.id, service, str(uuid4()))


async def use_platform(tenant: Tenant, account: Account, clock: FakeClock) -> str:
    """Create what a user leaves behind outside services: logins, links from emails and an identity. Return the refresh token."""
    answer = await tenant.api.login(account.email)
    token: str = answer.json["refresh_token"]
    await tenant.api.login(account.email, "wrong password")
    async with tenant.ports.storage.transaction(by=SYSTEM) as tx:
        for purpose in TokenPurpose:
            until = clock.now() + timedelta(hours=1)
            await tx.one_time_tokens.add(
                OneTimeToken(digest(new_secret()), purpose, account.id, account.email, created_at=clock.now(), expires_at=until)
            )
    await link_identity(tenant, account, None)
    return token


async def record_own_activity(tenant: Tenant, account: Account) -> None:
    """Record what users do with their own account, in every log that receives it."""
    caller = Person(user_id=account.id, email=account.email, session_id=uuid4(), address="203.0.113.9")
    async with tenant.ports.storage.transaction(by=caller, in_session=False) as tx:
        tx.record(events.password_changed(account.id, "change"))
        tx.record(events.email_changed(account.id))


async def record_unlinked(shop: Shop, account: Account) -> None:
    """Record that the user unlinked an identity at this service."""
    service = await service_context(shop.tenant.pool, shop.id)
    async with shop.tenant.ports.storage.transaction(by=SYSTEM) as tx:
        tx.record(identity_unlinked(account.id, CODEHOST, service))


# Permanent deletion


@pytest.mark.slow
async def test_an_account_that_only_the_organization_uses_is_deleted(
    shop: Shop, other_service: Shop, foreign: Shop, tenants: Tenants, clock: FakeClock
) -> None:
    acme, other_tenant, api = shop.tenant, foreign.tenant, tenants.api
    account = await shop.add_own_user(EMAIL, PASSWORD)
    bystander = await shop.add_own_user("bystander@example.com", PASSWORD)
    await record_own_activity(acme, account)  # only the platform records it
    # A former member in another organization, which only the logs still show
    await other_tenant.join("former", account, ADMIN)
    await record_own_activity(other_tenant, account)
    assert (await other_tenant.remove("owner", "former")).status == 200
    # A user in two deleted organizations: the housekeeper has partly removed the second
    # organization
    for slug in ("gone", "cleared"):
        deleted_org = await add_organization(tenants.pool, slug)
        await add_service_user(tenants.ports, await add_service(tenants.pool, deleted_org, slug), account.id)
        await run_sql(tenants.pool, "delete from organizations where id = %s", deleted_org)
        await run_sql(tenants.pool, "insert into deleted_organizations (id, deleted_at) values (%s, now())", deleted_org)
    await run_sql(tenants.pool, "delete from service_users where org_id = %s", deleted_org)
    # A member in this organization, with an invitation
    await acme.join("mine", account, ADMIN)
    invitation = (await acme.invite("guest@example.com", by="mine"))["invitation"]["id"]
    await record_own_activity(acme, account)
    tokens = [await use_platform(acme, account, clock)]
    for one in (shop, other_service):
        tokens += await use_service(one, account, clock)
    await use_service(shop, bystander, clock)
    await acme.sign_in("mine")
    fresh = [acme.token("mine"), (await sign_in_to(tenants.ports, tenants.pool, other_service.id, account)).access_token]
    clock.advance(timedelta(seconds=1))
    await check_counts(tenants.pool)
    before = {email: await traces(tenants.pool, id_) for email, id_ in ((EMAIL, account.id), (bystander.email, bystander.id))}
    assert {"sessions.user_id", "login_events.user_id", "subscriptions.user_id", "identities.user_id"} <= before[EMAIL]

    answer = await shop.delete(account.id)
    assert (answer.status, answer.text) == (204, "")

    # The id remains only in organizations' logs about the user or their actions, and in their
    # invitation.
    assert await traces(tenants.pool, account.id) == {
        *("audit_log.target_id", "audit_log.actor_id", "events.target_id", "events.actor_id", "invitations.invited_by"),
    }
    assert await traces(tenants.pool, bystander.id) == before[bystander.email]
    await check_counts(tenants.pool)
    assert {(await renew(acme, token)).status for token in tokens} == {401}
    assert {(await api.get("/api/user", token=token)).status for token in fresh} == {401}
    assert (await shop.get(account.id)).status == (await shop.delete(account.id)).status == 404
    assert [(await one.list_users()).json["total"] for one in (shop, other_service)] == [1, 0]
    assert (await acme.members()).keys() == {f"{name}@acme.example" for name in ("owner", "admin", "member")}
    log = await acme.log()
    assert [(entry["action"], entry["target_id"], entry["details"]) for entry in log if entry["action"] != "user.invited"] == [
        ("user.removed", str(account.id), {"service_slug": "shop", "permanently": True, "role": "admin"}),
        ("invitation.revoked", invitation, {"invited_email": "guest@example.com", "role": "member"}),
    ]
    assert [entry["action"] for entry in await other_tenant.log()] == ["user.removed"], "the removal there concerns that organization"
    assert await run_sql(tenants.pool, "select action from audit_log where org_id is null") == []
    assert await run_sql(tenants.pool, "select 1 from audit_log where action in ('user.login.success', 'user.email_changed')") == []

    # The email address is free, and a new account with it is another user.
    created = await shop.create(EMAIL)
    assert created.json["id"] != str(account.id)
    assert (await shop.delete(created.json["id"])).status == 204
    assert (await api.post("/api/auth/register", {"email": EMAIL, "password": "another long password"})).status == 200
    assert await run_sql(tenants.pool, "select id from users where email = %s", EMAIL) not in ([], [(account.id,)])


async def test_the_actions_of_a_deleted_account_stay_in_the_audit_log(shop: Shop, tenants: Tenants) -> None:
    account = await shop.add_own_user(EMAIL)
    await shop.tenant.join("mine", account, ADMIN)
    invitation = await shop.tenant.invite("guest@example.com", by="mine")
    assert (await shop.delete(account.id)).status == 204
    answer = await tenants.api.get(f"{shop.tenant.path}/audit-log", token=shop.tenant.token("owner"))
    actors = {entry["action"]: entry["actor"] for entry in answer.json["logs"]}
    assert actors["user.invited"] == {"id": "unknown", "email": "deleted-user@unknown", **OF_USER}
    assert actors["user.removed"]["email"] == actors["invitation.revoked"]["email"] == "api-key@internal"
    assert (await tenants.api.post("/api/invitations/accept", {"token": invitation["token"]})).status == 400


@pytest.mark.parametrize("origin", [AccountOrigin.API_KEY, AccountOrigin.SCIM, AccountOrigin.SIGN_UP])
@pytest.mark.parametrize("sign_up", ["untouched", "with a password", "with an identity", "a member here"])
async def test_accounts_of_each_origin_in_the_organization_are_deleted(
    shop: Shop, tenants: Tenants, origin: AccountOrigin, sign_up: str
) -> None:
    account = await shop.add_own_user(EMAIL, PASSWORD if sign_up == "with a password" else None, origin)
    if sign_up == "with an identity":
        await link_identity(shop.tenant, account, None)
    if sign_up == "a member here":
        await shop.tenant.join("mine", account)
    assert (await shop.delete(account.id)).status == 204
    assert await run_sql(tenants.pool, "select 1 from users where id = %s", account.id) == []
    assert (await shop.tenant.entry("user.removed"))["details"]["permanently"] is True
    await check_counts(tenants.pool)


# Removal from the service

AddAccount = Callable[[Shop, Shop, Tenants], Awaitable[Account]]


async def _of_platform(shop: Shop, foreign: Shop, tenants: Tenants) -> Account:
    account = await add_account(tenants.ports, EMAIL)
    await add_service_user(tenants.ports, shop.id, account.id)
    return account


async def _of_other_organization(shop: Shop, foreign: Shop, tenants: Tenants) -> Account:
    account = await add_account(tenants.ports, EMAIL, origin=AccountOrigin.API_KEY, origin_org_id=foreign.tenant.org)
    await add_service_user(tenants.ports, shop.id, account.id)
    return account


async def _of_deleted_organization(shop: Shop, foreign: Shop, tenants: Tenants) -> Account:
    account = await add_account(tenants.ports, EMAIL, origin=AccountOrigin.API_KEY, origin_org_id=uuid4())
    await add_service_user(tenants.ports, shop.id, account.id)
    return account


async def _member_elsewhere(shop: Shop, foreign: Shop, tenants: Tenants) -> Account:
    account = await shop.add_own_user(EMAIL, PASSWORD)
    await foreign.tenant.join("theirs", account)
    await run_sql(tenants.pool, "update memberships set confirmed_at = null where user_id = %s", account.id)
    return account


async def _end_user_elsewhere(shop: Shop, foreign: Shop, tenants: Tenants) -> Account:
    account = await shop.add_own_user(EMAIL, PASSWORD)
    await add_service_user(tenants.ports, foreign.id, account.id, signed_in=False)
    return account


async def _platform_owner(shop: Shop, foreign: Shop, tenants: Tenants) -> Account:
    return await shop.add_own_user(EMAIL, PASSWORD, is_platform_owner=True)


async def _owner(shop: Shop, foreign: Shop, tenants: Tenants) -> Account:
    account = await shop.add_own_user(EMAIL, PASSWORD)
    await run_sql(tenants.pool, "update memberships set role = 'admin' where org_id = %s and role = 'owner'", shop.tenant.org)
    await shop.tenant.join("mine", account, OWNER)
    return account


SHARED: dict[str, AddAccount] = {
    "created on the platform": _of_platform,
    "created by another organization": _of_other_organization,
    "created by a deleted organization": _of_deleted_organization,
    "unconfirmed member of another organization": _member_elsewhere,
    "end user of another organization": _end_user_elsewhere,
    "platform owner": _platform_owner,
    "owner of the organization": _owner,
}


async def rows_of(tenants: Tenants, account: Account, without: Shop | None = None) -> list[Any]:
    """Return all the user's rows, optionally without a service's rows."""
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
@pytest.mark.parametrize("origin", SHARED)
async def test_a_shared_account_is_only_removed_from_the_service(
    shop: Shop, other_service: Shop, foreign: Shop, tenants: Tenants, clock: FakeClock, origin: str
) -> None:
    account = await SHARED[origin](shop, foreign, tenants)
    bystander = await shop.add_own_user("bystander@example.com", PASSWORD)
    await use_service(shop, bystander, clock)
    tokens = [await use_platform(shop.tenant, account, clock), *await use_service(other_service, account, clock)]
    lost = await use_service(shop, account, clock)
    fresh = (await sign_in_to(tenants.ports, tenants.pool, shop.id, account)).access_token
    before, bystanders = await rows_of(tenants, account, shop), await rows_of(tenants, bystander)
    for one in (shop, other_service):
        await record_unlinked(one, account)
        await record_unlinked(one, bystander)

    answer = await shop.delete(account.id)
    assert (answer.status, answer.text) == (204, "")

    assert await rows_of(tenants, account, shop) == before
    assert await rows_of(tenants, account) == before, "no rows of this service are left"
    assert await rows_of(tenants, bystander) == bystanders
    await check_counts(tenants.pool)
    assert (await tenants.api.get("/api/user", token=fresh)).status == 401
    assert [(await renew(shop.tenant, token)).status for token in [*lost, *tokens]] == [401, 401, 200, 200, 200]
    assert [(await one.get(account.id)).status for one in (shop, other_service)] == [404, 200]
    assert (await shop.delete(account.id)).status == 404
    entry = await shop.tenant.entry("user.removed")
    assert (entry["target_id"], entry["details"]) == (str(account.id), {"service_slug": "shop", "permanently": False})
    unlinked = [entry for entry in await shop.tenant.log() if entry["action"] == "security.identity.unlinked"]
    assert [(entry["target_id"], entry["details"]["service_slug"]) for entry in unlinked] == [
        *((str(bystander.id), "shop"), (str(account.id), "other_service"), (str(bystander.id), "other_service")),
    ]
    # A later sign-in makes them a new user in the service.
    login = {"email": EMAIL, "password": PASSWORD, "org_slug": "acme", "service_slug": "shop"}
    assert (await tenants.api.post("/api/auth/login", login)).status == 200
    [(since, first)] = await run_sql(
        tenants.pool, "select created_at, first_login_at from service_users where service_id = %s and user_id = %s", shop.id, account.id
    )
    assert since == first == clock.now()
    await check_counts(tenants.pool)


async def test_a_user_without_services_is_no_longer_an_end_user(shop: Shop, other_service: Shop, tenants: Tenants) -> None:
    account = await add_account(tenants.ports, EMAIL)
    for one in (shop, other_service):
        await add_service_user(tenants.ports, one.id, account.id)

    async def end_users() -> list[Any]:
        await check_counts(tenants.pool)
        return await run_sql(tenants.pool, "select user_id from end_users where org_id = %s", shop.tenant.org)

    assert (await shop.delete(account.id)).status == 204
    assert await end_users() == [(account.id,)]
    assert (await other_service.delete(account.id)).status == 204
    assert await end_users() == []


async def test_tokens_of_the_service_are_refused_immediately(shop: Shop, tenants: Tenants) -> None:
    account = await add_account(tenants.ports, EMAIL)
    session = await sign_in_to(tenants.ports, tenants.pool, shop.id, account)
    assert (await tenants.api.get("/api/user", token=session.access_token)).status == 200
    assert (await shop.delete(account.id)).status == 204
    answer = await tenants.api.get("/api/user", token=session.access_token)
    assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
    assert (await tenants.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})).status == 401
    # This holds even if the user signs in again, because that is another session.
    await add_service_user(tenants.ports, shop.id, account.id)
    assert (await tenants.api.get("/api/user", token=session.access_token)).status == 401
