"""How the identity provider of a service is set up, and what applications have to know of it (organizations.md section 4.3)."""

from typing import Annotated

from pydantic import WithJsonSchema
from quart import Blueprint, Response
from quart_schema import validate_request, validate_response

from core.federation.saml import configuration as saml
from core.federation.saml.configuration_rules import NameIdFormat, SamlCertificate, SamlConfiguration
from core.kernel.principals import Capability
from entrypoints.http.api.applications.services import existing_service
from entrypoints.http.api.federation.saml.messages import PROVIDER
from entrypoints.http.edge.access import anyone, member
from entrypoints.http.edge.bodies import RequestModel, ResponseModel, Text, Timestamp
from entrypoints.http.edge.context import acting_member, ports
from entrypoints.http.edge.openapi import describes, refuses

routes = Blueprint("saml", __name__)

SAML = "/api/organizations/<org_slug>/services/<service_slug>/saml"
METADATA = "application/samlmetadata+xml"

# Which there are is the use case's to say, which also knows their short names.
Format = Annotated[Text, WithJsonSchema({"type": "string", "examples": ["emailAddress", "unspecified", "persistent", "transient"]})]


class NewSaml(RequestModel):
    """All of the configuration; what is left out is as if nobody had ever chosen it.

    `entity_id` and `acs_url` are what the application calls itself and where it takes responses; both are needed to enable SAML. At
    `slo_url` it takes requests and responses of single logout. `name_id_format` is a URN or its last part. `attribute_mapping` gives
    the sources `email` and `id` the names that the application knows them by.
    """

    enabled: bool
    entity_id: Text | None = None
    acs_url: Text | None = None
    slo_url: Text | None = None
    name_id_format: Format | None = None
    attribute_mapping: dict[str, Text] | None = None
    sign_assertions: bool = True
    sign_response: bool = True


class SamlShown(ResponseModel):
    """How it is set up (organizations.md section 2.6). Without an active certificate nobody is signed in."""

    enabled: bool
    entity_id: str | None
    acs_url: str | None
    slo_url: str | None
    name_id_format: str | None
    attribute_mapping: dict[str, str] | None
    sign_assertions: bool
    sign_response: bool
    has_certificate: bool


class SamlDone(ResponseModel):
    """It was done."""

    success: bool
    message: str


class CertificateShown(ResponseModel):
    """What signatures are checked with: an X.509 certificate in PEM. The key that belongs to it is told to nobody."""

    public_key: str
    valid_from: Timestamp
    valid_until: Timestamp
    is_active: bool
    created_at: Timestamp


def _show(certificate: SamlCertificate) -> CertificateShown:
    return CertificateShown(
        public_key=certificate.certificate,
        valid_from=certificate.valid_from,
        valid_until=certificate.valid_until,
        is_active=True,
        created_at=certificate.created_at,
    )


@routes.post(SAML)
@member(Capability.INTEGRATIONS_MANAGE)
@existing_service
@validate_request(NewSaml)
@validate_response(SamlDone)
async def configure(org_slug: str, service_slug: str, data: NewSaml) -> SamlDone:
    """Set up how the service has people signed in with SAML, in the place of what was set up before."""
    wanted = SamlConfiguration(
        enabled=data.enabled,
        entity_id=data.entity_id,
        acs_url=data.acs_url,
        slo_url=data.slo_url,
        name_id_format=NameIdFormat.EMAIL if data.name_id_format is None else NameIdFormat.parse(data.name_id_format),
        attribute_mapping=data.attribute_mapping,
        sign_assertions=data.sign_assertions,
        sign_response=data.sign_response,
    )
    await saml.configure(ports(), acting_member(), service_slug, wanted)
    return SamlDone(success=True, message="SAML is set up." if data.enabled else "SAML is set up, and not enabled.")


@routes.get(SAML)
@member(Capability.SERVICES_VIEW)
@validate_response(SamlShown)
async def current(org_slug: str, service_slug: str) -> SamlShown:
    """How the service has people signed in with SAML."""
    configuration, has_certificate = await saml.get_configuration(ports(), acting_member(), service_slug)
    mapping = configuration.attribute_mapping
    return SamlShown(
        enabled=configuration.enabled,
        entity_id=configuration.entity_id,
        acs_url=configuration.acs_url,
        slo_url=configuration.slo_url,
        name_id_format=configuration.name_id_format,
        attribute_mapping=None if mapping is None else dict(mapping),
        sign_assertions=configuration.sign_assertions,
        sign_response=configuration.sign_response,
        has_certificate=has_certificate,
    )


@routes.delete(SAML)
@member(Capability.INTEGRATIONS_MANAGE)
@validate_response(SamlDone)
async def disable(org_slug: str, service_slug: str) -> SamlDone:
    """Have nobody signed in to the service with SAML any more. Its certificate is over, and a new one needed to begin again."""
    await saml.disable(ports(), acting_member(), service_slug)
    return SamlDone(success=True, message="SAML is disabled, and its certificate over.")


@routes.post(f"{SAML}/certificate")
@member(Capability.INTEGRATIONS_MANAGE, impersonated=False)
@refuses(400)
@validate_response(CertificateShown)
async def new_certificate(org_slug: str, service_slug: str) -> CertificateShown:
    """Make a new certificate, good for three years. Everything is signed with it at once, and nothing with the one before it."""
    return _show(await saml.create_certificate(ports(), acting_member(), service_slug))


@routes.get(f"{SAML}/certificate")
@member(Capability.SERVICES_VIEW)
@validate_response(CertificateShown)
async def certificate(org_slug: str, service_slug: str) -> CertificateShown:
    """The active certificate, with which applications check signatures."""
    return _show(await saml.get_certificate(ports(), acting_member(), service_slug))


@routes.get(f"{PROVIDER}/metadata")
@anyone
@refuses(403)
@describes({200: "An EntityDescriptor."}, content_type=METADATA)
async def metadata(org_slug: str, service_slug: str) -> Response:
    """What an application has to know of its identity provider."""
    document = await saml.create_metadata(ports(), org_slug, service_slug)
    return Response(document, 200, {"Cache-Control": "no-cache"}, content_type=METADATA)
