"""Events and the audit log, written in the transaction of what they tell of."""

from datetime import datetime

from psycopg.types.json import Jsonb

from adapters.postgres.driver import Connection
from adapters.postgres.statements import Repository
from core.access import Caller, Person
from core.events import Event


class Records(Repository):
    """Writes what ports.storage.Transaction.record is given."""

    __slots__ = ("_caller",)

    def __init__(self, connection: Connection, caller: Caller) -> None:
        super().__init__(connection)
        self._caller = caller

    async def add(self, event: Event, now: datetime) -> None:
        caller = self._caller
        person = caller if isinstance(caller, Person) else None
        # Told to the event's organization, or to each of the person's, or, where there is none, to the platform's own log.
        await self._run(
            """
            with told as (
                select %(org_id)s::uuid as org_id where %(org_id)s::uuid is not null
                union all
                select org_id from memberships where user_id = %(of_person)s and %(org_id)s::uuid is null),
            logs as (select org_id from told union all select null where not exists (select 1 from told)),
            audited as (
                insert into audit_log (id, org_id, action, target_type, target_id, actor_id, impersonator_id, address, agent,
                                       details, created_at)
                select gen_random_uuid(), org_id, %(name)s, %(target_type)s, %(target_id)s, %(actor_id)s, %(impersonator_id)s,
                       %(address)s, %(agent)s, %(details)s, %(now)s
                from logs where %(audited)s)
            insert into events (id, org_id, name, actor_id, impersonator_id, target_id, data, created_at)
            select gen_random_uuid(), org_id, %(name)s, %(actor_id)s, %(impersonator_id)s, %(target_id)s, %(data)s, %(now)s
            from logs""",
            org_id=event.org_id,
            of_person=event.of_person,
            name=event.kind.name,
            target_type=event.kind.target,
            target_id=event.target_id,
            actor_id=person.user_id if person else None,
            impersonator_id=person.impersonator_id if person else None,
            address=caller.address,
            agent=caller.agent,
            details=Jsonb(dict(event.details)),
            data=Jsonb(dict(event.data)),
            audited=event.kind.audited,
            now=now,
        )
