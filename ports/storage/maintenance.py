"""Storage of maintenance: leases on jobs, deletion of obsolete rows, and encrypted columns."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.maintenance.housekeeping_rules import SealedColumn, Sweep


class Leases(Protocol):
    """Leases on jobs that one process at a time does."""

    async def take(self, name: str, holder: UUID, now: datetime, until: datetime) -> bool:
        """Take or extend the lease, and return whether `holder` has it. False means that another holder has it."""
        ...


class Housekeeping(Protocol):
    """Deletion of obsolete rows."""

    async def sweep(self, kind: Sweep, before: datetime, limit: int) -> int:
        """Delete at most `limit` rows that were obsolete at `before`. Return their number. Rows that are locked are skipped.

        Totals of logins are not deleted: those of days before `before` are merged into one row per day.
        The records of a deleted organization, service or webhook are deleted at once. Its tombstone follows
        when it is older than `before` and no record is left.
        Unverified accounts take two statements: the first locks them, and the second checks the locked ones again.
        Redaction of logs is not done here but in core.maintenance.log_redaction.
        """
        ...


class SealedColumns(Protocol):
    """The values that are encrypted at rest."""

    async def renew(self, column: SealedColumn, after: str, limit: int) -> tuple[int, str | None]:
        """Encrypt under the active key the values of up to `limit` rows with names after `after`; "" is before the first.

        Return the number of values that had another key, and the name of the last row, or None if no rows are left. Takes
        one statement per value.
        """
        ...


# The repositories of this area, by the kind of access


class MaintenanceTransaction(Protocol):
    """The repositories of maintenance in a transaction."""

    @property
    def housekeeping(self) -> Housekeeping: ...
    @property
    def leases(self) -> Leases: ...
    @property
    def sealed(self) -> SealedColumns: ...
