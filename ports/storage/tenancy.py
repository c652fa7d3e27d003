"""Storage of the area tenancy."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.accounts.one_time_tokens import Purpose
from core.kernel.deferred import Deferred
from core.kernel.principals import OrganizationStatus, Role
from core.kernel.providers import Provider
from core.kernel.values import Domain, Email, PageResult, Page
from core.tenancy.branding_rules import Branding as Chosen
from core.tenancy.branding_rules import Design
from core.tenancy.domains_rules import DomainClaim
from core.tenancy.governance_rules import ListedOrganization
from core.tenancy.home_realm_rules import HomeRealmMatch, HomeRealmRoute
from core.tenancy.invitations_rules import Invitation, InvitationStatus, ListedInvitation, ReceivedInvitation
from core.tenancy.mail_server_rules import MailServer, SmtpSettings
from core.tenancy.members_rules import ListedMember
from core.tenancy.organizations_rules import Membership, Organization, Tier

# organizations: What is asked of storage about organizations.


class OrganizationsRead(Protocol):
    """Organizations, looked at."""

    async def by_id(self, org_id: UUID) -> Organization | None: ...
    async def status(self, slug: str) -> OrganizationStatus | None: ...
    async def id_by_slug(self, slug: str) -> UUID | None: ...

    async def by_member(self, user_id: UUID) -> list[tuple[Organization, Membership]]:
        """Those that the person is a member of, whatever their status, by slug."""
        ...

    async def governed(
        self, status: OrganizationStatus | None, tier_id: UUID | None, limit: int, offset: int
    ) -> PageResult[ListedOrganization]:
        """Those with this status and tier, the newest first, with their owners."""
        ...


class Organizations(OrganizationsRead, Protocol):
    """Organizations, changed."""

    async def lock(self, org_id: UUID) -> Organization | None:
        """The organization, locked until the transaction ends: the first lock of every transaction that changes something of it."""
        ...

    def lock_deferred(self, org_id: UUID) -> Deferred[Organization]:
        """The same, before the next statement."""
        ...

    async def lock_by_invitation_token(self, token_hash: bytes) -> Organization | None:
        """The organization that a token invites to, locked; whether the invitation is still good is another question."""
        ...

    async def add(self, organization: Organization) -> None:
        """Raises SlugTaken."""
        ...

    async def save(self, organization: Organization) -> None:
        """Write all that can change of a locked organization; `member_count` is not among it."""
        ...

    async def delete(self, org_id: UUID, now: datetime) -> None:
        """Remove a locked organization and what hangs on it; a tombstone tells Sweep.DELETED_ORGANIZATIONS to remove the records of it."""
        ...

    async def purge(self, org_id: UUID, limit: int) -> None:
        """Remove at most `limit` records (who used its services, audit entries, events, logins, totals) of a deleted organization."""
        ...


# tiers: What is asked of storage about tiers.


class TiersRead(Protocol):
    async def all(self) -> list[Tier]:
        """Every tier, the smallest first."""
        ...

    async def by_id(self, tier_id: UUID) -> Tier | None: ...
    async def by_name(self, name: str) -> Tier | None: ...


class Tiers(TiersRead, Protocol):
    async def put(self, tier: Tier) -> None:
        """Add the tier, or give the one of this name these limits and this price; its id stays."""
        ...


# members: What is asked of storage about memberships.


class MembersRead(Protocol):
    """Memberships, looked at."""

    async def page(self, org_id: UUID, role: Role | None, page: Page) -> list[ListedMember]:
        """Those of the organization with this role, the oldest first."""
        ...

    async def count(self, org_id: UUID, role: Role) -> int:
        """How many have this role. How many there are altogether is Organization.member_count."""
        ...

    async def exists(self, org_id: UUID, user_id: UUID) -> bool:
        """Whether this person is a member of the organization, or one whose membership its directory has put away."""
        ...


class Members(MembersRead, Protocol):
    """Memberships, changed. The organization is locked before any of these, but for `lock` where only sessions follow."""

    async def lock(self, org_id: UUID, user_id: UUID) -> Membership | None:
        """The membership, locked until the transaction ends."""
        ...

    async def suspended_membership(self, org_id: UUID, user_id: UUID) -> Membership | None:
        """The membership that the organization's directory has put away, and would give back. Nobody changes it but who holds the
        organization."""
        ...

    async def add(self, membership: Membership) -> None:
        """Also counts it; the directory forgets whoever left with this person's address, unless it has deactivated them. Raises
        AlreadyMember."""
        ...

    async def set_role(self, org_id: UUID, user_id: UUID, role: Role) -> None:
        """Of the membership, or of the one that is put away."""
        ...

    async def remove(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        """Also counts it out. Nothing gives one back that was put away, and the directory knows the person no more, unless it has
        deactivated them: then it can say that it has not, and nothing else."""
        ...


class Confirmations(Protocol):
    async def confirm(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        """The member took part in the organization; the first time counts (the terms of security.md)."""
        ...


# invitations: What is asked of storage about invitations.


class InvitationsRead(Protocol):
    """Invitations, looked at. In the first three, one that is pending past its time is shown as expired."""

    async def page(self, org_id: UUID, status: InvitationStatus | None, page: Page, now: datetime) -> PageResult[ListedInvitation]:
        """Those of the organization with this status, the newest first."""
        ...

    async def received_by(self, email: Email, now: datetime) -> list[ReceivedInvitation]:
        """Pending, unexpired invitations for this address, the newest first."""
        ...

    async def received_by_token(self, token_hash: bytes, now: datetime) -> ReceivedInvitation | None:
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

    async def cancel_from(self, org_id: UUID, invited_by: UUID, roles: Collection[Role], now: datetime) -> list[Invitation]:
        """Cancel what this person has invited to these roles and could still be accepted (R-4); returns what it were."""
        ...

    async def cancel_to(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> list[Invitation]:
        """Cancel what these people are invited to, by the addresses that they have, and could still accept; returns what it were."""
        ...

    async def nth_newest(self, org_id: UUID, n: int) -> datetime | None:
        """When the n-th newest invitation was made, 1 being the newest; None if there are fewer."""
        ...

    async def expire(self, now: datetime, limit: int) -> list[Invitation]:
        """Mark at most `limit` pending invitations, of whatever organization, that are past their time; those in use are left for later."""
        ...


# domains: What is asked of storage about domains.


class DomainsRead(Protocol):
    """The domains of organizations, looked at."""

    async def of(self, org_id: UUID) -> DomainClaim | None: ...


class Domains(DomainsRead, Protocol):
    """The same, changed. The organization is locked before any of these."""

    async def put(self, claim: DomainClaim) -> None:
        """In the place of what the organization has claimed before."""
        ...

    async def prove(self, org_id: UUID, now: datetime) -> DomainClaim:
        """The claim, proved. Raises DomainTaken where another organization has proved the same."""
        ...

    async def remove(self, org_id: UUID) -> None: ...


# home_realm: What is asked of storage about where the people of a domain sign in.


class HomeRealmRead(Protocol):
    """Where the people of domains sign in, looked at."""

    async def routes(self, org_id: UUID) -> list[HomeRealmRoute]:
        """By domain. One is verified if it is the organization that `of` would ask for its domain."""
        ...

    async def of(self, domain: Domain) -> HomeRealmMatch | None:
        """By the route that an active organization has for it, if what it has proved is this domain, or the nearest one above it that
        anybody has proved."""
        ...


class HomeRealm(HomeRealmRead, Protocol):
    """The same, changed. The organization is locked before this."""

    async def replace(self, org_id: UUID, routes: Mapping[Domain, Provider]) -> None:
        """Have these and no others."""
        ...


# branding: What is asked of storage about designs of organizations.


class BrandingRead(Protocol):
    """What organizations have chosen for their mails and pages, looked at."""

    async def of(self, org_id: UUID) -> Chosen | None: ...

    async def design(self, org_id: UUID) -> Design | None:
        """Of this organization, if it is active."""
        ...

    async def design_of_link(self, token_hash: bytes, purpose: Purpose) -> Design | None:
        """Of the organization that the mail with this token speaks for, if it is active; whether the token is good is another question."""
        ...


class Branding(BrandingRead, Protocol):
    """The same, changed. The organization is locked before `put`."""

    async def active(self, slug: str) -> UUID | None:
        """The organization that a mail may name: the active one of this slug."""
        ...

    async def put(self, org_id: UUID, chosen: Chosen, now: datetime) -> None: ...


# smtp: What is asked of storage about mail servers of organizations.


class SmtpRead(Protocol):
    """The mail servers of organizations, looked at."""

    async def settings(self, org_id: UUID) -> SmtpSettings | None: ...

    async def server(self, org_id: UUID) -> MailServer | None:
        """With its password. Raises SealBroken."""
        ...


class Smtp(SmtpRead, Protocol):
    """The mail servers of organizations, changed; their passwords are sealed. The organization is locked before any of these."""

    async def put(self, server: MailServer, now: datetime) -> None:
        """In place of the one that was there, if one was."""
        ...

    async def remove(self, org_id: UUID) -> SmtpSettings | None:
        """What was there."""
        ...


# The repositories of this area, by the kind of access


class TenancyReading(Protocol):
    """Read access to the repositories of tenancy."""

    @property
    def branding(self) -> BrandingRead: ...
    @property
    def domains(self) -> DomainsRead: ...
    @property
    def home_realm(self) -> HomeRealmRead: ...
    @property
    def invitations(self) -> InvitationsRead: ...
    @property
    def members(self) -> MembersRead: ...
    @property
    def organizations(self) -> OrganizationsRead: ...
    @property
    def smtp(self) -> SmtpRead: ...
    @property
    def tiers(self) -> TiersRead: ...


class TenancyTransaction(Protocol):
    """The repositories of tenancy in a transaction."""

    @property
    def branding(self) -> Branding: ...
    @property
    def domains(self) -> Domains: ...
    @property
    def home_realm(self) -> HomeRealm: ...
    @property
    def invitations(self) -> Invitations: ...
    @property
    def members(self) -> Members: ...
    @property
    def organizations(self) -> Organizations: ...
    @property
    def smtp(self) -> Smtp: ...
    @property
    def tiers(self) -> Tiers: ...


class TenancyAutocommit(Protocol):
    """The statements of tenancy that commit by themselves."""

    @property
    def members(self) -> Confirmations: ...
