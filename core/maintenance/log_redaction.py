"""Making logs say nothing of where somebody was, little by little: a log may be longer than one transaction should take
(ops/decisions/0008)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.kernel.principals import SYSTEM

if TYPE_CHECKING:
    from uuid import UUID

    from ports import Ports
    from ports.storage import Transaction
from core.maintenance.log_redaction_rules import BATCH


async def finish(ports: Ports, user_id: UUID) -> None:
    """Blank what is left, a transaction for each batch, together with whoever else is at it."""
    async with ports.storage.reading() as read:
        if await read.privacy.unblanked_log(user_id) is None:
            return
    done = BATCH
    while done >= BATCH:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            done = await _go_on(tx, user_id, BATCH)


async def sweep(tx: Transaction, limit: int) -> int:
    """Go on where somebody's anonymization was left, one person after the other: with how many entries, of at most `limit`."""
    done = 0
    while done < limit and (user_id := await tx.privacy.unblanked_person()) is not None:
        done += await _go_on(tx, user_id, limit - done)
    return done


async def _go_on(tx: Transaction, user_id: UUID, limit: int) -> int:
    await tx.accounts.lock(user_id)  # who else is at it waits, and takes what comes next
    done = 0
    while done < limit and (log := await tx.privacy.unblanked_log(user_id)) is not None:
        done += await tx.privacy.blank(user_id, log, limit - done)
    return done
