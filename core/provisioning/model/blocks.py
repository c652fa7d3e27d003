"""The users that a directory blocks: the entity, and its refusal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel.errors import NotFound

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID


class NotBlocked(NotFound):
    """The organization's directory does not block this user."""


@dataclass(frozen=True, slots=True)
class DirectoryBlock:
    """A user that the organization's directory blocks. `since` is UTC."""

    user_id: UUID
    email: str | None  # the address that the user had when they left, or None if the directory forgot them
    since: datetime
