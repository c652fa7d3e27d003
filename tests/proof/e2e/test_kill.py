"""kill -9 under load: acknowledged changes are there after the restart, and no process stays behind."""

import os
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import psycopg
import pytest
import trio

from adapters.postgres.engine import embedded
from core.accounts.model.email_queue import LEASE
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import Service, family
from tests.proof.e2e.sink import MailSink
from tests.support.waiting import eventually, until

pytestmark = pytest.mark.slow

T = TypeVar("T")

PASSWORD: Final = "correct horse battery staple"


@dataclass
class Session:
    """The last acknowledged tokens.

    `renewing` is true while a refresh is unanswered, and stays true if no answer came.
    """

    access_token: str
    refresh_token: str
    renewing: bool = False


@dataclass
class Ledger:
    """The changes that the service has acknowledged."""

    people: list[str] = field(default_factory=list)  # verified accounts
    registered: list[str] = field(default_factory=list)  # since the last kill
    sessions: list[Session] = field(default_factory=list)
    signed_out: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    killed: bool = False


class Load:
    """Users who register, sign in, refresh and sign out at the same time, until the service is killed."""

    def __init__(self, service: Service, ledger: Ledger, rng: random.Random) -> None:
        self._service = service
        self._ledger = ledger
        self._rng = rng

    async def run_until_killed(self, after: float) -> None:
        """Kill the service this many seconds after the first acknowledgements."""
        before = len(self._ledger.sessions)
        async with trio.open_nursery() as nursery:
            for act in (self._register, self._register, self._sign_in, self._sign_in, self._renew, self._renew, self._sign_out):
                nursery.start_soon(self._again_and_again, act)
            await eventually(lambda: self._ledger.registered and len(self._ledger.sessions) > before + 2, "the load has started")
            await trio.sleep(after)
            self._ledger.killed = True
            self._service.kill()

    async def _again_and_again(self, act: Callable[[], Awaitable[bool]]) -> None:
        """Act until the service disconnects. Users without a request left stop too."""
        try:
            while await act() or not self._ledger.killed:
                pass
        except httpx.TransportError:
            assert self._ledger.killed, "the service closed a connection by itself"

    async def _call(self, path: str, body: Any = None, token: str | None = None) -> Any:
        answer = await trio.to_thread.run_sync(partial(self._service.post, path, body, token=token))
        if answer.status_code == 200:
            return answer.json()
        if not self._ledger.killed:  # workers can still report a lost database after their parent was killed
            self._ledger.refused.append(f"{path}: {answer.status_code} {answer.text}")
        return None

    # An act sends a request, or returns False if it has nothing to do.

    async def _register(self) -> bool:
        email = f"{self._rng.getrandbits(64):x}@example.com"
        if await self._call("/api/auth/register", {"email": email, "password": PASSWORD}):
            self._ledger.registered.append(email)
        return True

    async def _sign_in(self) -> bool:
        email = self._rng.choice(self._ledger.people)
        if tokens := await self._call("/api/auth/login", {"email": email, "password": PASSWORD}):
            self._ledger.sessions.append(Session(tokens["access_token"], tokens["refresh_token"]))
        return True

    async def _renew(self) -> bool:
        session = self._take_one()
        if session is None:
            await trio.sleep(0.01)
            return False
        session.renewing = True
        if tokens := await self._call("/api/auth/refresh", {"refresh_token": session.refresh_token}):
            session.access_token, session.refresh_token = tokens["access_token"], tokens["refresh_token"]
            session.renewing = False
        return True

    async def _sign_out(self) -> bool:
        # Rarely, so that most sessions are left to be checked.
        session = self._take_one() if self._rng.random() < 0.1 else None
        if session is None:
            await trio.sleep(0.01)
            return False
        self._ledger.sessions.remove(session)
        if await self._call("/api/auth/logout", token=session.access_token):
            self._ledger.signed_out.append(session.access_token)
        return True

    def _take_one(self) -> Session | None:
        free = [session for session in self._ledger.sessions if not session.renewing]
        return self._rng.choice(free) if free else None


def end_leases(home: Path, since: datetime) -> None:
    """End the killed processes' leases now, and not after two minutes."""
    conninfo = embedded.attach(home / "var" / "postgres")
    assert conninfo is not None
    with psycopg.connect(conninfo) as connection:
        connection.execute("update mails set due_at = now() where finished_at is null and due_at <= %s", (since + LEASE,))
        connection.execute("select pg_notify('mails', '')")


def unfinished_mails(home: Path) -> int:
    conninfo = embedded.attach(home / "var" / "postgres")
    assert conninfo is not None
    with psycopg.connect(conninfo) as connection:
        row = connection.execute("select count(*) from mails where finished_at is null").fetchone()
    assert row is not None
    return int(row[0])


async def check(service: Service, ledger: Ledger, sink: MailSink) -> None:
    """Check all entries in the ledger."""
    for email in ledger.registered:
        emails = sink.emails_to(email)
        assert 1 <= len(emails) <= 2, f"{len(emails)} emails to {email}"
        assert len({(received.message_id, received.link) for received in emails}) == 1

    def check_registration(email: str) -> None:
        assert service.follow(sink.emails_to(email)[0].link).status_code == 200
        service.login(email, PASSWORD)

    def check_session(session: Session) -> None:
        assert service.get("/api/user", token=session.access_token).status_code == 200
        if not session.renewing:
            answer = service.post("/api/auth/refresh", {"refresh_token": session.refresh_token})
            assert answer.status_code == 200, answer.text
            tokens = answer.json()
            session.access_token, session.refresh_token = tokens["access_token"], tokens["refresh_token"]

    def check_signed_out(token: str) -> None:
        assert service.get("/api/user", token=token).status_code == 401

    limiter = trio.CapacityLimiter(4)
    async with trio.open_nursery() as nursery:

        def start_each(act: Callable[[T], None], things: list[T]) -> None:
            for thing in things:
                nursery.start_soon(partial(trio.to_thread.run_sync, act, thing, limiter=limiter))

        start_each(check_registration, ledger.registered)
        start_each(check_session, ledger.sessions)
        start_each(check_signed_out, ledger.signed_out)


@pytest.mark.usefixtures("migrated_home")
@pytest.mark.parametrize(("workers", "rounds"), [(1, 2), (2, 1)])
async def test_acknowledged_changes_survive_kill_9_of_the_service_and_of_its_database(
    workers: int, rounds: int, service: Start, sink: MailSink, home: Path
) -> None:
    running = service("--workers", str(workers), SSO_SMTP_URL=sink.url).start()
    ledger = Ledger(people=[f"person{number}@example.com" for number in range(4)])
    for email in ledger.people:
        running.register(email, PASSWORD)
        assert running.follow(sink.wait_for(email).link).status_code == 200
    for number in range(rounds):
        rng = random.Random(f"{workers} workers, round {number}")  # noqa: S311 (a failure can be repeated)
        sink.delay = rng.uniform(0, 0.05)
        ledger.killed = False
        ledger.registered.clear()
        await Load(running, ledger, rng).run_until_killed(after=rng.uniform(0, 0.4))
        assert ledger.refused == []
        until(lambda: not family(home), "all processes of the killed service have ended")
        killed_at = datetime.now(UTC)
        running.start()
        end_leases(home, killed_at)
        until(lambda: unfinished_mails(home) == 0, "all emails have been sent")
        await check(running, ledger, sink)
    ledger.registered.clear()
    kill_database(running, home)
    await check(running, ledger, sink)
    assert running.stop() == 0
    assert family(home) == {}


def kill_database(running: Service, home: Path) -> None:
    """Kill the embedded database: the service ends too, and starts again with its data."""
    # A new PostgreSQL child has the same command line until it sets its title.
    server = int((home / "var" / "postgres" / "postmaster.pid").read_text().splitlines()[0])
    assert "postgres" in family(home)[server]
    os.kill(server, signal.SIGKILL)
    assert running.wait() == 1
    assert running.logged("database_ended")
    until(lambda: not family(home), "all processes of the service have ended")
    running.start()
    assert running.get("/health/ready").status_code == 200
