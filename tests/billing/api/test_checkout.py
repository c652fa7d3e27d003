"""Hosted checkout over HTTP, from the page that is opened to the subscription that comes of it; and what is ended at the provider when it
is ended here (organizations.md sections 2.11, 4.1 and 7; decisions, points 115, 159, 162 to 164 and 229; security.md H-5, H-6 and Z-6)."""

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import jwt
import pytest
import trio
from structlog.testing import capture_logs

from adapters.http.payments import HttpPayments
from adapters.postgres.engine.pool import Pool
from core.applications import cancellations, cancellations_rules
from core.billing import reconciliation, reconciliation_rules
from core.billing.provider_facts import SOON
from core.kernel.errors import StorageDown
from core.kernel.principals import SYSTEM
from core.kernel.values import new_id
from entrypoints.http.app import Edge
from ports import Ports
from tests.billing.api.billing import Till, open_till
from tests.fakes.http_server import TRAP, in_json
from tests.fakes.http_server import Answer as Said
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.fakes.payments import API_KEY, SECRET, FakePayments, Object, event
from tests.support.builders import Answer, add_account, everyone, make_edge, make_ports, run_sql
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.services import add_plan, add_service, add_subscription, sign_in_to
from tests.support.tenants import Tenant
from tests.support.waiting import eventually

SECOND = timedelta(seconds=1)
OFF = (500, "BILLING_ERROR")
INACTIVE = (403, "ORGANIZATION_NOT_ACTIVE")


@pytest.fixture
def provider(clock: FakeClock) -> Iterator[FakePayments]:
    with FakePayments(now=lambda: clock.now().timestamp()) as running:
        yield running


@pytest.fixture
async def ports(pool: Pool, clock: FakeClock, sent: FakeMailTransport, metrics: FakeMetrics, provider: FakePayments) -> Ports:
    return await make_ports(pool, clock, sent, metrics, payments=HttpPayments(provider.settings, clock))


@pytest.fixture
def edge() -> Edge:
    return make_edge(billing_secrets=(SECRET,))


@pytest.fixture
async def till(acme: Tenant, clock: FakeClock) -> Till:
    return await open_till(acme, clock)


async def begun(till: Till, **changes: Any) -> str:
    """The id of the session at the provider."""
    answer = await till.begin(**changes)
    assert answer.status == 200, answer.text
    return str(answer.json["session_id"])


async def bought(till: Till, provider: FakePayments, by: str = "member") -> Object:
    """A subscription, which the provider has told us of."""
    made = provider.complete(await begun(till, by=by))
    await provider.deliver(till.sent)
    return made


# Beginning


async def test_it_leads_to_a_page_of_the_provider(till: Till, provider: FakePayments) -> None:
    answer = await till.begin(success_url="https://shop.example.com/thanks?session={CHECKOUT_SESSION_ID}")
    session = answer.json["session_id"]
    assert (answer.status, answer.json) == (200, {"checkout_url": f"{provider.address}/pay/{session}", "session_id": session})
    (_, first, customer), (_, second, sent) = provider.asked
    assert (first, second) == ("customers", "checkout/sessions")
    assert customer == {"name": "Acme", "metadata[org_id]": str(till.tenant.org)}
    [(checkout_id,)] = await run_sql(till.tenant.pool, "select id::text from billing_checkouts")
    metadata = till.metadata()
    assert sent == {
        "mode": "subscription",
        "customer": next(iter(provider.customers)),
        "line_items[0][price]": "price_gold",
        "line_items[0][quantity]": "1",
        "success_url": "https://shop.example.com/thanks?session={CHECKOUT_SESSION_ID}",
        "cancel_url": "https://shop.example.com/",
        "client_reference_id": checkout_id,
        **{f"metadata[{name}]": value for name, value in metadata.items()},
        **{f"subscription_data[metadata][{name}]": value for name, value in metadata.items()},
    }
    for headers in provider.headers:
        assert headers["authorization"] == f"Bearer {API_KEY}"
        assert headers["content-type"] == "application/x-www-form-urlencoded"
        assert headers["idempotency-key"]


async def test_any_member_may_and_the_organization_has_one_customer(till: Till, provider: FakePayments) -> None:
    for name in ("owner", "admin", "member"):
        await begun(till, by=name)
    assert len(provider.customers) == 1
    assert [session["metadata"]["user_id"] for session in provider.sessions.values()] == [
        till.tenant.id(name) for name in ("owner", "admin", "member")
    ]


async def test_after_a_failure_of_the_provider_a_customer_can_be_made(till: Till, provider: FakePayments) -> None:
    """Which it repeats for a day to whoever comes with the same key."""
    provider.answers["customers"] = Said(500)
    assert refused(await till.begin()) == (500, "BILLING_ERROR")
    del provider.answers["customers"]
    await begun(till)
    await begun(till)
    assert len(provider.customers) == 1


async def test_each_organization_has_a_customer_of_its_own(till: Till, twin: Tenant, clock: FakeClock, provider: FakePayments) -> None:
    other = await open_till(twin, clock)
    await begun(till)
    await begun(other)
    assert sorted(customer["name"] for customer in provider.customers.values()) == ["Acme", "Twin"]


async def test_only_what_can_be_bought_is(till: Till, twin: Tenant, pool: Pool, clock: FakeClock, provider: FakePayments) -> None:
    free = await add_plan(pool, till.service, "Free")
    removed = await add_plan(pool, till.service, "Old", price="price_old")
    await run_sql(pool, "update plans set removed_at = now() where id = %s", removed)
    elsewhere = await add_plan(pool, await add_service(pool, till.tenant.org, "other"), price="price_other")
    foreign = (await open_till(twin, clock)).gold
    unknown = [(await till.begin(plan_id=str(plan))) for plan in (uuid4(), removed, foreign)]
    assert {refused(answer) for answer in unknown} == {BAD}
    assert len({answer.json["error"] for answer in unknown}) == 1, "that somebody else has such a plan is not told"
    assert "price" in (await till.begin(plan_id=str(free))).json["error"]
    other = await till.begin(plan_id=str(elsewhere))
    assert refused(other) == BAD
    assert "another service" in other.json["error"]
    assert provider.asked == []
    assert await run_sql(pool, "select 1 from billing_checkouts") == []


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("plan_id", ["", "x", 5, None, str(uuid4()).upper()]),
        (
            "success_url",
            ["", "x", "/thanks", "//shop.example.com", "ftp://shop.example.com", "javascript:alert(1)", "https://", "https:///x", "http:x",
             5, None, "https://shop.example.com/\n", "https://shop.example.com/\u0000", "https://shop.example.com/a b", "https://[::1",
             "https://h:x/",
             "https://shop.example.com\\@evil.example/", f"https://shop.example.com/{'x' * 2048}"],
        ),
    ],
)  # fmt: skip
async def test_what_is_malformed_is_refused(till: Till, provider: FakePayments, name: str, values: list[Any]) -> None:
    for value in values:
        assert refused(await till.begin(**{name: value})) == BAD, value
        if name == "success_url":
            assert refused(await till.begin(cancel_url=value)) == BAD, value
    assert provider.asked == []


async def test_an_address_with_a_space_is_told_why(till: Till) -> None:
    assert "no spaces" in (await till.begin(cancel_url="https://shop.example.com/a b")).json["error"]


async def test_all_fields_are_needed_and_nothing_else_counts(till: Till, provider: FakePayments) -> None:
    path, token = f"{till.tenant.path}/services/shop/checkout", till.tenant.token("member")
    good = {"plan_id": str(till.gold), "success_url": "http://localhost/a", "cancel_url": "http://localhost/b"}
    for name in good:
        assert refused(await till.tenant.api.post(path, {**good, name: None}, token=token)) == BAD
    extra = {"price_id": "price_cheap", "customer": "cus_x", "user_id": str(uuid4()), "org_id": str(uuid4()), "mode": "payment"}
    assert (await till.tenant.api.post(path, {**good, **extra}, token=token)).status == 200
    assert provider.asked[-1][2]["line_items[0][price]"] == "price_gold"


async def test_who_may_not(till: Till, twin: Tenant, ports: Ports, pool: Pool, provider: FakePayments) -> None:
    api, path = till.tenant.api, f"{till.tenant.path}/services/shop/checkout"
    body = {"plan_id": str(till.gold), "success_url": "http://localhost/a", "cancel_url": "http://localhost/b"}
    assert refused(await api.post(path, body)) == (401, "UNAUTHORIZED")
    assert refused(await api.post(path, body, token=twin.token("owner"))) == FORBIDDEN
    end_user = await add_account(ports, "end@example.com", None)
    application = await sign_in_to(ports, pool, till.service, end_user)
    assert refused(await api.post(path, body, token=application.access_token)) == FORBIDDEN
    missing = f"{till.tenant.path}/services/none/checkout"
    assert refused(await api.post(missing, {}, token=till.tenant.token("member"))) == MISSING
    for status in ("suspended", "pending", "rejected"):
        await run_sql(pool, "update organizations set status = %s where slug = 'acme'", status)
        assert refused(await till.begin()) == INACTIVE
    assert provider.asked == []


@pytest.mark.parametrize(("status", "may"), [("active", False), ("past_due", False), ("cancelled", True), ("expired", True)])
async def test_whoever_is_subscribed_buys_nothing_more(
    till: Till, ports: Ports, pool: Pool, provider: FakePayments, status: str, may: bool
) -> None:
    member = till.tenant.people["member"].id
    await add_subscription(ports, pool, till.service, member, till.silver, status, ends=till.clock.now() + timedelta(days=1))
    answer = await till.begin()
    assert (answer.status == 200) == may
    if not may:
        assert refused(answer) == BAD
        assert "subscription" in answer.json["error"]
        assert provider.asked == []
    assert (await till.begin(by="owner")).status == 200, "which is nothing to others"


async def test_one_that_has_run_out_is_no_reason(till: Till, ports: Ports, pool: Pool) -> None:
    await add_subscription(ports, pool, till.service, till.tenant.people["member"].id, till.silver, ends=till.clock.now())
    assert (await till.begin()).status == 200


# When the provider fails

FAILURES: dict[str, Said] = {
    "a failure": Said(500, TRAP.encode()),
    "a refusal": in_json({"error": {"message": TRAP}}, 402),
    "no JSON": Said(200, TRAP.encode()),
    "a list": in_json([1]),
    "no name": in_json({"url": "https://provider.example/pay"}),
    "no address": in_json({"id": "cs_1", "url": None}),
    "a bad address": in_json({"id": "cs_1", "url": "javascript:alert(1)"}),
    "too much": Said(200, b'{"id": "' + b"x" * 70_000 + b'"}'),
}


@pytest.mark.parametrize("what", FAILURES)
async def test_what_goes_wrong_there_is_told_without_its_words(till: Till, provider: FakePayments, what: str) -> None:
    provider.answers["checkout/sessions"] = FAILURES[what]
    answer = await till.begin()
    assert refused(answer) == OFF
    assert "ry again" in answer.json["error"]
    assert TRAP not in answer.text
    del provider.answers["checkout/sessions"]
    assert (await till.begin()).status == 200
    assert len(provider.customers) == 1


async def test_a_customer_whose_making_was_not_heard_of_is_not_made_again(till: Till, provider: FakePayments) -> None:
    provider.lost.add("customers")
    assert refused(await till.begin()) == OFF
    assert await run_sql(till.tenant.pool, "select customer_id from billing_customers") == [(None,)]
    provider.lost.clear()
    assert (await till.begin()).status == 200
    assert len(provider.customers) == 1


async def test_an_organization_that_was_renamed_before_that_was_heard_of_gets_another_customer(till: Till, provider: FakePayments) -> None:
    """Since the provider takes something else with the same key for a mistake, for a day."""
    provider.lost.add("customers")
    assert refused(await till.begin()) == OFF
    provider.lost.clear()
    await run_sql(till.tenant.pool, "update organizations set name = 'Apex'")
    assert refused(await till.begin()) == OFF
    await begun(till)
    await begun(till)
    assert [customer["name"] for customer in provider.customers.values()] == ["Acme", "Apex"]


async def test_a_customer_that_is_not_there_any_more_is_made_anew(till: Till, provider: FakePayments) -> None:
    await begun(till)
    provider.customers.clear()
    assert refused(await till.begin()) == OFF
    assert (await till.begin()).status == 200
    assert len(provider.customers) == 1


async def test_without_a_provider_nothing_can_be_bought(
    till: Till, pool: Pool, ports: Ports, clock: FakeClock, provider: FakePayments
) -> None:
    object.__setattr__(ports, "payments", HttpPayments(None, clock))
    with capture_logs() as logs:
        answer = await till.begin()
    assert (refused(answer), answer.json["error"]) == (OFF, "Billing is not set up on this installation. Ask those who run it.")
    assert [line["error"] for line in logs if line["event"] == "outage"] == ["SSO_BILLING_API_URL and SSO_BILLING_API_KEY are not set"]
    assert refused(await till.begin(success_url="x")) == BAD
    assert await run_sql(pool, "select 1 from billing_checkouts union all select 1 from billing_customers") == []


# At once


@pytest.mark.slow
async def test_twenty_checkouts_at_once_make_one_customer(till: Till, provider: FakePayments) -> None:
    provider.gate = threading.Event()

    async def begin(_: int) -> Answer:
        return await till.begin()

    async with trio.open_nursery() as nursery:
        answers: list[Answer] = []

        async def all_of_them() -> None:
            answers.extend(await everyone(20, begin))

        nursery.start_soon(all_of_them)
        # All but one are told that the same is on its way.
        await eventually(lambda: provider.counted["POST customers"] >= 20)
        provider.gate.set()
    assert [answer.status for answer in answers] == [200] * 20
    assert len(provider.customers) == 1
    assert len(provider.sessions) == 20
    assert await run_sql(till.tenant.pool, "select count(*) from billing_customers") == [(1,)]


# What comes of it


@pytest.mark.parametrize("seed", range(3))
async def test_what_was_paid_for_is_there_whatever_order_it_is_told_in(till: Till, provider: FakePayments, seed: int) -> None:
    provider.complete(await begun(till))
    answers = await provider.deliver(till.sent, seed, copies=3)
    assert answers == {200: 12}
    assert [row[:2] for row in await till.rows()] == [("active", "Gold")]
    assert await run_sql(till.tenant.pool, "select provider_subscription_id, check_at from billing_checkouts") == [
        (next(iter(provider.subscriptions)), None)
    ]
    assert refused(await till.begin()) == BAD


async def test_it_counts_although_the_plan_has_another_price_or_is_gone_by_now(till: Till, provider: FakePayments) -> None:
    session, other = await begun(till), await begun(till, by="owner", plan_id=str(till.silver))
    await run_sql(till.tenant.pool, "update plans set billing_price_id = 'price_new' where id = %s", till.gold)
    await run_sql(till.tenant.pool, "update plans set removed_at = now() where id = %s", till.silver)
    provider.complete(session)
    provider.complete(other)
    await provider.deliver(till.sent)
    assert sorted(row[:2] for row in await till.rows()) == [("active", "Gold"), ("active", "Silver")]


async def test_what_a_session_made_is_what_was_asked_for(till: Till, provider: FakePayments, pool: Pool) -> None:
    session = provider.sessions[await begun(till)]
    shown = {name: value for name, value in session.items() if not name.startswith("_")} | {"subscription": "sub_1"}
    for wrong in (
        {"metadata": till.metadata(plan_id=till.silver)},
        {"customer": "cus_else"},
        {"client_reference_id": str(uuid4())},
        {"client_reference_id": "x"},
        {"subscription": None},
        {"id": "cs_else"},
    ):
        await till.tell("checkout.session.completed", {**shown, **wrong})
        assert await run_sql(pool, "select 1 from billing_checkouts where provider_subscription_id is not null") == []
    await till.tell("checkout.session.completed", shown)
    # It came of a checkout of gold, so it is nothing else, whatever its own metadata say.
    about = till.subscription(customer=session["customer"], metadata=till.metadata(plan_id=till.silver), price="price_silver")
    await till.tell("customer.subscription.created", about)
    assert await till.rows() == []
    await till.tell("customer.subscription.created", till.subscription(customer=session["customer"]))
    assert await till.status() == "active"


async def test_a_session_that_is_heard_of_before_its_answer_is_known(till: Till, provider: FakePayments, pool: Pool) -> None:
    provider.complete(await begun(till))
    await run_sql(pool, "update billing_checkouts set session_id = null, customer_id = null")
    await provider.deliver(till.sent)
    assert await till.status() == "active"


async def test_the_application_sees_it_in_its_tokens(till: Till, provider: FakePayments, ports: Ports, pool: Pool) -> None:
    made = await bought(till, provider)
    member = till.tenant.people["member"]

    async def claims() -> tuple[Any, ...]:
        session = await sign_in_to(ports, pool, till.service, member)
        answer = await till.tenant.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})
        said = jwt.decode(answer.json["access_token"], options={"verify_signature": False})
        return said.get("plan"), said.get("subscription_status"), said.get("features")

    assert await claims() == ("Gold", "active", ["exports"])
    for theirs, ours in (("trialing", "active"), ("past_due", "past_due"), ("unpaid", "past_due"), ("canceled", "cancelled")):
        till.clock.advance(SECOND)
        provider.change(made["id"], status=theirs)
        await provider.deliver(till.sent)
        assert await claims() == ("Gold", ours, ["exports"])


# The end of it


async def cancelled(provider: FakePayments) -> list[str]:
    return [path.rpartition("/")[2] for method, path, _ in provider.asked if method == "DELETE"]


async def test_what_an_api_key_ends_is_ended_at_the_provider(till: Till, provider: FakePayments, pool: Pool) -> None:
    made = await bought(till, provider)
    assert (await till.by_key("DELETE")).status == 204
    assert await cancelled(provider) == [made["id"]]
    assert await till.status() == "cancelled"
    assert refused(await till.by_key("DELETE")) == MISSING
    await provider.deliver(till.sent)
    assert (await till.recorded()).count("subscription.canceled") == 1
    assert await run_sql(pool, "select 1 from billing_cancellations") == []
    assert (await till.begin()).status == 200, "and something else can be bought"


async def test_with_a_service_what_was_bought_of_it_ends(till: Till, provider: FakePayments, pool: Pool) -> None:
    bought_by = [(await bought(till, provider, name))["id"] for name in ("member", "owner")]
    answer = await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))
    assert answer.status == 204
    assert sorted(await cancelled(provider)) == sorted(bought_by)
    entries = await run_sql(pool, "select details from audit_log where action = 'subscription.canceled'")
    assert entries == [({"service_id": str(till.service), "at_provider": True},)] * 2
    await provider.deliver(till.sent)
    assert await run_sql(pool, "select 1 from billing_cancellations") == []


async def test_what_the_provider_could_not_end_then_it_ends_later(till: Till, provider: FakePayments, pool: Pool, ports: Ports) -> None:
    made = await bought(till, provider)
    path = f"subscriptions/{made['id']}"
    provider.answers[path] = Said(500, TRAP.encode())
    answer = await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))
    assert answer.status == 204, "the service is gone"
    assert provider.subscriptions[made["id"]]["status"] == "active"
    del provider.answers[path]
    assert await reconciliation.reconcile(ports, new_id()) == {}
    till.clock.advance(cancellations_rules.LEASE)
    assert await reconciliation.reconcile(ports, new_id()) is None, "one process does it"
    till.clock.advance(reconciliation_rules.LEASE)
    assert await reconciliation.reconcile(ports, new_id()) == {"cancelled": 1}
    assert provider.subscriptions[made["id"]]["status"] == "canceled"
    assert await run_sql(pool, "select count(*) from audit_log where action = 'subscription.canceled'") == [(1,)]


@pytest.mark.parametrize("what", ["organizations", "users", "subscriptions"])
async def test_whatever_takes_it_along_it_ends(till: Till, provider: FakePayments, pool: Pool, ports: Ports, what: str) -> None:
    made = await bought(till, provider)
    if what == "organizations":
        assert (await till.tenant.api.delete(till.tenant.path, token=till.tenant.token("owner"))).status == 204
    elif what == "users":
        async with ports.storage.transaction(by=SYSTEM) as tx:
            await tx.service_users.remove_everywhere(UUID(till.tenant.id("member")))
    else:
        await run_sql(pool, "delete from subscriptions")
    till.clock.advance(SECOND)
    assert (await reconciliation.reconcile(ports, new_id()) or {})["cancelled"] == 1
    assert provider.subscriptions[made["id"]]["status"] == "canceled"
    await provider.deliver(till.sent)
    assert await till.rows() == []


async def delete(till: Till, what: str) -> None:
    path = till.tenant.path if what == "organization" else f"{till.tenant.path}/services/shop"
    assert (await till.tenant.api.delete(path, token=till.tenant.token("owner"))).status == 204


@pytest.mark.parametrize("what", ["service", "organization"])
@pytest.mark.parametrize("told", [True, False])
async def test_what_is_paid_for_when_it_is_gone_already_ends_there(
    till: Till, provider: FakePayments, pool: Pool, ports: Ports, what: str, *, told: bool
) -> None:
    session, holder = await begun(till), new_id()
    await delete(till, what)
    made = provider.complete(session)
    if told:
        assert set(await provider.deliver(till.sent, seed=1, copies=2)) == {200}
    else:
        provider.events.clear()
    for _ in range(2):  # who is not told asks first
        till.clock.advance(SOON)
        await reconciliation.reconcile(ports, holder)
    assert provider.subscriptions[made["id"]]["status"] == "canceled"
    if told:
        await provider.deliver(till.sent)
        await till.tell("customer.subscription.updated", made)  # late
        till.clock.advance(SOON)
        assert "orphaned" not in (await reconciliation.reconcile(ports, holder) or {})
    assert await cancelled(provider) == [made["id"]]
    assert await till.rows() == []
    entries = await run_sql(pool, "select org_id, details from audit_log where action = 'subscription.canceled'")
    details = {"service_id": str(till.service), "at_provider": True}
    assert entries == ([(till.tenant.org, details)] if what == "service" else []), "of an organization that is gone there is no log"


async def test_what_is_none_of_ours_is_not_ended_there(till: Till, provider: FakePayments, pool: Pool) -> None:
    """The provider may serve another installation as well, whose services are not here."""
    made = provider.complete(await begun(till))
    provider.events.clear()
    await delete(till, "service")
    for changes in ({"service_id": uuid4()}, {"org_id": uuid4()}, {"plan_id": till.silver}, {"user_id": till.tenant.id("owner")}):
        for id_ in ("sub_else", made["id"]):
            await till.tell("customer.subscription.created", till.subscription(id_, metadata=till.metadata(**changes)))
    await till.tell("customer.subscription.created", {**made, "customer": "cus_else"})
    assert await run_sql(pool, "select 1 from billing_cancellations") == []
    await till.tell("customer.subscription.created", {**made, "status": "incomplete_expired"})
    assert await run_sql(pool, "select 1 from billing_cancellations") == [], "there is nothing to end"


async def test_what_was_ended_there_and_could_not_be_recorded_is_told_and_recorded_later(
    till: Till, provider: FakePayments, pool: Pool, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await bought(till, provider)

    async def fails(*_: object) -> None:
        raise StorageDown

    with monkeypatch.context() as patch:
        patch.setattr(cancellations, "_record", fails)
        answer = await till.tenant.api.delete(f"{till.tenant.path}/services/shop", token=till.tenant.token("owner"))
    assert refused(answer) == (500, "AUDIT_ERROR")
    assert provider.subscriptions[made["id"]]["status"] == "canceled"
    assert await run_sql(pool, "select 1 from services") == []
    till.clock.advance(cancellations_rules.LEASE)
    assert await reconciliation.reconcile(ports, new_id()) == {"cancelled": 1}
    assert await run_sql(pool, "select count(*) from audit_log where action = 'subscription.canceled'") == [(1,)]


async def test_an_event_cannot_name_what_is_bought_by_somebody_else(till: Till, provider: FakePayments) -> None:
    """Two members buy; what one of them bought does not become the other's."""
    made = provider.complete(await begun(till))
    await begun(till, by="owner")
    stolen = {**made, "metadata": till.metadata(user_id=till.tenant.id("owner"))}
    await provider.deliver(till.sent)
    assert await till.sent(json.loads(json.dumps(event("customer.subscription.updated", stolen, till.now + 5)))) == 200
    assert await run_sql(till.tenant.pool, "select user_id::text from subscriptions") == [(till.tenant.id("member"),)]
