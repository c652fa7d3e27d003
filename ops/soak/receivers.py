"""The soak test's receivers, working and faulty, with the deliveries that they received."""

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


class Behavior(StrEnum):
    """How a receiver answers."""

    HEALTHY = "healthy"
    FLAKY = "flaky"  # refuses every delivery twice
    FAILING = "failing"  # always answers 500
    HANGING = "hanging"  # accepts the request and never answers
    DRIPPING = "dripping"  # a response in single bytes without an end
    REDIRECTING = "redirecting"  # to a URL that must not be called
    DELETED = "deleted"  # healthy, until its webhook is deleted
    PRIVATE = "private"  # at an address that is not allowed

    @property
    def must_receive_all(self) -> bool:
        return self in (Behavior.HEALTHY, Behavior.FLAKY)


@dataclass(slots=True)
class Receiver:
    """A webhook's receiver. `accepted` counts its deliveries by their content, `ids` the attempts per delivery."""

    number: int
    behavior: Behavior
    secret: str = field(default="", repr=False)
    accepted: Counter[str] = field(default_factory=Counter)
    ids: Counter[str] = field(default_factory=Counter)
    unsigned: int = 0
    deleted: bool = False
    after_deletion: int = 0

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Check a delivery and return the response's status."""
        self.ids[headers.get("webhook-id", "")] += 1
        try:
            payload: Any = standardwebhooks.Webhook(self.secret).verify(body, headers)
        except standardwebhooks.WebhookVerificationError:
            self.unsigned += 1
            return 401
        if self.deleted:
            self.after_deletion += 1
        match self.behavior:
            case Behavior.FAILING:
                return 500
            case Behavior.FLAKY if self.ids[headers["webhook-id"]] <= 2:
                return 503
            case Behavior.REDIRECTING:
                return 302
        self.accepted[about(payload)] += 1
        return 200


def about(payload: Any) -> str:
    """Return the organization's new name, which identifies a change."""
    changes = payload["data"]
    return str(changes.get("name", {}).get("new", json.dumps(changes)))


class Receivers:
    """All receivers. They share a port and have different paths. Another port must get no request."""

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

    def add(self, behavior: Behavior) -> tuple[Receiver, str]:
        """Add a receiver and return it with its URL."""
        receiver = Receiver(len(self.all), behavior)
        path = f"/{behavior}/{receiver.number}"
        self.all[path] = receiver
        port = self.forbidden_port if behavior is Behavior.PRIVATE else self.port
        return receiver, f"http://127.0.0.1:{port}{path}"

    async def _stray(self, stream: trio.SocketStream) -> None:
        self.strays += 1
        await stream.aclose()

    async def _serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            try:
                await self._converse(stream)
            except (trio.BrokenResourceError, h11.RemoteProtocolError):
                return  # the service was killed, or closed the connection

    async def _converse(self, stream: trio.SocketStream) -> None:
        request = await Request.read(stream)
        receiver = self.all.get(request.path)
        if receiver is None:  # a redirect was followed
            self.strays += 1
            return
        if receiver.behavior is Behavior.HANGING:
            await trio.sleep_forever()
        if receiver.behavior is Behavior.DRIPPING:
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                await trio.sleep(DRIP)
                await stream.send_all(b".")
        status = receiver.take(request.headers, request.body)
        location = f"Location: http://127.0.0.1:{self.port}/stray\r\n" if status == 302 else ""
        await stream.send_all(f"HTTP/1.1 {status} Status\r\n{location}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
