"""Shared parts of the API description: every model appears once, under `components`, and so do the usual responses with errors."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from entrypoints.http.edge import error_body

_ERROR_CODE = {
    "type": "string",
    "description": "The stable code for programs.",
    "enum": sorted(error_body.ERROR_CODES),
    "examples": ["BAD_REQUEST"],
}
_MESSAGE = {"type": "string", "description": "The message for people: the problem, and how to fix it."}
_TIMESTAMP = {"type": "string", "format": "date-time", "description": "The time of the error, in UTC."}
# Only in refusals by a sign-in policy
_OF_POLICY = {
    "enrolment_url": {
        "type": "string",
        "format": "uri",
        "description": "With ENROLMENT_REQUIRED: the page to set up the missing factor.",
    },
    "rule": {"type": "string", "description": "The rule of a sign-in policy that asks for more.", "examples": ["second_factor"]},
    "organization": {"type": "string", "description": "The name of the organization, application or platform with this rule."},
}

_ERROR = {
    "type": "object",
    "title": "Error",
    "required": ["error", "error_code", "timestamp"],
    "properties": {"error": _MESSAGE, "error_code": _ERROR_CODE, "timestamp": _TIMESTAMP, **_OF_POLICY},
}

_OAUTH_ERROR = {
    "type": "object",
    "title": "OAuthError",
    "required": ["error", "error_description", "error_code", "timestamp"],
    "properties": {
        "error": {"type": "string", "description": "The error code of RFC 6749 or RFC 8628.", "examples": ["invalid_grant"]},
        "error_description": _MESSAGE,
        "error_code": _ERROR_CODE,
        "timestamp": _TIMESTAMP,
        **_OF_POLICY,
    },
}

_SCIM_ERROR = {
    "type": "object",
    "title": "ScimError",
    "required": ["schemas", "status", "detail"],
    "properties": {
        "schemas": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The schema of the error.",
            "examples": [[error_body.SCIM_ERROR]],
        },
        "status": {"type": ["integer", "string"], "description": "The HTTP status of the response."},
        "scimType": {"type": "string", "description": "The error type of RFC 7644 section 3.12.", "examples": ["invalidFilter"]},
        "detail": _MESSAGE,
    },
}

ERROR_SCHEMAS: Final = {"Error": _ERROR, "OAuthError": _OAUTH_ERROR, "ScimError": _SCIM_ERROR}

_NESTED = ("properties", "patternProperties", "$defs")
_ALTERNATIVES = ("anyOf", "allOf", "oneOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not")


def share_models(document: dict[str, Any]) -> None:
    """Move all operations' models to `components` and refer to them there.

    Field titles are removed: client generators would make a class from every title.

    Raises: ValueError if two different models have the same name.
    """
    schemas: dict[str, Any] = document["components"]["schemas"]
    collected: dict[str, Any] = {}
    for name, schema in schemas.items():
        _add(collected, name, _children(schema, collected))
    for path in document["paths"].values():
        for operation in path.values():
            contents = [operation.get("requestBody", {}), *operation["responses"].values()]
            for content in contents:
                for media_type in content.get("content", {}).values():
                    media_type["schema"] = _shared(media_type["schema"], collected)
    for schema in collected.values():
        for field in schema.get("properties", {}).values():
            if "$ref" in field and "description" not in field:  # pydantic leaves out a text that the model has too
                field["description"] = collected[field["$ref"].rpartition("/")[2]]["description"]
    document["components"]["schemas"] = dict(sorted(collected.items()))


def _shared(schema: Any, collected: dict[str, Any]) -> Any:
    if not isinstance(schema, dict):
        return schema
    schema = _children(schema, collected)
    if "title" in schema and "properties" in schema:
        _add(collected, schema["title"], schema)
        return {"$ref": f"#/components/schemas/{schema['title']}"}
    schema.pop("title", None)
    return schema


def _children(schema: dict[str, Any], collected: dict[str, Any]) -> dict[str, Any]:
    schema = dict(schema)
    if schema.get("default", "") is None:  # client generators would take the field for required
        del schema["default"]
    for name, definition in schema.pop("$defs", {}).items():
        _add(collected, name, _children(definition, collected))
    for key in _NESTED:
        if key in schema:
            schema[key] = {name: _shared(value, collected) for name, value in schema[key].items()}
    for key in _ALTERNATIVES:
        if key in schema:
            schema[key] = [_shared(value, collected) for value in schema[key]]
    for key in _SINGLE:
        if key in schema:
            schema[key] = _shared(schema[key], collected)
    return schema


def _add(collected: dict[str, Any], name: str, schema: dict[str, Any]) -> None:
    if collected.setdefault(name, schema) != schema:
        raise ValueError(f"two different models or responses are named {name}")


def share_errors(document: dict[str, Any], texts: Mapping[int, str]) -> None:
    """Move the error responses that have the usual text for their status to `components`, and refer to them there.

    Raises: ValueError if two different responses have the same name.
    """
    shared: dict[str, Any] = {}
    for path in document["paths"].values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                if response["description"] == texts.get(int(status)):
                    name = f"{''.join(map(_body, response['content'].values()))}{status}"
                    _add(shared, name, response)
                    operation["responses"][status] = {"$ref": f"#/components/responses/{name}"}
    document["components"]["responses"] = dict(sorted(shared.items()))


def _body(content: Mapping[str, Any]) -> str:
    """Return the name of an error's body: its model, or `Page`."""
    reference: str = content["schema"].get("$ref", "Page")
    return reference.rpartition("/")[2]


def json_body(schema: Mapping[str, Any], *other_types: str) -> dict[str, Any]:
    """Return the description of a JSON body with this schema, which can also have these content types."""
    return {"content": {content_type: {"schema": dict(schema)} for content_type in (*other_types, "application/json")}}


def form_or_json_body(model: type[BaseModel]) -> dict[str, Any]:
    """Return the description of a body that has this model, as a form or as JSON."""
    schema = model.model_json_schema()
    return {"content": {"application/x-www-form-urlencoded": {"schema": schema}, "application/json": {"schema": schema}}}
