"""The values of the gauges."""

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.accounts.email_queue_rules import EmailOutcome
from core.accounts.platform_rules import PlatformFigures
from ports import Ports
from tests.support.builders import add_organization, run_sql
from tests.support.rows import EVE, MICROSECOND, NOW, account, add, mail, queue, within
from tests.support.siem import configure, make_sink, record


async def test_figures_count_active_accounts(storage: Postgres, pool: Pool) -> None:
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
        assert await read.platform.figures() == PlatformFigures(active_users=2, organizations=3, mfa_enabled_users=1)


async def test_due_jobs_can_start_now(storage: Postgres) -> None:
    await queue(storage, mail(), mail(due_at=NOW), mail(due_at=NOW + MICROSECOND), finished := mail())
    await within(storage, lambda tx: tx.email_queue.finish(finished, EmailOutcome.SENT, NOW))
    async with storage.reading() as read:
        assert await read.platform.due_jobs(NOW) == 2


async def test_queued_siem_entries_are_due_with_their_configuration(ports: Ports, pool: Pool) -> None:
    orgs = [await add_organization(pool, slug) for slug in ("acme", "twin", "off", "late")]
    for org in orgs:
        await configure(ports, make_sink(org))
        await record(ports, org, "1", "2", "3")
    await run_sql(pool, "update organizations set status = 'suspended' where slug = 'twin'")
    await configure(ports, make_sink(orgs[2], enabled=False))
    await run_sql(pool, "update siem_configurations set due_at = %s where org_id = %s", NOW + MICROSECOND, orgs[3])
    async with ports.storage.reading() as read:
        assert await read.platform.due_jobs(NOW) == 3
        assert await read.platform.due_jobs(NOW + MICROSECOND) == 6
