"""Redirects to pages, and the path at which a page continues after the sign-in (security G-4)."""

import re
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final
from urllib.parse import quote, unquote, urlencode

from quart import Response, current_app, request
from werkzeug.exceptions import HTTPException

from core.kernel import page_paths
from entrypoints.http.base import cookies
from entrypoints.http.base.context import requested_path

FORM_NOT_SENT: Final = "form-not-sent"  # the notice that a form from an ended session does not come back
NO_FIELDS: Final[Mapping[str, str]] = MappingProxyType({})
MAX_NEXT_LENGTH: Final = 8192  # enough for an authorization request with its redirect URI and state
# A path with an optional query. It has only characters that URLs allow: no control characters,
# spaces or backslashes (security G-4).
_NEXT = re.compile(r"/(?!/)[A-Za-z0-9/._~!$&'()*+,;=:@%?-]*")
_DOT_SEGMENTS = (".", "..")
PAGE_ATTRIBUTE: Final = "_page"  # the page that a form's view names, with the route's parameters


def safe_next(text: str) -> str:
    """Return `text` if it is a safe path on this server to continue at after the sign-in, or else the start page (security G-4).

    Browsers resolve dot segments before they check whether a path starts with two slashes, and they
    treat `%2e` as a dot. So a path with a dot segment or with two slashes anywhere is not safe.
    """
    path = text.partition("?")[0]
    if len(text) > MAX_NEXT_LENGTH or not _NEXT.fullmatch(text) or "//" in path or "\\" in unquote(path):
        return page_paths.HOME_PATH
    return page_paths.HOME_PATH if any(unquote(segment) in _DOT_SEGMENTS for segment in path.split("/")) else text


def next_of(fields: Mapping[str, str]) -> str:
    """Return the path in the field `next`, if it is safe, or else the start page."""
    return safe_next(fields.get("next", page_paths.HOME_PATH))


def with_next(path: str, next_path: str) -> str:
    """Return `path` with the parameter `next`, which is left out if `next_path` is the start page."""
    return path if next_path == page_paths.HOME_PATH else f"{path}?{urlencode({'next': next_path})}"


def redirect(target: str, status: int = 303, *, notice: str | None = None) -> Response:
    """Return a redirect to another page, which shows the notice with this name.

    Status 303 makes the browser use GET; some protocols require another status.
    """
    response = Response(b"", status, {"Location": target, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
    if notice is not None:
        cookies.NOTICE.set(response, notice)
    return response


def to_sign_in(fields: Mapping[str, str] = NO_FIELDS) -> Response:
    """Return a redirect to the sign-in page, which leads back here, or back to the page with the lost form.

    `fields` are the form's fields, if they were read.
    """
    is_form = request.method not in ("GET", "HEAD")
    target = page_of_sent_form(request.path, fields) if is_form else requested_path()
    return redirect(with_next(page_paths.SIGN_IN_PATH, target), notice=FORM_NOT_SENT if is_form else None)


def fill_in(route: str, values: Mapping[str, object]) -> str:
    """Return a route's path with these parameters."""
    return re.sub("<(?:[a-z]+:)?([a-z_]+)>", lambda match: quote(str(values[match[1]])), route)


def page_of_sent_form(path: str, fields: Mapping[str, str]) -> str:
    """Return the page with the form for this path. It has the field `next` if the form has that field."""
    return with_next(page_of_form(path), next_of(fields))


def page_of_form(path: str) -> str:
    """Return the page with the form for this path: the page that its view names, or the nearest page at or above the path."""
    routes = current_app.url_map.bind("")
    with suppress(HTTPException):
        endpoint, values = routes.match(path, method="POST")
        if (page := getattr(current_app.view_functions[endpoint], PAGE_ATTRIBUTE, None)) is not None:
            return fill_in(page, values)
    while path.count("/") > 1:
        try:
            routes.match(path, method="GET")
        except HTTPException:
            path = path.rpartition("/")[0]
        else:
            return quote(path)
    return page_paths.ACCOUNT_PATH
