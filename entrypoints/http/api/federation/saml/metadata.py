"""Imports a service provider's metadata, and checks a service's SAML configuration."""

from pydantic import Field
from quart import Blueprint

from core.federation.saml import metadata
from core.federation.saml.model.configuration import NameIdFormat
from core.federation.saml.model.metadata import MAX_METADATA_LENGTH, SamlProblemCode
from core.kernel.roles import Capability
from entrypoints.http.api.applications.services import existing_service
from entrypoints.http.api.federation.saml.configuration import SAML
from entrypoints.http.base.context import acting, ports
from entrypoints.http.edge.access import SHOWS, member
from entrypoints.http.edge.bodies import RequestModel, ResponseModel, Text
from entrypoints.http.edge.openapi import refuses

routes = Blueprint("saml_metadata", __name__)


class SamlMetadataRequest(RequestModel):
    """The application's metadata, or the URL where it publishes them."""

    metadata: str = Field(
        "",
        description=f"An EntityDescriptor with one SPSSODescriptor: XML without DOCTYPE, at most {MAX_METADATA_LENGTH} characters.",
        max_length=MAX_METADATA_LENGTH,
    )
    url: Text = Field(
        "",
        description="The https URL of the metadata, which is fetched once, less than 64 KiB. Only without `metadata`.",
        examples=["https://app.example.com/saml/metadata"],
    )


class SamlProblemResponse(ResponseModel):
    """A problem in a SAML configuration."""

    code: SamlProblemCode = Field(description="The kind of the problem.")
    is_error: bool = Field(description="Whether users cannot sign in because of it. Otherwise it is a warning.")
    message: str = Field(description="The problem, and what to do.")


class SamlMetadataResponse(ResponseModel):
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


class SamlCheckResponse(ResponseModel):
    """The problems in a service's SAML configuration."""

    problems: list[SamlProblemResponse] = Field(description="The problems. Empty if there are none.")


@routes.post(f"{SAML}/metadata")
@member(Capability.INTEGRATIONS_MANAGE, SHOWS)
@refuses(429)
@existing_service
async def read_metadata(org_slug: str, service_slug: str, data: SamlMetadataRequest) -> SamlMetadataResponse:
    """Read an application's metadata.

    Returns the settings that it describes, and their problems. Nothing is stored: send the settings to
    configure SAML. An organization can let ten URLs a minute be fetched.
    """
    text = await metadata.read_source(ports(), acting(), data.metadata, data.url)
    configuration, problems = await metadata.read_metadata(ports(), acting(), service_slug, text)
    return SamlMetadataResponse.of(
        configuration,
        name_id_format=str(configuration.name_id_format or NameIdFormat.EMAIL),
        problems=SamlProblemResponse.list_of(problems),
    )


@routes.get(f"{SAML}/check")
@member(Capability.SERVICES_VIEW)
async def check(org_slug: str, service_slug: str) -> SamlCheckResponse:
    """Check a service's SAML configuration.

    Returns what is wrong with it: missing or insecure addresses, an entity id that another service has,
    and certificates that are missing or expire within 30 days. No address is requested.
    """
    problems = await metadata.check(ports(), acting(), service_slug)
    return SamlCheckResponse(problems=SamlProblemResponse.list_of(problems))
