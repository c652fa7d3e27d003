"""The caller's own subscription over HTTP (identity.md sections 2.4 and 4.2; decisions, points 53, 76 and 113)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import pytest

from core.accounts.accounts_rules import Account
from core.kernel.principals import Role
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, add_account, add_platform_owner, impersonate, run_sql, sign_in
from tests.support.refusals import BAD, FORBIDDEN, MISSING, refused
from tests.support.services import add_plan, add_service, add_subscription, sign_in_to
from tests.support.tenants import Tenant

PATH = "/api/subscription"
MONTH, SECOND = timedelta(days=30), timedelta(seconds=1)


@pytest.fixture
def cast() -> Mapping[str, Role]:
    """Organizations need an owner only: it is users of a service who call here."""
    return {"owner": Role.OWNER}


@dataclass(frozen=True, slots=True)
class Shop:
    """A service with a plan, and somebody who is signed in to it."""

    tenant: Tenant
    service: UUID
    gold: UUID
    ada: Account
    token: str

    async def look(self) -> Answer:
        return await self.tenant.api.get(PATH, token=self.token)

    async def subscribe(self, status: str = "active", **changes: object) -> UUID:
        """Ada has been subscribed, by default for a month from now on; a later one is newer."""
        team = self.tenant
        ends = team.ports.clock.now() + MONTH
        given = {"service": self.service, "user": self.ada.id, "plan": self.gold, "status": status, "ends": ends} | changes
        return await add_subscription(team.ports, team.pool, **given)  # type: ignore[arg-type]


@pytest.fixture
async def shop(acme: Tenant) -> Shop:
    service, ada = await add_service(acme.pool, acme.org), await add_account(acme.ports, password=None)
    gold = await add_plan(acme.pool, service, features=("exports", "support"))
    return Shop(acme, service, gold, ada, (await sign_in_to(acme.ports, acme.pool, service, ada)).access_token)


async def test_it_is_shown_with_every_field(shop: Shop) -> None:
    subscription = await shop.subscribe("past_due")
    answer = await shop.look()
    assert (answer.status, answer.json) == (
        200,
        {
            "id": str(subscription),
            "user_id": str(shop.ada.id),
            "plan_id": str(shop.gold),
            "plan_name": "Gold",
            "status": "past_due",
            "current_period_end": "2026-04-13T15:09:26.535897Z",
            "features": ["exports", "support"],
        },
    )


async def test_the_live_one_counts_and_without_one_the_newest(shop: Shop, clock: FakeClock) -> None:
    live = await shop.subscribe("active")
    for status in ("cancelled", "expired"):
        clock.advance(SECOND)
        newest = await shop.subscribe(status)
    assert ((await shop.look()).json["id"], (await shop.look()).json["status"]) == (str(live), "active")
    await run_sql(shop.tenant.pool, "update subscriptions set status = 'cancelled' where id = %s", live)
    assert ((await shop.look()).json["id"], (await shop.look()).json["status"]) == (str(newest), "expired")


async def test_one_whose_period_is_over_has_expired(shop: Shop, clock: FakeClock) -> None:
    await shop.subscribe(ends=clock.now() + SECOND)
    assert (await shop.look()).json["status"] == "active"
    clock.advance(SECOND)
    assert (await shop.look()).json["status"] == "expired"


async def test_without_one_there_is_none_also_where_the_service_has_something_for_free(shop: Shop) -> None:
    await add_plan(shop.tenant.pool, shop.service, "Free")
    assert refused(await shop.look()) == MISSING


async def test_nobody_sees_what_is_somebody_elses_or_another_services(shop: Shop, twin: Tenant) -> None:
    team = shop.tenant
    eve = await add_account(team.ports, "eve@example.com", None)
    await shop.subscribe(user=eve.id)
    for desk in (await add_service(team.pool, team.org, "desk"), await add_service(twin.pool, twin.org)):
        await shop.subscribe(service=desk, plan=await add_plan(team.pool, desk))
    assert refused(await shop.look()) == MISSING


async def test_it_takes_a_token_of_a_service(shop: Shop) -> None:
    await shop.subscribe()
    team = shop.tenant
    await team.join("ada", shop.ada)
    own = (await sign_in(team.ports, shop.ada)).access_token
    for token in (own, team.token("ada"), await impersonate(team.ports, await add_platform_owner(team.ports), shop.ada)):
        answer = await team.api.get(PATH, token=token)
        assert refused(answer) == BAD
        assert "service" in answer.json["error"]


async def test_who_does_not_use_the_service_any_more_is_not_told(shop: Shop) -> None:
    await shop.subscribe()
    await run_sql(shop.tenant.pool, "delete from service_users")
    assert refused(await shop.look()) == FORBIDDEN
