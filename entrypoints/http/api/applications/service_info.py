"""The service interface: the service itself (identity.md section 4.5; decisions, point 118)."""

from quart import Blueprint
from quart_schema import validate_request, validate_response

from core.applications import service_info
from core.applications.services_rules import ServiceSettings
from core.kernel.principals import Permission
from entrypoints.http.api.applications.services import ServiceShown, show_service
from entrypoints.http.edge.access import service_key
from entrypoints.http.edge.bodies import Name, RequestModel, Text, Texts, maybe
from entrypoints.http.edge.context import acting_key, ports

routes = Blueprint("service_info", __name__)


@routes.get("/api/service/info")
@service_key(Permission.READ_SERVICE)
@validate_response(ServiceShown)
async def info() -> ServiceShown:
    """The service of the API key."""
    return show_service(await service_info.current(ports(), acting_key()))


class InfoChange(RequestModel):
    """What to change, at least one of the fields. Arrays replace those that were there; null clears them, and the activation page."""

    name: Name = maybe()
    codehost_scopes: Texts | None = maybe()
    websuite_scopes: Texts | None = maybe()
    officesuite_scopes: Texts | None = maybe()
    redirect_uris: Texts | None = maybe()
    device_activation_uri: Text | None = maybe()


@routes.patch("/api/service/info")
@service_key(Permission.WRITE_SERVICE)
@validate_request(InfoChange)
@validate_response(ServiceShown)
async def update(data: InfoChange) -> ServiceShown:
    """Change the service of the API key; slug, type and client id stay."""
    return show_service(await service_info.update(ports(), acting_key(), ServiceSettings(**dict(data))))
