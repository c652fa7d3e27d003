"""The renewal of a certificate of a connection.

The reader of the link learns the name of the connection, its protocol and the expiry, and nothing else of it.
"""

from dataclasses import dataclass
from datetime import datetime

from core.federation.connections import connections
from core.federation.connections.model.connections import (
    OrganizationConnection,
    OrganizationConnectionNotFound,
    ProviderCertificate,
)
from core.kernel.callers import OrganizationCaller, SetupLinkCaller, SetupPart
from core.kernel.connections import ConnectionProtocol
from core.kernel.errors import refuse
from core.kernel.values import rfc3339
from core.setup import proposals
from core.setup.model.links import SetupDocument, SetupLink
from ports import Ports
from ports.storage import Reading, Transaction


@dataclass(frozen=True, slots=True)
class RenewedConnection:
    """All that the reader of a link learns of the connection. The time is UTC."""

    name: str
    protocol: ConnectionProtocol
    expires_at: datetime | None  # of the last certificate that ends; None without one


async def load(ports: Ports, link: SetupLink) -> RenewedConnection | None:
    """Return the connection of a link, or None if the link has none or the connection was removed."""
    async with ports.storage.reading() as read:
        connection = await _find(read, link)
        if connection is None:
            return None
        certificates = await read.connection_keys.certificates(connection.org_id, connection.id)
    ends = [each.valid_until for each in certificates if each.is_active]
    return RenewedConnection(connection.name, connection.protocol, max(ends, default=None))


async def propose(ports: Ports, caller: SetupLinkCaller, pem: str) -> None:
    """Propose a certificate, in place of the one before. No response is verified with it before an admin applies it.

    Raises: ProviderCertificateInvalid, SetupPartFixed.
    """
    facts = await ports.certificates.facts(pem)
    document = SetupDocument(certificate=facts.certificate, fingerprint=facts.fingerprint, valid_until=rfc3339(facts.valid_until))
    await proposals.propose(ports, caller, SetupPart.CERTIFICATE, document, is_ready=True)


async def store(tx: Transaction, caller: OrganizationCaller, link: SetupLink, certificate: ProviderCertificate) -> None:
    """Let the connection trust the certificate, beside the present ones.

    Raises: OrganizationConnectionNotFound, ConnectionAboveOwn, TooManyProviderCertificates, ProviderCertificateExists.
    """
    connection = await _find(tx, link) or refuse(OrganizationConnectionNotFound)
    await connections.trust(tx, caller, connection.slug, certificate)


async def _find(read: Reading | Transaction, link: SetupLink) -> OrganizationConnection | None:
    return next((each for each in await read.connections.of_org(link.org_id) if each.id == link.connection_id), None)
