"""How errors become HTTP: a refusal's status, its challenge, and its body for API clients, OAuth, SCIM and browsers.

Sources: RFC 6750 section 3, RFC 9449 section 7.1, RFC 9470 and RFC 9728 section 5.1.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

import structlog
from quart import Quart, Response, current_app, request
from werkzeug.datastructures import MIMEAccept
from werkzeug.exceptions import HTTPException, MethodNotAllowed, UnsupportedMediaType
from werkzeug.http import parse_accept_header

from core.applications.model.api_keys import ApiKeyInvalid
from core.authentication import browser
from core.authentication.model import dpop
from core.billing.model.provider_events import SignatureInvalid
from core.kernel import errors
from core.kernel.api_scopes import ScopeInsufficient
from core.kernel.policy import SupportContact
from core.kernel.sign_in_age import AuthenticationInsufficient
from core.tenancy.model.organizations import ApplicationClosed
from entrypoints.http.base import context, cookies, redirects
from entrypoints.http.base.rendering import templates
from entrypoints.http.edge.access import declaration
from entrypoints.http.edge.error_body import (
    NO_FIELDS,
    SCIM_JSON,
    SENTENCES,
    code_of,
    error_body,
    internal_error_message,
    oauth_error_body,
    oauth_error_of,
    scim_error_body,
    speaks_scim,
)
from entrypoints.http.edge.openapi import docs_of
from entrypoints.http.edge.proofs import NONCE_HEADER
from entrypoints.http.edge.validation import FieldsInvalid

log = structlog.get_logger("http")

STATUS: dict[type[Exception], int] = {
    errors.Invalid: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.PreconditionFailed: 412,
    errors.Limited: 429,
    errors.Unsupported: 501,
    errors.Outage: 500,
}

# Seconds that a client should wait before it tries again while the database is down.
STORAGE_RETRY_AFTER = 5

TITLES = {
    400: "This request didn't work",
    403: "Access denied",
    404: "Page not found",
    429: "Too many requests",
    500: "Something went wrong",
}
NOT_ACTIVE: Final = "This organization isn't active"


def status_of(error: Exception) -> int:
    """Return the HTTP status for a refusal or an outage: the status of its nearest base class in STATUS."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def page_status_of(error: Exception) -> int:
    """Return the status of the page for a refusal or an outage.

    It is 403 if the sign-in is not enough, because a 401 challenge is for programs.
    """
    return 403 if isinstance(error, AuthenticationInsufficient) else status_of(error)


class ErrorResponse:
    """The response to an error: status, code, message, headers, OAuth and SCIM error codes, and further body members."""

    __slots__ = ("code", "fields", "headers", "message", "oauth_error", "scim_type", "status")

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        headers: dict[str, str] | None = None,
        oauth_error: str | None = None,
        scim_type: str | None = None,
        fields: Mapping[str, str] = NO_FIELDS,
    ) -> None:
        self.status = status
        self.message = message
        self.code = code or code_of(status)
        self.headers = headers or {}
        self.oauth_error = oauth_error or oauth_error_of(status)
        self.scim_type = scim_type
        self.fields = fields


def _answer(error: Exception) -> ErrorResponse:
    error = _innermost(error)
    match error:
        case errors.Refusal():
            status, headers = status_of(error), _headers(error)
            return ErrorResponse(status, error.message, error.code, headers, error.oauth_error, error.scim_type, error.fields)
        case errors.StorageDown():
            log.error("storage_down", request_id=context.request_record().request_id, error=str(error.__cause__ or error))
            return ErrorResponse(500, errors.StorageDown.__doc__ or "", error.code, {"Retry-After": str(STORAGE_RETRY_AFTER)})
        case errors.Outage():
            log.error("outage", request_id=context.request_record().request_id, error=str(error), kind=type(error).__name__)
            return ErrorResponse(500, (type(error).__doc__ or "").strip(), error.code)
        case FieldsInvalid():
            return ErrorResponse(400, str(error))
        case MethodNotAllowed():
            return ErrorResponse(405, SENTENCES[405], headers={"Allow": ", ".join(sorted({*(error.valid_methods or ()), "OPTIONS"}))})
        case UnsupportedMediaType() if error.description and error.description != UnsupportedMediaType.description:
            return ErrorResponse(415, error.description)
        case HTTPException(code=int(code)) if code < 500:
            return ErrorResponse(code, SENTENCES.get(code) or HTTPStatus(code).description or HTTPStatus(code).phrase)
    log.error("unexpected", request_id=context.request_record().request_id, exc_info=error)
    return ErrorResponse(500, internal_error_message(context.request_record().request_id))


def _innermost(error: Exception) -> Exception:
    """Return the error inside groups with a single error. A nursery wraps its tasks' errors."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _headers(refusal: errors.Refusal) -> dict[str, str]:
    if isinstance(refusal, errors.Limited):
        return {"Retry-After": str(refusal.retry_after)}
    view, is_bound = _view(), request.headers.get("Authorization", "")[:5].lower() == "dpop "
    header = challenge(
        refusal, None if view is None else declaration.access_of(view), request.method, context.app_context().base_url, is_bound=is_bound
    )
    headers = {} if header is None else {"WWW-Authenticate": header}
    return {**headers, NONCE_HEADER: refusal.nonce} if isinstance(refusal, dpop.NonceMissing | dpop.NonceRequired) else headers


def wants_page() -> bool:
    """Return whether the response to this request is a page."""
    return prefers_page(_view(), request.path, request.headers.get("Accept"))


def _view() -> Callable[..., Any] | None:
    """Return the request's view, or, if its URL does not support the method, the view for another method there."""
    if request.url_rule is not None:
        return current_app.view_functions[request.url_rule.endpoint]
    problem = request.routing_exception
    if not isinstance(problem, MethodNotAllowed) or not problem.valid_methods:
        return None
    endpoint, _ = current_app.url_map.bind("").match(request.path, next(iter(problem.valid_methods)))
    return current_app.view_functions[endpoint]


def prefers_page(view: Callable[..., Any] | None, path: str, accept: str | None) -> bool:
    """Return whether to respond with a page: on routes for browsers, unless the client prefers JSON (security N-8).

    Without a route, the path decides. If the path is not known either, a client gets a page only if it accepts HTML.
    """
    accepted = parse_accept_header(accept, MIMEAccept)
    for_people = docs_of(view).is_page if view is not None else _is_for_people(path)
    if for_people is None:
        return "text/html" in [kind for kind, _ in accepted]
    return for_people and accepted.best_match(["text/html", "application/json"]) != "application/json"


_WITH_LISTS: Final = ("/app/organizations/", "/app/platform/", "/app/account/")
_FOR_PROGRAMS: Final = (
    "/api/",
    "/webhooks/",
    "/auth/token",
    "/auth/par",
    "/auth/register",
    "/auth/revoke",
    "/auth/introspect",
    "/auth/userinfo",
    "/auth/device/",
    "/health/",
    "/.well-known/",
)


def _is_for_people(path: str) -> bool | None:
    if speaks_scim(path) or path.startswith(_FOR_PROGRAMS):
        return False
    return True if path.startswith(("/auth/", "/app/", "/invitations/", "/saml/")) else None


def error_page(
    status: int,
    message: str,
    request_id: str,
    support: SupportContact | None,
    *,
    title: str | None = None,
    without_query: str | None = None,
    end_token: str | None = None,
    way_back: tuple[str, str] | None = None,
) -> templates.Page:
    """Return the page for an error.

    Without `title`, the status gives the title.

    `without_query` is the same page's path without its query, to which the page leads. `end_token` is the form token that ends an
    impersonation, during which the page says so. `way_back` is the label and the path for its first button.
    """
    return templates.render(
        "error.html" if end_token is None else "error_impersonated.html",
        status=status,
        support=support,
        title=title or TITLES.get(status, TITLES[400]),
        message=message,
        request_id=request_id,
        without_query=without_query,
        end_token=end_token,
        way_back=way_back,
    )


def _end_token() -> str | None:
    """Return the form token that ends the impersonation in this request, or None if nobody is impersonated."""
    secret = cookies.SESSION.read()
    return browser.form_token(secret) if secret and context.request_record().impersonator is not None else None


def _way_back() -> tuple[str, str] | None:
    """Return the label and the path for a button on the page for an error. The view can set them. A sign-in form leads to its page."""
    if context.request_record().way_back is None and request.method == "POST" and "flow_id" in (request.view_args or {}):
        return "Back to the sign-in", redirects.page_of_form(request.path)  # refused before the view, such as by a rate limit
    return context.request_record().way_back


async def _explained(error: Exception) -> Exception:
    """Return the error as this browser's user may see it. An organization's admins see why its application is closed."""
    refusal, cookie = _innermost(error), cookies.SESSION.read()
    if not isinstance(refusal, ApplicationClosed) or cookie is None or not wants_page():
        return error
    with suppress(errors.Outage):
        return await browser.explain_closed(context.app_context().ports, context.anonymous(), cookie, refusal)
    return error


async def respond(error: Exception) -> Response:
    """Return the response to any error."""
    error = await _explained(error)
    answer = _answer(error)
    context.request_record().error_code = answer.code
    if speaks_scim(request.path):
        if (call := context.directory_call()) is not None:
            # A message may repeat a value from the request. The text in its class does not.
            kind = " ".join((type(_innermost(error)).__doc__ or "").split())
            call.scim_type, call.error = (
                answer.scim_type,
                kind if isinstance(_innermost(error), errors.Refusal) else SENTENCES.get(answer.status),
            )
        body = scim_error_body(answer.status, answer.message, answer.scim_type, as_text=context.app_context().scim_string_status)
        return Response(body, answer.status, answer.headers, content_type=SCIM_JSON)
    if wants_page():
        if isinstance(error, MethodNotAllowed) and request.method in ("GET", "HEAD"):
            return redirects.redirect(redirects.page_of_form(request.path))  # the user opened the address that a form posts to
        if isinstance(_innermost(error), AuthenticationInsufficient):
            answer.status, answer.headers = page_status_of(_innermost(error)), {}
        is_list = answer.status == 400 and request.method == "GET" and request.path.startswith(_WITH_LISTS) and request.query_string
        support, without_query = context.app_context().ports.policy.support, request.path if is_list else None
        title = NOT_ACTIVE if isinstance(_innermost(error), errors.OrganizationNotActive) else None
        page = error_page(
            answer.status,
            answer.message,
            context.request_record().request_id,
            support,
            without_query=without_query,
            end_token=_end_token(),
            way_back=_way_back(),
            title=title,
        )
        return Response(page.body, page.status, {**page.headers, **answer.headers})
    body = error_body(answer.message, answer.code, answer.fields)
    if docs_of(_view()).for_oauth:
        body = oauth_error_body(answer.message, answer.code, answer.oauth_error, answer.fields)
    return Response(body, answer.status, answer.headers, content_type="application/json")


def handle_errors(app: Quart) -> None:
    """Register the handler for all errors, including the framework's."""
    app.register_error_handler(Exception, respond)


RESOURCE_METADATA_PATH: Final = "/.well-known/oauth-protected-resource/api"  # RFC 9728 section 3.1


# The refusals for credentials that are not access tokens. 401 must name a scheme (RFC 9110 section 15.5.2). No
# registered scheme uses a custom header, so the last two are ours.
FIXED: Final[Mapping[type[errors.Refusal], str]] = {
    errors.ClientInvalid: 'Basic realm="gatehouse", charset="UTF-8"',  # RFC 6749 section 5.2
    ApiKeyInvalid: 'ApiKey realm="gatehouse", header="X-Api-Key"',
    SignatureInvalid: 'Signature realm="gatehouse", header="billing-signature"',
}


def challenge(
    refusal: errors.Refusal, access: declaration.Access | None, method: str, base_url: str, *, is_bound: bool = False
) -> str | None:
    """Return the header's value for this refusal on a route with this access rule, or None if it has no challenge.

    `is_bound`: the token was sent with the scheme DPoP, and so is its successor (RFC 9449 section 7.1).
    """
    for kind, header in FIXED.items():
        if isinstance(refusal, kind):
            return header
    parameters = _parameters(refusal, access, method)
    if parameters is None:
        return None
    if access is not None and access.is_of_api:
        parameters["resource_metadata"] = f"{base_url}{RESOURCE_METADATA_PATH}"
    scheme = "Bearer"
    if is_bound or isinstance(refusal, dpop.BoundTokenAsBearer):
        scheme, parameters["algs"] = "DPoP", " ".join(dpop.PROOF_ALGORITHMS)
    return " ".join([scheme, ", ".join(f'{name}="{value}"' for name, value in parameters.items())]).rstrip()


def _parameters(refusal: errors.Refusal, access: declaration.Access | None, method: str) -> dict[str, str] | None:
    """Return the challenge's parameters, or None if the refusal is not about the access token."""
    match refusal:
        case ScopeInsufficient():
            return {"error": refusal.oauth_error, "scope": " ".join(refusal.scopes)}
        case AuthenticationInsufficient():
            return {"error": refusal.oauth_error, **refusal.needed}
        case dpop.ProofRefused() | dpop.NonceRequired():
            return {"error": refusal.oauth_error}
        case errors.Unauthenticated():
            # Without a token, no error is named (RFC 6750 section 3).
            scope = None if access is None else access.own_scope or access.requirement(method).scope
            return ({"error": "invalid_token"} if refusal.token_sent else {}) | ({} if scope is None else {"scope": scope})
    return None
