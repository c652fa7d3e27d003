"""The callers that can export a user's data (decision 48; security B-5, I-4, J-9, R-5)."""

from uuid import UUID

import pytest

from core.kernel.roles import MEMBER, OWNER
from core.privacy.model import personal_data
from tests.accounts.profiles import NO_FIELDS, set_profile
from tests.privacy.api.export.subject import Subject, add_all_data, request_export
from tests.support.builders import add_account, add_member, impersonate, run_sql, sign_in
from tests.support.platform import NOWHERE, Platform
from tests.support.programs import add_service_account
from tests.support.refusals import FORBIDDEN, MISSING, refused
from tests.support.services import add_service, add_service_role, sign_in_to
from tests.support.tenants import Tenant, Tenants

OF_THE_ACCOUNT = ("mfa_events", "passkeys", "email_changes", "security_notices", "service_accounts", "personal_tokens")


async def test_platform_owners_get_everything(user: Subject, shop: UUID, acme: Tenant, platform: Platform) -> None:
    await acme.join("ada", user.account)
    await add_all_data(user, shop)
    assert await user.export(platform.token) == await user.export()


async def test_an_owner_gets_the_data_of_their_organization(user: Subject, acme: Tenant, other_tenant: Tenant, shop: UUID) -> None:
    other = await add_service(user.pool, other_tenant.org, "other")
    for tenant in (acme, other_tenant):
        await tenant.join("ada", user.account)
    await add_all_data(user, shop, other)
    for tenant in (acme, other_tenant):
        await user.add_application_block(0, tenant.org)
        await user.add_former_membership(0, tenant.org)
        await add_service_role(user.pool, await add_service(user.pool, tenant.org, "forum"), user.account.id)
        await user.add_attributes(0, tenant.org)
    await add_service_account(user.pool, acme.org, user.account.id)
    await set_profile(user.ports, user.account.id)
    package = await user.export(acme.token("owner"))
    assert [membership["organization_slug"] for membership in package["memberships"]] == ["acme"]
    assert [event["timestamp"] for event in package["login_events"]] == ["2026-01-02T00:00:00Z"]
    assert package["login_events_count"] == 1
    assert [identity["provider_user_id"] for identity in package["oauth_identities"]] == ["codehost-1"]
    assert [consent["organization_slug"] for consent in package["consents"]] == ["acme"]
    assert [block["organization_slug"] for block in package["application_blocks"]] == ["acme"]
    assert [each["organization_slug"] for each in package["former_memberships"]] == ["acme"]
    assert [role["organization_slug"] for role in package["application_roles"]] == ["acme"]
    assert [each["organization_slug"] for each in package["attributes"]] == ["acme"]
    assert [package[name] for name in OF_THE_ACCOUNT] == [[]] * len(OF_THE_ACCOUNT)
    assert {name: package[name] for name in NO_FIELDS} == NO_FIELDS


async def test_an_owner_of_several_organizations_gets_those_with_confirmed_memberships(
    user: Subject, acme: Tenant, other_tenant: Tenant, tenants: Tenants
) -> None:
    third = await tenants.add("third", cast={"member": MEMBER})
    for tenant in (other_tenant, third):
        await run_sql(user.pool, "delete from memberships where org_id = %s and role = 'owner'", tenant.org)
        await tenant.join("owner", acme.people["owner"], OWNER)
    for tenant in (acme, other_tenant):
        await tenant.join("ada", user.account)
    await add_member(user.pool, third.org, user.account.id)  # not confirmed
    await add_all_data(user, *[await add_service(user.pool, tenant.org, tenant.slug) for tenant in (acme, other_tenant, third)])
    package = await user.export(acme.token("owner"))
    assert {membership["organization_slug"] for membership in package["memberships"]} == {"acme", "twin"}
    assert (len(package["login_events"]), len(package["oauth_identities"]), package["login_events_count"]) == (2, 2, 2)


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_the_status_of_the_organization_does_not_matter(user: Subject, acme: Tenant, status: str) -> None:
    await acme.join("ada", user.account)
    await acme.set_status(status)
    assert (await user.export(acme.token("owner")))["user_id"] == user.id
    assert (await user.export(acme.token("ada")))["user_id"] == user.id


@pytest.mark.parametrize("caller", ["stranger", "member", "admin", "foreign owner", "owner of an unconfirmed member"])
@pytest.mark.parametrize("target", ["known", "unknown", "no id"])
async def test_others_are_refused_without_learning_if_the_user_exists(
    user: Subject, acme: Tenant, other_tenant: Tenant, caller: str, target: str
) -> None:
    await acme.join("ada", user.account)
    if caller.startswith("owner"):
        await run_sql(user.pool, "update memberships set confirmed_at = null where user_id = %s", user.account.id)
    match caller:
        case "stranger":
            token = (await sign_in(user.ports, await add_account(user.ports, "stranger@example.com", None))).access_token
        case "member" | "admin":
            token = acme.token(caller)
        case "foreign owner":
            token = other_tenant.token("owner")
        case _:
            token = acme.token("owner")
    answer = await request_export(user.api, {"known": user.id, "unknown": NOWHERE, "no id": "ada"}[target], token)
    assert refused(answer) == FORBIDDEN
    assert answer.json["error"] == personal_data.ExportNotAllowed.__doc__


@pytest.mark.parametrize("target", [str(UUID(int=7)), "ada", "%F0%9F%A6%8A"])
async def test_only_platform_owners_learn_that_a_user_does_not_exist(platform: Platform, target: str) -> None:
    assert refused(await request_export(platform.api, target, platform.token)) == MISSING


async def test_an_impersonator_is_refused(user: Subject, platform: Platform) -> None:
    token = await impersonate(user.ports, platform.account, user.account)
    assert refused(await request_export(user.api, user.id, token)) == FORBIDDEN


async def test_an_application_gets_its_users_data_of_its_organization(
    user: Subject, acme: Tenant, other_tenant: Tenant, shop: UUID
) -> None:
    second, other = await add_service(user.pool, acme.org, "second"), await add_service(user.pool, other_tenant.org, "other")
    for tenant in (acme, other_tenant):
        await tenant.join("ada", user.account)
    await add_all_data(user, shop, second, other)
    token = (await sign_in_to(user.ports, user.pool, shop, user.account)).access_token
    package = await user.export(token)
    assert [membership["organization_slug"] for membership in package["memberships"]] == ["acme"]
    assert [event["timestamp"] for event in package["login_events"]] == ["2026-01-03T00:00:00Z", "2026-01-02T00:00:00Z"]
    assert package["login_events_count"] == 2
    assert [identity["provider_user_id"] for identity in package["oauth_identities"]] == ["codehost-1", "codehost-2"]
    assert [consent["service_slug"] for consent in package["consents"]] == ["shop", "second"]
    assert [package[name] for name in OF_THE_ACCOUNT] == [[]] * len(OF_THE_ACCOUNT)
    await acme.set_status("suspended")
    assert (await user.export(token))["login_events_count"] == 2


@pytest.mark.parametrize("holder", ["owner", "platform"])
async def test_an_application_cannot_export_other_users(user: Subject, acme: Tenant, shop: UUID, platform: Platform, holder: str) -> None:
    await acme.join("ada", user.account)
    token = (await sign_in_to(user.ports, user.pool, shop, platform.account if holder == "platform" else acme.people["owner"])).access_token
    for target in (user.id, NOWHERE):
        assert refused(await request_export(user.api, target, token)) == FORBIDDEN


async def test_an_export_changes_nothing(user: Subject, acme: Tenant, tenants: Tenants) -> None:
    await acme.join("ada", user.account)
    before = await tenants.everything()
    await user.export(acme.token("owner"))
    assert await tenants.everything() == before
