"""Storage of the area maintenance."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.maintenance.housekeeping_rules import Sealed as SealedKind
from core.maintenance.housekeeping_rules import Sweep

# housekeeping: What is asked of storage about what is past its time.


class Leases(Protocol):
    async def take(self, name: str, holder: UUID, now: datetime, until: datetime) -> bool:
        """Take or extend the lease on work that one process at a time may do; false while another holder has it."""
        ...


class Housekeeping(Protocol):
    async def sweep(self, what: Sweep, before: datetime, limit: int) -> int:
        """Remove at most `limit` rows that were past their use at `before`; how many it were. What is in use now is left alone.

        Totals of logins are not removed but put together, those of days before that of `before`.
        What is left of a deleted organization or service is past its use at once, the tombstone when it is older than `before` and nothing
        is left.
        Accounts take two statements: one locks them, and another judges again what is locked.
        Blankings are not swept by this, but by core.blanking.
        """
        ...


# sealed: What is asked of storage about values that are encrypted at rest.


class Sealed(Protocol):
    """The values that are encrypted at rest."""

    async def renew(self, kind: SealedKind, after: str, limit: int) -> tuple[int, str | None]:
        """Seal under the active key what is not, in at most `limit` rows after the one named `after` ("" is before the first).

        How many it were, and the name of the last row, or None if there are no more. One statement for each of them.
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
    def sealed(self) -> Sealed: ...
