"""A platform owner who impersonates users."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.support.builders import FIREFOX, Answer, Api, SignedIn, run_sql

HOUR = timedelta(hours=1)
CLIENT = "0.0.0.0"  # the address of Quart's test client  # noqa: S104
REASON = "Ticket 4711: she sees no invoices"
AGENT = {"User-Agent": FIREFOX}


@dataclass(slots=True)
class Support:
    """A platform owner in support who impersonates `user`."""

    api: Api
    ports: Ports
    pool: Pool
    account: Account
    session: SignedIn
    user: Account

    async def ask(self, body: Mapping[str, Any] | None = None, /, target: object = None, token: str | None = None, **fields: Any) -> Answer:
        sent = {"reason": REASON, **fields} if body is None else body
        path = f"/api/platform/impersonate/{self.user.id if target is None else target}"
        return await self.api.post(path, sent, token=token or self.session.access_token, headers=AGENT)

    async def begin(self, **fields: Any) -> dict[str, Any]:
        answer = await self.ask(**fields)
        assert answer.status == 200, answer.text
        impersonation: dict[str, Any] = answer.json
        return impersonation

    async def profile(self, token: str) -> Answer:
        return await self.api.get("/api/user", token=token)

    async def log(self) -> list[dict[str, Any]]:
        """Return the platform's log, the oldest entry first."""
        columns = ("id", "action", "target_type", "target_id", "actor_id", "impersonator_id", "address", "agent", "details")
        entries = f"select {', '.join(columns)} from audit_log where org_id is null order by created_at, xmin::text::bigint, ctid"  # noqa: S608
        return [dict(zip(columns, row, strict=True)) for row in await run_sql(self.pool, entries)]

    async def requests(self) -> list[dict[str, Any]]:
        """Return the log entries about requests during impersonation."""
        return [entry for entry in await self.log() if entry["action"] == "impersonation.request"]

    async def everything(self) -> list[Any]:
        """Return the row counts that a refused impersonation must not change."""
        tables = ("sessions", "refresh_tokens", "devices", "audit_log", "events", "mails", "login_events")
        return [await run_sql(self.pool, f"select count(*) from {table}") for table in tables]  # noqa: S608
