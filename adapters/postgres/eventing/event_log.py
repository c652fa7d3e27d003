"""Writing events, audit entries, deliveries and SIEM queues in the transaction that causes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from psycopg.types.json import Jsonb

from adapters.postgres.engine import statements
from adapters.postgres.kernel.shared_sql import DELIVER, WRITE
from core.eventing.model.audit import caller_kind
from core.kernel import callers, causes
from core.kernel.event_catalog import Event
from core.kernel.values import new_id

# logs: an event goes to its organization's log. A personal event goes to the logs of all organizations in which the user's membership is
# confirmed, because an organization that only added the user must learn nothing about the account (security R-5). All remaining events go
# to the platform's log, and events with on_platform go there, too. Events in a transaction are a microsecond apart, so that the log keeps
# their order. An organization does not see from where a platform owner acted. If they acted without a session, by a link or during a
# sign-in, the organization's entry names them, because an entry without an actor and an address counts as the system's.
#
# recipients: an approved_only event is not written to organizations that were never approved. If no
# organization remains, the event is not written at all.
#
# logins: only members' sign-ins are audited. Their totals are counted here, so that log and totals
# agree about the organizations and the day.
#
# forwarded: entries enter the SIEM queue in their order, without a lock. If an entry was committed
# before a second entry was written, it has the lower position (docs/adr/0014). Keep the lateral
# subquery: a plain join may read all configurations.
#
# counted. Lock order: login totals, then entry totals, sorted by key, so that two transactions
# cannot wait for each other.
#
# delivered: webhooks receive the events in their organization's log, and events that are not
# audited.
_RECORDED: Final = """
recorded as (
    select e.*, %(now)s::timestamptz + (number - 1) * interval '1 microsecond' as at
    from rows from (jsonb_to_recordset(%(events)s) as (
        id uuid, org_id uuid, of_person uuid, on_platform boolean, name text, audited boolean, approved_only boolean, target_type text,
        target_id text, details jsonb, data jsonb, actor_id uuid, actor_kind text, caller_kind text, actor_name text,
        actor_email text, impersonator_id uuid, address text, agent text, for_platform boolean, success boolean, payload jsonb))
        with ordinality as e (id, org_id, of_person, on_platform, name, audited, approved_only, target_type, target_id, details, data,
                              actor_id, actor_kind, caller_kind, actor_name, actor_email, impersonator_id, address,
                              agent, for_platform, success, payload, number))"""
_ADD: Final = f"""
with {_RECORDED},
recipients as (
    select number, org_id from recorded where org_id is not null
    union all
    select number, null from recorded where on_platform
    union all
    select h.number, m.org_id from recorded h join memberships m on m.user_id = h.of_person
    where h.org_id is null and m.confirmed_at is not null
      and (not h.approved_only or exists (
          select 1 from organizations o where o.id = m.org_id and o.status in ('active', 'suspended')))),
logs as (
    select h.*, t.org_id as log, h.audited and (t.org_id is not null or not h.approved_only) as has_entry, w.id as owner_id,
           t.org_id is null or w.id is null and not h.for_platform as is_shown
    from recorded h left join recipients t on t.number = h.number left join lateral (
        select u.id from users u where u.is_platform_owner and case h.caller_kind
            when 'user' then u.id = h.actor_id
            when 'anonymous' then u.id::text = h.target_id or u.email = h.details ->> 'invited_email' end limit 1) w on true),
audited as (
    insert into audit_log (id, org_id, action, target_type, target_id, actor_id, actor_kind, actor_name, impersonator_id,
                           address, agent, success, details, created_at)
    select coalesce(id, gen_random_uuid()), log, name, target_type, target_id,
           case when is_shown then actor_id else coalesce(actor_id, owner_id) end, actor_kind, actor_name, impersonator_id,
           case when is_shown then address end, case when is_shown then agent end, success, details, at
    from logs where has_entry
    returning id, org_id, created_at),
forwarded as (
    insert into siem_queue (org_id, siem_id, entry_id)
    select a.org_id, s.id, a.id
    from audited a cross join lateral (
        select id from siem_configurations where org_id = a.org_id and enabled limit 1) s
    order by a.created_at
    returning pg_notify('siem', '')),
logins as (
    insert into member_login_totals as t (org_id, day, provider, total)
    select log, (at at time zone 'UTC')::date, details ->> 'provider', count(*)
    from logs where has_entry and name = 'user.login.success'
    group by 1, 2, 3 order by 1, 2, 3
    on conflict (org_id, day, provider) do update set total = t.total + excluded.total
    returning 1),
counted as (
    insert into audit_totals as t (org_id, action, target_type, total)
    select log, name, target_type, count(*) from logs cross join (select count(*) from logins) before
    where has_entry and log is not null
    group by log, name, target_type order by log, name, target_type
    on conflict (org_id, action, target_type) do update set total = t.total + excluded.total),
delivered as ({DELIVER}),
written as ({WRITE})
select exists (select from delivered), exists (select from forwarded)"""
# Sign-ins at services and by users without an organization have no entry. The statement above opens dozens of indexes, also for such
# events.
_ADD_WITHOUT_ENTRY: Final = f"""
with {_RECORDED},
logs as (select *, org_id as log from recorded),
delivered as ({DELIVER}),
written as ({WRITE})
select exists (select from delivered), false"""
# An event that goes to no log has no delivery, either.
_ADD_TO_NO_LOG: Final = """
insert into events (id, name, actor_id, actor_kind, impersonator_id, target_id, data, created_at)
values (%(id)s, %(name)s, %(actor_id)s::uuid, %(actor_kind)s, %(impersonator_id)s::uuid, %(target_id)s, %(data)s, %(now)s)"""


@dataclass(frozen=True, slots=True)
class QueuedWork:
    """Whether a transaction's events queued work for actors."""

    deliveries: bool
    siem_entries: bool


class EventLog(statements.DeliveringRepository):
    """Writes the events that a transaction recorded."""

    async def add(self, events: Sequence[Event], caller: causes.Caller, now: datetime) -> statements.Answer[QueuedWork | None] | None:
        """Write the events with the next statement. Return the work that they queued, or None if they go to no log."""
        if not any(event.has_log for event in events):
            for number, event in enumerate(events):
                values = {"id": new_id(), "name": event.kind.name, "target_id": event.target_id, "data": Jsonb(_data(event))}
                await self._write(_ADD_TO_NO_LOG, **_actor(event, caller), **values, now=now + number * timedelta.resolution)
            return None
        return self._one(
            lambda row: QueuedWork(row[0], row[1]),
            _ADD if any(event.may_have_entry for event in events) else _ADD_WITHOUT_ENTRY,
            events=Jsonb([_row(event, caller) | _actor(event, caller) for event in events]),
            now=now,
            **self._delivery_values,
        )


def _data(event: Event) -> dict[str, object]:
    return dict(event.details if event.data is None else event.data)


def _row(event: Event, caller: causes.Caller) -> dict[str, object]:
    return {
        "id": None if event.id is None else str(event.id),
        "org_id": None if event.org_id is None else str(event.org_id),
        "of_person": None if event.of_person is None else str(event.of_person),
        "on_platform": event.on_platform,
        "name": event.kind.name,
        "audited": event.kind.audited,
        "approved_only": event.kind.approved_only,
        "target_type": event.kind.target,
        "target_id": event.target_id,
        "success": event.success,
        "details": {**event.details, **_personal_token(event, caller)},
        "data": _data(event),
        "payload": dict(event.payload),
    }


def _personal_token(event: Event, caller: causes.Caller) -> dict[str, object]:
    """Return the personal access token that the actor used, for the details in the audit entry.

    The prefix distinguishes tokens. The name, which the user chose, could identify the user after an anonymization (security Y-2).
    """
    token = caller.personal_token if isinstance(caller, callers.Person) and not event.by_time else None
    return {} if token is None else {"personal_token": {"id": str(token.id), "prefix": token.prefix}}


def _actor(event: Event, caller: causes.Caller) -> dict[str, object]:
    if event.by_time:
        caller = causes.SYSTEM
    person = caller if isinstance(caller, callers.Person) else None
    credential, kind = _credential(caller)
    impersonator_id = event.impersonator_id or (person.impersonator_id if person else None)
    return {
        "actor_id": str(person.user_id) if person else credential,
        "actor_kind": kind,
        "caller_kind": caller_kind(caller),
        "actor_name": caller.name if isinstance(caller, callers.ServiceAccountCaller | callers.SetupLinkCaller) else None,
        "actor_email": person.email if person else None,
        "impersonator_id": None if impersonator_id is None else str(impersonator_id),
        "address": caller.address,
        "agent": caller.agent,
        "for_platform": callers.acts_for_platform(caller),
    }


def _credential(caller: causes.Caller) -> tuple[str | None, str | None]:
    """Return the calling credential's id and kind, or two None for callers without a credential."""
    match caller:
        case callers.ServiceKey():
            return str(caller.key_id), "api_key"
        case callers.ScimClient():
            return str(caller.token_id), "scim_token"
        case callers.RegistrationClient():
            return str(caller.token_id), "registration_token"
        case callers.ServiceAccountCaller():
            return str(caller.account_id), "service_account"
        case callers.SetupLinkCaller():
            return str(caller.link_id), "setup_link"
    return None, None
