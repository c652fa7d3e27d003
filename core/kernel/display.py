"""Display formats shared by emails and pages."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from core.kernel.principals import Role

PRODUCT: Final = "Gatehouse"
PLATFORM_SUPPORT: Final = "Platform support"  # an impersonation, as the user sees it
# Completes "... as ...". Invitations never offer the role owner.
ROLES: Final[Mapping[Role, str]] = MappingProxyType({Role.ADMIN: "an administrator", Role.MEMBER: "a member"})


def format_utc(time: datetime) -> str:
    """Return a point in time in UTC, such as "5 March 2026 at 14:05 UTC". The month is a word, so that readers know it from the day."""
    time = time.astimezone(UTC)
    return f"{time.day} {time:%B %Y at %H:%M} UTC"
