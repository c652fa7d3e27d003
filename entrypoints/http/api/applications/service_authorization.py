"""Service API: the permissions and roles of the service of an API key."""

from quart import Blueprint

from core.applications.authorization import OWN_SERVICE
from core.kernel.roles import Permission
from entrypoints.http.api.applications.authorization import (
    AuthorizationQuery,
    AuthorizationRequest,
    AuthorizationResponse,
    AuthorizationResultResponse,
    get_authorization,
    replace_authorization,
)
from entrypoints.http.base.context import acting_key
from entrypoints.http.edge.access import service_key
from entrypoints.http.edge.openapi import has_version, refuses, takes_version

routes = Blueprint("service_authorization", __name__)


@routes.get("/api/service/authorization")
@service_key(Permission.READ_SERVICE)
@has_version
async def get() -> tuple[AuthorizationResponse, int, dict[str, str]]:
    """Get the permissions and roles of the service.

    The response can be changed and sent back with `PUT`, with its `ETag` in `If-Match`.
    """
    return await get_authorization(acting_key(), OWN_SERVICE)


@routes.put("/api/service/authorization")
@service_key(Permission.WRITE_SERVICE)
@takes_version
@refuses(409)
async def replace(query_args: AuthorizationQuery, data: AuthorizationRequest) -> tuple[AuthorizationResultResponse, int, dict[str, str]]:
    """Replace the permissions and roles of the service.

    A build pipeline can send the same document each time: without a difference, nothing changes.
    With `dry_run=true` the answer says what would change. To delete a role that users have, send
    `confirm=true`.
    """
    return await replace_authorization(acting_key(), OWN_SERVICE, query_args, data)
