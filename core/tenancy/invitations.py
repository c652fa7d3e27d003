"""Invitations: listing, canceling, accepting, declining and expiry. `inviting` sends invitations.

Every change locks the invitation's organization first, so the organization's invitations do not change during the
transaction. The sweeper is the exception: it takes no such lock, and only marks invitations as expired. Therefore
`tx.invitations.end` decides which answer counts. `end` changes a pending invitation only, and returns whether it did.
"""

from datetime import datetime
from uuid import UUID

from core.accounts import accounts, mailbox, required_connections
from core.accounts.model.accounts import Account, EmailNotFree
from core.kernel import callers, errors, roles, values
from core.kernel.access import BlockedByDirectory
from core.kernel.causes import Caller
from core.maintenance import housekeeping
from core.tenancy import domains, events, organizations
from core.tenancy.model import invitations, members
from core.tenancy.model.organizations import Membership, Organization
from core.tenancy.model.roles import require_giveable
from core.tenancy.model.settings import Design
from ports import Ports
from ports.storage import Transaction

# Members


async def list_page(
    ports: Ports,
    caller: callers.OrganizationCaller,
    status: invitations.InvitationStatus | None,
    page: values.Page,
    *,
    search: str | None = None,
    role: str | None = None,
) -> values.PageResult[invitations.ListedInvitation]:
    """Return a page with the organization's invitations that have this status and role, newest first.

    A pending invitation that has passed its expiry has the status expired. `search` matches any part
    of an email address, as for members.
    """
    text = values.Email.parse_part(search or "") or None
    async with ports.storage.reading() as read:
        found = None if role is None else await read.roles.find(caller.acts_in.id, role) or errors.refuse(members.RoleFilterUnknown)
        name = None if found is None else found.name
        return await read.invitations.page(caller.acts_in.id, status, page, ports.clock.now(), search=text, role=name)


async def cancel(ports: Ports, caller: callers.OrganizationCaller, invitation_id: UUID) -> None:
    """Cancel a pending invitation."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, roles.Capability.MEMBERS_MANAGE)
        invitation = await _load_pending(tx, organization, invitation_id, now)
        if invitation is not None:
            if not await tx.invitations.end(organization.id, invitation.id, invitations.InvitationStatus.CANCELLED, now):
                raise invitations.InvitationNotFound
            tx.record(events.invitation_revoked(invitation))
    if invitation is None:
        raise invitations.InvitationNotFound


async def accept_on_behalf(ports: Ports, caller: callers.OrganizationCaller, invitation_id: UUID) -> None:
    """Accept an invitation for its recipient, who must have an account.

    The membership is unconfirmed, because the recipient took no part.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, rights = await organizations.lock_organization_for(tx, caller, roles.Capability.MEMBERS_MANAGE)
        invitation = await _load_pending(tx, organization, invitation_id, now)
        if invitation is not None:
            require_giveable(rights, await tx.roles.find(organization.id, invitation.role))
            await add_invited_member(tx, organization, invitation, now, on_behalf=True)
    if invitation is None:
        raise invitations.InvitationNotFound


async def _load_pending(tx: Transaction, organization: Organization, invitation_id: UUID, now: datetime) -> invitations.Invitation | None:
    """Return the organization's pending invitation with this id, or None.

    An invitation that has passed its expiry is marked as expired. The caller must commit the mark before it raises.
    """
    invitation = await tx.invitations.by_id(organization.id, invitation_id)
    if invitation is None or not invitation.is_pending or await expire_if_due(tx, invitation, now):
        return None
    return invitation


# Recipients


async def list_received(ports: Ports, caller: callers.Person) -> list[invitations.ReceivedInvitation]:
    """Return the invitations that the caller can still answer.

    The list is empty until the caller's address is verified (security R-4). The list includes invitations from
    organizations that are not active, which can be accepted later.
    """
    if not caller.email_verified:
        return []
    async with ports.storage.reading() as read:
        return await read.invitations.received_by(caller.email, ports.clock.now())


async def get_by_token(ports: Ports, token: str, person: callers.Person | None = None) -> invitations.ReceivedInvitation:
    """Return the pending invitation with this token. The signed-in recipient can give the token's hash instead. Nothing changes."""
    token_hash, is_hash = invitations.parse_token(token)
    async with ports.storage.reading() as read:
        received = await read.invitations.received_by_token(token_hash, ports.clock.now()) or errors.refuse(
            invitations.InvitationNotPending
        )
    if is_hash and not received.invitation.is_for(person):
        raise invitations.InvitationNotPending
    require_pending(received.invitation)
    return received


async def get_design(ports: Ports, token: str) -> Design | None:
    """Return the design for the pages about this invitation, or None for the platform's design. The invitation may have any state."""
    async with ports.storage.reading() as read:
        received = await read.invitations.received_by_token(invitations.parse_token(token)[0], ports.clock.now())
        return None if received is None else await read.branding.design(received.invitation.org_id)


async def accept(ports: Ports, caller: Caller, token: str) -> Organization:
    """Accept an invitation, and return the organization that the recipient joined.

    The account with the invited address joins. If no account has the address, it is created. The token in the email
    proves the mailbox. An invitation that has passed its expiry is marked as expired before the error is raised.
    """
    now = ports.clock.now()
    person = caller if isinstance(caller, callers.Person) else None
    async with ports.storage.transaction(by=caller) as tx:
        organization, invitation = await lock_by_token(tx, caller, token)
        if organization.status is not callers.OrganizationStatus.ACTIVE:
            raise errors.OrganizationNotActive
        if person is not None and person.email != invitation.email:
            raise invitations.InviteeMismatch
        require_pending(invitation)
        expired = await expire_if_due(tx, invitation, now)
        if not expired:
            by_mail = invitation.is_proved_by(values.digest(token))
            await add_invited_member(tx, organization, invitation, now, person=person, by_mail=by_mail)
    if expired:
        raise invitations.InvitationExpired
    return organization


async def decline(ports: Ports, caller: Caller, token: str) -> Organization:
    """Decline an invitation, and return its organization.

    An invitation that has passed its expiry can be declined until it is marked as expired.

    Raises: InvitationNotPending, InvitationExpired.
    """
    async with ports.storage.transaction(by=caller) as tx:
        organization, invitation = await lock_by_token(tx, caller, token)
        require_pending(invitation)
        declined = await tx.invitations.end(organization.id, invitation.id, invitations.InvitationStatus.REJECTED, ports.clock.now())
        if not declined:  # the sweeper expired it first
            raise invitations.InvitationExpired
        tx.record(events.invitation_declined(invitation))
    return organization


async def lock_by_token(tx: Transaction, caller: Caller, token: str) -> tuple[Organization, invitations.Invitation]:
    """Lock the organization that sent the invitation with this token, and return the organization and the invitation.

    `token` may also be the SHA-256 of the token in hexadecimal, which the recipient's invitation list shows. The hash
    works only for the signed-in recipient.
    """
    token_hash, is_hash = invitations.parse_token(token)
    organization = await tx.organizations.lock_by_invitation_token(token_hash) or errors.refuse(invitations.InvitationNotPending)
    invitation = await tx.invitations.by_token(organization.id, token_hash) or errors.refuse(invitations.InvitationNotPending)
    if is_hash and not invitation.is_for(caller):
        raise invitations.InvitationNotPending
    return organization, invitation


def require_pending(invitation: invitations.Invitation) -> None:
    """Check that the invitation is pending."""
    if invitation.status is invitations.InvitationStatus.EXPIRED:
        raise invitations.InvitationExpired
    if not invitation.is_pending:
        raise invitations.InvitationNotPending


async def expire_if_due(tx: Transaction, invitation: invitations.Invitation, now: datetime) -> bool:
    """Mark a pending invitation as expired if it has passed its expiry, and return whether it has.

    The caller must commit the mark before it raises an error.
    """
    if invitation.expires_at > now:
        return False
    # False if the sweeper was first.
    if await tx.invitations.end(invitation.org_id, invitation.id, invitations.InvitationStatus.EXPIRED, now):
        tx.record(events.invitation_expired(invitation))
    return True


async def add_invited_member(
    tx: Transaction,
    organization: Organization,
    invitation: invitations.Invitation,
    now: datetime,
    *,
    person: callers.Person | None = None,
    by_mail: bool = False,
    on_behalf: bool = False,
) -> Account:
    """Make the invited account a member in the locked organization, accept the invitation, and return the account.

    `person` is the signed-in recipient, if the recipient is signed in. With `on_behalf` a member accepts for the
    recipient; then the account must exist. Otherwise a missing account is created. At a domain that another
    organization has verified, only the token in the email creates an account.

    With `by_mail`, the token is from the email, which proves the mailbox. The inviter knows the other token, so that
    token verifies no address and deletes nothing (security A-7, R-3). The membership is confirmed if the mailbox is
    proved, if the recipient is signed in, or if this organization created the account (security R-5).
    """
    account = await _lock_invited_account(tx, organization, invitation, now, by_mail=by_mail, on_behalf=on_behalf)
    # Another account may have got the address since the request began.
    if person is not None and account.id != person.user_id:
        raise invitations.InviteeMismatch
    if await tx.directory_blocks.exists(organization.id, account.id):
        if on_behalf:
            raise invitations.InviteeBlocked(account.id)
        raise invitations.InviteeCannotJoin if person is None else BlockedByDirectory
    # An unproven account must not accept invitations. Otherwise the address's owner would let a
    # squatter in (security A-9). The error is the same in both cases, because the person who has
    # the token must not learn which case it is.
    if account.is_usable and account.is_unproven:
        raise invitations.InviteeCannotJoin
    if by_mail:
        account = await mailbox.prove_mailbox(tx, account, now) or errors.refuse(invitations.InviteeCannotJoin)
    elif not account.is_usable:
        raise invitations.InviteeCannotJoin
    promoted_by = await _require_promotable(tx, invitation) if roles.needs_roles_manage(invitation.role) else None
    if not await tx.invitations.end(organization.id, invitation.id, invitations.InvitationStatus.ACCEPTED, now):
        raise invitations.InvitationExpired
    is_confirmed = by_mail or person is not None or account.origin_org_id == organization.id
    await tx.members.add(
        Membership(
            id=values.new_id(),
            org_id=organization.id,
            user_id=account.id,
            role=invitation.role,
            created_at=now,
            confirmed_at=now if is_confirmed else None,
        ),
        promoted_by=promoted_by,
    )
    if not on_behalf:
        await required_connections.require_kept_by_undo(tx, account, organization.id, now)
    tx.record(events.invitation_accepted(invitation, account.id))
    tx.record(events.user_joined(organization.id, account.id, invitation.role, invitation_id=invitation.id))
    return account


async def _lock_invited_account(
    tx: Transaction, organization: Organization, invitation: invitations.Invitation, now: datetime, *, by_mail: bool, on_behalf: bool
) -> Account:
    """Lock and return the invited account, which may be new. The parameters are as in `add_invited_member`."""
    existing = await tx.accounts.by_email(invitation.email)
    if existing is not None and await tx.members.lock(organization.id, existing.id) is not None:
        raise members.AlreadyMember
    if organization.member_count >= organization.user_limit.value:
        raise invitations.TeamFull
    if on_behalf:
        return await tx.accounts.lock_by_email(invitation.email) or errors.refuse(invitations.InviteeHasNoAccount)
    if existing is None and not by_mail and await domains.is_of_another(tx, invitation.email, organization.id):
        raise invitations.MailTokenRequired
    try:
        account, _ = await accounts.find_or_add(tx, invitation.email, now)
    except EmailNotFree:
        raise invitations.InviteeCannotJoin from None
    return account


async def _require_promotable(tx: Transaction, invitation: invitations.Invitation) -> UUID | None:
    """Return the service account that sent this invitation to a role above member, or None if a person did.

    The account may have stopped since, for example because its owner was deactivated (security R-4).
    """
    may_promote = await tx.service_accounts.may_promote(invitation.org_id, invitation.invited_by)
    if may_promote is False:
        raise invitations.InvitationNotPending
    return invitation.invited_by if may_promote else None


# Expiry


async def next_expiry(ports: Ports) -> datetime | None:
    """Return when the next invitation expires, or None if there is none."""
    async with ports.storage.reading() as read:
        return await read.invitations.next_expiry()


async def sweep(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Mark overdue invitations as expired, in batches.

    Return how many invitations expired by kind, or None if another process holds the lease.

    No rule relies on this sweep: every use case checks the expiry itself.
    """

    async def batch(tx: Transaction, now: datetime) -> int:
        expired = await tx.invitations.expire(now, invitations.BATCH)
        for invitation in expired:
            tx.record(events.invitation_expired(invitation))
        return len(expired)

    return await housekeeping.process_in_batches(
        ports, holder, invitations.SWEEPER, invitations.LEASE, invitations.BATCH, {"invitations": batch}
    )
