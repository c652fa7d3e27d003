"""Storage of uploaded images."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.kernel.images import ImageAddress, ImageOwner, NewImage


class ImagesRead(Protocol):
    """Read access to images."""

    async def content(self, address: ImageAddress) -> tuple[bytes, bool] | None:
        """Return the PNG at this address, and whether it is the picture of a user, or None."""

    async def of_user(self, user_id: UUID) -> bytes | None:
        """Return the picture of a user in the large size, or None."""

    async def keys(self, owner_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the keys of the images of these owners. Callers pass only ids of objects that the user sees."""


class Images(ImagesRead, Protocol):
    """Write access to images. Lock order: the owner first."""

    async def put(self, owner: ImageOwner, image: NewImage, now: datetime) -> None:
        """Store the image of an owner instead of the present one."""

    async def remove(self, owner: ImageOwner) -> bool:
        """Remove the image of an owner. Return whether there was one."""
