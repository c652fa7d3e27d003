"""Uploaded images: accepted formats and limits, and the stored form. The header is checked before anything decodes the file."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self
from uuid import UUID

from core.kernel import errors
from core.kernel.values import new_secret

MAX_IMAGE_BYTES: Final = 200_000
MAX_PIXELS: Final = 4_000_000
# A progressive JPEG is decoded again for every scan. Programs write about ten.
MAX_SCANS: Final = 32
SMALL: Final = 64  # both sizes are stored, and mean the longer side in pixels
LARGE: Final = 256
CONTENT_TYPE: Final = "image/png"  # for every stored image
IMAGE_PATH: Final = "/images/"


class ImageMissing(errors.Invalid):
    """No file was sent. Choose a PNG, JPEG or WebP file of at most 200 KB."""


class ImageTooLarge(errors.Invalid):
    """The file has more than 200 KB. Save the image with fewer pixels or more compression, and upload it again."""


class ImageTypeUnsupported(errors.Invalid):
    """This file is not a PNG, JPEG or WebP image. Open the image in another program, save it as PNG, and upload that file."""


class ImageTypeMismatch(errors.Invalid):
    """The file is an image of another type than its content type says. Send it with the content type of the file."""


class ImageTooManyPixels(errors.Invalid):
    """The image has more than 4,000,000 pixels. Make it smaller, such as 1,000 by 1,000 pixels, and upload it again."""


class ImageDamaged(errors.Invalid):
    """The file is incomplete or damaged. Open the image in another program, save it as PNG, and upload that file."""


class ImageType(StrEnum):
    """The accepted image types, by content type."""

    PNG = "image/png"
    JPEG = "image/jpeg"
    WEBP = "image/webp"


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """An image's type, and its size in pixels."""

    type: ImageType
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class ImageOwner:
    """The object that an image belongs to. An organization's id stands alone, or with its application's id."""

    user_id: UUID | None = None
    org_id: UUID | None = None
    service_id: UUID | None = None
    connection_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class NewImage:
    """An image encoded again in two sizes, as PNG. `key` is the address part that cannot be guessed."""

    small: bytes = field(repr=False)
    large: bytes = field(repr=False)
    key: str = field(default_factory=new_secret)


@dataclass(frozen=True, slots=True)
class ImageAddress:
    """An image's address in one size."""

    key: str
    size: int

    @classmethod
    def parse(cls, key: str, size: str) -> Self | None:
        """Return the address with these parts, or None."""
        return cls(key, int(size)) if size in (str(SMALL), str(LARGE)) else None


def check_header(content: bytes, content_type: str | None = None) -> ImageHeader:
    """Return an image's header, if the image can be decoded. `content_type` is the request's content type, if it names the file's type."""
    if not content:
        raise ImageMissing
    if len(content) > MAX_IMAGE_BYTES:
        raise ImageTooLarge
    header = _read_header(content)
    if content_type is not None and content_type != header.type:
        raise ImageTypeMismatch
    if header.width * header.height == 0:
        raise ImageDamaged
    if header.width * header.height > MAX_PIXELS:
        raise ImageTooManyPixels
    return header


def _read_header(content: bytes) -> ImageHeader:
    try:
        if content.startswith(b"\x89PNG\r\n\x1a\n"):
            return ImageHeader(ImageType.PNG, *_png_size(content))
        if content.startswith(b"\xff\xd8\xff"):
            return ImageHeader(ImageType.JPEG, *_jpeg_size(content))
        if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
            return ImageHeader(ImageType.WEBP, *_webp_size(content))
    except (IndexError, StopIteration):
        raise ImageDamaged from None
    raise ImageTypeUnsupported


def _number(content: bytes, start: int, size: int, *, little: bool = False) -> int:
    part = content[start : start + size]
    if len(part) < size:
        raise IndexError
    return int.from_bytes(part, "little" if little else "big")


def _png_size(content: bytes) -> tuple[int, int]:
    """Return the size in the first chunk (PNG, third edition, section 11.2.1)."""
    if content[12:16] != b"IHDR":
        raise ImageDamaged
    return _number(content, 16, 4), _number(content, 20, 4)


def _jpeg_size(content: bytes) -> tuple[int, int]:
    """Return the size in the frame header (ITU-T T.81, B.2.2). Raises: ImageDamaged if the image has too many scans."""
    if content.count(b"\xff\xda") > MAX_SCANS:
        raise ImageDamaged
    for marker, start in _jpeg_segments(content):
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _number(content, start + 5, 2), _number(content, start + 3, 2)
    raise ImageDamaged


def _jpeg_segments(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield the marker of every segment before the first scan, and the position where its length stands."""
    place = 2
    while True:
        if content[place] != 0xFF:
            raise ImageDamaged
        marker = content[place + 1]
        if marker == 0xFF:  # filling
            place += 1
            continue
        if marker in (0xD9, 0xDA):  # the end, or the first scan
            return
        yield marker, place + 2
        place += 2 + _number(content, place + 2, 2)


def _webp_size(content: bytes) -> tuple[int, int]:
    """Return the size of the canvas, or of the only frame (RFC 9649 sections 2.5 to 2.7)."""
    chunk = content[12:16]
    if chunk == b"VP8X":
        return _number(content, 24, 3, little=True) + 1, _number(content, 27, 3, little=True) + 1
    if chunk == b"VP8L":
        bits = _number(content, 21, 4, little=True)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8 ":
        return _number(content, 26, 2, little=True) & 0x3FFF, _number(content, 28, 2, little=True) & 0x3FFF
    return errors.refuse(ImageDamaged)
