"""Entities, refusals and pure rules of `core.applications.service_users`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel.errors import Forbidden, NotFound

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.kernel.values import Email


class ServiceUserNotFound(NotFound):
    """Nobody of this id uses the service."""


class NotManaged(Forbidden):
    """This account is not your organization's alone, or its holder manages it, so only they can change the address."""


@dataclass(frozen=True, slots=True)
class ServiceUser:
    """A person as the service knows them. `created_at` is the account's."""

    id: UUID
    email: Email
    created_at: datetime
