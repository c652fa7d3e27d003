"""What is asked of storage about where the people of a domain sign in."""

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from core.home_realm import Realm, Route
from core.providers import Provider
from core.values import Domain


class HomeRealmRead(Protocol):
    """Where the people of domains sign in, looked at."""

    async def routes(self, org_id: UUID) -> list[Route]:
        """By domain. One is verified if it is the organization that `of` would ask for its domain."""
        ...

    async def of(self, domain: Domain) -> Realm | None:
        """By the route that an active organization has for it, if what it has proved is this domain, or the nearest one above it that
        anybody has proved."""
        ...


class HomeRealm(HomeRealmRead, Protocol):
    """The same, changed. The organization is locked before this."""

    async def replace(self, org_id: UUID, routes: Mapping[Domain, Provider]) -> None:
        """Have these and no others."""
        ...
