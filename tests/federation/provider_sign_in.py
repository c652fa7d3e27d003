"""Redirects to an identity provider and back."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.kernel.values import digest
from tests.fakes.provider import FakeProvider
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, Answer, run_sql


def flow_in(path: str) -> str:
    """Return the id of the sign-in to which this page path leads."""
    return path.split("/")[3]


async def provider_requests_of(pool: Pool) -> list[tuple[Any, ...]]:
    """Return the states that browsers have at providers. Tickets for provider requests that did not start are left out."""
    return await run_sql(pool, "select challenge_hash from sign_in_flows where challenge_hash is not null")


@dataclass(slots=True)
class ProviderSignIn:
    """A browser and the identity provider that it is redirected to."""

    browser: FakeBrowser
    provider: FakeProvider
    pool: Pool

    @property
    def name(self) -> str:
        return self.provider.provider

    async def start(self, /, **query: str) -> str:
        """Start a sign-in at the provider.

        Return the callback path that the provider redirects to.
        """
        answer = await self.browser.open(f"/auth/{self.name}?{urlencode(query)}")
        assert answer.status == 302, answer.text
        assert answer.headers["Cache-Control"] == "no-store"
        url = self.provider.authorize(answer.headers["Location"])
        assert url.startswith(f"{BASE_URL}/auth/{self.name}/callback?")
        return url.removeprefix(BASE_URL)

    async def complete(self, /, **query: str) -> Answer:
        """Go to the provider and back. Return the callback's response."""
        return await self.come_back(await self.start(**query))

    async def come_back(self, callback: str) -> Answer:
        """Return the callback's response."""
        return await self.browser.open(callback, follows=False)

    async def sign_in(self, /, **query: str) -> None:
        answer = await self.complete(**query)
        assert answer.status == 303, (answer.status, answer.text)

    async def user_id(self) -> UUID | None:
        """Return the browser session's user, or None."""
        cookie = self.browser.cookies.get("gatehouse-session")
        if cookie is None:
            return None
        rows = await run_sql(self.pool, "select user_id from sessions where browser_hash = %s and ended_at is null", digest(cookie))
        return rows[0][0] if rows else None

    async def accounts(self) -> list[tuple[Any, ...]]:
        """Return the accounts as tuples, by address.

        The columns are address, is verified, has a password, origin, and origin organization.
        """
        columns = "email, email_verified_at is not null, password_hash is not null, origin, origin_org_id"
        return await run_sql(self.pool, f"select {columns} from users order by email")  # noqa: S608

    async def identities(self) -> list[tuple[Any, ...]]:
        columns = "u.email, i.service_id, i.provider, i.issuer, i.provider_user_id, i.email"
        return await run_sql(self.pool, f"select {columns} from identities i join users u on u.id = i.user_id order by linked_at, 2")  # noqa: S608

    async def snapshot(self) -> list[tuple[Any, ...]]:
        """Return all rows that a refused sign-in must not change."""
        tables = (
            "users",
            "identities",
            "sessions",
            "devices",
            "events",
            "audit_log",
            "mails",
            "(select * from sign_in_flows where user_id is not null)",
        )
        return [row for table in tables for row in await run_sql(self.pool, f"select t::text from {table} t order by 1")]  # noqa: S608
