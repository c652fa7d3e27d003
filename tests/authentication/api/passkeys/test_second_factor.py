"""A passkey or a security key as the second factor for a sign-in."""

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.passkeys import CHALLENGE_TTL
from core.authentication.reauthentication import load_options
from core.kernel.callers import Person
from core.kernel.proofs import Method, Strength
from core.kernel.sign_in_policy.decision import Decision, Outcome
from core.kernel.sign_in_policy.rules import Rule
from ports import Ports
from tests.accounts.api.test_reset_and_policies import put_policy
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.support.builders import BASE_URL, PASSWORD, Answer, Api, add_account, fresh_sign_in, run_concurrently, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.passkeys.authenticator import SoftAuthenticator, b64, unb64
from tests.support.passkeys.users import PASSKEYS, PasskeyUser, sign_in_with_passkey, start_login, verify_second
from tests.support.tenants import Tenant

REFUSED = "This passkey could not be used here. Try again, or use another way."
VERIFY = "/api/auth/mfa/verify"
REAUTHENTICATE = "/api/auth/reauthenticate"
SWITCH = f"{PASSKEYS}/second-factor"


def claims(answer: Answer) -> Any:
    """Return the access token's claims."""
    return json.loads(unb64(answer.json["access_token"].split(".")[1]))


@pytest.fixture
def key(holder: PasskeyUser) -> SoftAuthenticator:
    """A security key that cannot verify its user."""
    holder.authenticator = SoftAuthenticator(origin=BASE_URL, verifies=False, backup_eligible=False, backed_up=False, step=1)
    return holder.authenticator


async def test_a_security_key_is_the_second_factor(
    api: Api, holder: PasskeyUser, key: SoftAuthenticator, pool: Pool, metrics: FakeMetrics, clock: FakeClock
) -> None:
    added = await holder.add_key()
    assert (added["kind"], len(added["backup_codes"])) == ("security_key", 10)
    clock.advance(timedelta(minutes=1))
    login = await start_login(api)
    assert login["methods"] == ["passkey", "backup_code"]
    options = login["passkey_options"]
    assert [each["id"] for each in options["allowCredentials"]] == [b64(key.credentials[0].id)]
    assert options["userVerification"] == "preferred"
    answer = await verify_second(api, login, key)
    assert answer.status == 200, answer.text
    refreshed = await api.post("/api/auth/refresh", {"refresh_token": answer.json["refresh_token"]})
    for each in (answer, refreshed):
        assert (claims(each)["acr"], claims(each)["amr"]) == ("mfa", ["pwd", "hwk", "user", "mfa"])
    assert (await api.post(f"{PASSKEYS}/options", token=answer.json["access_token"])).status == 200, "it has all factors"
    assert metrics.passkey_ceremonies["second_factor", "ok"] == 1
    log = await run_sql(pool, "select event_type from mfa_events order by created_at desc, id limit 3")
    assert log == [("passkey_used",), ("mfa_verify_success",), ("mfa_verify_attempt",)]
    assert await run_sql(pool, "select strength from sessions order by created_at desc, id desc limit 1") == [(2,)]


async def test_an_empty_user_handle_of_a_security_key_counts_as_none(api: Api, holder: PasskeyUser, key: SoftAuthenticator) -> None:
    """Its options named the key, so the handle says nothing new."""
    await holder.add_key()
    for handle, status in (("", 200), (None, 200), (b64(key.credentials[0].user_handle), 200), (b64(b"x" * 64), 401)):
        login = await start_login(api)
        credential = key.get(login["passkey_options"])
        credential["response"]["userHandle"] = handle
        answer = await api.post(VERIFY, {"passkey": credential}, token=login["access_token"])
        assert answer.status == status, (handle, answer.text)


async def test_a_passkey_that_verifies_its_user_makes_the_sign_in_phishing_resistant(api: Api, holder: PasskeyUser) -> None:
    await holder.add(second_factor=True)
    answer = await verify_second(api, await start_login(api), holder.authenticator)
    refreshed = await api.post("/api/auth/refresh", {"refresh_token": answer.json["refresh_token"]})
    for each in (answer, refreshed):
        assert (claims(each)["acr"], claims(each)["amr"]) == ("phr", ["pwd", "swk", "user", "mfa"])


async def test_a_passkey_is_accepted_beside_an_app(api: Api, holder: PasskeyUser, user: Account, ports: Ports) -> None:
    await holder.add()
    app = await add_mfa(ports, user)
    login = await start_login(api)
    assert login["methods"] == ["totp", "passkey", "backup_code"]
    assert (await verify_second(api, login, holder.authenticator)).status == 200
    login = await start_login(api)
    assert (await api.post(VERIFY, {"code": app.code()}, token=login["access_token"])).status == 200


async def test_a_passkey_that_is_no_second_factor_is_not_asked_for(api: Api, holder: PasskeyUser) -> None:
    await holder.add()
    assert "mfa_required" not in (await api.login()).json


async def test_a_backup_code_replaces_the_key(api: Api, holder: PasskeyUser, key: SoftAuthenticator) -> None:
    [code, *_] = (await holder.add_key())["backup_codes"]
    for status in (200, 401):
        login = await start_login(api)
        assert (await api.post(VERIFY, {"code": code}, token=login["access_token"])).status == status
    assert (await api.post(VERIFY, {"code": "123456"}, token=login["access_token"])).status == 401, "there is no app"


async def test_exactly_one_of_both_is_sent(api: Api, holder: PasskeyUser, key: SoftAuthenticator) -> None:
    await holder.add_key()
    login = await start_login(api)
    credential = key.get(login["passkey_options"])
    for body in ({}, {"code": "123456", "passkey": credential}):
        answer = await api.post(VERIFY, body, token=login["access_token"])
        assert (answer.status, answer.json["error"]) == (400, "Send either code or passkey.")
    assert (await verify_second(api, login, key)).status == 200, "nothing was used up"


async def test_a_security_key_signs_in_nobody_alone(api: Api, holder: PasskeyUser, pool: Pool, metrics: FakeMetrics) -> None:
    """The refusal holds even if the key can do more than was asked."""
    await holder.add_key()
    holder.authenticator.verifies = True
    answer = await sign_in_with_passkey(api, holder.authenticator)
    assert (answer.status, answer.json["error"]) == (401, REFUSED)
    assert metrics.passkey_ceremonies["sign_in", "kind"] == 1
    answer = await verify_second(api, await start_login(api), holder.authenticator)
    assert claims(answer)["acr"] == "mfa"
    assert await run_sql(pool, "select user_verified, security_key_count, passkey_count from passkeys, users") == [(True, 1, 0)]


@pytest.mark.parametrize("changes", [{"origin": "https://evil.example"}, {"present": False}, {"client_data": {"crossOrigin": True}}])
async def test_a_refused_key_is_a_failed_attempt(
    api: Api, holder: PasskeyUser, key: SoftAuthenticator, pool: Pool, changes: dict[str, Any]
) -> None:
    await holder.add_key()
    before = {name: getattr(key, name) for name in changes}
    login = await start_login(api)
    for name, value in changes.items():
        setattr(key, name, value)
    for _ in range(5):
        answer = await verify_second(api, login, key)
        assert (answer.status, answer.json["error"]) == (401, REFUSED)
    for name, value in before.items():
        setattr(key, name, value)
    answer = await verify_second(api, login, key)
    assert (answer.status, answer.json["error"].startswith("This sign-in cannot be continued")) == (401, True)
    assert await run_sql(pool, "select distinct reason from login_events where not success") == [("passkey",)]
    assert await run_sql(pool, "select count(*) from mfa_events where event_type = 'mfa_verify_failed'") == [(5,)]


async def test_the_challenge_is_of_this_sign_in_and_its_time(
    api: Api, holder: PasskeyUser, key: SoftAuthenticator, ports: Ports, clock: FakeClock
) -> None:
    await holder.add_key()
    logins = [await start_login(api) for _ in range(2)]
    assert (await verify_second(api, {**logins[0], "passkey_options": logins[1]["passkey_options"]}, key)).status == 401
    reauthentication = await api.post(f"{REAUTHENTICATE}/passkey/options", token=holder.token)
    options = {**logins[0], "passkey_options": reauthentication.json["publicKey"]}
    assert (await verify_second(api, options, key)).status == 401
    registration = await holder.options("security_key")
    options = {**logins[0], "passkey_options": {**logins[0]["passkey_options"], "challenge": registration["challenge"]}}
    assert (await verify_second(api, options, key)).status == 401
    assert (await verify_second(api, logins[0], key)).status == 200
    assert (await verify_second(api, logins[0], key)).status == 401, "it works once"
    clock.advance(CHALLENGE_TTL)
    assert (await verify_second(api, logins[1], key)).status == 401


async def test_the_key_of_another_user_is_refused(api: Api, holder: PasskeyUser, key: SoftAuthenticator, ports: Ports) -> None:
    await holder.add_key()
    eve = PasskeyUser(api, (await sign_in(ports, await add_account(ports, "eve@example.com"))).access_token)
    await eve.add_key()
    login = await start_login(api)
    credential = eve.authenticator.get({**login["passkey_options"], "allowCredentials": []})
    answer = await api.post(VERIFY, {"passkey": credential}, token=login["access_token"])
    assert (answer.status, answer.json["error"]) == (401, REFUSED)


@pytest.mark.slow
async def test_of_20_answers_one_completes_the_sign_in(api: Api, holder: PasskeyUser, pool: Pool) -> None:
    await holder.add_key()
    login = await start_login(api)
    answers = [holder.authenticator.get(login["passkey_options"]) for _ in range(20)]
    before = await run_sql(pool, "select count(*) from sessions")

    async def send(number: int) -> int:
        return (await api.post(VERIFY, {"passkey": answers[number]}, token=login["access_token"])).status

    assert sorted(await run_concurrently(20, send)) == [200] + [401] * 19
    assert await run_sql(pool, "select count(*) - %s from sessions", before[0][0]) == [(1,)]


async def test_the_device_is_trusted_until_the_factor_is_turned_off(api: Api, holder: PasskeyUser, key: SoftAuthenticator) -> None:
    await holder.add_key()
    device = {"X-Device-Id": "a device id of 22 letters"}
    login = (await api.login(headers=device)).json
    credential = key.get(login["passkey_options"])
    body = {"passkey": credential, "trust_device": True}
    answer = await api.post(VERIFY, body, token=login["access_token"], headers=device)
    token = answer.json["device_token"]

    async def is_asked() -> bool:
        answer = await api.post(
            "/api/auth/login",
            {"email": "ada@example.com", "password": PASSWORD, "device_token": token},
            headers=device,
        )
        return "mfa_required" in answer.json

    assert not await is_asked()
    for enabled in (False, True):
        assert (await api.call("PUT", SWITCH, {"enabled": enabled}, token=answer.json["access_token"])).status == 200
    assert await is_asked()


@pytest.mark.parametrize(
    ("methods", "expected", "needs_first"),
    [
        (None, ("passkey", "totp", "backup_code"), False),
        (("password", "totp"), ("totp", "backup_code"), False),
        (("password", "passkey"), ("passkey", "backup_code"), False),
        (("password", "email"), (), True),
    ],
)
async def test_the_confirmation_for_a_policy_offers_only_second_factors_that_it_accepts(
    holder: PasskeyUser, user: Account, ports: Ports, methods: tuple[str, ...] | None, expected: tuple[str, ...], needs_first: bool
) -> None:
    """Without such a second factor, the first factor is asked for again."""
    await holder.add_key()
    await add_mfa(ports, user)
    caller = Person(user_id=user.id, email=user.email, session_id=uuid4(), sign_in=fresh_sign_in(ports))
    allowed = None if methods is None else frozenset(methods)
    now = ports.clock.now()
    decision = Decision(outcome=Outcome.STEP_UP, rule=Rule.SECOND_FACTOR, required=Strength.TWO, methods=allowed, first_at=now)
    options = await load_options(ports, caller, decision)
    assert ({*options.second_methods}, options.needs_first_factor) == ({*expected}, needs_first)
    assert {*(await load_options(ports, caller)).second_methods} == {"passkey", "totp", "backup_code"}, "without a policy"


async def test_the_confirmation_for_a_policy_offers_only_a_passkey_that_is_no_second_factor(
    holder: PasskeyUser, user: Account, ports: Ports
) -> None:
    """With the password, the policy would ask again."""
    await holder.add()
    caller = Person(user_id=user.id, email=user.email, session_id=uuid4(), sign_in=fresh_sign_in(ports))
    decision = Decision(outcome=Outcome.STEP_UP, rule=Rule.SECOND_FACTOR, required=Strength.TWO)
    options = await load_options(ports, caller, decision)
    assert (options.passkey, options.password, options.email_code) == (True, False, False)
    assert (await load_options(ports, caller)).password, "without a policy"


async def test_the_confirmation_for_a_policy_offers_no_backup_code_of_a_factor_that_it_does_not_accept(user: Account, ports: Ports) -> None:
    await add_mfa(ports, user)
    caller = Person(user_id=user.id, email=user.email, session_id=uuid4(), sign_in=fresh_sign_in(ports))
    decision = Decision(
        outcome=Outcome.STEP_UP, rule=Rule.SECOND_FACTOR, required=Strength.TWO, methods=frozenset({Method.PASSWORD, Method.PASSKEY})
    )
    assert (await load_options(ports, caller, decision)).second_methods == ()


async def test_a_reauthentication_with_a_key_needs_the_password_too(
    api: Api, holder: PasskeyUser, key: SoftAuthenticator, clock: FakeClock
) -> None:
    await holder.add_key()
    clock.advance(timedelta(minutes=12))
    offered = await api.get(REAUTHENTICATE, token=holder.token)
    assert (offered.json["methods"], offered.json["second_methods"]) == (["password", "email"], ["passkey", "backup_code"])
    assert offered.json["needs_second_factor"] is True

    async def confirm(**others: str) -> int:
        options = await api.post(f"{REAUTHENTICATE}/passkey/options", token=holder.token)
        assert options.json["publicKey"]["userVerification"] == "preferred"
        body = {"passkey": key.get(options.json["publicKey"]), **others}
        return (await api.post(REAUTHENTICATE, body, token=holder.token)).status

    assert await confirm() == 400, "the first factor is missing"
    assert await confirm(password="a wrong password") == 401
    assert (await api.post(REAUTHENTICATE, {"password": PASSWORD}, token=holder.token)).status == 401
    assert (await api.post(f"{PASSKEYS}/options", token=holder.token)).status == 401
    assert await confirm(password=PASSWORD) == 200
    assert (await api.post(f"{PASSKEYS}/options", token=holder.token)).status == 200


async def test_the_password_beside_a_passkey_meets_a_policy_that_accepts_no_passkey(
    acme: Tenant, api: Api, holder: PasskeyUser, user: Account
) -> None:
    """The user made the passkey their second factor, so the confirmation needs the password and the passkey."""
    await holder.add(second_factor=True)
    await acme.join("ada", user)
    await put_policy(acme, acme.org, None, {"methods": ["password"]})
    token = (await sign_in_with_passkey(api, holder.authenticator)).json["access_token"]
    assert (await api.post(f"{PASSKEYS}/options", token=token)).status == 401
    offered = (await api.get(REAUTHENTICATE, token=token)).json
    assert (offered["methods"], offered["second_methods"]) == (["password"], ["passkey", "backup_code"])

    async def confirm(password: str) -> int:
        options = await api.post(f"{REAUTHENTICATE}/passkey/options", token=token)
        passkey = holder.authenticator.get(options.json["publicKey"])
        return (await api.post(REAUTHENTICATE, {"passkey": passkey, "password": password}, token=token)).status

    assert await confirm("a wrong password") == 401
    assert await confirm(PASSWORD) == 200
    assert (await api.post(f"{PASSKEYS}/options", token=token)).status == 200
