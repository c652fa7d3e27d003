"""LISTEN: the names of channels as they are notified, over a connection of its own."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

import trio
from psycopg.sql import SQL, Identifier

from adapters.postgres.engine.driver import Connection, connect
from adapters.postgres.engine.pool import translated
from core.kernel.errors import StorageDown

CONNECT_TIMEOUT: Final = 5.0
# A server or a network that went away without a word leaves a connection that is merely silent, as most are most of the time.
CHECK_EVERY: Final = 30.0
CHECK_PATIENCE: Final = 10.0


@asynccontextmanager
async def listen(
    conninfo: str, channels: Sequence[str], *, check_every: float = CHECK_EVERY, check_patience: float = CHECK_PATIENCE
) -> AsyncIterator[AsyncIterator[str]]:
    """Within the block every notification on the channels is heard, from its first moment on.

    The iterator never ends; it raises StorageDown when the connection is lost or no longer answers. LISTEN is a matter of one session,
    so `conninfo` must lead to PostgreSQL itself, not to a pooler that shares sessions out by the transaction.
    """
    with translated():
        connection = await connect(conninfo, timeout=CONNECT_TIMEOUT, application_name="gatehouse listen")
    try:
        for channel in channels:
            with translated():
                await connection.execute(SQL("listen {}").format(Identifier(channel)))
        async with aclosing(_notified(connection, check_every, check_patience)) as notified:
            yield notified
    finally:
        connection.finish()


async def _notified(connection: Connection, check_every: float, check_patience: float) -> AsyncGenerator[str, None]:
    while True:
        with translated():
            # Left to the garbage collector, psycopg's generator would keep the connection locked.
            async with aclosing(connection.notifies(timeout=check_every)) as notifications:
                async for notification in notifications:
                    yield notification.channel
            try:
                with trio.fail_after(check_patience):
                    await connection.execute("select 1")
            except trio.TooSlowError:
                raise StorageDown from None
