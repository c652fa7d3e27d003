"""Lists that are read in batches: every item once, and no needless read."""

from collections.abc import Sequence

from core.kernel.values import Batches
from tests.tables import table


class Numbers:
    """The numbers from 1 to `count`, and their reads."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.reads: list[tuple[int | None, int]] = []

    async def read(self, last: int | None, limit: int) -> Sequence[int]:
        self.reads.append((last, limit))
        return range((last or 0) + 1, self.count + 1)[:limit]


async def items(batches: Batches[int]) -> list[list[int]]:
    return [list(batch) async for batch in batches]


@table(
    ("count", "limit", "read", "reads"),
    [
        (0, None, [], [(None, 3)]),
        (2, None, [[1, 2]], [(None, 3)]),
        (3, None, [[1, 2, 3]], [(None, 3), (3, 3)]),
        (7, None, [[1, 2, 3], [4, 5, 6], [7]], [(None, 3), (3, 3), (6, 3)]),
        (7, 0, [], []),
        (7, 2, [[1, 2]], [(None, 2)]),
        (7, 3, [[1, 2, 3]], [(None, 3)]),
        (7, 4, [[1, 2, 3], [4]], [(None, 3), (3, 1)]),
        (2, 100, [[1, 2]], [(None, 3)]),
    ],
)
async def test_all_items_come_in_batches(count: int, limit: int | None, read: list[list[int]], reads: list[tuple[int | None, int]]) -> None:
    numbers = Numbers(count)
    batches = Batches(numbers.read, limit, size=3)
    assert await items(batches) == read
    assert numbers.reads == reads
    assert await items(batches) == []
    assert numbers.reads == reads
