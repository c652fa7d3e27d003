"""The interface description (OpenAPI 3.1): what quart-schema makes of the routes, and what it needs help with.

The help: unique operation ids, one name for one model, answers of pages and other routes without a model, the error answers that follow
from a route's access, and the security entry, which is taken from the access decorator, so that it cannot disagree with it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from inspect import getdoc
from typing import Any, TypeVar

from pydantic import BaseModel
from quart import Quart
from quart_schema import Info, OpenAPIProvider, QuartSchema, Tag
from quart_schema.openapi import APIKeySecurityScheme, HttpSecurityScheme
from werkzeug.routing.rules import Rule

from entrypoints.http.edge.access import Access, access_of
from entrypoints.http.edge.error_body import SCIM_ERROR, SCIM_JSON, speaks_scim
from entrypoints.http.edge.limits import RateLimits
from entrypoints.version import VERSION

V = TypeVar("V", bound=Callable[..., Any])

_DESCRIPTION = "_description"
_REFUSES = "_refuses"
_OAUTH = "_oauth"
_PARAMETERS = "_parameters"
_BOTH = "_both"
PAGE = "text/html"

ABOUT = """A self-hosted, multi-tenant single-sign-on and identity platform.

Sign in with `POST /api/auth/login`, then send `Authorization: Bearer <access_token>`. Every error has the same body: `error` is for people,
`error_code` for programs."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a route without models answers and takes."""

    answers: Mapping[int, str]
    content_type: str | None
    query: Mapping[str, str] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)
    form: tuple[str, ...] = ()
    changes_state: bool = False
    body: Mapping[str, Any] | None = None
    shows: Mapping[str, Any] | None = None


def describes(
    answers: Mapping[int, str],
    *,
    content_type: str | None = None,
    query: Mapping[str, str] | None = None,
    optional: Mapping[str, str] | None = None,
    form: Iterable[str] = (),
    changes_state: bool = False,
    body: Mapping[str, Any] | None = None,
    shows: Mapping[str, Any] | None = None,
) -> Callable[[V], V]:
    """Say what a route answers that has no model: sentences by status, the content type, query parameters, required and optional ones,
    form fields, and the schemas of a JSON body and of a JSON answer.

    `changes_state` says that GET changes something, as following the link of a mail does: HEAD then must not (security.md G-2).
    """

    def decorate(view: V) -> V:
        described = Description(answers, content_type, query or {}, optional or {}, tuple(form), changes_state, body, shows)
        setattr(view, _DESCRIPTION, described)
        return view

    return decorate


def describes_page(
    answers: Mapping[int, str],
    *,
    query: Mapping[str, str] | None = None,
    optional: Mapping[str, str] | None = None,
    form: Iterable[str] = (),
    changes_state: bool = False,
) -> Callable[[V], V]:
    """The same for a page that browsers visit: its errors are pages, too."""
    return describes(answers, content_type=PAGE, query=query, optional=optional, form=form, changes_state=changes_state)


def serves_both(view: V) -> V:
    """Say that programs call a route as well as people visit it: whoever asks for HTML sees pages."""
    setattr(view, _BOTH, True)
    return view


def is_page(view: Callable[..., Any]) -> bool | None:
    """Whether people visit this route with a browser; None where programs call it as well."""
    if getattr(view, _BOTH, False):
        return None
    description: Description | None = getattr(view, _DESCRIPTION, None)
    return description is not None and description.content_type == PAGE


def changes_state(view: Callable[..., Any]) -> bool:
    """Whether GET changes something."""
    description: Description | None = getattr(view, _DESCRIPTION, None)
    return description is not None and description.changes_state


def speaks_oauth(view: V) -> V:
    """Say that a route is called by clients of OAuth, to whom errors are told as these expect it (decisions, point 94)."""
    setattr(view, _OAUTH, True)
    return view


def is_oauth(view: Callable[..., Any] | None) -> bool:
    """Whether clients of OAuth call this route; None is no route."""
    return getattr(view, _OAUTH, False)


def takes(model: type[BaseModel]) -> Callable[[V], V]:
    """Say what a route takes as a form or as JSON, whichever a client likes better."""

    def decorate(view: V) -> V:
        setattr(view, _PARAMETERS, model)
        return view

    return decorate


def refuses(*statuses: int) -> Callable[[V], V]:
    """Say which errors a route can answer besides those that follow from its access and its body."""

    def decorate(view: V) -> V:
        setattr(view, _REFUSES, frozenset(statuses))
        return view

    return decorate


ERRORS = {
    400: "The request is not valid.",
    401: "Credentials are missing, expired or not valid.",
    403: "Not allowed.",
    404: "There is no such thing.",
    409: "In conflict with something that exists.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "Too many requests; `Retry-After` says when to come back.",
    500: "Something failed on the server's side.",
    501: "This is not supported.",
}

# What browsers are told that are not signed in.
ELSEWHERE = {303: {"description": "Not signed in in this browser: on to the page to do that."}}

ERROR_SCHEMA = {
    "type": "object",
    "title": "Error",
    "required": ["error", "error_code", "timestamp"],
    "properties": {
        "error": {"type": "string", "description": "What went wrong, for people."},
        "error_code": {"type": "string", "description": "What went wrong, for programs.", "examples": ["BAD_REQUEST"]},
        "timestamp": {"type": "string", "format": "date-time"},
    },
}

OAUTH_ERROR_SCHEMA = {
    "type": "object",
    "title": "OAuthError",
    "required": ["error", "error_description", "error_code", "timestamp"],
    "properties": {
        "error": {"type": "string", "description": "What went wrong, as RFC 6749 and RFC 8628 call it.", "examples": ["invalid_grant"]},
        "error_description": {"type": "string", "description": "What went wrong, for people."},
        "error_code": {"type": "string", "description": "What went wrong, as everywhere else here.", "examples": ["BAD_REQUEST"]},
        "timestamp": {"type": "string", "format": "date-time"},
    },
}

SCIM_ERROR_SCHEMA = {
    "type": "object",
    "title": "ScimError",
    "required": ["schemas", "status", "detail"],
    "properties": {
        "schemas": {"type": "array", "items": {"type": "string"}, "examples": [[SCIM_ERROR]]},
        "status": {"type": ["integer", "string"], "description": "The status of the answer."},
        "scimType": {"type": "string", "description": "What went wrong, as RFC 7644 calls it.", "examples": ["invalidFilter"]},
        "detail": {"type": "string", "description": "What went wrong, for people."},
    },
}

# The description is that of the interface, whatever this installation has switched off.
DOCUMENTED_LIMITS = RateLimits(1.0, 1.0)


class Provider(OpenAPIProvider):
    """quart-schema's description with the gaps filled."""

    def schema(self) -> dict[str, Any]:
        schema = super().schema()
        schema["components"]["schemas"]["Error"] = ERROR_SCHEMA
        schema["components"]["schemas"]["OAuthError"] = OAUTH_ERROR_SCHEMA
        schema["components"]["schemas"]["ScimError"] = SCIM_ERROR_SCHEMA
        schema["components"]["schemas"] = dict(sorted(schema["components"]["schemas"].items()))
        schema["paths"] = dict(sorted(schema["paths"].items()))
        return schema

    def operation_id(self, method: str, path: str, func: Callable[..., Any]) -> str:
        return f"{func.__module__.rpartition('.')[2]}_{func.__name__}"

    def build_paths(self, rule: Rule) -> tuple[dict[str, Any], dict[str, Any]]:
        paths, components = super().build_paths(rule)
        paths = {path: dict(sorted(operations.items())) for path, operations in paths.items()}  # the methods of a rule are a set
        view = self._app.view_functions[rule.endpoint]
        description: Description | None = getattr(view, _DESCRIPTION, None)
        for path in paths.values():
            for method, operation in path.items():
                operation["tags"] = [rule.endpoint.partition(".")[0]]
                if len(path) > 1:  # one function for several methods
                    operation["operationId"] += f"_{method}"
                if description and description.form:
                    operation["requestBody"] = _form(description)
                if description and description.body is not None:
                    operation["requestBody"] = _json(description.body)
                if hasattr(view, _PARAMETERS):
                    operation["requestBody"] = _either(getattr(view, _PARAMETERS))
                access = access_of(view)
                if access.security is not None:
                    other: list[dict[str, list[str]]] = [{"cookie": []}] if access.or_cookie else [{}] if access.optional else []
                    operation["security"] = [{access.security: []}, *other]
                operation["responses"] = {
                    **(ELSEWHERE if access.security == "cookie" else {}),
                    **_errors(rule, method, access, operation, view),
                    **operation["responses"],
                    **(_answers(description) if description else {}),
                }
                operation["responses"] = {str(status): answer for status, answer in sorted(operation["responses"].items())}
                for answer in operation["responses"].values():
                    if answer["description"] == getdoc(list):  # of a list, quart-schema says what Python says of lists
                        answer["description"] = "A list."
                if "requestBody" in operation:
                    content = next(iter(operation["requestBody"]["content"].values()))
                    operation["requestBody"]["required"] = "required" in content["schema"]
                if description:
                    operation["parameters"] = [*operation["parameters"], *_parameters(description)]
        return paths, components


def _errors(rule: Rule, method: str, access: Access, operation: dict[str, Any], view: Callable[..., Any]) -> dict[int, Any]:
    page = is_page(view)
    statuses = {500, *getattr(view, _REFUSES, frozenset())}
    if method in ("post", "put", "patch") or "requestBody" in operation:
        statuses.add(413)  # also where nothing reads the body: it is measured on its way in, and clients of these methods may send one
    if access.security is not None and not page:  # a page sends whoever is not signed in to sign in
        statuses |= {401, 403}
    if "requestBody" in operation:
        statuses |= {400, 415}
    if access.limited and DOCUMENTED_LIMITS.of(rule.rule, access.limits):
        statuses.add(429)
    if rule.arguments:
        statuses.add(404)
    body = "ScimError" if speaks_scim(rule.rule) else "OAuthError" if is_oauth(view) else "Error"
    content_type = SCIM_JSON if speaks_scim(rule.rule) else "application/json"
    content: dict[str, Any] = {content_type: {"schema": {"$ref": f"#/components/schemas/{body}"}}}
    if page:
        content = {PAGE: {"schema": {"type": "string"}}, **content}  # the latter for whoever asks for it
    return {status: {"description": ERRORS[status], "content": content} for status in statuses}


def _answers(description: Description) -> dict[int, Any]:
    def content(status: int) -> dict[str, Any]:
        if description.content_type is None or status in (204, 301, 302, 303):
            return {}
        schema = description.shows or {"type": "object" if "json" in description.content_type else "string"}
        return {"content": {description.content_type: {"schema": dict(schema)}}}

    return {status: {"description": sentence, **content(status)} for status, sentence in description.answers.items()}


def _parameters(description: Description) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "required": name in description.query, "description": sentence, "schema": {"type": "string"}}
        for name, sentence in {**description.query, **description.optional}.items()
    ]


def _form(description: Description) -> dict[str, Any]:
    fields = {name: {"type": "string"} for name in description.form}
    return {
        "required": True,
        "content": {
            "application/x-www-form-urlencoded": {
                "schema": {"type": "object", "required": list(description.form), "properties": fields},
            }
        },
    }


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": {SCIM_JSON: {"schema": dict(schema)}, "application/json": {"schema": dict(schema)}}}


def _either(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    return {"content": {"application/x-www-form-urlencoded": {"schema": schema}, "application/json": {"schema": schema}}}


def describe_interface(app: Quart) -> None:
    """Let quart-schema read the routes. Its own pages stay off: they load their assets from elsewhere."""
    QuartSchema(
        app,
        openapi_path=None,
        redoc_ui_path=None,
        scalar_ui_path=None,
        swagger_ui_path=None,
        info=Info(title="Gatehouse", version=VERSION, description=ABOUT),
        servers=[{"url": "/"}],  # relative, so that the page tries out the very address it was opened at
        tags=[Tag(name=area) for area in app.blueprints],  # in the order in which the areas were registered
        security_schemes={
            "bearer": HttpSecurityScheme(scheme="bearer", bearer_format="JWT"),
            "scim_token": HttpSecurityScheme(scheme="bearer"),
            "api_key": APIKeySecurityScheme(name="X-Api-Key", in_="header"),
            "billing_signature": APIKeySecurityScheme(name="billing-signature", in_="header"),
            # Under https its name begins with `__Host-` (security.md G-2); the description is the same for every installation.
            "cookie": APIKeySecurityScheme(name="gatehouse-session", in_="cookie"),
        },
        conversion_preference="pydantic",
        openapi_provider_class=Provider,
    )


def interface_description(app: Quart) -> dict[str, Any]:
    """The document. Raises ValueError where two operations have one id, or two models one name."""
    document: dict[str, Any] = app.extensions["QUART_SCHEMA"].openapi_provider.schema()
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    twice = {name for name in ids if ids.count(name) > 1}
    if twice:
        raise ValueError(f"operation ids used twice: {sorted(twice)}")
    return document
