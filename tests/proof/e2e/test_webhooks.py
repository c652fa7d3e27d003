"""The running service's webhooks: all acknowledged events are delivered.

They are delivered through kill -9 and database restarts, and slow receivers delay no other receivers.
"""

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
# End the killed processes' leases now, and not after some minutes.
END_LEASES: Final = "update webhook_deliveries set due_at = now() where status = 'waiting' and next_retry_at is null"
# Retry failed deliveries now, and not in an hour.
RETRY: Final = """
    with retried as (
        update webhook_deliveries set due_at = now() where status = 'waiting' and claims = attempt_count and attempt_count > 0 returning 1)
    select pg_notify('webhooks', '') from retried"""


@dataclass
class WebhookSender:
    """A service with an organization, and webhooks to a receiver."""

    service: Service
    receiver: Receiver
    database: str
    token: str = ""
    secrets: dict[str, str] = field(default_factory=dict)  # by path
    changes: list[str] = field(default_factory=list)  # the organization's acknowledged names

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        response = await trio.to_thread.run_sync(partial(self.service.call, method, path, body, token=self.token))
        assert response.status_code == 200, response.text
        return response.json()

    async def begin(self) -> None:
        tokens = await trio.to_thread.run_sync(self.service.login, EMAIL, PASSWORD)
        self.token = tokens["access_token"]
        await self.call("POST", "/api/organizations", {"slug": "acme", "name": "Acme"})

    async def add_webhook(self, path: str) -> str:
        """Add a webhook to this path at the receiver. Return its id."""
        body = {"name": path, "url": self.receiver.url(path), "events": ["organization.updated"]}
        webhook = await self.call("POST", f"{ORG}/webhooks", body)
        self.secrets[path] = webhook["secret"]
        return str(webhook["id"])

    async def change(self, count: int = 1) -> None:
        """Cause this many events, all of which are delivered."""
        for _ in range(count):
            name = f"Acme {len(self.changes)}"
            await self.call("PATCH", ORG, {"name": name})
            self.changes.append(name)

    def delivery_ids(self, path: str) -> dict[str, set[str]]:
        """Return the delivery ids of every change that the receiver accepted with a valid signature."""
        ids: dict[str, set[str]] = {}
        for delivery in self.receiver.at(path):
            payload = Verifier(self.secrets[path]).verify(delivery.body, delivery.headers)
            assert payload["actor_email"] == EMAIL
            ids.setdefault(payload["data"]["name"]["new"], set()).add(delivery.id)
        return ids

    async def wait_for_all(self, *paths: str) -> None:
        """Wait until all paths have received all changes, every change with a single delivery id."""
        for path in paths:
            await eventually(partial(self._has_all, path), f"all events arrived at {path}")
            assert {len(ids) for ids in self.delivery_ids(path).values()} == {1}, "repeated deliveries have the same id"

    def _has_all(self, path: str) -> bool:
        return set(self.changes) <= self.delivery_ids(path).keys()

    def sql(self, statement: str) -> list[Any]:
        with psycopg.connect(self.database, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as opened:
        yield opened


@pytest.fixture
async def sender(service: Start, server: DatabaseServer, receiver: Receiver, home: Path) -> WebhookSender:
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
    sender = WebhookSender(running, receiver, server.conninfo)
    await sender.begin()
    return sender


async def test_all_events_are_delivered_through_kill_9(sender: WebhookSender) -> None:
    receiver = sender.receiver
    gate = trio.Event()

    async def wait(stream: trio.abc.Stream) -> None:
        is_client_killed = not gate.is_set()
        await gate.wait()
        if is_client_killed:
            raise trio.BrokenResourceError  # no process reads this response, so the delivery must come again
        await stream.send_all(answer(200))

    receiver.answers |= {"/slow": wait, "/hangs": hang}
    for path in ("/fast", "/slow", "/hangs"):
        await sender.add_webhook(path)
    await sender.change(5)
    await sender.wait_for_all("/fast")  # although two receivers hang
    await receiver.wait_for_requests("/slow")
    await receiver.wait_for_requests("/hangs")
    await trio.to_thread.run_sync(sender.service.kill)
    gate.set()
    await trio.to_thread.run_sync(sender.service.start)
    assert sender.delivery_ids("/slow").keys() <= set(sender.changes)
    sender.sql(END_LEASES)
    await sender.change(5)
    await sender.wait_for_all("/fast", "/slow")
    output = sender.service.output
    assert not any(secret in output for secret in sender.secrets.values())
    assert await trio.to_thread.run_sync(sender.service.stop) == 0


async def test_all_events_are_delivered_through_a_restart_of_the_database(sender: WebhookSender, server: DatabaseServer) -> None:
    await sender.add_webhook("/fast")
    await sender.change(3)
    await sender.wait_for_all("/fast")
    pid = sender.service.process.pid
    await trio.to_thread.run_sync(server.stop)
    await eventually(lambda: sender.service.get("/health/ready").status_code == 503, "the service has noticed")
    await trio.to_thread.run_sync(server.start)
    await eventually(lambda: sender.service.get("/health/ready").status_code == 200, "the database is back")
    await sender.change(3)
    await sender.wait_for_all("/fast")
    assert sender.service.process.pid == pid


async def test_failed_deliveries_are_retried_and_paused_ones_wait(sender: WebhookSender) -> None:
    receiver = sender.receiver
    paused, deleted = await sender.add_webhook("/paused"), await sender.add_webhook("/deleted")
    await sender.add_webhook("/redirects")
    receiver.answers |= {path: answer(503) for path in ("/paused", "/deleted")}
    receiver.answers["/redirects"] = answer(307, b"", f"Location: {receiver.url('/elsewhere')}")
    await sender.change()
    for path in ("/paused", "/deleted", "/redirects"):
        await receiver.wait_for_requests(path)
    await sender.call("PATCH", f"{ORG}/webhooks/{paused}", {"is_active": False})
    await sender.call("DELETE", f"{ORG}/webhooks/{deleted}")

    def is_exhausted() -> bool:
        sender.sql(RETRY)
        return sender.sql("select attempt_count from webhook_deliveries where status = 'done'") == [(5,)]

    await eventually(is_exhausted, "the redirect was tried five times")
    due = "select 1 from webhook_deliveries d join webhooks w on w.id = d.webhook_id where d.status = 'due' and w.name = '/paused'"
    await eventually(lambda: sender.sql(due) == [(1,)], "only the pause delays it")
    assert {path: receiver.started[path] for path in ("/paused", "/deleted", "/redirects")} == {
        "/paused": 1,
        "/deleted": 1,
        "/redirects": 5,
    }
    assert "/elsewhere" not in receiver.started
    receiver.answers["/paused"] = answer(200)
    await sender.call("PATCH", f"{ORG}/webhooks/{paused}", {"is_active": True})

    async def is_delivered() -> bool:
        [delivery] = (await sender.call("GET", f"{ORG}/webhooks/{paused}/deliveries"))["deliveries"]
        return bool(delivery["delivered"] and delivery["attempt_count"] == 2)

    await eventually(is_delivered, "it is delivered when the webhook is active again")
