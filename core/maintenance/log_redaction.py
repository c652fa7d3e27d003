"""Removing an anonymized user's personal data from the logs (docs/adr/0008).

The removal works in batches, because a log may be longer than a transaction should process.
"""

from uuid import UUID

from core.kernel.causes import SYSTEM
from core.maintenance.model.housekeeping import REDACTION_BATCH
from ports import Ports
from ports.storage import Transaction


async def finish(ports: Ports, user_id: UUID) -> None:
    """Redact the rest of the user's log entries, one transaction per batch.

    The housekeeper may work on the same entries at the same time.
    """
    async with ports.storage.reading() as read:
        if await read.privacy.next_log_to_redact(user_id) is None:
            return
    done = REDACTION_BATCH
    while done >= REDACTION_BATCH:
        async with ports.storage.transaction(by=SYSTEM) as tx:
            done = await _redact(tx, user_id, REDACTION_BATCH)


async def sweep(tx: Transaction, limit: int) -> int:
    """Redact at most `limit` entries about anonymized users, one user after the other. Return how many entries were redacted."""
    done = 0
    while done < limit and (user_id := await tx.privacy.next_user_to_redact()) is not None:
        done += await _redact(tx, user_id, limit - done)
    return done


async def _redact(tx: Transaction, user_id: UUID, limit: int) -> int:
    await tx.accounts.lock(user_id)  # a concurrent redaction waits here, and then continues with the next entries
    done = 0
    while done < limit and (log := await tx.privacy.next_log_to_redact(user_id)) is not None:
        done += await tx.privacy.redact(user_id, log, limit - done)
    return done
