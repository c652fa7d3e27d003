"""Services of an organization (organizations.md section 4.1)."""

from functools import wraps
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response
from quart_schema import document_response, validate_querystring, validate_request, validate_response

from core.applications import services
from core.applications.services_rules import Plan, Service, ServiceQuota, ServiceSettings, ServiceSummary, ServiceType
from core.kernel.principals import Capability
from entrypoints.http.edge.access import View, member
from entrypoints.http.edge.bodies import Name, RequestModel, ResponseModel, Text, Texts, Timestamp, maybe
from entrypoints.http.edge.context import acting_member, no_content, ports
from entrypoints.http.edge.openapi import describes, refuses
from entrypoints.http.edge.queries import AnyLimit, Offset, Query
from entrypoints.http.edge.streaming import streamed

routes = Blueprint("services", __name__)


def of_a_service(view: View) -> View:
    """For routes of `<service_slug>`: that there is no such service is told before the body is looked at (decisions, point 16)."""

    @wraps(view)
    async def found(service_slug: str, **arguments: Any) -> Any:
        await services.find(ports(), acting_member(), service_slug)
        return await view(service_slug=service_slug, **arguments)

    return found


class ServiceShown(ResponseModel):
    """A service (organizations.md section 2.1). Scopes are null where the platform's default ones hold; pkce_without_secret is there if it
    is true."""

    id: UUID
    org_id: UUID
    slug: str
    name: str
    service_type: ServiceType
    client_id: UUID
    codehost_scopes: list[str] | None
    websuite_scopes: list[str] | None
    officesuite_scopes: list[str] | None
    redirect_uris: list[str]
    device_activation_uri: str | None
    created_at: Timestamp
    pkce_without_secret: bool = Field(default=False, exclude_if=lambda allowed: not allowed)


class ListedServiceShown(ServiceShown):
    """A service, and how many plans and subscriptions it has."""

    plan_count: int
    subscription_count: int


class PlanShown(ResponseModel):
    """A plan (organizations.md section 2.2)."""

    id: UUID
    service_id: UUID
    name: str
    price_cents: int
    currency: str
    features: list[str]
    billing_price_id: str | None
    created_at: Timestamp


class UsageShown(ResponseModel):
    """How many services the organization has and may have. `tier` is the tier's name for people, null where there is none."""

    current_services: int
    max_services: int
    tier: str | None


def _fields(service: Service) -> dict[str, Any]:
    return {name: getattr(service, name) for name in ServiceShown.model_fields}


def show_service(service: Service) -> ServiceShown:
    return ServiceShown(**_fields(service))


def show_plan(plan: Plan) -> PlanShown:
    return PlanShown(**{name: getattr(plan, name) for name in PlanShown.model_fields})


def _listed(listed: ServiceSummary) -> ListedServiceShown:
    service = listed.service
    return ListedServiceShown(**_fields(service), plan_count=listed.plan_count, subscription_count=service.subscription_count)


def _usage(usage: ServiceQuota) -> UsageShown:
    return UsageShown(current_services=usage.current_services, max_services=usage.max_services, tier=usage.tier)


# By its name; JSON has no other way to say it.
Type = Annotated[ServiceType, Field(strict=False)]


class NewService(RequestModel):
    """The slug is the service's name in addresses and never changes: 1 to 63 lower-case letters and digits with single hyphens between
    them. With pkce_without_secret a web or api service may meet a code_challenge instead of showing its client secret."""

    slug: Text
    name: Name
    service_type: Type
    codehost_scopes: Texts | None = None
    websuite_scopes: Texts | None = None
    officesuite_scopes: Texts | None = None
    redirect_uris: Texts | None = None
    device_activation_uri: Text | None = None
    pkce_without_secret: bool = False


class CreatedService(ResponseModel):
    """A new service with its first plan. `client_secret` is shown this once; it is null for mobile and desktop services."""

    service: ServiceShown
    default_plan: PlanShown
    usage: UsageShown
    client_secret: str | None


@routes.post("/api/organizations/<org_slug>/services")
@member(Capability.SERVICES_CREATE)
@validate_request(NewService)
@validate_response(CreatedService)
async def create(org_slug: str, data: NewService) -> CreatedService:
    """Create a service, which gets a free plan."""
    settings = ServiceSettings(
        codehost_scopes=data.codehost_scopes,
        websuite_scopes=data.websuite_scopes,
        officesuite_scopes=data.officesuite_scopes,
        redirect_uris=data.redirect_uris,
        device_activation_uri=data.device_activation_uri,
        pkce_without_secret=data.pkce_without_secret,
    )
    created = await services.create(ports(), acting_member(), data.slug, data.name, data.service_type, settings)
    return CreatedService(
        service=show_service(created.service),
        default_plan=show_plan(created.default_plan),
        usage=_usage(created.usage),
        client_secret=created.client_secret,
    )


class ServicesQuery(Query):
    """Which services; all of them unless something is given."""

    service_type: ServiceType | None = None
    limit: AnyLimit = None
    offset: Offset = 0


class Services(ResponseModel):
    """Services, the oldest first, and how many there are and may be."""

    services: list[ListedServiceShown]
    usage: UsageShown


@routes.get("/api/organizations/<org_slug>/services")
@member(Capability.SERVICES_VIEW)
@refuses(400)
@validate_querystring(ServicesQuery)
@document_response(Services)
async def listed(org_slug: str, query_args: ServicesQuery) -> Response:
    """List the services of the organization."""
    found, usage = await services.listed(ports(), acting_member(), query_args.service_type, query_args.limit, query_args.offset)
    return await streamed(found, _listed, named="services", beside={"usage": _usage(usage)})


@routes.get("/api/organizations/<org_slug>/services/<service_slug>")
@member(Capability.SERVICES_VIEW)
@validate_response(ServiceShown)
async def service(org_slug: str, service_slug: str) -> ServiceShown:
    """One of the services."""
    return show_service(await services.find(ports(), acting_member(), service_slug))


class ServiceChange(RequestModel):
    """What to change, at least one of the fields. Arrays replace those that were there; null clears them, and the activation page."""

    name: Name = maybe()
    service_type: Type = maybe()
    codehost_scopes: Texts | None = maybe()
    websuite_scopes: Texts | None = maybe()
    officesuite_scopes: Texts | None = maybe()
    redirect_uris: Texts | None = maybe()
    device_activation_uri: Text | None = maybe()
    pkce_without_secret: bool = maybe()


class ChangedService(ServiceShown):
    """The service as it is now; and its new client secret, this once, if it came to need one by its new type."""

    client_secret: str | None = Field(default=None, exclude_if=lambda secret: secret is None)


@routes.patch("/api/organizations/<org_slug>/services/<service_slug>")
@member(Capability.SERVICES_MANAGE)
@of_a_service
@validate_request(ServiceChange)
@validate_response(ChangedService)
async def update(org_slug: str, service_slug: str, data: ServiceChange) -> ChangedService:
    """Change a service. A mobile or desktop service that becomes web or api gets a client secret, and loses it the other way."""
    changed, client_secret = await services.update(ports(), acting_member(), service_slug, ServiceSettings(**dict(data)))
    return ChangedService(**_fields(changed), client_secret=client_secret)


class NewSecret(ResponseModel):
    """The new client secret, which is shown this once."""

    client_secret: str


@routes.post("/api/organizations/<org_slug>/services/<service_slug>/rotate-secret")
@member(Capability.SERVICES_MANAGE, impersonated=False)
@refuses(400)
@validate_response(NewSecret)
async def rotate_secret(org_slug: str, service_slug: str) -> NewSecret:
    """Replace the client secret of a web or api service. The old one does not work any more."""
    return NewSecret(client_secret=await services.rotate_secret(ports(), acting_member(), service_slug))


@routes.delete("/api/organizations/<org_slug>/services/<service_slug>")
@member(Capability.ORGANIZATION_OWN)
@describes({204: "The service and all that belonged to it is gone; the accounts of its users stay."})
async def delete(org_slug: str, service_slug: str) -> Response:
    """Delete a service for good."""
    await services.delete(ports(), acting_member(), service_slug)
    return no_content()
