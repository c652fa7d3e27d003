"""Lists without a maximum (decisions, point 10): answers that go out while they are read.

Nothing of the database is held while bytes go out, so whoever reads slowly keeps nothing but their own connection, and that only for as
long as the server waits for them. A view that answers so has `@document_response(Model)` of quart-schema instead of `@validate_response`.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel
from quart import Response, request

from core.values import Batches
from entrypoints.http.bodies import Shown

T = TypeVar("T")


async def streamed(
    batches: Batches[T],
    show: Callable[[T], Shown],
    *,
    named: str | None = None,
    beside: Mapping[str, BaseModel] | None = None,
    counted: str | None = None,
) -> Response:
    """All items of the batches as a JSON array; with `named` an object that has it under this name, and after it `beside`, and how many
    items it has under the name `counted`.

    The first batch is read before anything goes out, so that an outage is told as ever; a later one breaks the answer off.
    """
    first: Sequence[T] = await batches.following()
    if request.method == "HEAD":
        response = Response(b"", content_type="application/json")
        del response.headers["Content-Length"]  # which is that of the body that GET would give
        return response

    async def pieces() -> AsyncIterator[bytes]:
        items, total = first, 0
        before = b"[" if named is None else f'{{"{named}":['.encode()
        while items:
            yield before + b",".join(show(item).model_dump_json().encode() for item in items)
            total += len(items)
            items, before = await batches.following(), b","
        rest = [f',"{name}":{value.model_dump_json()}' for name, value in (beside or {}).items()]
        if counted is not None:
            rest.append(f',"{counted}":{total}')
        end = "]" if named is None else f"]{''.join(rest)}}}"
        yield (b"" if total else before) + end.encode()

    return Response(pieces(), content_type="application/json")
