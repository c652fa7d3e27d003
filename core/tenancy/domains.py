"""The domain of an organization: claimed by saying so, proved by a record in the DNS (decisions, point 210; security.md T-6).

Why there is one, why its subdomains count with it, and what is a claim and what a proof: ops/decisions/0007.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.kernel.errors import Invalid, refuse
from core.kernel.principals import Capability
from core.kernel.values import Domain, new_secret
from core.tenancy import events, organizations

if TYPE_CHECKING:
    from core.kernel.principals import Member
    from ports import Ports
from core.tenancy.domains_rules import LONGEST_NAME, Claim, DomainNotSet, DomainReplaced, DomainTooLong


class RecordNotFound(Invalid):
    """The record was not found in the DNS."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(
            f"There is no TXT record {claim.record_name} with the value that was asked for. It may take a while until a new one is seen."
        )


async def current(ports: Ports, caller: Member) -> Claim:
    """The domain of the organization that the caller acts in. Raises DomainNotSet."""
    async with ports.storage.reading() as read:
        return await read.domains.of(caller.acts_in.id) or refuse(DomainNotSet)


async def claim(ports: Ports, caller: Member, domain: Domain) -> Claim:
    """Set the domain. The one that is set already stays as it is, proof and challenge too; another one takes its place, unproved.

    Raises DomainTooLong, and what organizations.enter raises.
    """
    made = Claim(org_id=caller.acts_in.id, domain=domain, challenge=new_secret(), verified_at=None, created_at=ports.clock.now())
    if len(made.record_name) > LONGEST_NAME:
        raise DomainTooLong
    async with ports.storage.transaction(by=caller) as tx:
        await organizations.enter(tx, caller, Capability.INTEGRATIONS_MANAGE)
        old = await tx.domains.of(made.org_id)
        if old is not None and old.domain == domain:
            return old
        await tx.domains.put(made)
        tx.record(events.domain_set(made, old.domain if old else None))
    return made


async def verify(ports: Ports, caller: Member) -> Claim:
    """Look for the record of the domain, unless it has been found before.

    Raises DomainNotSet, RecordNotFound, DnsFailed, DomainTaken, DomainReplaced, and what organizations.enter raises.
    """
    asked = await current(ports, caller)
    if asked.verified_at is not None:
        return asked
    # With nothing of the database held: it may take seconds.
    if asked.record_value not in await ports.dns.texts(asked.record_name):
        raise RecordNotFound(asked)
    async with ports.storage.transaction(by=caller) as tx:
        await organizations.enter(tx, caller, Capability.INTEGRATIONS_MANAGE)
        found = await tx.domains.of(asked.org_id) or refuse(DomainNotSet)
        if found.challenge != asked.challenge:
            raise DomainReplaced
        if found.verified_at is not None:
            return found
        # Only now, with the proof there, does anybody learn that another organization has it.
        proved = await tx.domains.prove(found.org_id, ports.clock.now())
        tx.record(events.domain_verified(proved))
    return proved


async def remove(ports: Ports, caller: Member) -> None:
    """Have no domain any more. Raises DomainNotSet, and what organizations.enter raises."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.INTEGRATIONS_MANAGE)
        old = await tx.domains.of(organization.id) or refuse(DomainNotSet)
        await tx.domains.remove(organization.id)
        tx.record(events.domain_deleted(old))
