"""A user's sign-in policies, before a change of their factors, against the small reference.

No user is locked out: from every state, the user can reach all organizations. And no factor is added to get past a policy: the sign-in
meets all policies that the account can meet, now and later.
"""

from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from core.kernel.proofs import Strength
from core.kernel.sign_in_policy.decision import Decision, Outcome, decide, find_step_up, met_situations, situations
from core.tenancy.model.sign_in_policies import MethodsUnavailable, require_available
from tests.proof.models import sign_in_policy_reference as reference
from tests.proof.models.sign_in_policy_reference import DAY, Policy, User
from tests.proof.models.test_sign_in_policy_model import (
    ALL_SAVED,
    FRESH,
    INSIDE,
    MOMENTS,
    USERS,
    at,
    enroll,
    to_facts,
    to_policy,
)

STEADY = settings(max_examples=120)
# Policies that accept different methods. The second is saved two days after the first
DIFFERENT = st.fixed_dictionaries(
    {},
    optional={
        "methods": st.sampled_from(
            [["password", "totp"], ["password", "passkey"], ["email", "totp"], ["email", "passkey"], ["passkey", "provider:websuite"]]
        ),
        "second_factor": st.just(["everyone"]),
        "phishing_resistant": st.just(["everyone"]),
        "grace_days": st.sampled_from([0, 1, 14]),
    },
)
SAVED = st.builds(lambda old, new: reference.save(new, reference.save(old, {}, -4 * DAY), -2 * DAY), DIFFERENT, DIFFERENT)
# The two organizations have a policy, and so has an application that the user uses, too.
PLACES = st.lists(st.tuples(SAVED, SAVED), min_size=2, max_size=2).map(
    lambda pairs: [documents for of_organization, of_shop in pairs for documents in ([of_organization], [of_organization, of_shop])]
)


def is_available(documents: list[Policy], now: int) -> bool:
    policy = to_policy(documents)
    assert policy is not None
    try:
        require_available(policy, at(now), email_is_on=True, has_passkeys=True)
    except MethodsUnavailable:
        return False
    return True


@pytest.mark.slow
def test_rules_are_refused_if_at_some_moment_a_user_with_all_factors_cannot_meet_them() -> None:
    user = User({"password", "email"}, has_totp=True, has_passkey=True, is_admin=True, risk=True, proofs=[("password", 0)])

    @STEADY
    @given(ALL_SAVED, MOMENTS)
    def check(documents: list[Policy], now: int) -> None:
        rules = [[reference.in_force(document, minute) for document in documents] for minute in reference.moments(documents, now)]
        assert is_available(documents, now) == all(reference.reachable(each, user) >= reference.needed(each, user) for each in rules)

    check()


@pytest.mark.slow
def test_a_change_of_factors_asks_for_what_some_moment_asks_for() -> None:
    @STEADY
    @given(ALL_SAVED, USERS, MOMENTS)
    def check(documents: list[Policy], user: User, now: int) -> None:
        policy, facts = to_policy(documents), replace(to_facts(replace(user, trusted_at=None), now))
        assert policy is not None
        met, missing = set(), Strength.NONE
        for minute in reference.moments(documents, now):
            rules = [reference.in_force(document, minute) for document in documents]
            for risk in (False, True):
                one = replace(user, risk=risk, trusted_at=None)
                need = reference.needed(rules, one)
                if reference.reachable(rules, one) >= need:
                    met.add((at(minute), risk))
                    missing = max(missing, Strength(need) if reference.proved(rules, one, now) < need else Strength.NONE)
        assert met_situations(policy, facts) == met
        assert met <= situations(policy, at(now))
        step = find_step_up(policy, facts)
        assert (Strength.NONE if step is None else step.required) == missing

    check()


def reauthenticate(user: User, now: int, step: Decision | None) -> str:
    """Confirm by a method that this step asks for, with the account's own second factor. Return the method."""
    accepts = {} if step is None or step.methods is None else {"methods": [*step.methods]}
    required = Strength.ONE if step is None else step.required
    has_second = (user.has_totp and reference.is_allowed([accepts], "totp")) or (user.has_key and reference.is_allowed([accepts], "key"))
    ways = [way for way in sorted(user.first_ways) if reference.is_allowed([accepts], way)]
    by_passkey = required is Strength.PHISHING_RESISTANT or not ways or (required is Strength.TWO and not has_second)
    assert user.has_passkey or not by_passkey, (user, step)
    way = "passkey" if by_passkey else ways[0]
    kept = [(method, minute) for method, minute in user.proofs if method not in {*reference.SECONDS, way} and now - minute <= FRESH]
    second = "totp" if user.has_totp and reference.is_allowed([accepts], "totp") else "key" if user.has_key else "totp"
    with_second = way != "passkey" and (user.has_totp or user.has_key)
    user.proofs = [*kept, (way, now), *([(second, now)] if with_second else [])]
    return way


def walk(places: list[list[Policy]], target: list[Policy], user: User, now: int) -> tuple[list[str], int]:
    """Let the user reach this place. Return the actions, and how many methods confirmed them."""
    actions, ways = list[str](), set[str]()
    policy, policies = to_policy(target), [to_policy(documents) for documents in places]
    assert policy is not None
    while (decision := decide(policy, to_facts(user, now))).outcome is not Outcome.ALLOWED and len(actions) < 12:
        recent = [(method, minute) for method, minute in user.proofs if now - minute <= FRESH]
        is_old = not {method for method, _ in recent} - reference.SECONDS
        facts = to_facts(replace(user, trusted_at=None, proofs=user.proofs if is_old else recent), now)
        steps = [find_step_up(each, facts) for each in policies if each is not None]
        missing = max((step for step in steps if step is not None), key=lambda step: step.required, default=None)
        if decision.outcome is Outcome.STEP_UP or missing is not None or is_old:
            step = decision if decision.outcome is Outcome.STEP_UP else missing
            ways.add(reauthenticate(user, now, step))
            actions.append("confirm")
        else:
            enroll(user, now, decision)
            actions.append("set up")
        now += 1
    return actions, len(ways)


@pytest.mark.slow
def test_from_every_state_a_user_of_two_organizations_reaches_each_of_their_places() -> None:
    """In three actions, plus an action for every further method by which policies with different methods ask the user to confirm."""

    by_password, by_email = {"methods": ["password", "totp"]}, {"methods": ["email", "passkey"]}
    by_passkey = {"phishing_resistant": ["everyone"]}

    @settings(STEADY, max_examples=100)
    @given(PLACES, USERS, MOMENTS)
    @example(
        [[by_password], [by_password, {}], [by_email], [by_email, by_passkey]], User({"password", "email"}, proofs=[("password", 0)]), 0
    )
    def check(places: list[list[Policy]], user: User, now: int) -> None:
        assume(all(is_available(documents, now) for documents in places))
        user = replace(user, first_ways=user.first_ways | {"email"}, address=INSIDE, trusted_at=None, risk=False)
        for target in places:
            actions, methods = walk(places, target, deepcopy(user), now)
            assert len(actions) <= 3 + max(0, methods - 1), (places, target, user, now, actions)

    check()
