"""What is read of what the payment provider says: where an invoice is shown."""

import pytest

from core.payments import LONGEST_PAGE, invoice_page

PAGE = "https://invoice.provider.example/i/acct_1/live_2?s=ap&a=%3C"


@pytest.mark.parametrize(
    "url", [PAGE, "https://provider.example", "https://provider.example:8443/i/1", PAGE + "x" * (LONGEST_PAGE - len(PAGE))]
)
def test_an_address_that_can_be_given_to_anybody_is_one(url: str) -> None:
    assert invoice_page({"hosted_invoice_url": url}) == url


@pytest.mark.parametrize(
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
        PAGE + "x" * LONGEST_PAGE,
    ],
)
def test_anything_else_is_none(url: object) -> None:
    assert invoice_page({"hosted_invoice_url": url}) is None
    assert invoice_page({}) is None
