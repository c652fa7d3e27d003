"""The audit log of an organization: entries, filters, pages (organizations.md sections 2.8, 4.9 and 6.3; decisions, points 226 to 232)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.kernel.values import PageResult

if TYPE_CHECKING:
    from core.eventing.audit_rules import AuditEntry, AuditFilter
    from core.kernel.principals import Member
    from core.kernel.values import Page
    from ports import Ports


async def listed(ports: Ports, caller: Member, filter_: AuditFilter | None, page: Page) -> PageResult[AuditEntry]:
    """Entries of the organization that `caller` acts in, the newest first."""
    if filter_ is None:
        return PageResult([], 0)
    async with ports.storage.reading() as read:
        return await read.audit.page(caller.acts_in.id, filter_, page)
