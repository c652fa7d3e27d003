"""SAML identity providers' metadata, and ours for them."""

from pydantic import Field
from quart import Blueprint, Response

from core.federation.connections import connections, metadata, saml
from core.federation.connections.model.connections import OrganizationConnectionNotFound
from core.federation.saml.model.metadata import MAX_METADATA_LENGTH
from core.kernel.errors import refuse
from core.kernel.roles import Capability
from core.kernel.values import parse_id
from entrypoints.http import kit
from entrypoints.http.api.federation.connections.checks import ConnectionProblemResponse
from entrypoints.http.api.federation.connections.connections import CONNECTION, ConnectionDetailsResponse, existing_connection, to_details
from entrypoints.http.api.federation.saml.configuration import METADATA

routes = Blueprint("connection_metadata", __name__)


class ProviderMetadataRequest(kit.RequestModel):
    """A SAML identity provider's metadata, or the address where it publishes them."""

    metadata: str = Field(
        "",
        description=(
            f"An EntityDescriptor with one IDPSSODescriptor: XML without DOCTYPE, at most {MAX_METADATA_LENGTH} characters. "
            "It removes the `metadata_url` of the connection, so that its metadata are no longer read once a day."
        ),
        max_length=MAX_METADATA_LENGTH,
    )
    url: kit.Text = Field(
        "",
        description="The https URL of the metadata, which is fetched now, less than 128 KiB. Only without `metadata`.",
        examples=["https://acme.okta.com/app/exk1a2b3c4/sso/saml/metadata"],
    )


class ImportedMetadataResponse(ConnectionDetailsResponse):
    """A connection with the values from its metadata, and the problems that they have with its other settings."""

    problems: list[ConnectionProblemResponse] = Field(description="The problems. Empty if there are none.")


@routes.post(f"{CONNECTION}/metadata")
@kit.member(Capability.INTEGRATIONS_MANAGE, kit.GIVES)
@existing_connection
@kit.refuses(409, 429)
async def import_metadata(org_slug: str, connection_slug: str, data: ProviderMetadataRequest) -> ImportedMetadataResponse:
    """Import a SAML identity provider's metadata.

    Takes over its entity id, addresses and certificates. Certificates from earlier metadata that it lacks are removed. Certificates that
    admins added stay. If the connection is active, the caller needs all of an admin's rights. An organization can let ten URLs a minute be
    fetched.
    """
    problems = await metadata.import_metadata(kit.ports(), kit.acting(), connection_slug, data.metadata, data.url)
    details = to_details(await connections.find(kit.ports(), kit.acting(), connection_slug))
    return ImportedMetadataResponse.of(details, problems=ConnectionProblemResponse.list_of(problems))


@routes.get("/auth/connections/<connection_id>/metadata")
@kit.anyone
@kit.refuses(404)
@kit.describes({200: "An EntityDescriptor with our SPSSODescriptor."}, content_type=METADATA)
async def own_metadata(connection_id: str) -> Response:
    """Return our SAML metadata for a connection's identity provider.

    It has our entity id, the address for responses (ACS) and our certificates: for signatures with the present and the next key, and for
    encryption with the present key.
    """
    id_ = parse_id(connection_id) or refuse(OrganizationConnectionNotFound)
    document = await saml.own_metadata(kit.ports(), id_, kit.app_context().base_url)
    return Response(document, 200, {"Cache-Control": "public, max-age=300"}, content_type=METADATA)
