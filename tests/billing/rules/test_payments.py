"""Reading the payment provider's invoices, and recognizing newer facts about a subscription's status."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from core.billing.model.provider_facts import SubscriptionFacts
from core.billing.model.provider_objects import MAX_PAGE_URL_LENGTH, ProviderSubscription, invoice_page_url, invoice_period_end
from tests.tables import table

PAGE = "https://invoice.provider.example/i/acct_1/live_2?s=ap&a=%3C"


@table("url", [PAGE, "https://provider.example", "https://provider.example:8443/i/1", PAGE + "x" * (MAX_PAGE_URL_LENGTH - len(PAGE))])
def test_a_safe_https_url_is_an_invoice_page(url: str) -> None:
    assert invoice_page_url({"hosted_invoice_url": url}) == url


@table(
    "url",
    [
        None,
        [PAGE],
        "",
        PAGE.replace("https", "http"),
        "javascript:alert(1)//https://provider.example/i/1",
        "//provider.example/i/1",
        "https:///i/1",
        "https://user@provider.example/i/1",
        "https://provider.example:port/i/1",
        "https://[provider.example/i/1",
        PAGE + '"onclick="alert(1)',
        PAGE + "<script>",
        PAGE + "\\",
        PAGE + " x",
        PAGE + "\n",
        PAGE + "\u202e",
        PAGE + "x" * MAX_PAGE_URL_LENGTH,
    ],
)
def test_any_other_value_is_no_invoice_page(url: object) -> None:
    assert invoice_page_url({"hosted_invoice_url": url}) is None
    assert invoice_page_url({}) is None


def line(end: int, **changes: Any) -> dict[str, Any]:
    return {"period": {"start": 0, "end": end}, **changes}


def newer(type_: str, *, proration: bool = False) -> dict[str, Any]:
    """Return the purpose of an invoice line as newer versions of the provider's API describe it."""
    return {"parent": {"type": type_, type_: {"proration": proration}}}


@table(
    ("lines", "end"),
    [
        ([line(100)], 100),
        ([line(100), line(200)], 200),
        ([line(100, type="subscription"), line(900, type="invoiceitem")], 100),
        ([line(100, **newer("subscription_item_details")), line(900, **newer("invoice_item_details"))], 100),
        ([line(100, type="subscription"), line(200, type="invoiceitem", proration=True)], 200),
        ([line(100), line(200, **newer("invoice_item_details", proration=True))], 200),
        ([line(100), line(200, **newer("subscription_item_details", proration=True))], 200),
        ([line(100, parent=None, type="subscription"), line(900, parent={}, type="invoiceitem")], 100),
        ([line(100), line(900, parent={"type": "invoice_item_details"})], 100),
        ([line(100, type="subscription"), line(200, type=5, parent={"type": 5})], 200),
        ([line(900, type="invoiceitem")], None),
        ([], 50),
        (None, 50),
        ([None, 5, {"period": None}], 50),
    ],
)
def test_the_period_of_an_invoice_is_that_of_its_subscription_lines(lines: Any, end: int | None) -> None:
    period_end = invoice_period_end({"lines": {"object": "list", "data": lines}, "period_end": 50})
    assert period_end == (None if end is None else datetime.fromtimestamp(end, UTC))


NOW = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def in_status(status: str) -> ProviderSubscription:
    return ProviderSubscription(id="sub_1", customer_id=None, status=status, price_id=None, period_end=None, metadata=None)


@table(
    ("add_fact", "is_newer"),
    [
        (lambda facts: facts.with_failure(NOW + SECOND), True),
        (lambda facts: facts.with_payment(NOW + SECOND, None), True),
        (lambda facts: facts.with_subscription(in_status("unpaid"), NOW + SECOND), True),
        (lambda facts: facts.with_subscription(in_status("past_due"), NOW + SECOND, deleted=True), True),
        (lambda facts: facts.with_subscription(in_status("canceled"), NOW - SECOND), True),
        (lambda facts: facts.with_subscription(in_status("past_due"), NOW + SECOND), False),
        (lambda facts: facts.with_subscription(in_status("active"), NOW - SECOND), False),
        (lambda facts: facts.with_failure(NOW - SECOND), False),
        (lambda facts: facts.with_payment(NOW - SECOND, NOW), False),
        (lambda facts: facts.with_action(NOW + SECOND, None), False),
        (lambda facts: replace(facts, price_id="price_else"), False),
    ],
)
def test_newer_facts_are_recognized_even_if_the_status_is_the_same(
    add_fact: Callable[[SubscriptionFacts], SubscriptionFacts], *, is_newer: bool
) -> None:
    facts = SubscriptionFacts(id="sub_1").with_subscription(in_status("past_due"), NOW)
    assert add_fact(facts).has_newer_status_than(facts) == is_newer


def test_a_repeated_failure_or_payment_is_no_newer_fact() -> None:
    facts = SubscriptionFacts(id="sub_1").with_subscription(in_status("active"), NOW)
    for repeat in (SubscriptionFacts.with_failure, lambda facts, at: facts.with_payment(at, None)):
        facts_after = repeat(facts, NOW + SECOND)
        assert facts_after.has_newer_status_than(facts)
        assert not repeat(facts_after, NOW + SECOND).has_newer_status_than(facts_after)
