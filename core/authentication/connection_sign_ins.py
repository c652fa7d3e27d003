"""The age of a sign-in through the connection that an organization requires of a user (security SP-9).

An act in the organization that asks for the age of a sign-in counts no session without this one. Otherwise a user that the identity
provider has removed would confirm the act in another way. Of accounts with a password, an own first factor stands beside a sign-in that
may not have asked the user: a browser that is open at the identity provider does not show that they are here.
"""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.authentication import policy_passes
from core.authentication.model.policy import PolicyPath, PolicySession, PolicySubject
from core.authentication.policy_checks import Admission, judge, refusal_of
from core.kernel.callers import ConnectionSignIn, Member, Person
from core.kernel.proofs import seen_in
from core.kernel.sign_in_age import SignInAge, is_enough
from core.kernel.sign_in_policy.decision import Decision, Outcome
from core.kernel.sign_in_policy.rules import PolicyPart, Rule, Rules
from core.kernel.sign_in_policy.silent_sign_ins import beside_own
from ports import Ports
from ports.storage import Transaction


def judge_age(ports: Ports, path: PolicyPath, subject: PolicySubject, age: SignInAge, user: Person, now: datetime) -> Decision | None:
    """Return the decision about the age of the sign-in through the required connection, or None if the policy requires none of the user.

    The policy is asked with the age as the lifetime of a session: no other first factor makes the session newer.
    """
    if age is SignInAge.ANY or subject.session is None or not subject.policy.in_force(now).required_for(subject.connections):
        return None
    return _judge_with_age(ports, path, subject, subject.session, age, user, now)


def _judge_with_age(
    ports: Ports, path: PolicyPath, subject: PolicySubject, session: PolicySession, age: SignInAge, user: Person, now: datetime
) -> Decision:
    policy, limit = subject.policy, age.limit(ports.policy)
    seen = beside_own(seen_in(session.proofs, policy.org_id, now), needs_user=subject.account.password_hash is not None)
    proofs = tuple(proof for proof in seen if not proof.is_second or now - proof.at <= limit)
    part = PolicyPart(policy.name, Rules(session_lifetime=limit))
    session = replace(session, proofs=proofs, factor_at_device=None)  # a trusted device does not replace the second factor
    aged = replace(subject, policy=replace(policy, parts=(*policy.parts, part)), session=session)
    decision, lifetime = judge(ports, path, aged, now, user.address), policy.in_force(now).session_lifetime
    is_of_request = decision.rule is Rule.SESSION_LIFETIME and (lifetime is None or lifetime > limit)
    return replace(decision, is_of_request=True) if is_of_request else decision


async def find_renewal(ports: Ports, user: Person, org_slug: str) -> Decision | None:
    """Return the fresh sign-in that the policy of an organization accepts from its member, or None if each one will do.

    None as well if the policy requires a connection, which has pages of its own.
    """
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        org_id = await read.organizations.id_by_slug(org_slug)
        if org_id is None or user.bounded_to not in (None, org_id) or not await read.members.exists(org_id, user.user_id):
            return None
        subject = await read.policy_passes.load(org_id, None, user.user_id, user.session_id)
    if subject is None or subject.session is None or subject.policy.in_force(now).required_for(subject.connections):
        return None
    decision = _judge_with_age(ports, PolicyPath.ENROLL, subject, subject.session, SignInAge.FRESH, user, now)
    return decision if decision.outcome is Outcome.STEP_UP else None


async def find(ports: Ports, path: PolicyPath, member: Member, age: SignInAge) -> ConnectionSignIn:
    """Return the sign-in through the required connection, if any, for a request of this member. The use of break glass is reported."""
    now = ports.clock.now()
    async with ports.storage.reading() as read:
        subject = await read.policy_passes.load(member.acts_in.id, None, member.user_id, member.session_id)
    decision = None if subject is None else judge_age(ports, path, subject, age, member, now)
    if subject is None or decision is None:
        return ConnectionSignIn(is_required=False)
    if decision.outcome is not Outcome.ALLOWED:
        refusal = refusal_of(ports, path, subject, decision, age)
        refusal.caller = member
        return ConnectionSignIn(is_required=True, refusal=refusal)
    if decision.breaks_glass and is_enough(member.sign_in, age, ports.policy, now):
        async with ports.storage.transaction(by=member) as tx:
            await policy_passes.report_break_glass(tx, subject, decision, member.session_id, now)
    return ConnectionSignIn(is_required=not decision.breaks_glass)


async def require_in_transaction(ports: Ports, tx: Transaction, org_id: UUID, user: Person, age: SignInAge) -> None:
    """Check the age of the user's sign-in through the required connection, if any, in a transaction that goes on."""
    subject, now = await tx.policy_passes.load(org_id, None, user.user_id, user.session_id), ports.clock.now()
    decision = None if subject is None else judge_age(ports, PolicyPath.API, subject, age, user, now)
    if subject is None or decision is None:
        return
    if decision.outcome is not Outcome.ALLOWED:
        refusal = refusal_of(ports, PolicyPath.API, subject, decision, age)
        refusal.caller = user
        raise refusal
    await policy_passes.report_break_glass(tx, subject, decision, user.session_id, now)


async def find_own_way(ports: Ports, user: Person) -> Decision | None:
    """Return the decision for acts in the organization of the user's token, if it asks for a way of the account's own, or None.

    That is so after a sign-in through the required connection for which the identity provider may not have asked the user.
    """
    if user.organization is None:
        return None
    async with ports.storage.reading() as read:
        subject = await read.policy_passes.load(user.organization.id, None, user.user_id, user.session_id)
    if subject is None:
        return None
    ages, now = (SignInAge.FRESH, SignInAge.RECENT), ports.clock.now()
    decisions = (judge_age(ports, PolicyPath.ENROLL, subject, age, user, now) for age in ages)
    asked = (decision for decision in decisions if decision is not None and decision.outcome is Outcome.STEP_UP)
    return next((decision for decision in asked if decision.asks_own), None)


def with_age(ports: Ports, admission: Admission, age: SignInAge, user: Person) -> Admission:
    """Return the decision of an admission, or if it is allowed, that about the age of the sign-in through the required connection."""
    if admission.subject is None or not admission.is_allowed:
        return admission
    decision = judge_age(ports, PolicyPath.ENROLL, admission.subject, age, user, ports.clock.now())
    return admission if decision is None else replace(admission, decision=decision)
