"""The database is restarted under load: the service stays, reports the outage, and continues by itself."""

import os
import signal
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import httpx
import psycopg
import pytest
import trio

from adapters.crypto import generate_key
from core.accounts.model.email_queue import LEASE
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import DatabaseServer, Service, is_storage_down
from tests.proof.e2e.sink import MailSink
from tests.support.waiting import eventually, until

pytestmark = pytest.mark.slow

EMAIL: Final = "ada@example.com"
PASSWORD: Final = "correct horse battery staple"


class Load:
    """Endless load: a user who reads, a user who signs in, and a user who registers.

    The outcomes are counted.
    """

    def __init__(self, service: Service, token: str) -> None:
        self._service = service
        self._token = token
        self.succeeded: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.strange: list[str] = []
        self.registered: list[str] = []

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for name, act in (("read", self._read), ("sign in", self._sign_in), ("register", self._register)):
                nursery.start_soon(self._again_and_again, name, act)

    async def _again_and_again(self, name: str, act: Callable[[], httpx.Response]) -> None:
        while True:
            answer = await trio.to_thread.run_sync(act)
            if answer.status_code == 200:
                self.succeeded[name] += 1
            elif is_storage_down(answer):
                self.failed[name] += 1
                await trio.sleep(0.05)
            else:
                self.strange.append(f"{name}: {answer.status_code} {answer.text}")

    def _read(self) -> httpx.Response:
        return self._service.get("/api/user", token=self._token)

    def _sign_in(self) -> httpx.Response:
        return self._service.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD})

    def _register(self) -> httpx.Response:
        email = f"newcomer{len(self.registered)}.{self.failed['register']}@example.com"
        answer = self._service.post("/api/auth/register", {"email": email, "password": PASSWORD})
        if answer.status_code == 200:
            self.registered.append(email)
        return answer


@pytest.fixture
def running(service: Start, server: DatabaseServer, sink: MailSink) -> Service:
    server.start()
    settings = {"SSO_DATABASE_URL": server.conninfo, "SSO_ENCRYPTION_KEYS": generate_key(), "SSO_SMTP_URL": sink.url}
    return service(**settings).start()


async def test_a_restart_of_the_database_under_load_is_only_an_outage(running: Service, server: DatabaseServer, sink: MailSink) -> None:
    running.register(EMAIL, PASSWORD)
    assert running.follow(sink.wait_for(EMAIL).link).status_code == 200
    token = running.login(EMAIL, PASSWORD)["access_token"]
    pid = running.process.pid
    load = Load(running, token)
    sink.delay = 0.2  # some emails are queued and some are being delivered when the database stops
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await eventually(lambda: len(load.registered) >= 20 and min(load.succeeded.values()) >= 3, "the load has started")
        server.begin_stop()
        await eventually(lambda: not server.runs, "the database has stopped")
        await eventually(lambda: len(load.failed) == 3 and min(load.failed.values()) >= 3, "all requests have failed")
        outage_at = datetime.now(UTC)
        await trio.to_thread.run_sync(check_outage, running)

        await trio.to_thread.run_sync(server.start)
        # From the first moment on: dead idle connections are replaced by the pool.
        for _ in range(10):
            answer = await trio.to_thread.run_sync(load._read)
            assert answer.status_code == 200, answer.text
        assert (await trio.to_thread.run_sync(running.get, "/health/ready")).json()["database"] == "connected"
        load.succeeded.clear()
        await eventually(lambda: len(load.succeeded) == 3 and min(load.succeeded.values()) >= 5, "all requests succeed again")
        nursery.cancel_scope.cancel()
    assert load.strange == []
    assert running.runs
    assert running.process.pid == pid

    sink.delay = 0
    until(lambda: unsent(server.conninfo, outage_at) == 0, "all emails have been sent", patience=60)
    counts = {email: len(sink.emails_to(email)) for email in load.registered}
    assert {email: count for email, count in counts.items() if count != 1} == {}
    assert running.stop() == 0
    check_log(running)


def check_outage(service: Service) -> None:
    """Check the responses during the outage."""
    ready = service.get("/health/ready")
    assert ready.status_code == 503
    assert ready.json() == {"status": "unhealthy", "version": ready.json()["version"], "database": "disconnected"}
    assert service.get("/health").json()["status"] == "healthy"
    liveness = service.get("/health/live")
    assert (liveness.status_code, liveness.content) == (200, b"")
    assert service.get("/metrics").status_code == 200
    assert service.get("/.well-known/jwks.json").status_code == 200
    for path in ("/api/auth/register", "/api/auth/login"):
        assert is_storage_down(service.post(path, {"email": EMAIL, "password": PASSWORD}))
    assert is_storage_down(service.post("/api/auth/refresh", {"refresh_token": "unknown"}))
    assert is_storage_down(service.post("/api/auth/forgot-password", {"email": EMAIL}))
    # Client errors stay client errors.
    assert service.post("/api/auth/login", {"email": EMAIL}).status_code == 400
    assert service.get("/api/user").status_code == 401
    assert service.get("/api/nothing").status_code == 404
    page = service.get("/auth/verify-email?token=x", Accept="text/html")
    assert page.status_code == 500
    assert page.headers["Content-Type"].startswith("text/html")
    assert "Traceback" not in page.text


def unsent(conninfo: str, outage_at: datetime) -> int:
    """Return how many emails are unfinished.

    An email that was claimed but not prepared waits until its lease ends, which takes two minutes. Here the lease ends
    now. An email that was delivered during the outage has a token: its mailer tries every few seconds to record the
    delivery, so it keeps its lease until then.
    """
    with psycopg.connect(conninfo) as connection:
        connection.execute(
            """update mails set due_at = now()
            where finished_at is null and claims > 0 and due_at <= %(outage_at)s + %(lease)s
                and (token is null or now() > %(outage_at)s + interval '20 s')""",
            {"outage_at": outage_at, "lease": LEASE},
        )
        connection.execute("select pg_notify('mails', '')")
        row = connection.execute("select count(*) from mails where finished_at is null").fetchone()
    assert row is not None
    return int(row[0])


def check_log(service: Service) -> None:
    """Check that every failure in the outage is logged as an error with its code, and none as a defect."""
    failures = [line for line in service.logged("request") if line["status"] == 500]
    assert failures
    assert {(line["level"], line["error_code"]) for line in failures} == {("error", "DATABASE_ERROR")}
    assert [line for line in service.log if "exception" in line] == []
    # Further log lines about a request have its id too.
    logged_ids = [line.get("request_id") for line in service.logged("storage_down")]
    assert {line["request_id"] for line in failures} <= set(logged_ids)
    assert None not in logged_ids
    assert "Traceback" not in service.output


def test_the_service_waits_for_a_database_that_starts_later(service: Start, server: DatabaseServer) -> None:
    server.start().stop()
    settings = {"SSO_DATABASE_URL": server.conninfo, "SSO_ENCRYPTION_KEYS": generate_key()}
    running = service("--welcome", **settings).launch()
    until(lambda: [line for line in running.log if line["event"].startswith("waiting")], "it logs that it waits")
    assert running.runs
    assert "Gatehouse serves on" not in running.output
    server.start()
    until(lambda: "Gatehouse serves on" in running.output, "it serves")
    assert running.get("/health/ready").status_code == 200
    assert running.stop() == 0
    assert "Traceback" not in running.output


def test_workers_that_are_replaced_during_an_outage_wait_for_the_database(service: Start, server: DatabaseServer) -> None:
    server.start()
    settings = {"SSO_DATABASE_URL": server.conninfo, "SSO_ENCRYPTION_KEYS": generate_key()}
    running = service("--workers", "2", **settings).start()
    until(lambda: len(running.workers) == 2, "there are two workers")
    dead = running.workers
    server.stop()
    for pid in dead:
        os.kill(pid, signal.SIGKILL)
    until(lambda: [line for line in running.log if line["event"].startswith("waiting")], "their successors log that they wait")
    server.start()
    assert running.get("/health/ready").status_code == 200
    assert sorted(line["pid"] for line in running.logged("worker_died")) == dead
    assert running.stop() == 0
    assert "Traceback" not in running.output
