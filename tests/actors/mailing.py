"""An email queue, mailers that work on it, and a storage with outages."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

from actors.mailer import mailer
from adapters.postgres.engine.pool import Pool
from core.accounts import email_queue
from core.accounts.model import email_queue as email_queue_model
from core.accounts.model.email_queue import EmailKind, EmailResult, QueuedEmail
from core.authentication.model.dpop import ProofUse
from core.kernel.causes import SYSTEM, Caller
from core.kernel.errors import StorageDown
from core.kernel.values import Email
from core.mailing import preparation
from ports import Ports
from ports.outside import EmailMessage
from ports.storage import Autocommit, Reading, Storage, Transaction
from tests.actors.helpers import run_actors
from tests.support.builders import run_sql
from tests.support.waiting import eventually

ADA, BOB = Email("ada@example.com"), Email("bob@example.com")
MIDDLE = 0.5  # the spread's middle, so that delays are exact

mailing = partial(run_actors, mailer)


async def queue(ports: Ports, kind: EmailKind, *addresses: Email) -> list[QueuedEmail]:
    queued = [email_queue_model.new_email(kind, address, ports.clock.now()) for address in addresses]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for mail in queued:
            await tx.email_queue.add(mail)
    return queued


async def claim_one(ports: Ports) -> QueuedEmail:
    [mail] = await email_queue.claim_due(ports, 10)
    return mail


async def prepared_one(ports: Ports) -> tuple[QueuedEmail, EmailMessage]:
    prepared = await preparation.prepare(ports, await claim_one(ports))
    assert not isinstance(prepared, EmailResult)
    return prepared


async def rows(pool: Pool) -> list[dict[str, Any]]:
    """Return the queue in the database, oldest first."""
    columns = ("id", "outcome", "attempts", "claims", "token", "last_failure", "due_at", "finished_at")
    records = await run_sql(pool, f"select {', '.join(columns)} from mails order by created_at, id")  # noqa: S608
    return [dict(zip(columns, row, strict=True)) for row in records]


async def all_finished(pool: Pool) -> None:
    async def are_finished() -> bool:
        return all(row["finished_at"] is not None for row in await rows(pool))

    await eventually(are_finished, "all emails are finished")


class ShakyStorage:
    """A storage that is down for the next `outages` transactions and statements with autocommit."""

    def __init__(self, storage: Storage) -> None:
        self.outages = 0
        self._storage = storage

    @asynccontextmanager
    async def transaction(self, by: Caller, *, in_session: bool = True) -> AsyncIterator[Transaction]:
        self._fail()
        async with self._storage.transaction(by=by, in_session=in_session) as tx:
            yield tx

    def reading(self, *, using: ProofUse | None = None) -> AbstractAsyncContextManager[Reading]:
        return self._storage.reading(using=using)

    def autocommit(self) -> AbstractAsyncContextManager[Autocommit]:
        self._fail()
        return self._storage.autocommit()

    def _fail(self) -> None:
        if self.outages > 0:
            self.outages -= 1
            raise StorageDown

    async def ping(self) -> None:
        await self._storage.ping()
