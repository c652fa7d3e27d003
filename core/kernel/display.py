"""How people are told things, in mails and on pages alike."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from core.kernel.principals import Role

PRODUCT: Final = "Gatehouse"
# What somebody is invited to be "of" an organization; nobody is invited to own it.
ROLES: Final[Mapping[Role, str]] = MappingProxyType({Role.ADMIN: "an administrator", Role.MEMBER: "a member"})


def moment(time: datetime) -> str:
    """A point in time, in words that no reader takes for another one."""
    time = time.astimezone(UTC)
    return f"{time.day} {time:%B %Y at %H:%M} UTC"
