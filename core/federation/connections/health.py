"""The refresh of active connections: reads the identity provider's metadata and keys, and announces certificates that expire.

Each connection is refreshed once a day, and again soon after a failure or a change. No sign-in relies on it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.accounts.model import email_queue
from core.federation.connections import events, metadata, openid
from core.federation.connections.logins import fault_of
from core.federation.connections.metadata import DescribedProvider
from core.federation.connections.model import connections, health
from core.federation.connections.model.openid import OpenIdAnswerRefused, OpenIdFault, OpenIdProviderUnreachable
from core.federation.connections.model.settings import OidcSettings, SamlSettings
from core.federation.saml.model.configuration import CertificateState
from core.kernel import errors
from core.kernel.causes import SYSTEM
from core.kernel.page_paths import CONNECTION_HEALTH_PATH
from core.kernel.roles import Capability
from ports import Ports
from ports.storage import Transaction

LEASE_NAME: Final = "connection_refresher"
LEASE: Final = timedelta(minutes=5)  # renewed before each connection
# Longer than a refresh takes. If the process ends in the middle, the connection is due again then.
CLAIMED_FOR: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A connection before and after a refresh."""

    org_slug: str
    connection: connections.OrganizationConnection
    old: health.ConnectionHealth
    new: health.ConnectionHealth
    end: health.CertificateEnd | None
    now: datetime


async def measure(ports: Ports) -> tuple[Mapping[health.HealthState, int], datetime | None]:
    """Return the numbers of active connections by health, and the end of the first certificate. None: there is no certificate."""
    async with ports.storage.reading() as read:
        return await read.connection_healths.figures()


async def find_problems(ports: Ports) -> list[str]:
    """Return a sentence about the connections of all organizations that fail, or none, for platform owners."""
    counts, _ = await measure(ports)
    failing = counts.get(health.HealthState.FAILING, 0)
    name = "a connection of an organization" if failing == 1 else f"{failing:,} connections of organizations"
    return [f"Users can't sign in through {name}."] if failing else []


async def next_due(ports: Ports) -> datetime | None:
    """Return when the next refresh is due, or None if there is no active connection."""
    async with ports.storage.reading() as read:
        return await read.connection_healths.next_due()


async def refresh_due(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Refresh each connection that is due. Return their number by health, or None if another process holds the lease."""
    counts = Counter[str]()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.connection_healths.add_new(ports.clock.now())
    while True:
        now = ports.clock.now()
        async with ports.storage.transaction(by=SYSTEM) as tx:
            if not await tx.leases.take(LEASE_NAME, holder, now, now + LEASE):
                return counts or None
            claimed = await tx.connection_healths.claim(now, now + CLAIMED_FOR)
        if claimed is None:
            return counts
        counts[await _refresh(ports, claimed)] += 1


async def _refresh(ports: Ports, claimed: health.ConnectionHealth) -> str:
    async with ports.storage.reading() as read:
        connection = await read.connections.of_active_org(claimed.connection_id)
    if connection is None or connection.state is not connections.ConnectionState.ACTIVE:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            idle = replace(claimed.refresh(None, None, ports.clock.now()), health=health.HealthState.UNKNOWN)
            await tx.connection_healths.save(idle, claimed.due_at)
        return health.HealthState.UNKNOWN
    try:
        described = await _read_provider(ports, connection)
        return await _store(ports, claimed, connection, None, described)
    except errors.Limited:
        return claimed.health  # the organization has many fetches now; it is due again soon
    except (OpenIdAnswerRefused, OpenIdProviderUnreachable, errors.Invalid, errors.Conflict) as problem:
        return await _store(ports, claimed, connection, fault_of(problem), None)


async def _read_provider(ports: Ports, connection: connections.OrganizationConnection) -> DescribedProvider | None:
    """Read the metadata of the identity provider, which must have a usable key. Return those of SAML, or None.

    Raises: the faults for which users cannot sign in.
    """
    if isinstance(connection.settings, SamlSettings):
        return await metadata.fetch_own(ports, connection.org_id, connection.settings)
    client = await openid.load_client(ports, connection, connection.settings)
    keys = await ports.openid_providers.keys(client, await ports.openid_providers.discover(client, refresh=True))
    if not any(key.is_usable for key in keys):
        raise OpenIdAnswerRefused(OpenIdFault.SIGNING_KEY)
    return None


async def _store(
    ports: Ports,
    claimed: health.ConnectionHealth,
    connection: connections.OrganizationConnection,
    fault: str | None,
    described: DescribedProvider | None,
) -> str:
    """Store the result of a refresh, and take over metadata. Raises: the errors of `metadata.apply`."""
    now, settings = ports.clock.now(), connection.settings
    async with ports.storage.transaction(by=SYSTEM) as tx:
        # Lock order: the organization, which each change of a connection locks, before its health.
        organization = await tx.organizations.lock(claimed.org_id)
        if organization is None or not await tx.connection_healths.save(claimed, claimed.due_at):
            return claimed.health  # it changed since it was claimed, and is refreshed again
        if described is not None and isinstance(settings, SamlSettings):
            await metadata.apply(tx, connection, described, settings.metadata_url, now)
        end = await _certificate_end(tx, connection, now)
        new = claimed.refresh(fault, end, now)
        days = new.days_to_announce(now)
        new = new if days is None else replace(new, announced_days=days)
        await tx.connection_healths.save(new, claimed.due_at)
        await _announce(tx, Refreshed(organization.slug, connection, claimed, new, end, now))
    return new.health


async def _certificate_end(tx: Transaction, connection: connections.OrganizationConnection, now: datetime) -> health.CertificateEnd | None:
    if isinstance(connection.settings, OidcSettings):
        return None  # keys of OpenID providers have no end, and they take ours from our JWK set
    certificates = await tx.connection_keys.certificates(connection.org_id, connection.id)
    keys = await tx.connection_keys.of_connection(connection.org_id, connection.id, now)
    return health.CertificateEnd.of(certificates, keys.get(CertificateState.ACTIVE))


async def _announce(tx: Transaction, refreshed: Refreshed) -> None:
    """Record what changed, and queue emails about it to the members who manage integrations."""
    connection, old, new, end = refreshed.connection, refreshed.old, refreshed.new, refreshed.end
    problems: dict[email_queue.EmailKind, str] = {}
    if new.is_failing and not old.is_failing:
        tx.record(events.failing(connection, new))
        problems[email_queue.EmailKind.CONNECTION_FAILING] = new.message or ""
    if old.is_failing and not new.is_failing:
        tx.record(events.recovered(connection))
    if end is not None and new.announced_days is not None and new.announced_days != old.announced_days:
        tx.record(events.certificate_expires(connection, end.at, new.announced_days))
        problems[email_queue.EmailKind.CONNECTION_CERTIFICATE_EXPIRES] = health.HEALTH_PROBLEMS[end.problem]
    if not problems:
        return
    path = CONNECTION_HEALTH_PATH.format(org_slug=refreshed.org_slug, connection=connection.slug)
    for address in await tx.members.admin_addresses(connection.org_id, Capability.INTEGRATIONS_MANAGE):
        for kind, problem in problems.items():
            token = health.ConnectionNotice(connection.name, path, problem, None if end is None else end.at).to_token()
            await tx.email_queue.add(email_queue.new_email(kind, address, refreshed.now, token=token, org_id=connection.org_id))
