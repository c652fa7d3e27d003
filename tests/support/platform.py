"""A platform owner who governs organizations, and the records about that."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from tests.fakes.outside import FakeClock
from tests.support.builders import PROFESSIONAL_ID, Answer, Api, run_sql

LIST = "/api/platform/organizations"
STATUSES = ("pending", "active", "suspended", "rejected")
NOWHERE = uuid4()


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform owner with a session."""

    api: Api
    account: Account
    token: str
    clock: FakeClock

    async def listed(self, query: str = "") -> Any:
        answer = await self.api.get(f"{LIST}{query}", token=self.token)
        assert answer.status == 200, answer.text
        return answer.json

    async def slugs(self, query: str = "") -> list[str]:
        return [item["organization"]["slug"] for item in (await self.listed(query))["organizations"]]

    async def do(self, action: str, org: object, body: Any = None) -> Answer:
        method, path = ACTIONS[action]
        self.clock.advance(timedelta(seconds=1))  # so that the entries have an order
        return await self.api.call(method, path.format(org), body, token=self.token)

    async def done(self, action: str, org: UUID, body: Any = None) -> dict[str, Any]:
        answer = await self.do(action, org, body)
        assert answer.status == 200, answer.text
        organization: dict[str, Any] = answer.json.pop("organization")
        return organization


ACTIONS = {
    "approve": ("POST", LIST + "/{}/approve"),
    "reject": ("POST", LIST + "/{}/reject"),
    "suspend": ("POST", LIST + "/{}/suspend"),
    "activate": ("POST", LIST + "/{}/activate"),
    "tier": ("PATCH", LIST + "/{}/tier"),
    "delete": ("DELETE", LIST + "/{}"),
}
BODIES: dict[str, Any] = {"reject": {"reason": "a reason"}, "tier": {"tier_id": PROFESSIONAL_ID}}


async def log_of(pool: Pool, org: UUID) -> list[tuple[str, Any]]:
    return await run_sql(pool, "select action, details from audit_log where org_id = %s order by created_at, xmin::text::bigint, ctid", org)


async def status_of(pool: Pool, org: UUID) -> str | None:
    rows = await run_sql(pool, "select status from organizations where id = %s", org)
    return rows[0][0] if rows else None


AFTERWARDS = {
    ("approve", "pending"): "active",
    ("reject", "pending"): "rejected",
    ("suspend", "active"): "suspended",
    ("activate", "suspended"): "active",
    ("tier", "pending"): "pending",
    ("tier", "active"): "active",
    ("tier", "suspended"): "suspended",
}
