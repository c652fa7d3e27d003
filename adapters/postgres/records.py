"""Events and the audit log, written in the transaction of what they tell of."""

from collections.abc import Sequence
from datetime import datetime

from psycopg.types.json import Jsonb

from adapters.postgres.statements import Repository
from core.access import SYSTEM, Caller, Person, ServiceKey
from core.events import Event


class Records(Repository):
    """Writes what ports.storage.Transaction.record was given."""

    async def add(self, events: Sequence[Event], caller: Caller, now: datetime) -> None:
        # Told to the event's organization, or to each in which the person has confirmed the membership (one that merely added somebody
        # learns nothing about the account: security.md R-5), or, where there is none, to the platform's own log. Events of one transaction
        # are a microsecond apart, so that the log has them in their order. The totals are counted in the order of their key, so that no two
        # transactions wait for each other.
        await self._write(
            """
            with happened as (
                select e.*, %(now)s::timestamptz + (number - 1) * interval '1 microsecond' as at
                from rows from (jsonb_to_recordset(%(events)s) as (
                    id uuid, org_id uuid, of_person uuid, name text, audited boolean, target_type text, target_id text, details jsonb,
                    data jsonb, actor_id uuid, actor_kind text, impersonator_id uuid, address text, agent text))
                    with ordinality as e (id, org_id, of_person, name, audited, target_type, target_id, details, data,
                                          actor_id, actor_kind, impersonator_id, address, agent, number)),
            told as (
                select number, org_id from happened where org_id is not null
                union all
                select h.number, m.org_id from happened h join memberships m on m.user_id = h.of_person
                where h.org_id is null and m.confirmed_at is not null),
            logs as (
                select h.*, t.org_id as log from happened h left join told t on t.number = h.number),
            audited as (
                insert into audit_log (id, org_id, action, target_type, target_id, actor_id, actor_kind, impersonator_id, address, agent,
                                       details, created_at)
                select coalesce(id, gen_random_uuid()), log, name, target_type, target_id, actor_id, actor_kind, impersonator_id, address,
                       agent, details, at
                from logs where audited),
            counted as (
                insert into audit_totals as t (org_id, action, target_type, total)
                select log, name, target_type, count(*) from logs where audited and log is not null
                group by log, name, target_type order by log, name, target_type
                on conflict (org_id, action, target_type) do update set total = t.total + excluded.total)
            insert into events (id, org_id, name, actor_id, actor_kind, impersonator_id, target_id, data, created_at)
            select gen_random_uuid(), log, name, actor_id, actor_kind, impersonator_id, target_id, data, at
            from logs""",
            events=Jsonb([_row(event) | _actor(event, caller) for event in events]),
            now=now,
        )


def _row(event: Event) -> dict[str, object]:
    return {
        "id": None if event.id is None else str(event.id),
        "org_id": None if event.org_id is None else str(event.org_id),
        "of_person": None if event.of_person is None else str(event.of_person),
        "name": event.kind.name,
        "audited": event.kind.audited,
        "target_type": event.kind.target,
        "target_id": event.target_id,
        "details": dict(event.details),
        "data": dict(event.details if event.data is None else event.data),
    }


def _actor(event: Event, caller: Caller) -> dict[str, object]:
    if event.by_time:
        caller = SYSTEM
    person = caller if isinstance(caller, Person) else None
    key = caller if isinstance(caller, ServiceKey) else None
    impersonator_id = event.impersonator_id or (person.impersonator_id if person else None)
    return {
        "actor_id": str(person.user_id) if person else str(key.key_id) if key else None,
        "actor_kind": "api_key" if key else None,
        "impersonator_id": None if impersonator_id is None else str(impersonator_id),
        "address": caller.address,
        "agent": caller.agent,
    }
