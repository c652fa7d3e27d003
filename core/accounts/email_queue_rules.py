"""Entities, refusals and pure rules of `core.accounts.email_queue`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from core.kernel.values import Email, new_id

if TYPE_CHECKING:
    from uuid import UUID

    from core.billing.subscriptions_rules import Purchase
    from core.tenancy.branding_rules import Design
    from core.tenancy.invitations_rules import ReceivedInvitation
    from core.tenancy.mail_server_rules import MailServer


class EmailKind(StrEnum):
    """What a mail is for; each kind has a pair of templates of its name."""

    VERIFY_EMAIL = "verify_email"
    RESET_PASSWORD = "reset_password"  # noqa: S105  (a kind, not a secret)
    PASSWORD_CHANGED = "password_changed"  # noqa: S105
    EMAIL_CHANGED = "email_changed"
    UNUSUAL_SIGN_IN = "unusual_sign_in"
    MFA_ENABLED = "mfa_enabled"
    MFA_DISABLED = "mfa_disabled"
    MFA_REMOVED = "mfa_removed"  # by a platform owner
    BACKUP_CODES_REGENERATED = "backup_codes_regenerated"
    BACKUP_CODE_USED = "backup_code_used"
    INVITATION = "invitation"
    WELCOME = "welcome"
    TRIAL_ENDS = "trial_ends"
    PAYMENT_ACTION = "payment_action"


# Which mails are counted together against the limit per recipient (security.md E-5). Invitations, and the welcome to whom a directory has
# provisioned, are counted apart, so that no organization can use up what somebody may need to get back into the own account.
ACCOUNT_EMAILS = frozenset({EmailKind.VERIFY_EMAIL, EmailKind.RESET_PASSWORD})
INVITATION_EMAILS = frozenset({EmailKind.INVITATION})
WELCOME_EMAILS = frozenset({EmailKind.WELCOME})
# That an address is no account's any more can be brought about by whoever gives and takes addresses, such as a directory.
ADDRESS_CHANGE_EMAILS = frozenset({EmailKind.EMAIL_CHANGED})
# What an organization writes itself, and sends through a server of its own if it has one. Never a mail of an account (security.md E-1).
SENT_BY_ORGANIZATIONS = frozenset({EmailKind.INVITATION})


@dataclass(frozen=True, slots=True)
class QueuedEmail:
    """A mail on its way. Times are UTC; `attempts` counts the attempts whose outcome is known, `claims` all that were begun."""

    id: UUID
    kind: EmailKind
    address: Email
    created_at: datetime
    due_at: datetime
    claims: int = 0
    attempts: int = 0
    # For PAYMENT_ACTION the whole address of an invoice, if there is one: it opens to whoever has it, too.
    token: str | None = field(default=None, repr=False)
    token_at: datetime | None = None  # when the token was prepared, or it was let through, which counts against the limit of its recipient
    org_id: UUID | None = None  # the organization that it speaks for, or whose design alone it has: its kind tells (E-1)
    subscription_id: UUID | None = None  # of that organization, if it is about one
    purchase: Purchase | None = None  # what a prepared mail says of that
    offer: ReceivedInvitation | None = None  # what a prepared invitation invites to
    server: MailServer | None = None  # the organization's own, which a prepared mail goes through; None is the platform's
    design: Design | None = None  # how a prepared mail looks, if not like one of the platform's own


class EmailOutcome(StrEnum):
    """How a mail ended."""

    SENT = "sent"
    DROPPED = "dropped"  # nobody to write to, nothing to say, or too many for this recipient (E-5)
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True)
class EmailResult:
    """A mail that is done with, and for the operator why, where that is no matter of course."""

    outcome: EmailOutcome
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class BusyServers:
    """Mails that wait, because the servers that they go through are kept busy enough: those of these organizations, or of all."""

    organizations: frozenset[UUID] = frozenset()
    every_own_server: bool = False


NO_BUSY_SERVERS = BusyServers()

# Long enough for the whole exchange with a slow mail server, so that no second worker starts while the first is still at it.
LEASE = timedelta(seconds=120)
MAX_ATTEMPTS = 24
# Claims after which nothing was heard: a mail that takes the process down with it must not do so for ever.
MAX_LOST_CLAIMS = 10
LINK_EXPIRED = "its link expired before it could be sent"


def new_email(
    kind: EmailKind,
    address: Email,
    now: datetime,
    *,
    token: str | None = None,
    org_id: UUID | None = None,
    subscription_id: UUID | None = None,
) -> QueuedEmail:
    """A mail that is due at once; with its token, if that exists already."""
    return QueuedEmail(
        id=new_id(), kind=kind, address=address, created_at=now, due_at=now, token=token, org_id=org_id, subscription_id=subscription_id
    )


def backoff(attempts: int, spread: float) -> timedelta:
    """How long to wait after the given number of failed attempts: 5 s doubling to an hour, times 0.75 to 1.25.

    `spread` is a random number from 0 to 1. All attempts together take some fourteen hours: a mail server may be away for a night, and a
    verification link has hours left when it arrives. A reset link does not live that long, and `prepare` gives it up when it dies.
    """
    return timedelta(seconds=min(5 * 2 ** (attempts - 1), 3600) * (0.75 + spread / 2))
