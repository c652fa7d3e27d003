"""Sign-in policies as they are stored, and the refusals of their changes."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from core.kernel.errors import Invalid
from core.kernel.proofs import Method
from core.kernel.sign_in_policy.rules import EffectivePolicy, Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInPolicy:
    """The sign-in policy of an organization, of one of its applications, or of the platform. Times are UTC."""

    id: UUID
    org_id: UUID | None  # None for the platform
    service_id: UUID | None  # None for the whole organization
    rules: Rules
    changed_at: datetime
    changed_by: UUID | None
    version: int = 0  # 0 if it is not stored


@dataclass(frozen=True, slots=True)
class PolicyOfUser:
    """The policy of an organization that a user is a member of, or of the platform for one of its owners."""

    policy: EffectivePolicy
    is_admin: bool


class MethodsUnavailable(Invalid):
    """Some users could not sign in with these methods. Allow a passkey, or what the rule about second factors needs beside a password."""


def require_available(rules: Rules, *, email_is_on: bool) -> None:
    """Refuse rules that a user may be unable to meet. Everyone can set up a password, TOTP or a passkey. Raises: MethodsUnavailable."""
    if rules.methods is None or Method.PASSKEY in rules.methods:
        return
    firsts = {Method.PASSWORD, Method.EMAIL} if email_is_on else {Method.PASSWORD}
    has_second = Method.TOTP in rules.methods or not rules.second_factor
    if rules.phishing_resistant or rules.methods.isdisjoint(firsts) or not has_second:
        raise MethodsUnavailable
