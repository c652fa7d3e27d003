"""The quickstarts: `gatehouse quickstart` writes every page's code, and a user signs in to the application.

The pages' commands and files are run and compared, so that a reader of the page and a reader of the files get the same
application.
"""

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode, urljoin

import httpx
import pytest

from tests.foreign.gatehouse import EMAIL, NAME, PASSWORD, Gatehouse
from tests.foreign.programs import NODE, PYTHON, require
from tests.foreign.quickstarts import QUICKSTARTS, PageReader, WrittenQuickstart, read_files, start, write
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import service_home
from tests.proof.e2e.docs.apache import MODULES, Apache
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.process import Port
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.slow

Forms = Callable[[str], FormBrowser]


PYTHON_FRAMEWORKS = ["flask", "fastapi", "django"]
# The page for every framework that the command knows.
PAGES = {name: f"{name}.md" for name in (*PYTHON_FRAMEWORKS, "express", "nextjs", "apache")} | {"spa": "single-page-application.md"}
# Their tools are not in the test environment. tests/applications/api/test_frameworks.py checks the values and the syntax.
NOT_RUN = ["spring-boot.md", "go.md", "php.md", "asp-net-core.md", "android.md", "ios.md"]
OF_THE_COMMAND = {"README.md", ".gitignore", ".env"}
VALUES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[\w-]{43,}")  # client ids and secrets


def test_every_quickstart_is_run_or_named_as_not_run() -> None:
    pages = sorted(page.name for page in QUICKSTARTS.glob("*.md"))
    assert pages == sorted([*PAGES.values(), *NOT_RUN])


@pytest.mark.parametrize("framework", PAGES)
def test_the_page_and_the_command_make_the_same_application(framework: str, gatehouse: Gatehouse, tmp_path: Path) -> None:
    (by_page := tmp_path / "page").mkdir()
    with Port() as port:
        reader = PageReader(gatehouse, QUICKSTARTS / PAGES[framework], by_page, port)
        try:
            reader.follow()
        finally:
            reader.close()
        printed = write(gatehouse, framework, tmp_path / "command", reader.address)
    ours, theirs = read_files(tmp_path / "command"), read_files(by_page)
    documented = {name: VALUES.sub("...", text) for name, text in theirs.items()}
    assert {name: VALUES.sub("...", text) for name, text in ours.items() if name not in OF_THE_COMMAND} == documented
    assert all(command in ours["README.md"] for command in reader.commands)
    by_hand, by_command = gatehouse.services(reader.address)[-2:]  # an earlier test may have had this port
    same = ("service_type", "redirect_uris", "post_logout_redirect_uris", "name")
    assert [by_hand.get(name) for name in same] == [by_command.get(name) for name in same]
    assert f"/applications/{by_command['slug']}/setup" in printed


def try_again(browser: FormBrowser, log: str) -> None:
    """Follow the page link that the application shows after a sign-in was canceled."""
    assert (browser.response.status_code, "Sign-in was canceled" in browser.text) == (200, True), browser.text + log
    [link] = re.findall('<a href="([^"]+)">Try again</a>', browser.text)
    browser.open(urljoin(browser.address, link))


def sign_in_and_out(gatehouse: Gatehouse, quickstart: WrittenQuickstart, browser: FormBrowser) -> None:
    """Cancel a sign-in, sign a user in to the application, which shows the claims, and out at the application and at Gatehouse."""
    browser.open(quickstart.address)
    gatehouse.sign_in(browser, cancels=True)
    try_again(browser, quickstart.output)
    gatehouse.agree(browser)
    assert browser.response.status_code == 200, browser.text + quickstart.output
    missing = [text for text in (gatehouse.user_id, EMAIL, NAME) if text not in browser.text]
    assert not missing, browser.text
    if browser.forms:
        browser.submit(*browser.forms)
    else:
        browser.open(f"{quickstart.address}/logout")
    if browser.address.startswith(quickstart.address):  # a page that anyone may see
        browser.open(f"{quickstart.address}/login")
    assert gatehouse.asks(browser, "sign-in"), browser.text


@pytest.mark.parametrize("framework", PYTHON_FRAMEWORKS)
def test_a_python_application(framework: str, gatehouse: Gatehouse, forms: Forms, tmp_path: Path) -> None:
    """Authlib for Flask and for Starlette, and mozilla-django-oidc."""
    require(PYTHON / "flask")
    with start(gatehouse, framework, tmp_path / "application") as quickstart:
        sign_in_and_out(gatehouse, quickstart, forms(quickstart.address))


def test_a_node_application(gatehouse: Gatehouse, forms: Forms, tmp_path: Path) -> None:
    """express-openid-connect."""
    require("node", NODE / "node_modules" / "express")
    with start(gatehouse, "express", tmp_path / "application") as quickstart:
        sign_in_and_out(gatehouse, quickstart, forms(quickstart.address))


def sign_in_with_scripts(browser: Browser, *, cancels: bool = False) -> None:
    """Sign the user in to an application's page with the button "Sign in", in Chromium, or cancel first, and try again."""
    browser.wait_until(lambda: browser.heading == "Not signed in")
    browser.press("Sign in")
    browser.fill("Email address", EMAIL)
    browser.fill("Password", PASSWORD)
    browser.press("Sign in")
    if cancels:
        browser.press("Cancel")
        browser.wait_until(lambda: browser.heading.startswith("Sign-in was canceled"))
        browser.press("Sign in")
    browser.press("Continue")
    browser.wait_until(lambda: browser.heading == f"Hello, {NAME}")


TOKEN = "return JSON.parse(Object.values(sessionStorage)[0]).access_token"


def test_a_single_page_application(gatehouse: Gatehouse, browser: Browser, tmp_path: Path) -> None:
    """oidc-client-ts in Chromium. Its requests come from another origin than Gatehouse's."""
    require("node", NODE / "node_modules" / "oidc-client-ts")
    with start(gatehouse, "spa", tmp_path / "application") as application:
        browser.open(application.address)
        sign_in_with_scripts(browser, cancels=True)
        assert gatehouse.user_id in browser.text
        assert EMAIL in browser.text
        [renew] = browser.find("#renew")
        first = browser.script(TOKEN)
        renew.click()
        browser.wait_until(lambda: browser.script(TOKEN) != first)
        browser.press("Sign out")
        sign_in_with_scripts(browser)
        assert browser.complaints() == []
        [renew] = browser.find("#renew")
        gatehouse.revoke_sessions()
        renew.click()
        browser.wait_until(lambda: browser.heading == "Not signed in")


def test_next_js(gatehouse: Gatehouse, browser: Browser) -> None:
    """Auth.js. The folder is beside the packages: Next.js's bundler follows no symbolic link to them."""
    require("node", NODE / "node_modules" / "next")
    with TemporaryDirectory(prefix=".quickstart-", dir=NODE) as folder, start(gatehouse, "nextjs", Path(folder)) as application:
        for path in ("/", "/api/auth/session"):  # the first request to a path compiles it, which takes longer than a browser waits
            httpx.get(f"{application.address}{path}", trust_env=False, timeout=4 * PATIENCE).raise_for_status()
        browser.open(application.address)
        sign_in_with_scripts(browser, cancels=True)
        assert gatehouse.user_id in browser.text
        assert EMAIL in browser.text
        [button] = browser.find("button")
        button.click()  # the page stays, and a script replaces its content
        browser.wait_until(lambda: browser.heading == "Not signed in")


MODULE = """
LoadModule auth_openidc_module {modules}/mod_auth_openidc.so
{documented}
"""


def test_apache(gatehouse: Gatehouse, forms: Forms) -> None:
    """mod_auth_openidc."""
    require("apache2", MODULES / "mod_auth_openidc.so")
    with service_home() as home:
        apache = Apache(home / "apache", "/etc/apache2")
        try:
            with start(gatehouse, "apache", home / "application", apache.port) as quickstart:
                (apache.folder / "gatehouse.html").write_text(quickstart.files["gatehouse.html"])
                apache.start(MODULE.format(modules=MODULES, documented=apache.here(quickstart.files["gatehouse.conf"])))
                page = apache.home / "pages" / "private" / "index.html"
                page.write_text(" ".join(f'<!--#echo var="{name}" -->' for name in ("REMOTE_USER", "OIDC_CLAIM_sub", "OIDC_CLAIM_name")))
                browser = forms(quickstart.address)
                browser.open(f"{quickstart.address}/private/")
                gatehouse.sign_in(browser, cancels=True)
                try_again(browser, apache.log)
                gatehouse.agree(browser)
                assert browser.text == f"{EMAIL} {gatehouse.user_id} {NAME}", apache.log
                browser.open(f"{quickstart.address}/private/callback?{urlencode({'logout': quickstart.address + '/'})}")
                assert (browser.address, browser.text) == (f"{quickstart.address}/", "Welcome"), apache.log
                browser.open(f"{quickstart.address}/private/")
                assert gatehouse.asks(browser, "sign-in")
        finally:
            apache.stop()
