"""Storage for the list of all organizations."""

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.accounts import DELETED_ACCOUNT, AccountSummary
from core.kernel.callers import OrganizationStatus
from tests.support.builders import add_member, add_organization, run_sql
from tests.support.rows import ADA, EVE, account, add


async def test_an_organization_is_listed_with_its_owner(storage: Postgres, pool: Pool) -> None:
    user, eve = account(ADA, is_platform_owner=True), account(EVE)
    await add(storage, user, eve)
    org, lost = await add_organization(pool, "acme"), await add_organization(pool, "lost")
    for one in (org, lost):
        await add_member(pool, one, eve.id, "admin")
    await add_member(pool, org, user.id, "owner")
    await run_sql(pool, "update organizations set created_at = created_at - interval '1 day' where id = %s", org)
    async with storage.reading() as read:
        page = await read.organizations.page_with_owners(None, None, 50, 0)
        organizations = [await read.organizations.by_id(one) for one in (lost, org)]
    assert [item.organization for item in page.items] == organizations
    assert [item.owner for item in page.items] == [DELETED_ACCOUNT, AccountSummary(str(user.id), ADA, True, user.created_at)]
    assert page.total == 2


async def test_an_empty_page_has_the_total(storage: Postgres, pool: Pool) -> None:
    async with storage.reading() as read:
        assert (await read.organizations.page_with_owners(None, None, 50, 0)).total == 0
    for slug, status in (("one", "active"), ("two", "active"), ("three", "pending")):
        await add_organization(pool, slug, status)
    async with storage.reading() as read:
        page = await read.organizations.page_with_owners(OrganizationStatus.ACTIVE, None, 50, 7)
    assert (page.items, page.total) == ([], 2)
