"""The rules that every user can meet, where passkeys work and where they do not."""

from typing import Any

import pytest

from core.accounts.model.passkeys import NoPasskeysHere
from core.kernel.errors import Refusal
from core.kernel.sign_in_policy.rules import Rules
from core.tenancy.model.sign_in_policies import MethodsUnavailable, require_available

WITH_APP = {"methods": ["password", "totp"], "second_factor": ["everyone"]}


@pytest.mark.parametrize(
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
            require_available(Rules.parse(document), email_is_on=False, has_passkeys=has_passkeys)
        except Refusal as refused:
            return type(refused)
        return None

    assert (refusal(has_passkeys=True), refusal(has_passkeys=False)) == (with_passkeys, without_passkeys)
