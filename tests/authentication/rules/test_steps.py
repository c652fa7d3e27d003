"""The steps in a sign-in: the table in docs/specification/sign-in.md, and what holds for all facts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.kernel.callers import BrowserSession
from core.kernel.errors import Refusal
from core.kernel.proofs import Factor, FactorKind, Method, Proof, Proofs, Strength, complete, covers, first_proof, strength_of
from core.kernel.sign_in_policy.decision import Decision, Outcome
from core.kernel.sign_in_policy.steps import CLOCK_LEEWAY, FRESH_TTL, Ask, Consents, Facts, Needs, Refuse, Start, Step, next_step

NOW, MINUTE, HOUR = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC), timedelta(minutes=1), timedelta(hours=1)
BEGUN_AT = NOW - 10 * MINUTE
EARLIER, LATER = NOW - 30 * MINUTE, NOW - 5 * MINUTE
FIRST, NEXT, USER, OTHER = (UUID(int=number) for number in range(1, 5))
ONE, TWO, PHISHING_RESISTANT = Strength.ONE, Strength.TWO, Strength.PHISHING_RESISTANT
COVERED, FIRST_TIME, SCOPES = Consents
PAGES = {Step.SIGN_IN, Step.SIGN_UP, Step.SECOND_FACTOR, Step.ENROLL, Step.CONFIRM, Step.CONSENT, Step.SELECT}
ASKS_FOR_PROOF = {Step.SIGN_IN, Step.SIGN_UP, Step.LOGIN_REQUIRED}

PASSWORD = (Factor(FactorKind.PASSWORD), Factor(FactorKind.MAILBOX, EARLIER))
APP = (*PASSWORD, Factor(FactorKind.TOTP, EARLIER))
PASSKEY = (*PASSWORD, Factor(FactorKind.PASSKEY))
BY_PASSKEY = (Proof(Method.PASSKEY, EARLIER, user_verified=True, phishing_resistant=True),)


def one(at: datetime) -> Proofs:
    return (first_proof("password", at),)


def two(at: datetime) -> Proofs:
    return complete(first_proof("password", at), Proof(Method.TOTP, at))


def at_provider(at: datetime) -> Proofs:
    """Return the user's proofs that the identity provider may have known from earlier."""
    return (first_proof("websuite", at, is_fresh=False),)


# A browser's states. A flow began ten minutes ago, in a browser without a session or with the session FIRST.
NO_FLOW = Facts(needs=Needs(), now=NOW)
NO_SESSION = replace(NO_FLOW, begun_at=BEGUN_AT)
PROVED = replace(NO_SESSION, proofs=one(NOW), user_id=USER, factors=PASSWORD)
PROVED_ONE_OF_TWO = replace(PROVED, factors=APP)
TRUSTED = replace(PROVED_ONE_OF_TWO, is_trusted=True)
PROVED_TWO = replace(PROVED_ONE_OF_TWO, proofs=two(NOW))


def session(proofs: Proofs, factors: tuple[Factor, ...] = PASSWORD, session_id: UUID = NEXT) -> Facts:
    browser = BrowserSession(id=session_id, device_id=None, proofs=proofs)
    return replace(NO_SESSION, first_session_id=FIRST, session=browser, user_id=USER, factors=factors)


OLD = session(one(EARLIER), session_id=FIRST)
OLD_TRUSTED = session(one(EARLIER), APP, session_id=FIRST)
OLD_TWO = session(two(EARLIER), APP, session_id=FIRST)
OLD_AT_PROVIDER = session(at_provider(EARLIER), session_id=FIRST)
FRESH = session(one(LATER))
FRESH_TRUSTED = session(one(LATER), APP)
FRESH_TWO = session(two(LATER), APP)
MAY_USE = replace(OLD, agreement=COVERED)
UNKNOWN_THERE = replace(OLD, agreement=FIRST_TIME)
NEW_SCOPES = replace(OLD, agreement=SCOPES)
STEP_UP, ENROLL, REFUSED = ({"verdict": verdict} for verdict in (Ask(Step.SIGN_IN), Ask(Step.ENROLL), Refuse(Refusal())))
DUE = {"verdict": Start(Decision(outcome=Outcome.ALLOWED, due_at=NOW + HOUR))}
AGREED, SELECTED = {"has_agreed": True}, {"has_selected": True}


def asks(state: Facts, facts: dict[str, Any] | None = None, /, **needs: Any) -> Facts:
    """Return this state with these needs."""
    return replace(state, needs=Needs(**needs), **(facts or {}))


TABLE: dict[str, list[tuple[Facts, Step]]] = {
    "Proofs that started no session yet": [
        (PROVED, Step.START_SESSION),
        (PROVED_ONE_OF_TWO, Step.SECOND_FACTOR),
        (TRUSTED, Step.START_SESSION),
        (asks(TRUSTED, keeps_trust=False), Step.SECOND_FACTOR),
        (PROVED_TWO, Step.START_SESSION),
        (asks(PROVED_TWO, keeps_trust=False), Step.START_SESSION),
        # The account has no second factor: the new session is refused as too weak.
        (asks(PROVED, required=TWO), Step.START_SESSION),
        (asks(PROVED_ONE_OF_TWO, required=TWO), Step.SECOND_FACTOR),
        (asks(TRUSTED, required=TWO), Step.START_SESSION),
        (asks(PROVED_TWO, required=TWO), Step.START_SESSION),
        (asks(PROVED_TWO, required=Strength.PHISHING_RESISTANT), Step.START_SESSION),
        # Proofs come before the target's other needs.
        (asks(PROVED, sign_up=True, subject=OTHER, fresh=True), Step.START_SESSION),
        (replace(OLD, proofs=one(NOW)), Step.START_SESSION),
    ],
    "Sign-up": [
        (asks(NO_FLOW, sign_up=True), Step.SIGN_UP),
        (asks(NO_SESSION, sign_up=True), Step.SIGN_UP),
        (asks(OLD, sign_up=True), Step.SIGN_UP),
        (asks(OLD, {"begun_at": None, "first_session_id": None}, sign_up=True), Step.SIGN_UP),
        (asks(FRESH, sign_up=True), Step.CHECK_ACCESS),
        # A sign-up link works for longer than a sign-in is fresh.
        (asks(FRESH, {"now": NOW + 5 * HOUR}, sign_up=True), Step.CHECK_ACCESS),
    ],
    "No session": [
        (NO_FLOW, Step.SIGN_IN),
        (NO_SESSION, Step.SIGN_IN),
        (asks(NO_FLOW, is_silent=True), Step.LOGIN_REQUIRED),
        (asks(NO_SESSION, subject=USER, required=TWO, select=True, consent=True), Step.SIGN_IN),
    ],
    "Session of another user": [
        (asks(OLD, subject=USER), Step.CHECK_ACCESS),
        (asks(OLD, subject=OTHER), Step.SIGN_IN),
        (asks(OLD, subject=OTHER, is_silent=True), Step.LOGIN_REQUIRED),
        (asks(FRESH, subject=OTHER), Step.OTHER_USER),
        (asks(FRESH, subject=OTHER, is_silent=True), Step.OTHER_USER),
        (asks(FRESH, subject=OTHER, required=TWO), Step.OTHER_USER),
        (asks(FRESH_TRUSTED, subject=OTHER, keeps_trust=False), Step.SIGN_IN),
    ],
    "Session that is too weak": [
        (asks(OLD_TWO, required=TWO), Step.CHECK_ACCESS),
        (asks(OLD, required=TWO), Step.SIGN_IN),
        (asks(OLD_TRUSTED, required=TWO), Step.SIGN_IN),
        (asks(OLD, required=TWO, is_silent=True), Step.LOGIN_REQUIRED),
        (asks(FRESH, required=TWO), Step.TOO_WEAK),
        (asks(FRESH, required=TWO, is_silent=True), Step.TOO_WEAK),
        (asks(FRESH, {"reachable": Strength.PHISHING_RESISTANT}, required=TWO), Step.SIGN_IN),
        (asks(FRESH_TWO, {"reachable": TWO}, required=Strength.PHISHING_RESISTANT), Step.TOO_WEAK),
        # The device was trusted, but this target asks for the second factor.
        (asks(FRESH_TRUSTED, required=TWO, keeps_trust=False), Step.SIGN_IN),
        (asks(FRESH_TWO, required=TWO, keeps_trust=False), Step.CHECK_ACCESS),
    ],
    "Session that does not meet the sign-in policy": [
        (asks(OLD, STEP_UP), Step.SIGN_IN),
        (asks(OLD, STEP_UP, is_silent=True), Step.LOGIN_REQUIRED),
        (asks(OLD_TRUSTED, STEP_UP), Step.SIGN_IN),
        # A trusted device skipped the second factor, and the policy does not count it.
        (asks(FRESH_TRUSTED, STEP_UP), Step.SIGN_IN),
        (asks(FRESH, STEP_UP), Step.SIGN_IN),
        (asks(OLD, ENROLL), Step.ENROLL),
        (asks(FRESH, ENROLL), Step.ENROLL),
        (asks(OLD, ENROLL, is_silent=True), Step.TOO_WEAK),
        (asks(OLD, REFUSED), Step.TOO_WEAK),
        (asks(FRESH, {**REFUSED, "agreement": COVERED}), Step.TOO_WEAK),
        (asks(OLD, REFUSED, is_silent=True), Step.TOO_WEAK),
        (asks(OLD, DUE), Step.ENROLL),
        (asks(OLD, {**DUE, "is_reminded": True}), Step.CHECK_ACCESS),
        (asks(OLD, DUE, is_silent=True), Step.CHECK_ACCESS),
        # The request's needs come first: another user, and a strength that the session lacks.
        (asks(OLD, ENROLL, subject=OTHER), Step.SIGN_IN),
        (asks(FRESH, STEP_UP, subject=OTHER), Step.OTHER_USER),
        (asks(OLD, ENROLL, required=TWO), Step.SIGN_IN),
        # The policy comes before the access, and before the age that the request asks for.
        (asks(OLD, {**ENROLL, "agreement": COVERED}), Step.ENROLL),
        (asks(OLD, ENROLL, fresh=True), Step.ENROLL),
        # It asks for no proofs, and for nothing without a session.
        (asks(PROVED, STEP_UP), Step.START_SESSION),
        (asks(NO_SESSION, ENROLL), Step.SIGN_IN),
    ],
    "Fresh sign-in": [
        (asks(OLD, fresh=True), Step.SIGN_IN),
        (asks(OLD_TWO, fresh=True), Step.SIGN_IN),
        (asks(OLD, fresh=True, is_silent=True), Step.LOGIN_REQUIRED),
        (asks(FRESH, fresh=True), Step.CHECK_ACCESS),
        (asks(FRESH, fresh=True, is_silent=True), Step.CHECK_ACCESS),
        (asks(FRESH, fresh=True, max_age=MINUTE, wished=TWO), Step.CHECK_ACCESS),
        # Nothing was asked yet.
        (asks(FRESH, {"begun_at": None}, fresh=True), Step.SIGN_IN),
        # The browser had this session when the flow began.
        (asks(session(one(LATER), session_id=FIRST), fresh=True), Step.SIGN_IN),
        # Two processes have different clocks.
        (asks(session(one(BEGUN_AT - CLOCK_LEEWAY)), fresh=True), Step.CHECK_ACCESS),
        (asks(session(one(BEGUN_AT - 2 * CLOCK_LEEWAY)), fresh=True), Step.SIGN_IN),
        # A tab that was left open.
        (asks(FRESH, {"now": LATER + FRESH_TTL}, fresh=True), Step.CHECK_ACCESS),
        (asks(FRESH, {"now": LATER + FRESH_TTL + MINUTE}, fresh=True), Step.SIGN_IN),
        (asks(session(at_provider(LATER)), fresh=True), Step.SIGN_IN),
        (asks(session(complete(at_provider(LATER)[0], Proof(Method.TOTP, LATER)), APP), fresh=True), Step.CHECK_ACCESS),
        (asks(FRESH_TRUSTED, fresh=True), Step.CHECK_ACCESS),
        (asks(FRESH_TRUSTED, fresh=True, keeps_trust=False), Step.SIGN_IN),
        (asks(FRESH_TWO, fresh=True, keeps_trust=False), Step.CHECK_ACCESS),
    ],
    "Age of the session": [
        (asks(OLD, max_age=30 * MINUTE), Step.CHECK_ACCESS),
        (asks(OLD, max_age=29 * MINUTE), Step.SIGN_IN),
        (asks(OLD, max_age=29 * MINUTE, is_silent=True), Step.LOGIN_REQUIRED),
        (asks(OLD_AT_PROVIDER, max_age=HOUR), Step.SIGN_IN),
        (asks(OLD_TRUSTED, max_age=HOUR), Step.SIGN_IN),
        (asks(OLD_TWO, max_age=HOUR), Step.CHECK_ACCESS),
    ],
    "Wished second factor": [
        (asks(OLD, wished=TWO), Step.CHECK_ACCESS),
        (asks(OLD_TWO, wished=TWO), Step.CHECK_ACCESS),
        (asks(OLD_TRUSTED, wished=TWO), Step.SIGN_IN),
        (asks(OLD_TRUSTED, wished=TWO, is_silent=True), Step.CHECK_ACCESS),
        (asks(FRESH_TRUSTED, wished=TWO, keeps_trust=False), Step.SIGN_IN),
        *((asks(session(one(EARLIER), PASSKEY, FIRST), wished=strength), Step.SIGN_IN) for strength in (TWO, PHISHING_RESISTANT)),
        (asks(session(two(EARLIER), (*APP, *PASSKEY), FIRST), wished=PHISHING_RESISTANT), Step.SIGN_IN),
        (asks(session(BY_PASSKEY, PASSKEY, FIRST), wished=PHISHING_RESISTANT), Step.CHECK_ACCESS),
        (asks(session(one(LATER), PASSKEY), wished=PHISHING_RESISTANT, keeps_trust=False), Step.CHECK_ACCESS),
        (asks(OLD_TWO, wished=PHISHING_RESISTANT), Step.CHECK_ACCESS),
    ],
    "Consents": [
        (OLD, Step.CHECK_ACCESS),
        (OLD_TRUSTED, Step.CHECK_ACCESS),
        (OLD_AT_PROVIDER, Step.CHECK_ACCESS),
        (MAY_USE, Step.DONE),
        (asks(MAY_USE, is_silent=True), Step.DONE),
        (UNKNOWN_THERE, Step.CONFIRM),
        (asks(UNKNOWN_THERE, AGREED), Step.DONE),
        (asks(UNKNOWN_THERE, SELECTED, select=True), Step.CONFIRM),
        (asks(UNKNOWN_THERE, is_silent=True), Step.CONSENT_REQUIRED),
        (asks(UNKNOWN_THERE, consent=True), Step.CONFIRM),
        (NEW_SCOPES, Step.CONSENT),
        (asks(NEW_SCOPES, AGREED), Step.DONE),
        (asks(NEW_SCOPES, SELECTED, select=True), Step.CONSENT),
        (asks(NEW_SCOPES, is_silent=True), Step.CONSENT_REQUIRED),
        (asks(NEW_SCOPES, AGREED, is_silent=True), Step.CONSENT_REQUIRED),
        (asks(MAY_USE, consent=True), Step.CONSENT),
        (asks(MAY_USE, AGREED, consent=True), Step.DONE),
        (asks(MAY_USE, consent=True, is_silent=True), Step.CONSENT_REQUIRED),
    ],
    "Choice of the account": [
        (asks(MAY_USE, select=True), Step.SELECT),
        (asks(MAY_USE, SELECTED, select=True), Step.DONE),
        (asks(MAY_USE, AGREED, select=True), Step.DONE),
        (asks(NEW_SCOPES, select=True), Step.CONSENT),
        (asks(FRESH, {"agreement": COVERED}, select=True), Step.DONE),
    ],
}


def test_each_row_of_the_table_leads_to_its_step() -> None:
    wrong = [
        (title, facts, expected, step)
        for title, rows in TABLE.items()
        for facts, expected in rows
        if (step := next_step(facts)) is not expected
    ]
    assert wrong == []


def test_the_table_has_each_step() -> None:
    assert {step for rows in TABLE.values() for _, step in rows} == set(Step)


# Any facts. The parser refuses prompt=none beside other prompts. A silent request shows no page, so it has no
# proofs.

REPEATABLE = settings(max_examples=100)
RARELY = st.sampled_from([False, False, False, True])
STRENGTHS = st.sampled_from([ONE, ONE, ONE, TWO, Strength.PHISHING_RESISTANT])
TIMES = st.sampled_from([NOW, LATER, BEGUN_AT, BEGUN_AT - CLOCK_LEEWAY, EARLIER, NOW - 2 * HOUR])
PROOFS = st.one_of(st.builds(one, TIMES), st.builds(two, TIMES), st.builds(at_provider, TIMES))
NEEDS = st.builds(
    Needs,
    is_silent=st.booleans(),
    sign_up=RARELY,
    subject=st.sampled_from([None, USER, USER, OTHER]),
    fresh=RARELY,
    max_age=st.sampled_from([None, MINUTE, HOUR]),
    required=STRENGTHS,
    wished=STRENGTHS,
    select=st.booleans(),
    consent=st.booleans(),
    keeps_trust=st.booleans(),
).filter(lambda needs: not (needs.is_silent and (needs.sign_up or needs.select)))
FACTS = st.builds(
    Facts,
    needs=NEEDS,
    now=st.just(NOW),
    begun_at=st.sampled_from([None, BEGUN_AT, NOW - 3 * HOUR]),
    first_session_id=st.sampled_from([None, FIRST, NEXT]),
    proofs=st.one_of(st.just(()), PROOFS),
    is_trusted=st.booleans(),
    session=st.one_of(st.none(), st.builds(BrowserSession, st.sampled_from([FIRST, NEXT]), st.none(), PROOFS)),
    user_id=st.just(USER),
    factors=st.sampled_from([PASSWORD, APP]),
    agreement=st.sampled_from([None, *Consents]),
    has_agreed=st.booleans(),
    has_selected=st.booleans(),
).filter(lambda facts: not (facts.needs.is_silent and facts.proofs))
UNPROVED = FACTS.map(lambda facts: replace(facts, proofs=()))
SIGNED_IN = UNPROVED.filter(lambda facts: facts.session is not None)


@pytest.mark.slow
@REPEATABLE
@given(FACTS)
def test_a_silent_request_never_shows_a_page(facts: Facts) -> None:
    if facts.needs.is_silent:
        assert next_step(facts) not in PAGES


@pytest.mark.slow
@REPEATABLE
@given(FACTS, st.sampled_from([{}, STEP_UP, ENROLL, REFUSED, DUE]))
def test_a_silent_request_shows_no_page_of_a_sign_in_policy(facts: Facts, verdict: dict[str, Any]) -> None:
    facts = replace(facts, needs=replace(facts.needs, is_silent=True), proofs=(), **verdict)
    assert facts.needs.sign_up or facts.needs.select or next_step(facts) not in PAGES


@pytest.mark.slow
@REPEATABLE
@given(FACTS)
def test_only_a_silent_request_is_refused_for_a_page(facts: Facts) -> None:
    if next_step(facts) in {Step.LOGIN_REQUIRED, Step.CONSENT_REQUIRED}:
        assert facts.needs.is_silent


@pytest.mark.slow
@REPEATABLE
@given(SIGNED_IN)
def test_the_session_of_the_beginning_is_never_fresh(facts: Facts) -> None:
    assert facts.session is not None
    facts = replace(facts, first_session_id=facts.session.id, needs=replace(facts.needs, fresh=True))
    assert not facts.is_fresh
    assert next_step(facts) in ASKS_FOR_PROOF


@pytest.mark.slow
@REPEATABLE
@given(SIGNED_IN)
def test_a_session_is_not_fresh_before_anything_was_asked(facts: Facts) -> None:
    assert not replace(facts, begun_at=None).is_fresh


@pytest.mark.slow
@REPEATABLE
@given(SIGNED_IN)
def test_without_needs_any_session_is_enough(facts: Facts) -> None:
    facts = replace(facts, needs=Needs(), agreement=None)
    assert next_step(facts) is Step.CHECK_ACCESS
    assert next_step(replace(facts, agreement=COVERED)) is Step.DONE


@pytest.mark.slow
@REPEATABLE
@given(FACTS)
def test_the_second_factor_is_asked_exactly_when_the_proofs_lack_it_and_no_trusted_device_counts(facts: Facts) -> None:
    lacks_it = bool(facts.proofs) and not covers(facts.proofs, facts.factors)
    skips_it = facts.is_trusted and facts.needs.keeps_trust
    assert (next_step(facts) is Step.SECOND_FACTOR) == (lacks_it and not skips_it)


@pytest.mark.slow
@REPEATABLE
@given(FACTS)
def test_a_session_starts_only_from_proofs(facts: Facts) -> None:
    assert (next_step(facts) in {Step.SECOND_FACTOR, Step.START_SESSION}) == bool(facts.proofs)


@pytest.mark.slow
@REPEATABLE
@given(SIGNED_IN)
def test_a_fresh_sign_in_is_never_asked_for_again(facts: Facts) -> None:
    if facts.is_fresh:
        assert next_step(facts) not in ASKS_FOR_PROOF


@pytest.mark.slow
@REPEATABLE
@given(FACTS)
def test_a_sign_in_is_refused_only_when_it_is_fresh(facts: Facts) -> None:
    if next_step(facts) in {Step.OTHER_USER, Step.TOO_WEAK}:
        assert facts.is_fresh


@pytest.mark.slow
@REPEATABLE
@given(SIGNED_IN, st.sampled_from(Consents))
def test_the_end_meets_all_needs(facts: Facts, agreement: Consents) -> None:
    facts = replace(facts, agreement=agreement)
    if next_step(facts) is not Step.DONE:
        return
    needs = facts.needs
    assert facts.session is not None
    assert needs.subject in (None, facts.user_id)
    assert strength_of(facts.seen) >= needs.required
    assert facts.is_fresh or not needs.fresh
    assert facts.session.id != facts.first_session_id or not needs.sign_up
    assert facts.has_agreed or agreement is COVERED
    assert facts.has_agreed or not needs.consent
    assert facts.has_agreed or facts.has_selected or facts.is_fresh or not needs.select


@pytest.mark.slow
@REPEATABLE
@given(UNPROVED)
def test_access_is_checked_only_for_a_session_that_is_enough(facts: Facts) -> None:
    step = next_step(replace(facts, agreement=None))
    if step is not Step.CHECK_ACCESS:
        assert {next_step(replace(facts, agreement=agreement)) for agreement in Consents} == {step}


@pytest.mark.slow
@REPEATABLE
@given(SIGNED_IN)
def test_an_answer_leads_past_no_other_page(facts: Facts) -> None:
    without = next_step(replace(facts, has_agreed=False, has_selected=False))
    if without not in {Step.CONFIRM, Step.CONSENT, Step.SELECT}:
        assert next_step(facts) is without
