"""Passkeys and security keys on our pages, in Chromium with its virtual authenticators."""

from typing import Final

import pytest

from tests.proof.e2e.browser import Browser
from tests.proof.e2e.process import Service
from tests.proof.e2e.test_oauth_clients import ADA, PASSWORD

pytestmark = pytest.mark.slow

SETTINGS: Final = {"SSO_PLATFORM_OWNER_EMAIL": ADA, "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD, "SSO_AUTO_APPROVE_ORGANIZATIONS": "true"}
SECURITY: Final = "/app/account/security"


def sign_in(browser: Browser, running: Service, path: str = SECURITY) -> None:
    browser.open(f"{running.address}/app/sign-in?next={path}")
    browser.fill("Email address", ADA)
    browser.fill("Password", PASSWORD)
    browser.press("Sign in")


def check(browser: Browser, name: str) -> None:
    """Check the page by the rules of axe-core, in light and dark, and that it fits a phone."""
    findings = browser.audit(name)
    assert not any(findings.values()), findings


def test_a_passkey_is_added_renamed_and_deleted(running: Service, browser: Browser) -> None:
    sign_in(browser, running)
    check(browser, "security-without-passkeys")
    with browser.authenticator() as authenticator:
        browser.follow("Add a passkey")
        check(browser, "new-passkey")
        browser.press("Create the passkey")
        assert "Passkey added." in browser.text
        [credential] = authenticator.credentials()
        assert (credential["userName"], credential["isResidentCredential"]) == (ADA, True)
        check(browser, "security-with-passkey")
        browser.follow("Add a passkey")
        browser.find("form[data-passkey] button")[0].click()
        browser.wait_until(lambda: "already has a passkey" in browser.text)
        check(browser, "new-passkey-refused")
        browser.open(running.address + SECURITY)
        browser.follow("Manage Passkey")
        check(browser, "passkey")
        browser.fill("Name", "<b>Laptop</b>")
        browser.press("Save name")
        browser.follow("Manage <b>Laptop</b>")
        browser.follow("Delete")
        check(browser, "delete-passkey")
        assert "You can still sign in with your password" in browser.text
        browser.press("Delete")
        assert "You have no passkeys yet." in browser.text
        browser.wait_until(lambda: authenticator.credentials() == [])  # the page has signaled it
    assert not [complaint for complaint in browser.complaints() if "Content Security Policy" in complaint]
