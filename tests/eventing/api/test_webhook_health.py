"""Webhook health, a test's result, and "Resend all failed", over HTTP and on the pages."""

from datetime import timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.eventing import deliveries
from core.eventing.model.webhooks import DeliveryFailure, DeliveryOutcome, DispatchCapacity, failed_outcome
from core.kernel.values import rfc3339
from entrypoints.http.pages.eventing import deliveries as delivery_pages
from tests.accounts.api.account_pages.paths import page_text
from tests.eventing.api.webhooks import call, create_webhook, list_deliveries, patch, record_events
from tests.fakes.outside import FakeClock
from tests.federation.api.relying import RelyingParty, add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser, form_token, leads_to
from tests.support.builders import run_concurrently, run_sql
from tests.support.tenants import Tenant

PAGES = "/app/organizations/acme/webhooks"


@pytest.fixture
async def relying_party(acme: Tenant, browser: FakeBrowser) -> RelyingParty:
    return await add_relying_party(acme, browser)


ATTEMPT = """
    update webhook_deliveries set status = %s, delivered = %s, attempt_count = 1, response_status_code = %s, delivery_error = %s,
        updated_at = %s
    where id = (select id from webhook_deliveries where attempt_count = 0 order by created_at, id limit 1)"""


async def attempt(acme: Tenant, clock: FakeClock, *outcomes: str) -> None:
    """Record an event and its delivery's outcome: `ok`, `later` for a failed attempt with a next attempt to come, or `failed`."""
    for outcome in outcomes:
        clock.advance(timedelta(seconds=1))
        await record_events(acme, "user.invited")
        status = "waiting" if outcome == "later" else "done"
        code, reason = (204, None) if outcome == "ok" else (500, DeliveryFailure.NOT_ACCEPTED.value)
        await run_sql(acme.pool, ATTEMPT, status, outcome == "ok", code, reason, clock.now())


async def health(acme: Tenant, webhook: dict[str, Any]) -> Any:
    [listed] = (await call(acme, "GET")).json["webhooks"]
    single = (await call(acme, "GET", f"/{webhook['id']}")).json
    assert listed == single
    return single["health"]


async def resend(acme: Tenant, webhook: dict[str, Any], body: Any = None) -> Any:
    answer = await call(acme, "POST", f"/{webhook['id']}/deliveries/resend-failed", body or {})
    assert answer.status == 200, answer.text
    return answer.json


async def test_the_health_of_a_webhook_follows_its_newest_attempts(acme: Tenant, clock: FakeClock) -> None:
    webhook = await create_webhook(acme)
    assert await health(acme, webhook) == {"state": "unused", "attempted": 0, "delivered": 0, "success_rate": None, "last_failure": None}
    await record_events(acme, "user.invited")
    assert (await health(acme, webhook))["state"] == "unused", "a delivery that waits says nothing"
    await run_sql(acme.pool, "delete from webhook_deliveries")
    for outcome, state in (("ok", "healthy"), ("later", "failing"), ("failed", "failing"), ("ok", "healthy")):
        await attempt(acme, clock, outcome)
        assert (await health(acme, webhook))["state"] == state
    assert await health(acme, webhook) == {
        "state": "healthy",
        "attempted": 4,
        "delivered": 2,
        "success_rate": 0.5,
        "last_failure": {"at": rfc3339(clock.now() - timedelta(seconds=1)), "status": 500, "error": "the response was not a success"},
    }
    await attempt(acme, clock, *["failed"] * 100)
    assert await health(acme, webhook) | {"last_failure": None} == {
        "state": "broken",
        "attempted": 100,
        "delivered": 0,
        "success_rate": 0.0,
        "last_failure": None,
    }
    await patch(acme, webhook, {"is_active": False})
    assert (await health(acme, webhook))["state"] == "off"


async def test_the_list_shows_the_rate_the_last_failure_and_the_state(acme: Tenant, relying_party: RelyingParty, clock: FakeClock) -> None:
    webhook = await create_webhook(acme)
    browser = relying_party.browser
    await sign_in_browser(relying_party, acme.people["owner"])
    assert "nothing sent yet" in page_text(await browser.open(PAGES))
    await attempt(acme, clock, "ok", "ok", "later")
    page = await browser.open(PAGES)
    assert "66 % of the last 3" in page_text(page)
    assert "status 500" in page_text(page)
    assert '<span class="tag tag-wait">Failing</span>' in page.text
    listed = page_text(await browser.open(f"{PAGES}/{webhook['id']}/deliveries"))
    assert listed.count(" 500 the response was not a success") == 1
    assert listed.count("Delivered 204") == 2
    await run_sql(acme.pool, "update webhook_deliveries set status = 'done', delivered = false")
    assert '<span class="tag tag-bad">Broken</span>' in (await browser.open(PAGES)).text
    await run_sql(acme.pool, "update webhooks set is_active = false")
    assert '<span class="tag">Off</span>' in (await browser.open(PAGES)).text


async def test_failed_deliveries_are_sent_again_once(acme: Tenant, other_tenant: Tenant, pool: Pool, clock: FakeClock) -> None:
    webhook, _ = await create_webhook(acme), await create_webhook(other_tenant)
    await attempt(other_tenant, clock, "failed")
    await attempt(acme, clock, "failed", "ok", "later", "failed")
    since = rfc3339(clock.now())
    clock.advance(timedelta(seconds=1))
    await call(acme, "POST", f"/{webhook['id']}/test")
    await run_sql(pool, "update webhook_deliveries set status = 'done', attempt_count = 5 where event_type = 'webhook.ping'")
    clock.advance(timedelta(minutes=1))
    assert await resend(acme, webhook, {"since": since}) == {"queued": 1, "remaining": 0}
    assert await resend(acme, webhook) == {"queued": 1, "remaining": 0}
    assert await resend(acme, webhook) == {"queued": 0, "remaining": 0}
    listed = (await list_deliveries(acme, webhook))["deliveries"]
    copies = [each for each in listed if each["created_at"] == rfc3339(clock.now())]
    assert [(each["event_type"], each["attempt_count"], each["delivered"]) for each in copies] == [("user.invited", 0, False)] * 2
    failed = [listed[-1], listed[-4]]
    assert sorted(str(each["payload"]) for each in copies) == sorted(str(each["payload"]) for each in failed)
    assert await run_sql(pool, "select count(*) from webhook_deliveries where org_id = %s", other_tenant.org) == [(1,)]


async def test_a_copy_that_fails_can_be_sent_again(acme: Tenant, pool: Pool, clock: FakeClock) -> None:
    webhook = await create_webhook(acme)
    await attempt(acme, clock, "failed")
    assert (await resend(acme, webhook))["queued"] == 1
    await run_sql(pool, "update webhook_deliveries set status = 'done', attempt_count = 5 where status = 'due'")
    assert (await resend(acme, webhook))["queued"] == 1


async def test_a_replayed_delivery_is_not_resent(acme: Tenant, clock: FakeClock) -> None:
    webhook = await create_webhook(acme)
    await attempt(acme, clock, "failed")
    [failed] = (await list_deliveries(acme, webhook))["deliveries"]
    assert (await call(acme, "POST", f"/{webhook['id']}/deliveries/{failed['id']}/replay")).status == 200
    assert await resend(acme, webhook) == {"queued": 0, "remaining": 0}


async def test_concurrent_requests_send_each_delivery_once(acme: Tenant, pool: Pool, clock: FakeClock) -> None:
    webhook = await create_webhook(acme)
    await attempt(acme, clock, *["failed"] * 30)
    answers = await run_concurrently(10, lambda _: resend(acme, webhook))
    assert sorted(answer["queued"] for answer in answers) == [0] * 9 + [30]
    assert await run_sql(pool, "select count(*) from webhook_deliveries") == [(60,)]


async def test_one_request_sends_at_most_1000_again(acme: Tenant, pool: Pool, clock: FakeClock) -> None:
    webhook = await create_webhook(acme)
    await attempt(acme, clock, "failed")
    copy = """
        insert into webhook_deliveries (id, org_id, webhook_id, event_type, payload, status, due_at, attempt_count, created_at, updated_at)
        select gen_random_uuid(), org_id, webhook_id, event_type, payload, status, due_at, 5, created_at, updated_at
        from webhook_deliveries, generate_series(1, 1004)"""
    await run_sql(pool, copy)
    assert await resend(acme, webhook) == {"queued": 1000, "remaining": 5}
    assert await resend(acme, webhook) == {"queued": 5, "remaining": 0}


async def test_nothing_is_resent_to_a_webhook_that_is_off_or_unknown(acme: Tenant, other_tenant: Tenant, clock: FakeClock) -> None:
    webhook, foreign = await create_webhook(acme), await create_webhook(other_tenant)
    await attempt(acme, clock, "failed")
    await patch(acme, webhook, {"is_active": False})
    answer = await call(acme, "POST", f"/{webhook['id']}/deliveries/resend-failed", {})
    assert (answer.status, "Turn it on first" in answer.json["error"]) == (400, True)
    assert (await call(acme, "POST", f"/{foreign['id']}/deliveries/resend-failed", {"since": "x"})).status == 404
    assert (await call(acme, "POST", f"/{webhook['id']}/deliveries/resend-failed", {"since": "yesterday"})).status == 400


async def test_a_button_sends_all_failed_deliveries_again(acme: Tenant, relying_party: RelyingParty, clock: FakeClock) -> None:
    webhook = await create_webhook(acme)
    path = f"{PAGES}/{webhook['id']}/deliveries"
    browser = relying_party.browser
    await sign_in_browser(relying_party, acme.people["owner"])
    await attempt(acme, clock, "ok", "later")
    assert "Resend all failed" not in (await browser.open(path)).text
    await attempt(acme, clock, "failed")
    clock.advance(timedelta(hours=2))
    await attempt(acme, clock, "failed", "failed")
    page = await browser.open(path)
    assert "3 deliveries failed in all attempts." in page_text(page)
    for period, count in (("hour", 2), ("all", 1)):
        answer = await browser.send(path, form_token=form_token(page), period=period)
        assert leads_to(answer) == path
        page = await browser.open(path)
        assert f"Deliveries queued again: {count}." in page_text(page)
    assert "Resend all failed" not in page.text


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_pages, "LONGEST_WAIT", 0.01)


@pytest.mark.usefixtures("short_wait")
@pytest.mark.parametrize(
    ("answered", "text"),
    [
        ((200, "<b>fine</b>"), "The receiver answered with status 200 after 83 ms. The answer begins with: <b>fine</b>"),
        ((503, "down"), "The receiver answered with status 503 after 83 ms. The answer begins with: down"),
        (None, "No answer after 83 ms: the secret of the webhook could not be read: rotate it."),
    ],
)
async def test_the_page_of_a_test_shows_its_outcome(
    acme: Tenant, relying_party: RelyingParty, clock: FakeClock, answered: tuple[int, str] | None, text: str
) -> None:
    webhook = await create_webhook(acme)
    browser = relying_party.browser
    await sign_in_browser(relying_party, acme.people["owner"])
    page = await browser.open(f"{PAGES}/{webhook['id']}/deliveries")
    path = leads_to(await browser.send(f"{PAGES}/{webhook['id']}/test", form_token=form_token(page)))
    waiting = await browser.open(path)
    assert "No answer yet. Check again" in page_text(waiting)
    ports, policy = acme.ports, acme.ports.policy
    [claimed] = (await deliveries.record_and_claim(ports, [], DispatchCapacity.remaining(100, []))).claimed
    if answered is None:
        outcome = failed_outcome(policy, claimed, DeliveryFailure.NOT_SIGNED, clock.now(), 0)
    else:
        error = None if answered[0] == 200 else DeliveryFailure.NOT_ACCEPTED.value
        outcome = DeliveryOutcome(delivery=claimed, at=clock.now(), status=answered[0], body=answered[1], error=error)
    outcome = DeliveryOutcome(
        delivery=claimed, at=outcome.at, status=outcome.status, body=outcome.body, error=outcome.error, milliseconds=83
    )
    await deliveries.record_outcomes(ports, [outcome])
    answer = await browser.open(path)
    assert text in page_text(answer)
    assert "<b>fine</b>" not in answer.text
