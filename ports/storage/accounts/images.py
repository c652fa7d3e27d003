"""Storage for uploaded images."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.kernel.images import ImageAddress, ImageOwner, NewImage


class ImagesRead(Protocol):
    """Read access to images."""

    async def content(self, address: ImageAddress) -> tuple[bytes, bool] | None:
        """Return the PNG at this address, and whether it is a user's picture, or None."""

    async def of_user(self, user_id: UUID) -> bytes | None:
        """Return a user's picture in the large size, or None."""

    async def keys(self, owner_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the image keys of these owners. Callers pass only ids that the user may see."""


class Images(ImagesRead, Protocol):
    """Write access to images. Lock order: the owner first."""

    async def put(self, owner: ImageOwner, image: NewImage, now: datetime) -> None:
        """Store an owner's image instead of the present image."""

    async def remove(self, owner: ImageOwner) -> bool:
        """Remove the owner's image, and return whether there was an image."""
