"""The receiver of the payment provider's events.

The rules are decisions 16, 164, 165, 166, 167, 168, 169, 170, and security H-1, H-2, H-3, H-4, H-5,
N-4, Z-4. The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import stripe
from structlog.testing import capture_logs

from adapters.postgres.engine.pool import Pool
from core.billing import events
from core.billing.subscriptions import sweep
from core.kernel.principals import SYSTEM
from core.kernel.values import rfc3339
from entrypoints.http.app import Edge
from ports import Ports
from tests.billing.api.billing import RECEIVER, Till, open_till
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.fakes.payments import SECRET, event, invoice, sign, subscription
from tests.support.builders import Answer, Api, add_account, deliver, make_edge, run_concurrently, run_sql
from tests.support.refusals import BAD, refused
from tests.support.services import add_plan, add_service, add_subscription
from tests.support.tenants import Tenant

UNSIGNED = (401, "UNAUTHORIZED")
OFF = (500, "BILLING_ERROR")
CREATED, UPDATED, DELETED = (f"customer.subscription.{what}" for what in ("created", "updated", "deleted"))
DAY = 86400
PAGE = "https://invoice.provider.example/i/1?s=ap"
OTHER = "whsec_another"


@pytest.fixture
def edge(request: pytest.FixtureRequest) -> Edge:
    return make_edge(**{"billing_secrets": (SECRET,), **getattr(request, "param", {})})


@pytest.fixture
async def till(acme: Tenant, clock: FakeClock) -> Till:
    return await open_till(acme, clock)


async def stored_rows(till: Till) -> list[tuple[Any, ...]]:
    """Return all rows that events can create."""
    tables = ("billing_events", "billing_facts", "billing_customers", "billing_checkouts", "subscriptions", "audit_log", "events", "mails")
    return [row for table in tables for row in await run_sql(till.tenant.pool, f"select '{table}', t::text from {table} t")]  # noqa: S608


# Signatures


async def test_an_event_signed_by_the_provider_is_accepted(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    header = sign(body, at=till.now)
    assert stripe.WebhookSignature.verify_header(body.decode(), header, SECRET)
    answer = await till.post(body, header)
    assert (answer.status, answer.json) == (200, {"status": "success"})
    assert await till.status() == "active"


async def test_the_signature_can_be_in_the_stripe_signature_header(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    right, wrong = sign(body, at=till.now), f"t={till.now},v1={'0' * 64}"
    assert refused(await till.post(body, "", **{"Stripe-Signature": wrong})) == UNSIGNED
    assert refused(await till.post(body, wrong, **{"Stripe-Signature": right})) == UNSIGNED, "the billing-signature header takes precedence"
    assert (await till.post(body, "", **{"Stripe-Signature": right})).status == 200


async def test_an_unsigned_body_is_refused_before_it_is_parsed(till: Till) -> None:
    before = await stored_rows(till)
    for body in (b"{}", b"", b"not json", b"\xff"):
        assert refused(await till.post(body, "")) == BAD
        answer = await till.post(body, f"t={till.now},v1={'0' * 64}")
        assert refused(answer) == UNSIGNED
        assert answer.headers["WWW-Authenticate"].startswith("Signature ")
    assert await stored_rows(till) == before


MALFORMED_HEADERS = [
    "nonsense",
    "t={t}",
    "v1={v}",
    "t={t},v1=",
    "t={t},v1={v}0",
    "t={t},v1=x{v}",
    "t={t},v0={v}",
    "t={t},t={t},v1={v}",
    "t=-{t},v1={v}",
    "t={t}.0,v1={v}",
    "t=,v1={v}",
    "t= {t},v1={v}",
    "t={t}, v1={v}",
    "t={t};v1={v}",
    "T={t},V1={v}",
    "t={t},v1={v},v1=short",
]


async def test_malformed_signature_headers_are_refused(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    signature = sign(body, at=till.now).partition("v1=")[2]
    answers = {header: refused(await till.post(body, header.format(t=till.now, v=signature))) for header in MALFORMED_HEADERS}
    assert {header: answer for header, answer in answers.items() if answer != UNSIGNED} == {}
    assert await till.rows() == []


async def test_unknown_elements_of_the_header_are_ignored(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    header = sign(body, at=till.now)
    assert (await till.post(body, f"v0={'a' * 64},{header},v2=x,flag,=")).status == 200


async def test_a_signature_is_valid_for_five_minutes_in_both_directions(till: Till) -> None:
    findings = []
    offsets = ((0, 200), (-300, 200), (-301, 401), (300, 200), (301, 401), (-(10**9), 401), (10**10, 401))
    for microsecond, (seconds, status) in itertools.product((0, 999_999), offsets):
        till.clock.advance(till.clock.now().replace(microsecond=microsecond) - till.clock.now())
        body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
        answer = await till.post(body, sign(body, at=till.now + seconds))
        if answer.status != status:
            findings.append((microsecond, seconds, answer.status))
    assert findings == []


async def test_any_change_of_the_body_or_time_invalidates_the_signature(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    header = sign(body, at=till.now)
    for changed in (body + b" ", body[:-1], body.replace(b"active", b"ACTIVE"), b""):
        assert refused(await till.post(changed, header)) == UNSIGNED
    assert refused(await till.post(body, sign(body, OTHER, till.now))) == UNSIGNED
    moved = header.replace(str(till.now), str(till.now + 1))
    assert refused(await till.post(body, moved)) == UNSIGNED


@pytest.mark.parametrize("edge", [{"billing_secrets": (OTHER, SECRET)}], indirect=True)
async def test_any_secret_and_any_signature_can_match(till: Till) -> None:
    for secret in (OTHER, SECRET):
        body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
        right = sign(body, secret, till.now)
        for header in (right, f"t={till.now},v1={'0' * 64},{right.partition(',')[2]}", f"{right},v1={'f' * 64}"):
            assert (await till.post(body, header)).status == 200


@pytest.mark.parametrize("edge", [{"billing_secrets": ()}, {"billing_secrets": ("",)}], indirect=True)
async def test_without_a_secret_no_event_is_accepted(till: Till) -> None:
    before = await stored_rows(till)
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    for header in (sign(body, "", till.now), sign(body, SECRET, till.now), ""):
        with capture_logs() as logs:
            assert refused(await till.post(body, header)) == OFF
        assert [line["error"] for line in logs if line["event"] == "outage"] == ["SSO_BILLING_WEBHOOK_SECRET is not set"]
    assert await stored_rows(till) == before


# Bodies

MALFORMED: list[Any] = [
    {},
    {"id": None},
    {"id": ""},
    {"id": "evt 1"},
    {"id": "evt\u0000"},
    {"id": "e" * 256},
    {"type": 5},
    {"created": "1"},
    {"created": -1},
    {"created": 10**18},
    {"created": True},
    {"data": None},
    {"data": []},
    {"data": {}},
    {"data": {"object": "sub_1"}},
    {"data": {"object": {"id": 5, "status": "active"}}},
    {"data": {"object": {"id": "../customers", "status": "active"}}},
    {"data": {"object": {"id": "sub_1"}}},
]


async def test_signed_but_malformed_events_are_refused(till: Till) -> None:
    good = event(CREATED, till.subscription(), till.now)
    before = await stored_rows(till)
    bodies = [b"", b"{", b"[]", b"null", b"\xff", b'{"a": 1, "a": 2}', b"[" * 1000, b'{"id": "\\ud800"}']
    bodies += [json.dumps({**good, **changes} if changes else {}).encode() for changes in MALFORMED]
    for body in bodies:
        assert refused(await till.post(body)) == BAD, body
    assert await stored_rows(till) == before


async def test_other_content_types_are_refused(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    assert (await till.post(body, **{"Content-Type": "text/plain"})).status == 415
    assert (await till.post(body, **{"Content-Type": "application/json; charset=utf-8"})).status == 200


async def test_unknown_event_types_are_acknowledged(till: Till) -> None:
    before = await stored_rows(till)
    for type_ in ("invoice.voided", "customer.subscription.paused", "anything at all", ""):
        await till.deliver(type_, {"id": "x"})
    assert await stored_rows(till) == before


async def test_events_of_the_other_mode_are_acknowledged_and_ignored(till: Till) -> None:
    findings = []
    for mode, livemode, counts in (
        (None, True, True),
        (None, False, True),
        (None, None, True),
        (True, True, True),
        (True, False, False),
        (True, None, False),
        (False, True, False),
        (False, False, True),
    ):
        await till.reset()
        object.__setattr__(till.tenant.ports.policy, "billing_livemode", mode)
        await till.deliver(CREATED, till.subscription(), livemode=livemode)
        is_stored = await run_sql(till.tenant.pool, "select 1 from billing_events") != []
        if (await till.status() == "active", is_stored) != (counts, counts):
            findings.append((mode, livemode))
    assert findings == []


# Subscriptions


async def test_a_subscription_of_the_provider_creates_ours(till: Till, pool: Pool) -> None:
    await till.deliver(CREATED, till.subscription())
    assert await till.rows() == [("active", "Gold", "2026-04-13T15:09:26Z")]
    rows = await run_sql(pool, "select org_id, service_id, user_id::text, provider_subscription_id from subscriptions")
    assert rows == [(till.tenant.org, till.service, till.tenant.id("member"), "sub_1")]
    assert await run_sql(pool, "select subscription_count from services") == [(1,)]
    entry = await run_sql(pool, "select action, actor_id, address from audit_log where target_type = 'subscription'")
    assert entry == [("subscription.created", None, None)]
    assert await run_sql(pool, "select name, org_id from events") == [("subscription.created", till.tenant.org)]


async def test_each_status_of_the_provider_maps_to_one_of_four(till: Till) -> None:
    expected = {
        "active": "active",
        "trialing": "active",
        "past_due": "past_due",
        "unpaid": "past_due",
        "incomplete": "past_due",
        "canceled": "cancelled",
        "incomplete_expired": "expired",
        "ended": "expired",
        "something new": "past_due",
    }
    statuses = {}
    for provider_status in expected:
        await till.reset()
        await till.deliver(CREATED, till.subscription(status="active"))
        await till.deliver(UPDATED, till.subscription(status=provider_status), till.now + 1)
        statuses[provider_status] = await till.status()
    assert statuses == expected


async def test_an_update_changes_plan_status_and_period(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    end = till.ends + DAY
    await till.deliver(UPDATED, till.subscription(status="past_due", price="price_silver", current_period_end=end), till.now + 1)
    [(status, plan, ends)] = await till.rows()
    assert (status, plan, ends) == ("past_due", "Silver", "2026-04-14T15:09:26Z")
    assert await till.recorded() == ["subscription.created", "subscription.updated"]
    await till.deliver(UPDATED, till.subscription(price="price_of_nothing", current_period_end=end), till.now + 2)
    assert [row[:2] for row in await till.rows()] == [("active", "Silver")], "an unknown price keeps the plan"


async def test_the_period_can_be_in_the_item(till: Till) -> None:
    about = till.subscription(current_period_end=None)
    about["items"]["data"][0]["current_period_end"] = till.ends
    await till.deliver(CREATED, about)
    assert (await till.rows())[0][2] == "2026-04-13T15:09:26Z"


async def test_a_deletion_is_final(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    await till.deliver(DELETED, till.subscription(status="canceled"), till.now + 1)
    assert await till.status() == "cancelled"
    await till.deliver(UPDATED, till.subscription(), till.now + 2)
    await till.deliver("invoice.paid", invoice("sub_1", till.ends), till.now + 3)
    await till.deliver("invoice.payment_failed", invoice("sub_1"), till.now + 4)
    assert await till.status() == "cancelled"
    assert await till.recorded() == ["subscription.created", "subscription.canceled"]


async def test_older_events_change_nothing_and_events_of_the_same_second_do(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    await till.deliver(UPDATED, till.subscription(status="past_due"), till.now + 10)
    await till.deliver(UPDATED, till.subscription(status="active"), till.now + 9)
    assert await till.status() == "past_due"
    await till.deliver(UPDATED, till.subscription(status="active"), till.now + 10)
    assert await till.status() == "active"
    await till.deliver("invoice.payment_failed", invoice("sub_1"), till.now + 9)
    assert await till.status() == "active"
    await till.deliver("invoice.payment_failed", invoice("sub_1"), till.now + 10)
    assert await till.status() == "past_due"
    await till.deliver(CREATED, till.subscription(status="active"), till.now + 10)
    assert await till.status() == "past_due", "the creation event precedes all others of its second"


async def test_invoices_change_status_and_period(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    await till.deliver("invoice.payment_failed", invoice("sub_1"), till.now + 1)
    assert await till.status() == "past_due"
    await till.deliver("invoice.paid", invoice("sub_1", till.ends + 30 * DAY), till.now + 2)
    [(status, _, ends)] = await till.rows()
    assert (status, ends) == ("active", "2026-05-13T15:09:26Z"), "the period is extended"
    newer = {"parent": {"subscription_details": {"subscription": "sub_1"}}}
    await till.deliver("invoice.payment_failed", {**invoice(None), **newer}, till.now + 3)
    assert await till.status() == "past_due", "newer API versions put the subscription below parent"


async def test_an_invoice_that_arrives_before_its_subscription_counts(till: Till) -> None:
    await till.deliver("invoice.paid", invoice("sub_1", till.ends + DAY), till.now + 1)
    assert await till.rows() == []
    await till.deliver(CREATED, till.subscription(status="incomplete"))
    [(status, _, ends)] = await till.rows()
    assert (status, ends) == ("active", "2026-04-14T15:09:26Z")


async def test_facts_without_metadata_are_stored_until_metadata_arrives(till: Till) -> None:
    findings = []
    for metadata in ({}, till.metadata(plan_id="x"), till.metadata(user_id=None), None, "text", 5):
        await till.reset()
        await till.deliver(CREATED, till.subscription(metadata=metadata))
        await till.deliver("invoice.payment_failed", invoice("sub_1"), till.now + 2)
        before = await till.rows()
        await till.deliver(UPDATED, till.subscription(), till.now + 1)
        if (before, await till.status()) != ([], "past_due"):
            findings.append(metadata)
    assert findings == []


async def test_events_without_metadata_match_by_subscription_id(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    await till.deliver(UPDATED, till.subscription(metadata={}, status="unpaid"), till.now + 1)
    assert await till.status() == "past_due"


async def test_a_repeated_event_has_no_further_effect(till: Till, pool: Pool) -> None:
    one = event(CREATED, till.subscription(), till.now)
    other = event(UPDATED, till.subscription(status="past_due"), till.now + 1)
    for each in (one, other, one, {**one, "created": till.now + 5}, other):
        assert (await till.send(each)).json == {"status": "success"}
    assert await till.status() == "past_due"
    assert await till.recorded() == ["subscription.created", "subscription.updated"]


async def test_a_failed_event_leaves_no_trace_and_can_be_repeated(till: Till, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    one, before = event(CREATED, till.subscription(), till.now), await stored_rows(till)
    with monkeypatch.context() as patch:
        patch.setattr(events, "subscription_created", broken)
        answer = await till.send(one)
    assert refused(answer) == (500, "INTERNAL_SERVER_ERROR")
    assert await stored_rows(till) == before
    assert await till.send_for_status(one) == 200
    assert await till.status() == "active"


# Ownership


async def test_contradicting_metadata_is_acknowledged_without_effect(till: Till, other_tenant: Tenant, clock: FakeClock) -> None:
    other = await open_till(other_tenant, clock)
    wrong = [{name: str(uuid4())} for name in ("org_id", "service_id", "user_id", "plan_id")]
    wrong += [{name: other.metadata()[name]} for name in ("org_id", "service_id", "plan_id")]
    for metadata in wrong:
        await till.deliver(CREATED, till.subscription(metadata=till.metadata(**metadata)))
        assert await till.rows() == [], metadata
        await till.reset()
    assert await till.recorded() == []


async def test_an_update_with_a_plan_of_another_service_has_no_effect(till: Till, other_tenant: Tenant, clock: FakeClock) -> None:
    other = await open_till(other_tenant, clock)
    await till.deliver(CREATED, till.subscription())
    for plan, status in ((other.gold, "active"), (till.silver, "past_due")):
        metadata = till.metadata(plan_id=plan)
        await till.deliver(UPDATED, till.subscription(metadata=metadata, status="past_due"), till.now + 1)
        assert await till.status() == status


async def test_no_mail_is_sent_about_a_trial_that_newer_events_ended(till: Till, pool: Pool) -> None:
    await till.deliver(CREATED, till.subscription(status="trialing"))
    await till.deliver(UPDATED, till.subscription(), till.now + 10)
    await till.deliver("customer.subscription.trial_will_end", till.subscription(status="trialing"), till.now + 5)
    assert await run_sql(pool, "select 1 from mails") == []


async def test_no_mail_is_sent_about_a_trial_that_ended_before_the_event_arrives(till: Till, pool: Pool) -> None:
    await till.deliver(CREATED, till.subscription(status="trialing"))
    for ends, mails in ((till.now - DAY, 0), (till.now, 0), (till.now + DAY, 1)):
        await till.deliver("customer.subscription.trial_will_end", till.subscription(status="trialing", trial_end=ends), till.now - 3 * DAY)
        assert len(await run_sql(pool, "select 1 from mails")) == mails


async def test_one_time_purchases_on_an_invoice_do_not_extend_the_period(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    bill = invoice("sub_1", till.ends + DAY)
    bill["lines"]["data"].append({"id": "il_2", "type": "invoiceitem", "period": {"start": 0, "end": till.ends + 300 * DAY}})
    await till.deliver("invoice.paid", bill, till.now + 1)
    assert await till.rows() == [("active", "Gold", "2026-04-14T15:09:26Z")]


async def test_an_unpaid_checkout_does_not_make_other_prices_valid(till: Till, pool: Pool) -> None:
    checkout = """
        insert into billing_checkouts (id, org_id, service_id, user_id, plan_id, price_id, created_at)
        values (gen_random_uuid(), %(org_id)s, %(service_id)s, %(user_id)s, %(plan_id)s, 'price_before', now())"""
    async with pool.connection() as connection:
        await connection.execute(checkout, till.metadata())
    for price, status in (("price_of_nothing", None), ("price_before", "active")):
        await till.deliver(CREATED, till.subscription(price=price))
        assert await till.status() == status


async def test_the_price_must_be_that_of_the_plan(till: Till) -> None:
    for price in ("price_silver", "price_of_nothing", None):
        await till.deliver(CREATED, till.subscription(price=price))
        assert await till.rows() == []


async def test_a_subscription_of_another_organizations_customer_has_no_effect(till: Till, other_tenant: Tenant, pool: Pool) -> None:
    customer = "insert into billing_customers (org_id, idempotency_key, customer_id, created_at) values (%s, gen_random_uuid(), %s, now())"
    await run_sql(pool, customer, other_tenant.org, "cus_twin")
    await till.deliver(CREATED, till.subscription(customer="cus_twin"))
    assert await till.rows() == []
    await run_sql(pool, customer, till.tenant.org, "cus_1")
    await till.deliver(CREATED, till.subscription(customer="cus_else"), till.now + 1)
    assert await till.rows() == []
    await till.deliver(CREATED, till.subscription(), till.now + 2)
    assert await till.status() == "active"


async def test_no_event_moves_a_subscription_to_another_owner(till: Till, other_tenant: Tenant, clock: FakeClock, pool: Pool) -> None:
    other = await open_till(other_tenant, clock)
    await till.deliver(CREATED, till.subscription())
    before = await run_sql(pool, "select * from subscriptions")
    facts = await run_sql(pool, "select status, customer_id, org_id from billing_facts")
    for changes in (
        {"metadata": other.metadata()},
        {"metadata": till.metadata(user_id=other_tenant.id("member"))},
        {"metadata": till.metadata(service_id=other.service)},
        {"customer": "cus_2"},
    ):
        for type_, status in ((UPDATED, "past_due"), (DELETED, "canceled")):
            await till.deliver(type_, till.subscription(status=status, **changes), till.now + 1)
    await till.deliver("invoice.payment_failed", invoice("sub_1", customer="cus_2"), till.now + 1)
    assert await run_sql(pool, "select * from subscriptions") == before
    assert await run_sql(pool, "select status, customer_id, org_id from billing_facts") == facts


async def test_a_second_subscription_waits_until_the_first_has_ended(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    second = till.subscription("sub_2", price="price_silver", metadata=till.metadata(plan_id=till.silver))
    await till.deliver(CREATED, second, till.now + 1)
    await till.deliver("invoice.paid", invoice("sub_2", till.ends), till.now + 2)
    assert [row[:2] for row in await till.rows()] == [("active", "Gold")]
    await till.deliver(DELETED, till.subscription(status="canceled"), till.now + 3)
    await till.deliver(UPDATED, second, till.now + 4)
    assert sorted(row[:2] for row in await till.rows()) == [("active", "Silver"), ("cancelled", "Gold")]


async def test_a_reactivated_subscription_waits_for_a_live_one(till: Till) -> None:
    await till.deliver(CREATED, till.subscription(status="incomplete_expired"))
    await till.deliver(CREATED, till.subscription("sub_2"), till.now + 1)
    await till.deliver(UPDATED, till.subscription(status="active"), till.now + 2)
    assert sorted(row[0] for row in await till.rows()) == ["active", "expired"]
    await till.deliver(DELETED, till.subscription("sub_2", status="canceled"), till.now + 3)
    await till.deliver(UPDATED, till.subscription(status="active"), till.now + 4)
    assert sorted(row[0] for row in await till.rows()) == ["active", "cancelled"]


async def test_an_overdue_subscription_does_not_prevent_a_new_one(till: Till, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    member = till.tenant.people["member"].id
    await add_subscription(ports, pool, till.service, member, till.silver, ends=clock.now())
    await till.deliver(CREATED, till.subscription())
    assert sorted(row[:2] for row in await till.rows()) == [("active", "Gold"), ("expired", "Silver")]


async def test_a_change_by_an_api_key_stays_until_the_provider_reports_another_state(till: Till, pool: Pool) -> None:
    await till.deliver(CREATED, till.subscription())
    await run_sql(pool, "update subscriptions set status = 'expired'")
    await till.deliver(UPDATED, till.subscription(), till.now + 1)
    assert await till.status() == "expired", "the event reports nothing new"
    await till.deliver(UPDATED, till.subscription(status="past_due"), till.now + 2)
    assert await till.status() == "past_due"


async def test_newer_facts_about_the_status_override_an_api_key(till: Till) -> None:
    """This holds even for a status that was known before, but not for repeated or older events."""
    start, ends = till.now, till.ends
    await till.deliver(CREATED, till.subscription())
    await till.deliver("invoice.paid", invoice("sub_1", ends), start + 1)
    past_due, unpaid = (till.subscription(status=status, current_period_end=ends) for status in ("past_due", "unpaid"))
    failed, paid = invoice("sub_1"), invoice("sub_1", ends)
    for at, type_, about, provider_status, our_status in (
        (10, "invoice.payment_failed", failed, "past_due", "active"),
        (20, "invoice.payment_failed", failed, "past_due", "active"),
        (30, UPDATED, past_due, "past_due", "active"),
        (40, UPDATED, unpaid, "past_due", "active"),
        (50, "invoice.paid", paid, "active", "past_due"),
        (60, "invoice.paid", paid, "active", "past_due"),
    ):
        assert (await till.by_key(status=our_status)).status == 200
        assert await effects(till, type_, about, start + at) == ["done"]
        assert await till.status() == provider_status
        assert (await till.by_key(status=our_status)).status == 200
        for again in (start + at, start + at - 1):
            assert await effects(till, type_, about, again) == ["unchanged"]
        if type_ == UPDATED:
            assert await effects(till, type_, about, start + at + 1) == ["unchanged"]
        assert await till.status() == our_status


async def effects(till: Till, type_: str, about: Any, at: int) -> list[str]:
    """Send an event, and return the effects that were logged."""
    with capture_logs() as logs:
        await till.deliver(type_, about, at)
    return [line["effect"] for line in logs if line["event"] == "billing_event"]


async def test_an_event_overrides_only_the_fields_that_it_reports(till: Till) -> None:
    await till.deliver(CREATED, till.subscription())
    assert (await till.by_key(plan_id=str(till.silver))).status == 200
    await till.deliver("invoice.paid", invoice("sub_1", till.ends + 30 * DAY), till.now + 1)
    assert await till.rows() == [("active", "Silver", "2026-05-13T15:09:26Z")], "an invoice does not report the plan"
    assert (await till.by_key(current_period_end="2026-12-24T00:00:00Z")).status == 200
    await till.deliver("invoice.payment_failed", invoice("sub_1"), till.now + 2)
    assert await till.rows() == [("past_due", "Silver", "2026-12-24T00:00:00Z")], "a failed invoice does not report the period"
    await till.deliver(UPDATED, till.subscription(current_period_end=till.ends + DAY), till.now + 3)
    assert await till.rows() == [("active", "Silver", "2026-04-14T15:09:26Z")], "the price is unchanged at the provider"
    for price, plan in (("price_silver", "Silver"), ("price_gold", "Gold")):
        await till.deliver(UPDATED, till.subscription(price=price, current_period_end=till.ends + DAY), till.now + 4)
        assert [row[1] for row in await till.rows()] == [plan]


async def test_an_unknown_price_is_reported_once_and_changes_no_plan(
    till: Till, other_tenant: Tenant, clock: FakeClock, pool: Pool
) -> None:
    other = await add_service(pool, till.tenant.org, "other")
    await add_plan(pool, other, price="price_other")
    await open_till(other_tenant, clock)
    await run_sql(pool, "update plans set billing_price_id = 'price_twin' where org_id = %s", other_tenant.org)
    await till.deliver(CREATED, till.subscription())
    for number, price in enumerate(("price_of_nothing", "price_other", "price_twin")):
        changed = till.subscription(price=price, status=("past_due", "active")[number % 2])
        assert await effects(till, UPDATED, changed, till.now + 2 * number + 1) == ["mismatch"]
        assert [row[:2] for row in await till.rows()] == [(changed["status"], "Gold")]
        assert await effects(till, UPDATED, changed, till.now + 2 * number + 2) == ["unchanged"]
    assert await effects(till, UPDATED, till.subscription(price="price_silver", status="past_due"), till.now + 10) == ["done"]
    assert [row[:2] for row in await till.rows()] == [("past_due", "Silver")]


@pytest.mark.parametrize("provider_status", ["canceled", "incomplete_expired"])
async def test_an_ended_subscription_that_a_key_reactivates_is_detached_from_the_provider(
    till: Till, ports: Ports, pool: Pool, provider_status: str
) -> None:
    await till.deliver(CREATED, till.subscription())
    await till.deliver(DELETED if provider_status == "canceled" else UPDATED, till.subscription(status=provider_status), till.now + 1)
    assert (await till.by_key(status="active")).status == 200
    before = await till.rows()
    assert [row[0] for row in before] == ["active"]
    assert await run_sql(pool, "select provider_subscription_id from subscriptions") == [(None,)]
    # Later events of the old subscription change nothing. If it is live again, the user still pays,
    # which is reported.
    effect = "not_managed_here" if provider_status == "canceled" else "mismatch"
    assert await effects(till, UPDATED, till.subscription(status="past_due"), till.now + 2) == [effect]
    for type_, about in ((DELETED, till.subscription(status="canceled")), ("invoice.paid", invoice("sub_1", till.ends + DAY))):
        assert await effects(till, type_, about, till.now + 3) == ["not_managed_here"]
    assert await till.rows() == before
    ends = till.clock.now() + timedelta(seconds=3)
    assert (await till.by_key(current_period_end=rfc3339(ends))).json["status"] == "active"
    till.clock.advance(timedelta(seconds=4))
    assert (await till.by_key("GET")).json["status"] == "expired"
    await sweep(ports, uuid4())
    assert await till.status() == "expired"
    assert (await till.by_key("DELETE")).status == 204
    assert await till.rows() == []
    assert await run_sql(pool, "select 1 from billing_cancellations") == []


async def test_a_live_subscription_that_a_key_reactivates_stays_at_the_provider(till: Till, pool: Pool) -> None:
    await till.deliver(CREATED, till.subscription())
    for status in ("cancelled", "expired"):
        assert (await till.by_key(status=status)).status == 200
        assert (await till.by_key(status="active")).status == 200
    assert await run_sql(pool, "select provider_subscription_id from subscriptions") == [("sub_1",)]
    await till.deliver(UPDATED, till.subscription(status="past_due"), till.now + 1)
    assert await till.status() == "past_due"


async def test_events_apply_while_the_organization_is_suspended(till: Till, pool: Pool) -> None:
    await till.deliver(CREATED, till.subscription())
    await run_sql(pool, "update organizations set status = 'suspended'")
    await till.deliver(UPDATED, till.subscription(status="past_due"), till.now + 1)
    await till.deliver(CREATED, till.subscription("sub_2", metadata=till.metadata(user_id=till.tenant.id("owner"))))
    assert sorted(row[0] for row in await till.rows()) == ["active", "past_due"]


async def test_events_about_a_deleted_service_create_nothing(till: Till, pool: Pool) -> None:
    await till.deliver(CREATED, till.subscription())
    await run_sql(pool, "delete from services")
    await till.deliver(UPDATED, till.subscription(status="past_due"), till.now + 1)
    await till.deliver(CREATED, till.subscription("sub_2"))
    assert await till.rows() == []


# Emails


async def test_the_user_gets_a_mail_before_a_trial_ends(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    await till.deliver(CREATED, till.subscription(status="trialing"))
    await till.deliver("customer.subscription.trial_will_end", till.subscription(status="trialing"), till.now + 1)
    await deliver(ports)
    [mail] = sent.emails
    assert (mail.to, "trial" in mail.subject) == (till.tenant.people["member"].email, True)
    for body in (mail.text, mail.html):
        assert "to the plan Gold of Shop at Acme" in body
        assert "unless the subscription is canceled" in body.replace("\n", " ")
        assert "the people who run the application" in body.replace("\n", " ")


async def test_the_user_gets_one_mail_about_a_payment_to_complete(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    await till.deliver(CREATED, till.subscription())
    one = event("invoice.payment_action_required", invoice("sub_1"), till.now + 1)
    assert [await till.send_for_status(one) for _ in range(3)] == [200] * 3
    await deliver(ports)
    [mail] = sent.emails
    assert (mail.to, "payment" in mail.subject) == (till.tenant.people["member"].email, True)
    assert "to the plan Gold of Shop at Acme" in mail.text
    assert await till.status() == "active"


async def test_the_mail_links_to_the_payment_page_if_it_is_safe(till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    await till.deliver(CREATED, till.subscription())
    for url in (PAGE, "http://invoice.provider.example/i/1"):
        await till.deliver("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=url), till.now + 1)
    await deliver(ports)
    with_link, without = sorted(sent.emails, key=lambda mail: PAGE not in mail.text)
    assert PAGE in with_link.text.splitlines()
    assert with_link.html.count(f'href="{PAGE}"') == 2
    assert "://" not in without.text
    assert await run_sql(pool, "select distinct token from mails") == [(None,)], (
        "the link gives access to the invoice, so it is deleted after sending"
    )


async def test_a_payment_to_complete_is_reported_once_the_user_is_known_unless_it_is_done(
    till: Till, ports: Ports, sent: FakeMailTransport
) -> None:
    for number, paid in ((1, None), (2, till.now + 2)):
        id_ = f"sub_{number}"
        await till.deliver("invoice.payment_action_required", invoice(id_), till.now + 1)
        if paid is not None:
            await till.deliver("invoice.paid", invoice(id_), paid)
        name = ("member", "owner")[number - 1]
        await till.deliver(CREATED, till.subscription(id_, status="incomplete", metadata=till.metadata(user_id=till.tenant.id(name))))
    await deliver(ports)
    assert [mail.to for mail in sent.emails] == [till.tenant.people["member"].email]


async def stored_pages(pool: Pool) -> list[bytes]:
    return [page for (page,) in await run_sql(pool, "select action_page from billing_facts where action_page is not null")]


async def test_the_payment_page_is_stored_encrypted_until_the_user_is_known(
    till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    for at, page in ((till.now + 2, PAGE), (till.now + 1, f"{PAGE}&old")):
        await till.deliver("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=page), at)
    await till.deliver("customer.subscription.updated", till.subscription(status="incomplete", metadata={}), till.now)
    [sealed] = await stored_pages(pool)
    assert b"provider" not in sealed
    await till.deliver(CREATED, till.subscription(status="incomplete"))
    await deliver(ports)
    [mail] = sent.emails
    assert PAGE in mail.text.splitlines()
    assert await stored_pages(pool) == []


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("over", ["invoice.paid", DELETED])
async def test_the_payment_page_is_deleted_when_it_is_no_longer_needed(till: Till, pool: Pool, over: str, order: int) -> None:
    about = invoice("sub_1") if over == "invoice.paid" else till.subscription(status="canceled", metadata={})
    waits = event("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=PAGE), till.now + 1)
    for one in [waits, event(over, about, till.now + 2)][::order]:
        assert await till.send_for_status(one) == 200
    assert await stored_pages(pool) == []


async def test_marking_a_subscription_ended_deletes_its_payment_page(till: Till, ports: Ports, pool: Pool) -> None:
    await till.deliver("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=PAGE))
    assert len(await stored_pages(pool)) == 1
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.billing.mark_ended("sub_1", till.clock.now())
    assert await stored_pages(pool) == []


async def test_an_undecryptable_payment_page_does_not_stop_the_mail(till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    await till.deliver("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=PAGE))
    await run_sql(pool, "update billing_facts set action_page = 'broken'")
    await till.deliver(CREATED, till.subscription(status="incomplete"))
    await deliver(ports)
    [mail] = sent.emails
    assert "://" not in mail.text


async def test_no_mail_is_sent_about_a_settled_invoice(till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    for status, order in itertools.product(("paid", "void", "uncollectible"), (1, -1)):
        await till.reset()
        action = event("invoice.payment_action_required", invoice("sub_1", status=status, hosted_invoice_url=PAGE), till.now + 1)
        for each in [action, event(CREATED, till.subscription(status="incomplete"), till.now)][::order]:
            assert await till.send_for_status(each) == 200
        await deliver(ports)
        assert (sent.emails, await stored_pages(pool)) == ([], []), (status, order)


async def test_no_mail_is_sent_about_a_payment_from_before_it_was_active(
    till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    for newest, order in itertools.product(("active", "incomplete"), itertools.permutations(range(3))):
        await till.reset()
        sent.emails.clear()
        facts = [
            event(CREATED, till.subscription(status="incomplete"), till.now - 50),
            event(UPDATED, till.subscription(status=newest), till.now - 10),
            event("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=PAGE), till.now - 40),
        ]
        for number in order:
            assert await till.send_for_status(facts[number]) == 200
        await deliver(ports)
        # If the event about the active status arrives last, the mail was already queued.
        assert len(sent.emails) == int(newest == "incomplete" or order[-1] == 1), (newest, order)
        assert await stored_pages(pool) == []


async def test_a_newer_payment_to_complete_does_not_reopen_an_older_one(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    await till.deliver(CREATED, till.subscription(), till.now - 50)
    await till.deliver("invoice.paid", invoice("sub_1"), till.now - 30)
    for at in (-20, -40):
        await till.deliver("invoice.payment_action_required", invoice("sub_1"), till.now + at)
    await deliver(ports)
    assert len(sent.emails) == 1


async def test_no_mail_is_sent_about_ended_or_unknown_subscriptions(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    await till.deliver(CREATED, till.subscription())
    await till.deliver(DELETED, till.subscription(status="canceled"))
    for about in (till.subscription(status="canceled"), subscription("sub_2")):
        await till.deliver("customer.subscription.trial_will_end", about, till.now + 1)
    for id_ in ("sub_1", "sub_2", None):
        await till.deliver("invoice.payment_action_required", invoice(id_), till.now + 1)
    await deliver(ports)
    assert sent.emails == []


async def test_a_queued_mail_is_dropped_if_the_subscription_has_ended(
    till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    await till.deliver(CREATED, till.subscription())
    await till.deliver("invoice.payment_action_required", invoice("sub_1"), till.now + 1)
    await till.deliver(DELETED, till.subscription(status="canceled"), till.now + 2)
    await deliver(ports)
    assert sent.emails == []
    assert await run_sql(pool, "select outcome from mails") == [("dropped",)]


# Customers and payment methods


async def customers(pool: Pool) -> list[tuple[Any, ...]]:
    return await run_sql(
        pool,
        """
        select org_id, customer_id, user_id::text, payment_method_id
        from billing_customers left join billing_default_payment_methods using (org_id) order by customer_id""",
    )


async def test_a_customer_belongs_to_its_organization_and_is_linked_to_a_user(till: Till, other_tenant: Tenant, pool: Pool) -> None:
    org, member = till.tenant.org, till.tenant.id("member")
    about = {"id": "cus_1", "metadata": {"org_id": str(org), "user_id": member}}
    await till.deliver("customer.created", about)
    assert await customers(pool) == [(org, "cus_1", member, None)]
    await till.deliver("customer.updated", {"id": "cus_1", "metadata": {"user_id": till.tenant.id("owner")}}, till.now + 2)
    await till.deliver("customer.updated", about, till.now + 1)
    assert await customers(pool) == [(org, "cus_1", till.tenant.id("owner"), None)]
    await till.deliver("customer.updated", {"id": "cus_1", "metadata": {"user_id": str(uuid4())}}, till.now + 3)
    assert await customers(pool) == [(org, "cus_1", None, None)]
    for wrong in ({"id": "cus_2", "metadata": about["metadata"]}, {"id": "cus_1", "metadata": {"org_id": str(other_tenant.org)}},
                  {"id": "cus_3", "metadata": {"org_id": str(uuid4())}}, {"id": "cus_4"}):  # fmt: skip
        await till.deliver("customer.created", wrong, till.now + 4)
    assert await customers(pool) == [(org, "cus_1", None, None)]


async def test_a_deleted_customer_is_unlinked_and_its_subscriptions_are_checked(till: Till, other_tenant: Tenant, pool: Pool) -> None:
    about = {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}}
    await till.deliver("customer.created", about)
    await till.deliver(CREATED, till.subscription())
    [(key,)] = await run_sql(pool, "select idempotency_key from billing_customers")
    await till.deliver("customer.deleted", {**about, "metadata": {"org_id": str(other_tenant.org)}}, till.now + 5)
    assert await customers(pool) == [(till.tenant.org, "cus_1", None, None)], "the event names another organization"
    assert await run_sql(pool, "select 1 from billing_facts where check_at <= %s", till.clock.now()) == []
    await till.deliver("customer.deleted", about, till.now + 5)
    assert await customers(pool) == [(till.tenant.org, None, None, None)]
    assert await run_sql(pool, "select 1 from billing_customers where idempotency_key = %s", key) == [], (
        "the next customer is created with another key"
    )
    assert await till.status() == "active", "the provider sends an event per subscription, and each is checked"
    assert await run_sql(pool, "select provider_subscription_id from billing_facts where check_at <= %s", till.clock.now()) == [("sub_1",)]
    await till.deliver("customer.updated", about, till.now + 4)
    assert await customers(pool) == [(till.tenant.org, None, None, None)]


@pytest.mark.parametrize("named", [True, False])
async def test_a_late_creation_event_does_not_bring_back_a_deleted_customer(till: Till, pool: Pool, *, named: bool) -> None:
    """This holds whether or not the deletion names the organization, and for any times: ids are never used twice."""
    about = {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}}
    await till.deliver("customer.deleted", about if named else {"id": "cus_1"}, till.now + 5)
    for at in (till.now, till.now + 5, till.now + 6):
        await till.deliver("customer.created", about, at)
        assert await customers(pool) == []
    await till.deliver("customer.created", {**about, "id": "cus_2"}, till.now + 1)
    assert await customers(pool) == [(till.tenant.org, "cus_2", None, None)]
    await till.deliver("customer.deleted", about, till.now + 7)
    assert await customers(pool) == [(till.tenant.org, "cus_2", None, None)], "the deletion was of the other customer"


async def test_a_deletion_counts_even_if_newer_events_arrived_before(till: Till, pool: Pool) -> None:
    about = {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org), "user_id": till.tenant.id("member")}}
    await till.deliver("customer.created", about, till.now + 5)
    await till.deliver("customer.deleted", {"id": "cus_1"}, till.now)
    await till.deliver("customer.updated", about, till.now + 6)
    assert await customers(pool) == [(till.tenant.org, None, None, None)]
    await till.deliver("customer.created", {**about, "id": "cus_2"}, till.now + 1)
    assert await customers(pool) == [(till.tenant.org, "cus_2", till.tenant.id("member"), None)], "the new customer starts afresh"


async def test_a_customer_created_and_deleted_concurrently_is_not_linked(till: Till, pool: Pool) -> None:
    for number in range(10):
        about = {"id": f"cus_{number}", "metadata": {"org_id": str(till.tenant.org)}}
        both = [event("customer.created", about, till.now), event("customer.deleted", {"id": about["id"]}, till.now + 1)]
        assert await run_concurrently(2, lambda each, both=both: till.send_for_status(both[each])) == [200] * 2  # type: ignore[misc]
        assert [row[1] for row in await customers(pool)] in ([], [None])


async def test_the_current_payment_method_is_the_one_attached_last(till: Till, pool: Pool) -> None:
    await till.deliver("customer.created", {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}})

    async def method() -> object:
        return (await customers(pool))[0][3]

    await till.deliver("payment_method.attached", {"id": "pm_1", "customer": "cus_1"}, till.now + 1)
    assert await method() == "pm_1"
    await till.deliver("payment_method.attached", {"id": "pm_3", "customer": "cus_1"}, till.now + 3)
    await till.deliver("payment_method.attached", {"id": "pm_2", "customer": "cus_1"}, till.now + 2)
    await till.deliver("payment_method.detached", {"id": "pm_1", "customer": None}, till.now + 4)
    assert await method() == "pm_3"
    await till.deliver("payment_method.detached", {"id": "pm_3", "customer": None}, till.now + 4)
    assert await method() == "pm_2", "it is still attached"
    await till.deliver("payment_method.detached", {"id": "pm_2", "customer": None}, till.now + 4)
    assert await method() is None
    await till.deliver("payment_method.attached", {"id": "pm_4", "customer": "cus_9"}, till.now + 4)
    await till.deliver("payment_method.attached", {"id": "pm_4"}, till.now + 4)
    assert await method() is None


async def test_a_late_attachment_event_does_not_bring_back_a_payment_method(till: Till, pool: Pool) -> None:
    await till.deliver("customer.created", {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}})
    gone = event("payment_method.detached", {"id": "pm_1", "customer": None}, till.now + 2)
    gone["data"]["previous_attributes"] = {"customer": "cus_1"}
    assert await till.send_for_status(gone) == 200
    for at in (till.now + 1, till.now + 2):
        await till.deliver("payment_method.attached", {"id": "pm_1", "customer": "cus_1"}, at)
        assert (await customers(pool))[0][3] is None
    await till.deliver("payment_method.attached", {"id": "pm_1", "customer": "cus_1"}, till.now + 3)
    assert (await customers(pool))[0][3] == "pm_1"


async def test_a_payment_method_can_arrive_before_its_customer(till: Till, pool: Pool) -> None:
    await till.deliver("payment_method.attached", {"id": "pm_1", "customer": "cus_1"})
    await till.deliver("customer.created", {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}})
    assert (await customers(pool))[0][3] == "pm_1"


async def test_the_longest_paid_period_counts_for_any_order_of_events(till: Till) -> None:
    """A newer object of the provider overrides the periods of earlier payments."""

    async def days_since(start: datetime) -> int:
        [(end,)] = await run_sql(till.tenant.pool, "select current_period_end from subscriptions")
        return int((end - start).days)

    for order in itertools.permutations(range(4)):
        await till.reset()
        facts = [
            event(CREATED, till.subscription(current_period_end=till.now), till.now),
            event("invoice.paid", invoice("sub_1", till.now + 30 * DAY), till.now + 1),
            event("invoice.paid", invoice("sub_1", till.now + 20 * DAY), till.now + 2),
            event("invoice.paid", invoice("sub_1", till.now + 10 * DAY), till.now + 3),
        ]
        start = datetime.fromtimestamp(till.now, UTC)
        for number in order:
            assert await till.send_for_status(facts[number]) == 200
        assert await days_since(start) == 30, order
        await till.deliver(UPDATED, till.subscription(current_period_end=till.now + DAY), till.now + 2)
        assert await days_since(start) == 20, "the longest period was paid before that object"
        await till.deliver(UPDATED, till.subscription(current_period_end=till.now + DAY), till.now + 4)
        assert await days_since(start) == 1


async def test_the_known_period_is_kept_for_any_order_of_events(till: Till) -> None:
    """A newer object without a period does not clear it, and an invoice for a shorter period does not shorten it."""
    for order in itertools.permutations(range(3)):
        await till.reset()
        facts = [
            event(CREATED, till.subscription(), till.now),
            event(UPDATED, till.subscription(current_period_end=None), till.now + 1),
            event("invoice.paid", invoice("sub_1", till.now - DAY), till.now + 2),
        ]
        end = datetime.fromtimestamp(till.ends, UTC)
        for number in order:
            assert await till.send_for_status(facts[number]) == 200
        assert await run_sql(till.tenant.pool, "select current_period_end from subscriptions") == [(end,)], order


# Concurrency


async def test_twenty_concurrent_copies_of_an_event_have_one_effect(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    await till.deliver(CREATED, till.subscription())
    one = event("invoice.payment_action_required", invoice("sub_1"), till.now)
    assert await run_concurrently(20, lambda _: till.send_for_status(one)) == [200] * 20
    await deliver(ports)
    assert len(sent.emails) == 1
    other = event(UPDATED, till.subscription(status="past_due"), till.now + 1)
    assert await run_concurrently(20, lambda _: till.send_for_status(other)) == [200] * 20
    assert await till.recorded() == ["subscription.created", "subscription.updated"]


async def test_concurrent_events_of_a_subscription_lead_to_one_state(till: Till, pool: Pool) -> None:
    events = [
        event(CREATED, till.subscription(status="incomplete"), till.now),
        event("invoice.paid", invoice("sub_1", till.ends), till.now),
        event(UPDATED, till.subscription(), till.now + 1),
        event(UPDATED, till.subscription(price="price_silver"), till.now + 2),
        event("invoice.payment_failed", invoice("sub_1"), till.now + 3),
        event("customer.subscription.trial_will_end", till.subscription(price="price_silver"), till.now + 2),
    ]
    assert await run_concurrently(18, lambda number: till.send_for_status(events[number % 6])) == [200] * 18
    assert [row[:2] for row in await till.rows()] == [("past_due", "Silver")]
    assert await run_sql(pool, "select subscription_count from services") == [(1,)]


async def test_of_concurrent_subscriptions_of_a_user_one_is_live(till: Till) -> None:
    events = [event(CREATED, till.subscription(f"sub_{number}"), till.now) for number in range(8)]
    assert await run_concurrently(8, lambda number: till.send_for_status(events[number])) == [200] * 8
    assert [row[0] for row in await till.rows()] == ["active"]


@pytest.mark.parametrize("edge", [{"rate_limit_factor": 1.0}], indirect=True)
@pytest.mark.slow
async def test_the_rate_limit_allows_a_burst_of_100_and_then_1000_per_minute(till: Till, api: Api, clock: FakeClock) -> None:
    async def ask() -> Answer:
        return await api.call("POST", RECEIVER, raw=b"{}")

    assert [(await ask()).status for _ in range(100)] == [400] * 100
    answer = await ask()
    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    clock.advance(timedelta(seconds=0.3))
    assert [(await ask()).status for _ in range(6)] == [400] * 5 + [429]


async def test_a_deleted_account_gets_no_subscription(till: Till, ports: Ports, pool: Pool) -> None:
    account = await add_account(ports, "gone@example.com", None)
    await run_sql(pool, "delete from users where id = %s", account.id)
    await till.deliver(CREATED, till.subscription(metadata=till.metadata(user_id=account.id)))
    assert await till.rows() == []
