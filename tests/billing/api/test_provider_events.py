"""The receiver of the payment provider's events over HTTP (organizations.md section 4.2; decisions, points 16 and 164 to 170; security.md
H-1 to H-5, N-4 and Z-4)."""

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
from tests.support.builders import Answer, Api, add_account, deliver, everyone, make_edge, run_sql
from tests.support.refusals import BAD, refused
from tests.support.services import add_plan, add_service, add_subscription
from tests.support.tenants import Tenant

WRONG = (401, "UNAUTHORIZED")
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


async def traces(till: Till) -> list[tuple[Any, ...]]:
    """What events leave behind, wherever."""
    tables = ("billing_events", "billing_facts", "billing_customers", "billing_checkouts", "subscriptions", "audit_log", "events", "mails")
    return [row for table in tables for row in await run_sql(till.tenant.pool, f"select '{table}', t::text from {table} t")]  # noqa: S608


# Who sends it


async def test_an_event_that_the_provider_signed_is_taken(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    header = sign(body, at=till.now)
    assert stripe.WebhookSignature.verify_header(body.decode(), header, SECRET)
    answer = await till.post(body, header)
    assert (answer.status, answer.json) == (200, {"status": "success"})
    assert await till.status() == "active"


async def test_the_header_may_have_the_name_that_stripe_has_for_it(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    right, wrong = sign(body, at=till.now), f"t={till.now},v1={'0' * 64}"
    assert refused(await till.post(body, "", **{"Stripe-Signature": wrong})) == WRONG
    assert refused(await till.post(body, wrong, **{"Stripe-Signature": right})) == WRONG, "ours counts where it is there"
    assert (await till.post(body, "", **{"Stripe-Signature": right})).status == 200


async def test_what_is_not_signed_is_refused_before_it_is_read(till: Till) -> None:
    before = await traces(till)
    for body in (b"{}", b"", b"not json", b"\xff"):
        assert refused(await till.post(body, "")) == BAD
        answer = await till.post(body, f"t={till.now},v1={'0' * 64}")
        assert refused(answer) == WRONG
        assert answer.headers["WWW-Authenticate"].startswith("Signature ")
    assert await traces(till) == before


@pytest.mark.parametrize(
    "header",
    [
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
    ],
)
async def test_a_header_that_is_not_quite_right_is_refused(till: Till, header: str) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    right = sign(body, at=till.now).partition("v1=")[2]
    assert refused(await till.post(body, header.format(t=till.now, v=right))) == WRONG
    assert await till.rows() == []


async def test_unknown_parts_of_the_header_are_ignored(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    header = sign(body, at=till.now)
    assert (await till.post(body, f"v0={'a' * 64},{header},v2=x,flag,=")).status == 200


@pytest.mark.parametrize(
    ("seconds", "status"), [(0, 200), (-300, 200), (-301, 401), (300, 200), (301, 401), (-(10**9), 401), (10**10, 401)]
)
@pytest.mark.parametrize("microsecond", [0, 999_999])
async def test_a_signature_is_good_for_five_minutes_either_way(till: Till, seconds: int, status: int, microsecond: int) -> None:
    till.clock.advance(till.clock.now().replace(microsecond=microsecond) - till.clock.now())
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    assert (await till.post(body, sign(body, at=till.now + seconds))).status == status


async def test_every_byte_counts(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    header = sign(body, at=till.now)
    for changed in (body + b" ", body[:-1], body.replace(b"active", b"ACTIVE"), b""):
        assert refused(await till.post(changed, header)) == WRONG
    assert refused(await till.post(body, sign(body, OTHER, till.now))) == WRONG
    moved = header.replace(str(till.now), str(till.now + 1))
    assert refused(await till.post(body, moved)) == WRONG


@pytest.mark.parametrize("edge", [{"billing_secrets": (OTHER, SECRET)}], indirect=True)
async def test_any_secret_and_any_signature_will_do(till: Till) -> None:
    for secret in (OTHER, SECRET):
        body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
        right = sign(body, secret, till.now)
        for header in (right, f"t={till.now},v1={'0' * 64},{right.partition(',')[2]}", f"{right},v1={'f' * 64}"):
            assert (await till.post(body, header)).status == 200


@pytest.mark.parametrize("edge", [{"billing_secrets": ()}, {"billing_secrets": ("",)}], indirect=True)
async def test_without_a_secret_nothing_is_taken(till: Till) -> None:
    before = await traces(till)
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    for header in (sign(body, "", till.now), sign(body, SECRET, till.now), ""):
        with capture_logs() as logs:
            assert refused(await till.post(body, header)) == OFF
        assert [line["error"] for line in logs if line["event"] == "outage"] == ["SSO_BILLING_WEBHOOK_SECRET is not set"]
    assert await traces(till) == before


# What it says

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


async def test_what_is_signed_and_makes_no_sense_is_refused(till: Till) -> None:
    good = event(CREATED, till.subscription(), till.now)
    before = await traces(till)
    bodies = [b"", b"{", b"[]", b"null", b"\xff", b'{"a": 1, "a": 2}', b"[" * 1000, b'{"id": "\\ud800"}']
    bodies += [json.dumps({**good, **changes} if changes else {}).encode() for changes in MALFORMED]
    for body in bodies:
        assert refused(await till.post(body)) == BAD, body
    assert await traces(till) == before


async def test_another_kind_of_body_is_refused(till: Till) -> None:
    body = json.dumps(event(CREATED, till.subscription(), till.now)).encode()
    assert (await till.post(body, **{"Content-Type": "text/plain"})).status == 415
    assert (await till.post(body, **{"Content-Type": "application/json; charset=utf-8"})).status == 200


async def test_what_is_not_handled_is_acknowledged(till: Till) -> None:
    before = await traces(till)
    for type_ in ("invoice.voided", "customer.subscription.paused", "anything at all", ""):
        await till.tell(type_, {"id": "x"})
    assert await traces(till) == before


@pytest.mark.parametrize(
    ("mode", "said", "counts"),
    [
        (None, True, True),
        (None, False, True),
        (True, True, True),
        (True, False, False),
        (False, True, False),
        (False, False, True),
        (True, None, False),
        (None, None, True),
    ],
)
async def test_events_of_the_other_mode_are_acknowledged_and_ignored(
    till: Till, mode: bool | None, said: bool | None, counts: bool
) -> None:
    object.__setattr__(till.tenant.ports.policy, "billing_livemode", mode)
    await till.tell(CREATED, till.subscription(), livemode=said)
    assert (await till.status() == "active") == counts
    assert (await run_sql(till.tenant.pool, "select 1 from billing_events") != []) == counts


# Subscriptions


async def test_a_subscription_of_the_providers_becomes_one_of_ours(till: Till, pool: Pool) -> None:
    await till.tell(CREATED, till.subscription())
    assert await till.rows() == [("active", "Gold", "2026-04-13T15:09:26Z")]
    rows = await run_sql(pool, "select org_id, service_id, user_id::text, provider_subscription_id from subscriptions")
    assert rows == [(till.tenant.org, till.service, till.tenant.id("member"), "sub_1")]
    assert await run_sql(pool, "select subscription_count from services") == [(1,)]
    entry = await run_sql(pool, "select action, actor_id, address from audit_log where target_type = 'subscription'")
    assert entry == [("subscription.created", None, None)]
    assert await run_sql(pool, "select name, org_id from events") == [("subscription.created", till.tenant.org)]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("active", "active"),
        ("trialing", "active"),
        ("past_due", "past_due"),
        ("unpaid", "past_due"),
        ("incomplete", "past_due"),
        ("canceled", "cancelled"),
        ("incomplete_expired", "expired"),
        ("ended", "expired"),
        ("something new", "past_due"),
    ],
)
async def test_its_status_is_one_of_four(till: Till, theirs: str, ours: str) -> None:
    await till.tell(CREATED, till.subscription(status="active"))
    await till.tell(UPDATED, till.subscription(status=theirs), till.now + 1)
    assert await till.status() == ours


async def test_a_change_changes_plan_status_and_period(till: Till) -> None:
    await till.tell(CREATED, till.subscription())
    end = till.ends + DAY
    await till.tell(UPDATED, till.subscription(status="past_due", price="price_silver", current_period_end=end), till.now + 1)
    [(status, plan, ends)] = await till.rows()
    assert (status, plan, ends) == ("past_due", "Silver", "2026-04-14T15:09:26Z")
    assert await till.recorded() == ["subscription.created", "subscription.updated"]
    await till.tell(UPDATED, till.subscription(price="price_of_nothing", current_period_end=end), till.now + 2)
    assert [row[:2] for row in await till.rows()] == [("active", "Silver")], "whose price nobody has, it stays what it was"


async def test_newer_versions_have_the_period_with_the_item(till: Till) -> None:
    about = till.subscription(current_period_end=None)
    about["items"]["data"][0]["current_period_end"] = till.ends
    await till.tell(CREATED, about)
    assert (await till.rows())[0][2] == "2026-04-13T15:09:26Z"


async def test_a_deletion_is_final(till: Till) -> None:
    await till.tell(CREATED, till.subscription())
    await till.tell(DELETED, till.subscription(status="canceled"), till.now + 1)
    assert await till.status() == "cancelled"
    await till.tell(UPDATED, till.subscription(), till.now + 2)
    await till.tell("invoice.paid", invoice("sub_1", till.ends), till.now + 3)
    await till.tell("invoice.payment_failed", invoice("sub_1"), till.now + 4)
    assert await till.status() == "cancelled"
    assert await till.recorded() == ["subscription.created", "subscription.canceled"]


async def test_older_news_changes_nothing_and_equally_old_does(till: Till) -> None:
    await till.tell(CREATED, till.subscription())
    await till.tell(UPDATED, till.subscription(status="past_due"), till.now + 10)
    await till.tell(UPDATED, till.subscription(status="active"), till.now + 9)
    assert await till.status() == "past_due"
    await till.tell(UPDATED, till.subscription(status="active"), till.now + 10)
    assert await till.status() == "active"
    await till.tell("invoice.payment_failed", invoice("sub_1"), till.now + 9)
    assert await till.status() == "active"
    await till.tell("invoice.payment_failed", invoice("sub_1"), till.now + 10)
    assert await till.status() == "past_due"
    await till.tell(CREATED, till.subscription(status="active"), till.now + 10)
    assert await till.status() == "past_due", "its creation is older than all else of that second"


async def test_invoices_say_whether_it_is_paid(till: Till) -> None:
    await till.tell(CREATED, till.subscription())
    await till.tell("invoice.payment_failed", invoice("sub_1"), till.now + 1)
    assert await till.status() == "past_due"
    await till.tell("invoice.paid", invoice("sub_1", till.ends + 30 * DAY), till.now + 2)
    [(status, _, ends)] = await till.rows()
    assert (status, ends) == ("active", "2026-05-13T15:09:26Z"), "and the period is longer"
    newer = {"parent": {"subscription_details": {"subscription": "sub_1"}}}
    await till.tell("invoice.payment_failed", {**invoice(None), **newer}, till.now + 3)
    assert await till.status() == "past_due", "also where newer versions say what it is for"


async def test_an_invoice_before_its_subscription_is_not_lost(till: Till) -> None:
    await till.tell("invoice.paid", invoice("sub_1", till.ends + DAY), till.now + 1)
    assert await till.rows() == []
    await till.tell(CREATED, till.subscription(status="incomplete"))
    [(status, _, ends)] = await till.rows()
    assert (status, ends) == ("active", "2026-04-14T15:09:26Z")


@pytest.mark.parametrize("metadata", [{}, {"plan_id": "x"}, {"user_id": None}, None, "text", 5])
async def test_without_metadata_it_is_kept_until_somebody_says_whose_it_is(till: Till, metadata: Any) -> None:
    said = till.metadata(**metadata) if metadata and isinstance(metadata, dict) else metadata
    await till.tell(CREATED, till.subscription(metadata=said))
    await till.tell("invoice.payment_failed", invoice("sub_1"), till.now + 2)
    assert await till.rows() == []
    await till.tell(UPDATED, till.subscription(), till.now + 1)
    assert await till.status() == "past_due"


async def test_events_without_metadata_are_about_what_is_known_by_its_id(till: Till) -> None:
    await till.tell(CREATED, till.subscription())
    await till.tell(UPDATED, till.subscription(metadata={}, status="unpaid"), till.now + 1)
    assert await till.status() == "past_due"


async def test_an_event_has_its_effect_once(till: Till, pool: Pool) -> None:
    one = event(CREATED, till.subscription(), till.now)
    other = event(UPDATED, till.subscription(status="past_due"), till.now + 1)
    for each in (one, other, one, {**one, "created": till.now + 5}, other):
        assert (await till.send(each)).json == {"status": "success"}
    assert await till.status() == "past_due"
    assert await till.recorded() == ["subscription.created", "subscription.updated"]


async def test_what_failed_leaves_nothing_so_that_it_can_come_again(till: Till, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    one, before = event(CREATED, till.subscription(), till.now), await traces(till)
    with monkeypatch.context() as patch:
        patch.setattr(events, "subscription_created", broken)
        answer = await till.send(one)
    assert refused(answer) == (500, "INTERNAL_SERVER_ERROR")
    assert await traces(till) == before
    assert await till.sent(one) == 200
    assert await till.status() == "active"


# Whose it is


@pytest.mark.parametrize(
    ("what", "of"),
    # Whoever else there is can have bought it.
    [
        *((what, "nobody") for what in ("org_id", "service_id", "user_id", "plan_id")),
        *((w, "another") for w in ("org_id", "service_id", "plan_id")),
    ],
)
async def test_what_does_not_agree_in_itself_is_acknowledged_without_effect(
    till: Till, twin: Tenant, clock: FakeClock, what: str, of: str
) -> None:
    other = await open_till(twin, clock)
    wrong = str(uuid4()) if of == "nobody" else other.metadata()[what]
    await till.tell(CREATED, till.subscription(metadata=till.metadata(**{what: wrong})))
    assert await till.rows() == []
    assert await till.recorded() == []


async def test_an_update_that_names_the_plan_of_another_service_is_without_effect(till: Till, twin: Tenant, clock: FakeClock) -> None:
    other = await open_till(twin, clock)
    await till.tell(CREATED, till.subscription())
    for plan, status in ((other.gold, "active"), (till.silver, "past_due")):
        metadata = till.metadata(plan_id=plan)
        await till.tell(UPDATED, till.subscription(metadata=metadata, status="past_due"), till.now + 1)
        assert await till.status() == status


async def test_a_trial_that_is_over_is_not_told_to_end_soon(till: Till, pool: Pool) -> None:
    await till.tell(CREATED, till.subscription(status="trialing"))
    await till.tell(UPDATED, till.subscription(), till.now + 10)
    await till.tell("customer.subscription.trial_will_end", till.subscription(status="trialing"), till.now + 5)
    assert await run_sql(pool, "select 1 from mails") == []


async def test_a_trial_that_ended_before_that_is_told_is_not_told_to_end_soon(till: Till, pool: Pool) -> None:
    await till.tell(CREATED, till.subscription(status="trialing"))
    for ends, mails in ((till.now - DAY, 0), (till.now, 0), (till.now + DAY, 1)):
        await till.tell("customer.subscription.trial_will_end", till.subscription(status="trialing", trial_end=ends), till.now - 3 * DAY)
        assert len(await run_sql(pool, "select 1 from mails")) == mails


async def test_what_is_bought_once_on_the_same_invoice_does_not_prolong_it(till: Till) -> None:
    await till.tell(CREATED, till.subscription())
    bill = invoice("sub_1", till.ends + DAY)
    bill["lines"]["data"].append({"id": "il_2", "type": "invoiceitem", "period": {"start": 0, "end": till.ends + 300 * DAY}})
    await till.tell("invoice.paid", bill, till.now + 1)
    assert await till.rows() == [("active", "Gold", "2026-04-14T15:09:26Z")]


async def test_a_checkout_that_nobody_has_paid_for_does_not_make_any_price_right(till: Till, pool: Pool) -> None:
    checkout = """
        insert into billing_checkouts (id, org_id, service_id, user_id, plan_id, price_id, created_at)
        values (gen_random_uuid(), %(org_id)s, %(service_id)s, %(user_id)s, %(plan_id)s, 'price_before', now())"""
    async with pool.connection() as connection:
        await connection.execute(checkout, till.metadata())
    for price, status in (("price_of_nothing", None), ("price_before", "active")):
        await till.tell(CREATED, till.subscription(price=price))
        assert await till.status() == status


async def test_the_price_must_be_the_plans(till: Till) -> None:
    for price in ("price_silver", "price_of_nothing", None):
        await till.tell(CREATED, till.subscription(price=price))
        assert await till.rows() == []


async def test_a_customer_of_another_organization_buys_nothing(till: Till, twin: Tenant, pool: Pool) -> None:
    customer = "insert into billing_customers (org_id, idempotency_key, customer_id, created_at) values (%s, gen_random_uuid(), %s, now())"
    await run_sql(pool, customer, twin.org, "cus_twin")
    await till.tell(CREATED, till.subscription(customer="cus_twin"))
    assert await till.rows() == []
    await run_sql(pool, customer, till.tenant.org, "cus_1")
    await till.tell(CREATED, till.subscription(customer="cus_else"), till.now + 1)
    assert await till.rows() == []
    await till.tell(CREATED, till.subscription(), till.now + 2)
    assert await till.status() == "active"


async def test_nothing_moves_it_elsewhere(till: Till, twin: Tenant, clock: FakeClock, pool: Pool) -> None:
    other = await open_till(twin, clock)
    await till.tell(CREATED, till.subscription())
    before = await run_sql(pool, "select * from subscriptions")
    facts = await run_sql(pool, "select status, customer_id, org_id from billing_facts")
    for changes in (
        {"metadata": other.metadata()},
        {"metadata": till.metadata(user_id=twin.id("member"))},
        {"metadata": till.metadata(service_id=other.service)},
        {"customer": "cus_2"},
    ):
        for type_, status in ((UPDATED, "past_due"), (DELETED, "canceled")):
            await till.tell(type_, till.subscription(status=status, **changes), till.now + 1)
    await till.tell("invoice.payment_failed", invoice("sub_1", customer="cus_2"), till.now + 1)
    assert await run_sql(pool, "select * from subscriptions") == before
    assert await run_sql(pool, "select status, customer_id, org_id from billing_facts") == facts


async def test_a_second_subscription_waits_until_the_first_has_ended(till: Till) -> None:
    await till.tell(CREATED, till.subscription())
    second = till.subscription("sub_2", price="price_silver", metadata=till.metadata(plan_id=till.silver))
    await till.tell(CREATED, second, till.now + 1)
    await till.tell("invoice.paid", invoice("sub_2", till.ends), till.now + 2)
    assert [row[:2] for row in await till.rows()] == [("active", "Gold")]
    await till.tell(DELETED, till.subscription(status="canceled"), till.now + 3)
    await till.tell(UPDATED, second, till.now + 4)
    assert sorted(row[:2] for row in await till.rows()) == [("active", "Silver"), ("cancelled", "Gold")]


async def test_one_that_comes_to_life_beside_another_waits_as_well(till: Till) -> None:
    await till.tell(CREATED, till.subscription(status="incomplete_expired"))
    await till.tell(CREATED, till.subscription("sub_2"), till.now + 1)
    await till.tell(UPDATED, till.subscription(status="active"), till.now + 2)
    assert sorted(row[0] for row in await till.rows()) == ["active", "expired"]
    await till.tell(DELETED, till.subscription("sub_2", status="canceled"), till.now + 3)
    await till.tell(UPDATED, till.subscription(status="active"), till.now + 4)
    assert sorted(row[0] for row in await till.rows()) == ["active", "cancelled"]


async def test_one_that_ran_out_makes_room(till: Till, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    member = till.tenant.people["member"].id
    await add_subscription(ports, pool, till.service, member, till.silver, ends=clock.now())
    await till.tell(CREATED, till.subscription())
    assert sorted(row[:2] for row in await till.rows()) == [("active", "Gold"), ("expired", "Silver")]


async def test_what_an_api_key_made_of_it_stays_until_there_is_news(till: Till, pool: Pool) -> None:
    await till.tell(CREATED, till.subscription())
    await run_sql(pool, "update subscriptions set status = 'expired'")
    await till.tell(UPDATED, till.subscription(), till.now + 1)
    assert await till.status() == "expired", "it says nothing that was not known"
    await till.tell(UPDATED, till.subscription(status="past_due"), till.now + 2)
    assert await till.status() == "past_due"


async def test_newer_news_of_its_status_counts_whatever_a_key_has_made_of_it(till: Till) -> None:
    """Though it may be what was known before; but not what comes again, or is older, or says of it what was said."""
    start, ends = till.now, till.ends
    await till.tell(CREATED, till.subscription())
    await till.tell("invoice.paid", invoice("sub_1", ends), start + 1)
    past_due, unpaid = (till.subscription(status=status, current_period_end=ends) for status in ("past_due", "unpaid"))
    failed, paid = invoice("sub_1"), invoice("sub_1", ends)
    for at, type_, about, theirs, ours in (
        (10, "invoice.payment_failed", failed, "past_due", "active"),
        (20, "invoice.payment_failed", failed, "past_due", "active"),
        (30, UPDATED, past_due, "past_due", "active"),
        (40, UPDATED, unpaid, "past_due", "active"),
        (50, "invoice.paid", paid, "active", "past_due"),
        (60, "invoice.paid", paid, "active", "past_due"),
    ):
        assert (await till.by_key(status=ours)).status == 200
        assert await effects(till, type_, about, start + at) == ["done"]
        assert await till.status() == theirs
        assert (await till.by_key(status=ours)).status == 200
        for again in (start + at, start + at - 1):
            assert await effects(till, type_, about, again) == ["unchanged"]
        if type_ == UPDATED:
            assert await effects(till, type_, about, start + at + 1) == ["unchanged"]
        assert await till.status() == ours


async def effects(till: Till, type_: str, about: Any, at: int) -> list[str]:
    """What the operator is told of an event."""
    with capture_logs() as logs:
        await till.tell(type_, about, at)
    return [line["effect"] for line in logs if line["event"] == "billing_event"]


async def test_news_changes_only_what_it_is_about_of_what_an_api_key_has_set(till: Till) -> None:
    await till.tell(CREATED, till.subscription())
    assert (await till.by_key(plan_id=str(till.silver))).status == 200
    await till.tell("invoice.paid", invoice("sub_1", till.ends + 30 * DAY), till.now + 1)
    assert await till.rows() == [("active", "Silver", "2026-05-13T15:09:26Z")], "an invoice says nothing of the plan"
    assert (await till.by_key(current_period_end="2026-12-24T00:00:00Z")).status == 200
    await till.tell("invoice.payment_failed", invoice("sub_1"), till.now + 2)
    assert await till.rows() == [("past_due", "Silver", "2026-12-24T00:00:00Z")], "nor this one of the period"
    await till.tell(UPDATED, till.subscription(current_period_end=till.ends + DAY), till.now + 3)
    assert await till.rows() == [("active", "Silver", "2026-04-14T15:09:26Z")], "the price is no news"
    for price, plan in (("price_silver", "Silver"), ("price_gold", "Gold")):
        await till.tell(UPDATED, till.subscription(price=price, current_period_end=till.ends + DAY), till.now + 4)
        assert [row[1] for row in await till.rows()] == [plan]


async def test_a_price_that_no_plan_of_the_service_has_is_told_once_and_changes_no_plan(
    till: Till, twin: Tenant, clock: FakeClock, pool: Pool
) -> None:
    other = await add_service(pool, till.tenant.org, "other")
    await add_plan(pool, other, price="price_other")
    await open_till(twin, clock)
    await run_sql(pool, "update plans set billing_price_id = 'price_twin' where org_id = %s", twin.org)
    await till.tell(CREATED, till.subscription())
    for number, price in enumerate(("price_of_nothing", "price_other", "price_twin")):
        changed = till.subscription(price=price, status=("past_due", "active")[number % 2])
        assert await effects(till, UPDATED, changed, till.now + 2 * number + 1) == ["mismatch"]
        assert [row[:2] for row in await till.rows()] == [(changed["status"], "Gold")]
        assert await effects(till, UPDATED, changed, till.now + 2 * number + 2) == ["unchanged"]
    assert await effects(till, UPDATED, till.subscription(price="price_silver", status="past_due"), till.now + 10) == ["done"]
    assert [row[:2] for row in await till.rows()] == [("past_due", "Silver")]


@pytest.mark.parametrize("theirs", ["canceled", "incomplete_expired"])
async def test_what_is_over_at_the_provider_is_the_organizations_own_when_a_key_makes_it_live_again(
    till: Till, ports: Ports, pool: Pool, theirs: str
) -> None:
    await till.tell(CREATED, till.subscription())
    await till.tell(DELETED if theirs == "canceled" else UPDATED, till.subscription(status=theirs), till.now + 1)
    assert (await till.by_key(status="active")).status == 200
    before = await till.rows()
    assert [row[0] for row in before] == ["active"]
    assert await run_sql(pool, "select provider_subscription_id from subscriptions") == [(None,)]
    # What still comes of the old one finds nothing, and somebody who goes on paying for it is told of.
    told = "not_managed_here" if theirs == "canceled" else "mismatch"
    assert await effects(till, UPDATED, till.subscription(status="past_due"), till.now + 2) == [told]
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


async def test_what_lives_at_the_provider_stays_there_when_a_key_makes_it_live_again(till: Till, pool: Pool) -> None:
    await till.tell(CREATED, till.subscription())
    for status in ("cancelled", "expired"):
        assert (await till.by_key(status=status)).status == 200
        assert (await till.by_key(status="active")).status == 200
    assert await run_sql(pool, "select provider_subscription_id from subscriptions") == [("sub_1",)]
    await till.tell(UPDATED, till.subscription(status="past_due"), till.now + 1)
    assert await till.status() == "past_due"


async def test_it_goes_on_while_the_organization_is_suspended(till: Till, pool: Pool) -> None:
    await till.tell(CREATED, till.subscription())
    await run_sql(pool, "update organizations set status = 'suspended'")
    await till.tell(UPDATED, till.subscription(status="past_due"), till.now + 1)
    await till.tell(CREATED, till.subscription("sub_2", metadata=till.metadata(user_id=till.tenant.id("owner"))))
    assert sorted(row[0] for row in await till.rows()) == ["active", "past_due"]


async def test_of_a_service_that_is_gone_nothing_comes_back(till: Till, pool: Pool) -> None:
    await till.tell(CREATED, till.subscription())
    await run_sql(pool, "delete from services")
    await till.tell(UPDATED, till.subscription(status="past_due"), till.now + 1)
    await till.tell(CREATED, till.subscription("sub_2"))
    assert await till.rows() == []


# Mails


async def test_whoever_has_a_trial_is_told_that_it_ends(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    await till.tell(CREATED, till.subscription(status="trialing"))
    await till.tell("customer.subscription.trial_will_end", till.subscription(status="trialing"), till.now + 1)
    await deliver(ports)
    [letter] = sent.letters
    assert (letter.to, "trial" in letter.subject) == (till.tenant.people["member"].email, True)
    for said in (letter.text, letter.html):
        assert "to the plan Gold of Shop at Acme" in said
        assert "Unless it was cancelled" in said
        assert "those who run the application" in said


async def test_whoever_must_complete_a_payment_is_told(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    await till.tell(CREATED, till.subscription())
    one = event("invoice.payment_action_required", invoice("sub_1"), till.now + 1)
    assert [await till.sent(one) for _ in range(3)] == [200] * 3
    await deliver(ports)
    [letter] = sent.letters
    assert (letter.to, "payment" in letter.subject) == (till.tenant.people["member"].email, True)
    assert "to the plan Gold of Shop at Acme" in letter.text
    assert await till.status() == "active"


async def test_where_that_is_done_is_told_if_the_provider_says_so(till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    await till.tell(CREATED, till.subscription())
    for url in (PAGE, "http://invoice.provider.example/i/1"):
        await till.tell("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=url), till.now + 1)
    await deliver(ports)
    with_link, without = sorted(sent.letters, key=lambda letter: PAGE not in letter.text)
    assert PAGE in with_link.text.splitlines()
    assert with_link.html.count(f'href="{PAGE}"') == 2
    assert "://" not in without.text
    assert await run_sql(pool, "select distinct token from mails") == [(None,)], "whoever has it may open the invoice"


async def test_that_is_not_lost_before_it_is_known_whose_it_is_and_not_told_when_it_is_done(
    till: Till, ports: Ports, sent: FakeMailTransport
) -> None:
    for number, paid in ((1, None), (2, till.now + 2)):
        id_ = f"sub_{number}"
        await till.tell("invoice.payment_action_required", invoice(id_), till.now + 1)
        if paid is not None:
            await till.tell("invoice.paid", invoice(id_), paid)
        name = ("member", "owner")[number - 1]
        await till.tell(CREATED, till.subscription(id_, status="incomplete", metadata=till.metadata(user_id=till.tenant.id(name))))
    await deliver(ports)
    assert [letter.to for letter in sent.letters] == [till.tenant.people["member"].email]


async def kept_pages(pool: Pool) -> list[bytes]:
    return [page for (page,) in await run_sql(pool, "select action_page from billing_facts where action_page is not null")]


async def test_where_that_is_done_is_kept_sealed_until_it_is_known_whom_to_tell(
    till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport
) -> None:
    for at, page in ((till.now + 2, PAGE), (till.now + 1, f"{PAGE}&old")):
        await till.tell("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=page), at)
    await till.tell("customer.subscription.updated", till.subscription(status="incomplete", metadata={}), till.now)
    [sealed] = await kept_pages(pool)
    assert b"provider" not in sealed
    await till.tell(CREATED, till.subscription(status="incomplete"))
    await deliver(ports)
    [letter] = sent.letters
    assert PAGE in letter.text.splitlines()
    assert await kept_pages(pool) == []


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("over", ["invoice.paid", DELETED])
async def test_nothing_is_kept_of_where_something_was_to_be_done(till: Till, pool: Pool, over: str, order: int) -> None:
    about = invoice("sub_1") if over == "invoice.paid" else till.subscription(status="canceled", metadata={})
    waits = event("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=PAGE), till.now + 1)
    for one in [waits, event(over, about, till.now + 2)][::order]:
        assert await till.sent(one) == 200
    assert await kept_pages(pool) == []


async def test_where_something_is_done_is_forgotten_with_what_is_ended(till: Till, ports: Ports, pool: Pool) -> None:
    await till.tell("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=PAGE))
    assert len(await kept_pages(pool)) == 1
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.billing.mark_ended("sub_1", till.clock.now())
    assert await kept_pages(pool) == []


async def test_a_page_that_cannot_be_read_any_more_stops_nothing(till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    await till.tell("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=PAGE))
    await run_sql(pool, "update billing_facts set action_page = 'broken'")
    await till.tell(CREATED, till.subscription(status="incomplete"))
    await deliver(ports)
    [letter] = sent.letters
    assert "://" not in letter.text


@pytest.mark.parametrize("status", ["paid", "void", "uncollectible"])
@pytest.mark.parametrize("is_first", [True, False])
async def test_nobody_has_to_complete_what_the_invoice_says_is_settled(
    till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport, status: str, *, is_first: bool
) -> None:
    told = event("invoice.payment_action_required", invoice("sub_1", status=status, hosted_invoice_url=PAGE), till.now + 1)
    for one in [told, event(CREATED, till.subscription(status="incomplete"), till.now)][:: 1 if is_first else -1]:
        assert await till.sent(one) == 200
    await deliver(ports)
    assert sent.letters == []
    assert await kept_pages(pool) == []


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("newest", ["active", "incomplete"])
async def test_nobody_has_to_complete_what_was_before_it_was_active(
    till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport, order: tuple[int, ...], newest: str
) -> None:
    facts = [
        event(CREATED, till.subscription(status="incomplete"), till.now - 50),
        event(UPDATED, till.subscription(status=newest), till.now - 10),
        event("invoice.payment_action_required", invoice("sub_1", hosted_invoice_url=PAGE), till.now - 40),
    ]
    for number in order:
        assert await till.sent(facts[number]) == 200
    await deliver(ports)
    # Where that it is active is heard last of all, they are told before, and may find that it is done.
    assert len(sent.letters) == int(newest == "incomplete" or order[-1] == 1)
    assert await kept_pages(pool) == []


async def test_an_older_payment_that_was_made_is_not_to_be_completed_because_a_newer_one_is(
    till: Till, ports: Ports, sent: FakeMailTransport
) -> None:
    await till.tell(CREATED, till.subscription(), till.now - 50)
    await till.tell("invoice.paid", invoice("sub_1"), till.now - 30)
    for at in (-20, -40):
        await till.tell("invoice.payment_action_required", invoice("sub_1"), till.now + at)
    await deliver(ports)
    assert len(sent.letters) == 1


async def test_nobody_is_written_to_about_what_is_over_or_nobodys(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    await till.tell(CREATED, till.subscription())
    await till.tell(DELETED, till.subscription(status="canceled"))
    for about in (till.subscription(status="canceled"), subscription("sub_2")):
        await till.tell("customer.subscription.trial_will_end", about, till.now + 1)
    for id_ in ("sub_1", "sub_2", None):
        await till.tell("invoice.payment_action_required", invoice(id_), till.now + 1)
    await deliver(ports)
    assert sent.letters == []


async def test_nor_about_what_has_ended_before_the_mail_went_out(till: Till, ports: Ports, pool: Pool, sent: FakeMailTransport) -> None:
    await till.tell(CREATED, till.subscription())
    await till.tell("invoice.payment_action_required", invoice("sub_1"), till.now + 1)
    await till.tell(DELETED, till.subscription(status="canceled"), till.now + 2)
    await deliver(ports)
    assert sent.letters == []
    assert await run_sql(pool, "select outcome from mails") == [("dropped",)]


# Customers and how they pay


async def customers(pool: Pool) -> list[tuple[Any, ...]]:
    return await run_sql(
        pool,
        """
        select org_id, customer_id, user_id::text, payment_method_id
        from billing_customers left join billing_default_payment_methods using (org_id) order by customer_id""",
    )


async def test_a_customer_is_the_organizations_and_linked_to_whom_it_names(till: Till, twin: Tenant, pool: Pool) -> None:
    org, member = till.tenant.org, till.tenant.id("member")
    about = {"id": "cus_1", "metadata": {"org_id": str(org), "user_id": member}}
    await till.tell("customer.created", about)
    assert await customers(pool) == [(org, "cus_1", member, None)]
    await till.tell("customer.updated", {"id": "cus_1", "metadata": {"user_id": till.tenant.id("owner")}}, till.now + 2)
    await till.tell("customer.updated", about, till.now + 1)
    assert await customers(pool) == [(org, "cus_1", till.tenant.id("owner"), None)]
    await till.tell("customer.updated", {"id": "cus_1", "metadata": {"user_id": str(uuid4())}}, till.now + 3)
    assert await customers(pool) == [(org, "cus_1", None, None)]
    for wrong in ({"id": "cus_2", "metadata": about["metadata"]}, {"id": "cus_1", "metadata": {"org_id": str(twin.org)}},
                  {"id": "cus_3", "metadata": {"org_id": str(uuid4())}}, {"id": "cus_4"}):  # fmt: skip
        await till.tell("customer.created", wrong, till.now + 4)
    assert await customers(pool) == [(org, "cus_1", None, None)]


async def test_a_customer_that_is_deleted_is_none_any_more(till: Till, twin: Tenant, pool: Pool) -> None:
    about = {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}}
    await till.tell("customer.created", about)
    await till.tell(CREATED, till.subscription())
    [(key,)] = await run_sql(pool, "select idempotency_key from billing_customers")
    await till.tell("customer.deleted", {**about, "metadata": {"org_id": str(twin.org)}}, till.now + 5)
    assert await customers(pool) == [(till.tenant.org, "cus_1", None, None)], "what it says does not agree with what is stored"
    assert await run_sql(pool, "select 1 from billing_facts where check_at <= %s", till.clock.now()) == []
    await till.tell("customer.deleted", about, till.now + 5)
    assert await customers(pool) == [(till.tenant.org, None, None, None)]
    assert await run_sql(pool, "select 1 from billing_customers where idempotency_key = %s", key) == [], "another one is made next time"
    assert await till.status() == "active", "the provider tells of each by itself, and is asked"
    assert await run_sql(pool, "select provider_subscription_id from billing_facts where check_at <= %s", till.clock.now()) == [("sub_1",)]
    await till.tell("customer.updated", about, till.now + 4)
    assert await customers(pool) == [(till.tenant.org, None, None, None)]


@pytest.mark.parametrize("named", [True, False])
async def test_a_customer_that_was_deleted_does_not_come_back_by_the_news_that_it_was_made(till: Till, pool: Pool, *, named: bool) -> None:
    """Whether the deletion says whose it was or not, and whichever it says was first: a name is never given a second time."""
    about = {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}}
    await till.tell("customer.deleted", about if named else {"id": "cus_1"}, till.now + 5)
    for at in (till.now, till.now + 5, till.now + 6):
        await till.tell("customer.created", about, at)
        assert await customers(pool) == []
    await till.tell("customer.created", {**about, "id": "cus_2"}, till.now + 1)
    assert await customers(pool) == [(till.tenant.org, "cus_2", None, None)]
    await till.tell("customer.deleted", about, till.now + 7)
    assert await customers(pool) == [(till.tenant.org, "cus_2", None, None)], "that was about the other one"


async def test_a_deletion_that_is_older_than_the_last_news_of_a_customer_counts(till: Till, pool: Pool) -> None:
    about = {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org), "user_id": till.tenant.id("member")}}
    await till.tell("customer.created", about, till.now + 5)
    await till.tell("customer.deleted", {"id": "cus_1"}, till.now)
    await till.tell("customer.updated", about, till.now + 6)
    assert await customers(pool) == [(till.tenant.org, None, None, None)]
    await till.tell("customer.created", {**about, "id": "cus_2"}, till.now + 1)
    assert await customers(pool) == [(till.tenant.org, "cus_2", till.tenant.id("member"), None)], "what the other one was is over"


async def test_a_customer_that_is_made_and_deleted_at_once_is_nobodys(till: Till, pool: Pool) -> None:
    for number in range(10):
        about = {"id": f"cus_{number}", "metadata": {"org_id": str(till.tenant.org)}}
        both = [event("customer.created", about, till.now), event("customer.deleted", {"id": about["id"]}, till.now + 1)]
        assert await everyone(2, lambda each, both=both: till.sent(both[each])) == [200] * 2  # type: ignore[misc]
        assert [row[1] for row in await customers(pool)] in ([], [None])


async def test_what_the_customer_pays_with_is_known(till: Till, pool: Pool) -> None:
    await till.tell("customer.created", {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}})

    async def method() -> object:
        return (await customers(pool))[0][3]

    await till.tell("payment_method.attached", {"id": "pm_1", "customer": "cus_1"}, till.now + 1)
    assert await method() == "pm_1"
    await till.tell("payment_method.attached", {"id": "pm_3", "customer": "cus_1"}, till.now + 3)
    await till.tell("payment_method.attached", {"id": "pm_2", "customer": "cus_1"}, till.now + 2)
    await till.tell("payment_method.detached", {"id": "pm_1", "customer": None}, till.now + 4)
    assert await method() == "pm_3"
    await till.tell("payment_method.detached", {"id": "pm_3", "customer": None}, till.now + 4)
    assert await method() == "pm_2", "which is still there"
    await till.tell("payment_method.detached", {"id": "pm_2", "customer": None}, till.now + 4)
    assert await method() is None
    await till.tell("payment_method.attached", {"id": "pm_4", "customer": "cus_9"}, till.now + 4)
    await till.tell("payment_method.attached", {"id": "pm_4"}, till.now + 4)
    assert await method() is None


async def test_what_was_detached_does_not_come_back_by_the_news_that_it_was_attached(till: Till, pool: Pool) -> None:
    await till.tell("customer.created", {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}})
    gone = event("payment_method.detached", {"id": "pm_1", "customer": None}, till.now + 2)
    gone["data"]["previous_attributes"] = {"customer": "cus_1"}
    assert await till.sent(gone) == 200
    for at in (till.now + 1, till.now + 2):
        await till.tell("payment_method.attached", {"id": "pm_1", "customer": "cus_1"}, at)
        assert (await customers(pool))[0][3] is None
    await till.tell("payment_method.attached", {"id": "pm_1", "customer": "cus_1"}, till.now + 3)
    assert (await customers(pool))[0][3] == "pm_1"


async def test_what_a_customer_pays_with_may_be_heard_of_before_whose_customer_it_is(till: Till, pool: Pool) -> None:
    await till.tell("payment_method.attached", {"id": "pm_1", "customer": "cus_1"})
    await till.tell("customer.created", {"id": "cus_1", "metadata": {"org_id": str(till.tenant.org)}})
    assert (await customers(pool))[0][3] == "pm_1"


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
async def test_what_is_paid_stays_paid_until_its_end(till: Till, order: tuple[int, ...]) -> None:
    """Whichever of these comes first; but what the provider says of it since then is how it is now."""
    facts = [
        event(CREATED, till.subscription(current_period_end=till.now), till.now),
        event("invoice.paid", invoice("sub_1", till.now + 30 * DAY), till.now + 1),
        event("invoice.paid", invoice("sub_1", till.now + 20 * DAY), till.now + 2),
        event("invoice.paid", invoice("sub_1", till.now + 10 * DAY), till.now + 3),
    ]
    start = till.clock.now()
    for number in order:
        assert await till.sent(facts[number]) == 200

    async def days() -> int:
        [(end,)] = await run_sql(till.tenant.pool, "select current_period_end from subscriptions")
        return int((end - start).days)

    assert await days() == 29
    await till.tell(UPDATED, till.subscription(current_period_end=till.now + DAY), till.now + 2)
    assert await days() == 19, "the longest was paid before that"
    await till.tell(UPDATED, till.subscription(current_period_end=till.now + DAY), till.now + 4)
    assert await days() == 0


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_what_is_known_of_the_period_stays_known(till: Till, order: tuple[int, ...]) -> None:
    """When a newer object says nothing of it; and an invoice that is for less takes nothing away."""
    facts = [
        event(CREATED, till.subscription(), till.now),
        event(UPDATED, till.subscription(current_period_end=None), till.now + 1),
        event("invoice.paid", invoice("sub_1", till.now - DAY), till.now + 2),
    ]
    ends = datetime.fromtimestamp(till.ends, UTC)
    for number in order:
        assert await till.sent(facts[number]) == 200
    assert await run_sql(till.tenant.pool, "select current_period_end from subscriptions") == [(ends,)]


# At once


async def test_of_one_event_that_comes_twenty_times_at_once_there_is_one_effect(till: Till, ports: Ports, sent: FakeMailTransport) -> None:
    await till.tell(CREATED, till.subscription())
    one = event("invoice.payment_action_required", invoice("sub_1"), till.now)
    assert await everyone(20, lambda _: till.sent(one)) == [200] * 20
    await deliver(ports)
    assert len(sent.letters) == 1
    other = event(UPDATED, till.subscription(status="past_due"), till.now + 1)
    assert await everyone(20, lambda _: till.sent(other)) == [200] * 20
    assert await till.recorded() == ["subscription.created", "subscription.updated"]


async def test_all_events_of_a_subscription_at_once_end_in_one_state(till: Till, pool: Pool) -> None:
    events = [
        event(CREATED, till.subscription(status="incomplete"), till.now),
        event("invoice.paid", invoice("sub_1", till.ends), till.now),
        event(UPDATED, till.subscription(), till.now + 1),
        event(UPDATED, till.subscription(price="price_silver"), till.now + 2),
        event("invoice.payment_failed", invoice("sub_1"), till.now + 3),
        event("customer.subscription.trial_will_end", till.subscription(price="price_silver"), till.now + 2),
    ]
    assert await everyone(18, lambda number: till.sent(events[number % 6])) == [200] * 18
    assert [row[:2] for row in await till.rows()] == [("past_due", "Silver")]
    assert await run_sql(pool, "select subscription_count from services") == [(1,)]


async def test_of_two_that_are_bought_at_once_one_lives(till: Till) -> None:
    events = [event(CREATED, till.subscription(f"sub_{number}"), till.now) for number in range(8)]
    assert await everyone(8, lambda number: till.sent(events[number])) == [200] * 8
    assert [row[0] for row in await till.rows()] == ["active"]


@pytest.mark.parametrize("edge", [{"rate_limit_factor": 1.0}], indirect=True)
@pytest.mark.slow
async def test_a_hundred_may_come_at_once_and_then_a_thousand_a_minute(till: Till, api: Api, clock: FakeClock) -> None:
    async def ask() -> Answer:
        return await api.call("POST", RECEIVER, raw=b"{}")

    assert [(await ask()).status for _ in range(100)] == [400] * 100
    answer = await ask()
    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    clock.advance(timedelta(seconds=0.3))
    assert [(await ask()).status for _ in range(6)] == [400] * 5 + [429]


async def test_an_account_that_is_gone_is_nobody(till: Till, ports: Ports, pool: Pool) -> None:
    account = await add_account(ports, "gone@example.com", None)
    await run_sql(pool, "delete from users where id = %s", account.id)
    await till.tell(CREATED, till.subscription(metadata=till.metadata(user_id=account.id)))
    assert await till.rows() == []
