"""Renewing a connection's certificates.

The link's reader learns the connection's name, its protocol and the expiry, and nothing else about it. A proposed certificate verifies only
responses in test sign-ins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from core.federation.connections import connections
from core.federation.connections.access import load_details
from core.federation.connections.metadata import MetadataOfAnother
from core.federation.connections.model import connections as connections_model
from core.federation.connections.model.details import ConnectionDetails
from core.federation.connections.model.settings import SamlSettings
from core.federation.connections.provider_requests import RequestedConnection
from core.kernel import callers, uris
from core.kernel.connections import ConnectionProtocol
from core.kernel.display import format_utc
from core.kernel.errors import refuse
from core.setup import proposals
from core.setup.connection import join_certificates, read_certificates, read_metadata, read_proposed_certificates
from core.setup.model import links
from ports import Ports, storage


@dataclass(frozen=True, slots=True)
class RenewedConnection:
    """Everything that a link's reader learns about the connection. The time is UTC."""

    name: str
    protocol: ConnectionProtocol
    expires_at: datetime | None  # when the certificate that ends last expires; None without one


async def load(ports: Ports, link: links.SetupLink) -> RenewedConnection | None:
    """Return a link's connection, or None if the link has none or the connection was removed."""
    async with ports.storage.reading() as read:
        connection = await _find(read, link)
        if connection is None:
            return None
        certificates = await read.connection_keys.certificates(connection.org_id, connection.id)
    ends = [each.valid_until for each in certificates if each.is_active]
    return RenewedConnection(connection.name, connection.protocol, max(ends, default=None))


async def propose(ports: Ports, caller: callers.SetupLinkCaller, pem: str) -> None:
    """Propose certificates, in place of the earlier proposal. No user signs in with them before an admin applies them."""
    details = await _load_details(ports, await proposals.load(ports, caller))
    certificates = await read_certificates(ports, pem) or refuse(connections_model.ProviderCertificateInvalid)
    await _propose(ports, caller, details, certificates, are_of_metadata=False)


async def import_metadata(ports: Ports, caller: callers.SetupLinkCaller, text: str, url: str) -> None:
    """Propose the certificates in SAML metadata that the connection does not trust yet: from `text`, or from the document at `url`.

    If the connection reads its metadata at another address, they count as typed: its next refresh would remove them.
    """
    details = await _load_details(ports, await proposals.load(ports, caller))
    described, settings = await read_metadata(ports, caller, text, url), details.connection.settings
    if not isinstance(settings, SamlSettings) or described.settings.get("entity_id") != settings.entity_id:
        raise MetadataOfAnother
    are_of_metadata = settings.metadata_url is None or (not text and uris.canonicalize(url) == settings.metadata_url)
    problems = tuple(described.find_left_out())
    await _propose(ports, caller, details, described.certificates, are_of_metadata=are_of_metadata, problems=problems)


async def _propose(
    ports: Ports,
    caller: callers.SetupLinkCaller,
    details: ConnectionDetails,
    certificates: Sequence[connections_model.CertificateFacts | connections_model.ProviderCertificate],
    *,
    are_of_metadata: bool,
    problems: tuple[connections_model.ConnectionProblem, ...] | None = None,
) -> None:
    present = {each.fingerprint for each in details.certificates}
    new = [each for each in certificates if each.fingerprint not in present] or refuse(connections_model.ProviderCertificateExists)
    fingerprints = tuple(each.fingerprint for each in new)
    document = links.SetupDocument(
        certificate=join_certificates(new),
        metadata_fingerprints=fingerprints if are_of_metadata else (),
        fingerprints=fingerprints,
        valid_until=format_utc(min(each.valid_until for each in new)),
        problems=problems,
    )
    await proposals.propose(ports, caller, callers.SetupPart.CERTIFICATE, document, is_ready=True)


async def load_proposed(ports: Ports, caller: callers.SetupLinkCaller) -> RequestedConnection:
    """Return the connection with the proposed certificates in place of its own certificates, for a test sign-in."""
    link = await proposals.load(ports, caller)
    proposal = link.proposals.get(callers.SetupPart.CERTIFICATE)
    if proposal is None or proposal.applied_at is not None:
        raise links.SetupNotReady
    details = await _load_details(ports, link)
    certificates = await read_proposed_certificates(ports, proposal.document)
    return RequestedConnection(details.connection, replace(details, certificates=certificates))


async def _load_details(ports: Ports, link: links.SetupLinkDetails) -> ConnectionDetails:
    """Return a link's connection with its keys. Raises: SetupNotReady if it was removed, or if the link has none."""
    async with ports.storage.reading() as read:
        connection = await _find(read, link.link) or refuse(links.SetupNotReady)
        return await load_details(read, connection, ports.clock.now())


async def store(
    tx: storage.Transaction,
    caller: callers.OrganizationCaller,
    link: links.SetupLink,
    certificates: Sequence[connections_model.ProviderCertificate],
) -> None:
    """Let the connection trust the certificates, beside the present certificates.

    Raises: OrganizationConnectionNotFound; the errors of `connections.trust`.
    """
    connection = await _find(tx, link) or refuse(connections_model.OrganizationConnectionNotFound)
    for certificate in certificates:
        await connections.trust(tx, caller, connection.slug, certificate)


async def _find(read: storage.Reading | storage.Transaction, link: links.SetupLink) -> connections_model.OrganizationConnection | None:
    return next((each for each in await read.connections.of_org(link.org_id) if each.id == link.connection_id), None)
