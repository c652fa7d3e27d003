"""The port of storage, with one module or package per area, named as in `core` and `adapters.postgres` (docs/adr/0018).

A new repository is a Protocol in its area, for each kind of blocks that shows it, and a line of `Repositories`.

Every method is one statement, unless its docstring says otherwise. A method that returns an Awaitable puts its statement into the
queue of the block when it is called. To await an answer sends the queue in one round trip, unless the answer is known already. "Now" is
always a parameter, and times are in UTC. Every method may raise core.kernel.errors.StorageDown.
Lock order everywhere: organization, membership, account, then the rest (security Z-6).
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from core.authentication.model.dpop import ProofUse
from core.kernel.causes import Caller
from ports.storage.repositories import Autocommit, Reading, Transaction

__all__ = ["Autocommit", "Reading", "Storage", "Transaction"]


class Storage(Protocol):
    """Access to the database. It is PostgreSQL, in tests too."""

    def transaction(self, by: Caller, *, in_session: bool = True) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction. Its changes are committed when the block ends.

        After the commit, the actors of this process get the signals that belong to the changes
        (ports.signals). A user acts within their session. If the session has ended when the
        recorded events are written, the block raises SessionEnded and rolls everything back
        (security J-4, Z-6). `in_session` is false if the caller has no session yet, or
        if this transaction ends it or locks it itself.
        """

    def reading(self, *, using: ProofUse | None = None) -> AbstractAsyncContextManager[Reading]:
        """Open a connection for queries.

        It is not a snapshot: two statements can see different states. With `using`, the first query
        uses up this DPoP proof in the same round trip, without waiting for the disk. Of several
        parallel uses of a proof, one succeeds. The end of the block raises ProofReplayed or
        NonceKeyLost for the others, and so what the block has read must not be used before.

        The first query also takes the rate-limit tokens that wait for it (`core.kernel.rate_limits.request_tokens`), and the block raises
        Limited. Transactions and autocommit take waiting tokens before they begin.
        """

    def autocommit(self) -> AbstractAsyncContextManager[Autocommit]:
        """Open a connection for statements that each commit by themselves."""

    async def ping(self) -> None:
        """Make one trivial round trip. Raises: StorageDown."""
