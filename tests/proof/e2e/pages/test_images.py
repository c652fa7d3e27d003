"""Uploads, the branding preview, and backup codes in a browser, with and without scripts."""

from pathlib import Path
from typing import Any, Final

import pyotp
import pytest

from tests.fakes.images import picture
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.pages.test_console import DEMO, sign_in
from tests.proof.e2e.process import Service

pytestmark = pytest.mark.slow

SETTINGS: Final[dict[str, str]] = {}

COLORS: Final = """
return ["light", "dark"].map((name) => [".look-button", ".look-link"].map((part) => {
  const style = getComputedStyle(document.querySelector(`.look-${name} ${part}`));
  return [style.backgroundColor, style.color, style.borderColor];
}))"""
LOADED: Final = "return [...document.images].every((image) => image.complete && image.naturalWidth > 0)"


def choose(browser: Browser, file: Path) -> None:
    browser.find("input[type=file]")[0].send_keys(str(file))


def test_pictures_and_logos_are_uploaded_previewed_and_removed(demo: tuple[Service, dict[str, Any]], browser: Browser, home: Path) -> None:
    running, people = demo
    (home / "ada.png").write_bytes(picture(size=(400, 300)))
    sign_in(browser, running, people["owner"])
    browser.open(f"{running.address}/app/account/profile")
    choose(browser, home / "ada.png")
    browser.press("Upload")
    assert "Picture saved." in browser.text
    assert len(browser.find(".drop-account img.avatar")) == len(browser.find("img.uploaded")) == 1
    browser.wait_until(lambda: browser.script(LOADED))  # lazy pictures load after the page
    (home / "large.png").write_bytes(bytes(300_000))
    choose(browser, home / "large.png")
    assert browser.script("return document.querySelector('input[type=file]').validationMessage").startswith("This file has 300 KB.")
    assert browser.complaints() == []

    branding = f"{running.address}{DEMO}/branding"
    browser.open(branding)
    browser.fill("Color", "#F0c000")
    browser.fill("Name", "Acme & Sons")
    live = browser.script(COLORS)
    assert browser.script("return document.querySelector('input[type=color]').value") == "#f0c000"
    assert "This isn't saved yet." in browser.text
    assert [each.text for each in browser.find(".look-brand bdi")] == ["Acme & Sons"] * 2
    choose(browser, home / "ada.png")
    browser.wait_until(lambda: len(browser.find(".look-brand img")) == 2)
    browser.let_scripts_run(False)
    browser.open(branding)
    browser.fill("Color", "#F0c000")
    browser.press("Preview")
    assert browser.script(COLORS) == live, "the script derives the colors as the server does"
    assert "This isn't saved yet." in browser.text
    choose(browser, home / "ada.png")
    browser.press("Upload")
    assert "Logo saved." in browser.text
    assert len(browser.find(".look-brand img")) == 2
    browser.press("Remove logo")
    assert browser.find(".look-brand img") == []
    browser.let_scripts_run(True)
    assert browser.complaints() == []


def test_backup_codes_are_copied_and_saved(demo: tuple[Service, dict[str, Any]], browser: Browser, home: Path) -> None:
    running, people = demo
    sign_in(browser, running, people["member"])
    browser.open(f"{running.address}/app/account/two-factor")
    browser.press("Set up")
    secret = browser.find("code.secret")[0].text.replace(" ", "")
    browser.fill("6-digit code from the app", pyotp.TOTP(secret).now())
    browser.press("Turn on")
    codes = [each.text for each in browser.find(".codes code")]
    assert codes
    browser.download_to(home)
    [_, download] = browser.find(".codes + .buttons button")
    download.click()
    file = home / "backup-codes.txt"
    browser.wait_until(lambda: file.is_file() and file.read_text("utf-8"))
    heading, _, *lines = file.read_text("utf-8").splitlines()
    assert (lines, people["member"]["email"] in heading) == (codes, True)
    assert browser.complaints() == []
