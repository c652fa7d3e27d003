"""A directory's share: large bodies, compared with a list of held bodies, and turns (security N-10)."""

from contextlib import ExitStack
from uuid import UUID

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from core.kernel.shares import of_organization
from entrypoints.http.edge.directory.limits import MAX_IN_TOTAL, MAX_PER_ORGANIZATION, DirectoryTurns, LargeBodies, TooManyLargeBodies
from tests.tables import table

ORGANIZATIONS = [UUID(int=number) for number in range(2 * MAX_IN_TOTAL)]


@pytest.mark.slow
@settings(max_examples=500)
@given(st.lists(st.tuples(st.sampled_from(ORGANIZATIONS), st.booleans(), st.integers(0, 99)), max_size=60))
def test_a_few_organizations_cannot_take_all_places(steps: list[tuple[UUID, bool, int]]) -> None:
    """A new organization is refused only if at least six organizations already have bodies."""
    bodies = LargeBodies()
    held: list[tuple[UUID, ExitStack]] = []
    for org_id, begins, index in steps:
        if not begins and held:
            held.pop(index % len(held))[1].close()
            continue
        others = {holder for holder, _ in held}
        body = ExitStack()
        try:
            body.enter_context(bodies.admit(org_id))
        except TooManyLargeBodies:
            assert org_id in others or len(others) >= MAX_IN_TOTAL * 3 // 4
        else:
            held.append((org_id, body))
        counts = [sum(holder == org_id for holder, _ in held) for org_id in ORGANIZATIONS]
        assert max(counts) <= MAX_PER_ORGANIZATION
        assert [bodies.held_by(org_id) for org_id in ORGANIZATIONS] == counts
        assert len(held) <= MAX_IN_TOTAL


def test_one_organization_alone_has_two() -> None:
    bodies = LargeBodies()
    with bodies.admit(ORGANIZATIONS[0]), bodies.admit(ORGANIZATIONS[0]):
        with pytest.raises(TooManyLargeBodies):
            bodies.admit(ORGANIZATIONS[0]).__enter__()
        with bodies.admit(ORGANIZATIONS[1]), bodies.admit(ORGANIZATIONS[1]):
            pass


@table(("pool_size", "turns"), [(2, 1), (3, 1), (6, 3), (10, 4), (100, 4)])
async def test_an_organization_has_at_most_half_of_the_connections(pool_size: int, turns: int) -> None:
    places, share = DirectoryTurns(pool_size).places, of_organization(ORGANIZATIONS[0])
    for _ in range(turns):
        await places.take(share)
    with trio.move_on_after(0) as full:
        await places.take(share)
    assert full.cancelled_caught
