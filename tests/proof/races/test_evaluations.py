"""Decisions about permissions beside role changes: no decision is older than a change that was answered."""

from typing import Any

import pytest
import trio

from core.kernel.roles import Permission
from tests.applications.api.authorization.store import Store
from tests.applications.api.evaluation.asking import Asking, question
from tests.support.builders import run_concurrently, run_sql
from tests.support.services import add_api_key, add_service, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin

CALLERS = 20


def document(*, without: int | None = None) -> dict[str, Any]:
    """Return a document with a permission and a role per caller. The role `without` has no permission."""
    return {
        "permissions": [{"name": f"p{number}"} for number in range(CALLERS)],
        "roles": [
            {"slug": f"r{number}", "name": "Role", "permissions": [] if number == without else [f"p{number}"]} for number in range(CALLERS)
        ],
    }


@pytest.fixture
async def shop(acme: Tenant) -> Asking:
    service = await add_service(acme.pool, acme.org)
    store = Store(acme, service, await add_api_key(acme.pool, service, [Permission.WRITE_ROLES, Permission.WRITE_SERVICE]))
    assert (await store.put(document())).status == 200
    await add_service_user(acme.ports, service, acme.people["member"].id)  # an API key acts on users who have come to the service
    return Asking(store, await add_api_key(acme.pool, service, [Permission.EVALUATE_ACCESS]))


@pytest.mark.slow
async def test_a_decision_after_an_answered_change_knows_it(shop: Asking, acme: Tenant) -> None:
    member = acme.id("member")

    async def act(number: int) -> None:
        by = "key" if number % 2 else "admin"
        for _ in range(3):
            assert await shop.reason(member, f"p{number}") == "role_missing"
            assert (await shop.store.call("PUT", f"/roles/r{number}/users/{member}", by=by)).status == 204
            assert await shop.reason(member, f"p{number}") == f"r{number}"
            assert (await shop.store.call("DELETE", f"/roles/r{number}/users/{member}", by=by)).status == 204

    await run_concurrently(CALLERS, act)
    assert await run_sql(acme.pool, "select count(*) from service_role_users") == [(0,)]


@pytest.mark.slow
async def test_decisions_and_roles_of_groups_follow_answered_changes(shop: Asking, acme: Tenant) -> None:
    """Twenty callers give a role to a group, and take it away, or move the user into the group and out again."""
    member, groups = acme.id("member"), GroupAdmin(acme)
    ids = [await groups.create(f"Group {number}") for number in range(CALLERS)]

    async def act(number: int) -> None:
        group = ids[number]
        if number % 2:
            assert (await groups.add(group, member)).status == 204
        else:
            assert (await shop.store.give_group(f"r{number}", group)).status == 204
        for _ in range(2):
            assert await shop.reason(member, f"p{number}") == "role_missing"
            changed = await shop.store.give_group(f"r{number}", group) if number % 2 else await groups.add(group, member)
            assert changed.status == 204
            answer = await shop.ask(member, f"p{number}")
            assert answer.json["context"]["reason"] == {"role": f"r{number}", "group": f"Group {number}"}
            changed = await shop.store.take_from_group(f"r{number}", group) if number % 2 else await groups.remove(group, member)
            assert changed.status == 204

    await run_concurrently(CALLERS, act)
    roles = (await shop.api.get(f"{acme.path}/users/{member}/roles", token=acme.token("admin"))).json
    assert roles == {"roles": []}


@pytest.mark.slow
async def test_a_role_of_a_deleted_group_counts_no_longer(shop: Asking, acme: Tenant) -> None:
    """A group is deleted while callers give it a role. Afterwards no row is left, and no decision is positive."""
    member, groups = acme.id("member"), GroupAdmin(acme)
    group = await groups.create()
    await groups.add(group, member)

    async def act(number: int) -> int:
        if number == CALLERS // 2:
            return (await groups.call("DELETE", f"/{group}")).status
        return (await shop.store.give_group(f"r{number}", group)).status

    statuses = await run_concurrently(CALLERS, act)
    assert set(statuses) <= {204, 404}
    assert await run_sql(acme.pool, "select count(*) from service_role_groups") == [(0,)]
    assert [await shop.reason(member, f"p{number}") for number in range(3)] == ["role_missing"] * 3


@pytest.mark.slow
async def test_the_decisions_of_a_request_are_of_one_moment(shop: Asking, acme: Tenant) -> None:
    """A transaction takes the permission from one role and returns another role's permission.

    No request sees the two permissions or neither.
    """
    member = acme.id("member")
    for number in (0, 1):
        await shop.store.give(f"r{number}", member)
    assert (await shop.store.put(document(without=0))).status == 200
    asked = {"evaluations": [question(member, f"p{number}") for number in (0, 1)]}
    seen: set[tuple[bool, ...]] = set()

    ended = trio.Event()

    async def change() -> None:
        for turn in range(12):
            assert (await shop.store.put(document(without=(turn + 1) % 2))).status == 200
        ended.set()

    async def ask() -> None:
        while not ended.is_set():
            answer = await shop.ask_all(asked)
            seen.add(tuple(each["decision"] for each in answer.json["evaluations"]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        for _ in range(4):
            nursery.start_soon(ask)
    assert seen <= {(True, False), (False, True)}
    assert seen


@pytest.mark.slow
async def test_no_decision_is_positive_after_the_user_lost_access(shop: Asking, acme: Tenant) -> None:
    member = acme.id("member")
    await shop.store.give("r0", member)
    ended = trio.Event()

    async def act(number: int) -> list[tuple[bool, bool]]:
        """Return per decision whether the removal was answered before the question, and the decision."""
        if number == 0:
            assert (await acme.remove("owner", "member")).status == 200
            ended.set()
            return []
        decisions = []
        for _ in range(6):
            was_ended = ended.is_set()
            decisions.append((was_ended, (await shop.ask(member, "p0")).json["decision"]))
        return decisions

    results = [decision for decisions in await run_concurrently(CALLERS, act) for decision in decisions]
    assert (True, True) not in results
    assert (await shop.ask(member, "p0")).json["decision"] is False
