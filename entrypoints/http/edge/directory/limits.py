"""A single directory's share: its large bodies and its concurrent requests (security N-10).

Without limits, an organization could fill the memory, or occupy all database connections with requests that wait for
its lock.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

import trio

from core.kernel.errors import Limited
from core.kernel.shares import FairPlaces

MAX_PER_ORGANIZATION: Final = 2
MAX_IN_TOTAL: Final = 8  # at most 128 MiB in bodies; while a body's pieces are joined, it takes its size twice
MAX_CONCURRENT: Final = 4  # running requests per organization; further requests wait
MAX_WAITING: Final = 6000  # running requests for all organizations
MAX_ADMITTED: Final = 60  # requests per organization that run, wait for their turn, or are still arriving
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

    There are MAX_IN_TOTAL bodies, and an organization has at most MAX_PER_ORGANIZATION. The second half is reserved for
    organizations that have none yet. So a few organizations cannot use up all places.
    """

    def __init__(self) -> None:
        self._held: Counter[UUID] = Counter()

    def held_by(self, org_id: UUID) -> int:
        """Return how many bodies the organization has."""
        return self._held[org_id]

    @contextmanager
    def admit(self, org_id: UUID) -> Iterator[None]:
        """Count a body for the organization until the block ends."""
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
    """The concurrent SCIM requests: up to MAX_ADMITTED per organization.

    Up to MAX_CONCURRENT requests per organization run, and all organizations together occupy at most half of the
    connections. Further requests wait, and organizations have turns.
    """

    def __init__(self, pool_size: int) -> None:
        self.places = FairPlaces(trio.Event, max(1, pool_size // 2), of_share=MAX_CONCURRENT, waiting=MAX_WAITING)
        self._admitted: Counter[UUID] = Counter()

    @contextmanager
    def admit(self, org_id: UUID) -> Iterator[None]:
        """Count a request until the block ends. It takes a place while it runs."""
        if self._admitted[org_id] >= MAX_ADMITTED:
            raise TooManyDirectoryRequests
        self._admitted[org_id] += 1
        try:
            yield
        finally:
            self._admitted[org_id] -= 1
            if not self._admitted[org_id]:
                del self._admitted[org_id]
