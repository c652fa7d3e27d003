"""The settings of a service as an OAuth client, as parts of its request and response models."""

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from core.applications.model.services import CLIENT_SETTINGS, Service
from entrypoints.http.edge.bodies import MAX_ITEMS, RequestModel, ResponseModel, Text, Timestamp, optional

JWKS: Final = "The public keys of client assertions (RFC 7523): RSA with 2048 to 8192 bits, P-256 or Ed25519. Not together with `jwks_uri`."
JWKS_URI: Final = "The https URL of these keys. They are cached for an hour, and fetched again for an unknown `kid`."
ASSERTION_AUDIENCE: Final = "Whether assertions may have the URL of the token endpoint as `aud`, instead of the issuer."
ACCESS_LIFETIME: Final = "The lifetime of access tokens, from 60 seconds to that of the platform; null for that of the platform."
REFRESH_LIFETIME: Final = "The lifetime of an unused refresh token, from 60 seconds to that of the platform; null for that of the platform."
ENTERPRISE: Final = (
    "Whether the rules for enterprise applications apply: PKCE always, no http redirect URIs, assertions only for the issuer, "
    "and the authorization code flow only."
)
REQUIRED_ACR: Final = (
    "`mfa` if every sign-in needs a second factor, which only the authorization code flow can ask for; null if the application decides "
    "itself. SAML sign-ins without one are refused."
)
PUSHED_ONLY: Final = (
    "Whether the application must push its authorization requests to `POST /auth/par` (RFC 9126). Then it gets no tokens for passwords."
)
BOUND_ONLY: Final = (
    "Whether all its tokens are bound to a key (DPoP, RFC 9449), so that it needs a proof at `POST /auth/token`. Then it gets no tokens "
    "for passwords."
)
ALWAYS_ASK: Final = (
    "Whether each sign-in asks the user to agree, even if they agreed before, or `is_trusted` exempts them. `prompt=none` then always "
    "returns `consent_required`."
)


class JwkSetRequest(RequestModel):
    """Public keys (RFC 7517)."""

    keys: Annotated[list[dict[str, Any]], Field(max_length=MAX_ITEMS)] = Field(description="1 to 20 keys.")


class ClientSettingsRequest(RequestModel):
    """The settings of a new service as an OAuth client."""

    jwks: JwkSetRequest | None = Field(default=None, description=JWKS)
    jwks_uri: Text | None = Field(default=None, description=JWKS_URI)
    accepts_token_endpoint_audience: bool = Field(default=False, description=ASSERTION_AUDIENCE)
    access_token_seconds: int | None = Field(default=None, description=ACCESS_LIFETIME)
    refresh_token_seconds: int | None = Field(default=None, description=REFRESH_LIFETIME)
    enterprise: bool = Field(default=False, description=ENTERPRISE)
    required_acr: Literal["mfa"] | None = Field(default=None, description=REQUIRED_ACR)
    require_pushed_authorization_requests: bool = Field(default=False, description=PUSHED_ONLY)
    dpop_bound_access_tokens: bool = Field(default=False, description=BOUND_ONLY)
    always_ask_consent: bool = Field(default=False, description=ALWAYS_ASK)


class ClientSettingsUpdateRequest(RequestModel):
    """The settings of a service as an OAuth client to change."""

    jwks: JwkSetRequest | None = optional(description=JWKS)
    jwks_uri: Text | None = optional(description=JWKS_URI)
    accepts_token_endpoint_audience: bool = optional(description=ASSERTION_AUDIENCE)
    access_token_seconds: int | None = optional(description=ACCESS_LIFETIME)
    refresh_token_seconds: int | None = optional(description=REFRESH_LIFETIME)
    enterprise: bool = optional(description=ENTERPRISE)
    required_acr: Literal["mfa"] | None = optional(description=REQUIRED_ACR)
    require_pushed_authorization_requests: bool = optional(description=PUSHED_ONLY)
    dpop_bound_access_tokens: bool = optional(description=BOUND_ONLY)
    always_ask_consent: bool = optional(description=ALWAYS_ASK)


def client_settings(data: ClientSettingsRequest | ClientSettingsUpdateRequest) -> dict[str, Any]:
    """Return the settings in a request, as `ServiceSettings` takes them."""
    settings = {name: getattr(data, name) for name in CLIENT_SETTINGS}
    if isinstance(data.jwks, JwkSetRequest):
        settings["jwks"] = data.jwks.keys
    return settings


class JwkSetResponse(ResponseModel):
    """Public keys (RFC 7517)."""

    keys: list[dict[str, str]] = Field(description="The keys.")


def _left_out_if_none(description: str) -> Any:
    return Field(default=None, exclude_if=lambda value: value is None, description=f"{description} Left out if there is none.")


def _left_out_if_false(description: str) -> Any:
    return Field(default=False, exclude_if=lambda value: not value, description=f"{description} Left out if false.")


class ClientSettingsResponse(ResponseModel):
    """The settings of a service as an OAuth client."""

    jwks: JwkSetResponse | None = _left_out_if_none("The public keys of the client's assertions.")
    jwks_uri: str | None = _left_out_if_none("The URL of these keys.")
    accepts_token_endpoint_audience: bool = _left_out_if_false("Whether assertions may have the URL of the token endpoint as `aud`.")
    access_token_seconds: int | None = _left_out_if_none("The lifetime of access tokens.")
    refresh_token_seconds: int | None = _left_out_if_none("The lifetime of an unused refresh token.")
    enterprise: bool = _left_out_if_false("Whether the rules for enterprise applications apply.")
    required_acr: Literal["mfa"] | None = _left_out_if_none("The authentication class that every sign-in needs.")
    require_pushed_authorization_requests: bool = _left_out_if_false("Whether the application must push its authorization requests.")
    dpop_bound_access_tokens: bool = _left_out_if_false("Whether all tokens of the application are bound to a key.")
    always_ask_consent: bool = _left_out_if_false("Whether each sign-in asks the user to agree.")
    former_secret_expires_at: Timestamp | None = _left_out_if_none("When the client secret from before the last rotation expires, in UTC.")


def client_settings_fields(service: Service) -> dict[str, Any]:
    """Return the values of `ClientSettingsResponse`."""
    settings = service.client
    jwks = None if settings.jwks is None else JwkSetResponse(keys=[dict(key) for key in settings.jwks])
    fields = {name: getattr(settings, name) for name in CLIENT_SETTINGS}
    return {**fields, "jwks": jwks, "former_secret_expires_at": service.former_secret_expires_at}
