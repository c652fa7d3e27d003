"""Changing users in the service API (decision 112; security A-9, E-3, K-4, T-2)."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from core.accounts.model.accounts import Account, AccountOrigin
from core.accounts.model.email_queue import OneTimeToken, TokenPurpose
from core.kernel.causes import SYSTEM
from core.kernel.roles import ADMIN, MEMBER, OWNER, RoleName
from core.kernel.values import digest, rfc3339
from tests.accounts.email_changes import EmailChanger, open_proof, undo
from tests.applications.api.service_accounts import SECOND, account_of
from tests.applications.api.service_users import Shop, check_counts
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import add_account, add_organization, deliver, run_sql, sign_in
from tests.support.refusals import BAD, FORBIDDEN, refused
from tests.support.services import add_service, add_service_user, sign_in_to
from tests.support.tenants import Tenants


async def add_email_links(shop: Shop, account: Account, now: Any) -> None:
    async with shop.tenant.ports.storage.transaction(by=SYSTEM) as tx:
        for purpose in TokenPurpose:
            await tx.one_time_tokens.add(
                OneTimeToken(digest(purpose), purpose, account.id, account.email, created_at=now, expires_at=now + timedelta(hours=1))
            )


@pytest.mark.parametrize("origin", [AccountOrigin.API_KEY, AccountOrigin.SCIM])
@pytest.mark.parametrize("verified", [True, False])
async def test_the_email_address_of_a_managed_account_can_be_changed(
    shop: Shop, clock: FakeClock, sent: FakeMailTransport, origin: AccountOrigin, verified: bool
) -> None:
    account = await shop.add_own_user("old@example.com", origin=origin, verified=verified)
    sessions = [await sign_in(shop.tenant.ports, account), await sign_in_to(shop.tenant.ports, shop.tenant.pool, shop.id, account)]
    await add_email_links(shop, account, clock.now())
    clock.advance(SECOND)
    answer = await shop.update(account.id, email=" New@Example.com")
    assert (answer.status, answer.json) == (
        200,
        {"id": str(account.id), "email": "new@example.com", "created_at": rfc3339(account.created_at)},
    )
    assert (await shop.get(account.id)).json == answer.json
    updated = await account_of(shop, "new@example.com")
    assert updated is not None
    assert (updated.id, updated.email_verified_at, updated.first_verified_at) == (account.id, None, account.first_verified_at)
    for session in sessions:
        assert refused(await shop.tenant.api.get("/api/user", token=session.access_token)) == (401, "UNAUTHORIZED")
        assert (await shop.tenant.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})).status == 401
    assert await run_sql(shop.tenant.pool, "select 1 from one_time_tokens") == []
    assert (
        await run_sql(shop.tenant.pool, "select email from service_users union all select email from end_users")
        == [("new@example.com",)] * 2
    )
    await deliver(shop.tenant.ports)
    # The old address gets an email if it was verified. The new key gets no such users.
    assert [letter.to for letter in sent.emails] == (["old@example.com"] if verified else [])
    await check_counts(shop.tenant.pool)


async def test_an_anonymized_account_gets_no_email_address(shop: Shop) -> None:
    account = await shop.add_own_user("gone@example.com", anonymized_at=shop.tenant.ports.clock.now())
    assert refused(await shop.update(account.id, email="back@example.com")) == (403, "FORBIDDEN")
    assert await account_of(shop, "back@example.com") is None


async def test_the_organizations_change_ends_the_users_own_changes(shop: Shop, sent: FakeMailTransport) -> None:
    """The organization decides the address, so the undo links end too, and the old address is free again."""
    account, api, ports = await shop.add_own_user("old@example.com"), shop.tenant.api, shop.tenant.ports
    changer = EmailChanger(api, ports, sent)
    undo_token = await changer.change((await sign_in(ports, account)).access_token, "mine@example.com", old="old@example.com")
    assert refused(await shop.create("old@example.com")) == BAD, "reserved"
    token = (await sign_in(ports, account)).access_token
    proof, _ = await changer.request(token, "later@example.com", old="mine@example.com")
    assert (await shop.update(account.id, email="assigned@example.com")).status == 200
    assert [(await undo(api, undo_token)).status, (await open_proof(api, proof)).status] == [400, 400]
    assert (await shop.create("old@example.com")).status == 200
    assert await account_of(shop, "assigned@example.com") is not None


async def test_an_update_without_effect_leaves_no_trace(shop: Shop, tenants: Tenants) -> None:
    shared, own_account = await add_account(tenants.ports, "shared@example.com"), await shop.add_own_user("mine@example.com")
    await add_service_user(tenants.ports, shop.id, shared.id)
    before = await run_sql(tenants.pool, "select * from users order by id")
    for account in (shared, own_account):
        user = (await shop.get(account.id)).json
        for fields in ({}, {"unknown": "x"}, {"email": account.email}, {"email": f" {account.email.upper()}"}):
            answer = await shop.update(account.id, **fields)
            assert (answer.status, answer.json) == (200, user), fields
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
SHARED_ACCOUNTS: dict[str, AddAccount] = {
    "created on the platform": _of_platform,
    "created by a sign-up": _of_sign_up,
    "created by another organization": _of_other_organization,
    "member elsewhere": _member_elsewhere,
    "unconfirmed member elsewhere": _unconfirmed_elsewhere,
    "end user elsewhere": _end_user_elsewhere,
    "platform owner": _platform_owner,
}
MANAGED_ACCOUNTS: dict[str, AddAccount] = {
    "with a password, at another domain": _with_password,
    "with an identity, at another domain": _with_identity,
    "with an identity of the service, at another domain": _with_identity_here,
}


@pytest.mark.parametrize("origin", SHARED_ACCOUNTS | MANAGED_ACCOUNTS)
async def test_accounts_that_the_organization_does_not_manage_alone_keep_their_address(
    shop: Shop, foreign: Shop, tenants: Tenants, origin: str
) -> None:
    await verify_domain(shop, "acme.example")
    account = await (SHARED_ACCOUNTS | MANAGED_ACCOUNTS)[origin](shop, foreign, tenants)
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
    await shop.tenant.join("mine", account, MEMBER)
    assert (await shop.update(account.id, email="new@example.com")).status == 200
    assert refused(await shop.tenant.api.get(f"{shop.tenant.path}/members", token=shop.tenant.token("mine"))) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("role", [ADMIN, OWNER])
async def test_a_key_cannot_change_the_address_of_admins_and_owners(shop: Shop, role: RoleName) -> None:
    """A new email address would allow a password reset, and so access to the account."""
    account = await shop.add_own_user("mine@acme.example", "a good long password")
    await verify_domain(shop, "acme.example")
    if role == OWNER:
        await run_sql(shop.tenant.pool, "delete from memberships where org_id = %s and role = 'owner'", shop.tenant.org)
    await shop.tenant.join("mine", account, role)
    assert refused(await shop.update(account.id, email="new@acme.example")) == FORBIDDEN


async def test_use_by_a_deleted_organization_does_not_count(shop: Shop, tenants: Tenants) -> None:
    account = await shop.add_own_user("mine@example.com")
    deleted_org = await add_organization(tenants.pool, "gone")
    await add_service_user(tenants.ports, await add_service(tenants.pool, deleted_org, "gone"), account.id)
    assert refused(await shop.update(account.id, email="new@example.com")) == FORBIDDEN
    await run_sql(tenants.pool, "delete from organizations where id = %s", deleted_org)
    assert (await shop.update(account.id, email="new@example.com")).status == 200
