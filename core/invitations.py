"""Invitations: their states, their one-time tokens, and what is done with them (organizations.md sections 2.5, 3 and 4.7; security.md
section 9; decisions, points 188 to 198)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from core.errors import Invalid

if TYPE_CHECKING:
    from core.access import Role
    from core.values import Email


class InvitationAlreadySent(Invalid):
    """There is a pending invitation for this address already. Cancel it to send another one."""


class InvitationStatus(StrEnum):
    """organizations.md section 3; all but the first are final."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """An invitation to become a member. Times are UTC; of the token only the SHA-256 is kept, 32 bytes."""

    id: UUID
    org_id: UUID
    email: Email
    role: Role
    invited_by: UUID
    status: InvitationStatus
    token_hash: bytes = field(repr=False)
    expires_at: datetime
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Inviter:
    """Who invited, as far as the account still exists."""

    id: UUID
    email: Email
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Invited:
    """An invitation as its list shows it."""

    invitation: Invitation
    inviter: Inviter | None


@dataclass(frozen=True, slots=True)
class Offer:
    """An invitation as the invited person sees it: in the own list, in the mail, on the page."""

    invitation: Invitation
    organization_slug: str
    organization_name: str
    inviter_email: Email | None
