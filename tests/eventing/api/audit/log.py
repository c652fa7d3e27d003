"""An organization's audit log, and its entries."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from core.accounts.model.accounts import Account
from core.kernel.callers import Person
from tests.support.builders import Api

LOG = "/api/organizations/acme/audit-log"


class World(NamedTuple):
    """Two organizations with their owners, and the owners' tokens."""

    org: UUID
    owner: Account
    token: str
    other_tenant: UUID
    other: Account
    other_token: str


Record = Callable[..., Awaitable[None]]


def person(account: Account, **changes: Any) -> Person:
    default = Person(user_id=account.id, email=account.email, session_id=uuid4(), address="203.0.113.9", agent="tests/1.0")
    return replace(default, **changes)


async def logs(api: Api, world: World, query: str = "") -> list[dict[str, Any]]:
    answer = await api.get(f"{LOG}{query}", token=world.token)
    assert answer.status == 200, answer.text
    entries: list[dict[str, Any]] = answer.json["logs"]
    assert answer.json["pagination"]["total"] == len(entries) or answer.json["pagination"]["total_pages"] > 1
    return entries


async def actions(api: Api, world: World, query: str = "") -> list[str]:
    return [entry["action"] for entry in await logs(api, world, query)]
