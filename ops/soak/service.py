"""The service for soak tests, with its own database server and platform owner, and the latency report."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from adapters.crypto import generate_key
from tests.proof.e2e.process import DatabaseServer, Service
from tests.support.database import reachable_directory

OWNER: Final = ("owner@soak.example", "a password for the soak")


@contextmanager
def running_service(**settings: str) -> Iterator[tuple[Service, str]]:
    """Run a service until the block ends. Yield it with its database's address."""
    with reachable_directory() as home:
        for part in ("var", "tmp"):
            (home / part).mkdir()
        server = DatabaseServer(home)
        server.start()
        service = Service(
            home,
            SSO_DATABASE_URL=server.conninfo,
            SSO_ENCRYPTION_KEYS=generate_key(),
            SSO_AUTO_APPROVE_ORGANIZATIONS="true",
            SSO_PLATFORM_OWNER_EMAIL=OWNER[0],
            SSO_PLATFORM_OWNER_PASSWORD=OWNER[1],
            **settings,
        )
        try:
            service.in_new_interpreter().start(patience=60)
            yield service, server.conninfo
        finally:
            service.clean_up()
            server.stop()


def describe_latencies(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    parts = [f"{name} {ordered[int(len(ordered) * share)] * 1000:.0f} ms" for name, share in (("p50", 0.5), ("p99", 0.99))]
    return ", ".join([*parts, f"max {ordered[-1] * 1000:.0f} ms", f"{len(ordered)} requests"])


def are_below(target: float, seconds: Sequence[float]) -> bool:
    """Return whether the 99th percentile for these latencies is below the target."""
    return sorted(seconds)[len(seconds) * 99 // 100] < target
