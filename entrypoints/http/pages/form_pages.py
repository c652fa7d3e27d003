"""Pages with a form for a browser without a session, and pages that say why a request was refused."""

from collections.abc import Mapping
from typing import Any, Final

from quart import Response

from core.applications.model.users import SecondFactorRequired
from core.authentication import browser
from core.authentication.browser import FormTokenInvalid
from core.kernel import errors
from core.kernel.callers import Visitor
from core.kernel.page_paths import SIGN_IN_PATH
from entrypoints.http import kit
from entrypoints.http.edge.errors import page_status_of

_NO_COOKIES: Final = "Your browser sent no cookies. Allow cookies for this site, reload the page, and send the form again."


def refused_page(refusal: errors.Refusal, name: str, **values: Any) -> Response:
    """Return a form's page again after a refusal, with its message and status."""
    status = page_status_of(refusal)
    response = kit.page_response(kit.render(name, status=status, problem=refusal.message, **values))
    match refusal:
        case errors.Limited():
            response.headers["Retry-After"] = str(refusal.retry_after)
        case errors.Unauthenticated() if status == 401:
            # 401 must name a scheme (RFC 9110 section 15.5.2), and no registered scheme describes a
            # form.
            response.headers["WWW-Authenticate"] = f'Cookie realm="gatehouse", form-action="{SIGN_IN_PATH}"'
    kit.request_record().error_code = refusal.code
    return response


def no_access_page(refusal: errors.Refusal, user: Visitor, next_path: str) -> Response:
    """Return the page that says why the signed-in user has no access, and offers to continue at this path as another user."""
    values = {"form_token": session_form_token(), "next": kit.safe_next(next_path), "email": user.email}
    return refused_page(refusal, "federation/no_access.html", needs_factor=isinstance(refusal, SecondFactorRequired), **values)


def form_page(name: str, **values: Any) -> Response:
    """Return a page with a form for a browser without a session. The form token is bound to the browser's device cookie."""
    return kit.page_response(kit.render(name, form_token=browser.form_token(kit.cookies.browser_id()), **values))


def refused_form_page(refusal: errors.Refusal, name: str, **values: Any) -> Response:
    """Return a page with a form, for a browser without a session, that says why a request was refused."""
    return refused_page(refusal, name, form_token=browser.form_token(kit.cookies.browser_id()), **values)


def session_form_token() -> str:
    """Return the token for a form in this browser's session."""
    return browser.form_token(kit.cookies.SESSION.read() or "")


def check_session_form(form: Mapping[str, str]) -> None:
    """Check that the form was made for this browser's session. Raises: FormTokenInvalid."""
    browser.check_form_token(kit.cookies.SESSION.read() or "", form.get("form_token", ""))


async def read_own_form() -> dict[str, str]:
    """Return the fields in a form that `form_page` made for this browser."""
    form = await kit.read_form()
    check_browser_form(form)
    return form


def check_browser_form(form: dict[str, str]) -> None:
    """Check that `form_page` made this form for this browser."""
    device_id = kit.cookies.DEVICE.read() or errors.refuse(
        FormTokenInvalid(_NO_COOKIES)
    )  # without a secret, anyone could compute the token
    browser.check_form_token(device_id, form.get("form_token", ""))
