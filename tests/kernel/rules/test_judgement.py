"""The judgement's rows, in their order (docs/specification/sign-in.md#the-judgement)."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from core.applications.model.users import NoAccessToService
from core.kernel.access import (
    AccountClosed,
    AccountDeleted,
    AddressNotVerified,
    ApplicationTokens,
    NotAPlatformOwner,
    NotForApplications,
    NotWhileImpersonating,
    NotWithOpenId,
    OtherUserPresent,
    OwnProofNeeded,
    Requirement,
    Restricted,
)
from core.kernel.callers import (
    ConnectionSignIn,
    Member,
    OrganizationContext,
    OrganizationStatus,
    Person,
    ServiceContext,
    to_member,
)
from core.kernel.judgement import Act, PolicyPath, SignInFacts, judge
from core.kernel.policy import Policy
from core.kernel.proofs import Factor, FactorKind, Method, Proof, Strength, first_proof
from core.kernel.roles import ADMIN, rights_of
from core.kernel.sign_in_age import LastSignIn, SignInAge, SignInNotRecent
from core.kernel.sign_in_policy.decision import Outcome
from core.kernel.sign_in_policy.explanations import PolicyRefused, SignInNotAccepted, TokenBelowPolicy
from core.kernel.sign_in_policy.rules import EffectivePolicy, PolicyPart, Rules
from core.kernel.sign_in_policy.steps import Ask, Refuse, Start, Step, step_up_to
from core.kernel.values import Email
from tests.tables import table

NOW: Final = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)
USER, ACME, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
PASSWORD, CODE = first_proof("password", NOW), Proof(Method.TOTP, NOW)
APP: Final = (Factor(FactorKind.PASSWORD), Factor(FactorKind.TOTP))
BARE: Final = SignInFacts(now=NOW, settings=Policy(), user_id=USER, proofs=(PASSWORD,), first_ways=frozenset({"password"}))
# A user with an authenticator app, who has shown the password only
HALF: Final = replace(BARE, factors=APP, factors_here=APP)
SHOP: Final = ServiceContext(
    id=UUID(int=4),
    slug="shop",
    client_id=UUID(int=5),
    is_public=False,
    org_id=ACME,
    org_slug="acme",
    status=OrganizationStatus.ACTIVE,
)
SIGN_IN: Final = LastSignIn(NOW, is_proof=True, strength=Strength.ONE, required=Strength.ONE)
ADA: Final = Person(user_id=USER, email=Email("ada@example.com"), email_verified=True, session_id=UUID(int=6), sign_in=SIGN_IN)
OLD: Final = replace(ADA, sign_in=replace(SIGN_IN, at=NOW - timedelta(days=1)))
IN_ACME: Final = OrganizationContext(ACME, "acme", OrganizationStatus.ACTIVE, ADMIN, rights_of(ADMIN))
BARRED: Final = NoAccessToService()


def policy_of(**document: Any) -> EffectivePolicy:
    return EffectivePolicy(ACME, 1, (PolicyPart("Acme", Rules.read(document)),))


TWO: Final = policy_of(second_factor=["everyone"])
OFFICE: Final = policy_of(admin_networks=["192.0.2.0/24"])


def outcome_of(facts: SignInFacts) -> Any:
    """Return True for a start, the step, or the reason's class."""
    verdict = judge(facts)
    if isinstance(verdict, Start):
        return True
    return verdict.step if isinstance(verdict, Ask) else type(verdict.reason)


CLOSED: Final = replace(BARE, is_usable=False)
STRANGER: Final = replace(BARE, policy=TWO, may_use=False)
HALF_OF_STRANGER: Final = replace(HALF, may_use=False, barred_by=BARRED)
SIGN_INS: Final[Mapping[str, tuple[SignInFacts, Any]]] = {
    "1 closed": (CLOSED, AccountClosed),
    "1 deleted": (replace(CLOSED, was_deleted=True), AccountDeleted),
    "1 before 2": (replace(CLOSED, replaces_other=True), AccountClosed),
    "2": (replace(HALF, replaces_other=True), OtherUserPresent),
    "7 not loaded": (replace(STRANGER, may_use=None), Step.CHECK_ACCESS),
    "7": (STRANGER, True),
    "7 not needed": (replace(BARE, policy=TWO, proofs=(PASSWORD, CODE), factors_here=APP, may_use=None), True),
    "8": (HALF, Step.SECOND_FACTOR),
    "8 both": (replace(HALF, proofs=(PASSWORD, CODE)), True),
    "8 trusted device": (replace(HALF, is_trusted=True, is_trusted_there=True), True),
    "8 flow without trust": (replace(HALF, is_trusted=True, is_trusted_there=True, keeps_trust=False), Step.SECOND_FACTOR),
    "8 device that the policy does not count": (
        replace(HALF, policy=TWO, is_trusted=True, is_trusted_there=True),
        Step.SECOND_FACTOR,
    ),
    "8 trust of the organization, not loaded": (replace(HALF, is_trusted=True, may_use=None), Step.CHECK_ACCESS),
    "8 trust of the organization, user": (replace(HALF, is_trusted=True), Step.SECOND_FACTOR),
    "8 trust of the organization, stranger": (replace(HALF, is_trusted=True, may_use=False), True),
    "8 recent factor": (replace(HALF, earlier=(CODE,)), True),
    "8 recent factor that the policy does not accept": (
        replace(HALF, policy=policy_of(phishing_resistant=["everyone"]), earlier=(CODE,)),
        Step.SECOND_FACTOR,
    ),
    "8 before 9": (HALF_OF_STRANGER, Step.SECOND_FACTOR),
    "9": (replace(STRANGER, barred_by=BARRED), NoAccessToService),
    "9 after a recent factor": (replace(HALF_OF_STRANGER, earlier=(CODE,)), NoAccessToService),
    "10 another sign-in": (replace(HALF, policy=TWO, path=PolicyPath.AUTHORIZATION), Step.SIGN_IN),
    "10 a factor": (replace(BARE, policy=TWO), Step.ENROLL),
    "10 of a browser's sign-in": (replace(BARE, policy=TWO, asks_policy=False), True),
    "10 networks": (replace(BARE, policy=OFFICE, is_admin=True, path=PolicyPath.API, address="203.0.113.9"), PolicyRefused),
    "10 networks of a sign-in": (replace(BARE, policy=OFFICE, is_admin=True, address="203.0.113.9"), True),
    "10 personal token": (replace(BARE, policy=TWO, path=PolicyPath.PERSONAL_TOKEN), TokenBelowPolicy),
    "13": (BARE, True),
}


@table(("facts", "outcome"), SIGN_INS.values(), ids=SIGN_INS)
def test_a_sign_in_or_session_is_judged_by_the_first_row_that_matches(facts: SignInFacts, outcome: Any) -> None:
    assert outcome_of(facts) == outcome


def member_of_acme(person: Person, sign_in: ConnectionSignIn | None = None) -> Member:
    return replace(to_member(person, IN_ACME, has_sign_in_policy=sign_in is not None), connection_sign_in=sign_in)


ANY, FRESH = Requirement(), Requirement(age=SignInAge.FRESH)
OF_PLATFORM: Final = Requirement(is_of_platform=True)
IN_SHOP: Final = replace(OLD, service=SHOP)
ACTED: Final = replace(ADA, impersonator_id=OTHER, sign_in=None)
RESTRICTED: Final = replace(ADA, restricted_to=ACME)
CHANGE: Final = step_up_to(Strength.PHISHING_RESISTANT, None)
THERE: Final = ConnectionSignIn(is_required=True)
ELSEWHERE: Final = ConnectionSignIn(is_required=True, refusal=BARRED)
REQUESTS: Final[Mapping[str, tuple[Act, Any]]] = {
    "3": (Act(IN_SHOP, ANY), NotForApplications),
    "3 before 6": (Act(IN_SHOP, OF_PLATFORM), NotForApplications),
    "3 OpenID Connect": (
        Act(replace(IN_SHOP, openid_scope=("openid",)), Requirement(applications=ApplicationTokens.WITHOUT_OPENID)),
        NotWithOpenId,
    ),
    "3 accepted": (Act(IN_SHOP, Requirement(applications=ApplicationTokens.ALL), is_loaded=True), True),
    "4 lasting effect": (Act(ACTED, Requirement(outlives=True)), NotWhileImpersonating),
    "4 platform": (Act(ACTED, OF_PLATFORM), NotWhileImpersonating),
    "4 before 5": (Act(replace(ACTED, restricted_to=ACME), Requirement(outlives=True)), NotWhileImpersonating),
    "5 own account": (Act(RESTRICTED, ANY), OwnProofNeeded),
    "5 before 6": (Act(replace(RESTRICTED, email_verified=False), Requirement(is_verified=True)), OwnProofNeeded),
    "5 organization": (Act(member_of_acme(RESTRICTED), Requirement(restricted=Restricted.ITS_ORGANIZATION), is_loaded=True), True),
    "5 another organization": (
        Act(member_of_acme(replace(ADA, restricted_to=OTHER)), Requirement(restricted=Restricted.ITS_ORGANIZATION)),
        OwnProofNeeded,
    ),
    "5 open route": (Act(RESTRICTED, Requirement(restricted=Restricted.YES), is_loaded=True), True),
    "6 platform": (Act(ADA, OF_PLATFORM), NotAPlatformOwner),
    "6 address": (Act(replace(ADA, email_verified=False), Requirement(is_verified=True)), AddressNotVerified),
    "not loaded": (Act(OLD, FRESH), Step.CHECK_ACCESS),
    "11": (Act(OLD, FRESH, CHANGE, is_loaded=True), SignInNotAccepted),
    "12": (Act(OLD, FRESH, is_loaded=True), SignInNotRecent),
    "12 impersonator": (Act(ACTED, FRESH, is_loaded=True), NotWhileImpersonating),
    "12 application": (
        Act(IN_SHOP, Requirement(age=SignInAge.RECENT, applications=ApplicationTokens.ALL), is_loaded=True),
        True,
    ),
    "12 required connection": (
        Act(member_of_acme(OLD, THERE), replace(FRESH, restricted=Restricted.ITS_ORGANIZATION), is_loaded=True),
        True,
    ),
    "12 required connection, an owner's right": (Act(member_of_acme(OLD, THERE), FRESH, is_loaded=True), SignInNotRecent),
    "12 no sign-in there": (Act(member_of_acme(ADA, ELSEWHERE), FRESH, is_loaded=True), NoAccessToService),
    "13": (Act(ADA, FRESH, is_loaded=True), True),
}


@table(("act", "outcome"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_is_judged_by_the_first_row_that_matches(act: Act, outcome: Any) -> None:
    assert outcome_of(SignInFacts(now=NOW, settings=Policy(), path=PolicyPath.API, act=act)) == outcome


def test_a_start_tells_which_recent_factors_count_and_whether_the_user_is_a_stranger() -> None:
    assert judge(replace(HALF, earlier=(CODE,))) == Start(earlier=(CODE,))
    assert judge(STRANGER) == Start(is_stranger=True)


def test_a_refusal_has_the_decision_of_the_policy() -> None:
    facts, _ = SIGN_INS["10 networks"]
    verdict = judge(facts)
    assert isinstance(verdict, Refuse)
    assert verdict.decision.outcome is Outcome.REFUSED
