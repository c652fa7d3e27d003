"""Linking and unlinking on the account page (security O-6)."""

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.kernel.connections import ConnectionSlug
from core.kernel.policy import PROVIDER_NAMES, Policy
from tests.federation.api.social.links.clients import PAGE, open_ticket
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import ACCOUNT, form_token, leads_to
from tests.support.builders import EMAIL, run_sql
from tests.support.direct import change_ports

pytestmark = pytest.mark.slow


async def link_on_page(provider_sign_in: ProviderSignIn) -> None:
    page = await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/link", PAGE)
    assert page.status == 200, page.text
    wait, _, address = page.headers["Refresh"].partition("; url=")
    assert (wait, address in page.text) == ("0", True)
    assert leads_to(await provider_sign_in.browser.open(await open_ticket(provider_sign_in, address))) == PAGE


async def test_an_identity_is_linked_and_unlinked_on_the_account_page(provider_sign_in: ProviderSignIn, user: Account) -> None:
    await provider_sign_in.browser.sign_in()
    assert "No accounts are linked." in (await provider_sign_in.browser.open(f"{ACCOUNT}/security")).text
    assert "not linked" in (await provider_sign_in.browser.open(PAGE)).text
    await link_on_page(provider_sign_in)
    page = await provider_sign_in.browser.open(PAGE)
    assert "Account linked." in page.text
    assert EMAIL in page.text
    assert "not linked" not in page.text
    assert "You can sign in with Codehost." in (await provider_sign_in.browser.open(f"{ACCOUNT}/security")).text
    assert leads_to(await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/unlink", PAGE)) == PAGE
    assert "Account unlinked." in (await provider_sign_in.browser.open(PAGE)).text
    assert await provider_sign_in.identities() == []


async def test_pages_show_the_provider_by_its_display_name(app: QuartTrio, provider_sign_in: ProviderSignIn, user: Account) -> None:
    change_ports(app, policy=Policy(provider_names={**PROVIDER_NAMES, ConnectionSlug(provider_sign_in.name): "Acme Login"}))
    assert "Continue with Acme Login" in (await provider_sign_in.browser.open("/app/sign-in")).text
    await provider_sign_in.browser.sign_in()
    assert '>Link<span class="unseen"> Acme Login</span>' in (await provider_sign_in.browser.open(PAGE)).text
    forwarding = await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/link", PAGE)
    assert "Continue to Acme Login" in forwarding.text
    _, _, address = forwarding.headers["Refresh"].partition("; url=")
    await provider_sign_in.browser.open(await open_ticket(provider_sign_in, address))
    assert "Acme Login" in (await provider_sign_in.browser.open(PAGE)).text
    assert "You can sign in with Acme Login." in (await provider_sign_in.browser.open(f"{ACCOUNT}/security")).text


async def test_forms_of_other_sites_link_nothing(provider_sign_in: ProviderSignIn, user: Account) -> None:
    await provider_sign_in.browser.sign_in()
    for action in ("link", "unlink"):
        assert (await provider_sign_in.browser.send(f"{PAGE}/{provider_sign_in.name}/{action}", form_token="guessed")).status == 403
        token = form_token(await provider_sign_in.browser.open(PAGE))
        foreign = (b"sec-fetch-site", b"cross-site")
        assert (await provider_sign_in.browser.send(f"{PAGE}/{provider_sign_in.name}/{action}", foreign, form_token=token)).status == 403
    assert await run_sql(provider_sign_in.pool, "select * from sign_in_flows") == []


async def test_the_page_explains_refusals(provider_sign_in: ProviderSignIn) -> None:
    await provider_sign_in.sign_in()
    answer = await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/unlink", PAGE)
    assert answer.status == 400
    assert "your only way to sign in" in answer.text
    answer = await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/link", PAGE)
    assert answer.status == 400
    assert "You have already linked" in answer.text
    assert (await provider_sign_in.browser.submit(f"{PAGE}/websuite/link", PAGE)).status == 404
    assert (await provider_sign_in.browser.submit(f"{PAGE}/websuite/unlink", PAGE)).status == 404


async def test_the_last_identity_stays_if_the_password_cannot_sign_in(provider_sign_in: ProviderSignIn) -> None:
    await provider_sign_in.sign_in()
    await run_sql(provider_sign_in.pool, "update users set password_hash = 'of some password', email_verified_at = null")
    await run_sql(provider_sign_in.pool, "update sessions set fresh = true")
    assert (await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/unlink", PAGE)).status == 400
    await run_sql(provider_sign_in.pool, "update users set email_verified_at = now()")
    assert (await provider_sign_in.browser.submit(f"{PAGE}/{provider_sign_in.name}/unlink", PAGE)).status == 303
