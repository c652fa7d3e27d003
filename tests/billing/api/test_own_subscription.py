"""GET /api/subscription (decision 113)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import pytest

from core.accounts.model.accounts import Account
from core.kernel.roles import OWNER, RoleName
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, add_account, add_platform_owner, impersonate, run_sql, sign_in
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.services import add_plan, add_service, add_subscription, sign_in_to
from tests.support.tenants import Tenant

PATH = "/api/subscription"
MONTH, SECOND = timedelta(days=30), timedelta(seconds=1)


@pytest.fixture
def cast() -> Mapping[str, RoleName]:
    """Organizations have only an owner, because the callers are users at a service."""
    return {"owner": OWNER}


@dataclass(frozen=True, slots=True)
class Shop:
    """A service with a plan, and a user who is signed in to it."""

    tenant: Tenant
    service: UUID
    gold: UUID
    user: Account
    token: str

    async def get(self) -> Answer:
        return await self.tenant.api.get(PATH, token=self.token)

    async def subscribe(self, status: str = "active", **changes: object) -> UUID:
        """Subscribe the user, by default for a month from now."""
        tenant = self.tenant
        ends = tenant.ports.clock.now() + MONTH
        fields = {"service": self.service, "user": self.user.id, "plan": self.gold, "status": status, "ends": ends} | changes
        return await add_subscription(tenant.ports, tenant.pool, **fields)  # type: ignore[arg-type]


@pytest.fixture
async def shop(acme: Tenant) -> Shop:
    service, user = await add_service(acme.pool, acme.org), await add_account(acme.ports, password=None)
    gold = await add_plan(acme.pool, service, features=("exports", "support"))
    return Shop(acme, service, gold, user, (await sign_in_to(acme.ports, acme.pool, service, user)).access_token)


async def test_the_response_has_every_field(shop: Shop) -> None:
    subscription = await shop.subscribe("past_due")
    answer = await shop.get()
    assert (answer.status, answer.json) == (
        200,
        {
            "id": str(subscription),
            "user_id": str(shop.user.id),
            "plan_id": str(shop.gold),
            "plan_name": "Gold",
            "status": "past_due",
            "current_period_end": "2026-04-13T15:09:26.535897Z",
            "features": ["exports", "support"],
        },
    )


async def test_the_live_subscription_is_returned_or_else_the_newest(shop: Shop, clock: FakeClock) -> None:
    subscription = await shop.subscribe("active")
    for status in ("cancelled", "expired"):
        clock.advance(SECOND)
        newest = await shop.subscribe(status)
    assert ((await shop.get()).json["id"], (await shop.get()).json["status"]) == (str(subscription), "active")
    await run_sql(shop.tenant.pool, "update subscriptions set status = 'cancelled' where id = %s", subscription)
    assert ((await shop.get()).json["id"], (await shop.get()).json["status"]) == (str(newest), "expired")


async def test_a_subscription_expires_at_the_end_of_its_period(shop: Shop, clock: FakeClock) -> None:
    await shop.subscribe(ends=clock.now() + SECOND)
    assert (await shop.get()).json["status"] == "active"
    clock.advance(SECOND)
    assert (await shop.get()).json["status"] == "expired"


async def test_a_user_without_a_subscription_gets_404_even_if_the_service_has_a_free_plan(shop: Shop) -> None:
    await add_plan(shop.tenant.pool, shop.service, "Free")
    assert refused(await shop.get()) == MISSING


async def test_subscriptions_of_other_users_and_other_services_are_not_returned(shop: Shop, other_tenant: Tenant) -> None:
    tenant = shop.tenant
    other_user = await add_account(tenant.ports, "other_user@example.com", None)
    await shop.subscribe(user=other_user.id)
    for desk in (await add_service(tenant.pool, tenant.org, "desk"), await add_service(other_tenant.pool, other_tenant.org)):
        await shop.subscribe(service=desk, plan=await add_plan(tenant.pool, desk))
    assert refused(await shop.get()) == MISSING


async def test_tokens_without_a_service_are_refused(shop: Shop) -> None:
    await shop.subscribe()
    tenant = shop.tenant
    await tenant.join("ada", shop.user)
    own_token = (await sign_in(tenant.ports, shop.user)).access_token
    for token in (own_token, tenant.token("ada"), await impersonate(tenant.ports, await add_platform_owner(tenant.ports), shop.user)):
        answer = await tenant.api.get(PATH, token=token)
        assert refused(answer) == BAD
        assert "application" in answer.json["error"]


async def test_a_former_user_of_the_service_is_refused(shop: Shop) -> None:
    await shop.subscribe()
    await run_sql(shop.tenant.pool, "delete from service_users")
    assert refused(await shop.get()) == FORBIDDEN
