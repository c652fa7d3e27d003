"""The API description in tables: all that a client can rely on in one line per operation or model, so that reviewers see each change."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from entrypoints.http.app import Application, build_routes
from entrypoints.http.edge.access.declaration import Access, Bounded, access_of
from entrypoints.http.edge.openapi.description import interface_description
from entrypoints.http.pages.curl import operations_of


@cache
def _application() -> tuple[Application, dict[str, Any]]:
    """Return the application, and its API description."""
    app = build_routes()
    return app, interface_description(app)


def operation_rows() -> Iterator[list[str]]:
    """Yield operation, id, caller, scope, request and responses of all operations but the pages of the console."""
    app, document = _application()
    access = {shown(operation): access_of(view) for operation, view in operations_of(app)}
    for path, methods in document["paths"].items():
        for method, operation in methods.items() if not path.startswith("/app") else ():
            name = f"{method.upper()} {path}"
            scopes = {f"`{each}`" for alternative in operation.get("security", []) for names in alternative.values() for each in names}
            cells = [f"`{operation['operationId']}`", _callers(access[name], method.upper()), " ".join(sorted(scopes))]
            yield [f"`{name}`", *cells, _request(operation), _responses(operation["responses"])]


def shown(path: str) -> str:
    """Return a path with its parameters as in the API description."""
    return re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", r"{\1}", path)


def _callers(access: Access, method: str) -> str:
    right = access.capability or access.permission
    callers = [access.name.replace("_", " ") + (f" with `{right}`" if right else "")]
    requirement = access.requirement(method)
    if access.is_of_api and requirement.scope:
        by_name = " by name" if requirement.needs_person or requirement.outlives else ""
        callers += [f"service account{by_name}"] if access.opens_to_service_accounts(method) else []
        callers += ["personal token"] if access.opens_to_personal_tokens(method) else []
    if access.bounded is not Bounded.NO and access.name != "member":
        callers += ["own organization"]
    return ", ".join(callers)


def _request(operation: Mapping[str, Any]) -> str:
    query = [each for each in operation["parameters"] if each["in"] == "query"]
    parts = [f"`{_field(each['name'], each['schema'], each.get('required'))}`" for each in query]
    body = operation.get("requestBody", {"content": {}})
    for media_type, content in body["content"].items():
        form = media_type.removeprefix("application/").removeprefix("x-www-").removesuffix("-urlencoded")
        parts.append(f"{form}{'' if body['required'] else '?'} `{_type(content['schema'])}`")
    return ", ".join(parts)


def _responses(responses: Mapping[str, Any]) -> str:
    """Return the statuses with their models. Left out are 431 and 500, which all operations have, and the usual bodies of errors."""
    parts = []
    shared = _application()[1]["components"]["responses"]
    for status, response in responses.items():
        response = shared[response["$ref"].rpartition("/")[2]] if "$ref" in response else response
        types = {media_type: _type(content["schema"]) for media_type, content in response.get("content", {}).items()}
        bodies = dict.fromkeys(media_type if each == "string" else f"`{each}`" for media_type, each in types.items())
        if status not in ("431", "500"):
            parts.append(" ".join([status, *(each for each in bodies if status < "400" or each not in ("`Error`", "text/html"))]))
    return ", ".join(parts)


def model_rows() -> Iterator[list[str]]:
    """Yield each model with its fields."""
    for name, model in _application()[1]["components"]["schemas"].items():
        fields = _fields(model) or [_type(model)]
        yield [f"`{name}`", ", ".join(f"`{field}`" for field in fields)]


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
