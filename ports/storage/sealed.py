"""What is asked of storage about values that are encrypted at rest."""

from typing import Protocol

from core.housekeeping import Sealed as SealedKind


class Sealed(Protocol):
    """The values that are encrypted at rest."""

    async def renew(self, kind: SealedKind, after: str, limit: int) -> tuple[int, str | None]:
        """Seal under the active key what is not, in at most `limit` rows after the one named `after` ("" is before the first).

        How many it were, and the name of the last row, or None if there are no more. One statement for each of them.
        """
        ...
