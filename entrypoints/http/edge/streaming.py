"""Streaming responses for lists without a maximum length (decision 10).

No database connection is held while bytes are sent, so a slow client occupies only its own
connection, until the server's timeout. A view with a streaming response uses
`@document_response(Model)` of quart-schema instead of `@validate_response`.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from quart import Response, request

from core.kernel.values import Batches
from entrypoints.http.edge.bodies import ResponseModel

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """A streamed list in a JSON object: its field name, its batches, and the function that turns an item into a response."""

    name: str
    batches: Batches[T]
    to_response: Callable[[T], ResponseModel]


async def streamed(
    batches: Batches[T],
    show: Callable[[T], ResponseModel],
    *,
    named: str | None = None,
    beside: Mapping[str, BaseModel] | None = None,
    counted: str | None = None,
) -> Response:
    """Return all items as a streamed JSON array.

    With `named`, the response is an object with the array under this name, then the fields of
    `beside`, and the number of items under the name `counted`. The first batch is read before the
    response starts, so that an outage becomes an error response. A later outage breaks the response
    off.
    """
    first: Sequence[T] = await batches.next_batch()
    if request.method == "HEAD":
        return only_headers()

    async def pieces() -> AsyncIterator[bytes]:
        items, total = first, 0
        before = b"[" if named is None else f'{{"{named}":['.encode()
        while items:
            yield before + _joined(items, show)
            total += len(items)
            items, before = await batches.next_batch(), b","
        rest = [f',"{name}":{value.model_dump_json()}' for name, value in (beside or {}).items()]
        if counted is not None:
            rest.append(f',"{counted}":{total}')
        end = "]" if named is None else f"]{''.join(rest)}}}"
        yield (b"" if total else before) + end.encode()

    return Response(pieces(), content_type="application/json")


async def streamed_object(*parts: ResponseModel | Part[Any]) -> Response:
    """Return a streamed JSON object of these parts in order: the fields of models, and lists under their names.

    The first batch of each list is read before the response starts, so that an outage becomes an
    error response. A later outage breaks the response off. Memory holds only the first batches and
    the current one.
    """
    firsts = {part.name: await part.batches.next_batch() for part in parts if isinstance(part, Part)}
    if request.method == "HEAD":
        return only_headers()

    async def pieces() -> AsyncIterator[bytes]:
        waiting = b"{"
        for number, part in enumerate(parts):
            waiting += b"," if number else b""
            if not isinstance(part, Part):
                waiting += part.model_dump_json().encode()[1:-1]
                continue
            waiting += f'"{part.name}":['.encode()
            items, comma = firsts.pop(part.name), b""
            while items:
                yield waiting + comma + _joined(items, part.to_response)
                items, waiting, comma = await part.batches.next_batch(), b"", b","
            waiting += b"]"
        yield waiting + b"}"

    return Response(pieces(), content_type="application/json")


def _joined(items: Sequence[T], show: Callable[[T], ResponseModel]) -> bytes:
    return b",".join(show(item).model_dump_json().encode() for item in items)


def only_headers(content_type: str = "application/json") -> Response:
    """Return the response to HEAD where GET would stream."""
    response = Response(b"", content_type=content_type)
    del response.headers["Content-Length"]  # unknown for the body of GET
    return response
