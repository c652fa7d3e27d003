"""What a user sees on the documented interface, in order: nothing asks them to sign in again right after they did (security A-12).

All tests begin with the sign-up, and end with one step. Eleven minutes later, the same step is refused, and a
reauthentication in the same session is all that it needs.
"""

from datetime import timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.accounts.email_changes import open_proof, undo
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import EMAIL, NEW_PASSWORD, PASSWORD, Answer, Api, deliver, link, run_sql
from tests.support.mfa import Authenticator

OTHER = "ada.lovelace@example.com"
MINUTE = timedelta(minutes=1)
TOKENS = {"access_token", "refresh_token", "expires_in"}


class Newcomer:
    """A user who follows the documents. The user needs a minute for every step."""

    def __init__(self, api: Api, ports: Ports, clock: FakeClock, sent: FakeMailTransport) -> None:
        self.api, self._ports, self.clock, self._sent = api, ports, clock, sent
        self.token = self._refresh = ""

    async def call(self, method: str, path: str, body: Any = None) -> Answer:
        self.clock.advance(MINUTE)
        return await self.api.call(method, path, body, token=self.token)

    async def mails(self) -> list[str]:
        """Return the emails' subjects, oldest first."""
        await deliver(self._ports)
        return [email.subject.removesuffix(" - Gatehouse") for email in self._sent.emails]

    async def newest_link(self, text: str = "") -> str:
        await deliver(self._ports)
        return link(self._sent.newest(text))

    async def sign_up(self) -> None:
        answer = await self.api.post("/api/auth/register", {"email": EMAIL, "password": PASSWORD})
        assert (answer.status, list(answer.json)) == (200, ["message"])
        assert (await self.api.login()).status == 401, "the address is not verified"
        verified = await self.api.get(f"/auth/verify-email?token={await self.newest_link()}")
        assert verified.status == 200

    async def sign_in(self, password: str = PASSWORD, email: str = EMAIL) -> None:
        answer = await self.api.login(email, password)
        assert (answer.status, set(answer.json)) == (200, TOKENS), answer.text
        self.token, self._refresh = answer.json["access_token"], answer.json["refresh_token"]

    async def refresh(self) -> None:
        """Get another access token, as a client does. This is no sign-in."""
        answer = await self.api.post("/api/auth/refresh", {"refresh_token": self._refresh})
        assert (answer.status, set(answer.json)) == (200, TOKENS), answer.text
        self.token, self._refresh = answer.json["access_token"], answer.json["refresh_token"]

    async def begin(self) -> None:
        await self.sign_up()
        await self.sign_in()


@pytest.fixture
def user(api: Api, ports: Ports, clock: FakeClock, sent: FakeMailTransport) -> Newcomer:
    return Newcomer(api, ports, clock, sent)


async def set_up_second_factor(user: Newcomer) -> Authenticator:
    setup = await user.call("POST", "/api/user/mfa/setup")
    assert (setup.status, set(setup.json)) == (200, {"secret", "qr_code_svg", "qr_code_uri"}), setup.text
    app = Authenticator(setup.json["secret"], user.clock)
    user.clock.advance(MINUTE)
    enabled = await user.api.post("/api/user/mfa/verify", {"code": app.code()}, token=user.token)
    assert (enabled.status, enabled.json["enabled"], len(enabled.json["backup_codes"])) == (200, True, 10)
    return app


async def test_sign_up_verify_and_sign_in(user: Newcomer) -> None:
    await user.begin()
    answer = await user.call("GET", "/api/user")
    assert (answer.status, answer.json["email"], answer.json["org"], answer.json["service"]) == (200, EMAIL, "", "")
    assert await user.mails() == ["Confirm your email address"]


async def test_the_first_second_factor(user: Newcomer) -> None:
    await user.begin()
    app = await set_up_second_factor(user)
    codes = await user.call("POST", "/api/user/mfa/backup-codes/regenerate")
    assert (codes.status, len(codes.json["backup_codes"])) == (200, 10), "the session has just used the second factor"
    pre_auth = (await user.api.login()).json
    assert (pre_auth["mfa_required"], pre_auth["expires_in"]) == (True, 600)
    user.clock.advance(MINUTE)
    signed_in = await user.api.post("/api/auth/mfa/verify", {"code": app.code()}, token=pre_auth["access_token"])
    assert (signed_in.status, set(signed_in.json)) == (200, TOKENS)
    user.token = signed_in.json["access_token"]
    assert (await user.call("DELETE", "/api/user/mfa")).status == 200
    assert await user.mails() == [
        "Confirm your email address",
        "Two-factor authentication is on",
        "You have new backup codes",
        "Two-factor authentication is off",
    ]


async def test_the_first_password(user: Newcomer, pool: Pool) -> None:
    """The account came from an identity provider, so it has none."""
    await user.begin()
    await run_sql(pool, "update users set password_hash = null")
    answer = await user.call("POST", "/api/user/set-password", {"new_password": NEW_PASSWORD})
    assert (answer.status, list(answer.json)) == (200, ["message"])
    assert (await user.call("POST", "/api/user/set-password", {"new_password": NEW_PASSWORD})).status == 400
    changed = await user.call("POST", "/api/user/change-password", {"current_password": NEW_PASSWORD, "new_password": PASSWORD})
    assert (changed.status, list(changed.json)) == (200, ["message"])
    assert await user.mails() == ["Confirm your email address", "Your password was changed", "Your password was changed"]


async def test_a_change_of_the_address(user: Newcomer) -> None:
    await user.begin()
    answer = await user.call("PATCH", "/api/user", {"email": OTHER})
    assert (answer.status, answer.json["email"], answer.json["pending_email"]) == (200, EMAIL, OTHER)
    _, *of_change = await user.mails()
    assert sorted(of_change) == ["Confirm your new email address", "Your email address is about to change"]
    assert (await open_proof(user.api, await user.newest_link("/auth/verify-email"))).status == 200
    assert (await user.call("GET", "/api/user")).json["email"] == OTHER
    await user.sign_in(email=OTHER)


async def test_the_deletion(user: Newcomer, pool: Pool) -> None:
    await user.begin()
    answer = await user.call("DELETE", "/api/user")
    assert (answer.status, answer.json) == (200, {"message": "Your account was deleted."})
    assert (await user.call("GET", "/api/user")).status == 401
    assert await run_sql(pool, "select count(*) from users where anonymized_at is not null") == [(1,)]
    assert await user.mails() == ["Confirm your email address", "Your account was deleted"]


async def test_the_deletion_after_a_change_of_the_password(user: Newcomer) -> None:
    """The answer and the email say that it can be undone until then."""
    await user.begin()
    passwords = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    assert (await user.call("POST", "/api/user/change-password", passwords)).status == 200
    answer = await user.call("DELETE", "/api/user")
    assert (answer.status, answer.json["message"].startswith("The account is closed. Its data is erased on")) == (200, True)
    assert await user.mails() == ["Confirm your email address", "Your password was changed", "Your account was deleted"]
    assert (await undo(user.api, await user.newest_link())).status == 200


STEPS: list[tuple[str, str, Any]] = [
    ("POST", "/api/user/mfa/setup", None),
    ("PATCH", "/api/user", {"email": OTHER}),
    ("POST", "/api/user/change-password", {"current_password": PASSWORD, "new_password": NEW_PASSWORD}),
    ("POST", "/api/user/personal-tokens", {"name": "Report", "scopes": ["account:read"], "expires_in_days": 30}),
    ("DELETE", "/api/user", None),
]


@pytest.mark.parametrize(("method", "path", "body"), STEPS)
@pytest.mark.parametrize("has_second_factor", [False, True])
async def test_later_a_reauthentication_is_all_that_a_step_needs(
    user: Newcomer, method: str, path: str, body: Any, has_second_factor: bool
) -> None:
    await user.begin()
    app = await set_up_second_factor(user) if has_second_factor else None
    user.clock.advance(11 * MINUTE)
    await user.refresh()
    name = await user.call("PATCH", "/api/user", {"name": "Ada Lovelace"})
    assert name.status == 200, "a name needs no sign-in"
    refused = await user.call(method, path, body)
    assert refused.status == 401
    challenge = refused.headers["WWW-Authenticate"]
    assert ('error="insufficient_user_authentication"' in challenge, 'max_age="600"' in challenge) == (True, True)
    assert ('acr_values="mfa"' in challenge) is has_second_factor
    options = await user.call("GET", "/api/auth/reauthenticate")
    assert (options.json["methods"], options.json["needs_second_factor"]) == (["password", "email"], has_second_factor)
    factors = {"password": PASSWORD} | ({} if app is None else {"code": app.code()})
    renewed = await user.api.post("/api/auth/reauthenticate", factors, token=user.token)
    assert (renewed.status, set(renewed.json)) == (200, {"authenticated_at", "fresh_until", "recent_until"}), renewed.text
    done = await user.call(method, path, body)
    assert done.status == (400 if (path, has_second_factor) == ("/api/user/mfa/setup", True) else 200), done.text
