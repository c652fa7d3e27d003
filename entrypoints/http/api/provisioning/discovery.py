"""SCIM discovery: features, resource types and schemas (RFC 7644 section 4)."""

from collections.abc import Sequence
from typing import Any, Final

from quart import Blueprint, Response

from core.kernel import errors
from core.provisioning import users as scim_users
from core.provisioning.model.schemas import AttributeType, ScimAttribute, ScimSchema, group_schema
from entrypoints.http import kit
from entrypoints.http.api.provisioning import models, protocol

routes = Blueprint("scim_discovery", __name__)

SERVICE_PROVIDER_CONFIG_URN: Final = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"
RESOURCE_TYPE_URN: Final = "urn:ietf:params:scim:schemas:core:2.0:ResourceType"
SCHEMA_URN: Final = "urn:ietf:params:scim:schemas:core:2.0:Schema"
# Unsupported paths answer 501 to every method (RFC 7644 section 3.11). A 405 would mean that
# another method works.
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


class ResourceTypeUnknown(errors.NotFound):
    """This resource type does not exist. The resource types are User and Group."""


class SchemaUnknown(errors.NotFound):
    """This schema does not exist. GET /scim/v2/Schemas lists the schemas."""


class MeUnsupported(errors.Unsupported):
    """Me is not supported, because a SCIM token belongs to a directory and not to a user. Use /scim/v2/Users."""


class BulkUnsupported(errors.Unsupported):
    """Bulk operations are not supported. Send a request for every resource."""


@routes.get("/scim/v2/ServiceProviderConfig")
@kit.scim_client
@kit.describes({200: "The supported features."}, content_type=kit.SCIM_JSON, response_schema=models.SERVICE_PROVIDER_CONFIG_RESPONSE)
async def get_service_provider_config() -> Response:
    """Get the supported SCIM features.

    Patches and filters are supported. Bulk operations, password changes, sorting and entity tags
    are not.
    """
    protocol.refuse_filter()
    unsupported = {"supported": False}
    return protocol.json_response(
        {
            "schemas": [SERVICE_PROVIDER_CONFIG_URN],
            "patch": {"supported": True},
            "bulk": {"supported": False, "maxOperations": 0, "maxPayloadSize": 0},
            "filter": {"supported": True, "maxResults": protocol.MAX_COUNT},
            "changePassword": unsupported,
            "sort": unsupported,
            "etag": unsupported,
            "authenticationSchemes": [
                {
                    "type": "oauthbearertoken",
                    "name": "SCIM token",
                    "description": "A token that an owner or admin of the organization creates, in the header Authorization: Bearer.",
                    "primary": True,
                }
            ],
            "meta": {"resourceType": "ServiceProviderConfig", "location": protocol.location("/ServiceProviderConfig")},
        }
    )


@routes.get("/scim/v2/ResourceTypes")
@kit.scim_client
@kit.describes({200: "A list response of resource types."}, content_type=kit.SCIM_JSON, response_schema=models.RESOURCE_TYPE_LIST_RESPONSE)
async def list_resource_types() -> Response:
    """List the resource types.

    There are two: User and Group.
    """
    protocol.refuse_filter()
    schemas = await _of_caller()
    return protocol.json_response(protocol.list_body([_resource_type(schema) for schema in schemas], len(schemas), 1))


@routes.get("/scim/v2/ResourceTypes/<resource_type>")
@kit.scim_client
@kit.describes({200: "The resource type."}, content_type=kit.SCIM_JSON, response_schema=models.RESOURCE_TYPE_RESPONSE)
async def get_resource_type(resource_type: str) -> Response:
    """Get a resource type.

    The resource types are `User` and `Group`.
    """
    for schema in await _of_caller():
        if schema.name == resource_type:
            return protocol.json_response(_resource_type(schema))
    raise ResourceTypeUnknown


@routes.get("/scim/v2/Schemas")
@kit.scim_client
@kit.describes({200: "A list response of schemas."}, content_type=kit.SCIM_JSON, response_schema=models.SCHEMA_LIST_RESPONSE)
async def list_schemas() -> Response:
    """List the schemas for users and groups.

    A schema describes the attributes and their types. Attributes that all resources have, such as `id` and `meta`, are
    not in it.
    """
    protocol.refuse_filter()
    schemas = await _schemas_of_caller()
    return protocol.json_response(protocol.list_body([_schema(schema) for schema in schemas], len(schemas), 1))


@routes.get("/scim/v2/Schemas/<schema_id>")
@kit.scim_client
@kit.describes({200: "The schema."}, content_type=kit.SCIM_JSON, response_schema=models.SCHEMA_RESPONSE)
async def get_schema(schema_id: str) -> Response:
    """Get a schema by its URN.

    A schema describes the attributes and their types. Attributes that all resources have, such as `id` and `meta`, are
    not in it.
    """
    for schema in await _schemas_of_caller():
        if schema.id.lower() == schema_id.lower():
            return protocol.json_response(_schema(schema))
    raise SchemaUnknown


@routes.route("/scim/v2/Me", methods=METHODS)
@kit.scim_client
@kit.refuses(501)
@kit.describes({})
async def me() -> Response:
    """Not supported.

    A SCIM token belongs to a directory and not to a user.
    """
    raise MeUnsupported


@routes.route("/scim/v2/Bulk", methods=METHODS)
@kit.scim_client
@kit.refuses(501)
@kit.describes({})
async def bulk() -> Response:
    """Not supported.

    Send a request for every resource instead.
    """
    raise BulkUnsupported


async def _of_caller() -> Sequence[ScimSchema]:
    """Return the resource types for the directory that calls: users of its organization, and the groups that it may create."""
    caller = kit.acting_directory()
    return await scim_users.schema_of(kit.ports(), caller), group_schema(directory_groups=caller.directory_groups)


async def _schemas_of_caller() -> Sequence[ScimSchema]:
    user, group = await _of_caller()
    return user, *user.extensions, group


def _resource_type(schema: ScimSchema) -> dict[str, Any]:
    return {
        "schemas": [RESOURCE_TYPE_URN],
        "id": schema.name,
        "name": schema.name,
        "endpoint": schema.endpoint,
        "description": schema.description,
        "schema": schema.id,
        "schemaExtensions": [{"schema": extension.id, "required": False} for extension in schema.extensions],
        "meta": {"resourceType": "ResourceType", "location": protocol.location("/ResourceTypes", schema.name)},
    }


def _schema(schema: ScimSchema) -> dict[str, Any]:
    return {
        "schemas": [SCHEMA_URN],
        "id": schema.id,
        "name": schema.name,
        "description": schema.description,
        # A schema does not contain common attributes (RFC 7643 section 3.1).
        "attributes": [
            _attribute(attribute, schema.without_urn(attribute.name))
            for attribute in (*schema.attributes, *schema.computed)
            if not attribute.common
        ],
        "meta": {"resourceType": "Schema", "location": protocol.location("/Schemas", schema.id)},
    }


def _attribute(attribute: ScimAttribute, name: str) -> dict[str, Any]:
    description: dict[str, Any] = {
        "name": name,
        "type": attribute.type.value,
        "multiValued": attribute.multi_valued,
        "description": attribute.description,
        "required": attribute.required,
        "mutability": attribute.mutability.value,
        "returned": attribute.returned.value,
    }
    if attribute.type is AttributeType.COMPLEX:
        description["subAttributes"] = [_attribute(sub, sub.name) for sub in attribute.sub_attributes]
    else:
        description["caseExact"] = attribute.case_exact
        description["uniqueness"] = attribute.uniqueness.value
    if attribute.canonical_values:
        description["canonicalValues"] = list(attribute.canonical_values)
    if attribute.type is AttributeType.REFERENCE:
        description["referenceTypes"] = list(attribute.reference_types)
    return description
