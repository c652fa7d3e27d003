"""An application that a user may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnApplication:
    """An application that a user may use now."""

    id: UUID
    slug: str
    name: str
    org_slug: str
    organization: str  # the name that its pages show
    logo_url: str | None  # of the organization
    launch_url: str | None
    starts_with_saml: bool  # SAML admits the user, and opens the application
