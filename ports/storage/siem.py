"""What is asked of storage about forwarding to SIEMs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from core.siem import ClaimedBatch, Configuration, Queued, Result, Sink, Standing


class SiemRead(Protocol):
    """Where the audit logs of organizations are forwarded to, looked at."""

    async def standing(self, org_id: UUID) -> Standing | None:
        """With what waits, of which core.siem.COUNTED are counted."""
        ...

    async def sink(self, org_id: UUID) -> Sink | None:
        """With its token. Raises SealBroken."""
        ...

    async def waiting(self, org_id: UUID, siem_id: UUID, limit: int, most_bytes: int) -> list[Queued]:
        """The beginning of the queue, with the entries as they are now: at most `limit`, and no more of them after that many bytes."""
        ...


class Siem(SiemRead, Protocol):
    """Where the audit logs of organizations are forwarded to, changed; tokens are sealed. Records look here, and wait for nobody.

    The organization is locked before `put` and `remove`.
    """

    async def put(self, siem_id: UUID, sink: Sink, now: datetime) -> None:
        """In place of what was there, if anything was, which then keeps its id and its queue."""
        ...

    async def remove(self, org_id: UUID, now: datetime) -> Configuration | None:
        """What was there. Nobody can reach the queue any more; the housekeeper removes it."""
        ...

    async def begin_test(self, org_id: UUID, now: datetime, until: datetime) -> bool:
        """False while another test is running."""
        ...

    async def end_test(self, org_id: UUID, until: datetime) -> None:
        """That of the one that began with this `until`."""
        ...

    async def claim(self, now: datetime, leased_until: datetime, *, struggling: bool) -> ClaimedBatch | None:
        """The one that has been due for the longest, of those that are enabled, whose organizations are active, and for which something
        waits; of those that were slow or failed the last time only with `struggling`. Nobody else claims it before `leased_until`."""
        ...

    async def taken(self, claimed: ClaimedBatch, positions: Sequence[int], now: datetime, *, posted: bool, slow: bool) -> None:
        """Remove these from the queue, and have the rest be due now. What was posted went well; else nothing is known of that."""
        ...

    async def failed(self, claimed: ClaimedBatch, failure: Result, now: datetime, due_at: datetime) -> None:
        """Keep the queue until then. Nothing happens if the lease has ended and somebody else has it."""
        ...
