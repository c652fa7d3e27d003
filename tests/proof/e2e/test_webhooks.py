"""Webhooks of the running service: acknowledged events are delivered, through kill -9 and restarts
of the database, and slow receivers delay no others."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
import trio
from standardwebhooks import Webhook as Verifier

from adapters.crypto import generate_key
from tests.fakes.receiver import Receiver, answer, hang, receiving
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import DatabaseServer, Service
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

EMAIL: Final = "owner@example.com"
PASSWORD: Final = "correct horse battery staple"
ORG: Final = "/api/organizations/acme"
# End the leases of killed processes now, and not after some minutes.
END_LEASES: Final = "update webhook_deliveries set due_at = now() where status = 'waiting' and next_retry_at is null"
# Retry failed deliveries now, and not in an hour.
RETRY: Final = """
    with retried as (
        update webhook_deliveries set due_at = now() where status = 'waiting' and claims = attempt_count and attempt_count > 0 returning 1)
    select pg_notify('webhooks', '') from retried"""


@dataclass
class House:
    """A service with an organization, and webhooks to a receiver."""

    service: Service
    receiver: Receiver
    database: str
    token: str = ""
    secrets: dict[str, str] = field(default_factory=dict)  # by path
    changes: list[str] = field(default_factory=list)  # acknowledged names of the organization

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        given = await trio.to_thread.run_sync(partial(self.service.call, method, path, body, token=self.token))
        assert given.status_code == 200, given.text
        return given.json()

    async def begin(self) -> None:
        tokens = await trio.to_thread.run_sync(self.service.login, EMAIL, PASSWORD)
        self.token = tokens["access_token"]
        await self.call("POST", "/api/organizations", {"slug": "acme", "name": "Acme"})

    async def hook(self, path: str, *events: str) -> str:
        url = self.receiver.url(path)
        made = await self.call("POST", f"{ORG}/webhooks", {"name": path, "url": url, "events": list(events or ("organization.updated",))})
        self.secrets[path] = made["secret"]
        return str(made["id"])

    async def change(self, count: int = 1) -> None:
        """Cause this many events, each of which is delivered."""
        for _ in range(count):
            name = f"Acme {len(self.changes)}"
            await self.call("PATCH", ORG, {"name": name})
            self.changes.append(name)

    def received(self, path: str) -> dict[str, set[str]]:
        """Return the changes that the receiver accepted with valid signatures, and their delivery
        ids."""
        found: dict[str, set[str]] = {}
        for got in self.receiver.at(path):
            payload = Verifier(self.secrets[path]).verify(got.body, got.headers)
            assert payload["actor_email"] == EMAIL
            found.setdefault(payload["data"]["name"]["new"], set()).add(got.id)
        return found

    async def all_received(self, *paths: str) -> None:
        for path in paths:
            await eventually(partial(self._has_all, path), f"all events arrived at {path}")
            assert {len(ids) for ids in self.received(path).values()} == {1}, "one id, however often it came"

    def _has_all(self, path: str) -> bool:
        return set(self.changes) <= self.received(path).keys()

    def sql(self, statement: str) -> list[Any]:
        with psycopg.connect(self.database, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as opened:
        yield opened


@pytest.fixture
async def house(service: Start, server: DatabaseServer, receiver: Receiver, home: Path) -> House:
    server.start()
    running = service(
        SSO_DATABASE_URL=server.conninfo,
        SSO_ENCRYPTION_KEYS=generate_key(),
        SSO_PLATFORM_OWNER_EMAIL=EMAIL,
        SSO_PLATFORM_OWNER_PASSWORD=PASSWORD,
        SSO_AUTO_APPROVE_ORGANIZATIONS="true",
        SSO_OUTBOUND_ALLOW=f"127.0.0.1:{receiver.port}",
        SSO_WEBHOOK_RETRY_DELAYS="0,3600,3600,3600,3600",  # no retry happens before a test asks for it
    )
    await trio.to_thread.run_sync(running.start)
    house = House(running, receiver, server.conninfo)
    await house.begin()
    return house


async def test_all_events_are_delivered_through_kill_9(house: House) -> None:
    receiver = house.receiver
    gate = trio.Event()

    async def wait(stream: trio.abc.Stream) -> None:
        is_client_killed = not gate.is_set()
        await gate.wait()
        if is_client_killed:
            raise trio.BrokenResourceError  # no process reads this response, so the delivery must come again
        await stream.send_all(answer(200))

    receiver.answers |= {"/slow": wait, "/hangs": hang}
    for path in ("/fast", "/slow", "/hangs"):
        await house.hook(path)
    await house.change(5)
    await house.all_received("/fast")  # although other receivers hang
    await receiver.wait_for_requests("/slow")
    await receiver.wait_for_requests("/hangs")
    await trio.to_thread.run_sync(house.service.kill)
    gate.set()
    await trio.to_thread.run_sync(house.service.start)
    assert house.received("/slow").keys() <= set(house.changes)
    house.sql(END_LEASES)
    await house.change(5)
    await house.all_received("/fast", "/slow")
    output = house.service.output
    assert not any(secret in output for secret in house.secrets.values())
    assert await trio.to_thread.run_sync(house.service.stop) == 0


async def test_all_events_are_delivered_through_a_restart_of_the_database(house: House, server: DatabaseServer) -> None:
    await house.hook("/fast")
    await house.change(3)
    await house.all_received("/fast")
    pid = house.service.process.pid
    await trio.to_thread.run_sync(server.stop)
    await eventually(lambda: house.service.get("/health/ready").status_code == 503, "the service has noticed")
    await trio.to_thread.run_sync(server.start)
    await eventually(lambda: house.service.get("/health/ready").status_code == 200, "the database is back")
    await house.change(3)
    await house.all_received("/fast")
    assert house.service.process.pid == pid


async def test_failed_deliveries_are_retried_and_paused_ones_wait(house: House) -> None:
    receiver = house.receiver
    paused, deleted = await house.hook("/paused"), await house.hook("/deleted")
    await house.hook("/redirects")
    receiver.answers |= {path: answer(503) for path in ("/paused", "/deleted")}
    receiver.answers["/redirects"] = answer(307, b"", f"Location: {receiver.url('/elsewhere')}")
    await house.change()
    for path in ("/paused", "/deleted", "/redirects"):
        await receiver.wait_for_requests(path)
    await house.call("PATCH", f"{ORG}/webhooks/{paused}", {"is_active": False})
    await house.call("DELETE", f"{ORG}/webhooks/{deleted}")

    def used_up() -> bool:
        house.sql(RETRY)
        return house.sql("select attempt_count from webhook_deliveries where status = 'done'") == [(5,)]

    await eventually(used_up, "the redirect was tried as often as can be")
    due = "select 1 from webhook_deliveries d join webhooks w on w.id = d.webhook_id where d.status = 'due' and w.name = '/paused'"
    await eventually(lambda: house.sql(due) == [(1,)], "it is only held up by the pause")
    assert {path: receiver.started[path] for path in ("/paused", "/deleted", "/redirects")} == {
        "/paused": 1,
        "/deleted": 1,
        "/redirects": 5,
    }
    assert "/elsewhere" not in receiver.started
    receiver.answers["/paused"] = answer(200)
    await house.call("PATCH", f"{ORG}/webhooks/{paused}", {"is_active": True})

    async def delivered() -> bool:
        [delivery] = (await house.call("GET", f"{ORG}/webhooks/{paused}/deliveries"))["deliveries"]
        return bool(delivery["delivered"] and delivery["attempt_count"] == 2)

    await eventually(delivered, "it went on when it was active again")
