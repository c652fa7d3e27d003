"""The code that connects an application, by framework: filled in with its values, and valid."""

import ast
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from entrypoints.http.base.rendering import quickstarts
from entrypoints.http.base.rendering.quickstarts import NO_SECRET
from entrypoints.http.pages.applications.frameworks import FRAMEWORKS
from tests.federation.api.relying import RelyingParty, add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser, form_token
from tests.support.builders import BASE_URL, run_sql
from tests.support.tenants import Tenant

APPLICATIONS = "/app/organizations/acme/applications"
OF_WEB = [framework for framework in FRAMEWORKS if "web" in framework.types]
WEB = [framework.page for framework in OF_WEB]
MOBILE = ["android", "ios"]
# Texts in which a user's URI must not end a string or begin a substitution.
HOSTILE = "https://shop.example/a'b$(id)"


@pytest.fixture
async def relying_party(acme: Tenant, browser: FakeBrowser) -> RelyingParty:
    relying_party = await add_relying_party(acme, browser)
    await sign_in_browser(relying_party, acme.people["owner"], is_known=False)
    return relying_party


async def create(relying_party: RelyingParty, kind: str, **fields: str) -> str:
    """Create an application in the wizard. Return the page with its values."""
    path, browser = f"{APPLICATIONS}/new", relying_party.browser
    page = await browser.open(f"{path}?kind={kind}")
    answer = await browser.send(path, form_token=form_token(page), kind=kind, name="Portal", proposed="yes", **fields)
    assert answer.status == 200, answer.text
    return answer.text


def panels(page: str) -> dict[str, str]:
    """Return the panel for every framework."""
    parts = re.split(r'<input class="unseen" type="radio" name="framework" id="framework-([a-z-]+)"', page)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def snippets(panel: str) -> dict[str, str]:
    """Return the texts to copy by file name. Commands have their label."""
    matches = re.findall(
        r'<div class="snippet">(?:<p><code>([^<]+)</code></p>)?<pre tabindex="0"><code[^>]*>(.*?)</code></pre>', panel, re.DOTALL
    )
    return {unescape(name) or str(number): unescape(text) for number, (name, text) in enumerate(matches)}


def environment(page: str) -> dict[str, str]:
    lines = next(iter(snippets(page).values())).strip().splitlines()
    return dict(line.split("=", 1) for line in lines)


async def test_the_page_of_a_new_application_has_its_values_as_env(relying_party: RelyingParty, acme: Tenant) -> None:
    page = await create(relying_party, "web", redirect_uris="http://localhost:5000/callback")
    [(client_id,)] = await run_sql(acme.pool, "select client_id from services where name = 'Portal'")
    values = environment(page)
    assert (values["ISSUER"], values["CLIENT_ID"]) == (BASE_URL, str(client_id))
    assert f"<code>{values['CLIENT_SECRET']}</code>" in page, "it is the secret that the page shows"
    assert 'data-copy="Copy as .env"' in page
    assert list(panels(page)) == WEB
    setup = (await relying_party.browser.open(f"{APPLICATIONS}/portal/setup")).text
    assert environment(setup) == {**values, "CLIENT_SECRET": NO_SECRET}
    assert values["CLIENT_SECRET"] not in setup


async def test_the_code_has_the_redirect_uri_of_the_application(relying_party: RelyingParty) -> None:
    page = await create(
        relying_party,
        "web",
        redirect_uris="http://localhost:7001/signed-in",
        post_logout_redirect_uris="http://localhost:7001/",
    )
    texts = {name: "\n".join(snippets(panel).values()) for name, panel in panels(page).items()}
    assert '@app.get("/signed-in")' in texts["flask"]
    assert "flask run --port 7001" in texts["flask"]
    assert '@app.get("/signed-in")' in texts["fastapi"]
    assert 'RedirectURL:  "http://localhost:7001/signed-in"' in texts["go"]
    assert 'ListenAndServe("localhost:7001", nil)' in texts["go"]
    assert "$path === '/signed-in'" in texts["php"]
    assert 'CallbackPath = "/signed-in"' in texts["asp-net-core"]
    for name in ("flask", "fastapi", "go", "php"):
        assert "/callback" not in texts[name].replace("def callback", ""), name
        assert "does not have yet" not in panels(page)[name], name
    # These libraries choose the path themselves, so the application has an additional redirect URI.
    missing = re.findall(r'href="([^"]+)" target="_blank"[^>]*>Add', panels(page)["django"])
    assert missing == [
        f"{APPLICATIONS}/portal?redirect_uris=http%3A%2F%2Flocalhost%3A8000%2Foidc%2Fcallback%2F&amp;"
        "post_logout_redirect_uris=http%3A%2F%2Flocalhost%3A8000%2F"
    ]
    settings = await relying_party.browser.open(unescape(missing[0]))
    assert "http://localhost:8000/oidc/callback/</textarea>" in settings.text


async def test_each_quickstart_works_as_it_is_with_its_own_redirect_uri(relying_party: RelyingParty, acme: Tenant) -> None:
    for framework in OF_WEB:
        quickstart = quickstarts.load(framework.page)
        await run_sql(acme.pool, "delete from services where name = 'Portal'")
        page = await create(
            relying_party,
            "web",
            redirect_uris=quickstart.redirect_uri,
            post_logout_redirect_uris=quickstart.post_logout_redirect_uri or "",
        )
        panel = panels(page)[framework.page]
        assert "does not have yet" not in panel, framework.page
        assert quickstart.files, framework.page
        for name, text in quickstart.files.items():
            if "$" not in text or name.endswith((".php", ".yml")):
                assert snippets(panel)[name] == text, name


async def test_a_browser_application_and_apps_have_their_values_in_the_code(relying_party: RelyingParty, acme: Tenant) -> None:
    page = await create(relying_party, "spa", redirect_uris="https://spa.example/in", post_logout_redirect_uris="https://spa.example/")
    [panel] = panels(page).values()
    [(client_id,)] = await run_sql(acme.pool, "select client_id from services where name = 'Portal'")
    texts = snippets(panel)
    assert texts["settings.js"] == f'export const authority = "{BASE_URL}";\nexport const client_id = "{client_id}";\n'
    assert 'redirect_uri: "https://spa.example/in"' in texts["app.js"]
    assert 'post_logout_redirect_uri: "https://spa.example/"' in texts["app.js"]
    assert "does not have yet" not in panel
    page = await create(relying_party, "mobile", redirect_uris="com.acme.portal:/in")
    [(client_id,)] = await run_sql(acme.pool, "select client_id from services where service_type = 'mobile'")
    assert list(panels(page)) == MOBILE
    for panel in panels(page).values():
        text = "\n".join(snippets(panel).values())
        assert (f'"{client_id}"' in text, f'"{BASE_URL}"' in text, '"com.acme.portal:/in"' in text) == (True, True, True)
        assert "com.example" not in text
    assert 'manifestPlaceholders["appAuthRedirectScheme"] = "com.acme.portal"' in panels(page)["android"].replace("&#34;", '"')
    assert "CLIENT_SECRET" not in page


async def test_a_hostile_redirect_uri_is_not_written_into_code(relying_party: RelyingParty) -> None:
    page = await create(relying_party, "web", redirect_uris=HOSTILE)
    for panel in panels(page).values():
        assert not [text for text in snippets(panel).values() if "id" in text and "$(id)" in text]
    assert "http://localhost:5000/callback" in panels(page)["flask"], "the page asks to add this one"


def is_valid(tool: str, *command: str) -> bool:
    """Return whether the command succeeds. Without the tool it is not checked."""
    return shutil.which(tool) is None or subprocess.run([tool, *command], capture_output=True, check=False).returncode == 0


async def test_the_code_is_valid(relying_party: RelyingParty, tmp_path: Path) -> None:
    page = await create(relying_party, "web", redirect_uris="https://shop.example/signed-in")
    texts = {name: text for panel in panels(page).values() for name, text in snippets(panel).items()}
    python = {name: text for name, text in texts.items() if name.endswith(".py")}
    assert len(python) >= 4
    for text in python.values():
        ast.parse(text)
    (tmp_path / "app.mjs").write_text(texts["app.mjs"])
    assert is_valid("node", "--check", str(tmp_path / "app.mjs"))
    (tmp_path / "main.go").write_text(texts["main.go"])
    assert is_valid("gofmt", "-e", str(tmp_path / "main.go"))
    registration = spring(texts["src/main/resources/application.yml"])
    assert registration == {"client-id": "${CLIENT_ID}", "client-secret": "${CLIENT_SECRET}", "issuer-uri": "${ISSUER}"}
    for name in ("Security.java", "Program.cs", "index.php"):
        assert all(texts[name].count(opening) == texts[name].count(closing) for opening, closing in ("()", "{}", "[]")), name
    assert json.loads(f'"{environment(page)["ISSUER"]}"') == BASE_URL


def spring(text: str) -> Mapping[str, Any]:
    """Return the values that Spring reads from the environment. The file is YAML with indented lists and maps."""
    assert not [line for line in text.splitlines() if "\t" in line or (len(line) - len(line.lstrip())) % 2]
    return dict(re.findall(r"^ +([a-z-]+): (\$\{\w+\})$", text, re.MULTILINE))


async def test_the_page_turns_green_at_the_first_sign_in(relying_party: RelyingParty, acme: Tenant) -> None:
    page = await create(relying_party, "web", redirect_uris="https://portal.example.com/callback")
    setup, browser = f"{APPLICATIONS}/portal/setup", relying_party.browser
    assert f'data-polls="{setup}?brief=true"' in page
    assert f'<a href="{setup}" target="_blank" rel="noopener">Check again</a>' in page
    waiting = (await browser.open(f"{setup}?brief=true")).text
    assert ("Never used" in waiting, 'id="activity" class="notice notice-wait"' in waiting) == (True, True)
    assert len(waiting) < 30_000
    policies = [(await browser.open(path)).headers["Content-Security-Policy"] for path in (setup, f"{APPLICATIONS}/portal")]
    assert ["connect-src 'self'" in policy for policy in policies] == [True, False], "only the script of a page that waits asks"
    await run_sql(
        acme.pool,
        """insert into login_events (id, user_id, org_id, service_id, provider, success, created_at)
           select gen_random_uuid(), %s, org_id, id, 'password', true, created_at from services where slug = 'portal'""",
        acme.people["member"].id,
    )
    used = (await browser.open(setup)).text
    assert ('id="activity" class="notice notice-good"' in used, "member@acme.example" in used, "data-polls" in used) == (True, True, False)


async def test_the_page_of_an_application_shows_its_last_failure(relying_party: RelyingParty, acme: Tenant, other_tenant: Tenant) -> None:
    page = await relying_party.browser.open(f"{APPLICATIONS}/shop")
    assert ("Never used" in page.text, "Last failure" in page.text) == (True, False)
    insert = """insert into login_events (id, user_id, org_id, service_id, provider, success, reason, seen_by, created_at)
                select gen_random_uuid(), %s, org_id, id, 'password', false, %s, %s, created_at from services where id = %s"""
    await run_sql(acme.pool, insert, acme.people["member"].id, "mfa", "platform", relying_party.service)
    assert "Last failure" not in (await relying_party.browser.open(f"{APPLICATIONS}/shop")).text, "only the platform sees it"
    await run_sql(acme.pool, insert, acme.people["member"].id, "credentials", "all", relying_party.service)
    page = await relying_party.browser.open(f"{APPLICATIONS}/shop")
    assert ": Wrong password." in page.text
    await run_sql(acme.pool, "update login_events set reason = 'locked', blocked_seconds = 45 where reason = 'credentials'")
    page = await relying_party.browser.open(f"{APPLICATIONS}/shop")
    assert ": Blocked for 45 s after wrong attempts." in page.text
    assert f'href="/app/organizations/acme/sign-ins?service_id={relying_party.service}"' in page.text
    await sign_in_browser(relying_party, acme.people["member"], is_known=False)
    page = await relying_party.browser.open(f"{APPLICATIONS}/shop")
    assert (page.status, "Wrong password" in page.text, "Never used" in page.text) == (200, False, False)
