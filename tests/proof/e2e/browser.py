"""Debian's Chromium, driven as a user drives it."""

import base64
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from tests import ROOT
from tests.proof.e2e.pages import scripts
from tests.support.passkeys.virtual import PLATFORM_AUTHENTICATOR, Authenticator
from tests.support.waiting import PATIENCE

# Screenshots are for people: no test reads them. They are saved if this variable is set.
SCREENSHOTS_VARIABLE: Final = "GATEHOUSE_SCREENSHOTS"
ARTEFACTS: Final = ROOT / "tests" / "artefacts"
DESKTOP, TABLET, PHONE = (1280, 800), (768, 1024), (390, 844)
# How a page can look: name, dark, size. All other looks are only for people, who want
# screenshots.
LOOKS: Final = (("light", False, DESKTOP), ("dark", True, DESKTOP), ("phone", False, PHONE))
MORE_LOOKS: Final = (("tablet", False, TABLET), ("tablet-dark", True, TABLET), ("phone-dark", True, PHONE))

HEADLESS_SHELL: Final = ROOT / "tests" / "proof" / "e2e" / "headless-shell"
AXE: Final = ROOT / "tests" / "proof" / "clients" / "node" / "node_modules" / "axe-core" / "axe.min.js"


def missing() -> str | None:
    """Return a sentence about missing programs, or None."""
    absent = [name for name in ("chromium-headless-shell", "chromedriver", "oathtool") if shutil.which(name) is None]
    if absent:
        packages = "chromium-headless-shell chromium-driver oathtool"
        return f"No {' and no '.join(absent)} here, which tests of pages need: on Debian, apt-get install {packages}."
    return None


def name_of(element: WebElement) -> str:
    """Return the name of a link or button, including its text for screen readers."""
    return " ".join(str(element.get_property("textContent")).split())


class Browser:
    """A browser with a new profile that contacts no other host."""

    def __init__(self, profile: Path, *arguments: str) -> None:
        """`arguments` are more arguments for Chromium."""
        options = webdriver.ChromeOptions()
        options.binary_location = str(HEADLESS_SHELL)
        for argument in (
            "--no-sandbox",  # Chromium's sandbox does not start in containers and for root
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            # Otherwise the browser makes new objects for every page's frame, which takes a fifth of the page's time. No page can tell.
            "--disable-features=RenderDocument",
            f"--user-data-dir={profile}",
            f"--window-size={DESKTOP[0]},{DESKTOP[1]}",
            *arguments,
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        # With both paths set, selenium searches and downloads nothing.
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        self._driver = webdriver.Chrome(options, service)
        self._driver.set_page_load_timeout(PATIENCE)
        self._window = self.script("return [innerWidth, innerHeight]")
        self._is_phone = False
        self.kept: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._driver.quit()

    def forget(self) -> None:
        """Delete cookies and console messages, and close all tabs but the current tab."""
        for tab in self._driver.window_handles[1:]:
            self._driver.switch_to.window(tab)
            self._driver.close()
        self._driver.switch_to.window(self._driver.window_handles[0])
        self._driver.get("about:blank")
        self._driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self._driver.execute_cdp_cmd("Network.clearBrowserCache", {})
        self.complaints()

    def open(self, address: str) -> None:
        self._driver.get(address)

    @property
    def tab(self) -> str:
        """The present tab's name."""
        return self._driver.current_window_handle

    def open_tab(self, address: str) -> str:
        """Open an address in a new tab. Return the tab's name."""
        self._driver.switch_to.new_window("tab")
        self.open(address)
        return self.tab

    def switch_to(self, tab: str) -> None:
        """Continue in another tab."""
        self._driver.switch_to.window(tab)

    def reload(self) -> None:
        """Reload the page. A browser sends the form again that led to it."""
        with self.leaving():
            self._driver.refresh()

    def back(self) -> None:
        """Press the back button."""
        with self.leaving():
            self._driver.back()

    @property
    def address(self) -> str:
        return self._driver.current_url

    @property
    def title(self) -> str:
        return self._driver.title

    @property
    def heading(self) -> str:
        return str(self.script("return document.querySelector('h1').innerText")).strip()

    @property
    def text(self) -> str:
        return str(self.script("return document.body.innerText")).strip()

    @property
    def source(self) -> str:
        return self._driver.page_source

    def find(self, selector: str) -> list[WebElement]:
        return self._driver.find_elements(By.CSS_SELECTOR, selector)

    def find_labelled(self, label: str) -> WebElement:
        """Return the input with a label."""
        [element] = self._driver.execute_script(scripts.LABELLED, label)
        assert isinstance(element, WebElement), f"the label {label} is of no field"
        return element

    def press(self, label: str) -> None:
        """Press a button, and wait for the next page."""
        [button] = self._named("button", label)
        with self.leaving():
            self._click(button)

    def follow(self, label: str) -> None:
        """Follow a link, and wait for the next page."""
        [link] = self._named("a", label)
        with self.leaving():
            self._click(link)

    def _named(self, tag: str, label: str) -> list[WebElement]:
        """Return the elements with this name: in the content, or if it has none, in the frame around it."""
        named: list[WebElement] = self._driver.execute_script(scripts.NAMED, tag, label)
        return named

    def _click(self, element: WebElement) -> None:
        """Click on an element that is in view, with the mouse. The driver's own click takes ten times as long."""
        middle = self._driver.execute_script(scripts.MIDDLE, element)
        assert middle is not None, f"something covers {element.get_attribute('outerHTML')}"
        click = {"x": middle[0], "y": middle[1], "button": "left", "clickCount": 1}
        for event in ("mousePressed", "mouseReleased"):
            self._driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": event, **click})

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Wait until another page is loaded than at entry."""
        before, _ = self.script(scripts.PAGE)

        def is_next() -> bool:
            page, is_loaded = self.script(scripts.PAGE)
            return bool(is_loaded) and page != before

        yield
        self.wait_until(is_next)

    def fill(self, label: str, text: str) -> None:
        """Replace the content of the field with this label, as an input method does. Keys take 20 times as long."""
        assert self._driver.execute_script(scripts.SELECT_CONTENT, label), f"the field {label} takes no text"
        if text:
            self._driver.execute_cdp_cmd("Input.insertText", {"text": text})
        else:
            self.strike(Keys.DELETE)

    def paste(self, label: str, text: str) -> None:
        """Replace the content of the field with this label, without a key press per character."""
        self._driver.execute_script("arguments[0].value = arguments[1]", self.find_labelled(label), text)

    def choose(self, label: str, option: str) -> None:
        """Choose the option with this text in the list with this label."""
        Select(self.find_labelled(label)).select_by_visible_text(option)

    def press_tab(self) -> None:
        """Move the focus to the next element."""
        self.strike(Keys.TAB)

    def strike(self, *keys: str) -> None:
        """Press keys at the focus."""
        ActionChains(self._driver).send_keys(*keys).perform()

    @property
    def focused(self) -> WebElement:
        return self._driver.switch_to.active_element

    def let_scripts_run(self, allowed: bool) -> None:
        self._driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not allowed})

    def download_to(self, place: Path) -> None:
        """Save downloads in this directory from now on."""
        self._driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(place)})

    def cookies(self) -> dict[str, dict[str, Any]]:
        """Return the cookies of the page's host, by name, with their attributes."""
        return {cookie["name"]: cookie for cookie in self._driver.get_cookies()}

    def wait_until(self, condition: Any) -> None:
        WebDriverWait(self._driver, PATIENCE, poll_frequency=0.01, ignored_exceptions=[Exception]).until(lambda _: condition())

    def script(self, source: str, *arguments: Any) -> Any:
        """Return what a function body in the page returns."""
        return self._driver.execute_script(source, *arguments)

    @contextmanager
    def on_new_pages(self, source: str) -> Iterator[None]:
        """Run this script in every new page, before the page's own scripts."""
        added = self._driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
        try:
            yield
        finally:
            self._driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)

    def wait_for_script(self, source: str, *arguments: Any) -> Any:
        """Return what a function body in the page passes to its last argument."""
        return self._driver.execute_async_script(source, *arguments)

    def create_passkey(self, options: Any) -> Any:
        """Create a passkey at the present page. Return the credential as JSON, or the error's name."""
        return self.wait_for_script(scripts.CEREMONY, "create", "parseCreationOptionsFromJSON", options)

    def use_passkey(self, options: Any) -> Any:
        """Use a passkey at the present page. Return the credential as JSON, or the error's name."""
        return self.wait_for_script(scripts.CEREMONY, "get", "parseRequestOptionsFromJSON", options)

    @contextmanager
    def authenticator(self, **options: Any) -> Iterator[Authenticator]:
        """Connect a virtual authenticator to the present tab: by default a phone or laptop that has verified its user."""
        self._driver.execute_cdp_cmd("WebAuthn.enable", {})
        added = self._driver.execute_cdp_cmd("WebAuthn.addVirtualAuthenticator", {"options": {**PLATFORM_AUTHENTICATOR, **options}})
        try:
            yield Authenticator(self._driver, added["authenticatorId"])
        finally:
            self._driver.execute_cdp_cmd("WebAuthn.disable", {})  # this removes all authenticators

    def complaints(self) -> list[str]:
        """Return the console messages since the last call: script errors, policy violations, and files that did not load."""
        entries = self._driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def use_dark(self, dark: bool) -> None:
        """Set the color scheme that the system prefers."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def show(self, body: str) -> None:
        """Show this document, without a server."""
        if not self._driver.execute_script(scripts.WRITE, body):
            self._driver.get("about:blank")
            assert self._driver.execute_script(scripts.WRITE, body)

    def audit(self, name: str) -> dict[str, list[str]]:
        """Return what axe-core finds on the page, by look: light, dark and phone. Also save screenshots.

        The light look is checked against all rules, and the dark look for its contrast. In any look, a page that is
        wider than the window is a finding.
        """
        findings = {}
        for look in self._looks(name):
            violations = []
            if look in ("light", "dark"):
                violations = self._run_axe({"runOnly": ["color-contrast"]} if look == "dark" else {})
            if not self.script(scripts.FITS):
                violations.append("the page is wider than the window")
            findings[look] = violations
        return findings

    def _run_axe(self, options: dict[str, Any]) -> list[str]:
        violations: list[str] | None = self.wait_for_script(scripts.RUN_AXE, options)
        if violations is None:
            self._driver.execute_script(AXE.read_text("utf-8"))
            return self._run_axe(options)
        return violations

    def keep(self, name: str) -> None:
        """Keep the page for `audit_kept` at the end of the test, and save screenshots if they are wanted."""
        assert name not in self.kept, name
        self.kept[name] = self.script(scripts.SNAPSHOT)
        if os.environ.get(SCREENSHOTS_VARIABLE):
            self.photograph_whole(name)

    def photograph_whole(self, name: str) -> None:
        """Check that the page fits a desktop and a phone, and save screenshots: light and dark, and on a phone."""
        for look in self._looks(name, skipped={"dark"}):  # which is as wide as the light look
            assert self.script(scripts.FITS), (name, look)

    def _looks(self, name: str, skipped: Collection[str] = ()) -> Iterator[str]:
        """Show the page in every look but the skipped looks. If screenshots are wanted, show and save all."""
        looks = (*LOOKS, *MORE_LOOKS) if os.environ.get(SCREENSHOTS_VARIABLE) else [each for each in LOOKS if each[0] not in skipped]
        was_dark, old_size = False, None
        for look, dark, size in looks:
            if dark != was_dark:
                self.use_dark(dark)
            if size != old_size:
                self._resize(size, mobile=look.startswith("phone"))
            was_dark, old_size = dark, size
            yield look
            if os.environ.get(SCREENSHOTS_VARIABLE):
                self._settle()
                ARTEFACTS.mkdir(exist_ok=True)
                taken = self._driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
                (ARTEFACTS / f"{name}-{look}.png").write_bytes(base64.b64decode(taken["data"]))
        self._restore_size()
        if was_dark:
            self.use_dark(False)

    @contextmanager
    def on_phone(self) -> Iterator[None]:
        """Show all pages on a phone."""
        self._is_phone = True
        self._restore_size()
        try:
            yield
        finally:
            self._is_phone = False
            self._restore_size()

    def _restore_size(self) -> None:
        if self._is_phone:
            self._resize(PHONE, mobile=True)
        else:
            self._driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
            self.wait_until(lambda: self.script("return [innerWidth, innerHeight]") == self._window)  # or the next click misses

    def _resize(self, size: tuple[int, int], *, mobile: bool = False, scale: float = 1) -> None:
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": scale, "mobile": mobile}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def screenshot(self) -> bytes:
        """Return a PNG of the page's top, without scroll bars."""
        self._driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        self._resize(DESKTOP)
        self._settle()
        return self._driver.get_screenshot_as_png()

    @contextmanager
    def at_height(self, height: int) -> Iterator[None]:
        """Show the page in a window with this height, in pixels, in which all of it is in view. It is drawn at a tenth its size."""
        self._resize((DESKTOP[0], height), scale=0.1)
        yield
        self._restore_size()

    def photograph(self, name: str) -> None:
        """Save screenshots that show the visible page: light and dark, and on a phone."""
        if not os.environ.get(SCREENSHOTS_VARIABLE):
            return
        ARTEFACTS.mkdir(exist_ok=True)
        for dark in (False, True):
            self.use_dark(dark)
            self._settle()
            self._driver.save_screenshot(str(ARTEFACTS / f"{name}-{'dark' if dark else 'light'}.png"))
        self.use_dark(False)
        self._settle()
        self._resize(PHONE, mobile=True)
        self._driver.save_screenshot(str(ARTEFACTS / f"{name}-phone.png"))
        self._restore_size()

    def _settle(self) -> None:
        """Wait until animations have ended: two frames for their start, and then their end."""
        self._driver.execute_async_script(
            """
            const done = arguments[0];
            const ended = () => Promise.allSettled(document.getAnimations().map((each) => each.finished)).then(done);
            requestAnimationFrame(() => requestAnimationFrame(ended));
            """
        )
