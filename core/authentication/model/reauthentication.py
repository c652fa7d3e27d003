"""Reauthentication: the ways of an account to prove that its user is here (security A-12), and the forms that wait for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.kernel.errors import Invalid, Unauthenticated
from core.kernel.providers import Provider

CODE_TTL: Final = timedelta(minutes=15)
MAX_CODE_ATTEMPTS: Final = 5


class FirstFactorMissing(Invalid):
    """Send `password`, or the `email_code` from POST /api/auth/reauthenticate/email, and `code` if your account has a second factor."""


class PasswordWrong(Unauthenticated):
    """The password is wrong. Try again, or use another way to confirm that it's you."""


class EmailedCodeWrong(Unauthenticated):
    """This code is wrong, has expired or was already used. Enter the 6 digits from the newest email, or request another one."""


class SecondFactorMissing(Unauthenticated):
    """Enter a code of your authenticator app too, or a backup code."""


class NoVerifiedAddress(Invalid):
    """Your email address is not verified, so no code can be sent to it. Use another way to confirm that it's you."""


class ProviderNotLinked(Invalid):
    """You can't confirm that it's you at this identity provider. Use another way."""


class OtherIdentity(Unauthenticated):
    """This account at the identity provider is not linked to yours. Sign in there with the linked one, or use another way."""


@dataclass(frozen=True, slots=True)
class ReauthenticationOptions:
    """The ways in which the user of a session can prove that they are here."""

    needs_first_factor: bool  # the last one in this session is too old
    password: bool
    email_code: bool
    providers: tuple[Provider, ...]
    needs_second_factor: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReauthenticationProof:
    """The factors that a user presents. `code` is one of the second factor."""

    password: str | None = field(default=None, repr=False)
    email_code: str | None = field(default=None, repr=False)
    code: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Reauthentication:
    """A sign-in in a session that exists. Without a method, only the second factor was verified. `at` is UTC."""

    method: str | None
    at: datetime
    second_factor: bool
    is_fresh: bool = True  # False if an identity provider may have authenticated the user earlier


@dataclass(frozen=True, slots=True)
class EmailedCode:
    """The code of an email, as a slow salted hash, and the SHA-256 of the address that it was sent to. `expires_at` is UTC."""

    address_hash: bytes
    salt: bytes = field(repr=False)
    code_hash: bytes = field(repr=False)
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class PendingReauthentication:
    """The identity provider at which the user of a session signed in again, and the time in UTC. The second factor is still missing."""

    provider: Provider
    at: datetime


KEPT_FOR: Final = timedelta(minutes=15)
MAX_KEPT: Final = 5  # in one session


class KeptFormEnded(Invalid):
    """This form was already sent, or has expired. Open its page to check the result, and fill it in again if necessary."""


@dataclass(frozen=True, slots=True)
class KeptForm:
    """A form of our pages that was sent in a session, and is sent again after a reauthentication. Times are UTC."""

    id: UUID
    session_id: UUID
    path: str  # that it was sent to
    label: str  # what the form does
    fields: Mapping[str, str] = field(repr=False)
    created_at: datetime
    expires_at: datetime
