"""The settings and the mapping for connections in the API."""

from typing import Literal

from pydantic import Field

from core.federation.connections.model import settings
from core.federation.saml.model.configuration import NameIdFormat
from entrypoints.http import kit

TRUSTS_EMAIL = (
    "Whether addresses from this identity provider count as verified, also if it does not say so. Entra ID does not say so. Choose this "
    "only if its users cannot choose their address."
)
TRUSTS_SECOND_FACTOR = (
    "Whether the second factor of the identity provider counts within the organization, if it says that it asked for one."
)


class OidcSettingsRequest(kit.RequestModel):
    """An OpenID provider's settings. A draft's texts can be empty."""

    issuer: kit.Text = Field(
        "", description="The issuer of a single tenant, exactly as the provider spells it.", max_length=settings.MAX_TEXT
    )
    client_id: kit.Text = Field("", description="The client id of Gatehouse at the provider.")
    client_authentication: Literal["client_secret_basic", "client_secret_post", "private_key_jwt"] = Field(
        "client_secret_basic", description="How Gatehouse authenticates. With `private_key_jwt`, it needs a key and no client secret."
    )
    scopes: kit.Texts = Field(["email", "profile"], description="The scopes to ask for besides `openid`, at most 20.")
    targets: kit.Texts = Field(
        [], description="The URLs at which users can continue after a sign-in that the provider initiated, at most 20."
    )
    trusts_email: bool = Field(default=False, description=TRUSTS_EMAIL)
    trusts_second_factor: bool = Field(default=False, description=TRUSTS_SECOND_FACTOR)
    clock_skew_seconds: int = Field(
        settings.DEFAULT_SKEW_SECONDS,
        ge=0,
        le=settings.MAX_SKEW_SECONDS,
        description="The tolerated difference between the clocks of the identity provider and of Gatehouse at sign-ins, in seconds.",
    )

    def build(self) -> settings.OidcSettings:
        values = {
            **dict(self),
            "client_authentication": settings.ProviderAuthentication(self.client_authentication),
            "scopes": tuple(self.scopes),
        }
        return settings.OidcSettings(**{**values, "targets": tuple(self.targets)})


class SamlSettingsRequest(kit.RequestModel):
    """A SAML identity provider's settings. A draft's texts can be empty."""

    entity_id: kit.Text = Field("", description="The entity id of the identity provider.", max_length=settings.MAX_TEXT)
    sso_url: kit.Text = Field("", description="The address that takes our sign-in requests.", max_length=settings.MAX_TEXT)
    sso_binding: Literal["redirect", "post"] = Field("redirect", description="How the browser takes a request there.")
    slo_url: kit.Text | None = Field(
        None,
        description="The address for logout requests and responses (HTTP-Redirect), or null. They need a key.",
        max_length=settings.MAX_TEXT,
    )
    slo_response_url: kit.Text | None = Field(
        None, description="The address for logout responses, or null if `slo_url` takes them.", max_length=settings.MAX_TEXT
    )
    metadata_url: kit.Text | None = Field(None, description="The address of its metadata, or null.", max_length=settings.MAX_TEXT)
    name_id_format: kit.Text = Field(
        "persistent",
        description="The format of the NameID to ask for: a URN or its last part, but not `transient`.",
        examples=["persistent"],
    )
    subject: kit.Text | None = Field(
        None,
        description="The attribute by which users are known, or null for the NameID. Users must not be able to change it.",
    )
    signs_requests: bool = Field(default=True, description="Whether Gatehouse signs its requests, which needs a key.")
    unsolicited: bool = Field(default=False, description="Whether sign-ins can start at the identity provider.")
    targets: kit.Texts = Field([], description="The values of `RelayState` with which such a user continues there: URLs, at most 20.")
    trusts_email: bool = Field(default=False, description=TRUSTS_EMAIL)
    trusts_second_factor: bool = Field(default=False, description=TRUSTS_SECOND_FACTOR)
    clock_skew_seconds: int = Field(
        settings.DEFAULT_SKEW_SECONDS,
        ge=0,
        le=settings.MAX_SKEW_SECONDS,
        description="The tolerated difference between the clocks of the identity provider and of Gatehouse at sign-ins, in seconds.",
    )

    def build(self) -> settings.SamlSettings:
        """Return the settings."""
        name_id_format = NameIdFormat.parse(self.name_id_format)
        values = {**dict(self), "sso_binding": settings.SsoBinding(self.sso_binding), "name_id_format": name_id_format}
        return settings.SamlSettings(**{**values, "targets": tuple(self.targets)})


class ClaimMappingRequest(kit.RequestModel):
    """The claims or attributes that Gatehouse reads, by name. null: it reads none."""

    email: kit.Text = Field("email", description="The claim with the email address.")
    name: kit.Text | None = Field("name", description="The claim with the full name.")
    given_name: kit.Text | None = Field("given_name", description="The claim with the given name.")
    family_name: kit.Text | None = Field("family_name", description="The claim with the family name.")
    groups: kit.Text | None = Field(None, description="The claim with the groups.")
    picture: kit.Text | None = Field(None, description="The claim with the https URL of a picture, for new accounts.")
    locale: kit.Text | None = Field(None, description="The claim with the language, such as `en-US`, for new accounts.")

    def build(self) -> settings.ClaimMapping:
        return settings.ClaimMapping(**dict(self))


class OidcSettingsResponse(kit.ResponseModel):
    """An OpenID provider's settings."""

    issuer: str = Field(description="The issuer.")
    client_id: str = Field(description="The client id of Gatehouse at the provider.")
    client_authentication: settings.ProviderAuthentication = Field(description="How Gatehouse authenticates.")
    scopes: list[str] = Field(description="The scopes to ask for besides `openid`.")
    targets: list[str] = Field(description="The URLs at which users can continue after a sign-in that the provider initiated.")
    trusts_email: bool = Field(description="Whether its addresses count as verified.")
    trusts_second_factor: bool = Field(description="Whether its second factor counts within the organization.")
    clock_skew_seconds: int = Field(description="The tolerated difference between the clocks at sign-ins, in seconds.")


class SamlSettingsResponse(kit.ResponseModel):
    """A SAML identity provider's settings."""

    entity_id: str = Field(description="The entity id of the identity provider.")
    sso_url: str = Field(description="The address that takes our sign-in requests.")
    sso_binding: settings.SsoBinding = Field(description="How the browser takes a request there.")
    slo_url: str | None = Field(description="The address for logout requests and responses, or null.")
    slo_response_url: str | None = Field(description="The address for logout responses, or null if `slo_url` takes them.")
    metadata_url: str | None = Field(description="The address of its metadata, or null.")
    name_id_format: NameIdFormat = Field(description="The format of the NameID to ask for.")
    subject: str | None = Field(description="The attribute by which users are known, or null for the NameID.")
    signs_requests: bool = Field(description="Whether Gatehouse signs its requests.")
    unsolicited: bool = Field(description="Whether sign-ins can start at the identity provider.")
    targets: list[str] = Field(description="The URLs at which users can continue after such a sign-in.")
    trusts_email: bool = Field(description="Whether its addresses count as verified.")
    trusts_second_factor: bool = Field(description="Whether its second factor counts within the organization.")
    clock_skew_seconds: int = Field(description="The tolerated difference between the clocks at sign-ins, in seconds.")


class ClaimMappingResponse(kit.ResponseModel):
    """The claims or attributes that Gatehouse reads, by name. null: it reads none."""

    email: str = Field(description="The claim with the email address.")
    name: str | None = Field(description="The claim with the full name.")
    given_name: str | None = Field(description="The claim with the given name.")
    family_name: str | None = Field(description="The claim with the family name.")
    groups: str | None = Field(description="The claim with the groups.")
    picture: str | None = Field(description="The claim with the URL of a picture, for new accounts.")
    locale: str | None = Field(description="The claim with the language, for new accounts.")
