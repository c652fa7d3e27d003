"""The facts for a user's claims at a service."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.authentication.openid import ALL_USER_FACTS, further_sql, user_facts, user_facts_sql
from adapters.postgres.engine.statements import Answer, Repository
from core.authentication.model.openid import UserFacts

# Facts for an ID token, if the session uses OpenID Connect and the application wants them there.
FACTS: Final = user_facts(further_sql("%(with_groups)s"))
FACTS_OF_USER: Final = user_facts_sql("%(user_id)s", "%(service_id)s", FACTS)
ALL_FACTS_OF_USER: Final = user_facts_sql("%(user_id)s", "%(service_id)s", ALL_USER_FACTS)


class OpenIdFacts(Repository):
    """Implements `ports.storage.authentication.sessions.OpenIdFacts`."""

    async def load_all(self, user_id: UUID, service_id: UUID, now: datetime) -> UserFacts | None:
        return await self._one(ALL_USER_FACTS.read, ALL_FACTS_OF_USER, user_id=user_id, service_id=service_id, now=now)

    def load(self, user_id: UUID, service_id: UUID | None, now: datetime, *, with_groups: bool) -> Answer[UserFacts | None]:
        return self._one(FACTS.read, FACTS_OF_USER, user_id=user_id, service_id=service_id, with_groups=with_groups, now=now)
