"""The share of one directory: its large bodies and its concurrent requests (security N-10).

Without limits, one organization could fill the memory, or occupy all database connections with
requests that wait for the lock on the organization.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import trio

from core.kernel.errors import Limited

MAX_PER_ORGANIZATION: Final = 2
MAX_IN_TOTAL: Final = 8  # at most 128 MiB of bodies; while the pieces of one are joined, it takes its size twice
MAX_CONCURRENT: Final = 4  # requests of an organization, on at most half of the connections to the database; others wait
MAX_ADMITTED: Final = 60  # requests of an organization that run, wait for their turn, or are still arriving
RETRY_AFTER: Final = 5  # seconds; about the time that a process needs for the largest body


class TooManyLargeBodies(Limited):
    """Too many large requests arrive at the same time. Send one after the other."""

    def __init__(self) -> None:
        super().__init__(RETRY_AFTER, f"{type(self).__doc__} Try again in {RETRY_AFTER} s.")


class TooManyDirectoryRequests(Limited):
    """Too many requests of your directory run or wait at the same time. Send fewer at once."""

    def __init__(self) -> None:
        super().__init__(RETRY_AFTER, f"{type(self).__doc__} Try again in {RETRY_AFTER} s.")


class LargeBodies:
    """The large bodies that this process holds, by organization.

    Of MAX_IN_TOTAL bodies, an organization has at most MAX_PER_ORGANIZATION. The second half is
    reserved for organizations that have none yet. So a few organizations cannot use up all of them.
    """

    def __init__(self) -> None:
        self._held: Counter[UUID] = Counter()

    def held_by(self, org_id: UUID) -> int:
        """Return the number of the organization's bodies."""
        return self._held[org_id]

    @contextmanager
    def admit(self, org_id: UUID) -> Iterator[None]:
        """Count a body of the organization until the block ends. Raises: TooManyLargeBodies."""
        limit = MAX_IN_TOTAL // 2 if self.held_by(org_id) else MAX_IN_TOTAL
        if self.held_by(org_id) >= MAX_PER_ORGANIZATION or self._held.total() >= limit:
            raise TooManyLargeBodies
        self._held[org_id] += 1
        try:
            yield
        finally:
            self._held[org_id] -= 1
            if not self._held[org_id]:
                del self._held[org_id]


class DirectoryTurns:
    """The concurrent SCIM requests of each organization: up to MAX_ADMITTED.

    Of these, MAX_CONCURRENT run, or fewer if they could occupy more than half of the connections. The
    others wait in order.
    """

    def __init__(self, pool_size: int) -> None:
        self._concurrent = max(1, min(MAX_CONCURRENT, pool_size // 2))
        self._admitted: Counter[UUID] = Counter()
        self._turns: dict[UUID, trio.CapacityLimiter] = {}

    @contextmanager
    def admit(self, org_id: UUID) -> Iterator[trio.CapacityLimiter]:
        """Count a request until the block ends, and give the organization's limiter, which it holds while it runs.

        Raises: TooManyDirectoryRequests.
        """
        if self._admitted[org_id] >= MAX_ADMITTED:
            raise TooManyDirectoryRequests
        self._admitted[org_id] += 1
        try:
            yield self._turns.setdefault(org_id, trio.CapacityLimiter(self._concurrent))
        finally:
            self._admitted[org_id] -= 1
            if not self._admitted[org_id]:
                del self._admitted[org_id], self._turns[org_id]
