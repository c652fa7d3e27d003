"""What the housekeeper deletes or redacts, how long rows are kept, which columns are encrypted at rest, and which secrets expire soon."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Self

from core.accounts.model import email_queue
from core.accounts.model.mfa import SETUP_TTL
from core.accounts.model.security_notices import FACTORS_KEPT
from core.kernel import page_paths
from core.kernel.values import Email

BATCH = 1000  # rows
# Ended sessions are kept for a while, so that reuse of their refresh tokens is still detected.
ENDED_SESSIONS_KEPT = timedelta(days=1)
# A device that polls late is told that its code expired, and not that the code is unknown.
EXPIRED_DEVICE_CODES_KEPT = timedelta(minutes=15)
# If a code is used again, the session from its first use ends, so the code must stay known
# (security O-4).
CODES_KEPT = timedelta(days=1)
FINISHED_MAILS_KEPT = timedelta(days=7)
CREDENTIALS_KEPT = timedelta(days=30)  # so that the list shows why a program is refused
# As long as the emails about these changes, which are deleted with them. A change can be undone for three days.
EMAIL_CHANGES_KEPT = timedelta(days=7)
# Event rows are only the source for webhook deliveries. The audit log is the lasting record.
EVENTS_KEPT = timedelta(days=30)
# Longer than the three days in which the payment provider repeats a failed delivery. The ids of its
# events are never deleted: every repetition has a new signature, so only the id shows that an event
# was processed (security N-9).
BILLING_KEPT = timedelta(days=40)
# The queue for a SIEM that is down must not grow forever (docs/adr/0014).
SIEM_BACKLOGS_KEPT = timedelta(days=30)
DELIVERIES_KEPT = timedelta(days=30)
# The attempts to send a notice end within hours. Older notices belong to applications without a logout URI, or to
# organizations that are not active.
LOGOUT_NOTICES_KEPT = timedelta(days=7)
# A transaction that started before an organization was deleted, or its SIEM removed, may still
# write rows for it.
TOMBSTONES_KEPT = timedelta(days=1)
# A login just before midnight is counted after it, so a day's shards are merged a day later.
LOGIN_SHARDS_KEPT = timedelta(days=1)
# Two kinds in a sweep's counts. FAILED counts items for which an upstream service failed.
# BACKED_OFF counts how often the sweep stopped, because the service counts as down after several
# failures in a row. Both kinds make the next sweep start later.
FAILED: Final = "failed"
BACKED_OFF: Final = "held_up"
# Longer than a batch and than the pause between two sweeps, so that a process keeps the lease while
# it runs.
LEASE = timedelta(minutes=5)


class Sweep(StrEnum):
    """A row kind that the housekeeper deletes, or changes where a comment says so. The values are logged."""

    kept: timedelta  # how long such a row stays after it is obsolete, unless the policy says so

    def __new__(cls, value: str, kept: timedelta = timedelta()) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.kept = value, kept
        return member

    ONE_TIME_TOKENS = "one_time_tokens"
    SIGN_IN_FLOWS = "sign_in_flows"
    FLOW_SECRETS = "flow_secrets"  # expired proofs and challenges are removed, and the flow stays
    KEPT_FORMS = "kept_forms"
    SENT_FORMS = "sent_forms"
    DEVICE_CODES = "device_codes", EXPIRED_DEVICE_CODES_KEPT
    SAML_LOGOUTS = "saml_logouts"
    CONNECTION_LOGINS = "connection_logins"
    AUTHORIZATION_CODES = "authorization_codes", CODES_KEPT
    PUSHED_REQUESTS = "pushed_requests"
    CLIENT_ASSERTIONS = "client_assertions"
    USED_PROVIDER_MESSAGES = "used_provider_messages"
    DPOP_PROOFS = "dpop_proofs"  # counted in tables: they are emptied as a whole
    SIGNING_KEYS = "signing_keys"
    SESSIONS = "sessions", ENDED_SESSIONS_KEPT
    RATES = "rates"
    SIGN_IN_CHARGES = "sign_in_charges"
    ATTEMPT_LIMITS = "guesses"
    MAILS = "mails", FINISHED_MAILS_KEPT
    EMAIL_CHANGES = "email_changes", EMAIL_CHANGES_KEPT
    SECURITY_NOTICES = "security_notices", EMAIL_CHANGES_KEPT
    FORMER_MFA = "former_mfa", FACTORS_KEPT
    ACCOUNT_RECOVERIES = "account_recoveries"
    FORMER_PASSKEYS = "former_passkeys", FACTORS_KEPT
    PASSKEY_CHALLENGES = "used_passkey_challenges"
    MFA_SETUPS = "mfa_setups", SETUP_TTL
    FAILED_LOGINS = "failed_logins"
    CREDENTIALS = "credentials", CREDENTIALS_KEPT  # expired credentials of programs, which the list still shows for CREDENTIALS_KEPT
    REGISTRATION_TOKENS = "registration_tokens", CREDENTIALS_KEPT  # expired tokens, and tokens without uses left
    SETUP_LINKS = "setup_links", CREDENTIALS_KEPT  # ended and expired links, with their proposals
    EVENTS = "events", EVENTS_KEPT
    UNVERIFIED_ACCOUNTS = "unverified_accounts"
    CHECKOUTS = "checkouts", BILLING_KEPT
    BILLING_FACTS = "billing_facts", BILLING_KEPT  # about ended subscriptions, and about subscriptions that we never managed
    PAYMENT_METHODS = "payment_methods", BILLING_KEPT  # detached methods, and methods of unknown customers
    DELETED_CUSTOMERS = "deleted_customers", BILLING_KEPT  # at the payment provider
    LOGIN_TOTALS = "login_totals", LOGIN_SHARDS_KEPT  # merged into one row per day, not deleted
    SIEM_QUEUES = "siem_queues", TOMBSTONES_KEPT  # from removed configurations
    SIEM_BACKLOGS = "siem_backlogs", SIEM_BACKLOGS_KEPT  # entries that the SIEM has not accepted for SIEM_BACKLOGS_KEPT
    LOG_REDACTIONS = "blankings"  # log entries about anonymized users; only their personal data is removed (docs/adr/0008)
    WEBHOOK_DELIVERIES = "webhook_deliveries", DELIVERIES_KEPT
    LOGOUT_NOTICES = "logout_notices", LOGOUT_NOTICES_KEPT
    FORMER_WEBHOOK_SECRETS = "former_webhook_secrets"
    PREVIOUS_SAML_KEYS = "previous_saml_keys"  # only the key is removed
    PREVIOUS_CONNECTION_KEYS = "previous_connection_keys"
    DELETED_WEBHOOKS = "deleted_webhooks", TOMBSTONES_KEPT
    DELETED_SERVICES = "deleted_services"  # the last two kinds, because a large service or organization takes minutes
    DELETED_ORGANIZATIONS = "deleted_organizations", TOMBSTONES_KEPT


class SealedColumn(StrEnum):
    """A column with values that are encrypted at rest."""

    SIGNING_KEYS = "signing_keys.private_key"
    MAIL_TOKENS = "mails.token"
    OAUTH_CREDENTIALS = "service_connections.client_secret"
    SAML_KEYS = "saml_certificates.private_key"
    CONNECTION_SECRETS = "connections.client_secret"
    CONNECTION_KEYS = "connection_keys.private_key"
    SETUP_PROPOSALS = "setup_proposals.document"
    CONNECTION_LOGOUTS = "connection_logins.logout"
    IDENTITY_ACCESS_TOKENS = "identities.access_token"
    IDENTITY_REFRESH_TOKENS = "identities.refresh_token"
    FLOW_IDENTITIES = "sign_in_flows.identity"
    FLOW_CODES = "sign_in_flows.challenge_code"
    KEPT_FORM_FIELDS = "kept_forms.fields"
    RECOVERY_SECRETS = "account_recoveries.secret"
    FORMER_MFA_SECRETS = "former_mfa.secret"
    SMTP_PASSWORDS = "smtp_settings.password"
    SIEM_TOKENS = "siem_configurations.token"
    MFA_SECRETS = "mfa.secret"
    WEBHOOK_SECRETS = "webhooks.secret"
    FORMER_WEBHOOK_SECRETS = "former_webhook_secrets.secret"
    INVOICE_PAGES = "billing_facts.action_page"


# How many entries per log the anonymizing transaction redacts. Most users have fewer. The rest
# follows in batches.
FIRST_REDACTION = 1000
REDACTION_BATCH = 5000  # entries


class PersonalLog(StrEnum):
    """A log entry group with a user's personal data."""

    LOGINS = "logins"
    MFA = "mfa"
    MFA_DONE = "mfa_done"  # actions by the user on other users
    MFA_IMPERSONATED = "mfa_impersonated"  # actions by the user while impersonating
    AUDIT_DONE = "audit_done"
    AUDIT_IMPERSONATED = "audit_impersonated"
    AUDIT_LINKS = "audit_links"  # actions on the account by the link in an email, without a sign-in
    PRIVACY_DONE = "privacy_done"


# A secret is announced this many days before it expires, if it was made to live longer than that. If several
# announcements are due, for example after an outage, only the nearest is sent.
ANNOUNCED_DAYS: Final = (14, 3)
EXPIRY_LEASE_NAME: Final = "secret_announcer"
EXPIRY_BATCH: Final = 500  # secrets that are announced in one transaction
# Longer than a batch takes, and longer than the pause between two sweeps, so that one process keeps
# the lease while it runs.
EXPIRY_LEASE: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class ExpiringSecret:
    """A secret that works now and expires soon, with the address that the announcement goes to. Times are UTC."""

    kind: email_queue.NoticedSecret
    recipient: Email
    name: str
    label: str | None  # how the secret starts, as lists show it
    holder: str | None  # the application, service account or API resource that has it
    holder_id: str | None  # its id or slug, as page paths have it
    organization: str | None  # the name; None if the secret belongs to no organization
    org_slug: str | None
    expires_at: datetime

    def to_notice(self) -> email_queue.SecretNotice:
        """Return the announcement's text."""
        return email_queue.SecretNotice(
            kind=self.kind,
            name=self.name,
            label=self.label,
            holder=self.holder,
            organization=self.organization,
            expires_at=self.expires_at,
            path=self._page.format(org_slug=self.org_slug, holder=self.holder_id),
        )

    @property
    def _page(self) -> str:
        match self.kind:
            case email_queue.NoticedSecret.PERSONAL_TOKEN:
                return page_paths.PERSONAL_TOKENS_PATH
            case email_queue.NoticedSecret.API_KEY:
                return page_paths.API_KEYS_PATH
            case email_queue.NoticedSecret.SCIM_TOKEN:
                return page_paths.DIRECTORY_PATH
            case email_queue.NoticedSecret.REGISTRATION_TOKEN:
                return page_paths.REGISTRATION_TOKENS_PATH
            case email_queue.NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL:
                return page_paths.PLATFORM_CREDENTIALS_PATH if self.org_slug is None else page_paths.SERVICE_ACCOUNT_CREDENTIALS_PATH
            case email_queue.NoticedSecret.API_RESOURCE_CREDENTIAL:
                return page_paths.RESOURCE_CREDENTIALS_PATH
