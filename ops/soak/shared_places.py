"""The soak test for shared places, `./run soak shares [--seconds N]`: three organizations and a stranger attack a fourth.

- Each of three organizations has 20 connections with token endpoints that answer after 9 s. Three browsers use each connection.
- Eight threads for each of these organizations rename it. These changes wait for one lock.
- A stranger tries passwords over 20 connections from one address.

At the same time, the fourth organization's users sign in through its connection and with a password, and its owner renames it. The output
has these requests' latencies before and during the attack. The exit code is 1 if a 99th percentile during the attack is 3 s or more, or if
a request to the fourth organization fails.
"""

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import httpx
import psycopg

from ops.soak.service import OWNER, are_below, describe_latencies, running_service
from tests.fakes.http_server import Answer, ReceivedRequest
from tests.fakes.openid_issuers import CLIENT_ID, SECRET, FakeIssuer, OpenIdIssuers

ATTACKERS: Final = ("first", "second", "third")
CONNECTIONS, BROWSERS, CHANGES, GUESSES = 20, 3, 8, 20
SLOW: Final = 9.0  # seconds
PAUSE: Final = 0.2  # seconds between an attacking thread's requests, which would otherwise use up the processor
TARGET: Final = 3.0  # seconds, for all 99th percentiles during the attack
QUIET: Final = 5.0  # seconds to measure before the attack

VERIFIED_DOMAIN: Final = """
    insert into domains (org_id, domain, challenge, verified_at, created_at)
    select id, 'other-0.example', 'x', now(), now() from organizations where slug = 'other'"""


class SlowIssuers(OpenIdIssuers):
    """OpenID providers. The attackers' token endpoints answer after SLOW seconds."""

    def _reply(self, request: ReceivedRequest) -> Answer:
        if request.path.endswith("/token") and not request.path.startswith("/other"):
            time.sleep(SLOW)
        return super()._reply(request)


class Soak:
    """A soak test run."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_over = threading.Event()
        self._attacks: Counter[str] = Counter()
        self._latencies: dict[str, list[float]] = {}
        self._failures: Counter[str] = Counter()

    def run(self) -> bool:
        """Run the test and return whether it succeeded."""
        settings = {
            "SSO_OUTBOUND_ALLOW": "127.0.0.1",
            "SSO_TRUSTED_PROXIES": "127.0.0.1/32",
            "SSO_RATE_LIMITS": "off",
            "SSO_LOG_LEVEL": "error",
            "SSO_ARGON2_MEMORY_KIB": "19456",
            "SSO_ARGON2_TIME_COST": "2",
        }
        with SlowIssuers() as providers, running_service(**settings) as (self._service, conninfo):
            self._owner = self._service.login(*OWNER)["access_token"]
            slow = [each for name in ATTACKERS for each in self._add_organization(providers, name, CONNECTIONS)]
            [own] = self._add_organization(providers, "other", 1)
            with psycopg.connect(conninfo, autocommit=True) as connection:
                connection.execute(VERIFIED_DOMAIN)
            quiet = self._measure(own, QUIET)
            with self._attack(slow):
                during = self._measure(own, self._seconds)
        return self._report(quiet, during)

    def _add_organization(self, providers: SlowIssuers, slug: str, count: int) -> list[tuple[str, FakeIssuer]]:
        """Create an organization with connections. Return the connections' paths and providers."""
        self._call("POST", "", {"name": slug, "slug": slug})
        added = []
        for number in range(count):
            name = f"{slug}-{number}"
            issuer = providers.add(name, email=f"user@{name}.example", claims={"email_verified": True})
            settings = {"slug": name, "name": name, "oidc": {"issuer": issuer.url, "client_id": CLIENT_ID}}
            id_ = self._call("POST", f"/{slug}/connections", settings).json()["id"]
            self._call("PUT", f"/{slug}/connections/{name}/client-secret", {"client_secret": SECRET})
            self._call("POST", f"/{slug}/connections/{name}/activate", {})
            added.append((f"/auth/connections/{id_}", issuer))
        return added

    def _call(self, method: str, path: str, body: object = None) -> httpx.Response:
        return self._service.call(method, f"/api/organizations{path}", body, token=self._owner).raise_for_status()

    def _client(self, address: str) -> httpx.Client:
        return httpx.Client(base_url=self._service.address, headers={"X-Forwarded-For": address}, trust_env=False, timeout=60)

    # Requests

    def _sign_in(self, client: httpx.Client, connection: tuple[str, FakeIssuer]) -> int:
        """Sign in through a connection with a new browser. Return the last status."""
        path, issuer = connection
        client.cookies.clear()
        started = client.get(f"{path}/start")
        if started.status_code >= 400:
            return started.status_code
        return client.get(f"{path}/callback", params=issuer.authorize(started.headers["Location"])).status_code

    def _log_in(self, client: httpx.Client, password: str) -> int:
        return client.post("/api/auth/login", json={"email": OWNER[0], "password": password}).status_code

    def _guess(self, client: httpx.Client) -> int:
        unknown = f"{time.monotonic_ns()}@nowhere.example"
        return client.post("/api/auth/login", json={"email": unknown, "password": "not the password"}).status_code

    def _change(self, client: httpx.Client, slug: str) -> int:
        headers = {"Authorization": f"Bearer {self._owner}"}
        return client.patch(f"/api/organizations/{slug}", json={"name": f"{slug} {time.monotonic_ns()}"}, headers=headers).status_code

    # Measurement

    @contextmanager
    def _attack(self, slow: Sequence[tuple[str, FakeIssuer]]) -> Iterator[None]:
        """Attack from threads during the block. Every kind of attacker has its own address."""
        kinds: list[tuple[str, str, Callable[[httpx.Client], int], int]] = [
            ("sign-in at a slow provider", "198.51.100.1", partial(self._sign_in, connection=each), BROWSERS) for each in slow
        ]
        kinds += [("change", "198.51.100.2", partial(self._change, slug=slug), CHANGES) for slug in ATTACKERS]
        kinds += [("guess", "198.51.100.3", self._guess, GUESSES)]
        threads = [threading.Thread(target=self._repeat, args=kind[:3]) for kind in kinds for _ in range(kind[3])]
        for thread in threads:
            thread.start()
        time.sleep(2)
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()

    def _repeat(self, kind: str, address: str, send: Callable[[httpx.Client], int]) -> None:
        with self._client(address) as client:
            while not self._is_over.is_set():
                time.sleep(PAUSE)
                with suppress(httpx.HTTPError):
                    self._attacks[f"{kind}: {send(client)}"] += 1

    def _measure(self, own: tuple[str, FakeIssuer], seconds: float) -> dict[str, list[float]]:
        """Send the fourth organization's requests one by one. Return the latencies by kind."""
        kinds: dict[str, Callable[[httpx.Client], int]] = {
            "sign-in through a connection": lambda client: self._sign_in(client, own),
            "password": lambda client: self._log_in(client, OWNER[1]),
            "change": lambda client: self._change(client, "other"),
        }
        latencies: dict[str, list[float]] = {kind: [] for kind in kinds}
        until = time.monotonic() + seconds
        with self._client("192.0.2.1") as client:
            while time.monotonic() < until:
                for kind, send in kinds.items():
                    started = time.monotonic()
                    status = send(client)
                    latencies[kind].append(time.monotonic() - started)
                    if status >= 400:
                        self._failures[f"{kind}: {status}"] += 1
        return latencies

    def _report(self, quiet: dict[str, list[float]], during: dict[str, list[float]]) -> bool:
        lines = {"attack": ", ".join(f"{count} x {text}" for text, count in sorted(self._attacks.items()))}
        for kind, seconds in during.items():
            lines[f"{kind}, before"], lines[f"{kind}, during"] = describe_latencies(quiet[kind]), describe_latencies(seconds)
        lines["failures of the other"] = ", ".join(f"{count} x {text}" for text, count in self._failures.items()) or "none"
        for name, text in lines.items():
            sys.stdout.write(f"{name:<40}{text}\n")
        return not self._failures and all(are_below(TARGET, seconds) for seconds in during.values())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run soak shares", description="Test the requests of one organization while others attack.")
    parser.add_argument("--seconds", type=float, default=60, help="duration of the attack (default: %(default)s)")
    return 0 if Soak(parser.parse_args(arguments).seconds).run() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
