"""Redirect URIs that only look registered (RFC 9700 section 4.1; RFC 8252 section 8; security O-2).

No answer goes to them: neither a code nor an error. The browser stays on our page.
"""

from typing import Final
from urllib.parse import urlencode

import pytest

from core.accounts.model.accounts import Account
from tests.federation.api.relying import RelyingParty, authorize, path_of
from tests.federation.attacks.world import is_code, unchanged
from tests.support.browser import action_of, form_token, hidden_fields, leads_to
from tests.support.builders import BASE_URL

REGISTERED: Final = "https://shop.example.com/callback"
LOOKS_REGISTERED: Final = (
    "https://SHOP.example.com/callback",
    "HTTPS://shop.example.com/callback",
    "https://shop.example.com/CALLBACK",
    "http://shop.example.com/callback",
    "https://shop.example.com:443/callback",
    "https://shop.example.com:8443/callback",
    "https://shop.example.com./callback",
    "https://shop.example.com/callback/",
    "https://shop.example.com/callback/../callback",
    "https://shop.example.com/./callback",
    "https://shop.example.com//callback",
    "https://shop.example.com/callback%2F..%2F..%2Fevil",
    "https://shop.example.com/%63allback",
    "https://shop.example.com/callback?",
    "https://shop.example.com/callback?next=https://evil.example",
    "https://shop.example.com/callback;x",
    "https://shop.example.com/callback#",
    "https://shop.example.com/callback#fragment",
    "https://shop.example.com/callback\\..\\evil",
    "https://user@shop.example.com/callback",
    "https://user:password@shop.example.com/callback",
    "https://shop.example.com@evil.example/callback",
    "https://shop.example.com%40evil.example/callback",
    "https://shop.example.com\\@evil.example/callback",
    "https://shop.example.com.evil.example/callback",
    "https://evil.example/https://shop.example.com/callback",
    "https://evil-shop.example.com/callback",
    "https://shop.example.com%00.evil.example/callback",
    "https://shop.example.com/callback\0",
    "https://shop.example.com/callback\r\nLocation: https://evil.example",
    " https://shop.example.com/callback",
    "https://shop.example.com/callback ",
    "//shop.example.com/callback",
    "/callback",
    "callback",
    "javascript:alert(1)//https://shop.example.com/callback",
    "data:text/html,x",
    "https://sh\N{CYRILLIC SMALL LETTER O}p.example.com/callback",
    "https://shop.example.com\N{FULLWIDTH FULL STOP}evil.example/callback",
    f"{BASE_URL}/auth/authorize",
    "http://127.0.0.1/callback",
    "http://localhost/callback",
    "com.example.shop:/callback",
    "https://evil.example.com/callback",  # registered for the attacker's own client
)
LOOPBACK: Final = ("http://127.0.0.1/back", "http://[::1]/back", "http://localhost/back")
# Another port is allowed for native applications, and nothing else.
LOOKS_LIKE_LOOPBACK: Final = (
    "http://127.0.0.1:51004/other",
    "http://127.0.0.1:51004/back/",
    "http://127.0.0.1:51004/back?x=y",
    "http://127.0.0.1:51004/back#x",
    "http://127.0.0.1:0/back",
    "http://127.0.0.1:99999/back",
    "http://127.0.0.1:/back",
    "http://127.0.0.1:51004:80/back",
    "http://127.0.0.1:51004@evil.example/back",
    "http://user@127.0.0.1:51004/back",
    "http://127.0.0.1.evil.example:51004/back",
    "http://localhost.evil.example:51004/back",
    "http://localhost.:51004/back",
    "http://127.0.0.2:51004/back",
    "http://127.1:51004/back",
    "http://0x7f000001:51004/back",
    "http://2130706433:51004/back",
    "http://0.0.0.0:51004/back",
    "http://[::]:51004/back",
    "http://[::ffff:127.0.0.1]:51004/back",
    "https://127.0.0.1:51004/back",
    "https://till.example.com:51004/callback",
)


def is_page_of_ours(text: str, location: str | None, status: int) -> bool:
    return (status, location) == (400, None) and "so nothing is sent to it" in text


@pytest.mark.slow
async def test_a_redirect_uri_that_only_looks_registered_gets_no_answer(shop: RelyingParty, evil: RelyingParty) -> None:
    assert "code" in await authorize(shop), "the registered one works"
    findings = []
    async with unchanged(shop.tenant.pool):
        for uri in LOOKS_REGISTERED:
            for changes in ({}, {"prompt": "none"}, {"response_type": "token"}, {"response_mode": "form_post"}):
                answer = await shop.browser.open(path_of(shop, redirect_uri=uri, **changes))
                if not is_page_of_ours(answer.text, answer.headers.get("Location"), answer.status):
                    findings.append((uri, changes, answer.status))
    assert findings == []


async def test_a_native_application_gets_another_port_of_the_loopback_interface_only(till: RelyingParty) -> None:
    await till.set_redirect_uris("https://till.example.com/callback", *LOOPBACK)
    findings = []
    async with unchanged(till.tenant.pool):
        for uri in LOOKS_LIKE_LOOPBACK:
            answer = await till.browser.open(path_of(till, redirect_uri=uri))
            if not is_page_of_ours(answer.text, answer.headers.get("Location"), answer.status):
                findings.append((uri, answer.status))
    assert findings == []


@pytest.mark.parametrize("uri", LOOPBACK)
async def test_a_web_application_gets_no_other_port(shop: RelyingParty, uri: str) -> None:
    await shop.set_redirect_uris(uri)
    other_port = uri.replace("/back", ":51004/back")
    async with unchanged(shop.tenant.pool):
        assert (await shop.browser.open(path_of(shop, redirect_uri=other_port))).status == 400


async def test_the_answer_to_the_consent_page_cannot_change_the_redirect_uri(shop: RelyingParty, user: Account) -> None:
    page = await shop.browser.open(path_of(shop, prompt="consent"))
    token = form_token(page)
    async with unchanged(shop.tenant.pool):
        for answer in ("continue", "refuse"):
            other_request = path_of(shop, prompt="consent", redirect_uri="https://evil.example.com/callback")
            response = await shop.browser.send(other_request, form_token=token, answer=answer)
            assert (await shop.browser.open(leads_to(response))).status == 400
    other = {"redirect_uri": "https://evil.example.com/callback"}
    form = {**hidden_fields(page), "answer": "continue", **other}
    page = await shop.browser.send(f"{action_of(page)}?{urlencode(other)}", **form)
    assert page.headers["Location"].startswith(f"{REGISTERED}?"), "a field of the form counts for nothing"


async def test_of_several_redirect_uris_none_is_guessed(shop: RelyingParty) -> None:
    await shop.set_redirect_uris(REGISTERED, "https://shop.example.com/other")
    async with unchanged(shop.tenant.pool):
        for uri in (None, ""):
            answer = await shop.browser.open(path_of(shop, redirect_uri=uri))
            assert (answer.status, is_code(answer)) == (400, False)


async def test_a_code_is_exchanged_only_with_the_redirect_uri_that_received_it(till: RelyingParty) -> None:
    """The redirect URI is compared again, even between ports on the same machine (RFC 6749 section 4.1.3)."""
    await till.set_redirect_uris(till.redirect_uri, *LOOPBACK)
    redirect_uri = "http://127.0.0.1:51004/back"
    code = (await authorize(till, redirect_uri=redirect_uri))["code"]
    async with unchanged(till.tenant.pool):
        for uri in (None, till.redirect_uri, "http://127.0.0.1:51005/back", "http://127.0.0.1/back", "http://localhost:51004/back", ""):
            assert (await till.exchange(code, redirect_uri=uri)).json["error"] == "invalid_grant", uri
    assert (await till.exchange(code, redirect_uri=redirect_uri)).status == 200
