"""LISTEN on a separate connection: notifications from other processes."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

import trio
from psycopg.sql import SQL, Identifier

from adapters.postgres.engine.connecting import connect
from adapters.postgres.engine.driver import Connection
from adapters.postgres.engine.pool import translated
from core.kernel.errors import StorageDown

CONNECT_TIMEOUT: Final = 5.0  # seconds
# A connection that is lost without an error looks like an idle connection, and this connection is
# idle most of the time.
CHECK_EVERY: Final = 30.0  # seconds
CHECK_TIMEOUT: Final = 10.0  # seconds


# Triggers in the database notify these channels, so no actor in this process got the signal directly.
TRIGGERED: Final = frozenset({"logout_notices"})


def _none_is_own(_: int) -> bool:
    return False


@asynccontextmanager
async def listen(
    conninfo: str,
    channels: Sequence[str],
    *,
    is_own: Callable[[int], bool] = _none_is_own,
    check_every: float = CHECK_EVERY,
    check_timeout: float = CHECK_TIMEOUT,
) -> AsyncIterator[AsyncIterator[tuple[str, str]]]:
    """Yield an iterator over the notifications on these channels, as pairs with channel and payload.

    The block starts when LISTEN is active on all channels. The iterator never ends. The iterator raises StorageDown
    when the connection is lost or no longer answers. `is_own` returns whether a server process serves a connection that
    belongs to this process. Notifications from own connections are skipped, because the actors got the signals
    directly. Notifications on TRIGGERED channels are never skipped. LISTEN belongs to a single session, so `conninfo`
    must lead to PostgreSQL itself, and not to a pooler that assigns sessions per transaction.
    """
    with translated():
        connection = await connect(conninfo, timeout=CONNECT_TIMEOUT, application_name="gatehouse listen")
    try:
        for channel in channels:
            with translated():
                await connection.execute(SQL("listen {}").format(Identifier(channel)))
        async with aclosing(_notifications(connection, is_own, check_every, check_timeout)) as notifications:
            yield notifications
    finally:
        connection.finish()


async def _notifications(
    connection: Connection, is_own: Callable[[int], bool], check_every: float, check_timeout: float
) -> AsyncGenerator[tuple[str, str], None]:
    while True:
        with translated():
            # Close psycopg's generator explicitly. The garbage collector would leave the connection
            # locked.
            async with aclosing(connection.notifies(timeout=check_every)) as notifications:
                async for notification in notifications:
                    if notification.channel in TRIGGERED or not is_own(notification.pid):
                        yield notification.channel, notification.payload
            try:
                with trio.fail_after(check_timeout):
                    await connection.execute("select 1")
            except trio.TooSlowError:
                raise StorageDown from None
