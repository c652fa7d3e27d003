"""Sign-in by email in a browser: the code, and the link in a browser that did not ask."""

import re

import pytest

from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import SharedService
from tests.proof.e2e.process import Service

pytestmark = pytest.mark.slow

EMAIL, PASSWORD = "newcomer@example.com", "seven lions at the gate"
SETTINGS = {"SSO_EMAIL_SIGN_IN": "on"}


def ask(browser: Browser, service: Service) -> None:
    browser.open(f"{service.address}/app/account")
    browser.fill("Email address", EMAIL)
    browser.press("Email me a code")
    assert browser.heading == "Check your inbox"


def test_a_user_signs_in_without_a_password(running: Service, shared: SharedService, browser: Browser) -> None:
    running.register(EMAIL, PASSWORD)
    shared.sink.wait_for(EMAIL)
    for number in (2, 3):  # the first email verifies the address
        ask(browser, running)
        received = shared.sink.wait_for(EMAIL, number)
        if number == 2:
            browser.fill("6-digit code", re.findall(r"(?m)^\d{6}\r?$", received.text)[0].strip())
            browser.press("Continue")
        else:
            browser.forget()  # a browser that did not ask
            browser.open(received.link)
            assert browser.heading == "Sign in on this device?"
            assert "Chrome on Linux" in browser.text
            browser.press("Sign in here")
        assert browser.heading == ("Your account" if number == 2 else "Your applications")
        assert browser.complaints() == []
        browser.forget()
