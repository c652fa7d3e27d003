"""Members of an organization: who they are, their roles, their removal, and the transfer of ownership (organizations.md sections 2.4, 3
and 4.4; security.md section 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from core.errors import Invalid

if TYPE_CHECKING:
    from core.organizations import Membership
    from core.values import Email


class AlreadyAMember(Invalid):
    """This person is a member of the organization already."""


@dataclass(frozen=True, slots=True)
class ListedMember:
    """A membership and whose it is."""

    user_id: UUID
    email: Email
    is_platform_owner: bool
    membership: Membership
