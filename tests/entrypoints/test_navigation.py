"""The console's navigation as its users see it: the modes, their switch, the tabs and the search."""

import re

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import MEMBER
from entrypoints.http.pages.navigation import PLATFORM_PATH
from tests.support.browser import FakeBrowser
from tests.support.builders import Answer, add_member, add_organization, run_sql

ACME = "/app/organizations/acme"


def links_in(answer: Answer, start: str, end: str) -> dict[str, str]:
    """Return the links in a part of a page: label and path."""
    part = answer.text.partition(start)[2].partition(end)[0]
    return {re.sub("<[^>]+>", "", text).strip(): path for path, text in re.findall(r'<a href="([^"]+)"[^>]*>(.*?)</a>', part, re.DOTALL)}


def sidebar(answer: Answer) -> dict[str, str]:
    return links_in(answer, '<nav id="navigation"', "</nav>")


def switch(answer: Answer) -> dict[str, str]:
    return links_in(answer, 'class="drop switch"', "</details>")


async def test_a_mode_shows_only_its_own_entries(owner_browser: FakeBrowser, pool: Pool) -> None:
    await run_sql(pool, "update users set is_platform_owner = true")
    pages = {path: await owner_browser.open(path) for path in (ACME, PLATFORM_PATH, "/app/account")}
    for path, page in pages.items():
        entries = sidebar(page)
        assert 0 < len(entries) <= 12
        assert all(target.startswith(path.removesuffix("/organizations")) for target in entries.values()), path
    assert switch(pages[ACME])["Platform"] == PLATFORM_PATH
    assert "Platform" not in switch(pages[PLATFORM_PATH])
    for path in (PLATFORM_PATH, "/app/account"):
        assert ACME in switch(pages[path]).values(), path


async def test_only_platform_owners_can_switch_to_the_platform(owner_browser: FakeBrowser) -> None:
    assert "Platform" not in switch(await owner_browser.open(ACME))


@pytest.mark.parametrize(("path", "current"), [("/settings", "General"), ("/siem", "SIEM"), ("/invitations", "Invitations")])
async def test_related_pages_are_tabs_of_one_entry(owner_browser: FakeBrowser, path: str, current: str) -> None:
    page = await owner_browser.open(ACME + path)
    tabs = links_in(page, '<ul class="tabs">', "</ul>")
    assert tabs[current] == ACME + path
    assert f'href="{ACME}{path}" aria-current="page">{current}<' in page.text
    assert page.text.count('aria-current="page"') == 2, "the entry and the tab"


@pytest.mark.parametrize("path", ["security", "security/sign-ins", "password", "two-factor/log", "identities"])
async def test_the_pages_that_security_leads_to_are_below_it(owner_browser: FakeBrowser, path: str) -> None:
    page = await owner_browser.open(f"/app/account/{path}")
    assert re.findall(r'<a href="([^"]+)" aria-current="page">', page.text) == ["/app/account/security"]


async def test_a_page_below_a_tab_has_no_tabs(owner_browser: FakeBrowser) -> None:
    assert '<ul class="tabs">' not in (await owner_browser.open(f"{ACME}/settings/delete")).text


async def test_an_entry_leads_to_the_first_page_that_the_user_may_open(owner_browser: FakeBrowser, pool: Pool) -> None:
    [(user,)] = await run_sql(pool, "select id from users")
    await add_member(pool, await add_organization(pool, "globex"), user, MEMBER, confirmed=True)
    entries = sidebar(await owner_browser.open("/app/organizations/globex"))
    assert entries["Members"] == "/app/organizations/globex/members"
    assert "Settings" not in entries
    tabs = (await owner_browser.open(entries["Members"])).text
    assert (">Groups</a>" in tabs, ">Invitations</a>" in tabs) == (True, False)


async def test_the_search_finds_pages_that_are_tabs(owner_browser: FakeBrowser) -> None:
    assert f'href="{ACME}/mail-server"' in (await owner_browser.open(f"{ACME}/search?search=mail")).text


async def test_the_search_finds_webhooks_and_the_documentation(owner_browser: FakeBrowser, pool: Pool) -> None:
    hook = """
        insert into webhooks (id, org_id, name, url, events, is_active, secret, created_at, updated_at)
        select gen_random_uuid(), id, %s, 'https://crm.example/in', '{user.invited}', true, '', created_at, created_at from organizations
        where slug = %s returning id"""
    [(webhook_id,)] = await run_sql(pool, hook, "CRM <b>flask</b>", "acme")
    await add_organization(pool, "globex")
    await run_sql(pool, hook, "flask of others", "globex")
    page = await owner_browser.open(f"{ACME}/search?search=FLASK")
    assert f'<a href="{ACME}/webhooks/{webhook_id}/deliveries"><bdi>CRM &lt;b&gt;flask&lt;/b&gt;</bdi></a>' in page.text
    assert '<a href="/docs/guides/quickstarts/flask' in page.text
    assert "flask of others" not in page.text
    assert f'href="{ACME}/webhooks/' not in (await owner_browser.open(f"{ACME}/search?search=xyzzy")).text


async def test_members_find_no_webhooks(owner_browser: FakeBrowser, pool: Pool) -> None:
    [(user,)] = await run_sql(pool, "select id from users")
    await add_member(pool, await add_organization(pool, "globex"), user, MEMBER, confirmed=True)
    await run_sql(
        pool,
        """insert into webhooks (id, org_id, name, url, events, is_active, secret, created_at, updated_at)
           select gen_random_uuid(), id, 'Flask', 'https://crm.example/in', '{user.invited}', true, '', created_at, created_at
           from organizations where slug = 'globex'""",
    )
    page = (await owner_browser.open("/app/organizations/globex/search?search=flask")).text
    assert ("/webhooks/" in page, "/docs/guides/quickstarts/flask" in page) == (False, True)
