"""Ending grants when the giver has lost the rights (security R-4), and service accounts whose owner has gone.

If the owner left or deleted their account, the service accounts go on for a while (security #own-end). At their end,
service accounts can leave
secrets behind (security J-12).
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final
from uuid import UUID

from core.accounts import security_notices
from core.accounts.model import email_queue
from core.kernel import page_paths
from core.kernel.roles import MEMBER, NO_RIGHTS, Capability, Rights, Role, RoleName, may_give, needs_roles_manage
from core.kernel.values import Email
from core.tenancy import events
from core.tenancy.model import groups
from core.tenancy.model.members import may_invite
from ports import Ports
from ports.storage import Transaction


async def void_grants(tx: Transaction, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> None:
    """End users' grants after their rights have changed or they left (security R-4).

    Pending invitations end that the users may no longer give, with the invitations and roles that their stopped service
    accounts gave. The credentials that these users created end, for all programs that they may no longer manage
    (security J-12). Groups lose the roles that these users gave them.

    The caller has locked the organization, and has stored the change.
    """
    roles = await tx.roles.all(org_id) if user_ids else ()
    for user_id in user_ids:
        await _void_grants_of(tx, org_id, user_id, roles, now)
    await stop_unfounded(tx, org_id, now)


async def _void_grants_of(tx: Transaction, org_id: UUID, user_id: UUID, roles: Sequence[Role], now: datetime) -> None:
    membership = await tx.members.lock(org_id, user_id)
    rights = NO_RIGHTS if membership is None else membership.rights
    await _cancel_invitations(tx, org_id, user_id, [role.name for role in roles if not may_invite(rights, role)], now)
    manages_programs = Capability.SERVICE_ACCOUNTS_MANAGE in rights
    of_roles = [role.name for role in roles if not may_give(rights, role, to_program=True)] if manages_programs else None
    await security_notices.end_credentials_in(tx, org_id, user_id, now, of_roles=of_roles)
    await _void_stopped_accounts(tx, org_id, user_id, roles, now)


async def stop_unfounded(tx: Transaction, org_id: UUID, now: datetime) -> None:
    """Stop the group roles that their givers may no longer give, after a change that can take rights away.

    The groups' members lose the rights with their next request, and the grants that they made with these rights end. Users who may no
    longer be listed for break glass leave the list. Set-up links end if their creators may no longer create links. The caller has
    locked the organization, and has stored the change.
    """
    stopped = groups.find_unfounded(await tx.group_roles.active(org_id))
    if not stopped:
        await _end_break_glass(tx, org_id)
        for link_id, name in await tx.setup_links.end_unfounded(org_id, now):
            tx.record(events.setup_link_ended(org_id, link_id, name, by="rights"))
        return
    group_ids = [mapping.group_id for mapping in stopped]
    await tx.group_roles.stop(org_id, group_ids, now)
    for mapping in stopped:
        tx.record(events.group_mapping_stopped(org_id, mapping))
    await void_grants(tx, org_id, await tx.group_roles.givers_in(org_id, group_ids), now)


async def _end_break_glass(tx: Transaction, org_id: UUID) -> None:
    """Remove users who no longer count as admins, have left, or have no usable account, from the break-glass list.

    No later role or reactivation brings these users back to the list. All sessions are asked for the sign-in policy
    again.
    """
    left, ended = await tx.sign_in_policies.end_break_glass(org_id)
    if ended:
        await tx.sign_in_policies.renew(org_id)
        tx.record(events.break_glass_users_changed(org_id, {*left, *ended}, left))


async def require_power_over_directories(tx: Transaction, org_id: UUID, rights: Rights, now: datetime) -> None:
    """Check that a directory's group may give these rights: the creators of all SCIM tokens that fill groups have them.

    A creator may have copied the token, and could add themself to the group. The caller has locked the organization.
    """
    groups.require_equal_creators(await tx.scim_tokens.creators(org_id, now), rights)


async def void_stopped_accounts(tx: Transaction, org_id: UUID, owner_id: UUID, now: datetime) -> None:
    """Void the invitations and roles that a user's stopped service accounts gave, as `void_promotions` does.

    A service account has stopped if the user can no longer own it. The roles that the user gave groups stop, too. The
    caller has changed the user's membership or account.
    """
    await _void_stopped_accounts(tx, org_id, owner_id, await tx.roles.all(org_id), now)
    await stop_unfounded(tx, org_id, now)


async def _void_stopped_accounts(tx: Transaction, org_id: UUID, owner_id: UUID, roles: Sequence[Role], now: datetime) -> None:
    for account_id, name in await tx.service_accounts.stopped_of(org_id, owner_id, now):
        await _void_promotions(tx, org_id, account_id, roles, now)
        await report_created_secrets(tx, org_id, account_id, name, now)


async def void_promotions(tx: Transaction, org_id: UUID, account_ids: Collection[UUID], now: datetime) -> None:
    """Void the pending invitations and the roles above member that service accounts gave (security R-4).

    A role that a person has set since stays.
    """
    roles = await tx.roles.all(org_id) if account_ids else ()
    for account_id in account_ids:
        await _void_promotions(tx, org_id, account_id, roles, now)
    await stop_unfounded(tx, org_id, now)


async def settle_ends(tx: Transaction, org_id: UUID, owner_id: UUID, now: datetime) -> None:
    """End a former owner's credentials, and the roles that their ended service accounts gave. The organization is locked.

    A role that the former owner has from their own accounts ends first, so that it does not keep the accounts' other grants.
    """
    givers = await tx.service_accounts.givers(org_id, owner_id)
    await void_promotions(tx, org_id, [account_id for account_id, giver_id in givers.items() if giver_id == owner_id], now)
    for account_id, name in await tx.service_accounts.forget_ends(org_id, owner_id, now):
        tx.record(events.service_account_ended(org_id, account_id, name))
    account = await tx.accounts.by_id(owner_id)
    if account is None or not account.is_usable:  # a closed account may be a member still
        await security_notices.end_credentials_in(tx, org_id, owner_id, now, of_roles=None)
    await void_grants(tx, org_id, [owner_id], now)


async def _void_promotions(tx: Transaction, org_id: UUID, account_id: UUID, roles: Sequence[Role], now: datetime) -> None:
    await _cancel_invitations(tx, org_id, account_id, [role.name for role in roles if needs_roles_manage(role.name)], now)
    for user_id, role in await tx.members.undo_promotions(org_id, account_id):
        tx.record(events.user_role_updated(org_id, user_id, role, MEMBER))
        await _void_grants_of(tx, org_id, user_id, roles, now)


async def _cancel_invitations(tx: Transaction, org_id: UUID, inviter_id: UUID, roles: Sequence[RoleName], now: datetime) -> None:
    for invitation in await tx.invitations.cancel_from(org_id, inviter_id, roles, now):
        tx.record(events.invitation_revoked(invitation))


GOES_ON_FOR: Final = timedelta(hours=72)  # as long as an undo link works
NAMED: Final = 10  # the accounts that an email names


async def list_going_on(ports: Ports, user_id: UUID, org_id: UUID | None = None) -> list[str]:
    """Return the names of the service accounts that `let_programs_go_on` would let go on."""
    async with ports.storage.reading() as read:
        return await read.service_accounts.of_owner(user_id, org_id)


async def let_programs_go_on(tx: Transaction, user_id: UUID, address: Email, org_id: UUID | None, now: datetime) -> None:
    """Let the service accounts go on for GOES_ON_FOR when their owner leaves, in one organization or in all if None (security #own-end).

    The owner and the admins get an email. The caller has locked the organizations, and ends the membership or the account next.
    """
    until = now + GOES_ON_FOR
    going_on = await tx.service_accounts.go_on(user_id, org_id, until)
    for of_org, accounts in groupby(going_on, key=lambda account: account[0]):
        organization, names = await tx.organizations.by_id(of_org), list[str]()
        for _, account_id, name in accounts:
            tx.record(events.service_account_ends(of_org, account_id, name, until))
            names.append(name)
        if organization is None:
            continue
        notice = email_queue.SecretNotice(
            kind=email_queue.NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL,
            name=names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more",
            label=None,
            holder=", ".join(names[:NAMED] + (["…"] if len(names) > NAMED else [])),
            organization=organization.name,
            expires_at=until,
            path=page_paths.SERVICE_ACCOUNTS_PATH.format(org_slug=organization.slug),
        )
        for recipient in await tx.members.admin_addresses(of_org, Capability.SERVICE_ACCOUNTS_MANAGE):
            if recipient != address:
                await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.PROGRAMS_END, recipient, now, secret=notice))


async def report_created_secrets(tx: Transaction, org_id: UUID, account_id: UUID, name: str, now: datetime) -> None:
    """Email the organization's owner which secrets a service account leaves behind that has ended. Without any, nothing is sent."""
    secrets = await tx.created_secrets.of_creator(org_id, account_id, now)
    organization, address = await tx.organizations.by_id(org_id), await tx.organizations.owner_address(org_id)
    if not secrets or organization is None or address is None:
        return
    notice = email_queue.SecretNotice(
        kind=email_queue.NoticedSecret.SERVICE_ACCOUNT_CREDENTIAL,
        name=name,
        label=None,
        holder=", ".join(f"{secret.name} ({secret.prefix})" for secret in secrets),
        organization=organization.name,
        expires_at=now,
        path=page_paths.CREATED_SECRETS_PATH.format(org_slug=organization.slug, holder=account_id),
    )
    await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.PROGRAM_ENDED, address, now, secret=notice))
