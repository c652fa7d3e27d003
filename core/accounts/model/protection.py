"""How an account is protected from a stolen password, and the factors that it has. Lists, exports and tasks say the same."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from core.kernel.proofs import Strength


class Protection(StrEnum):
    """Whether a stolen password is enough to sign in to an account."""

    PASSWORD_ALONE = "password_alone"  # noqa: S105  (a state) also if the account has a passkey that is no second factor
    PROTECTED = "protected"
    MISSING = "missing"  # the organization asks for a stronger sign-in than the account's factors allow


class HeldFactor(StrEnum):
    """The kinds of factors in lists. NONE selects accounts without any."""

    PASSKEY = "passkey"
    APP = "app"
    KEY = "key"  # a security key
    NONE = "none"


@dataclass(frozen=True, slots=True)
class AskedStrength:
    """The strength that an organization asks in every sign-in of its members."""

    of_members: Strength = Strength.ONE
    of_admins: Strength = Strength.ONE


NOTHING_ASKED: Final = AskedStrength()
