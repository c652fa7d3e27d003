"""The next step of a sign-in, as a pure function, and further sign-ins for more strength.

Sources: OpenID Connect Core section 3.1.2, SAML 2.0 Core section 3.4.1, security A-10.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final
from uuid import UUID

from core.kernel import callers
from core.kernel.errors import Refusal
from core.kernel.proofs import Factor, Proofs, Strength, covers, is_fresh, proved_at, reachable_strength, restriction_of, session_strength
from core.kernel.sign_in_policy import rules
from core.kernel.sign_in_policy.decision import NO_POLICY, Decision, Outcome, stands_for_second

CLOCK_LEEWAY: Final = timedelta(seconds=30)  # the clocks of our processes can differ; the same as for tokens (security J-3)
# A flow can stay open in a tab for longer. Then an earlier sign-in does not show who is there now.
FRESH_TTL: Final = timedelta(hours=1)


class Step(Enum):
    """The next step: a page, the next action of the flow, or a refusal. The page values are parts of their addresses."""

    SIGN_IN = "sign-in"
    SIGN_UP = "sign-up"
    SECOND_FACTOR = "code"
    CONFIRM = "confirm"  # the organization does not know the user yet (docs/adr/0011)
    CONSENT = "consent"
    SELECT = "select"

    ENROLL = "enroll"  # the page on which the account gets the factor that a sign-in policy requires

    START_SESSION = "start session"
    CHECK_ACCESS = "check access"  # load `Facts.agreement`, and ask again
    DONE = "done"

    LOGIN_REQUIRED = "login required"
    OTHER_USER = "other user"
    TOO_WEAK = "too weak"
    CONSENT_REQUIRED = "consent required"


@dataclass(frozen=True, slots=True)
class Start:
    """The session starts, or the request goes on."""

    decision: Decision = NO_POLICY
    earlier: Proofs = ()  # the earlier second factors that count, too
    is_stranger: bool = False  # the user may not use the application, and so learns nothing about its policy


@dataclass(frozen=True, slots=True)
class Ask:
    """The user has to do something first. CHECK_ACCESS: load `may_use`, and judge again."""

    step: Step
    decision: Decision = NO_POLICY


@dataclass(frozen=True, slots=True)
class Refuse:
    """Nothing that the user does here helps."""

    reason: Refusal
    decision: Decision = NO_POLICY


Verdict = Start | Ask | Refuse
START: Final = Start()


class Consents(Enum):
    """What a user, who may use the application, must agree to first."""

    COVERED = "covered"
    FIRST_TIME = "first time"
    SCOPES = "scopes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a flow's target asks of the sign-in."""

    is_silent: bool = False  # no page may be shown
    sign_up: bool = False
    subject: UUID | None = None  # the only user who can sign in
    fresh: bool = False
    max_age: timedelta | None = None
    required: Strength = Strength.ONE
    wished: Strength = Strength.ONE
    select: bool = False
    consent: bool = False
    keeps_trust: bool = True  # a trusted device skips the second factor

    @property
    def needs_fresh_sign_in(self) -> bool:
        """Return whether an identity provider must authenticate the user again.

        A request can ask for that. A required strength needs it, too: only a fresh sign-in shows that the user cannot reach it.
        """
        return self.fresh or self.max_age is not None or self.required > Strength.ONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known about a sign-in. Times are UTC."""

    needs: Needs
    now: datetime
    # About the flow. Without a flow, nothing was asked yet.
    begun_at: datetime | None = None
    first_session_id: UUID | None = None
    proofs: Proofs = ()  # that started no session yet
    is_trusted: bool = False  # the device of the proofs
    # About the browser's session, or about the proofs. The factors count only where a session may be too weak.
    session: callers.BrowserSession | None = None
    service: callers.ServiceContext | None = None  # the application; None for the platform's own frontend
    user_id: UUID | None = None
    factors: Collection[Factor] = ()
    reachable: Strength = Strength.ONE  # by the account, where the session lacks a required strength
    # The verdict about the session. The user is reminded once a day of a rule that starts later.
    verdict: Verdict = START
    is_reminded: bool = False
    # About the session's user at the application
    agreement: Consents | None = None
    has_agreed: bool = False
    has_selected: bool = False

    @property
    def has_started(self) -> bool:
        """Whether the session has started since the flow began."""
        return self.session is not None and self.begun_at is not None and self.session.id != self.first_session_id

    @property
    def seen(self) -> Proofs:
        """The session's proofs that count at the target."""
        return () if self.session is None else callers.proofs_at(self.service, self.session.proofs, self.now)

    @property
    def is_fresh(self) -> bool:
        """Whether the user signed in after the flow began, with all the account's factors, and within FRESH_TTL.

        Process clocks differ, so the time alone does not decide. The session that the browser had when the flow began
        is never fresh.
        """
        if self.session is None or self.begun_at is None or not self.has_started:
            return False
        proofs = self.seen
        if not is_fresh(proofs) or proved_at(proofs) < max(self.begun_at - CLOCK_LEEWAY, self.now - FRESH_TTL):
            return False
        return self.needs.keeps_trust or covers(proofs, self.factors)


def next_step(facts: Facts) -> Step:
    """Return the next step. docs/specification/sign-in.md has the table."""
    if facts.proofs:
        return _after_proofs(facts)
    needs, session = facts.needs, facts.session
    if needs.sign_up and not facts.has_started:
        return Step.SIGN_UP
    refusal = Step.SIGN_IN if session is None or not facts.seen else _refusal(facts)
    if refusal is Step.SIGN_IN and needs.is_silent:
        return Step.LOGIN_REQUIRED
    return refusal or _of_access(facts)


def _after_proofs(facts: Facts) -> Step:
    # A restricted session gives only what its organization gives anyway.
    skips_second = facts.needs.keeps_trust and (facts.is_trusted or restriction_of(facts.proofs) is not None)
    return Step.START_SESSION if skips_second or covers(facts.proofs, facts.factors) else Step.SECOND_FACTOR


def _refusal(facts: Facts) -> Step | None:
    """Return the step if this session is not enough. SIGN_IN: a new sign-in may be."""
    needs, strength = facts.needs, session_strength(facts.seen)
    if needs.subject not in (None, facts.user_id):
        return Step.OTHER_USER if facts.is_fresh else Step.SIGN_IN
    if strength < needs.required:
        return Step.TOO_WEAK if facts.is_fresh and facts.reachable < needs.required else Step.SIGN_IN
    if (step := _of_verdict(facts)) is not None:
        return step
    if facts.is_fresh:
        return None
    if needs.fresh or (needs.max_age is not None and not _is_recent(facts, needs.max_age)):
        return Step.SIGN_IN
    if min(needs.wished, reachable_strength(facts.factors)) > strength and not needs.is_silent:
        return Step.SIGN_IN
    return None


def _of_verdict(facts: Facts) -> Step | None:
    """Return the step if the verdict stops this session, or if its user is reminded of a rule that starts later."""
    verdict, is_silent = facts.verdict, facts.needs.is_silent
    match verdict:
        case Refuse():
            return Step.TOO_WEAK
        case Ask(Step.ENROLL):
            return Step.TOO_WEAK if is_silent else Step.ENROLL
        case Ask():  # the account has a factor for it, such as a passkey that sign-ins do not ask for
            return verdict.step
    return Step.ENROLL if verdict.decision.due_at is not None and not is_silent and not facts.is_reminded else None


def _is_recent(facts: Facts, max_age: timedelta) -> bool:
    proofs = facts.seen
    return is_fresh(proofs) and facts.now - proved_at(proofs) <= max_age and covers(proofs, facts.factors)


def _of_access(facts: Facts) -> Step:
    needs = facts.needs
    if facts.agreement is None:
        return Step.CHECK_ACCESS
    if facts.has_agreed and not needs.is_silent:
        return Step.DONE
    if facts.agreement is not Consents.COVERED or needs.consent:
        if needs.is_silent:
            return Step.CONSENT_REQUIRED
        return Step.CONFIRM if facts.agreement is Consents.FIRST_TIME else Step.CONSENT
    if needs.select and not facts.has_selected and not facts.is_fresh:
        return Step.SELECT
    return Step.DONE


def step_up_to(required: Strength, name: str | None) -> Decision:
    """Return the decision about a sign-in without the strength that the application with this name, or its request, requires.

    `name` None: the account itself requires this strength.
    """
    rule = rules.Rule.PHISHING_RESISTANT if required is Strength.PHISHING_RESISTANT else rules.Rule.SECOND_FACTOR
    return Decision(outcome=Outcome.STEP_UP, rule=rule, source=name, required=required)


def takes_passkey_only(decision: Decision, *, has_second: bool) -> bool:
    """Return whether only a passkey has the strength that the decision asks for. `has_second`: the account has an allowed second factor."""
    return decision.required >= (Strength.PHISHING_RESISTANT if has_second else Strength.TWO)


def needs_passkey(decision: Decision, factors: Collection[Factor]) -> bool:
    """Return whether an account with these factors can meet the decision only by a sign-in with a passkey."""
    if decision.outcome is not Outcome.STEP_UP or decision.leads_to is not None:
        return False
    if decision.methods is not None and decision.rule is not rules.Rule.CONNECTION and decision.methods.isdisjoint(decision.first_ways):
        return True
    return takes_passkey_only(decision, has_second=stands_for_second(rules.Rules(methods=decision.methods), factors))
