"""The commands under "Show as curl": the API operations that do what a page does."""

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, urlencode

from pydantic import BaseModel
from quart import Quart
from quart_schema.validation import QUART_SCHEMA_QUERYSTRING_ATTRIBUTE, QUART_SCHEMA_REQUEST_ATTRIBUTE

_PARAMETER: Final = re.compile(r"<(?:\w+:)?(\w+)>")
_OF_FORMAT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "email": "ada@example.com",
        "idn-hostname": "example.com",
        "uuid": "00000000-0000-0000-0000-000000000000",
        "date-time": "2030-01-31T12:00:00Z",
    }
)


def commands(
    app: Quart,
    operations: Sequence[str],
    base_url: str,
    values: Mapping[str, Any],
    query: Mapping[str, str],
    document: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return a command for every operation, such as `GET /api/organizations/<org_slug>`.

    `values` are the page's path parameters. A parameter that the page lacks stays in capital letters. `query` is the page's query. The
    first operation and exports get the parameters that they have. A PUT sends the `document` that it replaces, if the page has it.
    """
    lines = []
    for position, operation in enumerate(operations):
        method, path = operation.split(" ", 1)
        target = base_url + _PARAMETER.sub(lambda found: _value(found[1], values), path)
        view = _view(app, operation)
        names = _query_parameters(view) if position == 0 or path.endswith("/export") else ()
        if known := {name: query[name] for name in names if name in query}:
            target += f"?{urlencode(known)}"
        parts = ["curl", "" if method == "GET" else f"-X {method}", '-H "Authorization: Bearer $TOKEN"']
        body = _body(view, document if method == "PUT" else None)
        if body is not None:
            parts += ["--json", shlex.quote(json.dumps(body))]
        lines.append(" ".join(filter(None, [*parts, shlex.quote(target)])))
    return lines


def _value(name: str, values: Mapping[str, Any]) -> str:
    return quote(str(values[name]), safe="") if name in values else name.upper()


def _view(app: Quart, operation: str) -> Callable[..., Any] | None:
    views = app.extensions.get("operations")
    if views is None:
        views = app.extensions["operations"] = dict(operations_of(app))
    view: Callable[..., Any] | None = views.get(operation)
    return view


def operations_of(app: Quart) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield every operation with its view."""
    for rule in app.url_map.iter_rules():
        for method in rule.methods or ():
            yield f"{method} {rule.rule}", app.view_functions[rule.endpoint]


def _query_parameters(view: Callable[..., Any] | None) -> Collection[str]:
    model = getattr(view, QUART_SCHEMA_QUERYSTRING_ATTRIBUTE, None)
    return () if model is None else model.model_fields


def _body(view: Callable[..., Any] | None, document: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the document as a body, or an example body: the required fields, or the first field if none is required."""
    model = getattr(view, QUART_SCHEMA_REQUEST_ATTRIBUTE, (None,))[0]
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        return None
    return example_of(model) if document is None else {name: document[name] for name in model.model_fields if name in document}


@cache
def example_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return an example for a request, with the types in its JSON schema. Do not change it."""
    schema = model.model_json_schema()
    example: dict[str, Any] = _example(schema, schema.get("$defs", {}))
    return example


def _example(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    for name in ("examples", "enum"):
        if name in schema:
            return schema[name][0]
    declared = next((schema[name] for name in ("const", "default") if schema.get(name) is not None), None)
    return _example_of_type(schema, definitions) if declared is None else declared


def _example_of_type(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    match schema:
        case {"$ref": str(target)}:
            return _example(definitions[target.removeprefix("#/$defs/")], definitions)
        case {"anyOf": [part, *_]} | {"allOf": [part]}:  # null comes last
            return _example(part, definitions)
        case {"type": "object", "properties": dict(fields)}:
            return {name: _example(fields[name], definitions) for name in schema.get("required") or [*fields][:1]}
        case {"type": "array", "items": dict(item)}:  # an empty list would clear the present list
            return [_example(item, definitions)]
        case {"type": "string"}:
            return _OF_FORMAT.get(schema.get("format", ""), "...")
        case {"type": "integer"}:
            return schema.get("minimum", 0)
        case {"type": "boolean"}:  # false would disable the feature
            return True
    return {}
