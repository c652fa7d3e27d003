"""Storage for privacy: a user's data for an export, and their anonymization."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.kernel import values
from core.kernel.callers import Person
from core.maintenance.model.housekeeping import PersonalLog
from core.privacy.model import personal_data
from core.tenancy.model.invitations import Invitation


class PrivacyRead(Protocol):
    """Read access to the control over a user, and to the logs that are still to redact."""

    async def list_membership_controls(self, user_id: UUID, owner_id: UUID) -> list[personal_data.MembershipControl]:
        """Return all the user's memberships, and whether `owner_id` owns their organizations, ordered by organization id.

        The organization that created the account has the user as a confirmed member, also while its directory blocks
        them.
        """

    async def list_owned_organizations(self, user_id: UUID) -> list[str]:
        """Return the names of organizations that the user owns, in alphabetical order."""

    async def is_used_elsewhere(self, user_id: UUID, owner_id: UUID) -> bool:
        """Return whether the user is an end user or a subscriber in an organization that `owner_id` does not own."""

    async def next_user_to_redact(self) -> UUID | None:
        """Return the anonymized user with the lowest id that still has log entries to redact, if any."""

    async def next_log_to_redact(self, user_id: UUID) -> PersonalLog | None:
        """Return a log that has entries about this user to redact, if any."""


class PersonalDataRead(Protocol):
    """Read access to a user's stored data, for an export. `within` limits it to these organizations; None is no limit."""

    async def count_logins(self, user_id: UUID, within: Collection[UUID] | None) -> int:
        """Return how many login records there are. With `within`, only logins to services in these organizations count."""

    async def items(
        self,
        list_: personal_data.ExportedList,
        user_id: UUID,
        within: Collection[UUID] | None,
        last: personal_data.ExportedItem | None,
        limit: int,
    ) -> list[personal_data.ExportedItem]:
        """Return a list's next items, after the last item from the previous call, or from the start.

        `within` is for lists that belong to an organization's part. A part has the logins and identities at its
        organizations' services. An anonymized user's logins are always redacted, even if the stored rows are not
        redacted yet. Service accounts are included if the user owns them as a member or a platform owner. Personal
        access tokens that have ended are stored until housekeeping removes them.
        """


class Privacy(PrivacyRead, Protocol):
    """Write access for anonymizing a user.

    Callers lock the account before all methods except the first three. Callers call `replace_email` before the
    remaining methods: after it, no concurrent transaction can write the account's data until this transaction ends.

    `email` is the address that the account had until now. "The user's addresses" are this address and all earlier
    addresses, without addresses that another account has now.
    """

    async def list_involved_organizations(self, user_id: UUID) -> list[UUID]:
        """Return the organizations to lock first, ordered by id.

        These organizations have the user as a member or in their directory, block the user, or have invited an address
        of the user.
        """

    async def lock_organizations(self, org_ids: Collection[UUID]) -> None:
        """Lock these organizations, ordered by id, as `Organizations.lock` does."""

    async def lock_memberships(self, user_id: UUID) -> None:
        """Lock the user's memberships, ordered by organization."""

    async def replace_email(self, user_id: UUID, placeholder: values.Email, now: datetime) -> None:
        """Mark the account as anonymized, with this address and without a password or a second factor. Raises: EmailTaken."""

    async def remove_sign_in_methods(self, user_id: UUID) -> None:
        """Delete everything that can sign in to the account or was issued for it, except the sessions (see `Sessions.remove`).

        The deletion covers the second factor, backup codes, identities, passkeys, devices, pending sign-ins, tickets
        and tokens. The deletion also covers consents, and the SAML name ids, by which services know the user.
        """

    async def redact_newest(self, user_id: UUID, limit: int) -> None:
        """Start the redaction with the newest `limit` entries in every log. Every log takes a statement."""

    async def redact(self, user_id: UUID, log: PersonalLog, limit: int) -> int:
        """Redact the next newest entries in a log, and return how many. A result below `limit` means that the log is done.

        Redacted entries have NO_ADDRESS, NO_AGENT and no location.
        """

    async def redact_impersonations(self, user_id: UUID, now: datetime) -> None:
        """End the sessions in which the user impersonated another user, and redact these sessions."""

    async def redact_joins(self, user_id: UUID, email: values.Email) -> None:
        """Redact the audit entries that record how the user joined an organization while they were not signed in.

        The redaction covers all organizations that the user is a member of, or that ever invited an address of the
        user. Call this method before `end_invitations`.
        """

    async def end_invitations(
        self, user_id: UUID, email: values.Email, placeholder: values.Email, locked: Collection[UUID], now: datetime
    ) -> list[Invitation]:
        """Replace the user's addresses in invitations and in their audit entries and events.

        Entries about invitations that the user answered without a session are redacted. Pending invitations from the
        `locked` organizations are canceled, or marked as expired if their time is over. Return these invitations.
        """

    async def remove_emails(self, user_id: UUID, email: values.Email) -> None:
        """Delete all emails to the user's addresses, queued or sent."""

    async def redact_deliveries(self, user_id: UUID) -> None:
        """Remove the user's address from webhook deliveries about their actions. `end_invitations` covers deliveries about invitations."""

    async def remove_directory_data(self, user_id: UUID) -> None:
        """Delete the names and addresses that organizations' directories sent for the user."""

    async def remove_former_emails(self, user_id: UUID) -> None:
        """Delete the account's earlier addresses. Call this method last, because the remaining methods find data by these addresses."""

    async def log(self, event_type: str, user_id: UUID, caller: Person, now: datetime) -> None:
        """Record in the privacy log that the caller exported or anonymized this user. An export needs no lock on the account."""


class AccountLogsRead(Protocol):
    """Read access to the logs about an account. Pages have the newest MAX_LISTED entries, newest first, and their number."""

    async def mfa(self, user_id: UUID, page: values.Page) -> values.PageResult[personal_data.MfaLogEntry]:
        """Return a page from the second-factor log. Runs two statements."""

    async def privacy(self, user_id: UUID, page: values.Page) -> values.PageResult[personal_data.PrivacyLogEntry]:
        """Return a page from the privacy log about the user. Runs two statements."""
