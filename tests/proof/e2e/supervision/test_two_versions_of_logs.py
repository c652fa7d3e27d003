"""Version 0.9.0 beside this one: each continues with the rows of the other, and the logs here show both."""

from typing import Any, Final

import httpx
import pytest

from tests.proof.e2e.process import Service
from tests.proof.e2e.supervision.test_two_versions import OWNER, PASSWORD, Pair, pair
from tests.support.waiting import until

__all__ = ["pair"]

pytestmark = pytest.mark.slow

ORG: Final = "/api/organizations/acme"
NO_ACCOUNT: Final = "no-account@example.com"


class Admin:
    """The owner of the organization, who also owns the platform."""

    def __init__(self, pair: Pair) -> None:
        self.token = pair.new.login(OWNER, PASSWORD)["access_token"]

    def get(self, process: Service, path: str) -> Any:
        return self._body(process.get(path, token=self.token))

    def post(self, process: Service, path: str, body: Any = None) -> Any:
        return self._body(process.post(path, body, token=self.token))

    def _body(self, answer: httpx.Response) -> Any:
        assert answer.status_code == 200, answer.text
        return answer.json()

    def attempts(self, process: Service, path: str) -> list[tuple[str | None, str | None, str | None]]:
        """Return the address, the application and the reason of each attempt in a sign-in log, oldest first."""
        rows = reversed(self.get(process, path)["sign_ins"])
        return [(row["user_email"], row["service_name"], "success" if row["success"] else row["reason"]) for row in rows]


@pytest.fixture
def admin(pair: Pair) -> Admin:
    return Admin(pair)


def refuse(pair: Pair, process: Service, email: str) -> None:
    """Fail to sign in to the application."""
    browser = pair.browser(process)
    assert browser.go(pair.request()) == "Sign in to Shop"
    assert browser.fill(email=email, password="wrong").startswith("Sign in")


def sign_in(pair: Pair, process: Service, email: str) -> None:
    browser = pair.browser(process)
    assert browser.go(pair.request()) == "Sign in to Shop"
    if "Continue to" in browser.fill(email=email, password=PASSWORD):
        browser.answer("answer", "continue")
    pair.exchange(process, browser.place)


def test_sign_ins_and_failures(pair: Pair, admin: Admin) -> None:
    """Version 0.9.0 records a failure of an account without its application and reason. Only the platform's log shows it."""
    email = "both@example.com"
    pair.add_user(email)
    for process in (pair.old, pair.new, pair.old):
        refuse(pair, process, email)
        refuse(pair, process, NO_ACCOUNT)
        sign_in(pair, process, email)
    [user_id] = [user["id"] for user in admin.get(pair.new, f"{ORG}/users")["users"] if user["email"] == email]

    success, old, new = (email, "Shop", "success"), (email, None, None), (email, "Shop", "credentials")
    for path in (f"{ORG}/sign-ins", f"{ORG}/sign-ins?user_id={user_id}"):
        attempts = admin.attempts(pair.new, path)
        assert [attempt for attempt in attempts if attempt[0] == email] == [success, new, success, success]
    attempts = admin.attempts(pair.new, f"/api/platform/sign-ins?user_id={user_id}")
    assert [attempt for attempt in attempts if attempt != (email, None, "success")] == [old, success, new, success, old, success]
    assert admin.attempts(pair.new, "/api/platform/sign-ins?reason=unknown_account") == [(None, "Shop", "unknown_account")]
    for process in (pair.old, pair.new):  # the second and the third kind of row are new to version 0.9.0
        recent = [login["user_id"] for login in admin.get(process, f"{ORG}/analytics/recent-logins")]
        assert recent.count(user_id) == 3
        assert admin.get(process, f"{ORG}/users/{user_id}")["email"] == email
        assert admin.get(process, f"/api/platform/users/{user_id}")["email"] == email

    browser = pair.browser(pair.new)
    browser.go("/app/sign-in")
    browser.fill(email=OWNER, password=PASSWORD)
    for page in (f"/app/organizations/acme/users/{user_id}", "/app/organizations/acme/sign-ins", "/app/organizations/acme/analytics"):
        browser.go(page)
        assert browser.response.status_code == 200, browser.text
    browser.go(f"/app/platform/sign-ins?user_id={user_id}")
    assert browser.text.count(email) >= 6


def test_wrong_codes(pair: Pair, admin: Admin) -> None:
    """A wrong code there counts with those here."""
    email = "codes@example.com"
    pair.add_user_with_codes(email)
    for process in (pair.old, pair.new):
        token = process.post("/api/auth/login", {"email": email, "password": PASSWORD}).json()["access_token"]
        assert process.post("/api/auth/mfa/verify", {"code": "000000"}, token=token).status_code in (400, 401)
    failures = admin.attempts(pair.new, "/api/platform/sign-ins?success=false")
    assert [reason for address, _, reason in failures if address == email] == [None, "mfa"]


def test_invitations(pair: Pair, admin: Admin) -> None:
    for first, second, email in ((pair.old, pair.new, "from-there@example.com"), (pair.new, pair.old, "from-here@example.com")):
        admin.post(first, f"{ORG}/invitations", {"email": email, "role": "member"})
        link = pair.sink.wait_for(email).link
        browser = pair.browser(second)
        browser.open(link)
        browser.fill(new_password=PASSWORD)
        for process in (pair.old, pair.new):
            members = admin.get(process, f"{ORG}/members")["members"]
            assert email in [member["user"]["email"] for member in members]
    entries = [entry["sentence"] for entry in admin.get(pair.new, f"{ORG}/audit-log?action=invitation.accepted")["logs"]]
    assert len(entries) == 2, entries


def test_webhooks_of_a_new_event(pair: Pair, admin: Admin) -> None:
    """Either version may attempt the delivery."""
    body = {"name": "Failures", "url": "https://hooks.invalid/", "events": ["organization.updated", "user.login.failed"]}
    webhook = f"{ORG}/webhooks/{admin.post(pair.new, f'{ORG}/webhooks', body)['id']}"
    refuse(pair, pair.new, NO_ACCOUNT)
    refuse(pair, pair.new, OWNER)
    assert pair.old.call("PATCH", ORG, {"name": "Acme there"}, token=admin.token).status_code == 200
    for process in (pair.old, pair.new):

        def are_attempted(process: Service = process) -> bool:
            deliveries = admin.get(process, f"{webhook}/deliveries")["deliveries"]
            attempted = {delivery["event_type"] for delivery in deliveries if delivery["attempt_count"]}
            return attempted == {"organization.updated", "user.login.failed"}

        until(are_attempted, "both events were attempted")
        assert admin.get(process, webhook)["events"] == body["events"]
    assert admin.get(pair.new, webhook)["health"]


def test_a_blocked_user_is_in_the_log_of_both(pair: Pair, admin: Admin) -> None:
    """Version 0.9.0 does not know the event, and shows its entry."""
    email = "blocked@example.com"
    pair.add_user(email)
    sign_in(pair, pair.new, email)
    [user_id] = [user["id"] for user in admin.get(pair.new, f"{ORG}/users")["users"] if user["email"] == email]
    assert pair.new.call("PUT", f"{ORG}/users/{user_id}/block", token=admin.token).status_code < 300
    for process in (pair.old, pair.new):
        [entry] = [entry for entry in admin.get(process, f"{ORG}/audit-log")["logs"] if entry["action"] == "user.blocked"]
        assert entry["target_id"] == user_id
