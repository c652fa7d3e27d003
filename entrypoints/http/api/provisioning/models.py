"""The JSON schemas for SCIM requests and responses, for the API description.

Responses are described by the same schemas that `/Schemas` publishes (`core.provisioning.model.schemas`).
"""

from typing import Any, Final

from core.provisioning.model import schemas
from core.provisioning.model.resources import MAX_VALUES
from entrypoints.http.api.provisioning.protocol import DEFAULT_COUNT, MAX_COUNT, PATCH_URN

# Query parameters

PROJECTION: Final = {
    "attributes": "The attributes to return, separated by commas. The default is all.",
    "excludedAttributes": "The attributes to leave out, separated by commas. Ignored if `attributes` is present.",
}
PAGING: Final = {
    "startIndex": "The number of the first resource to return. The default is 1. A number below 1 counts as 1.",
    "count": f"The number of resources to return. The default is {DEFAULT_COUNT}. A negative number counts as 0, and one above {MAX_COUNT} "
    f"as {MAX_COUNT}.",
    **PROJECTION,
}

_TYPES: Final[dict[schemas.AttributeType, dict[str, Any]]] = {
    schemas.AttributeType.STRING: {"type": ["string", "null"]},
    schemas.AttributeType.BOOLEAN: {"type": "boolean"},
    schemas.AttributeType.DECIMAL: {"type": "number"},
    schemas.AttributeType.DATE_TIME: {"type": "string", "format": "date-time"},
    schemas.AttributeType.REFERENCE: {"type": "string"},
    schemas.AttributeType.COMPLEX: {"type": ["object", "null"]},
}


def _strings(description: str, example: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description, "examples": [[example]]}


def _objects(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object"}, "description": description, **more}


def _text(description: str, max_length: int = schemas.MAX_TEXT_LENGTH) -> dict[str, Any]:
    return {"type": ["string", "null"], "maxLength": max_length, "description": description}


def _schemas(urn: str) -> dict[str, Any]:
    return _strings("The schemas of the body.", urn)


# Responses


def _attribute_schema(attribute: schemas.ScimAttribute) -> dict[str, Any]:
    schema = dict(_TYPES[attribute.type])
    if attribute.sub_attributes:
        schema["properties"] = {sub.name: {**_attribute_schema(sub), "description": sub.description} for sub in attribute.sub_attributes}
    return {"type": "array", "items": schema} if attribute.multi_valued else schema


def _properties(schema: schemas.ScimSchema) -> dict[str, Any]:
    return {
        attribute.name: {**_attribute_schema(attribute), "description": attribute.description}
        for attribute in (*schema.attributes, *schema.computed)
    }


def _resource_schema(schema: schemas.ScimSchema) -> dict[str, Any]:
    return {
        "type": "object",
        "title": f"Scim{schema.name}",
        "required": [attribute.name for attribute in schema.attributes if attribute.returned is schemas.Returned.ALWAYS],
        "properties": {**_properties(schema), **{extension.id: _extension_schema(extension) for extension in schema.extensions}},
    }


def _extension_schema(schema: schemas.ScimSchema) -> dict[str, Any]:
    return {"type": "object", "description": schema.description, "properties": _properties(schema)}


def _list_schema(title: str, items: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "title": title,
        "required": ["schemas", "totalResults", "startIndex", "itemsPerPage", "Resources"],
        "properties": {
            "schemas": _strings("The schema of list responses.", "urn:ietf:params:scim:api:messages:2.0:ListResponse"),
            "totalResults": {"type": "integer", "description": "The number of matching resources."},
            "startIndex": {"type": "integer", "description": "The number of the first resource in this response, from 1."},
            "itemsPerPage": {"type": "integer", "description": "The number of resources in this response."},
            "Resources": {"type": "array", "items": items, "description": "The resources."},
        },
    }


def _meta(kind: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": "Metadata of the resource.",
        "properties": {
            "resourceType": {"type": "string", "description": "The resource type.", "examples": [kind]},
            "location": {"type": "string", "description": "The URL of the resource."},
        },
    }


_ATTRIBUTES: Final = {
    "type": "object",
    "description": "The attributes that the organization has declared with the writer `directory`. `/Schemas` has their types.",
    "examples": [{"cost_center": "4711"}],
}
USER_RESPONSE: Final = _resource_schema(schemas.USER)
USER_RESPONSE["properties"][schemas.ATTRIBUTES_URN] = _ATTRIBUTES
USER_LIST_RESPONSE: Final = _list_schema("ScimUserListResponse", USER_RESPONSE)
GROUP_RESPONSE: Final = _resource_schema(schemas.GROUP)
GROUP_LIST_RESPONSE: Final = _list_schema("ScimGroupListResponse", GROUP_RESPONSE)

RESOURCE_TYPE_RESPONSE: Final = {
    "type": "object",
    "title": "ScimResourceType",
    "required": ["schemas", "id", "name", "endpoint", "description", "schema", "schemaExtensions", "meta"],
    "properties": {
        "schemas": _strings("The schema of resource types.", "urn:ietf:params:scim:schemas:core:2.0:ResourceType"),
        "id": {"type": "string", "description": "The id of the resource type.", "examples": ["User"]},
        "name": {"type": "string", "description": "The name of the resource type.", "examples": ["User"]},
        "endpoint": {"type": "string", "description": "The path of the resources, relative to `/scim/v2`.", "examples": ["/Users"]},
        "description": {"type": "string", "description": "The description of the resource type."},
        "schema": {"type": "string", "description": "The schema of the resources.", "examples": [schemas.USER_URN]},
        "schemaExtensions": _objects("The schema extensions, and whether they are required."),
        "meta": _meta("ResourceType"),
    },
}
RESOURCE_TYPE_LIST_RESPONSE: Final = _list_schema("ScimResourceTypeListResponse", RESOURCE_TYPE_RESPONSE)

SCHEMA_RESPONSE: Final = {
    "type": "object",
    "title": "ScimSchema",
    "required": ["schemas", "id", "name", "description", "attributes", "meta"],
    "properties": {
        "schemas": _strings("The schema of schemas.", "urn:ietf:params:scim:schemas:core:2.0:Schema"),
        "id": {"type": "string", "description": "The URN of the schema.", "examples": [schemas.USER_URN]},
        "name": {"type": "string", "description": "The name of the schema.", "examples": ["User"]},
        "description": {"type": "string", "description": "The description of the schema."},
        "attributes": _objects("The attributes, as in RFC 7643 section 7."),
        "meta": _meta("Schema"),
    },
}
SCHEMA_LIST_RESPONSE: Final = _list_schema("ScimSchemaListResponse", SCHEMA_RESPONSE)


def _supported(feature: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": f"Support of {feature}.",
        "properties": {"supported": {"type": "boolean", "description": f"Whether {feature} are supported."}},
    }


SERVICE_PROVIDER_CONFIG_RESPONSE: Final = {
    "type": "object",
    "title": "ScimServiceProviderConfig",
    "required": ["schemas", "patch", "bulk", "filter", "changePassword", "sort", "etag", "authenticationSchemes", "meta"],
    "properties": {
        "schemas": _strings("The schema of the configuration.", "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"),
        "patch": _supported("patches"),
        "bulk": _supported("bulk operations"),
        "filter": _supported("filters"),
        "changePassword": _supported("password changes"),
        "sort": _supported("sorted lists"),
        "etag": _supported("entity tags"),
        "authenticationSchemes": _objects("The ways to authenticate: a SCIM token in the header `Authorization: Bearer`."),
        "meta": _meta("ServiceProviderConfig"),
    },
}

# Requests

USER_REQUEST: Final = {
    "type": "object",
    "title": "ScimUserRequest",
    "required": ["userName"],
    "properties": {
        "schemas": _schemas(schemas.USER_URN),
        "userName": {
            "type": "string",
            "maxLength": schemas.MAX_TEXT_LENGTH,
            "description": "The name of the user in your directory. Without a primary address in `emails`, it must be the email address.",
            "examples": ["ada@example.com"],
        },
        "externalId": _text("The id of the user in your directory."),
        "name": {
            "type": ["object", "null"],
            "description": "The parts of the name.",
            "properties": {
                "formatted": _text("The full name.", schemas.MAX_NAME_LENGTH),
                "familyName": _text("The family name.", schemas.MAX_NAME_LENGTH),
                "givenName": _text("The given name.", schemas.MAX_NAME_LENGTH),
            },
        },
        "displayName": _text("The name to display.", schemas.MAX_NAME_LENGTH),
        "emails": _objects(
            "Email addresses. The primary one is the address with which the user signs in. If none says whether it is primary, this "
            "is the first one of type `work`, or without a type. The others are ignored.",
            maxItems=MAX_VALUES,
        ),
        **{name: _text(schemas.USER.by_name[name.lower()].description) for name in ("title", "preferredLanguage", "locale", "timezone")},
        "phoneNumbers": _objects("The phone numbers, with `value`, `type` and `primary`.", maxItems=MAX_VALUES, type=["array", "null"]),
        "photos": _objects("The pictures, with their URL as `value`, `type` and `primary`.", maxItems=MAX_VALUES, type=["array", "null"]),
        schemas.ENTERPRISE_URN: _extension_schema(schemas.ENTERPRISE_USER),
        schemas.ATTRIBUTES_URN: _ATTRIBUTES,
        "active": {"type": "boolean", "description": "Whether the user may sign in. The default is true for new users."},
    },
}

GROUP_REQUEST: Final = {
    "type": "object",
    "title": "ScimGroupRequest",
    "minProperties": 1,
    "properties": {
        "schemas": _schemas(schemas.GROUP_URN),
        "externalId": _text("The id of the group in your directory. Without it, the present one stays."),
        "displayName": {
            "description": "The name of the group. It is accepted and ignored for groups that your directory did not create. A new group "
            "needs it, with at most 256 characters."
        },
        "members": {
            "type": ["array", "null"],
            "description": "All members of the group. Without it, or with null, the members stay as they are.",
            "items": {
                "type": "object",
                "required": ["value"],
                "properties": {"value": {"type": "string", "format": "uuid", "description": "The id of the user."}},
            },
        },
    },
}

PATCH_REQUEST: Final = {
    "type": "object",
    "title": "ScimPatchRequest",
    "required": ["Operations"],
    "properties": {
        "schemas": _schemas(PATCH_URN),
        "Operations": {
            "type": "array",
            "minItems": 1,
            "description": (
                "The operations. Either all are applied, or none. Operations that deactivate a user are applied as far as possible."
            ),
            "items": {
                "type": "object",
                "title": "ScimPatchOperation",
                "required": ["op"],
                "properties": {
                    "op": {"type": "string", "description": "`add`, `remove` or `replace`, in any case.", "examples": ["replace"]},
                    "path": {
                        "type": "string",
                        "description": "The path of the attribute. Without it, `value` is an object with the attributes to change.",
                        "examples": ["active", 'emails[type eq "work"].value'],
                    },
                    "value": {"description": "The new value, the value to add, or the value to remove.", "examples": [False]},
                },
            },
        },
    },
}
