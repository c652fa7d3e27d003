"""The metadata of the provider (OpenID Connect Discovery section 3, RFC 8414 section 2), and of our own API (RFC 9728)."""

from pydantic import Field
from quart import Blueprint

from core.applications.model.client_settings import ASSERTION_ALGORITHMS
from core.authentication.model import openid
from core.authentication.model.dpop import PROOF_ALGORITHMS
from core.authentication.model.openid import API_PATH, USERINFO_PATH
from core.federation.oauth.model import openid_requests
from core.federation.oauth.model.authorization import AUTHORIZE_PATH, PAR_PATH, ResponseMode
from core.federation.oauth.model.client_registration import REGISTER_PATH
from core.federation.oauth.model.end_session import END_SESSION_PATH
from core.kernel.api_scopes import ApiScope
from core.kernel.display import PRODUCT
from core.kernel.proofs import Acr
from entrypoints.http import kit
from entrypoints.http.api.federation.oauth.client_authentication import AUTHENTICATION_METHODS
from entrypoints.http.api.federation.oauth.token_endpoint import GRANTS, INTROSPECT, REVOKE, TOKEN
from entrypoints.http.edge.errors import RESOURCE_METADATA_PATH

routes = Blueprint("discovery", __name__)


class ProviderMetadataResponse(kit.ResponseModel):
    """This provider's metadata, for OpenID Connect and for OAuth."""

    issuer: str = Field(description="The issuer, which is also the `iss` of tokens and redirects (RFC 9207).")
    authorization_endpoint: str = Field(description="The URL of the authorization endpoint.")
    pushed_authorization_request_endpoint: str = Field(description="The URL to which applications push requests (RFC 9126).")
    require_pushed_authorization_requests: bool = Field(
        description="Whether all applications must push. The settings of an application can require it, too."
    )
    token_endpoint: str = Field(description="The URL of the token endpoint.")
    token_endpoint_auth_methods_supported: list[str] = Field(description="How clients authenticate at the token endpoint.")
    token_endpoint_auth_signing_alg_values_supported: list[str] = Field(description="The algorithms of client assertions there.")
    userinfo_endpoint: str = Field(description="The URL of the userinfo endpoint.")
    introspection_endpoint: str = Field(description="The URL of the introspection endpoint (RFC 7662).")
    introspection_endpoint_auth_methods_supported: list[str] = Field(description="How clients authenticate at the introspection endpoint.")
    introspection_endpoint_auth_signing_alg_values_supported: list[str] = Field(description="The algorithms of client assertions there.")
    revocation_endpoint: str = Field(description="The URL of the revocation endpoint.")
    revocation_endpoint_auth_methods_supported: list[str] = Field(description="How clients authenticate at the revocation endpoint.")
    revocation_endpoint_auth_signing_alg_values_supported: list[str] = Field(description="The algorithms of client assertions there.")
    end_session_endpoint: str = Field(description="The URL to which applications send the browser to sign the user out.")
    backchannel_logout_supported: bool = Field(description="Whether applications get a logout token when a session of theirs ends.")
    backchannel_logout_session_supported: bool = Field(description="Whether logout tokens have the claim `sid`.")
    device_authorization_endpoint: str = Field(description="The URL where devices request their codes (RFC 8628).")
    jwks_uri: str = Field(description="The URL of the public keys that verify tokens.")
    scopes_supported: list[str] = Field(description="The scopes that have a meaning here.")
    response_types_supported: list[str] = Field(description="The supported values of `response_type`.")
    response_modes_supported: list[str] = Field(description="How the browser brings the answer.")
    grant_types_supported: list[str] = Field(description="The supported values of `grant_type`.")
    acr_values_supported: list[str] = Field(description="The authentication classes: a single factor, two factors, or a passkey.")
    subject_types_supported: list[str] = Field(description="All clients see the same `sub`.")
    id_token_signing_alg_values_supported: list[str] = Field(description="The algorithm of ID tokens.")
    claims_supported: list[str] = Field(description="The claims that an application can get.")
    claim_types_supported: list[str] = Field(description="`normal`, and `distributed` for claims that are too large for an ID token.")
    claims_parameter_supported: bool = Field(description="Whether applications can ask for single claims.")
    request_parameter_supported: bool = Field(description="Whether the parameter `request` is supported.")
    request_uri_parameter_supported: bool = Field(description="Whether the parameter `request_uri` is supported.")
    require_request_uri_registration: bool = Field(description="Has no meaning without `request_uri`.")
    prompt_values_supported: list[str] = Field(description="The supported values of `prompt`.")
    ui_locales_supported: list[str] = Field(description="The languages of the pages.")
    dpop_signing_alg_values_supported: list[str] = Field(description="The algorithms of DPoP proofs (RFC 9449).")
    code_challenge_methods_supported: list[str] = Field(description="The supported PKCE methods.")
    registration_endpoint: str | None = kit.absent_if_none(
        "The URL where clients register themselves (RFC 7591). Left out unless the operator lets all clients do so."
    )
    client_id_metadata_document_supported: bool = Field(
        description="Whether a client that is not registered can send the address of its metadata as client_id."
    )
    authorization_response_iss_parameter_supported: bool = Field(description="Whether redirects have the parameter `iss`.")
    service_documentation: str = Field(description="The URL of this documentation.")


def _metadata() -> ProviderMetadataResponse:
    base = kit.app_context().base_url
    methods, algorithms = [*AUTHENTICATION_METHODS, "none"], list(ASSERTION_ALGORITHMS)
    return ProviderMetadataResponse(
        issuer=base,
        authorization_endpoint=f"{base}{AUTHORIZE_PATH}",
        pushed_authorization_request_endpoint=f"{base}{PAR_PATH}",
        require_pushed_authorization_requests=False,
        token_endpoint=f"{base}{TOKEN}",
        token_endpoint_auth_methods_supported=methods,
        token_endpoint_auth_signing_alg_values_supported=algorithms,
        userinfo_endpoint=f"{base}{USERINFO_PATH}",
        introspection_endpoint=f"{base}{INTROSPECT}",
        introspection_endpoint_auth_methods_supported=list(AUTHENTICATION_METHODS),
        introspection_endpoint_auth_signing_alg_values_supported=algorithms,
        revocation_endpoint=f"{base}{REVOKE}",
        revocation_endpoint_auth_methods_supported=methods,
        revocation_endpoint_auth_signing_alg_values_supported=algorithms,
        end_session_endpoint=f"{base}{END_SESSION_PATH}",
        backchannel_logout_supported=True,
        backchannel_logout_session_supported=True,
        device_authorization_endpoint=f"{base}/auth/device/code",
        jwks_uri=f"{base}/.well-known/jwks.json",
        scopes_supported=[*openid.Scope],
        response_types_supported=[openid_requests.RESPONSE_TYPE],
        response_modes_supported=[*ResponseMode],
        grant_types_supported=list(GRANTS),
        acr_values_supported=[*Acr],
        subject_types_supported=["public"],
        id_token_signing_alg_values_supported=["RS256"],
        claims_supported=[*openid.PROTOCOL_CLAIMS, openid.SESSION_EXPIRY, *sorted(openid.USER_CLAIMS)],
        claim_types_supported=["normal", "distributed"],
        claims_parameter_supported=True,
        request_parameter_supported=False,
        request_uri_parameter_supported=False,
        require_request_uri_registration=False,
        prompt_values_supported=[*openid_requests.Prompt],
        ui_locales_supported=["en"],
        dpop_signing_alg_values_supported=list(PROOF_ALGORITHMS),
        code_challenge_methods_supported=["S256"],
        registration_endpoint=f"{base}{REGISTER_PATH}" if kit.app_context().ports.policy.client_registration else None,
        client_id_metadata_document_supported=True,
        authorization_response_iss_parameter_supported=True,
        service_documentation=f"{base}/docs/",
    )


@routes.get("/.well-known/openid-configuration")
@kit.operations
@kit.any_origin
async def get_openid_configuration() -> tuple[ProviderMetadataResponse, int, dict[str, str]]:
    """Show the provider metadata for OpenID Connect.

    Clients can cache it for five minutes.
    """
    return _metadata(), 200, {"Cache-Control": "public, max-age=300"}


@routes.get("/.well-known/oauth-authorization-server")
@kit.operations
@kit.any_origin
async def get_metadata() -> tuple[ProviderMetadataResponse, int, dict[str, str]]:
    """Show the OAuth server metadata.

    Clients can cache it for five minutes (RFC 8414). OpenID Connect has the same metadata.
    """
    return _metadata(), 200, {"Cache-Control": "public, max-age=300"}


class ProtectedResourceResponse(kit.ResponseModel):
    """Our own API's metadata as a protected resource."""

    resource: str = Field(description="The API's identifier, which is the `aud` in its access tokens.")
    authorization_servers: list[str] = Field(description="The issuer of its access tokens.")
    scopes_supported: list[str] = Field(description="The scopes of the API.")
    bearer_methods_supported: list[str] = Field(description="Tokens are accepted in the header `Authorization` only.")
    dpop_signing_alg_values_supported: list[str] = Field(description="The algorithms of DPoP proofs, which bound tokens need (RFC 9449).")
    resource_name: str = Field(description="The name of the API.")
    resource_documentation: str = Field(description="The URL of its documentation.")


@routes.get(RESOURCE_METADATA_PATH)
@kit.operations
@kit.any_origin
async def get_resource_metadata() -> tuple[ProtectedResourceResponse, int, dict[str, str]]:
    """Show this API's metadata as a protected resource.

    Clients can cache it for five minutes (RFC 9728).
    """
    base = kit.app_context().base_url
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
