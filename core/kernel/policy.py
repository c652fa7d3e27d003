"""The lifetimes and limits that an operator can set."""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Final, Literal
from urllib.parse import quote

from core.kernel import connections

# The provider names on pages, unless a setting or an address gives another name.
PROVIDER_NAMES: Final[Mapping[connections.ConnectionSlug, str]] = MappingProxyType(
    {provider: provider.title() for provider in connections.PLATFORM_CONNECTIONS}
)
CERTIFICATE_EXPIRES_SOON: Final = timedelta(days=30)  # from then on, the overview and the SAML check warn about a certificate


@dataclass(frozen=True, slots=True)
class SupportContact:
    """The place where this installation's users get help: an email address or an https URL."""

    address: str

    @property
    def url(self) -> str:
        """Return the link target for the contact."""
        return self.address if self.address.startswith("https://") else f"mailto:{quote(self.address, safe='@')}"


@dataclass(frozen=True, slots=True)
class IosApp:
    """The operator's iOS application, which may run passkey ceremonies."""

    id: str  # its team and its bundle, as in ABCDE12345.com.example.app

    def __str__(self) -> str:
        return f"ios:{self.id}"


@dataclass(frozen=True, slots=True)
class AndroidApp:
    """The operator's Android application, which may run passkey ceremonies."""

    package: str
    digests: tuple[bytes, ...]  # the SHA-256 of every certificate that signs it

    def __str__(self) -> str:
        return f"android:{self.package}:{'+'.join(digest.hex() for digest in self.digests)}"

    @property
    def origins(self) -> tuple[str, ...]:
        """Return the origins that Android reports for the application."""
        return tuple(f"android:apk-key-hash:{urlsafe_b64encode(digest).rstrip(b'=').decode()}" for digest in self.digests)


NativeApp = IosApp | AndroidApp


@dataclass(frozen=True, slots=True)
class Policy:
    """Lifetimes and limits. The defaults apply unless a setting changes them."""

    access_token_ttl: timedelta = timedelta(seconds=900)
    signing_key_lead_time: timedelta = timedelta(minutes=10)  # a new key is published for this time before it signs
    signing_key_max_age: timedelta = timedelta(days=90)  # then a new key is published automatically; zero for never
    refresh_token_ttl: timedelta = timedelta(days=30)
    session_absolute_ttl: timedelta = timedelta(days=90)
    refresh_grace: timedelta = timedelta(seconds=10)
    verification_ttl: timedelta = timedelta(hours=24)
    reset_ttl: timedelta = timedelta(hours=1)
    welcome_ttl: timedelta = timedelta(days=7)  # for the link in the email to a user that a directory created
    pre_auth_ttl: timedelta = timedelta(seconds=600)
    fresh_sign_in_ttl: timedelta = timedelta(minutes=10)  # for ways in, owner rights, impersonation, personal tokens, deletion and export
    recent_sign_in_ttl: timedelta = timedelta(minutes=60)  # for everything else that outlives the session
    email_sign_in: bool = False  # whether services that choose nothing, and the platform itself, offer sign-in by email
    email_sign_in_ttl: timedelta = timedelta(minutes=15)
    account_guess_limit: int = 10
    mfa_guess_limit: int = 10
    guess_window: timedelta = timedelta(minutes=15)
    mails_per_recipient: int = 5  # per hour
    unverified_purge: timedelta = timedelta(days=7)
    failed_logins_kept: timedelta = timedelta(days=90)
    invitation_ttl: timedelta = timedelta(days=7)
    invitations_per_day: int = 1000  # per organization; its directory may cause the same number of emails in addition
    setup_link_days: int = 14  # the longest life for a mailed set-up link
    auto_approve_organizations: bool = False
    waiting_organizations: int = 5  # per account, while they wait for approval
    notify_owners_of_organizations: bool = True  # platform owners get an email about an organization that waits for approval
    key_environment: Literal["live", "test"] | None = None  # part of an API key's prefix, as in sk_live_
    export_login_events: int = 1000  # the largest number in a data export, newest first
    # The pause before every delivery attempt for a webhook, and how long an attempt may take.
    webhook_retry_delays: tuple[timedelta, ...] = tuple(timedelta(seconds=delay) for delay in (0, 5, 300, 1800, 7200))
    webhook_timeout: timedelta = timedelta(seconds=10)
    webhooks_per_organization: int = 50  # security W-6
    key_ports: frozenset[int] = frozenset({443})  # where we fetch keys from clients and pipelines (security W-3)
    client_document_bytes: int = 5 * 1024  # for metadata that an external client publishes
    client_registration: bool = False  # whether clients may register themselves without an initial access token
    frontend_url: str | None = None  # the platform's own frontend, if users sign in to the platform through it
    passkey_rp_id: str | None = None  # a host, for new passkeys. None: the first passkey's host, or the base URL's host
    native_apps: tuple[NativeApp, ...] = ()
    common_passwords: frozenset[str] = field(default=frozenset(), repr=False)  # case-folded
    provider_names: Mapping[connections.ConnectionSlug, str] = field(default_factory=lambda: PROVIDER_NAMES, hash=False)
    support: SupportContact | None = None  # shown on error pages and in emails
    billing_livemode: bool | None = None  # accept only live or only test events from the payment provider; None accepts all

    def offers_email(self, choice: bool | None) -> bool:
        """Return whether a service with this choice, or the platform if it is None, offers sign-in by email."""
        return self.email_sign_in if choice is None else choice
