"""Invitations: their states, their one-time tokens, and what is done with them (organizations.md sections 2.5, 3 and 4.7; security.md
section 9; decisions, points 188 to 198).

Everything that changes an invitation locks its organization first, so whatever it reads of the organization's invitations stands; only
the sweeper goes by without that lock, and only to end what is past its time. So `end`, which ends what is still pending and says whether
it was, decides who answers an invitation.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from core.accounts import accounts
from core.accounts.accounts_rules import AccountSummary
from core.accounts.email_queue_rules import MailKind, new_mail
from core.kernel.errors import OrganizationNotActive, refuse
from core.kernel.principals import Capability, DirectoryForbids, OrganizationStatus, Person, Role, RoleInsufficient
from core.kernel.values import digest, new_id
from core.maintenance import housekeeping
from core.tenancy import events, members_rules, organizations
from core.tenancy.members_rules import AlreadyAMember
from core.tenancy.organizations_rules import Membership

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from core.kernel.principals import Caller, Member
    from core.kernel.values import Email, Listed, Page
    from core.tenancy.branding_rules import Design
    from core.tenancy.organizations_rules import Organization
    from ports import Ports
    from ports.storage import Transaction
from core.tenancy.invitations_rules import (
    BATCH,
    DAY,
    LEASE,
    SWEEPER,
    Invitation,
    InvitationAlreadySent,
    InvitationExpired,
    InvitationStatus,
    InvitedCannotJoin,
    InvitedIsAnother,
    InvitedIsDeactivated,
    InvitedIsUnknown,
    ListedInvitation,
    NoSuchInvitation,
    NotOpen,
    Offer,
    TeamFull,
    TooManyInvitations,
    invitable,
)

_HASH = re.compile("[0-9a-f]{64}")


# What an organization does


async def invite(ports: Ports, caller: Member, email: Email, role: str) -> tuple[ListedInvitation, str]:
    """An invitation, and its token, which nobody gets to see again: it goes to the invited address (organizations.md section 4.7).

    One that is past its time and still pending makes room for the new one (decisions, point 198). Raises OwnerNotInvited, RoleUnknown,
    RoleInsufficient, TooManyInvitations, AlreadyAMember, InvitedIsDeactivated, InvitationAlreadySent, and what organizations.enter raises.
    """
    invited_to = invitable(role)
    now = ports.clock.now()
    token = str(new_id())  # the contract wants the form of a UUID: 122 bits from the operating system
    async with ports.storage.transaction(by=caller) as tx:
        organization, membership = await organizations.enter(tx, caller, Capability.MEMBERS_MANAGE)
        _require_grantable(invited_to, membership)
        limit = await tx.invitations.nth_newest(organization.id, ports.policy.invitations_per_day)
        if limit is not None and limit + DAY > now:
            raise TooManyInvitations((limit + DAY - now).total_seconds())
        account = await tx.accounts.by_email(email)
        if account is not None and await tx.members.lock(organization.id, account.id) is not None:
            raise AlreadyAMember
        provisioned = None if account is None else await tx.scim_users.by_id(organization.id, account.id)
        if provisioned is not None and provisioned.deactivated_here and provisioned.email == email:
            raise InvitedIsDeactivated
        earlier = await tx.invitations.pending(organization.id, email)
        if earlier is not None and not await _expire(tx, earlier, now):
            raise InvitationAlreadySent
        inviter = await tx.accounts.by_id(caller.user_id)
        assert inviter is not None, "a member has an account"
        invitation = Invitation(
            id=new_id(),
            org_id=organization.id,
            email=email,
            role=invited_to,
            invited_by=inviter.id,
            status=InvitationStatus.PENDING,
            token_hash=digest(token),
            expires_at=now + ports.policy.invitation_ttl,
            created_at=now,
        )
        await tx.invitations.add(invitation)
        await tx.mails.queue(new_mail(MailKind.INVITATION, email, now, token=token, org_id=organization.id))
        tx.record(events.invited(invitation))
    made_by = AccountSummary(str(inviter.id), inviter.email, inviter.is_platform_owner, inviter.created_at)
    return ListedInvitation(invitation, made_by), token


async def listed(ports: Ports, caller: Member, status: InvitationStatus | None, page: Page) -> Listed[ListedInvitation]:
    """The organization's invitations with this status, the newest first. One that is past its time is shown as expired."""
    async with ports.storage.reading() as read:
        return await read.invitations.page(caller.acts_in.id, status, page, ports.clock.now())


async def cancel(ports: Ports, caller: Member, invitation_id: UUID) -> None:
    """Take a pending invitation back. Raises NoSuchInvitation, and what organizations.enter raises."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.enter(tx, caller, Capability.MEMBERS_MANAGE)
        invitation = await _pending(tx, organization, invitation_id, now)
        if invitation is not None:
            if not await tx.invitations.end(organization.id, invitation.id, InvitationStatus.CANCELLED, now):
                raise NoSuchInvitation
            tx.record(events.invitation_revoked(invitation))
    if invitation is None:
        raise NoSuchInvitation


async def accept_for(ports: Ports, caller: Member, invitation_id: UUID) -> None:
    """Accept on behalf of somebody who has an account (decisions, point 195). The membership is unconfirmed: its member took no part.

    Raises NoSuchInvitation, RoleInsufficient, what _admit raises, and what organizations.enter raises.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, membership = await organizations.enter(tx, caller, Capability.MEMBERS_MANAGE)
        invitation = await _pending(tx, organization, invitation_id, now)
        if invitation is not None:
            _require_grantable(invitation.role, membership)
            await _admit(tx, organization, invitation, now, on_behalf=True)
    if invitation is None:
        raise NoSuchInvitation


async def _pending(tx: Transaction, organization: Organization, invitation_id: UUID, now: datetime) -> Invitation | None:
    """The organization's pending invitation with this id. Where it is past its time it is marked, which has to be committed, and None."""
    invitation = await tx.invitations.by_id(organization.id, invitation_id)
    if invitation is None or not invitation.is_pending or await _expire(tx, invitation, now):
        return None
    return invitation


def _require_grantable(role: Role, membership: Membership) -> None:
    """Raises RoleInsufficient where this member may not give the role (decisions, point 190)."""
    if role not in members_rules.grantable(membership.role):
        raise RoleInsufficient


# What the invited person does


async def offers(ports: Ports, caller: Person) -> list[Offer]:
    """What the caller is invited to and can still answer, even if accepting has to wait until the organization is active; nothing while the
    address is not proved to be theirs (security.md R-4)."""
    if not caller.email_verified:
        return []
    async with ports.storage.reading() as read:
        return await read.invitations.offers_to(caller.email, ports.clock.now())


async def look(ports: Ports, token: str) -> Offer:
    """The invitation that this token answers; looking changes nothing. Raises NotOpen, InvitationExpired."""
    async with ports.storage.reading() as read:
        offer = await read.invitations.offer(digest(token), ports.clock.now()) or refuse(NotOpen)
    if not offer.invitation.is_pending:
        raise InvitationExpired if offer.invitation.status is InvitationStatus.EXPIRED else NotOpen
    return offer


async def design(ports: Ports, token: str) -> Design | None:
    """How pages about this invitation look, be it still open or not; None where they look like the platform's own."""
    async with ports.storage.reading() as read:
        offer = await read.invitations.offer(digest(token), ports.clock.now())
        return None if offer is None else await read.branding.design(offer.invitation.org_id)


async def accept(ports: Ports, caller: Caller, token: str) -> Organization:
    """Become a member of the organization, which is returned; the account is found by the invited address, or born.

    An invitation that is found past its time is marked before it is refused. Raises NotOpen, OrganizationNotActive, InvitedIsAnother,
    InvitationExpired, and what _admit raises.
    """
    now = ports.clock.now()
    person = caller if isinstance(caller, Person) else None
    async with ports.storage.transaction(by=caller) as tx:
        organization, invitation = await _find(tx, caller, token)
        if organization.status is not OrganizationStatus.ACTIVE:
            raise OrganizationNotActive
        if person is not None and person.email != invitation.email:
            raise InvitedIsAnother
        _require_open(invitation)
        expired = await _expire(tx, invitation, now)
        if not expired:
            await _admit(tx, organization, invitation, now, person=person)
    if expired:
        raise InvitationExpired
    return organization


async def decline(ports: Ports, caller: Caller, token: str) -> Organization:
    """Turn the invitation down, also one that is past its time, as long as nobody has marked it (decisions, point 191).

    Raises NotOpen, InvitationExpired.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, invitation = await _find(tx, caller, token)
        _require_open(invitation)
        ended = await tx.invitations.end(organization.id, invitation.id, InvitationStatus.REJECTED, ports.clock.now())
        if not ended:  # the sweeper was faster
            raise InvitationExpired
        tx.record(events.invitation_declined(invitation))
    return organization


async def _find(tx: Transaction, caller: Caller, token: str) -> tuple[Organization, Invitation]:
    """The invitation that this token answers, and its organization, locked. Raises NotOpen.

    In the token's place stands its hash in the list of the invited person, and only for that person it answers (decisions, point 192).
    """
    by_hash = _HASH.fullmatch(token) is not None
    token_hash = bytes.fromhex(token) if by_hash else digest(token)
    organization = await tx.organizations.lock_of_invitation(token_hash) or refuse(NotOpen)
    invitation = await tx.invitations.by_token(organization.id, token_hash) or refuse(NotOpen)
    if by_hash and not (isinstance(caller, Person) and caller.email_verified and caller.email == invitation.email):
        raise NotOpen
    return organization, invitation


def _require_open(invitation: Invitation) -> None:
    """Raises NotOpen, InvitationExpired."""
    if invitation.status is InvitationStatus.EXPIRED:
        raise InvitationExpired
    if not invitation.is_pending:
        raise NotOpen


async def _expire(tx: Transaction, invitation: Invitation, now: datetime) -> bool:
    """Whether a pending invitation is past its time. It is then marked, which has to be committed whatever is refused because of it."""
    if invitation.expires_at > now:
        return False
    if await tx.invitations.end(invitation.org_id, invitation.id, InvitationStatus.EXPIRED, now):  # else the sweeper was faster
        tx.record(events.invitation_expired(invitation))
    return True


async def _admit(
    tx: Transaction,
    organization: Organization,
    invitation: Invitation,
    now: datetime,
    *,
    person: Person | None = None,
    on_behalf: bool = False,
) -> None:
    """Make whoever has the invited address a member of the locked organization: `person`, if they are signed in, or whoever it is.

    What accepts may be anybody who knows the token, the inviter for one. So it proves nothing about the mailbox, verifies nothing and
    deletes nothing (security.md A-7, R-3), and only a person who signed in, or whose account has no other life or was born here, takes part
    by it (R-5).

    Raises AlreadyAMember, TeamFull, InvitedIsUnknown, InvitedIsAnother, InvitedCannotJoin, DirectoryForbids, InvitationExpired.
    """
    known = await tx.accounts.by_email(invitation.email)
    if known is not None and await tx.members.lock(organization.id, known.id) is not None:
        raise AlreadyAMember
    if organization.member_count >= organization.user_limit.value:
        raise TeamFull
    if on_behalf:
        account, born = await tx.accounts.lock_by_email(invitation.email) or refuse(InvitedIsUnknown), False
    else:
        account, born = await accounts.find_or_add(tx, invitation.email, now)
    if person is not None and account.id != person.user_id:  # the address has changed hands since the token was read
        raise InvitedIsAnother
    # Somebody may have given a living account, with its sessions, this address and never shown that it is theirs: until they do, it gives
    # no invitations, or whoever squats on an address would be let in by the person who really has it.
    unproved = account.email_verified_at is None and account.first_verified_at is not None
    provisioned = None if known is None else await tx.scim_users.by_id(organization.id, account.id)
    if provisioned is not None and provisioned.deactivated_here:
        raise InvitedCannotJoin if person is None else DirectoryForbids
    if unproved or not account.is_usable:  # which of them is nothing that whoever knows the token should learn
        raise InvitedCannotJoin
    if not await tx.invitations.end(organization.id, invitation.id, InvitationStatus.ACCEPTED, now):
        raise InvitationExpired
    confirmed = born or person is not None or account.origin_org_id == organization.id
    await tx.members.add(
        Membership(
            id=new_id(),
            org_id=organization.id,
            user_id=account.id,
            role=invitation.role,
            created_at=now,
            confirmed_at=now if confirmed else None,
        )
    )
    tx.record(events.invitation_accepted(invitation, account.id))
    tx.record(events.joined(organization.id, account.id, invitation.role, invitation_id=invitation.id))


# What time does


async def sweep(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Mark in bounded batches what is past its time: how many it were, if any. None while another holder is at it.

    Nothing relies on it: time is looked at whenever an invitation is.
    """

    async def batch(tx: Transaction, now: datetime) -> int:
        expired = await tx.invitations.expire(now, BATCH)
        for invitation in expired:
            tx.record(events.invitation_expired(invitation))
        return len(expired)

    return await housekeeping.in_batches(ports, holder, SWEEPER, LEASE, BATCH, {"invitations": batch})
