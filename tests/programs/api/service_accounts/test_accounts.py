"""An organization's service accounts: creation, changes, deletion, and the rules for roles and grants (security R-1)."""

from typing import Any
from uuid import uuid4

import pytest

from core.kernel.access import NeedsPerson
from core.kernel.roles import MEMBER, OWNER, ROLES, RoleName
from core.programs.model.service_accounts import (
    MAX_ACCOUNTS,
    CapabilityNotGrantable,
    NoServiceAccountChanges,
    OnlyOwnersGrant,
    OnlyOwnersNameOthers,
    OwnerCannotOwnServiceAccount,
    ServiceAccountAboveRole,
    ServiceAccountNotFound,
    ServiceAccountRoleUnknown,
    ServiceAccountScopeUnknown,
    TakenOverCredentials,
    TooManyServiceAccounts,
)
from tests.programs.service_accounts import accounts, add_robot, create, try_add_credential, try_create, with_new_secret
from tests.support.builders import Answer, add_account, run_sql
from tests.support.tenants import Tenant, Tenants


def message(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


async def change(tenant: Tenant, account: str, by: str = "owner", **fields: Any) -> Answer:
    return await tenant.api.patch(account, fields, token=tenant.token(by))


async def test_an_admin_creates_changes_and_deletes_an_account(acme: Tenant) -> None:
    answer = await try_create(acme, "admin", name="Export", role="member", scopes=["members:read"])
    assert answer.status == 201, answer.text
    account, path = answer.json, f"{accounts(acme)}/{answer.json['id']}"
    admin = acme.people["admin"]
    assert account == {
        "id": account["id"],
        "name": "Export",
        "role": "member",
        "owner_id": str(admin.id),
        "owner_email": admin.email,
        "is_active": True,
        "ends_at": None,
        "scopes": ["members:read"],
        "granted_capabilities": [],
        "created_by": str(admin.id),
        "created_at": "2026-03-14T15:09:26.535897Z",
    }
    assert (await acme.api.get(path, token=acme.token("owner"))).json == account
    listed = (await acme.api.get(accounts(acme), token=acme.token("owner"))).json
    assert (listed["service_accounts"], listed["pagination"]["total"]) == ([account], 1)

    changes = {"name": "Nightly export", "role": "admin", "owner_id": acme.id("owner"), "scopes": None}
    for by, notice in (("owner", {"credentials_notice": TakenOverCredentials.ENDED}), ("admin", {})):  # the second request changes nothing
        changed = await change(acme, path, by, **changes)
        assert (changed.status, changed.json) == (200, account | changes | {"owner_email": acme.people["owner"].email} | notice)
    assert (await acme.api.delete(path, token=acme.token("admin"))).status == 204
    assert message(await acme.api.get(path, token=acme.token("admin"))) == (404, ServiceAccountNotFound.__doc__)

    created = {"name": "Export", "owner_id": str(admin.id), "role": "member", "scopes": ["members:read"], "granted_capabilities": []}
    old_and_new = {name: {"old": account[name], "new": value} for name, value in changes.items()}
    assert await acme.recorded() == [
        ("service_account.created", "service_account", account["id"], admin.id, created),
        (
            "service_account.updated",
            "service_account",
            account["id"],
            acme.people["owner"].id,
            {"name": "Nightly export", "changes": old_and_new},
        ),
        ("service_account.deleted", "service_account", account["id"], admin.id, {"name": "Nightly export"}),
    ]
    assert len(await acme.webhook_events()) == 3


async def test_the_list_has_pages_and_the_newest_account_first(acme: Tenant) -> None:
    paths = [await create(acme) for _ in range(3)]
    ids = []
    for page in (1, 2, 3):
        answer = await acme.api.get(f"{accounts(acme)}?limit=2&page={page}", token=acme.token("admin"))
        ids += [account["id"] for account in answer.json["service_accounts"]]
        assert answer.json["pagination"]["total"] == 3
    assert sorted(ids) == sorted(path.rpartition("/")[2] for path in paths)


async def test_an_organization_has_at_most_a_hundred_accounts(acme: Tenant, other_tenant: Tenant) -> None:
    account = await create(acme)
    await run_sql(
        acme.pool,
        """
        insert into service_accounts
        select gen_random_uuid(), org_id, name, owner_id, role, scopes, granted, created_by, created_at, updated_at
        from service_accounts, generate_series(2, %s)""",
        MAX_ACCOUNTS,
    )
    assert message(await try_create(acme)) == (400, TooManyServiceAccounts.__doc__)
    await create(other_tenant)
    await acme.api.delete(account, token=acme.token("owner"))
    await create(acme)


async def test_other_organizations_do_not_find_an_account(acme: Tenant, other_tenant: Tenant) -> None:
    account = (await create(acme)).rpartition("/")[2]
    theirs = f"{accounts(other_tenant)}/{account}"
    answers = [
        await other_tenant.api.get(theirs, token=other_tenant.token("owner")),
        await change(other_tenant, theirs, name="Taken over"),
        await other_tenant.api.delete(theirs, token=other_tenant.token("owner")),
        await try_add_credential(other_tenant, theirs),
        await other_tenant.api.get(f"{theirs}/credentials", token=other_tenant.token("owner")),
        await other_tenant.api.delete(f"{theirs}/credentials/{uuid4()}", token=other_tenant.token("owner")),
    ]
    assert [message(answer) for answer in answers] == [(404, ServiceAccountNotFound.__doc__)] * len(answers)
    assert (await other_tenant.api.get(accounts(other_tenant), token=other_tenant.token("owner"))).json["service_accounts"] == []


# Roles


async def test_no_admin_creates_or_touches_an_account_above_their_role(acme: Tenant) -> None:
    refusal = (403, ServiceAccountAboveRole.__doc__)
    assert message(await try_create(acme, "admin", role="owner")) == refusal
    assert message(await try_create(acme, "admin", role="owner", owner_id=acme.id("owner"))) == refusal
    account, below = await create(acme, role="owner"), await create(acme, role="admin")
    credential = (await try_add_credential(acme, account)).json["id"]
    answers = [
        await change(acme, account, "admin", name="Mine"),
        await change(acme, account, "admin", role="member"),
        await change(acme, below, "admin", role="owner"),
        await try_add_credential(acme, account, "admin"),
        await acme.api.delete(f"{account}/credentials/{credential}", token=acme.token("admin")),
        await acme.api.delete(account, token=acme.token("admin")),
    ]
    assert [message(answer) for answer in answers] == [refusal] * len(answers)
    assert (await acme.api.get(account, token=acme.token("admin"))).json["role"] == "owner"
    assert len(await acme.refusals()) == 8  # every refusal is in the audit log


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"role": "root"}, ServiceAccountRoleUnknown),
        ({"scopes": ["platform_users:read"]}, ServiceAccountScopeUnknown),
        ({"scopes": ["account:read"]}, ServiceAccountScopeUnknown),
        ({"granted_capabilities": ["organization.own"]}, CapabilityNotGrantable),
        ({"granted_capabilities": ["service_accounts.manage"]}, CapabilityNotGrantable),
        ({"granted_capabilities": ["platform.own"]}, CapabilityNotGrantable),
        ({"granted_capabilities": ["platform_users.manage"]}, CapabilityNotGrantable),
        ({"granted_capabilities": ["roles.manage"]}, CapabilityNotGrantable),  # not an admin's capability
        ({"granted_capabilities": ["sudo"]}, CapabilityNotGrantable),
    ],
)
async def test_values_that_no_account_can_have_are_refused(acme: Tenant, fields: dict[str, Any], refusal: type[Exception]) -> None:
    text = CapabilityNotGrantable(fields["granted_capabilities"]).message if refusal is CapabilityNotGrantable else refusal.__doc__
    assert message(await try_create(acme, **fields)) == (400, text)
    account = await create(acme)
    assert message(await change(acme, account, **fields)) == (400, text)


async def test_an_unknown_scope_and_an_empty_change_are_refused(acme: Tenant) -> None:
    assert (await try_create(acme, scopes=["sudo"])).status == 400
    assert message(await change(acme, await create(acme))) == (400, NoServiceAccountChanges.__doc__)


async def test_only_the_owner_grants_capabilities(acme: Tenant) -> None:
    assert message(await try_create(acme, "admin", granted_capabilities=["api_keys.manage"])) == (403, OnlyOwnersGrant.__doc__)
    account = await create(acme, granted_capabilities=["api_keys.manage", "webhooks.manage"])
    both = await change(acme, account, "admin", granted_capabilities=["webhooks.manage", "api_keys.manage"])
    assert (both.status, both.json["granted_capabilities"]) == (200, ["api_keys.manage", "webhooks.manage"])
    fewer = await change(acme, account, "admin", granted_capabilities=["webhooks.manage"])
    assert (fewer.status, fewer.json["granted_capabilities"]) == (200, ["webhooks.manage"])
    again = await change(acme, account, "admin", granted_capabilities=["webhooks.manage", "api_keys.manage"])
    assert message(again) == (403, OnlyOwnersGrant.__doc__)


async def test_a_lower_role_takes_capabilities_away_for_good(acme: Tenant) -> None:
    account = await create(acme, role="owner", granted_capabilities=["roles.manage", "webhooks.manage"])
    for role in ("admin", "owner"):
        answer = await change(acme, account, role=role)
        assert answer.json["granted_capabilities"] == ["webhooks.manage"]


# Owners


async def test_the_owner_is_a_member_with_a_role_that_allows_it(acme: Tenant) -> None:
    stranger = await add_account(acme.ports, "stranger@example.com", None)
    for owner_id in (acme.id("member"), str(stranger.id), str(uuid4())):
        for role in ("member", "admin"):
            answer = await try_create(acme, role=role, owner_id=owner_id)
            assert message(answer) == (400, OwnerCannotOwnServiceAccount.__doc__)
    assert message(await try_create(acme, role="owner", owner_id=acme.id("admin"))) == (400, OwnerCannotOwnServiceAccount.__doc__)
    account = await create(acme, owner_id=acme.id("admin"))
    assert message(await change(acme, account, role="owner")) == (400, OwnerCannotOwnServiceAccount.__doc__)
    assert (await change(acme, account, role="owner", owner_id=acme.id("owner"))).status == 200
    assert message(await change(acme, account, owner_id=acme.id("member"))) == (400, OwnerCannotOwnServiceAccount.__doc__)


async def test_an_admin_makes_only_themselves_the_owner(acme: Tenant) -> None:
    """Otherwise the account would outlast an admin who knows its secret."""
    await acme.set_role("owner", "member", "admin")
    refusal = (403, OnlyOwnersNameOthers.__doc__)
    account = await create(acme, "admin", owner_id=acme.id("admin"))
    for other in ("owner", "member"):
        assert message(await try_create(acme, "admin", owner_id=acme.id(other))) == refusal
        assert message(await change(acme, account, "admin", owner_id=acme.id(other))) == refusal
    assert len(await acme.refusals()) == 4
    assert (await change(acme, account, "member", name="Renamed", owner_id=acme.id("admin"))).status == 200  # no change to the owner
    assert (await change(acme, account, "member", owner_id=acme.id("member"))).json["owner_id"] == acme.id("member")
    assert (await change(acme, account, "owner", owner_id=acme.id("admin"))).json["owner_id"] == acme.id("admin")


async def test_an_account_stops_when_its_owner_could_not_create_it_any_more(acme: Tenant) -> None:
    robot = await add_robot(acme, "admin")
    assert (await robot.call("GET", "/members")).status == 200
    await acme.set_role("owner", "admin", "member")
    assert (await robot.call("GET", "/members")).status == 401
    listed = (await acme.api.get(robot.path, token=acme.token("owner"))).json
    assert (listed["is_active"], listed["owner_email"]) == (False, acme.people["admin"].email)
    assert (await change(acme, robot.path, name="Renamed")).status == 200
    assert (await change(acme, robot.path, owner_id=acme.id("owner"))).json["is_active"]
    assert (await robot.call("GET", "/members")).status == 401, "the former owner may know the secret"
    robot = await with_new_secret(acme, robot.path)
    assert (await robot.call("GET", "/members")).status == 200
    await change(acme, robot.path, owner_id=acme.id("owner"))
    await run_sql(acme.pool, "update users set deactivated_at = now() where id = %s", acme.people["owner"].id)
    assert (await robot.call("GET", "/members")).status == 401


async def test_the_address_of_an_owner_who_left_is_not_shown(acme: Tenant) -> None:
    account = await create(acme, "admin")
    await acme.remove("owner", "admin")
    listed = (await acme.api.get(account, token=acme.token("owner"))).json
    assert (listed["is_active"], listed["owner_email"], listed["owner_id"]) == (False, None, acme.id("admin"))


# What the account itself can do


async def test_changes_count_from_the_next_request_on(acme: Tenant) -> None:
    robot = await add_robot(acme, role="admin")
    assert (await robot.call("GET", "/invitations")).status == 200
    await change(acme, robot.path, scopes=["services:read"])
    refused = await robot.call("GET", "/invitations")
    assert (refused.status, 'scope="members:read"' in refused.headers["WWW-Authenticate"]) == (403, True)
    await change(acme, robot.path, scopes=None, role="member")
    assert (await robot.call("GET", "/invitations")).status == 403
    assert (await robot.call("GET", "/members")).status == 200
    await acme.api.delete(robot.path, token=acme.token("owner"))
    assert (await robot.call("GET", "/members")).status == 401


@pytest.mark.parametrize("role", [*ROLES])
async def test_a_service_account_never_touches_service_accounts(acme: Tenant, role: RoleName) -> None:
    grants = ["roles.manage", "members.manage"] if role == OWNER else []
    robot, other = await add_robot(acme, role=role, granted_capabilities=grants), await create(acme, role="member")
    path = other.removeprefix(acme.path)
    own_path = robot.path.removeprefix(acme.path)
    answers = [
        await robot.call("GET", "/service-accounts"),
        await robot.call("POST", "/service-accounts", {"name": "Child", "role": "member"}),
        *[await robot.call("GET", each) for each in (path, own_path, f"{own_path}/credentials")],
        *[await robot.call("PATCH", each, {"name": "Renamed"}) for each in (path, own_path)],
        *[await robot.call("POST", f"{each}/credentials", {"kind": "secret", "name": "Spare"}) for each in (path, own_path)],
        await robot.call("DELETE", f"{own_path}/credentials/{robot.credential_id}"),
        *[await robot.call("DELETE", each) for each in (path, own_path)],
    ]
    assert {answer.status for answer in answers} == {403}
    if role != MEMBER:
        assert {answer.json["error"] for answer in answers} == {NeedsPerson.__doc__}
    assert (await robot.call("GET", "/members")).status == 200


async def test_a_service_account_acts_in_its_own_organization_only(acme: Tenant, tenants: Tenants) -> None:
    other, robot = await tenants.add("other"), await add_robot(acme, role="owner")
    answer = await acme.api.get(f"{other.path}/members", token=robot.token)
    assert answer.status == 403
    assert (await acme.api.get("/api/user", token=robot.token)).status == 403
    assert (await acme.api.get("/api/platform/owners", token=robot.token)).status == 403
    await acme.set_status("suspended")
    assert (await robot.call("GET", "/members")).status == 403
