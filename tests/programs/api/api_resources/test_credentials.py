"""Credentials for API resources, and token introspection with them."""

from uuid import UUID, uuid4

import pytest

from core.programs.model.api_resources import ApiResourceNotFound
from core.programs.model.credentials import CredentialNotFound, NotForApiResources, TooManyCredentials
from tests.programs.service_accounts import PEM_KEY, PIPELINE
from tests.support.builders import Answer, run_sql
from tests.support.services import add_api_resource
from tests.support.tenants import Tenant


@pytest.fixture
async def resource(acme: Tenant) -> UUID:
    return await add_api_resource(acme.pool, acme.org, f"urn:gatehouse:{acme.org}:orders")


def path(tenant: Tenant, resource: UUID) -> str:
    return f"{tenant.path}/api-resources/{resource}/credentials"


async def add(tenant: Tenant, resource: UUID, by: str = "admin", **fields: object) -> Answer:
    return await tenant.api.post(path(tenant, resource), {"kind": "secret", "name": "Main", **fields}, token=tenant.token(by))


async def introspect(tenant: Tenant, resource: UUID, secret: str) -> Answer:
    return await tenant.api.post("/auth/introspect", {"client_id": str(resource), "client_secret": secret, "token": "unknown"})


async def test_an_api_authenticates_with_its_secret_until_it_is_revoked(acme: Tenant, resource: UUID) -> None:
    created = await add(acme, resource)
    assert created.status == 201
    secret = created.json["secret"]
    assert (await introspect(acme, resource, secret)).json == {"active": False}
    assert (await introspect(acme, uuid4(), secret)).status == 401
    listed = await acme.api.get(path(acme, resource), token=acme.token("member"))
    [credential] = listed.json["credentials"]
    assert (credential["id"], credential["last_used_at"] is not None, "secret" in credential) == (created.json["id"], True, False)
    revoked = await acme.api.delete(f"{path(acme, resource)}/{credential['id']}", token=acme.token("admin"))
    assert revoked.status == 204
    assert (await introspect(acme, resource, secret)).status == 401
    names = [(entry["action"], entry["target_id"], entry["details"]["credential_id"]) for entry in await acme.log()]
    assert names == [(f"api_resource.credential.{verb}", str(resource), credential["id"]) for verb in ("created", "revoked")]


async def test_an_api_trusts_no_pipelines(acme: Tenant, resource: UUID) -> None:
    refused = await add(acme, resource, **PIPELINE)
    assert (refused.status, refused.json["error"]) == (400, NotForApiResources.__doc__)
    assert (await add(acme, resource, kind="key", public_key=PEM_KEY)).status == 201
    assert (await add(acme, resource)).status == 201
    refused = await add(acme, resource)
    assert (refused.status, refused.json["error"]) == (400, TooManyCredentials.__doc__)


async def test_credentials_go_with_their_api_resource(acme: Tenant, resource: UUID) -> None:
    secret = (await add(acme, resource)).json["secret"]
    assert (await acme.api.delete(f"{acme.path}/api-resources/{resource}", token=acme.token("admin"))).status == 204
    assert (await introspect(acme, resource, secret)).status == 401
    assert await run_sql(acme.pool, "select count(*) from credentials") == [(0,)]


async def test_other_organizations_do_not_find_them(acme: Tenant, other_tenant: Tenant, resource: UUID) -> None:
    created = (await add(acme, resource)).json["id"]
    token = other_tenant.token("owner")
    answers = [
        await other_tenant.api.get(path(other_tenant, resource), token=token),
        await add(other_tenant, resource, "owner"),
        await other_tenant.api.delete(f"{path(other_tenant, resource)}/{created}", token=token),
    ]
    assert [(answer.status, answer.json["error"]) for answer in answers] == [(404, ApiResourceNotFound.__doc__)] * 3
    own = await add_api_resource(other_tenant.pool, other_tenant.org, f"urn:gatehouse:{other_tenant.org}:orders")
    answer = await other_tenant.api.delete(f"{path(other_tenant, own)}/{created}", token=token)
    assert (answer.status, answer.json["error"]) == (404, CredentialNotFound.__doc__)
