"""What is asked of storage about invitations."""

from collections.abc import Collection
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.access import Role
from core.invitations import Invitation, InvitationStatus, ListedInvitation, Offer
from core.values import Email, Listed, Page


class InvitationsRead(Protocol):
    """Invitations, looked at. In the first three, one that is pending past its time is shown as expired."""

    async def page(self, org_id: UUID, status: InvitationStatus | None, page: Page, now: datetime) -> Listed[ListedInvitation]:
        """Those of the organization with this status, the newest first."""
        ...

    async def offers_to(self, email: Email, now: datetime) -> list[Offer]:
        """Pending, unexpired invitations for this address, the newest first."""
        ...

    async def offer(self, token_hash: bytes, now: datetime) -> Offer | None:
        """The invitation that this token belongs to, whatever its status."""
        ...

    async def by_id(self, org_id: UUID, invitation_id: UUID) -> Invitation | None:
        """With the status that is stored, as in the next two."""
        ...

    async def by_token(self, org_id: UUID, token_hash: bytes) -> Invitation | None:
        """The one of the organization that has this token, whatever its status."""
        ...

    async def pending(self, org_id: UUID, email: Email) -> Invitation | None:
        """The pending one for this address, of which there is one at most; it may be past its time."""
        ...


class Invitations(InvitationsRead, Protocol):
    """Invitations, changed. The organization is locked before any of these but `expire`."""

    async def add(self, invitation: Invitation) -> None:
        """Raises InvitationAlreadySent."""
        ...

    async def end(self, org_id: UUID, invitation_id: UUID, status: InvitationStatus, now: datetime) -> bool:
        """Give a pending invitation a final status; false where it has one. Exactly one caller wins."""
        ...

    async def void(self, org_id: UUID, invited_by: UUID, roles: Collection[Role], now: datetime) -> list[Invitation]:
        """Cancel what this person has invited to these roles and could still be accepted (R-4); returns what it were."""
        ...

    async def withdraw(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> list[Invitation]:
        """Cancel what these people are invited to, by the addresses that they have, and could still accept; returns what it were."""
        ...

    async def nth_newest(self, org_id: UUID, n: int) -> datetime | None:
        """When the n-th newest invitation was made, 1 being the newest; None if there are fewer."""
        ...

    async def expire(self, now: datetime, limit: int) -> list[Invitation]:
        """Mark at most `limit` pending invitations, of whatever organization, that are past their time; those in use are left for later."""
        ...
