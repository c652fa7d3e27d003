"""The servers of external clients: a TLS server that a test's resolver leads all their hosts to."""

import json
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from adapters.http.guard import AllowedTarget, Guard
from adapters.http.lazy_sender import LazySender
from adapters.http.sender import GuardedSender
from tests.fakes.certificates import client_context, make_certificate, server_context
from tests.fakes.http_server import Answer, FakeServer, ReceivedRequest

HOSTS: Final = ("client.example", "other.example", "xn--80aqecdr1a.example", "keys.example")
REAL_HOSTS: Final = ("claude.ai", "chatgpt.com", "vscode.dev")
LOOPBACK: Final = AllowedTarget.parse("127.0.0.1/32")
HTTPS: Final = 443
GRANTS: Final = ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"]


class ClientServer(FakeServer):
    """The server for several clients. `answers` are its responses by path; `addresses` what the resolver says about a host."""

    def __init__(self, folder: Path, at: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        super().__init__(at=at)
        self.certificate = certificate = make_certificate(folder / "clients.pem", *HOSTS, *REAL_HOSTS, "localhost", "127.0.0.1")
        self._server.socket = server_context(certificate).wrap_socket(self._server.socket, server_side=True)
        self.own_address, self.port = at[0], int(self._server.server_address[1])
        self.trust: ssl.SSLContext = client_context(certificate)
        self.answers: dict[str, Answer | Callable[[], Answer]] = {}
        self.requests: list[ReceivedRequest] = []
        self.addresses: dict[str, list[str]] = {}

    def address_of(self, path: str = "/client", host: str = HOSTS[0]) -> str:
        return f"https://{host}{path}" if self.port == HTTPS else f"https://{host}:{self.port}{path}"

    def publish(self, path: str = "/client", host: str = HOSTS[0], headers: Mapping[str, str] | None = None, **members: Any) -> str:
        """Publish a client's document, and return its address."""
        address = self.address_of(path, host)
        own = {"client_id": address, "client_name": "Assistant", "redirect_uris": [f"https://{host}/callback"], "grant_types": GRANTS}
        document = {**own, **members}
        self.answers[path] = Answer(200, json.dumps(document).encode(), {"Content-Type": "application/json", **(headers or {})})
        return address

    def sender(self, *allowed: AllowedTarget) -> GuardedSender:
        """Return a guarded sender that resolves the clients' hosts to this server."""
        return GuardedSender(Guard(allowed or (LOOPBACK,), lookup=self._look_up), self.trust)

    def sender_of_settings(self) -> LazySender:
        """Return the sender that the application has if an operator's file names this server's authority."""
        own = AllowedTarget.parse(f"{self.own_address}/32")
        return LazySender(Guard([own], lookup=self._look_up), self.certificate)

    def _look_up(self, host: str, port: int, **_: Any) -> list[tuple[Any, Any, Any, Any, tuple[Any, ...]]]:
        if host not in (*HOSTS, *REAL_HOSTS, *self.addresses):
            raise socket.gaierror
        addresses = self.addresses.get(host, [self.own_address])
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    def _reply(self, request: ReceivedRequest) -> Answer:
        self.requests.append(request)
        answer = self.answers.get(request.path, Answer(404))
        return answer if isinstance(answer, Answer) else answer()
