"""The gauge values."""

from datetime import datetime, timedelta

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.email_queue import EmailBacklog, EmailOutcome
from core.accounts.model.platform import PlatformFigures
from ports import Ports
from tests.support.builders import add_organization, run_sql
from tests.support.rows import DAY, EVE, HOUR, MICROSECOND, NOW, SECOND, account, add, mail, queue, within
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
    await run_sql(pool, "update users set passkey_count = 1")
    async with storage.reading() as read:
        figures = await read.platform.figures()
    assert figures == PlatformFigures(active_users=2, organizations=3, mfa_enabled_users=1, passkey_users=2, password_alone_users=1)


async def test_due_jobs_can_start_now(storage: Postgres) -> None:
    await queue(storage, mail(), mail(due_at=NOW), mail(due_at=NOW + MICROSECOND), finished := mail())
    await within(storage, lambda tx: tx.email_queue.finish(finished, EmailOutcome.SENT, NOW))
    async with storage.reading() as read:
        assert await read.platform.due_jobs(NOW) == 2


async def test_the_email_backlog_has_due_and_failed_emails(storage: Postgres, pool: Pool) -> None:
    async def backlog(now: datetime = NOW) -> EmailBacklog:
        async with storage.reading() as read:
            return await read.platform.email_backlog(now)

    assert await backlog() == EmailBacklog(0, timedelta())
    await queue(storage, mail(created_at=NOW, due_at=NOW), later := mail(due_at=NOW + SECOND), failed := mail())
    await queue(storage, finished := mail(created_at=NOW - DAY))
    await within(storage, lambda tx: tx.email_queue.finish(finished, EmailOutcome.SENT, NOW))
    assert await backlog() == EmailBacklog(2, SECOND)
    await run_sql(pool, "update mails set claims = 1, attempts = 1, due_at = %s where id = %s", NOW + DAY, failed.id)
    assert await backlog() == EmailBacklog(2, HOUR)
    # An email that a directory caused waits from its due time on.
    await run_sql(pool, "update mails set claims = 1, directory_number = 1, due_at = %s where id = %s", NOW, later.id)
    assert await backlog(NOW + SECOND) == EmailBacklog(3, HOUR + SECOND)
    await run_sql(pool, "delete from mails where id = %s", failed.id)
    assert await backlog(NOW + SECOND) == EmailBacklog(2, SECOND)


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
    # Entries that their SIEM did not accept wait, too.
    await run_sql(pool, "update audit_log set created_at = %s where org_id = %s", NOW - HOUR, orgs[3])
    async with ports.storage.reading() as read:
        siem = {queue.name: queue for queue in await read.platform.queues(NOW)}["siem_entries"]
    assert (siem.depth, siem.age) == (6, HOUR)
