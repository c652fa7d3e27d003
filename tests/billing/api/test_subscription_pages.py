"""The pages for the user's subscriptions, and for canceling them."""

from datetime import timedelta
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.accounts.api.account_pages.paths import next_page_text, page_text
from tests.support.browser import ACCOUNT, HOME, FakeBrowser, form_token, leads_to
from tests.support.builders import add_account, run_concurrently, run_sql
from tests.support.services import add_plan, add_service, add_service_user, add_subscription
from tests.support.tenants import Tenant

SUBSCRIPTIONS = f"{ACCOUNT}/subscriptions"


@pytest.fixture
async def user(ports: Ports) -> Account:
    return await add_account(ports)


@pytest.fixture
async def browser(app: QuartTrio, user: Account) -> FakeBrowser:
    browser = FakeBrowser(app)
    assert leads_to(await browser.sign_in()) == HOME
    return browser


async def subscribe(acme: Tenant, user: Account, name: str, status: str = "active", *, days: int = 30, provider: str | None = None) -> UUID:
    service = await add_service(acme.pool, acme.org, name)
    await add_service_user(acme.ports, service, user.id)
    ends = acme.ports.clock.now() + timedelta(days=days)
    return await add_subscription(
        acme.ports, acme.pool, service, user.id, await add_plan(acme.pool, service), status, ends=ends, provider=provider
    )


async def statuses(pool: Pool) -> dict[UUID, str]:
    return dict(await run_sql(pool, "select id, status from subscriptions"))


async def test_the_pages_list_live_subscriptions_first(browser: FakeBrowser, acme: Tenant, user: Account, ports: Ports) -> None:
    assert "You don't have any subscriptions." in page_text(await browser.open(ACCOUNT))
    assert "You don't have any subscriptions." in page_text(await browser.open(SUBSCRIPTIONS))
    ended = await subscribe(acme, user, "chess", "cancelled", provider="sub_0")
    await subscribe(acme, user, "draughts", days=-1)
    live = await subscribe(acme, user, "shop", "past_due")
    await subscribe(acme, await add_account(ports, "eve@example.com"), "zoo")
    text = page_text(await browser.open(SUBSCRIPTIONS))
    positions = [text.index(part) for part in ("Gold for Shop payment due Acme", "Gold for Chess canceled", "Gold for Draughts expired")]
    assert positions == sorted(positions)
    assert "Zoo" not in text
    assert "Gold for Shop" in page_text(await browser.open(ACCOUNT))
    assert "Gold for Chess" not in page_text(await browser.open(ACCOUNT))
    assert (await browser.open(f"{SUBSCRIPTIONS}/{live}")).status == 200
    assert (await browser.open(f"{SUBSCRIPTIONS}/{ended}")).status == 404


@pytest.mark.parametrize("provider", [None, "sub_1"])
async def test_a_user_cancels_a_subscription(browser: FakeBrowser, acme: Tenant, user: Account, pool: Pool, provider: str | None) -> None:
    """The subscription is deleted, or canceled if a payment provider manages it, also at the provider, as with an API key."""
    subscription = await subscribe(acme, user, "shop", provider=provider)
    page = await browser.open(f"{SUBSCRIPTIONS}/{subscription}")
    assert ("You won't be charged again." in page_text(page)) == (provider is not None)
    answer = await browser.submit(f"{SUBSCRIPTIONS}/{subscription}/cancel", f"{SUBSCRIPTIONS}/{subscription}")
    assert "Subscription canceled." in await next_page_text(browser, answer)
    assert await statuses(pool) == ({} if provider is None else {subscription: "cancelled"})
    requested = await run_sql(pool, "select provider_subscription_id from billing_cancellations")
    assert requested == ([] if provider is None else [(provider,)]), "the reconciler cancels it at the provider"
    [entry] = [entry for entry in await acme.log() if entry["action"] == "subscription.canceled"]
    assert (entry["actor_id"], entry["target_id"]) == (user.id, str(subscription))
    assert [(count,) for (count,) in await run_sql(pool, "select subscription_count from services")] == [(0 if provider is None else 1,)]


async def test_other_and_ended_subscriptions_cannot_be_canceled(
    browser: FakeBrowser, acme: Tenant, user: Account, ports: Ports, pool: Pool
) -> None:
    foreign = await subscribe(acme, await add_account(ports, "eve@example.com"), "zoo")
    ended = await subscribe(acme, user, "shop", "cancelled", provider="sub_1")
    expired = await subscribe(acme, user, "chess", days=-1)
    before = await statuses(pool)
    for subscription in (foreign, ended, expired, acme.org, "x"):
        assert (await browser.submit(f"{SUBSCRIPTIONS}/{subscription}/cancel", ACCOUNT)).status == 404
    assert await statuses(pool) == before
    assert (await browser.send(f"{SUBSCRIPTIONS}/{foreign}/cancel")).status == 403, "the form needs its token"


async def test_one_of_twenty_concurrent_cancellations_counts(browser: FakeBrowser, acme: Tenant, user: Account, pool: Pool) -> None:
    subscription = await subscribe(acme, user, "shop", provider="sub_1")
    token = form_token(await browser.open(ACCOUNT))
    answers = await run_concurrently(20, lambda _: browser.send(f"{SUBSCRIPTIONS}/{subscription}/cancel", form_token=token))
    assert sorted(answer.status for answer in answers) == [303] + [404] * 19
    assert [entry["action"] for entry in await acme.log()].count("subscription.canceled") == 1
    assert await statuses(pool) == {subscription: "cancelled"}
