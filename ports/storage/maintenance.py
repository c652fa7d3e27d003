"""Storage for maintenance: leases on jobs, deleting obsolete rows, encrypted columns, and secrets that expire soon."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.email_queue import NoticedSecret
from core.maintenance.model import housekeeping
from core.maintenance.model.housekeeping import ExpiringSecret


class Leases(Protocol):
    """Leases on jobs. Only the process with the lease runs the job."""

    async def take(self, name: str, holder: UUID, now: datetime, until: datetime) -> bool:
        """Take or extend the lease, and return whether `holder` has it. False means that another holder has it.

        The method does not wait for another holder's transaction.
        """


class Housekeeping(Protocol):
    """Deleting obsolete rows."""

    async def sweep(self, kind: housekeeping.Sweep, before: datetime, limit: int) -> int:
        """Delete at most `limit` rows that were obsolete at `before`. Return their number. Rows that are locked are skipped.

        Login totals are merged instead of deleted: totals for days before `before` become a single row per day. The
        records of a deleted organization, service or webhook are deleted whatever their age. The tombstone is deleted
        when it is older than `before` and no record is left. Unverified accounts take two statements: the first locks
        them, and the second checks them again. core.maintenance.housekeeping redacts the logs.
        """


class SealedColumns(Protocol):
    """The values that are encrypted at rest."""

    async def renew(self, column: housekeeping.SealedColumn, after: str, limit: int) -> tuple[int, str | None]:
        """Encrypt the values in up to `limit` rows under the active key, in the order of the row names.

        Start after the row named `after`, or at the first row if it is "". Return how many values had another key, and
        the last row's name, or None if no rows are left. Every value takes a statement.
        """

    async def check(self, column: housekeeping.SealedColumn, after: str, limit: int) -> tuple[int, str | None]:
        """Decrypt the values in up to `limit` rows, in the same order as `renew`.

        Return how many values there are, and the last row's name or None.

        Raises: SealBroken.
        """


class ExpiringSecrets(Protocol):
    """Secrets, whatever their kind, that work now and expire soon."""

    async def claim(self, kind: NoticedSecret, days: Collection[int], now: datetime, limit: int) -> list[ExpiringSecret]:
        """Mark at most `limit` secrets with a due announcement as announced, and return them.

        `days` says how many days before the end announcements are due. A secret is due on the nearest such day that it
        was made to outlive, unless this was announced. Secrets without a usable recipient stay unmarked. Rows that are
        locked are skipped.
        """
