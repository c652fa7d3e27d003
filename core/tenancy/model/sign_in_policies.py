"""Sign-in policies as they are stored, and the refusals of their changes."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

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
