"""Sign-in with a passkey over the API."""

import json
from datetime import timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.passkeys import CHALLENGE_TTL
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.support.builders import BASE_URL, Api, add_account, add_member, add_organization, deliver, run_concurrently, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.passkeys.authenticator import SoftAuthenticator, unb64
from tests.support.passkeys.users import PASSKEYS, RP_ID, PasskeyUser, sign_in_options, sign_in_with_passkey
from tests.support.services import add_service

REFUSED = "This passkey could not be used here. Try again, or use another way."
UNKNOWN = "This passkey is not known here. Delete it from your device or password manager, and use another way."
DEVICE = {"X-Device-Id": "a device id of 22 letters"}


def claims(answer: Any) -> Any:
    """Return the access token's claims."""
    return json.loads(unb64(answer.json["access_token"].split(".")[1]))


async def test_a_passkey_signs_in_and_counts_as_both_factors(
    api: Api, holder: PasskeyUser, user: Account, ports: Ports, pool: Pool, clock: FakeClock, metrics: FakeMetrics
) -> None:
    await holder.add()
    await add_mfa(ports, user)
    clock.advance(timedelta(minutes=1))
    options = await sign_in_options(api)
    assert (options["rpId"], options["allowCredentials"], options["userVerification"]) == (RP_ID, [], "required")
    answer = await sign_in_with_passkey(api, holder.authenticator)
    assert answer.status == 200, answer.text
    assert "mfa_required" not in answer.json
    token = claims(answer)
    expected = (str(user.id), int(clock.now().timestamp()), "phr", ["swk", "user", "mfa"])
    assert (token["sub"], token["auth_time"], token["acr"], token["amr"]) == expected
    [listed] = await PasskeyUser(api, answer.json["access_token"]).listed()
    assert listed["last_used_at"] == clock.now().isoformat().replace("+00:00", "Z")
    assert await run_sql(pool, "select provider, success from login_events order by created_at desc limit 1") == [("passkey", True)]
    assert metrics.passkey_ceremonies["sign_in", "ok"] == 1
    again = await api.post(f"{PASSKEYS}/options", token=answer.json["access_token"])
    assert again.status == 200, "it is a fresh sign-in with all factors"


async def test_refreshed_tokens_say_the_same(api: Api, holder: PasskeyUser) -> None:
    await holder.add()
    holder.authenticator.backup_eligible = holder.authenticator.backed_up = False
    holder.authenticator.credentials.clear()
    await holder.add()
    answer = await sign_in_with_passkey(api, holder.authenticator)
    refreshed = await api.post("/api/auth/refresh", {"refresh_token": answer.json["refresh_token"]})
    assert [claims(each)["amr"] for each in (answer, refreshed)] == [["hwk", "user", "mfa"]] * 2
    assert [claims(each)["acr"] for each in (answer, refreshed)] == ["phr"] * 2


async def test_a_passkey_signs_in_to_a_service(api: Api, holder: PasskeyUser, user: Account, pool: Pool) -> None:
    await holder.add()
    org = await add_organization(pool, "acme")
    service = await add_service(pool, org, "shop")
    await add_member(pool, org, user.id)
    answer = await sign_in_with_passkey(api, holder.authenticator, {"org_slug": "acme", "service_slug": "shop"})
    assert answer.status == 200, answer.text
    assert claims(answer)["service"] == "shop"
    [(logged, confirmed)] = await run_sql(
        pool, "select l.service_id, m.confirmed_at is not null from login_events l, memberships m where l.provider = 'passkey'"
    )
    assert (logged, confirmed) == (service, True)
    assert (await sign_in_with_passkey(api, holder.authenticator, {"org_slug": "acme", "service_slug": "none"})).status == 404


async def test_the_device_is_listed_with_the_passkey(api: Api, holder: PasskeyUser) -> None:
    await holder.add()
    answer = await sign_in_with_passkey(api, holder.authenticator, headers=DEVICE)
    devices = await api.get("/api/user/devices", token=answer.json["access_token"])
    assert [device["is_current"] for device in devices.json["devices"] if device["is_current"]] == [True]


async def test_an_unknown_passkey_is_told_apart(api: Api, holder: PasskeyUser, pool: Pool, metrics: FakeMetrics) -> None:
    """The browser can then forget it. Ids are random, and only their holder knows them."""
    passkey = await holder.add()
    options = await sign_in_options(api)
    other = await add_second(holder)
    assert (await api.delete(f"{PASSKEYS}/{passkey['id']}", token=holder.token)).status == 204
    await run_sql(pool, "delete from former_passkeys")  # no undo restores it any longer
    answer = await api.post("/api/auth/passkey", {"credential": holder.authenticator.get(options)})
    assert (answer.status, answer.json["error"]) == (401, UNKNOWN)
    assert other["id"] != passkey["id"]
    [failed] = await run_sql(pool, "select user_id, reason, provider from login_events where not success")
    assert failed == (None, "unknown_account", ""), "as for every attempt without an account"
    assert metrics.passkey_ceremonies["sign_in", "credential"] == 1
    assert metrics.login_failures["passkey"] == 1


async def add_second(holder: PasskeyUser) -> Any:
    """Add a passkey from another authenticator, so that the first is not the only way to sign in."""
    return await PasskeyUser(holder.api, holder.token).add()


@pytest.mark.parametrize(
    "changes",
    [
        {"origin": "https://evil.example"},
        {"verifies": False},
        {"present": False},
        {"client_data": {"crossOrigin": True}},
        {"client_data": {"challenge": "A" * 64}},
        {"client_data": {"type": "webauthn.create"}},
    ],
)
async def test_a_refused_answer_signs_in_nobody(api: Api, holder: PasskeyUser, user: Account, pool: Pool, changes: dict[str, Any]) -> None:
    await holder.add()
    for name, value in changes.items():
        setattr(holder.authenticator, name, value)
    answer = await sign_in_with_passkey(api, holder.authenticator)
    assert (answer.status, answer.json["error"]) == (401, REFUSED)
    [failed] = await run_sql(pool, "select user_id, reason from login_events where not success")
    assert failed == (user.id, "passkey")


async def test_the_user_handle_must_be_that_of_the_account(api: Api, holder: PasskeyUser) -> None:
    await holder.add()
    for handle in (b"x" * 64, holder.authenticator.credentials[0].user_handle[:-1]):
        holder.authenticator.credentials[0].user_handle = handle
        answer = await sign_in_with_passkey(api, holder.authenticator)
        assert (answer.status, answer.json["error"]) == (401, REFUSED)
    for response in ({}, {"userHandle": None}, {"userHandle": ""}):  # the options name no credential
        credential = holder.authenticator.get(await sign_in_options(api))
        del credential["response"]["userHandle"]
        credential["response"].update(response)
        assert (await api.post("/api/auth/passkey", {"credential": credential})).status == 401


async def test_the_challenge_is_of_the_device_and_its_time(api: Api, holder: PasskeyUser, clock: FakeClock) -> None:
    await holder.add()
    credential = holder.authenticator.get(await sign_in_options(api, headers=DEVICE))
    for headers in (None, {"X-Device-Id": "another device id of letters"}):
        assert (await api.post("/api/auth/passkey", {"credential": credential}, headers=headers)).status == 401
    assert (await api.post("/api/auth/passkey", {"credential": credential}, headers=DEVICE)).status == 200
    assert (await api.post("/api/auth/passkey", {"credential": credential}, headers=DEVICE)).status == 401, "it works once"
    late = holder.authenticator.get(await sign_in_options(api))
    clock.advance(CHALLENGE_TTL)
    assert (await api.post("/api/auth/passkey", {"credential": late})).status == 401


async def test_a_challenge_of_a_registration_signs_in_nobody(api: Api, holder: PasskeyUser) -> None:
    await holder.add()
    registration = await holder.options()
    options = {**await sign_in_options(api), "challenge": registration["challenge"]}
    answer = await api.post("/api/auth/passkey", {"credential": holder.authenticator.get(options)})
    assert answer.status == 401


@pytest.mark.slow
async def test_of_20_answers_with_one_challenge_one_signs_in(api: Api, holder: PasskeyUser, pool: Pool) -> None:
    await holder.add()
    options = await sign_in_options(api)
    answers = [holder.authenticator.get(options) for _ in range(20)]

    async def send(number: int) -> int:
        return (await api.post("/api/auth/passkey", {"credential": answers[number]})).status

    assert sorted(await run_concurrently(20, send)) == [200] + [401] * 19
    assert await run_sql(pool, "select count(*) from sessions where proofs -> 0 ->> 'method' = 'passkey'") == [(1,)]


@pytest.mark.slow
async def test_of_two_clones_with_one_counter_one_signs_in(api: Api, holder: PasskeyUser, pool: Pool) -> None:
    authenticator = holder.authenticator = SoftAuthenticator(origin=BASE_URL, backup_eligible=False, backed_up=False, step=1)
    await holder.add()
    count = authenticator.credentials[0].sign_count
    answers = []
    for _ in range(20):
        options = await sign_in_options(api)
        authenticator.credentials[0].sign_count = count
        answers.append(authenticator.get(options))

    async def send(number: int) -> int:
        return (await api.post("/api/auth/passkey", {"credential": answers[number]})).status

    assert sorted(await run_concurrently(20, send)) == [200] + [401] * 19
    assert await run_sql(pool, "select sign_count from passkeys") == [(count + 1,)]


@pytest.mark.parametrize(("change", "reason"), [({"sign_count": 3}, "counter"), ({"backup_eligible": True}, "backup")])
async def test_an_impossible_change_refuses_and_tells_the_user_once_a_day(
    api: Api,
    holder: PasskeyUser,
    user: Account,
    pool: Pool,
    ports: Ports,
    sent: FakeMailTransport,
    clock: FakeClock,
    change: dict[str, Any],
    reason: str,
) -> None:
    authenticator = holder.authenticator = SoftAuthenticator(origin=BASE_URL, backup_eligible=False, backed_up=False, step=1)
    await holder.add()
    org = await add_organization(pool, "acme")
    await run_sql(pool, "update organizations set approved_at = now()")
    await add_member(pool, org, user.id, confirmed=True)
    authenticator.credentials[0].sign_count = 10
    assert (await sign_in_with_passkey(api, authenticator)).status == 200
    for wait in (timedelta(0), timedelta(hours=23), timedelta(hours=1)):
        clock.advance(wait)
        if "sign_count" in change:
            authenticator.credentials[0].sign_count = change["sign_count"]
        else:
            authenticator.backup_eligible = True
        answer = await sign_in_with_passkey(api, authenticator)
        assert (answer.status, answer.json["error"].startswith("This passkey was refused, because it may be a copy.")) == (401, True)
    await deliver(ports)
    refused = [email for email in sent.emails if email.subject == "A passkey was refused - Gatehouse"]
    assert len(refused) == 2, "one a day"
    assert await run_sql(pool, "select sign_count from passkeys") == [(11,)]
    events = await run_sql(pool, "select success, details ->> 'reason' from audit_log where action = 'security.passkey.refused'")
    assert events == [(False, reason)] * 3
    assert await run_sql(pool, "select count(*) from login_events where reason = 'passkey'") == [(3,)]


async def test_the_same_answer_again_is_no_copy(api: Api, holder: PasskeyUser, pool: Pool, metrics: FakeMetrics) -> None:
    """After a lost response, a client or a proxy may repeat a request."""
    authenticator = holder.authenticator = SoftAuthenticator(origin=BASE_URL, backup_eligible=False, backed_up=False, step=1)
    await holder.add()
    credential = authenticator.get(await sign_in_options(api))
    answers = [await api.post("/api/auth/passkey", {"credential": credential}) for _ in range(2)]
    assert [answers[0].status, (answers[1].status, answers[1].json["error"])] == [200, (401, REFUSED)]
    assert metrics.passkey_ceremonies["sign_in", "challenge"] == 1
    assert await run_sql(pool, "select refused_at from passkeys") == [(None,)]


async def test_a_refusal_of_a_user_without_an_organization_is_in_the_log_of_the_platform(api: Api, holder: PasskeyUser, pool: Pool) -> None:
    await holder.add()
    holder.authenticator.backup_eligible = holder.authenticator.backed_up = False
    assert (await sign_in_with_passkey(api, holder.authenticator)).status == 401
    entries = await run_sql(pool, "select org_id, action from audit_log where action like 'security.passkey.re%%'")
    assert entries == [(None, "security.passkey.refused")]


async def test_a_deleted_passkey_is_not_to_be_forgotten_while_an_undo_can_restore_it(
    api: Api, holder: PasskeyUser, ports: Ports, pool: Pool
) -> None:
    """No other account can take its credential id either."""
    passkey = await holder.add()
    await add_second(holder)
    assert (await api.delete(f"{PASSKEYS}/{passkey['id']}", token=holder.token)).status == 204
    deleted = await sign_in_with_passkey(api, holder.authenticator)
    assert (deleted.status, deleted.json["error"].startswith("This passkey was deleted here. If that wasn't you,")) == (401, True)
    eve = PasskeyUser(api, (await sign_in(ports, await add_account(ports, "eve@example.com"))).access_token)
    eve.authenticator.next_id = holder.authenticator.credentials[0].id
    options = await eve.options()
    assert (await eve.send(eve.authenticator.create(options))).status == 400
    await run_sql(pool, "delete from former_passkeys")
    assert (await sign_in_with_passkey(api, holder.authenticator)).json["error"] == UNKNOWN
    assert (await eve.send(eve.authenticator.create(await eve.options()))).status == 201


async def test_a_user_who_deleted_the_account_is_told_how_to_open_it(api: Api, holder: PasskeyUser, pool: Pool) -> None:
    await holder.add()
    await run_sql(pool, "update users set closed_at = now(), deactivated_at = now(), erase_at = now()")
    answer = await sign_in_with_passkey(api, holder.authenticator)
    assert (answer.status, answer.json["error"].startswith("This account was deleted. The link in our email")) == (401, True)


async def test_a_synced_passkey_need_not_count(api: Api, holder: PasskeyUser, pool: Pool) -> None:
    holder.authenticator.step = 1
    await holder.add()
    holder.authenticator.credentials[0].sign_count = 10
    assert (await sign_in_with_passkey(api, holder.authenticator)).status == 200
    holder.authenticator.credentials[0].sign_count = 3
    holder.authenticator.backed_up = False
    assert (await sign_in_with_passkey(api, holder.authenticator)).status == 200
    assert await run_sql(pool, "select sign_count, backed_up from passkeys") == [(11, False)]


@pytest.mark.parametrize("column", ["deactivated_at", "anonymized_at"])
async def test_a_closed_account_stays_closed(api: Api, holder: PasskeyUser, pool: Pool, column: str) -> None:
    await holder.add()
    await run_sql(pool, f"update users set {column} = now()")  # noqa: S608
    answer = await sign_in_with_passkey(api, holder.authenticator)
    assert (answer.status, answer.json["error"].startswith("This account is closed")) == (401, True)
    assert await run_sql(pool, "select count(*) from sessions where proofs -> 0 ->> 'method' = 'passkey'") == [(0,)]


async def test_the_options_are_the_same_for_everyone(api: Api, holder: PasskeyUser, ports: Ports) -> None:
    before = await sign_in_options(api)
    await add_account(ports, "eve@example.com")
    await holder.add()
    after = await sign_in_options(api, token=holder.token)
    assert {**before, "challenge": ""} == {**after, "challenge": ""}


async def test_a_risky_sign_in_is_not_mailed(api: Api, holder: PasskeyUser, ports: Ports, sent: FakeMailTransport) -> None:
    await holder.add()
    await deliver(ports)
    before = len(sent.emails)
    for _ in range(5):
        await api.login(password="a wrong password")
    assert (await sign_in_with_passkey(api, holder.authenticator)).status == 200
    await deliver(ports)
    assert len(sent.emails) == before


async def test_the_only_way_to_sign_in_stays(api: Api, holder: PasskeyUser, pool: Pool) -> None:
    passkey = await holder.add()
    await run_sql(pool, "update users set password_hash = null")
    answer = await api.delete(f"{PASSKEYS}/{passkey['id']}", token=holder.token)
    assert (answer.status, answer.json["error"].startswith("This is your only way to sign in.")) == (400, True)
    second = await add_second(holder)
    assert (await api.delete(f"{PASSKEYS}/{passkey['id']}", token=holder.token)).status == 204
    assert (await api.delete(f"{PASSKEYS}/{second['id']}", token=holder.token)).status == 400
