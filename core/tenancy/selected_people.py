"""One change of several members or pending invitations of an organization, which an admin has selected.

Each of them is changed as on its own: by the same use case, in a transaction of its own, with the same events. The
refusal of one does not prevent the others.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

from core.kernel.access import RoleInsufficient
from core.kernel.callers import OrganizationCaller
from core.kernel.errors import Refusal, Unauthenticated
from core.kernel.roles import Capability
from core.kernel.sign_in_age import SignInNotRecent
from core.kernel.values import Email
from core.tenancy import invitations, inviting, members
from core.tenancy.model.members import PersonOutcome, TooManySelected, parse_assignable_role
from ports import Ports

MAX_SELECTED = 50  # people of one change


async def load_members(ports: Ports, caller: OrganizationCaller, user_ids: Sequence[UUID]) -> dict[UUID, Email]:
    """Return the addresses of these members by their ids. Other ids are left out. Raises: RoleInsufficient, TooManySelected."""
    _check(caller, user_ids)
    async with ports.storage.reading() as read:
        accounts = await read.members.accounts(caller.acts_in.id, user_ids)
    return {user_id: account.member.email for user_id, account in accounts.items()}


async def load_invitations(ports: Ports, caller: OrganizationCaller, invitation_ids: Sequence[UUID]) -> dict[UUID, Email]:
    """Return the addresses of these pending invitations, as `load_members` does. Raises: RoleInsufficient, TooManySelected."""
    _check(caller, invitation_ids)
    async with ports.storage.reading() as read:
        pending = await read.invitations.pending_of(caller.acts_in.id, invitation_ids)
    return {invitation.id: invitation.email for invitation in pending}


def _check(caller: OrganizationCaller, ids: Sequence[UUID]) -> None:
    if Capability.MEMBERS_MANAGE not in caller.acts_in.rights:
        raise RoleInsufficient
    if len(ids) > MAX_SELECTED:
        raise TooManySelected(MAX_SELECTED)


async def change_roles(ports: Ports, caller: OrganizationCaller, selected: Mapping[UUID, Email], role: str) -> list[PersonOutcome]:
    """Give these members a role, as `members.change_role` does.

    Raises: OwnershipNotAssignable, RoleUnknown; the errors of `_change_each`.
    """
    parse_assignable_role(role)
    return await _change_each(selected, lambda user_id: members.change_role(ports, caller, user_id, role))


async def remove(ports: Ports, caller: OrganizationCaller, selected: Mapping[UUID, Email]) -> list[PersonOutcome]:
    """Remove these members, as `members.remove` does. Raises: the errors of `_change_each`."""
    return await _change_each(selected, lambda user_id: members.remove(ports, caller, user_id))


async def revoke_sessions(ports: Ports, caller: OrganizationCaller, selected: Mapping[UUID, Email]) -> list[PersonOutcome]:
    """End the sessions of these members, as `members.revoke_sessions` does. Raises: the errors of `_change_each`."""
    return await _change_each(selected, lambda user_id: members.revoke_sessions(ports, caller, user_id))


async def send_password_resets(ports: Ports, caller: OrganizationCaller, selected: Mapping[UUID, Email]) -> list[PersonOutcome]:
    """Send these members a link to set a password, as `members.send_password_reset` does. Raises: the errors of `_change_each`."""
    return await _change_each(selected, lambda user_id: members.send_password_reset(ports, caller, user_id))


async def resend_invitations(ports: Ports, caller: OrganizationCaller, selected: Mapping[UUID, Email]) -> list[PersonOutcome]:
    """Send these invitations again, as `inviting.resend` does. Raises: the errors of `_change_each`."""
    return await _change_each(selected, lambda invitation_id: inviting.resend(ports, caller, invitation_id))


async def cancel_invitations(ports: Ports, caller: OrganizationCaller, selected: Mapping[UUID, Email]) -> list[PersonOutcome]:
    """Cancel these invitations, as `invitations.cancel` does. Raises: the errors of `_change_each`."""
    return await _change_each(selected, lambda invitation_id: invitations.cancel(ports, caller, invitation_id))


async def _change_each(selected: Mapping[UUID, Email], change: Callable[[UUID], Awaitable[object]]) -> list[PersonOutcome]:
    """Change each of the selected, and return the outcomes in the same order.

    Raises: SessionEnded, SignInNotRecent, if nothing has changed before.
    """
    outcomes: list[PersonOutcome] = []
    for id_, email in selected.items():
        refusal: Refusal | None = None
        try:
            await change(id_)
        except (Unauthenticated, SignInNotRecent) as refused:
            if not any(outcome.refusal is None for outcome in outcomes):
                raise
            refusal = refused
        except Refusal as refused:
            refusal = refused
        outcomes.append(PersonOutcome(email, refusal))
    return outcomes
