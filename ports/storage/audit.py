"""What is asked of storage about audit logs."""

from typing import Protocol
from uuid import UUID

from core.audit import Entry, Filter
from core.values import Listed, Page


class AuditRead(Protocol):
    async def page(self, org_id: UUID, wanted: Filter, page: Page) -> Listed[Entry]:
        """The organization's entries, the newest first. Two statements: how many there are, and those of the page."""
        ...


class Audit(Protocol):
    async def forget(self, user_id: UUID) -> None:
        """Remove the entries, in whatever log, that tell of nothing but this person's own account. Also counts them out."""
        ...
