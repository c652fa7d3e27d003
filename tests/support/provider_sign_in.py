"""The way to an identity provider and back."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.kernel.values import digest
from tests.fakes.provider import FakeProvider
from tests.support.browser import Visitor
from tests.support.builders import BASE_URL, Answer, run_sql


@dataclass(slots=True)
class Street:
    """A browser, and the provider that it is sent to."""

    visitor: Visitor
    provider: FakeProvider
    pool: Pool

    @property
    def name(self) -> str:
        return self.provider.provider.value

    async def leave(self, /, **query: str) -> str:
        """Where the provider sends the browser back to that was sent there: a path of ours."""
        answer = await self.visitor.open(f"/auth/{self.name}?{urlencode(query)}")
        assert answer.status == 302, answer.text
        assert answer.headers["Cache-Control"] == "no-store"
        back = self.provider.visit(answer.headers["Location"])
        assert back.startswith(f"{BASE_URL}/auth/{self.name}/callback?")
        return back.removeprefix(BASE_URL)

    async def go(self, /, **query: str) -> Answer:
        """The way there and back."""
        return await self.visitor.open(await self.leave(**query))

    async def comes_in(self, /, **query: str) -> None:
        answer = await self.go(**query)
        assert answer.status == 303, (answer.status, answer.text)

    async def who(self) -> UUID | None:
        """Whose session the browser has."""
        cookie = self.visitor.cookies.get("gatehouse-session")
        if cookie is None:
            return None
        rows = await run_sql(self.pool, "select user_id from sessions where browser_hash = %s and ended_at is null", digest(cookie))
        return rows[0][0] if rows else None

    async def people(self) -> list[tuple[Any, ...]]:
        """Address, whether it is verified, whether there is a password, and where the account was born, by address."""
        columns = "email, email_verified_at is not null, password_hash is not null, origin, origin_org_id"
        return await run_sql(self.pool, f"select {columns} from users order by email")  # noqa: S608

    async def identities(self) -> list[tuple[Any, ...]]:
        columns = "u.email, i.service_id, i.provider, i.issuer, i.provider_user_id, i.email"
        return await run_sql(self.pool, f"select {columns} from identities i join users u on u.id = i.user_id order by linked_at, 2")  # noqa: S608

    async def left(self) -> list[tuple[Any, ...]]:
        """All that a sign-in that was refused must leave alone."""
        tables = ("users", "identities", "sessions", "devices", "events", "audit_log", "mails", "pre_auths")
        return [row for table in tables for row in await run_sql(self.pool, f"select t::text from {table} t order by 1")]  # noqa: S608
