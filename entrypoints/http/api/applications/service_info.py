"""Service API: the service that an API key belongs to."""

from quart import Blueprint

from core.applications import service_info
from core.kernel.roles import Permission
from entrypoints.http.api.applications.services import ServiceResponse, to_service_response
from entrypoints.http.base.context import acting_key, ports
from entrypoints.http.edge.access import service_key
from entrypoints.http.edge.bodies import AT_LEAST_ONE_FIELD, Name, RequestModel, Text, Texts, optional
from entrypoints.http.edge.openapi import refuses

routes = Blueprint("service_info", __name__)


@routes.get("/api/service/info")
@service_key(Permission.READ_SERVICE)
async def get() -> ServiceResponse:
    """Get the API key's service.

    Client secrets are never returned.
    """
    return to_service_response(await service_info.find(ports(), acting_key()))


class ServiceInfoUpdateRequest(RequestModel):
    """The service's fields to change, at least one field. Arrays replace the previous values."""

    model_config = AT_LEAST_ONE_FIELD

    name: Name = optional(description="The name of the service.")
    codehost_scopes: Texts | None = optional(description="The scopes requested at `codehost`; null for the platform's defaults.")
    websuite_scopes: Texts | None = optional(description="The scopes requested at `websuite`; null for the platform's defaults.")
    officesuite_scopes: Texts | None = optional(description="The scopes requested at `officesuite`; null for the platform's defaults.")
    redirect_uris: Texts | None = optional(description="The allowed redirect URIs; null removes all.")
    device_activation_uri: Text | None = optional(
        description="The page where users enter the code of a device; null for the platform's own page."
    )


@routes.patch("/api/service/info")
@service_key(Permission.WRITE_SERVICE)
@refuses(409)
async def update(data: ServiceInfoUpdateRequest) -> ServiceResponse:
    """Change the API key's service.

    The slug, the type and the client id cannot be changed.
    """
    return to_service_response(await service_info.update(ports(), acting_key(), dict(data)))
