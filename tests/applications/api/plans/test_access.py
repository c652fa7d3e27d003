"""The members that manage plans, and concurrent changes (security T-1, Z-5)."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.applications.api.plans.service import DAY, service_id
from tests.applications.api.services import Workshop
from tests.fakes.outside import FakeClock
from tests.support.builders import Answer, add_account, run_concurrently, run_during, run_sql
from tests.support.refusals import BAD, FORBIDDEN, MISSING, NOT_ACTIVE, refused
from tests.support.services import add_api_key, add_plan, add_service, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.organizations import NOT_ACTIVE as STATUSES


async def test_plain_members_can_list_plans_but_not_change_them(shops: Workshop, acme: Tenant) -> None:
    plan = await add_plan(acme.pool, await service_id(shops))
    before = await shops.stored_rows()
    for answer in (
        await shops.create_plan("member"),
        await shops.update_plan(plan, "member", name="New"),
        await shops.delete_plan(plan, "member"),
        await shops.delete_plan(uuid4(), "member"),
    ):
        assert refused(answer) == FORBIDDEN
    assert (await shops.list_plans("member"))["total"] == 1
    for status in STATUSES:
        await acme.set_status(status)
        for answer in (
            await shops.create_plan(),
            await shops.update_plan(plan, name="New"),
            await shops.delete_plan(plan),
            await acme.api.get(f"{shops.path}/shop/plans", token=acme.token("owner")),
        ):
            assert refused(answer) == NOT_ACTIVE
    assert await shops.stored_rows() == before


async def test_a_plan_is_found_only_in_its_service(shops: Workshop, acme: Tenant, other_tenant: Tenant) -> None:
    plan_id = await add_plan(acme.pool, await service_id(shops))
    other = await add_plan(acme.pool, await add_service(acme.pool, acme.org, "other"))
    foreign = await add_plan(acme.pool, await add_service(acme.pool, other_tenant.org))
    before = await shops.stored_rows()
    for id_ in (other, foreign, uuid4(), str(plan_id).upper(), plan_id.hex, "x", "%27"):
        for fields in ({"name": "New"}, {"name": 5}, {}):
            assert refused(await shops.update_plan(id_, **fields)) == MISSING, id_
        assert refused(await shops.delete_plan(id_)) == MISSING
    raw = await acme.api.call("PATCH", f"{shops.path}/shop/plans/{foreign}", raw=b"{", token=acme.token("owner"))
    assert refused(raw) == MISSING
    assert await shops.stored_rows() == before
    assert (await shops.update_plan(plan_id, name="New")).status == 200


# Changes after the request was authenticated

EARLIER_CHANGES: dict[str, tuple[str, tuple[int, str]]] = {
    "demoted admin": ("update memberships set role = 'member' where user_id = %(admin)s", FORBIDDEN),
    "suspended": ("update organizations set status = 'suspended' where id = %(org)s", NOT_ACTIVE),
    "no such service": ("delete from services", MISSING),
    "no such plan": ("update plans set removed_at = now()", MISSING),
}


@pytest.mark.parametrize("call", ["create", "change", "delete"])
@pytest.mark.parametrize("name", EARLIER_CHANGES)
async def test_a_write_sees_the_change_that_it_waited_for(shops: Workshop, acme: Tenant, name: str, call: str) -> None:
    statement, expected = EARLIER_CHANGES[name]
    plan = await add_plan(acme.pool, await service_id(shops))
    values = {"org": acme.org, "admin": acme.people["admin"].id}
    changes = [("select 1 from organizations where id = %s for no key update", (acme.org,)), (statement, values)]

    async def act() -> Answer:
        match call:
            case "create":
                return await shops.create_plan("admin")
            case "change":
                return await shops.update_plan(plan, "admin", name="New")
        return await shops.delete_plan(plan, "admin")

    answer = await run_during(acme.pool, changes, act)
    if (name, call) == ("no such plan", "create"):
        assert answer.status == 200
    else:
        assert refused(answer) == expected
        assert await acme.log() == []


async def test_a_deletion_sees_a_new_subscription_that_it_waited_for(shops: Workshop, acme: Tenant, clock: FakeClock) -> None:
    account = await add_account(acme.ports)
    service = await service_id(shops)
    plan = await add_plan(acme.pool, service)
    subscribe = """
        insert into subscriptions (id, org_id, service_id, user_id, plan_id, status, current_period_end, created_at, updated_at)
        values (gen_random_uuid(), %s, %s, %s, %s, 'active', %s, now(), now())"""
    changes: list[tuple[str, Any]] = [
        ("select 1 from organizations where id = %s for no key update", (acme.org,)),
        (subscribe, (acme.org, service, account.id, plan, clock.now() + DAY)),
    ]
    assert refused(await run_during(acme.pool, changes, lambda: shops.delete_plan(plan))) == BAD
    assert (await shops.list_plans())["total"] == 1


@pytest.mark.slow
async def test_of_concurrent_subscriptions_and_a_deletion_one_side_wins(shops: Workshop, acme: Tenant) -> None:
    service = await service_id(shops)
    key = await add_api_key(acme.pool, service)
    for _ in range(3):
        plan = await add_plan(acme.pool, service)
        people = [await add_account(acme.ports, f"{uuid4()}@example.com", None) for _ in range(19)]
        for person in people:
            await add_service_user(acme.ports, service, person.id)

        async def act(number: int, plan: UUID = plan, people: list[Any] = people) -> Answer:
            if number == 10:
                return await shops.delete_plan(plan)
            body = {"user_id": str(people[number - (number > 10)].id), "plan_id": str(plan)}
            return await acme.api.post("/api/service/subscriptions", body, headers={"X-Api-Key": key})

        answers = await run_concurrently(20, act)
        subscribed = [answer.status for answer in answers].count(200)
        deleted = [answer.status for answer in answers].count(204)
        assert sorted(answer.status for answer in answers) == ([204] + [404] * 19 if deleted else [200] * 19 + [400])
        assert await run_sql(acme.pool, "select count(*) from subscriptions where plan_id = %s", plan) == [(subscribed,)]
        assert await run_sql(acme.pool, "select removed_at is not null from plans where id = %s", plan) == [(bool(deleted),)]


@pytest.mark.slow
async def test_of_twenty_concurrent_deletions_one_succeeds(shops: Workshop, acme: Tenant) -> None:
    plan = await add_plan(acme.pool, await service_id(shops))
    answers = await run_concurrently(20, lambda _: shops.delete_plan(plan))
    assert sorted(answer.status for answer in answers) == [204] + [404] * 19
    assert await acme.actions() == {"plan.deleted": 1}
