"""Streaming responses for lists without a maximum length.

No database connection is held while bytes are sent, so a slow client occupies only its own connection, until the
server's timeout. A view with a streaming response returns a Response, and has quart-schema's
`@document_response(Model)`.
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


async def stream_list(
    batches: Batches[T],
    to_response: Callable[[T], ResponseModel],
    *,
    name: str | None = None,
    other_fields: Mapping[str, BaseModel] | None = None,
    count_name: str | None = None,
) -> Response:
    """Return all items as a streamed JSON array.

    With `name`, the response is an object: the array under this name, then `other_fields`, then the item count under
    `count_name`. The first batch is read before the response starts, so that an outage becomes an error response. A
    later outage breaks the response off. A list that is complete with its first batch is sent in a single piece.
    """
    first: Sequence[T] = await batches.next_batch()
    if request.method == "HEAD":
        return only_headers()
    begin = b"[" if name is None else f'{{"{name}":['.encode()

    def end(count: int) -> bytes:
        fields = [f',"{field}":{value.model_dump_json()}' for field, value in (other_fields or {}).items()]
        if count_name is not None:
            fields.append(f',"{count_name}":{count}')
        return ("]" if name is None else f"]{''.join(fields)}}}").encode()

    async def chunks() -> AsyncIterator[bytes]:
        items, count, separator = first, 0, begin
        while items:
            yield separator + _joined(items, to_response)
            count += len(items)
            items, separator = await batches.next_batch(), b","
        yield end(count)

    content = begin + _joined(first, to_response) + end(len(first)) if batches.has_ended else chunks()
    return Response(content, content_type="application/json")


async def stream_object(*parts: ResponseModel | Part[Any]) -> Response:
    """Return a streamed JSON object with these parts in order: models' fields, and lists under their names.

    Every list's first batch is read before the response starts, so that an outage becomes an error response. A later
    outage breaks the response off. Memory holds only the first batches and the current batch. Lists that are complete
    with their first batch are sent together.
    """
    first_batches = {part.name: await part.batches.next_batch() for part in parts if isinstance(part, Part)}
    if request.method == "HEAD":
        return only_headers()

    async def chunks() -> AsyncIterator[bytes]:
        unsent = b"{"
        for number, part in enumerate(parts):
            unsent += b"," if number else b""
            if not isinstance(part, Part):
                unsent += part.model_dump_json().encode()[1:-1]  # without the braces
                continue
            unsent += f'"{part.name}":['.encode()
            items, separator = first_batches.pop(part.name), b""
            while items:
                unsent += separator + _joined(items, part.to_response)
                if not part.batches.has_ended:
                    yield unsent
                    unsent = b""
                items, separator = await part.batches.next_batch(), b","
            unsent += b"]"
        yield unsent + b"}"

    return Response(chunks(), content_type="application/json")


async def stream_lines(
    batches: Batches[T], to_lines: Callable[[Sequence[T]], bytes], content_type: str, filename: str, *, header: bytes = b""
) -> Response:
    """Return all items as a streamed file with lines, which begins with `header`.

    The first batch is read before the response starts, so that an outage becomes an error response.
    A later outage breaks the response off.
    """
    first: Sequence[T] = await batches.next_batch()
    if request.method == "HEAD":
        return only_headers(content_type)

    async def chunks() -> AsyncIterator[bytes]:
        items, unsent = first, header
        while items:
            yield unsent + to_lines(items)
            items, unsent = await batches.next_batch(), b""
        if unsent:
            yield unsent

    disposition = {"Content-Disposition": f'attachment; filename="{filename}"'}
    return Response(chunks(), 200, disposition, content_type=content_type)


def _joined(items: Sequence[T], to_response: Callable[[T], ResponseModel]) -> bytes:
    return b",".join(to_response(item).model_dump_json().encode() for item in items)


def only_headers(content_type: str = "application/json") -> Response:
    """Return the response to HEAD where GET would stream."""
    response = Response(b"", content_type=content_type)
    del response.headers["Content-Length"]  # unknown for GET's body
    return response
