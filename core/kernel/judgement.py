"""The judgement: may this person, with these proofs, do this now? No other code decides it.

`judge` is pure. `core.authentication.admissions` loads its facts for sessions and requests, and carries its verdicts out.
`core.authentication.flow.facts` loads the facts for sign-ins. docs/specification/sign-in.md has the rows.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.kernel import access, callers, sign_in_age
from core.kernel.connections import UNKNOWN_AT_CONNECTIONS, ConnectionFacts
from core.kernel.errors import Refusal
from core.kernel.policy import Policy
from core.kernel.proofs import Factor, Proofs, SessionProofs, covers, in_session, seen_in
from core.kernel.sign_in_policy import explanations, rules, silent_sign_ins
from core.kernel.sign_in_policy.decision import NO_POLICY, Decision, Outcome, PolicyFacts, decide
from core.kernel.sign_in_policy.steps import Ask, Facts, Needs, Refuse, Start, Step, Verdict, next_step


class PolicyPath(StrEnum):
    """Where a sign-in policy is asked: the label `path` of the metric."""

    SIGN_IN = "sign_in"  # over the API, or of a browser before its session starts
    AUTHORIZATION = "authorization"  # OAuth and OpenID Connect, in a browser with a session
    CODE = "code"
    DEVICE = "device"
    SAML = "saml"
    REFRESH = "refresh"
    API = "api"
    CONSOLE = "console"
    PERSONAL_TOKEN = "personal_token"  # noqa: S105  (a name)
    ENROLL = "enroll"  # the ways to confirm, or to set up a factor; not counted
    PREVIEW = "preview"  # not counted

    @property
    def is_view(self) -> bool:
        """Whether a page or an answer only says what the user can do next. The request that follows is counted."""
        return self in (PolicyPath.ENROLL, PolicyPath.PREVIEW)


# Paths in which the user acts in the organization or on the platform, so that the networks of its admins count.
_ACTING: Final = (PolicyPath.API, PolicyPath.CONSOLE, PolicyPath.PERSONAL_TOKEN)
# Paths on which users confirm that they are here, in the session that they have.
_CONFIRMING: Final = (PolicyPath.API, PolicyPath.CONSOLE, PolicyPath.ENROLL)


@dataclass(frozen=True, slots=True)
class Act:
    """A request to a route by a user with a session."""

    caller: callers.Person
    requirement: access.Requirement
    missing: Decision | None = None  # the further sign-in that a change of the caller's factors needs
    is_loaded: bool = False  # `missing`, and the sign-in at a required connection


@dataclass(slots=True, kw_only=True)
class SignInFacts:
    """The facts about a person, their proofs, and the thing that they want to do. Times are UTC.

    `may_use` and `earlier` are None until a query has loaded them. Most verdicts depend on neither. Every request makes a value, and the
    assignments of a frozen class would take most of that time. No code changes the fields.
    """

    now: datetime
    settings: Policy  # of the installation
    path: PolicyPath = PolicyPath.SIGN_IN
    age: sign_in_age.SignInAge = sign_in_age.SignInAge.ANY  # of the sign-in through a required connection
    address: str | None = None  # the IP address
    # The account
    user_id: UUID | None = None
    is_usable: bool = True
    was_deleted: bool = False  # by a user who can still undo it
    has_password: bool = False
    factors: Collection[Factor] = ()
    factors_here: Collection[Factor] = ()  # the factors that count for a policy: without keys for an earlier RP ID
    # The policy, if any, and the user that it binds
    policy: rules.EffectivePolicy | None = None
    first_ways: frozenset[str] = frozenset()
    is_admin: bool = False
    connections: ConnectionFacts = UNKNOWN_AT_CONNECTIONS
    # The session, or the sign-in that can start it
    proofs: SessionProofs = ()
    earlier: Proofs | None = None  # second factors from the last minutes in this browser's session
    risk_is_high: bool = False
    used_at: datetime | None = None  # the last use of the organization
    factor_at_device: datetime | None = None  # when the second factor was proved on its trusted device
    # The sign-in alone
    is_trusted: bool = False  # the device skips the second factor
    is_trusted_there: bool = False  # by the trust period of the application's organization, which only the application's users may learn
    keeps_trust: bool = True
    replaces_other: bool = False  # an identity provider signs in another user than this browser's
    # The application
    may_use: bool | None = True  # whether the user may use the application, and so learn about its policy
    barred_by: Refusal | None = None  # the reason for a user who may not, if the sign-in itself opens the application
    asks_policy: bool = True  # False: the step after the sign-in asks the policy
    act: Act | None = None  # a request to a route


def judge(facts: SignInFacts) -> Verdict:
    """Return the verdict about these facts, from the first row with an answer."""
    for row in _BEFORE_THE_POLICY:
        if (verdict := row(facts)) is not None:
            return verdict
    decision = _decide(facts)
    if decision.asks and not facts.may_use:
        if facts.may_use is None:
            return Ask(Step.CHECK_ACCESS, decision)
        decision = NO_POLICY
    for row_after in _AFTER_THE_POLICY:
        if (verdict := row_after(facts, decision)) is not None:
            return verdict
    return Start(decision, is_stranger=facts.may_use is False)


def _unusable_account(facts: SignInFacts) -> Verdict | None:
    if facts.is_usable or facts.user_id is None:
        return None
    return Refuse(access.AccountDeleted(facts.user_id) if facts.was_deleted else access.AccountClosed(facts.user_id))


def _other_user(facts: SignInFacts) -> Verdict | None:
    return Refuse(access.OtherUserPresent()) if facts.replaces_other else None


def _request(facts: SignInFacts) -> Verdict | None:
    if facts.act is None:
        return None
    caller, route = facts.act.caller, facts.act.requirement
    reason = next((reason for applies, reason in _REFUSED_REQUESTS if applies(caller, route)), None)
    if reason is not None:
        return Refuse(reason())
    return None if facts.act.is_loaded else Ask(Step.CHECK_ACCESS)


def _is_elsewhere(caller: callers.Person, route: access.Requirement) -> bool:
    """Return whether the session is good in a single organization only, and not here."""
    if route.restricted is access.Restricted.YES or caller.restricted_to is None:
        return False
    place = caller.acts_in.id if isinstance(caller, callers.Member) else None if caller.service is None else caller.service.org_id
    return route.restricted is access.Restricted.NO or place != caller.restricted_to


# The requests of users with a session that their credentials alone refuse.
_REFUSED_REQUESTS: Final[Sequence[tuple[Callable[[callers.Person, access.Requirement], bool], type[Refusal]]]] = (
    (lambda caller, route: caller.service is not None and route.applications is access.ApplicationTokens.NONE, access.NotForApplications),
    (
        lambda caller, route: bool(caller.openid_scope) and route.applications is access.ApplicationTokens.WITHOUT_OPENID,
        access.NotWithOpenId,
    ),
    (lambda caller, route: caller.impersonator_id is not None and (route.outlives or route.is_of_platform), access.NotWhileImpersonating),
    (_is_elsewhere, access.OwnProofNeeded),
    (lambda caller, route: route.is_of_platform and not caller.is_platform_owner, access.NotAPlatformOwner),
    (lambda caller, route: route.is_verified and not caller.email_verified, access.AddressNotVerified),
)


def _second_factor(facts: SignInFacts, decision: Decision) -> Verdict | None:
    """Ask for the second factor that the account needs, unless the device or an earlier proof counts."""
    if facts.path is not PolicyPath.SIGN_IN or covers(proofs := in_session(facts.proofs), facts.factors):
        return None
    # A trusted device skips no factor that would meet the policy.
    would_help = decision.outcome is Outcome.STEP_UP and decision.leads_to is None
    needs, is_trusted = Needs(keeps_trust=facts.keeps_trust and not would_help), facts.is_trusted
    if facts.is_trusted is not facts.is_trusted_there:
        if facts.may_use is None:
            return Ask(Step.CHECK_ACCESS, decision)
        is_trusted = facts.is_trusted_there if facts.may_use else facts.is_trusted
    steps = Facts(needs=needs, now=facts.now, proofs=proofs, factors=facts.factors, is_trusted=is_trusted)
    if next_step(steps) is not Step.SECOND_FACTOR:
        return None
    if not facts.earlier:
        return Ask(Step.SECOND_FACTOR, decision)
    verdict = judge(replace(facts, proofs=(*proofs, *facts.earlier), earlier=(), asks_policy=True))
    if isinstance(verdict, Ask) and verdict.step is not Step.CHECK_ACCESS:
        return Ask(Step.SECOND_FACTOR, decision)
    return replace(verdict, earlier=facts.earlier) if isinstance(verdict, Start) else verdict


def _barred_user(facts: SignInFacts, decision: Decision) -> Verdict | None:
    return None if facts.may_use or facts.barred_by is None else Refuse(facts.barred_by, decision)


def _policy(facts: SignInFacts, decision: Decision) -> Verdict | None:
    if not facts.asks_policy or decision.outcome is Outcome.ALLOWED:
        return None
    if decision.outcome is Outcome.REFUSED:
        return Refuse(explanations.PolicyRefused(decision), decision)
    if facts.path is PolicyPath.PERSONAL_TOKEN:
        return Refuse(explanations.TokenBelowPolicy(decision), decision)
    return Ask(Step.ENROLL if decision.outcome is Outcome.ENROLL else Step.SIGN_IN, decision)


def _change_of_factors(facts: SignInFacts, _: Decision) -> Verdict | None:
    missing = None if facts.act is None else facts.act.missing
    return None if missing is None else Refuse(explanations.SignInNotAccepted(missing, facts.settings.fresh_sign_in_ttl))


def _age(facts: SignInFacts, _: Decision) -> Verdict | None:
    """Refuse a sign-in that is too old for the request."""
    if facts.act is None:
        return None
    caller, requirement = facts.act.caller, facts.act.requirement
    refusal = access.find_sign_in_refusal(caller, requirement.age, facts.settings, facts.now)
    if (
        refusal is None
        and requirement.restricted is access.Restricted.NO
        and isinstance(caller, callers.Member)
        and caller.connection_sign_in is not None
    ):
        # beside the sign-in at the connection (security S-10)
        refusal = sign_in_age.find_age_refusal(caller.sign_in, requirement.age, facts.settings, facts.now)
    return None if refusal is None else Refuse(refusal)


_BEFORE_THE_POLICY: Final = (_unusable_account, _other_user, _request)
_AFTER_THE_POLICY: Final = (_second_factor, _barred_user, _policy, _change_of_factors, _age)


# The policy


def requires_connection(facts: SignInFacts) -> bool:
    """Return whether the user has to come through a connection now."""
    return facts.policy is not None and bool(facts.policy.in_force(facts.now).required_for(facts.connections))


def _decide(facts: SignInFacts) -> Decision:
    """Return the policy's decision. If it allows the session, also check the age of the sign-in at a required connection."""
    decision = _decide_now(facts)
    if decision.outcome is not Outcome.ALLOWED or facts.age is sign_in_age.SignInAge.ANY or not requires_connection(facts):
        return decision
    return decide_with_age(facts)


def _decide_now(facts: SignInFacts) -> Decision:
    if facts.policy is None:
        return NO_POLICY
    seen, path = silent_sign_ins.beside_own(seen_in(facts.proofs, facts.policy.org_id, facts.now)), facts.path
    decision = decide(
        facts.policy,
        PolicyFacts(
            now=facts.now,
            proofs=seen,
            factors=facts.factors_here,
            first_ways=facts.first_ways | {proof.method for proof in seen if not proof.is_own and proof.method is not None},
            is_admin=facts.is_admin,
            connections=facts.connections,
            may_break_glass=facts.is_admin and facts.connections.is_listed and path is not PolicyPath.PERSONAL_TOKEN,
            acts=path in _ACTING,
            risk_is_high=facts.risk_is_high,
            address=facts.address,
            used_at=facts.used_at,
            factor_at_device=facts.factor_at_device,
            ages=path is not PolicyPath.PERSONAL_TOKEN,
        ),
    )
    if (ends := [proof.until for proof in seen if proof.until is not None]) and decision.outcome is Outcome.ALLOWED:
        decision = replace(decision, valid_until=min(ends if decision.valid_until is None else [*ends, decision.valid_until]))
    if path in _CONFIRMING and facts.has_password:
        decision = _ask_own(decision, seen, facts.now)
    return explanations.name_methods(decision, facts.settings.provider_names)


def _ask_own(decision: Decision, seen: Proofs, now: datetime) -> Decision:
    """Return the decision, which asks for the account's own sign-in methods if the required connection has just vouched for the user.

    The connection stays another way, because the identity provider may not have been asked to authenticate the user. Listed users
    need no break glass then.
    """
    again_at, max_age = decision.connection if decision.breaks_glass else decision.leads_to, decision.max_age
    if again_at is None or max_age is None:
        return decision
    if not any(proof.connection == again_at.id and now - silent_sign_ins.vouched_at(proof) <= max_age for proof in seen):
        return decision
    return replace(decision, methods=None, first_at=None, asks_own=True)


def decide_with_age(facts: SignInFacts) -> Decision:
    """Return the policy's decision with `facts.age` as the session lifetime (security SP-9).

    Where the policy requires a connection, no other first factor makes the session newer. If the account has a password, its own first
    factor must stand beside a sign-in that may not have asked the user: an open browser at the identity provider does not show that
    the user is here.
    """
    policy, limit = facts.policy, facts.age.limit(facts.settings)
    if policy is None:
        return NO_POLICY
    seen = silent_sign_ins.beside_own(seen_in(facts.proofs, policy.org_id, facts.now), needs_user=facts.has_password)
    proofs = tuple(proof for proof in seen if not proof.is_second or facts.now - proof.at <= limit)
    aged = replace(policy, parts=(*policy.parts, rules.PolicyPart(policy.name, rules.Rules(session_lifetime=limit))))
    # A trusted device does not replace the second factor.
    decision = _decide_now(replace(facts, policy=aged, proofs=proofs, factor_at_device=None))
    lifetime = policy.in_force(facts.now).session_lifetime
    is_of_request = decision.rule is rules.Rule.SESSION_LIFETIME and (lifetime is None or lifetime > limit)
    return replace(decision, is_of_request=True) if is_of_request else decision
