"""What the gauges show."""

from adapters.postgres.pool import Pool
from adapters.postgres.storage import Postgres
from core.mails import Outcome
from core.platform import Figures
from tests.adapters.rows import EVE, MICROSECOND, NOW, account, add, mail, queue, within
from tests.builders import add_organization, run_sql


async def test_figures_count_accounts_that_are_active(storage: Postgres, pool: Pool) -> None:
    await add(
        storage,
        account(),
        account(EVE, email_verified_at=None),
        account("c@example.com", deactivated_at=NOW),
        account("d@example.com", anonymized_at=NOW),
    )
    for slug, status in (("one", "active"), ("two", "pending"), ("three", "suspended")):
        await add_organization(pool, slug, status)
    await run_sql(pool, "update users set mfa_enabled_at = %s where email <> %s", NOW, EVE)
    async with storage.reading() as read:
        assert await read.platform.figures() == Figures(active_users=2, organizations=3, mfa_enabled_users=1)


async def test_due_work_is_what_could_start_now(storage: Postgres) -> None:
    await queue(storage, mail(), mail(due_at=NOW), mail(due_at=NOW + MICROSECOND), done := mail())
    await within(storage, lambda tx: tx.mails.finish(done, Outcome.SENT, NOW))
    async with storage.reading() as read:
        assert await read.platform.due_jobs(NOW) == 2
