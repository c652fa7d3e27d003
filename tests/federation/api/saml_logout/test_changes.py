"""Changes during a logout: the remaining applications are notified, and the final status is true.

Covers security X-9 and SAML core section 3.7.3.2.
"""

from datetime import timedelta

import pytest
import trio
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts import accounts
from core.accounts.model.accounts import Account
from core.federation.saml.model.sign_on import LOGOUT_TTL
from core.kernel.causes import SYSTEM
from core.kernel.values import new_id
from core.maintenance import housekeeping
from ports import Ports
from tests.applications.api.services import Workshop
from tests.fakes.outside import FakeClock
from tests.support.builders import EMAIL, Answer, Api, run_concurrently, run_during, run_sql
from tests.support.platform import Platform
from tests.support.rows import in_another_task
from tests.support.saml import SamlApplication, encode_base64, logout_request, logout_response, redirect_url
from tests.support.saml.browser import (
    LogoutWalk,
    RedirectedMessage,
    SamlApplications,
    SamlBrowser,
    redirect_target,
    sign_out,
    statuses,
)
from tests.support.tenants import Tenant, Tenants


@pytest.fixture
async def other(tenants: Tenants) -> Tenant:
    """An application in another organization."""
    return await tenants.add("other")


@pytest.fixture
async def blog(applications: SamlApplications, other: Tenant) -> SamlApplication:
    return await applications.add("blog", other)


@pytest.fixture
async def wiki(applications: SamlApplications, other_tenant: Tenant) -> SamlApplication:
    return await applications.add("wiki", other_tenant)


async def delete(api: Api, tenants: list[Tenant], application: SamlApplication) -> None:
    [tenant] = [tenant for tenant in tenants if tenant.org == application.org]
    answer = await Workshop(tenant).delete("owner", application.slug)
    assert answer.status == 204, answer.text


async def test_a_service_deleted_before_its_request_makes_the_logout_partial(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, wiki: SamlApplication, other: Tenant, other_tenant: Tenant, api: Api
) -> None:
    walk = LogoutWalk(browser, shop, blog, wiki)
    deleted_slugs: list[str] = []

    async def delete_next(current: SamlApplication) -> None:
        deleted_application = blog if current is wiki else wiki
        deleted_slugs.append(deleted_application.slug)
        await delete(api, [other, other_tenant], deleted_application)

    last = await walk.finish(await walk.start(shop), delete_next)
    assert sorted(walk.notified + deleted_slugs) == ["blog", "wiki"], "one was notified, the other one is deleted"
    assert statuses(last, shop) == ["Success", "PartialLogout"]


async def test_a_service_deleted_before_its_response_makes_the_logout_partial(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, wiki: SamlApplication, other: Tenant, other_tenant: Tenant, api: Api
) -> None:
    walk = LogoutWalk(browser, shop, blog, wiki)
    last = await walk.finish(await walk.start(shop), lambda at: delete(api, [other, other_tenant], at))
    assert sorted(walk.notified) == ["blog", "wiki"], "the next one is still notified"
    assert statuses(last, shop) == ["Success", "PartialLogout"]


async def test_a_service_deleted_after_its_response_keeps_the_logout_complete(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, wiki: SamlApplication, other: Tenant, other_tenant: Tenant, api: Api
) -> None:
    walk = LogoutWalk(browser, shop, blog, wiki)
    first, id_ = walk.pending_request(await walk.start(shop)) or pytest.fail("no application was notified")
    step = await walk.confirm(first, id_)
    await delete(api, [other, other_tenant], first)
    assert statuses(await walk.finish(step), shop) == ["Success"]


async def test_our_page_reports_a_partial_logout_after_an_organization_is_deleted(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, other: Tenant, api: Api
) -> None:
    walk = LogoutWalk(browser, blog, shop)
    step = await walk.start(None)
    assert (await api.delete(other.path, token=other.token("owner"))).status == 204
    last = await walk.finish(step)
    assert "shop" in walk.notified
    assert last.status == 200
    assert "Some applications didn't confirm" in last.text


@pytest.mark.parametrize("with_organization", [False, True])
async def test_a_deleted_initiator_gets_no_response_but_the_others_are_notified(
    browser: SamlBrowser,
    shop: SamlApplication,
    blog: SamlApplication,
    wiki: SamlApplication,
    acme: Tenant,
    api: Api,
    with_organization: bool,
) -> None:
    """The service is deleted alone, or with its organization."""
    walk = LogoutWalk(browser, shop, blog, wiki)

    async def delete_initiator(_: object) -> None:
        if with_organization:
            assert (await api.delete(acme.path, token=acme.token("owner"))).status == 204
        else:
            await delete(api, [acme], shop)

    last = await walk.finish(await walk.start(shop), delete_initiator)
    assert sorted(walk.notified) == ["blog", "wiki"]
    assert last.status == 200
    assert "You're also signed out of the applications that use single logout" in last.text
    assert "gatehouse-saml-logout" not in browser.cookies
    assert not await browser.is_in()


async def test_a_new_service_with_the_same_slug_is_not_the_initiator(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, acme: Tenant, applications: SamlApplications, api: Api
) -> None:
    walk = LogoutWalk(browser, shop, blog)

    async def replace_initiator(_: object) -> None:
        await delete(api, [acme], shop)
        await applications.add("shop")

    last = await walk.finish(await walk.start(shop), replace_initiator)
    assert last.status == 200
    assert "You're also signed out of the applications" in last.text


# Changes to the initiator, with the status that the user sees.
CLOSINGS = {
    "deleted": ("delete from services where slug = 'shop'", 404),
    "disabled": ("update saml_configurations set enabled = false", 404),
    "suspended": ("update organizations set status = 'suspended' where slug = 'acme'", 403),
    "without an SLO URL": ("update saml_configurations set slo_url = null", 400),
}


@pytest.mark.parametrize("case", CLOSINGS)
async def test_an_initiator_disabled_before_the_repeated_form_gets_no_response(
    browser: SamlBrowser, shop: SamlApplication, pool: Pool, case: str
) -> None:
    """The browser repeats the form with its cookies. The request names another session, so the user stays signed in."""
    statement, status = CLOSINGS[case]
    await browser.sign_in()
    await browser.sign_on(shop)
    message = encode_base64(logout_request(shop, browser.now(), EMAIL, "_guessed"))
    path = redirect_target(await browser.post_cross_site(f"{shop.path}/slo", SAMLRequest=message), 303)
    await run_sql(pool, statement)
    page = await browser.open(path)
    assert page.status == status
    assert "You're signed out" not in page.text
    assert await browser.is_in()


# Changes to the user


@pytest.mark.parametrize("started_by_shop", [True, False])
async def test_anonymization_removes_the_names_and_makes_the_logout_partial(
    browser: SamlBrowser,
    shop: SamlApplication,
    blog: SamlApplication,
    wiki: SamlApplication,
    user: Account,
    pool: Pool,
    platform: Platform,
    started_by_shop: bool,
) -> None:
    """The remaining applications cannot be notified: a request needs the deleted name."""
    walk = LogoutWalk(browser, shop, blog, wiki)

    async def anonymize(_: object) -> None:
        answer = await platform.api.delete(f"/api/privacy/forget/{user.id}", token=platform.token)
        assert answer.status == 200, answer.text
        query = "select distinct name_id, session_index, former_names from saml_logout_requests"
        assert await run_sql(pool, query) == [("", "", [])]

    last = await walk.finish(await walk.start(shop if started_by_shop else None), anonymize)
    assert len(walk.notified) == 1
    if started_by_shop:
        assert statuses(last, shop) == ["Success", "PartialLogout"], "with its RelayState, which contains no personal data"
    else:
        assert "Some applications didn't confirm" in last.text


async def test_anonymization_at_the_last_service_is_a_complete_logout(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account, platform: Platform
) -> None:
    walk = LogoutWalk(browser, shop, blog)
    last = await walk.finish(await walk.start(shop), lambda _: platform.api.delete(f"/api/privacy/forget/{user.id}", token=platform.token))
    assert RedirectedMessage(redirect_target(last)).statuses == ["Success"]


async def test_anonymization_in_parallel_with_the_logout_leaves_no_names(
    browser: SamlBrowser, shop: SamlApplication, user: Account, pool: Pool
) -> None:
    await browser.sign_in()
    await browser.sign_on(shop)
    changes = [
        ("select 1 from users where id = %s for update", (user.id,)),
        ("delete from sessions where user_id = %s", (user.id,)),
        ("update users set email = 'gone@deleted.local', anonymized_at = now() where id = %s", (user.id,)),
    ]
    await run_during(pool, changes, lambda: sign_out(browser))
    assert await run_sql(pool, "select 1 from saml_logout_requests") == []


async def test_a_deleted_user_is_signed_out_everywhere(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, wiki: SamlApplication, user: Account, ports: Ports
) -> None:
    walk = LogoutWalk(browser, shop, blog, wiki)

    async def delete_user(_: object) -> None:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            account = await tx.accounts.lock(user.id)
            assert account is not None
            await accounts.delete_account(tx, account.id, ports.clock.now())

    last = await walk.finish(await walk.start(shop), delete_user)
    assert sorted(walk.notified) == ["blog", "wiki"]
    assert statuses(last, shop) == ["Success"]


async def test_applications_of_a_suspended_organization_are_skipped(
    browser: SamlBrowser,
    shop: SamlApplication,
    blog: SamlApplication,
    wiki: SamlApplication,
    other: Tenant,
    other_tenant: Tenant,
    pool: Pool,
) -> None:
    walk = LogoutWalk(browser, shop, blog, wiki)

    async def suspend_next(current: SamlApplication) -> None:
        tenant = other if current is wiki else other_tenant
        await run_sql(pool, "update organizations set status = 'suspended' where id = %s", tenant.org)

    last = await walk.finish(await walk.start(shop), suspend_next)
    assert len(walk.notified) == 1
    assert statuses(last, shop) == ["Success", "PartialLogout"]


# Races


async def test_a_step_does_not_wait_for_a_deletion_and_reports_a_partial_logout(
    browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, wiki: SamlApplication, pool: Pool
) -> None:
    """While a large service is deleted, its application is still notified."""
    walk = LogoutWalk(browser, shop, blog, wiki)
    first, id_ = walk.pending_request(await walk.start(shop)) or pytest.fail("no application was notified")
    deleted_application = blog if first is wiki else wiki
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("delete from services where id = any(%s)", ([deleted_application.id, shop.id],))
        step = await in_another_task(lambda: walk.confirm(first, id_))
    assert walk.pending_request(step) is not None, "the service exists until the deletion commits"
    page = await browser.open(f"{deleted_application.path}/slo")
    assert page.status == 200, "the application and the initiator are deleted now"
    assert "Some applications didn't confirm" in page.text


@pytest.mark.slow
async def test_deletions_in_parallel_lose_no_request_and_report_no_false_status(
    app: QuartTrio,
    clock: FakeClock,
    applications: SamlApplications,
    shop: SamlApplication,
    blog: SamlApplication,
    wiki: SamlApplication,
    other: Tenant,
    api: Api,
    user: Account,
) -> None:
    """Eight browsers are between services when a service is deleted."""
    walks = [LogoutWalk(SamlBrowser(app, clock), shop, blog, wiki) for _ in range(8)]
    last_steps: dict[int, Answer] = {}
    confirmed: dict[int, set[str]] = {number: set() for number in range(8)}

    async def finish(number: int) -> None:
        walk, step = walks[number], first_steps[number]
        while (request := walk.pending_request(step)) is not None:
            application, id_ = request
            walk.notified.append(application.slug)
            response = logout_response(application, walk.browser.now(), id_)
            step = await walk.browser.open(redirect_url(f"{application.path}/slo", response, "SAMLResponse"))
            if step.status == 302 and redirect_target(step).startswith("/"):
                # The response counts if the service still exists. Otherwise the next step follows
                # directly.
                confirmed[number].add(application.slug)
                step = await walk.browser.open(redirect_target(step))
        last_steps[number] = step

    first_steps = [await walk.start(shop) for walk in walks]
    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(finish, number)
        nursery.start_soon(delete, api, [other], blog)
    for number, walk in enumerate(walks):
        assert "wiki" in walk.notified
        all_confirmed = confirmed[number] == {"blog", "wiki"}
        assert statuses(last_steps[number], shop) == (["Success"] if all_confirmed else ["Success", "PartialLogout"])


@pytest.mark.slow
async def test_parallel_returns_get_one_response(browser: SamlBrowser, shop: SamlApplication, blog: SamlApplication, user: Account) -> None:
    """A response and the step after it change the same rows."""
    walk = LogoutWalk(browser, shop, blog)
    application, id_ = walk.pending_request(await walk.start(shop)) or pytest.fail("no application was notified")
    failure = redirect_url(f"{blog.path}/slo", logout_response(application, browser.now(), id_, "Responder"), "SAMLResponse")
    answers = await run_concurrently(16, lambda number: browser.open(failure if number % 2 else f"{blog.path}/slo"))
    assert {answer.status for answer in answers} <= {302, 400}
    final_answers = [answer for answer in answers if answer.status == 302 and "SAMLResponse" in redirect_target(answer)]
    assert [statuses(answer, shop) for answer in final_answers] == [["Success", "PartialLogout"]]


async def test_an_expired_logout_is_deleted(
    browser: SamlBrowser,
    shop: SamlApplication,
    blog: SamlApplication,
    other: Tenant,
    acme: Tenant,
    api: Api,
    clock: FakeClock,
    ports: Ports,
    pool: Pool,
) -> None:
    walk = LogoutWalk(browser, shop, blog)
    await walk.start(shop)
    await delete(api, [other], blog)
    await delete(api, [acme], shop)
    clock.advance(LOGOUT_TTL + timedelta(days=2))
    assert "saml_logouts" in (await housekeeping.sweep(ports, new_id()) or {})
    assert await run_sql(pool, "select (select count(*) from saml_logouts) + (select count(*) from saml_logout_requests)") == [(0,)]
