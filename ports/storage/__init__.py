"""The storage port, with one module or package per area, named as in `core` and `adapters.postgres` (docs/adr/0018).

A new repository needs a Protocol in its area for every kind of blocks that shows it, and a line in `Repositories`.

Every method runs a single statement, unless its docstring says otherwise. A method that returns an Awaitable puts its statement into the
block's queue when it is called. Awaiting an answer sends the queue in a single round trip, unless the answer is known already. "Now" is
always a parameter, and times are in UTC. Every method may raise core.kernel.errors.StorageDown. Lock order everywhere: organization,
membership, account, then the rest (security Z-6).
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from core.authentication.model.dpop import ProofUse
from core.kernel.causes import Caller
from ports.storage.repositories import Autocommit, Reading, Transaction

__all__ = ["Autocommit", "Reading", "Storage", "Transaction"]


class Storage(Protocol):
    """Access to the database. The database is PostgreSQL, in tests too."""

    def transaction(self, by: Caller, *, in_session: bool = True) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction. The changes are committed when the block ends.

        After the commit, this process's actors get the signals that belong to the changes (ports.signals). A user acts
        within their session. If the session has ended when the recorded events are written, the block raises
        SessionEnded and rolls everything back (security J-4, Z-6). `in_session` is false if the caller has no session
        yet, or if this transaction ends it or locks it itself.
        """

    def reading(self, *, using: ProofUse | None = None) -> AbstractAsyncContextManager[Reading]:
        """Open a connection for queries.

        The block is not a snapshot: two statements can see different states. With `using`, the first query uses up this
        DPoP proof in the same round trip, without waiting for the disk. If a proof is used in parallel, exactly one use
        succeeds. The remaining blocks raise ProofReplayed or NonceKeyLost when they end. So do not use what a block has
        read before it ends.

        The first query also takes the rate-limit tokens that wait for it (`core.kernel.rate_limits.request_tokens`), and the block raises
        Limited. Transactions and autocommit take waiting tokens before they begin.
        """

    def autocommit(self) -> AbstractAsyncContextManager[Autocommit]:
        """Open a connection for statements that commit separately."""

    async def ping(self) -> None:
        """Make a trivial round trip. Raises: StorageDown."""
