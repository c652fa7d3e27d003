"""Two organizations' applications, and their end users."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from core.accounts.model.accounts import Account
from tests.support.builders import Answer, SignedIn, add_account
from tests.support.services import add_service_user, sign_in_to
from tests.support.tenants import Tenant


@dataclass(slots=True)
class Applications:
    """Two organizations' services, and their users."""

    acme: Tenant
    other_tenant: Tenant
    services: dict[str, UUID] = field(default_factory=dict)
    people: dict[str, Account] = field(default_factory=dict)

    async def person(self, name: str, *services: str, **changes: Any) -> Account:
        """Add an account that has just signed in to these services."""
        account = await add_account(self.acme.ports, f"{name}@people.example", None, **changes)
        self.people[name] = account
        for service in services:
            await self.use(name, service)
        return account

    async def use(self, name: str, service: str, *, signed_in: bool = True) -> None:
        await add_service_user(self.acme.ports, self.services[service], self.people[name].id, signed_in=signed_in)

    async def session(self, name: str, service: str) -> SignedIn:
        return await sign_in_to(self.acme.ports, self.acme.pool, self.services[service], self.people[name])

    async def page(self, query: str = "", by: str = "member", of: Tenant | None = None) -> Answer:
        tenant = of or self.acme
        return await tenant.api.get(f"{tenant.path}/users{query}", token=tenant.token(by))

    async def names(self, query: str = "", of: Tenant | None = None) -> tuple[list[str], int]:
        answer = await self.page(query, of=of)
        assert answer.status == 200, answer.text
        return [user["email"].partition("@")[0] for user in answer.json["users"]], answer.json["pagination"]["total"]

    async def show(self, name: str, by: str = "member", of: Tenant | None = None) -> Answer:
        tenant = of or self.acme
        return await tenant.api.get(f"{tenant.path}/users/{self.people[name].id}", token=tenant.token(by))

    async def revoke(self, name: str, by: str = "admin", of: Tenant | None = None) -> Answer:
        tenant = of or self.acme
        return await tenant.api.delete(f"{tenant.path}/users/{self.people[name].id}/sessions", token=tenant.token(by))

    async def live_sessions(self, *sessions: SignedIn) -> list[bool]:
        """Return the sessions with working access and refresh tokens."""
        ids = []
        for session in sessions:
            read = await self.acme.api.get("/api/user", token=session.access_token)
            answer = await self.acme.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})
            assert {read.status, answer.status} in ({200}, {401})
            ids.append(read.status == 200)
        return ids


def format_time(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
