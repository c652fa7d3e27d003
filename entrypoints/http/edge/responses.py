"""JSON responses of views: the documented model, and its serialization."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from pydantic import TypeAdapter
from quart import Response
from quart_schema import document_response

P = ParamSpec("P")
M = TypeVar("M")

# A view returns the model, alone or with a status, or with a status and headers.
View = Callable[P, Awaitable[M | tuple[M, int] | tuple[M, int, dict[str, str]]]]

JSON = "application/json"


def returns(model: type[M], *statuses: int) -> Callable[[View[P, M]], Callable[P, Awaitable[Response]]]:
    """Send the result of the view as JSON, and document `model` as its response.

    `statuses` are the documented ones, by default 200. The first one is sent if the view returns none.
    Only the declared fields of the model are sent. mypy checks that the view returns this model.

    The view raises: ValidationError if its result is not of this model.
    """
    adapter = TypeAdapter(model)
    statuses = statuses or (200,)

    def decorate(view: View[P, M]) -> Callable[P, Awaitable[Response]]:
        @wraps(view)
        async def respond(*args: P.args, **kwargs: P.kwargs) -> Response:
            result: Any = await view(*args, **kwargs)
            value, status, headers = (*result, None)[:3] if isinstance(result, tuple) else (result, statuses[0], None)
            # An instance of the model passes without another validation. The line break is for terminals.
            body = adapter.dump_json(adapter.validate_python(value)) + b"\n"
            return Response(body, status, headers, content_type=JSON)

        for status in statuses:
            document_response(model, status)(respond)
        return respond

    return decorate
