"""python -m ops.soak [--events N] [--receivers N]: events under chaos, and whether everybody was told who must be.

Many organizations with many webhooks; while they are changed, processes of the service are killed, the database is restarted, and some of
the webhooks are deleted. At the end each receiver that answers must have been told of every change that was acknowledged, at least once,
with a signature that the library of Standard Webhooks accepts; those of deleted webhooks and of private addresses of nothing. Else it ends
with 1.
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
from ops.soak.receivers import Manner, Receiver, Receivers
from tests.proof.e2e.process import DatabaseServer, Service
from tests.support.database import reachable_directory

ORGANIZATIONS: Final = 20
OWNER: Final = ("owner@soak.example", "a password for the soak")
# Of twenty receivers; the rest are healthy.
ODD: Final = {
    Manner.FLAKY: 2,
    Manner.FAILING: 1,
    Manner.HANGING: 1,
    Manner.DRIPPING: 1,
    Manner.REDIRECTING: 1,
    Manner.DELETED: 1,
    Manner.PRIVATE: 1,
}
KILLS, RESTARTS = 5, 2
PATIENCE: Final = 600.0  # seconds after the last change, until everybody must have been told
STALLED: Final = 120.0  # seconds without any news


def say(text: str) -> None:
    sys.stderr.write(f"soak: {text}\n")
    sys.stderr.flush()


class Soak:
    """One run."""

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
        self._draw = random.Random(1)  # noqa: S311 - the same each time

    async def run(self) -> bool:
        """Whether all went well."""
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
                say(f"{self._events} changes were acknowledged after {time.monotonic() - started:.0f} s; waiting for the receivers")
                await self._all_told()
                say(f"after {time.monotonic() - started:.0f} s nothing is missing any more, or will come")
            finally:
                self._service.clean_up()
                self._server.stop()
                nursery.cancel_scope.cancel()
        return self._judge()

    # -- before -----------------------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        self._token = self._service.login(*OWNER)["access_token"]
        self._client = httpx.AsyncClient(
            base_url=self._service.address, headers={"Authorization": f"Bearer {self._token}"}, trust_env=False, timeout=30
        )
        manners = self._manners()
        for number in range(ORGANIZATIONS):
            slug = f"soak-{number}"
            (await self._client.post("/api/organizations", json={"slug": slug, "name": "As it was"})).raise_for_status()
            self._acknowledged[slug], self._of_organization[slug] = set(), []
        for number, manner in enumerate(manners):
            slug = f"soak-{number % ORGANIZATIONS}"
            receiver, url = self._receivers.add(manner)
            webhook = {"name": f"{manner} {number}", "url": url, "events": ["organization.updated"]}
            made = await self._client.post(f"/api/organizations/{slug}/webhooks", json=webhook)
            made.raise_for_status()
            receiver.secret = made.json()["secret"]
            self._of_organization[slug].append(receiver)
            if manner is Manner.DELETED:
                self._deletable.append((slug, made.json()["id"], receiver))
        told = ", ".join(f"{count} {manner}" for manner, count in Counter(manners).items())
        say(f"{ORGANIZATIONS} organizations with {len(manners)} webhooks: {told}")

    def _manners(self) -> list[Manner]:
        odd = [manner for manner, count in ODD.items() for _ in range(count * self._count // 20)]
        manners = odd + [Manner.HEALTHY] * (self._count - len(odd))
        self._draw.shuffle(manners)
        return manners

    # -- meanwhile --------------------------------------------------------------------------------------------------------

    @property
    def _done(self) -> int:
        return sum(map(len, self._acknowledged.values()))

    async def _change(self, slug: str) -> None:
        """Give the organization one name after another, each until that is acknowledged."""
        for number in range(self._events // ORGANIZATIONS):
            name = f"{slug} {number}"
            while not await self._rename(slug, name):
                await trio.sleep(0.1)
            self._acknowledged[slug].add(name)

    async def _rename(self, slug: str, name: str) -> bool:
        try:
            answer = await self._client.patch(f"/api/organizations/{slug}", json={"name": name})
        except httpx.TransportError:
            return False
        # The same name a second time, after the answer to the first was lost, is a change no more: it is told once, or nobody was told.
        if answer.status_code == 200:
            return True
        if answer.status_code < 500:
            raise AssertionError(f"{answer.status_code} {answer.text}")
        return False

    async def _disturb(self) -> None:
        """Kill, restart and delete, evenly over the changes."""
        acts = [self._kill_worker, self._restart_database, self._kill_service, self._delete] * 2 + [self._kill_worker]
        for number, act in enumerate(acts, 1):
            while self._done < self._events * number // (len(acts) + 1):
                await trio.sleep(0.05)
            await act()

    async def _kill_worker(self) -> None:
        victim = self._draw.choice(self._service.workers)
        say(f"after {self._done} changes: kill -9 of a worker")
        await trio.run_process(["kill", "-9", str(victim)])
        self._kills += 1

    async def _kill_service(self) -> None:
        say(f"after {self._done} changes: kill -9 of all processes of the service")
        pids = [str(pid) for pid in (self._service.process.pid, *self._service.workers)]
        await trio.run_process(["kill", "-9", *pids])
        self._service.process.wait()
        self._kills += 1
        await trio.to_thread.run_sync(self._service.start)

    async def _restart_database(self) -> None:
        say(f"after {self._done} changes: restart of PostgreSQL")
        await trio.to_thread.run_sync(self._server.stop)
        await trio.to_thread.run_sync(self._server.start)
        self._restarts += 1

    async def _delete(self) -> None:
        """Delete half of what is to be deleted; what is on its way at that moment may still arrive."""
        half, self._deletable = self._deletable[: (len(self._deletable) + 1) // 2], self._deletable[(len(self._deletable) + 1) // 2 :]
        for slug, webhook, receiver in half:
            while not await self._deleted(f"/api/organizations/{slug}/webhooks/{webhook}"):
                await trio.sleep(0.1)
            await trio.sleep(2)  # an attempt ends after that at the latest
            receiver.deleted = True
        say(f"after {self._done} changes: {len(half)} webhooks are deleted")

    async def _deleted(self, path: str) -> bool:
        with suppress(httpx.TransportError):
            return (await self._client.delete(path)).status_code in (200, 404)
        return False

    # -- afterwards -------------------------------------------------------------------------------------------------------

    def _missing(self) -> int:
        return sum(
            len(self._acknowledged[slug] - receiver.told.keys())
            for slug, receivers in self._of_organization.items()
            for receiver in receivers
            if receiver.manner.must_get_everything
        )

    async def _all_told(self) -> None:
        deadline = time.monotonic() + PATIENCE
        least, news_at = self._missing(), time.monotonic()
        said_at = 0.0
        while (missing := self._missing()) and time.monotonic() < min(deadline, news_at + STALLED):
            if missing < least:
                least, news_at = missing, time.monotonic()
            if time.monotonic() > said_at + 10:
                say(f"{missing} deliveries are still missing")
                said_at = time.monotonic()
            await trio.sleep(0.5)

    def _judge(self) -> bool:
        receivers = list(self._receivers.all.values())
        taken = sum(receiver.told.total() for receiver in receivers if receiver.manner.must_get_everything)
        distinct = sum(len(receiver.told) for receiver in receivers if receiver.manner.must_get_everything)
        facts = {
            "deliveries taken by those that answer": taken,
            "of these more than once": taken - distinct,
            "missing": self._missing(),
            "after their webhook was deleted": sum(receiver.after_deletion for receiver in receivers),
            "at a private address, or where a redirect leads": self._receivers.strays,
            "without a good signature": sum(receiver.unsigned for receiver in receivers),
            "kills": self._kills,
            "restarts of PostgreSQL": self._restarts,
        }
        for what, count in facts.items():
            sys.stdout.write(f"{count:>8}  {what}\n")
        *_, missing, late, astray, unsigned, kills, restarts = facts.values()
        return not (missing or late or astray or unsigned) and (kills, restarts) == (KILLS, RESTARTS)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run soak", description="Events under chaos, and whether everybody was told who must be.")
    parser.add_argument("--events", type=int, default=10_000, help="changes that are told of (default: %(default)s)")
    parser.add_argument("--receivers", type=int, default=200, help="webhooks of all organizations together (default: %(default)s)")
    wanted: Any = parser.parse_args(arguments)
    with reachable_directory() as home:
        for part in ("var", "tmp"):
            (home / part).mkdir()
        return 0 if trio.run(Soak(home, wanted.events, wanted.receivers).run) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
