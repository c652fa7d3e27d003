"""The lifetimes and limits that an operator may set; the defaults are those of the specification."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal


@dataclass(frozen=True, slots=True)
class Policy:
    """Lifetimes and limits (identity.md section 5, organizations.md section 8, the head of security.md)."""

    access_token_ttl: timedelta = timedelta(seconds=900)
    refresh_token_ttl: timedelta = timedelta(days=30)
    session_absolute_ttl: timedelta = timedelta(days=90)
    refresh_grace: timedelta = timedelta(seconds=10)
    verification_ttl: timedelta = timedelta(hours=24)
    reset_ttl: timedelta = timedelta(hours=1)
    pre_auth_ttl: timedelta = timedelta(seconds=600)
    account_guess_limit: int = 10
    mfa_guess_limit: int = 10
    guess_window: timedelta = timedelta(minutes=15)
    mails_per_recipient: int = 5  # an hour
    unverified_purge: timedelta = timedelta(days=7)
    invitation_ttl: timedelta = timedelta(days=7)
    invitations_per_day: int = 1000  # of one organization, and beside them as many mails of its directory
    auto_approve_organizations: bool = False
    key_environment: Literal["live", "test"] | None = None  # what API keys begin with, besides `sk` (decisions, point 104)
    export_login_events: int = 1000  # the newest, in an export of what is kept about a person (decisions, point 146)
    # Before each of the attempts to deliver to a webhook, and how long one may take (decisions, point 218).
    webhook_retry_delays: tuple[timedelta, ...] = tuple(timedelta(seconds=delay) for delay in (0, 5, 300, 1800, 7200))
    webhook_timeout: timedelta = timedelta(seconds=10)
    webhooks_per_organization: int = 50  # security.md W-6
    frontend_url: str | None = None  # of the platform's own application, if people sign in to the platform through one
    common_passwords: frozenset[str] = frozenset()  # none but the length rule is promised by the interface
    billing_livemode: bool | None = None  # whether the payment provider's live events count, or those of tests; None is both
