"""A new application's page: a developer copies its code for Flask, starts it, and a user signs in and out."""

import re
from contextlib import ExitStack
from html import unescape
from pathlib import Path

import pytest

from tests.foreign.conftest import SETTINGS, Start
from tests.foreign.gatehouse import EMAIL, PASSWORD, Gatehouse
from tests.foreign.programs import PYTHON, require
from tests.foreign.test_quickstarts import Forms
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.docs.forms import FormBrowser
from tests.proof.e2e.pages.test_walks import Walk
from tests.proof.e2e.process import Port, Service
from tests.support.waiting import until

pytestmark = pytest.mark.slow

APPLICATIONS = "/app/organizations/acme/applications"
SNIPPET = re.compile(r'<div class="snippet">(?:<p><code>([^<]+)</code></p>)?<pre tabindex="0"><code[^>]*>(.*?)</code></pre>', re.DOTALL)
VISIBLE = "return [...document.querySelectorAll('.snippet pre')].filter((each) => each.checkVisibility()).map((each) => each.textContent)"
LINK = re.compile(r"^ *(http://\S+/auth/recover-owner\?token=\S+)$", re.MULTILINE)


def create(gatehouse: Gatehouse, admin: FormBrowser, address: str) -> list[tuple[str, str]]:
    """Create an application in the wizard. Return the name and the text that the page shows to copy for Flask, and before."""
    admin.open(f"{gatehouse.address}/app/sign-in")
    admin.sign_in(EMAIL, PASSWORD)
    admin.open(f"{gatehouse.address}{APPLICATIONS}/new?kind=web")
    [form] = [form for form in admin.forms if "kind" in form.fields]
    fields = {"redirect_uris": f"{address}/signed-in", "post_logout_redirect_uris": f"{address}/", "proposed": "yes"}
    admin.submit(form, name="Copied", **fields)
    shown, _, _ = admin.text.partition('id="framework-fastapi"')
    assert 'id="framework-flask"' in shown, admin.text
    return [(unescape(name), unescape(text)) for name, text in SNIPPET.findall(shown)]


def test_the_code_of_the_page_signs_a_user_in_and_out(gatehouse: Gatehouse, forms: Forms, start: Start, tmp_path: Path) -> None:
    require(PYTHON / "flask")
    with Port() as port:
        address = f"http://localhost:{port.number}"
        admin = forms(address)
        [(_, environment), (_, install), (name, code), (_, command)] = create(gatehouse, admin, address)
        assert install.endswith("\npip install flask authlib requests\n")
        (tmp_path / ".env").write_text(environment)
        (tmp_path / name).write_text(code)
        setup = f"{gatehouse.address}{APPLICATIONS}/copied/setup?brief=true"
        admin.open(setup)
        assert "Never used" in admin.text
        start(command, port.number)
        user = forms(address)
        user.open(address)
        gatehouse.sign_in(user)
        assert (gatehouse.user_id in user.text, EMAIL in user.text) == (True, True), user.text
        admin.open(setup)
        assert re.search(r'id="activity" class="notice notice-good".*Last sign-in', admin.text, re.DOTALL), admin.text
        user.open(f"{address}/logout")
        assert gatehouse.asks(user, "sign-in"), user.text


def test_the_first_run_leads_to_the_claims_of_an_application_and_out_of_it(
    home: Path, own_database: dict[str, str], browser: Browser, start: Start, tmp_path: Path
) -> None:
    """The walk begins with the link that the first start prints."""
    require(PYTHON / "flask")
    service = Service(home, "--welcome", "--show-password", **own_database, **SETTINGS)
    with Port() as port, ExitStack() as stack:
        stack.callback(service.clean_up)
        service.start()
        until(lambda: LINK.search(service.output), "the link is printed")
        address = f"http://localhost:{port.number}"
        walk = Walk(browser, address)
        walk.open(LINK.findall(service.output)[0])
        walk.press("Sign in")
        browser.fill("Name", "Acme")
        walk.press("Create organization")
        walk.follow("A web application with a server")
        browser.fill("Name", "Copied")
        browser.fill("Redirect URI", f"{address}/signed-in")
        walk.press("Create application")
        [environment, _, code, command] = browser.script(VISIBLE)
        (tmp_path / ".env").write_text(environment)
        (tmp_path / "app.py").write_text(code)
        start(command, port.number)
        created, _ = browser.tab, browser.open_tab("about:blank")
        walk.visit(address)
        walk.press("Continue")
        assert EMAIL in browser.text, "the application shows the claims"
        application = browser.tab
        browser.switch_to(created)
        browser.wait_until(lambda: browser.find("#activity.notice-good"))
        browser.switch_to(application)
        walk.visit(f"{address}/logout")
        assert browser.heading == "Sign in to Copied", "the application asks for the next sign-in"
        assert walk.effort == (7, 7)
        browser.fill("Email address", EMAIL)
        browser.fill("Password", PASSWORD)
        browser.press("Sign in")
        assert EMAIL in browser.text
