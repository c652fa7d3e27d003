"""Mail servers that break the protocol, which no library can do."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio

Manners = Callable[[trio.SocketStream], Awaitable[None]]


@asynccontextmanager
async def server_that(behaves: Manners) -> AsyncIterator[str]:
    """Run a server that handles every connection like this. Return its URL."""
    async with trio.open_nursery() as nursery:
        [listening] = await nursery.start(partial(trio.serve_tcp, behaves, 0, host="127.0.0.1"))
        yield f"smtp://127.0.0.1:{listening.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def converse(stream: trio.SocketStream, answers: dict[bytes, bytes]) -> None:
    """Speak SMTP. `answers` replace the usual answers; an empty answer closes the connection, and so does 421."""
    usual = {b"DATA": b"354 go on", b"QUIT": b"221 bye"}
    received, in_message = b"", False
    with suppress(trio.BrokenResourceError):
        greeting = answers.get(b"220 ", b"220 hello")  # before the first command
        await stream.send_all(greeting + b"\r\n")
        if greeting.startswith(b"421"):
            return
        async for data in stream:
            received += data
            while b"\r\n" in received:
                line, received = received.split(b"\r\n", 1)
                if in_message and line != b".":
                    continue
                command = line[:4].upper()
                answer = answers.get(command, usual.get(command, b"250 OK"))
                if not answer:
                    return
                in_message = answer.startswith(b"354")
                await stream.send_all(answer.replace(b"(echo)", line) + b"\r\n")
                if answer.startswith(b"421"):  # closes the connection (RFC 5321 section 3.8)
                    return
