"""Refusals that come from constraints: a refusal is raised for its own statement, wherever the round trip began."""

from collections.abc import Awaitable, Callable

import pytest

from adapters.postgres.repositories import Kept, Repositories
from adapters.postgres.storage import Postgres, Transaction
from core.kernel.causes import SYSTEM
from core.kernel.errors import Refusal

VIOLATE = """
    create function pg_temp.violate(name text) returns int language plpgsql as $$
    begin raise unique_violation using constraint = name; end $$"""
REFUSALS = [
    (name, constraint, refusal)
    for name, repository in vars(Repositories).items()
    if isinstance(repository, Kept)
    for constraint, refusal in repository.implementation.constraints.items()
]


def queue_violation(tx: Transaction, name: str, constraint: str) -> Awaitable[bool]:
    """Queue a statement from this repository that violates the constraint."""
    answer: Awaitable[bool] = getattr(tx, name)._exists("select pg_temp.violate(%(constraint)s)", constraint=constraint)
    return answer


async def raised(storage: Postgres, name: str, constraint: str, act: Callable[[Transaction, Awaitable[bool]], Awaitable[object]]) -> object:
    """Return the exception class from a transaction that queues the violation and then acts."""
    try:
        async with storage.transaction(by=SYSTEM) as tx:
            await tx.connection.run(VIOLATE)
            await act(tx, queue_violation(tx, name, constraint))
    except Exception as error:
        return type(error)
    return None


async def read_another(tx: Transaction, name: str) -> None:
    """Await a statement from a repository with other constraints."""
    await (tx.roles if name == "sessions" else tx.sessions)._exists("select 1")


async def commit(tx: Transaction, _: Awaitable[bool]) -> None:
    """Leave the statement to the commit."""


async def test_each_refusal_is_raised_at_its_statement_at_the_next_read_and_at_the_commit(storage: Postgres) -> None:
    assert len(REFUSALS) >= 19
    wrong = []
    for name, constraint, refusal in REFUSALS:
        assert issubclass(refusal, Refusal), "it has words"
        outcomes = [
            await raised(storage, name, constraint, lambda _, answer: answer),
            await raised(storage, name, constraint, lambda tx, _, name=name: read_another(tx, name)),  # type: ignore[misc]
            await raised(storage, name, constraint, commit),
        ]
        if outcomes != [refusal] * 3:
            wrong.append((name, constraint, outcomes))
    assert wrong == []


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_statement_beside_a_refused_one_raises_the_same_refusal_again(storage: Postgres, *, is_first: bool) -> None:
    """The server skips what follows the refused statement, and rolls back what came before."""
    name, constraint, refusal = REFUSALS[0]
    with pytest.raises(refusal):  # noqa: PT012 (the answers of one round trip)
        async with storage.transaction(by=SYSTEM) as tx:
            await tx.connection.run(VIOLATE)
            before = tx.roles._exists("select 1")
            refused = queue_violation(tx, name, constraint)
            after = tx.roles._exists("select 1")
            for answer in (before, refused, after) if is_first else (after, refused, before):
                with pytest.raises(refusal):
                    await answer
            await answer
