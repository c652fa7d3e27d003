"""Races for second-factor codes: a code works once, and every failed attempt is counted (security M-1, M-2, Z-1)."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
import trio
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.attempt_limits import TooManyAttempts
from core.accounts.model.devices import PresentedDevice
from core.accounts.model.mfa import CodeWrong
from core.authentication.flow.methods import SignInMethod
from core.authentication.flow.model import Flow, FlowTarget, new_flow
from core.authentication.flow.prove import prove
from core.authentication.methods.password import Password
from core.authentication.methods.second_factor import Code
from core.authentication.model.identities import PendingIdentity
from core.authentication.model.login import PreAuthInvalid, SignedIn
from core.kernel.causes import SYSTEM
from core.kernel.connections import ConnectionSlug, ProviderTokens
from core.kernel.policy import Policy
from core.kernel.proofs import first_proof
from core.kernel.values import digest
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import PASSWORD, Answer, Api, add_account, run_concurrently, run_during, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.mfa import STEP, Authenticator, add_mfa, show
from tests.support.rows import until_blocked

PATH = "/api/user/mfa"
MANY = Policy(mfa_guess_limit=10**6)

pytestmark = pytest.mark.slow


@pytest.fixture
async def user(ports: Ports) -> Account:
    return await add_account(ports, password=None)


async def count(pool: Pool, event: str) -> int:
    [(events,)] = await run_sql(pool, "select count(*) from mfa_events where event_type = %s", event)
    return int(events)


async def code_works(ports: Ports, account: Account, code: str) -> bool:
    """Return whether a sign-in with this code succeeds."""
    try:
        await show(ports, account, code)
    except (CodeWrong, PreAuthInvalid, TooManyAttempts):
        return False
    return True


async def test_of_20_concurrent_confirmations_one_succeeds(app: QuartTrio, api: Api, ports: Ports, pool: Pool, user: Account) -> None:
    change_ports(app, policy=MANY)
    tokens = [(await sign_in(ports, user)).access_token for _ in range(20)]
    authenticator = Authenticator((await api.post(f"{PATH}/setup", token=tokens[0])).json["secret"], ports.clock)
    answers = await run_concurrently(20, lambda number: api.post(f"{PATH}/verify", {"code": authenticator.code()}, token=tokens[number]))
    statuses = Counter(answer.status for answer in answers)
    assert (statuses[200], statuses[400] + statuses[401]) == (1, 19), statuses  # 401: the session lacks the factor that is on now
    [winning_codes] = [answer.json["backup_codes"] for answer in answers if answer.status == 200]
    assert await count(pool, "mfa_enabled") == 1
    assert await run_sql(pool, "select kind from mails") == [("mfa_enabled",)]
    assert await run_sql(pool, "select count(*) from audit_log") == [(1,)]
    assert [await code_works(ports, user, code) for code in winning_codes] == [True] * 10, "the codes are those of the successful response"


async def run_in_order(pool: Pool, acts: Sequence[Callable[[], Awaitable[Answer]]]) -> list[Answer]:
    """Send requests that wait for the account's lock, in this order, and return their answers."""
    answers: dict[int, Answer] = {}

    async def one(number: int) -> None:
        answers[number] = await acts[number]()

    async with trio.open_nursery() as nursery, pool.connection() as connection, connection.transaction():
        await connection.execute("select from users for no key update")
        for number in range(len(acts)):
            nursery.start_soon(one, number)
            await until_blocked(pool, number + 1)
    return [answers[number] for number in range(len(acts))]


@pytest.mark.parametrize("enabling", ["first", "second"])
async def test_a_concurrent_confirmation_and_setup_leave_working_codes(
    api: Api, ports: Ports, pool: Pool, user: Account, clock: FakeClock, enabling: str
) -> None:
    token = (await sign_in(ports, user)).access_token
    old = Authenticator((await api.post(f"{PATH}/setup", token=token)).json["secret"], ports.clock)
    clock.advance(timedelta(seconds=1))
    acts = [lambda: api.post(f"{PATH}/verify", {"code": old.code()}, token=token), lambda: api.post(f"{PATH}/setup", token=token)]
    first, second = await run_in_order(pool, acts if enabling == "first" else acts[::-1])
    assert (first.status, second.status) == (200, 400)
    clock.advance(STEP)
    if enabling == "second":
        assert (await api.get(f"{PATH}/status", token=token)).json["enabled"] is False
        new = Authenticator(first.json["secret"], ports.clock)
        assert (await api.post(f"{PATH}/verify", {"code": new.code()}, token=token)).status == 200
    else:
        assert [await code_works(ports, user, code) for code in (old.code(), first.json["backup_codes"][0])] == [True, True]


async def test_concurrent_disabling_and_use_of_a_code_leave_no_partial_state(api: Api, ports: Ports, pool: Pool, user: Account) -> None:
    for _ in range(5):
        authenticator = await add_mfa(ports, user)
        token = (await sign_in(ports, user, second_factor=True)).access_token  # the previous factor has left the earlier sessions

        async def act(number: int, authenticator: Authenticator = authenticator, token: str = token) -> object:
            if number == 5:
                return (await api.delete(PATH, token=token)).status
            return await code_works(ports, user, authenticator.backup_codes[number])

        results = await run_concurrently(10, act)
        assert 200 in results
        rows = await run_sql(pool, "select 1 from mfa union all select 1 from backup_codes")
        assert (rows, await run_sql(pool, "select mfa_enabled_at from users")) == ([], [(None,)])
        assert not await code_works(ports, user, authenticator.backup_codes[9])


async def test_a_correct_code_that_comes_too_late_is_no_failed_attempt(ports: Ports, pool: Pool, user: Account) -> None:
    authenticator = await add_mfa(ports, user)
    with pytest.raises(PreAuthInvalid):
        await run_during(pool, [("update users set anonymized_at = now()", ())], lambda: show(ports, user, authenticator.code()))
    assert await run_sql(pool, "select * from guesses") == []


async def test_of_10_concurrent_sets_of_backup_codes_one_works(api: Api, ports: Ports, user: Account) -> None:
    token = (await sign_in(ports, user, second_factor=True)).access_token
    await add_mfa(ports, user)
    answers = await run_concurrently(10, lambda _: api.post(f"{PATH}/backup-codes/regenerate", token=token))
    assert {answer.status for answer in answers} == {200}
    good = [sum([await code_works(ports, user, code) for code in answer.json["backup_codes"][:1]]) for answer in answers]
    assert sorted(good) == [0] * 9 + [1]


async def test_a_code_does_not_continue_a_first_factor_that_was_proved_again(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    """The earlier first factor's identity is not linked: it may have been unlinked since."""
    user = await add_account(ports)
    authenticator = await add_mfa(ports, user)
    now, browser = clock.now(), digest("a browser")
    tokens, issuer = ProviderTokens("x", None, None, ()), "https://codehost.example"
    identity = PendingIdentity(None, ConnectionSlug("codehost"), issuer, "4711", None, tokens, known_elsewhere=False)
    flow = new_flow(
        now,
        FlowTarget.PAGE,
        "/app/account",
        browser,
        user_id=user.id,
        proofs=(first_proof("codehost", now),),
        proofs_expire_at=now + timedelta(minutes=10),
        identity=identity,
    )
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.flows.add(flow)
    flow = replace(flow, is_stored=True)
    clock.advance(timedelta(seconds=1))
    outcomes: list[SignedIn | Flow | type[Exception]] = []

    async def answer(method: SignInMethod) -> None:
        try:
            outcomes.append(await prove(ports, SYSTEM, flow, method, PresentedDevice()))
        except PreAuthInvalid as refusal:
            outcomes.append(type(refusal))

    async with trio.open_nursery() as nursery, pool.connection() as connection, connection.transaction():
        await connection.execute("select from users for no key update")
        nursery.start_soon(answer, Password(user.email, PASSWORD))
        await until_blocked(pool, 1)
        nursery.start_soon(answer, Code(authenticator.code()))
        await until_blocked(pool, 2)
    assert len(outcomes) == 2
    assert PreAuthInvalid in outcomes
    [waiting] = [each for each in outcomes if isinstance(each, Flow)]  # the tasks end in any order
    outcome = await prove(ports, SYSTEM, waiting, Code(authenticator.code()), PresentedDevice())
    assert isinstance(outcome, SignedIn)
    assert await run_sql(pool, "select (select count(*) from sessions), (select count(*) from identities)") == [(1, 0)]
