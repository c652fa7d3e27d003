"""What users allowed applications to see (OpenID Connect Core section 3.1.2.4)."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from adapters.postgres.engine.statements import Repository
from core.authentication.openid_rules import Scope


class Consents(Repository):
    """Implements `ports.storage.federation.Consents`."""

    async def scope(self, org_id: UUID, service_id: UUID, user_id: UUID) -> frozenset[Scope]:
        scope = await self._one(
            lambda row: frozenset(Scope(name) for name in row[0]),
            """
            select scope from consents
            where org_id = %(org_id)s and service_id = %(service_id)s and user_id = %(user_id)s""",
            org_id=org_id,
            service_id=service_id,
            user_id=user_id,
        )
        return scope or frozenset()

    async def add(self, org_id: UUID, service_id: UUID, user_id: UUID, scope: Collection[Scope], now: datetime) -> bool:
        return await self._exists(
            """
            insert into consents as c (user_id, org_id, service_id, scope, granted_at)
            values (%(user_id)s, %(org_id)s, %(service_id)s, %(scope)s, %(now)s)
            on conflict (user_id, service_id) do update set
                scope = array(select unnest(c.scope) union select unnest(excluded.scope)), granted_at = excluded.granted_at
            where not c.scope @> excluded.scope
            returning 1""",
            org_id=org_id,
            service_id=service_id,
            user_id=user_id,
            scope=sorted(scope),
            now=now,
        )
