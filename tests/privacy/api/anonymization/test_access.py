"""The users who may anonymize an account (decisions 48, 144, 147; security B-5, I-4, J-9, R-5, Y-2)."""

from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.privacy.model import personal_data
from ports import Ports
from tests.privacy.api.anonymization.data import PLACEHOLDER, account_row, anonymize, request_anonymization
from tests.support.builders import EMAIL, Api, add_account, add_member, impersonate, run_sql, sign_in
from tests.support.platform import NOWHERE, Platform
from tests.support.refusals import FORBIDDEN, MISSING, refused
from tests.support.services import add_service, add_service_user, sign_in_to
from tests.support.tenants import Tenant, Tenants


async def test_owners_can_anonymize_themselves(api: Api, pool: Pool, acme: Tenant) -> None:
    owner = acme.people["owner"]
    await anonymize(api, owner.id, acme.token("owner"))
    assert (await acme.roles())["owner"] == "owner"
    assert PLACEHOLDER.fullmatch((await account_row(pool, owner.id))["email"])
    assert (await request_anonymization(api, owner.id, acme.token("owner"))).status == 401
    # Its records do not contain the address again.
    for log in ("audit_log", "privacy_log"):
        assert await run_sql(pool, f"select actor_id, address, agent from {log}") == [(owner.id, "0.0.0.0", "anonymized")]  # noqa: S104, S608


async def test_the_owner_of_all_the_users_organizations_can_anonymize_them(
    api: Api, pool: Pool, acme: Tenant, other_tenant: Tenant, user: Account
) -> None:
    await other_tenant.join("ada", user)
    assert refused(await request_anonymization(api, user.id, acme.token("owner"))) == FORBIDDEN
    await run_sql(pool, "delete from memberships where org_id = %s and role = 'owner'", other_tenant.org)
    await add_member(pool, other_tenant.org, acme.people["owner"].id, "owner", confirmed=True)
    await anonymize(api, user.id, acme.token("owner"))
    assert [len(await tenant.webhook_events()) for tenant in (acme, other_tenant)] == [1, 1]


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_the_status_of_the_organization_does_not_matter(api: Api, acme: Tenant, user: Account, status: str) -> None:
    await acme.set_status(status)
    await anonymize(api, user.id, acme.token("owner"))


async def test_a_second_anonymization_by_an_owner_changes_nothing(api: Api, pool: Pool, acme: Tenant, user: Account) -> None:
    await anonymize(api, user.id, acme.token("owner"))
    first = await account_row(pool, user.id)
    await anonymize(api, user.id, acme.token("owner"))
    assert await account_row(pool, user.id) == first
    assert len(await acme.webhook_events()) == 1
    assert await run_sql(pool, "select count(*) from privacy_log") == [(1,)]


@pytest.mark.parametrize("caller", ["self", "stranger", "member", "admin", "foreign owner"])
@pytest.mark.parametrize("target", ["known", "without memberships", "unknown", "no id"])
async def test_others_are_refused_without_learning_if_the_user_exists(
    api: Api, ports: Ports, acme: Tenant, other_tenant: Tenant, tenants: Tenants, user: Account, caller: str, target: str
) -> None:
    loner = await add_account(ports, "loner@example.com", None)
    match caller:
        case "self":
            token = acme.token("ada") if target == "known" else (await sign_in(ports, loner)).access_token
        case "stranger":
            token = (await sign_in(ports, await add_account(ports, "stranger@example.com", None))).access_token
        case "foreign owner":
            token = other_tenant.token("owner")
        case _:
            token = acme.token(caller)
    before = await tenants.everything()
    ids = {"known": user.id, "without memberships": loner.id, "unknown": NOWHERE, "no id": "ada"}
    answer = await request_anonymization(api, ids[target], token)
    assert refused(answer) == FORBIDDEN
    assert answer.json["error"] == personal_data.AnonymizationNotAllowed.__doc__
    assert await tenants.everything() == before


async def test_the_owner_of_an_organization_with_an_unconfirmed_membership_is_refused(
    api: Api, pool: Pool, acme: Tenant, user: Account, tenants: Tenants
) -> None:
    await run_sql(pool, "update memberships set confirmed_at = null where user_id = %s", user.id)
    before = await tenants.everything()
    assert refused(await request_anonymization(api, user.id, acme.token("owner"))) == FORBIDDEN
    assert await tenants.everything() == before


async def test_every_membership_must_be_confirmed(api: Api, pool: Pool, acme: Tenant, other_tenant: Tenant, user: Account) -> None:
    await run_sql(pool, "delete from memberships where org_id = %s and role = 'owner'", other_tenant.org)
    await add_member(pool, other_tenant.org, acme.people["owner"].id, "owner", confirmed=True)
    await add_member(pool, other_tenant.org, user.id)
    assert refused(await request_anonymization(api, user.id, acme.token("owner"))) == FORBIDDEN


async def test_an_owner_cannot_anonymize_an_end_user_without_a_membership(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, platform: Platform
) -> None:
    account = await add_account(ports, EMAIL)
    await add_service_user(ports, await add_service(pool, acme.org), account.id)
    assert refused(await request_anonymization(api, account.id, acme.token("owner"))) == FORBIDDEN
    await anonymize(api, account.id, platform.token)
    assert await run_sql(pool, "select count(*) from privacy_log") == [(1,)]
    assert await acme.webhook_events() == []


@pytest.mark.parametrize("by", ["owner", "platform", "self"])
async def test_platform_owners_must_be_demoted_first(
    api: Api, pool: Pool, acme: Tenant, user: Account, platform: Platform, tenants: Tenants, by: str
) -> None:
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", user.id)
    before = await tenants.everything()
    answer = await request_anonymization(
        api, user.id, {"owner": acme.token("owner"), "platform": platform.token, "self": acme.token("ada")}[by]
    )
    assert refused(answer) == FORBIDDEN
    assert answer.json["error"] == personal_data.CannotAnonymizePlatformOwner.__doc__
    assert await tenants.everything() == before
    await run_sql(pool, "update users set is_platform_owner = false where id = %s", user.id)
    await anonymize(api, user.id, platform.token)


@pytest.mark.parametrize("target", [str(UUID(int=7)), "ada"])
async def test_only_platform_owners_learn_that_a_user_does_not_exist(platform: Platform, target: str) -> None:
    assert refused(await request_anonymization(platform.api, target, platform.token)) == MISSING


@pytest.mark.parametrize("target", ["owner", "ada"])
async def test_an_impersonator_is_refused(api: Api, ports: Ports, acme: Tenant, user: Account, platform: Platform, target: str) -> None:
    token = await impersonate(ports, platform.account, acme.people["owner"])
    assert refused(await request_anonymization(api, acme.id(target), token)) == FORBIDDEN


@pytest.mark.parametrize("holder", ["owner", "platform"])
async def test_applications_are_refused_for_every_user(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account, platform: Platform, holder: str
) -> None:
    account = platform.account if holder == "platform" else acme.people["owner"]
    token = (await sign_in_to(ports, pool, await add_service(pool, acme.org), account)).access_token
    for target in (user.id, account.id, NOWHERE):
        assert refused(await request_anonymization(api, target, token)) == FORBIDDEN
