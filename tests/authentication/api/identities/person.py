"""A user with identities at providers, for the account and for services."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.kernel.connections import PLATFORM_CONNECTIONS, ConnectionSlug
from tests.support.builders import Answer, Api, SignedIn, run_sql
from tests.support.direct import set_up
from tests.support.identities import add_identity, at_nowhere
from tests.support.tenants import Tenants

PATH = "/api/user/identities"
PLATFORM, SHOP, DESK = "platform", "shop", "desk"


async def set_up_providers(app: QuartTrio, providers: Sequence[ConnectionSlug] = tuple(PLATFORM_CONNECTIONS)) -> None:
    await set_up(app, [at_nowhere(slug) for slug in providers])


@dataclass(frozen=True, slots=True)
class Person:
    """A user without a password, with an account session and sessions at two organizations' services."""

    tenants: Tenants
    account: Account
    services: dict[str, UUID]
    sessions: dict[str, SignedIn]

    @property
    def api(self) -> Api:
        return self.tenants.api

    def token(self, context: str = PLATFORM) -> str:
        return self.sessions[context].access_token

    async def add_identity(self, provider: str = "codehost", context: str = PLATFORM, **fields: Any) -> UUID:
        return await add_identity(self.tenants.pool, self.account.id, provider, self.services.get(context), **fields)

    async def set_password(self) -> None:
        await run_sql(self.tenants.pool, "update users set password_hash = 'hash' where id = %s", self.account.id)

    async def list_identities(self, context: str = PLATFORM) -> Any:
        answer = await self.api.get(PATH, token=self.token(context))
        assert answer.status == 200, answer.text
        return answer.json

    async def list_providers(self, context: str = PLATFORM) -> list[str]:
        return sorted(identity["provider"] for identity in await self.list_identities(context))

    async def link(self, provider: str = "codehost", context: str = PLATFORM) -> Answer:
        return await self.api.post(f"{PATH}/{provider}/link", token=self.token(context))

    async def unlink(self, provider: str = "codehost", context: str = PLATFORM) -> Answer:
        return await self.api.delete(f"{PATH}/{provider}", token=self.token(context))

    async def get_provider_token(self, provider: str = "codehost", context: str = PLATFORM) -> Answer:
        return await self.api.get(f"/api/provider-token/{provider}", token=self.token(context))

    async def tickets(self) -> list[tuple[Any, ...]]:
        provider = "(select slug from connections c where c.id::text = f.challenge ->> 'connection')"
        columns = f"secret_hash, challenge_user_id, session_id, service_id, {provider}"
        times = "challenge_expires_at - challenge_begun_at, challenge_begun_at"
        return await run_sql(self.tenants.pool, f"select {columns}, {times} from sign_in_flows f order by 5")  # noqa: S608

    async def changed_rows(self) -> list[tuple[Any, ...]]:
        """Return the rows in all tables that linking and unlinking change."""
        pool, records = self.tenants.pool, "where t.{} like 'security.%%'"
        tables = {"identities": "", "sign_in_flows": "", "audit_log": records.format("action"), "events": records.format("name")}
        rows = [await run_sql(pool, f"select t::text from {table} t {which} order by 1") for table, which in tables.items()]  # noqa: S608
        return [row for table_row in rows for row in table_row]
