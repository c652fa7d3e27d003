"""Home realm discovery: which provider signs in the people of a domain (decisions, points 103 and 212)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.kernel.principals import Capability
from core.tenancy import events, organizations

if TYPE_CHECKING:
    from core.kernel.principals import Member
    from core.kernel.providers import Provider
    from core.kernel.values import Domain, Email
    from ports import Ports
from core.tenancy.home_realm_rules import DomainTwice, Realm, Route


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
