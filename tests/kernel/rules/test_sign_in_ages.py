"""Strength and age come from the same proofs: a second factor counts beside a first factor at most 10 minutes newer (security A-12)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from core.kernel.proofs import Factor, FactorKind, Method, Proof, Strength, first_proof
from core.kernel.sign_in_policy.decision import Outcome, PolicyFacts, decide, find_step_up
from core.kernel.sign_in_policy.rules import EffectivePolicy, PolicyPart, Rule, Rules
from tests.tables import table

NOW: Final = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)
ACME, OKTA = UUID(int=1), UUID(int=2)
FIRSTS: Final = {
    "password": first_proof("password", NOW),
    "email": first_proof("email", NOW),
    "provider": first_proof("websuite", NOW),
    "connection": Proof(Method.CONNECTION, NOW, connection=OKTA, org=ACME),
}
SECONDS: Final = {
    "totp": Proof(Method.TOTP, NOW),
    "backup code": Proof(Method.BACKUP_CODE, NOW),
    "key": Proof(Method.PASSKEY, NOW, phishing_resistant=True),
    "passkey": Proof(Method.PASSKEY, NOW, user_verified=True, phishing_resistant=True),
}
SECOND_FACTOR: Final = {"second_factor": ["everyone"]}


def facts_of(*proofs: Proof) -> PolicyFacts:
    """Return the facts about a user with an app and a passkey, who used the organization just now."""
    factors = [Factor(FactorKind.TOTP), Factor(FactorKind.PASSKEY, is_required=True)]
    ways = frozenset({"password", "email", "provider:websuite", "connection"})
    return PolicyFacts(now=NOW, proofs=proofs, factors=factors, first_ways=ways, is_admin=False, used_at=NOW)


def policy_of(**document: Any) -> EffectivePolicy:
    return EffectivePolicy(ACME, 1, (PolicyPart("Acme", Rules.read(document)),))


@table(("minutes", "counts"), [(0, True), (9, True), (10, True), (11, False), (600, False)])
@table("second", ["totp", "backup code", "key"])
@table("first", list(FIRSTS))
def test_a_policy_counts_no_older_second_factor(first: str, second: str, minutes: int, *, counts: bool) -> None:
    proofs = FIRSTS[first], replace(SECONDS[second], at=NOW - minutes * MINUTE)
    decision = decide(policy_of(**SECOND_FACTOR), facts_of(*proofs))
    assert (decision.outcome, decision.rule) == ((Outcome.ALLOWED, None) if counts else (Outcome.STEP_UP, Rule.SECOND_FACTOR))


@table(("minutes", "age"), [(0, 0), (9, 0), (10, 0), (11, 11), (600, 600)])
@table("second", list(SECONDS))
@table("earlier", ["password", "email", "provider"])
@table("first", list(FIRSTS))
def test_the_age_of_a_session_is_that_of_the_newest_sign_in_with_both_factors(
    first: str, earlier: str, second: str, minutes: int, age: int
) -> None:
    """The earlier sign-in had two factors. The old second factor does not make a newer first factor enough."""
    at = NOW - minutes * MINUTE
    proofs = replace(FIRSTS[earlier], at=at), replace(SECONDS[second], at=at), FIRSTS[first]
    decision = decide(policy_of(**SECOND_FACTOR, session_lifetime_minutes=700), facts_of(*proofs))
    assert (decision.outcome, decision.ends_at) == (Outcome.ALLOWED, NOW + (700 - age) * MINUTE)
    decision = decide(policy_of(**SECOND_FACTOR, session_lifetime_minutes=15), facts_of(*proofs))
    assert (decision.outcome, decision.rule) == ((Outcome.ALLOWED, None) if age <= 15 else (Outcome.STEP_UP, Rule.SESSION_LIFETIME))


@table("minutes", [9, 600])
def test_a_first_factor_makes_no_passkey_newer_where_a_rule_asks_for_one(minutes: int) -> None:
    at = NOW - minutes * MINUTE
    proofs = replace(SECONDS["passkey"], at=at), FIRSTS["password"]
    decision = decide(policy_of(phishing_resistant=["everyone"], session_lifetime_minutes=700), facts_of(*proofs))
    assert (decision.outcome, decision.ends_at) == (Outcome.ALLOWED, at + 700 * MINUTE)


def test_a_new_sign_in_is_one_by_a_method_that_a_rule_requires_later() -> None:
    """Otherwise the method would be asked for twice: for the old age, and for the method."""
    policy = policy_of(methods=["password"], due_at={"methods": (NOW + timedelta(days=1)).isoformat()})
    step = find_step_up(policy, facts_of())
    assert step is not None
    assert (step.required, step.methods) == (Strength.ONE, frozenset({"password"}))
