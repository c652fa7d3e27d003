"""Deactivating and deleting SCIM users (security C-5)."""

from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from core.kernel.access import BlockedByDirectory
from core.kernel.causes import SYSTEM
from core.kernel.roles import MEMBER
from core.provisioning.model.schemas import ENTERPRISE_URN
from core.tenancy.model.invitations import InviteeBlocked
from tests.fakes.outside import FakeClock
from tests.provisioning.api.users import FULL, account_of, add_own_account, load_accounts, set_password
from tests.support.builders import PASSWORD, Answer, add_member, run_concurrently, run_sql, sign_in
from tests.support.mfa import waiting_flow
from tests.support.saml import add_application, posted_response
from tests.support.saml.browser import SamlBrowser
from tests.support.scim import GRACE, Directory, directory_of, problem
from tests.support.services import add_plan, add_service, add_subscription
from tests.support.tenants import Tenant
from tests.tenancy.organizations import refresh

BLOCKS: Final = "/api/organizations/acme/directory-blocks"


async def test_an_account_used_in_one_organization_only_is_deactivated_and_activated(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user()
    await set_password(acme, user["id"])
    session = await sign_in(acme.ports, await account_of(acme, user["id"]))
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.flows.add(waiting_flow(UUID(user["id"]), acme.ports.clock.now()))
    answer = await directory.deactivate(user["id"])
    assert (answer.status, answer.json["active"]) == (200, False)
    assert await run_sql(acme.pool, "select 1 from sign_in_flows") == []
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 401
    assert (await acme.api.login(GRACE)).status == 401
    assert [(row[4], row[5]) for row in await load_accounts(acme)] == [(True, None)]
    assert await run_sql(acme.pool, "select member_count from organizations where id = %s", acme.org) == [(3,)]
    assert (await acme.entry("user.deactivated"))["details"] == {"whole_account": True}
    assert (await directory.list_users())["totalResults"] == 4
    assert await directory.find_user_names("active eq false") == [GRACE]
    assert user["id"] not in await directory.group_member_ids()
    await directory.deactivate(user["id"])
    answer = await directory.activate(user["id"], "True")
    assert (answer.status, answer.json["active"], answer.json["meta"]["created"]) == (200, True, user["meta"]["created"])
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 401, "the old sessions stay ended"
    assert (await refresh(acme.api, session.refresh_token)).status == 401
    assert (await acme.api.login(GRACE)).status == 200
    assert [(row[4], row[5], row[6]) for row in await load_accounts(acme)] == [(False, "member", True)]
    assert await run_sql(acme.pool, "select member_count from organizations where id = %s", acme.org) == [(4,)]
    assert (await acme.entry("user.reactivated"))["details"] == {"whole_account": True}
    assert [row[0] for row in await run_sql(acme.pool, "select kind from mails")] == ["welcome"]


async def test_deleting_the_organization_reactivates_the_accounts_its_directory_deactivated(
    acme: Tenant, other_tenant: Tenant, directory: Directory
) -> None:
    ids = {}
    for tenant in (acme, other_tenant):
        own_directory = await directory_of(tenant)
        user = await own_directory.create_user(f"{tenant.slug}@example.com")
        ids[tenant.slug] = user["id"]
        await set_password(tenant, user["id"])
        await own_directory.deactivate(user["id"])
        assert (await tenant.api.login(f"{tenant.slug}@example.com")).status == 401
    assert (await acme.api.delete(acme.path, token=acme.token("owner"))).status == 204
    assert (await acme.api.login(f"{acme.slug}@example.com")).status == 200
    assert (await other_tenant.api.login(f"{other_tenant.slug}@example.com")).status == 401
    assert await run_sql(acme.pool, "select user_id from directory_blocks") == [(UUID(ids[other_tenant.slug]),)]


@pytest.mark.parametrize("reason", ["created by the user", "member elsewhere", "end user elsewhere", "subscriber elsewhere"])
async def test_only_the_membership_of_a_shared_account_is_deactivated(
    acme: Tenant, other_tenant: Tenant, directory: Directory, reason: str
) -> None:
    if reason == "created by the user":
        user_id = await add_own_account(acme)
    else:
        user_id = (await directory.create_user("ada@example.com"))["id"]
        await set_password(acme, user_id)
    match reason:
        case "member elsewhere":
            await add_member(other_tenant.pool, other_tenant.org, UUID(user_id))
        case "end user elsewhere":
            await run_sql(
                acme.pool,
                """insert into end_users (org_id, user_id, email, deactivated, created_at)
                   select %s, id, email, deactivated, now() from users where id = %s""",
                other_tenant.org,
                UUID(user_id),
            )
        case "subscriber elsewhere":
            plan = await add_plan(acme.pool, service := await add_service(acme.pool, other_tenant.org))
            await add_subscription(acme.ports, acme.pool, service, UUID(user_id), plan, ends=acme.ports.clock.now())
            await run_sql(acme.pool, "delete from end_users")
    session = await sign_in(acme.ports, await account_of(acme, user_id), acme.org)
    own_session = await sign_in(acme.ports, await account_of(acme, user_id))
    assert (await directory.deactivate(user_id)).json["active"] is False
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 401
    assert (await acme.api.get("/api/user", token=own_session.access_token)).status == 200
    assert (await acme.api.get(acme.path, token=own_session.access_token)).status == 403
    assert (await acme.api.login("ada@example.com")).status == 200
    assert (await acme.entry("user.deactivated"))["details"] == {"whole_account": False}
    answer = await acme.api.post(acme.invitations, {"email": "ada@example.com", "role": "member"}, token=acme.token("owner"))
    assert (answer.status, answer.json["error"]) == (409, str(InviteeBlocked(UUID(user_id))))
    assert (await directory.activate(user_id)).json["active"] is True
    assert (await acme.api.get(acme.path, token=own_session.access_token)).status == 200
    await directory.deactivate(user_id)
    assert (await directory.delete(user_id)).status == 204
    assert problem(await directory.call("GET", f"/Users/{user_id}")) == (404, None)
    assert (await acme.api.login("ada@example.com")).status == 200
    assert (await acme.entry("user.removed"))["details"] == {"permanently": False}
    assert problem(await directory.add_members(user_id)) == (400, "invalidValue")


async def test_a_deactivated_user_cannot_use_services_of_the_organization(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    """This includes their use as an end user (security C-5, T-5).

    Services in other organizations stay usable.
    """
    user_id = (await directory.create_user("ada@example.com"))["id"]
    await set_password(acme, user_id)
    await add_member(other_tenant.pool, other_tenant.org, UUID(user_id))
    await add_service(acme.pool, acme.org, "shop")
    await add_service(other_tenant.pool, other_tenant.org, "shop")

    async def sign_in_to(org: str) -> Answer:
        body = {"email": "ada@example.com", "password": PASSWORD, "org_slug": org, "service_slug": "shop"}
        return await acme.api.post("/api/auth/login", body)

    tokens = (await sign_in_to("acme")).json
    assert (await acme.api.get("/api/user", token=tokens["access_token"])).json["service"] == "shop"
    await directory.deactivate(user_id)
    assert (await acme.api.get("/api/user", token=tokens["access_token"])).status == 401
    assert (await acme.api.post("/api/auth/refresh", {"refresh_token": tokens["refresh_token"]})).status == 401
    answer = await sign_in_to("acme")
    assert (answer.status, answer.code) == (403, "FORBIDDEN")
    assert (await sign_in_to("twin")).status == 200
    await directory.activate(user_id)
    assert (await sign_in_to("acme")).status == 200


async def test_saml_asserts_nothing_about_a_deactivated_user(
    app: QuartTrio, clock: FakeClock, acme: Tenant, other_tenant: Tenant, directory: Directory
) -> None:
    user_id = (await directory.create_user("ada@example.com"))["id"]
    await set_password(acme, user_id)
    await add_member(other_tenant.pool, other_tenant.org, UUID(user_id))
    application = await add_application(acme.ports, acme.pool, acme.org, "acme")
    browser = SamlBrowser(app, clock)
    onward = await browser.sign_in_at(await browser.start_sign_on(application), "ada@example.com", PASSWORD)
    assert b"ada@example.com" in posted_response(await browser.open(onward)).document
    await directory.deactivate(user_id)
    assert (await browser.open(await browser.start_sign_on(application))).status == 403
    await directory.activate(user_id)
    assert b"ada@example.com" in posted_response(await browser.open(await browser.start_sign_on(application))).document


async def create_again(directory: Directory, user_id: str) -> None:
    assert (await directory.create_user("ada@example.com", displayName="Ada"))["id"] == user_id


async def unblock_and_invite(directory: Directory, user_id: str) -> None:
    """The block is removed once, and the user accepts the next invitation."""
    acme = directory.tenant
    assert [block["user_id"] for block in (await acme.api.get(BLOCKS, token=acme.token("owner"))).json["blocks"]] == [user_id]
    answers = await run_concurrently(20, lambda _: acme.api.delete(f"{BLOCKS}/{user_id}", token=acme.token("owner")))
    assert sorted(answer.status for answer in answers) == [204] + 19 * [404]
    assert (await acme.entry("user.unblocked"))["details"] == {"whole_account": False}
    assert (await acme.api.get(BLOCKS, token=acme.token("owner"))).json["blocks"] == []
    token = (await acme.invite("ada@example.com"))["invitation"]["token"]
    token_of_user = (await acme.api.login("ada@example.com")).json["access_token"]
    accepted = await acme.api.post("/api/invitations/accept", {"token": token}, token=token_of_user)
    assert accepted.status == 200, accepted.text


@pytest.mark.parametrize("deactivated", [False, True])
@pytest.mark.parametrize("end_block", [create_again, unblock_and_invite])
async def test_a_deleted_user_is_blocked_until_the_directory_creates_them_or_an_admin_removes_the_block(
    app: QuartTrio,
    clock: FakeClock,
    acme: Tenant,
    other_tenant: Tenant,
    directory: Directory,
    deactivated: bool,
    end_block: Callable[[Directory, str], Awaitable[None]],
) -> None:
    user_id = (await directory.create_user("ada@example.com"))["id"]
    await set_password(acme, user_id)
    await add_member(other_tenant.pool, other_tenant.org, UUID(user_id))
    application = await add_application(acme.ports, acme.pool, acme.org, "acme")
    at_service = {"email": "ada@example.com", "password": PASSWORD, "org_slug": "acme", "service_slug": application.slug}
    browser = SamlBrowser(app, clock)
    onward = await browser.sign_in_at(await browser.start_sign_on(application), "ada@example.com", PASSWORD)
    assert b"ada@example.com" in posted_response(await browser.open(onward)).document
    if deactivated:
        await directory.deactivate(user_id)
    assert (await directory.delete(user_id)).status == 204
    assert (await browser.open(await browser.start_sign_on(application))).status == 403
    assert (await acme.api.post("/api/auth/login", at_service)).status == 403
    assert (await acme.api.get(f"{acme.path}/users", token=acme.token("owner"))).json["pagination"]["total"] == 0
    answer = await acme.api.post(acme.invitations, {"email": "ada@example.com", "role": "member"}, token=acme.token("owner"))
    assert (answer.status, answer.code) == (409, "CONFLICT")
    # The block has no effect in other organizations.
    other = await directory_of(other_tenant)
    assert problem(await other.try_create_user("ada@example.com")) == (409, "uniqueness")
    assert (await other.delete(user_id)).status == 204
    assert (await acme.api.login("ada@example.com")).status == 200

    await end_block(directory, user_id)
    assert (await acme.api.post("/api/auth/login", at_service)).status == 200
    assert (await directory.get(f"/Users/{user_id}"))["active"] is True
    assert (await acme.members())["ada@example.com"][0] == "member"


async def test_the_directory_cannot_bring_back_a_member_it_did_not_provision_after_an_unblock(acme: Tenant, directory: Directory) -> None:
    own, provisioned = await add_own_account(acme), (await directory.create_user())["id"]
    for user_id in (own, provisioned):
        await directory.deactivate(user_id)
        assert (await acme.api.delete(f"{BLOCKS}/{user_id}", token=acme.token("owner"))).status == 204
    assert problem(await directory.add_members(own)) == (400, "invalidValue")
    assert problem(await directory.call("GET", f"/Users/{own}")) == (404, None)
    assert (await directory.add_members(provisioned)).status == 200


async def test_a_user_that_the_directory_creates_again_inactive_stays_blocked(acme: Tenant, directory: Directory) -> None:
    user_id = await add_own_account(acme)
    assert (await directory.delete(user_id)).status == 204
    again = await directory.create_user("ada@example.com", active=False, displayName="Ada")
    assert (again["id"], again["active"], again["displayName"]) == (user_id, False, "Ada")
    assert "ada@example.com" not in await acme.members()
    assert (await acme.api.post(acme.invitations, {"email": "ada@example.com", "role": "member"}, token=acme.token("owner"))).status == 409


async def test_a_user_is_created_again_inactive_in_a_full_organization(acme: Tenant, directory: Directory) -> None:
    user_id = await add_own_account(acme)
    assert (await directory.delete(user_id)).status == 204
    await acme.set_member_limit(3)
    assert problem(await directory.try_create_user("ada@example.com")) == (400, None)
    assert (await directory.create_user("ada@example.com", active=False))["active"] is False
    actions = [entry["action"] for entry in await acme.log()]
    assert not {"user.reactivated", "user.deactivated"} & set(actions)


async def test_the_end_of_a_block_activates_an_account_that_is_now_used_elsewhere(
    acme: Tenant, other_tenant: Tenant, directory: Directory
) -> None:
    user_id = (await directory.create_user("ada@example.com"))["id"]
    await set_password(acme, user_id)
    await directory.deactivate(user_id)
    await add_member(other_tenant.pool, other_tenant.org, UUID(user_id))
    assert (await directory.activate(user_id)).json["active"] is True
    assert (await acme.api.login("ada@example.com")).status == 200


async def test_an_earlier_invitation_does_not_bring_a_blocked_user_back(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    user_id = (await directory.create_user("ada@example.com"))["id"]
    await set_password(acme, user_id)
    await add_member(other_tenant.pool, other_tenant.org, UUID(user_id))
    await directory.remove_member(user_id)
    token = (await acme.invite("lovelace@example.com"))["invitation"]["token"]
    await directory.deactivate(user_id)
    await run_sql(acme.pool, "update users set email = 'lovelace@example.com' where id = %s", UUID(user_id))
    assert (await acme.api.post("/api/invitations/accept", {"token": token})).status == 400
    token_of_user = (await acme.api.login("lovelace@example.com")).json["access_token"]
    answer = await acme.api.post("/api/invitations/accept", {"token": token}, token=token_of_user)
    assert (answer.status, answer.json["error"]) == (403, BlockedByDirectory.__doc__)


async def test_activating_respects_the_member_limit(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user()
    await directory.deactivate(user["id"])
    await acme.set_member_limit(4)
    await directory.create_user("next@acme.example")
    assert problem(await directory.activate(user["id"])) == (400, None)
    assert (await directory.get(f"/Users/{user['id']}"))["active"] is False


async def test_an_account_used_in_one_organization_only_is_deleted_permanently(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user()
    session = await sign_in(acme.ports, await account_of(acme, user["id"]))
    assert (await directory.delete(user["id"])).status == 204
    assert problem(await directory.delete(user["id"])) == (404, None)
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 401
    assert (await refresh(acme.api, session.refresh_token)).status == 401
    assert await load_accounts(acme) == []
    assert await run_sql(acme.pool, "select member_count from organizations where id = %s", acme.org) == [(3,)]
    assert (await acme.entry("user.removed"))["details"] == {"permanently": True, "role": "member"}
    assert (await directory.create_user())["id"] != user["id"]


async def test_one_of_several_concurrent_requests_deletes_the_user(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user()
    answers = await run_concurrently(5, lambda n: directory.delete(user["id"]) if n % 2 else directory.deactivate(user["id"]))
    assert [answer.status for answer in answers].count(204) == 1
    assert {answer.status for answer in answers} <= {200, 204, 404}
    await acme.check()


async def test_an_anonymized_user_can_only_be_deleted(acme: Tenant, directory: Directory) -> None:
    emails = [{"value": GRACE, "primary": True}]
    enterprise: dict[str, Any] = {ENTERPRISE_URN: {"department": "Navy"}}
    user = await directory.create_user("amazing.grace", emails=emails, title="Admiral", **enterprise, **FULL)
    answer = await acme.api.delete(f"/api/privacy/forget/{user['id']}", token=acme.token("owner"))
    assert answer.status == 200, answer.text
    resource = await directory.get(f"/Users/{user['id']}")
    assert (resource["active"], resource["displayName"], resource["externalId"], resource["name"]) == (False, None, None, None)
    assert (resource["title"], ENTERPRISE_URN in resource) == (None, False)
    assert resource["userName"].startswith("anonymized-")
    assert problem(await directory.activate(user["id"])) == (403, None)
    assert problem(await directory.patch(user["id"], {"op": "replace", "path": "displayName", "value": "G"})) == (403, None)
    assert (await directory.delete(user["id"])).status == 204
    assert await run_sql(acme.pool, "select count(*) from users where id = %s", UUID(user["id"])) == [(1,)]


async def test_an_anonymized_user_cannot_rejoin_the_group(acme: Tenant, directory: Directory) -> None:
    anonymized, other = (await directory.create_user())["id"], (await directory.create_user("other@acme.example"))["id"]
    answer = await acme.api.delete(f"/api/privacy/forget/{anonymized}", token=acme.token("owner"))
    assert answer.status == 200, answer.text
    for user_id in (anonymized, other):
        assert (await directory.remove_member(user_id)).status == 200
    assert problem(await directory.add_members(anonymized, other)) == (400, "invalidValue")
    assert problem(await directory.put_group(anonymized)) == (400, "invalidValue")
    assert (await directory.add_members(other)).status == 200
    assert await directory.group_member_ids() == {*(acme.id(name) for name in acme.people), other}


async def test_another_organization_cannot_anonymize_a_user_that_a_directory_deactivated(
    acme: Tenant, other_tenant: Tenant, directory: Directory
) -> None:
    shared = (await directory.create_user())["id"]
    await add_member(other_tenant.pool, other_tenant.org, UUID(shared), confirmed=True)
    await directory.deactivate(shared)
    answer = await other_tenant.api.delete(f"/api/privacy/forget/{shared}", token=other_tenant.token("owner"))
    assert answer.status == 403


async def test_an_activated_user_is_a_member_whatever_role_they_had(acme: Tenant, directory: Directory) -> None:
    admin = acme.id("admin")
    await directory.deactivate(admin)
    assert "admin" not in await acme.check()
    await directory.activate(admin)
    assert (await acme.check())["admin"] == MEMBER


async def test_creating_a_user_inactive_again_keeps_the_address_they_have_now(acme: Tenant, directory: Directory) -> None:
    """The organization does not control the account, so it neither loses its verified address nor its sessions."""
    user_id = await add_own_account(acme)
    await directory.deactivate(user_id)
    await run_sql(acme.pool, "update users set email = 'lovelace@example.com' where id = %s", UUID(user_id))
    session = await sign_in(acme.ports, await account_of(acme, user_id))
    answer = await directory.try_create_user("lovelace@example.com", active=False)
    assert (answer.status, answer.json["userName"], answer.json["active"]) == (201, "lovelace@example.com", False)
    answer = await directory.put(user_id, userName="lovelace@example.com", active=False, displayName="Ada")
    assert (answer.status, answer.json["displayName"]) == (200, "Ada")
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 200
    assert await run_sql(acme.pool, "select email_verified_at is null from users where id = %s", UUID(user_id)) == [(False,)]


async def test_deactivating_skips_wrong_schemas_and_names_that_occur_twice(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user(displayName="Grace")
    twice = {"displayName": "one", "DisplayName": "two", "unknown": 1, "Unknown": 2, **{f"x{number}": 1 for number in range(30)}}
    twice |= {f"X{number}": 1 for number in range(30)}
    assert problem(await directory.put(user["id"], userName=GRACE, **twice)) == (400, "invalidValue")
    body: dict[str, Any] = {"schemas": [ENTERPRISE_URN], "userName": GRACE, "active": False, **twice}
    answer = await directory.call("PUT", f"/Users/{user['id']}", body)
    assert (answer.status, answer.json["active"], answer.json["displayName"]) == (200, False, "Grace")
    await directory.activate(user["id"])
    body = {"schemas": ["x"], "Operations": [{"op": "replace", "path": "active", "value": False}]}
    answer = await directory.call("PATCH", f"/Users/{user['id']}", body)
    assert (answer.status, answer.json["active"]) == (200, False)
    for active in ("maybe", None):
        fields = {"active": active} if active else {"active": False, "Active": False}
        assert problem(await directory.put(user["id"], userName=GRACE, displayName="Other", **fields)) == (400, "invalidValue")
    assert (await directory.get(f"/Users/{user['id']}"))["displayName"] == "Grace"
