"""The quickstarts of the documentation: each page is followed, and a user signs in to its application."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

import httpx
import pytest

from tests.foreign.gatehouse import EMAIL, NAME, PASSWORD, Gatehouse
from tests.foreign.programs import NODE, PYTHON, require
from tests.foreign.quickstarts import QUICKSTARTS, Quickstart, follow
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import service_home
from tests.proof.e2e.docs.apache import MODULES, Apache
from tests.proof.e2e.docs.forms import FormBrowser
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.slow

Forms = Callable[[str], FormBrowser]


PYTHON_PAGES = ["flask.md", "fastapi.md", "django.md"]
# Their tools are not part of the test environment. tests/applications/api/test_frameworks.py checks the values and the syntax.
NOT_RUN = ["spring-boot.md", "go.md", "php.md", "asp-net-core.md", "android.md", "ios.md"]
NODE_PAGES = ["express.md"]


def test_every_quickstart_is_followed() -> None:
    pages = sorted(page.name for page in QUICKSTARTS.glob("*.md"))
    assert pages == sorted([*PYTHON_PAGES, *NODE_PAGES, "single-page-application.md", "nextjs.md", "apache.md", *NOT_RUN])


def sign_in_and_out(gatehouse: Gatehouse, quickstart: Quickstart, browser: FormBrowser) -> None:
    """Sign a user in to the application, which shows the claims, and out of the application and of Gatehouse."""
    browser.open(quickstart.address)
    gatehouse.sign_in(browser)
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


@pytest.mark.parametrize("page", PYTHON_PAGES)
def test_a_python_application(page: str, gatehouse: Gatehouse, forms: Forms, tmp_path: Path) -> None:
    """Authlib for Flask and for Starlette, and mozilla-django-oidc."""
    require(PYTHON / "flask")
    with follow(gatehouse, page, tmp_path) as quickstart:
        sign_in_and_out(gatehouse, quickstart, forms(quickstart.address))


@pytest.mark.parametrize("page", NODE_PAGES)
def test_a_node_application(page: str, gatehouse: Gatehouse, forms: Forms, tmp_path: Path) -> None:
    """express-openid-connect."""
    require("node", NODE / "node_modules" / "express")
    with follow(gatehouse, page, tmp_path) as quickstart:
        sign_in_and_out(gatehouse, quickstart, forms(quickstart.address))


def sign_in_with_scripts(browser: Browser) -> None:
    """Sign the user in to the page of an application with the button "Sign in", in Chromium."""
    browser.wait_until(lambda: browser.heading == "Not signed in")
    browser.press("Sign in")
    browser.fill("Email address", EMAIL)
    browser.fill("Password", PASSWORD)
    browser.press("Sign in")
    browser.press("Continue")
    browser.wait_until(lambda: browser.heading == f"Hello, {NAME}")


TOKEN = "return JSON.parse(Object.values(sessionStorage)[0]).access_token"


def test_a_single_page_application(gatehouse: Gatehouse, browser: Browser, tmp_path: Path) -> None:
    """oidc-client-ts in Chromium. Its requests come from another origin than Gatehouse's."""
    require("node", NODE / "node_modules" / "oidc-client-ts")
    with follow(gatehouse, "single-page-application.md", tmp_path) as application:
        browser.open(application.address)
        sign_in_with_scripts(browser)
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
    """Auth.js. The folder is beside the packages: the bundler of Next.js follows no symbolic link to them."""
    require("node", NODE / "node_modules" / "next")
    with TemporaryDirectory(prefix=".quickstart-", dir=NODE) as folder, follow(gatehouse, "nextjs.md", Path(folder)) as application:
        for path in ("/", "/api/auth/session"):  # the first request of each compiles it, which takes longer than a browser waits
            httpx.get(f"{application.address}{path}", trust_env=False, timeout=4 * PATIENCE).raise_for_status()
        browser.open(application.address)
        sign_in_with_scripts(browser)
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
            with follow(gatehouse, "apache.md", home, apache.port) as quickstart:
                apache.start(MODULE.format(modules=MODULES, documented=(home / "gatehouse.conf").read_text()))
                page = apache.home / "pages" / "private" / "index.html"
                page.write_text(" ".join(f'<!--#echo var="{name}" -->' for name in ("REMOTE_USER", "OIDC_CLAIM_sub", "OIDC_CLAIM_name")))
                browser = forms(quickstart.address)
                browser.open(f"{quickstart.address}/private/")
                gatehouse.sign_in(browser)
                assert browser.text == f"{EMAIL} {gatehouse.user_id} {NAME}", apache.log
                browser.open(f"{quickstart.address}/private/callback?{urlencode({'logout': quickstart.address + '/'})}")
                assert (browser.address, browser.text) == (f"{quickstart.address}/", "Welcome"), apache.log
                browser.open(f"{quickstart.address}/private/")
                assert gatehouse.asks(browser, "sign-in")
        finally:
            apache.stop()
