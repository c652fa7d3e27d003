"""Accepting an invitation on its recipient's behalf (decision 195)."""

from collections import Counter

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.support.builders import (
    EMAIL,
    Api,
    add_account,
    run_sql,
)
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.tenants import Tenant
from tests.tenancy.invitations import FULL


@pytest.mark.parametrize(("by", "role"), [("owner", "member"), ("owner", "admin"), ("admin", "member")])
async def test_a_manager_accepts_on_behalf_of_a_user_with_an_account(acme: Tenant, api: Api, ports: Ports, by: str, role: str) -> None:
    user = await add_account(ports, EMAIL, None)
    response = await acme.invite(role=role)
    answer = await api.post(f"{acme.invitations}/{response['invitation']['id']}/accept", token=acme.token(by))
    assert (answer.status, answer.json) == (200, {})
    assert (await acme.members())[EMAIL] == (role, False)
    assert await acme.actions() == Counter(["user.invited", "invitation.accepted", "user.joined"])
    accepted, joined = await acme.entry("invitation.accepted"), await acme.entry("user.joined")
    assert accepted["actor_id"] == joined["actor_id"] == acme.people[by].id
    assert joined["target_id"] == str(user.id)
    assert refused(await api.post(f"{acme.invitations}/{response['invitation']['id']}/accept", token=acme.token(by))) == MISSING


async def test_only_the_owner_accepts_an_admin_invitation_on_behalf_of_a_user(acme: Tenant, api: Api, ports: Ports) -> None:
    await add_account(ports, EMAIL, None)
    path = f"{acme.invitations}/{(await acme.invite(role='admin'))['invitation']['id']}/accept"
    assert refused(await api.post(path, token=acme.token("admin"))) == FORBIDDEN
    assert refused(await api.post(path, token=acme.token("member"))) == FORBIDDEN
    assert await acme.statuses() == {EMAIL: "pending"}


async def test_accepting_on_behalf_needs_an_account(acme: Tenant, api: Api, pool: Pool) -> None:
    response = await acme.invite()
    assert refused(await api.post(f"{acme.invitations}/{response['invitation']['id']}/accept", token=acme.token("owner"))) == BAD
    assert await acme.statuses() == {EMAIL: "pending"}
    assert await run_sql(pool, "select count(*) from users where email = %s", EMAIL) == [(0,)]


async def test_the_member_limit_holds_for_accepting_on_behalf(acme: Tenant, api: Api, ports: Ports) -> None:
    await add_account(ports, EMAIL, None)
    await acme.set_member_limit(3)
    response = await acme.invite()
    assert refused(await api.post(f"{acme.invitations}/{response['invitation']['id']}/accept", token=acme.token("owner"))) == FULL
