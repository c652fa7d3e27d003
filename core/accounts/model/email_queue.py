"""Queued emails, the one-time tokens in their links, and the values in notices about program secrets (security J-12)."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Self, TypedDict, Unpack
from uuid import UUID

from core.kernel import values


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
    """The facts in an email about a secret. The secret may be gone when the email is sent. Times are UTC."""

    kind: NoticedSecret
    name: str
    label: str | None  # the first characters of the secret, as lists show them
    holder: str | None  # the name of the application, service account or API resource that has it
    organization: str | None  # the name; None if the secret belongs to no organization
    expires_at: datetime
    path: str  # of the page on which the reader can replace it


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCredential:
    """A service account's or API resource's credential that just ended."""

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
    recipient: values.Email | None  # who replaces it, if anyone with a verified address can


@dataclass(frozen=True, slots=True)
class CreatedSecret:
    """An API key or a SCIM token that a service account created, and that works on its own."""

    kind: NoticedSecret
    id: UUID
    name: str
    prefix: str
    holder: str | None  # the name of the API key's application


class TokenPurpose(StrEnum):
    """The purpose of a one-time token. Lookups include it, so that a token works for nothing else (security A-5)."""

    VERIFY_EMAIL = "verify_email"
    RESET_PASSWORD = "reset_password"  # noqa: S105  (a purpose, not a secret)
    RECOVER_ACCOUNT = "recover_account"  # with a code (security M-8)
    RECOVER_OWNER = "recover_owner"  # only the command line shows the links of RECOVER_OWNER and RESET_OWNER
    RESET_OWNER = "reset_owner"  # it also removes the factors


@dataclass(frozen=True, slots=True)
class LinkContinuation:
    """Where the browser continues after the link in an email."""

    next_path: str | None = None  # a path on our pages; None for the account page
    # SHA-256 of the device cookie from the browser in which the user signed up and chose the password. None for all
    # links that are not from a sign-up.
    browser_hash: bytes | None = field(default=None, repr=False)
    # The application that the user signed up for on that page, or that a welcome email named.
    service_id: UUID | None = None


TO_ACCOUNT_PAGE = LinkContinuation()


@dataclass(frozen=True, slots=True)
class OneTimeToken:
    """A new link token. Times are UTC."""

    hash: bytes = field(repr=False)  # SHA-256
    purpose: TokenPurpose
    user_id: UUID
    email: values.Email
    created_at: datetime
    expires_at: datetime
    org_id: UUID | None = None  # the organization that brands the page behind the link
    continuation: LinkContinuation = TO_ACCOUNT_PAGE


class EmailKind(StrEnum):
    """The kind of an email. Every kind has an HTML template and a text template with its name."""

    VERIFY_EMAIL = "verify_email"
    RESET_PASSWORD = "reset_password"  # noqa: S105  (a kind, not a secret)
    EMAIL_SIGN_IN = "email_sign_in"
    REAUTHENTICATION = "reauthentication"
    MEMBER_RESET = "member_reset"  # the same link, sent by an organization's admin
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
    PASSKEY_WAIT_STARTED = "passkey_wait_started"  # the user reported all passkeys as lost
    PASSKEY_WAIT_OVER = "passkey_wait_over"
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
    ORGANIZATION_WAITING = "organization_waiting"  # to platform owners; the owner gets the four kinds above
    ORGANIZATION_TRANSFERRED = "organization_transferred"  # to the former and the new owner
    ADMIN_NETWORKS_REMOVED = "admin_networks_removed"  # to the owner and the admins
    RULES_IMPOSED = "rules_imposed"  # to the owner and the admins
    IMPOSED_RULES_REMOVED = "imposed_rules_removed"  # to the owner and the admins
    BREAK_GLASS_USED = "break_glass_used"  # to the owner and the admins of an organization, and to platform owners
    CONNECTION_CERTIFICATE_EXPIRES = "connection_certificate_expires"  # to members who manage integrations, like CONNECTION_FAILING
    CONNECTION_FAILING = "connection_failing"
    CONNECTION_LINKED = "connection_linked"  # to the user of an account that was there before
    PERSONAL_TOKEN_CREATED = "personal_token_created"  # noqa: S105
    SECRET_EXPIRES = "secret_expires"  # noqa: S105
    SECRET_ENDED = "secret_ended"  # noqa: S105  (the person who made it lost the right to)
    PROGRAM_ENDED = "program_ended"  # it leaves secrets behind
    PROGRAMS_END = "programs_end"  # to the owner and the admins: service accounts end soon, because their owner has left
    OWNER_RECOVERY = "owner_recovery"  # to the platform owners who do not get the link
    OWNER_RESET = "owner_reset"  # the same, and the link removes the factors
    OWNER_RESET_USED = "owner_reset_used"  # to all platform owners
    RECOVERY_LINK = "recovery_link"
    RECOVERY_ISSUED = "recovery_issued"  # to the admins or platform owners who did not issue it
    RECOVERED = "recovered"
    SETUP_LINK = "setup_link"
    SETUP_CODE = "setup_code"  # with which the recipient of such a link opens it
    PLATFORM_OWNER_ADDED = "platform_owner_added"  # to all platform owners and the user, like PLATFORM_OWNER_REMOVED
    PLATFORM_OWNER_REMOVED = "platform_owner_removed"
    POLICY_DUE = "policy_due"  # to platform owners without a second factor
    MAIL_SERVER_TEST = "mail_server_test"  # sent at once, without the queue


LIMIT_WINDOW: Final = timedelta(hours=1)  # for the limits per recipient (security E-5)

# The kinds that share a limit per recipient (security E-5). Invitations, welcome emails, resets by admins, notices of a
# changed address and sign-in emails have limits apart from account emails: organizations, directories and frequent
# sign-ins cause them, and must not use up the emails that a user needs to get back into their account. The links for
# recoveries and set-ups are limited when they start.
ACCOUNT_EMAILS = frozenset({EmailKind.VERIFY_EMAIL, EmailKind.RESET_PASSWORD})
INVITATION_EMAILS = frozenset({EmailKind.INVITATION})
SIGN_IN_EMAILS = frozenset({EmailKind.EMAIL_SIGN_IN})
REAUTHENTICATION_EMAILS = frozenset({EmailKind.REAUTHENTICATION})
WELCOME_EMAILS = frozenset({EmailKind.WELCOME})
MEMBER_RESET_EMAILS = frozenset({EmailKind.MEMBER_RESET})
ADDRESS_CHANGE_EMAILS = frozenset({EmailKind.EMAIL_CHANGED})
ADDRESS_PROOF_EMAILS = frozenset({EmailKind.CONFIRM_EMAIL_CHANGE})
WAITING_ORGANIZATION_EMAILS = frozenset({EmailKind.ORGANIZATION_WAITING})
# The platform's notices about an organization. They do not have its branding.
ORGANIZATION_EMAILS = WAITING_ORGANIZATION_EMAILS | {
    EmailKind.ORGANIZATION_APPROVED,
    EmailKind.ORGANIZATION_REJECTED,
    EmailKind.ORGANIZATION_SUSPENDED,
    EmailKind.ORGANIZATION_ACTIVATED,
    EmailKind.ORGANIZATION_TRANSFERRED,
    EmailKind.ADMIN_NETWORKS_REMOVED,
    EmailKind.RULES_IMPOSED,
    EmailKind.IMPOSED_RULES_REMOVED,
    EmailKind.BREAK_GLASS_USED,
    EmailKind.CONNECTION_CERTIFICATE_EXPIRES,
    EmailKind.CONNECTION_FAILING,
    EmailKind.CONNECTION_LINKED,
}
CONNECTION_EMAILS = frozenset({EmailKind.CONNECTION_CERTIFICATE_EXPIRES, EmailKind.CONNECTION_FAILING})
IMPOSED_RULE_EMAILS = frozenset({EmailKind.RULES_IMPOSED, EmailKind.IMPOSED_RULES_REMOVED})
OWNER_CHANGE_EMAILS = frozenset({EmailKind.PLATFORM_OWNER_ADDED, EmailKind.PLATFORM_OWNER_REMOVED})
# The kinds that may go through the organization's mail server. An invitation does if its token proves
# nothing. Emails about accounts never do (security E-1).
SENT_BY_ORGANIZATIONS = frozenset({EmailKind.INVITATION})
# The kinds that an organization can cause in great numbers. Organizations take turns with them (security N-11).
CAUSED_BY_ORGANIZATIONS = INVITATION_EMAILS | WELCOME_EMAILS | MEMBER_RESET_EMAILS


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """A change to the platform owners, as an email describes it: the user, the platform owner who made it, and the reason.

    In IMPOSED_RULE_EMAILS, `by` imposed or removed rules of a sign-in policy, and `reason` names these rules.
    """

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


@dataclass(frozen=True, slots=True)
class QueuedEmail:
    """An email in the queue. Times are UTC."""

    id: UUID
    kind: EmailKind
    address: values.Email
    created_at: datetime
    due_at: datetime
    claims: int = 0  # all attempts that were started
    attempts: int = 0  # the attempts with a known outcome
    # A one-time token, or the code for REAUTHENTICATION or SETUP_CODE. PAYMENT_ACTION has an invoice URL, which is a secret as well.
    # ORGANIZATION_REJECTED, ORGANIZATION_SUSPENDED, ORGANIZATION_TRANSFERRED and ADMIN_NETWORKS_REMOVED have the reason. OWNER_RECOVERY,
    # OWNER_RESET and OWNER_RESET_USED have the address of the platform owner who gets the link. RECOVERY_ISSUED and BREAK_GLASS_USED have
    # the account's address. OWNER_CHANGE_EMAILS and IMPOSED_RULE_EMAILS have an OwnerChange, CONNECTION_EMAILS a ConnectionNotice.
    # POLICY_DUE has the day on which the rule starts.
    token: str | None = field(default=None, repr=False)
    token_at: datetime | None = None  # when the email was counted against its recipient's limit
    # The organization that sends the email. An email about an account has this organization's branding (security E-1).
    # ORGANIZATION_EMAILS are about it.
    org_id: UUID | None = None
    subscription_id: UUID | None = None  # the subscription of that organization that the email is about
    continuation: LinkContinuation = TO_ACCOUNT_PAGE  # of the link in the email
    email_change_id: UUID | None = None  # the address change that the email is about
    secret: SecretNotice | None = None  # for PERSONAL_TOKEN_CREATED, SECRET_EXPIRES, SECRET_ENDED, PROGRAM_ENDED and PROGRAMS_END
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
    """The mail servers with enough emails in progress. Emails for these servers are not claimed."""

    organizations: frozenset[UUID] = frozenset()  # organizations whose own server is busy
    every_own_server: bool = False  # every organization's own server is busy
    platform: bool = False  # the platform's server is busy
    served: frozenset[UUID | None] = frozenset()  # organizations that had their turn at the platform's server; None for account emails


NO_BUSY_SERVERS = BusyServers()

# Longer than a whole session with a slow mail server, so that no second process claims the email
# during the session.
LEASE = timedelta(seconds=120)
MAX_ATTEMPTS = 24
# The limit on claims without an outcome. An email that crashes the process must not do so forever.
MAX_LOST_CLAIMS = 10
LINK_EXPIRED = "its link expired before it could be sent"


class EmailDetails(TypedDict, total=False):
    """The fields of `QueuedEmail` that only some kinds have."""

    token: str | None
    org_id: UUID | None
    subscription_id: UUID | None
    continuation: LinkContinuation
    email_change_id: UUID | None
    secret: SecretNotice | None
    notice_id: UUID | None


def new_email(kind: EmailKind, address: values.Email, now: datetime, **details: Unpack[EmailDetails]) -> QueuedEmail:
    """Return an email that is due at once."""
    return QueuedEmail(values.new_id(), kind, address, created_at=now, due_at=now, **details)


def compute_backoff(attempts: int, spread: float) -> timedelta:
    """Return the wait after the given number of failed attempts: 5 s, doubling up to an hour, times 0.75 to 1.25.

    `spread` is a random number from 0 to 1. All attempts take about 14 hours, so that a mail server
    may be down for a night. A verification link is still valid for hours when it arrives. A reset
    link expires earlier, and `core.mailing.preparation` then gives the email up.
    """
    return timedelta(seconds=min(5 * 2 ** (attempts - 1), 3600) * (0.75 + spread / 2))
