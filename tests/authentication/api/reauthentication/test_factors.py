"""POST /api/auth/reauthenticate: a user with an old session proves that they are there (security A-12)."""

import re
from datetime import timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import (
    EMAIL,
    NEW_PASSWORD,
    PASSWORD,
    Answer,
    Api,
    add_account,
    deliver,
    impersonate,
    run_concurrently,
    run_sql,
    sign_in,
)
from tests.support.connections.proofs import older_sessions
from tests.support.mfa import add_mfa
from tests.support.personal_tokens import add_personal_token
from tests.support.platform import Platform
from tests.support.refusals import BAD, FORBIDDEN, UNAUTHORIZED, refused

PATH = "/api/auth/reauthenticate"


@pytest.fixture
async def user(ports: Ports) -> Account:
    return await add_account(ports)


@pytest.fixture
async def token(ports: Ports, pool: Pool, user: Account) -> str:
    """The token for a ten-day-old session."""
    signed_in = await sign_in(ports, user)
    await run_sql(pool, older_sessions("10 days"))
    return signed_in.access_token


async def reauthenticate(api: Api, token: str, **proof: Any) -> Answer:
    return await api.post(PATH, proof, token=token)


async def is_fresh(api: Api, token: str) -> bool:
    """Return whether the session may set up a second factor."""
    return (await api.post("/api/user/mfa/setup", token=token)).status != 401


async def test_the_password_renews_the_sign_in_of_the_same_session(api: Api, token: str, clock: FakeClock, user: Account) -> None:
    assert not await is_fresh(api, token)
    options = await api.get(PATH, token=token)
    assert options.json["methods"] == ["password", "email"]
    assert (options.json["needs_first_factor"], options.json["needs_second_factor"]) == (True, False)
    answer = await reauthenticate(api, token, password=PASSWORD)
    assert answer.status == 200, answer.text
    assert answer.json.keys() == {"authenticated_at", "fresh_until", "recent_until"}
    assert await is_fresh(api, token)
    assert (await api.get(PATH, token=token)).json["needs_first_factor"] is False
    clock.advance(timedelta(minutes=10, seconds=1))
    assert not await is_fresh(api, token)


async def test_a_wrong_password_changes_nothing_and_counts_for_this_session_only(api: Api, ports: Ports, token: str, user: Account) -> None:
    answers = [await reauthenticate(api, token, password=NEW_PASSWORD) for _ in range(11)]
    assert [answer.status for answer in answers] == [401] * 10 + [429]
    assert answers[0].json["error"].startswith("The password is wrong.")
    assert "insufficient" not in answers[0].headers["WWW-Authenticate"]
    assert (await reauthenticate(api, token, password=PASSWORD)).status == 429
    assert not await is_fresh(api, token)
    assert (await reauthenticate(api, (await sign_in(ports, user)).access_token, password=PASSWORD)).status == 200
    assert (await api.login()).status == 200, "the thief of a session does not lock the user out"


async def test_an_emailed_code_works_once_in_its_session(
    api: Api, ports: Ports, pool: Pool, token: str, user: Account, sent: FakeMailTransport
) -> None:
    other = (await sign_in(ports, user)).access_token
    codes = []
    for _ in range(2):
        assert (await api.post(f"{PATH}/email", token=token)).status == 200
        await deliver(ports)
        assert sent.emails[-1].to == EMAIL
        codes += re.findall(r"^([0-9]{6})$", sent.emails[-1].text, re.MULTILINE)
    older, newest = codes
    assert refused(await reauthenticate(api, other, email_code=newest)) == UNAUTHORIZED, "the code belongs to a session"
    if older != newest:
        assert refused(await reauthenticate(api, token, email_code=older)) == UNAUTHORIZED
    statuses = await run_concurrently(5, lambda _: reauthenticate(api, token, email_code=newest))
    assert sorted(answer.status for answer in statuses) in ([200, 401, 401, 401, 401], [200, *[401] * 4])
    assert await is_fresh(api, token)
    assert newest not in str(await run_sql(pool, "select * from reauthentications"))


async def test_five_wrong_codes_end_the_emailed_code(api: Api, ports: Ports, token: str, sent: FakeMailTransport) -> None:
    await api.post(f"{PATH}/email", token=token)
    await deliver(ports)
    [code] = re.findall(r"^([0-9]{6})$", sent.emails[-1].text, re.MULTILINE)
    wrong = "000000" if code != "000000" else "111111"
    for _ in range(5):
        assert refused(await reauthenticate(api, token, email_code=wrong)) == UNAUTHORIZED
    assert refused(await reauthenticate(api, token, email_code=code)) == UNAUTHORIZED
    assert refused(await reauthenticate(api, token, email_code="12 34")) == BAD


async def test_new_codes_give_no_more_guesses(api: Api, ports: Ports, token: str, sent: FakeMailTransport) -> None:
    """A session thief cannot read the emails, but could ask for codes in a row."""
    for _ in range(2):
        assert (await api.post(f"{PATH}/email", token=token)).status == 200
        await deliver(ports)
        code = re.findall(r"^([0-9]{6})$", sent.emails[-1].text, re.MULTILINE)[0]
        for _ in range(5):
            assert (await reauthenticate(api, token, email_code="000000" if code != "000000" else "111111")).status == 401
    assert (await api.post(f"{PATH}/email", token=token)).status == 200
    await deliver(ports)
    code = re.findall(r"^([0-9]{6})$", sent.emails[-1].text, re.MULTILINE)[0]
    assert refused(await reauthenticate(api, token, email_code=code)) == (429, "RATE_LIMIT_EXCEEDED")


@pytest.mark.parametrize("change", ["update users set email = 'new@example.com'", "update users set email_verified_at = null"])
async def test_no_code_is_sent_to_or_works_for_another_address(
    api: Api, ports: Ports, pool: Pool, token: str, sent: FakeMailTransport, change: str
) -> None:
    await api.post(f"{PATH}/email", token=token)
    await deliver(ports)
    [code] = re.findall(r"^([0-9]{6})$", sent.emails[-1].text, re.MULTILINE)
    await run_sql(pool, change)
    if "verified" in change:
        assert refused(await api.post(f"{PATH}/email", token=token)) == BAD
        assert (await api.get(PATH, token=token)).json["methods"] == ["password"]
    else:
        assert refused(await reauthenticate(api, token, email_code=code)) == UNAUTHORIZED


async def test_a_second_factor_is_needed_too_and_its_code_works_once(
    api: Api, ports: Ports, token: str, user: Account, clock: FakeClock
) -> None:
    app = await add_mfa(ports, user)
    assert (await api.get(PATH, token=token)).json["needs_second_factor"] is True
    answer = await reauthenticate(api, token, password=PASSWORD)
    assert refused(answer) == UNAUTHORIZED
    assert answer.json["error"].startswith("Enter a code of your authenticator app too")
    assert refused(await reauthenticate(api, token, password=PASSWORD, code=app.wrong())) == UNAUTHORIZED
    assert refused(await reauthenticate(api, token, password=NEW_PASSWORD, code=app.code())) == UNAUTHORIZED
    assert refused(await reauthenticate(api, token, code=app.code())) == BAD, "the first factor is too old"
    code = app.code()
    answers = await run_concurrently(5, lambda _: reauthenticate(api, token, password=PASSWORD, code=code))
    assert sorted(answer.status for answer in answers) == [200, 401, 401, 401, 401]
    assert (await api.delete("/api/user/mfa", token=token)).status == 200


async def test_after_a_recent_first_factor_only_the_second_one_is_needed(api: Api, ports: Ports, pool: Pool, user: Account) -> None:
    """The same holds after a sign-in on a trusted device."""
    app = await add_mfa(ports, user)
    token = (await sign_in(ports, user)).access_token
    assert refused(await api.delete("/api/user/mfa", token=token)) == UNAUTHORIZED
    assert (await api.get(PATH, token=token)).json["needs_first_factor"] is False
    assert (await reauthenticate(api, token, code=app.backup_codes[0])).status == 200
    assert refused(await reauthenticate(api, token, code=app.backup_codes[0])) == UNAUTHORIZED, "it was used up"
    assert (await api.delete("/api/user/mfa", token=token)).status == 200
    events = {row[0] for row in await run_sql(pool, "select event_type from mfa_events")}
    assert {"mfa_verify_success", "backup_code_used"} <= events


async def test_without_any_factor_the_request_is_refused(api: Api, token: str) -> None:
    assert refused(await reauthenticate(api, token)) == BAD
    assert not await is_fresh(api, token)


async def test_only_users_with_a_session_of_their_own_can(api: Api, ports: Ports, user: Account, platform: Platform) -> None:
    assert refused(await reauthenticate(api, await impersonate(ports, platform.account, user), password=PASSWORD)) == FORBIDDEN
    assert refused(await reauthenticate(api, (await add_personal_token(ports, user)).text, password=PASSWORD)) == FORBIDDEN


async def test_a_session_that_a_password_change_ended_is_not_renewed(api: Api, ports: Ports, token: str, user: Account) -> None:
    own = (await sign_in(ports, user)).access_token
    change = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    renewed, changed = await run_concurrently(
        2, lambda n: reauthenticate(api, token, password=PASSWORD) if n == 0 else api.post("/api/user/change-password", change, token=own)
    )
    assert changed.status == 200
    assert renewed.status in (200, 401)
    assert (await api.get(PATH, token=token)).status == 401
