"""Reading an organization's audit log, and the right to forward it."""

from collections.abc import Sequence
from functools import partial
from uuid import UUID

from core.eventing.descriptions import describe_entries, resolve_search
from core.eventing.model.audit import EXPORT_BATCH, AuditEntryNotFound, AuditFilter
from core.eventing.model.sentences import DescribedEntry
from core.kernel.access import require_right, require_scopes_for
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.kernel.values import Batches, Page, PageResult
from core.tenancy import organizations
from core.tenancy.model.organizations import Organization
from ports import Ports
from ports.storage import Reading, Transaction


async def lock_organization_to_forward(tx: Transaction, caller: OrganizationCaller, capability: Capability) -> Organization:
    """Lock the organization for a caller who has this right, and lets a receiver get what the audit log shows.

    So the caller may read the log, and their token has the scope.
    """
    organization, rights = await organizations.lock_organization_for(tx, caller, capability)
    require_right(rights, Capability.AUDIT_VIEW, organization.status)
    require_scopes_for(caller, frozenset({Capability.AUDIT_VIEW}))
    return organization


async def list_entries(ports: Ports, caller: OrganizationCaller, filter_: AuditFilter | None, page: Page) -> PageResult[DescribedEntry]:
    """Return a page with the matching entries, newest first. If the filter is None, no entry matches.

    With a filter by success, time or text, only the newest MAX_LISTED matching entries have pages.
    """
    org_id = caller.acts_in.id
    async with ports.storage.reading() as read:
        resolved = await _resolve(ports, read, org_id, filter_)
        if resolved is None:
            return PageResult([], 0)
        result = await read.audit.page(org_id, resolved, page)
        return PageResult(await describe_entries(ports, partial(read.audit.names, org_id), result.items), result.total)


async def get_entry(ports: Ports, caller: OrganizationCaller, entry_id: UUID) -> DescribedEntry:
    """Return an entry from the organization's log."""
    org_id = caller.acts_in.id
    async with ports.storage.reading() as read:
        entry = await read.audit.by_id(org_id, entry_id) or refuse(AuditEntryNotFound)
        return (await describe_entries(ports, partial(read.audit.names, org_id), [entry]))[0]


async def export(ports: Ports, caller: OrganizationCaller, filter_: AuditFilter | None) -> Batches[DescribedEntry]:
    """Return all matching entries, newest first, without entries that are written after the first batch was read.

    If the filter is None, no entry matches.
    """
    org_id = caller.acts_in.id
    async with ports.storage.reading() as read:
        resolved = await _resolve(ports, read, org_id, filter_)

    async def load_next(last: DescribedEntry | None, count: int) -> Sequence[DescribedEntry]:
        if resolved is None:
            return ()
        async with ports.storage.reading() as read:
            entries = await read.audit.batch(org_id, resolved, None if last is None else last.entry, count)
            return await describe_entries(ports, partial(read.audit.names, org_id), entries)

    return Batches(load_next, size=EXPORT_BATCH)


async def _resolve(ports: Ports, read: Reading, org_id: UUID, filter_: AuditFilter | None) -> AuditFilter | None:
    return None if filter_ is None else await resolve_search(ports, partial(read.audit.find_objects, org_id), filter_)
