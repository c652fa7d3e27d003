"""Deletion of a service during sign-ins whose lock on its row PostgreSQL may lose (docs/adr/0006)."""

from collections.abc import Iterator

import pytest
import trio

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.kernel.errors import StorageDown
from core.kernel.principals import SYSTEM
from tests.applications.storage.services import put, service
from tests.fakes.outside import FakeClock
from tests.support import database
from tests.support.builders import add_organization, make_vault, run_sql
from tests.support.rows import NOW, account, add, in_another_task, within
from tests.support.storage_fixtures import server, storage

__all__ = ["server", "storage"]

ATTEMPTS = 60  # with the lock on the row alone, about one deletion in thirty does not wait


@pytest.fixture
def conninfo(server: str) -> Iterator[str]:
    """A database for this test, which changes the schema."""
    with database.Database(server) as own:
        yield own.conninfo


async def test_a_deletion_waits_for_a_login_while_others_update_the_row_of_the_service(
    storage: Postgres, pool: Pool, conninfo: str, clock: FakeClock
) -> None:
    # The row fills a page, so each update moves it to another one.
    await run_sql(pool, "alter table services alter redirect_uris set storage plain")
    user = await add(storage, account())
    one = await put(storage, service(await add_organization(pool, "acme"), redirect_uris=("x" * 7000,)))
    impatient_pool = Pool(conninfo, size=1, lock_timeout=0.02)
    impatient = Postgres(impatient_pool, make_vault(), clock)

    async def count_logins() -> None:
        while True:
            await run_sql(pool, "update services set user_count = user_count + 1")

    async def fail_to_delete() -> None:
        with pytest.raises(StorageDown):
            await within(impatient, lambda tx: tx.services.delete(one.org_id, one.id, NOW))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_logins)
        for _ in range(ATTEMPTS):
            async with storage.transaction(by=SYSTEM) as tx:
                assert await tx.end_users.enroll(one.id, user.id, NOW, signed_in=True)
                await in_another_task(fail_to_delete)
        nursery.cancel_scope.cancel()
    await impatient_pool.aclose()
