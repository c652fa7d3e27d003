"""Storage for the facts that decide about account control, and removing accounts."""

from dataclasses import replace
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.accounts import AccountOrigin
from core.kernel.causes import SYSTEM
from core.kernel.roles import ROLES, RoleName
from core.tenancy.model.members import AccountControl
from tests.support.builders import add_member, run_sql
from tests.support.rows import EVE, NOW, SECOND, account, add, begin, within
from tests.support.services import add_service, enroll_user


async def enroll(storage: Postgres, service: UUID, *users: UUID) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for number, user in enumerate(users):
            assert await enroll_user(tx, service, user, NOW + number * SECOND)


async def load_control(storage: Postgres, user: UUID, org: UUID) -> AccountControl:
    return await within(storage, lambda tx: tx.accounts.account_control(user, org))


async def test_a_fresh_account_has_no_memberships_and_no_services(storage: Postgres, acme: UUID, other_tenant: UUID) -> None:
    await add(storage, user := account(), eve := account(EVE, origin=AccountOrigin.SCIM, origin_org_id=acme, password_hash=None))
    expected = AccountControl(
        org_id=acme,
        origin=AccountOrigin.PLATFORM,
        origin_org_id=None,
        is_platform_owner=False,
        has_password=True,
        has_identity=False,
        at_verified_domain=False,
        role=None,
        member_elsewhere=False,
        end_user_elsewhere=False,
    )
    assert await load_control(storage, user.id, acme) == expected
    assert await load_control(storage, user.id, other_tenant) == replace(expected, org_id=other_tenant)
    provisioned = replace(expected, origin=AccountOrigin.SCIM, origin_org_id=acme, has_password=False)
    assert await load_control(storage, eve.id, acme) == provisioned
    assert await load_control(storage, eve.id, other_tenant) == replace(provisioned, org_id=other_tenant)


@pytest.mark.parametrize("role", list(ROLES))
async def test_memberships_in_this_and_in_other_organizations_are_counted(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, role: RoleName
) -> None:
    user = await add(storage, account(is_platform_owner=True))
    await add_member(pool, acme, user.id, role)
    in_acme, in_twin = await load_control(storage, user.id, acme), await load_control(storage, user.id, other_tenant)
    assert (in_acme.role, in_acme.member_elsewhere, in_acme.is_platform_owner) == (role, False, True)
    assert (in_twin.role, in_twin.member_elsewhere) == (None, True)
    await add_member(pool, other_tenant, user.id)
    assert (await load_control(storage, user.id, acme)).member_elsewhere


async def test_using_a_service_counts_while_its_organization_exists(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    user = await add(storage, account())
    await enroll(storage, await add_service(pool, acme), user.id)
    assert not (await load_control(storage, user.id, acme)).end_user_elsewhere
    assert (await load_control(storage, user.id, other_tenant)).end_user_elsewhere
    await run_sql(pool, "delete from organizations where id = %s", acme)
    assert not (await load_control(storage, user.id, other_tenant)).end_user_elsewhere


async def test_an_identity_counts_for_the_account_and_for_a_service(storage: Postgres, pool: Pool, acme: UUID) -> None:
    await add(storage, user := account(), eve := account(EVE))
    insert = """
        insert into identities (id, user_id, service_id, provider, provider_user_id, linked_at)
        values (gen_random_uuid(), %s, %s, 'codehost', gen_random_uuid(), now())"""
    for service in (None, await add_service(pool, acme)):
        await run_sql(pool, insert, user.id, service)
        assert (await load_control(storage, user.id, acme)).has_identity
        await run_sql(pool, "delete from identities")
    assert not (await load_control(storage, eve.id, acme)).has_identity


@pytest.mark.parametrize(("verified", "address", "at"), [
    (True, "ada@acme.example", True),
    (True, "ada@mail.acme.example", True),
    (True, "ada@xacme.example", False),
    (True, "acme.example@example.com", False),
    (True, "ada@example", False),
    (False, "ada@acme.example", False),
])  # fmt: skip
async def test_an_address_counts_only_at_a_verified_domain_of_the_organization(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, verified: bool, address: str, at: bool
) -> None:
    user = await add(storage, account(address))
    insert = """
        insert into domains (org_id, domain, challenge, verified_at, created_at)
        values (%s, 'acme.example', 'x', case when %s then now() end, now())"""
    await run_sql(pool, insert, acme, verified)
    assert (await load_control(storage, user.id, acme)).at_verified_domain == at
    assert not (await load_control(storage, user.id, other_tenant)).at_verified_domain


async def test_removing_an_account_removes_only_its_own_sessions(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    for one in (user, eve):
        await begin(storage, one.id, str(one.id))
    await within(storage, lambda tx: tx.accounts.remove(user.id))
    assert await run_sql(pool, "select id from users") == [(eve.id,)]
    assert await run_sql(pool, "select s.user_id from refresh_tokens t join sessions s on s.id = t.session_id") == [(eve.id,)]
