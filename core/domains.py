"""The domain of an organization: claimed by saying so, proved by a record in the DNS (decisions, point 210; security.md T-6).

Why there is one, why its subdomains count with it, and what is a claim and what a proof: ops/decisions/0007.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

from core import events, organizations
from core.access import Capability
from core.errors import Conflict, Invalid, NotFound, refuse
from core.values import Domain, DomainInvalid, new_secret

if TYPE_CHECKING:
    from core.access import Member
    from ports import Ports

# A name with an underscore is no host's, so whoever is let have hosts in somebody's domain does not have this one (RFC 8552).
RECORD_PREFIX: Final = "_gatehouse-challenge"
VALUE_PREFIX: Final = "gatehouse-verification="
LONGEST_NAME: Final = 253


class DomainNotSet(NotFound):
    """This organization has not set a domain."""


class DomainTooLong(DomainInvalid):
    """This domain is too long: the record that would prove it could not be made. Set a domain that it is a subdomain of."""


class DomainTaken(Conflict):
    """Another organization has proved that it owns this domain. Whoever runs this platform can help you find out which one should."""


class DomainReplaced(Invalid):
    """Another domain was set while this one was being verified. Verify again."""


class RecordNotFound(Invalid):
    """The record was not found in the DNS."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(
            f"There is no TXT record {claim.record_name} with the value that was asked for. It may take a while until a new one is seen."
        )


class DnsFailed(Invalid):
    """The DNS did not answer, so it is not known whether the record is there. Try again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an organization says is its domain, and since when that is proved. Times are UTC.

    The challenge is of 256 bits, and of this claim alone. It is no secret: it is to be published.
    """

    org_id: UUID
    domain: Domain
    challenge: str
    verified_at: datetime | None
    created_at: datetime

    @property
    def record_name(self) -> str:
        """The name of the TXT record that proves it."""
        return f"{RECORD_PREFIX}.{self.domain}"

    @property
    def record_value(self) -> str:
        """The text of that record."""
        return f"{VALUE_PREFIX}{self.challenge}"


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
