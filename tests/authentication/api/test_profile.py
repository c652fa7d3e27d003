"""GET /api/user with an organization's token (decision 52)."""

from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.accounts.profiles import NO_FIELDS
from tests.support.builders import Api, add_account, add_member, add_organization, run_sql, sign_in
from tests.support.refusals import FORBIDDEN, refused


@pytest.mark.parametrize("organization_status", ["active", "pending", "suspended", "rejected"])
async def test_the_profile_shows_the_tokens_organization_with_any_status(
    api: Api, ports: Ports, pool: Pool, organization_status: str
) -> None:
    account, org = await add_account(ports), await add_organization(pool, "acme", organization_status)
    await add_member(pool, org, account.id)
    token = (await sign_in(ports, account, org)).access_token
    profile = {"id": str(account.id), "email": account.email, "org": "acme", "service": "", **NO_FIELDS, "pending_email": None}
    assert (await api.get("/api/user", token=token)).json == profile
    other_token = (await sign_in(ports, account)).access_token
    assert (await api.get("/api/user", token=other_token)).json["org"] == ""


@pytest.mark.parametrize("change", ["delete from memberships where org_id = %s", "delete from organizations where id = %s"])
async def test_a_former_member_cannot_read_the_profile_in_the_organization(api: Api, ports: Ports, pool: Pool, change: str) -> None:
    account, other = await add_account(ports), await add_account(ports, "other@example.com")
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    for org_id, member in ((org, account), (org, other), (other_tenant, account)):
        await add_member(pool, org_id, member.id)
    token, other_token = [(await sign_in(ports, account, org_id)).access_token for org_id in (org, other_tenant)]
    await run_sql(pool, change, org)
    assert refused(await api.get("/api/user", token=token)) == FORBIDDEN
    assert (await api.get("/api/user", token=other_token)).json["org"] == "twin"
    assert (await api.post("/api/auth/logout", token=token)).status == 200, "a logout always works"


async def test_the_profile_needs_a_membership_of_the_tokens_organization(api: Api, ports: Ports, pool: Pool) -> None:
    account = await add_account(ports, is_platform_owner=True)
    token = (await sign_in(ports, account, await add_organization(pool, "acme"))).access_token
    assert (await api.get("/api/user", token=token)).status == 403
    assert UUID((await api.get("/api/user", token=(await sign_in(ports, account)).access_token)).json["id"]) == account.id
