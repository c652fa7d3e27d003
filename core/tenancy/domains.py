"""The domain of an organization: claimed without proof, then verified by a DNS record.

The rules are those of security T-6.
docs/adr/0007 explains why claim and verification are separate, and why a verified domain includes
its subdomains.
"""

from uuid import UUID

from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.kernel.values import Domain, Email, Page, PageResult, new_secret
from core.tenancy import events, organizations
from core.tenancy.model.domains import (
    MAX_RECORD_NAME,
    DomainClaim,
    DomainNotSet,
    DomainNotVerified,
    DomainReplaced,
    DomainTooLong,
    ForeignAccount,
    ForeignInvitation,
    RecordNotFound,
)
from ports import Ports
from ports.storage import Reading, Transaction


async def get(ports: Ports, caller: OrganizationCaller) -> DomainClaim:
    """Return the domain of the caller's organization. Raises: DomainNotSet."""
    async with ports.storage.reading() as read:
        return await read.domains.by_org(caller.acts_in.id) or refuse(DomainNotSet)


async def claim(ports: Ports, caller: OrganizationCaller, domain: Domain) -> DomainClaim:
    """Set the organization's domain, and return it.

    If the organization already has this domain, nothing changes: the verification and the challenge
    stay. Another domain replaces the earlier one, and is unverified.

    Raises: DomainTooLong.
    """
    new = DomainClaim(org_id=caller.acts_in.id, domain=domain, challenge=new_secret(), verified_at=None, created_at=ports.clock.now())
    if len(new.record_name) > MAX_RECORD_NAME:
        raise DomainTooLong
    async with ports.storage.transaction(by=caller) as tx:
        await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        old = await tx.domains.by_org(new.org_id)
        if old is not None and old.domain == domain:
            return old
        await tx.domains.put(new)
        tx.record(events.domain_set(new, old.domain if old else None))
    return new


async def verify(ports: Ports, caller: OrganizationCaller) -> DomainClaim:
    """Look up the domain's DNS record and mark the domain as verified.

    Nothing changes if the domain is already verified.

    Raises: DomainNotSet, RecordNotFound, DnsFailed, DomainTaken, DomainReplaced.
    """
    pending = await get(ports, caller)
    if pending.verified_at is not None:
        return pending
    # Outside of any transaction, because the look-up may take seconds.
    found = await ports.dns.texts(pending.record_name)
    if pending.record_value not in found:
        raise RecordNotFound(pending, found)
    async with ports.storage.transaction(by=caller) as tx:
        await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        current = await tx.domains.by_org(pending.org_id) or refuse(DomainNotSet)
        if current.challenge != pending.challenge:
            raise DomainReplaced
        if current.verified_at is not None:
            return current
        # DomainTaken is raised only here, after the proof. Otherwise anyone could find out which
        # domains other organizations have verified.
        verified = await tx.domains.mark_verified(current.org_id, ports.clock.now())
        tx.record(events.domain_verified(verified))
    return verified


async def list_foreign_accounts(ports: Ports, caller: OrganizationCaller, page: Page) -> PageResult[ForeignAccount]:
    """Return one page of the accounts at the organization's verified domain that other organizations created, newest first.

    The organization's directory takes them over by creating users with these addresses.

    Raises: DomainNotSet, DomainNotVerified.
    """
    async with ports.storage.reading() as read:
        domain = await _verified_domain(read, caller)
        return await read.domains.foreign_accounts(caller.acts_in.id, domain, page)


async def list_foreign_invitations(ports: Ports, caller: OrganizationCaller, page: Page) -> PageResult[ForeignInvitation]:
    """Return one page of other organizations' pending invitations to the organization's verified domain, newest first.

    Raises: DomainNotSet, DomainNotVerified.
    """
    async with ports.storage.reading() as read:
        domain = await _verified_domain(read, caller)
        return await read.domains.foreign_invitations(caller.acts_in.id, domain, page, ports.clock.now())


async def _verified_domain(read: Reading, caller: OrganizationCaller) -> Domain:
    claim = await read.domains.by_org(caller.acts_in.id) or refuse(DomainNotSet)
    return claim.domain if claim.verified_at is not None else refuse(DomainNotVerified)


async def is_of_another(tx: Transaction, email: Email, org_id: UUID) -> bool:
    """Return whether an organization other than this one has verified the domain of this address."""
    return await tx.domains.verified_owner(email) not in (None, org_id)


async def remove(ports: Ports, caller: OrganizationCaller) -> None:
    """Remove the organization's domain. Raises: DomainNotSet."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        old = await tx.domains.by_org(organization.id) or refuse(DomainNotSet)
        await tx.domains.remove(organization.id)
        tx.record(events.domain_deleted(old))
