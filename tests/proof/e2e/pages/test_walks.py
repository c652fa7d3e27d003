"""The pages and clicks that an admin needs for daily support tasks, in a real browser from the task's first page."""

from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.proof.e2e.browser import Browser
from tests.proof.e2e.pages.test_console import DEMO, sign_in
from tests.proof.e2e.process import Service

pytestmark = pytest.mark.slow

SETTINGS: Final[dict[str, str]] = {}

WRONG: Final = "a wrong password"
METADATA: Final = """
<md:EntityDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata" entityID="https://wiki.example/saml">
<md:SPSSODescriptor protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">
<md:AssertionConsumerService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST" Location="https://wiki.example/acs" index="0"/>
</md:SPSSODescriptor></md:EntityDescriptor>"""


@dataclass
class Walk:
    """A walk through our pages, which counts the shown pages, including the first page, and the used links and buttons.

    The application's pages at this address are not ours.
    """

    browser: Browser
    application: str | None = None
    pages: int = 0
    clicks: int = 0

    def open(self, address: str) -> None:
        self.browser.open(address)
        self.pages += 1

    def visit(self, address: str) -> None:
        """Follow an application's link, or a link to it."""
        self.browser.open(address)
        self._count()

    def follow(self, label: str) -> None:
        self.browser.follow(label)
        self._count()

    def press(self, label: str) -> None:
        self.browser.press(label)
        self._count()

    def _count(self) -> None:
        self.pages += not self._is_foreign(self.browser.address)
        self.clicks += 1
        assert [each for each in self.browser.complaints() if not self._is_foreign(each)] == []

    def _is_foreign(self, text: str) -> bool:
        return self.application is not None and text.startswith(f"{self.application}/")

    @property
    def effort(self) -> tuple[int, int]:
        return self.pages, self.clicks


def test_three_people_are_invited_with_one_click(demo: tuple[Service, dict[str, Any]], browser: Browser) -> None:
    running, people = demo
    sign_in(browser, running, people["admin"])
    walk = Walk(browser)
    walk.open(f"{running.address}{DEMO}/members")
    browser.fill("Invite by email address", "ann@x.example, ben@x.example, cleo@x.example")
    walk.press("Send invitations")
    assert all(f"{name}@x.example" in browser.text for name in ("ann", "ben", "cleo"))
    assert walk.effort == (2, 1)


def test_the_list_says_who_sent_an_invitation_and_the_page_of_a_member_who_invited_them(
    demo: tuple[Service, dict[str, Any]], browser: Browser
) -> None:
    running, people = demo
    owner, invited = people["owner"], people["other_organization"]["member"]["email"]
    token, api = running.login(owner["email"], owner["password"])["access_token"], "/api/organizations/demo/invitations"
    _, second = [running.post(api, {"email": email, "role": "member"}, token=token).json() for email in ("ann@x.example", invited)]
    assert running.post(f"{api}/{second['invitation']['id']}/accept", token=token).is_success
    sign_in(browser, running, owner)
    for page, link, sentence in (
        ("", "Members", f"by {owner['email']}, just now"),
        ("/members", invited, f"Invited by\n{owner['email']}, just now"),
    ):
        walk = Walk(browser)
        browser.open(f"{running.address}{DEMO}{page}")
        walk.follow(link)
        assert sentence in browser.text
        assert walk.effort == (1, 1)


def test_the_page_of_a_member_says_why_they_could_not_sign_in(demo: tuple[Service, dict[str, Any]], browser: Browser) -> None:
    running, people = demo
    sign_in(browser, running, {"email": people["member"]["email"], "password": WRONG})
    sign_in(browser, running, people["admin"])
    walk = Walk(browser)
    browser.open(f"{running.address}{DEMO}")
    walk.follow("Members")
    walk.follow(people["member"]["email"])
    assert "Wrong password just now" in browser.text
    assert walk.effort == (2, 2)


def test_a_product_that_speaks_saml_is_connected_with_three_clicks(demo: tuple[Service, dict[str, Any]], browser: Browser) -> None:
    running, people = demo
    sign_in(browser, running, people["owner"])
    walk = Walk(browser)
    browser.open(f"{running.address}{DEMO}/applications")
    walk.follow("Create application")
    walk.follow("A product that speaks SAML")
    browser.fill("Name", "Wiki")
    browser.fill("Metadata of the application", METADATA)
    walk.press("Create application")
    assert browser.heading == "Wiki"
    assert "Test sign-on" in browser.text
    assert walk.effort == (3, 3)


def test_a_member_is_removed_and_blocked_from_all_applications_with_three_clicks(
    demo: tuple[Service, dict[str, Any]], browser: Browser
) -> None:
    running, people = demo
    sign_in(browser, running, people["owner"])
    walk, email = Walk(browser), people["member"]["email"]
    browser.open(f"{running.address}{DEMO}/members")
    walk.follow(email)
    browser.script("document.querySelector('details.menu').open = true")
    walk.follow("Remove member")
    assert browser.script("return document.querySelector('[name=block]').checked"), "the block is proposed"
    browser.photograph_whole("remove-member")
    browser.fill(f"Type {email} to confirm", email)
    walk.press("Remove member")
    assert walk.effort == (3, 3)
    browser.open(f"{running.address}{DEMO}/users?blocked=true")
    assert email in browser.text


def test_an_application_for_the_members_needs_no_further_click(demo: tuple[Service, dict[str, Any]], browser: Browser) -> None:
    running, people = demo
    sign_in(browser, running, people["owner"])
    walk = Walk(browser)
    browser.open(f"{running.address}{DEMO}/applications")
    walk.follow("Create application")
    walk.follow("A program or an API without a sign-in page")
    browser.photograph_whole("new-application")
    browser.fill("Name", "Reports")
    walk.press("Create application")
    assert walk.effort == (3, 3)
    browser.open(f"{running.address}{DEMO}/applications/reports/access")
    assert browser.script("return document.querySelector('[name=policy]:checked').value") == "members"
