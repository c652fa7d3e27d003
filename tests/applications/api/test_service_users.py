"""The users of a service in the service API.

The rules are decisions 8, 9, 16, 63, 109, 110, 112, and security A-9, E-3, K-3, K-4, T-1, T-2. The
module is longer than 400 lines, because its tests share fixtures and helpers.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from core.accounts.accounts_rules import Account, AccountOrigin
from core.accounts.one_time_tokens import TokenPurpose
from core.kernel.principals import SYSTEM, Role
from core.kernel.values import digest, rfc3339
from tests.applications.api.service_users import USERS, Shop, check_counts, open_shop
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import Answer, add_account, add_organization, deliver, link, run_sql, sign_in
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.services import add_service, add_service_user, sign_in_to
from tests.support.tenants import Tenant, Tenants

SECOND = timedelta(seconds=1)


@pytest.fixture
async def shop(acme: Tenant) -> Shop:
    return await open_shop(acme)


@pytest.fixture
async def foreign(other_tenant: Tenant) -> Shop:
    return await open_shop(other_tenant)


async def account_of(shop: Shop, email: str) -> Account | None:
    async with shop.tenant.ports.storage.reading() as read:
        return await read.accounts.by_email(email)  # type: ignore[arg-type]


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
    shown = [{"id": str(one.id), "email": one.email, "created_at": rfc3339(one.created_at)} for one in accounts]
    assert (await shop.list_users()).json == {"users": shown, "total": 5}
    for query, expected in (
        ("?limit=2", shown[:2]),
        ("?limit=2&offset=3", shown[3:]),
        ("?offset=5", []),
        ("?limit=-3&offset=-3", shown[:1]),
        (f"?limit={10**30}&offset=1", shown[1:]),
        (f"?offset={10**30}", []),
    ):
        assert (await shop.list_users(query)).json == {"users": expected, "total": 5}, query
    for query in ("?limit=x", "?offset=1.5", "?offset="):
        assert refused(await shop.list_users(query)) == BAD, query
    for one in shown:
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
    others = {
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
    answers = {what: await CALLS[call](shop, other) for what, other in others.items()}
    assert {what: refused(answer) for what, answer in answers.items()} == dict.fromkeys(others, MISSING)
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
    user = await shop.created("new@example.com")
    assert (await api.login("new@example.com")).status == 401
    await api.post("/api/auth/forgot-password", {"email": "new@example.com"})
    await deliver(shop.tenant.ports)
    [letter] = sent.emails
    assert (await api.post("/api/auth/reset-password", {"token": link(letter), "new_password": "a good long password"})).status == 200
    login = {"email": "new@example.com", "password": "a good long password", "org_slug": "acme", "service_slug": "shop"}
    token = (await api.post("/api/auth/login", login)).json["access_token"]
    assert (await api.get("/api/user", token=token)).json == {
        "id": str(user),
        "email": "new@example.com",
        "org": "acme",
        "service": "shop",
    }
    assert (await shop.list_users()).json["total"] == 1
    await check_counts(shop.tenant.pool)


async def test_an_existing_account_is_returned_and_does_not_become_a_user(shop: Shop, foreign: Shop, tenants: Tenants) -> None:
    second = Shop(shop.tenant, await add_service(shop.tenant.pool, shop.tenant.org, "second"), "")
    known = [
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
    for account in known:
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
    # After signing in, the account is a user of the service.
    await add_service_user(tenants.ports, shop.id, known[0].id)
    assert (await shop.get(known[0].id)).status == 200


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


# Changes


async def give_links(shop: Shop, account: Account, now: Any) -> None:
    async with shop.tenant.ports.storage.transaction(by=SYSTEM) as tx:
        for purpose in TokenPurpose:
            await tx.one_time_tokens.add(
                digest(purpose), purpose, account.id, account.email, created_at=now, expires_at=now + timedelta(hours=1)
            )


@pytest.mark.parametrize("origin", [AccountOrigin.API_KEY, AccountOrigin.SCIM])
@pytest.mark.parametrize("verified", [True, False])
async def test_the_email_address_of_a_managed_account_can_be_changed(
    shop: Shop, clock: FakeClock, sent: FakeMailTransport, origin: AccountOrigin, verified: bool
) -> None:
    account = await shop.add_own_user("old@example.com", origin=origin, verified=verified)
    sessions = [await sign_in(shop.tenant.ports, account), await sign_in_to(shop.tenant.ports, shop.tenant.pool, shop.id, account)]
    await give_links(shop, account, clock.now())
    clock.advance(SECOND)
    answer = await shop.update(account.id, email=" New@Example.com")
    assert (answer.status, answer.json) == (
        200,
        {"id": str(account.id), "email": "new@example.com", "created_at": rfc3339(account.created_at)},
    )
    assert (await shop.get(account.id)).json == answer.json
    changed = await account_of(shop, "new@example.com")
    assert changed is not None
    assert (changed.id, changed.email_verified_at, changed.first_verified_at) == (account.id, None, account.first_verified_at)
    for session in sessions:
        assert refused(await shop.tenant.api.get("/api/user", token=session.access_token)) == (401, "UNAUTHORIZED")
        assert (await shop.tenant.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})).status == 401
    assert await run_sql(shop.tenant.pool, "select 1 from one_time_tokens") == []
    assert (
        await run_sql(shop.tenant.pool, "select email from service_users union all select email from end_users")
        == [("new@example.com",)] * 2
    )
    await deliver(shop.tenant.ports)
    # The old address gets an email if it was verified. The new one gets none.
    assert [letter.to for letter in sent.emails] == (["old@example.com"] if verified else [])
    await check_counts(shop.tenant.pool)


async def test_an_anonymized_account_gets_no_email_address(shop: Shop) -> None:
    account = await shop.add_own_user("gone@example.com", anonymized_at=shop.tenant.ports.clock.now())
    assert refused(await shop.update(account.id, email="back@example.com")) == (403, "FORBIDDEN")
    assert await account_of(shop, "back@example.com") is None


async def test_an_update_without_effect_leaves_no_trace(shop: Shop, tenants: Tenants) -> None:
    shared, mine = await add_account(tenants.ports, "shared@example.com"), await shop.add_own_user("mine@example.com")
    await add_service_user(tenants.ports, shop.id, shared.id)
    before = await run_sql(tenants.pool, "select * from users order by id")
    for account in (shared, mine):
        shown = (await shop.get(account.id)).json
        for fields in ({}, {"unknown": "x"}, {"email": account.email}, {"email": f" {account.email.upper()}"}):
            answer = await shop.update(account.id, **fields)
            assert (answer.status, answer.json) == (200, shown), fields
    assert await run_sql(tenants.pool, "select * from users order by id") == before
    assert await run_sql(tenants.pool, "select 1 from mails") == []


async def test_invalid_email_addresses_are_refused_on_update(shop: Shop) -> None:
    account = await shop.add_own_user("mine@example.com")
    for email in (None, "", "x", "a@b", 5):
        assert refused(await shop.update(account.id, email=email)) == BAD, email
    assert await shop.stored_emails() == ["mine@example.com"]


async def test_the_email_address_of_another_account_is_refused(shop: Shop, tenants: Tenants) -> None:
    account, other = await shop.add_own_user("mine@example.com"), await add_account(tenants.ports, "taken@example.com")
    session = await sign_in(tenants.ports, account)
    assert refused(await shop.update(account.id, email="Taken@example.com")) == BAD
    assert (await tenants.api.get("/api/user", token=session.access_token)).json["email"] == "mine@example.com"
    assert (await account_of(shop, "taken@example.com")) == other
    assert await run_sql(tenants.pool, "select 1 from mails") == []


async def verify_domain(shop: Shop, domain: str, *, verified: bool = True) -> None:
    await run_sql(
        shop.tenant.pool,
        "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, %s, 'x', case when %s then now() end, now())",
        shop.tenant.org,
        domain,
        verified,
    )


async def link_identity(shop: Shop, account: Account, service: UUID | None) -> None:
    await run_sql(
        shop.tenant.pool,
        """
        insert into identities (id, user_id, service_id, provider, provider_user_id, email, linked_at)
        values (gen_random_uuid(), %s, %s, 'codehost', %s, null, now())""",
        account.id,
        service,
        str(account.id),
    )


AddAccount = Callable[[Shop, Shop, Tenants], Awaitable[Account]]


async def _of_platform(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    account = await add_account(tenants.ports, "mine@acme.example", None)
    await add_service_user(tenants.ports, shop.id, account.id)
    return account


async def _of_sign_up(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    return await shop.add_own_user("mine@acme.example", origin=AccountOrigin.SIGN_UP)


async def _of_other_organization(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    account = await add_account(tenants.ports, "mine@acme.example", None, origin=AccountOrigin.API_KEY, origin_org_id=other.tenant.org)
    await add_service_user(tenants.ports, shop.id, account.id)
    return account


async def _member_elsewhere(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    account = await shop.add_own_user("mine@acme.example")
    await other.tenant.join("theirs", account)
    return account


async def _unconfirmed_elsewhere(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    account = await shop.add_own_user("mine@acme.example")
    await other.tenant.join("theirs", account)
    await run_sql(tenants.pool, "update memberships set confirmed_at = null")
    return account


async def _end_user_elsewhere(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    account = await shop.add_own_user("mine@acme.example")
    await add_service_user(tenants.ports, other.id, account.id)
    return account


async def _platform_owner(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    return await shop.add_own_user("mine@acme.example", is_platform_owner=True)


async def _with_password(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    return await shop.add_own_user("mine@elsewhere.example", "a good long password")


async def _with_identity(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    account = await shop.add_own_user("mine@elsewhere.example")
    await link_identity(shop, account, None)
    return account


async def _with_identity_here(shop: Shop, other: Shop, tenants: Tenants) -> Account:
    account = await shop.add_own_user("mine@elsewhere.example")
    await link_identity(shop, account, shop.id)
    return account


# The domain acme.example is verified for the organization, which does not make these accounts
# managed.
SHARED: dict[str, AddAccount] = {
    "created on the platform": _of_platform,
    "created by a sign-up": _of_sign_up,
    "created by another organization": _of_other_organization,
    "member elsewhere": _member_elsewhere,
    "unconfirmed member elsewhere": _unconfirmed_elsewhere,
    "end user elsewhere": _end_user_elsewhere,
    "platform owner": _platform_owner,
}
OWN: dict[str, AddAccount] = {
    "with a password, at another domain": _with_password,
    "with an identity, at another domain": _with_identity,
    "with an identity of the service, at another domain": _with_identity_here,
}


@pytest.mark.parametrize("who", SHARED | OWN)
async def test_accounts_that_the_organization_does_not_manage_alone_keep_their_address(
    shop: Shop, foreign: Shop, tenants: Tenants, who: str
) -> None:
    await verify_domain(shop, "acme.example")
    account = await (SHARED | OWN)[who](shop, foreign, tenants)
    session = await sign_in(tenants.ports, account)
    assert refused(await shop.update(account.id, email="new@acme.example")) == FORBIDDEN
    # The refusal does not reveal whether an address is taken.
    assert refused(await shop.update(account.id, email=taken_address(shop))) == FORBIDDEN
    assert (await tenants.api.get("/api/user", token=session.access_token)).json["email"] == account.email
    assert await run_sql(tenants.pool, "select 1 from mails") == []


def taken_address(shop: Shop) -> str:
    return shop.tenant.people["owner"].email


async def test_an_account_with_a_password_is_managed_if_its_domain_is_verified(shop: Shop, foreign: Shop) -> None:
    account = await shop.add_own_user("mine@acme.example", "a good long password")
    await link_identity(shop, account, shop.id)
    await verify_domain(foreign, "acme.example")
    assert refused(await shop.update(account.id, email="new@acme.example")) == FORBIDDEN, "verified for another organization"
    await run_sql(shop.tenant.pool, "delete from domains")
    await verify_domain(shop, "acme.example", verified=False)
    assert refused(await shop.update(account.id, email="new@acme.example")) == FORBIDDEN, "not verified yet"
    for other in ("sub.acme.example", "cme.example", "xacme.example"):
        await run_sql(shop.tenant.pool, "update domains set domain = %s, verified_at = now()", other)
        assert refused(await shop.update(account.id, email="new@acme.example")) == FORBIDDEN, other
    await run_sql(shop.tenant.pool, "update domains set domain = 'acme.example'")
    assert (await shop.update(account.id, email="new@elsewhere.example")).status == 200
    # The new address is outside the verified domain.
    assert refused(await shop.update(account.id, email="new@acme.example")) == FORBIDDEN


async def test_members_of_the_organization_are_managed_like_other_users(shop: Shop) -> None:
    account = await shop.add_own_user("mine@example.com")
    await shop.tenant.join("mine", account, Role.MEMBER)
    assert (await shop.update(account.id, email="new@example.com")).status == 200
    assert refused(await shop.tenant.api.get(f"{shop.tenant.path}/members", token=shop.tenant.token("mine"))) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("role", [Role.ADMIN, Role.OWNER])
async def test_a_key_cannot_change_the_address_of_admins_and_owners(shop: Shop, role: Role) -> None:
    """A new email address would allow a password reset, and so access to the account."""
    account = await shop.add_own_user("mine@acme.example", "a good long password")
    await verify_domain(shop, "acme.example")
    if role is Role.OWNER:
        await run_sql(shop.tenant.pool, "delete from memberships where org_id = %s and role = 'owner'", shop.tenant.org)
    await shop.tenant.join("mine", account, role)
    assert refused(await shop.update(account.id, email="new@acme.example")) == FORBIDDEN


async def test_use_by_a_deleted_organization_does_not_count(shop: Shop, tenants: Tenants) -> None:
    account = await shop.add_own_user("mine@example.com")
    gone = await add_organization(tenants.pool, "gone")
    await add_service_user(tenants.ports, await add_service(tenants.pool, gone, "gone"), account.id)
    assert refused(await shop.update(account.id, email="new@example.com")) == FORBIDDEN
    await run_sql(tenants.pool, "delete from organizations where id = %s", gone)
    assert (await shop.update(account.id, email="new@example.com")).status == 200
