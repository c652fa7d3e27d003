"""An organization's set-up links: members create them, watch their progress, and end them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from core.accounts.email_queue import require_within_limit
from core.accounts.model import email_queue
from core.federation.connections import connections
from core.kernel import callers, uris, values
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.setup import events
from core.setup.model import links
from core.tenancy import organizations
from ports import Ports
from ports.storage import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupLinkDraft:
    """A new set-up link's values. `days` counts for a mailed link. None: see `usual_days`."""

    name: str
    kind: links.SetupLinkKind
    parts: Sequence[callers.SetupPart]
    recipient: values.Email | None = None
    days: int | None = None
    connection: str | None = None  # the slug, to renew its certificate
    return_url: str | None = None  # an application's URL, for the finished page


async def create(ports: Ports, caller: callers.OrganizationCaller, draft: SetupLinkDraft) -> tuple[links.SetupLink, str]:
    """Create a link. Return it with its secret, which is never returned again. A mailed link is sent to its recipient."""
    now, secret = ports.clock.now(), values.new_secret()
    if not draft.parts or len(set(draft.parts)) != len(draft.parts):
        raise links.SetupPartsMissing
    if (draft.recipient is not None) is not (draft.kind is links.SetupLinkKind.MAILED):
        raise links.SetupRecipientMissing
    if draft.kind is links.SetupLinkKind.MAILED and (draft.days or 0) > ports.policy.setup_link_days:
        raise links.SetupLinkTooLong(ports.policy.setup_link_days)
    renewed = None if draft.connection is None else (await connections.find(ports, caller, draft.connection)).connection
    if (callers.SetupPart.CERTIFICATE in draft.parts) is not (renewed is not None and renewed.has_certificates):
        raise links.SetupConnectionMissing
    link = links.SetupLink(
        id=values.new_id(),
        org_id=caller.acts_in.id,
        name=draft.name,
        kind=draft.kind,
        parts=tuple(part for part in callers.SetupPart if part in draft.parts),
        recipient=draft.recipient,
        expires_at=now
        + (timedelta(days=draft.days or usual_days(ports)) if draft.kind is links.SetupLinkKind.MAILED else links.EMBEDDED_TTL),
        created_by=caller.actor_id,
        created_at=now,
        connection_id=None if renewed is None else renewed.id,
        return_url=None if draft.return_url is None else links.parse_return_url(draft.return_url),
    )
    async with ports.storage.transaction(by=caller) as tx:
        await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        if sum(each.is_live(now) for each in await tx.setup_links.of_org(link.org_id)) >= links.MAX_OPEN_LINKS:
            raise links.TooManySetupLinks
        if link.return_url is not None and not await tx.services.has_origin(link.org_id, uris.origin_of(link.return_url)):
            raise links.SetupReturnUrlInvalid
        await tx.setup_links.add(link, values.digest(secret))
        if link.recipient is not None:
            await _queue_email(ports, tx, link.recipient, secret, link)
        tx.record(events.created(link))
    return link, secret


def usual_days(ports: Ports) -> int:
    """Return the days until a mailed link expires, if its creator chooses none."""
    return min(links.USUAL_DAYS, ports.policy.setup_link_days)


async def _queue_email(ports: Ports, tx: Transaction, recipient: values.Email, secret: str, link: links.SetupLink) -> None:
    """Queue the email with a link. If the organization has reached its limit for such emails, the whole link is refused (security E-5)."""
    now = link.created_at
    await tx.email_queue.lock_recipient(recipient)
    earlier = await tx.email_queue.nth_newest_at(recipient, email_queue.EmailKind.SETUP_LINK, ports.policy.mails_per_recipient, link.org_id)
    require_within_limit(earlier, now, links.TooManySetupMails)
    await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.SETUP_LINK, recipient, now, token=secret, org_id=link.org_id))


async def list_own(ports: Ports, caller: callers.OrganizationCaller) -> list[links.SetupLink]:
    """Return the set-up links in the caller's organization, newest first. Links that ended stay for 30 days."""
    async with ports.storage.reading() as read:
        return await read.setup_links.of_org(caller.acts_in.id)


async def find(ports: Ports, caller: callers.OrganizationCaller, link_id: UUID) -> links.SetupLinkDetails:
    """Return a set-up link in the caller's organization with its proposals."""
    return await load(ports, caller.acts_in.id, link_id) or refuse(links.SetupLinkNotFound)


async def load(ports: Ports, org_id: UUID, link_id: UUID) -> links.SetupLinkDetails | None:
    """Return a link with its proposals, or None. Nothing else of the organization is read."""
    async with ports.storage.reading() as read:
        link = await read.setup_links.by_id(org_id, link_id)
        return None if link is None else links.SetupLinkDetails(link, await read.setup_links.proposals(org_id, link_id))


async def find_return_url(ports: Ports, link: links.SetupLink) -> str | None:
    """Return a link's return URL, or None without one, or if the organization has no application at its origin now."""
    if link.return_url is None:
        return None
    async with ports.storage.reading() as read:
        return link.return_url if await read.services.has_origin(link.org_id, uris.origin_of(link.return_url)) else None


async def end(ports: Ports, caller: callers.OrganizationCaller, link_id: UUID) -> None:
    """End a link, and delete its proposals, also if the link has ended already. Applied parts stay. Raises: SetupLinkNotFound."""
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.INTEGRATIONS_MANAGE)
        link = await tx.setup_links.by_id(organization.id, link_id) or refuse(links.SetupLinkNotFound)
        await tx.setup_links.remove_proposals(organization.id, link.id)
        ended = await tx.setup_links.end(organization.id, link.id, links.SetupLinkEnd.ADMIN, ports.clock.now())
        if ended is not None:
            tx.record(events.ended(ended))
