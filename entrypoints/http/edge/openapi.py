"""The API description (OpenAPI 3.1): the output of quart-schema, completed.

quart-schema describes the models of a route. This module adds unique operation ids, path
parameters, responses without a model, and one shared component per model. The error responses and
the security entry of a route follow from its access decorator, so they cannot disagree with it.
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
from entrypoints.http.edge.error_body import SCIM_JSON, speaks_scim
from entrypoints.http.edge.limits import RateLimits
from entrypoints.http.edge.openapi_components import ERROR_SCHEMAS, share_models
from entrypoints.version import VERSION

V = TypeVar("V", bound=Callable[..., Any])

_DESCRIPTION = "_description"
_REFUSES = "_refuses"
_OAUTH = "_oauth"
_PARAMETERS = "_parameters"
_BOTH = "_both"
_SUCCESS_PAGE = "_success_page"
PAGE = "text/html"

ABOUT = """A self-hosted, multi-tenant single sign-on and identity platform.

Sign in with `POST /api/auth/login`, then send `Authorization: Bearer <access_token>`. Errors have one format outside of SCIM: `error` is a
message for people, `error_code` is a stable code for programs."""


@dataclass(frozen=True, slots=True)
class Description:
    """The documentation of a route that has no models."""

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
    """Document a route that has no models.

    `answers` maps statuses to descriptions. `query` and `optional` are required and optional query
    parameters, `form` the fields of a form, `body` and `shows` the schemas of the JSON request and
    response. `changes_state` marks a GET route with side effects, such as a link in an email. HEAD
    must not cause them (security G-2).
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
    """Document a page for browsers. Its errors are pages too."""
    return describes(answers, content_type=PAGE, query=query, optional=optional, form=form, changes_state=changes_state)


def serves_both(view: V) -> V:
    """Mark a route that serves programs and browsers. Clients that accept HTML get pages."""
    setattr(view, _BOTH, True)
    return view


def succeeds_with_page(view: V) -> V:
    """Mark a route that answers success with a page, unless the client asks for JSON."""
    setattr(view, _SUCCESS_PAGE, True)
    return view


def is_page(view: Callable[..., Any]) -> bool | None:
    """Return whether this route is a page for browsers, or None if programs call it too."""
    if getattr(view, _BOTH, False):
        return None
    description: Description | None = getattr(view, _DESCRIPTION, None)
    return description is not None and description.content_type == PAGE


def changes_state(view: Callable[..., Any]) -> bool:
    """Return whether GET on this route has side effects."""
    description: Description | None = getattr(view, _DESCRIPTION, None)
    return description is not None and description.changes_state


def speaks_oauth(view: V) -> V:
    """Mark a route for OAuth clients, which get errors in the format of OAuth (decision 94)."""
    setattr(view, _OAUTH, True)
    return view


def is_oauth(view: Callable[..., Any] | None) -> bool:
    """Return whether this route is for OAuth clients. None stands for an unknown route."""
    return getattr(view, _OAUTH, False)


def takes(model: type[BaseModel]) -> Callable[[V], V]:
    """Document the model of a request body that clients send as a form or as JSON."""

    def decorate(view: V) -> V:
        setattr(view, _PARAMETERS, model)
        return view

    return decorate


def refuses(*statuses: int) -> Callable[[V], V]:
    """Document error statuses beyond those that follow from the route's access and body."""

    def decorate(view: V) -> V:
        setattr(view, _REFUSES, frozenset(statuses))
        return view

    return decorate


ERRORS = {
    400: "The request is not valid.",
    401: "Credentials are missing, expired or not valid.",
    403: "The caller is not allowed to do this.",
    404: "The resource does not exist, or the caller cannot see it.",
    409: "The request conflicts with something that already exists.",
    413: "The body is too large.",
    415: "The content type of the body is not supported.",
    429: "Too many requests. `Retry-After` is the number of seconds to wait.",
    500: "The server failed. Nothing was changed.",
    501: "This is not supported.",
}

# Browsers without a session are redirected.
SIGN_IN_REDIRECT = {303: {"description": "The browser is not signed in, and is redirected to the sign-in page."}}

PATH_PARAMETERS = {
    "org_slug": "The slug of the organization.",
    "service_slug": "The slug of the service.",
    "provider": "The identity provider: `codehost`, `websuite` or `officesuite`.",
    "org_id": "The id of the organization.",
    "user_id": "The id of the user.",
    "device_id": "The id of the device.",
    "session_id": "The id of the session.",
    "service_id": "The id of the service.",
    "plan_id": "The id of the plan.",
    "key_id": "The id of the API key.",
    "token_id": "The id of the SCIM token.",
    "group_id": "The id of the group. The only group is the organization, and has its id.",
    "invitation_id": "The id of the invitation.",
    "webhook_id": "The id of the webhook.",
    "delivery_id": "The id of the delivery.",
    "api_key_id": "The id of the API key.",
    "resource_type": "The resource type: `User` or `Group`.",
    "schema_id": "The URN of the schema.",
    "subscription_id": "The id of the subscription.",
    "name": "The name of the file.",
}

FORM_FIELDS = {
    "form_token": "The form token of the page, which proves that the page is ours.",
    "answer": "`continue` or `refuse`.",
    "code": "The 6-digit code of the authenticator app, or a backup code.",
    "email": "The email address.",
    "name": "The new name.",
    "new_password": "The new password.",
    "password": "The password.",
    "token": "The one-time token of the link in the email.",
    "SAMLRequest": "The SAML request, encoded in Base64.",
    "SAMLResponse": "The SAML response, encoded in Base64.",
    "user_code": "The code that the device shows.",
    "action": "`approve` or `deny`.",
}

# The description documents the default limits, even where an operator has changed them.
DOCUMENTED_LIMITS = RateLimits(1.0, 1.0)


def operation_id(rule: Rule) -> str:
    """Return the operation id: the name of the blueprint and of the handler."""
    endpoint: str = rule.endpoint
    return endpoint.replace(".", "_")


class Provider(OpenAPIProvider):
    """The generator of quart-schema, with the gaps filled."""

    def schema(self) -> dict[str, Any]:
        schema = super().schema()
        schema["components"]["schemas"] |= ERROR_SCHEMAS
        schema["components"]["schemas"] = dict(sorted(schema["components"]["schemas"].items()))
        schema["paths"] = dict(sorted(schema["paths"].items()))
        share_models(schema)
        return schema

    def build_paths(self, rule: Rule) -> tuple[dict[str, Any], dict[str, Any]]:
        paths, components = super().build_paths(rule)
        paths = {path: dict(sorted(operations.items())) for path, operations in paths.items()}  # the methods of a rule have no order
        view = self._app.view_functions[rule.endpoint]
        description: Description | None = getattr(view, _DESCRIPTION, None)
        for path in paths.values():
            for method, operation in path.items():
                operation["tags"] = [rule.endpoint.partition(".")[0]]
                operation["operationId"] = operation_id(rule)
                for parameter in operation["parameters"]:
                    if parameter["in"] == "path":
                        parameter["description"] = PATH_PARAMETERS[parameter["name"]]
                    elif "description" in parameter["schema"]:
                        parameter["description"] = parameter["schema"].pop("description")
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
                    **(SIGN_IN_REDIRECT if access.security == "cookie" else {}),
                    **_errors(rule, method, access, operation, view),
                    **operation["responses"],
                    **(_answers(description) if description else {}),
                }
                operation["responses"] = {str(status): answer for status, answer in sorted(operation["responses"].items())}
                _add_pages(view, operation["responses"])
                for answer in operation["responses"].values():
                    if answer["description"] == getdoc(list):  # quart-schema takes the description of a list from Python
                        answer["description"] = "The list."
                if "requestBody" in operation:
                    content = next(iter(operation["requestBody"]["content"].values()))
                    operation["requestBody"]["required"] = not {"required", "minProperties"}.isdisjoint(content["schema"])
                if description:
                    operation["parameters"] = [*operation["parameters"], *_parameters(description)]
        return paths, components


def _errors(rule: Rule, method: str, access: Access, operation: dict[str, Any], view: Callable[..., Any]) -> dict[int, Any]:
    page = is_page(view)
    statuses = {500, *getattr(view, _REFUSES, frozenset())}
    if method in ("post", "put", "patch") or "requestBody" in operation:
        statuses.add(413)  # the middleware limits every body, even if the route reads none
    if access.security is not None and not page:  # pages redirect to the sign-in page instead
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
        content = {PAGE: {"schema": {"type": "string"}}, **content}  # JSON for clients that do not accept HTML
    return {status: {"description": ERRORS[status], "content": content} for status in statuses}


def _add_pages(view: Callable[..., Any], answers: dict[str, Any]) -> None:
    """Add the pages of a route that also answers with JSON. The default comes first."""
    page = {PAGE: {"schema": {"type": "string"}}}
    for status, answer in answers.items():
        if getattr(view, _SUCCESS_PAGE, False) and status == "200":
            answer["content"] = {**page, **answer["content"]}
        if getattr(view, _BOTH, False) and "content" in answer:
            answer["content"] = {**answer["content"], **page}


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
    fields = {name: {"type": "string", "description": FORM_FIELDS[name]} for name in description.form}
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


def describe_interface(app: Quart, tags: Mapping[str, str]) -> None:
    """Let quart-schema read the routes. Its own pages stay off, because they load assets from other hosts."""
    QuartSchema(
        app,
        openapi_path=None,
        redoc_ui_path=None,
        scalar_ui_path=None,
        swagger_ui_path=None,
        info=Info(title="Gatehouse", version=VERSION, description=ABOUT),
        servers=[{"url": "/"}],  # relative, so that the page calls the host it was loaded from
        tags=[Tag(name=name, description=description) for name, description in tags.items()],
        security_schemes={
            "bearer": HttpSecurityScheme(scheme="bearer", bearer_format="JWT"),
            "scim_token": HttpSecurityScheme(scheme="bearer"),
            "api_key": APIKeySecurityScheme(name="X-Api-Key", in_="header"),
            "billing_signature": APIKeySecurityScheme(name="billing-signature", in_="header"),
            # With https the name starts with `__Host-` (security G-2). The description is the same
            # for all installations.
            "cookie": APIKeySecurityScheme(name="gatehouse-session", in_="cookie"),
        },
        conversion_preference="pydantic",
        openapi_provider_class=Provider,
    )


def interface_description(app: Quart) -> dict[str, Any]:
    """Return the API description.

    Raises: ValueError if two operations have the same id, or two different models the same name.
    """
    document: dict[str, Any] = app.extensions["QUART_SCHEMA"].openapi_provider.schema()
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    duplicates = {name for name in ids if ids.count(name) > 1}
    if duplicates:
        raise ValueError(f"operation ids used twice: {sorted(duplicates)}")
    return document
