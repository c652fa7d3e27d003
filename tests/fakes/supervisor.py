"""A supervisor's notification socket, as systemd opens it for a service with the type notify-reload."""

import os
import socket
import struct
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.waiting import PATIENCE

CREDENTIALS: Final = struct.Struct("3i")  # process, user and group


class NotifySocket:
    """A socket that receives the service's messages.

    Its name is abstract, or a path. `senders` has the processes that sent a message.
    """

    def __init__(self, *, is_abstract: bool = True) -> None:
        self._stack = ExitStack()
        self._socket = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self._socket.settimeout(PATIENCE)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.senders: set[int] = set()
        if is_abstract:
            self.address = f"@gatehouse-{os.urandom(8).hex()}"
            self._socket.bind(f"\0{self.address[1:]}")
        else:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gatehouse-"))
            self.address = str(Path(folder) / "notify")
            self._socket.bind(self.address)

    def variables(self, *, watchdog: float | None = None) -> dict[str, str]:
        """Return the service's environment, with this watchdog in seconds."""
        microseconds = {} if watchdog is None else {"WATCHDOG_USEC": f"{watchdog * 1_000_000:.0f}"}
        return {"NOTIFY_SOCKET": self.address, **microseconds}

    def receive(self) -> dict[str, str]:
        """Return the next message's variables."""
        message, [(_, _, credentials)], _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(CREDENTIALS.size))
        self.senders.add(CREDENTIALS.unpack(credentials)[0])
        return dict(line.split("=", 1) for line in message.decode().split("\n"))

    def receive_until(self, *lines: str) -> list[str]:
        """Receive messages until all these lines have arrived. Return all lines that arrived so far."""
        received: list[str] = []
        while not set(lines) <= set(received):
            received += [f"{name}={value}" for name, value in self.receive().items()]
        return received

    def drop_received(self) -> None:
        """Drop the messages that have arrived."""
        self._socket.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(4096)
        self._socket.settimeout(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()
