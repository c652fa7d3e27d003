"""Admins apply a set-up link's proposals with their own rights, as if they had made them themselves."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from uuid import UUID

from core.kernel import callers
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.provisioning import tokens
from core.provisioning.tokens import TokenDraft
from core.setup import connection, events, links, proposals, renewal
from core.setup.model.links import SetupLink, SetupLinkDetails, SetupNotReady, SetupProposal, SetupProposalChanged
from core.setup.proposals import claims_of
from core.tenancy import domains, organizations
from ports import Ports
from ports.storage import Transaction


async def apply(
    ports: Ports, caller: callers.OrganizationCaller, link_id: UUID, part: callers.SetupPart, changed_at: datetime | None = None
) -> SetupLinkDetails:
    """Apply the proposal for a part, and return the link. A proposal that changes at the same time is not applied.

    `changed_at` (UTC) is when the proposal that the caller looked at last changed. The link's reader could otherwise replace it, such as a
    SIEM or a certificate, before the caller applies it. None: the newest proposal counts.
    """
    details, now = await links.find(ports, caller, link_id), ports.clock.now()
    proposal = _require_ready(details.proposals.get(part), changed_at)
    store = await _prepare(ports, caller, details.link, proposal, now)
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        _require_ready((await tx.setup_links.proposals(organization.id, link_id)).get(part), proposal.changed_at)
        await tx.setup_links.mark_applied(organization.id, link_id, part, caller.actor_id, now)
        tx.record(events.part_applied(details.link, part))
        await store(tx)
    return await links.find(ports, caller, link_id)


def _require_ready(proposal: SetupProposal | None, changed_at: datetime | None) -> SetupProposal:
    """Return a proposal that can be applied, and has not changed since."""
    if proposal is None or not proposal.is_ready or proposal.applied_at is not None:
        raise SetupNotReady
    if changed_at not in (None, proposal.changed_at):
        raise SetupProposalChanged
    return proposal


async def _prepare(
    ports: Ports, caller: callers.OrganizationCaller, link: SetupLink, proposal: SetupProposal, now: datetime
) -> Callable[[Transaction], Awaitable[object]]:
    """Return the step that stores a proposal. Slow work is done here, outside any transaction."""
    match proposal.part:
        case callers.SetupPart.CONNECTION:
            proposed = await connection.build(ports, link, proposal)
            return lambda tx: connection.store(tx, caller, proposed, now)
        case callers.SetupPart.DOMAIN:
            for claim in claims_of(proposal):
                await domains.require_record(ports, claim)
            return lambda tx: domains.add_verified(tx, claims_of(proposal), now)
        case callers.SetupPart.DIRECTORY:
            draft = TokenDraft(link.name, proposal.document.prefix or "", proposal.token_hash or refuse(SetupNotReady))
            return lambda tx: tokens.store(tx, caller, draft, now)
        case callers.SetupPart.CERTIFICATE:
            certificates = await connection.read_proposed_certificates(ports, proposal.document)
            return lambda tx: renewal.store(tx, caller, link, certificates)
        case callers.SetupPart.SIEM:
            return lambda tx: proposals.store_forwarding(tx, caller, proposal, now)
