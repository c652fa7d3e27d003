"""Races for a recovery: of twenty requests at once, a single request opens it, and a single request finishes it (security M-8, Z-1)."""

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from tests.authentication.api.recovery.lost import REASON, WRONG, LostUser, add_lost_user, app_of
from tests.fakes.outside import FakeMailTransport
from tests.support.browser import FakeBrowser, form_token
from tests.support.builders import run_concurrently, run_sql
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow


@pytest.fixture
async def ada(app: QuartTrio, acme: Tenant, sent: FakeMailTransport) -> LostUser:
    return await add_lost_user(acme, FakeBrowser(app), sent)


async def test_one_of_twenty_browsers_opens_a_recovery(ada: LostUser, app: QuartTrio) -> None:
    code = await ada.issue()
    token = await ada.link()
    browsers = [FakeBrowser(app) for _ in range(20)]
    answers = await run_concurrently(20, lambda number: ada.open(token, code, browsers[number]))
    assert sorted(answer.status for answer in answers) == [303, *[400] * 19]


async def test_twenty_wrong_codes_count_as_five(ada: LostUser, app: QuartTrio, pool: Pool) -> None:
    code = await ada.issue()
    token = await ada.link()
    browsers = [FakeBrowser(app) for _ in range(20)]
    answers = await run_concurrently(20, lambda number: ada.open(token, WRONG, browsers[number]))
    assert {answer.status for answer in answers} == {400}
    assert await run_sql(pool, "select count(*) from account_recoveries") == [(0,)], "the fifth one ends it"
    assert (await ada.open(token, code)).status == 400
    assert await run_sql(pool, "select count(*) from mfa_events where event_type = 'recovery_failed'") == [(5,)]
    assert await run_sql(pool, "select count(*) from audit_log where action = 'security.recovery.failed'") == [(5,)]


async def test_one_of_twenty_finishes_a_recovery(ada: LostUser, pool: Pool) -> None:
    path = await ada.recover()
    page = await ada.browser.open(path)
    form, code = form_token(page), app_of(ada, page).code()
    answers = await run_concurrently(20, lambda _: ada.browser.send(f"{path}/app", form_token=form, code=code))
    assert sorted(answer.status for answer in answers) == [200, *[400] * 19]
    assert await run_sql(pool, "select count(*) from backup_codes") == [(10,)]
    assert await run_sql(pool, "select count(*) from mfa_events where event_type = 'recovered'") == [(1,)]


async def test_of_twenty_starts_one_recovery_remains(ada: LostUser, pool: Pool) -> None:
    tokens = [ada.acme.token(name) for name in ("owner", "admin")]

    async def start(number: int) -> tuple[int, str]:
        answer = await ada.acme.api.post(ada.path, {"reason": REASON}, token=tokens[number % 2])
        return answer.status, answer.json.get("code", "")

    answers = await run_concurrently(20, start)
    assert sorted(status for status, _ in answers) == [201] * 5 + [429] * 15, "more links could not be sent"
    assert await run_sql(pool, "select count(*) from account_recoveries") == [(1,)]


async def test_a_canceled_recovery_is_not_finished(ada: LostUser, pool: Pool) -> None:
    path = await ada.recover()
    page = await ada.browser.open(path)
    form, code = form_token(page), app_of(ada, page).code()

    async def act(number: int) -> int:
        if number % 2:
            return (await ada.acme.api.delete(ada.path, token=ada.acme.token("admin"))).status
        return (await ada.browser.send(f"{path}/app", form_token=form, code=code)).status

    statuses = await run_concurrently(20, act)
    is_finished = bool(await run_sql(pool, "select 1 from mfa_events where event_type = 'recovered'"))
    assert (statuses.count(200), statuses.count(204)) == ((1, 0) if is_finished else (0, 1))
