"""An installation that moves to another host: the old host's passkeys, in a browser, at the new host (WebAuthn section 5.11)."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.fakes.certificates import make_certificate, server_context
from tests.fakes.http_server import Answer, FakeServer, ReceivedRequest
from tests.proof.e2e.browser import Browser
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import Service, gatehouse
from tests.support import database

pytestmark = pytest.mark.slow

OWNER, PASSWORD = "owner@example.com", "all the keys of the house"
OLD, NEW, EVIL = "old.example", "new.example", "evil.example"
PAGE = "/app/forgot-password"  # it starts no ceremony by itself


class TlsFront:
    """A proxy that ends TLS, and passes the bytes on to the port for the host in the server name."""

    def __init__(self, certificate: Path) -> None:
        self.backends: dict[str, int] = {}
        self._context = server_context(certificate)
        self._context.sni_callback = self._keep_name
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()
        self.drop()

    def drop(self) -> None:
        """End all connections, so that a browser makes new connections."""
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _keep_name(self, connection: ssl.SSLObject, name: str, context: ssl.SSLContext) -> None:
        connection.server_name = name  # type: ignore[attr-defined]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), closing(self._context.wrap_socket(client, server_side=True)) as secure:
            self._connections.append(secure)
            name = secure.server_name  # type: ignore[attr-defined]
            with closing(socket.create_connection(("127.0.0.1", self.backends[name]))) as backend:
                answers = threading.Thread(target=_pump, args=[backend, secure], daemon=True)
                answers.start()
                _pump(secure, backend)
                answers.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


class Gone(FakeServer):
    """Another website at the old host."""

    def _reply(self, request: ReceivedRequest) -> Answer:
        return Answer(404)


@pytest.fixture
def front(home: Path) -> Iterator[TlsFront]:
    with TlsFront(make_certificate(home / "certificate.pem", OLD, NEW, EVIL)) as front:
        yield front


@pytest.fixture
def browser(front: TlsFront) -> Iterator[Browser]:
    """A browser that finds all hosts at the proxy."""
    rules = ", ".join(f"MAP {host}:443 127.0.0.1:{front.port}" for host in (OLD, NEW, EVIL))
    with (
        database.reachable_directory() as profile,
        Browser(profile, f"--host-resolver-rules={rules}", "--ignore-certificate-errors") as browser,
    ):
        yield browser


def sign_in(running: Service, browser: Browser, host: str) -> Any:
    """Sign in with a passkey at a page on this host. Return the service's answer, or the name of the browser's error."""
    options = running.post("/api/auth/passkey/options").json()["publicKey"]
    browser.open(f"https://{host}{PAGE}")
    credential = browser.use_passkey(options)
    return credential if isinstance(credential, str) else running.post("/api/auth/passkey", {"credential": credential})


def test_passkeys_of_the_old_host_work_at_the_new_one(
    service: Start, own_database: dict[str, str], front: TlsFront, browser: Browser, home: Path
) -> None:
    owner = {"SSO_PLATFORM_OWNER_EMAIL": OWNER, "SSO_PLATFORM_OWNER_PASSWORD": PASSWORD}
    running = service(SSO_BASE_URL=f"https://{OLD}", **owner, **own_database).start()
    front.backends = dict.fromkeys((OLD, NEW, EVIL), running.port)
    browser.open(f"https://{OLD}{PAGE}")
    with browser.authenticator() as authenticator:
        token = running.login(OWNER, PASSWORD)["access_token"]
        options = running.post("/api/user/passkeys/options", token=token).json()["publicKey"]
        assert options["rp"]["id"] == OLD
        added = running.post("/api/user/passkeys", {"credential": browser.create_passkey(options)}, token=token)
        assert added.status_code == 201, added.text
        assert sign_in(running, browser, OLD).status_code == 200

        assert running.stop() == 0
        running.settings["SSO_BASE_URL"] = f"https://{NEW}"
        running.start()
        assert [line["problem"] for line in running.logged("passkeys_of_another_host")] == [
            f"Passkeys are for {OLD}. They work at https://{NEW} only if https://{OLD}/.well-known/webauthn lists these."
        ]
        answer = sign_in(running, browser, NEW)
        assert answer.status_code == 200, answer.text
        assert running.get("/api/user", token=answer.json()["access_token"]).json()["email"] == OWNER
        assert sign_in(running, browser, EVIL) == "SecurityError", "the file does not list it"
        assert sign_in(running, browser, OLD).status_code == 401, "it is no page of ours any longer"

        token = answer.json()["access_token"]
        options = running.post("/api/user/passkeys/options", token=token).json()["publicKey"]
        authenticator.remove(authenticator.credentials()[0]["credentialId"])
        browser.open(f"https://{NEW}{PAGE}")
        added = running.post("/api/user/passkeys", {"credential": browser.create_passkey(options)}, token=token)
        assert (added.status_code, added.json()["rp_id"]) == (201, OLD)
        assert sign_in(running, browser, NEW).status_code == 200
        browser.open(f"https://{NEW}/app/sign-in")
        # The browser proposes the passkey in the address field, and the virtual authenticator accepts at once.
        browser.wait_until(lambda: browser.address.startswith(f"https://{NEW}/app") and "/sign-in" not in browser.address)
        browser.open(f"https://{EVIL}/app/sign-in")
        [button] = [each for each in browser.find("button") if each.text == "Sign in with a passkey"]
        button.click()
        browser.wait_until(lambda: "Passkeys do not work at this address" in browser.text)

        commands = {"SSO_BASE_URL": f"https://{NEW}", **own_database}
        examined = gatehouse(home, "doctor", **commands).stdout
        assert f'https://{OLD}/.well-known/webauthn must serve {{"origins": ["https://{NEW}"]}}, but ' in examined, examined
        assert "Without it, 1 user must set up new ones" in examined, examined

        with Gone() as gone:
            front.backends[OLD] = int(gone.address.rpartition(":")[2])
            front.drop()
            assert sign_in(running, browser, NEW) == "SecurityError", "the file is gone"
