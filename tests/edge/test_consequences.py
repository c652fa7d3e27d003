"""The page before something ends: it names what stops, changes nothing, and its form ends it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import ADMIN, Permission
from ports import Ports
from tests.accounts.api.account_pages.paths import page_text
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser, hidden_fields
from tests.support.builders import EMAIL, PASSWORD, add_account, add_member, add_organization, run_sql
from tests.support.saml import new_certificate
from tests.support.services import add_api_key, add_service

ROOT = "/app/organizations/acme"
SHOP = f"{ROOT}/applications/shop"
SAML = f"{SHOP}/saml"
SETTINGS = {"enabled": "yes", "entity_id": "https://shop.example/", "acs_url": "https://shop.example/acs", "sign_assertions": "yes"}


@dataclass(frozen=True, slots=True)
class World:
    """The browser for an organization's admin, and the application Shop."""

    browser: FakeBrowser
    pool: Pool
    org: UUID
    shop: UUID

    async def only(self, table: str) -> UUID:
        [(id_,)] = await run_sql(self.pool, f"select id from {table}")  # noqa: S608
        return UUID(str(id_))


@pytest.fixture
async def world(app: QuartTrio, ports: Ports, pool: Pool) -> World:
    account, org = await add_account(ports, EMAIL, PASSWORD), await add_organization(pool, "acme")
    await add_member(pool, org, account.id, ADMIN, confirmed=True)
    browser = FakeBrowser(app)
    await browser.sign_in()
    return World(browser, pool, org, await add_service(pool, org, "shop"))


async def _leave(_: World) -> str:
    return "/app/account/organizations/acme/leave"


async def _api_key(world: World) -> str:
    await add_api_key(world.pool, world.shop, [Permission.READ_ANALYTICS])
    return f"{SHOP}/api-keys/{await world.only('api_keys')}/revoke"


async def _scim_token(world: World) -> str:
    await world.browser.submit(f"{ROOT}/directory", f"{ROOT}/directory", name="Okta")
    return f"{ROOT}/directory/tokens/{await world.only('scim_tokens')}/revoke"


async def _certificate(world: World) -> str:
    await world.browser.submit(SAML, SAML, **SETTINGS)
    await world.browser.submit(f"{SAML}/certificate", SAML)
    return f"{SAML}/certificate"


async def _registration_token(world: World) -> str:
    await world.browser.submit(f"{ROOT}/registration-tokens", f"{ROOT}/registration-tokens", name="Agents", uses="3")
    return f"{ROOT}/registration-tokens/{await world.only('registration_tokens')}/delete"


CASES: dict[str, tuple[Callable[[World], Awaitable[str]], list[str], str]] = {
    "leave": (_leave, ["Leave Acme", "You can now use: Shop", "you need an invitation"], "select count(*) from memberships"),
    "API key": (_api_key, ["Programs with this key are refused", "subscriptions of Shop", "It was never used."], "select id from api_keys"),
    "SCIM token": (_scim_token, ["Revoke Okta", "Okta stops provisioning", "sees 1 user here"], "select id from scim_tokens"),
    "registration token": (
        _registration_token,
        ["Delete Agents", "3 applications can no longer register", "stay"],
        "select id from registration_tokens",
    ),
    "certificate": (_certificate, ["can't sign in to Shop with SAML"], "select id from saml_certificates where deactivated_at is null"),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_page_names_what_ends_and_its_form_ends_it(world: World, case: str) -> None:
    prepare, sentences, state = CASES[case]
    path = await prepare(world)
    before = await run_sql(world.pool, state)
    page = await world.browser.open(path)
    text = page_text(page)
    assert (page.status, [each for each in sentences if each not in text]) == (200, []), text
    assert await run_sql(world.pool, state) == before
    assert (await world.browser.send(path, **hidden_fields(page))).status == 303
    assert await run_sql(world.pool, state) != before


async def test_another_certificate_of_the_application_is_saved_after_a_question(world: World) -> None:
    first, second = [(await new_certificate(FakeClock().now(), name)).certificate for name in ("first", "second")]
    assert (await world.browser.submit(SAML, SAML, **SETTINGS, slo_certificate=first)).status == 303
    assert (await world.browser.submit(SAML, SAML, **SETTINGS, slo_certificate=first, sign_response="yes")).status == 303
    before = await run_sql(world.pool, "select slo_certificate from saml_configurations")
    page = await world.browser.submit(SAML, SAML, **SETTINGS, slo_certificate=second)
    assert (page.status, "We refuse logout requests that Shop signs with its present certificate." in page_text(page)) == (200, True)
    assert await run_sql(world.pool, "select slo_certificate from saml_configurations") == before
    assert (await world.browser.send(SAML, **hidden_fields(page))).status == 303
    assert await run_sql(world.pool, "select slo_certificate from saml_configurations") != before
    page = await world.browser.submit(SAML, SAML, **SETTINGS, slo_certificate="")
    assert "Remove the certificate from Shop" in page_text(page)
