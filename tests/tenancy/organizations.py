"""Helpers for tests about an organization, its audit log and its events."""

from typing import Any
from uuid import UUID

import jwt

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from ports import Ports
from tests.support.builders import Answer, Api, run_sql, sign_in

NOW = "2026-03-14T15:09:26.535897Z"
ACME = "/api/organizations/acme"
NOT_ACTIVE = ["pending", "suspended", "rejected"]
ROLES = ["owner", "admin", "member"]


async def token_of(ports: Ports, account: Account, org: UUID | None = None) -> str:
    return (await sign_in(ports, account, org)).access_token


async def set_status(pool: Pool, status: str) -> None:
    await run_sql(pool, "update organizations set status = %s", status)


async def log(pool: Pool) -> list[tuple[Any, ...]]:
    """Return all audit entries in order.

    Entries with the same time are in the order in which they were written.
    """
    return await run_sql(
        pool,
        "select org_id, action, target_type, target_id, actor_id, details from audit_log order by created_at, xmin::text::bigint, ctid",
    )


async def recorded_events(pool: Pool) -> list[tuple[Any, ...]]:
    return await run_sql(pool, "select org_id, name, target_id, data from events order by created_at, xmin::text::bigint, ctid")


def claims(token: str) -> dict[str, Any]:
    decoded: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return decoded


async def refresh(api: Api, token: str) -> Answer:
    return await api.post("/api/auth/refresh", {"refresh_token": token})
