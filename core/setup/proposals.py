"""The proposals of the reader of a set-up link. None has an effect before an admin applies it."""

from datetime import datetime

from core.kernel.callers import OrganizationStatus, ScimClient, SetupLinkCaller, SetupPart
from core.kernel.causes import Caller
from core.kernel.errors import OrganizationNotActive, refuse
from core.kernel.values import Domain, digest, new_id, new_secret
from core.provisioning.model.directories import MAX_TOKEN_LENGTH, TOKEN_START, ScimTokenInvalid, new_token
from core.setup import events, links
from core.setup.model.links import (
    ScimTokenNotApplied,
    SetupDocument,
    SetupDomainMissing,
    SetupLink,
    SetupLinkDetails,
    SetupLinkEnd,
    SetupPartFixed,
    SetupProposal,
    SetupProposalReplaced,
    SetupSessionMissing,
)
from core.tenancy.domains import require_record
from core.tenancy.model.domains import MAX_RECORD_NAME, DomainClaim, DomainTooLong
from ports import Ports
from ports.storage import Transaction


async def load(ports: Ports, caller: SetupLinkCaller) -> SetupLinkDetails:
    """Return the link of the caller with its own proposals. Raises: SetupSessionMissing."""
    return await links.load(ports, caller.org_id, caller.link_id) or refuse(SetupSessionMissing)


async def propose_domain(ports: Ports, caller: SetupLinkCaller, domain: Domain) -> None:
    """Propose a domain, in place of the one before. Its record has a new challenge. Raises: DomainTooLong, SetupPartFixed."""
    now = ports.clock.now()
    claim = DomainClaim(org_id=caller.org_id, domain=domain, challenge=new_secret(), verified_at=None, created_at=now)
    if len(claim.record_name) > MAX_RECORD_NAME:
        raise DomainTooLong
    await propose(ports, caller, SetupPart.DOMAIN, SetupDocument(domain=claim.domain, challenge=claim.challenge), is_ready=False)


async def check_domain(ports: Ports, caller: SetupLinkCaller) -> None:
    """Look the record of the proposed domain up, and note that it is there.

    The domain is not verified by that: its record is looked up again when an admin applies the proposal.

    Raises: SetupDomainMissing, SetupPartFixed, SetupProposalReplaced, RecordNotFound, DnsFailed.
    """
    proposal = (await load(ports, caller)).proposals.get(SetupPart.DOMAIN) or refuse(SetupDomainMissing)
    await require_record(ports, claim_of(proposal))
    await propose(ports, caller, SetupPart.DOMAIN, proposal.document, is_ready=True, replaces=proposal)


def claim_of(proposal: SetupProposal) -> DomainClaim:
    """Return the claim that a proposal of a domain stands for."""
    return DomainClaim(
        org_id=proposal.org_id,
        domain=Domain(proposal.document.domain or ""),
        challenge=proposal.document.challenge or "",
        verified_at=None,
        created_at=proposal.changed_at,
    )


async def propose_directory(ports: Ports, caller: SetupLinkCaller) -> str:
    """Propose a SCIM token, in place of the one before, and return its secret, which is never returned again. Raises: SetupPartFixed."""
    secret, prefix = new_token()
    await propose(ports, caller, SetupPart.DIRECTORY, SetupDocument(prefix=prefix), is_ready=True, token=secret)
    return secret


async def finish(ports: Ports, caller: SetupLinkCaller) -> None:
    """End the caller's link. Its proposals wait for an admin. Raises: SetupSessionMissing."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await _lock(tx, caller, now)
        ended = await tx.setup_links.end(caller.org_id, caller.link_id, SetupLinkEnd.FINISHED, now) or refuse(SetupSessionMissing)
        tx.record(events.ended(ended))


async def propose(
    ports: Ports,
    caller: SetupLinkCaller,
    part: SetupPart,
    document: SetupDocument,
    *,
    is_ready: bool,
    token: str | None = None,
    replaces: SetupProposal | None = None,
) -> None:
    """Store the proposal for a part. With `replaces`, it changes this one, unless another one replaced it before.

    Raises: SetupPartFixed, SetupProposalReplaced, SetupSessionMissing.
    """
    now = ports.clock.now()
    if part not in caller.parts:
        raise SetupPartFixed
    async with ports.storage.transaction(by=caller) as tx:
        link = await _lock(tx, caller, now)
        former = (await tx.setup_links.proposals(link.org_id, link.id)).get(part)
        if former is not None and former.applied_at is not None:
            raise SetupPartFixed
        if replaces is not None and (former is None or former.id != replaces.id):
            raise SetupProposalReplaced
        proposal = SetupProposal(
            id=new_id() if replaces is None else replaces.id,
            org_id=link.org_id,
            link_id=link.id,
            part=part,
            document=document,
            is_ready=is_ready,
            changed_at=now,
            token_hash=None if token is None else digest(token),
        )
        await tx.setup_links.put_proposal(proposal)
        tx.record(events.part_changed(link, part, is_ready=proposal.is_ready))


async def _lock(tx: Transaction, caller: SetupLinkCaller, now: datetime) -> SetupLink:
    """Lock the organization, which each change of a link locks, and check the link again. Raises: SetupSessionMissing."""
    organization = await tx.organizations.lock(caller.org_id) or refuse(SetupSessionMissing)
    if organization.status is not OrganizationStatus.ACTIVE:
        raise OrganizationNotActive
    link = await tx.setup_links.by_id(organization.id, caller.link_id)
    return link if link is not None and link.is_live(now) else refuse(SetupSessionMissing)


async def answer_directory(ports: Ports, caller: Caller, secret: str, request: str, *, asks_for_config: bool) -> ScimClient:
    """Return the directory with a proposed SCIM token, which gets the supported features and nothing else. Its first request is noted.

    Raises: ScimTokenInvalid, also if no link proposes such a token; ScimTokenNotApplied.
    """
    if len(secret) > MAX_TOKEN_LENGTH or not secret.startswith(TOKEN_START):
        raise ScimTokenInvalid
    async with ports.storage.autocommit() as statements:
        proposed = await statements.setup_links.try_token(digest(secret), request, ports.clock.now()) or refuse(ScimTokenInvalid)
    if not asks_for_config:
        raise ScimTokenNotApplied
    return ScimClient(
        token_id=proposed.proposal_id, org_id=proposed.org_id, org_slug=proposed.org_slug, address=caller.address, agent=caller.agent
    )
