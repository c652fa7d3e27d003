"""Imposed rules: rules of a sign-in policy that a member with fewer rights than the owner added or tightened (security #imposed-rules).

The owner and the admins get an email about every imposed rule. The owner can remove these rules, even if they keep the owner out.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from core.accounts import factor_changes
from core.accounts.factors import own_proofs
from core.accounts.model.email_queue import EmailKind
from core.kernel import access, callers, roles
from core.kernel.connections import RequiredConnection
from core.kernel.errors import refuse
from core.kernel.proofs import Strength, recent
from core.kernel.sign_in_policy.decision import Decision
from core.kernel.sign_in_policy.explanations import BREAK_GLASS, LABELS
from core.kernel.sign_in_policy.rules import Rule, Rules
from core.kernel.sign_in_policy.steps import step_up_to
from core.kernel.values import Domain
from core.tenancy import events, organizations, sign_in_policies
from core.tenancy.model.sign_in_policies import NothingImposed, OwnFactorMissing, OwnFactorNeeded, SignInPolicy, changes_of
from ports import Ports, storage


@dataclass(frozen=True, slots=True)
class ImposedRules:
    """The names of the imposed rules in a sign-in policy. `service_slug` None: the organization's own policy."""

    service_slug: str | None
    rules: Sequence[str]


async def list_all(ports: Ports, caller: callers.Member) -> Sequence[ImposedRules]:
    """Return the imposed rules in the caller's organization: first in its own policy, then in its applications' policies."""
    async with ports.storage.reading() as read:
        policies = await read.sign_in_policies.imposed(caller.acts_in.id)
    return [ImposedRules(slug, policy.imposed_names) for policy, slug in policies]


async def remove(ports: Ports, caller: callers.Member) -> None:
    """Remove all imposed rules from the caller's organization, and bring back the owner's rules and break-glass list.

    The caller is the owner, and has just used a passkey or a second factor of the account. No sign-in policy counts for this request. If
    users could not sign in with the owner's rules, the policies accept more methods afterwards.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, roles.Capability.ORGANIZATION_OWN)
        if (missing := await _find_missing_factor(ports, tx, caller, now)) is not None:
            raise OwnFactorNeeded(missing, ports.policy.fresh_sign_in_ttl)
        policies = [policy for policy, _ in await tx.sign_in_policies.imposed(organization.id)]
        if not policies:
            raise NothingImposed
        owner = await tx.sign_in_policies.person(organization.id, caller.user_id) or refuse(access.NotOfThisOrganization)
        for policy in policies:
            rules = policy.rules_left_to(owner.connections)
            changed = replace(policy, rules=rules, owner_rules=None, owner_listed=None, imposed_requirements=frozenset())
            await tx.sign_in_policies.put(replace(changed, changed_at=now, changed_by=caller.user_id))
            if changes := changes_of(policy.rules, rules):
                tx.record(events.sign_in_policy_updated(organization.id, policy.service_id, changes))
        await sign_in_policies.restore_availability(ports, tx, organization.id, now)
        listed = next((policy.owner_listed for policy in policies if policy.owner_listed is not None), None)
        await _restore_list(ports, tx, caller, listed, now)
        names = {name for policy in policies for name in policy.imposed_names}
        await sign_in_policies.tell_admins(tx, organization.id, EmailKind.IMPOSED_RULES_REMOVED, caller, names, now)


async def impose_connection(
    tx: storage.Transaction, caller: callers.OrganizationCaller, connection: RequiredConnection, now: datetime
) -> bool:
    """Return whether a policy requires this connection, which the caller changes.

    A wrong value keeps out all users who must sign in through the connection. Unless the caller is the owner, the requirement is therefore
    an imposed rule from now on.
    """
    organization, rights = await organizations.lock_organization_for(tx, caller, roles.Capability.INTEGRATIONS_MANAGE)
    policies = await tx.sign_in_policies.requiring(organization.id, connection.id)
    if policies and roles.Capability.ORGANIZATION_OWN not in rights:
        for policy in policies:
            await tx.sign_in_policies.put(policy.with_imposed(str(connection.id)))
        names = [f"{LABELS[Rule.CONNECTION]} ({connection.slug})"]
        await sign_in_policies.tell_admins(tx, organization.id, EmailKind.RULES_IMPOSED, caller, names, now)
    return bool(policies)


async def impose_parent(
    tx: storage.Transaction, caller: callers.OrganizationCaller, rights: roles.Rights, domain: Domain, now: datetime
) -> None:
    """Impose the parent domain's connection, which the users at the removed verified domain need from now on.

    The owner's rules count: the requirement comes back with them when the owner removes the imposed rules.
    """
    org_id = caller.acts_in.id
    policy = await tx.sign_in_policies.find(org_id)
    if policy is None or roles.Capability.ORGANIZATION_OWN in rights or await tx.domains.verified_owner_of_host(domain) != org_id:
        return
    claims = await tx.domains.of_organization(org_id)
    parent = max((each.domain for each in claims if each.verified_at is not None and domain.endswith(f".{each.domain}")), key=len)
    required = (policy.owner_rules or policy.rules).required_connections.get(parent)
    if required is not None:
        await tx.sign_in_policies.put(policy.with_imposed(parent))
        names = [f"{LABELS[Rule.CONNECTION]} ({required.slug})"]
        await sign_in_policies.tell_admins(tx, org_id, EmailKind.RULES_IMPOSED, caller, names, now)


async def keep_list(
    tx: storage.Transaction, caller: callers.Member, rights: roles.Rights, before: Collection[UUID], listed: Collection[UUID], now: datetime
) -> None:
    """Keep the owner's break-glass list beside the list that the caller has saved. All sessions are judged again."""
    org_id, is_owner = caller.acts_in.id, roles.Capability.ORGANIZATION_OWN in rights
    policy = await tx.sign_in_policies.find(org_id) or SignInPolicy(org_id=org_id, rules=Rules(), changed_at=now)
    earlier = before if policy.owner_listed is None else policy.owner_listed
    owner_listed = None if is_owner or set(earlier) == set(listed) else tuple(sorted(earlier))
    if (set(listed) != set(before) and policy.version) or owner_listed != policy.owner_listed:
        await tx.sign_in_policies.put(replace(policy, owner_listed=owner_listed))
    if set(listed) != set(before) and not is_owner:
        await sign_in_policies.tell_admins(tx, org_id, EmailKind.RULES_IMPOSED, caller, [BREAK_GLASS], now)


async def _restore_list(
    ports: Ports, tx: storage.Transaction, owner: callers.Member, listed: Collection[UUID] | None, now: datetime
) -> None:
    """Restore the owner's break-glass list `listed`. With None, the present list stays.

    Users who may not be listed, or lack a factor that the policies ask for, leave the list. The owner stays without such a factor,
    because an application can ask for it since the owner left the list.
    """
    org_id = owner.acts_in.id
    before = {each.user_id for each in await tx.sign_in_policies.break_glass_users(org_id)}
    people = [await tx.sign_in_policies.person(org_id, user_id) for user_id in (before if listed is None else listed)]
    left = {each.account.id for each in people if each is not None and each.is_admin and each.account.is_usable}
    await tx.sign_in_policies.put_break_glass_users(org_id, left)
    for user_id in sorted(left - {owner.user_id}):
        account = await tx.accounts.lock(user_id) or refuse(access.NotOfThisOrganization)
        if await factor_changes.lacks_for_break_glass(ports, tx, account, now, org_id):
            left.remove(user_id)
    await tx.sign_in_policies.put_break_glass_users(org_id, left)
    if left != before:
        tx.record(events.break_glass_users_changed(org_id, before, left))


async def find_missing_factor(ports: Ports, caller: callers.Person) -> Decision | None:
    """Return the sign-in that `remove` still needs from the caller, or None."""
    async with ports.storage.reading() as read:
        return await _find_missing_factor(ports, read, caller, ports.clock.now())


async def _find_missing_factor(
    ports: Ports, read: storage.Reading | storage.Transaction, caller: callers.Person, now: datetime
) -> Decision | None:
    """Return the sign-in with the account's own passkey or second factor that the session lacks, or None.

    Trusted devices and connections do not count. Methods that a policy refuses do.
    """
    proofs = recent(await own_proofs.load_proofs(read, caller.session_id, caller.user_id, now), now - ports.policy.fresh_sign_in_ttl)
    if any(proof.can_be_second for proof in proofs):
        return None
    account = await read.accounts.by_id(caller.user_id) or refuse(access.AccountGone)
    if account.second_factors:
        return step_up_to(Strength.TWO, None)
    return await own_proofs.find_passkey_step(ports, read, account, proofs, now) or refuse(OwnFactorMissing)
