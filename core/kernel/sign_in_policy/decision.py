"""The decision about a sign-in: whether it meets the sign-in policy of an organization, an application or the platform."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from core.kernel.connections import UNKNOWN_AT_CONNECTIONS, ConnectionFacts, RequiredConnection
from core.kernel.proofs import (
    Factor,
    FactorKind,
    Method,
    Proof,
    Proofs,
    Strength,
    has_connection,
    proved_at,
    session_strength,
    sign_in_with,
    strength_of,
)
from core.kernel.sign_in_policy.rules import PROVIDER_PREFIX, Concerned, EffectivePolicy, Moment, Rule, Rules


class Outcome(Enum):
    """The result of a decision."""

    ALLOWED = "allowed"
    STEP_UP = "step_up"  # the user has to sign in again, with the decision's methods and strength
    ENROLL = "enroll"  # the user first has to set up a factor
    REFUSED = "refused"  # nothing that the user does here helps


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """The facts about a user and a sign-in that a policy asks for. Times are UTC."""

    now: datetime
    proofs: Proofs  # the proofs that count here
    factors: Collection[Factor]  # the account's factors
    first_ways: frozenset[str]  # the account's first factors, as `methods` names them: password, email, provider:websuite
    is_admin: bool
    connections: ConnectionFacts = UNKNOWN_AT_CONNECTIONS
    may_break_glass: bool = False  # the user may come without the required connection
    acts: bool = False  # in the organization or the platform, and does not only sign in to an application
    risk_is_high: bool = False
    address: str | None = None  # the IP address
    used_at: datetime | None = None  # the last use of the organization or application in this session; None: not used yet
    factor_at_device: datetime | None = None  # when the second factor was last proved on this trusted device
    ages: bool = True  # False for a personal access token, which has no idle time


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The result, and the rule that it comes from.

    If the sign-in is allowed and a rule that starts later asks the user to set up a factor, `due_at` is when that rule
    starts. `valid_until` is when the policy has to be asked again.
    """

    outcome: Outcome
    rule: Rule | None = None
    source: str | None = None  # the name of the organization, application or platform with the rule
    required: Strength = Strength.NONE
    methods: frozenset[str] | None = None  # the allowed methods; None for all
    first_ways: frozenset[str] = frozenset()  # as in the facts
    lacks_first: bool = False  # the user has to set up a factor, and the account has no first factor by these methods
    method_names: tuple[str, ...] = ()  # the names of these methods, if they are the reason
    max_age: timedelta | None = None  # how old the sign-in may be, if its age is the reason
    is_present: bool = False  # within `max_age`, the user proved a first factor, which is not enough
    first_at: datetime | None = None  # time (UTC) of the newest first factor by an allowed method; None: they must prove a factor
    connection: RequiredConnection | None = None  # through which the user has to come. They may have done so
    breaks_glass: bool = False  # the user may come without it
    asks_own: bool = False  # the identity provider vouches for the user without having asked them: a way of their own has to follow
    is_elsewhere: bool = False  # the session began at another organization's connection, and counts there alone
    is_of_risk: bool = False  # the rule asks for it because the risk of this sign-in is high
    is_of_request: bool = False  # the age is what the request needs, and no rule of the policy
    valid_until: datetime | None = None
    ends_at: datetime | None = None  # when an allowed session ends by its greatest lifetime
    idle: timedelta | None = None
    due_at: datetime | None = None

    @property
    def asks(self) -> bool:
        """Whether the user must do something, now or when a rule starts."""
        return self.outcome is not Outcome.ALLOWED or self.due_at is not None

    @property
    def leads_to(self) -> RequiredConnection | None:
        """The connection at which the user has to sign in now, or None.

        A user with `breaks_glass` or `asks_own` can choose it beside their own ways.
        """
        is_next = self.rule is Rule.CONNECTION or self.max_age is not None
        return self.connection if is_next and not (self.breaks_glass or self.asks_own) else None

    @property
    def wants_fresh(self) -> bool:
        """Whether the sign-in is too old, and an identity provider must authenticate the user again.

        That is so where another way is left: the account has a password, or the user came through a connection, which can ask again. If the
        user is present, a sign-in at a provider that does not ask them is as new as their newest first factor.
        """
        is_too_old = self.outcome is Outcome.STEP_UP and self.max_age is not None and not self.is_present
        return is_too_old and not self.first_ways.isdisjoint((Method.PASSWORD, Method.CONNECTION))


NO_POLICY: Final = Decision(outcome=Outcome.ALLOWED)


def sign_in_elsewhere(name: str) -> Decision:
    """Return the decision about a session that began at another organization's connection.

    `name` is the organization or application that does not accept it.
    """
    return Decision(outcome=Outcome.STEP_UP, rule=Rule.SESSION_LIFETIME, source=name, is_elsewhere=True)


def decide(policy: EffectivePolicy | None, facts: PolicyFacts) -> Decision:
    """Return whether this sign-in is enough, the user's next step, or why no step helps. Only this function decides it."""
    if policy is None:
        return NO_POLICY
    now, *later = policy.moments(facts.now)
    if facts.proofs and facts.is_admin and facts.acts and not _is_recovered_owner(facts) and not now.rules.admits(facts.address):
        return Decision(outcome=Outcome.REFUSED, rule=Rule.ADMIN_NETWORKS, source=policy.name)
    required = now.rules.required_for(facts.connections)
    is_through = any(_is_through(required, proof) for proof in facts.proofs)
    decision = _judge(policy, now, later, facts) if is_through or not required else None
    if decision is not None and (not required or decision.outcome is Outcome.ALLOWED or not facts.may_break_glass):
        return decision
    own = tuple(proof for proof in facts.proofs if proof.is_own and proof.method is not Method.PROVIDER)
    if facts.may_break_glass and strength_of(own) > Strength.NONE:
        return replace(_judge(policy, now, later, replace(facts, proofs=own)), connection=required[0], breaks_glass=True)
    return decision or Decision(
        outcome=Outcome.STEP_UP,
        rule=Rule.CONNECTION,
        source=policy.source_of(Rule.CONNECTION, now.at),
        required=_needed(now.rules, facts),
        methods=now.rules.methods,
        connection=required[0],
        breaks_glass=facts.may_break_glass,
    )


def _judge(policy: EffectivePolicy, now: Moment, later: Sequence[Moment], facts: PolicyFacts) -> Decision:
    """Return the decision about a user who comes through the required connection, if any, or may come without it."""
    if not facts.proofs:
        return sign_in_elsewhere(policy.name)
    too_old = _rule_about_age(now.rules, facts) if facts.ages else None
    return _next_step(policy, now, facts, too_old) or _allow(policy, now.rules, later, facts)


def strictest(policy: EffectivePolicy | None, *, is_admin: bool, now: datetime, risk_is_high: bool = False) -> Strength:
    """Return the strength that the rules in force ask of this user in every sign-in, or in a sign-in at a high risk."""
    return Strength.ONE if policy is None else _required(policy.in_force(now), is_admin=is_admin, risk_is_high=risk_is_high)


# A moment's time, and whether the risk is high.
Situation = tuple[datetime, bool]


def situations(policy: EffectivePolicy, now: datetime) -> frozenset[Situation]:
    """Return every moment of the policy, with and without a high risk."""
    return frozenset((moment.at, is_high) for moment in policy.moments(now) for is_high in (False, True))


def met_situations(policy: EffectivePolicy, facts: PolicyFacts) -> frozenset[Situation]:
    """Return the situations in which the account's factors are enough for the rules about factors."""
    return frozenset(
        (moment.at, is_high)
        for moment in policy.moments(facts.now)
        for is_high in (False, True)
        if _reachable(moment.rules, facts) >= _needed(moment.rules, replace(facts, risk_is_high=is_high))
    )


def find_loss(policy: EffectivePolicy, before: PolicyFacts, left: PolicyFacts) -> Strength | None:
    """Return the strength that the rules in force ask for if fewer factors reach less of it than before, and otherwise None.

    ONE: no first factor by an allowed method is left.
    """
    rules = policy.in_force(before.now)
    needed, reachable = _needed(rules, before), _reachable(rules, left)
    if reachable >= min(needed, _reachable(rules, before)):
        return None
    return Strength.ONE if reachable is Strength.NONE else needed


def find_step_up(policy: EffectivePolicy, facts: PolicyFacts) -> Decision | None:
    """Return the strongest further sign-in with the present factors that some situation asks for, or None if the proofs are enough.

    Situations that the account cannot meet yet ask for nothing.
    """
    steps = [
        _next_step(policy, moment, replace(facts, risk_is_high=is_high))
        for moment in policy.moments(facts.now)
        for is_high in (False, True)
    ]
    step_ups = [step for step in steps if step is not None and step.outcome is Outcome.STEP_UP]
    step_up = max(step_ups, key=strictness, default=None)
    return None if step_up is None else replace(step_up, is_of_risk=False)  # it is about every sign-in


def strictness(step: Decision) -> tuple[Strength, bool]:
    """Return a sort key for further sign-ins: at the same strength, a sign-in by chosen methods is stricter."""
    return step.required, step.methods is not None


def _next_step(policy: EffectivePolicy, moment: Moment, facts: PolicyFacts, too_old: Rule | None = None) -> Decision | None:
    """Return the user's next step to meet the factor rules at this moment, or None if the proofs meet them.

    `too_old` is the rule by which the sign-in is too old, if any.
    """
    rules = moment.rules
    need, have, can = _needed_in_session(rules, facts), _proved(rules, facts), _reachable(rules, facts)
    if have >= need and too_old is None:
        return None
    outcome = Outcome.STEP_UP if can >= need else Outcome.ENROLL
    is_only_old = have >= need and outcome is Outcome.STEP_UP
    rule = too_old if is_only_old and too_old is not None else _rule_about_factors(rules, facts, min(have, can), need)
    max_age = {Rule.SESSION_LIFETIME: rules.session_lifetime, Rule.SESSION_IDLE: rules.session_idle}[too_old] if too_old else None
    used = _connections_used(rules, facts)
    return Decision(
        outcome=outcome,
        rule=rule,
        source=policy.source_of(rule, moment.at),
        required=need,
        methods=rules.methods,
        first_ways=facts.first_ways,
        lacks_first=outcome is Outcome.ENROLL and _lacks_first(rules, facts),
        max_age=max_age,
        is_present=max_age is not None and not used and facts.now - proved_at(facts.proofs) <= max_age,
        first_at=max((at for at, _ in _sign_ins(rules, facts)), default=None),
        connection=used[0] if used else None,
        is_of_risk=rule in (Rule.SECOND_FACTOR, Rule.PHISHING_RESISTANT) and need > _needed(rules, replace(facts, risk_is_high=False)),
    )


def _allow(policy: EffectivePolicy, rules: Rules, later: Sequence[Moment], facts: PolicyFacts) -> Decision:
    """Return the decision to allow a sign-in by these rules, with the first later rule that needs a further factor."""
    ends = [moment.at for moment in later]
    ends_at = _accepted_at(rules, facts) + rules.session_lifetime if facts.ages and rules.session_lifetime is not None else None
    ends += [] if ends_at is None else [ends_at]
    if facts.ages:
        ends += [facts.now + rules.session_idle] if rules.session_idle is not None else []
    if rules.device_trust is not None and facts.factor_at_device is not None and _is_trusted(rules, facts):
        ends.append(facts.factor_at_device + rules.device_trust)
    idle = rules.session_idle if facts.ages else None
    allowed = Decision(outcome=Outcome.ALLOWED, methods=rules.methods, valid_until=min(ends, default=None), ends_at=ends_at, idle=idle)
    for moment in later:
        step = _next_step(policy, moment, facts)
        if step is not None and step.outcome is Outcome.ENROLL:
            until = allowed.valid_until
            return replace(step, outcome=Outcome.ALLOWED, is_of_risk=False, due_at=moment.at, valid_until=until, ends_at=ends_at, idle=idle)
    return allowed


def _is_recovered_owner(facts: PolicyFacts) -> bool:
    """Return whether the operator of the machine let the user in, who may have to mend the networks."""
    return any(proof.method is Method.OWNER_RECOVERY for proof in facts.proofs)


def _needed(rules: Rules, facts: PolicyFacts) -> Strength:
    return _required(rules, is_admin=facts.is_admin, risk_is_high=facts.risk_is_high)


def _needed_in_session(rules: Rules, facts: PolicyFacts) -> Strength:
    """Return the needed strength. It includes the second factor if a trusted device skipped it after the days of these rules."""
    need, proved = _needed(rules, facts), facts.factor_at_device
    if rules.device_trust is None or proved is None or not facts.proofs or session_strength(facts.proofs) >= Strength.TWO:
        return need
    is_over = proved_at(facts.proofs) - proved >= rules.device_trust
    # A sign-in at a connection skips the second factor on any device.
    is_asked = is_over and not has_connection(facts.proofs) and stands_for_second(rules, facts.factors)
    return max(need, Strength.TWO) if is_asked else need


def _required(rules: Rules, *, is_admin: bool, risk_is_high: bool) -> Strength:
    concerned = {Concerned.EVERYONE} | ({Concerned.ADMINS} if is_admin else set()) | ({Concerned.HIGH_RISK} if risk_is_high else set())
    if concerned & rules.phishing_resistant:
        return Strength.PHISHING_RESISTANT
    return Strength.TWO if concerned & rules.second_factor else Strength.ONE


def _proved(rules: Rules, facts: PolicyFacts) -> Strength:
    """Return the strength of the strongest sign-in by allowed methods."""
    return max((strength for _, strength in _sign_ins(rules, facts)), default=Strength.NONE)


def _sign_ins(rules: Rules, facts: PolicyFacts) -> list[tuple[datetime, Strength]]:
    """Return the proof time (UTC) and strength of every first factor by an allowed method, with second factors beside it, newest first.

    A trusted device stands for the second factor, but not at a high risk. After a sign-in through the required connection, it alone
    is the first factor.
    """
    allowed = tuple(proof for proof in facts.proofs if _counts(rules, facts, proof))
    used = _connections_used(rules, facts)
    firsts = (proof for proof in allowed if (_is_through(used, proof) if used else not proof.is_second))
    least = Strength.TWO if _is_trusted(rules, facts) else Strength.ONE
    sign_ins = ((first.at, max(least, strength_of(sign_in_with(first, allowed)))) for first in firsts)
    return sorted(sign_ins, reverse=True)


def _counts(rules: Rules, facts: PolicyFacts, proof: Proof) -> bool:
    """Return whether the method of a proof is allowed. A backup code stands for any second factor of the account.

    A sign-in at a provider counts only where this user can sign in with it: the account may be linked only elsewhere. The required
    connection always counts.
    """
    if _is_through(rules.required_for(facts.connections), proof):
        return True
    if proof.method is Method.BACKUP_CODE and rules.methods is not None:
        return stands_for_second(rules, facts.factors)
    name = _name_of(proof)
    is_known = proof.method is not Method.PROVIDER or rules.methods is None or name in facts.first_ways
    return is_known and rules.may_use(name)


def _connections_used(rules: Rules, facts: PolicyFacts) -> list[RequiredConnection]:
    """Return the required connections through which the user came."""
    return [each for each in rules.required_for(facts.connections) if any(_is_through([each], proof) for proof in facts.proofs)]


def _is_through(required: Collection[RequiredConnection], proof: Proof) -> bool:
    return any(proof.connection == each.id for each in required)


def stands_for_second(rules: Rules, factors: Collection[Factor]) -> bool:
    """Return whether these rules accept a backup code: it stands for any second factor that the account has and the rules allow."""
    return any(map(rules.may_use, _second_methods(factors)))


def _second_methods(factors: Collection[Factor]) -> set[Method]:
    """Return the methods of an account's second factors. TOTP has a name of its own, and every other factor is a key."""
    return {Method.TOTP if factor.kind is FactorKind.TOTP else Method.PASSKEY for factor in factors if factor.is_second}


def _is_trusted(rules: Rules, facts: PolicyFacts) -> bool:
    """Return whether the device counts. Any second factor of the account may have made it trusted, so all must be allowed."""
    if facts.factor_at_device is None or facts.risk_is_high or not all(map(rules.may_use, _second_methods(facts.factors))):
        return False
    return rules.device_trust is None or facts.now - facts.factor_at_device < rules.device_trust


def _reachable(rules: Rules, facts: PolicyFacts) -> Strength:
    """Return the greatest strength that the account's present factors give a sign-in by allowed methods."""
    kinds = {factor.kind for factor in facts.factors}
    if FactorKind.PASSKEY in kinds and rules.may_use(Method.PASSKEY):
        return Strength.PHISHING_RESISTANT
    if _lacks_first(rules, facts):
        return Strength.NONE
    return Strength.TWO if stands_for_second(rules, facts.factors) else Strength.ONE


def _lacks_first(rules: Rules, facts: PolicyFacts) -> bool:
    """Return whether the account has no first factor by an allowed method. Passkeys do not count."""
    return rules.methods is not None and not any(rules.may_use(way) for way in facts.first_ways)


def _accepted_at(rules: Rules, facts: PolicyFacts) -> datetime:
    """Return the time (UTC) of the newest sign-in by allowed methods that meets the rules about factors.

    A weaker sign-in makes a session no newer. If no sign-in is enough, it is the time of the newest sign-in, or else of the newest proof by
    any method.
    """
    sign_ins, need = _sign_ins(rules, facts), _needed_in_session(rules, facts)
    times = [at for at, strength in sign_ins if strength >= need] or [at for at, _ in sign_ins]
    return times[0] if times else proved_at(facts.proofs)


def _rule_about_age(rules: Rules, facts: PolicyFacts) -> Rule | None:
    """Return the rule by which the sign-in is too old, or the last use too long ago. A new sign-in counts as a use."""
    signed_in_at = _accepted_at(rules, facts)
    used_at = max(signed_in_at, facts.used_at or signed_in_at)
    if rules.session_lifetime is not None and facts.now - signed_in_at > rules.session_lifetime:
        return Rule.SESSION_LIFETIME
    return Rule.SESSION_IDLE if rules.session_idle is not None and facts.now - used_at > rules.session_idle else None


def _rule_about_factors(rules: Rules, facts: PolicyFacts, strength: Strength, need: Strength) -> Rule:
    if strength is Strength.NONE and rules.methods is not None:
        return Rule.METHODS
    if _needed(rules, facts) < need:
        return Rule.DEVICE_TRUST
    if need is Strength.ONE:
        return Rule.SESSION_LIFETIME  # the session has no first factor at all
    return Rule.PHISHING_RESISTANT if need is Strength.PHISHING_RESISTANT else Rule.SECOND_FACTOR


def _name_of(proof: Proof) -> str | None:
    return PROVIDER_PREFIX + (proof.provider or "") if proof.method is Method.PROVIDER else proof.method
