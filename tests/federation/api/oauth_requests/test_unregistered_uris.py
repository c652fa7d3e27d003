"""URIs that are not registered: the pages show them as text, lead admins to the settings, and register nothing (decision 440)."""

from html import unescape
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from lxml import html

from core.accounts.model.accounts import Account
from core.kernel.roles import ADMIN
from tests.federation.api.end_session.applications import end_session_path, openid_tokens, register_return
from tests.federation.api.relying import RelyingParty, add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser, main_of
from tests.support.builders import Answer, add_member, run_sql
from tests.support.services import add_service_user
from tests.support.tenants import Tenant

SETTINGS = "/app/organizations/acme/applications/shop"
HOSTILE = [
    "javascript:alert(document.cookie)",
    "https://evil.example/\"><script>alert(1)</script><a href='https://evil.example'>",
    "data:text/html,<img src=x onerror=alert(1)>",
    "https://shop.example.com@evil.example/callback",
    "https://shop.example.com\u202emoc.live/\u2066x\u200b",
    "https://shop.example.com/\u0000\n\tcallback",
    "https://\u0441hop.example.com/callback",  # the first letter is Cyrillic
    "{{ 7 * 7 }}{% include 'error.html' %}",
    "//evil.example",
    "https://evil.example/" + "x" * 9000,
]


@pytest.fixture
async def shop(acme: Tenant, browser: FakeBrowser) -> RelyingParty:
    return await add_relying_party(acme, browser)


def shown(answer: Answer) -> str:
    """Return the URI's text on the page."""
    [element] = html.document_fromstring(answer.text).xpath("//*[@class='sent']")
    return str(element.text_content())


def links(answer: Answer) -> list[str]:
    return [str(link) for link in html.document_fromstring(answer.text).xpath("//@href | //@src | //@action")]


def settings_link(answer: Answer) -> str | None:
    return next((link for link in links(answer) if link.startswith(SETTINGS)), None)


async def registered(shop: RelyingParty) -> list[tuple[object, ...]]:
    return await run_sql(
        shop.tenant.pool, "select redirect_uris, post_logout_redirect_uris, updated_at from services where id = %s", shop.service
    )


async def test_the_page_shows_the_whole_value_and_the_names(shop: RelyingParty) -> None:
    uri = "https://shop.example.com/callback?from=" + "a" * 1500
    page = await shop.open_request(redirect_uri=uri)
    assert (page.status, shown(page)) == (400, uri)
    assert "<bdi>Shop</bdi></strong> by <bdi>Acme</bdi>" in page.text
    assert (settings_link(page), "ask an admin of <bdi>Acme</bdi>" in page.text) == (None, True)


@pytest.mark.parametrize("uri", HOSTILE)
@pytest.mark.parametrize("who", ["admin", None])
async def test_a_hostile_value_stays_text(shop: RelyingParty, uri: str, who: str | None) -> None:
    if who is not None:
        await sign_in_browser(shop, shop.tenant.people[who])
    before = await registered(shop)
    await register_return(shop)
    pages = [
        await shop.open_request(redirect_uri=uri),
        await shop.browser.open(end_session_path(client_id=shop.client_id, post_logout_redirect_uri=uri)),
    ]
    for page in pages:
        assert (page.status, "Location" in page.headers) == (400, False)
        text = shown(page)
        assert all(character.isprintable() for character in text)
        assert len(text) <= 8192 * 6
        assert text == uri[:8192] or not uri.isprintable()
        assert [link for link in links(page) if not link.startswith(("/app", "/auth/end-session", "/assets", "/"))] == []
        assert not any(link.startswith("//") for link in links(page))
        assert {element.tag for element in html.document_fromstring(page.text).iter() if isinstance(element.tag, str)}.isdisjoint(
            {"script", "img"}
        )
    assert [row[0] for row in await registered(shop)] == [row[0] for row in before]


async def test_an_admin_finds_the_value_in_the_field_and_saves_it(shop: RelyingParty) -> None:
    await sign_in_browser(shop, shop.tenant.people["admin"])
    uri, before = "https://shop.example.com/other?a=b&c=d", await registered(shop)
    link = settings_link(await shop.open_request(redirect_uri=uri))
    assert link is not None
    assert dict(parse_qsl(urlsplit(link).query)) == {"redirect_uris": uri}
    page = await shop.browser.open(link.partition("#")[0])
    [field] = html.document_fromstring(page.text).xpath("//textarea[@name='redirect_uris']")
    lines = str(field.text_content()).split()
    assert lines == [shop.redirect_uri, uri]
    assert ("isn't saved yet" in unescape(page.text), "yet. Save it only" in page.text) == (True, False)
    assert await registered(shop) == before


async def test_a_new_host_is_named_with_a_warning_on_both_pages(shop: RelyingParty) -> None:
    await sign_in_browser(shop, shop.tenant.people["admin"])
    page = await shop.open_request(redirect_uri="https://\u0441hop.example.com/callback")
    link = settings_link(page) or ""
    for each in (page, await shop.browser.open(link.partition("#")[0])):
        assert "<code>xn--hop-3ed.example.com</code>" in each.text, "the host as browsers spell it"
        assert "Save it only" in each.text or "Add it only" in each.text
    known = await shop.open_request(redirect_uri=f"{shop.redirect_uri}/")
    assert "Add it only" not in known.text


@pytest.mark.parametrize("uri", ["https://shop.example.com/#a", "javascript:alert(1)", "https://shop.example.com/" + "x" * 2100])
async def test_a_value_that_cannot_be_registered_says_why_and_is_not_put_into_the_field(shop: RelyingParty, uri: str) -> None:
    await sign_in_browser(shop, shop.tenant.people["admin"])
    page = await shop.open_request(redirect_uri=uri)
    assert (settings_link(page), "It can't be registered: it" in unescape(page.text)) == (f"{SETTINGS}#sign-in", True)


async def test_only_admins_of_the_organization_get_the_link(shop: RelyingParty, other_tenant: Tenant, user: Account) -> None:
    uri = "https://evil.example/callback"
    for account in (shop.tenant.people["member"], other_tenant.people["owner"], user):
        await sign_in_browser(shop, account)
        page = await shop.open_request(redirect_uri=uri)
        assert (settings_link(page), "evil.example</code>" in page.text) == (None, False)
    await add_member(shop.tenant.pool, shop.tenant.org, user.id, ADMIN, confirmed=False)
    assert settings_link(await shop.open_request(redirect_uri=uri)) is None, "not confirmed"
    await sign_in_browser(shop, shop.tenant.people["owner"])
    assert settings_link(await shop.open_request(redirect_uri=uri)) is not None


async def test_a_member_gets_no_field_from_a_link_to_the_settings(shop: RelyingParty) -> None:
    await sign_in_browser(shop, shop.tenant.people["member"])
    page = await shop.browser.open(f"{SETTINGS}?{urlencode({'redirect_uris': 'https://evil.example/x'})}")
    assert (page.status, "evil.example" in main_of(page)) == (200, False)


async def test_a_program_gets_the_refusal_as_json(shop: RelyingParty) -> None:
    answer = await shop.api.get(shop.request(redirect_uri="https://evil.example/"), headers={"Accept": "application/json"})
    assert (answer.status, answer.json["error_code"]) == (400, "BAD_REQUEST")


async def test_a_user_can_sign_out_although_the_address_is_not_registered(shop: RelyingParty, user: Account) -> None:
    """Even with an ID token from the session they are asked first, and nothing leads to the address."""
    await register_return(shop)
    await add_service_user(shop.tenant.ports, shop.service, user.id, signed_in=False)
    await sign_in_browser(shop, user)
    tokens, uri = await openid_tokens(shop), "https://shop.example.com/bye/other"
    page = await shop.browser.open(end_session_path(id_token_hint=tokens["id_token"], post_logout_redirect_uri=uri))
    assert (page.status, shown(page), "<bdi>Shop</bdi>" in page.text) == (400, uri, True)
    assert await shop.browser.is_in()
    after = await shop.browser.answer(page, "continue")
    assert (after.status, "You're signed out" in unescape(after.text), uri in after.text) == (200, True, False)
    assert not await shop.browser.is_in()
    again = await shop.browser.open(end_session_path(client_id=shop.client_id, post_logout_redirect_uri=uri))
    assert (again.status, shown(again), "You're signed out" in unescape(again.text)) == (400, uri, True)
