"""After a 24-hour wait, users can remove passkeys that they lost (security PK-13)."""

from datetime import timedelta
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts import passkey_waits
from core.accounts.model.accounts import Account
from core.kernel.values import new_id
from ports import Ports
from tests.accounts.api.passkeys.test_ways_in import add_policy
from tests.accounts.email_changes import undo
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.browser import FakeBrowser, hidden_fields, leads_to, main_of
from tests.support.builders import PASSWORD, Answer, Api, deliver, link, run_concurrently, run_sql
from tests.support.passkeys.users import PASSKEYS, PasskeyUser, sign_in_with_passkey

WAIT = f"{PASSKEYS}/wait"
DAY = timedelta(hours=24)
STARTED, OVER, DELETED = "Your passkeys were reported as lost", "Your lost passkeys can be removed now", "A passkey was deleted"
AUDITED = "select action, details ->> 'by' from audit_log where action like 'security.passkey_wait.%%'"


class Loser:
    """A user who signs in with the password, because they lost the passkey."""

    def __init__(self, api: Api, ports: Ports, sent: FakeMailTransport) -> None:
        self.api, self.ports, self.sent = api, ports, sent
        self.token = ""

    async def sign_in(self) -> str:
        """Sign in with the password alone, and return the token."""
        self.token = (await self.api.login()).json["access_token"]
        return self.token

    async def show_both(self, token: str | None = None) -> None:
        """Sign in with the password, and confirm the mailbox, too."""
        token = token or await self.sign_in()
        await self.api.post("/api/auth/reauthenticate", {"password": PASSWORD}, token=token)
        assert (await self.api.post("/api/auth/reauthenticate/email", token=token)).status == 200
        await deliver(self.ports)
        code = self.sent.newest("Your confirmation code").text.split("\n\n")[1].strip()
        answer = await self.api.post("/api/auth/reauthenticate", {"email_code": code}, token=token)
        assert answer.status == 200, answer.text

    async def start(self) -> Answer:
        return await self.api.post(WAIT, token=self.token)

    async def remove(self) -> Answer:
        return await self.api.delete(PASSKEYS, token=self.token)

    async def wait(self) -> Any:
        """Return the wait that the account shows, or None."""
        return (await self.api.get(PASSKEYS, token=self.token)).json.get("wait")


@pytest.fixture
async def loser(api: Api, holder: PasskeyUser, ports: Ports, sent: FakeMailTransport, clock: FakeClock) -> Loser:
    await holder.add()
    await deliver(ports)
    clock.advance(4 * DAY)  # no undo reaches back to the addition
    loser = Loser(api, ports, sent)
    await loser.show_both()
    return loser


async def test_the_password_the_mailbox_and_a_day_remove_a_lost_passkey(
    loser: Loser, holder: PasskeyUser, api: Api, clock: FakeClock, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    started = await loser.start()
    assert started.status == 201, started.text
    assert await loser.wait() == started.json
    await deliver(ports)
    assert link(sent.newest(STARTED))
    assert (await loser.remove()).status == 400
    clock.advance(DAY - timedelta(seconds=1))
    assert await passkey_waits.sweep(ports, new_id()) == {}
    await loser.show_both()
    assert (await loser.remove()).status == 400
    clock.advance(timedelta(seconds=1))
    assert await passkey_waits.sweep(ports, new_id()) == {"passkey_waits": 1}
    assert await passkey_waits.sweep(ports, new_id()) == {}
    await deliver(ports)
    assert link(sent.newest(OVER))
    password_only = await api.post(f"{PASSKEYS}/options", {}, token=loser.token)
    assert (password_only.status, password_only.headers["WWW-Authenticate"].count('acr_values="phr"')) == (401, 1)
    assert (await loser.remove()).status == 204
    await deliver(ports)
    token = link(sent.newest(DELETED))
    holder.token = loser.token
    assert await holder.listed() == []
    await PasskeyUser(api, loser.token).add()
    assert sorted(await run_sql(pool, AUDITED), key=str) == [
        ("security.passkey_wait.ended", "removal"),
        ("security.passkey_wait.over", None),
        ("security.passkey_wait.started", None),
    ]
    assert (await undo(api, token)).status == 200
    assert (await sign_in_with_passkey(api, holder.authenticator)).status == 200


@pytest.mark.parametrize("shown", ["password", "email"])
async def test_the_password_or_the_mailbox_alone_is_not_enough(
    loser: Loser, api: Api, clock: FakeClock, ports: Ports, sent: FakeMailTransport, shown: str
) -> None:
    clock.advance(timedelta(minutes=11))
    if shown == "password":
        await loser.sign_in()
    else:
        await api.post("/api/auth/reauthenticate/email", token=loser.token)
        await deliver(ports)
        code = sent.newest("Your confirmation code").text.split("\n\n")[1].strip()
        await api.post("/api/auth/reauthenticate", {"email_code": code}, token=loser.token)
    refused = await loser.start()
    assert (refused.status, 'error="insufficient_user_authentication"' in refused.headers["WWW-Authenticate"]) == (401, True)
    assert "show your password and your mailbox" in refused.json["error"]
    assert await loser.wait() is None
    assert STARTED not in [email.subject for email in sent.emails]


async def test_a_sign_in_with_a_passkey_ends_the_wait(loser: Loser, holder: PasskeyUser, api: Api, clock: FakeClock, pool: Pool) -> None:
    assert (await loser.start()).status == 201
    assert (await sign_in_with_passkey(api, holder.authenticator)).status == 200
    assert await loser.wait() is None
    clock.advance(DAY)
    await loser.show_both()
    assert (await loser.remove()).status == 404
    assert ("security.passkey_wait.ended", "passkey") in await run_sql(pool, AUDITED)


async def test_a_reauthentication_with_a_passkey_ends_the_wait(loser: Loser, holder: PasskeyUser, api: Api) -> None:
    assert (await loser.start()).status == 201
    options = (await api.post("/api/auth/reauthenticate/passkey/options", token=loser.token)).json["publicKey"]
    body = {"passkey": holder.authenticator.get(options)}
    assert (await api.post("/api/auth/reauthenticate", body, token=loser.token)).status == 200
    assert await loser.wait() is None


@pytest.mark.parametrize("subject", [STARTED, OVER])
async def test_the_link_in_either_email_ends_the_wait(
    loser: Loser, api: Api, clock: FakeClock, ports: Ports, sent: FakeMailTransport, pool: Pool, subject: str
) -> None:
    assert (await loser.start()).status == 201
    clock.advance(DAY)
    await passkey_waits.sweep(ports, new_id())
    await deliver(ports)
    token = link(sent.newest(subject))
    assert "reported as lost" in (await api.get(f"/auth/undo?token={token}")).text
    assert (await undo(api, token)).status == 200
    await loser.show_both()
    assert (await loser.remove()).status == 404
    assert ("security.passkey_wait.ended", "undo") in await run_sql(pool, AUDITED)


async def test_a_wait_can_be_canceled_and_started_again_five_times_an_hour(loser: Loser, api: Api, clock: FakeClock, ports: Ports) -> None:
    for _ in range(ports.policy.mails_per_recipient):
        assert (await loser.start()).status == 201
        assert (await loser.start()).status == 400
        assert (await api.delete(WAIT, token=loser.token)).status == 204
    assert (await api.delete(WAIT, token=loser.token)).status == 404
    clock.advance(timedelta(minutes=5))
    limited = await loser.start()
    assert (limited.status, limited.json["error"].startswith("You have reported your passkeys as lost too often.")) == (429, True)


async def test_a_wait_that_is_not_used_in_72_hours_ends(loser: Loser, clock: FakeClock, ports: Ports, pool: Pool) -> None:
    assert (await loser.start()).status == 201
    clock.advance(3 * DAY - timedelta(minutes=1))
    await passkey_waits.sweep(ports, new_id())
    await loser.sign_in()
    assert await loser.wait() is not None
    clock.advance(timedelta(minutes=1))
    await loser.show_both()
    assert await loser.wait() is None
    assert (await loser.remove()).status == 404
    assert await passkey_waits.sweep(ports, new_id()) == {"passkey_waits": 1}
    assert await run_sql(pool, "select 1 from users where passkey_wait_at is not null") == []
    assert ("security.passkey_wait.ended", "expiry") in await run_sql(pool, AUDITED)


@pytest.mark.parametrize("protected", ["app", "passkey", "later", "application_risk", "second"])
async def test_only_a_recovery_replaces_a_passkey_beside_a_second_factor_or_for_a_policy(
    loser: Loser, api: Api, ports: Ports, pool: Pool, user: Account, sent: FakeMailTransport, protected: str
) -> None:
    if protected == "app":
        await run_sql(pool, "update users set mfa_enabled_at = now() where id = %s", user.id)
        await run_sql(pool, "update sessions set mfa_missing = false where user_id = %s", user.id)
    else:
        documents: dict[str, dict[str, Any]] = {
            "passkey": {"phishing_resistant": ["everyone"]},
            "later": {"phishing_resistant": ["everyone"], "due_at": {"phishing_resistant": "2999-01-01T00:00:00Z"}},
            "application_risk": {"phishing_resistant": ["high_risk"]},
            "second": {"second_factor": ["everyone"]},
        }
        await add_policy(ports, pool, user, **documents[protected])
    refused = await loser.start()
    assert refused.status == (401 if protected == "app" else 400), refused.text
    assert await loser.wait() is None


async def test_of_ten_removals_at_once_one_succeeds(
    loser: Loser, clock: FakeClock, pool: Pool, ports: Ports, sent: FakeMailTransport
) -> None:
    assert (await loser.start()).status == 201
    clock.advance(DAY)
    await loser.show_both()
    statuses = sorted([answer.status for answer in await run_concurrently(10, lambda _: loser.remove())])
    assert statuses == [204, *[400] * 9]
    assert (await run_sql(pool, "select count(*) from audit_log where action = 'security.passkey_wait.ended'")) == [(1,)]


async def test_of_ten_sweeps_at_once_one_sends_the_email(loser: Loser, clock: FakeClock, pool: Pool, ports: Ports) -> None:
    assert (await loser.start()).status == 201
    clock.advance(DAY)
    await run_concurrently(10, lambda _: passkey_waits.sweep(ports, new_id()))
    assert await run_sql(pool, "select count(*) from mails where kind = 'passkey_wait_over'") == [(1,)]


LOST = "/app/account/passkeys/lost"


class LoserOnPages:
    """The same user in a browser."""

    def __init__(self, app: QuartTrio, ports: Ports, sent: FakeMailTransport) -> None:
        self.browser, self.ports, self.sent = FakeBrowser(app), ports, sent

    async def send(self, path: str) -> str:
        """Send the page's form, confirm password and mailbox as the pages ask for it, and return where the kept form leads."""
        page = await self.browser.open(leads_to(await self.browser.submit(path, LOST)))
        if 'name="password"' in page.text:  # the sign-in is too old
            page = await self.browser.open(await self.confirm(path, page, password=PASSWORD))
        assert "show your password and your mailbox" in main_of(page)
        assert "data-passkey" not in main_of(page)
        emailed = await self.browser.open(leads_to(await self.browser.send("/app/reauthenticate/email", **hidden_fields(page))))
        await deliver(self.ports)
        code = self.sent.newest("Your confirmation code").text.split("\n\n")[1].strip()
        return await self.confirm(path, emailed, email_code=code)

    async def confirm(self, path: str, page: Answer, **fields: str) -> str:
        """Confirm on this page, send the kept form, and return where it leads."""
        kept = await self.browser.open(leads_to(await self.browser.send("/app/reauthenticate", **{**hidden_fields(page), **fields})))
        assert "You can continue with what you asked for." in kept.text
        return leads_to(await self.browser.send(path, **hidden_fields(kept)))


async def test_the_pages_lead_through_the_wait(
    holder: PasskeyUser, app: QuartTrio, ports: Ports, sent: FakeMailTransport, clock: FakeClock, pool: Pool
) -> None:
    await holder.add()
    pages = LoserOnPages(app, ports, sent)
    browser = pages.browser
    await browser.sign_in()
    asked = await browser.open(leads_to(await browser.open("/app/account/password")))
    assert f'href="{LOST}">I&#39;ve lost my passkey' in asked.text or f'href="{LOST}">I\'ve lost my passkey' in asked.text
    question = await browser.open(LOST)
    assert "You then wait for 24 hours." in main_of(question)
    assert await pages.send(LOST) == "/app/account/security"
    security = main_of(await browser.open("/app/account/security"))
    assert ("reported as lost" in security, "We'll email you then." in security) == (True, True)
    again = await browser.submit(LOST, "/app/account/security")
    assert (again.status, "already started" in main_of(again), "<form" in main_of(again)) == (400, True, False)
    assert leads_to(await browser.open(LOST)) == "/app/account/security#passkeys"
    assert leads_to(await browser.submit(f"{LOST}/cancel", "/app/account/security")) == "/app/account/security"
    assert "reported as lost" not in main_of(await browser.open("/app/account/security"))
    clock.advance(timedelta(minutes=11))
    assert await pages.send(LOST) == "/app/account/security"
    clock.advance(DAY)
    assert await pages.send(f"{LOST}/remove") == "/app/account/security"
    assert await run_sql(pool, "select count(*) from passkeys") == [(0,)]
    assert (await browser.open("/app/account/password")).status == 200


async def test_the_security_page_offers_a_wait_only_where_it_helps(
    holder: PasskeyUser, app: QuartTrio, ports: Ports, user: Account, pool: Pool
) -> None:
    await holder.add()
    browser = FakeBrowser(app)
    await browser.sign_in()
    assert "Lost all your passkeys?" in (await browser.open("/app/account/security")).text
    await add_policy(ports, pool, user, phishing_resistant=["everyone"])
    assert "Lost all your passkeys?" not in (await browser.open("/app/account/security")).text
    answer = await browser.submit(LOST, LOST)
    assert (answer.status, "Only a recovery replaces your passkey" in main_of(answer)) == (400, True)


async def test_a_second_start_waits_for_the_first_one(loser: Loser, pool: Pool) -> None:
    statuses = sorted([answer.status for answer in await run_concurrently(10, lambda _: loser.start())])
    assert statuses == [201, *[400] * 9]
    assert await run_sql(pool, "select count(*) from mails where kind = 'passkey_wait_started'") == [(1,)]
