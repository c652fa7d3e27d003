"""One change for several members or pending invitations that an admin has selected in an organization.

Every person is changed as if alone: by the same use case, in a separate transaction, with the same events. A refusal
for one person does not prevent the other changes.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from uuid import UUID

from core.kernel import errors
from core.kernel.access import require_view
from core.kernel.callers import OrganizationCaller
from core.kernel.roles import Capability
from core.kernel.values import Email
from core.tenancy import members
from core.tenancy.model.members import PersonOutcome, TooManySelected, require_assignable
from ports import Ports

MAX_SELECTED = 50  # people per change
Change = Callable[[Ports, OrganizationCaller, UUID], Awaitable[object]]  # the use case for a single change


async def load_members(ports: Ports, caller: OrganizationCaller, user_ids: Sequence[UUID]) -> dict[UUID, Email]:
    """Return these members' addresses by their ids. Unknown ids are left out."""
    _check(caller, user_ids)
    async with ports.storage.reading() as read:
        accounts = await read.members.accounts(caller.acts_in.id, user_ids)
    return {user_id: account.member.email for user_id, account in accounts.items()}


async def load_invitations(ports: Ports, caller: OrganizationCaller, invitation_ids: Sequence[UUID]) -> dict[UUID, Email]:
    """Return the addresses in these pending invitations, as `load_members` does, with the same errors."""
    _check(caller, invitation_ids)
    async with ports.storage.reading() as read:
        pending = await read.invitations.pending_of(caller.acts_in.id, invitation_ids)
    return {invitation.id: invitation.email for invitation in pending}


def _check(caller: OrganizationCaller, ids: Sequence[UUID]) -> None:
    require_view(caller, Capability.MEMBERS_MANAGE)
    if len(ids) > MAX_SELECTED:
        raise TooManySelected(MAX_SELECTED)


async def change_roles(ports: Ports, caller: OrganizationCaller, selected: Mapping[UUID, Email], role: str) -> list[PersonOutcome]:
    """Give these members a role."""
    async with ports.storage.reading() as read:
        require_assignable(await read.roles.find(caller.acts_in.id, role))
    return await change_each(ports, caller, selected, partial(members.change_role, role=role))


async def change_each(ports: Ports, caller: OrganizationCaller, selected: Mapping[UUID, Email], change: Change) -> list[PersonOutcome]:
    """Change every selected person or invitation, and return the outcomes in the same order.

    Raises: SessionEnded, if nothing has changed before.
    """
    outcomes: list[PersonOutcome] = []
    for id_, email in selected.items():
        refusal: errors.Refusal | None = None
        try:
            await change(ports, caller, id_)
        except errors.Unauthenticated as refused:
            if not any(outcome.refusal is None for outcome in outcomes):
                raise
            refusal = refused
        except errors.Refusal as refused:
            refusal = refused
        outcomes.append(PersonOutcome(email, refusal))
    return outcomes
