"""Limits on the statements that count figures."""

import pytest

from adapters.postgres.applications import figures as applications_figures
from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications import figures
from core.kernel.errors import StorageDown
from core.kernel.values import new_id
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import make_vault, run_sql
from tests.support.rows import DAY, NOW, within

SLOW = "select pg_sleep(0.6)"


async def test_counting_may_take_longer_than_other_statements(conninfo: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COUNT_SIGN_INS", "COUNT_POPULATIONS"):
        monkeypatch.setattr(applications_figures, name, SLOW)
    pool = Pool(conninfo, size=1, statement_timeout=0.3)
    storage = Postgres(pool, make_vault(), clock)
    async with pool.connection() as connection:
        usual = connection.answer_within
    await within(storage, lambda tx: tx.figure_counting.count_hour(NOW))
    await within(storage, lambda tx: tx.figure_counting.count_populations(NOW))
    async with pool.connection() as connection:
        assert connection.answer_within == usual
    with pytest.raises(StorageDown):
        await within(storage, lambda tx: tx.figure_counting._run(SLOW))
    await pool.aclose()


async def test_old_figures_are_deleted_if_counting_fails(
    ports: Ports, pool: Pool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = "insert into user_figures values (%s, 'hour', %s, 1, 1, 1, 1)"
    await run_sql(pool, old, new_id(), clock.now() - 3 * DAY)
    monkeypatch.setattr(applications_figures, "COUNT_SIGN_INS", "select 1 / 0")
    with pytest.raises(Exception, match="division by zero"):
        await figures.count(ports, new_id())
    assert await run_sql(pool, "select count(*) from user_figures") == [(0,)]
