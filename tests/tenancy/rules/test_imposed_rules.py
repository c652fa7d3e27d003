"""Imposed rules as a model: the owner saves a policy, and a member with fewer rights saves any rules after it, at any times."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from hypothesis import example, given
from hypothesis import strategies as st

from core.kernel.connections import UNKNOWN_AT_CONNECTIONS
from core.kernel.roles import Capability
from core.kernel.sign_in_policy.rules import Rule, Rules
from core.tenancy.model.sign_in_policies import SignInPolicy

NOW = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
OWNER = frozenset(Capability)
CLERK = frozenset({Capability.SIGN_IN_POLICY_MANAGE})
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "methods": st.sampled_from([["passkey"], ["password", "totp"], ["password", "passkey"], ["password", "passkey", "totp"]]),
        "second_factor": st.sampled_from([["admins"], ["everyone"], ["high_risk"], ["admins", "high_risk"]]),
        "phishing_resistant": st.sampled_from([["admins"], ["everyone"]]),
        "session_idle_minutes": st.sampled_from([5, 60]),
        "grace_days": st.sampled_from([1, 10, 30, 60]),
    },
)
SAVES = st.lists(st.tuples(st.sampled_from([0, 1, 5, 20, 61]), st.none() | DOCUMENTS), min_size=1, max_size=4)


def stricter(new: Rules, old: Rules, now: datetime) -> set[Rule]:
    """Return the rules that are stricter than the old rules, at some time from now on."""
    times = {now, *(due for due in (*new.due_at.values(), *old.due_at.values()) if due > now)}
    return {rule for at in times for rule in new.in_force(at).tightened(old.in_force(at), at)}


@given(owner=DOCUMENTS, saves=SAVES)
@example(owner={"second_factor": ["high_risk"]}, saves=[(0, {"second_factor": ["admins"]}), (0, None)])
@example(owner={"methods": ["password", "totp"], "grace_days": 30}, saves=[(0, {"methods": ["passkey"]}), (0, None)])
@example(
    owner={"methods": ["password", "totp"]},
    saves=[(0, {"methods": ["passkey"], "session_idle_minutes": 60}), (0, {"methods": ["password", "totp"], "grace_days": 60})],
)
def test_no_save_keeps_the_owner_out_for_longer_than_until_the_removal(
    owner: dict[str, Any], saves: list[tuple[int, dict[str, Any] | None]]
) -> None:
    """`None` saves the owner's values again, with the longest grace period: the member's stricter values would hold until its end."""
    now = NOW
    policy = SignInPolicy(org_id=uuid4(), rules=Rules(), changed_at=now)
    policy = policy.changed_to(Rules.parse(owner).with_due_dates(policy.rules, now), OWNER, now, uuid4())
    saved = policy.rules
    for days, document in saves:
        now += timedelta(days=days)
        rules = Rules.parse({**owner, "grace_days": 60} if document is None else document).with_due_dates(policy.rules, now)
        policy = policy.changed_to(rules, CLERK, now, uuid4())
        assert stricter(policy.rules, saved, now) <= policy.imposed()
        assert not stricter(policy.rules_left_to(UNKNOWN_AT_CONNECTIONS), saved, now)
