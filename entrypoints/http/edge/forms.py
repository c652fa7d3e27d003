"""Forms of our own pages: how they are read, and that nobody else's page sends them (security.md G-2, N-3). And what clients of OAuth send,
who may like JSON better.
"""

from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import ValidationError
from quart import request
from quart_schema import RequestSchemaValidationError
from werkzeug.exceptions import UnsupportedMediaType

from core.kernel.errors import Forbidden, Invalid
from entrypoints.http.edge.bodies import RequestModel
from entrypoints.http.edge.context import app_context

FORM = "application/x-www-form-urlencoded"
B = TypeVar("B", bound=RequestModel)

MAX_FIELDS = 100


class FormInvalid(Invalid):
    """The form cannot be read."""


class FieldTwice(FormInvalid):
    """A field of the form is there twice."""


class ParameterTwice(Invalid):
    """A parameter is there twice. Send each of them once."""


class ForeignOrigin(Forbidden):
    """This form was not sent from our own page."""


def check_query() -> None:
    """Which of two parameters of one name counts would be anybody's guess (RFC 6749 section 3.1). Raises ParameterTwice."""
    if any(len(values) > 1 for _, values in request.args.lists()):
        raise ParameterTwice


async def read_form() -> dict[str, str]:
    """The fields of a form that one of our pages sent; of a repeated field the last.

    Raises FormInvalid, ForeignOrigin, and 415 for anything but a form.
    """
    _refuse_foreign_origin()
    if request.mimetype != FORM:
        raise UnsupportedMediaType("This page takes what its own form sends, and nothing else.")
    return dict(await fields_of_form())


async def fields_of_form() -> list[tuple[str, str]]:
    """All of them, whoever's page it was. Raises FormInvalid."""
    raw = await request.get_data(cache=True, as_text=False, parse_form_data=False)
    try:
        return parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise FormInvalid from None


async def parameters(model: type[B]) -> B:
    """What a client of OAuth sends, as a form or as JSON (decisions, point 93).

    What is empty is taken for left out, and nothing may be there twice (RFC 6749 section 3.2). Raises FormInvalid, FieldTwice, BodyInvalid,
    RequestSchemaValidationError, and 415 for anything else.
    """
    if request.mimetype == FORM:
        fields = await fields_of_form()
        sent: dict[str, Any] = dict(fields)
        if len(sent) < len(fields):
            raise FieldTwice
    else:
        try:
            sent = await request.get_json()
        except UnsupportedMediaType:
            raise UnsupportedMediaType("The body must be a form or JSON, and its Content-Type say which.") from None
    try:
        return model.model_validate({name: value for name, value in sent.items() if value != ""})
    except ValidationError as error:
        raise RequestSchemaValidationError(error) from None


def _refuse_foreign_origin() -> None:
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        if site != "same-origin":
            raise ForeignOrigin
        return
    # Our pages send no referrer, and for those a browser says "null" here, as it also does for a sandboxed frame elsewhere: this header
    # can only convict. The token in the form is what acquits.
    origin = request.headers.get("Origin")
    if origin not in (None, "null", app_context().origin):
        raise ForeignOrigin
