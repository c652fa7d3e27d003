"""Waiting with Trio until libpq can read from its socket or write to it."""

import select
from collections.abc import Callable
from typing import Final

import trio
from psycopg import errors, pq
from psycopg.waiting import Ready, Wait

# Plain integers: an operation on psycopg's enumerations costs more than the system calls around it.
R: Final = int(Wait.R)
W: Final = int(Wait.W)
READY_R: Final = int(Ready.R)
READY_W: Final = int(Ready.W)


async def wait_ready(fd: int, needed: int) -> int:
    """Wait until the socket is ready in a needed direction, and return in which directions it is."""
    if needed == R:
        await trio.lowlevel.wait_readable(fd)
        return READY_R
    if needed == W:
        await trio.lowlevel.wait_writable(fd)
        return READY_W
    # Wait for reading and writing while sending much data: the server may have to send before it
    # reads more.
    ready = 0
    async with trio.open_nursery() as nursery:

        async def first(one: int) -> None:
            nonlocal ready
            try:
                ready |= await wait_ready(fd, one)
            except (OSError, trio.ClosedResourceError):
                ready |= one  # the socket's next use raises the reason
            nursery.cancel_scope.cancel()

        nursery.start_soon(first, R)
        nursery.start_soon(first, W)
    return ready


async def wait_ready_until(deadline: float, fd: int, needed: int) -> int:
    """Wait like `wait_ready`, but not longer than until the deadline. Raises: psycopg's error for that."""
    # Look at the socket first, so that timeout 0 finds data that has already arrived.
    if not (ready := ready_now(fd, needed)):
        with trio.move_on_at(deadline):
            ready = await wait_ready(fd, needed)
    if not ready:
        raise errors._WaitTimeout("wait timeout expired")
    return ready


def ready_now(fd: int, needed: int) -> int:
    """Return in which needed directions the socket is ready, without waiting."""
    poll = select.poll()
    poll.register(fd, (select.POLLIN if needed & R else 0) | (select.POLLOUT if needed & W else 0))
    events = sum(event for _, event in poll.poll(0))
    # An error or the stream's end counts as readable and writable, because reading or writing
    # raises the reason.
    broken = events & ~(select.POLLIN | select.POLLOUT)
    return (READY_R if events & select.POLLIN or broken else 0) | (READY_W if events & select.POLLOUT or broken else 0)


async def complete_handshake(connection: pq.abc.PGconn | pq.abc.PGcancelConn, poll: Callable[[], int]) -> None:
    """Run libpq's steps until a started connection is open. libpq may change the socket in between."""
    status: int = pq.PollingStatus.WRITING  # libpq's manual prescribes this before the first step
    while status != pq.PollingStatus.OK:
        if connection.status == pq.ConnStatus.BAD or status == pq.PollingStatus.FAILED:
            raise errors.OperationalError(connection.get_error_message("utf-8"))
        if status == pq.PollingStatus.READING:
            await trio.lowlevel.wait_readable(connection.socket)
        else:
            await trio.lowlevel.wait_writable(connection.socket)
        status = poll()
