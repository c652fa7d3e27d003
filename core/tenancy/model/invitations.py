"""Invitations: entities, states and errors."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.accounts.model.accounts import AccountSummary
from core.kernel import errors, roles, values
from core.kernel.callers import Person
from core.kernel.causes import Caller
from core.tenancy.model import members

_HASH = re.compile("[0-9a-f]{64}")
DAY = timedelta(days=1)
SWEEPER = "invitation_sweeper"  # the sweeper's lease
BATCH = 500  # invitations that the sweeper expires in one transaction
# Longer than a batch takes, and longer than the pause between two sweeps, so that one process keeps
# the lease while it runs.
LEASE = timedelta(minutes=3)


MAX_BULK_INVITATIONS: Final = 100  # addresses per request


class OwnerNotInvitable(errors.Invalid):
    """You cannot invite an owner. Invite the person as a member, then transfer the ownership."""


class InvitationAlreadySent(errors.Invalid):
    """There is already a pending invitation for this address. Send that one again, or cancel it."""


class TooManyInvitations(errors.Limited):
    """The organization has reached its daily limit of invitations. Retry-After says when you can send the next one."""

    audited = True


class InvitationNotFound(errors.NotFound):
    """There is no such invitation, or it has been answered or canceled."""


class InvitationNotPending(errors.Invalid):
    """This invitation does not exist, or it has already been answered or canceled. If you have not accepted it, ask for a new one."""


class InvitationExpired(errors.Invalid):
    """This invitation has expired. Ask the person who invited you to send a new one."""

    code = "INVITATION_EXPIRED"


class InviteeMismatch(errors.Invalid):
    """This invitation is for another email address. Sign in with the invited address, or send no access token."""


class TeamFull(errors.Invalid):
    """The organization has reached its member limit. Ask the person who invited you to make room, then accept again."""

    code = "TEAM_LIMIT_EXCEEDED"
    audited = True


class InviteeHasNoAccount(errors.Invalid):
    """There is no account with this email address yet. Ask the invitee to open the link in the invitation email, which creates one."""


class InviteeBlocked(errors.Conflict):
    """Your organization's directory has blocked this user."""

    def __init__(self, user_id: UUID) -> None:
        super().__init__(
            f"Your organization's directory has blocked this user (id {user_id}). Activate the user in the directory, or remove the "
            "block, before you send an invitation."
        )


class InvitedDomainRefused(errors.Invalid):
    """The sign-in policy does not allow this address to be invited. Invite an address at one of its domains."""

    def __init__(self, domains: Collection[values.Domain]) -> None:
        *most, last = sorted(domains)
        names = f"{', '.join(most)} or {last}" if most else last
        super().__init__(f"The sign-in policy allows only addresses at {names}. Invite one of these, or ask an admin to change the policy.")


class MailTokenRequired(errors.Invalid):
    """The domain of this address belongs to another organization. The invitee must register an account first, and then accept."""


class InviteeCannotJoin(errors.Invalid):
    """This address cannot join now. Verify it or reset the password. If that fails, ask for an invitation to a different address."""


# See docs/specification/lifecycles.md.
class InvitationStatus(StrEnum):
    """The state that an invitation has. All states except PENDING are final."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """An invitation to join an organization. Times are UTC.

    In a loaded invitation, `role_label` is the name of a role that the organization has defined.
    """

    id: UUID
    org_id: UUID
    email: values.Email
    role: roles.RoleName
    invited_by: UUID
    status: InvitationStatus
    # SHA-256, 32 bytes: the token in the email, and the token in the response to the inviter. None if the inviter could
    # read the email: then there is only one token. Tokens are not stored.
    token_hash: bytes = field(repr=False)
    inviter_token_hash: bytes | None = field(default=None, repr=False)
    expires_at: datetime
    created_at: datetime
    role_label: str | None = None

    @property
    def role_phrase(self) -> str:
        """The role as in "You are invited as ..."."""
        return roles.phrase_of(self.role, self.role_label)

    @property
    def shown_hash(self) -> bytes:
        """The hash of the token in the response to the inviter."""
        return self.inviter_token_hash or self.token_hash

    def is_proved_by(self, token_hash: bytes) -> bool:
        """Return whether the token with this hash proves the mailbox, because only the email contains it."""
        return self.inviter_token_hash is not None and token_hash == self.token_hash

    @property
    def is_pending(self) -> bool:
        return self.status is InvitationStatus.PENDING

    def is_for(self, caller: Caller | None) -> bool:
        """Return whether the caller is the signed-in recipient, with a verified address."""
        return isinstance(caller, Person) and caller.email_verified and caller.email == self.email


@dataclass(frozen=True, slots=True)
class ListedInvitation:
    """An invitation with the account that sent it."""

    invitation: Invitation
    inviter: AccountSummary


@dataclass(frozen=True, slots=True)
class BulkInvitation:
    """What a bulk invitation did for one address: the invitation, or the reason that there is none."""

    email: values.Email
    invitation: ListedInvitation | None
    refusal: errors.Refusal | None


@dataclass(frozen=True, slots=True)
class ReceivedInvitation:
    """An invitation as shown to its recipient: in their list, in the email and on the page."""

    invitation: Invitation
    organization_slug: str
    organization_name: str
    inviter_email: values.Email | None  # None if the inviter's account no longer exists


def parse_token(token: str) -> tuple[bytes, bool]:
    """Return the token's hash, and whether `token` already is that hash in hexadecimal."""
    return (bytes.fromhex(token), True) if _HASH.fullmatch(token) else (values.digest(token), False)


def require_invitable(role: roles.Role | None) -> roles.Role:
    """Return the role, if an invitation can offer it. Raises: OwnerNotInvitable; RoleUnknown if it is None."""
    if role is not None and role.name == roles.OWNER:
        raise OwnerNotInvitable
    return members.require_assignable(role)
