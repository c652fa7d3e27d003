"""A service's SAML configuration, its check, its certificate, our metadata for it, and the import of the service provider's metadata."""

from typing import Annotated

from pydantic import Field, WithJsonSchema
from quart import Blueprint, Response

from core.authentication.model.claim_document import MAX_CLAIMS
from core.federation.saml import configuration as saml
from core.federation.saml import metadata
from core.federation.saml.model.configuration import (
    MAX_ATTRIBUTE_NAME_LENGTH,
    MAX_CERTIFICATE_LENGTH,
    MAX_ENTITY_ID_LENGTH,
    AttributeFormat,
    NameIdFormat,
    SamlCertificate,
    SamlConfiguration,
    endpoint_path,
)
from core.federation.saml.model.metadata import MAX_METADATA_LENGTH, SamlProblemCode
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.applications.claims import SOURCE_TEXT
from entrypoints.http.api.applications.services import existing_service

routes = Blueprint("saml", __name__)

SAML = "/api/organizations/<org_slug>/services/<service_slug>/saml"
PROVIDER = "/saml/<org_slug>/<service_slug>"
METADATA = "application/samlmetadata+xml"

NAME_FORMAT = "The format of the name, an absolute URI. The default is the basic format, if the name has no space."
SEPARATOR = (
    "The text that joins several values to one. A sign-on is refused if a value contains it. null: each value is an element of its own."
)
# The use case parses the format, because it also accepts short names.
Format = Annotated[kit.Text, WithJsonSchema({"type": "string", "examples": ["emailAddress", "unspecified", "persistent", "transient"]})]


class AttributeFormatRequest(kit.RequestModel):
    """How an attribute is written in assertions."""

    name_format: kit.Text | None = Field(default=None, description=NAME_FORMAT)
    separator: kit.Text | None = Field(default=None, description=SEPARATOR)


class SamlConfigurationRequest(kit.RequestModel):
    """A service's whole SAML configuration. Fields that you leave out get their defaults."""

    enabled: bool = Field(description="Whether users can sign in with SAML. Enabling it needs `entity_id` and `acs_url`.")
    entity_id: kit.Text | None = Field(None, description=f"The entity id of the application, at most {MAX_ENTITY_ID_LENGTH} characters.")
    acs_url: kit.Text | None = Field(None, description="The URL of the application that receives SAML responses.")
    slo_url: kit.Text | None = Field(
        None, description="The URL of the application for single logout. Without it, logouts do not reach the application."
    )
    slo_response_url: kit.Text | None = Field(
        None, description="The URL of the application for logout responses. Without it, `slo_url` takes them, too."
    )
    slo_certificate: str | None = Field(
        None,
        description=(
            f"The X.509 certificate with which the application signs its LogoutRequests: PEM, at most {MAX_CERTIFICATE_LENGTH} characters, "
            "with an RSA key of at least 2048 bits. A signed request without SessionIndex ends the user's sessions in all browsers."
        ),
    )
    name_id_format: Format | None = Field(
        None, description="The format of user names: a URN or its last part. The default is `emailAddress`."
    )
    attribute_mapping: dict[str, kit.Text] | None = Field(
        None,
        description=(
            f"The attribute names by source, at most {MAX_ATTRIBUTE_NAME_LENGTH} characters each. The sources are {SOURCE_TEXT}; and "
            "`roles`, `permissions` and `groups`. The default is `email` and `id`, with these names."
        ),
        examples=[{"email": "mail", "id": "uid"}],
    )
    attribute_formats: dict[str, AttributeFormatRequest] | None = Field(
        None,
        max_length=MAX_CLAIMS,
        description="How attributes are written, by attribute name.",
        examples=[{"memberOf": {"separator": ";"}}],
    )
    sign_assertions: bool = Field(True, description="Whether assertions are signed. Assertions, responses or both must be signed.")
    sign_response: bool = Field(True, description="Whether responses are signed. Assertions, responses or both must be signed.")

    def build(self) -> SamlConfiguration:
        """Return the configuration."""
        name_id_format = NameIdFormat.EMAIL if self.name_id_format is None else NameIdFormat.parse(self.name_id_format)
        formats = self.attribute_formats
        parsed = None if not formats else {name: AttributeFormat(each.name_format, each.separator) for name, each in formats.items()}
        return SamlConfiguration(**{**dict(self), "name_id_format": name_id_format, "attribute_formats": parsed})


class SamlIdentityProviderResponse(kit.ResponseModel):
    """The values for the service's identity provider, to copy into the application."""

    entity_id: str = Field(description="The entity id of the identity provider.")
    metadata_url: str = Field(description="The URL of its metadata. It answers while SAML is enabled and has a certificate.")
    sso_url: str = Field(description="The URL for sign-on, with HTTP-Redirect or HTTP-POST.")
    slo_url: str = Field(description="The URL for single logout, with HTTP-Redirect or HTTP-POST.")


class AttributeFormatResponse(kit.ResponseModel):
    """How an attribute is written in assertions."""

    name_format: str | None = Field(description=NAME_FORMAT)
    separator: str | None = Field(description=SEPARATOR)


class SamlConfigurationResponse(kit.ResponseModel):
    """A service's SAML configuration."""

    enabled: bool = Field(description="Whether SAML is enabled. Users can sign in only if there is an active certificate too.")
    entity_id: str | None = Field(description="The entity id of the application.")
    acs_url: str | None = Field(description="The URL of the application that receives SAML responses.")
    slo_url: str | None = Field(description="The URL of the application for single logout.")
    slo_response_url: str | None = Field(description="The URL of the application for logout responses, or null: `slo_url` takes them.")
    slo_certificate: str | None = Field(description="The certificate (PEM) that verifies LogoutRequests of the application.")
    name_id_format: str | None = Field(description="The URN of the user name format, or null before the first configuration.")
    attribute_mapping: dict[str, str] | None = Field(description="The attribute names by source, or null for the default names.")
    attribute_formats: dict[str, AttributeFormatResponse] | None = Field(description="How attributes are written, by name, or null.")
    sign_assertions: bool = Field(description="Whether assertions are signed.")
    sign_response: bool = Field(description="Whether responses are signed.")
    has_certificate: bool = Field(description="Whether there is an active certificate.")
    identity_provider: SamlIdentityProviderResponse = Field(description="The values to copy into the application.")


class SamlChangeResponse(kit.ResponseModel):
    """The confirmation that a change was made."""

    success: bool = Field(description="Always true.")
    message: str = Field(description="A description of the new state.")


class SamlCertificateResponse(kit.ResponseModel):
    """The certificate that verifies signatures. Its private key is never returned."""

    public_key: str = Field(description="The X.509 certificate in PEM.")
    valid_from: kit.Timestamp = Field(description="The start of its validity.")
    valid_until: kit.Timestamp = Field(description="The end of its validity. Create a new certificate before this time.")
    is_active: bool = Field(description="Whether this certificate signs. False for the next certificate.")
    created_at: kit.Timestamp = Field(description="When the certificate was created.")


class ActivatedSamlCertificateResponse(SamlCertificateResponse):
    """The certificate that signs from now on, and until when the activation can be undone."""

    undo_until: kit.Timestamp = Field(description="Until then, `POST .../certificate/undo` returns to the previous certificate.")


def _to_response(certificate: SamlCertificate, *, is_active: bool = True) -> SamlCertificateResponse:
    return SamlCertificateResponse.of(certificate, public_key=certificate.certificate, is_active=is_active)


@routes.post(SAML)
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@existing_service
async def configure(org_slug: str, service_slug: str, data: SamlConfigurationRequest) -> SamlChangeResponse:
    """Replace a service's SAML configuration.

    Certificates are kept. Users can sign in after you have also created a certificate.
    """
    await saml.configure(kit.ports(), kit.acting(), service_slug, data.build())
    message = "SAML is configured and enabled." if data.enabled else "SAML is configured, but not enabled."
    return SamlChangeResponse(success=True, message=message)


@routes.get(SAML)
@kit.member(Capability.SERVICES_VIEW)
async def get_configuration(org_slug: str, service_slug: str) -> SamlConfigurationResponse:
    """Get a service's SAML configuration.

    A service that was never configured has the default configuration, which is not enabled.
    """
    configuration, has_certificate = await saml.get_configuration(kit.ports(), kit.acting(), service_slug)
    mapping = configuration.attribute_mapping
    return SamlConfigurationResponse.of(
        configuration,
        attribute_mapping=None if mapping is None else dict(mapping),
        has_certificate=has_certificate,
        identity_provider=_identity_provider(org_slug, service_slug),
    )


def _identity_provider(org_slug: str, service_slug: str) -> SamlIdentityProviderResponse:
    entity_id, metadata_url, sso_url, slo_url = (
        kit.app_context().base_url + endpoint_path(org_slug, service_slug, endpoint) for endpoint in ("", "metadata", "sso", "slo")
    )
    return SamlIdentityProviderResponse(entity_id=entity_id, metadata_url=metadata_url, sso_url=sso_url, slo_url=slo_url)


@routes.delete(SAML)
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
async def disable(org_slug: str, service_slug: str) -> SamlChangeResponse:
    """Disable SAML for a service.

    Users can no longer sign in with SAML. The certificate is deactivated: to enable SAML again, create a new
    certificate.
    """
    await saml.disable(kit.ports(), kit.acting(), service_slug)
    return SamlChangeResponse(success=True, message="SAML is disabled, and its certificate is deactivated.")


@routes.post(f"{SAML}/certificate")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.refuses(400)
async def create_certificate(org_slug: str, service_slug: str) -> SamlCertificateResponse:
    """Create a certificate for signatures.

    It is valid for three years and replaces all certificates at once: update the metadata in the application. An
    application that knows only an old certificate refuses sign-ins until then. To avoid this, use `POST
    .../certificate/next`.
    """
    return _to_response(await saml.create_certificate(kit.ports(), kit.acting(), service_slug))


@routes.get(f"{SAML}/certificate")
@kit.member(Capability.SERVICES_VIEW)
async def get_certificate(org_slug: str, service_slug: str) -> SamlCertificateResponse:
    """Get the active certificate.

    Applications verify our signatures with it. The metadata contains it too.
    """
    return _to_response(await saml.get_certificate(kit.ports(), kit.acting(), service_slug))


@routes.post(f"{SAML}/certificate/next")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.refuses(400, 409)
async def create_next_certificate(org_slug: str, service_slug: str) -> SamlCertificateResponse:
    """Create the certificate that will replace the active certificate.

    The metadata has it at once, beside the active certificate. It signs nothing until you activate it. First give the
    application the new metadata. 409 if there is a next certificate already.
    """
    return _to_response(await saml.create_next_certificate(kit.ports(), kit.acting(), service_slug), is_active=False)


@routes.get(f"{SAML}/certificate/next")
@kit.member(Capability.SERVICES_VIEW)
async def get_next_certificate(org_slug: str, service_slug: str) -> SamlCertificateResponse:
    """Get the next certificate.

    The metadata has it beside the active certificate. It does not sign yet.
    """
    return _to_response(await saml.get_next_certificate(kit.ports(), kit.acting(), service_slug), is_active=False)


@routes.delete(f"{SAML}/certificate/next")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.describes({204: "The next certificate is deleted."})
async def delete_next_certificate(org_slug: str, service_slug: str) -> None:
    """Delete the next certificate. The active certificate stays."""
    await saml.delete_next_certificate(kit.ports(), kit.acting(), service_slug)


@routes.post(f"{SAML}/certificate/activate")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
async def activate_certificate(org_slug: str, service_slug: str) -> ActivatedSamlCertificateResponse:
    """Sign with the next certificate from now on.

    The previous certificate stays in the metadata for 7 days, as the last certificate, so that you can undo this.
    """
    certificate, undo_until = await saml.activate_certificate(kit.ports(), kit.acting(), service_slug)
    return ActivatedSamlCertificateResponse(**dict(_to_response(certificate)), undo_until=undo_until)


@routes.post(f"{SAML}/certificate/undo")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@kit.refuses(409)
async def undo_activation(org_slug: str, service_slug: str) -> SamlCertificateResponse:
    """Sign with the previous certificate again.

    The active certificate becomes the next certificate, which you can activate again. Possible for 7 days after an
    activation. 409 if another next certificate was created since.
    """
    return _to_response(await saml.undo_activation(kit.ports(), kit.acting(), service_slug))


@routes.get(f"{PROVIDER}/metadata")
@kit.anyone
@kit.refuses(403)
@kit.describes({200: "An EntityDescriptor in XML."}, content_type=METADATA)
async def get_metadata(org_slug: str, service_slug: str) -> Response:
    """Get the SAML metadata of a service's identity provider.

    Applications import it. It has the endpoints and the certificates: the active certificate first, then the next, and
    for 7 days the previous certificate.
    """
    document = await saml.create_metadata(kit.ports(), org_slug, service_slug)
    return Response(document, 200, {"Cache-Control": "no-cache"}, content_type=METADATA)


class SamlMetadataRequest(kit.RequestModel):
    """The application's metadata, or the URL where it publishes them."""

    metadata: str = Field(
        "",
        description=f"An EntityDescriptor with one SPSSODescriptor: XML without DOCTYPE, at most {MAX_METADATA_LENGTH} characters.",
        max_length=MAX_METADATA_LENGTH,
    )
    url: kit.Text = Field(
        "",
        description="The https URL of the metadata, which is fetched once, less than 64 KiB. Only without `metadata`.",
        examples=["https://app.example.com/saml/metadata"],
    )


class SamlProblemResponse(kit.ResponseModel):
    """A problem in a SAML configuration."""

    code: SamlProblemCode = Field(description="The kind of the problem.")
    is_error: bool = Field(description="Whether users cannot sign in because of it. Otherwise it is a warning.")
    message: str = Field(description="The problem, and what to do.")


class SamlMetadataResponse(kit.ResponseModel):
    """The settings that the metadata describes, and their problems. Send these settings to configure SAML."""

    entity_id: str | None = Field(description="The entity id of the application.")
    acs_url: str | None = Field(description="The default URL for SAML responses with HTTP-POST.")
    slo_url: str | None = Field(description="The URL for single logout with HTTP-Redirect.")
    slo_response_url: str | None = Field(description="The URL for logout responses, if it is a different URL.")
    slo_certificate: str | None = Field(
        description="The certificate (PEM) with which the application signs. If there are several: the certificate that is valid longest."
    )
    name_id_format: str = Field(description="The URN of the first supported user name format, or of emailAddress if there is none.")
    problems: list[SamlProblemResponse] = Field(description="The problems of the settings.")


class SamlCheckResponse(kit.ResponseModel):
    """The problems in a service's SAML configuration."""

    problems: list[SamlProblemResponse] = Field(description="The problems. Empty if there are none.")


@routes.post(f"{SAML}/metadata")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.SHOWS)
@kit.refuses(429)
@existing_service
async def read_metadata(org_slug: str, service_slug: str, data: SamlMetadataRequest) -> SamlMetadataResponse:
    """Read an application's metadata.

    Returns the settings that it describes, and their problems. Nothing is stored: send the settings to
    configure SAML. An organization can let ten URLs a minute be fetched.
    """
    text = await metadata.read_source(kit.ports(), kit.acting(), data.metadata, data.url)
    configuration, problems = await metadata.read_metadata(kit.ports(), kit.acting(), service_slug, text)
    return SamlMetadataResponse.of(
        configuration,
        name_id_format=str(configuration.name_id_format or NameIdFormat.EMAIL),
        problems=SamlProblemResponse.list_of(problems),
    )


@routes.get(f"{SAML}/check")
@kit.member(Capability.SERVICES_VIEW)
async def check(org_slug: str, service_slug: str) -> SamlCheckResponse:
    """Check a service's SAML configuration.

    Returns what is wrong with it: missing or insecure addresses, an entity id that another service has,
    and certificates that are missing or expire within 30 days. No address is requested.
    """
    problems = await metadata.check(kit.ports(), kit.acting(), service_slug)
    return SamlCheckResponse(problems=SamlProblemResponse.list_of(problems))
