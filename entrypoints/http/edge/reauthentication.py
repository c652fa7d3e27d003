"""The way from a page that needs a younger sign-in to the page that asks for it, and back with the form that was sent.

Source: security A-12, G-2.
"""

from typing import Final
from urllib.parse import urlencode

from quart import Response, current_app, g, request

from core.authentication import browser
from core.authentication.reauthentication import kept_forms
from core.kernel.page_paths import REAUTHENTICATION_PATH
from entrypoints.http.base.context import ports, requested_path, signed_in
from entrypoints.http.base.cookies import session_cookie
from entrypoints.http.base.redirects import page_of_form
from entrypoints.http.edge.forms import read_form
from entrypoints.http.edge.queries import path_id

KEPT_FORM: Final = "kept_form"  # the field with the id of the kept form that is sent
# Names of password fields, and of tokens from links. A form with a secret is not kept, not even sealed, but filled in again.
SECRETS: Final = frozenset({"current_password", "new_password", "password", "client_secret", "token"})


async def to_reauthentication() -> Response:
    """Return a redirect to the page that asks users to confirm that it's them, and then leads back here.

    A form that our own page sent is kept for them, unless it has a secret. The fields of a kept form
    that the view has taken are kept again.

    Raises: FormTokenInvalid.
    """
    if request.method in ("GET", "HEAD"):
        return _redirect({"next": requested_path()})
    form = await read_form()
    browser.check_form_token(session_cookie() or "", form.get("form_token", ""))
    if "taken_form" in g:  # a part of what the view does needs a younger sign-in than the route
        form = g.taken_form
    elif KEPT_FORM in form:  # it stays as it is: the user waited too long with its button
        return _redirect(_target(form[KEPT_FORM]))
    if not SECRETS.isdisjoint(form):
        return _redirect({"next": page_of_form(request.path), "empty": "yes"})
    label, _, _ = (current_app.view_functions[request.endpoint or ""].__doc__ or "").partition("\n")
    return _redirect(_target(str(await kept_forms.keep(ports(), signed_in(), request.path, label.rstrip("."), form))))


async def take_form(form_id: str) -> dict[str, str]:
    """Return the fields of a form that was kept for this path. It can be taken once. Raises: KeptFormEnded."""
    fields = dict(await kept_forms.take(ports(), signed_in(), path_id(form_id), request.path))
    g.taken_form = fields
    return fields


async def to_ended_form() -> Response:
    """Return a redirect to the page that says that the kept form has ended, and leads to the page of the form."""
    return _redirect(_target((await read_form())[KEPT_FORM]))


def _target(form_id: str) -> dict[str, str]:
    return {"form": form_id, "next": page_of_form(request.path)}


def _redirect(target: dict[str, str]) -> Response:
    return Response(b"", 303, {"Location": f"{REAUTHENTICATION_PATH}?{urlencode(target)}", "Cache-Control": "no-store"})
