"""Storage of the area privacy."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.kernel.principals import Person
from core.kernel.values import Email
from core.maintenance.log_redaction_rules import PersonalLog
from core.privacy_rules import MembershipControl, ExportedIdentity, ExportedLogin, ExportedMembership, ExportedMfaEvent, ExportedPasskey
from core.tenancy.invitations_rules import Invitation

# privacy: What is asked of storage about all that is kept about a person.


class PrivacyRead(Protocol):
    """What is kept about a person, looked at (identity.md section 2.8). `within` are the organizations that it is limited to, None is no
    limit; what is listed comes after the given item, or from the beginning."""

    async def list_membership_controls(self, user_id: UUID, owner_id: UUID) -> list[MembershipControl]:
        """Every membership of the first person, and whether it is the second one who owns the organization; by the organizations' ids."""
        ...

    async def memberships(
        self, user_id: UUID, within: Collection[UUID] | None, after: ExportedMembership | None, limit: int
    ) -> list[ExportedMembership]:
        """The oldest first."""
        ...

    async def count_logins(self, user_id: UUID, within: Collection[UUID] | None) -> int: ...

    async def logins(self, user_id: UUID, within: Collection[UUID] | None, before: ExportedLogin | None, limit: int) -> list[ExportedLogin]:
        """The newest first, failed attempts too; within organizations, those to their services. Those of somebody who is unknown say no
        address, agent and place, whether or not they are blanked yet."""
        ...

    async def identities(
        self, user_id: UUID, within: Collection[UUID] | None, after: ExportedIdentity | None, limit: int
    ) -> list[ExportedIdentity]:
        """The oldest first; within organizations, those of their services."""
        ...

    async def mfa_events(self, user_id: UUID, before: ExportedMfaEvent | None, limit: int) -> list[ExportedMfaEvent]:
        """The newest first."""
        ...

    async def passkeys(self, user_id: UUID, after: ExportedPasskey | None, limit: int) -> list[ExportedPasskey]:
        """The oldest first."""
        ...

    async def next_user_to_redact(self) -> UUID | None:
        """Somebody unknown of whose logs there is more to blank, by id the first."""
        ...

    async def next_log_to_redact(self, user_id: UUID) -> PersonalLog | None:
        """Where more of this person is to be blanked."""
        ...


class Privacy(PrivacyRead, Protocol):
    """What is kept about a person, removed or made to say nothing (identity.md section 4.7). The account is locked before all but the first
    three, and `replace_address` comes first of those: nobody writes of the account after it until the transaction ends.

    Addresses of the person are the one given, which was the account's, and all that it had before, unless another account has them now."""

    async def list_involved_organizations(self, user_id: UUID) -> list[UUID]:
        """Which organizations to lock before: those that the person belongs to or is invited to by any of the addresses that are theirs, in
        the order of their ids."""
        ...

    async def lock_organizations(self, org_ids: Collection[UUID]) -> None:
        """As `Organizations.lock` does, in the order of their ids."""
        ...

    async def lock_memberships(self, user_id: UUID) -> None: ...

    async def replace_email(self, user_id: UUID, placeholder: Email, now: datetime) -> None:
        """The account is anonymized, and has neither password nor second factor. Raises EmailTaken."""
        ...

    async def remove_sign_in_methods(self, user_id: UUID) -> None:
        """Second factor, backup codes, identities, passkeys, devices, pre-auths, tickets and tokens, and the names by which services with
        SAML know the person; sessions are `Sessions.remove`."""
        ...

    async def redact_newest(self, user_id: UUID, limit: int) -> None:
        """`blank` for the first time, in every log: a statement each."""
        ...

    async def redact(self, user_id: UUID, log: PersonalLog, limit: int) -> int:
        """Have the next entries of the log, the newest first, say core.privacy.NO_ADDRESS, NO_AGENT and no place; how many it were. If it
        were as many as `limit`, there is something to go on with from then on, and else no more."""
        ...

    async def redact_impersonations(self, user_id: UUID, now: datetime) -> None:
        """The sessions in which they were somebody else end, and say neither where they were."""
        ...

    async def redact_joins(self, user_id: UUID, email: Email) -> None:
        """The same for how they came to organizations that they belong to or were ever invited to by any address, if without signing in.
        `end_invitations` comes after it."""
        ...

    async def end_invitations(
        self, user_id: UUID, email: Email, placeholder: Email, locked: Collection[UUID], now: datetime
    ) -> list[Invitation]:
        """Have invitations to addresses of the person, and what was recorded of them, say the new one, and where they were answered without
        signing in, not from where; those pending in locked organizations end as cancelled or, past their time, as expired, and are
        returned."""
        ...

    async def remove_emails(self, user_id: UUID, email: Email) -> None:
        """All to addresses of the person, queued or sent."""
        ...

    async def redact_deliveries(self, user_id: UUID) -> None:
        """Have what webhooks were told of the person's doing, or will be, not say the address. Those of invitations are for
        `end_invitations`."""
        ...

    async def remove_directory_data(self, user_id: UUID) -> None:
        """What the directories of organizations have said of the person, and the addresses that they know them by."""
        ...

    async def remove_former_emails(self, user_id: UUID) -> None:
        """What addresses the account had. Nothing finds them after that."""
        ...

    async def record_anonymization(self, user_id: UUID, caller: Person, now: datetime) -> None:
        """Write in the log of privacy that the caller has anonymized this person."""
        ...


# The repositories of this area, by the kind of access


class PrivacyReading(Protocol):
    """Read access to the repositories of privacy."""

    @property
    def privacy(self) -> PrivacyRead: ...


class PrivacyTransaction(Protocol):
    """The repositories of privacy in a transaction."""

    @property
    def privacy(self) -> Privacy: ...
