"""The addresses where an application gets messages about sign-outs (security X-4, X-9)."""

from urllib.parse import urlsplit

from core.accounts.model.accounts import Account
from tests.support.builders import BASE_URL
from tests.support.saml.browser import RedirectedMessage, SamlApplications, SamlBrowser, redirect_target, request_logout, sign_out


async def test_responses_go_to_their_own_address(browser: SamlBrowser, applications: SamlApplications, user: Account) -> None:
    """The address is `ResponseLocation` in the application's metadata (SAML metadata section 2.2.2). Requests go to the SLO URL."""
    responses = "https://shop.example.com/slo-responses?tenant=acme"
    shop = await applications.add("shop", slo_response_url=responses)
    await browser.sign_in()
    session = await browser.sign_on(shop)
    address = redirect_target(await request_logout(browser, shop, session.name_id, session.session_index))
    assert address.startswith(f"{responses}&SAMLResponse=")
    message = RedirectedMessage(address)
    assert (message.kind, message.root.get("Destination")) == ("LogoutResponse", responses)
    await browser.sign_in()
    await browser.sign_on(shop)
    await sign_out(browser)
    message = RedirectedMessage(redirect_target(await browser.open(f"{shop.path}/slo")))
    assert (message.url, message.kind) == ("https://shop.example.com/slo", "LogoutRequest")


async def test_slo_urls_keep_their_query(browser: SamlBrowser, applications: SamlApplications, user: Account) -> None:
    shop = await applications.add("shop", slo_url="https://shop.example.com/slo?tenant=acme")
    await browser.sign_in()
    session = await browser.sign_on(shop)
    address = redirect_target(await request_logout(browser, shop, session.name_id, session.session_index))
    assert address.startswith("https://shop.example.com/slo?tenant=acme&SAMLResponse=")
    assert urlsplit(address).netloc == "shop.example.com"
    assert not address.startswith(BASE_URL)
