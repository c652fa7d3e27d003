"""Profiles for tests."""

from dataclasses import asdict, replace
from typing import Final
from uuid import UUID

from core.accounts.model.profiles import Profile
from core.kernel.causes import SYSTEM
from ports import Ports

BASIC_PROFILE: Final = Profile("Ada Lovelace", "https://images.example.com/ada.png", "en-GB", "Europe/London")
FULL_PROFILE: Final = replace(
    BASIC_PROFILE,
    given_name="Ada",
    family_name="King",
    middle_name="Byron",
    nickname="Countess",
    preferred_username="ada",
    profile="https://example.com/ada",
    website="https://ada.example.com",
    gender="female",
    birthdate="1815-12-10",
)
NO_FIELDS: Final = dict.fromkeys(("name", "picture", "locale", "zoneinfo"))  # as in responses, without details
ALL_FIELDS: Final = asdict(FULL_PROFILE)
BASIC_FIELDS: Final = {name: ALL_FIELDS[name] for name in NO_FIELDS}


async def set_profile(ports: Ports, user_id: UUID, profile: Profile = FULL_PROFILE) -> None:
    """Give the account a profile."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.set_profile(user_id, profile, ports.clock.now())
