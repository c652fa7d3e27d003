"""The sign-in page for a user whose session is not enough: the reason, and what helps an account with these factors."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from core.accounts import passkey_waits
from core.authentication import admissions
from core.authentication.flow import flows
from core.federation.destination import Destination
from core.kernel.callers import Visitor
from core.kernel.display import PRODUCT
from core.kernel.proofs import Factor, FactorKind, Method, Strength, in_session, reachable_strength, seen_in, session_strength
from core.kernel.sign_in_policy.decision import Decision, sign_in_elsewhere
from core.kernel.sign_in_policy.explanations import explain
from core.kernel.sign_in_policy.rules import Rule
from core.kernel.sign_in_policy.steps import Step, needs_passkey, step_up_to
from entrypoints.http import kit

AT_CONNECTION: Final = "Sign in there. In an emergency, you're listed for break glass: sign in with your passkey, password or email."
# The next step if the account has no factor with this strength.
SET_UP: Final[Mapping[Strength, str]] = {
    Strength.TWO: "Set one up in your account, and then sign in here with it.",
    Strength.PHISHING_RESISTANT: "Create one in your account, and then sign in here with it.",
}


@dataclass(frozen=True, slots=True)
class StepUp:
    """Why a signed-in user's session is not enough, and their account's factors."""

    user: Visitor
    decision: Decision
    factors: Collection[Factor]
    needs_recovery: bool | None = None  # whether only a recovery replaces a lost passkey; None: it is not known

    @property
    def needs_passkey(self) -> bool:
        """Whether no way helps but a passkey, or a factor that the account does not have yet."""
        return needs_passkey(self.decision, self.factors)

    @property
    def lacks_factor(self) -> bool:
        """Whether the user has to set up a factor first."""
        return self.user.restricted_to is None and reachable_strength(self.factors) < self.decision.required

    @property
    def sentence(self) -> str:
        """Why the session is not enough, and what helps."""
        return f"{explain(self.decision)} {self._advice()}"

    def _advice(self) -> str:
        if self.decision.rule is Rule.CONNECTION:
            return AT_CONNECTION
        if self.lacks_factor:
            return SET_UP[self.decision.required]
        if self.needs_passkey:
            return "Sign in with your passkey."
        if self.decision.rule not in (Rule.SECOND_FACTOR, Rule.DEVICE_TRUST):
            return "Sign in again."
        methods = self.decision.methods
        has_passkey = any(factor.kind is FactorKind.PASSKEY for factor in self.factors)
        takes_passkey = has_passkey and (methods is None or Method.PASSKEY in methods)
        return f"Sign in with your {'passkey, or with your ' if takes_passkey else ''}second factor."

    def narrow(self, destination: Destination | None) -> Destination | None:
        """Return the destination for which the page offers only the ways that help this user."""
        if destination is None or not self.needs_passkey:
            return destination
        return replace(destination, required=Strength.PHISHING_RESISTANT)


async def find(
    user: Visitor | None, destination: Destination | None, admission: admissions.Admission = admissions.NO_ADMISSION
) -> StepUp | None:
    """Return why the session is not enough: for a sign-in policy, for a required strength, or because it counts elsewhere alone."""
    if user is None:
        return None
    decision = _find_decision(user, destination, admission)
    return None if decision is None else await load(user, decision)


async def load(user: Visitor, decision: Decision) -> StepUp:
    """Return the user's step-up for this decision."""
    step_up = StepUp(user, decision, await flows.load_factors(kit.ports(), user))
    if not step_up.needs_passkey or step_up.lacks_factor:
        return step_up
    return replace(step_up, needs_recovery=await passkey_waits.needs_recovery(kit.ports(), user))


def _find_decision(user: Visitor, destination: Destination | None, admission: admissions.Admission) -> Decision | None:
    of_policy = None if admission.step is None else admission.decision
    if of_policy is not None and (of_policy.leads_to is not None or user.restricted_to is not None):
        return of_policy
    of_strength = None if destination is None else _find_strength(user, destination)
    if of_policy is None or of_strength is None:
        return of_policy or of_strength
    is_stronger = admission.step is not Step.SIGN_IN or of_strength.required > of_policy.required
    return of_strength if is_stronger else of_policy


def _find_strength(user: Visitor, destination: Destination) -> Decision | None:
    """Return the decision if the application, its request or the account itself requires a stronger sign-in."""
    service, name = destination.service, destination.needs.name or PRODUCT
    proofs = user.browser.proofs
    seen = in_session(proofs) if service is None else seen_in(proofs, service.org_id, kit.ports().clock.now())
    if not seen:
        return sign_in_elsewhere(name)
    return None if session_strength(seen) >= destination.required else step_up_to(destination.required, name)
