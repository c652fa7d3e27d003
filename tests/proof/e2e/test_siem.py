"""The audit log in a SIEM, from outside.

The SIEM fails, hangs, disappears and returns, the process is killed, and the database restarts. All
entries arrive in order.
"""

from typing import Any

import httpx
import psycopg
import pytest
import trio

from adapters.crypto import generate_key
from core.eventing.model.siem import SiemResult
from tests.fakes.siem_sink import FakeSiem, siem_sink
from tests.proof.e2e.conftest import Start
from tests.proof.e2e.process import DatabaseServer, Service, is_storage_down
from tests.support.waiting import PATIENCE, eventually

pytestmark = pytest.mark.slow

OWNER, PASSWORD = "grace@example.com", "nine lions at the river"
TOKEN = "t0ken-of-the-siem"


class Diary:
    """A user who renames an organization repeatedly.

    `written` are the acknowledged names in order.
    """

    def __init__(self, service: Service) -> None:
        self.written: list[str] = []
        self.maybe: set[str] = set()  # names without an acknowledgment: stored or not
        self._service = service

    async def sign_in(self) -> None:
        self._token = (await trio.to_thread.run_sync(self._service.login, OWNER, PASSWORD))["access_token"]

    async def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        return await trio.to_thread.run_sync(lambda: self._service.call(method, f"/api/organizations{path}", body, token=self._token))

    async def write_for_ever(self) -> None:
        number = 0
        while True:
            number += 1
            name = f"Name {number}"
            try:
                answer = await self.call("PATCH", "/acme", {"name": name})
            except httpx.TransportError:
                self.maybe.add(name)
                await trio.sleep(0.05)
                continue
            if answer.status_code == 200:
                self.written.append(name)
            else:
                assert is_storage_down(answer), answer.text
                self.maybe.add(name)

    async def wait_for_more(self) -> None:
        count = len(self.written) + 5
        await eventually(lambda: len(self.written) >= count, "five more changes are acknowledged")


def arrived(sink: FakeSiem) -> list[str]:
    """Return the names as they first arrived."""
    names = [entry["details"]["name"]["new"] for entry in sink.entries() if entry["action"] == "organization.updated"]
    return list(dict.fromkeys(names))


def let_time_pass(conninfo: str) -> None:
    """Make all retries due now. A living process's leases continue."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("update siem_configurations set due_at = now() where due_at > now()")


def end_leases(conninfo: str) -> None:
    """End the killed process's lease now, and not after 20 seconds."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        ended = connection.execute("update siem_configurations set leased_until = now() where leased_until > now()")
    assert ended.rowcount == 1, "it was killed in an attempt"


async def test_all_entries_arrive_in_order_after_any_failures(service: Start, server: DatabaseServer) -> None:
    async with siem_sink() as sink:
        server.start()
        running = service(
            SSO_DATABASE_URL=server.conninfo,
            SSO_ENCRYPTION_KEYS=generate_key(),
            SSO_PLATFORM_OWNER_EMAIL=OWNER,
            SSO_PLATFORM_OWNER_PASSWORD=PASSWORD,
            SSO_AUTO_APPROVE_ORGANIZATIONS="true",
            SSO_OUTBOUND_ALLOW=f"127.0.0.1/32:{sink.port}",
        )
        await trio.to_thread.run_sync(running.start)
        diary = Diary(running)
        await diary.sign_in()
        await diary.call("POST", "", {"slug": "acme", "name": "Acme"})
        configuration = {"provider": "splunk_hec", "endpoint_url": sink.url("/services/collector/event"), "token": TOKEN}
        answer = await diary.call("POST", "/acme/siem", configuration)
        assert answer.status_code == 200, answer.text
        result = await diary.call("POST", "/acme/siem/test")
        assert result.json() == {"success": True, "message": SiemResult.GOOD.value}

        async def wait_for_entries(when: str) -> None:
            """Wait until all entries so far have arrived."""
            count = len(diary.written)

            async def have_arrived() -> bool:
                await trio.to_thread.run_sync(let_time_pass, server.conninfo)
                return set(diary.written[:count]) <= set(arrived(sink))

            await eventually(have_arrived, f"all entries have arrived {when}", 2 * PATIENCE)

        async def status() -> dict[str, Any]:
            response: dict[str, Any] = (await diary.call("GET", "/acme/siem")).json()
            return response

        async with trio.open_nursery() as nursery:
            nursery.start_soon(diary.write_for_ever)
            await diary.wait_for_more()
            await wait_for_entries("at first")

            sink.status = 500
            await diary.wait_for_more()

            async def has_failed() -> bool:
                return bool((await status())["last_error"] == SiemResult.FAILED)

            await eventually(has_failed, "the status says that the SIEM fails")
            sink.status = 200
            await wait_for_entries("after the SIEM has recovered")

            sink.close()
            await diary.wait_for_more()
            await sink.open()
            await wait_for_entries("after the SIEM was unreachable")

            # Killed while the SIEM has a batch and has not answered.
            posts = len(sink.posts)
            sink.gates["/services/collector/event"] = trio.Event()
            await diary.wait_for_more()
            await sink.until(lambda: len(sink.posts) > posts, "a batch is being sent")
            running.kill()
            end_leases(server.conninfo)
            sink.gates.pop("/services/collector/event").set()
            await trio.to_thread.run_sync(running.start)
            await wait_for_entries("after the process was killed")

            unanswered = len(diary.maybe)
            await trio.to_thread.run_sync(server.stop)
            await eventually(lambda: len(diary.maybe) > unanswered, "a change fails without the database")
            await trio.to_thread.run_sync(server.start)
            await diary.wait_for_more()
            await wait_for_entries("after the restart of the database")
            nursery.cancel_scope.cancel()
        await wait_for_entries("after the last change")

        names = arrived(sink)
        assert [name for name in names if name not in diary.maybe] == [name for name in diary.written if name in names]
        assert names == sorted(names, key=lambda name: int(name.split()[1]))
        assert {post.headers["authorization"] for post in sink.posts} == {f"Splunk {TOKEN}"}
        assert running.metric("sso_siem_failures_total")['{reason="failed"}'] >= 0
        assert TOKEN not in running.output
        assert await trio.to_thread.run_sync(running.stop) == 0
