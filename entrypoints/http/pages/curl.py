"""The commands under "Show as curl": the operations of the API that do what a page does."""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, get_args
from urllib.parse import quote

from pydantic import BaseModel
from quart import Quart
from quart_schema.validation import QUART_SCHEMA_REQUEST_ATTRIBUTE

_PARAMETER: Final = re.compile(r"<(?:\w+:)?(\w+)>")
_EXAMPLES: Final[Mapping[type, Any]] = MappingProxyType({str: "...", int: 0, bool: True, list: [], dict: {}})


def commands(app: Quart, operations: Sequence[str], base_url: str, values: Mapping[str, Any], query: str) -> list[str]:
    """Return a command for each operation, such as `GET /api/organizations/<org_slug>`.

    `values` are the path's parameters of the page. A parameter that the page lacks stays in capital
    letters. `query` is that of the page, and belongs to the first operation if it reads a list.
    """
    lines = []
    for position, operation in enumerate(operations):
        method, path = operation.split(" ", 1)
        target = base_url + _PARAMETER.sub(lambda found: _value(found[1], values), path)
        if query and position == 0 and method == "GET":
            target += f"?{query}"
        parts = ["curl", "" if method == "GET" else f"-X {method}", '-H "Authorization: Bearer $TOKEN"']
        body = _body(_view(app, operation))
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
    """Yield each operation with its view."""
    for rule in app.url_map.iter_rules():
        for method in rule.methods or ():
            yield f"{method} {rule.rule}", app.view_functions[rule.endpoint]


def _body(view: Callable[..., Any] | None) -> dict[str, Any] | None:
    """Return an example body: the required fields, or all fields if none is required."""
    model = getattr(view, QUART_SCHEMA_REQUEST_ATTRIBUTE, (None,))[0]
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None
    fields = {name: field.annotation for name, field in model.model_fields.items() if field.is_required()}
    fields = fields or {name: field.annotation for name, field in model.model_fields.items()}
    return {name: _example(annotation) for name, annotation in fields.items()}


def _example(annotation: Any) -> Any:
    for kind in (annotation, getattr(annotation, "__origin__", None), *get_args(annotation)):
        if isinstance(kind, type):
            for known, example in _EXAMPLES.items():
                if issubclass(kind, known):
                    return example
    return "..."
