"""Emails in the queue, the one-time tokens of their links, and security notices.

A notice is about a new way into an account, with a link that undoes it (security A-13), or about secrets of
programs that ended (security J-12).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Self
from uuid import UUID

from core.kernel.connections import ConnectionSlug
from core.kernel.errors import Invalid
from core.kernel.proofs import FactorKind
from core.kernel.values import Email, new_id


class TokenPurpose(StrEnum):
    """The purpose of a one-time token. Lookups include it, so that a token works for nothing else (security A-5)."""

    VERIFY_EMAIL = "verify_email"
    RESET_PASSWORD = "reset_password"  # noqa: S105  (a purpose, not a secret)
    RECOVER_ACCOUNT = "recover_account"  # with a code (security M-8)
    RECOVER_OWNER = "recover_owner"  # the command line shows this link, and no email contains it; so is the next one
    RESET_OWNER = "reset_owner"  # it also removes the factors


@dataclass(frozen=True, slots=True)
class LinkContinuation:
    """Where the browser continues after the link in an email."""

    next_path: str | None = None  # a path of our pages; None for the account page
    # SHA-256 of the device cookie of the browser in which the user signed up and chose the password.
    # None for all other links.
    browser_hash: bytes | None = field(default=None, repr=False)
    # The application that the user signed up for on that page, or that a welcome email named.
    service_id: UUID | None = None


TO_ACCOUNT_PAGE = LinkContinuation()


class EmailKind(StrEnum):
    """The kind of an email. Each kind has an HTML and a text template of the same name."""

    VERIFY_EMAIL = "verify_email"
    RESET_PASSWORD = "reset_password"  # noqa: S105  (a kind, not a secret)
    EMAIL_SIGN_IN = "email_sign_in"
    REAUTHENTICATION = "reauthentication"
    MEMBER_RESET = "member_reset"  # the same link, sent by an admin of an organization
    PASSWORD_CHANGED = "password_changed"  # noqa: S105
    CONFIRM_EMAIL_CHANGE = "confirm_email_change"  # to the new address
    EMAIL_CHANGE_REQUESTED = "email_change_requested"  # to the old address
    IDENTITY_LINKED = "identity_linked"
    IDENTITY_UNLINKED = "identity_unlinked"
    EMAIL_CHANGED = "email_changed"  # to the old address, after an organization's change or an undo
    UNUSUAL_SIGN_IN = "unusual_sign_in"
    MFA_ENABLED = "mfa_enabled"
    MFA_DISABLED = "mfa_disabled"
    MFA_REMOVED = "mfa_removed"
    PASSKEY_ADDED = "passkey_added"
    PASSKEY_REMOVED = "passkey_removed"
    PASSKEY_REFUSED = "passkey_refused"
    ACCOUNT_DEACTIVATED = "account_deactivated"  # by a platform owner
    ACCOUNT_REACTIVATED = "account_reactivated"
    BACKUP_CODES_REGENERATED = "backup_codes_regenerated"
    BACKUP_CODE_USED = "backup_code_used"
    ACCOUNT_DELETED = "account_deleted"  # by the user
    INVITATION = "invitation"
    WELCOME = "welcome"
    TRIAL_ENDS = "trial_ends"
    PAYMENT_ACTION = "payment_action"
    ORGANIZATION_APPROVED = "organization_approved"
    ORGANIZATION_REJECTED = "organization_rejected"
    ORGANIZATION_SUSPENDED = "organization_suspended"
    ORGANIZATION_ACTIVATED = "organization_activated"
    ORGANIZATION_WAITING = "organization_waiting"  # to platform owners; the other four are for the owner
    ORGANIZATION_TRANSFERRED = "organization_transferred"  # to the former and the new owner
    ADMIN_NETWORKS_REMOVED = "admin_networks_removed"  # to the owner and the admins
    BREAK_GLASS_USED = "break_glass_used"  # to the owner and the admins of an organization, and to platform owners
    CONNECTION_CERTIFICATE_EXPIRES = "connection_certificate_expires"  # to members who manage integrations; so is the next one
    CONNECTION_FAILING = "connection_failing"
    CONNECTION_LINKED = "connection_linked"  # to the user of an account that was there before
    PERSONAL_TOKEN_CREATED = "personal_token_created"  # noqa: S105
    SECRET_EXPIRES = "secret_expires"  # noqa: S105
    SECRET_ENDED = "secret_ended"  # noqa: S105  (the person who made it lost the right to)
    PROGRAM_ENDED = "program_ended"  # it leaves secrets behind
    OWNER_RECOVERY = "owner_recovery"  # to the other platform owners
    OWNER_RESET = "owner_reset"  # the same, with a removal of the factors
    OWNER_RESET_USED = "owner_reset_used"  # to all platform owners
    RECOVERY_LINK = "recovery_link"
    RECOVERY_ISSUED = "recovery_issued"  # to the other admins, or platform owners
    RECOVERED = "recovered"
    SETUP_LINK = "setup_link"
    SETUP_CODE = "setup_code"  # with which the recipient of such a link opens it
    PLATFORM_OWNER_ADDED = "platform_owner_added"  # to all platform owners and the user; so is the next one
    PLATFORM_OWNER_REMOVED = "platform_owner_removed"
    POLICY_DUE = "policy_due"  # to platform owners without a second factor
    MAIL_SERVER_TEST = "mail_server_test"  # sent at once, without the queue


LIMIT_WINDOW: Final = timedelta(hours=1)  # of the limits per recipient (security E-5)

# The kinds that share a limit per recipient (security E-5). Invitations, welcome emails, resets by
# admins, notices of a changed address and sign-in emails have limits apart from account emails:
# organizations, directories and frequent sign-ins cause them, and must not use up the emails that a
# user needs to get back into their account. The links of recoveries and of set-up links are limited at their start.
ACCOUNT_EMAILS = frozenset({EmailKind.VERIFY_EMAIL, EmailKind.RESET_PASSWORD})
INVITATION_EMAILS = frozenset({EmailKind.INVITATION})
SIGN_IN_EMAILS = frozenset({EmailKind.EMAIL_SIGN_IN})
REAUTHENTICATION_EMAILS = frozenset({EmailKind.REAUTHENTICATION})
WELCOME_EMAILS = frozenset({EmailKind.WELCOME})
MEMBER_RESET_EMAILS = frozenset({EmailKind.MEMBER_RESET})
ADDRESS_CHANGE_EMAILS = frozenset({EmailKind.EMAIL_CHANGED})
ADDRESS_PROOF_EMAILS = frozenset({EmailKind.CONFIRM_EMAIL_CHANGE})
WAITING_ORGANIZATION_EMAILS = frozenset({EmailKind.ORGANIZATION_WAITING})
# Notices of the platform about an organization. They have no branding of the organization.
ORGANIZATION_EMAILS = WAITING_ORGANIZATION_EMAILS | {
    EmailKind.ORGANIZATION_APPROVED,
    EmailKind.ORGANIZATION_REJECTED,
    EmailKind.ORGANIZATION_SUSPENDED,
    EmailKind.ORGANIZATION_ACTIVATED,
    EmailKind.ORGANIZATION_TRANSFERRED,
    EmailKind.ADMIN_NETWORKS_REMOVED,
    EmailKind.BREAK_GLASS_USED,
    EmailKind.CONNECTION_CERTIFICATE_EXPIRES,
    EmailKind.CONNECTION_FAILING,
    EmailKind.CONNECTION_LINKED,
}
CONNECTION_EMAILS = frozenset({EmailKind.CONNECTION_CERTIFICATE_EXPIRES, EmailKind.CONNECTION_FAILING})
# The kinds that may go through the organization's mail server. An invitation does if its token proves
# nothing. Emails about accounts never do (security E-1).
SENT_BY_ORGANIZATIONS = frozenset({EmailKind.INVITATION})


OWNER_CHANGE_EMAILS = frozenset({EmailKind.PLATFORM_OWNER_ADDED, EmailKind.PLATFORM_OWNER_REMOVED})


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """What an email says about a change of the platform owners: the user, the platform owner who made it, and the reason."""

    user: str = ""
    by: str = ""
    reason: str = ""

    def to_token(self) -> str:
        """Return the change as the `token` of a queued email. An address has no line break."""
        return f"{self.user}\n{self.by}\n{self.reason}"

    @classmethod
    def parse(cls, token: str | None) -> Self:
        """Return the change in a `token`. The queue may have forgotten it."""
        return cls(*(token or "").split("\n", 2))


class NoticedSecret(StrEnum):
    """The kind of secret that an email is about."""

    PERSONAL_TOKEN = "personal_token"  # noqa: S105  (a kind, not a secret)
    API_KEY = "api_key"
    SCIM_TOKEN = "scim_token"  # noqa: S105
    REGISTRATION_TOKEN = "registration_token"  # noqa: S105
    SERVICE_ACCOUNT_CREDENTIAL = "service_account_credential"
    API_RESOURCE_CREDENTIAL = "api_resource_credential"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretNotice:
    """What an email says about a secret. The secret may be gone when the email is sent. Times are UTC."""

    kind: NoticedSecret
    name: str
    label: str | None  # the first characters of the secret, as lists show them
    holder: str | None  # the name of the application, service account or API resource that has it
    organization: str | None  # the name; None if the secret belongs to no organization
    expires_at: datetime
    path: str  # of the page on which the reader can replace it


@dataclass(frozen=True, slots=True)
class QueuedEmail:
    """An email in the queue. Times are UTC."""

    id: UUID
    kind: EmailKind
    address: Email
    created_at: datetime
    due_at: datetime
    claims: int = 0  # all attempts that were started
    attempts: int = 0  # the attempts with a known outcome
    # A one-time token, or the code of REAUTHENTICATION or SETUP_CODE. For PAYMENT_ACTION the URL of an invoice, a secret as well. For
    # ORGANIZATION_REJECTED, ORGANIZATION_SUSPENDED, ORGANIZATION_TRANSFERRED and ADMIN_NETWORKS_REMOVED the reason, for
    # OWNER_RECOVERY, OWNER_RESET and OWNER_RESET_USED the address of the platform owner who gets the link, for RECOVERY_ISSUED
    # and BREAK_GLASS_USED that of the account, for OWNER_CHANGE_EMAILS an OwnerChange, for CONNECTION_EMAILS a ConnectionNotice, for
    # POLICY_DUE the day on which the rule starts.
    token: str | None = field(default=None, repr=False)
    token_at: datetime | None = None  # when the email was counted against the limit of its recipient
    # The organization that sends the email. An email about an account has the branding of this organization
    # (security E-1). ORGANIZATION_EMAILS are about it.
    org_id: UUID | None = None
    subscription_id: UUID | None = None  # the subscription of that organization that the email is about
    continuation: LinkContinuation = TO_ACCOUNT_PAGE  # of the link in the email
    email_change_id: UUID | None = None  # the change of address that the email is about
    secret: SecretNotice | None = None  # for PERSONAL_TOKEN_CREATED, SECRET_EXPIRES, SECRET_ENDED and PROGRAM_ENDED
    notice_id: UUID | None = None  # the security notice whose undo token the email has


class EmailOutcome(StrEnum):
    """The final state of an email."""

    SENT = "sent"
    DROPPED = "dropped"  # no recipient, no reason to send it any longer, or the recipient's limit is reached (security E-5)
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True)
class EmailResult:
    """The outcome of an email that is not sent. A failure has a reason, for the operator."""

    outcome: EmailOutcome
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class EmailBacklog:
    """The emails that are due or failed and are not sent yet, and the time that the oldest of them has waited."""

    depth: int
    age: timedelta


@dataclass(frozen=True, slots=True)
class BusyServers:
    """The organizations with enough emails in progress at their own mail servers. Their emails are not claimed."""

    organizations: frozenset[UUID] = frozenset()
    every_own_server: bool = False  # all organizations that have their own server


NO_BUSY_SERVERS = BusyServers()

# Longer than a whole session with a slow mail server, so that no other process claims the email
# during the session.
LEASE = timedelta(seconds=120)
MAX_ATTEMPTS = 24
# The limit on claims without an outcome. An email that crashes the process must not do so forever.
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
    continuation: LinkContinuation = TO_ACCOUNT_PAGE,
    email_change_id: UUID | None = None,
    secret: SecretNotice | None = None,
    notice_id: UUID | None = None,
) -> QueuedEmail:
    """Return an email that is due at once."""
    return QueuedEmail(
        id=new_id(),
        kind=kind,
        address=address,
        created_at=now,
        due_at=now,
        token=token,
        org_id=org_id,
        subscription_id=subscription_id,
        continuation=continuation,
        email_change_id=email_change_id,
        secret=secret,
        notice_id=notice_id,
    )


def compute_backoff(attempts: int, spread: float) -> timedelta:
    """Return the wait after the given number of failed attempts: 5 s, doubling up to an hour, times 0.75 to 1.25.

    `spread` is a random number from 0 to 1. All attempts take about 14 hours, so that a mail server
    may be down for a night. A verification link is still valid for hours when it arrives. A reset
    link expires earlier, and `core.mailing.preparation` then gives the email up.
    """
    return timedelta(seconds=min(5 * 2 ** (attempts - 1), 3600) * (0.75 + spread / 2))


UNDO_TTL: Final = timedelta(hours=72)
ASKS_FOR_FACTORS: Final = "+"  # at the end of the detail of a notice of PASSWORD_CHANGED
PASSWORD_REMOVED: Final = "removed"  # the detail of a notice of PASSWORD_CHANGED  # noqa: S105


class UndoLinkInvalid(Invalid):
    """This link is incomplete, has expired, or has already been used. If you cannot sign in, ask the operator of Gatehouse."""


@dataclass(frozen=True, slots=True)
class SecurityNotice:
    """An email to the verified address of an account about a change to its security. Times are UTC."""

    id: UUID
    user_id: UUID
    session_id: UUID | None  # the session that made the change, or None
    kind: str  # an `EmailKind`, or one of a newer release
    address: Email
    created_at: datetime  # the time of the change
    undo_until: datetime
    # The name of the identity provider, for IDENTITY_LINKED and IDENTITY_UNLINKED. The product that keeps the passkey, for
    # PASSKEY_ADDED and PASSKEY_REMOVED. The second factor, for MFA_ENABLED and MFA_DISABLED: `totp` or `passkey`, with `:on` if the
    # other one stays; None in notices of version 0.9.0. The number of passkeys that stay after a reset, or
    # PASSWORD_REMOVED, for PASSWORD_CHANGED.
    detail: str | None = None
    undone_at: datetime | None = None

    def is_about(self, factor: FactorKind) -> bool:
        """Return whether the change was of this second factor."""
        return (self.detail or FactorKind.TOTP).partition(":")[0] == factor

    def can_be_undone(self, now: datetime) -> bool:
        """Return whether the link in the email still works."""
        return self.undone_at is None and now < self.undo_until


@dataclass(frozen=True, slots=True)
class UndoableChanges:
    """The changes that an undo link can undo: its own, and the recent ones of the same session or emailed to the same address."""

    notice: SecurityNotice  # of the link
    starts: tuple[SecurityNotice, ...]  # the changes to start from, the oldest first


@dataclass(frozen=True, slots=True)
class UndoneChanges:
    """The result of an undo: the address of the account, and the changes that were undone, oldest first."""

    email: Email
    is_reopened: bool  # the account was to be deleted
    undone: tuple[SecurityNotice, ...]
    needs_recovery: bool  # for the factor that a sign-in policy asks for


def possible_starts(live: Sequence[SecurityNotice], notice: SecurityNotice) -> tuple[SecurityNotice, ...]:
    """Return the changes that an undo with the link of `notice` can start from. `live` are all that can be undone, the oldest first.

    They were mailed to the same address, or the same session made them: a thief may have changed
    several things, in several sessions. Nothing is returned if `notice` itself cannot be undone.
    """
    if notice not in live:
        return ()
    return tuple(other for other in live if other.address == notice.address or (other.session_id and other.session_id == notice.session_id))


@dataclass(frozen=True, slots=True)
class AddedSignInMethod:
    """A linked account, a passkey or an authenticator app, for its user to recognize. `added_at` is UTC."""

    id: UUID  # of the identity or the passkey, or of the user for the app
    provider: ConnectionSlug | None  # None for a passkey and an app
    added_at: datetime
    is_recent: bool  # it ends with a reset unless the user recognizes it
    passkey: str | None = None  # the name of the passkey


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCredential:
    """A credential of a service account or an API resource that just ended."""

    id: UUID
    client_id: UUID
    org_id: UUID | None  # None for a service account of the platform
    is_account: bool  # otherwise it is of an API resource
    name: str
    kind: str
    hint: str | None  # its first characters, or the thumbprint of its key
    holder: str  # the name of the service account or API resource
    organization: str | None
    org_slug: str | None
    recipient: Email | None  # who replaces it, if anyone with a verified address can


@dataclass(frozen=True, slots=True)
class CreatedSecret:
    """An API key or a SCIM token that a service account created, and that works on its own."""

    kind: NoticedSecret
    id: UUID
    name: str
    prefix: str
    holder: str | None  # the name of the application of an API key
