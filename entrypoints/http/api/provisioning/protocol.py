"""What all routes of SCIM have in common: bodies, queries, answers (RFC 7644 section 3). Everything is read here; the core gets plain
values.

Names of attributes have no case (RFC 7643 section 2.1), so bodies are not read by models, which know theirs by one spelling only.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from quart import Response, request

from core.kernel.errors import Forbidden, Invalid
from core.kernel.values import KEEP, Batches, T, is_printable, rfc3339
from core.provisioning.filters import ScimFilter
from core.provisioning.patches import PatchOp, PatchOperation
from core.provisioning.schemas import Returned, ScimSchema
from entrypoints.http.edge.bodies import BodyInvalid
from entrypoints.http.edge.context import app_context
from entrypoints.http.edge.error_body import SCIM_JSON
from entrypoints.http.edge.queries import clamped
from entrypoints.http.edge.streaming import only_headers

LIST: Final = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
PATCH: Final = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
DEFAULT_COUNT: Final = 100
MAX_COUNT: Final = 1000


class SchemasWrong(BodyInvalid):
    """The body does not say what it is."""

    def __init__(self, urn: str) -> None:
        super().__init__(f'The body must say what it is: "schemas" is a list with "{urn}" in it.')


class OperationsInvalid(BodyInvalid):
    """The operations are not valid: "Operations" is a list of objects, each with an "op" of add, remove or replace, and what that needs."""


class NumberInvalid(Invalid):
    """A number is not one."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The parameter {name} must be an integer.")


class AttributesInvalid(Invalid):
    """The names of attributes hold characters that are not allowed."""


class NotFiltered(Forbidden):
    """This cannot be filtered."""


# What comes in


def checked(found: dict[str, Any], urn: str, *, required: bool = True) -> dict[str, Any]:
    """The body, if it says that it follows the schema. Raises BodyInvalid, SchemasWrong.

    What its texts may hold is for whoever keeps them to say: of an address that nobody here keeps, each line is one (RFC 7643 section 8.2).
    """
    if len({name.lower() for name in found}) < len(found):
        raise BodyInvalid  # one attribute twice, in two spellings
    schemas = named(found, "schemas")
    if schemas is not None or required:
        said = [each.lower() for each in schemas if isinstance(each, str)] if isinstance(schemas, list) else []
        if urn.lower() not in said:
            raise SchemasWrong(urn)
    return found


def named(found: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """The value of this name, whatever its case."""
    return next((value for each, value in found.items() if each.lower() == name.lower()), default)


def operations(body: dict[str, Any]) -> Iterator[PatchOperation]:
    """The operations of a patch (RFC 7644 section 3.5.2), in whatever case. Raises BodyInvalid, SchemasWrong, OperationsInvalid.

    They are taken out of the body one by one: to throw very many away at once would take a while in which no other thread gets on.
    """
    given = named(checked(body, PATCH), "Operations")
    if not isinstance(given, list) or not given:
        raise OperationsInvalid
    given.reverse()
    while given:
        yield _operation(given.pop())


def _operation(given: Any) -> PatchOperation:
    if not isinstance(given, dict):
        raise OperationsInvalid
    if len({name.lower() for name in given}) < len(given):
        raise BodyInvalid
    op, path = named(given, "op"), named(given, "path")
    if not isinstance(op, str) or op.lower() not in list(PatchOp) or not (path is None or isinstance(path, str)):
        raise OperationsInvalid
    return PatchOperation(PatchOp(op.lower()), path or None, named(given, "value", KEEP))


def wanted_part() -> tuple[int, int]:
    """From which number on, beginning at 1, and how many (decisions, point 124). Raises NumberInvalid."""
    return _number("startIndex", 1, 1, 2**31 - 1), _number("count", DEFAULT_COUNT, 0, MAX_COUNT)


def _number(name: str, default: int, least: int, most: int) -> int:
    text = request.args.get(name)
    if text is None:
        return default
    try:
        return clamped(text, least, most)
    except ValueError:
        raise NumberInvalid(name) from None


def wanted_filter(read: Callable[[str], ScimFilter]) -> ScimFilter | None:
    """The filter that is asked for, if one is. Raises FilterInvalid."""
    text = request.args.get("filter")
    return None if text is None else read(text)


def refuse_filter() -> None:
    """What describes us cannot be filtered, and must not pretend to be (RFC 7644 section 4). Raises NotFiltered."""
    if "filter" in request.args:
        raise NotFiltered


class Projection:
    """Which attributes of a resource are wanted (RFC 7644 section 3.9)."""

    def __init__(self, schema: ScimSchema) -> None:
        self._schema = schema
        self._only = self._listed(request.args.get("attributes"))
        self._without = self._listed(request.args.get("excludedAttributes")) if self._only is None else None
        self._always = {each.name.lower() for each in schema.attributes if each.returned is Returned.ALWAYS}

    def _listed(self, text: str | None) -> dict[str, set[str] | None] | None:
        """By the name of each attribute which of its parts; None is all of them."""
        if not text or not text.strip(" ,"):
            return None
        if not is_printable(text):
            raise AttributesInvalid
        found: dict[str, set[str] | None] = {}
        for each in text.split(","):
            name, _, sub = self._schema.without_urn(each.strip()).lower().partition(".")
            parts = found.setdefault(name, set())
            if not sub:
                found[name] = None
            elif parts is not None:
                parts.add(sub)
        return found

    def has(self, name: str) -> bool:
        """Whether the attribute is wanted at all."""
        if self._only is not None:
            return name.lower() in self._only
        return self._without is None or self._without.get(name.lower(), set()) is not None

    def of(self, resource: Mapping[str, Any]) -> dict[str, Any]:
        """The resource with what is wanted of it."""
        if self._only is None and self._without is None:
            return dict(resource)
        return {name: self._part(name.lower(), value) for name, value in resource.items() if name.lower() in self._always or self.has(name)}

    def _part(self, name: str, value: Any) -> Any:
        chosen = (self._only or self._without or {}).get(name)
        if not chosen or name in self._always:
            return value
        if isinstance(value, list):
            return [self._parts_of(each, chosen) for each in value]
        return self._parts_of(value, chosen)

    def _parts_of(self, value: Any, chosen: set[str]) -> Any:
        if not isinstance(value, Mapping):
            return value
        wanted = self._only is not None
        return {name: each for name, each in value.items() if (name.lower() in chosen) is wanted}


# What goes out


def shape(*names: str, lists: str = "") -> dict[str, Any]:
    """The schema of an answer that always has these members; of what they are, `/Schemas` says more than could be said here."""
    properties: dict[str, Any] = {name: {} for name in names}
    properties["schemas"] = {"type": "array", "items": {"type": "string"}}
    if lists:
        properties[lists] = {"type": "array", "items": {"type": "object"}}
    return {"type": "object", "required": list(properties), "properties": properties}


# What routes take, as the description of the interface has it.
PROJECTION: Final = {
    "attributes": "Which attributes the answer shall have, with commas between them.",
    "excludedAttributes": "Which it need not have.",
}
PAGING: Final = {
    "startIndex": "The number of the first one, from 1 on.",
    "count": "How many, 100 unless it is given, 1000 at most.",
    **PROJECTION,
}


def schemas(urn: str) -> dict[str, Any]:
    """What is described of `schemas` in a body that follows this one."""
    return {"schemas": {"type": "array", "items": {"type": "string"}, "examples": [[urn]]}}


PATCH_SCHEMA: Final = {
    "type": "object",
    "required": ["schemas", "Operations"],
    "properties": {
        **schemas(PATCH),
        "Operations": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["op"],
                "properties": {"op": {"type": "string", "examples": ["replace"]}, "path": {"type": "string"}, "value": {}},
            },
        },
    },
}
LISTED: Final = shape("schemas", "totalResults", "startIndex", "itemsPerPage", lists="Resources")


def location(endpoint: str, name: object | None = None) -> str:
    """The address of a resource, or of all of a kind."""
    address = f"{app_context().base_url}/scim/v2{endpoint}"
    return address if name is None else f"{address}/{name}"


def meta(schema: ScimSchema, id_: object, created: datetime, updated: datetime) -> dict[str, Any]:
    return {
        "resourceType": schema.name,
        "created": rfc3339(created),
        "lastModified": rfc3339(updated),
        "location": location(schema.endpoint, id_),
    }


def answer(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(body), status, dict(headers or {}), content_type=SCIM_JSON)


def listing(resources: Sequence[Mapping[str, Any]], total: int, start: int) -> dict[str, Any]:
    """A list response (RFC 7644 section 3.4.2)."""
    return {
        "schemas": [LIST],
        "totalResults": total,
        "startIndex": start,
        "itemsPerPage": len(resources),
        "Resources": list(resources),
    }


async def streamed(
    before: Mapping[str, Any], named: str, batches: Batches[T], show: Callable[[T], object], around: tuple[str, str] = ("", "")
) -> Response:
    """An object whose last member is a list, which goes out while it is read: `before`, the list under its name, and `around` it two texts.

    The first batch is read before anything goes out, so that an outage is told as ever.
    """
    first = await batches.next_batch()
    if request.method == "HEAD":
        return only_headers(SCIM_JSON)

    async def pieces() -> AsyncIterator[bytes]:
        items, waiting = first, f'{around[0]}{json.dumps(before)[:-1]}, "{named}": ['
        while items:
            yield (waiting + json.dumps([show(each) for each in items])[1:-1]).encode()
            items, waiting = await batches.next_batch(), ", "
        yield f"{'' if first else waiting}]}}{around[1]}".encode()

    return Response(pieces(), content_type=SCIM_JSON)
