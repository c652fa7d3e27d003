"""Sign-in policies against a small reference: users, factors, memberships, saved rules and time, in any order."""

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from core.kernel.proofs import Factor, FactorKind, Method, Proof, Strength
from core.kernel.sign_in_policy.decision import Decision, Outcome, PolicyFacts, decide, strictest
from core.kernel.sign_in_policy.rules import METHODS, RULES_OF_APPLICATIONS, EffectivePolicy, PolicyPart, Rules
from core.kernel.values import rfc3339
from core.tenancy.model.sign_in_policies import MethodsUnavailable, require_available
from tests.proof.models import sign_in_policy_reference as reference
from tests.proof.models.sign_in_policy_reference import DAY, Policy, User

START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("Acme", "Shop")
INSIDE, OUTSIDE = "203.0.113.7", "198.51.100.7"
NETWORKS = ["203.0.113.0/24", "2001:db8::/32"]
FRESH = 10
CONCERNED = st.lists(st.sampled_from(["everyone", "admins", "high_risk"]), min_size=1, unique=True)
# Some policies that organizations choose, and arbitrary policies
METHOD_LISTS = st.one_of(
    st.sampled_from([["password", "passkey"], ["password", "totp"], ["passkey"], ["email", "passkey", "totp"]]),
    st.lists(st.sampled_from(METHODS), min_size=1, unique=True),
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "methods": METHOD_LISTS,
        "second_factor": CONCERNED,
        "phishing_resistant": st.lists(st.sampled_from(["everyone", "admins"]), min_size=1, unique=True),
        "session_lifetime_minutes": st.sampled_from([15, 12 * 60]),
        "session_idle_minutes": st.sampled_from([5, 60]),
        "device_trust_days": st.sampled_from([0, 1, 14]),
        "admin_networks": st.lists(st.sampled_from(NETWORKS), min_size=1, unique=True),
        "grace_days": st.sampled_from([0, 1, 14]),
    },
)
PASSES = st.sampled_from([1, 4, 6, 16, 61, DAY // 2, DAY, 2 * DAY, 15 * DAY])
FIRST_WAYS = [{"password", "email"}, {"email"}, {"email", "provider:websuite"}, {"password", "email", "provider:codehost"}]


FIRSTS = ["password", "email", "passkey", "provider:websuite", "owner_recovery"]
# The sign-in is in minute 0.
USERS = st.builds(
    User,
    st.sampled_from([*FIRST_WAYS, set()]).map(set),
    has_totp=st.booleans(),
    has_passkey=st.booleans(),
    has_key=st.booleans(),
    is_admin=st.sampled_from([True, True, False]),
    acts=st.sampled_from([True, True, False]),
    risk=st.booleans(),
    address=st.sampled_from([INSIDE, OUTSIDE, f"::ffff:{INSIDE}"]),
    proofs=st.builds(
        lambda earlier, pause, first, second, before: [
            *([] if earlier in (None, first) else [(earlier, -pause)]),
            (first, 0),
            *([] if second is None else [(second, -before)]),
        ],
        st.sampled_from([None, None, *FIRSTS]),
        st.sampled_from([5, 12, 600]),
        st.sampled_from(FIRSTS),
        st.sampled_from([None, None, "totp", "backup_code", "key"]),
        st.sampled_from([0, 0, 9, 11, 600, -3]),
    ),
    used_at=st.sampled_from([None, -DAY, 0, 20]),
    trusted_at=st.sampled_from([None, -DAY, 0]),
)
# The later policy is saved two days before the sign-in.
SAVED = st.builds(lambda old, new: reference.save(new, reference.save(old, {}, -4 * DAY), -2 * DAY), DOCUMENTS, DOCUMENTS)
# Applications have no networks.
OF_APPLICATION = SAVED.map(lambda document: {name: value for name, value in document.items() if name != "admin_networks"})
ALL_SAVED = st.one_of(st.lists(SAVED, min_size=1, max_size=1), st.tuples(SAVED, OF_APPLICATION).map(list))
# Policies that a trusted device can meet.
TRUSTING = st.fixed_dictionaries({"second_factor": CONCERNED, "device_trust_days": st.sampled_from([1, 14])})
MOMENTS = st.sampled_from([0, 5, 10, 15, 16, 25, 26, DAY, 3 * DAY, 12 * DAY])


def at(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


def to_policy(documents: list[Policy]) -> EffectivePolicy | None:
    parts = []
    for name, document in zip(NAMES, documents, strict=False):
        dates = {rule: rfc3339(at(minute)) for rule, minute in document.get("due", {}).items()}
        parts.append(
            PolicyPart(name, Rules.read({**document, "due_at": dates, "until_due": Rules.read(document.get("until", {})).document}))
        )
    return EffectivePolicy(UUID(int=1), 1, tuple(parts)) if parts else None


def to_proof(method: str, minute: int) -> Proof:
    if method == "key":  # a passkey without user verification
        return Proof(Method.PASSKEY, at(minute))
    kind, _, provider = method.partition(":")
    is_passkey = kind == "passkey"
    return Proof(Method(kind), at(minute), provider=provider or None, user_verified=is_passkey, phishing_resistant=is_passkey)


def to_facts(user: User, now: int) -> PolicyFacts:
    kinds = {FactorKind.TOTP: user.has_totp, FactorKind.PASSKEY: user.has_passkey, FactorKind.SECURITY_KEY: user.has_key}
    return PolicyFacts(
        now=at(now),
        proofs=tuple(to_proof(*proof) for proof in user.proofs),
        factors=[Factor(kind, is_required=kind is FactorKind.SECURITY_KEY) for kind, is_there in kinds.items() if is_there],
        first_ways=frozenset(user.first_ways),
        is_admin=user.is_admin,
        acts=user.acts,
        risk_is_high=user.risk,
        address=user.address,
        used_at=None if user.used_at is None else at(user.used_at),
        factor_at_device=None if user.trusted_at is None else at(user.trusted_at),
    )


def sign_in(user: User, now: int, methods: frozenset[str] | None = None, *, with_second: bool = False) -> None:
    """Sign in as the platform asks, by the first method here that the account has. The account's own second factor is asked, too."""
    ways = [way for way in ("passkey", *sorted(user.first_ways)) if way != "passkey" or user.has_passkey]
    way = next(way for way in ways if methods is None or way in methods)
    needs_code = way != "passkey" and user.has_totp and (with_second or user.trusted_at is None)
    user.proofs = [(way, now), *([("totp", now)] if needs_code else [])]


def enroll(user: User, now: int, decision: Decision) -> None:
    """Set up the factors that a decision asks for: a passkey only where nothing else is enough."""
    methods = decision.methods or frozenset(METHODS)
    needs_passkey = decision.required is Strength.PHISHING_RESISTANT or methods.isdisjoint({"password", "email"})
    if needs_passkey or (decision.required is Strength.TWO and "totp" not in methods):
        user.has_passkey = True
        user.proofs = [user.proofs[0], ("passkey", now)]
        return
    if methods.isdisjoint(user.first_ways):
        user.first_ways |= {"password"}
    if decision.required is Strength.TWO and not user.has_totp:
        user.has_totp = True
        user.proofs = [user.proofs[0], ("totp", now)]


def require_agreement(documents: list[Policy], user: User, now: int) -> None:
    """Check the decision against the reference."""
    policy, case = to_policy(documents), (documents, user, now)
    decision = decide(policy, to_facts(user, now))
    outcome, rule_ = reference.answer(documents, user, now)
    assert decision.outcome.value == outcome, case
    rules = [reference.in_force(document, now) for document in documents]
    assert strictest(policy, is_admin=user.is_admin, now=at(now)) == reference.needed(rules, replace(user, risk=False)), case
    if outcome == "allowed":
        due = reference.due(documents, user, now)
        assert decision.due_at == (None if due is None else at(due)), case
        return
    assert decision.rule == rule_, case
    assert decision.required in (Strength.NONE, reference.needed_in_session(rules, user)), case


class PolicyMachine(RuleBasedStateMachine):
    """An organization, an application, and four users: owner, admin, member, and an end user without a membership."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100 * DAY
        self.documents: list[Policy] = []
        self.users = [
            User(set(ways), is_admin=number < 2, acts=number < 3, proofs=[("email", self.now)]) for number, ways in enumerate(FIRST_WAYS)
        ]

    def one(self, number: int) -> User:
        return self.users[number % len(self.users)]

    @rule(document=DOCUMENTS, of_application=st.booleans())
    def save(self, document: Policy, of_application: bool) -> None:
        """Save rules. A policy that a user cannot meet is refused, and so is a policy that the owner does not meet."""
        number = int(of_application)
        documents = [*self.documents, *([{}] * (number + 1 - len(self.documents)))]
        if of_application:
            document = {name: value for name, value in document.items() if name in {*RULES_OF_APPLICATIONS, "grace_days"}}
        old = documents[number]
        documents[number] = reference.save(document, old, self.now)
        policy = to_policy(documents)
        assert policy is not None
        try:
            require_available(policy, at(self.now), email_is_on=True, has_passkeys=True)
        except MethodsUnavailable:
            return
        if decide(policy, to_facts(self.users[0], self.now)).outcome not in (Outcome.ENROLL, Outcome.REFUSED):
            self.documents = documents

    @rule()
    def drop_policies(self) -> None:
        self.documents = []

    @rule(number=st.integers(0, 3), promoted=st.booleans(), is_member=st.booleans())
    def change_role(self, number: int, promoted: bool, is_member: bool) -> None:
        user = self.one(number)
        user.is_admin, user.acts = promoted and is_member, is_member

    @rule(number=st.integers(0, 3), kind=st.sampled_from(["has_totp", "has_passkey"]), value=st.booleans())
    def change_factor(self, number: int, kind: str, value: bool) -> None:
        setattr(self.one(number), kind, value)

    @rule(number=st.integers(0, 3), risk=st.booleans(), outside=st.booleans(), trusts=st.booleans())
    def sign_in_anew(self, number: int, risk: bool, outside: bool, trusts: bool) -> None:
        user = self.one(number)
        user.risk, user.address = risk, OUTSIDE if outside else INSIDE
        sign_in(user, self.now)
        if trusts and len(user.proofs) > 1:
            user.trusted_at = self.now

    @rule(number=st.integers(0, 3))
    def use_backup_code(self, number: int) -> None:
        self.one(number).proofs = [("password", self.now), ("backup_code", self.now)]

    @rule(number=st.integers(0, 3))
    def recover(self, number: int) -> None:
        self.one(number).proofs = [("owner_recovery", self.now)]

    @rule(number=st.integers(0, 3))
    def use(self, number: int) -> None:
        self.one(number).used_at = self.now

    @rule(minutes=PASSES)
    def wait(self, minutes: int) -> None:
        self.now += minutes

    @invariant()
    def the_reference_agrees(self) -> None:
        for user in self.users:
            require_agreement(self.documents, user, self.now)

    @invariant()
    def everyone_has_a_way_of_three_actions(self) -> None:
        """The actions: sign in, set up what is missing, sign in as the policy asks. Admins are in their network."""
        policy = to_policy(self.documents)
        for user in deepcopy(self.users):
            user.address, user.used_at = INSIDE, self.now
            if any("203.0.113.0/24" not in document.get("admin_networks", NETWORKS) for document in self.documents):
                user.address = "2001:db8::7"
            actions: list[Outcome] = []
            while (decision := decide(policy, to_facts(user, self.now))).outcome is not Outcome.ALLOWED and len(actions) < 4:
                if decision.outcome is Outcome.STEP_UP:
                    sign_in(user, self.now, decision.methods, with_second=decision.required is Strength.TWO)
                elif self.now - reference.signed_in_at([], user, self.now) > FRESH:
                    sign_in(user, self.now)
                else:
                    enroll(user, self.now, decision)
                actions.append(decision.outcome)
            assert len(actions) <= 3, (self.documents, user, actions)


@pytest.mark.slow
def test_sign_in_policies_decide_as_the_reference() -> None:
    steady = settings(max_examples=40, stateful_step_count=30)
    run_state_machine_as_test(PolicyMachine, settings=steady)


@pytest.mark.slow
def test_single_decisions_are_those_of_the_reference() -> None:
    @settings(max_examples=700)
    @given(ALL_SAVED, USERS, MOMENTS)
    @example(
        [{"methods": ["password", "passkey"], "second_factor": ["everyone"]}],
        User({"password"}, proofs=[("password", 0), ("backup_code", 0)]),
        0,
    )
    @example(
        [{"phishing_resistant": ["everyone"], "session_lifetime_minutes": 15}],
        User({"password"}, has_passkey=True, proofs=[("passkey", -5), ("password", 0)]),
        15,
    )
    @example(
        [{"second_factor": ["everyone"], "session_lifetime_minutes": 15}],
        User({"password", "email"}, has_totp=True, proofs=[("password", -600), ("email", 0), ("totp", -600)]),
        0,
    )
    def check(documents: list[Policy], user: User, now: int) -> None:
        require_agreement(documents, user, now)

    check()


@pytest.mark.slow
def test_a_decision_holds_until_its_end() -> None:
    """A pass is the decision about a session that has been used now."""

    @settings(max_examples=150)
    @given(st.one_of(st.lists(TRUSTING, min_size=1, max_size=1), ALL_SAVED), USERS, MOMENTS)
    def check(documents: list[Policy], user: User, now: int) -> None:
        policy, user = to_policy(documents), replace(user, used_at=now)
        assert policy is not None
        decision = decide(policy, to_facts(user, now))
        if decision.outcome is not Outcome.ALLOWED:
            return
        starts = [(due - at(now)) // timedelta(minutes=1) for due in policy.due_dates(at(now))]
        for minutes in [1, 4, 5, 6, 14, 60, DAY // 2, DAY, 13 * DAY, 14 * DAY, *starts]:
            if decision.valid_until is None or at(now + minutes) < decision.valid_until:
                assert decide(policy, to_facts(user, now + minutes)).outcome is Outcome.ALLOWED, (documents, user, now, minutes)

    check()


@pytest.mark.slow
def test_rules_start_as_in_the_reference() -> None:
    @settings(max_examples=100)
    @given(st.lists(st.tuples(DOCUMENTS, st.sampled_from([0, DAY, 14 * DAY])), min_size=2, max_size=3))
    def check(saves: list[tuple[Policy, int]]) -> None:
        document, rules, now = Policy(), Rules(), 0
        for new, pause in saves:
            now += pause
            document, rules = reference.save(new, document, now), Rules.parse(new).with_due_dates(rules, at(now))
            policy = to_policy([document])
            assert policy is not None
            assert rules == policy.parts[0].rules, saves

    check()


@pytest.mark.slow
def test_two_policies_together_allow_what_each_allows_alone() -> None:
    """Their order does not matter, and together they never allow more, nor for longer.

    So a single pass serves both policies (SP-9).
    """

    @settings(max_examples=120)
    @given(OF_APPLICATION, OF_APPLICATION, USERS, MOMENTS)
    def check(one: Policy, other: Policy, user: User, now: int) -> None:
        facts = to_facts(user, now)
        both = decide(to_policy([one, other]), facts)
        assert both.outcome is decide(to_policy([other, one]), facts).outcome
        if both.outcome is Outcome.ALLOWED:
            for alone in (decide(to_policy([one]), facts), decide(to_policy([other]), facts)):
                assert alone.outcome is Outcome.ALLOWED
                assert alone.valid_until is None or (both.valid_until is not None and both.valid_until <= alone.valid_until)

    check()
