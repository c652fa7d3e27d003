"""Webhooks with a receiver that accepts everything at once, and due deliveries to them."""

import json
import time
import uuid
from datetime import UTC, datetime
from typing import Any, Final
from urllib.request import urlopen

import psycopg

from adapters.postgres.eventing.webhooks import secret_context
from core.eventing.model.webhooks import new_signing_secret
from core.kernel.values import rfc3339
from entrypoints.settings import Settings
from entrypoints.wiring import vault_of
from ops.bench.filling import FREE_TIER, copy
from ops.bench.processes import MeasurementFailed
from ops.bench.service import Service, tidy

ORGANIZATIONS: Final = 10
WEBHOOKS_OF_EACH: Final = 4
TIMEOUT: Final = 60.0  # seconds
EVENT: Final = "organization.updated"


class WebhookReceiver:
    """Webhooks with the receiver of ops.bench.raw, which listens at `address`."""

    def __init__(self, service: Service, address: str) -> None:
        self._service = service
        self._address = address
        self._webhooks = [(uuid.uuid4(), org) for org in (uuid.uuid4() for _ in range(ORGANIZATIONS)) for _ in range(WEBHOOKS_OF_EACH)]
        vault, now = vault_of(Settings(data_dir=service.directory)), datetime.now(UTC)
        with psycopg.connect(service.conninfo) as connection:
            for number, org in enumerate(dict.fromkeys(org for _, org in self._webhooks)):
                connection.execute(
                    "insert into organizations (id, slug, name, status, tier_id, created_at, updated_at) "
                    "values (%s, %s, 'Bench', 'active', %s, %s, %s)",
                    (org, f"bench-{number}", FREE_TIER, now, now),
                )
            for number, (webhook, org) in enumerate(self._webhooks):
                connection.execute(
                    "insert into webhooks (id, org_id, name, url, events, is_active, secret, created_at, updated_at) "
                    "values (%s, %s, %s, %s, %s, true, %s, %s, %s)",
                    (
                        webhook,
                        org,
                        f"bench {number}",
                        f"{address}/",
                        [EVENT],
                        vault.seal(new_signing_secret().encode(), secret_context(webhook)),
                        now,
                        now,
                    ),
                )
        tidy(service)

    def per_second(self, count: int) -> float:
        """Let `count` deliveries fall due at once, and return the number delivered per second. Raises: MeasurementFailed."""
        self._add([uuid.uuid4() for _ in range(count)])
        started = time.monotonic()
        with psycopg.connect(self._service.conninfo, autocommit=True) as connection:
            connection.execute("notify webhooks")
            while left := self._left(connection):
                if time.monotonic() > started + TIMEOUT:
                    raise MeasurementFailed(f"{left} of {count} deliveries were not made within {TIMEOUT:.0f} s.")
                time.sleep(0.02)
        return count / (time.monotonic() - started)

    def delays(self, count: int, apart: float) -> list[float]:
        """Return the milliseconds from the commit to the arrival of `count` deliveries, sorted. Raises: MeasurementFailed."""
        committed = {}
        with psycopg.connect(self._service.conninfo) as connection:
            for _ in range(count):
                delivery = uuid.uuid4()
                self._insert(connection, [delivery])
                connection.execute("notify webhooks")
                connection.commit()
                committed[str(delivery)] = time.time()
                time.sleep(apart)
        deadline = time.monotonic() + TIMEOUT
        while (arrived := self._arrived()).keys() < committed.keys():
            if time.monotonic() > deadline:
                raise MeasurementFailed(
                    f"{len(committed.keys() - arrived.keys())} of {count} deliveries did not arrive within {TIMEOUT:.0f} s."
                )
            time.sleep(0.1)
        return sorted(1000 * (arrived[delivery] - at) for delivery, at in committed.items())

    def _add(self, deliveries: list[uuid.UUID]) -> None:
        with psycopg.connect(self._service.conninfo) as connection:
            self._insert(connection, deliveries)
        tidy(self._service)

    def _insert(self, connection: psycopg.Connection[Any], deliveries: list[uuid.UUID]) -> None:
        now = datetime.now(UTC)
        columns = "id, org_id, webhook_id, event_type, payload, status, due_at, created_at, updated_at"
        rows = []
        for number, delivery in enumerate(deliveries):
            webhook, org = self._webhooks[number % len(self._webhooks)]
            payload = {
                "event": EVENT,
                "timestamp": rfc3339(now),
                "organization_id": str(org),
                "actor_user_id": (actor := str(uuid.uuid4())),
                "actor_email": "owner@bench.example",
                "actor": {"kind": "user", "id": actor, "name": None},
                "data": {"name": {"old": "Bench", "new": f"Bench {number}"}},
            }
            rows.append(f"{delivery}\t{org}\t{webhook}\t{EVENT}\t{json.dumps(payload)}\tdue\t{now}\t{now}\t{now}\n")
        copy(connection, f"copy webhook_deliveries ({columns})", rows)

    def _left(self, connection: psycopg.Connection[Any]) -> int:
        row = connection.execute("select count(*) from webhook_deliveries where status <> 'done'").fetchone()
        assert row is not None
        return int(row[0])

    def _arrived(self) -> dict[str, float]:
        with urlopen(f"{self._address}/seen") as response:  # noqa: S310  (a process of the benchmark)
            seen: dict[str, float] = json.load(response)
        return seen
