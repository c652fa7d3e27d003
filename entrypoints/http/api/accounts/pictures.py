"""Uploaded images: the signed-in user's picture, and the address for every image."""

from typing import Final

from pydantic import Field
from quart import Blueprint, Response, request

from core.accounts import images
from core.kernel import rate_limits
from core.kernel.images import CONTENT_TYPE, IMAGE_PATH, ImageAddress
from entrypoints.http import kit

routes = Blueprint("images", __name__)

# An image has another address when it is replaced, so browsers keep it. Only the user's own browser keeps a picture.
CACHING: Final = {True: "private, max-age=86400, immutable", False: "public, max-age=31536000, immutable"}
POLICY: Final = "default-src 'none'; sandbox"


class PictureResponse(kit.ResponseModel):
    """The user's picture."""

    picture: str | None = Field(description="The URL of the picture, or null.", examples=["https://id.example.com/images/4kf1.../256"])


@routes.put("/api/user/picture")
@kit.person(kit.MINE, limit=rate_limits.IMAGE_UPLOAD)
@kit.takes_image
async def set_picture() -> PictureResponse:
    """Upload your picture.

    The body is a PNG, JPEG or WebP file with at most 200 KB and 4,000,000 pixels. It is cut to a square, and kept as PNG with 64 and with
    256 pixels, without anything else that the file contains. Its URL becomes the `picture` in your profile, which applications with the
    scope `profile` get, and cannot be guessed.
    """
    profile = await images.set_picture(kit.ports(), kit.signed_in(), *await kit.read_image())
    return PictureResponse(picture=profile.picture)


@routes.delete("/api/user/picture")
@kit.person(kit.MINE)
@kit.describes({204: "The profile has no picture."})
async def remove_picture() -> None:
    """Remove your picture.

    It does not matter whether you uploaded it or set its URL.
    """
    await images.remove_picture(kit.ports(), kit.signed_in())


@routes.get(f"{IMAGE_PATH}<image_key>/<size>")
@kit.anyone(limit=rate_limits.IMAGE)
@kit.describes({200: "The image.", 304: "The browser has the image."}, content_type=CONTENT_TYPE)
async def get_image(image_key: str, size: str) -> Response:
    """Return an uploaded image.

    An image that was removed or replaced is not found.
    """
    content, is_picture = await images.load(kit.ports(), ImageAddress.parse(image_key, size))
    headers = {
        "Cache-Control": CACHING[is_picture],
        "Content-Security-Policy": POLICY,
        "Cross-Origin-Resource-Policy": "cross-origin",  # applications show it, too
        "ETag": f'"{image_key}-{size}"',
    }
    if headers["ETag"] in request.headers.get("If-None-Match", "").split(", "):
        return Response(b"", 304, headers)
    return Response(content, 200, headers, content_type=CONTENT_TYPE)
