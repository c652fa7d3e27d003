"""Our own API as a protected resource: its metadata (RFC 9728)."""

from pydantic import Field
from quart import Blueprint

from core.authentication.model.dpop import PROOF_ALGORITHMS
from core.authentication.model.openid import API_PATH
from core.kernel.api_scopes import ApiScope
from core.kernel.display import PRODUCT
from entrypoints.http.base.context import app_context
from entrypoints.http.edge.access import operations
from entrypoints.http.edge.bodies import ResponseModel
from entrypoints.http.edge.challenges import RESOURCE_METADATA_PATH
from entrypoints.http.edge.openapi import any_origin

routes = Blueprint("protected_resource", __name__)


class ProtectedResourceResponse(ResponseModel):
    """Our own API's metadata as a protected resource."""

    resource: str = Field(description="The API's identifier, which is the `aud` in its access tokens.")
    authorization_servers: list[str] = Field(description="The issuer of its access tokens.")
    scopes_supported: list[str] = Field(description="The scopes of the API.")
    bearer_methods_supported: list[str] = Field(description="Tokens are accepted in the header `Authorization` only.")
    dpop_signing_alg_values_supported: list[str] = Field(description="The algorithms of DPoP proofs, which bound tokens need (RFC 9449).")
    resource_name: str = Field(description="The name of the API.")
    resource_documentation: str = Field(description="The URL of its documentation.")


@routes.get(RESOURCE_METADATA_PATH)
@operations
@any_origin
async def get_metadata() -> tuple[ProtectedResourceResponse, int, dict[str, str]]:
    """Show this API's metadata as a protected resource.

    Clients can cache it for five minutes (RFC 9728).
    """
    base = app_context().base_url
    metadata = ProtectedResourceResponse(
        resource=f"{base}{API_PATH}",
        authorization_servers=[base],
        scopes_supported=[*ApiScope],
        bearer_methods_supported=["header"],
        dpop_signing_alg_values_supported=list(PROOF_ALGORITHMS),
        resource_name=PRODUCT,
        resource_documentation=f"{base}/docs/api",
    )
    return metadata, 200, {"Cache-Control": "public, max-age=300"}
