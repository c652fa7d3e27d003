"""Invitations, from outside: created over the API, emailed, accepted or declined in a browser, and used."""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import SharedService, Start, settings_of_owner
from tests.proof.e2e.process import Service
from tests.proof.e2e.sink import MailSink
from tests.support.waiting import until

pytestmark = pytest.mark.slow

OWNER, OWNERS_PASSWORD = "grace@example.com", "nine lions at the river"
INVITED, NEW_PASSWORD = "newcomer@example.com", "seven lions at the gate"
SETTINGS = {
    **settings_of_owner(OWNER, OWNERS_PASSWORD),
}


@dataclass
class Acme:
    """A running service with an organization and its owner."""

    service: Service
    token: str

    def invite(self, role: str = "member") -> dict[str, Any]:
        answer = self.service.post("/api/organizations/acme/invitations", {"email": INVITED, "role": role}, token=self.token)
        assert answer.status_code == 200, answer.text
        response: dict[str, Any] = answer.json()
        return response

    def statuses(self) -> list[str]:
        listed = self.service.get("/api/organizations/acme/invitations", token=self.token).json()
        return [one["invitation"]["status"] for one in listed]

    def members(self) -> dict[str, str]:
        listed = self.service.get("/api/organizations/acme/members", token=self.token).json()["members"]
        return {one["user"]["email"]: one["membership"]["role"] for one in listed}


@pytest.fixture
def sink(shared: SharedService) -> MailSink:
    return shared.sink


@pytest.fixture
def acme(running: Service) -> Acme:
    token = running.login(OWNER, OWNERS_PASSWORD)["access_token"]
    answer = running.post("/api/organizations", {"slug": "acme", "name": "Acme & Sons"}, token=token)
    assert answer.status_code == 200, answer.text
    return Acme(running, token)


def check_page(browser: Browser, acme: Acme) -> None:
    """Check that the link opens our page, and that it shows the invitation."""
    assert browser.address.startswith(f"{acme.service.address}/app/invitations/accept?token=")
    assert browser.heading == "You are invited to Acme & Sons"
    for words in (OWNER, INVITED, "This invitation expires in 6 days"):
        assert words in browser.text
    assert browser.find("script") == []
    assert browser.complaints() == []


def check_error(browser: Browser, token: str, sentence: str) -> None:
    assert browser.heading == "This invitation is closed"
    assert sentence in browser.text
    assert token not in browser.source
    # The console reports only the page's error status.
    assert [re.sub(r".*(status of \d+).*", r"\1", line) for line in browser.complaints()] == ["status of 400"]


def test_a_new_user_joins_with_one_mail_and_one_page(acme: Acme, sink: MailSink, browser: Browser) -> None:
    service = acme.service
    invitation = acme.invite("admin")
    email = sink.wait_for(INVITED)
    assert email.message["Subject"] == "You are invited to Acme & Sons - Gatehouse"
    assert email.link.startswith(f"{service.address}/invitations/accept?token=")
    assert invitation["token"] not in email.html
    assert email.link.replace("&", "&amp;") in email.html

    browser.open(email.link)
    check_page(browser, acme)
    assert "an administrator" in browser.text
    browser.photograph("invitation")
    assert acme.statuses() == ["pending"]
    browser.find_labelled("Your name (optional)").send_keys("Grace Hopper")
    browser.find_labelled("Choose a password").send_keys(NEW_PASSWORD)
    browser.press("Join")
    assert browser.heading == "Your organizations"
    assert "You've joined the organization." in browser.text
    assert "Acme & Sons" in browser.text
    assert urlsplit(browser.address).query == ""
    assert browser.complaints() == []
    browser.photograph("invitation-accepted")
    assert acme.statuses() == ["accepted"]
    assert acme.members() == {OWNER: "owner", INVITED: "admin"}

    browser.open(email.link)
    check_error(browser, email.token, "already been answered or canceled")
    browser.photograph("invitation-used")

    token = service.login(INVITED, NEW_PASSWORD)["access_token"]
    assert service.get("/api/organizations/acme", token=token).status_code == 200
    assert service.get("/api/invitations", token=token).json() == []

    assert service.stop() == 0
    for secret in (email.token, invitation["token"], invitation["invitation"]["token"]):
        assert secret not in service.output
    requests = [(line["method"], line["route"], line["status"]) for line in service.logged("request")]
    assert requests.count(("GET", "/invitations/accept", 301)) == 2
    assert requests.count(("POST", "/app/invitations/accept", 303)) == 1


def test_an_invitation_is_declined_in_a_browser(acme: Acme, sink: MailSink, browser: Browser) -> None:
    acme.invite()
    email = sink.wait_for(INVITED)
    browser.open(email.link)
    check_page(browser, acme)
    assert "a member" in browser.text
    page = browser.address
    browser.press("Decline")
    assert browser.heading == "You declined the invitation"
    assert "Acme & Sons" in browser.text
    assert browser.complaints() == []
    browser.photograph("invitation-declined")
    assert acme.statuses() == ["rejected"]
    assert INVITED not in acme.members()
    browser.open(page)
    check_error(browser, email.token, "already been answered or canceled")
    assert (acme.invite()["invitation"]["status"], acme.statuses()) == ("pending", ["pending", "rejected"])


def test_an_invitation_can_be_answered_with_the_keyboard_alone(acme: Acme, sink: MailSink, browser: Browser) -> None:
    acme.invite()
    browser.open(sink.wait_for(INVITED).link)
    labels = []
    for _ in range(6):
        browser.press_tab()
        labels.append(browser.script("return document.activeElement.name || document.activeElement.textContent.trim()"))
    assert labels == ["name", "email", "new_password", "Join", "Decline", "Gatehouse"]


def test_an_invitation_is_answered_on_the_frontend_if_there_is_one(service: Start, own_database: dict[str, str]) -> None:
    running = service(SSO_FRONTEND_URL="https://app.example.com/console/", **own_database).start()
    token = "5e0c3a0c-7c1b-4b7e-9d53-2f5e8b0c7a11"
    answer = running.get(f"/invitations/accept?token={token}")
    assert (answer.status_code, answer.headers["Location"]) == (301, f"https://app.example.com/console/invitations/accept?token={token}")
    assert (answer.headers["Cache-Control"], answer.headers["Referrer-Policy"]) == ("no-store", "no-referrer")


def test_a_running_service_expires_invitations(acme: Acme) -> None:
    metric = "sso_job_processing_duration_seconds_count"
    until(lambda: acme.service.metric(metric)['{job_type="invitation_expiry"}'] > 0, "the sweeper has run")
