"""The platform's sign-in policy: platform owners need a second factor.

The policy starts a grace period after a platform owner first signs in, or after the upgrade if an installation has a platform owner. The
policy does not concern the platform's service accounts.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

from core.accounts import platform, relying_party
from core.accounts.model import email_queue
from core.kernel import display
from core.kernel.access import NotAPlatformOwner
from core.kernel.callers import Person
from core.kernel.causes import SYSTEM
from core.kernel.errors import refuse
from core.kernel.sign_in_policy.rules import RULES_OF_PLATFORM, Concerned, Document, EffectivePolicy, PolicyInvalid, PolicyPart, Rule, Rules
from core.kernel.values import Email
from core.maintenance import housekeeping
from core.tenancy import events
from core.tenancy.model import sign_in_policies
from core.tenancy.model.policy_counts import PolicyCounter
from core.tenancy.sign_in_policies import PolicyDetails, judge
from ports import Ports, storage

GRACE: Final = timedelta(days=7)
LAST_REMINDER: Final = timedelta(days=2)  # before the rule starts
LEASE_NAME: Final = "policy_reminder"
LEASE: Final = timedelta(minutes=5)
MAX_OWNERS: Final = 1_000_000  # one transaction has all of them
_LEAST: Final = Rules(second_factor=frozenset({Concerned.EVERYONE}), grace=GRACE)


async def get(ports: Ports) -> PolicyDetails:
    """Return the platform's policy. The policy has not started before an owner first signs in."""
    async with ports.storage.reading() as read:
        policy = await _find(read, ports.clock.now())
    return PolicyDetails(policy, policy.rules.in_force(ports.clock.now()))


async def save(ports: Ports, caller: Person, document: Document, version: int) -> PolicyDetails:
    """Replace the platform's policy, and return it. `version` is the policy version that the caller has seen."""
    rules, now = _parse(document), ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        await tx.accounts.lock_platform_owners()
        await platform.lock_rights(tx, caller)
        old = await _find(tx, now)
        if old.version != version:
            raise sign_in_policies.PolicyChanged
        rules = rules.with_due_dates(old.rules, now)
        new = replace(old, rules=rules, changed_at=now, changed_by=caller.user_id)
        if new.second_factor_due(now) != old.second_factor_due(now):
            new = replace(new, reminded=0)
        _require_available(ports, rules, now)
        await _require_way_in(ports, tx, caller, rules, now)
        if changes := sign_in_policies.changes_of(old.rules, rules):
            new = replace(new, version=await tx.sign_in_policies.put(new))
            tx.record(events.sign_in_policy_updated(None, None, changes))
    return PolicyDetails(new, rules.in_force(now))


async def preview(ports: Ports, document: Document) -> sign_in_policies.PolicyPreview:
    """Return the effect that saving this document would have on platform owners now, and change nothing. Platform owners count as members.

    Raises: PolicyInvalid; NoPasskeysHere.
    """
    rules, now = _parse(document), ports.clock.now()
    async with ports.storage.reading() as read:
        rules = rules.with_due_dates((await _find(read, now)).rules, now)
    _require_available(ports, rules, now)

    async def next_owners(last: sign_in_policies.PolicyPerson | None, limit: int) -> Sequence[sign_in_policies.PolicyPerson]:
        async with ports.storage.reading() as read:
            return await read.sign_in_policies.platform_owners(None if last is None else last.account.id, limit)

    policy = _to_effective(rules)
    judge_owner = partial(judge, ports, policy, email_is_on=ports.policy.email_sign_in)
    owners, people = await PolicyCounter(policy, now, judge_owner).count(next_owners)
    due_at = min(rules.due_at.values(), default=None)
    return sign_in_policies.PolicyPreview(
        rules=rules, due_at=due_at, members=owners, end_users=sign_in_policies.PeopleCount(), people=people
    )


def _parse(document: Document) -> Rules:
    """Return the rules in a document."""
    rules = Rules.parse(document).require_only(RULES_OF_PLATFORM)
    if Concerned.EVERYONE not in rules.second_factor:
        raise PolicyInvalid(Rule.SECOND_FACTOR, "Platform owners always need a second factor. Choose everyone.")
    return rules


def _require_available(ports: Ports, rules: Rules, now: datetime) -> None:
    sign_in_policies.require_available(
        _to_effective(rules), now, email_is_on=ports.policy.email_sign_in, has_passkeys=relying_party.has_host(ports)
    )


def _to_effective(rules: Rules) -> EffectivePolicy:
    return EffectivePolicy(None, 0, (PolicyPart(display.PRODUCT, rules),))


async def find_owners_without_factor(ports: Ports) -> tuple[datetime | None, Sequence[Email]]:
    """Return when (UTC) the second factor becomes required, or None if it already is, and the addresses of owners who have none."""
    async with ports.storage.reading() as read:
        policy = await _find(read, now := ports.clock.now())
        return policy.second_factor_due(now), await _owners_without_factor(ports, read)


async def _owners_without_factor(ports: Ports, read: storage.Reading | storage.Transaction) -> Sequence[Email]:
    rp_id = relying_party.choose_id(ports.policy, ports.tokens.issuer, await read.passkeys.rp_id())
    return await read.accounts.owner_addresses_without_second_factor(rp_id)


async def _find(read: storage.Reading | storage.Transaction, now: datetime) -> sign_in_policies.SignInPolicy:
    return await read.sign_in_policies.find(None) or _first(now)


def _first(now: datetime) -> sign_in_policies.SignInPolicy:
    return sign_in_policies.SignInPolicy(org_id=None, rules=_LEAST.with_due_dates(Rules(), now), changed_at=now)


async def _require_way_in(ports: Ports, tx: storage.Transaction, caller: Person, rules: Rules, now: datetime) -> None:
    owner = await tx.sign_in_policies.platform_owner(caller.user_id) or refuse(NotAPlatformOwner)
    owner = replace(owner, last_address=caller.address)
    decision = judge(ports, _to_effective(rules), owner, now, email_is_on=ports.policy.email_sign_in)
    if sign_in_policies.is_stopped(decision):
        raise sign_in_policies.WouldLockYouOut(decision.rule, caller.address)


# When the policy starts


async def ensure(tx: storage.Transaction, now: datetime) -> None:
    """Store the policy, if there is none. Called when a platform owner signs in."""
    await tx.sign_in_policies.add_of_platform(_first(now))


async def ensure_after_upgrade(ports: Ports) -> bool:
    """Store the policy, if there is none and a platform owner has signed in before. Called when the service starts.

    Return whether the policy is stored now: if so, a platform owner has signed in at some time.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=SYSTEM) as tx:
        if await tx.sign_in_policies.platform_owner_has_signed_in():
            await ensure(tx, now)
        return await tx.sign_in_policies.find(None) is not None


async def remind(ports: Ports, holder: UUID) -> dict[str, int] | None:
    """Queue the emails to platform owners without a second factor: when the grace period begins, and two days before it ends.

    Return how many emails were queued, or None if another process holds the lease.
    """

    async def process(tx: storage.Transaction, now: datetime) -> int:
        policy = await tx.sign_in_policies.find(None)
        due = None if policy is None else policy.second_factor_due(now)
        if policy is None or due is None:
            return 0
        number = 2 if due - now <= LAST_REMINDER else 1
        if policy.reminded >= number or not await tx.sign_in_policies.mark_reminded(number):
            return 0
        addresses = await _owners_without_factor(ports, tx)
        for address in addresses:
            await tx.email_queue.add(email_queue.new_email(email_queue.EmailKind.POLICY_DUE, address, now, token=display.format_day(due)))
        return len(addresses)

    return await housekeeping.process_in_batches(ports, holder, LEASE_NAME, LEASE, MAX_OWNERS, {"owners": process})
