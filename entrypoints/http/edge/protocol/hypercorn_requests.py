"""The requests of a connection that Hypercorn serves: one task for each, and the messages that it receives."""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import structlog
import trio
from hypercorn.config import Config

from entrypoints.http.edge.middleware import Message, Send
from entrypoints.http.edge.protocol.client_socket import ClientGone

log = structlog.get_logger("http")

MAX_WAITING: Final = 2  # queued pieces of a request body before a client with HTTP/1.1 must wait


async def _do_nothing() -> None:
    pass


async def _ignore(size: int) -> None:
    pass


class Inbox:
    """The messages for one request.

    Pieces of a body wait for space, so that a client cannot fill the memory, unless `max_waiting` is
    infinite, because HTTP/2 has windows. A disconnect never waits. `before_wait` is called when the
    application waits for the client, and `on_taken` with the size of each piece that leaves the inbox.
    """

    def __init__(
        self,
        *,
        max_waiting: float = MAX_WAITING,
        before_wait: Callable[[], Awaitable[None]] = _do_nothing,
        on_taken: Callable[[int], Awaitable[None]] = _ignore,
    ) -> None:
        self._max_waiting = max_waiting
        self._before_wait = before_wait
        self._on_taken = on_taken
        self._messages: deque[Message] = deque()
        self._arrived = trio.Event()
        self._space = trio.Event()
        self._is_closed = False

    async def put(self, message: Message) -> None:
        if self._is_closed:
            await self._on_taken(len(message.get("body", b"")))
            return
        self._messages.append(message)
        self._arrived.set()
        if message["type"] == "http.request":
            while len(self._messages) > self._max_waiting and not self._is_closed:
                self._space = trio.Event()
                await self._space.wait()

    async def get(self) -> Message:
        while not self._messages:
            self._arrived = trio.Event()
            await trio.lowlevel.checkpoint_if_cancelled()  # a response that does not need the body is not preceded by a 100
            await self._before_wait()
            await self._arrived.wait()
        self._space.set()
        message = self._messages.popleft()
        await self._on_taken(len(message.get("body", b"")))
        return message

    async def close(self) -> None:
        """Discard all messages, also later ones."""
        self._is_closed = True
        self._space.set()
        await self._on_taken(sum(len(message.get("body", b"")) for message in self._messages))
        self._messages.clear()


class ApplicationTask:
    """The part of Hypercorn's TaskGroup that an HTTP stream uses: it starts the application for one request."""

    def __init__(
        self,
        nursery: trio.Nursery,
        inbox: Inbox,
        *,
        is_broken: Callable[[], bool] = lambda: False,
        on_ended: Callable[[], object] = lambda: None,
    ) -> None:
        self._nursery = nursery
        self._inbox = inbox
        self._is_broken = is_broken
        self._on_ended = on_ended
        self.has_begun = False

    async def spawn_app(self, app: Any, config: Config, scope: Any, send: Callable[..., Awaitable[None]]) -> Any:
        self._nursery.start_soon(self._run, app, scope, send)
        return self._inbox.put

    async def _run(self, app: Any, scope: Any, send: Send) -> None:
        try:
            # The part of the body that came with the headers was parsed before this task runs.
            if self._is_broken():
                return
            self.has_begun = True
            await app(scope, self._inbox.get, send, trio.to_thread.run_sync, trio.from_thread.run)
        except* ClientGone:
            pass
        except* Exception:
            log.exception("application_failed")
        finally:
            self._on_ended()
            with trio.CancelScope(shield=True):  # each send has its own deadline
                with suppress(ClientGone):
                    await send(None)  # type: ignore[arg-type]  # the end of the application
                await self._inbox.close()
