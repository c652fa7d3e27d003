"""The soak test with large bodies, `./run soak bodies [--seconds N] [--pause N]`: a directory attacks while another directory works.

Forty connections replace an organization's SCIM group with bodies of 15 MB, and repeat every request, by default at
once, against its Retry-After. At the same time, another organization sends small SCIM requests. The output has the
latency and the statuses of the two organizations, and the service's memory. The exit code is 1 if the working
organization's 99th percentile is 1 s or more, or if a request from it fails.
"""

import argparse
import json
import multiprocessing
import select
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import httpx

from ops.soak.service import OWNER, are_below, describe_latencies, running_service

CONNECTIONS: Final = 40
SIZE: Final = 15_000_000  # bytes
PIECE: Final = 65_536  # bytes
BYTES_PER_SECOND: Final = 4_000_000  # per connection; together they use somewhat more than 1 Gbit/s
TARGET: Final = 1.0  # seconds, for the working organization's 99th percentile
GROUP_URN: Final = "urn:ietf:params:scim:schemas:core:2.0:Group"


def _repeated(item: str, before: str, after: str) -> bytes:
    count = (SIZE - len(before) - len(after)) // (len(item) + 1)
    return f"{before}{','.join([item] * count)}{after}".encode()


# Bodies that are valid JSON, by the reason for their cost.
BODIES: Final[dict[str, Callable[[], bytes]]] = {
    "members": lambda: json.dumps(
        {"schemas": [GROUP_URN], "members": [{"value": str(UUID(int=number))} for number in range(SIZE // 52)]}
    ).encode(),
    "text": lambda: _repeated('"' + "x" * 1_000_000 + '"', '{"x":[', "]}"),
    "lists": lambda: _repeated("[]", '{"x":[', "]}"),
    "objects": lambda: _repeated('{"a":{}}', '{"members":[', "]}"),
    "escapes": lambda: _repeated('"\\u00e9"', '{"x":[', "]}"),
}  # fmt: skip


class Attack:
    """Requests with large bodies over many connections, from a separate process."""

    def __init__(self, port: int, path: str, token: str, body: bytes, seconds: float, pause: float) -> None:
        self._pause = pause
        self._address = ("127.0.0.1", port)
        self._head = (
            f"PUT {path} HTTP/1.1\r\nHost: soak\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/scim+json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode()
        self._body = body
        self._until = time.monotonic() + seconds
        self._statuses: Counter[str] = Counter()

    def run(self, results: Any) -> None:
        threads = [threading.Thread(target=self._repeat) for _ in range(CONNECTIONS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        results.put(self._statuses)

    def _repeat(self) -> None:
        while time.monotonic() < self._until:
            status = self._send()
            self._statuses[status] += 1
            if status == "429":
                time.sleep(self._pause)

    def _send(self) -> str:
        """Send a request, and its body only while there is no response. Return the response's status."""
        try:
            with socket.create_connection(self._address, timeout=120) as connection:
                connection.sendall(self._head)
                connection.setblocking(False)
                body = memoryview(self._body)
                while body:
                    readable, writable, _ = select.select([connection], [connection], [], 120)
                    if readable or not writable:
                        break  # a response, or nothing for a long time
                    body = body[connection.send(body[:PIECE]) :]
                    time.sleep(PIECE / BYTES_PER_SECOND)
                connection.settimeout(120)
                answer = connection.recv(65536)
        except TimeoutError:
            return "no response in 120 s"
        except OSError as error:
            return f"{type(error).__name__} without a response"
        return answer[9:12].decode() or "closed without a response"


class Soak:
    """A soak test run."""

    def __init__(self, seconds: float, body: str, pause: float) -> None:
        self._pause = pause
        self._seconds = seconds
        self._body_name = body
        self._body = BODIES[body]()
        self._peak = self._before = 0.0
        self._latencies: list[float] = []
        self._statuses: Counter[int] = Counter()
        self._ended = threading.Event()

    def run(self) -> bool:
        """Run the test and return whether it succeeded."""
        with running_service(SSO_LOG_LEVEL="warning", SSO_RATE_LIMITS="on") as (self._service, _):
            self._owner = self._service.login(*OWNER)["access_token"]
            attacker, group = self._add_organization("attacker")
            other, _ = self._add_organization("other")
            self._measure(other, 3)
            quiet = describe_latencies(self._latencies)
            self._latencies.clear()
            self._before = self._peak = self._memory("VmRSS")
            statuses = self._attack(attacker, group, other)
            self._peak = self._memory("VmHWM")
        return self._report(quiet, statuses)

    def _add_organization(self, slug: str) -> tuple[str, str]:
        """Return a SCIM token for a new organization, and its group's path."""
        self._service.post("/api/organizations", {"slug": slug, "name": slug}, token=self._owner).raise_for_status()
        answer = self._service.post(f"/api/organizations/{slug}/scim-tokens", {"name": "directory"}, token=self._owner)
        token = answer.raise_for_status().json()["token"]
        [group] = self._service.get("/scim/v2/Groups?excludedAttributes=members", token=token).json()["Resources"]
        return token, f"/scim/v2/Groups/{group['id']}"

    def _attack(self, attacker: str, group: str, other: str) -> Counter[str]:
        port = int(self._service.address.rpartition(":")[2])
        results: Any = multiprocessing.get_context("spawn").Queue()
        attack = multiprocessing.get_context("spawn").Process(
            target=_attack, args=(port, group, attacker, self._body_name, self._seconds, self._pause, results)
        )
        attack.start()
        started = results.get()  # the attack has begun
        assert started == "started"
        self._measure(other, self._seconds)
        statuses: Counter[str] = results.get()
        attack.join()
        return statuses

    def _measure(self, token: str, seconds: float) -> None:
        """Send small requests on a single connection for some seconds: create a user, find it, deactivate it, read it, delete it."""
        deadline = time.monotonic() + seconds
        with httpx.Client(
            base_url=self._service.address, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=120
        ) as client:
            while time.monotonic() < deadline:
                name = f"{uuid4()}@other.example"
                body = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": name, "externalId": name}
                user = self._timed(client, "POST", "/scim/v2/Users", body).json()
                path = f"/scim/v2/Users/{user['id']}"
                self._timed(client, "GET", f'/scim/v2/Users?filter=userName eq "{name}"')
                off = {"op": "replace", "path": "active", "value": False}
                self._timed(client, "PATCH", path, {"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], "Operations": [off]})
                self._timed(client, "GET", path)
                self._timed(client, "DELETE", path)
                time.sleep(0.05)

    def _timed(self, client: httpx.Client, method: str, path: str, body: Any = None) -> httpx.Response:
        started = time.monotonic()
        answer = client.request(method, path, json=body)
        self._latencies.append(time.monotonic() - started)
        self._statuses[answer.status_code] += 1
        return answer

    def _memory(self, name: str) -> float:
        """Return a line from the process's memory statistics, in MB."""
        lines = Path(f"/proc/{self._service.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1000

    def _report(self, quiet: str, statuses: Counter[str]) -> bool:
        lines = {
            "body": f"{self._body_name}, {SIZE:,} bytes, {CONNECTIONS} connections, {self._seconds:g} s, pause {self._pause:g} s",
            "attacker's responses": ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items())),
            "other's responses": ", ".join(f"{count} x {status}" for status, count in sorted(self._statuses.items())),
            "other's latency before": quiet,
            "other's latency during": describe_latencies(self._latencies),
            "memory before / peak": f"{self._before:.0f} / {self._peak:.0f} MB",
        }
        for name, text in lines.items():
            sys.stdout.write(f"{name:<24}{text}\n")
        return are_below(TARGET, self._latencies) and all(status < 400 for status in self._statuses)


def _attack(port: int, path: str, token: str, body: str, seconds: float, pause: float, results: Any) -> None:
    attack = Attack(port, path, token, BODIES[body](), seconds, pause)
    results.put("started")
    attack.run(results)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run soak bodies", description="Test small requests of one organization while another attacks.")
    parser.add_argument("--seconds", type=float, default=60, help="duration of the attack (default: %(default)s)")
    parser.add_argument("--body", choices=BODIES, default="members", help="what the large bodies contain (default: %(default)s)")
    parser.add_argument("--pause", type=float, default=0, help="seconds until a refused request is repeated (default: %(default)s)")
    options = parser.parse_args(arguments)
    return 0 if Soak(options.seconds, options.body, options.pause).run() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
