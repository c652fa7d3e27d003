"""Forms of our pages that make something, or show a secret. Every copy of a form works once (security G-2)."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from core.authentication.model.dpop import ProofUse
from core.kernel.callers import Person
from core.kernel.causes import Caller
from core.kernel.errors import Invalid, Refusal
from core.kernel.values import digest
from ports import Ports
from ports.storage import Autocommit, Reading, Storage, Transaction

MIN_KEY_LENGTH: Final = 16


class FormAlreadySent(Invalid):
    """This form was already sent. Nothing was changed now."""


def once(ports: Ports, caller: Person, path: str, key: str) -> Ports:
    """Return ports for a use case.

    Its transaction also uses up the key of a form that was sent to `path`.

    The transaction raises FormAlreadySent if the key was used before. So does a refusal while the use case
    reads, because it may be about what the first copy of the form has made. A use case that is refused rolls
    the key back, so the form can be sent again.
    """
    form_hash = digest(f"{caller.session_id} {path} {key}")
    return replace(ports, storage=_StorageForOneForm(ports.storage, form_hash, ports.clock.now() + ports.policy.session_absolute_ttl))


@dataclass(frozen=True, slots=True)
class _StorageForOneForm:
    """The storage, with a form's key in every transaction. The use case commits only one transaction. `expires_at` is UTC."""

    _storage: Storage
    _form_hash: bytes
    _expires_at: datetime

    @asynccontextmanager
    async def transaction(self, by: Caller, *, in_session: bool = True) -> AsyncIterator[Transaction]:
        async with self._storage.transaction(by=by, in_session=in_session) as tx:
            if not await tx.sent_forms.add(self._form_hash, self._expires_at):
                raise FormAlreadySent
            yield tx

    @asynccontextmanager
    async def reading(self, *, using: ProofUse | None = None) -> AsyncIterator[Reading]:
        async with self._storage.reading(using=using) as read:
            try:
                yield read
            except Refusal:
                if await read.sent_forms.contains(self._form_hash):
                    raise FormAlreadySent from None
                raise

    def autocommit(self) -> AbstractAsyncContextManager[Autocommit]:
        return self._storage.autocommit()

    async def ping(self) -> None:
        await self._storage.ping()
