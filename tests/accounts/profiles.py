"""Profiles for tests."""

from dataclasses import asdict
from typing import Final
from uuid import UUID

from core.accounts.profile_rules import NO_PROFILE, Profile
from core.kernel.principals import SYSTEM
from ports import Ports

FULL_PROFILE: Final = Profile("Ada Lovelace", "https://images.example.com/ada.png", "en-GB", "Europe/London")
NO_FIELDS: Final = asdict(NO_PROFILE)  # as in responses
ALL_FIELDS: Final = asdict(FULL_PROFILE)


async def set_profile(ports: Ports, user_id: UUID, profile: Profile = FULL_PROFILE) -> None:
    """Give the account a profile."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.set_profile(user_id, profile, ports.clock.now())
