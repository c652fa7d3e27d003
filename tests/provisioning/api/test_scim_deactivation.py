"""Deactivating and deleting SCIM users (security C-5, decision 132)."""

from uuid import UUID

import pytest
from quart_trio import QuartTrio

from core.kernel.principals import SYSTEM, BlockedByDirectory, Role
from core.tenancy.invitations_rules import InviteeDeactivated
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.provisioning.api.users import FULL, account_of, add_own_account, load_accounts, set_password
from tests.support.builders import PASSWORD, Answer, add_member, add_provisioned, deliver, link, run_concurrently, run_sql, sign_in
from tests.support.mfa import waiting
from tests.support.saml import add_application, posted_response
from tests.support.saml_browser import SamlBrowser
from tests.support.scim import GRACE, Directory, directory_of, problem
from tests.support.services import add_service
from tests.support.tenants import Tenant
from tests.tenancy.organizations import refresh


async def test_an_account_used_in_one_organization_only_is_deactivated_and_activated(acme: Tenant, directory: Directory) -> None:
    user = await directory.create_user()
    await set_password(acme, user["id"])
    session = await sign_in(acme.ports, await account_of(acme, user["id"]))
    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.pre_auths.add(waiting(UUID(user["id"]), acme.ports.clock.now()))
    answer = await directory.deactivate(user["id"])
    assert (answer.status, answer.json["active"]) == (200, False)
    assert await run_sql(acme.pool, "select 1 from pre_auths") == []
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 401
    assert (await acme.api.login(GRACE)).status == 401
    assert [(row[4], row[5]) for row in await load_accounts(acme)] == [(True, None)]
    assert await run_sql(acme.pool, "select member_count from organizations where id = %s", acme.org) == [(3,)]
    assert (await acme.entry("user.deactivated"))["details"] == {"whole_account": True}
    assert (await directory.list_users())["totalResults"] == 4
    assert await directory.find_user_names("active eq false") == [GRACE]
    assert user["id"] in await directory.group_member_ids()
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
    assert await run_sql(acme.pool, "select user_id from scim_users where whole_account") == [(UUID(ids[other_tenant.slug]),)]


async def test_the_whole_account_of_a_confirmed_member_is_deactivated(acme: Tenant, directory: Directory) -> None:
    user = await add_own_account(acme)
    await directory.deactivate(user)
    assert (await acme.api.login("ada@example.com")).status == 401


@pytest.mark.parametrize("reason", ["not confirmed", "member elsewhere", "end user elsewhere", "known elsewhere"])
async def test_only_the_membership_of_a_shared_account_is_deactivated(
    acme: Tenant, other_tenant: Tenant, directory: Directory, reason: str
) -> None:
    if reason == "not confirmed":
        user_id = await add_own_account(acme, confirmed=False)
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
        case "known elsewhere":
            await add_provisioned(acme.pool, other_tenant.org, UUID(user_id))
    session = await sign_in(acme.ports, await account_of(acme, user_id), acme.org)
    own_session = await sign_in(acme.ports, await account_of(acme, user_id))
    assert (await directory.deactivate(user_id)).json["active"] is False
    assert (await acme.api.get("/api/user", token=session.access_token)).status == 401
    assert (await acme.api.get("/api/user", token=own_session.access_token)).status == 200
    assert (await acme.api.get(acme.path, token=own_session.access_token)).status == 403
    assert (await acme.api.login("ada@example.com")).status == 200
    assert (await acme.entry("user.deactivated"))["details"] == {"whole_account": False}
    answer = await acme.api.post(acme.invitations, {"email": "ada@example.com", "role": "member"}, token=acme.token("owner"))
    assert (answer.status, answer.json["error"]) == (400, InviteeDeactivated.__doc__)
    assert (await directory.activate(user_id)).json["active"] is True
    if reason != "not confirmed":  # activating confirms the membership
        assert (await acme.api.get(acme.path, token=own_session.access_token)).status == 200
    await directory.deactivate(user_id)
    assert (await directory.delete(user_id)).status == 204
    assert problem(await directory.call("GET", f"/Users/{user_id}")) == (404, None)
    assert (await acme.api.login("ada@example.com")).status == 200
    assert (await acme.entry("user.removed"))["details"] == {"permanently": False, "role": "member"}
    assert problem(await directory.add_members(user_id)) == (400, "invalidValue")


async def test_a_deactivated_user_cannot_use_services_of_the_organization(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    """This includes their use as an end user (security C-5, T-5).

    Services of other organizations stay usable.
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


@pytest.mark.parametrize("deactivated", [False, True])
async def test_a_deleted_user_is_blocked_until_they_accept_an_invitation(
    app: QuartTrio, clock: FakeClock, acme: Tenant, other_tenant: Tenant, directory: Directory, sent: FakeMailTransport, deactivated: bool
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
    assert problem(await directory.try_create_user("ada@example.com")) == (409, "uniqueness")
    # A block by this directory does not count as use of the account elsewhere.
    other = await directory_of(other_tenant)
    assert (await other.delete(user_id)).status == 204
    assert (await acme.api.login("ada@example.com")).status == 200

    invitation = {"email": "ada@example.com", "role": "member"}
    assert (await acme.api.post(acme.invitations, invitation, token=acme.token("owner"))).status == 200
    await deliver(acme.ports)
    token_of_user = (await acme.api.login("ada@example.com")).json["access_token"]
    token = link(sent.emails[-1])
    accepted = await acme.api.post("/api/invitations/accept", {"token": token}, token=token_of_user)
    assert accepted.status == 200, accepted.text
    assert (await acme.api.post("/api/auth/login", at_service)).status == 200
    assert (await directory.get(f"/Users/{user_id}"))["active"] is True


async def test_an_invitation_does_not_reactivate_a_deactivated_user(
    acme: Tenant, other_tenant: Tenant, directory: Directory, sent: FakeMailTransport
) -> None:
    user_id = (await directory.create_user("ada@example.com"))["id"]
    await set_password(acme, user_id)
    await add_member(other_tenant.pool, other_tenant.org, UUID(user_id))
    await directory.deactivate(user_id)
    await run_sql(
        acme.pool, "update users set email = 'lovelace@example.com' where id = %s", UUID(user_id)
    )  # the directory does not know this
    invitation = {"email": "lovelace@example.com", "role": "member"}
    assert (await acme.api.post(acme.invitations, invitation, token=acme.token("owner"))).status == 200
    await deliver(acme.ports)
    token = link(sent.emails[-1])
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
    user = await directory.create_user(**FULL)
    answer = await acme.api.delete(f"/api/privacy/forget/{user['id']}", token=acme.token("owner"))
    assert answer.status == 200, answer.text
    resource = await directory.get(f"/Users/{user['id']}")
    assert (resource["active"], resource["displayName"], resource["externalId"], resource["name"]) == (False, None, None, None)
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


async def test_another_organization_cannot_anonymize_a_user_with_a_suspended_membership(
    acme: Tenant, other_tenant: Tenant, directory: Directory
) -> None:
    shared = (await directory.create_user())["id"]
    await add_member(other_tenant.pool, other_tenant.org, UUID(shared), confirmed=True)
    await directory.deactivate(shared)
    answer = await other_tenant.api.delete(f"/api/privacy/forget/{shared}", token=other_tenant.token("owner"))
    assert answer.status == 403


async def test_a_deactivated_admin_can_be_demoted(acme: Tenant, directory: Directory) -> None:
    admin = acme.id("admin")
    await directory.deactivate(admin)
    answer = await acme.set_role("owner", "admin", "member")
    assert (answer.status, answer.json["membership"]["role"]) == (200, "member")
    assert "admin" not in await acme.check()
    assert (await acme.entry("user.role_updated"))["details"] == {"old_role": "admin", "new_role": "member"}
    await directory.activate(admin)
    assert (await acme.check())["admin"] == Role.MEMBER


async def test_a_deactivated_member_can_be_removed(acme: Tenant, directory: Directory) -> None:
    admin = acme.id("admin")
    await directory.deactivate(admin)
    assert (await acme.remove("owner", "admin")).status == 200
    assert (await acme.entry("user.removed"))["details"] == {"role": "admin"}
    assert admin not in await directory.group_member_ids()
    assert (await acme.remove("owner", "admin")).status == 404
    assert (await acme.set_role("owner", "admin", "member")).status == 404
    assert (await directory.get(f"/Users/{admin}"))["active"] is False  # the user stays blocked until the directory changes that
    await directory.activate(admin)
    assert "admin" not in await acme.check()


async def test_a_data_export_contains_a_suspended_membership(acme: Tenant, other_tenant: Tenant, directory: Directory) -> None:
    admin = acme.people["admin"].id
    await add_member(other_tenant.pool, other_tenant.org, admin)
    async with acme.ports.storage.reading() as read:
        before = await read.privacy.memberships(admin, None, None, 10)
    await directory.deactivate(admin)
    async with acme.ports.storage.reading() as read:
        assert await read.privacy.memberships(admin, None, None, 10) == before
        assert [membership.org_slug for membership in await read.privacy.memberships(admin, {acme.org}, None, 10)] == ["acme"]
        assert await read.privacy.memberships(admin, None, before[0], 10) == before[1:]
    assert len(before) == 2


async def test_roles_survive_a_deactivation(acme: Tenant, directory: Directory) -> None:
    admin = acme.id("admin")
    await directory.deactivate(admin)
    await directory.activate(admin)
    assert (await acme.check())["admin"] == Role.ADMIN
