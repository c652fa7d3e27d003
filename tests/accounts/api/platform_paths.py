"""The platform API's paths for users, and calls about second factors."""

from typing import Any
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.causes import SYSTEM
from ports import Ports
from tests.support.builders import Answer, add_account, run_sql
from tests.support.platform import Platform

SEARCH, OWNERS = "/api/platform/users/search", "/api/platform/owners"
UNKNOWN_ID = UUID(int=7)


async def with_mfa(ports: Ports, pool: Pool, email: str = "ada@example.com") -> Account:
    """Add an account with a second factor, two unused backup codes and a used backup code."""
    account = await add_account(ports, email, None, mfa_enabled_at=ports.clock.now())
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.mfa.save_pending_secret(account.id, ports.codes.new_secret(), ports.clock.now())
        await tx.mfa.replace_codes(account.id, b"salt", [b"one", b"two", b"three"])
    await run_sql(pool, "update backup_codes set used_at = now() where user_id = %s and code_hash = %s", account.id, b"two")
    return account


async def mfa_status(platform: Platform, user: object) -> Answer:
    return await platform.api.get(f"/api/platform/users/{user}/mfa/status", token=platform.token)


async def remove_mfa(platform: Platform, user: object, body: Any = None, query: str = "", *, raw: bytes | None = None) -> Answer:
    return await platform.api.call("DELETE", f"/api/platform/users/{user}/mfa{query}", body, raw=raw, token=platform.token)
