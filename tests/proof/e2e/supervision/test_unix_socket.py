"""Two workers on one Unix socket, behind a reverse proxy."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from tests.fakes.supervisor import NotifySocket
from tests.proof.e2e.conftest import Start
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow


@pytest.fixture
def path() -> Iterator[Path]:
    """A socket's path, in a directory with a short name."""
    with TemporaryDirectory(prefix="gatehouse-") as directory:
        yield Path(directory) / "socket"


def test_workers_share_a_unix_socket(service: Start, own_database: dict[str, str], path: Path) -> None:
    settings = {**own_database, "SSO_BIND": f"unix:{path}", "SSO_BASE_URL": "https://id.example.com"}
    with NotifySocket() as supervisor:
        running = service("--workers", "2", "--welcome", **settings, **supervisor.variables()).launch()
        supervisor.receive_until("READY=1")
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://id.example.com", timeout=PATIENCE) as proxy:
        assert proxy.get("/health/live").status_code == 200
        assert proxy.get("/api/user").status_code == 400
        assert running.logged("forwarded_for_missing")[0]["header"] == "X-Forwarded-For"
        assert proxy.get("/api/user", headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 401
        until(lambda: any(line["address"] == "203.0.113.9" for line in running.logged("request")), "the client is logged")
    assert f"unix:{path}" in running.output
    assert running.stop() == 0
    assert not path.exists()
