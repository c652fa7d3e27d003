"""Uploaded files: an API request's body, or the single file in a form on our pages."""

from io import BytesIO
from typing import Any, Final, TypeVar

from quart import current_app, g, request
from werkzeug.exceptions import UnsupportedMediaType
from werkzeug.formparser import MultiPartParser

from core.kernel.images import ImageType

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
