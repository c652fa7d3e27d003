"""Form bodies: forms on our pages, refused if another site sends them (security G-2, N-3), OAuth parameters, and uploaded files."""

from collections.abc import Iterable
from io import BytesIO
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from quart import current_app, g, request
from werkzeug.exceptions import UnsupportedMediaType
from werkzeug.formparser import MultiPartParser

from core.kernel import errors
from core.kernel.images import ImageType
from entrypoints.http.base.context import app_context
from entrypoints.http.edge import queries
from entrypoints.http.edge.bodies import RequestModel
from entrypoints.http.edge.typed_fields import read_typed
from entrypoints.http.edge.validation import validate

FORM = "application/x-www-form-urlencoded"
B = TypeVar("B", bound=RequestModel)


class FormInvalid(errors.Invalid):
    """The form is not valid. Send at most 500 fields, percent-encoded in UTF-8."""


class FileFormInvalid(errors.Invalid):
    """The form is not valid. Send it as the page does, with one file."""


class ForeignOrigin(errors.Forbidden):
    """This form was sent from another site. Open the page here and send it again."""


async def read_form() -> dict[str, str]:
    """Return the fields from a form on our pages, as `typed_fields` reads them.

    Raises: FormInvalid; DuplicateParameter; ForeignOrigin; UnsupportedMediaType if the body is not a form.
    """
    refuse_foreign_origin()
    if is_upload():
        return note_sent(read_typed(note_sent(_joined(await _read_parts(), frozenset()))))
    if request.mimetype != FORM:
        raise UnsupportedMediaType("This page accepts only its own form. Open the page in a browser, and send the form there.")
    return note_sent(read_typed(await read_fields()))


async def read_request_of_application(listed: frozenset[str] = frozenset()) -> dict[str, str] | None:
    """Return the parameters in an application's POST request, or None if the form on our page was sent, which has a form token.

    The parameters in `listed` can be repeated. Their values are joined by spaces.

    Raises: FormInvalid; DuplicateParameter; UnsupportedMediaType if the body is not a form.
    """
    if request.mimetype != FORM:
        raise UnsupportedMediaType("Send the parameters as a form, or open this URL with GET.")
    fields = note_sent(_joined(await _read_pairs(), listed))
    return None if "form_token" in fields else {**queries.joined_query(), **fields}


async def read_fields() -> dict[str, str]:
    """Return the fields from a form on any site. Raises: FormInvalid, DuplicateParameter."""
    return note_sent(_joined(await _read_pairs(), frozenset()))


async def _read_pairs() -> list[tuple[str, str]]:
    raw = await request.body
    try:
        return decode_form(raw.decode("ascii"))
    except ValueError:
        raise FormInvalid from None


def decode_form(text: str) -> list[tuple[str, str]]:
    """Return the fields as `urllib.parse.parse_qsl` does, but three times as fast for a long base64 text.

    Raises: ValueError for more than MAX_FIELDS fields, or bytes that are not UTF-8.
    """
    pieces = text.split("&")
    if len(pieces) > queries.MAX_FIELDS:
        raise ValueError("too many fields")
    return [(_decode(name), _decode(value)) for name, _, value in (piece.partition("=") for piece in pieces if piece)]


def _decode(text: str) -> str:
    # First the space, because `%2B` is a plus. The remaining characters belong to base64.
    return unquote(text.replace("+", " ").replace("%2B", "+").replace("%2F", "/").replace("%3D", "="), errors="strict")


async def _read_parts() -> list[tuple[str, str]]:
    try:
        return await read_parts()
    except ValueError:
        raise FileFormInvalid from None


def note_sent(fields: dict[str, str]) -> dict[str, str]:
    """Note and return the values that the user typed, as they were sent or read. A refused page shows no private key among them again."""
    g.setdefault("sent_values", []).extend(fields.values())
    return fields


def _joined(pairs: Iterable[tuple[str, str]], listed: frozenset[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name in fields and name not in listed:
            raise queries.DuplicateParameter(name)
        fields[name] = f"{fields[name]} {value}" if name in fields else value
    return fields


async def parameters(model: type[B]) -> B:
    """Return an OAuth client's parameters, from a form or from JSON.

    Empty parameters count as missing, and repeated parameters are refused (RFC 6749 section 3.2), except the parameters
    in `model.repeatable`.

    Raises: FormInvalid; DuplicateParameter; BodyInvalid; UnsupportedMediaType if the body is neither
    a form nor JSON; the errors of `validate`.
    """
    if request.mimetype == FORM:
        sent: dict[str, Any] = _joined(await _read_pairs(), model.repeatable)
    else:
        try:
            sent = await request.get_json()
        except UnsupportedMediaType:
            raise UnsupportedMediaType("The body must be a form or JSON, with the matching Content-Type.") from None
    return validate(model, {name: value for name, value in sent.items() if value != ""})


def refuse_foreign_origin() -> None:
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        if site != "same-origin":
            raise ForeignOrigin
        return
    # Our pages send no referrer, so browsers send the origin "null" with our forms, as with forms
    # in another site's sandboxed frames. So this header can only prove that a form is foreign.
    # The form token proves that it is ours.
    origin = request.headers.get("Origin")
    if origin not in (None, "null", app_context().origin):
        raise ForeignOrigin


MULTIPART: Final = "multipart/form-data"
FILE: Final = "image"  # the field name
MAX_PARTS: Final = 10
UPLOADS_ATTRIBUTE: Final = "_uploads"  # marks views that take a file
V = TypeVar("V")


def uploads(view: V) -> V:
    """Mark the view for a form with a file, which `uploaded_file` returns."""
    setattr(view, UPLOADS_ATTRIBUTE, True)
    return view


def is_upload() -> bool:
    """Return whether the request is a form with a file, and the view takes a file."""
    return request.mimetype == MULTIPART and hasattr(current_app.view_functions[request.endpoint or ""], UPLOADS_ATTRIBUTE)


async def read_parts() -> list[tuple[str, str]]:
    """Return the fields from a form with a file, and keep the file for `uploaded_file`. Raises: ValueError."""
    raw = await request.body
    boundary = request.mimetype_params.get("boundary", "").encode("ascii")
    parser = MultiPartParser(stream_factory=_in_memory, max_form_parts=MAX_PARTS)
    fields, files = parser.parse(BytesIO(raw), boundary, len(raw))
    parts = files.getlist(FILE)
    if len(parts) > 1 or len(parts) < len(files) or set(files) - {FILE}:
        raise ValueError("more than one file")
    g.uploaded_file = parts[0].read() if parts else b""
    return list(fields.items(multi=True))


def _in_memory(*_: Any, **__: Any) -> BytesIO:
    return BytesIO()  # the edge limits the body's size


def uploaded_file() -> bytes:
    """Return the form's file, or an empty file if the user chose none."""
    return bytes(g.get("uploaded_file", b""))


async def read_image() -> tuple[bytes, str]:
    """Return a request's body, and its content type.

    Raises: UnsupportedMediaType if the content type does not belong to an image that we accept.
    """
    if request.mimetype not in {*ImageType}:
        raise UnsupportedMediaType("Send the file itself as the body, with the content type image/png, image/jpeg or image/webp.")
    image = await request.body
    request.body.clear()
    return image, request.mimetype
