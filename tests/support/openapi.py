"""The API description, and all routes' declarations, for tests that read them."""

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

from quart_schema import OpenAPIProvider

from entrypoints.http.edge.openapi.description import Provider
from tests.support.builders import application

PREFIX: Final = "#/components/schemas/"

Operation = dict[str, Any]
Schema = dict[str, Any]


def component(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return the component that this part of a description refers to, or the part itself."""
    if "$ref" not in part:
        return part
    _, kind, name = part["$ref"].removeprefix("#/").split("/")
    found: dict[str, Any] = document["components"][kind][name]
    return found


def inlined(document: dict[str, Any]) -> dict[str, Any]:
    """Return a description's paths, with every reference replaced by the component that it names."""

    def inline(node: Any) -> Any:
        if isinstance(node, list):
            return [inline(item) for item in node]
        if not isinstance(node, dict):
            return node
        rest = {key: inline(value) for key, value in node.items() if key != "$ref"}
        if not isinstance(node.get("$ref"), str):
            return {**rest, **({"$ref": inline(node["$ref"])} if "$ref" in node else {})}
        return {**inline(component(document, node)), **rest}

    paths: dict[str, Any] = inline(document["paths"])
    return paths


@cache
def description() -> dict[str, Any]:
    """Return the API description. Do not change it."""
    document: dict[str, Any] = json.loads(application().description)
    return document


class _ForEveryRoute(Provider):
    """The generator for the description, also for the pages below `/app`."""

    generate_rules = OpenAPIProvider.generate_rules


@cache
def every_route() -> dict[str, Any]:
    """Return what every route in the route table declares, in the form of an API description. Do not change it."""
    app = application()
    document: dict[str, Any] = json.loads(json.dumps(_ForEveryRoute(app, app.extensions["QUART_SCHEMA"]).schema()))
    return document


@cache
def _inlined_routes() -> dict[str, Any]:
    return inlined(every_route())


def operations(paths: dict[str, Any] | None = None) -> Iterator[tuple[str, str, Operation]]:
    """Yield method, path and declaration for every operation: by default, for every route, with references replaced by their schemas."""
    for path, methods in (_inlined_routes() if paths is None else paths).items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


@cache
def _statuses() -> dict[str, set[str]]:
    return {f"{method} {path}": set(operation["responses"]) for method, path, operation in operations(every_route()["paths"])}


def undescribed(answers: Iterable[tuple[str, str]]) -> list[str]:
    """Return the answers, as route and status, that their routes do not declare.

    Every route can give these: 408 if the body takes too long, 499 if the client left, 503 if the service stops.
    """
    described = _statuses()
    rows = ((re.sub(r"<(?:[a-z]+:)?([a-z_]+)>", r"{\1}", route), status) for route, status in answers)
    return sorted(f"{route}: {status}" for route, status in rows if status not in {"408", "499", "503", *described.get(route, {status})})
