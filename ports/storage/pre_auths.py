"""What is asked of storage about sign-ins that wait for a second factor."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.guesses import Allowance
from core.login import Pending, Try


class PreAuths(Protocol):
    """Sign-ins that wait for the second factor; what ends them well is `Mfa.accept_step` or `accept_code`. The account is locked before any
    of these."""

    async def add(self, pending: Pending) -> None:
        """The tokens of what is to be linked are sealed."""
        ...

    async def remove_all(self, user_id: UUID) -> None:
        """None of the person's can be continued any more."""
        ...


class Tries(Protocol):
    """Tries at the second factor of one sign-in (security.md J-8)."""

    async def take_try(
        self, pre_auth_id: UUID, user_id: UUID, tries: int, subject: bytes, allowance: Allowance, now: datetime
    ) -> Try | None:
        """Count one more try at a sign-in of this person that waits, and one more guess at their second factor, as `Guesses.charge` does at
        `subject`; and find what the code is compared with. Atomic.

        None, and nothing counted, where there were so many tries, or the sign-in has ended; nor is a try that must wait. Raises SealBroken.
        """
        ...
