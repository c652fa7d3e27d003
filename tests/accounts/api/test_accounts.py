"""Registration, verification and the profile, with their side effects."""

from datetime import timedelta

import pytest

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.accounts.api.email_links import query_value, register, request_reset
from tests.accounts.profiles import NO_FIELDS
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import EMAIL, NEW_PASSWORD, Api, add_account, deliver, link, run_concurrently, run_sql


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
    assert profile.json == {"id": profile.json["id"], "email": EMAIL, "pending_email": None, "org": "", "service": "", **NO_FIELDS}


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
    assert await query_value(pool, "select count(*) from users") == 0


async def test_a_password_of_the_wrong_length_is_refused(api: Api) -> None:
    for password in ("", "1234567", "a" * 129, "😀" * 129):
        answer = await register(api, password=password)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST"), password


@pytest.mark.parametrize("password", ["72519403", "a" * 128, " leading and trailing ", "😀" * 128, "nul\x00and\ttab", "ÅÅÅÅÅÅÅÅ"])
async def test_a_password_is_not_changed(api: Api, pool: Pool, password: str) -> None:
    assert (await register(api, password=password)).status == 200
    await query_value(pool, "update users set email_verified_at = now() returning 1")
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
    assert (await api.get(f"/auth/verify-email?token={token}&token=x")).status == 400, "two tokens use none up"
    assert (await api.get(f"/auth/verify-email?token={token}")).status == 200
    answer = await api.get(f"/auth/verify-email?token={token}")
    assert answer.status == 400
    assert answer.headers["Content-Type"].startswith("text/html")
    assert token not in answer.text


async def test_a_link_that_a_mail_scanner_opened_first_says_that_the_address_is_verified(
    api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    """This holds only while the account has the link's address."""
    await register(api)
    await deliver(ports)
    path = f"/auth/verify-email?token={link(sent.emails[0])}"
    await api.get(path)
    page, program = await api.get(path), await api.get(path, headers={"Accept": "application/json"})
    assert (page.status, "<h1>Email address verified</h1>" in page.text, EMAIL in page.text) == (400, True, True)
    assert (program.status, program.code) == (400, "BAD_REQUEST")
    await run_sql(pool, "update users set email = 'moved@example.com'")
    moved = await api.get(path)
    assert (moved.status, "<h1>This link no longer works</h1>" in moved.text, "example.com" in moved.text) == (400, True, False)


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
    answer = await api.post("/api/auth/reset-password", {"token": verification, "new_password": NEW_PASSWORD})
    assert answer.status == 400
    reset = await request_reset(api, ports, sent)
    assert (await api.get(f"/auth/verify-email?token={reset}")).status == 400
    assert (await api.get(f"/auth/verify-email?token={verification}")).status == 200


async def test_responses_do_not_reveal_whether_an_account_exists(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await add_account(ports)
    await add_account(ports, "gone@example.com", deactivated_at=ports.clock.now())
    for path in ("/api/auth/forgot-password", "/api/auth/resend-verification"):
        answers = {
            (await api.post(path, {"email": email})).text
            for email in (EMAIL, "unknown@example.com", "gone@example.com", "not an address", "ada@[::1]", "x" * 500)
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
    await request_reset(api, ports, sent)
    assert len(sent.emails) == 6


async def test_tokens_are_stored_hashed_and_sealed_only_until_the_email_is_sent(
    api: Api, ports: Ports, sent: FakeMailTransport, pool: Pool
) -> None:
    await register(api)
    await deliver(ports)
    assert await query_value(pool, "select count(*) from mails where token is not null") == 0
    dump = await query_value(pool, "select string_agg(t::text, '') from one_time_tokens t")
    assert link(sent.emails[0]) not in str(dump)


async def test_a_taken_or_invalid_new_address_changes_nothing(api: Api, ports: Ports) -> None:
    await add_account(ports)
    await add_account(ports, "taken@example.com")
    token = (await api.login()).json["access_token"]
    for email in ("taken@example.com", "TAKEN@example.com", "nonsense", "", 5, None):
        answer = await api.patch("/api/user", {"email": email}, token=token)
        assert (answer.status, answer.code) == (400, "BAD_REQUEST")
    assert (await api.patch("/api/user", {}, token=token)).json["email"] == EMAIL
    assert (await api.patch("/api/user", {"unknown": 1}, token=token)).json["email"] == EMAIL


# Races (security Z-1)


async def test_of_20_concurrent_registrations_one_succeeds(api: Api, pool: Pool, ports: Ports, sent: FakeMailTransport) -> None:
    statuses = [answer.status for answer in await run_concurrently(20, lambda _: register(api))]
    assert sorted(statuses) == [200] + [409] * 19
    assert await query_value(pool, "select count(*) from users") == 1
    await deliver(ports)
    assert len(sent.emails) == 1


async def test_of_20_concurrent_verifications_one_succeeds(api: Api, ports: Ports, sent: FakeMailTransport) -> None:
    await register(api)
    await deliver(ports)
    token = link(sent.emails[0])
    answers = await run_concurrently(20, lambda _: api.get(f"/auth/verify-email?token={token}"))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
