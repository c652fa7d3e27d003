"""Reading the audit log of an organization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.kernel.values import PageResult

if TYPE_CHECKING:
    from core.eventing.audit_rules import AuditEntry, AuditFilter
    from core.kernel.principals import Member
    from core.kernel.values import Page
    from ports import Ports


async def list_entries(ports: Ports, caller: Member, filter_: AuditFilter | None, page: Page) -> PageResult[AuditEntry]:
    """Return a page of the matching entries, newest first. A filter of None matches no entry."""
    if filter_ is None:
        return PageResult([], 0)
    async with ports.storage.reading() as read:
        return await read.audit.page(caller.acts_in.id, filter_, page)
