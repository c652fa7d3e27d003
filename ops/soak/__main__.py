"""The soak test, `python -m ops.soak [--events N] [--receivers N]`: webhook deliveries under chaos.

Many organizations with many webhooks are changed. At the same time, service processes are killed, the database is
restarted, and some webhooks are deleted. At the end, every working receiver must have received every acknowledged
change at least once, with a signature that the Standard Webhooks library accepts. A deleted webhook must receive
nothing after its deletion, and a private address nothing at all. Otherwise the exit code is 1.
"""

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import httpx
import trio

from adapters.crypto import generate_key
from ops.soak.receivers import Behavior, Receiver, Receivers
from tests.proof.e2e.process import DatabaseServer, Service
from tests.support.database import reachable_directory

ORGANIZATIONS: Final = 20
OWNER: Final = ("owner@soak.example", "a password for the soak")
# How many among twenty receivers are faulty, by kind. All other receivers are healthy.
FAULTY: Final = {
    Behavior.FLAKY: 2,
    Behavior.FAILING: 1,
    Behavior.HANGING: 1,
    Behavior.DRIPPING: 1,
    Behavior.REDIRECTING: 1,
    Behavior.DELETED: 1,
    Behavior.PRIVATE: 1,
}
KILLS, RESTARTS = 5, 2
TIMEOUT: Final = 600.0  # seconds after the last change in which all deliveries must arrive
STALLED: Final = 120.0  # seconds without any progress


def report(text: str) -> None:
    sys.stderr.write(f"soak: {text}\n")
    sys.stderr.flush()


class Soak:
    """A soak test run."""

    def __init__(self, home: Path, events: int, receivers: int) -> None:
        self._events = events
        self._count = receivers
        self._receivers = Receivers()
        self._of_organization: dict[str, list[Receiver]] = {}
        self._deletable: list[tuple[str, str, Receiver]] = []
        self._acknowledged: dict[str, set[str]] = {}
        self._server = DatabaseServer(home)
        self._home = home
        self._kills = self._restarts = 0
        self._draw = random.Random(1)  # noqa: S311 - reproducible

    async def run(self) -> bool:
        """Run the test and return whether it succeeded."""
        async with trio.open_nursery() as nursery:
            await self._receivers.listen(nursery)
            self._server.start()
            self._service = Service(
                self._home,
                SSO_DATABASE_URL=self._server.conninfo,
                SSO_ENCRYPTION_KEYS=generate_key(),
                SSO_WORKERS="2",
                SSO_AUTO_APPROVE_ORGANIZATIONS="true",
                SSO_PLATFORM_OWNER_EMAIL=OWNER[0],
                SSO_PLATFORM_OWNER_PASSWORD=OWNER[1],
                SSO_OUTBOUND_ALLOW=f"127.0.0.1/32:{self._receivers.port}",
                SSO_WEBHOOK_RETRY_DELAYS="0,1,2,4,8",
                SSO_WEBHOOK_TIMEOUT="2",
                SSO_ACCESS_TOKEN_TTL="86400",
                SSO_LOG_LEVEL="warning",
            )
            try:
                self._service.start()
                await self._prepare()
                started = time.monotonic()
                async with trio.open_nursery() as work:
                    work.start_soon(self._disturb)
                    for slug in self._acknowledged:
                        work.start_soon(self._change, slug)
                report(f"{self._events} changes were acknowledged after {time.monotonic() - started:.0f} s; waiting for the receivers")
                await self._wait_for_deliveries()
                report(f"after {time.monotonic() - started:.0f} s no delivery is missing, or no more will arrive")
            finally:
                self._service.clean_up()
                self._server.stop()
                nursery.cancel_scope.cancel()
        return self._report_result()

    # Preparation

    async def _prepare(self) -> None:
        self._token = self._service.login(*OWNER)["access_token"]
        self._client = httpx.AsyncClient(
            base_url=self._service.address, headers={"Authorization": f"Bearer {self._token}"}, trust_env=False, timeout=30
        )
        behaviors = self._choose_behaviors()
        for number in range(ORGANIZATIONS):
            slug = f"soak-{number}"
            (await self._client.post("/api/organizations", json={"slug": slug, "name": "Original name"})).raise_for_status()
            self._acknowledged[slug], self._of_organization[slug] = set(), []
        for number, behavior in enumerate(behaviors):
            slug = f"soak-{number % ORGANIZATIONS}"
            receiver, url = self._receivers.add(behavior)
            webhook = {"name": f"{behavior} {number}", "url": url, "events": ["organization.updated"]}
            created = await self._client.post(f"/api/organizations/{slug}/webhooks", json=webhook)
            created.raise_for_status()
            receiver.secret = created.json()["secret"]
            self._of_organization[slug].append(receiver)
            if behavior is Behavior.DELETED:
                self._deletable.append((slug, created.json()["id"], receiver))
        counts = ", ".join(f"{count} {behavior}" for behavior, count in Counter(behaviors).items())
        report(f"{ORGANIZATIONS} organizations with {len(behaviors)} webhooks: {counts}")

    def _choose_behaviors(self) -> list[Behavior]:
        faulty = [behavior for behavior, count in FAULTY.items() for _ in range(count * self._count // 20)]
        behaviors = faulty + [Behavior.HEALTHY] * (self._count - len(faulty))
        self._draw.shuffle(behaviors)
        return behaviors

    # Changes and chaos

    @property
    def _done(self) -> int:
        return sum(map(len, self._acknowledged.values()))

    async def _change(self, slug: str) -> None:
        """Rename the organization many times, and repeat every change until it is acknowledged."""
        for number in range(self._events // ORGANIZATIONS):
            name = f"{slug} {number}"
            while not await self._rename(slug, name):
                await trio.sleep(0.1)
            self._acknowledged[slug].add(name)

    async def _rename(self, slug: str, name: str) -> bool:
        try:
            response = await self._client.patch(f"/api/organizations/{slug}", json={"name": name})
        except httpx.TransportError:
            return False
        # If the response to a change was lost, its repetition changes nothing. So a change has at
        # most one event.
        if response.status_code == 200:
            return True
        if response.status_code < 500:
            raise AssertionError(f"{response.status_code} {response.text}")
        return False

    async def _disturb(self) -> None:
        """Kill processes, restart the database and delete webhooks, evenly distributed over the changes."""
        acts = [self._kill_worker, self._restart_database, self._kill_service, self._delete] * 2 + [self._kill_worker]
        for number, act in enumerate(acts, 1):
            while self._done < self._events * number // (len(acts) + 1):
                await trio.sleep(0.05)
            await act()

    async def _kill_worker(self) -> None:
        victim = self._draw.choice(self._service.workers)
        report(f"after {self._done} changes: kill -9 of a worker")
        await trio.run_process(["kill", "-9", str(victim)])
        self._kills += 1

    async def _kill_service(self) -> None:
        report(f"after {self._done} changes: kill -9 of all processes of the service")
        pids = [str(pid) for pid in (self._service.process.pid, *self._service.workers)]
        await trio.run_process(["kill", "-9", *pids])
        self._service.process.wait()
        self._kills += 1
        await trio.to_thread.run_sync(self._service.start)

    async def _restart_database(self) -> None:
        report(f"after {self._done} changes: restart of PostgreSQL")
        await trio.to_thread.run_sync(self._server.stop)
        await trio.to_thread.run_sync(self._server.start)
        self._restarts += 1

    async def _delete(self) -> None:
        """Delete half the deletable webhooks. Deliveries in flight at that moment may still arrive."""
        half, self._deletable = self._deletable[: (len(self._deletable) + 1) // 2], self._deletable[(len(self._deletable) + 1) // 2 :]
        for slug, webhook, receiver in half:
            while not await self._deleted(f"/api/organizations/{slug}/webhooks/{webhook}"):
                await trio.sleep(0.1)
            await trio.sleep(2)  # an attempt's longest duration
            receiver.deleted = True
        report(f"after {self._done} changes: {len(half)} webhooks are deleted")

    async def _deleted(self, path: str) -> bool:
        with suppress(httpx.TransportError):
            return (await self._client.delete(path)).status_code in (200, 404)
        return False

    # Verdict

    def _missing(self) -> int:
        return sum(
            len(self._acknowledged[slug] - receiver.accepted.keys())
            for slug, receivers in self._of_organization.items()
            for receiver in receivers
            if receiver.behavior.must_receive_all
        )

    async def _wait_for_deliveries(self) -> None:
        deadline = time.monotonic() + TIMEOUT
        least, progress_at = self._missing(), time.monotonic()
        reported_at = 0.0
        while (missing := self._missing()) and time.monotonic() < min(deadline, progress_at + STALLED):
            if missing < least:
                least, progress_at = missing, time.monotonic()
            if time.monotonic() > reported_at + 10:
                report(f"{missing} deliveries are still missing")
                reported_at = time.monotonic()
            await trio.sleep(0.5)

    def _report_result(self) -> bool:
        receivers = list(self._receivers.all.values())
        taken = sum(receiver.accepted.total() for receiver in receivers if receiver.behavior.must_receive_all)
        distinct = sum(len(receiver.accepted) for receiver in receivers if receiver.behavior.must_receive_all)
        facts = {
            "deliveries accepted by working receivers": taken,
            "of these repeated": taken - distinct,
            "missing": self._missing(),
            "after the deletion of their webhook": sum(receiver.after_deletion for receiver in receivers),
            "at a private address or after a redirect": self._receivers.strays,
            "without a valid signature": sum(receiver.unsigned for receiver in receivers),
            "kills": self._kills,
            "restarts of PostgreSQL": self._restarts,
        }
        for description, count in facts.items():
            sys.stdout.write(f"{count:>8}  {description}\n")
        *_, missing, late, astray, unsigned, kills, restarts = facts.values()
        return not (missing or late or astray or unsigned) and (kills, restarts) == (KILLS, RESTARTS)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run soak", description="Test webhook deliveries under chaos.")
    parser.add_argument("--events", type=int, default=10_000, help="number of changes (default: %(default)s)")
    parser.add_argument("--receivers", type=int, default=200, help="number of webhooks of all organizations (default: %(default)s)")
    options: Any = parser.parse_args(arguments)
    with reachable_directory() as home:
        for part in ("var", "tmp"):
            (home / part).mkdir()
        return 0 if trio.run(Soak(home, options.events, options.receivers).run) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
