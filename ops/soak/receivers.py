"""The other side of the soak: receivers of webhooks as they are out there, and what each was told."""

import json
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import h11
import standardwebhooks
import trio

from tests.fakes.requests import Request

DRIP = 0.1  # seconds between two bytes


class Manner(StrEnum):
    """How a receiver answers."""

    HEALTHY = "healthy"
    FLAKY = "flaky"  # refuses each delivery twice
    FAILING = "failing"  # 500, always
    HANGING = "hanging"  # takes it and says nothing
    DRIPPING = "dripping"  # an answer, one byte after another, for ever
    REDIRECTING = "redirecting"  # to where nobody must follow
    DELETED = "deleted"  # healthy, until its webhook is deleted
    PRIVATE = "private"  # at an address that nobody has opened

    @property
    def must_get_everything(self) -> bool:
        return self in (Manner.HEALTHY, Manner.FLAKY)


@dataclass(slots=True)
class Receiver:
    """One webhook's receiver. `told` counts deliveries it has taken, by what they were about; `ids` how often each delivery came."""

    number: int
    manner: Manner
    secret: str = field(default="", repr=False)
    told: Counter[str] = field(default_factory=Counter)
    ids: Counter[str] = field(default_factory=Counter)
    unsigned: int = 0
    deleted: bool = False
    after_deletion: int = 0

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """The status that this delivery is answered with."""
        self.ids[headers.get("webhook-id", "")] += 1
        try:
            payload: Any = standardwebhooks.Webhook(self.secret).verify(body, headers)
        except standardwebhooks.WebhookVerificationError:
            self.unsigned += 1
            return 401
        if self.deleted:
            self.after_deletion += 1
        match self.manner:
            case Manner.FAILING:
                return 500
            case Manner.FLAKY if self.ids[headers["webhook-id"]] <= 2:
                return 503
            case Manner.REDIRECTING:
                return 302
        self.told[about(payload)] += 1
        return 200


def about(payload: Any) -> str:
    """The name that an organization was given, which is what the events of a soak tell of."""
    changes = payload["data"]
    return str(changes.get("name", {}).get("new", json.dumps(changes)))


class Receivers:
    """All of them, on one port, told apart by their path; and one more port, at which nobody must arrive."""

    def __init__(self) -> None:
        self.all: dict[str, Receiver] = {}
        self.strays = 0
        self.port = 0
        self.forbidden_port = 0

    async def listen(self, nursery: trio.Nursery) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, self._serve, listeners)
        forbidden = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.forbidden_port = forbidden[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, self._stray, forbidden)

    def add(self, manner: Manner) -> tuple[Receiver, str]:
        """A new one, and its URL."""
        receiver = Receiver(len(self.all), manner)
        path = f"/{manner}/{receiver.number}"
        self.all[path] = receiver
        port = self.forbidden_port if manner is Manner.PRIVATE else self.port
        return receiver, f"http://127.0.0.1:{port}{path}"

    async def _stray(self, stream: trio.SocketStream) -> None:
        self.strays += 1
        await stream.aclose()

    async def _serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            try:
                await self._converse(stream)
            except (trio.BrokenResourceError, h11.RemoteProtocolError):
                return  # the service was killed in the middle, or had enough

    async def _converse(self, stream: trio.SocketStream) -> None:
        request = await Request.read(stream)
        receiver = self.all.get(request.path)
        if receiver is None:  # a redirect was followed
            self.strays += 1
            return
        if receiver.manner is Manner.HANGING:
            await trio.sleep_forever()
        if receiver.manner is Manner.DRIPPING:
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                await trio.sleep(DRIP)
                await stream.send_all(b".")
        status = receiver.take(request.headers, request.body)
        where = f"Location: http://127.0.0.1:{self.port}/stray\r\n" if status == 302 else ""
        await stream.send_all(f"HTTP/1.1 {status} Said\r\n{where}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
