"""Requests and redirects that another site wants (RFC 9700 sections 4.7, 4.11 and 4.13; security G-1, G-2, G-3)."""

from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from core.accounts.model.accounts import Account
from tests.federation.api.end_session.applications import CROSS_SITE, END_SESSION
from tests.federation.api.relying import AUTHORIZE, RelyingParty, answer_fields, path_of
from tests.federation.attacks.world import is_code, unchanged
from tests.support.browser import ACCOUNT, HOME, SIGN_IN, FakeBrowser, action_of, form_token, leads_to
from tests.support.builders import EMAIL, PASSWORD

# Every parameter that a request can have, with a value that changes its meaning.
PARAMETERS: Final[dict[str, str]] = {
    "response_type": "code",
    "response_mode": "form_post",
    "scope": "openid profile email offline_access org roles",
    "nonce": "chosen by another site",
    "prompt": "consent",
    "max_age": "0",
    "login_hint": "eve@example.com",
    "ui_locales": "de",
    "acr_values": "mfa",
    "id_token_hint": "e30.e30.e30",
    "claims": '{"id_token": {"email": null}}',
    "resource": "https://elsewhere.example",
    "request": "e30.e30.",
    "request_uri": "https://evil.example/request",
    "asked": "e30.e30.e30",
    "state": "chosen by another site",
}
FORMS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "consent": ("prompt=consent", {"answer": "continue"}),
    "choice of an account": ("prompt=select_account", {"answer": "select"}),
    "refusal": ("prompt=consent", {"answer": "refuse"}),
}


@pytest.mark.parametrize("name", PARAMETERS)
async def test_a_form_of_another_site_gives_nothing_with_any_parameter(shop: RelyingParty, evil: RelyingParty, name: str) -> None:
    """The form is checked and leads to GET, where the user is asked as always."""
    for application in (shop, evil):
        fields = dict(parse_qsl(path_of(application).partition("?")[2])) | {name: PARAMETERS[name], "answer": "continue", "agreed": "true"}
        async with unchanged(shop.tenant.pool):
            target = leads_to(await shop.browser.send(AUTHORIZE, CROSS_SITE, **fields))
            assert target.partition("?")[0] == AUTHORIZE
            assert "answer" not in dict(parse_qsl(urlsplit(target).query))
            if application is evil:
                assert not is_code(await shop.browser.open(target)), "the user has agreed to nothing there"


@pytest.mark.parametrize("form", FORMS)
async def test_no_answer_counts_without_the_token_of_this_browser(shop: RelyingParty, form: str) -> None:
    query, fields = FORMS[form]
    request = f"{path_of(shop)}&{query}"
    page = await shop.browser.open(request)
    own, path = form_token(page), action_of(page)
    other = FakeBrowser(shop.browser._app)
    foreign = form_token(await other.open(SIGN_IN))
    async with unchanged(shop.tenant.pool):
        for token in ("", "0" * 64, foreign, own[:-1], own.upper() + "x"):
            assert (await shop.browser.send(path, form_token=token, **fields)).status == 403
        for header in (CROSS_SITE, (b"sec-fetch-site", b"same-site"), (b"sec-fetch-site", b"none; x")):
            assert (await shop.browser.send(path, header, form_token=own, **fields)).status == 403, header
        for origin in ("https://evil.example", "https://shop.example.com"):  # `null` is what our own pages send, too
            stranger = FakeBrowser(shop.browser._app, origin)
            stranger.cookies = dict(shop.browser.cookies)
            assert (await stranger.send(path, form_token=own, **fields)).status == 403, origin
        query_only = f"form_token={own}&answer=continue"
        assert leads_to(await shop.browser.send(f"{request}&{query_only}", CROSS_SITE)).partition("?")[0] == AUTHORIZE
        assert (await shop.browser.send(f"{path}?{query_only}", CROSS_SITE)).status == 403
        assert (await shop.browser.send(f"{path}?{query_only}")).status == 403


async def test_a_sign_in_form_of_another_site_is_refused(shop: RelyingParty, user: Account) -> None:
    """If it worked, the victim would use the attacker's account at the application (login CSRF)."""
    browser = FakeBrowser(shop.browser._app)
    path = path_of(shop)
    page = await browser.open(path)
    token, fields = form_token(page), {"email": EMAIL, "password": PASSWORD, "next": path}
    async with unchanged(shop.tenant.pool):
        for target in (SIGN_IN, action_of(page)):
            assert (await browser.send(target, CROSS_SITE, form_token=token, **fields)).status == 403
            assert (await browser.send(target, form_token="0" * 64, **fields)).status == 403
    assert "gatehouse-session" not in browser.cookies


async def test_the_state_comes_back_as_it_was(shop: RelyingParty) -> None:
    """So the application can tell its own request from an attacker's request, as it can with PKCE and the nonce."""
    for state in ("", "x" * 4096, "a&b=c#d?e/%20+\"'<>", "\N{SNOWMAN}"):
        fields = answer_fields(await shop.browser.open(path_of(shop, state=state)))
        assert fields.get("state", "") == state
    for state in ("x" * 4097, "a\r\nb", "\0"):
        async with unchanged(shop.tenant.pool):
            fields = answer_fields(await shop.browser.open(path_of(shop, state=state)))
            assert (fields["state"], fields["error"]) == (state, "invalid_request")


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "/auth/authorize/../..//evil.example",
        "https:evil.example",
        "javascript:alert(1)",
        "/auth/authorize\r\nLocation: https://evil.example",
    ],
)
async def test_a_sign_in_never_continues_at_another_site(shop: RelyingParty, user: Account, target: str) -> None:
    browser = FakeBrowser(shop.browser._app)
    token = form_token(await browser.open(f"{SIGN_IN}?{urlencode({'next': target})}"))
    assert leads_to(await browser.send(SIGN_IN, form_token=token, email=EMAIL, password=PASSWORD, next=target)) == HOME
    assert leads_to(await browser.open(f"{SIGN_IN}?{urlencode({'next': target})}")) == HOME
    token = form_token(await browser.open(ACCOUNT))
    assert "evil" not in leads_to(await browser.send("/app/sign-out", form_token=token, next=target))


async def test_the_way_back_of_a_logout_is_only_that_of_its_own_application(shop: RelyingParty, evil: RelyingParty) -> None:
    """Redirect URIs for sign-ins do not work for logouts, and another application's redirect URIs do not work for this application."""
    async with unchanged(shop.tenant.pool):
        for application, uri in (
            (shop, shop.redirect_uri),
            (shop, evil.redirect_uri),
            (shop, "https://evil.example"),
            (evil, "/app/account"),
        ):
            fields = {"client_id": str(application.client_id), "post_logout_redirect_uri": uri}
            answer = await shop.browser.open(f"{END_SESSION}?{urlencode(fields)}")
            assert (answer.status, answer.headers.get("Location")) == (400, None)
    assert await shop.browser.is_in()


async def test_names_of_a_proxy_that_a_client_sends_change_no_address(shop: RelyingParty) -> None:
    """The issuer and redirects stay the same (section 4.13)."""
    headers = (
        (b"x-forwarded-host", b"evil.example"),
        (b"x-forwarded-proto", b"gopher"),
        (b"forwarded", b"host=evil.example;proto=gopher"),
        (b"x-forwarded-prefix", b"/evil"),
        (b"x-original-url", b"/evil"),
        (b"host", b"evil.example"),
    )
    for path in (path_of(shop), path_of(shop, prompt="none", max_age="0"), "/.well-known/openid-configuration"):
        plain = await shop.browser.open(path)
        for header in headers:
            answer = await shop.browser.open(path, header)
            assert "evil" not in answer.text + str(answer.headers)
            if plain.status == 200:
                assert answer.text == plain.text
