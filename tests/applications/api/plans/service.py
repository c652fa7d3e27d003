"""The service for the plans."""

from datetime import timedelta
from uuid import UUID

from tests.applications.api.services import Workshop
from tests.support.builders import run_sql

DAY = timedelta(days=1)


async def service_id(shops: Workshop) -> UUID:
    [(service,)] = await run_sql(shops.tenant.pool, "select id from services where slug = 'shop' and org_id = %s", shops.tenant.org)
    return service  # type: ignore[no-any-return]
