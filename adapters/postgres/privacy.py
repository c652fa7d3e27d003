"""Storage for privacy: the control over a user, and the statements that anonymize a user."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.statements import Repository
from adapters.postgres.tenancy.invitations import INVITATION
from core.accounts.model.accounts import EmailTaken
from core.kernel import values
from core.kernel.callers import Person
from core.maintenance.model.housekeeping import PersonalLog
from core.privacy.model.personal_data import NO_ADDRESS, NO_AGENT, MembershipControl
from core.tenancy.model.invitations import Invitation
from ports.signals import Signal

# The tables with everything that can sign in to an account, was issued for it or identifies its user, except the
# password and the sessions.
SIGN_IN_TABLES: Final[tuple[LiteralString, ...]] = (
    "images",
    "mfa",
    "backup_codes",
    "identities",
    "connection_group_members",
    "connection_identities",
    "connection_logins",
    "passkeys",
    "devices",
    "sign_in_flows",
    "one_time_tokens",
    "email_changes",  # the emails about them go, too
    "security_notices",
    "former_mfa",
    "former_passkeys",
    "account_recoveries",
    "consents",  # also consents to API resources
    "api_resource_assignments",
    "service_role_users",
    "group_members",
    "end_user_blocks",  # with the address
    "former_members",
    "attribute_values",
    "saml_name_ids",  # a service could recognize the user by these
)
REDACTED: Final = f"address = '{NO_ADDRESS}', agent = '{NO_AGENT}'"
# The events that contain the invited user's address.
INVITATION_EVENTS: Final = ["user.invited", "invitation.accepted", "invitation.declined", "invitation.expired", "invitation.revoked"]
# Which entries in every log contain a user's address. An impersonation has the impersonator's
# address. An account action without an actor but with an address, such as following a link in an
# email, was the user's. Entries without an address are the service's actions, so they stay as they
# are.
LOGS: Final[Mapping[PersonalLog, tuple[LiteralString, LiteralString]]] = {
    PersonalLog.LOGINS: ("login_events", "user_id = %(user_id)s"),
    PersonalLog.MFA: ("mfa_events", "user_id = %(user_id)s"),
    PersonalLog.MFA_DONE: ("mfa_events", "actor_id = %(user_id)s"),
    PersonalLog.MFA_IMPERSONATED: ("mfa_events", "impersonator_id = %(user_id)s"),
    PersonalLog.AUDIT_DONE: ("audit_log", "actor_id = %(user_id)s"),
    PersonalLog.AUDIT_IMPERSONATED: ("audit_log", "impersonator_id = %(user_id)s"),
    PersonalLog.AUDIT_LINKS: (
        "audit_log",
        """target_type = 'user' and target_id = %(user_id)s::text
           and (starts_with(action, 'security.') or action = 'user.email_changed') and actor_id is null and address is not null""",
    ),
    PersonalLog.PRIVACY_DONE: ("privacy_log", "actor_id = %(user_id)s"),
}


def _redaction(log: PersonalLog) -> LiteralString:
    """Return the statement that redacts a log's next entries, after the last redacted entry.

    Lock order: entries by id, as in every statement that changes entries. Entries that are deleted before the lock count as done.
    """
    table, condition = LOGS[log]
    # A client can choose its request's id, and the access log has it beside the address.
    of_login = ", city = null, country = null, request_id = null" if log is PersonalLog.LOGINS else ""
    assignments = f"{REDACTED}{of_login}"
    last = "from blankings where user_id = %(user_id)s and log = %(log)s"
    return f"""
    with due as materialized (
        select id, created_at from {table}
        where {condition}
          and (created_at, id) < (coalesce((select after_at {last}), 'infinity'),
                                  coalesce((select after_id {last}), 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
        order by created_at desc, id desc limit %(limit)s),
    held as materialized (
        select id from {table} where id = any(array(select id from due)) order by id for no key update),
    blanked as (
        update {table} set {assignments} where id = any(array(select id from held))),
    done as (
        delete {last} and (select count(*) from due) < %(limit)s),
    more as (
        insert into blankings (user_id, log, after_at, after_id)
        select %(user_id)s, %(log)s, created_at, id from due where (select count(*) from due) >= %(limit)s
        order by created_at, id limit 1
        on conflict (user_id, log) do update set after_at = excluded.after_at, after_id = excluded.after_id)
    select count(*) from due"""


LOG_REDACTIONS: Final[Mapping[PersonalLog, LiteralString]] = {log: _redaction(log) for log in PersonalLog}


def _addresses(now: LiteralString) -> LiteralString:
    """Return the SQL array with a user's addresses: `now`, and the former addresses that no other account has now."""
    return f"""
        array(
            select {now} union all
            select f.email from former_addresses f
            where f.user_id = %(user_id)s and not exists (select 1 from users o where o.email = f.email and o.id <> f.user_id))"""


INVOLVED_ORGANIZATIONS: Final = f"""
    select org_id from memberships where user_id = %(user_id)s
    union
    select org_id from scim_users where user_id = %(user_id)s and membership_id is not null
    union
    select org_id from directory_blocks where user_id = %(user_id)s
    union
    select org_id from group_members where user_id = %(user_id)s
    union
    select i.org_id from invitations i
    where i.email = any({_addresses("u.email from users u where u.id = %(user_id)s")}) and i.status = 'pending'
    order by org_id"""
# Former addresses that another account has now are included, because the entries are matched by the
# user's id. When a user joined, the entry names the invitation, which leads to the entry about its
# acceptance.
REDACT_JOINS: Final = f"""
    with organizations_of_user as materialized (
        select org_id from memberships where user_id = %(user_id)s
        union
        select org_id from scim_users where user_id = %(user_id)s
        union
        select i.org_id from invitations i
        where i.email = any(array(
            select %(email)s::text union all select f.email from former_addresses f where f.user_id = %(user_id)s))),
    joined as materialized (
        select l.id, l.org_id, l.details ->> 'invitation_id' as invitation_id
        from organizations_of_user p cross join lateral (
            select * from audit_log l
            where l.org_id = p.org_id and l.target_type = 'user' and l.target_id = %(user_id)s::text
              and not starts_with(l.action, 'security.') and l.actor_id is null and l.address is not null) l),
    answers as materialized (
        select l.id from joined j join audit_log l on l.org_id = j.org_id and l.target_type = 'invitation' and l.target_id = j.invitation_id
        where l.actor_id is null and l.address is not null),
    held as materialized (
        select id from audit_log where id = any(array(select id from joined union all select id from answers)) order by id
        for no key update)
    update audit_log set {REDACTED} where id = any(array(select id from held))"""
# An invitation's entries and events have its id as target. An answer without a session was given by
# the invited user.
END_INVITATIONS: Final = f"""
    with held as (
        select id, status from invitations
        where email = any({_addresses("%(email)s::text")}) and (status <> 'pending' or org_id = any(%(locked)s))
        order by id for no key update),
    ended as (
        update invitations i set
            email = %(placeholder)s,
            status = case when i.status <> 'pending' then i.status when i.expires_at <= %(now)s then 'expired' else 'cancelled' end,
            ended_at = coalesce(i.ended_at, %(now)s)
        from held where i.id = held.id
        returning i.*, held.status = 'pending' as was_pending),
    entries as materialized (
        select l.id from ended e join audit_log l
            on l.org_id = e.org_id and l.target_type in ('user', 'invitation') and l.target_id = e.id::text
        order by l.id for no key update of l),
    renamed as (
        update audit_log l set
            details = case when l.details ? 'invited_email' then l.details || jsonb_build_object('invited_email', %(placeholder)s::text)
                      else l.details end,
            address = case when l.actor_id is null and l.address is not null then '{NO_ADDRESS}' else l.address end,
            agent = case when l.actor_id is null and l.address is not null then '{NO_AGENT}' else l.agent end
        where l.id = any(array(select id from entries))),
    renamed_events as (
        update events v set data = v.data || jsonb_build_object('invited_email', %(placeholder)s::text)
        from ended e
        where v.org_id = e.org_id and v.name = any(%(names)s) and v.target_id = e.id::text and v.data ? 'invited_email'),
    delivered as (
        update webhook_deliveries d set
            payload = jsonb_set(d.payload::jsonb, '{{data,invited_email}}', to_jsonb(%(placeholder)s::text), false)::json
        from ended e join webhooks w on w.org_id = e.org_id
        where d.webhook_id = w.id and d.event_type = any(%(names)s) and d.payload #>> '{{data,target_id}}' = e.id::text)
    select {INVITATION.columns} from ended i where was_pending order by created_at, id"""
REMOVE_EMAILS: Final = f"""
    with addresses as materialized (select {_addresses("%(email)s::text")} as emails),
    challenged as (
        delete from sign_in_flows
        where challenge_email = any((select emails from addresses)::text[]) or challenge_user_id = %(user_id)s)
    delete from mails where address = any((select emails from addresses)::text[])"""


class Privacy(Repository):
    """Implements `ports.storage.privacy.Privacy`."""

    constraints: ClassVar = {"users_email_key": EmailTaken}

    # Control over a user

    async def list_membership_controls(self, user_id: UUID, owner_id: UUID) -> list[MembershipControl]:
        sql = """
            select m.org_id, m.confirmed_at is not null,
                   exists (select 1 from memberships o where o.org_id = m.org_id and o.user_id = %(owner_id)s and o.role = 'owner')
            from (select org_id, user_id, confirmed_at from memberships
                  union all
                  select b.org_id, b.user_id, b.since from directory_blocks b join users u on u.id = b.user_id
                  where u.origin <> 'platform' and u.origin_org_id = b.org_id) m
            where m.user_id = %(user_id)s order by m.org_id"""
        return await self._all(lambda row: MembershipControl(*row), sql, user_id=user_id, owner_id=owner_id)

    async def list_owned_organizations(self, user_id: UUID) -> list[str]:
        sql = """
            select o.name from memberships m join organizations o on o.id = m.org_id
            where m.user_id = %(user_id)s and m.role = 'owner' order by o.name, o.id"""
        return await self._all(lambda row: str(row[0]), sql, user_id=user_id)

    async def is_used_elsewhere(self, user_id: UUID, owner_id: UUID) -> bool:
        sql = """
            select 1 from (
                select org_id from end_users where user_id = %(user_id)s
                union all
                select v.org_id from subscriptions b join services v on v.id = b.service_id where b.user_id = %(user_id)s) used
            join organizations o on o.id = used.org_id
            where not exists (select 1 from memberships m where m.org_id = o.id and m.user_id = %(owner_id)s and m.role = 'owner')"""
        return await self._exists(sql, user_id=user_id, owner_id=owner_id)

    # Anonymization

    async def list_involved_organizations(self, user_id: UUID) -> list[UUID]:
        return await self._all(lambda row: row[0], INVOLVED_ORGANIZATIONS, user_id=user_id)

    async def lock_organizations(self, org_ids: Collection[UUID]) -> None:
        await self._run("select 1 from organizations where id = any(%(org_ids)s) order by id for no key update", org_ids=list(org_ids))

    async def lock_memberships(self, user_id: UUID) -> None:
        await self._run("select 1 from memberships where user_id = %(user_id)s order by org_id for no key update", user_id=user_id)

    async def replace_email(self, user_id: UUID, placeholder: values.Email, now: datetime) -> None:
        # Foreign keys cascade the address to further tables, as in `Accounts.change_email`.
        # Updating a unique key takes the lock that inserts with a foreign key to the account wait
        # for. So from here on no concurrent transaction can add rows for the account.
        sql = """
            with held as materialized (
                select 1 from service_users where user_id = %(user_id)s order by service_id for no key update)
            update users set email = %(placeholder)s, email_verified_at = null, password_hash = null, mfa_enabled_at = null,
                             passkey_handle = null, passkey_count = 0, security_key_count = 0, passkey_second_at = null,
                             backup_codes_salt = null, passkey_offered_at = null, passkey_wait_at = null,
                             policy_reminded_at = null, recovery_required_at = null,
                             name = null, picture = null, locale = null, zoneinfo = null, profile_details = null,
                             anonymized_at = %(now)s, email_changed_at = %(now)s, updated_at = %(now)s
            from (select count(*) from held) before where id = %(user_id)s"""
        await self._run(sql, user_id=user_id, placeholder=placeholder, now=now)
        self._signals.send(Signal.FIGURES_CHANGED)

    async def remove_sign_in_methods(self, user_id: UUID) -> None:
        # A SAML logout in progress continues without the name ids. Services that have no logout
        # request yet count as services that did not respond.
        removed = ", ".join([f"from_{table} as (delete from {table} where user_id = %(user_id)s)" for table in SIGN_IN_TABLES])
        sql = f"""
            with {removed},
            signing_out as materialized (
                select l.id, l.created_at from saml_logouts l
                where l.id in (select logout_id from saml_logout_requests where user_id = %(user_id)s) order by l.id for update),
            nameless as (
                update saml_logout_requests r
                set sent_at = coalesce(r.sent_at, l.created_at), name_id = '', session_index = '', former_names = '{{}}'
                from signing_out l where r.logout_id = l.id and r.user_id = %(user_id)s)
            select 1"""
        await self._write(sql, user_id=user_id)

    async def redact_newest(self, user_id: UUID, limit: int) -> None:
        for log, statement in LOG_REDACTIONS.items():
            await self._write(statement, user_id=user_id, log=log.value, limit=limit)

    async def redact(self, user_id: UUID, log: PersonalLog, limit: int) -> int:
        return await self._count(LOG_REDACTIONS[log], user_id=user_id, log=log.value, limit=limit)

    async def next_user_to_redact(self) -> UUID | None:
        return await self._one(lambda row: row[0], "select user_id from blankings order by user_id limit 1")

    async def next_log_to_redact(self, user_id: UUID) -> PersonalLog | None:
        sql = "select log from blankings where user_id = %(user_id)s order by log limit 1"
        return await self._one(lambda row: PersonalLog(row[0]), sql, user_id=user_id)

    async def redact_impersonations(self, user_id: UUID, now: datetime) -> None:
        sql = f"update sessions set {REDACTED}, ended_at = coalesce(ended_at, %(now)s) where impersonator_id = %(user_id)s"
        await self._write(sql, user_id=user_id, now=now)

    async def redact_joins(self, user_id: UUID, email: values.Email) -> None:
        await self._write(REDACT_JOINS, user_id=user_id, email=email)

    async def end_invitations(
        self, user_id: UUID, email: values.Email, placeholder: values.Email, locked: Collection[UUID], now: datetime
    ) -> list[Invitation]:
        return await self._all(
            INVITATION.read,
            END_INVITATIONS,
            user_id=user_id,
            email=email,
            placeholder=placeholder,
            locked=list(locked),
            names=INVITATION_EVENTS,
            now=now,
        )

    async def remove_emails(self, user_id: UUID, email: values.Email) -> None:
        await self._write(REMOVE_EMAILS, user_id=user_id, email=email)

    async def redact_deliveries(self, user_id: UUID) -> None:
        # Later attempts sign the changed payload. The response body goes too, because a receiver
        # may echo the payload.
        sql = """
            update webhook_deliveries
            set payload = jsonb_set(payload::jsonb, '{actor_email}', 'null')::json, response_body = null
            where actor_id = %(user_id)s"""
        await self._write(sql, user_id=user_id)

    async def remove_directory_data(self, user_id: UUID) -> None:
        sql = """
            update scim_users s set
                external_id = null, formatted = null, given_name = null, family_name = null, display_name = null,
                user_name = null, attributes = '{}', email = case when s.email is not null then u.email end
            from users u where s.user_id = %(user_id)s and u.id = s.user_id"""
        await self._write(sql, user_id=user_id)

    async def remove_former_emails(self, user_id: UUID) -> None:
        await self._write("delete from former_addresses where user_id = %(user_id)s", user_id=user_id)

    async def log(self, event_type: str, user_id: UUID, caller: Person, now: datetime) -> None:
        # The lock on the caller's account makes the caller's own anonymization wait, so that it redacts this entry too.
        await self._write(
            f"""
            insert into privacy_log (id, event_type, user_id, actor_id, address, agent, created_at)
            select %(id)s, %(event_type)s, %(user_id)s, %(actor_id)s,
                   case when anonymized_at is null then %(address)s else '{NO_ADDRESS}' end,
                   case when anonymized_at is null then %(agent)s else '{NO_AGENT}' end, %(now)s
            from (select anonymized_at from users where id = %(actor_id)s for key share) caller""",
            id=values.new_id(),
            event_type=event_type,
            user_id=user_id,
            actor_id=caller.user_id,
            address=caller.address,
            agent=caller.agent,
            now=now,
        )
