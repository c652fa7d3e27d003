"""Uploaded images on pages. A person or organization without an image gets initials on a color."""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final
from unicodedata import normalize
from uuid import UUID

from quart import g, has_app_context

from core.accounts import images
from core.kernel import connections
from core.kernel.images import IMAGE_PATH, SMALL
from entrypoints.http.base.context import app_context, ports

HUES: Final = 8  # the classes `hue-0` to `hue-7` in pages.css


def initials(name: str) -> str:
    """Return one or two letters for a name or an email address, from its first and its last word."""
    text = normalize("NFC", name)
    words = re.findall(r"[^\W_]+", text if " " in text else text.partition("@")[0])
    return "".join(word[0].upper()[0] for word in (*words[:1], *words[1:][-1:])) or "?"


def hue(key: object) -> int:
    """Return the color's number for an id. It is always the same for the same id."""
    return sha256(str(key).encode()).digest()[0] % HUES


async def load_images(owner_ids: Iterable[UUID]) -> None:
    """Load the image paths for these owners, which the user sees, for this request's templates."""
    if ids := {*owner_ids}:
        g.images = await images.find_keys(ports(), ids)


def image_of(owner_id: object, size: int = SMALL) -> str | None:
    """Return the path to this owner's image, if it has an image and `load_images` has loaded it."""
    keys = g.get("images", {}) if has_app_context() else {}
    key = keys.get(owner_id) if isinstance(owner_id, UUID) else None
    return None if key is None else f"{IMAGE_PATH}{key}/{size}"


def image_path(url: str | None, size: int = SMALL) -> str | None:
    """Return the path to the uploaded image with this URL, or None, also for a URL on another host."""
    if url is None or not has_app_context():
        return None
    base = f"{app_context().base_url}{IMAGE_PATH}"
    return f"{IMAGE_PATH}{url.removeprefix(base).partition('/')[0]}/{size}" if url.startswith(base) else None


def provider_logo(slug: str) -> str | None:
    """Return the path to the logo of a platform identity provider, if `load_images` has loaded it."""
    known = connections.PLATFORM_CONNECTIONS.get(connections.ConnectionSlug(slug))
    return None if known is None else image_of(known[0])
