"""Service accounts: the entity, refusals and pure rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from core.kernel.api_scopes import ApiScope
    from core.kernel.principals import Capability, MembershipState, Role


@dataclass(frozen=True, slots=True)
class ServiceAccountContext:
    """A live service account, loaded by one statement for a request.

    Live means that the credential of its token is valid and that its owner could create it now.
    `acts_in` is the organization of the path, or None if the path has none or an unknown one. Its
    role is None if the account belongs to another organization, or to the platform.
    """

    name: str
    org_id: UUID | None  # None: of the platform
    role: Role | None
    scopes: frozenset[ApiScope] | None  # None: all that the role allows
    granted: frozenset[Capability]
    acts_in: MembershipState | None
