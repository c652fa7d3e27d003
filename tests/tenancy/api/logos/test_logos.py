"""Logos for organizations, applications and identity providers: uploaded, shown where users sign in, and removed."""

from datetime import timedelta
from typing import Final

from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import ADMIN
from tests.fakes.images import picture
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, PASSWORD, Answer, add_account, add_member, run_sql
from tests.support.platform import Platform
from tests.support.tenants import Tenant

KEYS: Final = "select key, org_id, service_id, connection_id from images"
CONNECTIONS: Final = "/api/platform/connections"
PNG: Final = {"Content-Type": "image/png"}


async def put(acme: Tenant, path: str, file: bytes, by: str = "admin") -> Answer:
    return await acme.api.call("PUT", f"{acme.path}{path}", raw=file, token=acme.token(by), headers=PNG)


async def status_of(app: QuartTrio, url: str) -> int:
    return (await app.test_client().get(url.removeprefix(BASE_URL))).status_code


async def browser_of_admin(acme: Tenant, app: QuartTrio) -> FakeBrowser:
    admin = await add_account(acme.ports, "grace@example.com", PASSWORD)
    await add_member(acme.pool, acme.org, admin.id, ADMIN, confirmed=True)
    browser = FakeBrowser(app)
    await browser.sign_in(admin.email, PASSWORD)
    return browser


async def test_an_uploaded_logo_of_an_organization_fills_the_logo_url(acme: Tenant, app: QuartTrio, pool: Pool) -> None:
    url = (await put(acme, "/branding/logo", picture(size=(800, 200)))).json["logo_url"]
    assert url.startswith(f"{BASE_URL}/images/")
    [(action, *_, details)] = await acme.recorded()
    assert (action, details) == ("branding.updated", {"logo_url": {"old": None, "new": url}})
    assert (await acme.api.get(f"{acme.path}/branding", token=acme.token("member"))).json["logo_url"] == url
    response = await app.test_client().get(url.removeprefix(BASE_URL))
    assert (response.status_code, response.headers["Cache-Control"]) == (200, "public, max-age=31536000, immutable")
    # Other branding values leave it alone, and another logo replaces it.
    await acme.api.patch(f"{acme.path}/branding", {"product_name": "Portal"}, token=acme.token("admin"))
    assert await status_of(app, url) == 200
    await acme.api.patch(f"{acme.path}/branding", {"logo_url": "https://cdn.acme.example/logo.png"}, token=acme.token("admin"))
    assert await status_of(app, url) == 404
    await put(acme, "/branding/logo", picture())
    assert (await acme.api.delete(f"{acme.path}/branding/logo", token=acme.token("admin"))).status == 204
    assert await run_sql(pool, KEYS) == []


async def test_a_refused_logo_changes_nothing(acme: Tenant, pool: Pool) -> None:
    assert (await put(acme, "/branding/logo", b"<svg/>")).status == 400
    assert (await put(acme, "/branding/logo", picture(), by="member")).status == 403
    assert await run_sql(pool, KEYS) == []
    assert await acme.recorded() == []


async def test_the_logo_of_an_application_belongs_to_it(acme: Tenant, other_tenant: Tenant, app: QuartTrio, pool: Pool) -> None:
    body = {"slug": "shop", "name": "Shop", "service_type": "web", "redirect_uris": ["https://shop.example/callback"]}
    for tenant in (acme, other_tenant):
        assert (await tenant.api.post(f"{tenant.path}/services", body, token=tenant.token("admin"))).status == 200
    service = (await put(acme, "/services/shop/logo", picture())).json
    assert await status_of(app, service["logo_url"]) == 200
    other = (await other_tenant.api.get(f"{other_tenant.path}/services/shop", token=other_tenant.token("admin"))).json
    assert other["logo_url"] is None
    assert (await acme.entry("service.updated"))["details"]["changes"] == {"logo_url": {"old": None, "new": service["logo_url"]}}
    assert (await put(acme, "/services/none/logo", picture())).status == 404
    await acme.api.patch(f"{acme.path}/services/shop", {"name": "Store"}, token=acme.token("admin"))
    assert (await acme.api.get(f"{acme.path}/services/shop", token=acme.token("admin"))).json["logo_url"] == service["logo_url"]
    assert (await acme.api.delete(f"{acme.path}/services/shop/logo", token=acme.token("admin"))).status == 204
    assert (await acme.api.get(f"{acme.path}/services/shop", token=acme.token("admin"))).json["logo_url"] is None
    await put(acme, "/services/shop/logo", picture())
    assert (await acme.api.delete(f"{acme.path}/services/shop", token=acme.token("owner"))).status == 204
    assert await run_sql(pool, KEYS) == []


async def test_the_tabs_of_an_application_show_its_logo(acme: Tenant, app: QuartTrio) -> None:
    body = {"slug": "shop", "name": "Shop", "service_type": "web", "redirect_uris": ["https://shop.example/callback"]}
    await acme.api.post(f"{acme.path}/services", body, token=acme.token("admin"))
    url = (await put(acme, "/services/shop/logo", picture())).json["logo_url"]
    path = url.removeprefix(BASE_URL).rpartition("/")[0]
    browser = await browser_of_admin(acme, app)
    for tab in ("", "/setup", "/saml", "/access", "/providers", "/api-keys", "/plans", "/subscriptions", "/test"):
        page = await browser.open(f"/app/organizations/acme/applications/shop{tab}")
        head = page.text.partition("</h1>")[0]
        assert (page.status, f'src="{path}/' in head) == (200, True), tab


async def test_platform_owners_choose_the_logos_of_identity_providers(platform: Platform, acme: Tenant, app: QuartTrio, pool: Pool) -> None:
    path = f"{CONNECTIONS}/websuite/logo"
    answer = await platform.api.call("PUT", path, raw=picture(), token=platform.token, headers=PNG)
    assert (answer.status, answer.json["slug"], answer.json["name"]) == (200, "websuite", "Websuite")
    assert await status_of(app, answer.json["logo_url"]) == 200
    listed = (await platform.api.get(CONNECTIONS, token=platform.token)).json
    assert [each["logo_url"] for each in listed] == [None, answer.json["logo_url"], None]
    assert (await platform.api.get(CONNECTIONS, token=acme.token("owner"))).status == 403
    assert (await acme.api.call("PUT", path, raw=picture(), token=acme.token("owner"), headers=PNG)).status == 403
    assert (await platform.api.delete(path, token=platform.token)).status == 204
    assert (await platform.api.delete(path, token=platform.token)).status == 204, "nothing to remove"
    entries = await run_sql(pool, "select action, target_id, details from audit_log where org_id is null order by details desc")
    assert entries == [("connection.updated", "websuite", {"logo": "set"}), ("connection.updated", "websuite", {"logo": "removed"})]
    unknown = await platform.api.call("PUT", f"{CONNECTIONS}/facebook/logo", raw=picture(), token=platform.token, headers=PNG)
    assert unknown.status == 404


async def test_the_page_asks_for_a_recent_sign_in_before_a_file_is_chosen(acme: Tenant, app: QuartTrio, clock: FakeClock) -> None:
    browser, page = await browser_of_admin(acme, app), f"/app/organizations/{acme.slug}/branding"
    confirmation = "/app/reauthenticate?next=%2Fapp%2Forganizations%2Facme%2Fbranding"
    assert confirmation not in (await browser.open(page)).text
    clock.advance(timedelta(hours=2))
    assert confirmation in (await browser.open(page)).text


async def test_the_preview_of_the_branding_saves_nothing(acme: Tenant, app: QuartTrio, clock: FakeClock) -> None:
    browser = await browser_of_admin(acme, app)
    clock.advance(timedelta(hours=2))  # a preview needs no recent sign-in
    page = f"/app/organizations/{acme.slug}/branding"
    fields = {"product_name": "Acme & Sons", "primary_color": "#7a1fa2", "logo_url": "https://cdn.acme.example/logo.png"}
    preview = await browser.submit(f"{page}/preview", page, **fields)
    assert preview.status == 200
    assert 'href="/app/reauthenticate?next=%2Fapp%2Forganizations%2Facme%2Fbranding"' in preview.text
    assert preview.text.count("<bdi>Acme &amp; Sons</bdi>") == 2, "in light and in dark mode"
    assert "--button: #7a1fa2" in preview.text
    assert "This isn&#39;t saved yet." in preview.text or "This isn't saved yet." in preview.text
    assert "https://cdn.acme.example" in preview.headers["Content-Security-Policy"]
    assert "Acme &amp; Sons" not in (await browser.open(page)).text
    refused = await browser.submit(f"{page}/preview", page, **{**fields, "primary_color": "purple"})
    assert (refused.status, 'value="purple"' in refused.text) == (400, True)


async def test_an_uploaded_logo_stays_when_the_other_fields_are_saved(acme: Tenant, app: QuartTrio) -> None:
    browser = await browser_of_admin(acme, app)
    page = f"/app/organizations/{acme.slug}/branding"
    assert (await browser.upload(f"{page}/logo", page, picture())).status == 303
    await browser.submit(page, page, product_name="Portal", primary_color="", logo_url="")
    branding = (await acme.api.get(f"{acme.path}/branding", token=acme.token("member"))).json
    assert (branding["product_name"], branding["logo_url"] is None) == ("Portal", False)
    assert 'class="logo" src="/images/' in (await browser.open(f"{page}/preview")).text
    assert (await browser.submit(f"{page}/logo/remove", page)).status == 303
    assert (await acme.api.get(f"{acme.path}/branding", token=acme.token("member"))).json["logo_url"] is None
