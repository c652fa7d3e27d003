"""What is asked before somebody acts as somebody else: each condition."""

from uuid import uuid4

import pytest

from adapters.postgres.pool import Pool
from adapters.postgres.storage import Postgres
from core.access import SYSTEM
from tests.adapters.rows import DAY, EVE, NOW, account, add, begin, within
from tests.builders import add_organization, run_sql


@pytest.mark.parametrize("status", ["pending", "active", "suspended", "rejected"])
async def test_an_organization_is_known_by_its_slug_whatever_its_status(storage: Postgres, pool: Pool, status: str) -> None:
    org = await add_organization(pool, "acme", status)
    await add_organization(pool, "twin", status)
    for slug, found in (("acme", org), ("Acme", None), ("acm_", None), ("", None)):
        assert await within(storage, lambda tx, slug=slug: tx.organizations.id_of(slug)) == found, slug  # type: ignore[misc]


async def test_a_live_session_of_the_person_has_an_end(storage: Postgres, pool: Pool) -> None:
    await add(storage, ada := account(), eve := account(EVE))
    begun, hers = await begin(storage, ada.id, "ada"), await begin(storage, eve.id, "eve", ends_at=NOW + DAY)
    async with storage.transaction(by=SYSTEM) as tx:
        ends_at = tx.sessions.ends_at
        assert await ends_at(begun.id, ada.id, NOW) == NOW + 90 * DAY
        assert await ends_at(hers.id, eve.id, NOW) == NOW + DAY
        for session_id, user_id in ((hers.id, ada.id), (begun.id, eve.id), (uuid4(), ada.id)):
            assert await ends_at(session_id, user_id, NOW) is None


@pytest.mark.parametrize("column", ["ended_at", "expires_at"])
async def test_a_session_that_is_over_has_none(storage: Postgres, pool: Pool, column: str) -> None:
    ada = await add(storage, account())
    begun = await begin(storage, ada.id, "ada")
    await run_sql(pool, f"update sessions set {column} = %s", NOW)  # noqa: S608
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.ends_at(begun.id, ada.id, NOW) is None
