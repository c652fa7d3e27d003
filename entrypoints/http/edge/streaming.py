"""Lists without a maximum (decisions, point 10): answers that go out while they are read.

Nothing of the database is held while bytes go out, so whoever reads slowly keeps nothing but their own connection, and that only for as
long as the server waits for them. A view that answers so has `@document_response(Model)` of quart-schema instead of `@validate_response`.
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
    """A list in an object that goes out while it is read: its name, its items, and how each of them is shown."""

    named: str
    batches: Batches[T]
    show: Callable[[T], ResponseModel]


async def streamed(
    batches: Batches[T],
    show: Callable[[T], ResponseModel],
    *,
    named: str | None = None,
    beside: Mapping[str, BaseModel] | None = None,
    counted: str | None = None,
) -> Response:
    """All items of the batches as a JSON array; with `named` an object that has it under this name, and after it `beside`, and how many
    items it has under the name `counted`.

    The first batch is read before anything goes out, so that an outage is told as ever; a later one breaks the answer off.
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
    """A JSON object of these parts, in this order: the fields of what is shown, and lists under their names.

    The first batch of each list is read before anything goes out, so that an outage is told as ever, and small lists are there by then; a
    later one breaks the answer off. There is no more in memory than those, and the batch that is going out.
    """
    firsts = {part.named: await part.batches.next_batch() for part in parts if isinstance(part, Part)}
    if request.method == "HEAD":
        return only_headers()

    async def pieces() -> AsyncIterator[bytes]:
        waiting = b"{"
        for number, part in enumerate(parts):
            waiting += b"," if number else b""
            if not isinstance(part, Part):
                waiting += part.model_dump_json().encode()[1:-1]
                continue
            waiting += f'"{part.named}":['.encode()
            items, comma = firsts.pop(part.named), b""
            while items:
                yield waiting + comma + _joined(items, part.show)
                items, waiting, comma = await part.batches.next_batch(), b"", b","
            waiting += b"]"
        yield waiting + b"}"

    return Response(pieces(), content_type="application/json")


def _joined(items: Sequence[T], show: Callable[[T], ResponseModel]) -> bytes:
    return b",".join(show(item).model_dump_json().encode() for item in items)


def only_headers(content_type: str = "application/json") -> Response:
    """What HEAD is answered where GET would stream."""
    response = Response(b"", content_type=content_type)
    del response.headers["Content-Length"]  # which is that of the body that GET would give
    return response
