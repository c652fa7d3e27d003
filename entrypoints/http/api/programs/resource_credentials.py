"""API resources' credentials."""

from uuid import UUID

from quart import Blueprint

from core.kernel.roles import Capability
from core.programs import resource_credentials
from entrypoints.http.api.programs.api_resources import existing_resource
from entrypoints.http.api.programs.credential_models import (
    CreatedCredentialResponse,
    CredentialListResponse,
    CredentialRequest,
    to_created_response,
    to_credential_request,
    to_credential_response,
)
from entrypoints.http.base.context import acting, ports
from entrypoints.http.edge.access import GIVES, member
from entrypoints.http.edge.openapi import describes
from entrypoints.http.edge.signatures import returns

routes = Blueprint("resource_credentials", __name__)


@routes.get("/api/organizations/<org_slug>/api-resources/<resource_id>/credentials")
@member(Capability.RESOURCES_VIEW)
async def list_credentials(org_slug: str, resource_id: UUID) -> CredentialListResponse:
    """List an API resource's credentials.

    The API introspects tokens with them. Expired credentials are listed for 30 days. Secrets are not returned.
    """
    credentials = await resource_credentials.list_credentials(ports(), acting(), resource_id)
    return CredentialListResponse(credentials=[to_credential_response(credential) for credential in credentials])


@routes.post("/api/organizations/<org_slug>/api-resources/<resource_id>/credentials")
@member(Capability.RESOURCES_MANAGE, GIVES)
@existing_resource
@returns(201)
async def create_credential(org_slug: str, resource_id: UUID, data: CredentialRequest) -> CreatedCredentialResponse:
    """Create a credential for an API resource.

    With it, the API asks at the introspection endpoint about the access tokens that it receives, and sees only its own
    tokens. At most two secrets and keys work at a time. An API resource does not trust pipelines.
    """
    credential, secret = await resource_credentials.create(ports(), acting(), resource_id, to_credential_request(data))
    return to_created_response(credential, secret)


@routes.delete("/api/organizations/<org_slug>/api-resources/<resource_id>/credentials/<credential_id>")
@member(Capability.RESOURCES_MANAGE, GIVES)
@describes({204: "The credential is revoked."})
async def revoke_credential(org_slug: str, resource_id: UUID, credential_id: UUID) -> None:
    """Revoke an API resource's credential. Its next request is refused."""
    await resource_credentials.revoke(ports(), acting(), resource_id, credential_id)
