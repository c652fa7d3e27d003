"""Values of consents: the scopes that a user shares with an application (OpenID Connect Core section 3.1.2.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel.errors import NotFound

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.authentication.openid_rules import Scope


class ConsentNotFound(NotFound):
    """You share nothing with this application, or you have already withdrawn your consent. Your account page lists your consents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """A user's consent to an application, with the names that the user knows."""

    service_id: UUID
    service_slug: str
    service: str
    org_id: UUID
    org_slug: str
    organization: str  # the name that its pages show
    logo_url: str | None  # of the organization
    scope: tuple[Scope, ...]
    granted_at: datetime  # UTC; when the user last agreed to a new scope
    last_sign_in_at: datetime | None = None  # UTC; at the application
