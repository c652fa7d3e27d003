"""An organization's last SCIM requests."""

from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.kernel.roles import Capability
from core.provisioning import request_log
from entrypoints.http.base.context import acting, ports
from entrypoints.http.edge.access import member
from entrypoints.http.edge.bodies import ResponseModel, Timestamp
from entrypoints.http.edge.queries import Flag, Query

routes = Blueprint("scim_requests", __name__)


class ScimRequestResponse(ResponseModel):
    """A SCIM request, without values."""

    at: Timestamp = Field(description="The time of the request.")
    token_id: UUID = Field(description="The id of the SCIM token. The token may be revoked.")
    method: str = Field(description="The HTTP method.", examples=["PATCH"])
    path: str = Field(
        description="The path, with the id of the resource and without the query.",
        examples=["/scim/v2/Users/3f0c8a52-6f0e-4a53-9d43-1f1a3c5d7e90"],
    )
    attributes: list[str] = Field(
        description="Up to 50 names of attributes in the body or in the filter.", examples=[["active", "emails.value"]]
    )
    status: int = Field(description="The HTTP status of the response. 499: the directory closed the connection.", examples=[400])
    scim_type: str | None = Field(description="The `scimType` of the error (RFC 7644 section 3.12), or null.", examples=["invalidFilter"])
    error: str | None = Field(description="The kind of error, or the part of the request that was ignored, in one sentence; or null.")


class ScimRequestListResponse(ResponseModel):
    """An organization's last SCIM requests."""

    requests: list[ScimRequestResponse] = Field(description="The last 100 requests, newest first.")


class ScimRequestsQuery(Query):
    """The filter for the requests."""

    failed: Flag | None = Field(None, description="Return only requests that failed, or with false only requests that succeeded.")


@routes.get("/api/organizations/<org_slug>/scim-requests")
@member(Capability.INTEGRATIONS_MANAGE)
async def list_requests(org_slug: str, query_args: ScimRequestsQuery) -> ScimRequestListResponse:
    """List the organization's last SCIM requests.

    The list is complete and contains no values, only attribute names. Requests with an unknown or revoked token are not
    listed. A request appears shortly after its response.
    """
    requests = await request_log.list_last(ports(), acting(), failed=query_args.failed)
    return ScimRequestListResponse(requests=ScimRequestResponse.list_of(requests))
