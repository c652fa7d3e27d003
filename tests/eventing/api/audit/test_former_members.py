"""The audit log keeps the names of people who left, in their former organization only, until their account ends (security L-5)."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts import accounts
from core.kernel.causes import SYSTEM
from ports import Ports
from tests.support.builders import Answer, run_sql
from tests.support.platform import Platform
from tests.support.scim import Directory
from tests.support.tenants import Tenant

Way = Callable[[Tenant, Directory], Awaitable[Answer]]
LATER = "later@example.com"


async def by_admin(acme: Tenant, directory: Directory) -> Answer:
    return await acme.remove("owner", "member")


async def by_self(acme: Tenant, directory: Directory) -> Answer:
    return await acme.api.post(f"{acme.path}/leave", token=acme.token("member"))


async def by_directory(acme: Tenant, directory: Directory) -> Answer:
    return await directory.delete(acme.id("member"))


async def entries(tenant: Tenant, query: str) -> list[dict[str, Any]]:
    answer = await tenant.api.get(f"{tenant.path}/audit-log?{query}", token=tenant.token("owner"))
    assert answer.status == 200, answer.text
    listed: list[dict[str, Any]] = answer.json["logs"]
    return listed


async def names(tenant: Tenant, name: str = "member") -> set[str | None]:
    listed = await entries(tenant, f"target_type=user&target_id={tenant.id(name)}")
    assert listed
    return {entry["target_name"] for entry in listed}


async def rename(acme: Tenant, pool: Pool, email: str, name: str) -> None:
    await run_sql(pool, "update users set email = %s, name = %s where id = %s", email, name, acme.people["member"].id)


@pytest.mark.parametrize("way", [by_admin, by_self, by_directory])
async def test_a_former_member_keeps_the_names_of_the_day_they_left(
    acme: Tenant, other_tenant: Tenant, directory: Directory, pool: Pool, way: Way
) -> None:
    member = acme.people["member"]
    await other_tenant.join("guest", member)
    await rename(acme, pool, member.email, "Mia Member")
    assert (await way(acme, directory)).status in (200, 204)
    await rename(acme, pool, LATER, "Later")
    assert await names(acme) == {member.email}
    assert str(member.id) in {entry["target_id"] for entry in await entries(acme, f"target={member.email}")}
    assert await entries(acme, f"target={LATER}") == []
    stored = "select email, name from former_members where org_id = %s"
    assert await run_sql(pool, stored, acme.org) == [(member.email, "Mia Member")]
    assert await run_sql(pool, stored, other_tenant.org) == []
    assert await run_sql(pool, "select count(*) from audit_log l where l::text like '%%' || %s || '%%'", member.email) == [(0,)]


async def test_an_organization_that_the_person_never_joined_sees_no_name(acme: Tenant, other_tenant: Tenant) -> None:
    other_tenant.people["member of acme"] = acme.people["member"]
    await acme.remove("owner", "member")
    path = f"/api/organizations/{other_tenant.slug}/audit-log?target={acme.people['member'].email}"
    assert (await acme.api.get(path, token=other_tenant.token("owner"))).json["logs"] == []


async def test_the_name_of_an_unconfirmed_member_is_not_kept(acme: Tenant, pool: Pool) -> None:
    await run_sql(pool, "update users set name = 'Mia' where id = %s", acme.people["member"].id)
    await run_sql(pool, "update memberships set confirmed_at = null where user_id = %s", acme.people["member"].id)
    await acme.remove("owner", "member")
    assert await run_sql(pool, "select email, name from former_members") == [(acme.people["member"].email, None)]


async def test_a_former_member_who_joins_again_has_the_names_of_today(acme: Tenant, pool: Pool, directory: Directory) -> None:
    member = acme.people["member"]
    await directory.activate(member.id, active=False)
    await rename(acme, pool, LATER, "Later")
    assert await names(acme) == {member.email}
    await directory.activate(member.id)
    assert await run_sql(pool, "select count(*) from former_members") == [(0,)]
    assert await names(acme) == {LATER}
    await acme.remove("owner", "member")
    invitation = await acme.invite(LATER)
    accept = f"{acme.invitations}/{invitation['invitation']['id']}/accept"
    assert (await acme.api.post(accept, token=acme.token("owner"))).status == 200
    assert await run_sql(pool, "select count(*) from former_members") == [(0,)]


async def test_the_names_end_with_the_anonymization_of_the_account(acme: Tenant, pool: Pool, platform: Platform) -> None:
    member = acme.people["member"]
    await acme.remove("owner", "member")
    assert await names(acme) == {member.email}
    answer = await acme.api.delete(f"/api/privacy/forget/{member.id}", token=platform.token)
    assert answer.status == 200, answer.text
    assert await run_sql(pool, "select count(*) from former_members") == [(0,)]
    assert await names(acme) == {None}


async def test_the_names_end_with_the_deletion_of_the_account(acme: Tenant, pool: Pool, ports: Ports) -> None:
    member = acme.people["member"]
    await acme.remove("owner", "member")
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.remove(member.id, ports.clock.now())
        await accounts.delete_account(tx, member.id, ports.clock.now())
    assert await run_sql(pool, "select count(*) from former_members") == [(0,)]
    assert await names(acme) == {None}


async def test_no_name_is_kept_for_a_member_with_an_anonymized_account(acme: Tenant, pool: Pool) -> None:
    await run_sql(pool, "update users set anonymized_at = now(), name = 'Mia' where id = %s", acme.people["member"].id)
    await acme.remove("owner", "member")
    assert await run_sql(pool, "select count(*) from former_members") == [(0,)]
