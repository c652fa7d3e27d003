"""Forms of our own pages: how they are read, and that nobody else's page sends them (security.md G-2, N-3)."""

from urllib.parse import parse_qsl

from quart import request
from werkzeug.exceptions import UnsupportedMediaType

from core.errors import Forbidden, Invalid
from entrypoints.http.context import served

MAX_FIELDS = 100


class FormInvalid(Invalid):
    """The form cannot be read."""


class ForeignOrigin(Forbidden):
    """This form was not sent from our own page."""


async def read_form() -> dict[str, str]:
    """The fields of a form that one of our pages sent; of a repeated field the last.

    Raises FormInvalid, ForeignOrigin, and 415 for anything but a form.
    """
    _refuse_foreign_origin()
    if request.mimetype != "application/x-www-form-urlencoded":
        raise UnsupportedMediaType("This page takes what its own form sends, and nothing else.")
    raw = await request.get_data(cache=True, as_text=False, parse_form_data=False)
    try:
        return dict(parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS))
    except ValueError:
        raise FormInvalid from None


def _refuse_foreign_origin() -> None:
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        if site != "same-origin":
            raise ForeignOrigin
        return
    # Our pages send no referrer, and for those a browser says "null" here, as it also does for a sandboxed frame elsewhere: this header
    # can only convict. The token in the form is what acquits.
    origin = request.headers.get("Origin")
    if origin not in (None, "null", served().origin):
        raise ForeignOrigin
