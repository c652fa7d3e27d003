"""The API resource scopes that service accounts get for themselves. Every route needs a person."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.kernel.roles import Capability
from core.programs import service_account_resources
from core.programs.model.service_accounts import AccountResource
from entrypoints.http.api.programs.service_accounts import existing_account
from entrypoints.http.base.context import acting_member, ports
from entrypoints.http.edge.access import BY_PEOPLE, SHOWS_PEOPLE, member
from entrypoints.http.edge.bodies import RequestModel, ResponseModel, Texts
from entrypoints.http.edge.openapi import describes

routes = Blueprint("service_account_resources", __name__)


class AccountResourceRequest(RequestModel):
    """A service account's scopes at an API resource."""

    scopes: Texts = Field(description="Scopes of the API resource. They replace the scopes that the service account had there.")


class AccountResourceResponse(ResponseModel):
    """An API resource that a service account gets tokens for."""

    id: UUID = Field(description="The id of the API resource.")
    identifier: str = Field(description="The API resource's identifier, which is the `resource` in a token request.")
    name: str = Field(description="The name of the API.")
    scopes: list[str] = Field(description="The scopes that the service account has there.")


class AccountResourceListResponse(ResponseModel):
    """The API resources that a service account gets tokens for."""

    api_resources: list[AccountResourceResponse] = Field(description="The API resources, by name.")


def _to_response(resource: AccountResource) -> AccountResourceResponse:
    return AccountResourceResponse.of(resource, id=resource.resource_id)


@routes.get("/api/organizations/<org_slug>/service-accounts/<account_id>/api-resources")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, SHOWS_PEOPLE)
async def list_resources(org_slug: str, account_id: UUID) -> AccountResourceListResponse:
    """List the API resources that a service account gets tokens for.

    Every API resource has the scopes that an admin gave to the service account there.
    """
    resources = await service_account_resources.list_resources(ports(), acting_member(), account_id)
    return AccountResourceListResponse(api_resources=[_to_response(resource) for resource in resources])


@routes.put("/api/organizations/<org_slug>/service-accounts/<account_id>/api-resources/<resource_id>")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, BY_PEOPLE)
@existing_account
async def save(org_slug: str, account_id: UUID, resource_id: UUID, data: AccountResourceRequest) -> AccountResourceResponse:
    """Give a service account an API resource's scopes.

    With the grant `client_credentials` and the parameter `resource`, it gets access tokens for the API
    resource with these scopes.
    """
    resource = await service_account_resources.save(ports(), acting_member(), account_id, resource_id, data.scopes)
    return _to_response(resource)


@routes.delete("/api/organizations/<org_slug>/service-accounts/<account_id>/api-resources/<resource_id>")
@member(Capability.SERVICE_ACCOUNTS_MANAGE, BY_PEOPLE)
@describes({204: "The service account gets no further tokens for the API resource."})
async def remove(org_slug: str, account_id: UUID, resource_id: UUID) -> None:
    """Take away a service account's scopes at an API resource.

    Introspection calls its tokens inactive from now on; an API that checks tokens by itself accepts them
    until they expire.
    """
    await service_account_resources.remove(ports(), acting_member(), account_id, resource_id)
