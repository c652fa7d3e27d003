"""API resource scopes that service accounts get for themselves."""

from typing import Any
from uuid import UUID

import pytest

from core.programs.model.api_resources import ApiResourceNotFound, OwnScopeUnknown
from core.programs.model.service_accounts import AccountResourceNotFound, NoResourceScopes, ServiceAccountAboveRole, ServiceAccountNotFound
from tests.programs.service_accounts import create, try_add_credential
from tests.support.builders import Answer
from tests.support.programs import Program
from tests.support.services import add_api_resource
from tests.support.tenants import Tenant

SCOPES = {"orders:read": "Read orders", "orders:write": "Change orders"}


@pytest.fixture
async def resource(acme: Tenant) -> UUID:
    return await add_api_resource(acme.pool, acme.org, identifier(acme), scopes=SCOPES)


def identifier(tenant: Tenant) -> str:
    return f"urn:gatehouse:{tenant.org}:orders"


async def save(tenant: Tenant, account: str, resource: UUID, scopes: list[str], by: str = "owner") -> Answer:
    return await tenant.api.call("PUT", f"{account}/api-resources/{resource}", {"scopes": scopes}, token=tenant.token(by))


def message(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


async def add_program(tenant: Tenant, account: str) -> Program:
    credential = (await try_add_credential(tenant, account)).json
    return Program(tenant.api, UUID(account.rpartition("/")[2]), credential["secret"], UUID(credential["id"]))


async def test_a_service_account_gets_tokens_with_its_scopes(acme: Tenant, resource: UUID) -> None:
    account = await create(acme, name="Robot")
    robot = await add_program(acme, account)
    assert (await robot.ask(resource=identifier(acme))).json["error"] == "invalid_target"
    saved: dict[str, Any] = {
        "id": str(resource),
        "identifier": identifier(acme),
        "name": "Orders API",
        "scopes": ["orders:read", "orders:write"],
    }
    for _ in range(2):  # the second request changes nothing
        answer = await save(acme, account, resource, ["orders:write", "orders:read"])
        assert (answer.status, answer.json | {"name": "Orders API"}) == (200, saved)
    assert (await robot.ask(resource=identifier(acme))).json["scope"] == "orders:read orders:write"
    await save(acme, account, resource, ["orders:read"])
    assert (await robot.ask(resource=identifier(acme))).json["scope"] == "orders:read"
    listed = (await acme.api.get(f"{account}/api-resources", token=acme.token("admin"))).json
    assert [each["scopes"] for each in listed["api_resources"]] == [["orders:read"]]
    path = f"{account}/api-resources/{resource}"
    assert (await acme.api.delete(path, token=acme.token("admin"))).status == 204
    assert message(await acme.api.delete(path, token=acme.token("admin"))) == (404, AccountResourceNotFound.__doc__)
    assert (await robot.ask(resource=identifier(acme))).json["error"] == "invalid_target"
    entries = [entry for entry in await acme.log() if entry["action"] == "api_resource.service_account.updated"]
    assert [entry["details"]["scopes"] for entry in entries] == [["orders:read", "orders:write"], ["orders:read"], []]


async def test_scopes_that_the_resource_loses_are_lost(acme: Tenant, resource: UUID) -> None:
    account = await create(acme)
    await save(acme, account, resource, list(SCOPES))
    scopes = [{"name": "orders:write", "description": "Change orders"}]
    await acme.api.patch(f"{acme.path}/api-resources/{resource}", {"scopes": scopes}, token=acme.token("admin"))
    listed = (await acme.api.get(f"{account}/api-resources", token=acme.token("admin"))).json
    assert [each["scopes"] for each in listed["api_resources"]] == [["orders:write"]]


async def test_what_cannot_be_granted_is_refused(acme: Tenant, other_tenant: Tenant, resource: UUID) -> None:
    account, above = await create(acme), await create(acme, role="owner")
    theirs = await add_api_resource(other_tenant.pool, other_tenant.org, identifier(other_tenant), scopes=SCOPES)
    assert message(await save(acme, account, resource, [])) == (400, NoResourceScopes.__doc__)
    for scopes in (["orders:delete"], ["orders:read", "orders:read"], ["members:read"]):
        assert message(await save(acme, account, resource, scopes)) == (400, OwnScopeUnknown.__doc__)
    assert message(await save(acme, account, theirs, ["orders:read"])) == (404, ApiResourceNotFound.__doc__)
    assert message(await save(acme, above, resource, ["orders:read"], "admin")) == (403, ServiceAccountAboveRole.__doc__)
    foreign = f"{other_tenant.path}/service-accounts/{account.rpartition('/')[2]}"
    assert message(await save(other_tenant, foreign, theirs, ["orders:read"])) == (404, ServiceAccountNotFound.__doc__)


async def test_a_service_account_grants_itself_nothing(acme: Tenant, resource: UUID) -> None:
    """Neither as an account nor as a client at the API resource."""
    grants = ["resources.manage", "members.manage"]
    account = await create(acme, role="owner", granted_capabilities=grants)
    robot = await add_program(acme, account)
    token, path = await robot.token(), f"{acme.path}/api-resources/{resource}"
    assert (await acme.api.call("PUT", f"{account}/api-resources/{resource}", {"scopes": ["orders:read"]}, token=token)).status == 403
    assert (await acme.api.call("PUT", f"{path}/clients/{robot.client_id}", {"scopes": ["orders:read"]}, token=token)).status == 404
    assert (await robot.ask(resource=identifier(acme))).json["error"] == "invalid_target"
