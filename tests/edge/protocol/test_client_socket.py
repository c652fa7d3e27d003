"""The socket for a client that reads its response too slowly (security P-4)."""

import errno
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
import trio
import trio.testing

from entrypoints.http.edge.protocol.client_socket import SEND_AT_ONCE, ClientGone, ClientSocket
from entrypoints.http.edge.protocol.listening import listen

SEND_WITHIN = 10.0


@contextmanager
def connected_sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends (server, client) of a connection for which the kernel buffers only a few KB."""
    with listen("127.0.0.1:0")[0] as listening, closing(socket.socket()) as client:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listening.setblocking(True)
        client.connect(listening.getsockname())
        accepted, _ = listening.accept()
        accepted.setblocking(False)
        client.setblocking(False)
        with accepted:
            yield accepted, client


async def test_a_client_that_reads_too_slowly_is_reset(autojump_clock: trio.testing.MockClock) -> None:
    """Reading a part does not give it more time."""

    async def read_slowly(client: socket.socket) -> None:
        while True:
            await trio.lowlevel.wait_readable(client)
            client.recv(SEND_AT_ONCE // 32)
            await trio.sleep(SEND_WITHIN / 16)

    with connected_sockets() as (accepted, client):
        slow = ClientSocket(accepted, SEND_WITHIN)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_slowly, client)
            with pytest.raises(ClientGone):
                await slow.send(bytes(4 * SEND_AT_ONCE))
            nursery.cancel_scope.cancel()
        with pytest.raises(ClientGone):
            await slow.send(b"more")
        accepted.close()
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET  # so the kernel has discarded the rest


async def test_a_response_that_is_cut_off_does_not_end(autojump_clock: trio.testing.MockClock) -> None:
    """A client that reads on could otherwise take it for complete."""
    with connected_sockets() as (accepted, client):
        slow = ClientSocket(accepted, SEND_WITHIN)
        with pytest.raises(ClientGone):
            await slow.send(bytes(4 * SEND_AT_ONCE))
        slow.end()
        with trio.move_on_after(1) as waiting:
            while True:
                await trio.lowlevel.wait_readable(client)
                assert client.recv(SEND_AT_ONCE), "the client sees an end"
        assert waiting.cancelled_caught
        accepted.close()
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET
