"""Blocks that processes of the previous release write, and read, during an upgrade."""

from uuid import UUID

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from tests.support.builders import add_provisioned, run_sql
from tests.support.rows import NOW, account, add, within


async def test_a_block_of_the_previous_release_counts_until_it_removes_it(storage: Postgres, pool: Pool, acme: UUID) -> None:
    user = await add(storage, account(is_platform_owner=False))
    await add_provisioned(pool, acme, user.id)
    for deactivated_at in (NOW, None):
        await run_sql(pool, "update scim_users set deactivated_at = %s", deactivated_at)
        async with storage.reading() as read:
            assert await read.directory_blocks.exists(acme, user.id) == (deactivated_at is not None)
    await run_sql(pool, "update scim_users set deactivated_at = %s", NOW)
    await run_sql(pool, "delete from scim_users")  # the directory forgets the user, who stays blocked
    assert await run_sql(pool, "select user_id from directory_blocks") == [(user.id,)]


async def test_the_previous_release_sees_our_blocks(storage: Postgres, pool: Pool, acme: UUID) -> None:
    user = await add(storage, account(is_platform_owner=False))
    await within(storage, lambda tx: tx.directory_blocks.add(acme, user.id, NOW))
    assert await run_sql(pool, "select deactivated_at, membership_id from scim_users") == [(NOW, None)]
    await within(storage, lambda tx: tx.directory_blocks.remove(acme, user.id))
    assert await run_sql(pool, "select deactivated_at from scim_users") == [(None,)]
