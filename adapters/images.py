"""Decoding uploaded images with Pillow."""

from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Final

from adapters.threads import LowPriorityThreads
from core.kernel import images
from core.kernel.images import IMAGE_PATH, LARGE

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

QUEUE: Final = 8  # images that wait for the thread; an image has at most MAX_IMAGE_BYTES
_FORMATS: Final = {images.ImageType.PNG: "PNG", images.ImageType.JPEG: "JPEG", images.ImageType.WEBP: "WEBP"}


class PillowImages:
    """Implements `ports.outside.Images` with a single thread, so that at most one image is decoded at a time.

    Decoding an image with MAX_PIXELS takes less than 100 MB.
    """

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._threads = LowPriorityThreads("images", 1, QUEUE)

    async def reencode(self, content: bytes, header: images.ImageHeader, *, is_square: bool) -> images.NewImage:
        return await self._threads.run(partial(_reencode, content, header, is_square=is_square))

    def url(self, key: str) -> str:
        return f"{self._base_url}{IMAGE_PATH}{key}/{LARGE}"


def _reencode(content: bytes, header: images.ImageHeader, *, is_square: bool) -> images.NewImage:
    # Loaded on first use: most processes never decode an image.
    from PIL import Image, ImageOps

    try:
        with Image.open(BytesIO(content), formats=[_FORMATS[header.type]]) as image:
            # The library also reads the header. The decoded size must be the same as the checked
            # size.
            if image.size != (header.width, header.height):
                raise images.ImageDamaged
            image.draft("RGB", (LARGE, LARGE))  # a JPEG is decoded in a smaller size
            image.load()
            upright = _turn(image)
            pixels = upright.convert("RGBA" if upright.has_transparency_data else "RGB")
    except images.ImageDamaged:
        raise
    except Exception:  # for a damaged file, the decoders raise many kinds of errors
        raise images.ImageDamaged from None
    if is_square:
        side = min(pixels.size)
        pixels = ImageOps.fit(pixels, (min(side, LARGE), min(side, LARGE)), Image.Resampling.LANCZOS)
    else:
        pixels.thumbnail((LARGE, LARGE), Image.Resampling.LANCZOS)
    small = pixels.copy()
    small.thumbnail((images.SMALL, images.SMALL), Image.Resampling.LANCZOS)
    return images.NewImage(_encode(small), _encode(pixels))


def _turn(image: "PillowImage") -> "PillowImage":
    """Return the image turned as its EXIF orientation says. Without readable EXIF, return it unchanged."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(image)
    except Exception:
        return image


def _encode(image: "PillowImage") -> bytes:
    """Return the pixels as PNG. A new image has no metadata: nothing from `info` is copied."""
    output = BytesIO()
    image.info = {}
    image.save(output, "PNG", optimize=True)
    return output.getvalue()
