"""A user changes their email address: the pending address, the proof, and the undo link (security A-9)."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import trio

from adapters.postgres.engine.pool import Pool
from core.accounts import mailbox
from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM
from ports import Ports
from tests.accounts.api.email_links import query_value, register, request_reset
from tests.accounts.email_changes import FORM, UNDO, EmailChanger, open_proof, undo
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import EMAIL, NEW_PASSWORD, PASSWORD, Answer, Api, add_account, link, run_concurrently, run_sql, sign_in
from tests.support.mfa import USED_IN_SESSIONS, add_mfa
from tests.support.rows import until_blocked
from tests.support.tenants import Tenant

Act = Callable[[], Awaitable[Answer]]
NEW, LATER = "lovelace@example.com", "countess@example.com"
LIVE = "select count(*) from sessions where ended_at is null"


@pytest.fixture
def changer(api: Api, ports: Ports, sent: FakeMailTransport) -> EmailChanger:
    return EmailChanger(api, ports, sent)


@pytest.fixture
async def token(ports: Ports, user: Account) -> str:
    """The access token for the session that requests the change."""
    return (await sign_in(ports, user)).access_token


async def profile(api: Api, token: str) -> tuple[str, str | None]:
    answer = await api.get("/api/user", token=token)
    assert answer.status == 200, answer.text
    return answer.json["email"], answer.json["pending_email"]


async def reset(api: Api, token: str) -> Answer:
    return await api.post("/api/auth/reset-password", {"token": token, "new_password": NEW_PASSWORD})


async def names(pool: Pool, name: str = "%email%") -> list[str]:
    return [row[0] for row in await run_sql(pool, "select name from events where name like %s order by name", name)]


# The proof


async def test_an_account_keeps_its_address_until_the_new_one_is_proved(
    changer: EmailChanger, api: Api, ports: Ports, pool: Pool, user: Account, token: str
) -> None:
    other = (await sign_in(ports, user)).access_token
    proof, _ = await changer.request(token, NEW)
    assert await profile(api, token) == await profile(api, other) == (EMAIL, NEW)
    assert ((await api.login()).status, (await api.login(NEW)).status) == (200, 401)
    assert await names(pool) == ["security.email_change.requested"]
    old_reset = await request_reset(api, ports, changer.sent)
    page = await open_proof(api, proof)
    assert (page.status, NEW in page.text) == (200, True)
    assert await profile(api, token) == (NEW, None)
    assert (await api.get("/api/user", token=other)).status == 401
    assert await query_value(pool, LIVE) == 1
    assert (await reset(api, old_reset)).status == 400
    assert ((await api.login()).status, (await api.login(NEW)).status) == (401, 200)
    assert await names(pool) == ["security.email_change.requested", "user.email_changed"]
    again = await open_proof(api, proof)
    assert (again.status, f"Sign in as <strong>{NEW}</strong>" in again.text) == (400, True), "a mail scanner may have opened it first"


async def test_a_typo_in_the_new_address_locks_no_one_out(changer: EmailChanger, api: Api, token: str) -> None:
    typo, _ = await changer.request(token, "lovelcae@example.com")
    proof, _ = await changer.request(token, NEW)
    assert (await open_proof(api, typo)).status == 400, "a newer request replaces the pending one"
    assert await profile(api, token) == (EMAIL, NEW)
    answer = await api.patch("/api/user", {"email": EMAIL}, token=token)
    assert (answer.status, answer.json["email"], answer.json["pending_email"]) == (200, EMAIL, None)
    assert (await open_proof(api, proof)).status == 400, "the present address cancels the change"
    assert await profile(api, token) == (EMAIL, None)


async def test_the_same_new_address_again_sends_only_its_link_again(changer: EmailChanger, api: Api, token: str) -> None:
    await changer.request(token, NEW)
    proof, _ = await changer.request(token, NEW)
    assert [len(await changer.emails(address)) for address in (EMAIL, NEW)] == [1, 2]
    assert (await open_proof(api, proof)).status == 200


async def test_a_pending_change_expires_after_a_day(changer: EmailChanger, api: Api, ports: Ports, user: Account, clock: FakeClock) -> None:
    proof, undo_token = await changer.request((await sign_in(ports, user)).access_token, NEW)
    clock.advance(timedelta(hours=24))
    token = (await sign_in(ports, user)).access_token
    assert await profile(api, token) == (EMAIL, None)
    assert (await open_proof(api, proof)).status == 400
    assert (await undo(api, undo_token)).status == 200, "the undo link works for 72 hours"


async def test_an_address_that_was_taken_in_the_meantime_is_refused_and_nothing_changes(
    changer: EmailChanger, api: Api, ports: Ports, token: str
) -> None:
    proof, _ = await changer.request(token, NEW)
    await add_account(ports, NEW)
    answer = await open_proof(api, proof)
    assert (answer.status, "Another account has this address. If it is yours too, " in answer.text) == (400, True)
    assert await profile(api, token) == (EMAIL, NEW)


async def test_a_new_password_ends_the_change_of_another_session(
    changer: EmailChanger, api: Api, ports: Ports, user: Account, token: str
) -> None:
    """A thief may hold the session that requested the change. The user's own change stays pending."""
    proof, _ = await changer.request(token, NEW)
    passwords = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    assert (await api.post("/api/user/change-password", passwords, token=token)).status == 200
    assert await profile(api, token) == (EMAIL, NEW)
    other = (await sign_in(ports, user)).access_token
    passwords = {"current_password": NEW_PASSWORD, "new_password": PASSWORD}
    assert (await api.post("/api/user/change-password", passwords, token=other)).status == 200
    assert await profile(api, other) == (EMAIL, None)
    assert (await open_proof(api, proof)).status == 400


async def test_an_hour_has_five_requests(changer: EmailChanger, api: Api, ports: Ports, user: Account, clock: FakeClock) -> None:
    """Otherwise a session thief uses up the notices, and then changes the address without a notice."""
    token = (await sign_in(ports, user)).access_token
    for number in range(5):
        await changer.request(token, f"n{number}@example.com")
    answer = await api.patch("/api/user", {"email": NEW}, token=token)
    assert (answer.status, answer.code, answer.headers["Retry-After"]) == (429, "RATE_LIMIT_EXCEEDED", "3600")
    clock.advance(timedelta(hours=1))
    await changer.request((await sign_in(ports, user)).access_token, NEW)
    assert len(await changer.emails(EMAIL)) == 6


async def test_the_old_address_gets_no_notice_if_it_was_never_proved(changer: EmailChanger, api: Api, ports: Ports, pool: Pool) -> None:
    """The old address's owner could undo a corrected typo, reset the password, and have the account."""
    account = await add_account(ports, verified=False)
    token = (await sign_in(ports, account)).access_token
    assert (await api.patch("/api/user", {"email": NEW}, token=token)).json["pending_email"] == NEW
    [message] = await changer.emails(NEW)
    assert (await open_proof(api, link(message))).status == 200
    assert await changer.emails(EMAIL) == []
    assert (await register(api, EMAIL)).status == 200, "it is not reserved either"


async def test_the_first_proof_of_the_mailbox_ends_the_change_of_a_squatter(
    changer: EmailChanger, api: Api, ports: Ports, clock: FakeClock
) -> None:
    """The squatter's email may still be in the queue (security A-7)."""
    squatted = await add_account(ports, verified=False)
    token = (await sign_in(ports, squatted)).access_token
    assert (await api.patch("/api/user", {"email": NEW}, token=token)).json["pending_email"] == NEW
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await mailbox.prove_mailbox(tx, squatted, clock.now())
    assert await changer.emails(NEW) == []


# The undo link


async def test_opening_the_undo_link_changes_nothing(changer: EmailChanger, api: Api, token: str) -> None:
    _, undo_token = await changer.request(token, NEW)
    page = await api.get(f"{UNDO}?token={undo_token}")
    assert (page.status, EMAIL in page.text, "form-action 'self'" in page.headers["Content-Security-Policy"]) == (200, True, True)
    assert await profile(api, token) == (EMAIL, NEW)
    foreign = await api.call("POST", UNDO, raw=f"token={undo_token}".encode(), headers={**FORM, "Sec-Fetch-Site": "cross-site"})
    assert foreign.status == 403
    for unknown in ("", "x", "0d9f9d4e-7f07-4c39-a9a4-0b1f6b8c1a52"):
        assert ((await api.get(f"{UNDO}?token={unknown}")).status, (await undo(api, unknown)).status) == (400, 400)


async def test_the_undo_link_cancels_a_pending_change_and_ends_every_session(
    changer: EmailChanger, api: Api, ports: Ports, pool: Pool, token: str
) -> None:
    proof, undo_token = await changer.request(token, NEW)
    old_reset = await request_reset(api, ports, changer.sent)
    answer = await undo(api, undo_token)
    assert (answer.status, answer.headers.get("Set-Cookie")) == (200, None)
    assert [path in answer.text for path in ("/app/forgot-password", "/app/sign-in")] == [True, True]
    assert await query_value(pool, LIVE) == 0
    assert [(await open_proof(api, proof)).status, (await reset(api, old_reset)).status] == [400, 400]
    assert (await api.login()).status == 200
    assert await names(pool, "%email_change%") == ["security.email_change.requested", "security.email_change.undone"]
    assert [(await undo(api, undo_token)).status, (await api.get(f"{UNDO}?token={undo_token}")).status] == [400, 400]


async def test_the_undo_link_restores_the_address_after_the_change_within_72_hours(
    changer: EmailChanger, api: Api, ports: Ports, pool: Pool, user: Account, token: str, clock: FakeClock
) -> None:
    undo_token = await changer.change(token, NEW)
    clock.advance(timedelta(hours=72) - timedelta(seconds=1))
    assert (await undo(api, undo_token)).status == 200
    assert await run_sql(pool, "select email, email_verified_at is not null from users") == [(EMAIL, True)]
    assert [(await api.login(address)).status for address in (EMAIL, NEW)] == [200, 401]
    assert (await changer.emails(NEW))[-1].subject == "Your email address was changed - Gatehouse"
    assert (await names(pool)).count("user.email_changed") == 2
    undo_token = await changer.change((await sign_in(ports, user)).access_token, NEW)
    clock.advance(timedelta(hours=72))
    assert [(await undo(api, undo_token)).status, (await api.get(f"{UNDO}?token={undo_token}")).status] == [400, 400]


async def test_a_thief_keeps_no_way_into_the_account(
    changer: EmailChanger, api: Api, ports: Ports, pool: Pool, user: Account, token: str, clock: FakeClock
) -> None:
    """The thief changed the address twice, reset the password, linked an identity, and left a request and links behind."""
    insert = """
        insert into identities (id, user_id, provider, provider_user_id, linked_at) values (gen_random_uuid(), %s, %s, '1', %s)"""
    await run_sql(pool, insert, user.id, "codehost", clock.now() - timedelta(days=1))
    undo_token = await changer.change(token, NEW)
    clock.advance(timedelta(hours=2))
    second_undo = await changer.change(token := (await sign_in(ports, user)).access_token, LATER, old=NEW)
    assert (await reset(api, await request_reset(api, ports, changer.sent, LATER))).status == 200
    await run_sql(pool, insert, user.id, "websuite", clock.now())
    tokens = (await api.login(LATER, NEW_PASSWORD)).json
    pending, third_undo = await changer.request(tokens["access_token"], "third@example.com", old=LATER)
    left_reset = await request_reset(api, ports, changer.sent, LATER)
    assert (await undo(api, undo_token)).status == 200
    assert await run_sql(pool, "select email, password_hash from users") == [(EMAIL, None)]
    assert await run_sql(pool, "select provider from identities") == [("codehost",)]
    assert (await api.post("/api/auth/refresh", {"refresh_token": tokens["refresh_token"]})).status == 401
    answers = [await undo(api, second_undo), await undo(api, third_undo), await open_proof(api, pending), await reset(api, left_reset)]
    assert [answer.status for answer in answers] == [400] * 4
    assert [(await api.login(*secret)).status for secret in ((EMAIL, NEW_PASSWORD), (EMAIL, PASSWORD), (LATER, NEW_PASSWORD))] == [401] * 3
    assert (await reset(api, await request_reset(api, ports, changer.sent))).status == 200
    assert (await api.login(password=NEW_PASSWORD)).status == 200


async def test_each_notice_undoes_also_what_replaced_its_change(changer: EmailChanger, api: Api, pool: Pool, token: str) -> None:
    _, first_undo = await changer.request(token, "thief@example.com")
    second_undo = await changer.change(token, NEW)
    assert first_undo != second_undo
    assert (await undo(api, first_undo)).status == 200
    assert await run_sql(pool, "select email from users") == [(EMAIL,)]
    assert (await undo(api, second_undo)).status == 400


async def test_an_undo_skips_no_second_factor_and_trusts_no_device(
    changer: EmailChanger, api: Api, ports: Ports, pool: Pool, user: Account, token: str
) -> None:
    """A second factor that is older than the request stays."""
    await add_mfa(ports, user, at=ports.clock.now() - timedelta(days=1))
    await run_sql(pool, USED_IN_SESSIONS)
    undo_token = await changer.change(token, NEW)
    statement = """
        insert into devices (id, user_id, name, device_type, browser, os, last_used_at, risk_score, risk_factors, trust_hash,
                             trust_expires_at, created_at, updated_at)
        values (gen_random_uuid(), %s, 'x', 'browser', 'x', 'x', now(), 0, '{}', 'trust', now() + interval '90 days', now(), now())"""
    await run_sql(pool, statement, user.id)
    assert (await undo(api, undo_token)).status == 200
    assert (await api.login()).json["mfa_required"] is True
    assert await query_value(pool, "select count(*) from devices where trust_hash is not null") == 0


# The old address is reserved


async def test_no_one_takes_the_old_address_for_72_hours(
    changer: EmailChanger, api: Api, ports: Ports, user: Account, token: str, acme: Tenant, clock: FakeClock
) -> None:
    invitation = await acme.invite(EMAIL)
    other = await add_account(ports, "other@example.com")
    await changer.change(token, NEW)

    async def answers() -> dict[str, Any]:
        change = await api.patch("/api/user", {"email": EMAIL}, token=(await sign_in(ports, other)).access_token)
        return {
            "register": (await register(api)).status,
            "change": (change.status, None if change.status != 200 else change.json["pending_email"]),
            "invitation": (await api.post("/api/invitations/accept", {"token": invitation["token"]})).status,
        }

    assert await answers() == {"register": 409, "change": (400, None), "invitation": 400}
    assert (await api.patch("/api/user", {"email": EMAIL}, token=token)).json["pending_email"] == EMAIL, "its own account may go back"
    clock.advance(timedelta(hours=72))
    assert await answers() == {"register": 200, "change": (200, EMAIL), "invitation": 200}


# Races


async def test_of_20_concurrent_proofs_one_succeeds(changer: EmailChanger, api: Api, pool: Pool, token: str) -> None:
    proof, _ = await changer.request(token, NEW)
    answers = await run_concurrently(20, lambda _: open_proof(api, proof))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert await names(pool, "user.email_changed") == ["user.email_changed"]


async def test_of_20_concurrent_undos_one_succeeds(changer: EmailChanger, api: Api, pool: Pool, token: str) -> None:
    undo_token = await changer.change(token, NEW)
    answers = await run_concurrently(20, lambda _: undo(api, undo_token))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert await run_sql(pool, "select email from users") == [(EMAIL,)]
    assert sorted(await names(pool, "%undone")) == ["security.changes.undone", "security.email_change.undone"]


@pytest.mark.slow
async def test_an_undo_during_proofs_always_keeps_the_old_address(changer: EmailChanger, api: Api, pool: Pool, user: Account) -> None:
    for round_ in range(5):
        token = (await sign_in(changer.ports, user)).access_token
        proof, undo_token = await changer.request(token, f"n{round_}@example.com")
        acts = [partial(undo, api, undo_token), *[partial(open_proof, api, proof)] * 9]
        answers = await run_concurrently(20, lambda number, acts=acts: acts[number % 10]())  # type: ignore[misc]
        assert [answer.status for answer in answers].count(200) in (1, 2)
        assert await run_sql(pool, "select email, email_verified_at is not null from users") == [(EMAIL, True)]
        assert await query_value(pool, LIVE) == 0


async def run_in_order(pool: Pool, first: Act, others: Sequence[Act]) -> list[Answer]:
    """Return the answers to concurrent requests. The requests wait for the lock on the accounts, and `first` most likely gets it first."""
    answers: list[Answer] = []

    async def run(act: Act) -> None:
        answers.append(await act())

    async with trio.open_nursery() as nursery, pool.connection() as connection, connection.transaction():
        await connection.execute("select from users for no key update")
        nursery.start_soon(run, first)
        await until_blocked(pool)
        for act in others:
            nursery.start_soon(run, act)
        await until_blocked(pool, 2)
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("first", ["change", "reset"])
async def test_of_a_change_and_a_password_reset_by_the_old_mailbox_one_takes_effect(
    changer: EmailChanger, api: Api, ports: Ports, pool: Pool, token: str, first: str
) -> None:
    """The reset ends the pending change, and the change ends the reset link: a thief's change never survives a reset."""
    proof, _ = await changer.request(token, NEW)
    reset_token = await request_reset(api, ports, changer.sent)
    acts = {"change": partial(open_proof, api, proof), "reset": partial(reset, api, reset_token)}
    answers = await run_in_order(pool, acts[first], [acts[("change", "reset")[number % 2]] for number in range(19)])
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    [state] = await run_sql(pool, f"select email, password_changed_at is not null, ({LIVE}) from users")  # noqa: S608
    assert state in ((NEW, False, 1), (EMAIL, True, 0))


@pytest.mark.slow
async def test_of_20_accounts_that_request_one_address_one_gets_it(changer: EmailChanger, api: Api, ports: Ports, pool: Pool) -> None:
    proofs = []
    for number in range(5):
        account = await add_account(ports, f"n{number}@example.com", None)
        proofs.append((await changer.request((await sign_in(ports, account)).access_token, NEW, old=account.email))[0])
    answers = await run_concurrently(20, lambda number: open_proof(api, proofs[number % 5]))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 19
    assert await query_value(pool, "select count(*) from users where email = %s", NEW) == 1
