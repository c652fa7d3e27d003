"""A client's socket: sending with a deadline, receiving without waiting, and closing without a reset (security P-3, P-4)."""

import socket
import struct
from contextlib import suppress
from typing import Final

import trio

from entrypoints.http.edge.size_limits import MAX_SCIM_GROUP_BODY

SEND_WITHIN: Final = 30.0  # seconds for a client to take SEND_AT_ONCE bytes
SEND_AT_ONCE: Final = 64 * 1024
LINGER: Final = 2.0  # seconds without data after which a closing connection's socket is closed
LINGER_WITHIN: Final = 30.0  # seconds for a client that still sends, from the last response on its connection
LINGER_BYTES: Final = 2 * MAX_SCIM_GROUP_BODY  # bytes from such a client that are discarded
LINGER_PIECE: Final = 1024 * 1024  # bytes; with LINGER_PAUSE, discarding takes little time from other requests
LINGER_PAUSE: Final = 0.05  # seconds between two pieces
MAX_RECEIVE: Final = 64 * 1024


class ClientGone(ConnectionError):
    """The client is gone, or its request is broken. ASGI signals this to applications with an OSError."""


class ClientSocket:
    """A non-blocking socket, which enters Trio's scheduler only to wait. `trio.SocketStream` enters it in every call."""

    def __init__(self, sock: socket.socket, send_within: float) -> None:
        """Raises: OSError if the client has already reset the connection."""
        peer, local = sock.getpeername(), sock.getsockname()
        is_unix = sock.family == socket.AF_UNIX
        self.peer: tuple[str, int] | None = None if is_unix else peer[:2]
        self.local: tuple[str, int | None] = (local, None) if is_unix else local[:2]  # as ASGI names them
        self.is_gone = False  # the client no longer receives data
        self._socket = sock
        self._fileno = sock.fileno()
        self._send_within = send_within

    @property
    def application_protocol(self) -> str | None:
        """Return the protocol that the client has chosen in the TLS handshake, if any."""
        return None

    async def wait_readable(self) -> None:
        await trio.lowlevel.wait_readable(self._fileno)

    def receive_now(self, count: int = MAX_RECEIVE) -> bytes | None:
        """Return the data that has arrived, b"" after the client's last data, or None if no data has arrived yet."""
        try:
            return self._socket.recv(count)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    async def wait_for_disconnect(self) -> None:
        """Wait until the client has closed its half of the connection, or the whole connection."""
        await self.wait_readable()
        with suppress(OSError):
            if self._socket.recv(1, socket.MSG_PEEK):
                await trio.sleep_forever()  # the data is the next request

    def send_now(self, data: bytes) -> None:
        """Send a few bytes. A socket without space for them belongs to a client that reads no responses, so it is reset."""
        try:
            is_sent = self._socket.send(data) == len(data)
        except OSError:
            is_sent = False
        if not is_sent:
            self.abort()

    async def send(self, data: bytes) -> None:
        """Send all data, usually in a single system call. Raises: ClientGone."""
        if self.is_gone:
            raise ClientGone
        unsent = memoryview(data)[self._send_part(data) :]
        while unsent:
            # Shielded, because a truncated response would corrupt the next response. The deadline
            # bounds it (security P-4).
            piece, unsent = unsent[:SEND_AT_ONCE], unsent[SEND_AT_ONCE:]
            with trio.CancelScope(deadline=trio.current_time() + self._send_within, shield=True) as scope:
                while piece:
                    await trio.lowlevel.wait_writable(self._fileno)
                    piece = piece[self._send_part(piece) :]
            if scope.cancelled_caught:
                self.abort()
                raise ClientGone

    def _send_part(self, data: bytes | memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self.is_gone = True
            raise ClientGone from None

    def abort(self) -> None:
        """Let the socket be reset when it is closed, so that the kernel discards the data that the client does not read."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.is_gone = True

    def end(self) -> None:
        """End the responses. The client can still send. A response that is cut off does not end, so that it cannot look complete."""
        if self.is_gone:
            return
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def linger(self) -> None:
        """End the responses, and discard data that the client still sends.

        Closing at once would reset the connection and destroy the response that the client has not
        read (RFC 9112 section 9.6).
        """
        self.end()
        end, discarded, pause_at = trio.current_time() + LINGER_WITHIN, 0, LINGER_PIECE
        while not self.is_gone and discarded < LINGER_BYTES:
            with trio.move_on_at(min(trio.current_time() + LINGER, end)) as waiting:
                await self.wait_readable()
            data = None if waiting.cancelled_caught else self.receive_now(LINGER_PIECE)
            if not data:
                return
            discarded += len(data)
            if discarded >= pause_at:  # a socket has much less than a piece at a time
                pause_at = discarded + LINGER_PIECE
                await trio.sleep(LINGER_PAUSE)
