"""Entities, refusals and pure rules of `core.tenancy.invitations`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from core.kernel.errors import Invalid, Limited, NotFound
from core.kernel.principals import Role
from core.tenancy import members_rules

if TYPE_CHECKING:
    from uuid import UUID

    from core.accounts.accounts_rules import AccountSummary
    from core.kernel.values import Email

DAY = timedelta(days=1)
SWEEPER = "invitation_sweeper"  # its lease
BATCH = 500
# Longer than one batch can take, and than the pause between two sweeps, so that one process goes on doing it while it lives.
LEASE = timedelta(minutes=3)


class OwnerNotInvited(Invalid):
    """Nobody is invited to be the owner. Invite the person as a member, and transfer the ownership then."""


class InvitationAlreadySent(Invalid):
    """There is a pending invitation for this address already. Cancel it to send another one."""


class TooManyInvitations(Limited):
    """The organization has sent as many invitations as it may in a day. Retry-After says when there may be another one."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(retry_after, type(self).__doc__)


class NoSuchInvitation(NotFound):
    """There is no pending invitation with this id."""


class NotOpen(Invalid):
    """There is no such invitation, or it was answered or cancelled already. Unless you have accepted it, ask for a new one."""


class InvitationExpired(Invalid):
    """The invitation has expired. Ask for a new one."""

    code = "INVITATION_EXPIRED"


class InvitedIsAnother(Invalid):
    """This invitation is for somebody else. Sign in with the address that was invited, or send no token."""


class TeamFull(Invalid):
    """The organization has as many members as it may have. Ask those who invited you to make room, then accept again."""

    code = "TEAM_LIMIT_EXCEEDED"


class InvitedIsUnknown(Invalid):
    """There is no account with this address yet, so that nobody can accept for it. The link in the mail makes one."""


class InvitedIsDeactivated(Invalid):
    """Your organization's directory has deactivated this person. Have it activate or delete them before you invite them."""


class InvitedCannotJoin(Invalid):
    """The account with this address cannot join as it is. Verify the address or reset the password; if neither helps, ask the operator."""


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

    @property
    def is_pending(self) -> bool:
        return self.status is InvitationStatus.PENDING


@dataclass(frozen=True, slots=True)
class ListedInvitation:
    """An invitation and who made it."""

    invitation: Invitation
    inviter: AccountSummary


@dataclass(frozen=True, slots=True)
class Offer:
    """An invitation as the invited person sees it: in the own list, in the mail, on the page."""

    invitation: Invitation
    organization_slug: str
    organization_name: str
    inviter_email: Email | None


def invitable(role: str) -> Role:
    """The role of this name, if somebody can be invited to it. Raises OwnerNotInvited, RoleUnknown."""
    if role == Role.OWNER:
        raise OwnerNotInvited
    return members_rules.assignable(role)
