"""The sentences about the decisions of sign-in policies, for users and for programs."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from core.kernel.connections import ConnectionSlug
from core.kernel.errors import Forbidden
from core.kernel.proofs import Method
from core.kernel.sign_in_age import SignInNotRecent
from core.kernel.sign_in_policy import rules
from core.kernel.sign_in_policy.decision import Decision
from core.kernel.sign_in_policy.steps import Ask, Refuse

BREAK_GLASS: Final = "break_glass_users"  # the name of the break-glass list, beside the rule names
# The labels on pages and in emails.
LABELS: Final[Mapping[str, str]] = {**{name: member.label for name, member in rules.MEMBERS.items()}, BREAK_GLASS: "Break glass"}
_FACTS: Final = {
    rules.Rule.SECOND_FACTOR: "{} requires a second factor.",
    rules.Rule.PHISHING_RESISTANT: "{} requires a passkey.",
    rules.Rule.METHODS: "{} accepts only some ways to sign in: {}.",
    rules.Rule.SESSION_LIFETIME: "{} asks for a newer sign-in.",
    rules.Rule.SESSION_IDLE: "You have not used {} for a while.",
    rules.Rule.DEVICE_TRUST: "{} asks for your second factor again on this trusted device.",
    rules.Rule.ADMIN_NETWORKS: "{} lets people who manage it act only from its networks.",
    rules.Rule.CONNECTION: "{} requires a sign-in through its identity provider.",
}


# The rules of the account itself, which have no source.
_OWN_FACTS: Final = {
    rules.Rule.SECOND_FACTOR: "This needs a second factor of your account.",
    rules.Rule.PHISHING_RESISTANT: "Your account has a passkey, and this needs it.",
    rules.Rule.METHODS: "To go on without your passkey, show your password and your mailbox.",
}


# What helps if no further sign-in and no factor does.
_ADVICE: Final[Mapping[rules.Rule | None, str]] = {rules.Rule.ADMIN_NETWORKS: "Connect to one of them."}


def explain(decision: Decision) -> str:
    """Return a sentence about the decision's rule. It names the organization, the application or the platform."""
    assert decision.rule is not None, "only decisions with a rule are explained"
    if decision.source is None and decision.rule in _OWN_FACTS:
        return _OWN_FACTS[decision.rule]
    if decision.is_elsewhere:
        return f"You signed in through an organization, and that counts there only. {decision.source} needs a sign-in of your own."
    if decision.asks_own:
        return f"The identity provider of {decision.source} did not confirm that it asked you to sign in."
    if decision.is_of_request and decision.max_age is not None:
        return f"{decision.source} asks for a sign-in of the last {decision.max_age // timedelta(minutes=1)} minutes here."
    if decision.rule is rules.Rule.SECOND_FACTOR and (seconds := _accepted_seconds(decision)) is not None:
        sentence = f"{decision.source} requires a second factor: {seconds}."
    else:
        sentence = _FACTS[decision.rule].format(decision.source, ", ".join(decision.method_names))
    return f"This sign-in is unusual. {sentence}" if decision.is_of_risk else sentence


def explain_verdict(verdict: Ask | Refuse, advice: str = "") -> str:
    """Return why the session is not enough. `advice`: what helps if the user can do something. A refusal has its own advice."""
    return verdict.reason.message if isinstance(verdict, Refuse) else f"{explain(verdict.decision)} {advice}".rstrip()


def _accepted_seconds(decision: Decision) -> str | None:
    """Return the kind of second factor that the policy accepts, or None if it accepts every kind."""
    kinds = {Method.TOTP: "an authenticator app", Method.PASSKEY: "a passkey or security key"}
    names = [name for method, name in kinds.items() if decision.methods is None or method in decision.methods]
    return names[0] if len(names) == 1 else None


def name_methods(decision: Decision, providers: Mapping[ConnectionSlug, str]) -> Decision:
    """Return the decision with the method names, if the methods are the reason. `providers` has the identity providers' names."""
    if decision.rule is not rules.Rule.METHODS:
        return decision
    own = {Method.TOTP.value: "authenticator app", Method.CONNECTION.value: "single sign-on of the organization"}
    names = own | {rules.PROVIDER_PREFIX + slug: name for slug, name in providers.items()}
    return replace(
        decision, method_names=tuple(names.get(method, method) for method in rules.METHODS if method in (decision.methods or ()))
    )


def fields_of(decision: Decision, **further: str | None) -> dict[str, str]:
    """Return the error body members about the decision's rule, and the further members that have a value."""
    rule = {} if decision.rule is None or decision.is_of_request else {"rule": decision.rule.value}
    is_required = decision.connection is not None and (decision.rule is rules.Rule.CONNECTION or decision.leads_to is not None)
    connection = {"connection": decision.connection.slug} if decision.connection is not None and is_required else {}
    source = {} if decision.source is None else {"organization": decision.source}
    return {name: value for name, value in further.items() if value is not None} | rule | connection | source


class PolicyRefused(Forbidden):
    """The sign-in policy does not allow this from here."""

    def __init__(self, decision: Decision, advice: str | None = None) -> None:
        super().__init__(f"{explain(decision)} {advice or _ADVICE.get(decision.rule, '')}".rstrip())
        self.fields = fields_of(decision)


class TokenBelowPolicy(PolicyRefused):
    """The sign-in that created this personal access token does not meet the sign-in policy. Sign in again, and create a new one."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision, "The sign-in that created this token did not meet it. Sign in again, and create a new token.")


class SignInNotAccepted(SignInNotRecent):
    """A sign-in policy asks for more than your sign-in. Confirm that it's you in a way that it accepts, and repeat this."""

    def __init__(self, missing: Decision, limit: timedelta) -> None:
        """`missing` is the further sign-in that the policy or the account asks for. `limit` as in `SignInNotRecent`."""
        way = "that way" if missing.source is None else "in a way that it accepts"
        advice = f"Confirm that it's you {way}: call POST /api/auth/reauthenticate or sign in again, and repeat this."
        super().__init__(limit, missing.required, f"{explain(missing)} {advice}")
        self.fields = fields_of(missing)
