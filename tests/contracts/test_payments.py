"""The port for the payment provider, against a running provider.

Requests can be sent twice, and no text from a failing provider is shown (security W-2).
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import structlog

from adapters.http.payments import MAX_PAGES, PAGE_SIZE, HttpPayments, PaymentSettings
from core.billing.model.checkout import Checkout, CheckoutSession, CustomerNotFound
from core.billing.model.provider_objects import CheckoutMetadata, ProviderSnapshot, ProviderSubscription
from core.kernel.errors import PaymentsFailed
from core.kernel.values import new_id
from tests.fakes.http_server import TRAP, Answer, in_json
from tests.fakes.outside import FakeClock
from tests.fakes.payments import API_KEY, FakePayments, subscription
from tests.support.builders import run_concurrently


@pytest.fixture
def provider(clock: FakeClock) -> Iterator[FakePayments]:
    with FakePayments(now=lambda: clock.now().timestamp()) as running:
        yield running


@pytest.fixture
def payments(provider: FakePayments, clock: FakeClock) -> HttpPayments:
    return HttpPayments(provider.settings, clock)


def checkout(clock: FakeClock) -> Checkout:
    return Checkout(
        id=new_id(),
        metadata=CheckoutMetadata(new_id(), new_id(), new_id(), new_id()),
        price_id="price_gold",
        success_url="https://shop.example.com/?a=b&c={CHECKOUT_SESSION_ID}",
        cancel_url="https://shop.example.com/",
        created_at=clock.now(),
    )


async def failure(payments: HttpPayments) -> str:
    with pytest.raises(PaymentsFailed) as raised:
        await payments.subscription("sub_1")
    assert TRAP not in str(raised.value)
    return str(raised.value)


async def test_one_idempotency_key_creates_one_customer(payments: HttpPayments, provider: FakePayments) -> None:
    org, key = new_id(), new_id()
    customers = await run_concurrently(4, lambda _: payments.create_customer(org, "acme", key))
    assert set(customers) == set(provider.customers)
    assert len(provider.customers) == 1
    await payments.create_customer(org, "acme", new_id())
    assert len(provider.customers) == 2


async def test_a_checkout_is_created_once(payments: HttpPayments, provider: FakePayments, clock: FakeClock) -> None:
    request, customer = checkout(clock), await payments.create_customer(new_id(), "acme", new_id())
    session = await payments.begin_checkout(request, customer)
    assert session == CheckoutSession(next(iter(provider.sessions)), f"{provider.address}/pay/{session.session_id}")
    assert await payments.begin_checkout(request, customer) == session
    assert len(provider.sessions) == 1
    assert session.url not in repr(session)


async def test_a_deleted_customer_has_its_own_error(payments: HttpPayments, clock: FakeClock) -> None:
    with pytest.raises(CustomerNotFound):
        await payments.begin_checkout(checkout(clock), "cus_gone")


async def test_a_subscription_is_read_with_every_field_and_the_providers_time(
    payments: HttpPayments, provider: FakePayments, clock: FakeClock
) -> None:
    metadata, ends = CheckoutMetadata(new_id(), new_id(), new_id(), new_id()), int(clock.now().timestamp()) + 5
    provider.subscriptions["sub_1"] = subscription(
        "sub_1", status="trialing", customer={"id": "cus_2"}, metadata=metadata.to_strings(), current_period_end=ends
    )
    provider.now = lambda: clock.now().timestamp() - 3600
    expected = ProviderSubscription(
        id="sub_1",
        customer_id="cus_2",
        status="trialing",
        price_id="price_gold",
        period_end=datetime.fromtimestamp(ends, UTC),
        metadata=metadata,
    )
    assert await payments.subscription("sub_1") == ProviderSnapshot(expected, clock.now().replace(microsecond=0) - timedelta(hours=1))
    assert await payments.subscription("sub_2") is None


async def test_a_list_is_read_page_by_page_up_to_a_limit(payments: HttpPayments, provider: FakePayments, clock: FakeClock) -> None:
    created = int(clock.now().timestamp())
    for number in range(PAGE_SIZE + 10):
        provider.subscriptions[f"sub_{number}"] = subscription(f"sub_{number}", created=created + number, padding="x" * 4000)
    provider.subscriptions["sub_old"] = subscription("sub_old", created=created - 86400)
    provider.subscriptions["sub_else"] = subscription("sub_else", customer="cus_2", created=created)
    subscriptions = await payments.subscriptions_of("cus_1", clock.now())
    assert [item.subscription.id for item in subscriptions] == [f"sub_{number}" for number in reversed(range(PAGE_SIZE + 10))]
    provider.page = 2
    assert len(await payments.subscriptions_of("cus_1", clock.now())) == 2 * MAX_PAGES


async def test_an_ended_unpaid_subscription_needs_no_cancellation(payments: HttpPayments, provider: FakePayments) -> None:
    provider.subscriptions["sub_1"] = subscription("sub_1", status="incomplete_expired")
    assert await payments.cancel("sub_1")


async def test_canceling_twice_succeeds_and_an_unknown_subscription_does_not(payments: HttpPayments, provider: FakePayments) -> None:
    provider.subscriptions["sub_1"] = subscription("sub_1")
    assert [await payments.cancel(id_) for id_ in ("sub_1", "sub_1", "sub_2")] == [True, True, False]
    assert provider.subscriptions["sub_1"]["status"] == "canceled"


WRONG_RESPONSES = {
    "a failure": Answer(500, TRAP.encode()),
    "a refusal": in_json({"error": {"message": TRAP}}, 403),
    "a redirect": Answer(302, b"", {"Location": "http://127.0.0.1:9/"}),
    "no JSON": Answer(200, TRAP.encode()),
    "deep JSON": Answer(200, b"[" * 60_000),
    "a list": in_json([TRAP]),
    "no subscription": in_json({"id": TRAP, "status": TRAP}),
    "too much": Answer(200, b'{"id": "' + b"x" * 65_536 + b'"}'),
    "packed": Answer(200, b"\x1f\x8b", {"Content-Encoding": "gzip"}),
}


@pytest.mark.parametrize("case", WRONG_RESPONSES)
async def test_failures_are_described_in_our_words(payments: HttpPayments, provider: FakePayments, case: str) -> None:
    provider.answers["subscriptions/sub_1"] = provider.answers["subscriptions"] = WRONG_RESPONSES[case]
    assert await failure(payments)


async def test_a_failing_provider_cancels_and_lists_nothing(payments: HttpPayments, provider: FakePayments) -> None:
    provider.answers["subscriptions/sub_1"] = provider.answers["subscriptions"] = WRONG_RESPONSES["a failure"]
    with pytest.raises(PaymentsFailed, match=r"^it answered 500 to DELETE subscriptions$"):
        await payments.cancel("sub_1")
    with pytest.raises(PaymentsFailed, match=r"^it answered 500 to GET subscriptions$"):
        await payments.subscriptions_of("cus_1", datetime.now(UTC))
    provider.answers["subscriptions"] = in_json({"data": [TRAP]})
    with pytest.raises(PaymentsFailed, match="cannot be read"):
        await payments.subscriptions_of("cus_1", datetime.now(UTC))


async def test_an_unreadable_subscription_does_not_hide_others(payments: HttpPayments, provider: FakePayments) -> None:
    good = {"id": "sub_1", "status": "active"}
    provider.answers["subscriptions"] = in_json({"data": [{"id": "sub_2", "status": 7}, good, {"status": "active"}]})
    with structlog.testing.capture_logs() as log:
        subscriptions = await payments.subscriptions_of("cus_1", datetime.now(UTC))
    assert [item.subscription.id for item in subscriptions] == ["sub_1"]
    assert [line["subscription"] for line in log if line["event"] == "payments_failed"] == ["sub_2", None]


@pytest.mark.parametrize("status", [402, 500, 503])
async def test_the_log_has_the_request_and_the_status(payments: HttpPayments, provider: FakePayments, status: int) -> None:
    provider.answers["customers"] = in_json({"error": {"message": TRAP, "code": TRAP}}, status)
    with structlog.testing.capture_logs() as log, pytest.raises(PaymentsFailed):
        await payments.create_customer(new_id(), "acme", new_id())
    assert [(each["event"], each["reason"]) for each in log] == [("payments_failed", f"it answered {status} to POST customers")]


@pytest.mark.slow
@pytest.mark.parametrize("answer", [Answer(drip=True), Answer(hang=True)], ids=["drip", "hang"])
async def test_the_deadline_covers_all_requests_together(provider: FakePayments, clock: FakeClock, answer: Answer) -> None:
    provider.answers["subscriptions/sub_1"] = answer
    assert await failure(HttpPayments(provider.settings, clock, deadline=0.3)) == "it did not answer in time"


async def test_an_unreachable_provider_and_a_wrong_key_are_errors(provider: FakePayments, clock: FakeClock) -> None:
    assert "the request failed" in await failure(HttpPayments(PaymentSettings("http://127.0.0.1:9", API_KEY), clock))
    assert await failure(HttpPayments(PaymentSettings(provider.address, "sk_wrong"), clock)) == "it answered 401 to GET subscriptions"
    unconfigured = HttpPayments(None, clock)
    assert not unconfigured.is_on
    assert await failure(unconfigured) == "it is not configured"


async def test_the_base_url_can_include_the_version(provider: FakePayments, clock: FakeClock) -> None:
    provider.subscriptions["sub_1"] = subscription("sub_1")
    for url in (provider.address, f"{provider.address}/", f"{provider.address}/v1", f"{provider.address}/v1/"):
        assert await HttpPayments(PaymentSettings(url, API_KEY), clock).subscription("sub_1") is not None
