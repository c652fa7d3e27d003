"""The way to the sign-in from a page whose session has ended, and back with the form that was sent (security G-2, decision 441)."""

from collections.abc import Mapping
from typing import Final

from quart import Response, current_app, request
from werkzeug.exceptions import HTTPException

from core.authentication import ended_forms
from core.kernel.errors import Refusal
from entrypoints.http.base.context import ports
from entrypoints.http.base.redirects import page_of_sent_form, to_sign_in
from entrypoints.http.base.rendering.templates import page_response, render
from entrypoints.http.edge.forms import read_form, refuse_foreign_origin
from entrypoints.http.edge.reauthentication import KEPT_FORM, SECRETS
from entrypoints.http.edge.uploads import FILE, is_upload

OWNER: Final = "form_of"  # the field with a form's sealed owner
SEALED_FORM: Final = "sealed_form"  # the field with a form that waits in the page
RESTORES_ATTRIBUTE: Final = "_restores"  # marks views that can show a form again instead of doing what it asks
CODES: Final = frozenset({"code", "email_code"})
ADDED_FIELDS: Final = frozenset({"form_token", "form_key", OWNER, SEALED_FORM, KEPT_FORM})  # our pages add them to forms
# These fields are never sealed: passwords, secrets, codes, files and added fields.
LEFT_OUT: Final = SECRETS | CODES | ADDED_FIELDS | {FILE}
SIGNED_IN_PATH: Final = "/app/signed-in"


def without_secrets(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the form fields that can come back."""
    return {name: text for name, text in fields.items() if name not in LEFT_OUT}


async def to_sign_in_again() -> Response:
    """Return a redirect to the sign-in page. If a form was sent, return the page that keeps it while the user signs in again.

    A form without a sealed owner, such as a button, is lost: the redirect says so.
    """
    if request.method in ("GET", "HEAD"):
        return to_sign_in()
    refuse_foreign_origin()
    restores = getattr(current_app.view_functions[request.endpoint or ""], RESTORES_ATTRIBUTE, False)
    if is_upload() and not restores:
        return to_sign_in()
    try:
        fields = await read_form()
    except (Refusal, HTTPException):
        return to_sign_in()
    if not restores:
        return to_sign_in(fields)
    is_again = SEALED_FORM in fields
    if is_again:
        form = ended_forms.open_sealed(ports(), fields[SEALED_FORM])
    else:
        form = ended_forms.build(ports(), fields.get(OWNER, ""), request.path, without_secrets(fields))
    sealed = None if form is None or form.path != request.path else ended_forms.seal(ports(), form)
    if form is None or sealed is None:
        return to_sign_in()
    page = render(
        "authentication/session_ended.html",
        status=400,
        action=request.full_path.rstrip("?"),
        sealed=sealed,
        sign_in=SIGNED_IN_PATH,
        form_page=page_of_sent_form(request.path, form.fields),
        is_again=is_again,
        expires_at=form.expires_at,
    )
    return page_response(page)
