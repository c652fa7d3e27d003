"""Storage of privacy: the data of a user for an export, and their anonymization."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.kernel.callers import Person
from core.kernel.values import Email, Page, PageResult
from core.maintenance.model.housekeeping import PersonalLog
from core.privacy.model.personal_data import ExportedItem, ExportedList, MembershipControl, MfaLogEntry, PrivacyLogEntry
from core.tenancy.model.invitations import Invitation


class PrivacyRead(Protocol):
    """Read access to the control over a user, and to the logs that are still to redact."""

    async def list_membership_controls(self, user_id: UUID, owner_id: UUID) -> list[MembershipControl]:
        """Return all memberships of the user, and whether `owner_id` owns their organizations, ordered by organization id.

        A user that the directory of the organization that created the account blocks counts as a
        confirmed member.
        """

    async def list_owned_organizations(self, user_id: UUID) -> list[str]:
        """Return the names of the organizations that the user owns, in alphabetical order."""

    async def is_used_elsewhere(self, user_id: UUID, owner_id: UUID) -> bool:
        """Return whether the user is an end user or a subscriber of an organization that `owner_id` does not own."""

    async def next_user_to_redact(self) -> UUID | None:
        """Return the anonymized user with the lowest id that still has log entries to redact, if any."""

    async def next_log_to_redact(self, user_id: UUID) -> PersonalLog | None:
        """Return a log with entries of this user to redact, if any."""


class PersonalDataRead(Protocol):
    """Read access to the stored data of a user, for an export. `within` limits it to these organizations; None is no limit."""

    async def count_logins(self, user_id: UUID, within: Collection[UUID] | None) -> int:
        """Return the number of login records. With `within`, only logins to services of these organizations count."""

    async def items(
        self, list_: ExportedList, user_id: UUID, within: Collection[UUID] | None, last: ExportedItem | None, limit: int
    ) -> list[ExportedItem]:
        """Return the next items of a list, after the last one of the previous call, or from the start.

        `within` is for lists that are in the part of an organization. The logins and identities of a part
        are those of the organizations' services. The logins of an anonymized user are always redacted, even
        if the stored rows are not redacted yet. Service accounts are those that the user owns as a member or a
        platform owner. Personal access tokens that have ended are stored until housekeeping removes them.
        """


class Privacy(PrivacyRead, Protocol):
    """Write access for the anonymization of a user.

    Callers lock the account before all methods except the first three. They call `replace_email`
    before the remaining methods: after it, no other transaction can write data of the account until
    this one ends.

    `email` is the address that the account had until now. "The user's addresses" are this one and
    all earlier ones, without those that another account has now.
    """

    async def list_involved_organizations(self, user_id: UUID) -> list[UUID]:
        """Return the organizations to lock first, ordered by id.

        These are the organizations that have the user as a member or in their directory, that block the
        user, or that have invited one of the user's email addresses.
        """

    async def lock_organizations(self, org_ids: Collection[UUID]) -> None:
        """Lock these organizations in the order of their ids, as `Organizations.lock` locks one."""

    async def lock_memberships(self, user_id: UUID) -> None:
        """Lock the user's memberships in the order of their organizations."""

    async def replace_email(self, user_id: UUID, placeholder: Email, now: datetime) -> None:
        """Mark the account as anonymized, with this address and without a password or a second factor. Raises: EmailTaken."""

    async def remove_sign_in_methods(self, user_id: UUID) -> None:
        """Delete everything that can sign in to the account or was issued for it, except the sessions (see `Sessions.remove`).

        This covers the second factor, backup codes, identities, passkeys, devices, pending
        sign-ins, tickets and tokens. It also covers consents, and the SAML name ids, by which services
        know the user.
        """

    async def redact_newest(self, user_id: UUID, limit: int) -> None:
        """Start the redaction with the newest `limit` entries of every log. This takes one statement per log."""

    async def redact(self, user_id: UUID, log: PersonalLog, limit: int) -> int:
        """Redact the next newest entries of a log, and return their number. A result below `limit` means that the log is done.

        Redacted entries have NO_ADDRESS, NO_AGENT and no location.
        """

    async def redact_impersonations(self, user_id: UUID, now: datetime) -> None:
        """End the sessions in which the user impersonated others, and redact these sessions."""

    async def redact_joins(self, user_id: UUID, email: Email) -> None:
        """Redact the audit entries that record how the user joined an organization while they were not signed in.

        This covers all organizations that the user is a member of, or that ever invited one of the
        addresses. Call it before `end_invitations`.
        """

    async def end_invitations(
        self, user_id: UUID, email: Email, placeholder: Email, locked: Collection[UUID], now: datetime
    ) -> list[Invitation]:
        """Replace the user's addresses in invitations and in their audit entries and events.

        Entries of invitations that the user answered without a session are redacted. Pending
        invitations of the `locked` organizations are canceled, or marked as expired if their time
        is over. Return these invitations.
        """

    async def remove_emails(self, user_id: UUID, email: Email) -> None:
        """Delete all emails to the user's addresses, queued or sent."""

    async def redact_deliveries(self, user_id: UUID) -> None:
        """Remove the user's address from the webhook deliveries of their actions. `end_invitations` covers those of invitations."""

    async def remove_directory_data(self, user_id: UUID) -> None:
        """Delete the names and addresses that the directories of organizations sent for the user."""

    async def remove_former_emails(self, user_id: UUID) -> None:
        """Delete the account's earlier addresses. Call it last, because the other methods find data by these addresses."""

    async def log(self, event_type: str, user_id: UUID, caller: Person, now: datetime) -> None:
        """Record in the privacy log that the caller exported or anonymized this user. An export needs no lock on the account."""


class AccountLogsRead(Protocol):
    """Read access to the logs about an account. Pages have the newest MAX_LISTED entries, newest first, and their number."""

    async def mfa(self, user_id: UUID, page: Page) -> PageResult[MfaLogEntry]:
        """Return a page of the second-factor log. Runs two statements."""

    async def privacy(self, user_id: UUID, page: Page) -> PageResult[PrivacyLogEntry]:
        """Return a page of the privacy log about the user. Runs two statements."""
