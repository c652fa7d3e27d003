"""The snapshot of the API description, without its texts: reviewers see every change that a client can notice."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from entrypoints.http.app import build_routes
from entrypoints.http.edge.access.declaration import Access, Restricted, access_of
from entrypoints.http.edge.openapi.description import interface_description
from entrypoints.http.pages.curl import operations_of

SNAPSHOT: Final = Path(__file__).with_suffix(".txt")
ABOUT: Final = """\
`python -m ops.docs.reference` writes this file. An operation has its id, its callers with the scope of their tokens, its request and its
responses. Left out are 431 and 500, which all operations have, and the usual bodies of errors. A model has its fields. `?` marks what can
be absent, `=` the default, `1..100` the limits. By name: an owner grants the service account the capability. Own organization: also a
session that began at an organization's connection, for that organization only."""


def snapshot() -> str:
    """Return the snapshot: a line per operation and per model, with their parts in indented lines below it."""
    app = build_routes()
    document = interface_description(app)
    access = {shown(operation): access_of(view) for operation, view in operations_of(app)}
    lines = [ABOUT]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            lines += ["", name, *_operation(operation, _callers(access[name], method.upper()), document["components"]["responses"])]
    for name, model in document["components"]["schemas"].items():
        lines += ["", name, *(f"  {part}" for part in _fields(model) or [_type(model)])]
    return "\n".join(lines) + "\n"


def shown(path: str) -> str:
    """Return a path with its parameters as in the API description."""
    return re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", r"{\1}", path)


def _operation(operation: Mapping[str, Any], callers: str, shared: Mapping[str, Any]) -> Iterator[str]:
    scopes = {scope for alternative in operation.get("security", ()) for scopes in alternative.values() for scope in scopes}
    yield f"  {operation['operationId']}: {callers}" + (f" ({' '.join(sorted(scopes))})" if scopes else "")
    for parameter in operation["parameters"]:
        if parameter["in"] == "query":
            yield f"  {_field(parameter['name'], parameter['schema'], parameter.get('required'))}"
    body = operation.get("requestBody", {"content": {}})
    for media_type, content in body["content"].items():
        yield f"  {media_type}{'' if body['required'] else '?'}: {_type(content['schema'])}"
    yield f"  {', '.join(_responses(operation['responses'], shared))}"


def _callers(access: Access, method: str) -> str:
    right = access.capability or access.permission
    callers = [access.name.replace("_", " ") + (f" with {right}" if right else "")]
    requirement = access.requirement(method)
    if access.is_of_api and requirement.scope:
        by_name = " by name" if requirement.needs_person or requirement.outlives else ""
        callers += [f"service account{by_name}"] if access.opens_to_service_accounts(method) else []
        callers += ["personal token"] if access.opens_to_personal_tokens(method) else []
    if access.restricted is not Restricted.NO and access.name != "member":
        callers += ["own organization"]
    return ", ".join(callers)


def _responses(responses: Mapping[str, Any], shared: Mapping[str, Any]) -> Iterator[str]:
    for status, response in responses.items():
        response = shared[response["$ref"].rpartition("/")[2]] if "$ref" in response else response
        types = {media_type: _type(content["schema"]) for media_type, content in response.get("content", {}).items()}
        bodies = dict.fromkeys(media_type if each == "string" else each for media_type, each in types.items())
        if status not in ("431", "500"):
            yield " ".join([status, *(each for each in bodies if status < "400" or each not in ("Error", "text/html"))])


def _fields(schema: Mapping[str, Any]) -> list[str]:
    return [_field(name, field, name in schema.get("required", ())) for name, field in schema.get("properties", {}).items()]


def _field(name: str, schema: Mapping[str, Any], required: object) -> str:
    default = f" = {json.dumps(schema['default'])}" if schema.get("default") is not None else ""
    return f"{name}{'' if required else '?'}: {_type(schema)}{default}"


def _type(schema: Mapping[str, Any]) -> str:
    """Return a type with its limits, such as `string 1..100`."""
    match schema:
        case {"$ref": str(reference)}:
            return reference.rpartition("/")[2]
        case {"anyOf": options}:
            return " or ".join(map(_type, options))
        case {"enum": values}:
            return " or ".join(map(json.dumps, values))
        case {"const": value}:
            return json.dumps(value)
        case {"items": items}:
            text = f"[{_type(items)}]"
        case {"properties": fields} if fields:
            text = f"{{{', '.join(_fields(schema))}}}"
        case {"type": [*names]}:
            text = " or ".join(names)
        case _:
            text = schema.get("type", "any")
    low, high = (next((schema[end + kind] for kind in ("Length", "Items", "imum") if end + kind in schema), "") for end in ("min", "max"))
    limits = [f"{low}..{high}" if (low, high) != ("", "") else ""]
    limits += [f"below {schema['exclusiveMaximum']}" if "exclusiveMaximum" in schema else ""]
    return " ".join(filter(None, [text, schema.get("format"), *limits, schema.get("pattern")]))
