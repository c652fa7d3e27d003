"""The facts with which a session is judged, and the count of policy decisions."""

from datetime import datetime

from core.accounts import relying_party
from core.authentication.model import policy
from core.kernel import judgement
from core.kernel.sign_in_age import SignInAge
from core.kernel.sign_in_policy.steps import Verdict
from ports import Ports


def facts_of(
    ports: Ports,
    path: judgement.PolicyPath,
    subject: policy.PolicySubject,
    now: datetime,
    address: str | None = None,
    age: SignInAge = SignInAge.ANY,
) -> judgement.SignInFacts:
    """Return the facts about the session of a user that a policy binds."""
    session, account = subject.session or policy.PolicySession(()), subject.account
    return judgement.SignInFacts(
        now=now,
        settings=ports.policy,
        path=path,
        age=age,
        address=address,
        has_password=account.password_hash is not None,
        factors=account.factors,
        factors_here=relying_party.without_lost_keys(ports, account, subject.keys).factors,
        policy=subject.policy,
        first_ways=account.first_ways(subject.providers, email_is_on=ports.policy.offers_email(subject.email_sign_in)),
        is_admin=subject.is_admin,
        connections=subject.connections,
        proofs=session.proofs,
        risk_is_high=session.risk_is_high,
        used_at=session.used_at,
        factor_at_device=session.factor_at_device,
    )


def count(ports: Ports, facts: judgement.SignInFacts, verdict: Verdict) -> None:
    """Count the decision of the policy, unless it is about a view."""
    if facts.policy is not None and not facts.path.is_view:
        ports.metrics.sign_in_policy_decided(facts.path, verdict.decision.outcome)
