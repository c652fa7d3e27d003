"""The pages of an organization's applications: who may open them, and the values to copy (decision 264)."""

import pytest

from adapters.postgres.engine.pool import Pool
from tests.accounts.api.account_pages.paths import ORGANIZATIONS, page_text
from tests.federation.api.relying import RelyingParty, add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import BASE_URL, Api, run_sql
from tests.support.services import add_service
from tests.support.tenants import Tenant

APPLICATIONS = "/app/organizations/acme/applications"


@pytest.fixture
async def relying_party(acme: Tenant, browser: FakeBrowser) -> RelyingParty:
    return await add_relying_party(acme, browser)


async def test_a_member_copies_values_that_the_discovery_document_confirms(acme: Tenant, relying_party: RelyingParty, api: Api) -> None:
    await sign_in_browser(relying_party, acme.people["member"])
    browser = relying_party.browser
    assert f'href="{APPLICATIONS}"' in (await browser.open(ORGANIZATIONS)).text
    assert f'href="{APPLICATIONS}/shop"' in (await browser.open(APPLICATIONS)).text
    page = page_text(await browser.open(f"{APPLICATIONS}/shop"))
    metadata = (await api.get("/.well-known/openid-configuration")).json
    assert f"Issuer {metadata['issuer']} " in page
    assert f"End-session address {metadata['end_session_endpoint']} " in page
    assert f"{BASE_URL}/.well-known/openid-configuration" in page
    assert f"Client ID {relying_party.client_id} " in page
    assert "Token endpoint authentication client_secret_basic " in page


@pytest.mark.parametrize(("service_type", "method"), [("spa", "none"), ("api", "client_secret_basic"), ("mobile", "none")])
async def test_the_page_names_how_the_client_authenticates(
    acme: Tenant, relying_party: RelyingParty, service_type: str, method: str
) -> None:
    await sign_in_browser(relying_party, acme.people["admin"])
    await add_service(acme.pool, acme.org, "other", service_type)
    page = page_text(await relying_party.browser.open(f"{APPLICATIONS}/other"))
    assert f"Token endpoint authentication {method} " in page


async def test_a_long_list_has_more_pages(acme: Tenant, relying_party: RelyingParty) -> None:
    await sign_in_browser(relying_party, acme.people["admin"])
    for number in range(50):
        await add_service(acme.pool, acme.org, f"shop-{number}")
    first = await relying_party.browser.open(APPLICATIONS)
    assert 'href="?offset=50"' in first.text
    second = await relying_party.browser.open(f"{APPLICATIONS}?offset=50")
    assert (first.text.count('class="row-action"'), second.text.count('class="row-action"')) == (50, 1)
    assert "offset=" not in second.text


async def test_the_pages_of_other_organizations_do_not_exist(acme: Tenant, other_tenant: Tenant, relying_party: RelyingParty) -> None:
    """An unknown organization gives the same page."""
    await sign_in_browser(relying_party, other_tenant.people["owner"], is_known=False)
    for path in (APPLICATIONS, f"{APPLICATIONS}/shop", "/app/organizations/unknown/applications"):
        answer = await relying_party.browser.open(path)
        assert (answer.status, "This organization does not exist." in page_text(answer)) == (404, True)
    assert (await relying_party.browser.open(f"/app/organizations/{other_tenant.slug}/applications/shop")).status == 404


async def test_a_link_does_not_confirm_a_membership(acme: Tenant, relying_party: RelyingParty, pool: Pool) -> None:
    await run_sql(pool, "update memberships set confirmed_at = null where user_id = %s", acme.people["admin"].id)
    await sign_in_browser(relying_party, acme.people["admin"])
    assert leads_to(await relying_party.browser.open(APPLICATIONS)) == ORGANIZATIONS
    assert APPLICATIONS not in (await relying_party.browser.open(ORGANIZATIONS)).text
    assert await run_sql(pool, "select confirmed_at from memberships where user_id = %s", acme.people["admin"].id) == [(None,)]


async def test_names_cannot_contain_markup(acme: Tenant, relying_party: RelyingParty, pool: Pool) -> None:
    hostile = '<script>alert(1)</script>"><b>{{ 7 * 7 }}'
    await run_sql(pool, "update services set name = %s where id = %s", hostile, relying_party.service)
    await sign_in_browser(relying_party, acme.people["admin"])
    for path in (APPLICATIONS, f"{APPLICATIONS}/shop"):
        text = (await relying_party.browser.open(path)).text
        assert "&lt;script&gt;alert(1)" in text
        assert "{{ 7 * 7 }}" in text
        assert "<script" not in text
        assert "<b>" not in text
