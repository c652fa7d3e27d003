"""An API resource's users and applications."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.applications.model.users import AssigneeNotFound
from core.programs.model.api_resources import (
    GroupNotAssignedToResource,
    NotAssignedToResource,
    OwnScopeUnknown,
    PublicClientHasNoScopes,
    ResourceClientNotFound,
)
from core.tenancy.model.groups import OrganizationGroupNotFound
from tests.support.builders import EMAIL, Answer, add_member, run_sql
from tests.support.services import add_api_resource, add_service, add_service_user
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin


class Orders:
    """The API resource at acme, and an admin's requests about it."""

    def __init__(self, tenant: Tenant, resource: UUID) -> None:
        self.tenant = tenant
        self.id = resource
        self.path = f"{tenant.path}/api-resources/{resource}"

    async def call(self, method: str, path: str, body: Any = None) -> Answer:
        return await self.tenant.api.call(method, f"{self.path}/{path}", body, token=self.tenant.token("admin"))

    async def listed(self, path: str) -> Any:
        answer = await self.tenant.api.get(f"{self.path}/{path}", token=self.tenant.token("member"))
        assert answer.status == 200, answer.text
        return answer.json

    async def emails(self, query: str = "") -> list[str]:
        return [each["email"] for each in (await self.listed(f"assignments{query}"))["assignments"]]

    def details(self, **more: Any) -> dict[str, Any]:
        return {"identifier": "https://api.example.com/", "name": "Orders API", **more}


@pytest.fixture
async def orders(acme: Tenant) -> Orders:
    return Orders(acme, await add_api_resource(acme.pool, acme.org))


async def client_id(pool: Pool, service: UUID) -> UUID:
    [(id_,)] = await run_sql(pool, "select client_id from services where id = %s", service)
    return UUID(str(id_))


def message(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


async def test_the_policy_is_replaced(orders: Orders, acme: Tenant) -> None:
    assert await orders.listed("access") == {"policy": "anyone"}
    for _ in range(2):  # the second request changes nothing
        answer = await orders.call("PUT", "access", {"policy": "assigned"})
        assert (answer.status, answer.json) == (200, {"policy": "assigned"})
    assert await orders.listed("access") == {"policy": "assigned"}
    assert (await orders.call("PUT", "access", {"policy": "public"})).status == 400
    details = orders.details(changes={"policy": {"old": "anyone", "new": "assigned"}})
    assert await acme.recorded() == [("api_resource.access.updated", "api_resource", str(orders.id), acme.people["admin"].id, details)]
    await acme.actions()


async def test_users_are_assigned_and_unassigned(orders: Orders, acme: Tenant, user: Account) -> None:
    await add_member(acme.pool, acme.org, user.id, confirmed=True)
    for _ in range(2):
        assert (await orders.call("PUT", f"assignments/{user.id}")).status == 204
    by_email = await orders.call("POST", "assignments", {"email": acme.people["member"].email})
    assert (by_email.status, by_email.json) == (200, {"user_id": acme.id("member")})
    assert set(await orders.emails()) == {EMAIL, acme.people["member"].email}
    assert await orders.emails(f"?search={EMAIL[:4].upper()}") == [EMAIL]
    page = await orders.listed("assignments?limit=1&page=2")
    assert (len(page["assignments"]), page["pagination"]["total"]) == (1, 2)
    assert (await orders.listed("assignments?page=9"))["pagination"]["total"] == 2
    assert (await orders.call("DELETE", f"assignments/{user.id}")).status == 204
    assert message(await orders.call("DELETE", f"assignments/{user.id}")) == (404, NotAssignedToResource.__doc__)
    actor, details = acme.people["admin"].id, orders.details(api_resource_id=str(orders.id))
    assert await acme.recorded() == [
        ("api_resource.user.assigned", "user", str(user.id), actor, details),
        ("api_resource.user.assigned", "user", acme.id("member"), actor, details),
        ("api_resource.user.unassigned", "user", str(user.id), actor, details),
    ]
    await acme.actions()


async def test_only_users_of_the_organization_are_assigned(orders: Orders, acme: Tenant, other_tenant: Tenant, user: Account) -> None:
    for stranger in (user.id, other_tenant.id("member"), "no-id"):
        assert message(await orders.call("PUT", f"assignments/{stranger}")) == (404, AssigneeNotFound.__doc__)
    for email in (EMAIL, "nobody@example.com"):
        assert message(await orders.call("POST", "assignments", {"email": email})) == (404, AssigneeNotFound.__doc__)
    await add_service_user(acme.ports, await add_service(acme.pool, acme.org), user.id)
    assert (await orders.call("PUT", f"assignments/{user.id}")).status == 204


async def test_the_end_of_a_membership_ends_assignments(orders: Orders, acme: Tenant, other_tenant: Tenant) -> None:
    member = acme.people["member"]
    other = Orders(other_tenant, await add_api_resource(other_tenant.pool, other_tenant.org))
    await other_tenant.join("guest", member)
    for each in (orders, other):
        assert (await each.call("PUT", f"assignments/{member.id}")).status == 204
    assert (await acme.remove("admin", "member")).status == 200
    assert await run_sql(acme.pool, "select org_id from api_resource_assignments") == [(other_tenant.org,)]


async def test_applications_may_ask_and_have_scopes_of_their_own(orders: Orders, acme: Tenant, pool: Pool) -> None:
    shop, blog = await add_service(pool, acme.org, "shop"), await add_service(pool, acme.org, "blog", "spa")
    of_shop, of_blog = await client_id(pool, shop), await client_id(pool, blog)
    for _ in range(2):
        answer = await orders.call("PUT", f"clients/{of_shop}", {"scopes": ["orders:write", "orders:read"]})
        assert answer.status == 200, answer.text
    assert answer.json | {"created_at": ""} == {
        "client_id": str(of_shop),
        "slug": "shop",
        "name": "Shop",
        "scopes": ["orders:read", "orders:write"],
        "created_at": "",
    }
    assert (await orders.call("PUT", f"clients/{of_blog}", {"scopes": []})).json["scopes"] == []
    assert [each["slug"] for each in (await orders.listed("clients"))["clients"]] == ["blog", "shop"]
    assert (await orders.listed("clients?page=9"))["pagination"]["total"] == 2
    assert message(await orders.call("PUT", f"clients/{of_blog}", {"scopes": ["orders:read"]})) == (400, PublicClientHasNoScopes.__doc__)
    for scopes in (["orders:delete"], ["orders:read", "orders:read"], ["openid"]):
        assert message(await orders.call("PUT", f"clients/{of_shop}", {"scopes": scopes})) == (400, OwnScopeUnknown.__doc__)
    assert (await orders.call("DELETE", f"clients/{of_blog}")).status == 204
    assert message(await orders.call("DELETE", f"clients/{of_blog}")) == (404, ResourceClientNotFound.__doc__)
    actor, about = acme.people["admin"].id, {"service_slug": "blog", "service_name": "Blog", "client_id": str(of_blog)}
    assert (await acme.recorded())[1:] == [
        ("api_resource.client.updated", "api_resource", str(orders.id), actor, orders.details(**about, scopes=[])),
        ("api_resource.client.removed", "api_resource", str(orders.id), actor, orders.details(**about)),
    ]
    assert await acme.actions() == {"api_resource.client.updated": 2, "api_resource.client.removed": 1}


async def test_a_removed_scope_leaves_the_applications_that_had_it(orders: Orders, acme: Tenant, pool: Pool) -> None:
    client = await client_id(pool, await add_service(pool, acme.org))
    await orders.call("PUT", f"clients/{client}", {"scopes": ["orders:read", "orders:write"]})
    scopes = [{"name": name, "description": "x"} for name in ("orders:list", "orders:write")]
    assert (await acme.api.patch(orders.path, {"scopes": scopes}, token=acme.token("admin"))).status == 200
    assert [each["scopes"] for each in (await orders.listed("clients"))["clients"]] == [["orders:write"]]


async def test_only_applications_of_the_organization_may_ask(orders: Orders, other_tenant: Tenant, pool: Pool) -> None:
    foreign = await client_id(pool, await add_service(pool, other_tenant.org))
    for client in (foreign, uuid4(), "no-id", "frontend"):
        assert message(await orders.call("PUT", f"clients/{client}", {"scopes": []})) == (404, ResourceClientNotFound.__doc__)
        assert message(await orders.call("DELETE", f"clients/{client}")) == (404, ResourceClientNotFound.__doc__)


async def test_a_deleted_application_is_no_client(orders: Orders, acme: Tenant, pool: Pool) -> None:
    client = await client_id(pool, await add_service(pool, acme.org))
    await orders.call("PUT", f"clients/{client}", {"scopes": []})
    assert (await acme.api.delete(f"{acme.path}/services/shop", token=acme.token("owner"))).status == 204
    assert (await orders.listed("clients"))["clients"] == []


async def test_a_deleted_resource_leaves_nothing_behind(orders: Orders, acme: Tenant, pool: Pool) -> None:
    await orders.call("PUT", f"clients/{await client_id(pool, await add_service(pool, acme.org))}", {"scopes": []})
    await orders.call("PUT", f"assignments/{acme.id('member')}")
    assert (await acme.api.delete(orders.path, token=acme.token("admin"))).status == 204
    for table in ("api_resources", "api_resource_clients", "api_resource_assignments"):
        assert await run_sql(pool, f"select 1 from {table}") == [], table  # noqa: S608


async def test_groups_are_assigned_and_unassigned(orders: Orders, acme: Tenant, other_tenant: Tenant) -> None:
    groups = GroupAdmin(acme)
    group = await groups.create()
    await groups.add(group, acme.id("member"))
    for _ in range(2):
        assert (await orders.call("PUT", f"groups/{group}")).status == 204
    listed = await orders.listed("groups")
    assert ([(each["name"], each["member_count"]) for each in listed["groups"]], listed["total"]) == ([("Engineering", 1)], 1)
    theirs = await GroupAdmin(other_tenant).create()
    assert message(await orders.call("PUT", f"groups/{theirs}")) == (404, OrganizationGroupNotFound.__doc__)
    assert (await orders.call("DELETE", f"groups/{group}")).status == 204
    for id_ in (group, theirs):
        assert message(await orders.call("DELETE", f"groups/{id_}")) == (404, GroupNotAssignedToResource.__doc__)
    details = orders.details(group_name="Engineering")
    recorded = [entry for entry in await acme.recorded() if entry[0].startswith("api_resource.")]
    actor = acme.people["admin"].id
    assert recorded == [(f"api_resource.group.{verb}", "group", group, actor, details) for verb in ("assigned", "unassigned")]
    await orders.call("PUT", f"groups/{group}")
    assert (await groups.call("DELETE", f"/{group}")).status == 204
    assert await orders.listed("groups") == {"groups": [], "total": 0}
