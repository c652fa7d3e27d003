"""The statements about device codes that tests/federation/api/device_flow do not cover."""

from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.federation.oauth.model.device_flow import CODE_TTL, DeviceCode, DeviceRequestStatus
from core.kernel.callers import ServiceContext
from core.kernel.values import digest
from tests.support.rows import NOW, account, add, begin, within
from tests.support.services import add_service, service_context

DEVICE, USER = digest("device"), digest("user")


@pytest.fixture
async def shop(storage: Postgres, pool: Pool, acme: UUID) -> ServiceContext:
    """A service with an approved device."""
    service = await service_context(pool, await add_service(pool, acme, "shop"))
    code = DeviceCode(
        device_code_hash=DEVICE,
        user_code_hash=USER,
        service=service,
        code_challenge=None,
        address=None,
        agent=None,
        created_at=NOW,
        expires_at=NOW + CODE_TTL,
    )
    assert await within(storage, lambda tx: tx.device_codes.add(code))
    approver = await begin(storage, (await add(storage, account())).id, "refresh")
    assert await within(storage, lambda tx: tx.device_codes.decide(USER, DeviceRequestStatus.APPROVED, approver.id, NOW))
    return service


async def test_an_approval_belongs_to_one_service_of_one_organization(storage: Postgres, shop: ServiceContext, other_tenant: UUID) -> None:
    async def redeem(service: ServiceContext) -> bool:
        return await within(storage, lambda tx: tx.device_codes.redeem(DEVICE, service, NOW))

    assert not await redeem(replace(shop, org_id=other_tenant))
    assert not await redeem(replace(shop, id=uuid4()))
    assert await redeem(shop)
    assert not await redeem(shop), "it works once"
