"""SCIM: what we support and what our resources have, by which clients find their way (RFC 7644 section 4; decisions, point 123).

What is said of attributes is what bodies and patches go by (core/scim_schemas.py), so that it is true.
"""

from typing import Any, Final

from quart import Blueprint, Response

from core.kernel.errors import NotFound, Unsupported
from core.provisioning.schemas import GROUP, USER, AttributeType, ScimAttribute, ScimSchema
from entrypoints.http.api.provisioning.protocol import LISTED, MAX_COUNT, answer, listing, location, refuse_filter, shape
from entrypoints.http.edge.access import scim_client
from entrypoints.http.edge.error_body import SCIM_JSON
from entrypoints.http.edge.openapi import describes, refuses

routes = Blueprint("scim_discovery", __name__)

PROVIDER: Final = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"
RESOURCE_TYPE: Final = "urn:ietf:params:scim:schemas:core:2.0:ResourceType"
SCHEMA: Final = "urn:ietf:params:scim:schemas:core:2.0:Schema"
KINDS: Final = (USER, GROUP)
# What is not supported is so with every method (RFC 7644 section 3.11), instead of looking as if another one were.
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")

A_RESOURCE_TYPE: Final = shape("schemas", "id", "name", "endpoint", "description", "schema", "meta", lists="schemaExtensions")
A_SCHEMA: Final = shape("schemas", "id", "name", "description", "meta", lists="attributes")
A_CONFIG: Final = shape(*("schemas", "patch", "bulk", "filter", "changePassword", "sort", "etag", "meta"), lists="authenticationSchemes")


class ResourceTypeUnknown(NotFound):
    """There is no such resource type."""


class SchemaUnknown(NotFound):
    """There is no such schema."""


class NoMe(Unsupported):
    """A SCIM token is nobody's: it is a directory's, so there is no Me."""


class NoBulk(Unsupported):
    """Bulk operations are not supported."""


@routes.get("/scim/v2/ServiceProviderConfig")
@scim_client
@describes({200: "What is supported."}, content_type=SCIM_JSON, shows=A_CONFIG)
async def service_provider_config() -> Response:
    """What of SCIM is supported."""
    refuse_filter()
    no = {"supported": False}
    return answer(
        {
            "schemas": [PROVIDER],
            "patch": {"supported": True},
            "bulk": {"supported": False, "maxOperations": 0, "maxPayloadSize": 0},
            "filter": {"supported": True, "maxResults": MAX_COUNT},
            "changePassword": no,
            "sort": no,
            "etag": no,
            "authenticationSchemes": [
                {
                    "type": "oauthbearertoken",
                    "name": "SCIM token",
                    "description": "A token that an owner or admin of the organization makes, in the header Authorization: Bearer.",
                    "primary": True,
                }
            ],
            "meta": {"resourceType": "ServiceProviderConfig", "location": location("/ServiceProviderConfig")},
        }
    )


@routes.get("/scim/v2/ResourceTypes")
@scim_client
@describes({200: "A list response of resource types."}, content_type=SCIM_JSON, shows=LISTED)
async def resource_types() -> Response:
    """Which kinds of resources there are: users and groups."""
    refuse_filter()
    return answer(listing([_resource_type(kind) for kind in KINDS], len(KINDS), 1))


@routes.get("/scim/v2/ResourceTypes/<name>")
@scim_client
@describes({200: "The resource type."}, content_type=SCIM_JSON, shows=A_RESOURCE_TYPE)
async def resource_type(name: str) -> Response:
    """One of them."""
    for kind in KINDS:
        if kind.name == name:
            return answer(_resource_type(kind))
    raise ResourceTypeUnknown


@routes.get("/scim/v2/Schemas")
@scim_client
@describes({200: "A list response of schemas."}, content_type=SCIM_JSON, shows=LISTED)
async def schemas() -> Response:
    """What users and groups have."""
    refuse_filter()
    return answer(listing([_schema(kind) for kind in KINDS], len(KINDS), 1))


@routes.get("/scim/v2/Schemas/<schema_id>")
@scim_client
@describes({200: "The schema."}, content_type=SCIM_JSON, shows=A_SCHEMA)
async def schema(schema_id: str) -> Response:
    """One of them."""
    for kind in KINDS:
        if kind.id.lower() == schema_id.lower():
            return answer(_schema(kind))
    raise SchemaUnknown


@routes.route("/scim/v2/Me", methods=METHODS)
@scim_client
@refuses(501)
@describes({})
async def me() -> Response:
    """Not supported: a token is nobody's."""
    raise NoMe


@routes.route("/scim/v2/Bulk", methods=METHODS)
@scim_client
@refuses(501)
@describes({})
async def bulk() -> Response:
    """Not supported."""
    raise NoBulk


def _resource_type(kind: ScimSchema) -> dict[str, Any]:
    return {
        "schemas": [RESOURCE_TYPE],
        "id": kind.name,
        "name": kind.name,
        "endpoint": kind.endpoint,
        "description": kind.description,
        "schema": kind.id,
        "schemaExtensions": [],
        "meta": {"resourceType": "ResourceType", "location": location("/ResourceTypes", kind.name)},
    }


def _schema(kind: ScimSchema) -> dict[str, Any]:
    return {
        "schemas": [SCHEMA],
        "id": kind.id,
        "name": kind.name,
        "description": kind.description,
        # Those that every resource has are in no schema (RFC 7643 section 3.1).
        "attributes": [_attribute(each) for each in kind.attributes if not each.common],
        "meta": {"resourceType": "Schema", "location": location("/Schemas", kind.id)},
    }


def _attribute(attribute: ScimAttribute) -> dict[str, Any]:
    said: dict[str, Any] = {
        "name": attribute.name,
        "type": attribute.type.value,
        "multiValued": attribute.multi_valued,
        "description": attribute.description,
        "required": attribute.required,
        "mutability": attribute.mutability.value,
        "returned": attribute.returned.value,
    }
    if attribute.type is AttributeType.COMPLEX:
        said["subAttributes"] = [_attribute(each) for each in attribute.sub_attributes]
    else:
        said["caseExact"] = attribute.case_exact
        said["uniqueness"] = attribute.uniqueness.value
    if attribute.canonical_values:
        said["canonicalValues"] = list(attribute.canonical_values)
    if attribute.type is AttributeType.REFERENCE:
        said["referenceTypes"] = list(attribute.reference_types)
    return said
