"""How the ownership is transferred, and invitations that a role change revokes (security R-2, R-4)."""

from collections.abc import Mapping
from typing import Any

import pytest

from core.kernel.roles import ADMIN, MEMBER, RoleName
from core.kernel.values import new_id
from tests.support.builders import add_account, run_sql
from tests.support.tenants import Tenant, Tenants
from tests.tenancy.members import CAST


@pytest.fixture
def cast() -> Mapping[str, RoleName]:
    return CAST


# Transferring the ownership


@pytest.mark.parametrize("name", ["admin", "member"])
async def test_a_transfer_makes_the_member_owner_and_the_owner_admin(
    tenants: Tenants, acme: Tenant, other_tenant: Tenant, name: str
) -> None:
    answer = await acme.transfer("owner", name)
    assert answer.status == 200
    assert answer.json == {
        "message": "The ownership was transferred.",
        "old_owner": {"user_id": acme.id("owner"), "new_role": "admin"},
        "new_owner": {"user_id": acme.id(name), "role": "owner"},
    }
    assert await acme.check() == {**CAST, "owner": "admin", name: "owner"}
    assert await other_tenant.check() == CAST
    owner = acme.people["owner"].id
    assert await acme.recorded() == [
        ("user.role_updated", "user", acme.id("owner"), owner, {"old_role": "owner", "new_role": "admin"}),
        ("user.role_updated", "user", acme.id(name), owner, {"old_role": CAST[name], "new_role": "owner"}),
        (
            "organization.owner.changed",
            "organization",
            str(acme.org),
            owner,
            {"old_owner_id": acme.id("owner"), "new_owner_id": acme.id(name)},
        ),
    ]
    event_names = await run_sql(tenants.pool, "select name from events where org_id = %s order by created_at", acme.org)
    assert event_names == [("user.role_updated",), ("user.role_updated",), ("organization.owner.changed",)]


async def test_after_a_transfer_the_new_owner_has_the_permissions_of_the_owner(tenants: Tenants, acme: Tenant) -> None:
    assert (await acme.transfer("owner", "member")).status == 200
    answer = await acme.set_role("owner", "further", "admin")
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert (await acme.transfer("owner", "admin")).status == 403
    assert (await acme.remove("owner", "further")).status == 200
    assert (await acme.remove("owner", "member")).status == 400
    assert (await acme.set_role("member", "owner", "member")).status == 200
    assert (await acme.transfer("member", "owner")).status == 200
    assert (await acme.check())["owner"] == "owner"


async def test_the_new_owner_must_be_another_active_member(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> None:
    stranger = await add_account(tenants.ports, "stranger@example.com", None)
    for name, column in (("admin", "deactivated_at"), ("deputy", "anonymized_at")):
        await run_sql(tenants.pool, f"update users set {column} = now() where id = %s", acme.people[name].id)  # noqa: S608
    before = await tenants.everything()
    targets: list[object] = [
        acme.id("owner"),
        acme.id("admin"),
        acme.id("deputy"),
        str(stranger.id),
        other_tenant.id("member"),
        other_tenant.id("owner"),
        str(new_id()),
        "x",
        "",
        acme.id("member").upper(),
        f"{{{acme.id('member')}}}",
        f" {acme.id('member')}",
        None,
        5,
        [acme.id("member")],
    ]
    for target in targets:
        answer = await tenants.api.post(f"{acme.path}/transfer-ownership", {"new_owner_user_id": target}, token=acme.token("owner"))
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), target
    assert (await tenants.api.post(f"{acme.path}/transfer-ownership", token=acme.token("owner"))).status == 400
    assert await tenants.everything() == before


async def test_a_transfer_does_not_reveal_whether_an_account_exists(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> None:
    answers = [
        await tenants.api.post(f"{acme.path}/transfer-ownership", {"new_owner_user_id": name}, token=acme.token("owner"))
        for name in (other_tenant.id("member"), str(new_id()))
    ]
    assert answers[0].json["error"] == answers[1].json["error"]


@pytest.mark.parametrize("caller", ["admin", "member"])
async def test_only_the_owner_can_transfer_the_ownership(tenants: Tenants, acme: Tenant, caller: str) -> None:
    before = await tenants.everything()
    for member in ("admin", "member", "further", "owner"):
        answer = await acme.transfer(caller, member)
        assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert await tenants.everything() == before


# Invitations after a role change (security R-4)


async def _invitations(tenants: Tenants, acme: Tenant, other_tenant: Tenant, inviter: str) -> dict[str, str]:
    """Add an invitation per kind, and return their ids."""
    await other_tenant.join("same", acme.people[inviter], ADMIN)
    invitations = {
        "admin": await acme.add_pending_invitation(inviter, "new-admin@example.com", ADMIN),
        "member": await acme.add_pending_invitation(inviter, "new-member@example.com", MEMBER),
        "accepted": await acme.add_pending_invitation(inviter, "accepted@example.com", ADMIN),
        "past its time": await acme.add_pending_invitation(inviter, "late@example.com", ADMIN),
        "another's": await acme.add_pending_invitation("deputy", "another@example.com", ADMIN),
        "elsewhere": await other_tenant.add_pending_invitation("same", "new-admin@example.com", ADMIN),
    }
    await run_sql(tenants.pool, "update invitations set status = 'accepted', ended_at = now() where id = %s", invitations["accepted"])
    await run_sql(
        tenants.pool, "update invitations set expires_at = %s where id = %s", tenants.ports.clock.now(), invitations["past its time"]
    )
    return invitations


async def _canceled_invitations(tenants: Tenants, invitations: Mapping[str, str]) -> set[str]:
    rows = await run_sql(tenants.pool, "select id, status, ended_at is not null from invitations")
    status = {str(row[0]): row[1] for row in rows}
    assert status[invitations["accepted"]] == "accepted"
    assert all((row[1] == "pending") != row[2] for row in rows)
    return {name for name, id_ in invitations.items() if status[id_] == "cancelled"}


async def _revocations(tenants: Tenants) -> dict[str, tuple[Any, ...]]:
    rows = await run_sql(
        tenants.pool,
        "select target_id, org_id, target_type, actor_id, details from audit_log where action = 'invitation.revoked'",
    )
    event_targets = await run_sql(tenants.pool, "select target_id from events where name = 'invitation.revoked'")
    assert {row[0] for row in event_targets} == {row[0] for row in rows}
    assert len(event_targets) == len(rows)
    return {row[0]: row[1:] for row in rows}


async def test_a_demotion_revokes_invitations_that_the_member_sent(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> None:
    invitations = await _invitations(tenants, acme, other_tenant, "admin")
    assert (await acme.set_role("owner", "admin", "member")).status == 200
    assert await _canceled_invitations(tenants, invitations) == {"admin", "member"}
    owner = acme.people["owner"].id
    assert await _revocations(tenants) == {
        invitations[role]: (acme.org, "invitation", owner, {"invited_email": f"new-{role}@example.com", "role": role})
        for role in ("admin", "member")
    }


async def test_a_removal_revokes_invitations_that_the_member_sent(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> None:
    invitations = await _invitations(tenants, acme, other_tenant, "admin")
    assert (await acme.remove("deputy", "admin")).status == 200
    assert await _canceled_invitations(tenants, invitations) == {"admin", "member"}
    assert {id_: entry[2] for id_, entry in (await _revocations(tenants)).items()} == {
        invitations[role]: acme.people["deputy"].id for role in ("admin", "member")
    }


async def test_a_transfer_revokes_invitations_that_only_an_owner_may_send(tenants: Tenants, acme: Tenant, other_tenant: Tenant) -> None:
    invitations = await _invitations(tenants, acme, other_tenant, "owner")
    assert (await acme.transfer("owner", "admin")).status == 200
    assert await _canceled_invitations(tenants, invitations) == {"admin"}
    assert (await _revocations(tenants)).keys() == {invitations["admin"]}


async def test_a_promotion_revokes_no_invitation(tenants: Tenants, acme: Tenant) -> None:
    await acme.add_pending_invitation("admin", "new-member@example.com", MEMBER)
    assert (await acme.transfer("owner", "admin")).status == 200
    assert await run_sql(tenants.pool, "select status from invitations") == [("pending",)]
    assert await _revocations(tenants) == {}
