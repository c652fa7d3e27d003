"""Home realm discovery: which provider signs in the people of a domain (decisions, points 103 and 212)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core import events, organizations
from core.access import Capability
from core.errors import Invalid

if TYPE_CHECKING:
    from core.access import Member
    from core.providers import Provider
    from core.values import Domain, Email
    from ports import Ports


class DomainTwice(Invalid):
    """A domain is there twice."""

    def __init__(self, domain: Domain) -> None:
        super().__init__(f"The domain {domain} is there twice. Give it once, with one provider.")


@dataclass(frozen=True, slots=True)
class Route:
    """Where those sign in whose addresses are in this very domain.

    Nothing follows from it unless `verified`: the organization has proved the domain or one above it, and nobody else a nearer one.
    """

    domain: Domain
    provider: Provider
    verified: bool


@dataclass(frozen=True, slots=True)
class Realm:
    """Where somebody is to sign in."""

    org_slug: str
    provider: Provider


async def listed(ports: Ports, caller: Member) -> list[Route]:
    """The routes of the organization that the caller acts in, by domain."""
    async with ports.storage.reading() as read:
        return await read.home_realm.routes(caller.acts_in.id)


async def replace(ports: Ports, caller: Member, wanted: list[tuple[Domain, Provider]]) -> list[Route]:
    """Have these routes, and no others. Raises DomainTwice, and what organizations.enter raises."""
    new: dict[Domain, Provider] = {}
    for domain, provider in wanted:
        if domain in new:
            raise DomainTwice(domain)
        new[domain] = provider
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.INTEGRATIONS_MANAGE)
        old = {route.domain: route.provider for route in await tx.home_realm.routes(organization.id)}
        if new != old:
            await tx.home_realm.replace(organization.id, new)
            tx.record(events.hrd_updated(organization.id, old, new))
        return await tx.home_realm.routes(organization.id)


async def find(ports: Ports, email: Email) -> Realm | None:
    """Where whoever has this address is to sign in, if an organization says so. It depends on the domain alone (security.md B-4)."""
    async with ports.storage.reading() as read:
        return await read.home_realm.of(email.domain)
