"""The pages for an application's own credentials at identity providers."""

from quart_trio import QuartTrio

from core.kernel.roles import ADMIN
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import PASSWORD, add_account, add_member
from tests.support.services import add_service
from tests.support.tenants import Tenant


async def test_an_admin_sets_and_removes_credentials_and_never_sees_the_secret(acme: Tenant, app: QuartTrio) -> None:
    await add_service(acme.pool, acme.org, "shop")
    admin = await add_account(acme.ports, "grace@example.com", PASSWORD)
    await add_member(acme.pool, acme.org, admin.id, ADMIN, confirmed=True)
    browser = FakeBrowser(app)
    await browser.sign_in(admin.email, PASSWORD)
    providers = f"/app/organizations/{acme.slug}/applications/shop/providers"
    websuite = f"{providers}/websuite"
    saved = await browser.submit(websuite, websuite, client_id="the client", client_secret=" secret ")
    assert leads_to(saved) == providers, "spaces around a copied secret are dropped"
    refused = await browser.submit(websuite, websuite, client_id="the client", client_secret="s\u00e9cret")
    assert (refused.status, 'value="the client"' in refused.text) == (400, True)
    assert "s\u00e9cret" not in refused.text
    assert "the client" in (await browser.open(providers)).text
    assert leads_to(await browser.submit(f"{websuite}/remove", websuite)) == providers
    assert "the client" not in (await browser.open(providers)).text
    assert (await browser.submit(f"{websuite}/remove", websuite)).status == 404
    assert (await browser.open(f"{providers}/unknown")).status == 404
    assert (await acme.actions())["service.oauth_credentials.updated"] == 2
