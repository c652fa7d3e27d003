"""The sign-in policy that a user has to meet, the facts that it judges, and its refusals."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self
from uuid import UUID

from core.accounts.model import accounts
from core.accounts.model.passkeys import KeyHosts
from core.authentication.model.sessions import RefreshTokenInvalid
from core.kernel import errors, roles, sign_in_age, values
from core.kernel.connections import ConnectionFacts
from core.kernel.proofs import Acr, SessionProofs, Strength
from core.kernel.roles import is_admin
from core.kernel.sign_in_policy import explanations, rules
from core.kernel.sign_in_policy.decision import Decision
from core.kernel.sign_in_policy.explanations import explain
from core.kernel.sign_in_policy.steps import Ask, Refuse

# The longest lifetime of a pass: trust in a device and the sign-in risk change without a new policy version.
PASS_TTL: Final = timedelta(hours=1)
MIN_PASS_TTL: Final = timedelta(minutes=1)
IDLE_PARTS: Final = 10  # parts of the idle time: a pass lasts for one part, and then the next use is stored
REMINDER_PAUSE: Final = timedelta(days=1)

NO_SLUG: Final = "-"  # no organization and no application has this slug


@dataclass(frozen=True, slots=True)
class PolicySession:
    """The facts about a session, or about a sign-in that can start a session. Times are UTC."""

    proofs: SessionProofs
    factor_at_device: datetime | None = None  # when the second factor was proved on its trusted device
    risk_is_high: bool = False
    used_at: datetime | None = None  # the last use of the organization
    reminded_at: datetime | None = None  # when the user was told about a rule that starts later, in any session


@dataclass(frozen=True, slots=True)
class PolicyPlace:
    """The slugs for an organization with a sign-in policy, and for its application that the user opens. None: the platform."""

    org_slug: str | None
    service_slug: str | None = None

    @classmethod
    def read(cls, org_slug: str, service_slug: str = "") -> Self:
        """Return the place of these texts in a URL or a form. Without `org_slug`, it is the platform.

        Any text that cannot be a slug becomes a slug that nothing has.
        """
        return cls(_to_slug(org_slug), _to_slug(service_slug))


def _to_slug(text: str) -> str | None:
    try:
        return values.Slug.parse(text) if text else None
    except (values.SlugInvalid, values.SlugReserved):
        return NO_SLUG


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySubject:
    """A user, and the sign-in policy that they have to meet."""

    policy: rules.EffectivePolicy
    org_slug: str | None  # None: the policy of the platform
    service_slug: str | None  # of the application that the user opens, if any
    replacing_service_id: UUID | None  # the application, if its required connection replaces the organization's
    role: roles.RoleName | None  # in the organization
    roles_key: str | None  # this role and the groups' roles: a pass ends with a change
    rights: roles.Rights  # of the member there
    account: accounts.Account
    keys: KeyHosts  # of the account
    providers: frozenset[str]  # linked in the account itself, or at an application in the organization
    connections: ConnectionFacts
    email_sign_in: bool | None  # whether the application offers sign-in by email; None: as the platform does
    session: PolicySession | None

    @property
    def place(self) -> PolicyPlace:
        """Where the policy is: its pages name it."""
        return PolicyPlace(self.org_slug, self.service_slug)

    @property
    def is_admin(self) -> bool:
        if self.policy.org_id is None:
            return self.account.is_platform_owner
        return self.role is not None and is_admin(self.rights)


@dataclass(frozen=True, slots=True)
class PolicyPass:
    """An allowed decision about a session. Until it ends, the policy need not be asked again. Times are UTC."""

    session_id: UUID
    org_id: UUID | None  # None: the platform
    replacing_service_id: UUID | None  # as in the subject: then the pass is good there alone
    version: int  # of the policy
    roles_key: str | None  # of the subject
    valid_until: datetime
    used_at: datetime

    @classmethod
    def of(cls, subject: PolicySubject, decision: Decision, session_id: UUID, now: datetime) -> Self:
        """Return the pass of a session that is allowed."""
        ttl = PASS_TTL if decision.idle is None else max(MIN_PASS_TTL, min(PASS_TTL, decision.idle / IDLE_PARTS))
        valid_until = now + ttl if decision.valid_until is None else min(now + ttl, decision.valid_until)
        policy = subject.policy
        return cls(session_id, policy.org_id, subject.replacing_service_id, policy.version, subject.roles_key, valid_until, now)


class EnrolmentRequired(errors.Forbidden):
    """The sign-in policy requires a factor that the account does not have. Set it up, and sign in again."""

    code = "ENROLMENT_REQUIRED"

    def __init__(self, decision: Decision, place: PolicyPlace, url: str) -> None:
        """`url`: the page on which a browser sets the factor up."""
        super().__init__(f"{explain(decision)} Set it up, and sign in again.")
        self.place = place
        self.fields = explanations.fields_of(decision, enrolment_url=url)


class StepUpNeeded(sign_in_age.AuthenticationInsufficient):
    """The sign-in policy requires another sign-in. Confirm that it's you, or sign in again."""

    def __init__(
        self,
        decision: Decision,
        place: PolicyPlace,
        authorization_url: str | None = None,
        age: sign_in_age.SignInAge = sign_in_age.SignInAge.ANY,
    ) -> None:
        """`authorization_url`: where a browser begins the sign-in through the required connection, if only that sign-in helps.

        `age`: how recent a sign-in the request needs.
        """
        advice = (
            "Confirm that it's you with your password or a passkey." if decision.asks_own else "Confirm that it's you, or sign in again."
        )
        if authorization_url is not None:
            again = "Sign in there" if decision.rule is rules.Rule.CONNECTION else "Sign in again through its identity provider"
            advice = f"{again}, and use the token of that sign-in."
        super().__init__(f"{explain(decision)} {advice}")
        self.place = place
        self.age = age
        self.authorization_url = authorization_url
        self.fields = explanations.fields_of(decision, authorization_url=authorization_url)
        if authorization_url is not None and decision.rule is rules.Rule.CONNECTION:
            return
        acr = {"acr_values": [*Acr][decision.required - 1].value} if decision.required >= Strength.TWO else {}
        max_age = decision.max_age or (None if acr else timedelta(0))
        self.needed = acr if max_age is None else {**acr, "max_age": str(int(max_age.total_seconds()))}


@dataclass(frozen=True, slots=True)
class DueEnrollment:
    """The page on which a user sets up the factor that a sign-in policy requires, and the start of the rule in UTC."""

    url: str
    due_at: datetime


class GrantBelowPolicy(errors.GrantInvalid):
    """The sign-in policy no longer accepts the sign-in behind this code. Send the user through a new sign-in."""

    def __init__(self, verdict: Ask | Refuse) -> None:
        super().__init__(explanations.explain_verdict(verdict, "Send the user through a new sign-in."))


POLICY_REFUSALS: Final = (EnrolmentRequired, StepUpNeeded, explanations.PolicyRefused, accounts.LinkNeedsProof, accounts.RecoveryRequired)


class RefreshNeedsEnrolment(RefreshTokenInvalid):
    """The sign-in policy requires a factor that the account does not have. Set it up, and sign in again."""

    code = EnrolmentRequired.code

    def __init__(self, required: EnrolmentRequired) -> None:
        super().__init__(required.message)
        self.fields = required.fields


class RefreshNeedsSignIn(RefreshTokenInvalid):
    """The sign-in policy requires another sign-in. Sign in again."""

    def __init__(self, verdict: Ask | Refuse, refusal: errors.Refusal) -> None:
        """`refusal`: the answer to a request with this verdict."""
        super().__init__(explanations.explain_verdict(verdict, "Sign in again."))
        self.fields = refusal.fields
