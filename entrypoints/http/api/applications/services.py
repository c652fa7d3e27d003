"""An organization's services, managed by members."""

from typing import Any, Literal
from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response
from quart_schema import document_response

from core.applications import services
from core.applications.model.services import SCOPES, Service, ServiceOrder, ServiceSummary, ServiceType
from core.kernel.rate_limits import IMAGE_UPLOAD
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.applications import service_settings
from entrypoints.http.edge.queries import AnyLimit

routes = Blueprint("services", __name__)


@kit.before_body
async def existing_service(service_slug: str, **_: object) -> None:
    """Answer 404 if there is no service `<service_slug>`."""
    await services.find(kit.ports(), kit.acting(), service_slug)


class ServiceResponse(kit.ResponseModel):
    """A service, which is an organization's application."""

    id: UUID = Field(description="The id of the service.")
    org_id: UUID = Field(description="The id of the organization.")
    slug: str = Field(description="The name of the service in URLs.", examples=["shop"])
    name: str = Field(description="The name of the service.")
    service_type: ServiceType = Field(description="The type of the application. `spa`, `mobile` and `desktop` are public clients.")
    client_id: UUID = Field(description="The client id for OAuth and OpenID Connect.")
    codehost_scopes: list[str] | None = Field(description="The scopes requested at `codehost`; null for the platform's defaults.")
    websuite_scopes: list[str] | None = Field(description="The scopes requested at `websuite`; null for the platform's defaults.")
    officesuite_scopes: list[str] | None = Field(description="The scopes requested at `officesuite`; null for the platform's defaults.")
    redirect_uris: list[str] = Field(description="The allowed redirect URIs.")
    device_activation_uri: str | None = Field(
        description="The page where users enter the code of a device; null for the platform's own page."
    )
    created_at: kit.Timestamp = Field(description="The time at which the service was created, in UTC.")
    pkce_without_secret: bool = service_settings.stored("pkce_without_secret", default=False)
    email_sign_in: bool | None = service_settings.stored("email_sign_in")
    is_trusted: bool = service_settings.stored("is_trusted", default=False)
    id_token_claims: bool = service_settings.stored("id_token_claims", default=True)
    post_logout_redirect_uris: list[str] = service_settings.stored("post_logout_redirect_uris", default=[])
    backchannel_logout_uri: str | None = service_settings.stored("backchannel_logout_uri")
    initiate_login_uri: str | None = service_settings.stored("initiate_login_uri")
    jwks: service_settings.JwkSetResponse | None = service_settings.stored("jwks")
    jwks_uri: str | None = service_settings.stored("jwks_uri")
    accepts_token_endpoint_audience: bool = service_settings.stored("accepts_token_endpoint_audience", default=False)
    access_token_seconds: int | None = service_settings.stored("access_token_seconds")
    refresh_token_seconds: int | None = service_settings.stored("refresh_token_seconds")
    enterprise: bool = service_settings.stored("enterprise", default=False)
    required_acr: Literal["mfa", "phr"] | None = service_settings.stored("required_acr")
    require_pushed_authorization_requests: bool = service_settings.stored("require_pushed_authorization_requests", default=False)
    dpop_bound_access_tokens: bool = service_settings.stored("dpop_bound_access_tokens", default=False)
    always_ask_consent: bool = service_settings.stored("always_ask_consent", default=False)
    logo_uri: str | None = service_settings.stored("logo_uri")
    policy_uri: str | None = service_settings.stored("policy_uri")
    tos_uri: str | None = service_settings.stored("tos_uri")
    logo_url: str | None = Field(default=None, description="The URL of the uploaded logo, or null.")
    registered_with: str | None = kit.absent_if_none(
        "The name of the registration token with which the application registered itself. Left out for others."
    )
    former_secret_expires_at: kit.Timestamp | None = kit.absent_if_none(
        "When the client secret from before the last rotation expires, in UTC. Left out if there is none."
    )


class ServiceSummaryResponse(ServiceResponse):
    """A service in a list."""

    plan_count: int = Field(description="The number of plans.")
    subscription_count: int = Field(description="The number of subscriptions in any status.")


class PlanResponse(kit.ResponseModel):
    """A service's plan."""

    id: UUID = Field(description="The id of the plan.")
    service_id: UUID = Field(description="The id of the service.")
    name: str = Field(description="The name of the plan.")
    price_cents: int = Field(description="The price of a period, in the smallest unit of the currency.")
    currency: str = Field(description="The currency, a code of three lower-case letters.", examples=["usd"])
    features: list[str] = Field(description="The features of the plan.")
    billing_price_id: str | None = Field(description="The id of the price at the payment provider; null if the plan cannot be bought.")
    created_at: kit.Timestamp = Field(description="The time at which the plan was created, in UTC.")


class ServiceQuotaResponse(kit.ResponseModel):
    """How many services the organization has, and its limit."""

    current_services: int = Field(description="The number of services.")
    max_services: int = Field(description="The maximum number of services.")
    tier: str | None = Field(description="The display name of the organization's tier; null if it has no tier.")


def _computed(service: Service) -> dict[str, Any]:
    """Return a response's fields that differ from the service's."""
    keys = None if service.jwks is None else service_settings.JwkSetResponse(keys=[dict(key) for key in service.jwks])
    return {"jwks": keys, **{name: service.setting(name) for name in SCOPES}}


def to_service_response(service: Service) -> ServiceResponse:
    return ServiceResponse.of(service, **_computed(service))


def _to_summary_response(summary: ServiceSummary) -> ServiceSummaryResponse:
    return ServiceSummaryResponse.of(summary.service, **_computed(summary.service), plan_count=summary.plan_count)


class ServiceRequest(service_settings.ServiceSettingsRequest):
    """A new service. Settings that are left out are false, empty or null, but `id_token_claims` is true."""

    slug: kit.Text = Field(
        description="The name of the service in URLs: 1 to 63 lower-case letters and digits with single hyphens between them. "
        "It cannot be changed later.",
        examples=["shop"],
    )
    name: kit.Name = Field(description="The name of the service.", examples=["Shop"])
    service_type: service_settings.Type = Field(
        description="The type of the application. `spa`, `mobile` and `desktop` services have no client secret."
    )


class CreatedServiceResponse(kit.ResponseModel):
    """A new service with its free plan and its client secret."""

    service: ServiceResponse = Field(description="The new service.")
    default_plan: PlanResponse = Field(description="The free plan of the service.")
    usage: ServiceQuotaResponse = Field(description="The number of services and its limit.")
    client_secret: str | None = Field(
        description="The client secret, which is returned only once; null for `spa`, `mobile` and `desktop` services."
    )


@routes.post("/api/organizations/<org_slug>/services")
@kit.member(Capability.SERVICES_CREATE, kit.GIVES)
async def create(org_slug: str, data: ServiceRequest) -> CreatedServiceResponse:
    """Create a service.

    The service gets a free plan. The client secret for a `web` or `api` service is returned only once: store it safely.
    The organization's tier limits how many services it can have.
    """
    created = await services.create(kit.ports(), kit.acting(), data.slug, data.name, data.service_type, data.to_settings())
    return CreatedServiceResponse(
        service=to_service_response(created.service),
        default_plan=PlanResponse.of(created.default_plan),
        usage=ServiceQuotaResponse.of(created.quota),
        client_secret=created.client_secret,
    )


class ServicesQuery(kit.Query):
    """Filters for the service list."""

    service_type: ServiceType | None = Field(default=None, description="Return only services of this type.")
    search: kit.Text | None = Field(
        default=None,
        description="Return only services with this text in their name or slug, or the service with this client id. Case is ignored.",
    )
    sort: ServiceOrder = Field(default=ServiceOrder.CREATED, description="`created`: oldest first. `name`: by name; case is ignored.")
    limit: AnyLimit = None
    offset: kit.Offset = 0


class ServiceListResponse(kit.ResponseModel):
    """The organization's services."""

    services: list[ServiceSummaryResponse] = Field(description="The services, in the requested order.")
    usage: ServiceQuotaResponse = Field(description="How many services of all types there are, and their limit.")


@routes.get("/api/organizations/<org_slug>/services")
@kit.member(Capability.SERVICES_VIEW)
@document_response(ServiceListResponse)
async def list_services(org_slug: str, query_args: ServicesQuery) -> Response:
    """List services.

    Returns all the organization's services, oldest first, unless a filter, sort, limit or offset is given.
    """
    batches, quota = await services.list_services(
        kit.ports(),
        kit.acting(),
        query_args.service_type,
        query_args.limit,
        query_args.offset,
        search=query_args.search,
        order=query_args.sort,
    )
    return await kit.stream_list(batches, _to_summary_response, name="services", other_fields={"usage": ServiceQuotaResponse.of(quota)})


@routes.get("/api/organizations/<org_slug>/services/<service_slug>")
@kit.member(Capability.SERVICES_VIEW)
async def get(org_slug: str, service_slug: str) -> ServiceResponse:
    """Get a service.

    The client secret is not returned.
    """
    return to_service_response(await services.find(kit.ports(), kit.acting(), service_slug))


class ServiceUpdateRequest(service_settings.ServiceSettingsRequest):
    """The service's fields to change, at least one field. Arrays replace the previous values."""

    model_config = kit.AT_LEAST_ONE_FIELD


class UpdatedServiceResponse(ServiceResponse):
    """A changed service, with its new client secret if it got a new secret."""

    client_secret: str | None = kit.absent_if_none(
        "The new client secret if the type changed to `web` or `api`. It is returned only once, and left out otherwise."
    )


@routes.patch("/api/organizations/<org_slug>/services/<service_slug>")
@kit.member(Capability.SERVICES_MANAGE, kit.GIVES)
@kit.refuses(409)
@existing_service
async def update(org_slug: str, service_slug: str, data: ServiceUpdateRequest) -> UpdatedServiceResponse:
    """Change a service.

    Only the fields in the request change. A `spa`, `mobile` or `desktop` service that becomes `web` or `api` gets a
    client secret, which is returned only once. In the reverse direction, the secret and the keys are deleted.
    """
    service, client_secret = await services.update(kit.ports(), kit.acting(), service_slug, data.to_settings())
    return UpdatedServiceResponse.of(service, **_computed(service), client_secret=client_secret)


class SecretRotationRequest(kit.RequestModel):
    """How long the old client secret works beside the new secret."""

    overlap_seconds: int = Field(
        default=0, description="The seconds for which the old secret still works, at most 7 days. By default it stops working immediately."
    )


class ClientSecretResponse(kit.ResponseModel):
    """A new client secret. Only this response contains it."""

    client_secret: str = Field(description="The new client secret. It is returned only once.")


@routes.post("/api/organizations/<org_slug>/services/<service_slug>/rotate-secret")
@kit.member(Capability.SERVICES_MANAGE, kit.GIVES)
async def rotate_secret(org_slug: str, service_slug: str, data: SecretRotationRequest) -> ClientSecretResponse:
    """Replace the client secret.

    The old secret stops working immediately, or after `overlap_seconds`. The new secret is returned only once. `spa`,
    `mobile` and `desktop` services have no client secret.
    """
    secret = await services.rotate_secret(kit.ports(), kit.acting(), service_slug, data.overlap_seconds)
    return ClientSecretResponse(client_secret=secret)


@routes.delete("/api/organizations/<org_slug>/services/<service_slug>")
@kit.member(Capability.ORGANIZATION_OWN, kit.OWNS)
@kit.describes({204: "The service is deleted."})
async def delete(org_slug: str, service_slug: str) -> None:
    """Delete a service.

    Deletes the service with its plans, subscriptions, API keys, sessions and logins. Paid subscriptions are canceled at
    the payment provider. Its users' accounts stay. This cannot be undone.
    """
    await services.delete(kit.ports(), kit.acting_member(), service_slug)


@routes.put("/api/organizations/<org_slug>/services/<service_slug>/logo")
@kit.member(Capability.SERVICES_MANAGE, kit.CHANGES, limit=IMAGE_UPLOAD)
@kit.takes_image
@existing_service
async def set_logo(org_slug: str, service_slug: str) -> ServiceResponse:
    """Upload a service's logo.

    The body is a PNG, JPEG or WebP file with at most 200 KB and 4,000,000 pixels. It is kept as PNG with at most 64 and 256 pixels, without
    anything else that the file contains. Users see it on the pages on which they sign in.
    """
    return to_service_response(await services.set_logo(kit.ports(), kit.acting(), service_slug, *await kit.read_image()))


@routes.delete("/api/organizations/<org_slug>/services/<service_slug>/logo")
@kit.member(Capability.SERVICES_MANAGE, kit.CHANGES)
@kit.describes({204: "The service has no logo."})
async def remove_logo(org_slug: str, service_slug: str) -> None:
    """Remove a service's logo.

    Nothing happens if it has none.
    """
    await services.remove_logo(kit.ports(), kit.acting(), service_slug)
