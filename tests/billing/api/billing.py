"""Helpers: a service with plans for sale, and the payment provider's events about it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from structlog.testing import capture_logs

from core.kernel.values import rfc3339
from tests.fakes.outside import FakeClock
from tests.fakes.payments import MONTH, SECRET, Object, event, sign, subscription
from tests.support.builders import Answer, run_sql
from tests.support.services import add_api_key, add_plan, add_service
from tests.support.tenants import Tenant

RECEIVER = "/webhooks/billing"
CREATED, UPDATED, DELETED = (f"customer.subscription.{change}" for change in ("created", "updated", "deleted"))
PAYMENT_PAGE = "https://invoice.provider.example/i/1?s=ap"
DAY = 86400  # seconds, as in events


@dataclass(slots=True)
class Till:
    """A service with the plans gold and silver, which a member can buy, and the receiver for the provider's events."""

    tenant: Tenant
    clock: FakeClock
    service: UUID
    gold: UUID
    silver: UUID

    @property
    def now(self) -> int:
        """Return the time in whole seconds, as in events."""
        return int(self.clock.now().timestamp())

    @property
    def ends(self) -> int:
        return self.now + MONTH

    def metadata(self, **changes: object) -> dict[str, str]:
        fields: dict[str, object] = {
            "user_id": self.tenant.id("member"),
            "service_id": self.service,
            "plan_id": self.gold,
            "org_id": self.tenant.org,
        }
        return {name: str(value) for name, value in {**fields, **changes}.items() if value is not None}

    def subscription(self, id_: str = "sub_1", **changes: Any) -> Object:
        """Return a provider's subscription that the member has bought, for a month from now."""
        fields = {"metadata": self.metadata(), "current_period_end": self.ends, **changes}
        return subscription(id_, **fields)

    async def post(self, body: bytes, header: str | None = None, **headers: str) -> Answer:
        signed = {"billing-signature": sign(body, SECRET, self.now) if header is None else header, **headers}
        return await self.tenant.api.call("POST", RECEIVER, raw=body, headers={name: value for name, value in signed.items() if value})

    async def send(self, one: Mapping[str, Any]) -> Answer:
        self.clock.advance(timedelta(milliseconds=1))  # so that audit entries have a defined order
        return await self.post(json.dumps(one).encode())

    async def send_for_status(self, one: Mapping[str, Any]) -> int:
        return (await self.send(one)).status

    async def deliver(self, type_: str, about: Mapping[str, Any], at: int | None = None, **changes: Any) -> None:
        """Send an event, which must be accepted."""
        answer = await self.send(event(type_, about, self.now if at is None else at, **changes))
        assert (answer.status, answer.json) == (200, {"status": "success"}), answer.text

    async def deliver_for_effects(self, type_: str, about: Mapping[str, Any], at: int) -> list[str]:
        """Send an event, and return the effects that are logged."""
        with capture_logs() as logs:
            await self.deliver(type_, about, at)
        return [line["effect"] for line in logs if line["event"] == "billing_event"]

    async def reset(self) -> None:
        """Delete all traces left by events and subscriptions."""
        for table in ("subscriptions", "billing_events", "billing_facts", "billing_checkouts", "billing_cancellations", "mails"):
            await run_sql(self.tenant.pool, f"delete from {table}")  # noqa: S608

    async def stored_rows(self) -> list[tuple[Any, ...]]:
        """Return all rows that events can create."""
        tables = (
            "billing_events",
            "billing_facts",
            "billing_customers",
            "billing_checkouts",
            "subscriptions",
            "audit_log",
            "events",
            "mails",
        )
        return [row for table in tables for row in await run_sql(self.tenant.pool, f"select '{table}', t::text from {table} t")]  # noqa: S608

    async def rows(self) -> list[tuple[str, str, str]]:
        """Return status, plan and period end for all subscriptions, oldest first."""
        rows = await run_sql(
            self.tenant.pool,
            """
            select s.status, p.name, s.current_period_end from subscriptions s join plans p on p.id = s.plan_id
            order by s.created_at, s.id""",
        )
        return [(status, plan, rfc3339(end)) for status, plan, end in rows]

    async def status(self) -> str | None:
        """Return the only subscription's status, or None if there is none."""
        rows = await self.rows()
        assert len(rows) <= 1, rows
        return rows[0][0] if rows else None

    async def recorded(self) -> list[str]:
        """Return the audit actions about subscriptions, oldest first."""
        rows = await run_sql(
            self.tenant.pool, "select action from audit_log where target_type = 'subscription' order by created_at, action"
        )
        return [action for (action,) in rows]

    async def by_key(self, method: str = "PATCH", **fields: Any) -> Answer:
        """Change the member's subscription with the service's API key."""
        headers = {"X-Api-Key": await add_api_key(self.tenant.pool, self.service)}
        path = f"/api/service/subscriptions/{self.tenant.id('member')}"
        return await self.tenant.api.call(method, path, fields or None, headers=headers)

    async def begin(self, by: str = "member", **changes: Any) -> Answer:
        """Start a checkout for the gold plan."""
        body = {
            "plan_id": str(self.gold),
            "success_url": "https://shop.example.com/thanks",
            "cancel_url": "https://shop.example.com/",
            **changes,
        }
        return await self.tenant.api.post(f"{self.tenant.path}/services/shop/checkout", body, token=self.tenant.token(by))


async def open_till(tenant: Tenant, clock: FakeClock) -> Till:
    service = await add_service(tenant.pool, tenant.org)
    gold = await add_plan(tenant.pool, service, "Gold", price="price_gold")
    silver = await add_plan(tenant.pool, service, "Silver", features=(), price="price_silver")
    return Till(tenant, clock, service, gold, silver)
