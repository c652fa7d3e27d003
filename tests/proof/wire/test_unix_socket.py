"""Unix sockets, and sockets that systemd passes: their files, and the proxy at the client's end."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
import structlog.testing

from entrypoints.http.edge.middleware import App, Receive, Send
from entrypoints.http.edge.protocol.listening import BindError, listen, open_sockets
from entrypoints.http.edge.protocol.request_checks import Scope
from tests import ROOT
from tests.proof.wire.test_server import bare, say
from tests.proof.wire.wire import serving

FORWARDED: Final = "X-Forwarded-For: 198.51.100.7, 203.0.113.9"


@pytest.fixture
def path() -> Iterator[Path]:
    """A socket's path, in a directory with a short name."""
    with TemporaryDirectory(prefix="gatehouse-") as directory:
        yield Path(directory) / "socket"


@pytest.fixture
def app() -> App:
    """An application that answers with the client address."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await say(send, scope["request_record"].address.encode())

    return bare(answer)


@pytest.mark.parametrize("has_path", [True, False], ids=["path", "loopback"])
async def test_the_proxy_must_name_the_client(app: App, path: Path, has_path: bool) -> None:
    """Without the client address, all users would share their rate limits and their history."""
    bind = f"unix:{path}" if has_path else "127.0.0.1:0"  # as on a socket that systemd opens
    async with serving(app, bind=bind, is_behind_proxy=True) as served, served.client() as client:
        assert (await client.get("/api/user", FORWARDED)).body == b"203.0.113.9"
        for headers in ((), ("X-Forwarded-For: unix:",), ("X-Forwarded-For: 203.0.113.9,",), ("X-Real-IP: 203.0.113.9",)):
            with structlog.testing.capture_logs() as logs:
                assert (await client.get("/api/user", *headers)).status == 400
            assert [(line["event"], line["header"]) for line in logs] == [("forwarded_for_missing", "X-Forwarded-For")]
            assert "proxy_set_header X-Forwarded-For" in logs[0]["nginx"]
        for health in ("/health", "/health/live", "/health/ready/"):
            assert (await client.get(health)).status == 200
        await client.send(b"nonsense\r\n\r\n")
        assert (await client.rest()).startswith(b"HTTP/1.1 400 ")


def test_a_socket_has_the_mode_0660_and_is_removed_at_the_end(path: Path) -> None:
    with open_sockets(f"unix:{path}"):
        assert stat.filemode(path.stat().st_mode) == "srw-rw----"
    assert not path.exists()


def test_only_a_stale_socket_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with open_sockets(f"unix:{path}") as [first]:
        with pytest.raises(BindError, match="already in use"):
            listen(f"unix:{path}")
        first.close()
        with open_sockets(f"unix:{path}"):
            pass
        path.write_text("not a socket")
        with pytest.raises(BindError, match="is not a socket"):
            listen(f"unix:{path}")
    assert path.read_text() == "not a socket"
    with pytest.raises(BindError, match="No such file or directory"):
        listen(f"unix:{path.parent}/missing/socket")


PASSED: Final = """
import os, socket, sys
from entrypoints.http.edge.protocol.listening import BindError, listen
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid()) if sys.argv[2] == "own" else "1"
try:
    with listen("systemd")[0] as sock:
        print(sock.family.name, sock.getblocking(), os.get_inheritable(3), "LISTEN_FDS" in os.environ)
except BindError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("family", "owner", "count", "printed"),
    [
        (socket.AF_UNIX, "own", "1", "AF_UNIX False False False"),
        (socket.AF_INET, "own", "1", "AF_INET False False False"),
        (socket.AF_UNIX, "other", "1", "SSO_BIND is systemd, but systemd passed no socket"),
        (socket.AF_UNIX, "own", "2", "SSO_BIND is systemd, but systemd passed no socket"),
    ],
)
def test_a_socket_from_systemd_is_taken(path: Path, family: socket.AddressFamily, owner: str, count: str, printed: str) -> None:
    with socket.socket(family) as sock:
        sock.bind(str(path) if family == socket.AF_UNIX else ("127.0.0.1", 0))
        sock.listen()
        run = subprocess.run(
            [sys.executable, "-c", PASSED, str(sock.fileno()), owner],
            pass_fds=[sock.fileno()],
            cwd=ROOT,
            env={**os.environ, "LISTEN_FDS": count, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
    assert run.stdout.startswith(printed)
