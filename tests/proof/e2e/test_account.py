"""The sign-in and account pages in a real browser without scripts, with codes by oathtool (security G-2)."""

import json
import subprocess
import time
from typing import Final

import pytest
from selenium.webdriver.common.keys import Keys

from tests.proof.e2e.browser import Browser, name_of
from tests.proof.e2e.process import Service
from tests.support import database
from tests.support.waiting import until

pytestmark = pytest.mark.slow

ADA, PASSWORD, OTHER_PASSWORD = "ada@example.com", "nine lions at the river", "seven lions at the gate"
SETTINGS: Final = {"SSO_PLATFORM_OWNER_EMAIL": ADA, "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD}
STEP: Final = 30  # how many seconds a code is valid


@pytest.fixture
def scriptless(browser: Browser) -> Browser:
    """A browser that runs no scripts."""
    browser.let_scripts_run(False)
    return browser


@pytest.fixture(autouse=True)
def scripts_afterwards(browser: Browser) -> object:
    yield
    browser.let_scripts_run(True)


def code_of(secret: str, later: int = 0) -> str:
    """Return the authenticator app's code, now or some seconds later."""
    moment = f"@{int(time.time()) + later}"
    return subprocess.run(
        ["oathtool", "--totp", "--base32", "--now", moment, secret],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def sign_in(browser: Browser, service: Service, password: str = PASSWORD) -> None:
    browser.open(f"{service.address}/app/sign-in?next=/app/account")
    assert browser.heading == "Sign in"
    browser.fill("Email address", ADA)
    browser.fill("Password", password)
    browser.press("Sign in")


def enrol(browser: Browser, service: Service) -> tuple[str, list[str]]:
    """Set up a second factor on the pages. Return its secret and backup codes."""
    browser.open(f"{service.address}/app/account/two-factor")
    browser.press("Set up")
    [element] = browser.find("code.secret")
    secret = element.text.replace(" ", "")
    [link] = browser.find("a[href^='otpauth:']")
    assert f"secret={secret}" in str(link.get_attribute("href"))
    browser.fill("6-digit code from the app", code_of(secret))
    browser.press("Turn on")
    assert browser.heading == "Your backup codes"
    return secret, [code.text for code in browser.find(".codes code")]


def check_no_complaints(browser: Browser) -> None:
    assert browser.find("script:not([src^='/assets/console.'], [src^='/assets/passkeys.'])") == []
    assert browser.complaints() == []


def test_a_user_sets_up_and_uses_a_second_factor(running: Service, scriptless: Browser) -> None:
    sign_in(scriptless, running)
    assert scriptless.heading == "Your account"
    assert ADA in scriptless.text
    secret, backup_codes = enrol(scriptless, running)
    assert len(backup_codes) == 10
    scriptless.follow("I've saved these codes")
    assert "You have 10 backup codes left." in scriptless.text
    scriptless.follow("← Your account")
    scriptless.press("Sign out")
    assert scriptless.heading == "Sign in"
    scriptless.open(f"{running.address}/app/account")
    assert scriptless.heading == "Sign in", "a session that was signed out opens nothing"
    check_no_complaints(scriptless)

    sign_in(scriptless, running)
    assert scriptless.heading == "Enter your code"
    scriptless.find_labelled("Don't ask for a code on this device for a while").click()
    scriptless.fill("Code", code_of(secret, later=STEP))  # enabling the second factor used the code before
    scriptless.press("Continue")
    assert scriptless.heading == "Your account"
    scriptless.press("Sign out")

    sign_in(scriptless, running)
    assert scriptless.heading == "Your account", "a trusted device needs no code"
    scriptless.follow("Manage your security")
    assert "trusted" in scriptless.text

    scriptless.forget()
    scriptless.let_scripts_run(False)
    sign_in(scriptless, running)
    assert scriptless.heading == "Enter your code", "another browser is not trusted"
    scriptless.fill("Code", backup_codes[0])
    scriptless.press("Continue")
    assert scriptless.heading == "Your account"
    scriptless.press("Sign out")
    sign_in(scriptless, running)
    scriptless.fill("Code", backup_codes[0])
    scriptless.press("Continue")
    assert scriptless.heading == "Enter your code", "a backup code works once"
    scriptless.fill("Code", backup_codes[1])
    scriptless.press("Continue")

    scriptless.follow("Manage your security")
    scriptless.follow("Turn off two-factor authentication")
    scriptless.press("Turn off two-factor authentication")
    assert "Two-factor authentication turned off." in scriptless.text
    scriptless.follow("← Your account")
    scriptless.press("Sign out")
    sign_in(scriptless, running)
    assert scriptless.heading == "Your account"


def test_devices_and_sessions_are_listed_and_ended(running: Service, scriptless: Browser) -> None:
    tokens = running.login(ADA, PASSWORD)
    sign_in(scriptless, running)
    scriptless.follow("Manage your security")
    [here, there] = sorted(scriptless.find("#devices .rows li"), key=lambda row: "this device" not in row.text)
    assert "this device" in here.text
    there_link = there.find_element("css selector", "a")
    with scriptless.leaving():
        there_link.click()
    scriptless.fill("Name", "The program")
    scriptless.press("Save name")
    assert scriptless.heading == "The program"
    scriptless.press("Revoke device")
    assert "Device revoked and signed out." in scriptless.text
    assert "The program" not in scriptless.text
    assert running.get("/api/user", token=tokens["access_token"]).status_code == 401

    tokens = running.login(ADA, PASSWORD)
    scriptless.open(f"{running.address}/app/account/sessions")
    assert len(scriptless.find("#sessions .rows li")) == 2
    [end] = [each for each in scriptless.find("button") if name_of(each).startswith("End the session")]
    with scriptless.leaving():
        end.click()
    assert "Session ended." in scriptless.text
    assert running.get("/api/user", token=tokens["access_token"]).status_code == 401

    tokens = running.login(ADA, PASSWORD)
    scriptless.open(f"{running.address}/app/account/sessions")
    scriptless.press("End all other sessions")
    assert len(scriptless.find("#sessions .rows > li")) == 1
    assert running.get("/api/user", token=tokens["access_token"]).status_code == 401
    check_no_complaints(scriptless)


def test_a_changed_password_replaces_the_old_one(running: Service, scriptless: Browser) -> None:
    sign_in(scriptless, running)
    scriptless.follow("Manage your security")
    scriptless.follow("Change your password")
    scriptless.fill("Current password", PASSWORD)
    scriptless.fill("New password", OTHER_PASSWORD)
    scriptless.press("Save password")
    assert "Password updated." in scriptless.text
    scriptless.follow("← Your account")
    scriptless.press("Sign out")
    sign_in(scriptless, running)
    assert scriptless.heading == "Sign in"
    assert "wrong" in scriptless.find("[role=alert]")[0].text
    scriptless.fill("Password", OTHER_PASSWORD)  # the form still has the email address
    scriptless.press("Sign in")
    assert scriptless.heading == "Your account"


def test_a_user_downloads_their_data(running: Service, scriptless: Browser) -> None:
    sign_in(scriptless, running)
    with database.reachable_directory() as place:
        scriptless.download_to(place)
        [button] = [each for each in scriptless.find("button") if name_of(each) == "Download your data"]
        button.click()
        file = place / "gatehouse-export.json"
        until(file.exists, "the file is there")
        assert json.loads(file.read_text("utf-8"))["email"] == ADA


def test_scripts_cannot_read_the_cookies(running: Service, browser: Browser) -> None:
    sign_in(browser, running)
    cookies = browser.cookies()
    assert {"gatehouse-session", "gatehouse-device"} <= cookies.keys()
    for cookie in cookies.values():
        assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"], cookie["path"]) == (True, False, "Lax", "/")
    assert browser.script("return document.cookie") == ""


REACHABLE: Final = "a[href], button, summary, input:not([type=hidden]):not([hidden])"
DISPLAYED: Final = """
const isDisplayed = (each) => each.checkVisibility({ visibilityProperty: true });
return ((selector) => [...document.querySelectorAll(selector)].filter(isDisplayed))"""
FOCUSED: Final = "const focused = document.activeElement; return [focused, getComputedStyle(focused).outlineStyle]"
PAGES: Final = (
    "account",
    *(f"account/{page}" for page in ("email", "password", "security", "security/sign-ins", "two-factor/disable", "organizations")),
)


def displayed(browser: Browser) -> list[str]:
    """Return the ids of visible elements that a user can act on."""
    return [each.id for each in browser.script(f"{DISPLAYED}('{REACHABLE}')")]


def reachable_ids(browser: Browser) -> list[str]:
    """Return the ids of the elements that the Tab key reaches, from the page's top."""
    ids: list[str] = []
    for _ in displayed(browser):
        browser.press_tab()
        focused, outline = browser.script(FOCUSED)
        ids.append(focused.id)
        assert outline != "none", f"{name_of(focused)} has no visible focus"
    return ids


def test_the_pages_can_be_used_with_the_keyboard_alone(running: Service, browser: Browser) -> None:
    browser.open(f"{running.address}/app/sign-in")
    assert reachable_ids(browser) == displayed(browser)
    browser.open(f"{running.address}/app/sign-in")
    browser.press_tab()  # the logo, which links to the front page
    browser.press_tab()
    with browser.leaving():
        browser.strike(ADA, Keys.TAB, PASSWORD, Keys.ENTER)
    assert browser.heading == "Create organization"
    for page in PAGES:
        browser.open(f"{running.address}/app/{page}")
        assert reachable_ids(browser) == displayed(browser), page
