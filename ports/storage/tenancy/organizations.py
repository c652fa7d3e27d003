"""Storage for organizations, their tiers, members and invitations."""

from collections.abc import Awaitable, Collection, Mapping
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.model.protection import NOTHING_ASKED, AskedStrength
from core.kernel import values
from core.kernel.callers import OrganizationStatus
from core.kernel.roles import Capability, RoleName
from core.tenancy.model import invitations, organizations
from core.tenancy.model.members import ListedMember, MemberAccount, MemberFilter, MemberOrder, MembersPage


class OrganizationsRead(Protocol):
    """Read access to organizations."""

    async def by_id(self, org_id: UUID) -> organizations.Organization | None: ...
    async def counts(self) -> Mapping[OrganizationStatus, int]:
        """Return how many organizations there are per status, with 0 for unused statuses."""

    async def status_by_slug(self, slug: str) -> OrganizationStatus | None: ...
    async def id_by_slug(self, slug: str) -> UUID | None: ...

    async def by_member(self, user_id: UUID) -> list[tuple[organizations.Organization, organizations.Membership]]:
        """Return this member's organizations, in any status, ordered by slug."""

    async def owner_address(self, org_id: UUID) -> values.Email | None:
        """Return the address of the organization's owner, or None if the owner's account is not usable."""

    async def with_owner(self, org_id: UUID) -> organizations.ListedOrganization | None:
        """Return an organization in any status with its owner, or None if it does not exist."""

    async def page_with_owners(
        self, status: OrganizationStatus | None, tier_id: UUID | None, limit: int, offset: int, search: str | None = None
    ) -> values.PageResult[organizations.ListedOrganization]:
        """Return organizations with this status and tier, newest first, with their owners.

        A value of None means any status or any tier. `search` is a lower-case part of the slug or the name.
        """

    async def resembled(self, org_ids: Collection[UUID]) -> dict[UUID, tuple[str, ...]]:
        """Return the names that these organizations' names or slugs contain (`ListedOrganization.resembles`)."""


class Organizations(OrganizationsRead, Protocol):
    """Write access to organizations."""

    def lock(self, org_id: UUID) -> Awaitable[organizations.Organization | None]:
        """Lock and return the organization. The organization is the first lock in every transaction that changes its data."""

    async def lock_by_invitation_token(self, token_hash: bytes) -> organizations.Organization | None:
        """Lock and return the organization that sent the invitation with this token, in any state."""

    async def count_waiting(self, user_id: UUID) -> int:
        """Return how many of this owner's organizations wait for approval."""

    async def add(self, organization: organizations.Organization) -> None:
        """Add an organization. Raises: SlugTaken."""

    async def save(self, organization: organizations.Organization) -> None:
        """Write all changeable fields in a locked organization. `member_count` is not changeable."""

    async def delete(self, org_id: UUID, now: datetime) -> None:
        """Delete a locked organization and the rows that reference it.

        A row in `deleted_organizations` makes the housekeeper purge the organization's records
        (Sweep.DELETED_ORGANIZATIONS).
        """

    async def purge(self, org_id: UUID, limit: int) -> None:
        """Remove at most `limit` records that belong to a deleted organization.

        Records are service users, audit entries, events, logins and totals.
        """


class TiersRead(Protocol):
    """Read access to tiers."""

    async def all(self) -> list[organizations.Tier]:
        """Return all tiers, the smallest first."""

    async def by_id(self, tier_id: UUID) -> organizations.Tier | None: ...
    async def by_name(self, name: str) -> organizations.Tier | None: ...


class Tiers(TiersRead, Protocol):
    """Write access to tiers."""

    async def put(self, tier: organizations.Tier) -> None:
        """Add the tier. If there is a tier with this name, update it and keep its id."""


class MembersRead(Protocol):
    """Read access to memberships."""

    async def page(
        self, org_id: UUID, selected: MemberFilter, page: values.Page, *, order: MemberOrder = MemberOrder.JOINED
    ) -> MembersPage | None:
        """Return a page with the selected members, or None if there is no such organization."""

    async def exists(self, org_id: UUID, user_id: UUID) -> bool: ...

    async def account(self, org_id: UUID, user_id: UUID, asked: AskedStrength = NOTHING_ASKED) -> MemberAccount | None:
        """Return the member with the facts that the organization may see about their account.

        `asked` is the strength against which `MemberAccount.protection` is told.
        """

    async def accounts(self, org_id: UUID, user_ids: Collection[UUID], asked: AskedStrength = NOTHING_ASKED) -> dict[UUID, MemberAccount]:
        """Return these members, by user id, with the facts that the organization may see about their accounts."""

    async def accounts_of(
        self, org_id: UUID, members: Collection[ListedMember], asked: AskedStrength = NOTHING_ASKED
    ) -> dict[UUID, MemberAccount]:
        """Return the facts that the organization may see about these listed members' accounts, by user id."""

    async def batch(self, org_id: UUID, selected: MemberFilter, last: organizations.Membership | None, limit: int) -> list[MemberAccount]:
        """Return the next selected members, in the order in which they joined. `last` is the last member in the batch before, or None."""


class Confirmations(Protocol):
    """Confirming memberships."""

    async def confirm(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        """Confirm the membership, because the member used the organization (docs/specification/security.md, Terms).

        A membership that is already confirmed does not change.
        """


class Members(MembersRead, Confirmations, Protocol):
    """Write access to memberships.

    Lock order: the organization before any call. Only `lock` may come without this lock, if the transaction then
    changes nothing but sessions.
    """

    async def lock(self, org_id: UUID, user_id: UUID) -> organizations.Membership | None: ...

    async def admin_addresses(self, org_id: UUID, right: Capability = Capability.MEMBERS_MANAGE) -> list[values.Email]:
        """Return the addresses of members who have this right, and can sign in."""

    async def add(self, membership: organizations.Membership, *, promoted_by: UUID | None = None) -> None:
        """Add a membership and increment the member count. `promoted_by` is as for `set_role`. Raises: AlreadyMember."""

    async def set_role(self, org_id: UUID, user_id: UUID, role: RoleName, *, promoted_by: UUID | None = None) -> None:
        """Change the membership's role, active or suspended. `promoted_by` is the service account that gives it, if any."""

    async def undo_promotions(self, org_id: UUID, account_id: UUID) -> list[tuple[UUID, RoleName]]:
        """Give the role `member` to the users that this service account gave a higher role. Return their ids with the higher roles."""

    async def remove(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        """Remove the membership, active or suspended. If it was active, decrement the member count.

        A suspended membership cannot be restored after this. The directory forgets the user, unless
        it deactivated them: then it can only reactivate them.
        """


class InvitationsRead(Protocol):
    """Read access to invitations.

    `page`, `received_by` and `received_by_token` return a pending invitation that has passed its expiry as expired. All
    remaining methods return the stored status.
    """

    async def page(
        self,
        org_id: UUID,
        status: invitations.InvitationStatus | None,
        page: values.Page,
        now: datetime,
        *,
        search: str | None = None,
        role: RoleName | None = None,
    ) -> values.PageResult[invitations.ListedInvitation]:
        """Return the organization's invitations with this status and role, newest first.

        A value of None means any status or any role. `search` is a lower-case part of the email address.
        """

    async def received_by(self, email: values.Email, now: datetime) -> list[invitations.ReceivedInvitation]:
        """Return the pending invitations for this address, newest first."""

    async def received_by_token(self, token_hash: bytes, now: datetime) -> invitations.ReceivedInvitation | None:
        """Return the invitation with this token, in any state."""

    async def by_id(self, org_id: UUID, invitation_id: UUID) -> invitations.Invitation | None: ...

    async def accepted_by(self, org_id: UUID, user_id: UUID) -> invitations.ListedInvitation | None:
        """Return the invitation with which this member joined, or None: owners and users from a directory have none."""

    async def pending_of(self, org_id: UUID, invitation_ids: Collection[UUID]) -> list[invitations.Invitation]:
        """Return which of these invitations are pending, newest first."""

    async def by_token(self, org_id: UUID, token_hash: bytes) -> invitations.Invitation | None:
        """Return the organization's invitation with this token, in any state."""

    async def pending(self, org_id: UUID, email: values.Email) -> invitations.Invitation | None:
        """Return the pending invitation for this address. There is at most one pending invitation, and it may have passed its expiry."""

    async def next_expiry(self) -> datetime | None: ...


class Invitations(InvitationsRead, Protocol):
    """Write access to invitations. Lock order: the organization before any call except `expire`."""

    async def add(self, invitation: invitations.Invitation) -> None:
        """Add an invitation. Raises: InvitationAlreadySent."""

    async def end(self, org_id: UUID, invitation_id: UUID, status: invitations.InvitationStatus, now: datetime) -> bool:
        """Give a pending invitation a final status, and return whether it was pending.

        Exactly one concurrent call returns true.
        """

    async def cancel_from(self, org_id: UUID, invited_by: UUID, roles: Collection[RoleName], now: datetime) -> list[invitations.Invitation]:
        """Cancel and return pending invitations from this user to these roles (security R-4)."""

    async def cancel_to(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> list[invitations.Invitation]:
        """Cancel and return the pending invitations to these users' current addresses."""

    async def nth_newest(self, org_id: UUID, n: int) -> datetime | None:
        """Return when the n-th newest invitation was created, or None. The newest is the first."""

    async def expire(self, now: datetime, limit: int) -> list[invitations.Invitation]:
        """Mark at most `limit` overdue invitations as expired, in all organizations, and return them.

        Rows that another transaction has locked are skipped.
        """
