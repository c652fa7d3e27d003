"""Registration, verification, password recovery and the profile, with their side effects.

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

from datetime import timedelta

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import (
    EMAIL,
    NEW_PASSWORD,
    PASSWORD,
    Answer,
    Api,
    add_account,
    add_member,
    add_organization,
    deliver,
    link,
    run_concurrently,
    run_sql,
    sign_in,
)
from tests.support.mfa import add_mfa


async def register(api: Api, email: str = EMAIL, password: str = PASSWORD) -> Answer:
    return await api.post("/api/auth/register", {"email": email, "password": password})


async def ask_for_reset(api: Api, ports: Ports, sent: FakeMailTransport, email: str = EMAIL) -> str:
    answer = await api.post("/api/auth/forgot-password", {"email": email})
    assert answer.status == 200
    await deliver(ports)
    return link(sent.emails[-1])


async def value(pool: Pool, query: str, *parameters: object) -> object:
    async with pool.connection() as connection:
        row = await (await connection.execute(query, parameters)).fetchone()
        assert row is not None
        return row[0]


async def test_a_new_user_registers_verifies_and_signs_in(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    answer = await register(api, "Ada@Example.COM ")
    assert answer.status == 200
    assert set(answer.json) == {"message"}
    assert (await api.login()).json["error"].startswith("This email address is not verified")
    await deliver(ports)
    [email] = sent.emails
    assert email.to == EMAIL
    page = await api.get(f"/auth/verify-email?token={link(email)}")
    assert page.status == 200
    assert page.headers["Content-Type"].startswith("text/html")
    tokens = await api.login()
    assert tokens.status == 200
    assert list(tokens.json) == ["access_token", "refresh_token", "expires_in"]
    assert tokens.json["expires_in"] == 900
    profile = await api.get("/api/user", token=tokens.json["access_token"])
    assert profile.json == {"id": profile.json["id"], "email": EMAIL, "org": "", "service": ""}


async def test_an_address_is_taken_in_every_spelling(api: Api) -> None:
    assert (await register(api, "ada@münchen.example")).status == 200
    for spelling in ("ADA@MÜNCHEN.example", " ada@xn--mnchen-3ya.example "):
        answer = await register(api, spelling)
        assert (answer.status, answer.code) == (409, "CONFLICT")


INVALID_ADDRESSES = [
    "",
    "ada",
    "ada@",
    "@example.com",
    "ada@example",
    "a da@example.com",
    "ada@exa mple.com",
    "ada@[127.0.0.1]",
    "ada@127.0.0.1",
    '"ada"@example.com',
    "ada(x)@example.com",
    "ada@@example.com",
    "ada@ex@ample.com",
    "\u0430da@example.com",
    "ada@\uff45xample.com",
    "ada\x00@example.com",
    "ada@example.com\r\nBcc: x@example.com",
    "a" * 65 + "@example.com",
    "ada@" + "a" * 250 + ".com",
    "ada@straße.example",
    ".ada@example.com",
    "ada.@example.com",
    "ada@-example.com",
    "ada@example..com",
    "=?utf-8?q?ada?=@example.com",
    "\u212aate@example.com",
]


async def test_an_invalid_address_is_refused(api: Api, pool: Pool) -> None:
    answers = {email: await register(api, email) for email in INVALID_ADDRESSES}
    assert {email for email, answer in answers.items() if (answer.status, answer.code) != (400, "BAD_REQUEST")} == set()
    assert await value(pool, "select count(*) from users") == 0


async def test_a_password_of_the_wrong_length_is_refused(api: Api) -> None:
    for password in ("", "1234567", "a" * 129, "😀" * 129):
        answer = await register(api, password=password)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), password


@pytest.mark.parametrize("password", ["12345678", "a" * 128, " leading and trailing ", "😀" * 128, "nul\x00and\ttab", "ÅÅÅÅÅÅÅÅ"])
async def test_a_password_is_not_changed(api: Api, pool: Pool, password: str) -> None:
    assert (await register(api, password=password)).status == 200
    await value(pool, "update users set email_verified_at = now() returning 1")
    assert (await api.login(password=password)).status == 200
    assert (await api.login(password=password[:-1] + "x")).status == 401


async def test_a_verification_link_works_once_and_for_a_day(api: Api, ports: Ports, sent: FakeMailTransport, clock: FakeClock) -> None:
    await register(api)
    await deliver(ports)
    token = link(sent.emails[0])
    clock.advance(timedelta(hours=24))
    assert (await api.get(f"/auth/verify-email?token={token}")).status == 400
    await api.post("/api/auth/resend-verification", {"email": EMAIL})
    await deliver(ports)
    token = link(sent.emails[1])
    clock.advance(timedelta(hours=24) - timedelta(seconds=1))
    assert (await api.get(f"/auth/verify-email?token={token}")).status == 200
    again = await api.get(f"/auth/verify-email?token={token}")
    assert again.status == 400
    assert again.headers["Content-Type"].startswith("text/html")
    assert token not in again.text


async def test_earlier_verification_links_stay_valid(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await register(api)
    await api.post("/api/auth/resend-verification", {"email": EMAIL})
    await deliver(ports)
    assert len(sent.emails) == 2
    assert (await api.get(f"/auth/verify-email?token={link(sent.emails[0])}")).status == 200


async def test_a_client_that_prefers_json_gets_json(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await register(api)
    await deliver(ports)
    accept = {"Accept": "application/json"}
    answer = await api.get(f"/auth/verify-email?token={link(sent.emails[0])}", headers=accept)
    assert (answer.status, set(answer.json)) == (200, {"message"})
    assert (await api.get("/auth/verify-email", headers=accept)).code == "BAD_REQUEST"


async def test_head_of_a_verification_link_changes_nothing(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await register(api)
    await deliver(ports)
    path = f"/auth/verify-email?token={link(sent.emails[0])}"
    head = await api.call("HEAD", path)
    assert (head.status, head.text) == (200, "")
    assert (await api.get(path)).status == 200


async def test_a_token_works_only_for_its_purpose(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await register(api)
    await deliver(ports)
    verification = link(sent.emails[0])
    refused = await api.post("/api/auth/reset-password", {"token": verification, "new_password": NEW_PASSWORD})
    assert refused.status == 400
    reset = await ask_for_reset(api, ports, sent)
    assert (await api.get(f"/auth/verify-email?token={reset}")).status == 400
    assert (await api.get(f"/auth/verify-email?token={verification}")).status == 200


async def test_a_reset_ends_all_sessions_and_starts_none(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await add_account(ports)
    first, second = (await api.login()).json, (await api.login()).json
    token = await ask_for_reset(api, ports, sent)
    answer = await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})
    assert (answer.status, set(answer.json)) == (200, {"message"})
    for tokens in (first, second):
        assert (await api.get("/api/user", token=tokens["access_token"])).code == "UNAUTHORIZED"
        assert (await api.post("/api/auth/refresh", {"refresh_token": tokens["refresh_token"]})).status == 401
    assert (await api.login()).status == 401
    assert (await api.login(password=NEW_PASSWORD)).status == 200
    again = await api.post("/api/auth/reset-password", {"token": token, "new_password": PASSWORD})
    assert (again.status, again.code) == (400, "BAD_REQUEST")
    await deliver(ports)
    assert "password" in sent.emails[-1].subject.lower()


async def test_a_reset_link_ends_after_an_hour_or_with_the_next_one(
    api: Api, ports: Ports, sent: FakeMailTransport, clock: FakeClock
) -> None:
    await add_account(ports)
    first = await ask_for_reset(api, ports, sent)
    second = await ask_for_reset(api, ports, sent)
    assert (await api.post("/api/auth/reset-password", {"token": first, "new_password": NEW_PASSWORD})).status == 400
    clock.advance(timedelta(hours=1))
    assert (await api.post("/api/auth/reset-password", {"token": second, "new_password": NEW_PASSWORD})).status == 400


async def test_a_refused_new_password_leaves_the_link_usable(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await add_account(ports)
    token = await ask_for_reset(api, ports, sent)
    for weak in ("short", "a" * 129):
        assert (await api.post("/api/auth/reset-password", {"token": token, "new_password": weak})).code == "BAD_REQUEST"
    assert (await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})).status == 200


async def test_a_reset_verifies_the_address_and_removes_the_access_of_a_squatter(
    api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    await register(api, password="the squatter's password")
    await deliver(ports)
    squatters_link = link(sent.emails[0])
    token = await ask_for_reset(api, ports, sent)
    assert (await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})).status == 200
    assert (await api.login(password=NEW_PASSWORD)).status == 200
    assert (await api.login(password="the squatter's password")).status == 401
    assert (await api.get(f"/auth/verify-email?token={squatters_link}")).status == 400


async def test_the_first_verification_removes_the_second_factor_and_identity_of_a_squatter(
    api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    squatter = await add_account(ports, verified=False)
    await add_mfa(ports, squatter)
    insert = """
        insert into identities (id, user_id, provider, provider_user_id, linked_at)
        values (gen_random_uuid(), %s, 'codehost', '1', now())"""
    await run_sql(pool, insert, squatter.id)
    await sign_in(ports, squatter)
    token = await ask_for_reset(api, ports, sent)
    assert (await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})).status == 200
    left = """
        select (select count(*) from mfa), (select count(*) from backup_codes), (select count(*) from identities),
               (select count(*) from sessions where ended_at is null)"""
    assert await run_sql(pool, left) == [(0, 0, 0, 0)]
    assert "mfa_required" not in (await api.login(password=NEW_PASSWORD)).json


async def test_a_reset_after_a_change_of_address_removes_linked_identities(
    api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    squatter = await add_account(ports, "squatter@example.com")
    insert = """
        insert into identities (id, user_id, provider, provider_user_id, linked_at)
        values (gen_random_uuid(), %s, 'codehost', '1', now())"""
    await run_sql(pool, insert, squatter.id)
    token = (await sign_in(ports, squatter)).access_token
    assert (await api.patch("/api/user", {"email": EMAIL}, token=token)).status == 200
    reset = await ask_for_reset(api, ports, sent)
    assert (await api.post("/api/auth/reset-password", {"token": reset, "new_password": NEW_PASSWORD})).status == 200
    assert await run_sql(pool, "select 1 from identities") == []
    assert (await api.get("/api/user", token=token)).status == 401


async def test_a_reset_keeps_the_second_factor(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await add_mfa(ports, await add_account(ports))
    token = await ask_for_reset(api, ports, sent)
    assert (await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})).status == 200
    assert (await api.login(password=NEW_PASSWORD)).json["mfa_required"] is True


async def test_responses_do_not_reveal_whether_an_account_exists(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await add_account(ports)
    await add_account(ports, "gone@example.com", deactivated_at=ports.clock.now())
    for path in ("/api/auth/forgot-password", "/api/auth/resend-verification"):
        answers = {
            (await api.post(path, {"email": email})).text
            for email in (EMAIL, "nobody@example.com", "gone@example.com", "not an address", "ada@[::1]", "x" * 500)
        }
        assert len(answers) == 1
    await deliver(ports)
    assert [email.to for email in sent.emails] == [EMAIL]  # a verified account gets no verification email


async def test_a_recipient_gets_at_most_five_emails_with_tokens_per_hour(
    api: Api, ports: Ports, sent: FakeMailTransport, clock: FakeClock
) -> None:
    await add_account(ports)
    for _ in range(7):
        assert (await api.post("/api/auth/forgot-password", {"email": EMAIL})).status == 200
    await deliver(ports)
    assert len(sent.emails) == 5
    clock.advance(timedelta(hours=1, seconds=1))
    await ask_for_reset(api, ports, sent)
    assert len(sent.emails) == 6


async def test_tokens_are_stored_hashed_and_sealed_only_until_the_email_is_sent(
    api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    await register(api)
    await deliver(ports)
    assert await value(pool, "select count(*) from mails where token is not null") == 0
    dump = await value(pool, "select string_agg(t::text, '') from one_time_tokens t")
    assert link(sent.emails[0]) not in str(dump)


async def test_a_changed_address_is_unverified_and_other_sessions_end(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await add_account(ports)
    old_reset = await ask_for_reset(api, ports, sent)
    other, mine = (await api.login()).json, (await api.login()).json
    changed = await api.patch("/api/user", {"email": "Lovelace@Example.com"}, token=mine["access_token"])
    assert (changed.status, changed.json["email"]) == (200, "lovelace@example.com")
    assert (await api.get("/api/user", token=mine["access_token"])).json["email"] == "lovelace@example.com"
    assert (await api.get("/api/user", token=other["access_token"])).status == 401
    assert (await api.login("lovelace@example.com")).status == 401
    assert (await api.post("/api/auth/reset-password", {"token": old_reset, "new_password": NEW_PASSWORD})).status == 400
    sent.emails.clear()
    await deliver(ports)
    assert {email.to for email in sent.emails} == {EMAIL, "lovelace@example.com"}
    token = next(link(email) for email in sent.emails if email.to == "lovelace@example.com")
    assert (await api.get(f"/auth/verify-email?token={token}")).status == 200
    assert (await api.login("lovelace@example.com")).status == 200


async def test_a_taken_or_invalid_new_address_changes_nothing(api: Api, ports: Ports) -> None:
    await add_account(ports)
    await add_account(ports, "taken@example.com")
    token = (await api.login()).json["access_token"]
    for email in ("taken@example.com", "TAKEN@example.com", "nonsense", "", 5, None):
        refused = await api.patch("/api/user", {"email": email}, token=token)
        assert (refused.status, refused.code) == (400, "BAD_REQUEST")
    assert (await api.patch("/api/user", {}, token=token)).json["email"] == EMAIL
    assert (await api.patch("/api/user", {"unknown": 1}, token=token)).json["email"] == EMAIL


async def test_a_password_change_keeps_only_the_current_session(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await add_account(ports)
    reset = await ask_for_reset(api, ports, sent)
    other, mine = (await api.login()).json, (await api.login()).json
    change = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    wrong = await api.post("/api/user/change-password", {**change, "current_password": "wrong password"}, token=mine["access_token"])
    assert (wrong.status, wrong.code) == (401, "UNAUTHORIZED")
    assert (await api.post("/api/user/change-password", {**change, "new_password": "short"}, token=mine["access_token"])).status == 400
    assert (await api.post("/api/user/change-password", change, token=mine["access_token"])).status == 200
    assert (await api.get("/api/user", token=mine["access_token"])).status == 200
    assert (await api.get("/api/user", token=other["access_token"])).status == 401
    assert (await api.post("/api/auth/reset-password", {"token": reset, "new_password": PASSWORD})).status == 400
    assert (await api.login(password=NEW_PASSWORD)).status == 200


async def test_a_first_password_is_set_once(api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool) -> None:
    account = await add_account(ports)
    token = (await api.login()).json["access_token"]
    assert (await api.post("/api/user/set-password", {"new_password": NEW_PASSWORD}, token=token)).status == 400
    await value(pool, "update users set password_hash = null where id = %s returning 1", account.id)
    change = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    assert (await api.post("/api/user/change-password", change, token=token)).status == 400
    assert (await api.post("/api/user/set-password", {"new_password": "short"}, token=token)).status == 400
    assert (await api.post("/api/user/set-password", {"new_password": NEW_PASSWORD}, token=token)).status == 200
    assert (await api.get("/api/user", token=token)).status == 200
    assert (await api.login(password=NEW_PASSWORD)).status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [("/api/user/set-password", {"new_password": NEW_PASSWORD}), ("/api/user/change-password", {})],
)
async def test_password_endpoints_require_a_token(api: Api, path: str, body: dict[str, str]) -> None:
    answer = await api.post(path, body)
    assert (answer.status, answer.code) == (401, "UNAUTHORIZED")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_every_password_change_is_logged_with_its_method(api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool) -> None:
    account = await add_account(ports)
    org = await add_organization(pool, "acme")
    await add_member(pool, org, account.id, confirmed=True)
    token = (await api.login()).json["access_token"]
    await api.post(
        "/api/user/change-password",
        {"current_password": PASSWORD, "new_password": NEW_PASSWORD},
        token=token,
        headers={"User-Agent": "tests"},
    )
    reset = await ask_for_reset(api, ports, sent)
    await api.post("/api/auth/reset-password", {"token": reset, "new_password": PASSWORD})
    async with pool.connection() as connection:
        rows = await (
            await connection.execute(
                """
            select action, target_type, target_id, org_id, actor_id, agent, details->>'method'
            from audit_log order by created_at, details->>'method'"""
            )
        ).fetchall()
    subject = str(account.id)
    assert rows == [
        ("security.password.changed", "user", subject, org, account.id, "tests", "change"),
        ("security.password.changed", "user", subject, org, None, rows[1][5], "reset"),
    ]
    event_count = await value(pool, "select count(*) from events where name = 'security.password.changed' and org_id = %s", org)
    assert event_count == 2


async def test_opening_the_reset_page_does_not_use_the_link_up(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await add_account(ports)
    token = await ask_for_reset(api, ports, sent)
    page = await api.get(f"/auth/reset-password?token={token}")
    assert page.status == 200
    assert "form-action 'self'" in page.headers["Content-Security-Policy"]
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    weak = await api.call("POST", "/auth/reset-password", raw=f"token={token}&new_password=short".encode(), headers=form)
    assert weak.status == 400
    assert "at least 8 characters" in weak.text
    foreign = {**form, "Sec-Fetch-Site": "cross-site"}
    body = f"token={token}&new_password=another+good+password".encode()
    assert (await api.call("POST", "/auth/reset-password", raw=body, headers=foreign)).status == 403
    assert (await api.call("POST", "/auth/reset-password", raw=body, headers={**form, "Origin": "https://evil.example"})).status == 403
    assert (await api.call("POST", "/auth/reset-password", raw=body, headers={"Content-Type": "text/plain"})).status == 415
    done = await api.call("POST", "/auth/reset-password", raw=body, headers={**form, "Origin": "null", "Sec-Fetch-Site": "same-origin"})
    assert done.status == 200
    assert (await api.login(password=NEW_PASSWORD)).status == 200
    assert (await api.get(f"/auth/reset-password?token={token}")).status == 400


# Races (security Z-1)


async def test_of_20_concurrent_registrations_one_succeeds(api: Api, pool: Pool, ports: Ports, sent: FakeMailTransport) -> None:
    statuses = [answer.status for answer in await run_concurrently(20, lambda _: register(api))]
    assert sorted(statuses) == [200] + [409] * 19
    assert await value(pool, "select count(*) from users") == 1
    await deliver(ports)
    assert len(sent.emails) == 1


async def test_of_20_concurrent_verifications_one_succeeds(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await register(api)
    await deliver(ports)
    token = link(sent.emails[0])
    answers = await run_concurrently(20, lambda _: api.get(f"/auth/verify-email?token={token}"))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19


async def test_of_20_concurrent_resets_one_succeeds(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await add_account(ports)
    token = await ask_for_reset(api, ports, sent)

    async def reset(number: int) -> tuple[int, str]:
        password = f"password number {number}"
        return (await api.post("/api/auth/reset-password", {"token": token, "new_password": password})).status, password

    outcomes = await run_concurrently(20, reset)
    [winner] = [password for status, password in outcomes if status == 200]
    assert sorted(status for status, _ in outcomes) == [200] + [400] * 19
    assert (await api.login(password=winner)).status == 200
