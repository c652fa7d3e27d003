"""A service's OAuth credentials at identity providers."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema
from quart import Blueprint

from core.authentication import oauth_credentials
from core.authentication.model import identities as oauth_credentials_model
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.applications.services import existing_service
from entrypoints.http.api.authentication.connections import ProviderSlug

routes = Blueprint("oauth_credentials", __name__)

PATH = "/api/organizations/<org_slug>/services/<service_slug>/oauth-credentials/<provider>"

# The characters in a client id or secret (RFC 6749 appendices A.1 and A.2), without spaces around
# them, which copying can add.
VISIBLE_PATTERN = "[!-~](?:[ -~]*[!-~])?"
_VISIBLE = re.compile(VISIBLE_PATTERN)


def _check_visible(text: str) -> str:
    if not _VISIBLE.fullmatch(text):
        raise ValueError("it must have only printable ASCII characters, and no spaces around them")
    return text


def _schema(**schema: str) -> Any:
    return WithJsonSchema({"type": "string", "minLength": 1, "maxLength": kit.MAX_TEXT, "pattern": f"^{VISIBLE_PATTERN}$", **schema})


ClientId = Annotated[str, Field(max_length=kit.MAX_TEXT), AfterValidator(_check_visible), _schema()]
ClientSecret = Annotated[str, Field(max_length=kit.MAX_TEXT), AfterValidator(_check_visible), _schema(format="password")]


class OAuthCredentialsRequest(kit.RequestModel):
    """The credentials that the identity provider issued to the service."""

    client_id: ClientId = Field(description="The client id at the provider.")
    client_secret: ClientSecret = Field(description="The client secret at the provider. It is stored encrypted and never returned.")


class OAuthCredentialsResponse(kit.ResponseModel):
    """The service's own credentials at the identity provider, without the secret."""

    provider: ProviderSlug = Field(description="The identity provider.")
    client_id: str = Field(description="The client id at the provider.")
    has_secret: bool = Field(description="Whether a client secret is stored. Always true.")
    updated_at: kit.Timestamp = Field(description="When the credentials were last set.")


@kit.before_body
async def known_provider(provider: str, **_: object) -> None:
    """Refuse an unknown provider."""
    oauth_credentials_model.parse_provider(provider)


@routes.put(PATH)
@kit.member(Capability.SERVICES_MANAGE, kit.GIVES)
@existing_service
@known_provider
async def put_oauth_credentials(
    org_slug: str, service_slug: str, provider: ProviderSlug, data: OAuthCredentialsRequest
) -> OAuthCredentialsResponse:
    """Set the service's own OAuth credentials at an identity provider.

    The service then signs users in with its own OAuth client instead of the platform's. The request replaces earlier credentials.
    """
    credentials = await oauth_credentials.put(kit.ports(), kit.acting(), service_slug, provider, data.client_id, data.client_secret)
    return OAuthCredentialsResponse.of(credentials, has_secret=True)


@routes.get(PATH)
@kit.member(Capability.SERVICES_MANAGE)
@existing_service
@known_provider
async def get_oauth_credentials(org_slug: str, service_slug: str, provider: ProviderSlug) -> OAuthCredentialsResponse:
    """Return the service's own OAuth credentials at an identity provider.

    The client secret is never returned. The response is 404 if the service uses the platform's credentials.
    """
    credentials = await oauth_credentials.load(kit.ports(), kit.acting(), service_slug, provider)
    return OAuthCredentialsResponse.of(credentials, has_secret=True)


@routes.delete(PATH)
@kit.member(Capability.SERVICES_MANAGE, kit.GIVES)
@existing_service
@known_provider
@kit.describes({204: "The service uses the credentials of the platform again."})
async def delete_oauth_credentials(org_slug: str, service_slug: str, provider: ProviderSlug) -> None:
    """Delete the service's own OAuth credentials at an identity provider.

    The service then uses the platform's credentials again.
    """
    await oauth_credentials.remove(kit.ports(), kit.acting(), service_slug, provider)
