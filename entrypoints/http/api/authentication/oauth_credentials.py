"""What a service is known by at the identity providers (decisions, point 211)."""

import re
from functools import wraps
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema
from quart import Blueprint, Response
from quart_schema import validate_request, validate_response

from core.authentication import oauth_credentials, oauth_credentials_rules
from core.authentication.oauth_credentials_rules import ServiceOAuthCredentials
from core.kernel.principals import Capability
from core.kernel.providers import Provider
from entrypoints.http.api.applications.services import existing_service
from entrypoints.http.edge.access import View, member
from entrypoints.http.edge.bodies import MAX_TEXT, RequestModel, ResponseModel, Timestamp
from entrypoints.http.edge.context import acting_member, no_content, ports
from entrypoints.http.edge.openapi import describes

routes = Blueprint("oauth_credentials", __name__)

PATH = "/api/organizations/<org_slug>/services/<service_slug>/oauth-credentials/<provider>"

# What an identity provider can have given (RFC 6749, appendices A.1 and A.2), without what copying may have added.
_VISIBLE = re.compile(r"[!-~](?:[ -~]*[!-~])?")


def _visible(text: str) -> str:
    if not _VISIBLE.fullmatch(text):
        raise ValueError("it must be of printable ASCII characters, without spaces around them")
    return text


def _given(**schema: str) -> Any:
    return WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_TEXT, **schema})


ClientId = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(_visible), _given()]
ClientSecret = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(_visible), _given(format="password")]


class NewCredentials(RequestModel):
    """What the provider has given to the service. The secret is encrypted, and told to nobody."""

    client_id: ClientId
    client_secret: ClientSecret


class CredentialsShown(ResponseModel):
    """What the service is known by at the provider."""

    provider: Provider
    client_id: str
    has_secret: bool
    updated_at: Timestamp


def _show(credentials: ServiceOAuthCredentials) -> CredentialsShown:
    return CredentialsShown(
        provider=credentials.provider, client_id=credentials.client_id, has_secret=True, updated_at=credentials.updated_at
    )


def of_a_provider(view: View) -> View:
    """For routes of `<provider>`: that there is no such provider is told before the body is looked at (decisions, point 16)."""

    @wraps(view)
    async def found(provider: str, **arguments: Any) -> Any:
        return await view(provider=oauth_credentials_rules.parse_provider(provider), **arguments)

    return found


@routes.put(PATH)
@member(Capability.SERVICES_MANAGE)
@existing_service
@of_a_provider
@validate_request(NewCredentials)
@validate_response(CredentialsShown)
async def put(org_slug: str, service_slug: str, provider: Provider, data: NewCredentials) -> CredentialsShown:
    """Have the service known to this identity provider by credentials of its own, instead of the platform's."""
    return _show(await oauth_credentials.put(ports(), acting_member(), service_slug, provider, data.client_id, data.client_secret))


@routes.get(PATH)
@member(Capability.SERVICES_MANAGE)
@existing_service
@of_a_provider
@validate_response(CredentialsShown)
async def current(org_slug: str, service_slug: str, provider: Provider) -> CredentialsShown:
    """The credentials of the service at this identity provider, without the secret."""
    return _show(await oauth_credentials.load(ports(), acting_member(), service_slug, provider))


@routes.delete(PATH)
@member(Capability.SERVICES_MANAGE)
@existing_service
@of_a_provider
@describes({204: "The service is known to this identity provider by the credentials of the platform again."})
async def remove(org_slug: str, service_slug: str, provider: Provider) -> Response:
    """Remove the credentials of the service at this identity provider."""
    await oauth_credentials.remove(ports(), acting_member(), service_slug, provider)
    return no_content()
