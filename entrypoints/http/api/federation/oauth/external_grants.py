"""Users' grants to external clients, per API resource."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.federation.oauth import external_grants
from core.kernel.roles import Capability
from entrypoints.http.api.tenancy.assignments import AssignmentsQuery
from entrypoints.http.base.context import acting, ports
from entrypoints.http.edge.access import GIVES, member
from entrypoints.http.edge.bodies import ResponseModel, Timestamp
from entrypoints.http.edge.openapi import describes
from entrypoints.http.edge.queries import Pagination

routes = Blueprint("external_grants", __name__)


class ExternalGrantResponse(ResponseModel):
    """An external client's access to an API resource that a user has agreed to."""

    user_id: UUID = Field(description="The id of the user.")
    email: str = Field(description="The email address of the user.")
    client_id: UUID = Field(description="The id of the client in this organization.")
    client_uri: str = Field(
        description="The `client_id` in its tokens: the address of the client, or a sealed client id if it registered itself."
    )
    client_name: str = Field(description="The name that the client gives itself.")
    scopes: list[str] = Field(description="The scopes that the user has agreed to and that the API resource still has.")
    granted_at: Timestamp = Field(description="When the user last agreed to a new scope.")
    last_used_at: Timestamp | None = Field(description="When the client last got a token, or null if its sessions have ended long ago.")


class ExternalGrantListResponse(ResponseModel):
    """A page of users' grants to external clients."""

    grants: list[ExternalGrantResponse] = Field(description="The grants, by email address and client.")
    pagination: Pagination = Field(description="The position of this page in the list.")


@routes.get("/api/organizations/<org_slug>/api-resources/<resource_id>/external-clients/grants")
@member(Capability.RESOURCES_VIEW)
async def list_grants(org_slug: str, resource_id: UUID, query_args: AssignmentsQuery) -> ExternalGrantListResponse:
    """List the users who have connected an external client to an API resource.

    A grant has its client, its scopes and its last use. 403 if your role does not see the organization's end users.
    """
    result = await external_grants.list_page(ports(), acting(), resource_id, query_args.page_request(), search=query_args.search)
    return ExternalGrantListResponse(grants=ExternalGrantResponse.list_of(result.items), pagination=query_args.pagination(result.total))


@routes.delete("/api/organizations/<org_slug>/api-resources/<resource_id>/external-clients/grants/<user_id>/<client_id>")
@member(Capability.END_USERS_MANAGE, GIVES)
@describes({204: "The grant has ended."})
async def end_grant(org_slug: str, resource_id: UUID, user_id: UUID, client_id: UUID) -> None:
    """End a user's grant to an external client at an API resource.

    The client gets no further tokens, and introspection calls its tokens inactive at once. It can ask the
    user again. To prevent that, change which external clients the API resource admits.
    """
    await external_grants.end(ports(), acting(), resource_id, user_id, client_id)
