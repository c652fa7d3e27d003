"""Webhooks with a receiver that accepts everything at once, and due deliveries to them."""

import json
import time
from typing import Any, Final
from urllib.request import urlopen
from uuid import UUID, uuid4

import psycopg

from adapters.postgres.eventing.webhooks import secret_context
from core.eventing.model.webhooks import new_signing_secret
from entrypoints.adapters_of_settings import vault_of
from entrypoints.settings import Settings
from ops.bench.filling import add_organization
from ops.bench.processes import MeasurementFailed
from ops.bench.service import Service

ORGANIZATIONS: Final = 10
WEBHOOKS_OF_EACH: Final = 4
TIMEOUT: Final = 60.0  # seconds
EVENT: Final = "organization.updated"


class WebhookReceiver:
    """Webhooks with the receiver in ops.bench.raw, which listens at `address`."""

    def __init__(self, service: Service, address: str) -> None:
        self._service = service
        self._address = address
        vault = vault_of(Settings(data_dir=service.directory))
        webhooks = [uuid4() for _ in range(WEBHOOKS_OF_EACH * ORGANIZATIONS)]
        service.query(
            """
            insert into webhooks (id, org_id, name, url, events, is_active, secret, created_at, updated_at)
            select id, (%(orgs)s::uuid[])[1 + n %% cardinality(%(orgs)s)], 'bench ' || n, %(url)s, array[%(event)s], true, secret, now(),
                   now()
            from unnest(%(ids)s::uuid[], %(secrets)s::bytea[]) with ordinality webhook (id, secret, n)""",
            orgs=[add_organization(service, f"bench-{number}") for number in range(ORGANIZATIONS)],
            url=f"{address}/",
            event=EVENT,
            ids=webhooks,
            secrets=[vault.seal(new_signing_secret().encode(), secret_context(webhook)) for webhook in webhooks],
        )
        service.tidy()

    def per_second(self, count: int) -> float:
        """Let `count` deliveries fall due at once, and return the number delivered per second. Raises: MeasurementFailed."""
        with psycopg.connect(self._service.conninfo, autocommit=True) as connection:
            _insert(connection, [uuid4() for _ in range(count)])
            self._service.tidy()
            started = time.monotonic()
            connection.execute("notify webhooks")
            while left := connection.execute("select count(*) from webhook_deliveries where status <> 'done'").fetchall()[0][0]:
                if time.monotonic() > started + TIMEOUT:
                    raise MeasurementFailed(f"{left} of {count} deliveries were not made within {TIMEOUT:.0f} s.")
                time.sleep(0.02)
        return count / (time.monotonic() - started)

    def delays(self, count: int, apart: float) -> list[float]:
        """Return the milliseconds from the commit until `count` deliveries arrived, sorted. Raises: MeasurementFailed."""
        committed = {}
        with psycopg.connect(self._service.conninfo) as connection:
            for _ in range(count):
                delivery = uuid4()
                _insert(connection, [delivery])
                connection.execute("notify webhooks")
                connection.commit()
                committed[str(delivery)] = time.time()
                time.sleep(apart)
        deadline = time.monotonic() + TIMEOUT
        while missing := committed.keys() - (arrived := self._arrived()).keys():
            if time.monotonic() > deadline:
                raise MeasurementFailed(f"{len(missing)} of {count} deliveries did not arrive within {TIMEOUT:.0f} s.")
            time.sleep(0.1)
        return sorted(1000 * (arrived[delivery] - at) for delivery, at in committed.items())

    def _arrived(self) -> dict[str, float]:
        with urlopen(f"{self._address}/seen") as response:  # noqa: S310  (a process of the benchmark)
            seen: dict[str, float] = json.load(response)
        return seen


def _insert(connection: psycopg.Connection[Any], deliveries: list[UUID]) -> None:
    """Add due deliveries to the webhooks in turn."""
    connection.execute(
        """
        insert into webhook_deliveries (id, org_id, webhook_id, event_type, payload, status, due_at, created_at, updated_at)
        select d.id, org_id, w.id, event,
               json_build_object(
                   'event', event, 'timestamp', to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'organization_id', org_id,
                   'actor_user_id', d.id, 'actor_email', 'owner@bench.example',
                   'actor', json_build_object('kind', 'user', 'id', d.id, 'name', null),
                   'data', json_build_object('name', json_build_object('old', 'Bench', 'new', 'Bench ' || n))),
               'due', now(), now(), now()
        from unnest(%(ids)s::uuid[]) with ordinality d (id, n)
             join (select id, org_id, events[1] as event, row_number() over (order by id) as turn, count(*) over () as webhooks
                   from webhooks) w on w.turn = 1 + n %% w.webhooks""",
        {"ids": deliveries},
    )
