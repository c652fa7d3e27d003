"""A recovery in a browser: a platform owner starts it, the user sets up a passkey or an app, and signs in with it."""

from typing import Final

import pytest

from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import SharedService
from tests.proof.e2e.pages.audits import audit_kept
from tests.proof.e2e.process import Service
from tests.proof.e2e.sink import MailSink
from tests.proof.e2e.test_oauth_clients import ADA, PASSWORD

pytestmark = pytest.mark.slow

EVE: Final = "eve@example.com"
SETTINGS: Final = {"SSO_PLATFORM_OWNER_EMAIL": ADA, "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD}


@pytest.fixture
def sink(shared: SharedService) -> MailSink:
    return shared.sink


def sign_in(browser: Browser, running: Service, email: str) -> None:
    browser.forget()
    browser.open(f"{running.address}/app/sign-in?next=/app/account")
    browser.fill("Email address", email)
    browser.fill("Password", PASSWORD)
    browser.press("Sign in")


def test_a_user_recovers_with_a_passkey(running: Service, sink: MailSink, browser: Browser) -> None:
    running.register(EVE, PASSWORD)
    running.follow(sink.wait_for(EVE).link)
    sign_in(browser, running, ADA)
    browser.open(f"{running.address}/app/platform/people?email={EVE}")
    browser.follow(EVE)
    person = browser.address
    browser.find(".menu summary")[0].click()
    browser.keep("recovery-menu")
    browser.follow("Recover account")
    browser.keep("recovery-question")
    browser.fill("Reason, for the audit log", "Ticket 4711")
    browser.press("Start recovery")
    assert browser.heading == "Recovery code"
    browser.keep("recovery-code")
    code = browser.find("dd code")[0].text
    browser.open(person)
    browser.keep("recovery-open")

    browser.forget()
    browser.open(sink.wait_for(EVE, 2).link)
    browser.fill("Recovery code", "AAAAA-AAAAA")
    browser.press("Continue")
    browser.keep("recover-refused")
    browser.fill("Recovery code", code.lower())
    browser.press("Continue")
    browser.keep("recover-factor")
    with browser.authenticator() as authenticator:
        browser.press("Create a passkey")
        assert browser.heading == "Save your backup codes"
        browser.keep("recovered-passkey")
        [credential] = authenticator.credentials()
        assert credential["userName"] == EVE
        assert [button.text for button in browser.find(".buttons button")] == ["Copy all codes", "Download as a text file"]
        with browser.leaving():  # the browser proposes the passkey, and the virtual authenticator takes it at once
            browser.follow("Sign in")
        browser.wait_until(lambda: "/sign-in" not in browser.address and browser.heading != "Save your backup codes")
        browser.open(f"{running.address}/app/account/security")
        assert "Passkey" in browser.find("#sign-ins")[0].text
    assert [each for each in browser.complaints() if "status of 400" not in each] == []
    assert audit_kept(browser) == {}
