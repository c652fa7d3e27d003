"""The way of a user from an email address to the connection of their organization (decision 103)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from core.authentication.flow.model import Flow
from core.kernel.connections import ConnectionRef
from core.kernel.values import Domain
from ports import Ports

KNOWN_ROUTES_TTL: Final = timedelta(seconds=30)


@dataclass(slots=True)
class KnownRoutes:
    """Whether any domain leads to a connection, as last read, so that sign-in pages need no other statement."""

    lead_to_connections: bool = False
    read_at: datetime | None = None  # UTC


async def asks_address_first(ports: Ports, known: KnownRoutes) -> bool:
    """Return whether sign-in pages ask for the address alone, because it may lead to a connection."""
    now = ports.clock.now()
    if known.read_at is None or now - known.read_at >= KNOWN_ROUTES_TTL:
        async with ports.storage.reading() as read:
            known.lead_to_connections = await read.home_realm.leads_to_connections()
        known.read_at = now
    return known.lead_to_connections


async def find_connection(ports: Ports, flow: Flow, domain: Domain) -> ConnectionRef | None:
    """Return the connection to which this domain leads in a flow, or None.

    A sign-in there is good in its own organization only (security S-10), so the application of another one leads to none. The
    result does not depend on accounts (security B-4).
    """
    async with ports.storage.reading() as read:
        match = await read.home_realm.match(domain)
    connection = None if match is None else match.connection
    return connection if connection is not None and flow.org_id in (None, connection.org_id) else None
