"""The rules that every user can meet, where passkeys work and where they do not."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from core.accounts.model.passkeys import NoPasskeysHere
from core.kernel.errors import Refusal
from core.kernel.sign_in_policy.rules import EffectivePolicy, PolicyPart, Rules
from core.tenancy.model.sign_in_policies import MethodsUnavailable, require_available
from tests.tables import table

NOW = datetime(2026, 3, 14, 15, 9, tzinfo=UTC)
WITH_APP = {"methods": ["password", "totp"], "second_factor": ["everyone"]}


def policy_of(*saved: list[dict[str, Any]]) -> EffectivePolicy:
    """Return the policy of an organization, and with two lists, of its application: rules that were saved one by one."""
    parts = []
    for name, documents in zip(("Acme", "Shop"), saved, strict=False):
        rules = Rules()
        for document in documents:
            rules = Rules.parse(document).with_due_dates(rules, NOW)
        parts.append(PolicyPart(name, rules))
    return EffectivePolicy(UUID(int=1), 1, tuple(parts))


@table(
    ("document", "with_passkeys", "without_passkeys"),
    [
        ({}, None, None),
        ({"second_factor": ["everyone"]}, None, None),
        ({"phishing_resistant": ["admins"]}, None, NoPasskeysHere),
        ({"methods": ["passkey"]}, None, NoPasskeysHere),
        ({"methods": ["password", "passkey"], "second_factor": ["everyone"]}, None, NoPasskeysHere),
        ({"methods": ["password", "passkey"]}, None, None),
        (WITH_APP, None, None),
        ({**WITH_APP, "phishing_resistant": ["everyone"]}, MethodsUnavailable, MethodsUnavailable),
        ({"methods": ["totp"]}, MethodsUnavailable, MethodsUnavailable),
        ({"methods": ["password"], "second_factor": ["high_risk"]}, MethodsUnavailable, MethodsUnavailable),
    ],
    ids=str,
)
def test_rules_that_only_a_passkey_meets_need_a_host_with_passkeys(
    document: dict[str, Any], with_passkeys: type[Refusal] | None, without_passkeys: type[Refusal] | None
) -> None:
    def refusal(*, has_passkeys: bool) -> type[Refusal] | None:
        try:
            require_available(policy_of([document]), NOW, email_is_on=False, has_passkeys=has_passkeys)
        except Refusal as refused:
            return type(refused)
        return None

    assert (refusal(has_passkeys=True), refusal(has_passkeys=False)) == (with_passkeys, without_passkeys)


WITH_PASSWORD, WITH_PASSKEY = {"methods": ["password"]}, {"methods": ["passkey"]}


@table(
    ("saved", "period"),
    [
        ([[{"methods": ["password", "totp"]}, {**WITH_PASSKEY, "grace_days": 14}]], None),
        ([[{**WITH_PASSKEY, "grace_days": 30}], [{"methods": ["password", "totp"]}]], "From 13 April 2026 on, "),
        ([[WITH_PASSKEY], [{"methods": ["password", "totp"]}, {**WITH_PASSKEY, "grace_days": 14}]], "Until 28 March 2026, "),
        (
            [[WITH_PASSWORD, {**WITH_PASSKEY, "grace_days": 30}], [{**WITH_PASSKEY, "grace_days": 14}]],
            "From 28 March 2026 until 13 April 2026, ",
        ),
        *(
            ([[WITH_PASSWORD, {**WITH_PASSKEY, "grace_days": 30}, {**WITH_PASSKEY, **rule, "grace_days": grace}]], period)
            for rule in ({"second_factor": ["everyone"]}, {"phishing_resistant": ["admins"]}, {"second_factor": ["high_risk"]})
            for grace, period in ((0, "Until 13 April 2026, "), (14, "From 28 March 2026 until 13 April 2026, "), (30, None))
        ),
    ],
    ids=str,
)
def test_the_rules_of_each_moment_can_be_met(saved: list[list[dict[str, Any]]], period: str | None) -> None:
    """The refusal names the time in which some users could not sign in."""
    policy = policy_of(*saved)
    if period is None:
        require_available(policy, NOW, email_is_on=False, has_passkeys=True)
        return
    with pytest.raises(MethodsUnavailable, match=f"^{period}some users could not sign in"):
        require_available(policy, NOW, email_is_on=False, has_passkeys=True)
