"""Several processes on one socket, and the ways to stop a single process or all."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx
import psycopg
import pytest
import trio

from adapters.postgres.engine.embedded.location import data_location, has_owner, server_user
from tests.proof.e2e.conftest import Start, service_home, settings_of_own_database
from tests.proof.e2e.process import Service, children, family, samples
from tests.proof.e2e.sink import MailSink
from tests.proof.wire.loopback import IPV4, IPV6, has_ipv6
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

EMAIL: Final = "ada@example.com"
PASSWORD: Final = "correct horse battery staple"


def member(service: Service, sink: MailSink, email: str = EMAIL) -> None:
    """A user who can sign in."""
    service.register(email, PASSWORD)
    assert service.follow(sink.wait_for(email).link).status_code == 200


@contextmanager
def only(service: Service, worker: int) -> Iterator[None]:
    """Let only this worker answer, by stopping all remaining workers."""
    others = [pid for pid in service.workers if pid != worker]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def all_serving(service: Service, count: int) -> Service:
    """The service, as soon as all its workers answer."""
    until(lambda: len(service.workers) == count, f"there are {count} workers")
    for worker in service.workers:
        with only(service, worker):
            assert service.get("/health/live").status_code == 200
    return service


@dataclass
class Pair:
    """A service with two workers, which some tests share because its start takes long.

    A test that ends the service leaves it to the next test to start it again.
    """

    service: Service
    sink: MailSink
    home: Path
    database: str

    def serving(self) -> Service:
        """The running service, as soon as both workers answer."""
        return all_serving(self.service if self.service.runs else self.service.start(), 2)


@contextmanager
def two_workers(**settings: str) -> Iterator[Pair]:
    with ExitStack() as stack:
        home = stack.enter_context(service_home())
        own = stack.enter_context(settings_of_own_database())
        sink = MailSink()
        sink.start()
        stack.callback(sink.close)
        service = Service(home, "--workers", "2", **own, SSO_SMTP_URL=sink.url, **settings)
        stack.callback(service.clean_up)
        yield Pair(service, sink, home, own["SSO_DATABASE_URL"])


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with two_workers() as pair:
        yield pair


@pytest.fixture(scope="module")
def limited() -> Iterator[Pair]:
    """Two workers with rate limits."""
    with two_workers(SSO_RATE_LIMITS="on") as pair:
        yield pair


def test_every_worker_shows_the_same_metrics_of_all_requests(pair: Pair) -> None:
    running = pair.serving()
    # No other test calls this route, so all its requests are counted here.
    key_requests = '{method="GET",route="/.well-known/jwks.json",status_class="2xx"}'
    for count, worker in ((7, running.workers[0]), (5, running.workers[1])):
        with only(running, worker):
            for _ in range(count):
                assert running.get("/.well-known/jwks.json").status_code == 200
    failures = running.metric("sso_login_failures_total")
    for worker in running.workers:
        with only(running, worker):
            refused = running.post("/api/auth/login", {"email": "unknown@example.com", "password": PASSWORD})
            assert refused.status_code == 401
    # A request is counted after its response was sent, which can be an instant after it arrives.
    logins = '{method="POST",route="/api/auth/login",status_class="4xx"}'
    for labels, count in ((key_requests, 12), (logins, 2)):
        until(lambda: running.metric("sso_http_request_duration_seconds_count").get(labels) == count, f"{count} are counted")  # noqa: B023
    for answer in expositions(running):
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        names = set(samples(answer.text, r"sso_\w+"))
        assert names
        failed = samples(answer.text, "sso_login_failures_total")
        assert failed['{reason="credentials"}'] == failures['{reason="credentials"}'] + 2
    until(lambda: running.metric("sso_db_pool_connections_max") == {'{backend="postgres"}': 8}, "two pools are counted")

    def agree() -> bool:
        """Compare the metrics from two workers, except for the requests to /metrics."""
        one, other = ([line for line in answer.text.splitlines() if "/metrics" not in line] for answer in expositions(running))
        return one == other

    until(agree, "the metrics of both agree")  # a background job can end between the two responses, but not every time


def expositions(running: Service) -> list[httpx.Response]:
    """Return every worker's metrics."""
    responses = []
    for worker in running.workers:
        with only(running, worker):
            responses.append(running.get("/metrics"))
    return responses


def test_rate_limits_hold_across_workers(limited: Pair) -> None:
    running = limited.serving()
    answers: list[httpx.Response] = []
    for worker in running.workers:
        with only(running, worker):
            for number in range(6):
                credentials = {"email": f"unknown{len(answers) + number}@example.com", "password": PASSWORD}
                answers.append(running.post("/api/auth/login", credentials))
    # Ten per minute, which refill every six seconds.
    assert [answer.status_code for answer in answers[:10]] == [401] * 10
    assert answers[11].status_code == 429
    assert 1 <= int(answers[11].headers["Retry-After"]) <= 6
    assert answers[11].json()["error_code"] == "RATE_LIMIT_EXCEEDED"


def test_a_killed_worker_is_replaced_and_the_others_continue(pair: Pair) -> None:
    running = pair.serving()
    member(running, pair.sink, "grace@example.com")
    tokens = running.login("grace@example.com", PASSWORD)
    died = len(running.logged("worker_died"))
    killed, survivor = running.workers
    counted = running.metric("sso_auth_tokens_issued_total")[""]
    os.kill(killed, signal.SIGKILL)
    # Another worker answers in that time, and knows the session.
    until(lambda: killed not in running.workers, "the worker has ended")
    assert running.get("/api/user", token=tokens["access_token"]).status_code == 200
    until(lambda: len(running.workers) == 2, "there are two workers again")
    [replacement] = set(running.workers) - {survivor}
    with only(running, replacement):
        assert running.get("/api/user", token=tokens["access_token"]).status_code == 200
        assert running.metric("sso_auth_tokens_issued_total")[""] == counted
    assert [line["pid"] for line in running.logged("worker_died")[died:]] == [killed]
    # The dead process's connections are no longer counted.
    until(lambda: running.metric("sso_db_pool_connections_max") == {'{backend="postgres"}': 8}, "two pools are counted")


async def test_a_worker_that_is_killed_under_load_loses_only_its_running_requests(pair: Pair) -> None:
    running = pair.serving()
    member(running, pair.sink, "edsger@example.com")
    token = running.login("edsger@example.com", PASSWORD)["access_token"]
    lost, refused = 0, []

    async def ask() -> None:
        nonlocal lost
        for _ in range(60):
            try:
                answer = await trio.to_thread.run_sync(lambda: running.get("/api/user", token=token))
            except httpx.TransportError:
                lost += 1
            else:
                if answer.status_code != 200:
                    refused.append(answer.text)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(ask)
        os.kill(running.workers[0], signal.SIGKILL)
    assert refused == []
    assert lost <= 4  # at most one request per client was running there


class Conversation:
    """A request over a bare socket, in two halves."""

    def __init__(self, service: Service, path: str, body: Any) -> None:
        host, _, port = service.address.removeprefix("http://").partition(":")
        self._body = json.dumps(body).encode()
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(self._body)}\r\nExpect: 100-continue\r\n\r\n"
        )
        self._socket.sendall(head.encode())
        # The application asks for the body with 100 Continue, so the request is running.
        assert self._receive(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")

    def finish(self) -> tuple[int, dict[str, str], Any]:
        """Send the body, and read the response."""
        self._socket.sendall(self._body)
        return self.hear()

    def hear(self) -> tuple[int, dict[str, str], Any]:
        """Return status, headers and body."""
        raw = self._receive(None)
        head, _, body = raw.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return int(status.split()[1]), headers, json.loads(body)

    def _receive(self, end: bytes | None) -> bytes:
        """Read until `end`, or until the server closes the connection."""
        received = b""
        while end is None or not received.endswith(end):
            piece = self._socket.recv(65536)
            if not piece:
                break
            received += piece
        return received

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()


def test_sigterm_lets_a_running_login_finish_and_accepts_no_new_connection(pair: Pair) -> None:
    check_sigterm(pair.serving(), pair, 2)


def test_sigterm_lets_a_running_login_of_a_single_process_finish(
    service: Start, sink: MailSink, own_database: dict[str, str], home: Path
) -> None:
    running = service(**own_database, SSO_SMTP_URL=sink.url).start()
    check_sigterm(running, Pair(running, sink, home, own_database["SSO_DATABASE_URL"]), 1)


def check_sigterm(running: Service, pair: Pair, workers: int) -> None:
    member(running, pair.sink)
    stopped, sessions = len(running.logged("stopping")), open_sessions(pair.database)
    logins = len(of_logins(running))
    with Conversation(running, "/api/auth/login", {"email": EMAIL, "password": PASSWORD}) as login:
        running.process.terminate()
        until(lambda: len(running.logged("stopping")) == stopped + workers, "every process is stopping")
        until(lambda: not is_taken(running), "new connections are refused", patience=10)
        status, headers, tokens = login.finish()
    assert status == 200, tokens
    assert tokens.keys() == {"access_token", "refresh_token", "expires_in"}
    assert headers["connection"] == "close"
    assert running.wait() == 0
    assert family(pair.home) == {}
    assert open_sessions(pair.database) == sessions + 1
    assert of_logins(running)[logins:] == [200]


def of_logins(running: Service) -> list[int]:
    """Return the logins' logged statuses."""
    return [line["status"] for line in running.logged("request") if line["route"] == "/api/auth/login"]


def open_sessions(conninfo: str) -> int:
    with psycopg.connect(conninfo) as connection:
        row = connection.execute("select count(*) from sessions where ended_at is null").fetchone()
    assert row is not None
    return int(row[0])


def is_taken(service: Service) -> bool:
    """Return whether a new connection to a loopback address would be accepted, or wait in the backlog."""
    return any(accepts(host, service.port) for host in (IPV4, IPV6) if host == IPV4 or has_ipv6())


def accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except ConnectionRefusedError:
        return False
    except TimeoutError:
        return True
    return True


def test_an_email_in_delivery_at_shutdown_is_sent_once(service: Start, sink: MailSink, own_database: dict[str, str]) -> None:
    running = service(**own_database, SSO_SMTP_URL=sink.url).start()
    sink.delay = 1.0
    running.register(EMAIL, PASSWORD)
    until(lambda: sink.busy, "the email is being received")
    assert running.stop() == 0
    with psycopg.connect(own_database["SSO_DATABASE_URL"]) as connection:
        assert connection.execute("select outcome, claims from mails").fetchall() == [("sent", 1)]
    assert len(sink.emails_to(EMAIL)) == 1


@pytest.mark.usefixtures("migrated_home")
@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_stops_all_processes_including_the_database(workers: int, service: Start, home: Path) -> None:
    running = service("--workers", str(workers)).start()
    if workers > 1:
        all_serving(running, workers)
    assert any("postgres" in command for command in family(home).values())
    running.interrupt()
    # Two seconds are promised for an idle service on an idle machine, where it takes a quarter of a
    # second. This machine can run more tests at the same time, so here it only has to happen,
    # within ten times that time.
    until(lambda: not family(home), "no process is left", patience=20)
    assert running.wait() in (0, 130)
    assert "Traceback" not in running.output


def test_a_second_ctrl_c_does_not_wait_for_running_requests(limited: Pair) -> None:
    check_second_ctrl_c(limited.serving(), limited.home, 2)


def test_a_second_ctrl_c_ends_the_running_requests_of_a_single_process(service: Start, own_database: dict[str, str], home: Path) -> None:
    check_second_ctrl_c(service(**own_database).start(), home, 1)


def check_second_ctrl_c(running: Service, home: Path, workers: int) -> None:
    stopped = len(running.logged("stopping"))
    # This route has no limit before its body, which the tests before could have used up.
    with Conversation(running, "/auth/introspect", {"token": "made up", "client_id": "made up"}) as stuck:
        running.interrupt()
        until(lambda: len(running.logged("stopping")) == stopped + workers, "every process is stopping")
        assert running.runs
        running.interrupt()
        status, headers, _ = stuck.hear()
        assert (status, headers["connection"]) == (503, "close")
        running.wait()
    until(lambda: not family(home), "no process is left")
    assert "Traceback" not in running.output


@pytest.mark.usefixtures("migrated_home")
def test_no_process_stays_when_the_parent_of_idle_workers_is_killed(service: Start, home: Path) -> None:
    running = all_serving(service("--workers", "2").start(), 2)
    assert len(children(running.process.pid)) == 3
    running.kill()
    data_dir = home / "var" / "postgres"
    assert not has_owner(data_location(data_dir, server_user(data_dir)))  # the next service need not wait for these workers
    until(lambda: not family(home), "workers and database have ended")
