"""Sign-in policies for organizations: reading, saving, and previewing what they do.

`core.kernel.sign_in_policy` has the rules and the decision. Applications have their own policies, which add to their organization's policy
(`core.applications.sign_in_policies`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from core.accounts import factor_changes, relying_party
from core.accounts.model import email_queue
from core.accounts.model.accounts import Account
from core.accounts.model.passkeys import NoPasskeysHere
from core.accounts.model.protection import Protection
from core.kernel import access, callers, proofs
from core.kernel.connections import RequiredConnection
from core.kernel.errors import SessionEnded, refuse
from core.kernel.roles import Capability
from core.kernel.sign_in_policy.decision import Decision, decide, strictest
from core.kernel.sign_in_policy.rules import (
    METHODS,
    PROVIDER_PREFIX,
    RULES_OF_APPLICATIONS,
    RULES_OF_ORGANIZATIONS,
    Concerned,
    Document,
    EffectivePolicy,
    PolicyOfUser,
    PolicyPart,
    Rule,
    Rules,
)
from core.tenancy import events, organizations
from core.tenancy.model import sign_in_policies
from core.tenancy.model.organizations import Organization
from core.tenancy.model.policy_counts import PolicyCounter
from ports import Ports, storage


@dataclass(frozen=True, slots=True)
class PolicyDetails:
    """A policy, and the rules that are in force: an application's rules together with its organization's."""

    policy: sign_in_policies.SignInPolicy
    in_force: Rules


async def get(ports: Ports, caller: callers.Member, application: sign_in_policies.PolicyApplication | None = None) -> PolicyDetails:
    """Return the policy for the caller's organization, or for this application in it. The policy may be empty."""
    organization, now = await organizations.get(ports, caller), ports.clock.now()
    async with ports.storage.reading() as read:
        policy = await _find(read, organization, application, now)
        effective = await _merge(read, organization, application, policy.rules)
    return PolicyDetails(policy, effective.in_force(now))


async def list_usable_methods(
    ports: Ports, caller: callers.Member, application: sign_in_policies.PolicyApplication | None = None
) -> Sequence[str]:
    """Return the methods that users of the organization or this application can use here, in the METHODS order."""
    async with ports.storage.reading() as read:
        return await _load_usable_methods(ports, read, caller.acts_in.id, application)


async def _load_usable_methods(
    ports: Ports, read: storage.Reading | storage.Transaction, org_id: UUID, application: sign_in_policies.PolicyApplication | None
) -> Sequence[str]:
    listed = read.oauth_credentials.list_connections()
    ways = await read.sign_in_policies.application_ways(org_id, None if application is None else application.id)
    is_there = {
        proofs.Method.EMAIL.value: _offers_email(ports, application) or (application is None and ways.email),
        proofs.Method.PASSKEY.value: relying_party.has_host(ports),
        proofs.Method.CONNECTION.value: any(each.is_active for each in await read.connections.of_org(org_id)),
    }
    providers = {PROVIDER_PREFIX + each.slug for each in await listed if each.settings.client_id is not None or each.slug in ways.providers}
    return [name for name in METHODS if is_there.get(name, not name.startswith(PROVIDER_PREFIX) or name in providers)]


async def save(
    ports: Ports, caller: callers.Member, document: Document, version: int, application: sign_in_policies.PolicyApplication | None = None
) -> PolicyDetails:
    """Replace the policy for the caller's organization, or for this application in it, and return it.

    `version` is the policy version that the caller has seen. A rule that becomes stricter starts when the grace period ends.

    Raises: PolicyInvalid; PolicyChanged; MethodsUnavailable; NoPasskeysHere; WouldLockYouOut; BreakGlassNeedsFactors; the errors of
    `lock_organization_for`.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, rights = await organizations.lock_organization_for(tx, caller, Capability.SIGN_IN_POLICY_MANAGE)
        if application is not None:  # its settings can have changed before the lock
            application = await tx.sign_in_policies.application(organization.id, application.id) or refuse(sign_in_policies.PolicyChanged)
        old = await _find(tx, organization, application, now)
        if old.version != version:
            raise sign_in_policies.PolicyChanged
        rules = await _parse(tx, organization.id, document, application)
        sign_in_policies.require_offered(rules, old.rules, await _load_usable_methods(ports, tx, organization.id, application))
        new = old.changed_to(rules.with_due_dates(old.rules, now), rights, now, caller.user_id)
        effective = await _merge(tx, organization, application, new.rules)
        await _require_available(ports, tx, application, effective, now)
        await _require_way_in(ports, tx, caller, application, effective, now)
        changes = sign_in_policies.changes_of(old.rules, new.rules)
        if changes or new.owner_rules != old.owner_rules:
            new = replace(new, version=await tx.sign_in_policies.put(new))
        if changes:
            tx.record(events.sign_in_policy_updated(organization.id, new.service_id, changes))
            await require_factors_of_listed(ports, tx, organization.id, now)
            if tightened := new.tightened(old, rights):
                await tell_admins(tx, organization.id, email_queue.EmailKind.RULES_IMPOSED, caller, tightened, now)
    return PolicyDetails(new, effective.in_force(now))


async def remove(ports: Ports, caller: callers.Member, application: sign_in_policies.PolicyApplication) -> None:
    """Remove an application's policy. The organization's policy stays."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        organization, _ = await organizations.lock_organization_for(tx, caller, Capability.SIGN_IN_POLICY_MANAGE)
        old = await _find(tx, organization, application, now)
        if await tx.sign_in_policies.remove(organization.id, application.id):
            tx.record(events.sign_in_policy_updated(organization.id, application.id, sign_in_policies.changes_of(old.rules, Rules())))


async def list_of_user(ports: Ports, caller: callers.Person) -> Sequence[PolicyOfUser]:
    """Return the policies for the organizations and applications that the caller uses, and the platform's policy for its owners.

    Every policy has one part. An application's policy comes beside its organization's policy.
    """
    async with ports.storage.reading() as read:
        policies = await read.sign_in_policies.anywhere(caller.user_id, None)
    # An organization's part comes with every application in it.
    single = dict[tuple[UUID | None, PolicyPart], PolicyOfUser]()
    for each in policies:
        for part in each.policy.parts:
            single[each.policy.org_id, part] = replace(each, policy=replace(each.policy, parts=(part,)))
    return list(single.values())


async def load_own_protection(ports: Ports, caller: callers.Person) -> Protection:
    """Return how the caller's account is protected, and whether it lacks a factor that an organization or application asks for."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        policies = await read.sign_in_policies.anywhere(caller.user_id, None)
        asked = max((strictest(each.policy, is_admin=each.is_admin, now=now) for each in policies), default=proofs.Strength.ONE)
        return await read.accounts.protection(caller.user_id, asked) or refuse(SessionEnded)


async def accepted_ways(ports: Ports, org_id: UUID) -> frozenset[proofs.Method]:
    """Return whether the organization accepts a password and a passkey as its members' first factor."""
    async with ports.storage.reading() as read:
        policy = await read.sign_in_policies.effective(org_id)
    rules = Rules() if policy is None else policy.in_force(ports.clock.now())
    ways = {proofs.Method.PASSKEY} if rules.may_use(proofs.Method.PASSKEY) and relying_party.has_host(ports) else set()
    if rules.may_use(proofs.Method.PASSWORD) and Concerned.EVERYONE not in rules.phishing_resistant:
        ways.add(proofs.Method.PASSWORD)
    return frozenset(ways)


async def _parse(
    read: storage.Reading | storage.Transaction, org_id: UUID, document: Document, application: sign_in_policies.PolicyApplication | None
) -> Rules:
    """Return the rules in a document that names connections by their slugs."""
    slugs, slug = document.get(Rule.CONNECTIONS) or {}, document.get(Rule.CONNECTION)
    if slugs or slug is not None:
        active = {
            str(each.slug): RequiredConnection(each.id, each.slug) for each in await read.connections.of_org(org_id) if each.is_active
        }
        proved = {claim.domain for claim in await read.domains.of_organization(org_id) if claim.verified_at is not None}
        named: dict[str, object] = {Rule.CONNECTIONS.value: sign_in_policies.name_connections(slugs, active, proved)}
        if slug is not None:
            named[Rule.CONNECTION.value] = sign_in_policies.name_connection(Rule.CONNECTION, slug, active)
        document = {**document, **named}
    return Rules.parse(document).require_only(RULES_OF_ORGANIZATIONS if application is None else RULES_OF_APPLICATIONS)


async def require_not_required(tx: storage.Transaction, org_id: UUID, connection_id: UUID) -> None:
    """Check that no sign-in policy in the organization requires this connection."""
    if await tx.sign_in_policies.requiring(org_id, connection_id):
        raise sign_in_policies.ConnectionRequired


async def _find(
    read: storage.Reading | storage.Transaction,
    organization: Organization,
    application: sign_in_policies.PolicyApplication | None,
    now: datetime,
) -> sign_in_policies.SignInPolicy:
    service_id = None if application is None else application.id
    stored = await read.sign_in_policies.find(organization.id, service_id)
    return stored or sign_in_policies.SignInPolicy(org_id=organization.id, service_id=service_id, rules=Rules(), changed_at=now)


async def _merge(
    read: storage.Reading | storage.Transaction,
    organization: Organization,
    application: sign_in_policies.PolicyApplication | None,
    rules: Rules,
) -> EffectivePolicy:
    """Return the policy with these rules, for the organization, or for the application together with it."""
    if application is None:
        return EffectivePolicy(organization.id, 0, (PolicyPart(organization.name, rules),))
    above = await read.sign_in_policies.find(organization.id)
    of_organization = PolicyPart(organization.name, Rules() if above is None else above.rules)
    return EffectivePolicy(organization.id, 0, (of_organization, PolicyPart(application.name, rules)))


async def _require_available(
    ports: Ports,
    read: storage.Reading | storage.Transaction,
    application: sign_in_policies.PolicyApplication | None,
    effective: EffectivePolicy,
    now: datetime,
) -> None:
    """Check that every user can meet the policy now and later, also together with the applications' policies."""
    _require_available_in(ports, effective, application, now)
    if application is None and effective.org_id is not None:
        for other, rules in await read.sign_in_policies.of_applications(effective.org_id):
            both = replace(effective, parts=(*effective.parts, PolicyPart(other.name, rules)))
            _require_available_in(ports, both, other, now, names_application=True)


async def restore_availability(ports: Ports, tx: storage.Transaction, org_id: UUID, now: datetime) -> None:
    """If no user could sign in under a policy, let it accept passkeys, or else passwords and apps. The organization is locked."""
    added = {proofs.Method.PASSKEY.value} if relying_party.has_host(ports) else {proofs.Method.PASSWORD.value, proofs.Method.TOTP.value}
    for application in (None, *(each for each, _ in await tx.sign_in_policies.of_applications(org_id))):
        service_id = None if application is None else application.id
        effective = await tx.sign_in_policies.effective(org_id, service_id) or EffectivePolicy(org_id, 0, ())
        try:
            _require_available_in(ports, effective, application, now)
        except (sign_in_policies.MethodsUnavailable, NoPasskeysHere):
            for policy in [await tx.sign_in_policies.find(org_id, each) for each in dict.fromkeys((None, service_id))]:
                if policy is not None and (
                    changes := sign_in_policies.changes_of(policy.rules, rules := policy.rules.also_accepting(added))
                ):
                    await tx.sign_in_policies.put(replace(policy, rules=rules))
                    tx.record(events.sign_in_policy_updated(org_id, policy.service_id, changes))


async def tell_admins(
    tx: storage.Transaction,
    org_id: UUID,
    kind: email_queue.EmailKind,
    caller: callers.OrganizationCaller,
    rules: Collection[str],
    now: datetime,
) -> None:
    """Queue the email about these rules to the owner and the admins. A recipient gets a few such emails in an hour.

    Raises: ImposedRulesRemoved if the rules are imposed, and the owner removed imposed rules MAX_REMOVALS times in the last hour.
    """
    change = email_queue.OwnerChange(
        by=caller.email if isinstance(caller, callers.Member) else caller.name, reason=", ".join(sorted(rules))
    )
    for address in await tx.members.admin_addresses(org_id):
        removed_at = await tx.email_queue.nth_newest_at(
            address, email_queue.EmailKind.IMPOSED_RULES_REMOVED, sign_in_policies.MAX_REMOVALS, org_id
        )
        if kind is email_queue.EmailKind.RULES_IMPOSED and removed_at is not None and now - removed_at < email_queue.LIMIT_WINDOW:
            raise sign_in_policies.ImposedRulesRemoved
        await tx.email_queue.add(email_queue.new_email(kind, address, now, token=change.to_token(), org_id=org_id))


async def require_compatible(ports: Ports, tx: storage.Transaction, org_id: UUID, application: sign_in_policies.PolicyApplication) -> None:
    """Check that every user can meet the policies with a stored application's settings, now and later, and listed users do.

    Raises: SettingsBeyondPolicies; NoPasskeysHere; BreakGlassNeedsFactors without an address, which the caller may not see.
    """
    effective, now = await tx.sign_in_policies.effective(org_id, application.id) or EffectivePolicy(org_id, 0, ()), ports.clock.now()
    try:
        _require_available_in(ports, effective, application, now)
    except sign_in_policies.MethodsUnavailable:
        raise sign_in_policies.SettingsBeyondPolicies from None
    try:
        await require_factors_of_listed(ports, tx, org_id, now)
    except sign_in_policies.BreakGlassNeedsFactors:
        raise sign_in_policies.BreakGlassNeedsFactors(None) from None


def _require_available_in(
    ports: Ports,
    policy: EffectivePolicy,
    application: sign_in_policies.PolicyApplication | None,
    now: datetime,
    *,
    names_application: bool = False,
) -> None:
    """Check that every user can meet this policy, in an application also its settings. Raises: MethodsUnavailable; NoPasskeysHere."""
    of_settings = None if application is None else application.settings_part
    sign_in_policies.require_available(
        policy if of_settings is None else replace(policy, parts=(*policy.parts, of_settings)),
        now,
        email_is_on=_offers_email(ports, application),
        has_passkeys=relying_party.has_host(ports),
        application=application.name if application is not None and names_application else None,
    )


async def _require_way_in(
    ports: Ports,
    tx: storage.Transaction,
    caller: callers.Member,
    application: sign_in_policies.PolicyApplication | None,
    effective: EffectivePolicy,
    now: datetime,
) -> None:
    """Check that the caller meets the policy, or can do so by signing in again.

    A caller who has to come through a connection must have done so in this session, or be listed for break glass.
    """
    person = await tx.sign_in_policies.person(caller.acts_in.id, caller.user_id) or refuse(access.NotOfThisOrganization)
    session = await tx.session_sign_ins.load_factors(caller.session_id, caller.user_id)
    seen = () if session is None else proofs.seen_in(session.proofs, caller.acts_in.id, now)
    proved = frozenset(proof.connection for proof in seen if proof.connection is not None)
    required = {each.id for each in effective.in_force(now).required_for(person.connections)}
    if required.isdisjoint(proved) and required and not person.may_break_glass:
        raise sign_in_policies.WouldLockYouOut(Rule.CONNECTION, None)
    person = replace(person, connections=replace(person.connections, known_at=proved))
    person = replace(person, last_address=caller.address if application is None else None)
    decision = judge(ports, effective, person, now, email_is_on=_offers_email(ports, application))
    if sign_in_policies.is_stopped(decision):
        raise sign_in_policies.WouldLockYouOut(decision.rule, caller.address)


async def require_way_in_here(ports: Ports, tx: storage.Transaction, caller: callers.Member, org_id: UUID, now: datetime) -> None:
    """Check that the caller can meet the organization's stored policy."""
    if (policy := await tx.sign_in_policies.effective(org_id)) is not None:
        await _require_way_in(ports, tx, caller, None, policy, now)


async def lock_listed(tx: storage.Transaction, org_id: UUID) -> Sequence[Account]:
    """Lock the accounts on a locked organization's break-glass list, before services and sessions."""
    user_ids = sorted(each.user_id for each in await tx.sign_in_policies.break_glass_users(org_id))
    return [await tx.accounts.lock(user_id) or refuse(access.NotOfThisOrganization) for user_id in user_ids]


async def require_factors_of_listed(ports: Ports, tx: storage.Transaction, org_id: UUID, now: datetime) -> None:
    """Check that the users on the break-glass list have the factors that every policy asks for, where it requires a connection.

    Without this check, the password alone could add the factors, and then open the organization. Later, only a recovery replaces a lost
    factor (`factor_changes.needs_recovery`). The accounts are locked, so a factor removal that began before is seen.

    Raises: BreakGlassNeedsFactors.
    """
    for account in await lock_listed(tx, org_id):
        if await factor_changes.lacks_for_break_glass(ports, tx, account, now, org_id):
            raise sign_in_policies.BreakGlassNeedsFactors(account.email)


def judge(ports: Ports, policy: EffectivePolicy, person: sign_in_policies.PolicyPerson, at: datetime, *, email_is_on: bool) -> Decision:
    """Return the decision about this person's sign-in at this time, as `PolicyPerson.facts` describes it."""
    factors = relying_party.without_lost_keys(ports, person.account, person.keys).factors
    return decide(policy, person.facts(policy.in_force(at), at, factors, email_is_on=email_is_on))


def _offers_email(ports: Ports, application: sign_in_policies.PolicyApplication | None) -> bool:
    return ports.policy.offers_email(None if application is None else application.email_sign_in)


# Preview


async def preview(
    ports: Ports, caller: callers.Member, document: Document, application: sign_in_policies.PolicyApplication | None = None
) -> sign_in_policies.PolicyPreview:
    """Return the effect that saving this document would have now, and change nothing.

    Members and end users are judged one by one, at most MAX_COUNTED each. After COUNTED_WITHIN the counts are left out. Callers who may not
    see members get the counts without the people.

    Raises: PolicyInvalid; MethodsUnavailable; NoPasskeysHere; OrganizationNotFound.
    """
    organization, now = await organizations.get(ports, caller), ports.clock.now()
    async with ports.storage.reading() as read:
        rules = await _parse(read, organization.id, document, application)
        old = await _find(read, organization, application, now)
        unusable = sign_in_policies.require_offered(rules, old.rules, await _load_usable_methods(ports, read, organization.id, application))
        rules = rules.with_due_dates(old.rules, now)
        effective = await _merge(read, organization, application, rules)
        await _require_available(ports, read, application, effective, now)
        ways = await read.sign_in_policies.application_ways(organization.id)
        listed = await read.sign_in_policies.break_glass_users(organization.id)
    service_id, offers_email = None if application is None else application.id, _offers_email(ports, application)
    judge_person = partial(judge, ports, effective)
    counter = PolicyCounter(effective, now, partial(judge_person, email_is_on=offers_email))

    async def next_people(
        last: sign_in_policies.PolicyPerson | None, limit: int, *, are_members: bool
    ) -> Sequence[sign_in_policies.PolicyPerson]:
        last_id = None if last is None else last.account.id
        async with ports.storage.reading() as read:
            return await read.sign_in_policies.people(organization.id, service_id, last_id, limit, are_members=are_members)

    members, people = await counter.count(partial(next_people, are_members=True))
    if application is None:  # members open the organization itself, and end users open an application
        counter = replace(counter, judge=partial(judge_person, email_is_on=offers_email or ways.email))
    end_users, _ = await counter.count(partial(next_people, are_members=False))
    return sign_in_policies.PolicyPreview(
        rules=rules,
        due_at=min(rules.due_at.values(), default=None),
        members=members,
        end_users=end_users,
        people=people if access.may_view(caller, Capability.MEMBERS_VIEW) else (),
        unusable_methods=unusable,
        lacks_break_glass=rules.requires_connection and not any(each.is_admin for each in listed),
    )
