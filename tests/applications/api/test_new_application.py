"""The wizard for a new application: the sign-out address that it proposes, and the limit that it tells first (decision 440)."""

import re

import pytest
from lxml import html

from adapters.postgres.engine.pool import Pool
from core.kernel import uris
from tests.support.browser import FakeBrowser, hidden_fields, main_of
from tests.support.builders import Answer, run_sql
from tests.tables import table

ROOT = "/app/organizations/acme"
NEW = f"{ROOT}/applications/new"
FILLED = {"kind": "web", "name": "Shop", "redirect_uris": "https://shop.example/callback\nhttp://localhost:5000/callback"}
PROPOSAL = ["https://shop.example/", "http://localhost:5000/"]


async def send(browser: FakeBrowser, page: Answer | None = None, /, **fields: str) -> Answer:
    """Send the form on this page, or in the wizard."""
    page = page or await browser.open(f"{NEW}?kind=web")
    return await browser.send(NEW, **{**hidden_fields(page), **FILLED, "post_logout_redirect_uris": "", **fields})


async def stored(pool: Pool) -> list[tuple[list[str], list[str]]]:
    return await run_sql(pool, "select redirect_uris, post_logout_redirect_uris from services")


def proposed(page: Answer) -> list[str]:
    [field] = html.document_fromstring(page.text).xpath("//textarea[@name='post_logout_redirect_uris']")
    return str(field.text_content()).split()


async def test_a_form_without_a_sign_out_address_comes_back_with_a_proposal(owner_browser: FakeBrowser, pool: Pool) -> None:
    page = await send(owner_browser)
    assert (page.status, proposed(page), await stored(pool)) == (200, PROPOSAL, [])
    created = await send(owner_browser, page, post_logout_redirect_uris="\n".join(proposed(page)))
    assert "Client secret" in created.text
    assert await stored(pool) == [(FILLED["redirect_uris"].split(), PROPOSAL)]


async def test_a_user_can_leave_the_proposal_out(owner_browser: FakeBrowser, pool: Pool) -> None:
    page = await send(owner_browser)
    assert "Client secret" in (await send(owner_browser, page)).text
    assert [row[1] for row in await stored(pool)] == [[]]


async def test_an_address_of_the_user_needs_no_proposal(owner_browser: FakeBrowser, pool: Pool) -> None:
    assert "Client secret" in (await send(owner_browser, post_logout_redirect_uris="https://shop.example/bye")).text
    assert [row[1] for row in await stored(pool)] == [["https://shop.example/bye"]]
    refused = await send(owner_browser, post_logout_redirect_uris="nonsense")
    assert (refused.status, "A post-logout redirect URI is not allowed" in refused.text) == (400, True)


@pytest.mark.parametrize("fields", [{"redirect_uris": ""}, {"redirect_uris": "nonsense"}, {"kind": "api"}])
async def test_nothing_is_proposed_without_an_address(owner_browser: FakeBrowser, fields: dict[str, str]) -> None:
    page = await send(owner_browser, **{"redirect_uris": "", **fields})
    assert "We propose an address" not in page.text


async def test_a_desktop_application_can_have_a_scheme_without_a_dot(owner_browser: FakeBrowser, pool: Pool) -> None:
    scheme = "cursor://anysphere.cursor-mcp/oauth/callback"
    for uri, stands in ((scheme, True), ("javascript:alert(1)", False)):
        page = await send(owner_browser, kind="mobile", redirect_uris=uri)
        created = await send(owner_browser, page, kind="mobile", redirect_uris=uri)
        assert ("Schemes that browsers or systems handle" in created.text) is not stands
    assert [row[0] for row in await stored(pool)] == [[scheme]]


@table(
    ("uri", "start"),
    [
        ("https://App.example.com:443/cb?a=b", "https://app.example.com/"),
        ("http://localhost:5000/callback", "http://localhost:5000/"),
        ("com.example.app:/callback", "com.example.app:/"),
        ("cursor://anysphere.cursor-mcp/callback", "cursor://anysphere.cursor-mcp/"),
        ("https://shop.example@evil.example/", None),
        ("nonsense", None),
    ],
)
def test_the_start_page_of_an_address(uri: str, start: str | None) -> None:
    assert uris.start_of(uri) == start


async def test_the_limit_of_applications_is_told_before_the_wizard(owner_browser: FakeBrowser, pool: Pool) -> None:
    assert re.search("has 0 of [1-9][0-9]* applications", (await owner_browser.open(NEW)).text)
    await run_sql(pool, "update organizations set max_services = 1 where slug = 'acme'")
    form = {**hidden_fields(await owner_browser.open(f"{NEW}?kind=web")), **FILLED}
    assert "Client secret" in (await owner_browser.send(NEW, **form)).text
    for path in (NEW, f"{NEW}?kind=web"):
        page = await owner_browser.open(path)
        assert ("has 1 of 1 applications" in page.text, 'method="post" action="' + NEW in page.text) == (True, False)
    applications = main_of(await owner_browser.open(f"{ROOT}/applications"))
    assert ("reached its limit of 1" in applications, f'href="{NEW}"' in applications) == (True, False)


async def test_a_platform_owner_at_the_limit_gets_a_link_to_raise_it(owner_browser: FakeBrowser, pool: Pool) -> None:
    await run_sql(pool, "update organizations set max_services = 0 where slug = 'acme'")
    for path in (NEW, f"{ROOT}/applications"):
        assert "ask the operator of Gatehouse for a higher limit." in main_of(await owner_browser.open(path))
    await run_sql(pool, "update users set is_platform_owner = true where id = (select user_id from memberships where role = 'owner')")
    [(org_id,)] = await run_sql(pool, "select id from organizations where slug = 'acme'")
    for path in (NEW, f"{ROOT}/applications"):
        assert f'<a href="/app/platform/organizations/{org_id}#tier">raise the limit</a>' in main_of(await owner_browser.open(path))


async def test_the_wizard_asks_who_may_sign_in_and_proposes_the_members(owner_browser: FakeBrowser, pool: Pool) -> None:
    page = await owner_browser.open(f"{NEW}?kind=web")
    form = html.document_fromstring(page.text).xpath("//form[.//input[@name='policy']]")[0]
    options = {each.get("value"): each.get("checked") is not None for each in form.xpath(".//input[@name='policy']")}
    assert options == {"members": True, "members_and_assigned": False, "anyone": False}
    asked = " ".join(form.text_content().split())
    for text in ("Members of Acme", "Members and people you add", "Anyone who signs up", "Today: 1 member.", "people you don't know"):
        assert text in asked
    created = {}
    for number, policy in enumerate((None, *list(options)[1:])):
        answer = await send(owner_browser, name=f"Shop {number}", proposed="yes", **({} if policy is None else {"policy": policy}))
        assert answer.status == 200
        [(created[policy],)] = await run_sql(pool, "select access_policy from services where name = %s", f"Shop {number}")
    assert created == {None: "members", "members_and_assigned": "members_and_assigned", "anyone": "anyone"}
    logged = "select details ->> 'access_policy' from audit_log where action = 'service.created' order by created_at"
    assert await run_sql(pool, logged) == [("members",), ("members_and_assigned",), (None,)]


async def test_the_chosen_policy_stays_in_a_form_that_comes_back(owner_browser: FakeBrowser, pool: Pool) -> None:
    for fields, checked in (({"policy": "anyone", "name": ""}, ["anyone"]), ({"policy": "assigned"}, []), ({"policy": "nonsense"}, [])):
        refused = await send(owner_browser, proposed="yes", **fields)
        assert refused.status == 400
        assert html.document_fromstring(refused.text).xpath("//input[@name='policy' and @checked]/@value") == checked
    assert "Choose who may sign in." in refused.text
    saml = await send(owner_browser, await owner_browser.open(f"{NEW}?kind=saml"), kind="saml", policy="anyone", proposed="yes")
    assert saml.status == 303
    assert await run_sql(pool, "select access_policy from services") == [("anyone",)]
