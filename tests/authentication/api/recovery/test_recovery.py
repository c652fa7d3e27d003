"""A user's way through a recovery: with both parts, in one browser, within 24 hours, once."""

import re
from datetime import timedelta
from urllib.parse import quote

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.authentication.model.recovery import (
    MAX_ATTEMPTS,
    RECOVERY_TTL,
    REPEAT_TTL,
    RecoveryEnded,
    RecoveryRefused,
)
from core.kernel.causes import SYSTEM
from tests.accounts.email_changes import UNDO, undo
from tests.authentication.api.recovery.lost import REASON, RECOVER, WRONG, LostUser, app_of, backup_codes_of, says
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser, form_token, hidden_fields, leads_to, main_of
from tests.support.builders import (
    BASE_URL,
    EMAIL,
    add_account,
    deliver,
    link,
    mail_server,
    mark_created_by,
    run_sql,
)
from tests.support.mfa import STEP, waiting_flow
from tests.support.passkeys.authenticator import SoftAuthenticator
from tests.support.passkeys.users import PASSKEYS, PasskeyUser, sign_in_with_passkey, start_login, verify_second
from tests.support.personal_tokens import add_personal_token
from tests.support.platform import Platform
from tests.support.services import add_service, add_service_user

SECOND = timedelta(seconds=1)


async def prepare_access(ada: LostUser, pool: Pool) -> str:
    """Give the account a trusted device, a pending sign-in and a personal token, and return the token."""
    now = ada.acme.ports.clock.now()
    device = """
        insert into devices (id, user_id, name, device_type, browser, os, last_used_at, risk_score, risk_factors, trust_hash,
                             trust_expires_at, created_at, updated_at)
        values (gen_random_uuid(), %s, 'A phone', 'mobile', 'A browser', 'A system', now(), 0, '{}', gen_random_uuid()::text::bytea,
                'infinity', now(), now())"""
    await run_sql(pool, device, ada.account.id)
    async with ada.acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.flows.add(waiting_flow(ada.account.id, now))
    return (await add_personal_token(ada.acme.ports, ada.account)).text


async def access_left(ada: LostUser, pool: Pool) -> tuple[int, ...]:
    """Return how many live sessions, trusted devices and pending sign-ins exist."""
    statement = """
        select (select count(*) from sessions where user_id = %s and ended_at is null),
               (select count(*) from devices where user_id = %s and trust_hash is not null),
               (select count(*) from sign_in_flows where user_id = %s)"""
    [row] = await run_sql(pool, statement, *[ada.account.id] * 3)
    return row


async def test_an_app_replaces_all_earlier_factors(ada: LostUser, pool: Pool, clock: FakeClock) -> None:
    api, old_token = ada.acme.api, ada.acme.token("ada")
    personal_token = await prepare_access(ada, pool)
    code = await ada.issue()
    assert await access_left(ada, pool) == (0, 0, 0)
    assert [(await api.get("/api/user", token=each)).status for each in (old_token, personal_token)] == [401, 401]
    token = await ada.link()
    clock.advance(RECOVERY_TTL - SECOND)
    assert (await ada.browser.open(f"{RECOVER}?token={token}")).status == 200, "opening the link does not use it up"
    path = leads_to(await ada.open(token, f" {code.lower().replace('-', ' ')} "))
    assert await run_sql(pool, "select mfa_enabled_at is not null, passkey_count from users where id = %s", ada.account.id) == [(True, 1)]
    page = await ada.browser.open(path)
    app = app_of(ada, page)
    assert "6-digit" in (refused := await ada.browser.send(f"{path}/app", form_token=form_token(page), code=app.wrong())).text
    assert refused.status == 400
    done = await ada.browser.send(f"{path}/app", form_token=form_token(page), code=f" {app.code()[:3]} {app.code()[3:]} ")
    assert done.status == 200, done.text
    codes = backup_codes_of(done)
    assert len(set(codes)) == 10
    assert await access_left(ada, pool) == (0, 0, 0), "no session begins"
    assert not await ada.browser.is_in()
    state = "select mfa_enabled_at, passkey_count, passkey_second_at, (select count(*) from passkeys) from users where id = %s"
    assert await run_sql(pool, state, ada.account.id) == [(clock.now(), 0, None, 0)]
    assert says(await ada.open(token, code), RecoveryRefused)
    assert says(await ada.browser.open(path), RecoveryEnded)
    assert says(await ada.send_ended(path), RecoveryEnded)
    clock.advance(STEP)
    answers = [await verify(ada, each) for each in (ada.factor.code(), ada.factor.backup_codes[0], app.code(), codes[0])]
    assert answers == [401, 401, 200, 200]


async def verify(ada: LostUser, code: str) -> int:
    """Sign in with the password and this code. Return the status."""
    login = await start_login(ada.acme.api)
    return (await ada.acme.api.post("/api/auth/mfa/verify", {"code": code}, token=login["access_token"])).status


async def test_a_passkey_replaces_all_earlier_factors(ada: LostUser, pool: Pool, clock: FakeClock) -> None:
    path, new = await ada.recover(), SoftAuthenticator(origin=BASE_URL)
    done = await ada.send_passkey(path, new)
    assert (done.status, len(backup_codes_of(done))) == (200, 10), done.text
    assert (await sign_in_with_passkey(ada.acme.api, ada.holder.authenticator)).status == 401, "the earlier one is gone"
    signed_in = await sign_in_with_passkey(ada.acme.api, new)
    assert signed_in.status == 200
    login = await start_login(ada.acme.api)
    assert login["methods"] == ["passkey", "backup_code"]
    assert (await verify_second(ada.acme.api, login, new)).status == 200
    assert await verify(ada, backup_codes_of(done)[0]) == 200
    listed = await ada.acme.api.get(PASSKEYS, token=signed_in.json["access_token"])
    assert len(listed.json["passkeys"]) == 1
    assert await run_sql(pool, "select count(*) from account_recoveries") == [(0,)]


async def test_each_part_alone_opens_nothing_and_all_refusals_are_equal(
    ada: LostUser, app: QuartTrio, pool: Pool, clock: FakeClock
) -> None:
    eve = await add_account(ada.acme.ports, "eve@example.com")
    await ada.acme.join("eve", eve)
    await mark_created_by(pool, ada.acme.org, eve.id)
    of_eve = await ada.acme.api.post(f"{ada.acme.path}/members/{eve.id}/recovery", {"reason": REASON}, token=ada.acme.token("admin"))
    code = await ada.issue()
    token = await ada.link()
    token_of_eve = link(ada.sent.newest(RECOVER, eve.email))
    await ada.acme.api.post("/api/auth/forgot-password", {"email": EMAIL})
    other_purpose = await ada.link("/auth/reset-password")
    attempts = {
        "no link": ("", code),
        "an unknown link": ("11111111-2222-3333-4444-555555555555", code),
        "a link for another purpose": (other_purpose, code),
        "the link of another recovery": (token_of_eve, code),
        "the code of another recovery": (token, of_eve.json["code"]),
        "no code": (token, ""),
        "a malformed code": (token, "a" * 32),
        "a wrong code": (token, WRONG),
    }
    pages = {}
    for name, (each_token, each_code) in attempts.items():
        answer = await ada.open(each_token, each_code, FakeBrowser(app))
        assert says(answer, RecoveryRefused), name
        pages[name] = re.sub(r'(nonce|value)="[^"]*"', "", answer.text)
    del pages["no link"]  # this page says that the link is needed
    assert len(set(pages.values())) == 1
    assert await run_sql(pool, "select count(*) from account_recoveries where browser_hash is not null") == [(0,)]
    assert leads_to(await ada.open(token, code)), "four wrong codes are allowed"


async def test_the_fifth_wrong_code_ends_a_recovery(ada: LostUser, pool: Pool, clock: FakeClock) -> None:
    code = await ada.issue()
    token = await ada.link()
    for number in range(MAX_ATTEMPTS):
        left = await run_sql(pool, "select attempts from account_recoveries where user_id = %s", ada.account.id)
        assert left == [(number,)], "only the fifth one ends it"
        assert says(await ada.open(token, WRONG), RecoveryRefused)
        clock.advance(timedelta(minutes=1))
    assert says(await ada.open(token, code), RecoveryRefused)
    assert await run_sql(pool, "select count(*) from account_recoveries") == [(0,)], "so that no page offers to cancel it"
    canceled = await ada.acme.api.delete(ada.path, token=ada.acme.token("admin"))
    assert (canceled.status, canceled.json["error"]) == (404, "This account has no open recovery.")
    failures = "select count(*) from mfa_events where user_id = %s and event_type = 'recovery_failed'"
    assert (await run_sql(pool, failures, ada.account.id))[0][0] >= MAX_ATTEMPTS


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_sign_in_with_the_strongest_factor_cancels_the_recovery(
    ada: LostUser, pool: Pool, clock: FakeClock, *, is_open: bool
) -> None:
    code, token = await ada.issue(), await ada.link()
    path = leads_to(await ada.open(token, code)) if is_open else ""
    clock.advance(STEP)
    assert await verify(ada, ada.factor.code()) == 200
    assert await run_sql(pool, "select count(*) from account_recoveries") == [(1,)], "the passkey may be lost"
    await run_sql(pool, "update users set recovery_required_at = now() where id = %s", ada.account.id)
    assert (await sign_in_with_passkey(ada.acme.api, ada.holder.authenticator)).status == 200
    assert await run_sql(pool, "select count(*) from account_recoveries") == [(1,)], "an undo removed a factor that a policy asks for"
    await run_sql(pool, "update users set recovery_required_at = null")
    assert (await sign_in_with_passkey(ada.acme.api, ada.holder.authenticator)).status == 200
    assert await run_sql(pool, "select count(*) from account_recoveries") == [(0,)]
    answer = await ada.send_ended(path) if is_open else await ada.open(token, code)
    assert says(answer, RecoveryEnded if is_open else RecoveryRefused)
    logged = "select org_id, actor_id from audit_log where action = 'security.recovery.canceled'"
    assert await run_sql(pool, logged) == [(ada.acme.org, ada.account.id)]
    assert (await sign_in_with_passkey(ada.acme.api, ada.holder.authenticator)).status == 200
    assert len(await run_sql(pool, logged)) == 1


async def test_a_recovery_refuses_sign_ins_if_a_sign_in_ended_the_last_recovery(
    ada: LostUser, app: QuartTrio, pool: Pool, clock: FakeClock
) -> None:
    """A squatter's passkey ended the first recovery.

    This passkey cannot stop the second recovery, nor can an address that its session requested.
    """
    thief, api = PasskeyUser(ada.acme.api, ""), ada.acme.api
    await ada.issue()
    thief.token = (await sign_in_with_passkey(api, ada.holder.authenticator)).json["access_token"]
    assert await run_sql(pool, "select count(*) from account_recoveries") == [(0,)]
    assert (await api.patch("/api/user", {"email": "thief@example.com"}, token=thief.token)).status == 200
    await deliver(ada.acme.ports)
    proof = link(ada.sent.newest("/auth/verify-email", "thief@example.com"))
    clock.advance(RECOVERY_TTL / 2)
    await ada.acme.sign_in("admin")
    again = await api.post(ada.path, {"reason": REASON}, token=ada.acme.token("admin"))
    assert again.json["refuses_sign_ins"] is True
    refused = await sign_in_with_passkey(api, ada.holder.authenticator)
    assert (refused.status, refused.json["error"].startswith("This account is being recovered.")) == (401, True)
    assert await verify(ada, ada.factor.code()) == 401
    on_page = FakeBrowser(app)
    clock.advance(STEP)
    leads_to(await on_page.sign_in())
    shown = await on_page.show_code(ada.factor.code())
    assert "This account is being recovered." in shown.text, main_of(shown)
    await api.get(f"/auth/verify-email?token={proof}")
    assert await run_sql(pool, "select email from users where id = %s", ada.account.id) == [(EMAIL,)]
    path = leads_to(await ada.open(await ada.link(), again.json["code"]))
    assert (await sign_in_with_passkey(api, ada.holder.authenticator)).status == 401
    new = SoftAuthenticator(origin=BASE_URL)
    assert (await ada.send_passkey(path, new)).status == 200
    assert [(await sign_in_with_passkey(api, each)).status for each in (new, ada.holder.authenticator)] == [200, 401]
    logged = "select event_type, count(*) from mfa_events where event_type like 'recover%%' group by 1 order by 1"
    assert await run_sql(pool, logged) == [("recovered", 1), ("recovery_ended_by_sign_in", 1), ("recovery_issued", 2)]


async def test_a_canceled_or_later_recovery_lets_the_user_sign_in(ada: LostUser, clock: FakeClock) -> None:
    for advance, refuses_sign_ins, status in [(SECOND, False, 200), (SECOND, True, 401), (REPEAT_TTL, False, 200)]:
        clock.advance(advance)
        await ada.acme.sign_in("admin")
        issued = await ada.acme.api.post(ada.path, {"reason": REASON}, token=ada.acme.token("admin"))
        assert issued.json["refuses_sign_ins"] is refuses_sign_ins
        assert (await sign_in_with_passkey(ada.acme.api, ada.holder.authenticator)).status == status
        await ada.acme.api.delete(ada.path, token=ada.acme.token("admin"))
        assert (await sign_in_with_passkey(ada.acme.api, ada.holder.authenticator)).status == 200


@pytest.mark.parametrize("is_member", [True, False], ids=["member", "end user"])
@pytest.mark.parametrize("by_platform", [False, True], ids=["organization", "platform"])
async def test_the_logs_of_the_issuer_have_all_steps_of_a_recovery(
    ada: LostUser, pool: Pool, platform: Platform, by_platform: bool, is_member: bool
) -> None:
    await add_service_user(ada.acme.ports, await add_service(pool, ada.acme.org), ada.account.id)
    if not is_member:
        await run_sql(pool, "delete from memberships where user_id = %s", ada.account.id)
    path = f"/api/platform/users/{ada.account.id}" if by_platform else f"{ada.acme.path}/users/{ada.account.id}"
    token = platform.token if by_platform else ada.acme.token("admin")

    async def issue() -> str:
        answer = await ada.acme.api.post(f"{path}/recovery", {"reason": REASON}, token=token)
        assert answer.status == 201, answer.text
        return str(answer.json["code"])

    await issue()
    assert (await ada.acme.api.delete(f"{path}/recovery", token=token)).status == 204
    code = await issue()
    link_token = await ada.link()
    assert says(await ada.open(link_token, WRONG), RecoveryRefused)
    assert (await ada.send_app(leads_to(await ada.open(link_token, code)))).status == 200
    steps = ["canceled", "failed", "issued", "issued", "used"]
    logged = "select split_part(action, '.', 3) from audit_log where action like 'security.recovery.%%' and {} order by 1"
    in_acme = [step for (step,) in await run_sql(pool, logged.format("org_id = %s"), ada.acme.org)]
    on_platform = [step for (step,) in await run_sql(pool, logged.format("org_id is null"))]
    assert in_acme == (steps if is_member or not by_platform else [])
    if not by_platform:
        assert on_platform == []
    else:  # to a user without an organization, the entry without a reason stands there, too
        assert on_platform == (steps if is_member else ["canceled", "failed", *["issued"] * 4, "used"])


async def test_the_mailed_link_leads_the_same_browser_back_to_its_open_recovery(ada: LostUser, app: QuartTrio) -> None:
    code, token = await ada.issue(), await ada.link()
    page = await ada.browser.open(f"{RECOVER}?token={token}")
    path = leads_to(await ada.open(token, code))
    assert leads_to(await ada.browser.open(f"{RECOVER}?token={token}", follows=False)) == path
    assert leads_to(await ada.browser.fill(page, token=token, code=code)) == path, "the form of another tab"
    stranger = FakeBrowser(app)
    page = await stranger.open(f"{RECOVER}?token={token}")
    assert says(await stranger.fill(page, token=token, code=code), RecoveryRefused)
    assert (await ada.send_app(path)).status == 200


async def test_without_its_link_the_page_of_a_recovery_asks_for_it(ada: LostUser) -> None:
    page = await ada.browser.open(RECOVER)
    assert "The link is missing." in page.text
    assert "Recovery code" not in page.text


async def test_another_browser_cannot_continue(ada: LostUser, app: QuartTrio) -> None:
    path, thief = await ada.recover(), FakeBrowser(app)
    assert says(await thief.open(path), RecoveryEnded)
    assert says(await ada.send_app(path, thief), RecoveryEnded)
    assert (await ada.send_app(path)).status == 200


@pytest.mark.parametrize("is_open", [False, True])
async def test_a_recovery_expires_after_24_hours(ada: LostUser, clock: FakeClock, *, is_open: bool) -> None:
    code = await ada.issue()
    token = await ada.link()
    path = leads_to(await ada.open(token, code)) if is_open else ""
    clock.advance(RECOVERY_TTL)
    if is_open:
        assert says(await ada.browser.open(path), RecoveryEnded)
    else:
        assert says(await ada.open(token, code), RecoveryRefused)


async def test_a_new_recovery_replaces_the_earlier_one(ada: LostUser, clock: FakeClock) -> None:
    code = await ada.issue()
    token = await ada.link()
    path = leads_to(await ada.open(token, code))
    clock.advance(SECOND)
    new_code = await ada.issue("owner")
    assert says(await ada.browser.open(path), RecoveryEnded)
    new_token = await ada.link()
    for each_token, each_code in ((token, code), (token, new_code), (new_token, code)):
        assert says(await ada.open(each_token, each_code), RecoveryRefused)
    assert leads_to(await ada.open(new_token, new_code))


async def test_a_replaced_recovery_sends_no_link(ada: LostUser, clock: FakeClock) -> None:
    await ada.issue()
    clock.advance(SECOND)
    code = await ada.issue()
    token = await ada.link()
    assert len([email for email in ada.sent.emails if email.subject.startswith("Recover")]) == 1
    assert leads_to(await ada.open(token, code))


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("end", ["cancel", "deactivate"])
async def test_nothing_continues_a_recovery_that_was_ended(ada: LostUser, pool: Pool, end: str, *, is_open: bool) -> None:
    code = await ada.issue()
    token = await ada.link()
    path = leads_to(await ada.open(token, code)) if is_open else ""
    if end == "cancel":
        cancel = [await ada.acme.api.delete(ada.path, token=ada.acme.token("owner")) for _ in range(2)]
        assert [answer.status for answer in cancel] == [204, 404]
    else:
        await run_sql(pool, "update users set deactivated_at = now() where id = %s", ada.account.id)
    answer = await ada.send_ended(path) if is_open else await ada.open(token, code)
    assert says(answer, RecoveryEnded if is_open else RecoveryRefused)
    assert await run_sql(pool, "select passkey_count from users where id = %s", ada.account.id) == [(1,)]


async def test_a_link_works_with_what_was_copied_with_it(ada: LostUser) -> None:
    code = await ada.issue()
    token = await ada.link()
    page = await ada.browser.open(f"{RECOVER}?token={quote(f' {token[:9]} {token[9:]}>.')}")
    assert leads_to(await ada.browser.fill(page, token=hidden_fields(page)["token"], code=code))


async def test_a_changed_address_ends_the_link(ada: LostUser, pool: Pool) -> None:
    code = await ada.issue()
    token = await ada.link()
    await run_sql(pool, "update users set email = 'other@example.com' where id = %s", ada.account.id)
    assert says(await ada.open(token, code), RecoveryRefused)


async def test_an_earlier_undo_link_does_not_undo_a_recovery(ada: LostUser, pool: Pool) -> None:
    undo_link = await ada.link(UNDO)
    assert [email.subject.partition(" - ")[0] for email in ada.sent.emails] == ["A passkey was added"]
    assert (await ada.send_app(await ada.recover())).status == 200
    assert (await undo(ada.acme.api, undo_link)).status == 400
    assert await run_sql(pool, "select mfa_enabled_at is not null from users where id = %s", ada.account.id) == [(True,)]


async def test_emails_go_through_the_platforms_server_and_tell_all_sides(ada: LostUser, platform: Platform) -> None:
    async with ada.acme.ports.storage.transaction(by=SYSTEM) as tx:
        await tx.smtp.put(mail_server(ada.acme.org), ada.acme.ports.clock.now())
    code = await ada.issue()
    token = await ada.link()
    assert {str(email.to) for email in ada.sent.emails} == {EMAIL, "owner@acme.example"}, "the issuer knows it"
    assert {ada.sent.servers[email.message_id] for email in ada.sent.emails if email.to == EMAIL} == {None}
    assert all(code not in email.text + email.html for email in ada.sent.emails)
    assert "admin@acme.example of Acme has started the recovery" in ada.sent.newest(RECOVER, EMAIL).text.replace("\n", " ")
    assert token not in ada.sent.newest("recovery", "owner@acme.example").text
    path = leads_to(await ada.open(token, code))
    await ada.send_app(path)
    before = len(ada.sent.emails)
    await deliver(ada.acme.ports)
    [done] = [email for email in ada.sent.emails[before:] if email.to == EMAIL and email.subject.startswith("Your account was recovered")]
    assert ada.sent.servers[done.message_id] is None
    entry = await ada.acme.entry("security.recovery.issued")
    assert (entry["target_id"], entry["details"]["reason"]) == (str(ada.account.id), REASON)
    assert entry["actor_id"] == ada.acme.people["admin"].id
