"""The rule for a required connection, for all kinds of users and sessions."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final
from uuid import UUID

from core.kernel.connections import ConnectionFacts, RequiredConnection
from core.kernel.proofs import Factor, FactorKind, Method, Proof, Proofs, complete, first_proof
from core.kernel.sign_in_policy.decision import Outcome, PolicyFacts, decide
from core.kernel.sign_in_policy.rules import Concerned, EffectivePolicy, PolicyPart, Rule, Rules
from core.kernel.values import Domain
from tests.support.rows import NOW

OKTA, ENTRA = RequiredConnection(UUID(int=1), "okta"), RequiredConnection(UUID(int=2), "entra")
RULES: Final = Rules(required_connections={Domain("acme.com"): OKTA, Domain("eu.acme.com"): ENTRA})
ORG: Final = UUID(int=9)

PASSWORD: Final = (first_proof("password", NOW),)
SOCIAL: Final = (first_proof("websuite", NOW),)
PASSKEY: Final = (Proof(Method.PASSKEY, NOW, user_verified=True, phishing_resistant=True),)
TWO_FACTORS: Final = complete(PASSWORD[0], Proof(Method.TOTP, NOW))


def _through(connection: RequiredConnection) -> Proofs:
    return (Proof(Method.CONNECTION, NOW, connection=connection.id, org=ORG),)


def _facts(proofs: Proofs, **changes: object) -> PolicyFacts:
    facts = PolicyFacts(
        now=NOW,
        proofs=proofs,
        factors=[Factor(FactorKind.PASSWORD), Factor(FactorKind.PASSKEY)],
        first_ways=frozenset({"password", "provider:websuite"}),
        is_admin=True,
        connections=ConnectionFacts(Domain("acme.com")),
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


# The outcome, its rule, the connection that it names, and whether the user may come without it
Decided = tuple[Outcome, Rule | None, str | None, bool]


def _decide(proofs: Proofs, rules: Rules = RULES, *of_application: Rules, **changes: object) -> Decided:
    policy = EffectivePolicy(ORG, 1, (PolicyPart("Acme", rules), *(PolicyPart("Shop", each) for each in of_application)))
    decision = decide(policy, _facts(proofs, **changes))
    slug = None if decision.connection is None else decision.connection.slug
    return decision.outcome, decision.rule, slug, decision.breaks_glass


ALLOWED: Final = (Outcome.ALLOWED, None, None, False)
TO_OKTA: Final = (Outcome.STEP_UP, Rule.CONNECTION, "okta", False)
TO_ENTRA: Final = (Outcome.STEP_UP, Rule.CONNECTION, "entra", False)
BROKEN: Final = (Outcome.ALLOWED, None, "okta", True)


def test_only_the_required_connection_opens_the_organization() -> None:
    for proofs in (PASSWORD, SOCIAL, PASSKEY, TWO_FACTORS, _through(ENTRA), (*PASSKEY, *_through(ENTRA)), ()):
        assert _decide(proofs) == TO_OKTA, proofs
    for proofs in (_through(OKTA), (*PASSWORD, *_through(OKTA))):
        assert _decide(proofs) == ALLOWED, proofs


def test_the_domain_of_the_address_or_the_knowing_connection_decides() -> None:
    users: Mapping[ConnectionFacts, object] = {
        ConnectionFacts(Domain("acme.com")): TO_OKTA,
        ConnectionFacts(Domain("eu.acme.com")): TO_ENTRA,
        ConnectionFacts(Domain("other.acme.com")): ALLOWED,
        ConnectionFacts(): ALLOWED,
        ConnectionFacts(known_at=frozenset({OKTA.id})): TO_OKTA,
        ConnectionFacts(Domain("eu.acme.com"), frozenset({OKTA.id})): TO_ENTRA,
        ConnectionFacts(known_at=frozenset({UUID(int=3)})): ALLOWED,
    }
    assert {user: _decide(PASSWORD, connections=user) for user in users} == users
    known_at_both = ConnectionFacts(known_at=frozenset({OKTA.id, ENTRA.id}))
    assert _decide(_through(ENTRA), connections=known_at_both) == ALLOWED


def test_the_connection_of_an_application_takes_the_place_of_that_of_the_organization() -> None:
    of_shop = Rules(required_connection=ENTRA)
    assert _decide(_through(OKTA), RULES, of_shop) == TO_ENTRA
    assert _decide(_through(ENTRA), RULES, of_shop) == ALLOWED
    assert _decide(PASSWORD, Rules(), of_shop, connections=ConnectionFacts()) == TO_ENTRA


def test_listed_users_come_by_proofs_of_their_own_that_meet_the_other_rules() -> None:
    for proofs in (PASSWORD, TWO_FACTORS, PASSKEY, (*PASSKEY, *SOCIAL), (*PASSWORD, *_through(ENTRA))):
        assert _decide(proofs, may_break_glass=True) == BROKEN, proofs
    for proofs in (SOCIAL, _through(ENTRA), ()):
        assert _decide(proofs, may_break_glass=True) == (*TO_OKTA[:3], True), proofs
    assert _decide(_through(OKTA), may_break_glass=True) == ALLOWED, "this is no use of it"
    strict = replace(RULES, phishing_resistant=frozenset({Concerned.ADMINS}))
    assert _decide(PASSKEY, strict, may_break_glass=True) == BROKEN
    weak = (Outcome.STEP_UP, Rule.PHISHING_RESISTANT, "okta", True)
    assert _decide(TWO_FACTORS, strict, may_break_glass=True) == weak
    strong_social = (*SOCIAL, replace(PASSKEY[0], user_verified=False))
    assert _decide(strong_social, RULES, may_break_glass=True) == (*TO_OKTA[:3], True), "a provider is no factor of the account's own"
    old = tuple(replace(proof, at=NOW - timedelta(hours=2)) for proof in PASSKEY)
    short = replace(RULES, session_lifetime=timedelta(hours=1))
    assert _decide(old, short, may_break_glass=True)[:2] == (Outcome.STEP_UP, Rule.SESSION_LIFETIME)


def test_the_required_connection_counts_where_the_methods_leave_it_out() -> None:
    assert _decide(_through(OKTA), replace(RULES, methods=frozenset({"password"}))) == ALLOWED


def test_a_connection_is_asked_for_a_fresh_sign_in_when_the_present_one_is_too_old() -> None:
    """A platform provider that cannot ask again is the only way in for some accounts."""
    rules = Rules(session_lifetime=timedelta(hours=1))
    policy = EffectivePolicy(ORG, 1, (PolicyPart("Acme", rules),))
    old = tuple(replace(proof, at=NOW - timedelta(hours=2)) for proof in _through(OKTA))
    wanted = {
        ways: decide(policy, _facts(old, first_ways=frozenset({ways}))).wants_fresh
        for ways in ("connection", "password", "provider:codehost")
    }
    assert wanted == {"connection": True, "password": True, "provider:codehost": False}
    assert not decide(policy, _facts(_through(OKTA), first_ways=frozenset({"connection"}))).wants_fresh


def _ago(hours: int, *proofs: Proof) -> Proofs:
    return tuple(replace(proof, at=NOW - timedelta(hours=hours)) for proof in proofs)


def test_the_required_connection_alone_renews_a_session() -> None:
    """The required connection is the only first factor, so older second factors do not count beside it either."""
    rules = replace(RULES, session_lifetime=timedelta(hours=1))
    okta = _through(OKTA)
    too_old = (Outcome.STEP_UP, Rule.SESSION_LIFETIME, "okta", False)
    for own in (PASSWORD, TWO_FACTORS, PASSKEY, SOCIAL):
        assert _decide((*_ago(2, *okta), *own), rules) == too_old, own
        assert _decide((*_ago(2, *own), *okta), rules) == ALLOWED, own
        idle = replace(RULES, session_idle=timedelta(hours=1))
        assert _decide((*_ago(2, *okta), *own), idle) == (Outcome.STEP_UP, Rule.SESSION_IDLE, "okta", False), own
        assert _decide((*_ago(2, *okta), *own), idle, used_at=NOW) == ALLOWED, own
    strict = replace(rules, second_factor=frozenset({Concerned.EVERYONE}))
    factors = [Factor(FactorKind.PASSWORD), Factor(FactorKind.TOTP), Factor(FactorKind.PASSKEY)]
    lacks_code = (Outcome.STEP_UP, Rule.SECOND_FACTOR, "okta", False)
    assert _decide((*_ago(2, *TWO_FACTORS), *okta), strict, factors=factors) == lacks_code
    assert _decide((*_ago(2, PASSKEY[0]), *okta), strict, factors=factors) == lacks_code
    assert _decide((*okta, TWO_FACTORS[1]), strict, factors=factors) == ALLOWED
    assert _decide((*okta, *PASSKEY), strict, factors=factors) == ALLOWED


def test_listed_users_renew_a_session_by_proofs_of_their_own() -> None:
    """Break glass is for times when the connection is down."""
    rules = replace(RULES, session_lifetime=timedelta(hours=1))
    for own in (PASSWORD, PASSKEY):
        assert _decide((*_ago(2, *_through(OKTA)), *own), rules, may_break_glass=True) == BROKEN, own
    old = (*_ago(2, *_through(OKTA)), *_ago(2, *PASSWORD))
    assert _decide(old, rules, may_break_glass=True) == (Outcome.STEP_UP, Rule.SESSION_LIFETIME, "okta", True)
    assert _decide(_ago(2, *_through(OKTA)), rules, may_break_glass=True) == (Outcome.STEP_UP, Rule.SESSION_LIFETIME, "okta", False)
