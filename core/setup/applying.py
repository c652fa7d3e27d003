"""Admins apply the proposals of a set-up link with their own rights, as if they had made them themselves."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from core.federation.connections.model.connections import ProviderCertificate
from core.kernel.callers import OrganizationCaller, SetupPart
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.provisioning import tokens
from core.provisioning.tokens import TokenDraft
from core.setup import connection, events, forwarding, links, renewal
from core.setup.model.links import SetupLink, SetupLinkDetails, SetupNotReady, SetupProposal
from core.setup.proposals import claim_of
from core.tenancy import domains, organizations
from ports import Ports
from ports.storage import Transaction


async def apply(ports: Ports, caller: OrganizationCaller, link_id: UUID, part: SetupPart) -> SetupLinkDetails:
    """Apply the proposal for a part, and return the link. A proposal that changes at the same time is not applied.

    Raises: SetupLinkNotFound, SetupNotReady; RecordNotFound, DnsFailed, DomainTaken, TooManyDomains;
    the errors of `tokens.store`, `connection.store`, `renewal.store` and `forwarding.store`.
    """
    details, now = await links.find(ports, caller, link_id), ports.clock.now()
    proposal = details.proposals.get(part)
    if proposal is None or not proposal.is_ready or proposal.applied_at is not None:
        raise SetupNotReady
    if part is SetupPart.DOMAIN:
        await domains.require_record(ports, claim_of(proposal))  # outside of any transaction, because the look-up may take seconds
    certificates = await connection.read_certificates(ports, proposal.document)
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        current = (await tx.setup_links.proposals(organization.id, link_id)).get(part)
        if current is None or current.changed_at != proposal.changed_at or current.applied_at is not None:
            raise SetupNotReady
        await tx.setup_links.mark_applied(organization.id, link_id, part, caller.actor_id, now)
        tx.record(events.part_applied(details.link, part))
        if part is SetupPart.CONNECTION:
            await connection.store(ports, tx, details.link, proposal, certificates)
        else:
            await _apply(tx, caller, details.link, proposal, certificates, now)
    return await links.find(ports, caller, link_id)


async def _apply(
    tx: Transaction,
    caller: OrganizationCaller,
    link: SetupLink,
    proposal: SetupProposal,
    certificates: Sequence[ProviderCertificate],
    now: datetime,
) -> None:
    match proposal.part:
        case SetupPart.DOMAIN:
            await domains.add_verified(tx, claim_of(proposal), now)
        case SetupPart.DIRECTORY:
            token_hash = proposal.token_hash or refuse(SetupNotReady)
            await tokens.store(tx, caller, TokenDraft(link.name, proposal.document.prefix or "", token_hash), now)
        case SetupPart.CERTIFICATE:
            for certificate in certificates:
                await renewal.store(tx, caller, link, certificate)
        case SetupPart.SIEM:
            await forwarding.store(tx, caller, proposal, now)
