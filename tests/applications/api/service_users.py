"""Helpers: a service with an API key, and checks for all counters."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account, AccountOrigin
from tests.support.builders import Answer, add_account, run_sql
from tests.support.services import add_api_key, add_service, add_service_user
from tests.support.tenants import Tenant

USERS = "/api/service/users"


@dataclass(slots=True)
class Shop:
    """A tenant's service, and an API key with all permissions."""

    tenant: Tenant
    id: UUID
    key: str

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Api-Key": self.key}

    async def list_users(self, query: str = "") -> Answer:
        return await self.tenant.api.get(f"{USERS}{query}", headers=self.headers)

    async def get(self, user: object) -> Answer:
        return await self.tenant.api.get(f"{USERS}/{user}", headers=self.headers)

    async def create(self, email: object) -> Answer:
        return await self.tenant.api.post(USERS, {"email": email}, headers=self.headers)

    async def add_user(self, email: str) -> UUID:
        """Create a user with the key, and return their id."""
        answer = await self.create(email)
        assert answer.status == 200, answer.text
        return UUID(answer.json["id"])

    async def update(self, user: object, **fields: Any) -> Answer:
        return await self.tenant.api.patch(f"{USERS}/{user}", fields, headers=self.headers)

    async def delete(self, user: object) -> Answer:
        return await self.tenant.api.delete(f"{USERS}/{user}", headers=self.headers)

    async def add_own_user(
        self, email: str, password: str | None = None, origin: AccountOrigin = AccountOrigin.API_KEY, **changes: Any
    ) -> Account:
        """Add a user with an account that the organization created, by default verified and without a password."""
        account = await add_account(self.tenant.ports, email, password, origin=origin, origin_org_id=self.tenant.org, **changes)
        await add_service_user(self.tenant.ports, self.id, account.id)
        return account

    async def stored_emails(self) -> list[str]:
        """Return the users' stored email addresses."""
        rows = await run_sql(self.tenant.pool, "select email from service_users where service_id = %s order by email", self.id)
        return [email for (email,) in rows]


async def open_shop(tenant: Tenant, slug: str = "shop") -> Shop:
    service = await add_service(tenant.pool, tenant.org, slug)
    return Shop(tenant, service, await add_api_key(tenant.pool, service))


# Stored counters with the actual counts. Both counts must be equal in every row.
COUNTERS = {
    "users of services": """
        select id, user_count, (select count(*) from service_users r where r.service_id = v.id) from services v""",
    "subscriptions": """
        select id, subscription_count, (select count(*) from subscriptions s where s.service_id = v.id) from services v""",
    "end users": """
        select coalesce(t.org_id, e.org_id), coalesce(t.total, 0), coalesce(e.total, 0)
        from end_user_totals t full join (select org_id, count(*) as total from end_users group by org_id) e on e.org_id = t.org_id""",
    "end users by their services": """
        select o.id, (select count(*) from end_users e where e.org_id = o.id),
               (select count(distinct user_id) from service_users r where r.org_id = o.id) from organizations o""",
    "logins": """
        select service_id, coalesce(t.total, 0), coalesce(l.total, 0)
        from (select service_id, day, provider, sum(total)::bigint as total from login_totals group by service_id, day, provider) t
        full join (
            select service_id, (created_at at time zone 'UTC')::date as day, provider, count(*) as total
            from login_events where service_id is not null and success group by service_id, day, provider) l
        using (service_id, day, provider)""",
    "entries": """
        select org_id, coalesce(t.total, 0), coalesce(l.total, 0)
        from audit_totals t
        full join (select org_id, action, target_type, count(*) as total from audit_log where org_id is not null
                   group by org_id, action, target_type) l
        using (org_id, action, target_type)""",
    "members": "select id, member_count, (select count(*) from memberships m where m.org_id = o.id) from organizations o",
}


async def check_counts(pool: Pool) -> None:
    """Check that all counters are right."""
    for name, statement in COUNTERS.items():
        wrong = [row for row in await run_sql(pool, statement) if row[1] != row[2]]
        assert wrong == [], name


async def traces(pool: Pool, id_: UUID) -> set[str]:
    """Return the tables and columns, in the whole database, that contain this id."""
    columns = await run_sql(
        pool,
        """
        select table_name, column_name, data_type from information_schema.columns
        where table_schema = 'public' and data_type in ('uuid', 'text', 'jsonb')""",
    )
    tables = set()
    for table, column, kind in columns:
        condition = f"{column} = %s" if kind == "uuid" else f"strpos({column}::text, %s::text) > 0"
        if await run_sql(pool, f"select 1 from {table} where {condition} limit 1", id_):  # noqa: S608
            tables.add(f"{table}.{column}")
    return tables
