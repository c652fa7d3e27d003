"""The SCIM protocol: request bodies, query parameters and responses (RFC 7644 section 3).

Attribute names are case-insensitive (RFC 7643 section 2.1), so bodies are not read by pydantic models, which know a
single spelling. The core gets plain values.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from quart import Response, request

from core.kernel import errors, values
from core.provisioning.model import patches
from core.provisioning.model.filters import ScimFilter
from core.provisioning.model.schemas import GROUP_URN, USER_URN, Returned, ScimSchema
from entrypoints.http import kit
from entrypoints.http.base.context import app_context
from entrypoints.http.edge.bodies import DECODED_AT_ONCE
from entrypoints.http.edge.queries import clamped
from entrypoints.http.edge.streaming import only_headers

LIST_URN: Final = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
PATCH_URN: Final = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
# The schema for users and groups in drafts of SCIM 2.0, which OneLogin still sends
DRAFT_URN: Final = "urn:scim:schemas:core:2.0"
DEFAULT_COUNT: Final = 100
MAX_COUNT: Final = 1000


class SchemaMissing(kit.BodyInvalid):
    """The attribute `schemas` does not contain the schema of the body."""

    def __init__(self, urn: str) -> None:
        super().__init__(f'The attribute "schemas" must be a list that contains "{urn}", or be left out.')


class OperationsInvalid(kit.BodyInvalid):
    """The operations are not valid: "Operations" must be a list of objects, each with an "op" that is add, remove or replace."""


class NumberInvalid(errors.Invalid):
    """A parameter is not an integer."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The parameter {name} must be an integer.")


class AttributesInvalid(errors.Invalid):
    """The attribute names contain characters that are not allowed. List names such as userName or name.familyName."""


class FilterNotSupported(errors.Forbidden):
    """This list does not support filters. Leave out the parameter filter."""


# Requests


def check_body(body: dict[str, Any], urn: str) -> dict[str, Any]:
    """Return the body if its `schemas` contains the URN, or is missing.

    Control characters are not refused here, because the body may contain attributes that are not
    stored: a postal address may have several lines (RFC 7643 section 8.2).
    """
    _check_names(body)
    if (error := schema_error(body, urn)) is not None:
        raise error
    return body


def _check_names(body: Mapping[str, Any]) -> None:
    if len({name.lower() for name in body}) < len(body):
        raise kit.BodyInvalid  # a name in two spellings


def schema_error(body: Mapping[str, Any], urn: str) -> SchemaMissing | None:
    """Return an error if the body has `schemas` without the URN, or else None."""
    schemas = get_member(body, "schemas")
    urns = [item.lower() for item in schemas if isinstance(item, str)] if isinstance(schemas, list) else []
    is_resource = urn.lower() in (USER_URN.lower(), GROUP_URN.lower())
    is_known = urn.lower() in urns or (is_resource and DRAFT_URN in urns)
    return None if schemas is None or is_known else SchemaMissing(urn)


def get_member(body: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """Return the JSON member with this name, in any case, or the default."""
    return next((value for key, value in body.items() if key.lower() == name.lower()), default)


def parse_operations(body: dict[str, Any]) -> Iterator[patches.PatchOperation]:
    """Return a patch's operations (RFC 7644 section 3.5.2).

    An operation is removed from the body when it is read. Releasing a very long list at once would block all threads.
    """
    for operation in _take_operations(check_body(body, PATCH_URN)):
        yield _parse_operation(operation)


def _take_operations(body: dict[str, Any]) -> Iterator[Any]:
    operations = get_member(body, "Operations")
    if not isinstance(operations, list) or not operations:
        raise OperationsInvalid
    operations.reverse()
    while operations:
        yield operations.pop()


def _operations_and_errors(body: dict[str, Any]) -> Iterator[patches.PatchOperation | errors.Invalid]:
    _check_names(body)
    if (error := schema_error(body, PATCH_URN)) is not None:
        yield error
    for operation in _take_operations(body):
        try:
            yield _parse_operation(operation)
        except errors.Invalid as invalid:
            yield invalid.with_traceback(None)


def _parse_operation(operation: Any) -> patches.PatchOperation:
    if not isinstance(operation, dict):
        raise OperationsInvalid
    _check_names(operation)
    op, path = get_member(operation, "op"), get_member(operation, "path")
    if not isinstance(op, str) or op.lower() not in list(patches.PatchOp) or not (path is None or isinstance(path, str)):
        raise OperationsInvalid
    return patches.PatchOperation(patches.PatchOp(op.lower()), path or None, get_member(operation, "value", values.KEEP))


async def read_user_patch() -> patches.UserPatch:
    """Return the patch in the current request's body.

    Wrong `schemas` and operations that are not valid are errors among its operations, because a patch
    that deactivates is applied without them.
    """
    operations = await kit.read_in_thread(lambda body: list(_operations_and_errors(body)))
    return patches.UserPatch(operations, is_large=len(await request.body) > DECODED_AT_ONCE)


def read_page() -> tuple[int, int]:
    """Return `startIndex`, which counts from 1, and `count`."""
    return _read_number("startIndex", 1, 1, 2**31 - 1), _read_number("count", DEFAULT_COUNT, 0, MAX_COUNT)


def _read_number(name: str, default: int, minimum: int, maximum: int) -> int:
    text = request.args.get(name)
    if text is None:
        return default
    try:
        return clamped(text, minimum, maximum)
    except ValueError:
        raise NumberInvalid(name) from None


def read_filter(parse: Callable[[str], ScimFilter]) -> ScimFilter | None:
    """Return the parsed parameter `filter`, or None if it is absent."""
    text = request.args.get("filter")
    return None if text is None else parse(text)


def refuse_filter() -> None:
    """Refuse the parameter `filter`, as RFC 7644 section 4 requires."""
    if "filter" in request.args:
        raise FilterNotSupported


class _Names(dict[str, "_Names | None"]):
    """Attribute names in lower case, with the names of their parts, or None for the whole attribute."""


class Projection:
    """The attributes to return, from the current request's query (RFC 7644 section 3.9).

    A handler that changes something creates it before the change, because an invalid query must
    change nothing. Raises: AttributesInvalid.
    """

    def __init__(self, schema: ScimSchema) -> None:
        self.schema = schema
        names: Mapping[str, str] = request.args if request.query_string else {}  # a missing argument costs an exception in werkzeug
        self._included = self._parse(names.get("attributes"))
        self._excluded = self._parse(names.get("excludedAttributes")) if self._included is None else None
        self._always = {attribute.name.lower() for attribute in schema.attributes if attribute.returned is Returned.ALWAYS}

    def _parse(self, text: str | None) -> _Names | None:
        """Return the named attributes, or None if the parameter names none."""
        if not text or not text.strip(" ,"):
            return None
        if not values.is_printable(text):
            raise AttributesInvalid
        names = _Names()
        for item in text.split(","):
            *parents, last = self._split(item.strip().lower())
            level: _Names | None = names
            for parent in parents:
                level = None if level is None else level.setdefault(parent, _Names())
            if level is not None:
                level[last] = None
        return names

    def _split(self, item: str) -> list[str]:
        """Return the member's name in the response, and its parts' names."""
        for urn in (extension.id.lower() for extension in self.schema.extensions):
            if item == urn or item.startswith(f"{urn}:"):
                return [urn, *(name for name in item[len(urn) + 1 :].split(".") if name)]
        return [name for name in self.schema.without_urn(item).split(".") if name] or [""]

    def includes(self, name: str) -> bool:
        """Return whether at least a part of the attribute is returned."""
        if self._included is not None:
            return name.lower() in self._included
        return self._excluded is None or self._excluded.get(name.lower(), _Names()) is not None

    def apply(self, resource: Mapping[str, Any]) -> dict[str, Any]:
        """Return the resource with only the attributes to return."""
        names = self._excluded if self._included is None else self._included
        if names is None:
            return dict(resource)
        always = {name: value for name, value in resource.items() if name.lower() in self._always}
        selected = self._select(resource, names)
        return {name: always.get(name, selected.get(name)) for name in resource if name in always or name in selected}

    def _select(self, value: Any, names: _Names) -> Any:
        """Return the object, or every object in the list, with only the parts to return."""
        if isinstance(value, list):
            return [self._select(item, names) for item in value]
        if not isinstance(value, Mapping):
            return value
        selected = {}
        for name, item in value.items():
            parts = names.get(name.lower())
            if parts is not None:
                selected[name] = self._select(item, parts)
            elif (name.lower() in names) is (self._included is not None):
                selected[name] = item
        return selected


# Responses


def location(endpoint: str, resource_id: object | None = None) -> str:
    """Return the URL of a resource, or of all resources at an endpoint."""
    url = f"{app_context().base_url}/scim/v2{endpoint}"
    return url if resource_id is None else f"{url}/{resource_id}"


def meta(schema: ScimSchema, resource_id: object, created: datetime, updated: datetime) -> dict[str, Any]:
    """Return a resource's attribute `meta`."""
    return {
        "resourceType": schema.name,
        "created": values.rfc3339(created),
        "lastModified": values.rfc3339(updated),
        "location": location(schema.endpoint, resource_id),
    }


def json_response(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a SCIM response."""
    return Response(json.dumps(body), status, dict(headers or {}), content_type=kit.SCIM_JSON)


def list_body(resources: Sequence[Mapping[str, Any]], total: int, start: int) -> dict[str, Any]:
    """Return the body for a list response (RFC 7644 section 3.4.2)."""
    return {"schemas": [LIST_URN], "totalResults": total, "startIndex": start, "itemsPerPage": len(resources), "Resources": list(resources)}


async def stream_with_list(
    resource: Mapping[str, Any],
    name: str,
    batches: values.Batches[values.T],
    to_item: Callable[[values.T], object],
    around: tuple[str, str] = ("", ""),
) -> Response:
    """Return a resource with a long list as its last member. The list is sent while it is read.

    `name` is the list's name. `around` has the texts before and after the resource. The first batch is read before the
    response starts, so that a database outage gives an error response.
    """
    first = await batches.next_batch()
    if request.method == "HEAD":
        return only_headers(kit.SCIM_JSON)

    async def chunks() -> AsyncIterator[bytes]:
        items, separator = first, f'{around[0]}{json.dumps(resource)[:-1]}, "{name}": ['
        while items:
            yield (separator + json.dumps([to_item(item) for item in items])[1:-1]).encode()
            items, separator = await batches.next_batch(), ", "
        yield f"{'' if first else separator}]}}{around[1]}".encode()

    return Response(chunks(), content_type=kit.SCIM_JSON)
