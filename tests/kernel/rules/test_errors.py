"""Every refusal has a code and a sentence for its reader."""

import importlib
import pkgutil
import re

import pytest

import core
from core.accounts.attempt_limits_rules import SecretKind, TooManyAttempts
from core.kernel.errors import Limited, Outage, Refusal, Unauthenticated, refuse

# organizations.md section 7, and the defaults of decisions, point 2.
CODES = {
    "BAD_REQUEST",
    "UNAUTHORIZED",
    "TOKEN_EXPIRED",
    "JWT_ERROR",
    "FORBIDDEN",
    "ORGANIZATION_NOT_ACTIVE",
    "NOT_FOUND",
    "CONFLICT",
    "SERVICE_LIMIT_EXCEEDED",
    "TEAM_LIMIT_EXCEEDED",
    "INVITATION_EXPIRED",
    "DEVICE_CODE_EXPIRED",
    "DEVICE_CODE_PENDING",
    "RATE_LIMIT_EXCEEDED",
    "NOT_IMPLEMENTED",
    "INTERNAL_SERVER_ERROR",
    "DATABASE_ERROR",
    "OAUTH_ERROR",
    "BILLING_ERROR",
    "AUDIT_ERROR",
}


def descendants(kind: type[Exception]) -> list[type[Exception]]:
    for module in pkgutil.walk_packages(core.__path__, "core."):
        importlib.import_module(module.name)
    children = kind.__subclasses__()
    # Tests may have made some of their own.
    return [found for child in children for found in (child, *descendants(child)) if found.__module__.startswith("core.")]


REFUSALS = descendants(Refusal)
OUTAGES = descendants(Outage)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_has_a_code_of_the_contract(refusal: type[Refusal]) -> None:
    assert refusal.code in CODES


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_has_a_sentence_of_its_own(refusal: type[Refusal]) -> None:
    sentence = refusal.__dict__.get("__doc__")
    assert sentence, "the docstring is the message"
    assert sentence[0].isupper()
    assert sentence.rstrip().endswith((".", "?"))
    assert "\n" not in sentence.strip()
    assert not re.search(r"\b(None|self|raises|SQL|docstring)\b", sentence)


@pytest.mark.parametrize("outage", OUTAGES)
def test_an_outage_has_a_code_and_a_sentence(outage: type[Outage]) -> None:
    assert outage.code in CODES
    assert (outage.__doc__ or "").strip().endswith(".")


def test_sentences_do_not_say_who_failed_a_login() -> None:
    from core.authentication.login_rules import CredentialsInvalid

    assert CredentialsInvalid().message == "The email address or the password is wrong."


def test_a_message_may_be_given() -> None:
    assert Refusal("Just so.").message == "Just so."
    assert str(Refusal("Just so.")) == "Just so."


@pytest.mark.parametrize(("wait", "told"), [(0, 1), (0.001, 1), (0.999, 1), (1, 1), (1.0001, 2), (59.5, 60), (900, 900), (-3, 1)])
def test_a_wait_is_rounded_up_to_whole_seconds(wait: float, told: int) -> None:
    assert Limited(wait).retry_after == told
    assert f"{told} s" in Limited(wait).message
    assert TooManyAttempts(wait).retry_after == told
    for secret in SecretKind:
        assert f"{told} s" in TooManyAttempts(wait, secret).message


def test_who_guesses_too_often_is_told_what_helps() -> None:
    assert "reset the password" in TooManyAttempts(30).message
    assert "code" in TooManyAttempts(30, SecretKind.MFA).message
    assert "password" not in TooManyAttempts(30, SecretKind.MFA).message, "which would not help: a reset leaves the second factor as it is"


def test_only_where_a_token_came_in_is_it_called_invalid() -> None:
    with_token = {kind.__name__ for kind in REFUSALS if issubclass(kind, Unauthenticated) and kind.token_sent}
    assert with_token == {
        *("TokenExpired", "TokenInvalid", "SessionEnded", "UnknownKey", "PreAuthExpired", "PreAuthInvalid", "WrongToken"),
        "ScimTokenInvalid",
    }


def test_refuse_raises_what_it_is_given() -> None:
    with pytest.raises(Limited):
        refuse(Limited(3))
    with pytest.raises(TooManyAttempts):
        refuse(TooManyAttempts(3))
