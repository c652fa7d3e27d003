"""The sign-in policy that a user has to meet, the facts that it judges, and its refusals."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from core.accounts.model.accounts import Account
from core.authentication.model.sessions import RefreshTokenInvalid
from core.kernel.errors import Forbidden
from core.kernel.proofs import Acr, Proofs, Strength
from core.kernel.roles import ADMIN, OWNER, RoleName
from core.kernel.sign_in_age import AuthenticationInsufficient
from core.kernel.sign_in_policy.decision import Decision
from core.kernel.sign_in_policy.rules import EffectivePolicy, Rule

# A pass lasts this long at most: trust in a device and the risk of a sign-in change without a new version of the policy.
PASS_TTL: Final = timedelta(hours=1)
MIN_PASS_TTL: Final = timedelta(minutes=1)
IDLE_PARTS: Final = 10  # of the idle time: a pass lasts for one of them, and then the next use is stored
REMINDER_PAUSE: Final = timedelta(days=1)


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
    ENROLL = "enroll"
    PREVIEW = "preview"


@dataclass(frozen=True, slots=True)
class PolicySession:
    """The facts of a session, or of a sign-in that can start one. Times are UTC."""

    proofs: Proofs
    factor_at_device: datetime | None = None  # when the second factor was proved on its trusted device
    risk_is_high: bool = False
    used_at: datetime | None = None  # the last use of the organization
    reminded_at: datetime | None = None  # of a rule that starts later


@dataclass(frozen=True, slots=True)
class PolicyPlace:
    """The slugs of an organization with a sign-in policy, and of its application with rules of its own. None: the platform."""

    org_slug: str | None
    service_slug: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySubject:
    """A user, and the sign-in policy that they have to meet."""

    policy: EffectivePolicy
    org_slug: str | None  # None: the policy of the platform
    service_slug: str | None  # of the application, if it has rules of its own
    role: RoleName | None  # in the organization
    account: Account
    providers: frozenset[str]  # the linked identity providers
    email_sign_in: bool | None  # whether the application offers sign-in by email; None: as the platform does
    session: PolicySession | None

    @property
    def place(self) -> PolicyPlace:
        """Where the policy is: its pages name it."""
        return PolicyPlace(self.org_slug, self.service_slug)

    @property
    def is_admin(self) -> bool:
        return self.account.is_platform_owner if self.policy.org_id is None else self.role in (OWNER, ADMIN)


@dataclass(frozen=True, slots=True)
class PolicyPass:
    """An allowed decision about a session. Until it ends, the policy need not be asked again. Times are UTC."""

    session_id: UUID
    org_id: UUID | None  # None: the platform
    version: int  # of the policy
    role: RoleName | None
    valid_until: datetime
    used_at: datetime


_METHOD_NAMES: Final[Mapping[str, str]] = {"password": "password", "email": "email", "passkey": "passkey", "totp": "authenticator app"}
_ENROLL: Final = {
    Rule.SECOND_FACTOR: "{} requires a second factor. Set one up, and sign in again.",
    Rule.PHISHING_RESISTANT: "{} requires a passkey. Add one, and sign in with it.",
    Rule.METHODS: "{} does not accept the way that you signed in. Set up another one: {}.",
}
_STEP_UP: Final = {
    Rule.SECOND_FACTOR: "{} requires a second factor. Confirm that it's you with yours, or sign in again.",
    Rule.PHISHING_RESISTANT: "{} requires a passkey. Confirm that it's you with yours, or sign in again.",
    Rule.METHODS: "{} does not accept the way that you signed in. Sign in with one of these: {}.",
    Rule.SESSION_LIFETIME: "{} asks for a newer sign-in. Confirm that it's you, or sign in again.",
    Rule.SESSION_IDLE: "You have not used {} for a while. Confirm that it's you, or sign in again.",
}
_OF_PROGRAM: Final = "{} requires another sign-in than the one that created this token. Sign in again, and create a new token."


def _say(sentences: Mapping[Rule, str], decision: Decision) -> str:
    assert decision.rule is not None, "a refusal has a rule"
    methods = ", ".join(_METHOD_NAMES.get(name, name.removeprefix("provider:")) for name in sorted(decision.methods or ()))
    return sentences[decision.rule].format(_name(decision), methods)


def _name(decision: Decision) -> str:
    return "" if decision.source is None else decision.source.name


def _fields(decision: Decision, **further: str) -> dict[str, str]:
    rule = {} if decision.rule is None else {"rule": decision.rule.value}
    return {**further, **rule, "organization": _name(decision)}


class EnrolmentRequired(Forbidden):
    """The sign-in policy requires a factor that the account does not have. Set it up, and sign in again."""

    code = "ENROLMENT_REQUIRED"

    def __init__(self, decision: Decision, place: PolicyPlace, url: str) -> None:
        """`url` is that of the page on which a browser sets the factor up."""
        super().__init__(_say(_ENROLL, decision))
        self.place = place
        self.fields = _fields(decision, enrolment_url=url)


class StepUpNeeded(AuthenticationInsufficient):
    """The sign-in policy requires another sign-in. Confirm that it's you, or sign in again."""

    def __init__(self, decision: Decision, place: PolicyPlace) -> None:
        super().__init__(_say(_STEP_UP, decision))
        self.place = place
        acr = {"acr_values": [*Acr][decision.required - 1].value} if decision.required >= Strength.TWO else {}
        age = decision.max_age or (None if acr else timedelta(0))
        self.needed = acr if age is None else {**acr, "max_age": str(int(age.total_seconds()))}
        self.fields = _fields(decision)


class PolicyRefused(Forbidden):
    """The sign-in policy does not allow this from here."""

    def __init__(self, decision: Decision, sentence: str = "{} lets admins act only from its networks. Connect to one of them.") -> None:
        super().__init__(sentence.format(_name(decision)))
        self.fields = _fields(decision)


class TokenBelowPolicy(PolicyRefused):
    """The sign-in that created this personal access token does not meet the sign-in policy. Sign in again, and create a new one."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision, _OF_PROGRAM)


POLICY_REFUSALS: Final = (EnrolmentRequired, StepUpNeeded, PolicyRefused)


class RefreshNeedsEnrolment(RefreshTokenInvalid):
    """The sign-in policy requires a factor that the account does not have. Set it up, and use this refresh token again."""

    code = "ENROLMENT_REQUIRED"

    def __init__(self, decision: Decision, url: str) -> None:
        super().__init__(_say(_ENROLL, decision))
        self.fields = _fields(decision, enrolment_url=url)


class RefreshNeedsSignIn(RefreshTokenInvalid):
    """The sign-in policy requires another sign-in. Sign in again."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(_say(_STEP_UP, decision))
        self.fields = _fields(decision)
