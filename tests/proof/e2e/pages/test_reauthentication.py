"""Reauthentication in an old session in a real browser, on our pages and from a frontend on another origin (security A-12)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from core.kernel.connections import WEBSUITE
from tests.fakes.provider import FakeProvider
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import Start, settings_of_owner
from tests.proof.e2e.docs.documented import DOCS, files
from tests.proof.e2e.pages.audits import audit_kept
from tests.proof.e2e.pages.frontend import serving_files
from tests.proof.e2e.process import Service
from tests.proof.e2e.test_account import STEP, code_of, enrol
from tests.proof.e2e.test_oauth_clients import ADA, PASSWORD
from tests.support.connections.proofs import older_sessions

pytestmark = pytest.mark.slow

OWNER: Final = settings_of_owner(ADA, PASSWORD)


@pytest.fixture
def websuite() -> Iterator[FakeProvider]:
    with FakeProvider(WEBSUITE) as running:
        yield running


@pytest.fixture
def frontend(tmp_path: Path) -> Iterator[str]:
    """The origin that serves the guide's files, which differs from Gatehouse's origin."""
    for name, text in files(DOCS / "guides" / "reauthentication.md").items():
        (tmp_path / name).write_text(text)
    with serving_files(tmp_path) as origin:
        yield origin


def make_old(database: dict[str, str]) -> None:
    with psycopg.connect(database["SSO_DATABASE_URL"]) as connection:
        connection.execute(older_sessions("3 hours").encode())


def click(browser: Browser, selector: str) -> None:
    """Press a button that leaves the page as it is."""
    [button] = browser.find(selector)
    button.click()


def test_our_pages_ask_and_come_back_with_the_form(service: Start, own_database: dict[str, str], browser: Browser) -> None:
    running = service(**OWNER, **own_database).start()
    browser.open(f"{running.address}/app/account/personal-tokens/new")
    browser.fill("Email address", ADA)
    browser.fill("Password", PASSWORD)
    browser.press("Sign in")
    browser.fill("Name", "Nightly export")
    [scope, *_] = browser.find("input[name^='scope:']")
    scope.click()
    make_old(own_database)
    browser.press("Create token")
    assert browser.heading == "Confirm that it's you"
    browser.keep("reauthenticate")
    browser.fill("Password", "a wrong password")
    browser.press("Confirm")
    assert "The password is wrong." in browser.text
    browser.keep("reauthenticate-refused")
    browser.fill("Password", PASSWORD)
    browser.press("Confirm")
    assert browser.heading == "Thanks, it's you"
    browser.keep("kept-form")
    kept = browser.address
    browser.press("Continue: Create a personal access token")
    assert "gatehouse_pat_" in browser.source
    browser.open(kept)  # as the Back button does
    assert browser.heading == "Form expired or already sent"
    browser.keep("kept-form-ended")
    browser.follow("Open the page of the form")
    assert browser.heading == "Create personal access token"
    browser.open(f"{running.address}/app/account/personal-tokens")
    assert "Nightly export" in browser.text
    assert all("401" in complaint or "400" in complaint for complaint in browser.complaints())
    assert audit_kept(browser) == {}


def test_an_account_without_a_password_confirms_at_its_provider_and_with_its_code(
    service: Start, own_database: dict[str, str], browser: Browser, websuite: FakeProvider
) -> None:
    running = service(**websuite.variables(), **own_database).start()
    browser.open(f"{running.address}/app/sign-in?next=/app/account")
    browser.follow("Continue with Websuite")
    secret, _ = enrol(browser, running)
    browser.open(f"{running.address}/app/account/password")
    browser.fill("New password", PASSWORD)
    make_old(own_database)
    browser.press("Save password")
    assert "After this, fill in the form again" in browser.text
    assert browser.find("input[type=password]") == []
    browser.keep("reauthenticate-at-provider")
    browser.press("Email me a code")
    browser.keep("reauthenticate-emailed")
    browser.press("Continue with Websuite")
    browser.wait_until(lambda: browser.find("#code"))
    browser.keep("reauthenticate-code")
    browser.fill("Code from your authenticator app", "000000")
    browser.press("Confirm")
    assert "code is wrong" in browser.text
    browser.keep("reauthenticate-wrong-code")
    browser.fill("Code from your authenticator app", code_of(secret, later=STEP))
    browser.press("Confirm")
    assert (browser.heading, "Fill in the form again" in browser.text) == ("Set a password", True)
    browser.keep("form-not-kept")
    make_old(own_database)
    websuite.refuses = "access_denied"
    browser.open(f"{running.address}/app/account/password")
    browser.press("Continue with Websuite")
    browser.wait_until(lambda: browser.heading == "We couldn't confirm that it's you")
    browser.keep("not-confirmed")
    browser.follow("Try again")
    assert browser.heading == "Confirm that it's you"
    assert audit_kept(browser) == {}


def test_a_frontend_asks_and_repeats_the_request(
    service: Start, own_database: dict[str, str], browser: Browser, frontend: str, tmp_path: Path
) -> None:
    running = service(SSO_FRONTEND_URL=frontend, **OWNER, **own_database).start()
    (tmp_path / "settings.js").write_text(f'export const api = "{running.address}";\n')
    browser.open(f"{frontend}/index.html")
    browser.fill("Email address", ADA)
    browser.fill("Password", PASSWORD)
    click(browser, "#sign-in button")
    browser.wait_until(lambda: browser.heading == "Signed in")
    make_old(own_database)
    click(browser, "#create")
    browser.wait_until(lambda: browser.find("dialog[open]"))
    click(browser, "dialog [value=cancel]")
    browser.wait_until(lambda: browser.heading == "Not created")
    click(browser, "#create")
    browser.wait_until(lambda: browser.find("dialog[open]"))
    browser.fill("Your password", "a wrong password")
    click(browser, "dialog [value=confirm]")
    browser.wait_until(lambda: "The password is wrong." in browser.text)
    browser.fill("Your password", PASSWORD)
    click(browser, "dialog [value=confirm]")
    browser.wait_until(lambda: browser.heading == "Token created")
    assert "gatehouse_pat_" in browser.text
    make_old(own_database)
    click(browser, "#create")
    browser.wait_until(lambda: browser.find("dialog[open]"))
    assert not browser.find("[value=passkey]")[0].is_displayed(), "the account has none"
    click(browser, "dialog [value=cancel]")
    browser.wait_until(lambda: browser.heading == "Not created")
    with browser.authenticator():
        add_passkey(running, browser)
        click(browser, "#create")
        browser.wait_until(lambda: browser.find("dialog[open]"))
        click(browser, "dialog [value=passkey]")
        browser.wait_until(lambda: browser.heading == "Token created")


def add_passkey(running: Service, browser: Browser) -> None:
    """Add a passkey to Ada's account, in another session, at the present page."""
    token = running.login(ADA, PASSWORD)["access_token"]
    options = running.post("/api/user/passkeys/options", token=token).json()["publicKey"]
    added = running.post("/api/user/passkeys", {"credential": browser.create_passkey(options)}, token=token)
    assert added.status_code == 201, added.text
