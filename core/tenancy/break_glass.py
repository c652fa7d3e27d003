"""Break glass: the owners and admins who may come without the connection that the sign-in policy requires.

Every use is reported to all admins and platform owners (`core.authentication.admissions`).
"""

from collections.abc import Collection, Sequence
from uuid import UUID

from core.kernel.callers import Member
from core.kernel.roles import Capability
from core.tenancy import events, imposed_rules, organizations, sign_in_policies
from core.tenancy.model.sign_in_policies import MAX_BREAK_GLASS, BreakGlassUser, NotForBreakGlass
from ports import Ports


async def list_users(ports: Ports, caller: Member) -> Sequence[BreakGlassUser]:
    """Return the listed users in the caller's organization, ordered by email."""
    async with ports.storage.reading() as read:
        return await read.sign_in_policies.break_glass_users(caller.acts_in.id)


async def list_candidates(ports: Ports, caller: Member) -> Sequence[BreakGlassUser]:
    """Return the first 100 owners and admins in the caller's organization, ordered by email."""
    async with ports.storage.reading() as read:
        return await read.sign_in_policies.admins(caller.acts_in.id)


async def replace_users(ports: Ports, caller: Member, user_ids: Collection[UUID]) -> Sequence[BreakGlassUser]:
    """Replace the break-glass list of the caller's organization, and return it. The sign-in policy judges all sessions again."""
    now, listed = ports.clock.now(), set(user_ids)
    async with ports.storage.transaction(by=caller) as tx:
        organization, rights = await organizations.lock_organization_for(tx, caller, Capability.SIGN_IN_POLICY_MANAGE)
        people = [await tx.sign_in_policies.person(organization.id, user_id) for user_id in sorted(listed)[: MAX_BREAK_GLASS + 1]]
        is_eligible = all(person is not None and person.is_admin and person.account.is_usable for person in people)
        if len(listed) > MAX_BREAK_GLASS or not is_eligible:
            raise NotForBreakGlass
        before = {each.user_id for each in await tx.sign_in_policies.break_glass_users(organization.id)}
        await tx.sign_in_policies.put_break_glass_users(organization.id, listed)
        await sign_in_policies.require_factors_of_listed(ports, tx, organization.id, now)
        await sign_in_policies.require_way_in_here(ports, tx, caller, organization.id, now)
        await imposed_rules.keep_list(tx, caller, rights, before, listed, now)
        if listed != before:
            tx.record(events.break_glass_users_changed(organization.id, before, listed))
        return await tx.sign_in_policies.break_glass_users(organization.id)
