"""Every role walks through the console in a real browser, by its links: every page that a link leads to is shown, and works."""

import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest
from lxml import html

from tests.proof.e2e.browser import Browser
from tests.proof.e2e.process import NO_TLS, Service
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.slow

SETTINGS: Final[dict[str, str]] = {}
DEMO: Final = "/app/organizations/demo"
# Parts of paths that differ between pages of the same kind. A single page per kind is enough.
ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<=/applications/)(?!new\b)[^/]+")
ORGANIZATION: Final = re.compile(r"(?<=/organizations/)[^/]+")
# The roles with pages that only they have.
OWN_PAGES: Final = {
    "owner": [f"{DEMO}/settings", f"{DEMO}/applications/web-shop"],
    "admin": [f"{DEMO}/webhooks", f"{DEMO}/audit-log"],
    "member": [DEMO, f"{DEMO}/members"],
    "platform_owner": ["/app/platform/organizations", "/app/platform/people", "/app/platform/health"],
    "impersonator": [f"{DEMO}/webhooks", f"{DEMO}/audit-log"],
    "stranger": ["/app/account", "/app/account/applications"],
}
READ: Final = """
const [heading] = document.getElementsByTagName("h1");
const links = [...document.querySelectorAll("a[href]")].map((each) => each.href);
return [heading.innerText, document.body.innerText, document.querySelector("#navigation a") !== null, links];
"""
# The roles in a group have pages of the same kinds.
GROUPS: Final = [("owner", "admin", "member", "impersonator", "stranger"), ("platform_owner",)]
NOT_FOR: Final = {
    "member": [f"{DEMO}/webhooks", f"{DEMO}/audit-log", f"{DEMO}/applications/new"],
    "platform_owner": [f"{DEMO}/members", f"{DEMO}/settings"],
    "owner": ["/app/platform/organizations"],
    "admin": ["/app/platform/people"],
    "impersonator": ["/app/platform/people"],
    "stranger": [DEMO, f"{DEMO}/members", f"{DEMO}/applications", "/app/platform/people"],
}


def sign_in(browser: Browser, running: Service, person: dict[str, str]) -> None:
    browser.forget()
    browser.open(f"{running.address}/app/sign-in?next=/app")
    browser.fill("Email address", person["email"])
    browser.fill("Password", person["password"])
    browser.press("Sign in")
    if browser.heading == "One more step":  # the demo asks its admins for a second factor, from a later day on
        browser.press("Not now")


def impersonate(browser: Browser, running: Service, people: dict[str, Any]) -> None:
    """Sign in as the platform owner, find the admin, and act as them."""
    sign_in(browser, running, people["platform_owner"])
    browser.open(f"{running.address}/app/platform/people?email={people['admin']['email']}")
    browser.follow(people["admin"]["email"])
    browser.find(".menu summary")[0].click()
    browser.follow("Impersonate")
    browser.fill("Reason for the impersonation", "Ticket 4711")
    browser.press("Impersonate")


@dataclass(frozen=True, slots=True)
class Shown:
    """A console page."""

    heading: str
    text: str
    has_navigation: bool
    links: list[str]

    @property
    def paths(self) -> list[str]:
        """The links to console pages."""
        found = (urlsplit(link) for link in self.links)
        return sorted({f"{each.path}{'?' if each.query else ''}{each.query}" for each in found if each.path.startswith("/app")})


def show(browser: Browser, address: str) -> Shown:
    """Open a page in the browser."""
    browser.open(address)
    return shown(browser)


def shown(browser: Browser) -> Shown:
    """Read the browser's present page."""
    return Shown(*browser.script(READ))


@contextmanager
def session_of(browser: Browser) -> Iterator[httpx.Client]:
    cookies = {name: str(cookie["value"]) for name, cookie in browser.cookies().items()}
    headers = {"Accept": "text/html", "User-Agent": browser.script("return navigator.userAgent")}
    with httpx.Client(cookies=cookies, headers=headers, follow_redirects=True, trust_env=False, verify=NO_TLS, timeout=PATIENCE) as client:
        yield client


def fetch(client: httpx.Client, address: str) -> Shown:
    """Read a page without showing it."""
    answer = client.get(address)
    document = html.document_fromstring(answer.text)
    assert answer.status_code == 200, (address, document.text_content()[-300:])
    document.make_links_absolute(address)
    navigation, links = document.xpath("//*[@id='navigation']//a"), document.xpath("//a/@href")
    return Shown(document.xpath("string(//h1)"), document.text_content(), bool(navigation), links)


def walk(browser: Browser, address: str, known: set[str]) -> dict[str, str]:
    """Follow every link from this page on, and return the pages' headings by path kind.

    The browser shows a page for every kind that is not in `known`, and adds the kind. The other pages are only read, because a page of
    their kind was shown to another role: its scripts and its policy are the same.
    """
    seen: dict[str, str] = {}
    waiting = deque(shown(browser).paths)
    with session_of(browser) as client:
        while waiting:
            path = waiting.popleft()
            kind = ID.sub("<id>", path.partition("?")[0])
            if kind in seen or kind.endswith(("/export", "/preview", "/enroll")):  # a download, and pages without the frame
                continue
            shape = ORGANIZATION.sub("<organization>", kind)  # all organizations' pages have the same scripts
            page = fetch(client, f"{address}{path}") if shape in known else show(browser, f"{address}{path}")
            known.add(shape)
            seen[kind] = page.heading
            assert page.has_navigation, (path, page.text[-300:])
            waiting.extend(page.paths)
    assert browser.complaints() == []
    return seen


@pytest.mark.parametrize("roles", GROUPS, ids=lambda roles: roles[0])
def test_each_role_reaches_its_pages_and_no_others(demo: tuple[Service, dict[str, Any]], browser: Browser, roles: tuple[str, ...]) -> None:
    running, people = demo
    people["stranger"] = people["other_organization"]["member"]
    known: set[str] = set()
    for role in roles:
        if role == "impersonator":
            impersonate(browser, running, people)
        else:
            sign_in(browser, running, people[role])
        seen = walk(browser, running.address, known)
        assert {ID.sub("<id>", path) for path in OWN_PAGES[role]} - seen.keys() == set(), (role, sorted(seen))
        for path in NOT_FOR[role]:
            assert ID.sub("<id>", path) not in seen, (role, path)
            page = show(browser, f"{running.address}{path}")
            assert not page.has_navigation, (role, path)
            assert re.search("Error 40[34]", page.text), (role, path)
            browser.complaints()  # the browser reports the status


CTRL_K: Final = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'k', ctrlKey: true, bubbles: true}))"


def test_keys_lead_to_the_search_and_times_are_local(demo: tuple[Service, dict[str, Any]], browser: Browser) -> None:
    running, people = demo
    sign_in(browser, running, people["owner"])
    browser.open(f"{running.address}{DEMO}/members")
    for press in (lambda: browser.strike("/"), lambda: browser.script(CTRL_K)):
        browser.script("document.activeElement.blur()")
        press()
        assert browser.focused.get_attribute("name") == "search"
    browser.strike("a/b")
    assert browser.focused.get_attribute("value") == "a/b", "a slash in a field is a slash"
    [title, *_] = browser.script("return [...document.querySelectorAll('time')].map((each) => each.title)")
    assert re.match("(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, ", title), "the script replaces the time in UTC"
    assert browser.complaints() == []


def test_an_action_sends_only_the_selected_people_that_it_can_change(demo: tuple[Service, dict[str, Any]], browser: Browser) -> None:
    running, people = demo
    sign_in(browser, running, people["owner"])
    browser.open(f"{running.address}{DEMO}/members")
    browser.find("th.select input")[0].click()
    selected = browser.script("return document.querySelectorAll('td.select input[name^=\"user:\"]:checked').length")
    assert selected > 1
    [button] = browser.find("button[value='end-sessions']")
    with browser.leaving():
        button.click()
    query = browser.script("return location.search")
    assert (query.count("user%3A"), query.count("invitation%3A"), "action=end-sessions" in query) == (selected, 0, True)
