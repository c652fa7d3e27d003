"""A passkey confirms in a session that its user is here."""

from datetime import timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.passkeys import CHALLENGE_TTL
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import BASE_URL, Answer, Api, add_account, run_concurrently, run_sql, sign_in
from tests.support.mfa import add_mfa
from tests.support.passkeys.authenticator import SoftAuthenticator, b64
from tests.support.passkeys.users import PASSKEYS, PasskeyUser, sign_in_options

PATH = "/api/auth/reauthenticate"
LATER = timedelta(minutes=12)


async def options_of(holder: PasskeyUser) -> Any:
    answer = await holder.api.post(f"{PATH}/passkey/options", token=holder.token)
    assert answer.status == 200, answer.text
    return answer.json["publicKey"]


async def confirm(holder: PasskeyUser, credential: Any) -> Answer:
    return await holder.api.post(PATH, {"passkey": credential}, token=holder.token)


async def test_a_passkey_confirms_everything(holder: PasskeyUser, user: Account, ports: Ports, pool: Pool, clock: FakeClock) -> None:
    await holder.add()
    await add_mfa(ports, user)
    clock.advance(LATER)
    assert (await holder.api.post(f"{PASSKEYS}/options", token=holder.token)).status == 401
    offered = await holder.api.get(PATH, token=holder.token)
    assert (offered.json["methods"], offered.json["needs_second_factor"]) == (["password", "email", "passkey"], True)
    options = await options_of(holder)
    assert [each["id"] for each in options["allowCredentials"]] == [b64(holder.authenticator.credentials[0].id)]
    assert options["userVerification"] == "required"
    answer = await confirm(holder, holder.authenticator.get(options))
    assert answer.status == 200, answer.text
    assert answer.json["authenticated_at"] == clock.now().isoformat().replace("+00:00", "Z")
    assert (await holder.api.post(f"{PASSKEYS}/options", token=holder.token)).status == 200
    assert await run_sql(pool, "select proofs -> -1 ->> 'method', strength from sessions") == [("passkey", 3)]
    assert await run_sql(pool, "select last_used_at from passkeys") == [(clock.now(),)]


async def test_an_account_without_passkeys_is_offered_none(holder: PasskeyUser) -> None:
    offered = await holder.api.get(PATH, token=holder.token)
    assert offered.json["methods"] == ["password", "email"]
    answer = await holder.api.post(f"{PATH}/passkey/options", token=holder.token)
    assert (answer.status, answer.json["error"].startswith("Your account has no passkey")) == (400, True)


async def test_passkeys_of_another_rp_id_are_not_offered(holder: PasskeyUser, pool: Pool) -> None:
    await holder.add()
    await run_sql(pool, "update passkeys set rp_id = 'old.test'")
    assert "passkey" not in (await holder.api.get(PATH, token=holder.token)).json["methods"]
    assert (await holder.api.post(f"{PATH}/passkey/options", token=holder.token)).status == 400


async def test_a_passkey_of_another_user_confirms_nothing(api: Api, holder: PasskeyUser, ports: Ports, clock: FakeClock) -> None:
    await holder.add()
    other = PasskeyUser(api, (await sign_in(ports, await add_account(ports, "eve@example.com"))).access_token)
    await other.add()
    clock.advance(LATER)
    options = await options_of(holder)
    options["allowCredentials"] = []
    assert (await confirm(holder, other.authenticator.get(options))).status == 401
    assert (await holder.api.post(f"{PASSKEYS}/options", token=holder.token)).status == 401


async def test_the_challenge_is_of_this_session_ceremony_and_time(
    api: Api, holder: PasskeyUser, user: Account, ports: Ports, clock: FakeClock
) -> None:
    await holder.add()
    elsewhere = PasskeyUser(api, (await sign_in(ports, user)).access_token, holder.authenticator)
    credential = holder.authenticator.get(await options_of(holder))
    assert (await confirm(elsewhere, credential)).status == 401
    assert (await api.post("/api/auth/passkey", {"credential": credential})).status == 401
    assert (await confirm(holder, holder.authenticator.get(await sign_in_options(api)))).status == 401
    assert (await confirm(holder, credential)).status == 200
    assert (await confirm(holder, credential)).status == 401, "it works once"
    late = holder.authenticator.get(await options_of(holder))
    clock.advance(CHALLENGE_TTL)
    assert (await confirm(holder, late)).status == 401


async def test_the_user_handle_can_be_missing(holder: PasskeyUser) -> None:
    """Some authenticators leave it out if the credential was named, or return zero bytes."""
    await holder.add()
    for handle, status in ((..., 200), (None, 200), ("", 200), (b64(b"x" * 64), 401), (b64(b"x"), 401)):
        credential = holder.authenticator.get(await options_of(holder))
        if handle is ...:
            del credential["response"]["userHandle"]
        else:
            credential["response"]["userHandle"] = handle
        assert (await confirm(holder, credential)).status == status, handle


@pytest.mark.parametrize("changes", [{"verifies": False}, {"origin": "https://evil.example"}, {"client_data": {"crossOrigin": True}}])
async def test_a_refused_answer_confirms_nothing(holder: PasskeyUser, pool: Pool, clock: FakeClock, changes: dict[str, Any]) -> None:
    await holder.add()
    before = await run_sql(pool, "select authenticated_at, proofs from sessions")
    clock.advance(LATER)
    for name, value in changes.items():
        setattr(holder.authenticator, name, value)
    assert (await confirm(holder, holder.authenticator.get(await options_of(holder)))).status == 401
    assert await run_sql(pool, "select reason from login_events where not success") == [("passkey",)]
    assert await run_sql(pool, "select authenticated_at, proofs from sessions") == before


@pytest.mark.slow
async def test_of_20_answers_with_one_challenge_one_confirms(holder: PasskeyUser) -> None:
    holder.authenticator = SoftAuthenticator(origin=BASE_URL, backup_eligible=False, backed_up=False, step=1)
    await holder.add()
    options = await options_of(holder)
    answers = [holder.authenticator.get(options) for _ in range(20)]

    async def send(number: int) -> int:
        return (await confirm(holder, answers[number])).status

    assert sorted(await run_concurrently(20, send)) == [200] + [401] * 19
