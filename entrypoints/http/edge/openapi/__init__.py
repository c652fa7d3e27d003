"""A route's documentation in the API description, and the decorators that add to it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, TypeVar, Unpack

from pydantic import BaseModel

V = TypeVar("V", bound=Callable[..., Any])

_DOCS = "_route_docs"
PAGE = "text/html"


class Details(TypedDict, total=False):
    """The optional documentation for a route that has no models."""

    query: Mapping[str, str]  # required query parameters with their descriptions
    optional: Mapping[str, str]  # optional query parameters
    form: Sequence[str] | Mapping[str, str]  # the required form fields by name, or the optional form fields with their descriptions
    other_content_types: Sequence[str]  # content types of the same responses, beside `content_type`
    changes_state: bool  # GET has side effects, as for a link in an email; HEAD must not cause them (security G-2)
    request_schema: Mapping[str, Any]  # schema of the JSON body
    response_schema: Mapping[str, Any]  # schema of a response with JSON
    api: Sequence[str]  # the API operations that do what the page does, the main operation first: `GET /api/organizations`


@dataclass(frozen=True, slots=True)
class RouteDocs:
    """A route's documentation, in addition to its models. Decorators in this module add to it."""

    responses: Mapping[int, str] = field(default_factory=dict)  # statuses with their descriptions
    content_type: str | None = None  # the responses' content type
    query: Mapping[str, str] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)
    form: Sequence[str] | Mapping[str, str] = ()
    other_content_types: Sequence[str] = ()
    changes_state: bool = False
    request_schema: Mapping[str, Any] | None = None
    response_schema: Mapping[str, Any] | None = None
    api: Sequence[str] = ()
    takes_image: bool = False  # the request body is an image
    form_or_json: type[BaseModel] | None = None  # the model for a body in either format
    errors: frozenset[int] = frozenset()  # further statuses, which do not follow from the route's access and body
    security: Sequence[Mapping[str, Sequence[str]]] = ()  # alternative security schemes, if the route authenticates its callers itself
    has_version: bool = False  # responses with a model have an `ETag`
    takes_version: bool = False  # the request can have `If-Match`
    for_oauth: bool = False
    any_origin: bool = False
    for_both: bool = False  # programs and browsers
    succeeds_with_page: bool = False
    program_response: type[BaseModel] | None = None  # a page's answer to clients that prefer JSON

    @property
    def is_page(self) -> bool | None:
        """Return whether the route is a page or a page's file, for browsers, or None if programs call it too."""
        return None if self.for_both else self.content_type == PAGE or bool(self.api)


def docs_of(view: Callable[..., Any] | None) -> RouteDocs:
    """Return a route's documentation. None stands for an unknown route."""
    docs: RouteDocs = getattr(view, _DOCS, RouteDocs())
    return docs


def _document(**parts: Any) -> Callable[[V], V]:
    def decorate(view: V) -> V:
        setattr(view, _DOCS, replace(docs_of(view), **parts))
        return view

    return decorate


def describes(responses: Mapping[int, str], *, content_type: str | None = None, **details: Unpack[Details]) -> Callable[[V], V]:
    """Document a route that has no models. `responses` maps statuses to descriptions."""
    return _document(responses=responses, content_type=content_type, **details)


def describes_page(responses: Mapping[int, str], **details: Unpack[Details]) -> Callable[[V], V]:
    """Document a page for browsers. Its errors are pages too."""
    return describes(responses, content_type=PAGE, **details)


def refuses(*statuses: int) -> Callable[[V], V]:
    """Document further error statuses, which do not follow from the route's access and body."""
    return _document(errors=frozenset(statuses))


def takes(model: type[BaseModel]) -> Callable[[V], V]:
    """Document the model for a request body that clients send as a form or as JSON."""
    return _document(form_or_json=model)


def takes_image(view: V) -> V:
    """Mark a route that takes an uploaded image as its request body."""
    return _document(takes_image=True)(view)


def serves_both(view: V) -> V:
    """Mark a route that serves programs and browsers. Clients that accept HTML get pages."""
    return _document(for_both=True)(view)


def succeeds_with_page(view: V) -> V:
    """Mark a route that answers success with a page, unless the client asks for JSON."""
    return _document(succeeds_with_page=True)(view)


def answers_programs(model: type[BaseModel]) -> Callable[[V], V]:
    """Document the JSON that a page answers to clients that prefer it, if the request succeeds. Another operation has this model, too."""
    return _document(program_response=model)


def has_version(view: V) -> V:
    """Mark a route that answers with its resource's version in `ETag` (`edge.versions`)."""
    return _document(has_version=True)(view)


def takes_version(view: V) -> V:
    """Mark a route that takes `If-Match`, refuses an old version with 412, and answers with `ETag` (`edge.versions`)."""
    return _document(has_version=True, takes_version=True)(view)


def speaks_oauth(view: V) -> V:
    """Mark a route for OAuth clients, which get errors in OAuth's format."""
    return _document(for_oauth=True)(view)


def authenticates(*alternatives: Mapping[str, Sequence[str]]) -> Callable[[V], V]:
    """Document the security schemes for a route that authenticates its callers itself, with the scopes that it needs."""
    return _document(security=alternatives)


def any_origin(view: V) -> V:
    """Let scripts from every origin call a route that has no path parameters and reads no cookies (security G-3)."""
    return _document(any_origin=True)(view)
