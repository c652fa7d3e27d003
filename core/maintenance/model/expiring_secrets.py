"""Secrets that expire soon, and when their owners get an email about it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from core.accounts.model import email_queue
from core.kernel import page_paths
from core.kernel.values import Email

# A secret is announced this many days before it expires, if it was made to live longer than that. If several
# announcements are due, for example after an outage, only the nearest is sent.
ANNOUNCED_DAYS: Final = (14, 3)
LEASE_NAME: Final = "secret_announcer"
BATCH: Final = 500  # secrets that are announced in one transaction
# Longer than a batch takes, and longer than the pause between two sweeps, so that one process keeps
# the lease while it runs.
LEASE: Final = timedelta(minutes=10)


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
