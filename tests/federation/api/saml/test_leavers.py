"""Members who use SAML services and leave the organization (security X-8)."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.applications.api.service_users import check_counts
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, add_account, add_member, run_concurrently, run_sql
from tests.support.saml import SamlApplication
from tests.support.saml.browser import SamlApplications, SamlBrowser
from tests.support.scim import Directory
from tests.support.services import add_api_key, add_plan, add_service_user, add_subscription, sign_in_to
from tests.support.tenants import Tenant

MEMBER = "member@example.com"
Removal = Callable[[Tenant, Directory, UUID], Awaitable[None]]


@pytest.fixture
async def member(ports: Ports, pool: Pool, acme: Tenant) -> Account:
    """A member with an account that the organization does not manage."""
    account = await add_account(ports, MEMBER)
    await add_member(pool, acme.org, account.id, confirmed=True)
    return account


async def remove_by_admin(acme: Tenant, directory: Directory, user_id: UUID) -> None:
    answer = await acme.api.post(f"{acme.path}/members/{user_id}", token=acme.token("owner"))
    assert answer.status == 200, answer.text


async def remove_from_group(acme: Tenant, directory: Directory, user_id: UUID) -> None:
    assert (await directory.remove_member(user_id)).status == 200


async def delete_by_directory(acme: Tenant, directory: Directory, user_id: UUID) -> None:
    assert (await directory.delete(user_id)).status == 204


async def deactivate_by_directory(acme: Tenant, directory: Directory, user_id: UUID) -> None:
    assert (await directory.deactivate(user_id)).status == 200


every_removal = pytest.mark.parametrize(
    "leave",
    [
        remove_by_admin,
        remove_from_group,
        delete_by_directory,
        deactivate_by_directory,
    ],
)


async def try_to_sign_on(browser: SamlBrowser, application: SamlApplication) -> Answer:
    return await browser.open(await browser.start_sign_on(application))


async def service_uses(pool: Pool, account: Account) -> list[tuple[UUID, bool]]:
    return await run_sql(
        pool, "select service_id, by_membership from service_users where user_id = %s order by created_at, service_id", account.id
    )


@every_removal
async def test_a_former_member_gets_no_assertions(
    app: QuartTrio,
    browser: SamlBrowser,
    shop: SamlApplication,
    applications: SamlApplications,
    directory: Directory,
    acme: Tenant,
    user: Account,
    member: Account,
    pool: Pool,
    clock: FakeClock,
    leave: Removal,
) -> None:
    blog = await applications.add("blog")
    await browser.sign_in(MEMBER)
    for application in (shop, blog, shop):
        assert (await browser.sign_on(application)).name_id == MEMBER
    assert {service for service, _ in await service_uses(pool, member)} == {shop.id, blog.id}
    await leave(acme, directory, member.id)
    assert await service_uses(pool, member) == []
    assert await run_sql(pool, "select user_id from end_users where org_id = %s", acme.org) == [(user.id,)]
    await check_counts(pool)
    new = SamlBrowser(app, clock)
    await new.sign_in(MEMBER)
    for client in (browser, new):
        if not await client.is_in():  # the directory had blocked them
            await client.sign_in(MEMBER)
        for application in (shop, blog):
            response = await try_to_sign_on(client, application)
            assert (response.status, "SAMLResponse" in response.text) == (403, False)
    assert await service_uses(pool, member) == [], "a refused user is not enrolled"


@every_removal
@pytest.mark.parametrize("first", ["saml", "otherwise"])
async def test_an_end_user_by_registration_stays_one(
    browser: SamlBrowser,
    shop: SamlApplication,
    directory: Directory,
    acme: Tenant,
    member: Account,
    ports: Ports,
    pool: Pool,
    leave: Removal,
    first: str,
) -> None:
    await run_sql(pool, "update services set saml_self_enrolled = true where id = %s", shop.id)
    await browser.sign_in(MEMBER)
    if first == "saml":
        await browser.sign_on(shop)
        assert await service_uses(pool, member) == [(shop.id, True)]
    await sign_in_to(ports, pool, shop.id, member)
    await browser.sign_on(shop)
    assert await service_uses(pool, member) == [(shop.id, False)]
    await leave(acme, directory, member.id)
    assert await service_uses(pool, member) == [(shop.id, False)]
    await check_counts(pool)
    if not await browser.is_in():
        await browser.sign_in(MEMBER)
    status = (await try_to_sign_on(browser, shop)).status
    assert status == (403 if leave in (delete_by_directory, deactivate_by_directory) else 200), "the directory blocks the user"


async def test_a_sign_on_during_the_removal_leaves_no_user(
    app: QuartTrio, shop: SamlApplication, directory: Directory, acme: Tenant, member: Account, pool: Pool, clock: FakeClock
) -> None:
    browsers = [SamlBrowser(app, clock) for _ in range(6)]
    for browser in browsers:
        await browser.sign_in(MEMBER)

    async def act(number: int) -> None:
        if number == 3:
            await remove_by_admin(acme, directory, member.id)
        else:
            assert (await try_to_sign_on(browsers[number], shop)).status in (200, 403)

    await run_concurrently(6, act)
    assert await service_uses(pool, member) == []
    await check_counts(pool)


async def test_a_sign_on_at_one_service_does_not_enroll_at_another(
    browser: SamlBrowser,
    shop: SamlApplication,
    applications: SamlApplications,
    directory: Directory,
    acme: Tenant,
    member: Account,
    pool: Pool,
) -> None:
    blog = await applications.add("blog")
    await run_sql(pool, "update services set saml_self_enrolled = true where id = %s", blog.id)
    await browser.sign_in(MEMBER)
    await browser.sign_on(shop)
    await add_service_user(acme.ports, blog.id, member.id)
    await remove_by_admin(acme, directory, member.id)
    assert await service_uses(pool, member) == [(blog.id, False)]
    assert (member.id,) in await run_sql(pool, "select user_id from end_users where org_id = %s", acme.org)
    await check_counts(pool)
    assert (await try_to_sign_on(browser, shop)).status == 403
    assert (await browser.sign_on(blog)).name_id == MEMBER


async def test_leaving_one_organization_does_not_affect_another(
    browser: SamlBrowser,
    shop: SamlApplication,
    applications: SamlApplications,
    directory: Directory,
    acme: Tenant,
    other_tenant: Tenant,
    member: Account,
) -> None:
    desk = await applications.add("desk", other_tenant)
    await add_member(other_tenant.pool, other_tenant.org, member.id, confirmed=True)
    await browser.sign_in(MEMBER)
    for application in (shop, desk):
        await browser.sign_on(application)
    await remove_by_admin(acme, directory, member.id)
    assert await service_uses(acme.pool, member) == [(desk.id, True)]
    await check_counts(acme.pool)
    assert (await try_to_sign_on(browser, shop)).status == 403
    assert (await browser.sign_on(desk)).name_id == MEMBER


async def test_a_member_that_the_directory_activates_becomes_a_user_again(
    browser: SamlBrowser, shop: SamlApplication, directory: Directory, member: Account, pool: Pool
) -> None:
    await browser.sign_in(MEMBER)
    await browser.sign_on(shop)
    await directory.deactivate(member.id)
    assert await service_uses(pool, member) == []
    response = await try_to_sign_on(browser, shop)
    assert "SAMLResponse" not in response.text
    await directory.activate(member.id)
    browser.cookies.clear()
    await browser.sign_in_at(f"{shop.management}/login", MEMBER)  # confirms the new membership
    assert (await browser.sign_on(shop)).name_id == MEMBER
    assert await service_uses(pool, member) == [(shop.id, True)]


async def test_a_returning_member_becomes_a_user_again(
    browser: SamlBrowser, shop: SamlApplication, directory: Directory, acme: Tenant, member: Account, pool: Pool
) -> None:
    await browser.sign_in(MEMBER)
    await browser.sign_on(shop)
    await remove_by_admin(acme, directory, member.id)
    await add_member(pool, acme.org, member.id, confirmed=True)
    assert (await browser.sign_on(shop)).name_id == MEMBER
    assert await service_uses(pool, member) == [(shop.id, True)]
    await check_counts(pool)


async def test_a_subscription_survives_and_gives_access_while_it_is_live(
    browser: SamlBrowser,
    shop: SamlApplication,
    directory: Directory,
    acme: Tenant,
    member: Account,
    ports: Ports,
    pool: Pool,
    clock: FakeClock,
) -> None:
    """The service created it, and its list of users shows the paid subscriptions."""
    await browser.sign_in(MEMBER)
    await browser.sign_on(shop)
    plan = await add_plan(pool, shop.id)
    await add_subscription(ports, pool, shop.id, member.id, plan, ends=clock.now() + timedelta(days=30))
    await remove_by_admin(acme, directory, member.id)
    assert await service_uses(pool, member) == [(shop.id, True)]
    await check_counts(pool)
    assert (await browser.sign_on(shop)).name_id == MEMBER
    await run_sql(pool, "update subscriptions set status = 'expired'")
    assert (await try_to_sign_on(browser, shop)).status == 403
    key = await add_api_key(pool, shop.id)
    answer = await acme.api.get("/api/service/users", headers={"X-API-Key": key})
    assert MEMBER in answer.text, (answer.status, answer.text)
