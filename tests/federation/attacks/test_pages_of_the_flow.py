"""Leaks from pages: referrers, the history, frames, scripts, and repeated forms (RFC 9700 sections 4.2, 4.3, 4.12, 4.16 and 4.17)."""

import re
from typing import Final
from urllib.parse import parse_qsl, urlencode

import pytest

from core.accounts.model.accounts import Account
from tests.federation.api.end_session.applications import END_SESSION
from tests.federation.api.relying import RelyingParty, openid_tokens, path_of
from tests.federation.attacks.world import is_code, unchanged
from tests.support.browser import AGENT, HTML, SIGN_IN, FakeBrowser, action_of
from tests.support.builders import Answer
from tests.support.direct import ask

STATE: Final = "a-state-that-no-other-site-may-see"


async def answers_of_the_flow(shop: RelyingParty) -> dict[str, Answer]:
    """Return an answer of every kind, by name."""
    browser, stranger = shop.browser, FakeBrowser(shop.browser._app)
    tokens = await openid_tokens(shop)
    consent, request = path_of(shop, prompt="consent", state=STATE), path_of(shop, state=STATE)
    agreed, refused = await browser.open(consent), await browser.open(consent)
    answers = {
        "code in the query": await browser.open(request),
        "code in the fragment": await browser.open(path_of(shop, state=STATE, response_mode="fragment")),
        "code in a form": await browser.open(path_of(shop, state=STATE, response_mode="form_post")),
        "error in the query": await browser.open(path_of(shop, state=STATE, response_type="token")),
        "error in a form": await browser.open(path_of(shop, state=STATE, response_type="token", response_mode="form_post")),
        "invalid redirect URI": await browser.open(path_of(shop, state=STATE, redirect_uri="https://evil.example")),
        "unknown client": await browser.open(path_of(shop, state=STATE, service="unknown")),
        "consent page": await browser.open(consent),
        "account page": await browser.open(path_of(shop, state=STATE, prompt="select_account")),
        "sign-in page of a fresh sign-in": await browser.open(path_of(shop, state=STATE, prompt="login")),
        "form of another site": await browser.send(action_of(agreed), form_token="0" * 64, answer="continue"),
        "answer to the consent page": await browser.answer(agreed, "continue"),
        "refusal of the consent page": await browser.answer(refused, "refuse"),
        "flow that has ended": await browser.open(action_of(agreed)),
        "flow of another browser": await stranger.open(action_of(agreed)),
        "request as a form": await browser.send("/auth/authorize", **fields_of(request)),
        "redirect to the sign-in page": await ask(browser._app, "GET", request, headers=[HTML, AGENT]),
        "sign-in page": await stranger.open(request),
        "earlier address of the sign-in page": await stranger.open(f"{SIGN_IN}?{urlencode({'next': request})}"),
        "redirect to an identity provider": await browser.open(f"{request}&provider=websuite"),
        "question of a logout": await browser.open(f"{END_SESSION}?{urlencode({'client_id': str(shop.client_id), 'state': STATE})}"),
        "logout with an unknown client": await browser.open(f"{END_SESSION}?client_id=unknown"),
        "logout without a session": await stranger.open(END_SESSION),
    }
    answers["logout"] = await browser.open(f"{END_SESSION}?{urlencode({'id_token_hint': tokens['id_token'], 'state': STATE})}")
    return answers


def fields_of(path: str) -> dict[str, str]:
    """Return the parameters in a path's query."""
    return dict(parse_qsl(path.partition("?")[2]))


async def test_no_answer_of_the_flow_leaks(shop: RelyingParty) -> None:
    """Answers have no referrer, cache, frame or outside content, and no redirect that repeats a password form (section 4.12)."""
    answers = await answers_of_the_flow(shop)
    findings = []
    for name, answer in answers.items():
        headers, policy, is_page = answer.headers, answer.headers.get("Content-Security-Policy", ""), answer.status != 303
        wrong = {
            "referrer": headers.get("Referrer-Policy") != ("strict-origin" if 'id="answer"' in answer.text else "no-referrer"),
            "cache": headers.get("Cache-Control") != "no-store",
            "status": answer.status in (301, 302, 307, 308),
            "frames": is_page and "frame-ancestors 'none'" not in policy,
            "sources": is_page and ("default-src 'none'" not in policy or "unsafe" in policy or "*" in policy),
            "messages": "postMessage" in answer.text or "window.opener" in answer.text,
            "opener": 'target="_blank"' in answer.text,
            "other origins": any(f'{name}="http' in answer.text for name in ("src", "href")),
        }
        findings += [f"{name}: {reason}" for reason, is_wrong in wrong.items() if is_wrong]
    assert findings == []
    assert {answer.status for answer in answers.values()} == {200, 303, 400, 403, 404}, "answers of every kind"
    assert is_code(answers["code in the query"])
    assert is_code(answers["code in a form"])


async def test_only_the_page_that_posts_an_answer_has_a_script_beside_that_of_passkeys(shop: RelyingParty) -> None:
    answers = await answers_of_the_flow(shop)
    scripts = {name: re.findall("<script[^>]*>", answer.text) for name, answer in answers.items() if "<script" in answer.text}
    of_passkeys = {name for name, found in scripts.items() if all("/passkeys" in script for script in found)}
    assert scripts.keys() - of_passkeys == {"code in a form", "error in a form"}
    assert of_passkeys == {"sign-in page", "sign-in page of a fresh sign-in"}


async def test_no_token_stands_in_an_url(shop: RelyingParty) -> None:
    """Access tokens in a URL would stay in the history and in logs: they are not taken from there (section 4.3.2)."""
    tokens = await openid_tokens(shop)
    async with unchanged(shop.tenant.pool):
        for path in ("/auth/userinfo", "/api/user"):
            assert (await shop.api.get(f"{path}?access_token={tokens['access_token']}")).status == 401
        for response_type in ("token", "id_token", "id_token token", "code token", "code id_token", "none"):
            answer = await shop.browser.open(path_of(shop, response_type=response_type, nonce="n"))
            assert "token=" not in answer.headers["Location"].replace("response_type", "")
            assert "error=unsupported_response_type" in answer.headers["Location"]
        query = urlencode({"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], "client_id": str(shop.client_id)})
        assert (await shop.api.call("GET", f"/auth/token?{query}")).status == 405
        assert (await shop.post(f"/auth/token?{query}&client_secret={shop.secret}")).status == 400


@pytest.mark.parametrize("hostile", ['"><img src=x onerror=alert(1)>', "javascript:alert(1)", "{{7*7}}"])
async def test_parameters_of_a_request_are_shown_as_text(shop: RelyingParty, user: Account, hostile: str) -> None:
    stranger = FakeBrowser(shop.browser._app)
    for name in ("login_hint", "state", "nonce", "ui_locales", "acr_values"):
        for browser, prompt in ((stranger, "login"), (shop.browser, "consent"), (shop.browser, "login")):
            path = path_of(shop, prompt=prompt, **{name: hostile})
            page = await browser.open(path)
            if page.status == 303:
                page = await browser.open(page.headers["Location"])
            assert page.status == 200
            assert "<img" not in page.text
            assert 'href="javascript' not in page.text
            assert 'value="49"' not in page.text
