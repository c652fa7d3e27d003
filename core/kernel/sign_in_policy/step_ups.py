"""Further sign-ins: for the strength that an application requires, and where only a passkey helps."""

from collections.abc import Collection

from core.kernel.proofs import Factor, Strength
from core.kernel.sign_in_policy.decision import Decision, Outcome, stands_for_second
from core.kernel.sign_in_policy.rules import Rule, Rules


def step_up_to(required: Strength, name: str | None) -> Decision:
    """Return the decision about a sign-in without the strength that the application with this name, or its request, requires.

    `name` None: the account itself requires this strength.
    """
    rule = Rule.PHISHING_RESISTANT if required is Strength.PHISHING_RESISTANT else Rule.SECOND_FACTOR
    return Decision(outcome=Outcome.STEP_UP, rule=rule, source=name, required=required)


def takes_passkey_only(decision: Decision, *, has_second: bool) -> bool:
    """Return whether only a passkey has the strength that the decision asks for. `has_second`: the account has an allowed second factor."""
    return decision.required >= (Strength.PHISHING_RESISTANT if has_second else Strength.TWO)


def needs_passkey(decision: Decision, factors: Collection[Factor]) -> bool:
    """Return whether an account with these factors can meet the decision only by a sign-in with a passkey."""
    if decision.outcome is not Outcome.STEP_UP or decision.leads_to is not None:
        return False
    if decision.methods is not None and decision.rule is not Rule.CONNECTION and decision.methods.isdisjoint(decision.first_ways):
        return True
    return takes_passkey_only(decision, has_second=stands_for_second(Rules(methods=decision.methods), factors))
