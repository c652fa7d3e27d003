"""The socket for a client that uses TLS. OpenSSL works in memory, so that the socket itself stays a `ClientSocket` (docs/adr/0052)."""

import socket
import ssl
from contextlib import suppress
from typing import Final

import trio

from entrypoints.http.edge.protocol import client_socket

# The largest record. A larger piece could be full of key updates, which have no data and take 60 µs per update.
RECEIVE_AT_ONCE: Final = 16 * 1024 + 256  # bytes
ENCRYPT_AT_ONCE: Final = client_socket.SEND_AT_ONCE - 16 * 1024  # bytes; with their records they are no more than SEND_AT_ONCE
MAX_CONTROL: Final = 16 * 1024  # bytes in OpenSSL's own messages, such as answers to key updates, that wait for a part of a response
# For a client that speaks HTTP without TLS, such as a browser at a URL that begins with http.
PLAIN_TEXT: Final = b"This port needs https. Use a URL that begins with https.\n"
PLAIN_HTTP: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(PLAIN_TEXT)
    + PLAIN_TEXT
)


class TlsClientSocket(client_socket.ClientSocket):
    """A client's socket with TLS.

    The handshake is part of receiving the first data. So the deadline of the first request bounds it.
    """

    def __init__(self, sock: socket.socket, send_within: float, context: ssl.SSLContext) -> None:
        """Raises: OSError if the client has already reset the connection."""
        super().__init__(sock, send_within)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unread = b""  # decrypted by `wait_for_disconnect`
        self._is_sending = False
        self._is_ended = False  # our half of the connection

    @property
    def application_protocol(self) -> str | None:
        return self._tls.selected_alpn_protocol()

    async def wait_readable(self) -> None:
        if not self._is_ended and (self._unread or self._incoming.pending or self._tls.pending()):
            await trio.lowlevel.checkpoint()
        else:
            await super().wait_readable()

    def receive_now(self, count: int = client_socket.MAX_RECEIVE) -> bytes | None:
        """Return as the base class does. A client that breaks the TLS rules has sent its last data."""
        if self._is_ended:
            return super().receive_now(count)  # the data is discarded
        if self._unread:
            data, self._unread = self._unread, b""
            return data
        decrypted = self._decrypt(count)
        # Receive once and little, so that many small records without data cannot delay other connections.
        if decrypted is None and (received := super().receive_now(RECEIVE_AT_ONCE)) is not None:
            if not received:
                return b""  # many clients close without close_notify; HTTP's framing shows a truncated request
            self._incoming.write(received)
            decrypted = self._decrypt(count)
        return decrypted

    def _decrypt(self, count: int) -> bytes | None:
        data: bytes | None = b""
        try:
            data = self._tls.read(count)
        except ssl.SSLWantReadError:
            data = None
        except ssl.SSLError as error:  # a failed handshake, a forged record, or the end
            if error.reason == "HTTP_REQUEST":
                super().send_now(PLAIN_HTTP)
        self._flush()
        return b"" if self.is_gone else data

    def _flush(self) -> None:
        """Send OpenSSL's own messages. They must not stand inside a record that is sent in parts."""
        if not self._is_sending and not self.is_gone and self._outgoing.pending:
            super().send_now(self._outgoing.read())
        elif self._outgoing.pending > MAX_CONTROL:
            self.abort()

    async def wait_for_disconnect(self) -> None:
        # Bytes that arrive can be the alert close_notify, and not the next request.
        while (data := self.receive_now()) is None:
            await self.wait_readable()
        if data:
            self._unread = data
            await trio.sleep_forever()

    def send_now(self, data: bytes) -> None:
        with suppress(client_socket.ClientGone):
            self._encrypt(data)
            self._flush()

    async def send(self, data: bytes) -> None:
        unsent = memoryview(data)
        self._is_sending = True
        try:
            while unsent:
                self._encrypt(unsent[:ENCRYPT_AT_ONCE])
                unsent = unsent[ENCRYPT_AT_ONCE:]
                await super().send(self._outgoing.read())
        finally:
            self._is_sending = False

    def _encrypt(self, data: bytes | memoryview) -> None:
        """Raises: ClientGone."""
        try:
            if not self.is_gone:
                self._tls.write(data)
                return
        except ssl.SSLError:
            self.abort()
        raise client_socket.ClientGone

    def end(self) -> None:
        if not self._is_ended and not self.is_gone:
            with suppress(ssl.SSLError):  # OpenSSL asks for the client's close_notify, which is not needed
                self._tls.unwrap()
            self._flush()
        self._is_ended = True
        super().end()
