"""Rules for passwords and usable accounts (security A-1, A-4, decision 67)."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.accounts.accounts_rules import (
    Account,
    AccountOrigin,
    PasswordTooCommon,
    PasswordTooLong,
    PasswordTooShort,
    check_new_password,
    check_password_length,
)
from core.kernel.errors import Invalid
from core.kernel.values import Email, new_id

REPEATABLE = settings(derandomize=True, deadline=None, max_examples=300, database=None)
NOW = datetime(2026, 3, 14, tzinfo=UTC)


@pytest.mark.slow
@REPEATABLE
@given(password=st.text(max_size=140))
def test_length_is_the_only_rule(password: str) -> None:
    fits = 8 <= len(password) <= 128 and len(password.encode("utf-8", "surrogatepass")) <= 512
    try:
        check_new_password(password)
    except Invalid as refusal:
        assert not fits
        assert refusal.code == "BAD_REQUEST"  # noqa: PT017
    else:
        assert fits


@pytest.mark.parametrize("password", ["12345678", "a" * 128, "😀" * 128, " " * 8, "\x00" * 8, "password", "ÅÅÅÅÅÅÅÅ"])
def test_a_password_of_the_right_length_is_accepted(password: str) -> None:
    check_new_password(password)


@pytest.mark.parametrize("password", ["", "1234567", "😀" * 7])
def test_a_short_password_is_refused(password: str) -> None:
    with pytest.raises(PasswordTooShort):
        check_new_password(password)


@pytest.mark.parametrize("password", ["a" * 129, "😀" * 129, "a" * 10**6])
def test_a_long_password_is_refused(password: str) -> None:
    with pytest.raises(PasswordTooLong):
        check_new_password(password)
    with pytest.raises(PasswordTooLong):
        check_password_length(password)


def test_a_presented_password_can_be_short() -> None:
    check_password_length("")
    check_password_length("x")


def test_common_passwords_are_compared_exactly() -> None:
    common = frozenset({"password1234"})
    with pytest.raises(PasswordTooCommon):
        check_new_password("password1234", common)
    for other in ("Password1234", "password1234 ", "password12345"):
        check_new_password(other, common)


def test_an_account_is_usable_until_it_is_deactivated_or_anonymized() -> None:
    account = Account(new_id(), Email("a@example.com"), None, "hash", False, AccountOrigin.SCIM, None, None, None, NOW, None)
    assert account.is_usable
    assert not replace(account, deactivated_at=NOW).is_usable
    assert not replace(account, anonymized_at=NOW).is_usable


def test_the_repr_of_an_account_hides_the_hash() -> None:
    account = Account(new_id(), Email("a@example.com"), None, "$argon2id$secret", False, AccountOrigin.SCIM, None, None, None, NOW, None)
    assert "argon2id" not in repr(account)
    assert "argon2id" not in str(account)
