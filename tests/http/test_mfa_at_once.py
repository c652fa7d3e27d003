"""Codes of the second factor that meet: each is good once, and no guess goes uncounted (security.md M-1, M-2 and section 21)."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from quart_trio import QuartTrio

from adapters.postgres.pool import Pool
from core.accounts import Account
from core.guesses import TooManyGuesses
from core.mfa import CodeWrong
from core.policy import Policy
from ports import Ports
from tests.builders import Api, add_account, everyone, run_sql, sign_in
from tests.fakes.outside import FakeClock
from tests.http.direct import change_ports
from tests.mfa import STEP, Authenticator, accept, add_mfa, check

PATH = "/api/user/mfa"
MANY = Policy(mfa_guess_limit=10**6)

pytestmark = pytest.mark.slow


@pytest.fixture
async def ada(ports: Ports) -> Account:
    return await add_account(ports, password=None)


async def count(pool: Pool, event: str) -> int:
    [(found,)] = await run_sql(pool, "select count(*) from mfa_events where event_type = %s", event)
    return int(found)


async def shown(ports: Ports, account: Account, code: str) -> bool:
    """Whether somebody gets in with this code."""
    try:
        await accept(ports, account, await check(ports, account, code))
    except (CodeWrong, TooManyGuesses):
        return False
    return True


async def test_one_of_many_who_enable_with_one_code_does(app: QuartTrio, api: Api, ports: Ports, pool: Pool, ada: Account) -> None:
    change_ports(app, policy=MANY)
    tokens = [(await sign_in(ports, ada)).access_token for _ in range(20)]
    authenticator = Authenticator((await api.post(f"{PATH}/setup", token=tokens[0])).json["secret"], ports.clock)
    answers = await everyone(20, lambda number: api.post(f"{PATH}/verify", {"code": authenticator.code()}, token=tokens[number]))
    assert Counter(answer.status for answer in answers) == {200: 1, 400: 19}
    [winner] = [answer.json["backup_codes"] for answer in answers if answer.status == 200]
    assert await count(pool, "mfa_enabled") == 1
    assert await run_sql(pool, "select kind from mails") == [("mfa_enabled",)]
    assert await run_sql(pool, "select count(*) from audit_log") == [(1,)]
    assert [await shown(ports, ada, code) for code in winner] == [True] * 10, "the codes are those that the winner was shown"


async def test_of_enabling_and_setting_up_anew_at_once_the_codes_shown_are_those_that_count(
    app: QuartTrio, api: Api, ports: Ports, ada: Account, clock: FakeClock
) -> None:
    change_ports(app, policy=MANY)
    token = (await sign_in(ports, ada)).access_token
    for _ in range(5):
        begun = await api.post(f"{PATH}/setup", token=token)
        assert begun.status == 200
        authenticator = Authenticator(begun.json["secret"], ports.clock)
        clock.advance(timedelta(seconds=1))

        async def act(number: int, code: str = authenticator.code()) -> int:
            answer = await (
                api.post(f"{PATH}/verify", {"code": code}, token=token) if number % 2 else api.post(f"{PATH}/setup", token=token)
            )
            return answer.status

        statuses = await everyone(10, act)
        assert set(statuses) <= {200, 400}
        status = (await api.get(f"{PATH}/status", token=token)).json
        clock.advance(STEP)
        if status["enabled"]:
            assert await shown(ports, ada, authenticator.code())
            assert (await api.delete(PATH, token=token)).status == 200


async def test_one_of_many_who_show_one_code_gets_in(ports: Ports, pool: Pool, ada: Account, clock: FakeClock) -> None:
    authenticator = await add_mfa(ports, ada)
    ports = replace(ports, policy=MANY)
    for code in (authenticator.code(), authenticator.backup_codes[0]):
        assert (await everyone(20, lambda _, code=code: shown(ports, ada, code))).count(True) == 1  # type: ignore[misc]
    assert await count(pool, "mfa_verify_success") == 2
    assert await count(pool, "backup_code_used") == 1
    assert await run_sql(pool, "select kind from mails") == [("backup_code_used",)]


@pytest.mark.parametrize("kind", ["code", "backup code", "both"])
async def test_parallel_guesses_do_not_outrun_the_limit(ports: Ports, pool: Pool, ada: Account, kind: str) -> None:
    authenticator = await add_mfa(ports, ada)
    wrong = {"code": [authenticator.wrong()], "backup code": ["ZZZZ-9999"], "both": [authenticator.wrong(), "ZZZZ-9999"]}[kind]

    async def guess(number: int) -> str:
        try:
            await check(ports, ada, wrong[number % len(wrong)])
        except (CodeWrong, TooManyGuesses) as refusal:
            return type(refusal).__name__
        return "right"

    assert Counter(await everyone(40, guess)) == {"CodeWrong": 10, "TooManyGuesses": 30}
    assert await run_sql(pool, "select failures from guesses where secret = 'mfa'") == [(10,)]
    assert await count(pool, "mfa_verify_failed") == 10


async def test_switching_off_and_showing_a_code_at_once_leaves_nothing_half(api: Api, ports: Ports, pool: Pool, ada: Account) -> None:
    token = (await sign_in(ports, ada)).access_token
    for _ in range(5):
        authenticator = await add_mfa(ports, ada)

        async def act(number: int, authenticator: Authenticator = authenticator) -> object:
            if number == 5:
                return (await api.delete(PATH, token=token)).status
            return await shown(ports, ada, authenticator.backup_codes[number])

        results = await everyone(10, act)
        assert 200 in results
        stored = await run_sql(pool, "select 1 from mfa union all select 1 from backup_codes")
        assert (stored, await run_sql(pool, "select mfa_enabled_at from users")) == ([], [(None,)])
        assert not await shown(ports, ada, authenticator.backup_codes[9])


async def test_of_many_new_sets_of_codes_one_counts(api: Api, ports: Ports, ada: Account) -> None:
    token = (await sign_in(ports, ada)).access_token
    await add_mfa(ports, ada)
    answers = await everyone(10, lambda _: api.post(f"{PATH}/backup-codes/regenerate", token=token))
    assert {answer.status for answer in answers} == {200}
    good = [sum([await shown(ports, ada, code) for code in answer.json["backup_codes"][:1]]) for answer in answers]
    assert sorted(good) == [0] * 9 + [1]
