"""The requests on a connection with HTTP/2: a task for every request, and the messages that it receives."""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import trio
from hypercorn.config import Config

from entrypoints.http.edge.middleware import Message
from entrypoints.http.edge.protocol.client_connection import run_application
from entrypoints.http.edge.protocol.client_socket import ClientGone


class Inbox:
    """A request's messages. `on_taken` is called with the size of every body part that leaves the inbox."""

    def __init__(self, on_taken: Callable[[int], Awaitable[None]]) -> None:
        self._on_taken = on_taken
        self._messages: deque[Message] = deque()
        self._arrived = trio.Event()
        self._is_closed = False

    async def put(self, message: Message) -> None:
        if self._is_closed:
            await self._on_taken(len(message.get("body", b"")))
            return
        self._messages.append(message)
        self._arrived.set()

    async def get(self) -> Message:
        while not self._messages:
            self._arrived = trio.Event()
            await self._arrived.wait()
        message = self._messages.popleft()
        await self._on_taken(len(message.get("body", b"")))
        return message

    async def close(self) -> None:
        """Discard all messages, also later messages."""
        self._is_closed = True
        await self._on_taken(sum(len(message.get("body", b"")) for message in self._messages))
        self._messages.clear()


class ApplicationTask:
    """The part of Hypercorn's TaskGroup that a stream uses: it starts the application for a request."""

    def __init__(self, nursery: trio.Nursery, inbox: Inbox, on_ended: Callable[[], object]) -> None:
        self._nursery = nursery
        self._inbox = inbox
        self._on_ended = on_ended

    async def spawn_app(self, app: Any, config: Config, scope: Any, send: Any) -> Any:
        self._nursery.start_soon(self._run, app, scope, send)
        return self._inbox.put

    async def _run(self, app: Any, scope: Any, send: Any) -> None:
        try:
            await run_application(app, scope, self._inbox.get, send)
        finally:
            self._on_ended()
            with trio.CancelScope(shield=True):  # every send has its own deadline
                with suppress(ClientGone):
                    await send(None)  # the end of the application
                await self._inbox.close()
