"""Every refusal has a code and a sentence for its reader."""

import importlib
import pkgutil
import re

import pytest

import core
from core.accounts.model.attempt_limits import SecretKind, TooManyAttempts
from core.authentication.model.login import CredentialsInvalid
from core.kernel.errors import Limited, Outage, Refusal, Unauthenticated, refuse
from tests.tables import table

for module in pkgutil.walk_packages(core.__path__, "core."):
    importlib.import_module(module.name)


def descendants(kind: type[Exception]) -> list[type[Exception]]:
    children = kind.__subclasses__()
    # Other test modules define refusals too.
    return [error for child in children for error in (child, *descendants(child)) if error.__module__.startswith("core.")]


REFUSALS = descendants(Refusal)
OUTAGES = descendants(Outage)


def test_every_refusal_has_its_own_message() -> None:
    """The docstring is the message."""
    assert len(REFUSALS) > 100
    assert [refusal for refusal in REFUSALS if not is_message(refusal.__dict__.get("__doc__"))] == []
    assert [outage for outage in OUTAGES if not (outage.__doc__ or "").strip().endswith(".")] == []


def is_message(docstring: str | None) -> bool:
    """Return whether this is one line of text, without programming words."""
    text = (docstring or "").strip()
    is_line = text[:1].isupper() and text.endswith((".", "?")) and "\n" not in text
    return is_line and not re.search(r"\b(None|self|raises|SQL|docstring)\b", text)


def test_the_message_of_a_failed_login_does_not_name_the_reason() -> None:
    assert CredentialsInvalid().message == "The email address or the password is wrong."


def test_a_refusal_can_have_another_message() -> None:
    assert Refusal("Just so.").message == "Just so."
    assert str(Refusal("Just so.")) == "Just so."


@table(("wait", "seconds"), [(0, 1), (0.001, 1), (0.999, 1), (1, 1), (1.0001, 2), (59.5, 60), (119, 119), (900, 900), (-3, 1)])
def test_a_wait_is_rounded_up_to_whole_seconds(wait: float, seconds: int) -> None:
    assert Limited(wait).retry_after == seconds
    assert TooManyAttempts(wait).retry_after == seconds
    shown = "15 minutes" if seconds == 900 else f"{seconds} s"
    assert f"Try again in {shown}" in Limited(wait).message
    for secret in SecretKind:
        assert f"Try again in {shown}" in TooManyAttempts(wait, secret).message


@table(("seconds", "shown"), [(119.1, "2 minutes"), (120, "2 minutes"), (121, "3 minutes"), (899.2, "15 minutes")])
def test_a_long_wait_is_shown_in_minutes_and_never_shorter(seconds: float, shown: str) -> None:
    assert Limited(seconds).wait == shown


def test_too_many_attempts_has_advice_for_each_secret() -> None:
    assert "reset the password" in TooManyAttempts(30).message
    assert "code" in TooManyAttempts(30, SecretKind.MFA).message
    assert "password" not in TooManyAttempts(30, SecretKind.MFA).message, "a reset does not change the second factor"


def test_a_token_is_called_invalid_only_if_one_was_sent() -> None:
    with_token = {kind.__name__ for kind in REFUSALS if issubclass(kind, Unauthenticated) and kind.token_sent}
    assert with_token == {
        *("TokenExpired", "TokenInvalid", "SessionEnded", "UnknownKey", "PreAuthExpired", "PreAuthInvalid", "WrongToken"),
        *("ProgramStopped", "EvaluatorUnknown"),
        *("ScimTokenInvalid", "ScimTokenNotApplied", "PersonalTokenInvalid", "RegistrationTokenInvalid"),
        *("AuthenticationInsufficient", "MfaMissing", "SignInNotRecent", "SignInNotAccepted", "StepUpNeeded", "OwnProofNeeded"),
        *("OwnFactorNeeded", "OwnFactorMissing", "PasskeyNeeded", "PasswordAndMailboxNeeded"),
        *("BoundTokenAsBearer", "BearerTokenAsBound", "ProofRefused", "NonceRequired"),
    }


def test_refuse_raises_its_argument() -> None:
    with pytest.raises(Limited):
        refuse(Limited(3))
    with pytest.raises(TooManyAttempts):
        refuse(TooManyAttempts(3))
