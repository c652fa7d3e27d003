"""What a set-up link's reader proposes, also a SIEM. No proposal has an effect before an admin applies it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.eventing import siem
from core.eventing.model.siem import SiemProvider, new_sink
from core.federation.connections.model.connections import ConnectionProblem
from core.kernel import callers, errors, values
from core.kernel.causes import Caller
from core.provisioning.model import directories
from core.setup import events, links
from core.setup.model import links as links_model
from core.tenancy.domains import require_record
from core.tenancy.model.domains import MAX_RECORD_NAME, DomainClaim, DomainTooLong
from ports import Ports
from ports.storage import Transaction


async def load(ports: Ports, caller: callers.SetupLinkCaller) -> links_model.SetupLinkDetails:
    """Return the caller's link with its own proposals. Raises: SetupSessionMissing."""
    return await links.load(ports, caller.org_id, caller.link_id) or errors.refuse(links_model.SetupSessionMissing)


async def propose_domain(ports: Ports, caller: callers.SetupLinkCaller, domain: values.Domain) -> None:
    """Propose a further domain. A domain that is already proposed stays."""
    former = (await load(ports, caller)).proposals.get(callers.SetupPart.DOMAIN)
    present = () if former is None else former.document.domains
    if any(each.domain == domain for each in present):
        return
    if len(present) >= links_model.MAX_PROPOSED_DOMAINS:
        raise links_model.TooManyProposedDomains
    new = links_model.ProposedDomain(domain=domain, challenge=values.new_secret())
    if len(_to_claim(caller.org_id, new, ports.clock.now()).record_name) > MAX_RECORD_NAME:
        raise DomainTooLong
    await _propose_domains(ports, caller, (*present, new), former)


async def check_domain(ports: Ports, caller: callers.SetupLinkCaller, domain: str) -> None:
    """Look up the DNS record for a proposed domain, and note that it is there.

    The domain is not verified by that: its record is looked up again when an admin applies the proposal.
    """
    proposal, named = await _find_domain(ports, caller, domain)
    await require_record(ports, _to_claim(caller.org_id, named, proposal.changed_at))
    checked = [replace(each, is_found=each.is_found or each is named) for each in proposal.document.domains]
    await _propose_domains(ports, caller, checked, proposal)


async def remove_domain(ports: Ports, caller: callers.SetupLinkCaller, domain: str) -> None:
    """Take a proposed domain back."""
    proposal, named = await _find_domain(ports, caller, domain)
    await _propose_domains(ports, caller, [each for each in proposal.document.domains if each is not named], proposal)


async def _find_domain(
    ports: Ports, caller: callers.SetupLinkCaller, domain: str
) -> tuple[links_model.SetupProposal, links_model.ProposedDomain]:
    proposal = (await load(ports, caller)).proposals.get(callers.SetupPart.DOMAIN) or errors.refuse(links_model.SetupDomainMissing)
    return proposal, next((each for each in proposal.document.domains if each.domain == domain), None) or errors.refuse(
        links_model.SetupDomainMissing
    )


async def _propose_domains(
    ports: Ports, caller: callers.SetupLinkCaller, domains: Sequence[links_model.ProposedDomain], former: links_model.SetupProposal | None
) -> None:
    """Propose these domains. The domains are ready when every record is there."""
    is_ready = bool(domains) and all(each.is_found for each in domains)
    await propose(
        ports, caller, callers.SetupPart.DOMAIN, links_model.SetupDocument(domains=tuple(domains)), is_ready=is_ready, replaces=former
    )


def claims_of(proposal: links_model.SetupProposal) -> list[DomainClaim]:
    """Return the claims that a domain proposal stands for."""
    return [_to_claim(proposal.org_id, each, proposal.changed_at) for each in proposal.document.domains]


def _to_claim(org_id: UUID, proposed: links_model.ProposedDomain, now: datetime) -> DomainClaim:
    return DomainClaim(org_id=org_id, domain=values.Domain(proposed.domain), challenge=proposed.challenge, verified_at=None, created_at=now)


async def propose_directory(ports: Ports, caller: callers.SetupLinkCaller) -> str:
    """Propose a SCIM token, in place of the earlier token, and return its secret, which is never returned again."""
    secret, prefix = directories.new_token()
    await propose(ports, caller, callers.SetupPart.DIRECTORY, links_model.SetupDocument(prefix=prefix), is_ready=True, token=secret)
    return secret


async def finish(ports: Ports, caller: callers.SetupLinkCaller) -> None:
    """End the caller's link. The link's proposals wait for an admin. Raises: SetupSessionMissing, OrganizationNotActive."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await _lock(tx, caller, now)
        ended = await tx.setup_links.end(caller.org_id, caller.link_id, links_model.SetupLinkEnd.FINISHED, now) or errors.refuse(
            links_model.SetupSessionMissing
        )
        tx.record(events.ended(ended))


async def propose(
    ports: Ports,
    caller: callers.SetupLinkCaller,
    part: callers.SetupPart,
    document: links_model.SetupDocument,
    *,
    is_ready: bool,
    token: str | None = None,
    replaces: links_model.SetupProposal | None = None,
) -> None:
    """Store the proposal for a part. With `replaces`, it changes this proposal, unless another proposal replaced it before."""
    now = ports.clock.now()
    if part not in caller.parts:
        raise links_model.SetupPartFixed
    async with ports.storage.transaction(by=caller) as tx:
        link = await _lock(tx, caller, now)
        former = (await tx.setup_links.proposals(link.org_id, link.id)).get(part)
        if former is not None and former.applied_at is not None:
            raise links_model.SetupPartFixed
        if replaces is not None and (former is None or (former.id, former.changed_at) != (replaces.id, replaces.changed_at)):
            raise links_model.SetupProposalReplaced
        proposal = links_model.SetupProposal(
            id=values.new_id() if replaces is None else replaces.id,
            org_id=link.org_id,
            link_id=link.id,
            part=part,
            document=document,
            is_ready=is_ready,
            changed_at=now,
            token_hash=None if token is None else values.digest(token),
        )
        await tx.setup_links.put_proposal(proposal)
        tx.record(events.part_changed(link, part, is_ready=proposal.is_ready))


async def note_problems(
    ports: Ports, caller: callers.SetupLinkCaller, proposal: links_model.SetupProposal, problems: Sequence[ConnectionProblem]
) -> None:
    """Store the problems that a check on the proposal found, in place of the earlier problems.

    A check does not change the proposal: there is no audit entry, and the last change time stays. A proposal that was replaced or applied
    during the check stays as it is.
    """
    async with ports.storage.transaction(by=caller) as tx:
        link = await _lock(tx, caller, ports.clock.now())
        present = (await tx.setup_links.proposals(link.org_id, link.id)).get(proposal.part)
        if present is not None and (present.id, present.changed_at, present.applied_at) == (proposal.id, proposal.changed_at, None):
            await tx.setup_links.put_proposal(replace(present, document=replace(present.document, problems=tuple(problems))))


async def _lock(tx: Transaction, caller: callers.SetupLinkCaller, now: datetime) -> links_model.SetupLink:
    """Lock the organization, as every link change does, and check the link again."""
    organization = await tx.organizations.lock(caller.org_id) or errors.refuse(links_model.SetupSessionMissing)
    if organization.status is not callers.OrganizationStatus.ACTIVE:
        raise errors.OrganizationNotActive
    link = await tx.setup_links.by_id(organization.id, caller.link_id)
    return link if link is not None and link.is_live(now) else errors.refuse(links_model.SetupSessionMissing)


async def answer_directory(ports: Ports, caller: Caller, secret: str, request: str, *, asks_for_config: bool) -> callers.ScimClient:
    """Return the directory with a proposed SCIM token, which gets the supported features and nothing else.

    The directory's first request is noted.

    Raises: ScimTokenInvalid, also if no link proposes such a token; ScimTokenNotApplied.
    """
    if len(secret) > directories.MAX_TOKEN_LENGTH or not secret.startswith(directories.TOKEN_START):
        raise directories.ScimTokenInvalid
    async with ports.storage.autocommit() as statements:
        proposed = await statements.setup_links.try_token(values.digest(secret), request, ports.clock.now()) or errors.refuse(
            directories.ScimTokenInvalid
        )
    if not asks_for_config:
        raise links_model.ScimTokenNotApplied
    return callers.ScimClient(
        token_id=proposed.proposal_id, org_id=proposed.org_id, org_slug=proposed.org_slug, address=caller.address, agent=caller.agent
    )


async def propose_forwarding(ports: Ports, caller: callers.SetupLinkCaller, provider: SiemProvider, endpoint_url: str, token: str) -> None:
    """Propose a SIEM, in place of the earlier proposal. Nothing is sent to the SIEM."""
    sink = new_sink(caller.org_id, provider=provider, endpoint_url=endpoint_url, token=token, enabled=True)
    if not sink.endpoint_url.startswith("https:"):
        raise links_model.SetupReceiverNotEncrypted
    document = links_model.SetupDocument(siem_provider=provider.value, endpoint_url=sink.endpoint_url, siem_token=token)
    await propose(ports, caller, callers.SetupPart.SIEM, document, is_ready=True)


async def store_forwarding(tx: Transaction, caller: callers.OrganizationCaller, proposal: links_model.SetupProposal, now: datetime) -> None:
    """Forward the audit log to the proposed SIEM, in place of the present SIEM."""
    document = proposal.document
    provider, endpoint_url = SiemProvider(document.siem_provider or ""), document.endpoint_url or ""
    sink = new_sink(proposal.org_id, provider=provider, endpoint_url=endpoint_url, token=document.siem_token or "", enabled=True)
    await siem.store(tx, caller, sink, now)
