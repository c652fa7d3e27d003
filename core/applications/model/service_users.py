"""Users of a service as its API keys see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel.errors import Forbidden, NotFound

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.kernel.values import Email


class ServiceUserNotFound(NotFound):
    """No user of this service has this id."""


class UserNotManaged(Forbidden):
    """Your organization does not manage this account alone, so only the user can change the email address."""


@dataclass(frozen=True, slots=True)
class ServiceUser:
    """A user of a service. `created_at` is that of the account (UTC)."""

    id: UUID
    email: Email
    created_at: datetime
