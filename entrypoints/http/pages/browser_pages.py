"""What the pages outside the console share: the path to continue at, redirects, forms, and the user of the browser."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlencode

from quart import Response

from core.authentication import browser
from core.authentication.browser import FormTokenInvalid
from core.kernel.callers import Visitor
from core.kernel.errors import Limited, Refusal, SessionEnded, Unauthenticated, refuse
from core.kernel.page_paths import ACCOUNT_PATH, SIGN_IN_PATH
from entrypoints.http.edge import cookies
from entrypoints.http.edge.context import agent, page_response, ports, request_record
from entrypoints.http.edge.errors import page_status_of
from entrypoints.http.edge.forms import read_form
from entrypoints.http.pages import render

MAX_NEXT_LENGTH = 8192  # enough for an authorization request with its redirect URI and state
# A path with an optional query. It has only characters of URLs: no control characters, spaces or
# backslashes (security G-4).
_NEXT = re.compile(r"/(?!/)[A-Za-z0-9/._~!$&'()*+,;=:@%?-]*")
_DOT_SEGMENTS = (".", "..")


def safe_next(text: str) -> str:
    """Return `text` if it is a safe path on this server to continue at after the sign-in, or else the account page (security G-4).

    Browsers resolve dot segments before they check whether a path starts with two slashes, and they
    treat `%2e` as a dot. So a path with a dot segment or with two slashes anywhere is not safe.
    """
    path = text.partition("?")[0]
    if len(text) > MAX_NEXT_LENGTH or not _NEXT.fullmatch(text) or "//" in path or "\\" in unquote(path):
        return ACCOUNT_PATH
    return ACCOUNT_PATH if any(unquote(segment) in _DOT_SEGMENTS for segment in path.split("/")) else text


def next_of(fields: Mapping[str, str]) -> str:
    """Return the path in the field `next`, if it is safe, or else the account page."""
    return safe_next(fields.get("next", ACCOUNT_PATH))


def with_next(path: str, next_path: str) -> str:
    """Return `path` with the parameter `next`, which is left out if `next_path` is the account page."""
    return path if next_path == ACCOUNT_PATH else f"{path}?{urlencode({'next': next_path})}"


def path_to_store(next_path: str) -> str | None:
    """Return the path for the link of an email, or None if it is the account page."""
    return None if next_path == ACCOUNT_PATH else next_path


def redirect(target: str, status: int = 303, *, notice: str | None = None) -> Response:
    """Return a redirect to another page, which shows the notice with this name.

    Status 303 makes the browser use GET; some protocols require another status.
    """
    response = Response(b"", status, {"Location": target, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
    if notice is not None:
        cookies.set_notice_cookie(response, notice)
    return response


def refused_page(refusal: Refusal, name: str, **values: Any) -> Response:
    """Return the page of a form again after a refusal, with its message and status."""
    status = page_status_of(refusal)
    response = page_response(render(name, status=status, problem=refusal.message, **values))
    match refusal:
        case Limited():
            response.headers["Retry-After"] = str(refusal.retry_after)
        case Unauthenticated() if status == 401:
            # 401 must name a scheme (RFC 9110 section 15.5.2), and no registered scheme describes a
            # form.
            response.headers["WWW-Authenticate"] = f'Cookie realm="gatehouse", form-action="{SIGN_IN_PATH}"'
    request_record().error_code = refusal.code
    return response


def no_access_page(refusal: Refusal, user: Visitor, next_path: str) -> Response:
    """Return the page that says why the signed-in user has no access, and offers to continue at this path as another user."""
    return refused_page(refusal, "federation/no_access.html", form_token=session_form_token(), next=safe_next(next_path), email=user.email)


async def visitor() -> Visitor | None:
    """Return the user of this browser's session, or None."""
    cookie = cookies.session_cookie()
    if cookie is None:
        return None
    try:
        return await browser.authenticate(ports(), cookie, address=request_record().address, agent=agent())
    except SessionEnded:
        return None


async def visitor_with_mfa() -> Visitor | None:
    """Return the user of this browser's session, or None without a session or if the second factor is missing.

    It is missing if the user enabled a second factor after the session started, and has not verified it in this session.
    """
    user = await visitor()
    return None if user is None or user.mfa_missing else user


def form_page(name: str, **values: Any) -> Response:
    """Return a page with a form for a browser without a session. The form token is bound to the browser's device cookie."""
    return page_response(render(name, form_token=browser.form_token(cookies.browser_id()), **values))


def refused_form_page(refusal: Refusal, name: str, **values: Any) -> Response:
    """Return a page with a form, for a browser without a session, that says why a request was refused."""
    return refused_page(refusal, name, form_token=browser.form_token(cookies.browser_id()), **values)


def session_form_token() -> str:
    """Return the token of a form for the session of this browser."""
    return browser.form_token(cookies.session_cookie() or "")


def check_session_form(form: Mapping[str, str]) -> None:
    """Check that the form was made for the session of this browser. Raises: FormTokenInvalid."""
    browser.check_form_token(cookies.session_cookie() or "", form.get("form_token", ""))


async def read_own_form() -> dict[str, str]:
    """Return the fields of a form that `form_page` made for this browser. Raises: FormTokenInvalid; the errors of `read_form`."""
    form = await read_form()
    check_browser_form(form)
    return form


def check_browser_form(form: dict[str, str]) -> None:
    """Check that `form_page` made this form for this browser. Raises: FormTokenInvalid."""
    device_id = cookies.device_cookie() or refuse(FormTokenInvalid)  # without a cookie, anyone could compute the token
    browser.check_form_token(device_id, form.get("form_token", ""))
