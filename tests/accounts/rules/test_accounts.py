"""Rules for passwords and usable accounts (security A-1, A-4)."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.accounts.model.accounts import (
    MIN_PASSWORD_LENGTH,
    Account,
    AccountOrigin,
    PasswordContainsEmail,
    PasswordContainsProduct,
    PasswordTooCommon,
    PasswordTooLong,
    PasswordTooShort,
    check_new_password,
    check_password_length,
)
from core.kernel.errors import Invalid
from core.kernel.values import Email, new_id
from entrypoints.common_passwords import default_common_passwords
from tests.tables import table

REPEATABLE = settings(max_examples=300)
NOW = datetime(2026, 3, 14, tzinfo=UTC)
ADA = Email("ada@example.com")


def check(password: str, email: Email = ADA) -> None:
    check_new_password(password, email, default_common_passwords())


@pytest.mark.slow
@REPEATABLE
@given(password=st.text(max_size=140))
def test_without_a_list_of_common_passwords_the_length_is_the_main_rule(password: str) -> None:
    fits = 8 <= len(password) <= 128 and len(password.encode("utf-8", "surrogatepass")) <= 512
    try:
        check_new_password(password, ADA, frozenset())
    except Invalid as refusal:
        assert not fits or isinstance(refusal, PasswordContainsProduct)  # noqa: PT017
        assert refusal.code == "BAD_REQUEST"  # noqa: PT017
    else:
        assert fits


@table("password", ["72519403", "a" * 128, "😀" * 128, " " * 8, "\x00" * 8, "cromulent", "ÅÅÅÅÅÅÅÅ"])
def test_a_password_of_the_right_length_is_accepted(password: str) -> None:
    check(password)


@table("password", ["", "1234567", "😀" * 7])
def test_a_short_password_is_refused(password: str) -> None:
    with pytest.raises(PasswordTooShort):
        check(password)


@table("password", ["a" * 129, "😀" * 129, "a" * 10**6])
def test_a_long_password_is_refused(password: str) -> None:
    with pytest.raises(PasswordTooLong):
        check(password)
    with pytest.raises(PasswordTooLong):
        check_password_length(password)


def test_a_presented_password_can_be_short() -> None:
    check_password_length("")
    check_password_length("x")


def test_the_documented_number_of_common_passwords_is_refused_in_any_case() -> None:
    common = default_common_passwords()
    assert sum(len(password) >= MIN_PASSWORD_LENGTH for password in common) == len(common) == 11_611
    for password in ("password1234", "P@ssw0rd", "QWERTYuiop"):
        with pytest.raises(PasswordTooCommon):
            check(password)
    for password in ("password1234 ", "password1234567"):
        check(password)


@table(
    ("password", "email", "error"),
    [
        ("my-ada.lovelace-1815", "ada.lovelace@example.com", PasswordContainsEmail),
        ("ADA.Lovelace", "ada.lovelace@example.com", PasswordContainsEmail),
        ("xx ada@example.com", "ada@example.com", PasswordContainsEmail),
        ("canada-is-wide", "ada@example.com", None),  # a local part with three letters is in too many words
        ("gracefully", "grace@example.com", PasswordContainsEmail),
        ("example.com", "ada@example.com", None),
        ("my GateHouse 1", "ada@example.com", PasswordContainsProduct),
    ],
)
def test_a_password_does_not_contain_the_address_or_the_product(password: str, email: str, error: type[Invalid] | None) -> None:
    with pytest.raises(error) if error else nullcontext():
        check(password, Email(email))


def test_an_account_is_usable_until_it_is_deactivated_or_anonymized() -> None:
    account = Account(new_id(), Email("a@example.com"), None, "hash", False, AccountOrigin.SCIM, None, None, None, NOW, None)
    assert account.is_usable
    assert not replace(account, deactivated_at=NOW).is_usable
    assert not replace(account, anonymized_at=NOW).is_usable


def test_the_repr_of_an_account_hides_the_hash() -> None:
    account = Account(new_id(), Email("a@example.com"), None, "$argon2id$secret", False, AccountOrigin.SCIM, None, None, None, NOW, None)
    assert "argon2id" not in repr(account)
    assert "argon2id" not in str(account)
