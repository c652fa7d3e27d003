"""The repositories for accounts, their closing, and changes to their email address.

The platform, the directory and a deletion close an account independently. `deactivated_at` is set while the account is
closed. `directory_deactivated_at` has the directory's time while the account is also closed by the platform or a
deletion. Otherwise `deactivated_at` has the directory's time.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.engine import records, statements
from adapters.postgres.engine.locks import NAMESPACE, PLATFORM_OWNERS
from adapters.postgres.kernel.connections import verified_owner
from adapters.postgres.kernel.roles import rights_columns
from core.accounts.model import accounts, profiles
from core.accounts.model.email_queue import TokenPurpose
from core.accounts.model.platform import AccountNotFound
from core.accounts.model.protection import AskedStrength, HeldFactor, Protection
from core.kernel.errors import refuse
from core.kernel.proofs import Strength
from core.kernel.values import Email
from core.tenancy.model.members import AccountControl
from ports.signals import Signal

ONLY_DIRECTORY: Final = "platform_deactivated_at is null and closed_at is null"
DIRECTORY_TIME: Final = f"case when {ONLY_DIRECTORY} then deactivated_at else directory_deactivated_at end"
WITHOUT_DIRECTORY: Final = "deactivated_at = least(platform_deactivated_at, closed_at), directory_deactivated_at = null"


class AccountClosures(statements.Repository):
    """A part of the port `ports.storage.accounts.accounts.Accounts`."""

    async def deactivate(self, user_id: UUID, now: datetime) -> None:
        sql = f"""
            deactivated_at = case when {ONLY_DIRECTORY} then %(now)s else deactivated_at end,
            directory_deactivated_at = case when not ({ONLY_DIRECTORY}) then %(now)s end"""
        await self._set_closure(sql, user_id, now)

    async def reactivate(self, user_id: UUID, now: datetime) -> None:
        await self._set_closure(WITHOUT_DIRECTORY, user_id, now)

    async def deactivate_by_platform(self, user_id: UUID, now: datetime) -> None:
        sql = f"""
            deactivated_at = coalesce(deactivated_at, %(now)s), platform_deactivated_at = %(now)s,
            directory_deactivated_at = {DIRECTORY_TIME}"""
        await self._set_closure(sql, user_id, now)

    async def reactivate_by_platform(self, user_id: UUID, now: datetime) -> None:
        sql = """
            deactivated_at = least(directory_deactivated_at, closed_at), platform_deactivated_at = null,
            directory_deactivated_at = case when closed_at is not null then directory_deactivated_at end"""
        await self._set_closure(sql, user_id, now)

    async def close_until(self, user_id: UUID, erase_at: datetime, now: datetime) -> None:
        sql = f"""
            deactivated_at = coalesce(deactivated_at, %(now)s), closed_at = %(now)s, erase_at = %(erase_at)s,
            directory_deactivated_at = {DIRECTORY_TIME}"""
        await self._set_closure(sql, user_id, now, erase_at=erase_at)

    async def reopen(self, user_id: UUID, now: datetime) -> None:
        sql = """
            deactivated_at = least(directory_deactivated_at, platform_deactivated_at), closed_at = null, erase_at = null,
            directory_deactivated_at = case when platform_deactivated_at is not null then directory_deactivated_at end"""
        await self._set_closure(sql, user_id, now)

    async def _set_closure(self, columns: LiteralString, user_id: UUID, now: datetime, **parameters: object) -> None:
        # The foreign keys copy `deactivated` to the same two tables as the address: see
        # `change_email` for the lock order.
        sql = f"""
            with held as materialized (
                select 1 from service_users where user_id = %(user_id)s order by service_id for no key update)
            update users set {columns}, updated_at = %(now)s
            from (select count(*) from held) before where id = %(user_id)s"""
        await self._run(sql, user_id=user_id, now=now, **parameters)
        self._signals.send(Signal.FIGURES_CHANGED)


EMAIL_CHANGE: Final = records.Record(accounts.EmailChange, "c", old_email=Email, new_email=Email)
INSERT_CHANGE: Final = EMAIL_CHANGE.insert("email_changes")
SELECT_CHANGE: Final = f"select {EMAIL_CHANGE.columns} from email_changes c "
UNDOABLE: Final = f"{SELECT_CHANGE} where user_id = %(user_id)s and undo_until > %(now)s and undone_at is null"
PENDING: Final = "proved_at is null and cancelled_at is null and expires_at > %(now)s"


def reserved(email: LiteralString, user_id: LiteralString, now: LiteralString) -> LiteralString:
    """Return the SQL condition that the address is reserved for another account, which changed away from it (security A-9)."""
    return f"""exists (
        select 1 from email_changes c
        where c.old_email = {email} and c.user_id <> {user_id} and c.undone_at is null and c.undo_until > {now})"""


class EmailChanges(statements.Repository):
    """Implements `ports.storage.accounts.accounts.EmailChanges`."""

    async def add(self, change: accounts.EmailChange) -> None:
        await self._run(INSERT_CHANGE, **EMAIL_CHANGE.values(change))

    async def by_id(self, change_id: UUID) -> accounts.EmailChange | None:
        return await self._one(EMAIL_CHANGE.read, SELECT_CHANGE + "where id = %(change_id)s", change_id=change_id)

    async def pending(self, user_id: UUID, now: datetime) -> accounts.EmailChange | None:
        return await self._one(EMAIL_CHANGE.read, f"{SELECT_CHANGE} where user_id = %(user_id)s and {PENDING}", user_id=user_id, now=now)

    async def first_since(self, user_id: UUID, since: datetime) -> accounts.EmailChange | None:
        sql = f"""{SELECT_CHANGE} where user_id = %(user_id)s and requested_at >= %(since)s and undo_until is not null and undone_at is null
            order by position limit 1"""
        return await self._one(EMAIL_CHANGE.read, sql, user_id=user_id, since=since)

    async def first_undoable(self, user_id: UUID, now: datetime) -> accounts.EmailChange | None:
        return await self._one(EMAIL_CHANGE.read, f"{UNDOABLE} order by position limit 1", user_id=user_id, now=now)

    async def last_undoable(self, user_id: UUID, now: datetime) -> accounts.EmailChange | None:
        return await self._one(EMAIL_CHANGE.read, f"{UNDOABLE} order by position desc limit 1", user_id=user_id, now=now)

    async def nth_newest_at(self, user_id: UUID, number: int) -> datetime | None:
        sql = "select requested_at from email_changes where user_id = %(user_id)s order by position desc offset %(before)s limit 1"
        return await self._one(lambda row: row[0], sql, user_id=user_id, before=number - 1)

    async def is_taken(self, email: Email, user_id: UUID, now: datetime) -> bool:
        sql = f"""
            select 1 where exists (select 1 from users where email = %(email)s and id <> %(user_id)s)
                        or {reserved("%(email)s", "%(user_id)s", "%(now)s")}"""
        return await self._exists(sql, email=email, user_id=user_id, now=now)

    async def is_reserved(self, email: Email, now: datetime) -> bool:
        sql = """
            select 1 from email_changes c
            where c.old_email = %(email)s and c.undone_at is null and c.undo_until > %(now)s
              and not exists (select 1 from users u where u.id = c.user_id and u.email = c.old_email)
            limit 1"""
        return await self._exists(sql, email=email, now=now)

    async def cancel_pending(self, user_id: UUID, now: datetime) -> None:
        sql = f"update email_changes set cancelled_at = %(now)s where user_id = %(user_id)s and {PENDING}"
        await self._run(sql, user_id=user_id, now=now)

    async def mark_proved(self, change_id: UUID, now: datetime) -> None:
        await self._run("update email_changes set proved_at = %(now)s where id = %(change_id)s", change_id=change_id, now=now)

    async def undo(self, change: accounts.EmailChange, now: datetime) -> None:
        sql = """
            update email_changes set undone_at = coalesce(undone_at, %(now)s),
                                     cancelled_at = case when proved_at is null then coalesce(cancelled_at, %(now)s) end
            where user_id = %(user_id)s and position >= (select c.position from email_changes c where c.id = %(change_id)s)"""
        await self._run(sql, user_id=change.user_id, change_id=change.id, now=now)

    async def end_all(self, user_id: UUID, now: datetime) -> None:
        sql = """
            update email_changes set undo_until = case when undo_until > %(now)s then %(now)s else undo_until end,
                                     cancelled_at = case when proved_at is null then coalesce(cancelled_at, %(now)s) end
            where user_id = %(user_id)s and (undo_until > %(now)s or proved_at is null and cancelled_at is null)"""
        await self._run(sql, user_id=user_id, now=now)


def to_profile(row: statements.Row) -> profiles.Profile:
    """Return the profile in the PROFILE columns."""
    return profiles.Profile(*row[:4], **(row[4] or {}))


def profile_parameters(profile: profiles.Profile) -> dict[str, object]:
    """Return the parameters named like these columns."""
    basics = {name: getattr(profile, name) for name in ("name", "picture", "locale", "zoneinfo")}
    return {**basics, "profile_details": Jsonb(details) if (details := profile.details) else None}


PROFILE: Final = records.Columns("u.name, u.picture, u.locale, u.zoneinfo, u.profile_details", 5, to_profile, profile_parameters)
ACCOUNT: Final = records.Record(accounts.Account, "u", email=Email, origin=accounts.AccountOrigin, profile=PROFILE)
to_account_if_any: Final = ACCOUNT.if_any("id")
PENDING_EMAIL: Final = f"(select c.new_email from email_changes c where c.user_id = u.id and {PENDING} limit 1)"  # at most one
OWN_PROFILE: Final = records.Record(
    profiles.OwnProfile, "u", email=Email, pending_email=records.Column(sql=PENDING_EMAIL, read=Email), profile=PROFILE
)
# For an account `u`
ACCOUNT_IS_USABLE: Final = "u.deactivated_at is null and u.anonymized_at is null"  # for a row `u` in `users`
HAS_SECOND_FACTOR: Final = "(u.mfa_enabled_at is not null or u.passkey_second_at is not null)"
HAS_PASSKEY: Final = "u.passkey_count > 0"
PASSWORD_ALONE: Final = f"(u.password_hash is not null and not {HAS_SECOND_FACTOR})"
_RESISTS_PHISHING: Final = f"({HAS_PASSKEY} or u.security_key_count > 0 and u.passkey_second_at is not null)"
HELD_FACTORS: Final = f"""
    array_remove(array[case when {HAS_PASSKEY} then 'passkey' end, case when u.mfa_enabled_at is not null then 'app' end,
                       case when u.security_key_count > 0 then 'key' end], null)"""


def asked_parameters(asked: AskedStrength) -> dict[str, object]:
    """Return the parameters with the strength that is asked of an account."""
    return {"asked_of_members": int(asked.of_members), "asked_of_admins": int(asked.of_admins)}


def to_protection(row: Sequence[Any]) -> dict[str, Any]:
    """Return the fields `protection` and `factors` from these two columns, which are null if they are hidden."""
    protection, factors = row
    return {} if protection is None else {"protection": Protection(protection), "factors": tuple(map(HeldFactor, factors))}


def protection(asked: LiteralString) -> LiteralString:
    """Return the SQL for an account's `Protection`, where `asked` is SQL for the strength that is asked of it."""
    return f"""
        case when {asked} >= {Strength.PHISHING_RESISTANT:d} and not {_RESISTS_PHISHING}
               or {asked} >= {Strength.TWO:d} and not ({HAS_SECOND_FACTOR} or {HAS_PASSKEY}) then 'missing'
             when {PASSWORD_ALONE} then 'password_alone' else 'protected' end"""


# A service account `a` in the field order of `AccountSummary`. The text is SERVICE_ACCOUNT_EMAIL.
SERVICE_ACCOUNT_SUMMARY: Final = "a.id, 'service-account@internal', false, a.created_at"
SELECT: Final = f"select {ACCOUNT.columns} from users u "
LOCK: Final = SELECT + "where id = %(user_id)s for no key update"
LOCK_BY_EMAIL: Final = SELECT + "where email = %(email)s for no key update"

# Inserts nothing if the address is reserved for its former account (security A-9).
INSERT: Final = f"""
    insert into users (id, email, email_verified_at, password_hash, is_platform_owner, origin, origin_org_id, deactivated_at, anonymized_at,
                       created_at, updated_at, first_verified_at, mfa_enabled_at, name, picture, locale, zoneinfo, profile_details)
    select %(id)s, %(email)s, %(email_verified_at)s::timestamptz, %(password_hash)s, %(is_platform_owner)s, %(origin)s,
           %(origin_org_id)s::uuid, %(deactivated_at)s::timestamptz, %(anonymized_at)s::timestamptz, %(created_at)s, %(created_at)s,
           %(first_verified_at)s::timestamptz, %(mfa_enabled_at)s::timestamptz, %(name)s, %(picture)s, %(locale)s, %(zoneinfo)s,
           %(profile_details)s::jsonb
    where not {reserved("%(email)s", "%(id)s", "%(created_at)s")} """
OWNER_OF_LINK: Final = """
    where id = (select user_id from one_time_tokens where purpose = %(purpose)s and token_hash = %(token_hash)s) for no key update"""


ACCOUNT_CONTROL: Final = records.Record(
    AccountControl,
    "u",
    org_id="%(org_id)s::uuid",
    origin=accounts.AccountOrigin,
    has_password="u.password_hash is not null",  # noqa: S106  (a condition)
    has_identity="exists (select 1 from identities i where i.user_id = u.id)",
    has_passkey=HAS_PASSKEY,
    at_verified_domain=f"""coalesce({verified_owner("split_part(u.email, '@', 2)")} = %(org_id)s, false)""",
    role="m.role",
    rights=rights_columns("m", "c"),
    member_elsewhere="exists (select 1 from memberships o where o.user_id = u.id and o.org_id <> %(org_id)s)",
    end_user_elsewhere="""
        exists (select 1 from end_users e join organizations o on o.id = e.org_id where e.user_id = u.id and e.org_id <> %(org_id)s)
        or exists (select 1 from subscriptions b join services v on v.id = b.service_id join organizations o on o.id = v.org_id
                   where b.user_id = u.id and v.org_id <> %(org_id)s)""",
    closed_by_others="u.platform_deactivated_at is not null or u.closed_at is not null",
)


class Accounts(AccountClosures):
    """Implements `ports.storage.accounts.accounts.Accounts`."""

    constraints: ClassVar = {"users_email_key": accounts.EmailTaken}

    async def by_email(self, email: Email) -> accounts.Account | None:
        return await self._one(ACCOUNT.read, SELECT + "where email = %(email)s", email=email)

    async def by_id(self, user_id: UUID) -> accounts.Account | None:
        return await self._one(ACCOUNT.read, SELECT + "where id = %(user_id)s", user_id=user_id)

    async def own_profile(self, user_id: UUID, now: datetime) -> profiles.OwnProfile | None:
        sql = f"select {OWN_PROFILE.columns} from users u where u.id = %(user_id)s"
        return await self._one(OWN_PROFILE.read, sql, user_id=user_id, now=now)

    async def protection(self, user_id: UUID, asked: Strength) -> Protection | None:
        sql = f"select {protection('%(asked)s::int')} from users u where u.id = %(user_id)s"
        return await self._one(lambda row: Protection(row[0]), sql, user_id=user_id, asked=int(asked))

    async def has_signed_in(self, user_id: UUID) -> bool:
        sql = """
            select 1 from login_events where user_id = %(user_id)s and success
            union all select 1 from identities where user_id = %(user_id)s
            limit 1"""
        return await self._exists(sql, user_id=user_id)

    async def platform_owner_exists(self) -> bool:
        return await self._exists("select 1 from users where is_platform_owner limit 1")

    async def platform_owner_addresses(self) -> list[Email]:
        sql = "select email from users where is_platform_owner and deactivated_at is null and anonymized_at is null order by id"
        return await self._all(lambda row: Email(row[0]), sql)

    async def owner_addresses_without_second_factor(self, rp_id: str | None) -> list[Email]:
        lost = "select count(*) from passkeys k where k.user_id = u.id and k.rp_id is distinct from %(rp_id)s and k.kind ="
        sql = f"""
            select u.email from users u
            where u.is_platform_owner and u.deactivated_at is null and u.anonymized_at is null and u.mfa_enabled_at is null
              and u.passkey_count = ({lost} 'passkey')
              and (u.passkey_second_at is null or u.security_key_count = ({lost} 'security_key'))
            order by u.email"""
        return await self._all(lambda row: Email(row[0]), sql, rp_id=rp_id)

    async def owner_addresses_with_password_alone(self) -> list[Email]:
        sql = f"select u.email from users u where u.is_platform_owner and {ACCOUNT_IS_USABLE} and {PASSWORD_ALONE} order by u.email"
        return await self._all(lambda row: Email(row[0]), sql)

    async def add(self, account: accounts.Account) -> None:
        if await self._run(INSERT, **ACCOUNT.values(account)) == 0:
            raise accounts.EmailTaken
        self._signals.send(Signal.FIGURES_CHANGED)

    async def add_if_free(self, account: accounts.Account) -> bool:
        # Waits for the outcome if a concurrent transaction is inserting the same address.
        is_added = await self._run(INSERT + "on conflict (email) do nothing", **ACCOUNT.values(account)) == 1
        if is_added:
            self._signals.send(Signal.FIGURES_CHANGED)
        return is_added

    # "for no key update" makes writers to the account wait, but still lets concurrent transactions
    # insert rows that refer to it, such as sessions and logins.
    def lock(self, user_id: UUID) -> statements.Answer[accounts.Account | None]:
        return self._one(ACCOUNT.read, LOCK, user_id=user_id)

    def lock_by_email(self, email: Email) -> statements.Answer[accounts.Account | None]:
        return self._one(ACCOUNT.read, LOCK_BY_EMAIL, email=email)

    async def lock_by_token(self, token_hash: bytes, purpose: TokenPurpose) -> accounts.Account | None:
        return await self._one(ACCOUNT.read, SELECT + OWNER_OF_LINK, token_hash=token_hash, purpose=purpose)

    def lock_for_login(self, user_id: UUID, password_hash: str) -> statements.Answer[accounts.Account | None]:
        sql = (
            SELECT
            + """
            where id = %(user_id)s and password_hash = %(password_hash)s and email_verified_at is not null
              and deactivated_at is null and anonymized_at is null
            for no key update"""
        )
        return self._one(ACCOUNT.read, sql, user_id=user_id, password_hash=password_hash)

    async def lock_platform_owners(self) -> None:
        await self._run(f"select pg_advisory_xact_lock({NAMESPACE}, {PLATFORM_OWNERS})")

    async def mark_verified(self, user_id: UUID, now: datetime) -> None:
        sql = """
            update users set email_verified_at = coalesce(email_verified_at, %(now)s),
                             first_verified_at = coalesce(first_verified_at, %(now)s), updated_at = %(now)s
            where id = %(user_id)s"""
        await self._run(sql, user_id=user_id, now=now)

    async def set_password(self, user_id: UUID, password_hash: str, now: datetime) -> None:
        sql = """
            update users set password_hash = %(password_hash)s, password_changed_at = %(now)s, updated_at = %(now)s
            where id = %(user_id)s"""
        await self._run(sql, user_id=user_id, password_hash=password_hash, now=now)

    async def rehash_password(self, user_id: UUID, password_hash: str, now: datetime) -> None:
        sql = "update users set password_hash = %(password_hash)s, updated_at = %(now)s where id = %(user_id)s"
        await self._run(sql, user_id=user_id, password_hash=password_hash, now=now)

    async def drop_password_set_since(self, user_id: UUID, since: datetime, now: datetime) -> None:
        sql = """
            update users set password_hash = null, updated_at = %(now)s
            where id = %(user_id)s and password_hash is not null and password_changed_at >= %(since)s"""
        await self._run(sql, user_id=user_id, since=since, now=now)

    async def is_recovery_required(self, user_id: UUID) -> bool:
        return await self._exists("select 1 from users where id = %(user_id)s and recovery_required_at is not null", user_id=user_id)

    async def set_recovery_required(self, user_id: UUID, since: datetime | None) -> None:
        await self._run("update users set recovery_required_at = %(since)s where id = %(user_id)s", user_id=user_id, since=since)

    async def drop_password(self, user_id: UUID, now: datetime) -> None:
        await self._run("update users set password_hash = null, updated_at = %(now)s where id = %(user_id)s", user_id=user_id, now=now)

    async def set_mfa(self, user_id: UUID, enabled_at: datetime | None, now: datetime) -> None:
        sql = "update users set mfa_enabled_at = %(enabled_at)s, updated_at = %(now)s where id = %(user_id)s"
        await self._run(sql, user_id=user_id, enabled_at=enabled_at, now=now)
        self._signals.send(Signal.FIGURES_CHANGED)

    async def set_profile(self, user_id: UUID, profile: profiles.Profile, now: datetime) -> None:
        # An uploaded image goes when the picture changes.
        sql = """
            with replaced as (
                delete from images i where i.user_id = %(user_id)s and strpos(coalesce(%(picture)s, ''), i.key) = 0)
            update users set name = %(name)s, picture = %(picture)s, locale = %(locale)s, zoneinfo = %(zoneinfo)s,
                             profile_details = %(profile_details)s::jsonb, profile_changed_at = %(now)s, updated_at = %(now)s
            where id = %(user_id)s"""
        await self._run(sql, user_id=user_id, now=now, **profile_parameters(profile))

    async def change_email(self, user_id: UUID, email: Email, now: datetime) -> None:
        # Lock order: service_users, then end_users. The foreign keys copy the address to these
        # tables in no fixed order, and deleting a service locks them in this order.
        sql = f"""
            with held as materialized (
                select 1 from service_users where user_id = %(user_id)s order by service_id for no key update),
            kept as (
                insert into former_addresses (user_id, email, until)
                select id, email, %(now)s from users where id = %(user_id)s and email <> %(email)s
                on conflict (user_id, email) do update set until = excluded.until)
            update users set email = %(email)s, email_verified_at = null, email_changed_at = %(now)s, updated_at = %(now)s
            from (select count(*) from held) before
            where id = %(user_id)s and not {reserved("%(email)s", "%(user_id)s", "%(now)s")}"""
        changed = await self._run(sql, user_id=user_id, email=email, now=now)
        if changed == 0:
            raise accounts.EmailTaken

    async def next_to_erase(self, now: datetime) -> accounts.Account | None:
        sql = f"{SELECT} where u.erase_at <= %(now)s and u.anonymized_at is null order by u.erase_at, u.id limit 1"
        return await self._one(ACCOUNT.read, sql, now=now)

    async def is_due_for_erasure(self, user_id: UUID, now: datetime) -> bool:
        sql = "select 1 from users where id = %(user_id)s and erase_at <= %(now)s and anonymized_at is null"
        return await self._exists(sql, user_id=user_id, now=now)

    async def can_be_freed(self, user_id: UUID) -> bool:
        sql = """
            select 1 from users u
            where u.id = %(user_id)s and u.deactivated_at is not null and u.platform_deactivated_at is null and u.closed_at is null
              and u.anonymized_at is null and (u.email_verified_at is null
                   or u.password_hash is null and u.passkey_count = 0 and not exists (select 1 from identities i where i.user_id = u.id))"""
        return await self._exists(sql, user_id=user_id)

    async def set_origin(self, user_id: UUID, origin: accounts.AccountOrigin, org_id: UUID | None, now: datetime) -> None:
        sql = "update users set origin = %(origin)s, origin_org_id = %(org_id)s, updated_at = %(now)s where id = %(user_id)s"
        await self._run(sql, user_id=user_id, origin=origin, org_id=org_id, now=now)

    async def promote(self, user_id: UUID, now: datetime) -> None:
        await self._run("update users set is_platform_owner = true, updated_at = %(now)s where id = %(user_id)s", user_id=user_id, now=now)

    async def demote(self, user_id: UUID, now: datetime) -> None:
        await self._run("update users set is_platform_owner = false, updated_at = %(now)s where id = %(user_id)s", user_id=user_id, now=now)

    async def other_platform_owner_exists(self, user_id: UUID) -> bool:
        sql = """
            select 1 from users
            where is_platform_owner and deactivated_at is null and anonymized_at is null and id <> %(user_id)s limit 1"""
        return await self._exists(sql, user_id=user_id)

    async def account_control(self, user_id: UUID, org_id: UUID) -> AccountControl:
        sql = f"""
            select {ACCOUNT_CONTROL.columns} from users u left join memberships m on m.org_id = %(org_id)s and m.user_id = u.id
            left join organizations c on c.id = m.org_id
            where u.id = %(user_id)s"""
        return await self._one(ACCOUNT_CONTROL.read, sql, user_id=user_id, org_id=org_id) or refuse(AccountNotFound)

    async def remove(self, user_id: UUID) -> None:
        await self._run("delete from users where id = %(user_id)s", user_id=user_id)
        self._signals.send(Signal.FIGURES_CHANGED)

    async def lock_platform_owner(self, user_id: UUID) -> bool:
        sql = """
            select 1 from users
            where id = %(user_id)s and is_platform_owner and deactivated_at is null and anonymized_at is null for share"""
        return await self._exists(sql, user_id=user_id)
