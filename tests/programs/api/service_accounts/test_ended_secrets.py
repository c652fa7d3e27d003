"""Secrets end with the rights of the person who made them, and a single button can end what a program made (security J-12)."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.access import NotForServiceAccounts
from core.kernel.roles import ADMIN, Capability
from core.programs.model.service_accounts import TakenOverCredentials
from ports import Ports
from tests.applications.api.api_keys.shop import open_shop
from tests.fakes.outside import FakeMailTransport
from tests.programs.service_accounts import Robot, add_robot, create, try_add_credential, with_new_secret
from tests.support.builders import Answer, deliver, run_concurrently, run_sql
from tests.support.platform import Platform
from tests.support.programs import Program
from tests.support.tenants import Tenant

End = Callable[[Tenant, Platform], Awaitable[Any]]
GRANTS = ["services.manage", "api_keys.manage", "integrations.manage", "members.manage", "end_users.manage"]


async def remove(acme: Tenant, platform: Platform) -> Answer:
    return await acme.remove("owner", "admin")


async def demote(acme: Tenant, platform: Platform) -> Answer:
    return await acme.set_role("owner", "admin", "member")


async def deactivate(acme: Tenant, platform: Platform) -> Answer:
    return await platform.api.post(f"/api/platform/users/{acme.id('admin')}/deactivate", {"reason": "stolen"}, token=platform.token)


async def anonymize(acme: Tenant, platform: Platform) -> Answer:
    return await platform.api.delete(f"/api/privacy/forget/{acme.id('admin')}", token=platform.token)


ENDS = (remove, demote, deactivate, anonymize)


async def credentials(acme: Tenant) -> list[tuple[UUID, UUID]]:
    return [(row[0], row[1]) for row in await run_sql(acme.pool, "select id, created_by from credentials order by created_at")]


@pytest.mark.parametrize("end", ENDS)
async def test_a_secret_that_an_admin_made_for_the_owners_account_ends_with_the_right(
    acme: Tenant, platform: Platform, ports: Ports, sent: FakeMailTransport, end: End
) -> None:
    account = await create(acme, role="admin", granted_capabilities=["members.manage"])
    of_owner = await with_new_secret(acme, account)
    of_admin = await with_new_secret(acme, account, "admin")
    resource = await acme.api.post(
        f"{acme.path}/api-resources", {"name": "Orders", "identifier": f"urn:gatehouse:{acme.org}:orders"}, token=acme.token("admin")
    )
    assert resource.status == 201, resource.text
    key = await try_add_credential(acme, f"{acme.path}/api-resources/{resource.json['id']}", "admin")
    assert key.status == 201, key.text
    assert (await of_admin.call("GET", "/members")).status == 200
    await deliver(ports)
    sent.emails.clear()
    answer = await end(acme, platform)
    assert answer.status in (200, 204), answer.text

    assert (await of_admin.invite("thief@example.com", "admin")).status == 401
    assert (await of_owner.call("GET", "/members")).status == 200
    assert [id_ for id_, _ in await credentials(acme)] == [of_owner.credential_id]
    await deliver(ports)
    subjects = [(message.to, message.subject) for message in sent.emails if "ended" in message.subject]
    owner = acme.people["owner"].email
    assert sorted(subjects) == [
        (owner, "The credential Main of Orders has ended - Gatehouse"),
        (owner, "The credential Main of Robot has ended - Gatehouse"),
    ]
    recorded = [entry for entry in await acme.log() if entry["action"].endswith("credential.revoked")]
    assert [entry["details"]["creator_lost_rights"] for entry in recorded] == [True, True]

    assert (await acme.set_role("owner", "admin", "admin")).status in (200, 404)  # a regained right brings nothing back
    assert (await of_admin.call("GET", "/members")).status == 401


@pytest.mark.parametrize("end", [remove, demote])
async def test_the_answer_of_a_takeover_says_that_the_secrets_have_ended(acme: Tenant, platform: Platform, end: End) -> None:
    """The former owner lost the right, so their secrets ended at once. The new owner must make one."""
    account = await create(acme, "admin", role="member")
    secret = await with_new_secret(acme, account, "admin")
    assert (await end(acme, platform)).status in (200, 204)
    taken = await acme.api.patch(secret.path, {"owner_id": acme.id("owner")}, token=acme.token("owner"))
    assert (taken.status, taken.json["is_active"]) == (200, True)
    assert taken.json["credentials_notice"] == TakenOverCredentials.ENDED
    assert (await secret.call("GET", "/members")).status == 401
    assert "credentials_notice" not in (await acme.api.get(secret.path, token=acme.token("owner"))).json


async def test_the_answer_of_a_takeover_names_secrets_that_the_former_owner_knows(acme: Tenant) -> None:
    account = await create(acme, "admin", role="member")
    secret = await with_new_secret(acme, account, "admin")
    taken = await acme.api.patch(secret.path, {"owner_id": acme.id("owner")}, token=acme.token("owner"))
    assert taken.json["credentials_notice"] == TakenOverCredentials.KNOWN
    back = await acme.api.patch(secret.path, {"owner_id": acme.id("admin")}, token=acme.token("owner"))
    assert "credentials_notice" not in back.json, "the owner made none"


async def test_a_secret_of_an_owner_remains_when_another_becomes_the_owner(acme: Tenant) -> None:
    """The former owner is an admin, who manages service accounts."""
    robot = await add_robot(acme, role="admin")
    assert (await acme.transfer("owner", "admin")).status == 200
    assert (await robot.call("GET", "/members")).status == 200


async def test_a_secret_for_an_account_above_the_former_owner_ends_at_the_transfer(
    acme: Tenant, ports: Ports, sent: FakeMailTransport
) -> None:
    account = await create(acme, role="owner", granted_capabilities=["roles.manage", "members.manage"])
    robot = await with_new_secret(acme, account)
    await deliver(ports)
    sent.emails.clear()
    assert (await acme.transfer("owner", "admin")).status == 200
    assert await credentials(acme) == []
    await deliver(ports)
    assert [mail.to for mail in sent.emails if mail.subject.startswith("The credential Main of Robot has ended")] == [
        acme.people["admin"].email
    ]
    takeover = await acme.api.patch(account, {"owner_id": acme.id("admin")}, token=acme.token("admin"))
    assert takeover.status == 200, takeover.text
    assert (await robot.call("GET", "/members")).status == 401


async def test_a_higher_role_ends_the_secrets_of_those_below_it(acme: Tenant, ports: Ports, sent: FakeMailTransport) -> None:
    account = await create(acme, role="admin")
    of_owner, of_admin = await with_new_secret(acme, account), await with_new_secret(acme, account, "admin")
    raised = await acme.api.patch(account, {"role": "owner", "granted_capabilities": GRANTS}, token=acme.token("owner"))
    assert raised.status == 200, raised.text
    assert (await of_admin.call("GET", "/members")).status == 401
    assert (await of_owner.call("GET", "/members")).status == 200
    await deliver(ports)
    assert [mail.to for mail in sent.emails if "has ended" in mail.subject] == [acme.people["owner"].email]


async def test_a_new_secret_and_a_higher_role_leave_no_secret_of_an_admin_behind(acme: Tenant) -> None:
    account = await create(acme, role="member")

    async def act(number: int) -> int:
        if number == 10:
            return (await acme.api.patch(account, {"role": "owner"}, token=acme.token("owner"))).status
        return (await try_add_credential(acme, account, "admin")).status

    assert set(await run_concurrently(20, act)) <= {200, 201, 400, 403}
    assert await credentials(acme) == []


async def test_a_secret_of_the_platform_ends_with_the_platform_owner_who_made_it(
    acme: Tenant, platform: Platform, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", acme.people["admin"].id)
    made = await platform.api.post("/api/platform/service-accounts", {"name": "Nightly"}, token=platform.token)
    path = f"/api/platform/service-accounts/{made.json['id']}"
    secret = await try_add_credential(acme, path, "admin")
    assert secret.status == 201, secret.text
    nightly = Program(acme.api, UUID(made.json["id"]), secret.json["secret"], UUID(secret.json["id"]))
    assert (await nightly.ask()).status == 200
    assert (await platform.api.delete(f"/api/platform/owners/{acme.id('admin')}", token=platform.token)).status == 200
    assert (await nightly.ask()).status == 401
    await deliver(ports)
    assert [m.to for m in sent.emails if m.subject.startswith("The credential Main of Nightly has ended")] == [platform.account.email]


async def test_a_new_secret_and_the_demotion_of_its_creator_leave_no_secret_behind(acme: Tenant) -> None:
    account = await create(acme, role="member")

    async def act(number: int) -> int:
        if number == 10:
            return (await acme.set_role("owner", "admin", "member")).status
        return (await try_add_credential(acme, account, "admin")).status

    statuses = await run_concurrently(20, act)
    assert 200 in statuses
    assert await credentials(acme) == []


@pytest.mark.parametrize("granted", [[], ["members.manage"]])
async def test_a_service_account_invites_only_with_the_capability_by_name(
    acme: Tenant, ports: Ports, sent: FakeMailTransport, granted: list[str]
) -> None:
    robot = await add_robot(acme, role="owner", granted_capabilities=granted)
    eve = await acme.add_pending_invitation("owner", "eve@example.com", ADMIN)
    await deliver(ports)
    sent.emails.clear()
    several = [{"email": f"{role}@example.com", "role": role} for role in ("member", "admin")]
    answers = [
        await robot.invite("ada@example.com", "admin"),
        await robot.invite("bob@example.com", "member"),
        await robot.call("POST", "/invitations/bulk", {"invitations": several}),
        await robot.call("POST", f"/invitations/{eve}/resend"),
    ]
    if granted:
        assert [answer.status for answer in answers] == [200, 200, 200, 200]
        return
    for answer in answers:
        assert answer.status == 403
        assert answer.json["error"] == str(NotForServiceAccounts(Capability.MEMBERS_MANAGE))
    await deliver(ports)
    assert sent.emails == []
    assert await acme.statuses() == {"eve@example.com": "pending"}


async def leave_secrets(acme: Tenant) -> tuple[Robot, dict[str, str], str, str]:
    """Return a robot, the headers for a SCIM token that it made, and an API key that it made."""
    shop = await open_shop(acme)
    robot = await add_robot(acme, role="admin", granted_capabilities=GRANTS)
    token = await robot.call("POST", "/scim-tokens", {"name": "Directory"})
    key = await robot.call("POST", f"/services/{shop.slug}/api-keys", {"name": "Export", "permissions": ["read:users"]})
    assert (token.status, key.status) == (200, 201), (token.text, key.text)
    await acme.api.post(f"{acme.path}/scim-tokens", {"name": "Kept"}, token=acme.token("owner"))
    return robot, {"Authorization": f"Bearer {token.json['token']}"}, key.json["key"], f"{robot.path}/created-secrets"


async def are_live(acme: Tenant, headers: dict[str, str], key: str) -> tuple[bool, bool]:
    users = await acme.api.get("/scim/v2/Users", headers=headers)
    return users.status == 200, (await acme.api.get("/api/service/users", headers={"X-Api-Key": key})).status == 200


@pytest.mark.parametrize("is_deleted", [True, False])
async def test_secrets_that_a_program_made_are_listed_to_the_owner_when_it_ends_and_end_together(
    acme: Tenant, ports: Ports, sent: FakeMailTransport, is_deleted: bool
) -> None:
    robot, headers, key, path = await leave_secrets(acme)
    if is_deleted:
        assert (await acme.api.delete(robot.path, token=acme.token("admin"))).status == 204
    else:
        await acme.api.patch(robot.path, {"owner_id": acme.id("admin")}, token=acme.token("owner"))
        await acme.set_role("owner", "admin", "member")
    assert await are_live(acme, headers, key) == (True, True)
    await deliver(ports)
    [mail] = [message for message in sent.emails if "left secrets behind" in message.subject]
    body = mail.text
    assert mail.to == acme.people["owner"].email
    for fact in ("Directory (scim_live_", "Export (sk_", f"/app/organizations/acme/service-accounts/{robot.id}/created-secrets"):
        assert fact in body

    listed = (await acme.api.get(path, token=acme.token("owner"))).json["secrets"]
    assert {(each["kind"], each["name"], each["application"] is None) for each in listed} == {
        ("scim_token", "Directory", True),
        ("api_key", "Export", False),
    }
    for name in ("admin", "member"):
        assert (await acme.api.delete(path, token=acme.token(name))).status == 403
    answers = await run_concurrently(20, lambda _: acme.api.delete(path, token=acme.token("owner")))
    assert sorted(len(answer.json["secrets"]) for answer in answers) == [0] * 19 + [2]
    assert await are_live(acme, headers, key) == (False, False)
    actions = await acme.actions()
    assert (actions["api_key.deleted"], actions["scim_token.revoked"]) == (1, 1)
    assert await run_sql(acme.pool, "select name from scim_tokens") == [("Kept",)]


async def test_created_secrets_are_those_of_the_organization(acme: Tenant, other_tenant: Tenant) -> None:
    _, headers, key, path = await leave_secrets(acme)
    elsewhere = path.replace(acme.path, other_tenant.path)
    unknown = path.replace(path.split("/")[-2], "x")
    for url, owner in ((elsewhere, other_tenant), (unknown, acme)):
        for method in ("GET", "DELETE"):
            assert (await acme.api.call(method, url, token=owner.token("owner"))).status == 404
    assert await are_live(acme, headers, key) == (True, True)
