"""Places that all organizations share, with a queue that serves them in turn (security N-11).

A share belongs to an organization, to an account outside organizations, or to a client address without credentials. Strangers wait apart
from callers with credentials: a flood of strangers delays a caller with credentials by one turn at most.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar
from uuid import UUID

from core.kernel.errors import Limited

T = TypeVar("T")
Share = tuple[Hashable, Hashable]  # (group, member): groups take turns, and members within their group

OWN: Final[Share] = ("own", None)  # the process's own work: actors and commands
# Set by the edge for each request, and by actors that work for an organization.
current_share: Final[ContextVar[Share]] = ContextVar("current_share", default=OWN)

MAX_WAITING: Final = 1000
RETRY_AFTER: Final = 1  # seconds


def of_organization(org_id: UUID | None) -> Share:
    """Return the share of an organization, or with None the share of the platform's programs."""
    return "organization", org_id


def of_account(user_id: UUID) -> Share:
    return "account", user_id


def of_stranger(address: str) -> Share:
    return "stranger", address


@contextmanager
def working_for(share: Share) -> Iterator[Share]:
    """Let this share use the places until the block ends. Yield the earlier share."""
    before = current_share.get()
    token = current_share.set(share)
    try:
        yield before
    finally:
        current_share.reset(token)


class FairQueue(Generic[T]):
    """Items that wait. Groups are served in turn, and so are a group's members."""

    def __init__(self) -> None:
        self._groups: OrderedDict[Hashable, OrderedDict[Hashable, deque[T]]] = OrderedDict()
        self._sizes: Counter[Hashable] = Counter()  # waiting items per group

    def __len__(self) -> int:
        return self._sizes.total()

    def add(self, share: Share, item: T, most: int | None = None) -> T | None:
        """Add an item behind its share's earlier items.

        If more than `most` items wait then, remove and return the newest item of the largest share in the largest group. So only the share
        that floods the queue is refused. Among equal shares, the last share in turn loses an item, but never a share with its first item.
        """
        group, member = share
        self._groups.setdefault(group, OrderedDict()).setdefault(member, deque()).append(item)
        self._sizes[group] += 1
        if most is None or len(self) <= most:
            return None
        largest = max(self._sizes, key=lambda each: (self._sizes[each], each == group))
        members = self._groups[largest]
        longest = max(reversed(members), key=lambda each: (len(members[each]), ((largest, each) == share) == (len(members[each]) > 1)))
        newest = members[longest].pop()
        self._end_turn(largest, longest)
        return newest

    def remove(self, share: Share, item: T) -> None:
        """Remove an item that no longer waits. Raises: ValueError, KeyError if it is not in the queue."""
        group, member = share
        self._groups[group][member].remove(item)
        self._end_turn(group, member)

    def pop(self, may_run: Callable[[Share], bool] = lambda _: True) -> tuple[Share, T] | None:
        """Remove and return the next item from a share that may run, with the share, or None if there is none."""
        for group, members in self._groups.items():
            for member, items in members.items():
                if may_run((group, member)):
                    item = items.popleft()
                    members.move_to_end(member)
                    self._groups.move_to_end(group)
                    self._end_turn(group, member)
                    return (group, member), item
        return None

    def _end_turn(self, group: Hashable, member: Hashable) -> None:
        """Count a removed item, and forget its share if no item is left."""
        self._sizes[group] -= 1
        members = self._groups[group]
        if not members[member]:
            del members[member]
        if not members:
            del self._groups[group], self._sizes[group]


class WakeUp(Protocol):
    """An event from the framework for asynchronous tasks, such as `trio.Event`."""

    def set(self) -> None:
        """Wake the tasks that wait."""

    def wait(self) -> Awaitable[None]:
        """Wait until the event is set."""


@dataclass(eq=False, slots=True)
class _Waiter:
    """A task that waits for a place. `is_admitted` is None until the task gets a place or is refused."""

    event: WakeUp
    is_admitted: bool | None = None

    def end(self, *, is_admitted: bool) -> None:
        self.is_admitted = is_admitted
        self.event.set()


class FairPlaces:
    """A limited number of places for tasks or threads. Shares that wait for a place are served in turn.

    A `FairPlaces` can replace a `trio.CapacityLimiter` for threads. A place is free again when its thread has ended.
    """

    def __init__(
        self,
        event: Callable[[], WakeUp],
        total: int,
        *,
        of_group: int | None = None,
        of_share: int | None = None,
        waiting: int = MAX_WAITING,
    ) -> None:
        """A group uses at most `of_group` places, a share at most `of_share`. At most `waiting` tasks wait.

        Without `of_share`, a share takes a place only while it uses fewer places than are free: at most half the places. The next share
        takes at most half the rest.
        """
        self._event = event
        self._total = total
        self._of_group = of_group or total
        self._of_share = of_share
        self._in_use: Counter[Hashable] = Counter()  # places per share and per group
        self._used = 0
        self._most_waiting = waiting
        self._waiting: FairQueue[_Waiter] = FairQueue()
        self._borrowed: dict[object, Share] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no place is in use, so that no task waits either."""
        return not self._used

    async def take(self, share: Share | None = None) -> AbstractContextManager[None]:
        """Take a place in the share's turn, and use it in a block: `with await places.take()`. None: the current share.

        Raises: Limited if the share has filled the queue.
        """
        share = share or current_share.get()
        await self._take(share)
        return self._use(share)

    @contextmanager
    def _use(self, share: Share) -> Iterator[None]:
        try:
            yield
        finally:
            self._end(share)

    async def _take(self, share: Share) -> None:
        if self._may_run(share):
            self._begin(share)
            return
        waiter = _Waiter(self._event())
        refused = self._waiting.add(share, waiter, self._most_waiting)
        if refused is not None:
            refused.end(is_admitted=False)
        try:
            await waiter.event.wait()
        except BaseException:
            if waiter.is_admitted:
                self._end(share)
            elif waiter.is_admitted is None:
                self._waiting.remove(share, waiter)
            raise
        if not waiter.is_admitted:
            raise Limited(RETRY_AFTER)

    def _may_run(self, share: Share) -> bool:
        free, in_use = self._total - self._used, self._in_use
        return free > 0 and in_use[share] < (self._of_share or free) and in_use[share[0]] < self._of_group

    def _begin(self, share: Share) -> None:
        self._used += 1
        self._in_use[share] += 1
        self._in_use[share[0]] += 1

    def _end(self, share: Share) -> None:
        self._used -= 1
        for key in (share, share[0]):
            self._in_use[key] -= 1
            if not self._in_use[key]:
                del self._in_use[key]
        while self._used < self._total and (following := self._waiting.pop(self._may_run)) is not None:
            admitted, waiter = following
            self._begin(admitted)
            waiter.end(is_admitted=True)

    async def acquire_on_behalf_of(self, borrower: object) -> None:
        """Take a place for a thread, in the share that its starting task has."""
        share = current_share.get()
        await self._take(share)
        self._borrowed[borrower] = share

    def release_on_behalf_of(self, borrower: object) -> None:
        """Free the place when its thread has ended."""
        self._end(self._borrowed.pop(borrower))
