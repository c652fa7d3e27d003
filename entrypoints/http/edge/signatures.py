"""A view's signature declares its request and its response.

    async def update(org_slug: str, webhook_id: UUID, data: WebhookUpdateRequest) -> WebhookResponse:

`data` is the JSON body, `query_args` the query, a UUID an id in the path, and the result the response's JSON. A view
without a result answers 204. A view that returns a Response makes it itself.
"""

from collections.abc import Awaitable, Callable
from functools import wraps
from inspect import get_annotations
from typing import Any, Final, TypeVar, get_args, get_origin
from uuid import UUID

from pydantic import TypeAdapter
from quart import Response, request
from quart_schema import document_querystring, document_request, document_response

from entrypoints.http.base.context import no_content
from entrypoints.http.edge import bodies
from entrypoints.http.edge.openapi import docs_of
from entrypoints.http.edge.queries import read_query
from entrypoints.http.edge.validation import validate

V = TypeVar("V", bound=Callable[..., Any])

JSON: Final = "application/json"
_STATUSES: Final = "_statuses"  # views' attributes; `functools.wraps` copies them
_READ: Final = "_signature_is_read"


def returns(*statuses: int) -> Callable[[V], V]:
    """Document the statuses for a response with a model, if they are not 200. If the view returns no status, the first status is sent."""

    def decorate(view: V) -> V:
        setattr(view, _STATUSES, statuses)
        return view

    return decorate


def ids_of(view: bodies.View) -> list[str]:
    """Return which path parameters are ids, by name."""
    return [name for name, type_ in get_annotations(view).items() if type_ is UUID]


def by_signature(view: bodies.View) -> bodies.View:
    """Let a view get the body and the query, send its result, and document all three. The access decorators call it.

    mypy checks the result's declared type. Only a model's declared fields are sent.

    The view raises: the errors of `validate` and `StrictRequest.get_json`; ValidationError if its result does not fit its model.
    """
    if hasattr(view, _READ):  # by `before_body`
        return view
    types = get_annotations(view)
    body, query, result = types.get("data"), types.get("query_args"), types.get("return", Response)
    model, statuses, is_of_page = _model_of(result), getattr(view, _STATUSES, (200,)), bool(docs_of(view).is_page)
    to_response = _sender(model, statuses[0])
    if body is None and query is None and result is not None and to_response is None:
        return view  # it reads its request and makes its response itself

    @wraps(view)
    async def run(*args: Any, **kwargs: Any) -> Any:
        if body is not None:
            kwargs["data"] = validate(body, await request.get_json())
        if query is not None:
            kwargs["query_args"] = read_query(query, is_of_page=is_of_page)
        answer = await view(*args, **kwargs)
        if result is None:
            return no_content()
        return answer if to_response is None else to_response(answer)

    setattr(run, _READ, True)
    if body is not None:
        document_request(body)(run)
    if query is not None:
        document_querystring(query)(run)
    for status in statuses if model is not None else ():
        document_response(model, status)(run)
    return run


def _model_of(result: Any) -> Any:
    """Return a result's model: `Model` or `list[Model]`, also in a tuple with a status and headers. None: the view responds itself."""
    if get_origin(result) is tuple:
        result = get_args(result)[0]
    item = get_args(result)[0] if get_origin(result) is list else result
    return result if isinstance(item, type) and issubclass(item, bodies.ResponseModel) else None


def _sender(model: Any, default: int) -> Callable[[Any], Response] | None:
    if model is None:
        return None
    adapter: TypeAdapter[Any] = TypeAdapter(model)

    def to_response(answer: Any) -> Response:
        value, status, headers = (*answer, None)[:3] if isinstance(answer, tuple) else (answer, default, None)
        # A model instance passes without another validation. The line break is for terminals.
        return Response(adapter.dump_json(adapter.validate_python(value)) + b"\n", status, headers, content_type=JSON)

    return to_response


def before_body(check: Callable[..., Awaitable[None]]) -> Callable[[bodies.View], bodies.View]:
    """Make a decorator from a check that runs before the body is read, so that an unknown id is 404, not 400.

    The check gets the path's parameters. The decorator stands below the access decorator.
    """

    def decorate(view: bodies.View) -> bodies.View:
        read = by_signature(view)

        @wraps(read)
        async def run(**parameters: Any) -> Any:
            await check(**parameters)
            return await read(**parameters)

        return run

    return decorate
