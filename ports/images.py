"""Images that users upload."""

from typing import Protocol

from core.kernel.images import ImageHeader, NewImage


class Images(Protocol):
    """The decoder for uploaded images."""

    async def reencode(self, content: bytes, header: ImageHeader, *, is_square: bool) -> NewImage:
        """Return the image in both sizes, without the file's other contents. Animations keep only their first frame.

        `content` has passed `check_header`, which returned `header`. With `is_square`, the longer side is cut.
        Threads and memory are bounded.

        Raises: ImageDamaged; Limited if too many images wait.
        """

    def url(self, key: str) -> str:
        """Return the large image's URL, by its key."""
