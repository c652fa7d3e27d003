"""The page about registration tokens."""

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import ADMIN, MEMBER, RoleName
from ports import Ports
from tests.support.browser import FakeBrowser
from tests.support.builders import PASSWORD, Api, add_account, add_member, add_organization, run_sql

PAGE = "/app/organizations/acme/registration-tokens"


@pytest.fixture
async def admin(app: QuartTrio, ports: Ports, pool: Pool) -> FakeBrowser:
    return await member_browser(app, ports, pool, ADMIN)


async def member_browser(app: QuartTrio, ports: Ports, pool: Pool, role: RoleName) -> FakeBrowser:
    acme = await add_organization(pool, "acme")
    await add_member(pool, acme, (await add_account(ports, "ada@example.com", PASSWORD)).id, role, confirmed=True)
    browser = FakeBrowser(app)
    await browser.sign_in("ada@example.com", PASSWORD)
    return browser


async def test_an_admin_creates_a_token_and_sees_the_application_that_used_it(admin: FakeBrowser, api: Api, pool: Pool) -> None:
    shown = await admin.submit(PAGE, PAGE, name="Build agents", uses="1", expires_at="")
    assert shown.status == 200
    secret = shown.text.partition("gthr_")[2][:49]
    metadata = {"client_name": "Agent", "redirect_uris": ["https://agent.example/callback"]}
    assert (await api.post("/auth/register", metadata, token=f"gthr_{secret}")).status == 201
    page = await admin.open(PAGE)
    assert secret not in page.text
    for text in ("Build agents", "used up", "ada@example.com"):
        assert text in page.text, text
    application = await admin.open("/app/organizations/acme/applications/agent")
    assert "registered itself with the token <bdi>Build agents</bdi>" in application.text
    entries = (await admin.open("/app/organizations/acme/audit-log")).text
    assert "Build agents" in entries
    assert await run_sql(pool, "select registered_with, always_ask_consent, is_trusted from services") == [("Build agents", True, False)]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"uses": "0"}, "at least 1"),
        ({"expires_at": "2020-01-01"}, "must be in the future"),
        ({"name": " "}, "Enter"),
    ],
)
async def test_a_refused_form_keeps_what_was_typed(admin: FakeBrowser, pool: Pool, fields: dict[str, str], words: str) -> None:
    answer = await admin.submit(PAGE, PAGE, **{"name": "Agents", "uses": "2", "expires_at": "", **fields})
    assert answer.status == 400
    assert words in answer.text
    assert await run_sql(pool, "select 1 from registration_tokens") == []


async def test_members_without_the_right_see_no_page(app: QuartTrio, ports: Ports, pool: Pool) -> None:
    browser = await member_browser(app, ports, pool, MEMBER)
    assert (await browser.open(PAGE)).status == 403
    assert PAGE not in (await browser.open("/app/organizations/acme/applications")).text
