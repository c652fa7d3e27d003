"""Where errors meet HTTP, once: which status a refusal has, and what its body looks like to an API client and to a browser."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import structlog
from pydantic import ValidationError
from quart import Quart, Response, current_app, request
from quart_schema import RequestSchemaValidationError
from werkzeug.datastructures import MIMEAccept
from werkzeug.exceptions import HTTPException, MethodNotAllowed, UnsupportedMediaType
from werkzeug.http import parse_accept_header

from core.applications.api_keys_rules import ApiKeyInvalid
from core.billing.provider_events_rules import SignatureInvalid
from core.kernel.errors import (
    ClientInvalid,
    Conflict,
    Forbidden,
    Invalid,
    Limited,
    NotFound,
    Outage,
    Refusal,
    StorageDown,
    Unauthenticated,
    Unsupported,
)
from entrypoints.http.edge.context import app_context, request_record
from entrypoints.http.edge.error_body import (
    SCIM_JSON,
    SENTENCES,
    code_of,
    error_body,
    failed,
    oauth_error_body,
    oauth_error_of,
    scim_error_body,
    speaks_scim,
)
from entrypoints.http.edge.openapi import is_oauth, is_page
from entrypoints.http.pages import Page, render

log = structlog.get_logger("http")

STATUS: dict[type[Exception], int] = {
    Invalid: 400,
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    Limited: 429,
    Unsupported: 501,
    Outage: 500,
}

# How long a client should wait before it tries again while the database is away.
STORAGE_RETRY_AFTER = 5

TITLES = {
    400: "That did not work",
    403: "Not allowed",
    404: "Page not found",
    429: "A little slower, please",
    500: "Something went wrong",
}


def status_of(error: Exception) -> int:
    """The HTTP status of a refusal or an outage, decided by the nearest kind in its family tree."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


class Answer:
    """What will be said about an error: status, code, sentence, headers, and what OAuth and SCIM call it."""

    __slots__ = ("code", "headers", "message", "oauth_error", "scim_type", "status")

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        headers: dict[str, str] | None = None,
        oauth_error: str | None = None,
        scim_type: str | None = None,
    ) -> None:
        self.status = status
        self.message = message
        self.code = code or code_of(status)
        self.headers = headers or {}
        self.oauth_error = oauth_error or oauth_error_of(status)
        self.scim_type = scim_type


def _answer(error: Exception) -> Answer:
    error = _innermost(error)
    match error:
        case Refusal():
            return Answer(status_of(error), error.message, error.code, _headers(error), error.oauth_error, error.scim_type)
        case StorageDown():
            log.error("storage_down", request_id=request_record().request_id, error=str(error.__cause__ or error))
            return Answer(500, StorageDown.__doc__ or "", error.code, {"Retry-After": str(STORAGE_RETRY_AFTER)})
        case Outage():
            log.error("outage", request_id=request_record().request_id, error=str(error), kind=type(error).__name__)
            return Answer(500, (type(error).__doc__ or "").strip(), error.code)
        case RequestSchemaValidationError():
            return Answer(400, _first_mistake(error.validation_error))
        case MethodNotAllowed():
            return Answer(405, SENTENCES[405], headers={"Allow": ", ".join(sorted({*(error.valid_methods or ()), "OPTIONS"}))})
        case UnsupportedMediaType() if error.description and error.description != UnsupportedMediaType.description:
            return Answer(415, error.description)
        case HTTPException(code=int(code)) if code < 500:
            return Answer(code, SENTENCES.get(code) or HTTPStatus(code).description or HTTPStatus(code).phrase)
    log.error("unexpected", request_id=request_record().request_id, exc_info=error)
    return Answer(500, failed(request_record().request_id))


def _innermost(error: Exception) -> Exception:
    """The one error in a group of one: a nursery wraps what its tasks raise."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _headers(refusal: Refusal) -> dict[str, str]:
    match refusal:
        case Limited():
            return {"Retry-After": str(refusal.retry_after)}
        case ClientInvalid():
            return {"WWW-Authenticate": 'Basic realm="gatehouse", charset="UTF-8"'}  # RFC 6749 section 5.2
        case ApiKeyInvalid():
            # A scheme of our own: no registered one is sent in a header of its own, and 401 has to name one (RFC 9110 section 15.5.2).
            return {"WWW-Authenticate": 'ApiKey realm="gatehouse", header="X-Api-Key"'}
        case SignatureInvalid():
            return {"WWW-Authenticate": 'Signature realm="gatehouse", header="billing-signature"'}
        case Unauthenticated():
            # RFC 6750 section 3: without a token only the scheme is named.
            return {"WWW-Authenticate": 'Bearer error="invalid_token"' if refusal.token_sent else "Bearer"}
    return {}


def _first_mistake(error: Exception) -> str:
    """One readable sentence about the first thing that is wrong with a body or a query; the value itself is not repeated."""
    if not isinstance(error, ValidationError):
        return SENTENCES[400]
    mistake = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(str(part) for part in mistake["loc"])
    if not field:
        return "The body must be a JSON object."
    if mistake["type"] == "missing":
        return f'The field "{field}" is required.'
    reason = mistake["msg"].removeprefix("Value error, ")
    return f'The field "{field}" is not valid: {reason[0].lower()}{reason[1:]}.'


def wants_page() -> bool:
    """Whether the answer to this request is a page."""
    return prefers_page(_view(), request.path, request.headers.get("Accept"))


def _view() -> Callable[..., Any] | None:
    rule = request.url_rule
    return None if rule is None else current_app.view_functions[rule.endpoint]


def prefers_page(view: Callable[..., Any] | None, path: str, accept: str | None) -> bool:
    """Whether a person is looking: on the routes that browsers visit, unless JSON is asked for (security.md N-8).

    Where there is no route, the path tells for whom one would be; where it does not tell either, HTML must be asked for.
    """
    accepted = parse_accept_header(accept, MIMEAccept)
    for_people = is_page(view) if view is not None else _is_for_people(path)
    if for_people is None:
        return "text/html" in [kind for kind, _ in accepted]
    return for_people and accepted.best_match(["text/html", "application/json"]) != "application/json"


_FOR_PROGRAMS: Final = ("/api/", "/webhooks/", "/auth/token", "/auth/revoke", "/auth/device/", "/health/", "/.well-known/")


def _is_for_people(path: str) -> bool | None:
    if speaks_scim(path) or path.startswith(_FOR_PROGRAMS):
        return False
    return True if path.startswith(("/auth/", "/app/", "/invitations/", "/saml/")) else None


def error_page(status: int, message: str, request_id: str) -> Page:
    return render("error.html", status=status, title=TITLES.get(status, TITLES[400]), message=message, request_id=request_id)


async def respond(error: Exception) -> Response:
    """The answer to an error, whatever it is."""
    answer = _answer(error)
    request_record().error_code = answer.code
    if speaks_scim(request.path):
        body = scim_error_body(answer.status, answer.message, answer.scim_type, as_text=app_context().scim_string_status)
        return Response(body, answer.status, answer.headers, content_type=SCIM_JSON)
    if wants_page():
        page = error_page(answer.status, answer.message, request_record().request_id)
        return Response(page.body, answer.status, {**page.headers, **answer.headers})
    body = error_body(answer.message, answer.code)
    if is_oauth(_view()):
        body = oauth_error_body(answer.message, answer.code, answer.oauth_error)
    return Response(body, answer.status, answer.headers, content_type="application/json")


def handle_errors(app: Quart) -> None:
    """Let every error of the application, the framework's own included, be answered here."""
    app.register_error_handler(Exception, respond)
