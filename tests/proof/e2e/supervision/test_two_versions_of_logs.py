"""Two releases side by side: every release continues with the other release's rows, and the logs in the two releases show all rows."""

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
    """The organization's owner, who also owns the platform."""

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
        """Return the address, the application and the reason for every attempt in a sign-in log, oldest first."""
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
    email = "both@example.com"
    pair.add_user(email)
    for process in (pair.old, pair.new, pair.old):
        refuse(pair, process, email)
        refuse(pair, process, NO_ACCOUNT)
        sign_in(pair, process, email)
    [user_id] = [user["id"] for user in admin.get(pair.new, f"{ORG}/users")["users"] if user["email"] == email]

    def shop_attempts(process: Service, path: str) -> list[tuple[str | None, str | None, str | None]]:
        return [attempt for attempt in admin.attempts(process, path) if attempt[:2] == (email, "Shop")]

    expected = [(email, "Shop", "credentials"), (email, "Shop", "success")] * 3
    for process in (pair.old, pair.new):
        assert shop_attempts(process, f"/api/platform/sign-ins?user_id={user_id}") == expected
        for path in (f"{ORG}/sign-ins", f"{ORG}/sign-ins?user_id={user_id}"):
            assert shop_attempts(process, path) == expected[1:], "the organization did not know the account at the first failure"
        unknown = admin.get(process, "/api/platform/sign-ins?reason=unknown_account")["sign_ins"]
        assert sum(row["attempts"] for row in unknown) == 3, "the attempts of one minute share a row"
        recent = [login["user_id"] for login in admin.get(process, f"{ORG}/analytics/recent-logins")]
        assert recent.count(user_id) == 3


def test_wrong_codes_count_together(pair: Pair, admin: Admin) -> None:
    email = "codes@example.com"
    pair.add_user_with_codes(email)
    for process in (pair.old, pair.new):
        token = process.post("/api/auth/login", {"email": email, "password": PASSWORD}).json()["access_token"]
        assert process.post("/api/auth/mfa/verify", {"code": "000000"}, token=token).status_code in (400, 401)
    for process in (pair.old, pair.new):
        failures = admin.attempts(process, "/api/platform/sign-ins?success=false")
        assert [reason for address, _, reason in failures if address == email] == ["mfa", "mfa"]


def test_invitations(pair: Pair, admin: Admin) -> None:
    for number, (first, second) in enumerate(pair.directions):
        email = f"invited-{number}@example.com"
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


def test_webhooks(pair: Pair, admin: Admin) -> None:
    """Either process may attempt the delivery."""
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
