"""Sending invitations to one address, or to many in one call."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from core.accounts.model import email_queue
from core.accounts.model.accounts import AccountSummary
from core.kernel import callers, errors, values
from core.kernel.roles import Capability, Role
from core.tenancy import events, organizations
from core.tenancy.invitations import expire_if_due
from core.tenancy.model import invitations
from core.tenancy.model.members import AlreadyMember
from core.tenancy.model.roles import require_giveable
from ports import Ports
from ports.storage import Transaction


async def invite(
    ports: Ports, caller: callers.OrganizationCaller, email: values.Email, role: str
) -> tuple[invitations.ListedInvitation, str]:
    """Invite an email address to the organization, and return the invitation with a token.

    Only this result contains this token. The token lets the recipient join, and proves nothing. The email has another
    token, which proves the mailbox. If the organization has a mail server, it can read the email, so there is one token
    for both, which proves nothing (security R-3). If the pending invitation for the address has passed its expiry, it
    is first marked as expired, to make room for the new one.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, rights = await organizations.lock_organization_for(tx, caller, Capability.MEMBERS_MANAGE)
        invited_role = invitations.require_invitable(await tx.roles.find(organization.id, role))
        require_giveable(rights, invited_role)
        await _require_below_daily_limit(ports, tx, organization.id, 1, now)
        await _require_invitable(tx, organization.id, email, await _load_domains(tx, organization.id), now)
        inviter = await _load_inviter(tx, caller)
        hide_token = await tx.smtp.settings(organization.id) is None
        invitation, token = await _send(ports, tx, organization.id, inviter, email, invited_role, now, hide_token=hide_token)
    return invitations.ListedInvitation(invitation, inviter), token


async def invite_many(
    ports: Ports, caller: callers.OrganizationCaller, invitees: Sequence[tuple[values.Email, str]]
) -> list[invitations.BulkInvitation]:
    """Invite every address with its role, and return a result per address, in the same order.

    An address that cannot be invited does not prevent the other invitations. The address's result has the refusal: InvitedDomainRefused,
    AlreadyMember, InviteeBlocked or InvitationAlreadySent. Every other refusal is for the whole call: then no invitation is sent. The
    results contain no tokens.
    """
    now = ports.clock.now()
    refusals: dict[int, errors.Refusal] = {}
    results: list[invitations.BulkInvitation] = []
    async with ports.storage.transaction(by=caller) as tx:
        organization, rights = await organizations.lock_organization_for(tx, caller, Capability.MEMBERS_MANAGE)
        roles = {
            name: invitations.require_invitable(await tx.roles.find(organization.id, name))
            for name in sorted({name for _, name in invitees})
        }
        for role in roles.values():
            require_giveable(rights, role)
        requests = [(email, roles[name]) for email, name in invitees]
        domains, checked = await _load_domains(tx, organization.id), set[values.Email]()
        for index, (email, _) in enumerate(requests):
            try:
                if email in checked:
                    raise invitations.InvitationAlreadySent
                await _require_invitable(tx, organization.id, email, domains, now)
            except (
                AlreadyMember,
                invitations.InviteeBlocked,
                invitations.InvitationAlreadySent,
                invitations.InvitedDomainRefused,
            ) as refusal:
                refusals[index] = refusal
            checked.add(email)
        await _require_below_daily_limit(ports, tx, organization.id, len(requests) - len(refusals), now)
        inviter = await _load_inviter(tx, caller)
        hide_token = await tx.smtp.settings(organization.id) is None
        for index, (email, role) in enumerate(requests):
            if index in refusals:
                results.append(invitations.BulkInvitation(email, None, refusals[index]))
                continue
            invitation, _ = await _send(ports, tx, organization.id, inviter, email, role, now, hide_token=hide_token)
            results.append(invitations.BulkInvitation(email, invitations.ListedInvitation(invitation, inviter), None))
    return results


async def resend(ports: Ports, caller: callers.OrganizationCaller, invitation_id: UUID) -> invitations.ListedInvitation:
    """Replace a pending or expired invitation by a new invitation for the same address and role, and return it.

    The old links stop working.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, rights = await organizations.lock_organization_for(tx, caller, Capability.MEMBERS_MANAGE)
        earlier = await tx.invitations.by_id(organization.id, invitation_id) or errors.refuse(invitations.InvitationNotFound)
        if earlier.status not in (invitations.InvitationStatus.PENDING, invitations.InvitationStatus.EXPIRED):
            raise invitations.InvitationNotFound
        role = invitations.require_invitable(await tx.roles.find(organization.id, earlier.role))
        require_giveable(rights, role)
        if earlier.is_pending and not await expire_if_due(tx, earlier, now):
            await tx.invitations.end(organization.id, earlier.id, invitations.InvitationStatus.CANCELLED, now)
            tx.record(events.invitation_revoked(earlier))
        await _require_below_daily_limit(ports, tx, organization.id, 1, now)
        await _require_invitable(tx, organization.id, earlier.email, await _load_domains(tx, organization.id), now)
        inviter = await _load_inviter(tx, caller)
        hide_token = await tx.smtp.settings(organization.id) is None
        invitation, _ = await _send(ports, tx, organization.id, inviter, earlier.email, role, now, hide_token=hide_token)
    return invitations.ListedInvitation(invitation, inviter)


async def _require_below_daily_limit(ports: Ports, tx: Transaction, org_id: UUID, count: int, now: datetime) -> None:
    """Check that the organization may send `count` more invitations now."""
    if not count:
        return
    # The limit allows `count` more once this earlier invitation is a day old.
    position = ports.policy.invitations_per_day - count + 1
    if position < 1:
        raise invitations.TooManyInvitations(invitations.DAY.total_seconds())
    sent_at = await tx.invitations.nth_newest(org_id, position)
    if sent_at is not None and sent_at + invitations.DAY > now:
        raise invitations.TooManyInvitations((sent_at + invitations.DAY - now).total_seconds())


async def _load_domains(tx: Transaction, org_id: UUID) -> frozenset[values.Domain] | None:
    """Return the domains to which the sign-in policy allows invitations, or None for all."""
    policy = await tx.sign_in_policies.find(org_id)
    return None if policy is None else policy.rules.invited_domains


async def _require_invitable(
    tx: Transaction, org_id: UUID, email: values.Email, domains: frozenset[values.Domain] | None, now: datetime
) -> None:
    """Check that this address can be invited. Raises: InvitedDomainRefused, AlreadyMember, InviteeBlocked, InvitationAlreadySent."""
    if domains is not None and email.domain not in domains:
        raise invitations.InvitedDomainRefused(domains)
    account = await tx.accounts.by_email(email)
    if account is not None and await tx.members.lock(org_id, account.id) is not None:
        raise AlreadyMember
    if account is not None and await tx.directory_blocks.exists(org_id, account.id):
        raise invitations.InviteeBlocked(account.id)
    earlier = await tx.invitations.pending(org_id, email)
    if earlier is not None and not await expire_if_due(tx, earlier, now):
        raise invitations.InvitationAlreadySent


async def _load_inviter(tx: Transaction, caller: callers.OrganizationCaller) -> AccountSummary:
    if not isinstance(caller, callers.Member):
        return await tx.service_accounts.summary(caller.acts_in.id, caller.account_id) or errors.refuse(errors.SessionEnded)
    inviter = await tx.accounts.by_id(caller.user_id)
    assert inviter is not None, "a member has an account"
    return AccountSummary(str(inviter.id), inviter.email, inviter.is_platform_owner, inviter.created_at)


async def _send(
    ports: Ports,
    tx: Transaction,
    org_id: UUID,
    inviter: AccountSummary,
    email: values.Email,
    role: Role,
    now: datetime,
    *,
    hide_token: bool,
) -> tuple[invitations.Invitation, str]:
    """Add an invitation, queue its email, and return the invitation with the token for the inviter.

    With `hide_token`, the email has its own token.
    """
    token = str(values.new_id())  # clients expect a UUID; it has 122 random bits
    mail_token = str(values.new_id()) if hide_token else token
    invitation = invitations.Invitation(
        id=values.new_id(),
        org_id=org_id,
        email=email,
        role=role.name,
        invited_by=UUID(inviter.id),
        status=invitations.InvitationStatus.PENDING,
        token_hash=values.digest(mail_token),
        inviter_token_hash=values.digest(token) if hide_token else None,
        expires_at=now + ports.policy.invitation_ttl,
        created_at=now,
    )
    await tx.invitations.add(invitation)
    await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.INVITATION, email, now, token=mail_token, org_id=org_id))
    tx.record(events.user_invited(invitation))
    return invitation, token
