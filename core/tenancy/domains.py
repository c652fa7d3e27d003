"""An organization's domains, claimed and then verified by a DNS record, and home realm discovery by email domain (decision 103).

The rules are in security T-6. docs/adr/0007 explains why claim and verification are separate, and why a verified domain
includes its subdomains.

The identity provider is a platform provider, or an organization's connection. Slugs name the providers and connections,
and no platform slug equals a connection's slug.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from core.kernel import connections, values
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.tenancy import events, imposed_rules, organizations
from core.tenancy.model import domains
from ports import Ports, storage


async def list_own(ports: Ports, caller: OrganizationCaller) -> list[domains.DomainClaim]:
    """Return the domains of the caller's organization, ordered by name. An organization has at most MAX_DOMAINS domains."""
    async with ports.storage.reading() as read:
        return await read.domains.of_organization(caller.acts_in.id)


async def get(ports: Ports, caller: OrganizationCaller, domain: values.Domain) -> domains.DomainClaim:
    """Return a domain of the caller's organization."""
    async with ports.storage.reading() as read:
        return await read.domains.find(caller.acts_in.id, domain) or refuse(domains.DomainNotFound)


async def claim(ports: Ports, caller: OrganizationCaller, domain: values.Domain) -> domains.DomainClaim:
    """Add a domain to the organization, and return it. The new domain is unverified.

    If the organization already has this domain, nothing changes: the verification and the challenge stay.
    """
    new = domains.DomainClaim(
        org_id=caller.acts_in.id, domain=domain, challenge=values.new_secret(), verified_at=None, created_at=ports.clock.now()
    )
    if len(new.record_name) > domains.MAX_RECORD_NAME:
        raise domains.DomainTooLong
    async with ports.storage.transaction(by=caller) as tx:
        await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        claims = {each.domain: each for each in await tx.domains.of_organization(new.org_id)}
        if domain in claims:
            return claims[domain]
        if len(claims) >= domains.MAX_DOMAINS:
            raise domains.TooManyDomains
        await tx.domains.add(new)
        tx.record(events.domain_set(new))
    return new


async def verify(ports: Ports, caller: OrganizationCaller, domain: values.Domain) -> domains.DomainClaim:
    """Look up the domain's DNS record and mark the domain as verified.

    Nothing changes if the domain is already verified.

    Raises: DomainNotFound, also if the domain was removed during the verification; RecordNotFound, DnsFailed, DomainTaken.
    """
    pending = await get(ports, caller, domain)
    if pending.verified_at is not None:
        return pending
    await require_record(ports, pending)  # outside any transaction, because the look-up may take seconds
    async with ports.storage.transaction(by=caller) as tx:
        await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        current = await tx.domains.find(pending.org_id, domain)
        if current is None or current.challenge != pending.challenge:
            raise domains.DomainNotFound
        if current.verified_at is not None:
            return current
        # DomainTaken is raised only here, after the proof. If other functions raised it, anyone
        # could find out which domains other organizations have verified.
        verified = await tx.domains.mark_verified(current.org_id, domain, ports.clock.now())
        tx.record(events.domain_verified(verified))
    return verified


async def require_record(ports: Ports, claim: domains.DomainClaim) -> None:
    """Check that the DNS has the claim's record."""
    found = await ports.dns.texts(claim.record_name)
    if claim.record_value not in found:
        raise domains.RecordNotFound(claim, found)


async def add_verified(tx: storage.Transaction, claims: Sequence[domains.DomainClaim], now: datetime) -> None:
    """Add domains after their records were found, and verify them. The domains replace unverified claims. The organization is locked."""
    for claim in claims:
        present = {each.domain: each for each in await tx.domains.of_organization(claim.org_id)}
        former = present.get(claim.domain)
        if former is not None and former.verified_at is not None:
            continue
        if former is not None:
            await tx.domains.remove(claim.org_id, claim.domain)
        elif len(present) >= domains.MAX_DOMAINS:
            raise domains.TooManyDomains
        await tx.domains.add(claim)
        tx.record(events.domain_set(claim))
        tx.record(events.domain_verified(await tx.domains.mark_verified(claim.org_id, claim.domain, now)))


async def list_foreign_accounts(
    ports: Ports, caller: OrganizationCaller, domain: values.Domain, page: values.Page
) -> values.PageResult[domains.ForeignAccount]:
    """Return a page of accounts at the organization's verified domain that other organizations created, newest first.

    The organization's directory takes such accounts over by creating users with these addresses.
    """
    async with ports.storage.reading() as read:
        await _require_verified(read, caller, domain)
        return await read.domains.foreign_accounts(caller.acts_in.id, domain, page)


async def list_foreign_invitations(
    ports: Ports, caller: OrganizationCaller, domain: values.Domain, page: values.Page
) -> values.PageResult[domains.ForeignInvitation]:
    """Return a page of other organizations' pending invitations to the organization's verified domain, newest first."""
    async with ports.storage.reading() as read:
        await _require_verified(read, caller, domain)
        return await read.domains.foreign_invitations(caller.acts_in.id, domain, page, ports.clock.now())


async def _require_verified(read: storage.Reading, caller: OrganizationCaller, domain: values.Domain) -> None:
    claim = await read.domains.find(caller.acts_in.id, domain) or refuse(domains.DomainNotFound)
    if claim.verified_at is None:
        raise domains.DomainNotVerified


async def is_of_another(tx: storage.Transaction, email: values.Email, org_id: UUID) -> bool:
    """Return whether an organization other than `org_id` has verified the domain in this address."""
    return await tx.domains.verified_owner(email) not in (None, org_id)


async def remove(ports: Ports, caller: OrganizationCaller, domain: values.Domain) -> None:
    """Remove the organization's domain. Other domains stay as they are."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, rights = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        old = await tx.domains.find(organization.id, domain) or refuse(domains.DomainNotFound)
        if await tx.sign_in_policies.requires_domain(organization.id, domain):
            raise domains.DomainRequired
        await tx.domains.remove(organization.id, domain)
        if old.verified_at is not None:
            await imposed_rules.impose_parent(tx, caller, rights, domain, ports.clock.now())
        tx.record(events.domain_deleted(old))


Routes = Mapping[values.Domain, str]  # the identity providers' slugs


async def list_routes(ports: Ports, caller: OrganizationCaller) -> list[domains.HomeRealmRoute]:
    """Return the routes of the caller's organization, ordered by domain."""
    async with ports.storage.reading() as read:
        return await read.home_realm.routes(caller.acts_in.id)


async def list_connections(ports: Ports, caller: OrganizationCaller) -> list[connections.ConnectionRef]:
    """Return the connections that a domain of the caller's organization can lead to, ordered by slug."""
    async with ports.storage.reading() as read:
        return await read.home_realm.connections(caller.acts_in.id)


async def find_connection(read: storage.Reading, domain: values.Domain, org_id: UUID | None) -> connections.ConnectionRef | None:
    """Return the active connection to which this domain leads in an application of `org_id`, or None.

    A sign-in at a connection is good in its own organization only (security S-10), so another organization's application leads to none.
    """
    match = await read.home_realm.match(domain)
    connection = None if match is None else match.connection
    return connection if connection is not None and org_id in (None, connection.org_id) else None


async def replace_routes(ports: Ports, caller: OrganizationCaller, routes: list[tuple[values.Domain, str]]) -> list[domains.HomeRealmRoute]:
    """Replace all the organization's routes, and return the new routes."""
    new: dict[values.Domain, str] = {}
    for domain, slug in routes:
        if domain in new:
            raise domains.DuplicateDomain(domain)
        new[domain] = slug
    return await _change_routes(ports, caller, lambda _: new)


async def set_route(ports: Ports, caller: OrganizationCaller, domain: values.Domain, slug: str) -> domains.HomeRealmRoute:
    """Set the identity provider for a domain, and return its route. Other routes stay as they are."""

    def with_route(old: Routes) -> Routes:
        if domain not in old and len(old) >= domains.MAX_ROUTES:
            raise domains.TooManyRoutes
        return {**old, domain: slug}

    return next(route for route in await _change_routes(ports, caller, with_route) if route.domain == domain)


async def remove_route(ports: Ports, caller: OrganizationCaller, domain: values.Domain) -> None:
    """Remove a domain's route. Other routes stay as they are."""

    def without_route(old: Routes) -> Routes:
        if domain not in old:
            raise domains.RouteNotFound
        return {name: slug for name, slug in old.items() if name != domain}

    await _change_routes(ports, caller, without_route)


async def _change_routes(ports: Ports, caller: OrganizationCaller, to_new: Callable[[Routes], Routes]) -> list[domains.HomeRealmRoute]:
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        old = {route.domain: route.slug for route in await tx.home_realm.routes(organization.id)}
        new = to_new(old)
        if new != old:
            known = {*connections.PLATFORM_CONNECTIONS, *(each.slug for each in await tx.home_realm.connections(organization.id))}
            if not known.issuperset(new.values()):
                raise domains.RouteTargetUnknown
            await tx.home_realm.replace(organization.id, new)
            tx.record(events.hrd_updated(organization.id, old, new))
        return await tx.home_realm.routes(organization.id)
