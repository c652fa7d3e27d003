"""The link "This wasn't me": a thief's changes are undone, and an account that they deleted opens again (security A-13)."""

import re
from datetime import timedelta

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.values import new_id
from core.privacy import personal_data
from ports import Ports
from tests.accounts.api.test_platform_deactivation import change as platform_change
from tests.accounts.email_changes import EmailChanger, open_proof, undo
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.privacy.api.anonymization.data import columns_with
from tests.support.browser import HOME, FakeBrowser, hidden_fields, leads_to
from tests.support.builders import (
    EMAIL,
    NEW_PASSWORD,
    PASSWORD,
    Api,
    add_account,
    deliver,
    link,
    run_concurrently,
    run_sql,
    sign_in,
)
from tests.support.identities import add_identity
from tests.support.mfa import USED_IN_SESSIONS, Authenticator, add_mfa
from tests.support.platform import Platform
from tests.support.tenants import Tenant

THIEF = "thief@example.com"
THIRD_EMAIL = "new@example.com"
THIRD_PASSWORD = "yet another good password"
UNDO_TIME = timedelta(hours=72)


@pytest.fixture
async def user(ports: Ports) -> Account:
    return await add_account(ports)


@pytest.fixture
async def token(ports: Ports, user: Account) -> str:
    """The token for a fresh session, which a thief has."""
    return (await sign_in(ports, user)).access_token


@pytest.fixture
def changer(api: Api, ports: Ports, sent: FakeMailTransport) -> EmailChanger:
    return EmailChanger(api, ports, sent)


async def undo_token(ports: Ports, sent: FakeMailTransport, subject: str, to: str = EMAIL) -> str:
    """Return the undo link's token from the newest email with this subject."""
    await deliver(ports)
    [*_, email] = [email for email in sent.emails if email.to == to and email.subject.startswith(subject)]
    [found] = set(re.findall(r"/auth/undo\?token=([0-9a-f-]+)", email.text))
    return str(found)


async def reset(api: Api, ports: Ports, sent: FakeMailTransport, email: str, password: str) -> None:
    assert (await api.post("/api/auth/forgot-password", {"email": email})).status == 200
    await deliver(ports)
    [*_, message] = [one for one in sent.emails if one.to == email and "/auth/reset-password" in one.text]
    answer = await api.post("/api/auth/reset-password", {"token": link(message), "new_password": password})
    assert answer.status == 200, answer.text


async def turn_on_second_factor(api: Api, token: str, clock: FakeClock) -> Authenticator:
    secret = (await api.post("/api/user/mfa/setup", token=token)).json["secret"]
    app = Authenticator(secret, clock)
    answer = await api.post("/api/user/mfa/verify", {"code": app.code()}, token=token)
    assert answer.status == 200, answer.text
    clock.advance(timedelta(seconds=60))
    return app


async def test_a_stolen_and_deleted_account_opens_again(
    api: Api, ports: Ports, pool: Pool, changer: EmailChanger, sent: FakeMailTransport, token: str, acme: Tenant, user: Account
) -> None:
    await acme.join("ada", user)
    owner_link = await changer.change(token, THIEF)
    await reset(api, ports, sent, THIEF, NEW_PASSWORD)
    thief = (await api.login(THIEF, NEW_PASSWORD)).json["access_token"]
    deleted = await api.delete("/api/user", token=thief)
    assert (deleted.status, deleted.json["message"].startswith("The account is closed. Its data is erased on")) == (200, True)
    assert (await api.login(THIEF, NEW_PASSWORD)).status == 401
    assert (await api.get("/api/user", token=thief)).status == 401
    for address in (THIEF, EMAIL):
        taken = await api.post("/api/auth/register", {"email": address, "password": THIRD_PASSWORD})
        assert taken.status == 409, "the account still has it"
    assert (await undo(api, owner_link)).status == 200
    assert (await api.login(THIEF, NEW_PASSWORD)).status == 401
    await reset(api, ports, sent, EMAIL, THIRD_PASSWORD)
    signed_in = await api.login(EMAIL, THIRD_PASSWORD)
    assert signed_in.status == 200
    assert (await api.get(acme.path, token=signed_in.json["access_token"])).status == 200, "the membership stayed"
    actions = [row[0] for row in await run_sql(pool, "select action from audit_log where target_id = %s order by created_at", str(user.id))]
    assert [action for action in actions if action in ("user.deactivated", "user.reactivated")] == ["user.deactivated", "user.reactivated"]


async def test_without_an_undo_the_account_is_erased_and_its_address_stands_nowhere(
    api: Api, ports: Ports, pool: Pool, changer: EmailChanger, token: str, acme: Tenant, user: Account, clock: FakeClock
) -> None:
    await acme.join("ada", user)
    await run_sql(pool, "update memberships set confirmed_at = now()")
    created = await api.post(
        f"{acme.path}/webhooks", {"name": "All", "url": "https://hooks.example/x", "events": ["user.anonymized"]}, token=acme.token("owner")
    )
    assert created.status == 200, created.text
    owner_link = await changer.change(token, THIEF)
    assert (await api.delete("/api/user", token=token)).status == 200
    await deliver(ports)
    clock.advance(UNDO_TIME - timedelta(seconds=1))
    assert await personal_data.erase_due(ports, new_id()) == {}
    clock.advance(timedelta(seconds=1))
    assert (await undo(api, owner_link)).status == 400
    assert await personal_data.erase_due(ports, new_id()) == {"accounts": 1}
    assert await personal_data.erase_due(ports, new_id()) == {}
    assert await run_sql(pool, "select anonymized_at is not null, erase_at is null from users where id = %s", user.id) == [(True, False)]
    assert await run_sql(pool, "select payload ->> 'event' from webhook_deliveries") == [("user.anonymized",)]
    for address in (EMAIL, THIEF):
        assert await columns_with(pool, address) == set(), address


@pytest.mark.parametrize("path", ["/api/user", "/api/privacy/forget/{id}"])
async def test_both_ways_to_delete_the_own_account_wait_for_the_undo(
    api: Api, ports: Ports, pool: Pool, token: str, acme: Tenant, user: Account, sent: FakeMailTransport, path: str
) -> None:
    """The second way is open to a user who owns all their organizations: here, of one organization."""
    if "forget" in path:
        await acme.join("ada", user)

        await run_sql(pool, "delete from memberships where user_id = %s", user.id)
        await run_sql(
            pool, "update memberships set user_id = %s, confirmed_at = now() where org_id = %s and role = 'owner'", user.id, acme.org
        )
    await change_password(api, token)
    answer = await api.delete(path.format(id=user.id), token=token)
    assert answer.status == 200, answer.text
    assert answer.json["message"].startswith("The account is closed.")
    assert await run_sql(pool, "select anonymized_at is null, erase_at is not null from users where id = %s", user.id) == [(True, True)]
    assert (await undo(api, await undo_token(ports, sent, "Your account was deleted"))).status == 200
    assert await run_sql(pool, "select deactivated_at is null, erase_at is null from users where id = %s", user.id) == [(True, True)]


async def test_a_second_factor_of_a_thief_goes_and_that_of_the_user_comes_back(
    api: Api, ports: Ports, pool: Pool, token: str, user: Account, clock: FakeClock, sent: FakeMailTransport
) -> None:
    app = await add_mfa(ports, user)
    await run_sql(pool, USED_IN_SESSIONS)
    clock.advance(timedelta(seconds=60))
    assert (await api.delete("/api/user/mfa", token=token)).status == 200
    first = await undo_token(ports, sent, "Two-factor authentication is off")
    await turn_on_second_factor(api, token, clock)
    assert (await api.post("/api/user/mfa/backup-codes/regenerate", token=token)).status == 200
    assert (await api.delete("/api/user/mfa", token=token)).status == 200
    assert (await undo(api, first)).status == 200
    pre_auth = (await api.login()).json
    assert pre_auth["mfa_required"] is True
    assert (await api.post("/api/auth/mfa/verify", {"code": app.backup_codes[0]}, token=pre_auth["access_token"])).status == 401
    assert (await api.post("/api/auth/mfa/verify", {"code": app.code()}, token=pre_auth["access_token"])).status == 200
    assert app.secret not in str(await run_sql(pool, "select * from former_mfa")), "sealed"


async def test_a_user_gets_past_the_second_factor_of_a_thief(
    api: Api, ports: Ports, token: str, clock: FakeClock, sent: FakeMailTransport
) -> None:
    await turn_on_second_factor(api, token, clock)
    assert (await undo(api, await undo_token(ports, sent, "Two-factor authentication is on"))).status == 200
    assert (await api.login()).json.get("mfa_required", False) is False
    assert (await api.get("/api/user", token=token)).status == 401, "the thief's session ended"


@pytest.mark.parametrize(
    ("subject", "method", "path", "body"),
    [
        ("Your password was changed", "POST", "/api/user/change-password", {"current_password": PASSWORD, "new_password": NEW_PASSWORD}),
        (
            "A new personal access token",
            "POST",
            "/api/user/personal-tokens",
            {"name": "x", "scopes": ["account:read"], "expires_in_days": 9},
        ),
        ("Your email address is about to change", "PATCH", "/api/user", {"email": THIEF}),
    ],
)
async def test_every_change_of_a_way_in_is_mailed_with_a_link_that_undoes_it(
    api: Api, ports: Ports, pool: Pool, token: str, sent: FakeMailTransport, subject: str, method: str, path: str, body: dict[str, object]
) -> None:
    answer = await api.call(method, path, body, token=token)
    assert answer.status == 200, answer.text
    found = await undo_token(ports, sent, subject)
    page = await api.get(f"/auth/undo?token={found}")
    assert (page.status, "Undo everything" in page.text) == (200, True)
    assert (await api.get("/api/user", token=token)).status == 200, "opening the page changes nothing"
    assert (await undo(api, found)).status == 200
    assert (await undo(api, found)).status == 400
    assert (await api.get("/api/user", token=token)).status == 401
    if "token" in answer.json:
        assert (await api.get("/api/user", token=answer.json["token"])).status == 401
    assert (await api.login(EMAIL, NEW_PASSWORD)).status == 401


async def test_a_reset_asks_about_a_young_second_factor_and_keeps_an_old_one(
    app: QuartTrio, api: Api, ports: Ports, pool: Pool, token: str, clock: FakeClock, sent: FakeMailTransport
) -> None:
    await turn_on_second_factor(api, token, clock)
    browser = FakeBrowser(app)
    for keeps, expected in ((True, True), (False, False)):
        await api.post("/api/auth/forgot-password", {"email": EMAIL})
        await deliver(ports)
        [*_, message] = [one for one in sent.emails if "/auth/reset-password" in one.text]
        page = await browser.open(f"/auth/reset-password?token={link(message)}")
        [name] = re.findall(r'name="(keep:[0-9a-f-]+)"', page.text)
        fields = {**hidden_fields(page), "new_password": NEW_PASSWORD} | ({name: "yes"} if keeps else {})
        assert (await browser.send("/auth/reset-password", **fields)).status == 200
        assert (await api.login(EMAIL, NEW_PASSWORD)).json.get("mfa_required", False) is expected


async def test_a_reset_over_the_api_ends_a_young_second_factor_but_no_confirmed_one(
    api: Api, ports: Ports, token: str, clock: FakeClock, sent: FakeMailTransport
) -> None:
    await turn_on_second_factor(api, token, clock)
    await reset(api, ports, sent, EMAIL, NEW_PASSWORD)
    signed_in = (await api.login(EMAIL, NEW_PASSWORD)).json
    assert signed_in.get("mfa_required", False) is False
    await turn_on_second_factor(api, signed_in["access_token"], clock)
    clock.advance(UNDO_TIME)
    await reset(api, ports, sent, EMAIL, THIRD_PASSWORD)
    assert (await api.login(EMAIL, THIRD_PASSWORD)).json.get("mfa_required", False) is True, "no one undid it for 72 hours"


async def test_on_the_page_a_deletion_waits_too(
    app: QuartTrio, api: Api, ports: Ports, changer: EmailChanger, user: Account, sent: FakeMailTransport
) -> None:
    browser = FakeBrowser(app)
    await browser.sign_in()
    await browser.submit("/app/account/email", "/app/account/email", email=THIEF)
    found = await undo_token(ports, sent, "Your email address is about to change")
    page = await browser.submit("/app/account/delete", "/app/account/delete", email=EMAIL)
    assert (page.status, "its data is erased on" in page.text) == (200, True)
    assert not await browser.is_in()
    undo_page = await browser.open(f"/auth/undo?token={found}")
    done = await browser.send("/auth/undo", **hidden_fields(undo_page))
    assert "won't be deleted" in done.text
    assert leads_to(await browser.sign_in()) == HOME


# What the link reaches


async def change_password(api: Api, token: str) -> None:
    passwords = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    assert (await api.post("/api/user/change-password", passwords, token=token)).status == 200


async def close_account(api: Api, ports: Ports, token: str, sent: FakeMailTransport) -> str:
    """Change the password, delete the account, and return the token for undoing the password change."""
    await change_password(api, token)
    found = await undo_token(ports, sent, "Your password was changed")
    assert (await api.delete("/api/user", token=token)).status == 200
    return found


async def starts(api: Api, found: str) -> list[str]:
    """Return the ids of the changes from which this undo link can start."""
    return re.findall(r'type="radio" value="([0-9a-f-]+)"', (await api.get(f"/auth/undo?token={found}")).text)


async def test_a_link_reaches_what_an_earlier_session_of_the_thief_added(
    api: Api, ports: Ports, pool: Pool, token: str, user: Account, clock: FakeClock, sent: FakeMailTransport
) -> None:
    await turn_on_second_factor(api, token, clock)
    second = (await sign_in(ports, user, second_factor=True)).access_token
    assert (await api.patch("/api/user", {"email": THIEF}, token=second)).status == 200
    found = await undo_token(ports, sent, "Your email address is about to change")
    assert "Two-factor authentication was turned on" in (await api.get(f"/auth/undo?token={found}")).text
    assert len(await starts(api, found)) == 2
    assert (await undo(api, found, str(new_id()))).status == 400, "not one of the changes"
    done = await undo(api, found)
    assert (done.status, "Two-factor authentication was turned on" in done.text) == (200, True)
    assert (await api.login()).json.get("mfa_required", False) is False
    actions = [row[0] for row in await run_sql(pool, "select action from audit_log where target_id = %s", str(user.id))]
    assert actions.count("security.mfa.disabled") == 1
    assert ("mfa_disabled",) in await run_sql(pool, "select event_type from mfa_events")


async def test_a_user_can_keep_what_they_changed_before_the_thief(
    api: Api, ports: Ports, token: str, user: Account, clock: FakeClock, sent: FakeMailTransport
) -> None:
    await turn_on_second_factor(api, token, clock)
    thief = (await sign_in(ports, user, second_factor=True)).access_token
    assert (await api.patch("/api/user", {"email": THIEF}, token=thief)).status == 200
    found = await undo_token(ports, sent, "Your email address is about to change")
    assert (await undo(api, found, (await starts(api, found))[1])).status == 200
    assert (await api.login()).json.get("mfa_required", False) is True
    assert (await api.get(f"/auth/undo?token={found}")).status == 400
    earlier = await undo_token(ports, sent, "Two-factor authentication is on")
    assert (await undo(api, earlier)).status == 200, "the link about it still works"


async def test_the_second_factor_of_before_the_theft_comes_back_after_a_change_of_apps(
    api: Api, ports: Ports, user: Account, clock: FakeClock, sent: FakeMailTransport
) -> None:
    await add_mfa(ports, user)
    clock.advance(timedelta(hours=1))
    own = (await sign_in(ports, user, second_factor=True)).access_token
    assert (await api.delete("/api/user/mfa", token=own)).status == 200
    clock.advance(timedelta(minutes=1))
    app = await turn_on_second_factor(api, own, clock)
    clock.advance(timedelta(hours=20))
    thief = (await sign_in(ports, user, second_factor=True)).access_token
    assert (await api.delete("/api/user/mfa", token=thief)).status == 200
    found = await undo_token(ports, sent, "Two-factor authentication is off")
    assert (await undo(api, found, (await starts(api, found))[-1])).status == 200
    pre_auth = (await api.login()).json
    assert (await api.post("/api/auth/mfa/verify", {"code": app.code()}, token=pre_auth["access_token"])).status == 200


async def test_a_secret_that_waits_for_its_first_code_ends(api: Api, ports: Ports, pool: Pool, token: str, sent: FakeMailTransport) -> None:
    assert (await api.post("/api/user/mfa/setup", token=token)).status == 200
    await change_password(api, token)
    assert (await undo(api, await undo_token(ports, sent, "Your password was changed"))).status == 200
    assert await run_sql(pool, "select 1 from mfa") == []


async def test_a_link_about_a_later_change_gives_the_owner_a_verified_address(
    api: Api, ports: Ports, pool: Pool, changer: EmailChanger, token: str, user: Account, sent: FakeMailTransport
) -> None:
    await changer.change(token, THIEF)
    await change_password(api, token)
    assert (await undo(api, await undo_token(ports, sent, "Your password was changed"))).status == 200
    assert await run_sql(pool, "select email, email_verified_at is not null from users where id = %s", user.id) == [(EMAIL, True)]


async def undo_links_at(ports: Ports, sent: FakeMailTransport, address: str) -> list[str]:
    await deliver(ports)
    return [found for email in sent.emails if email.to == address for found in re.findall(r"/auth/undo\?token=[0-9a-f-]+", email.text)]


@pytest.mark.parametrize("hours", [1, 71, 73, 120])
async def test_the_address_of_a_thief_cannot_undo_what_the_owner_repairs(
    api: Api,
    ports: Ports,
    pool: Pool,
    changer: EmailChanger,
    token: str,
    user: Account,
    clock: FakeClock,
    sent: FakeMailTransport,
    hours: int,
) -> None:
    await changer.change(token, THIEF)
    clock.advance(timedelta(hours=1))
    own = (await sign_in(ports, user)).access_token
    await api.patch("/api/user", {"email": EMAIL}, token=own)
    await deliver(ports)
    [*_, proof] = [email for email in sent.emails if email.to == EMAIL and "/auth/verify-email" in email.text]
    assert (await open_proof(api, link(proof))).status == 200
    clock.advance(timedelta(hours=hours))
    own = (await sign_in(ports, user)).access_token
    await change_password(api, own)
    assert await undo_links_at(ports, sent, THIEF) == []
    assert [email.subject.split(" - ")[0] for email in sent.emails if email.to == THIEF] == [
        "Confirm your new email address",
        "Your email address is about to change",
    ]
    found = await undo_token(ports, sent, "Your password was changed")
    assert (await undo(api, found)).status == 200
    assert await run_sql(pool, "select email, email_verified_at is not null from users where id = %s", user.id) == [(EMAIL, True)]


async def test_a_second_change_by_the_thief_outlives_no_link_of_the_owner(
    api: Api, ports: Ports, pool: Pool, changer: EmailChanger, token: str, user: Account, clock: FakeClock, sent: FakeMailTransport
) -> None:
    await changer.change(token, THIEF)
    clock.advance(timedelta(hours=71))
    second = "second@thief.example"
    await api.patch("/api/user", {"email": second}, token=(await sign_in(ports, user)).access_token)
    await deliver(ports)
    [*_, proof] = [email for email in sent.emails if email.to == second]
    assert (await open_proof(api, link(proof))).status == 200
    clock.advance(timedelta(hours=70))
    assert [await undo_links_at(ports, sent, address) for address in (THIEF, second)] == [[], []]
    assert (await undo(api, await undo_token(ports, sent, "Your email address is about to change"))).status == 200
    assert await run_sql(pool, "select email, email_verified_at is not null from users where id = %s", user.id) == [(EMAIL, True)]


async def test_a_new_address_gets_the_links_after_three_days(
    ports: Ports, changer: EmailChanger, token: str, user: Account, api: Api, clock: FakeClock, sent: FakeMailTransport
) -> None:
    await changer.change(token, THIRD_EMAIL)
    clock.advance(UNDO_TIME)
    await change_password(api, (await sign_in(ports, user)).access_token)
    assert len(await undo_links_at(ports, sent, THIRD_EMAIL)) == 1


# The closed account


async def test_only_the_address_before_the_theft_can_undo_a_deletion(
    api: Api, ports: Ports, pool: Pool, changer: EmailChanger, token: str, clock: FakeClock, sent: FakeMailTransport
) -> None:
    await changer.change(token, THIEF)
    clock.advance(timedelta(minutes=5))
    await change_password(api, token)
    assert (await api.delete("/api/user", token=token)).status == 200
    [(last,)] = await run_sql(pool, "select erase_at from users where erase_at is not null")
    assert await run_sql(pool, "select max(undo_until) from security_notices where kind = 'account_deleted'") == [(last,)]
    assert await undo_links_at(ports, sent, THIEF) == []
    sent.newest("Your account was deleted", THIEF)
    assert (await undo(api, await undo_token(ports, sent, "Your account was deleted"))).status == 200
    assert (await api.login(EMAIL, NEW_PASSWORD)).status == 401


async def test_the_owner_undoes_the_deletion_with_the_email_about_it(
    api: Api, ports: Ports, changer: EmailChanger, token: str, sent: FakeMailTransport
) -> None:
    await changer.change(token, THIEF)
    assert (await api.delete("/api/user", token=token)).status == 200
    assert (await undo(api, await undo_token(ports, sent, "Your account was deleted", EMAIL))).status == 200
    assert (await api.login()).status == 200


async def test_the_platform_and_the_user_close_an_account_independently(
    api: Api, ports: Ports, pool: Pool, token: str, user: Account, sent: FakeMailTransport, platform: Platform
) -> None:
    """A reactivation does not open what its user deleted, and an undo does not open what the platform deactivated."""

    async def state() -> tuple[bool, bool]:
        [(closed, to_erase)] = await run_sql(
            pool, "select deactivated_at is not null, erase_at is not null from users where id = %s", user.id
        )
        return closed, to_erase

    found = await close_account(api, ports, token, sent)
    assert (await platform_change(platform, "deactivate", user.id)).status == 200
    assert (await platform_change(platform, "reactivate", user.id)).status == 200
    assert await state() == (True, True)
    assert (await platform_change(platform, "deactivate", user.id)).status == 200
    assert (await undo(api, found)).status == 200
    assert await state() == (True, False)
    assert (await platform_change(platform, "reactivate", user.id)).status == 200
    assert await state() == (False, False)


async def test_the_entry_of_a_closed_account_names_the_device(
    api: Api, ports: Ports, pool: Pool, token: str, sent: FakeMailTransport
) -> None:
    await close_account(api, ports, token, sent)
    of_password, of_closing = [
        await run_sql(pool, "select address, agent from audit_log where action = %s", action)
        for action in ("security.password.changed", "user.deactivated")
    ]
    assert of_closing == of_password != []


# Races


@pytest.mark.slow
@pytest.mark.parametrize("rival", ["deletion", "change", "erasure", "undo"])
async def test_an_undo_and_its_rivals_leave_one_consistent_state(
    api: Api,
    ports: Ports,
    pool: Pool,
    changer: EmailChanger,
    token: str,
    user: Account,
    clock: FakeClock,
    sent: FakeMailTransport,
    rival: str,
) -> None:
    proof, found = await changer.request(token, THIEF)
    if rival == "erasure":
        assert (await api.delete("/api/user", token=token)).status == 200
        await run_sql(pool, "update users set erase_at = %s", clock.now())

    undone: list[int] = []

    async def act(number: int) -> int:
        if number % 2 == 0 or rival == "undo":
            undone.append((await undo(api, found)).status)
            return undone[-1]
        if rival == "deletion":
            return (await api.delete("/api/user", token=token)).status
        if rival == "change":
            return (await api.get(f"/auth/verify-email?token={proof}")).status
        await personal_data.erase_due(ports, new_id())
        return 200

    statuses = await run_concurrently(20, act)
    assert max(statuses) < 500
    [(email, is_open, is_erased)] = await run_sql(
        pool, "select email, deactivated_at is null, anonymized_at is not null from users where id = %s", user.id
    )
    if is_erased:
        assert rival == "erasure"
        assert undone.count(200) == 0
    else:
        assert undone.count(200) == 1
        assert (email, is_open) == (EMAIL, True)


async def test_a_link_works_once_even_if_the_undo_starts_later(
    api: Api, ports: Ports, token: str, user: Account, clock: FakeClock, sent: FakeMailTransport
) -> None:
    await turn_on_second_factor(api, token, clock)
    found = await undo_token(ports, sent, "Two-factor authentication is on")
    thief = (await sign_in(ports, user, second_factor=True)).access_token
    assert (await api.patch("/api/user", {"email": THIEF}, token=thief)).status == 200
    [_, later] = await starts(api, found)
    assert (await undo(api, found, later)).status == 200
    assert [(await undo(api, found)).status, (await api.get(f"/auth/undo?token={found}")).status] == [400, 400]
    assert (await api.login()).json.get("mfa_required", False) is True


async def test_a_reset_keeps_an_old_second_factor_and_the_users_choice(
    app: QuartTrio, api: Api, ports: Ports, pool: Pool, token: str, user: Account, clock: FakeClock, sent: FakeMailTransport
) -> None:
    """The mailbox is not enough to remove a second factor. A refused password keeps the checkboxes as they were sent."""
    await turn_on_second_factor(api, token, clock)
    await add_identity(pool, user.id, linked_at=clock.now())
    clock.advance(timedelta(days=30))
    assert (await api.post("/api/auth/forgot-password", {"email": EMAIL})).status == 200
    await deliver(ports)
    browser = FakeBrowser(app)
    page = await browser.open(f"/auth/reset-password?token={link(sent.emails[-1])}")
    [box] = re.findall(r'name="(keep:[0-9a-f-]+)"', page.text)
    assert re.search(rf'name="{box}"[^>]* checked', page.text), "it is old, so it is kept unless the user says otherwise"
    refused = await browser.send("/auth/reset-password", **{**hidden_fields(page), "new_password": "short"})
    assert (refused.status, re.search(rf'name="{box}"[^>]* checked', refused.text)) == (400, None)
    assert (await browser.send("/auth/reset-password", **{**hidden_fields(refused), "new_password": NEW_PASSWORD})).status == 200
    assert (await api.login(EMAIL, NEW_PASSWORD)).json["mfa_required"] is True
    assert await run_sql(pool, "select 1 from identities") == []


async def test_the_owner_of_an_organization_that_a_thief_joins_cannot_make_a_deletion_final(
    api: Api, ports: Ports, pool: Pool, user: Account, clock: FakeClock, sent: FakeMailTransport, acme: Tenant
) -> None:
    """A session that is not fresh accepts an invitation. The user gets an email with a link that works for 72 hours."""
    stolen = (await sign_in(ports, user)).access_token
    clock.advance(timedelta(minutes=11))
    invitation = await acme.invite(EMAIL)
    assert (await api.post("/api/invitations/accept", {"token": invitation["token"]}, token=stolen)).status == 200
    owner = (await sign_in(ports, acme.people["owner"])).access_token
    for _ in range(2):
        answer = await api.delete(f"/api/privacy/forget/{user.id}", token=owner)
        assert (answer.status, answer.json["message"][:22]) == (200, "The account is closed.")
    assert await run_sql(pool, "select closed_at is not null, anonymized_at from users where id = %s", user.id) == [(True, None)]
    assert (await api.login()).status == 401
    found = await undo_token(ports, sent, "Your account was deleted")
    assert (await undo(api, found)).status == 200
    assert (await api.login()).status == 200
    assert (await api.delete(f"/api/privacy/forget/{user.id}", token=owner)).status == 200
    clock.advance(UNDO_TIME)
    await personal_data.erase_due(ports, new_id())
    assert await run_sql(pool, "select anonymized_at is not null from users where id = %s", user.id) == [(True,)]


async def test_a_change_of_a_kind_that_a_newer_release_wrote_is_undone_too(
    api: Api, ports: Ports, pool: Pool, token: str, sent: FakeMailTransport
) -> None:
    await change_password(api, token)
    found = await undo_token(ports, sent, "Your password was changed")
    await run_sql(pool, "update security_notices set kind = 'brand_new'")
    assert "Brand new" in (await api.get(f"/auth/undo?token={found}")).text
    assert (await undo(api, found)).status == 200
