"""Uploaded images: the rules for all owners, and users' pictures.

A user's picture and an organization's logo can also be images on other hosts. An upload fills the same field, with an
address here, and a new value in the field removes the image.
"""

from collections.abc import Collection, Mapping
from uuid import UUID

from core.accounts import profiles
from core.accounts.model.profiles import Profile, ProfileChanges
from core.accounts.own_account import lock_own_account
from core.kernel import errors, images
from core.kernel.callers import Person
from ports import Ports


class ImageNotFound(errors.NotFound):
    """There is no image at this address. It may have been removed or replaced."""


async def reencode(ports: Ports, content: bytes, content_type: str | None = None, *, is_square: bool = False) -> images.NewImage:
    """Return an uploaded image as it is kept. Call it outside transactions, because it takes time."""
    return await ports.images.reencode(content, images.check_header(content, content_type), is_square=is_square)


async def load(ports: Ports, address: images.ImageAddress | None) -> tuple[bytes, bool]:
    """Return the image at this address, and whether it is a user's picture.

    Raises: ImageNotFound.

    The address is the right to see the image: it cannot be guessed, and stands only where the owner is shown.
    """
    if address is None:
        raise ImageNotFound
    async with ports.storage.reading() as read:
        return await read.images.content(address) or errors.refuse(ImageNotFound)


async def find_keys(ports: Ports, owner_ids: Collection[UUID]) -> Mapping[UUID, str]:
    """Return the image keys of these owners, which the user sees."""
    async with ports.storage.reading() as read:
        return await read.images.keys(owner_ids)


async def set_picture(ports: Ports, caller: Person, content: bytes, content_type: str | None = None) -> Profile:
    """Make an uploaded image the caller's picture, and return the profile."""
    image = await reencode(ports, content, content_type, is_square=True)
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        account = await lock_own_account(tx, caller, now)
        await tx.images.put(images.ImageOwner(user_id=account.id), image, now)
        return await profiles.apply_changes(tx, account, ProfileChanges({"picture": ports.images.url(image.key)}), now)


async def remove_picture(ports: Ports, caller: Person) -> Profile:
    """Remove the caller's picture, whether it was uploaded or not, and return the profile."""
    return await profiles.change(ports, caller, ProfileChanges({"picture": None}))
