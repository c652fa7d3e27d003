"""The lifecycle of organizations in the hands of platform owners (organizations.md sections 3 and 4.6; decisions, points 236 to 240)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from core.organizations import Organization
    from core.values import Email


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of an organization, as far as the account still exists."""

    id: UUID
    email: Email
    is_platform_owner: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Governed:
    """An organization as the platform's list shows it."""

    organization: Organization
    owner: Owner | None
