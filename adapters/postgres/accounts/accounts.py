"""The repository of accounts."""

from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.accounts.closures import AccountClosures
from adapters.postgres.accounts.email_changes import PENDING, reserved
from adapters.postgres.engine.locks import NAMESPACE, PLATFORM_OWNERS
from adapters.postgres.engine.statements import DeferredRow, Row
from adapters.postgres.tenancy.domains import verified_owner
from core.accounts.model.accounts import Account, AccountOrigin, EmailTaken
from core.accounts.model.one_time_tokens import TokenPurpose
from core.accounts.model.profiles import OwnProfile, Profile
from core.kernel.roles import Role
from core.kernel.values import Email
from core.tenancy.model.members import AccountControl

# In the order of `to_account`.
COLUMNS: Final = """
    u.id, u.email, u.email_verified_at, u.password_hash, u.is_platform_owner, u.origin, u.origin_org_id, u.deactivated_at,
    u.anonymized_at, u.created_at, u.first_verified_at, u.mfa_enabled_at, u.platform_deactivated_at, u.closed_at, u.name, u.picture,
    u.locale, u.zoneinfo, u.profile_details"""
COLUMN_COUNT: Final = 19
SELECT: Final = f"select {COLUMNS} from users u "
LOCK_BY_EMAIL: Final = SELECT + "where email = %(email)s for no key update"
# In the order of `to_own_profile`. There is at most one pending change.
OWN_PROFILE: Final = f"""
    u.email, (select c.new_email from email_changes c where c.user_id = u.id and {PENDING} limit 1), u.name, u.picture, u.locale,
    u.zoneinfo, u.profile_details"""

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


def to_profile(row: Row) -> Profile:
    """Return the profile in the columns name, picture, locale, zoneinfo and profile_details."""
    return Profile(*row[:4], **(row[4] or {}))


def profile_parameters(profile: Profile) -> dict[str, object]:
    """Return the parameters with the names of these columns."""
    basics = {name: getattr(profile, name) for name in ("name", "picture", "locale", "zoneinfo")}
    return {**basics, "profile_details": Jsonb(details) if (details := profile.details) else None}


def to_account(row: Row) -> Account:
    return Account(
        id=row[0],
        email=Email(row[1]),
        email_verified_at=row[2],
        password_hash=row[3],
        is_platform_owner=row[4],
        origin=AccountOrigin(row[5]),
        origin_org_id=row[6],
        deactivated_at=row[7],
        anonymized_at=row[8],
        created_at=row[9],
        first_verified_at=row[10],
        mfa_enabled_at=row[11],
        platform_deactivated_at=row[12],
        closed_at=row[13],
        profile=to_profile(row[14:COLUMN_COUNT]),
    )


def to_own_profile(row: Row) -> OwnProfile:
    return OwnProfile(Email(row[0]), None if row[1] is None else Email(row[1]), to_profile(row[2:]))


def to_account_control(row: Row) -> AccountControl:
    return AccountControl(
        org_id=row[0],
        origin=AccountOrigin(row[1]),
        origin_org_id=row[2],
        is_platform_owner=row[3],
        has_password=row[4],
        has_identity=row[5],
        at_verified_domain=row[6],
        role=None if row[7] is None else Role(row[7]),
        member_elsewhere=row[8],
        end_user_elsewhere=row[9],
        closed_by_others=row[10],
    )


def columns(account: Account) -> dict[str, object]:
    return {
        "id": account.id,
        "email": account.email,
        "email_verified_at": account.email_verified_at,
        "password_hash": account.password_hash,
        "is_platform_owner": account.is_platform_owner,
        "origin": account.origin,
        "origin_org_id": account.origin_org_id,
        "deactivated_at": account.deactivated_at,
        "anonymized_at": account.anonymized_at,
        "created_at": account.created_at,
        "first_verified_at": account.first_verified_at,
        "mfa_enabled_at": account.mfa_enabled_at,
        **profile_parameters(account.profile),
    }


class Accounts(AccountClosures):
    """Implements `ports.storage.accounts.Accounts`."""

    constraints: ClassVar = {"users_email_key": EmailTaken}

    async def by_email(self, email: Email) -> Account | None:
        return await self._one(
            to_account,
            SELECT + "where email = %(email)s",
            email=email,
        )

    async def by_id(self, user_id: UUID) -> Account | None:
        return await self._one(
            to_account,
            SELECT + "where id = %(user_id)s",
            user_id=user_id,
        )

    async def own_profile(self, user_id: UUID, now: datetime) -> OwnProfile | None:
        return await self._one(
            to_own_profile,
            f"select {OWN_PROFILE} from users u where u.id = %(user_id)s",
            user_id=user_id,
            now=now,
        )

    async def has_signed_in(self, user_id: UUID) -> bool:
        return await self._exists(
            """
            select 1 from login_events where user_id = %(user_id)s and success
            union all select 1 from identities where user_id = %(user_id)s
            limit 1""",
            user_id=user_id,
        )

    async def platform_owner_exists(self) -> bool:
        return await self._exists("select 1 from users where is_platform_owner limit 1")

    async def platform_owner_addresses(self) -> list[Email]:
        return await self._all(
            lambda row: Email(row[0]),
            "select email from users where is_platform_owner and deactivated_at is null and anonymized_at is null order by id",
        )

    async def add(self, account: Account) -> None:
        if await self._run(INSERT, **columns(account)) == 0:
            raise EmailTaken
        self._signals.figures_changed()

    async def add_if_free(self, account: Account) -> bool:
        # Waits for the outcome of another transaction that is inserting the same address.
        is_added = await self._run(INSERT + "on conflict (email) do nothing", **columns(account)) == 1
        if is_added:
            self._signals.figures_changed()
        return is_added

    # "for no key update" makes writers of the account wait, but still lets other transactions
    # insert rows that refer to it, such as sessions and logins.
    async def lock(self, user_id: UUID) -> Account | None:
        return await self._one(
            to_account,
            SELECT + "where id = %(user_id)s for no key update",
            user_id=user_id,
        )

    async def lock_by_email(self, email: Email) -> Account | None:
        return await self._one(to_account, LOCK_BY_EMAIL, email=email)

    def lock_by_email_deferred(self, email: Email) -> DeferredRow[Account]:
        return self._one_deferred(to_account, LOCK_BY_EMAIL, email=email)

    async def lock_by_token(self, token_hash: bytes, purpose: TokenPurpose) -> Account | None:
        return await self._one(
            to_account,
            SELECT + OWNER_OF_LINK,
            token_hash=token_hash,
            purpose=purpose,
        )

    def lock_for_login_deferred(self, user_id: UUID, password_hash: str) -> DeferredRow[Account]:
        return self._one_deferred(
            to_account,
            SELECT
            + """
            where id = %(user_id)s and password_hash = %(password_hash)s and email_verified_at is not null
              and deactivated_at is null and anonymized_at is null
            for no key update""",
            user_id=user_id,
            password_hash=password_hash,
        )

    async def lock_platform_owners(self) -> None:
        await self._run(f"select pg_advisory_xact_lock({NAMESPACE}, {PLATFORM_OWNERS})")

    async def mark_verified(self, user_id: UUID, now: datetime) -> None:
        await self._run(
            """
            update users set email_verified_at = coalesce(email_verified_at, %(now)s),
                             first_verified_at = coalesce(first_verified_at, %(now)s), updated_at = %(now)s
            where id = %(user_id)s""",
            user_id=user_id,
            now=now,
        )

    async def set_password(self, user_id: UUID, password_hash: str, now: datetime) -> None:
        await self._run(
            """
            update users set password_hash = %(password_hash)s, password_changed_at = %(now)s, updated_at = %(now)s
            where id = %(user_id)s""",
            user_id=user_id,
            password_hash=password_hash,
            now=now,
        )

    async def rehash_password(self, user_id: UUID, password_hash: str, now: datetime) -> None:
        await self._run(
            "update users set password_hash = %(password_hash)s, updated_at = %(now)s where id = %(user_id)s",
            user_id=user_id,
            password_hash=password_hash,
            now=now,
        )

    async def drop_password_set_since(self, user_id: UUID, since: datetime, now: datetime) -> None:
        await self._run(
            """
            update users set password_hash = null, updated_at = %(now)s
            where id = %(user_id)s and password_hash is not null and password_changed_at >= %(since)s""",
            user_id=user_id,
            since=since,
            now=now,
        )

    async def drop_password(self, user_id: UUID, now: datetime) -> None:
        await self._run("update users set password_hash = null, updated_at = %(now)s where id = %(user_id)s", user_id=user_id, now=now)

    async def set_mfa(self, user_id: UUID, enabled_at: datetime | None, now: datetime) -> None:
        await self._run(
            "update users set mfa_enabled_at = %(enabled_at)s, updated_at = %(now)s where id = %(user_id)s",
            user_id=user_id,
            enabled_at=enabled_at,
            now=now,
        )
        self._signals.figures_changed()

    async def set_profile(self, user_id: UUID, profile: Profile, now: datetime) -> None:
        await self._run(
            """
            update users set name = %(name)s, picture = %(picture)s, locale = %(locale)s, zoneinfo = %(zoneinfo)s,
                             profile_details = %(profile_details)s::jsonb, profile_changed_at = %(now)s, updated_at = %(now)s
            where id = %(user_id)s""",
            user_id=user_id,
            now=now,
            **profile_parameters(profile),
        )

    async def change_email(self, user_id: UUID, email: Email, now: datetime) -> None:
        # Lock order: service_users, then end_users. The foreign keys copy the address to both
        # tables in no fixed order, and deleting a service locks them in this order.
        changed = await self._run(
            f"""
            with held as materialized (
                select 1 from service_users where user_id = %(user_id)s order by service_id for no key update),
            kept as (
                insert into former_addresses (user_id, email, until)
                select id, email, %(now)s from users where id = %(user_id)s and email <> %(email)s
                on conflict (user_id, email) do update set until = excluded.until)
            update users set email = %(email)s, email_verified_at = null, email_changed_at = %(now)s, updated_at = %(now)s
            from (select count(*) from held) before
            where id = %(user_id)s and not {reserved("%(email)s", "%(user_id)s", "%(now)s")}""",
            user_id=user_id,
            email=email,
            now=now,
        )
        if changed == 0:
            raise EmailTaken

    async def next_to_erase(self, now: datetime) -> Account | None:
        return await self._one(
            to_account, f"{SELECT} where u.erase_at <= %(now)s and u.anonymized_at is null order by u.erase_at, u.id limit 1", now=now
        )

    async def is_due_for_erasure(self, user_id: UUID, now: datetime) -> bool:
        return await self._exists(
            "select 1 from users where id = %(user_id)s and erase_at <= %(now)s and anonymized_at is null", user_id=user_id, now=now
        )

    async def can_be_freed(self, user_id: UUID) -> bool:
        return await self._exists(
            """
            select 1 from users u
            where u.id = %(user_id)s and u.deactivated_at is not null and u.platform_deactivated_at is null and u.closed_at is null
              and u.anonymized_at is null and (u.email_verified_at is null
                   or u.password_hash is null and not exists (select 1 from identities i where i.user_id = u.id))""",
            user_id=user_id,
        )

    async def set_origin(self, user_id: UUID, origin: AccountOrigin, org_id: UUID | None, now: datetime) -> None:
        await self._run(
            "update users set origin = %(origin)s, origin_org_id = %(org_id)s, updated_at = %(now)s where id = %(user_id)s",
            user_id=user_id,
            origin=origin,
            org_id=org_id,
            now=now,
        )

    async def promote(self, user_id: UUID, now: datetime) -> None:
        await self._run("update users set is_platform_owner = true, updated_at = %(now)s where id = %(user_id)s", user_id=user_id, now=now)

    async def demote(self, user_id: UUID, now: datetime) -> None:
        await self._run("update users set is_platform_owner = false, updated_at = %(now)s where id = %(user_id)s", user_id=user_id, now=now)

    async def other_platform_owner_exists(self, user_id: UUID) -> bool:
        return await self._exists(
            """
            select 1 from users
            where is_platform_owner and deactivated_at is null and anonymized_at is null and id <> %(user_id)s limit 1""",
            user_id=user_id,
        )

    async def account_control(self, user_id: UUID, org_id: UUID) -> AccountControl:
        control = await self._one(
            to_account_control,
            f"""
            select %(org_id)s::uuid, u.origin, u.origin_org_id, u.is_platform_owner, u.password_hash is not null,
                   exists (select 1 from identities i where i.user_id = u.id),
                   coalesce({verified_owner("split_part(u.email, '@', 2)")} = %(org_id)s, false),
                   m.role, exists (select 1 from memberships o where o.user_id = u.id and o.org_id <> %(org_id)s),
                   exists (select 1 from end_users e join organizations o on o.id = e.org_id
                           where e.user_id = u.id and e.org_id <> %(org_id)s)
                   or exists (select 1 from subscriptions b join services v on v.id = b.service_id join organizations o on o.id = v.org_id
                              where b.user_id = u.id and v.org_id <> %(org_id)s),
                   u.platform_deactivated_at is not null or u.closed_at is not null
            from users u left join memberships m on m.org_id = %(org_id)s and m.user_id = u.id
            where u.id = %(user_id)s""",
            user_id=user_id,
            org_id=org_id,
        )
        assert control is not None, "a locked account exists"
        return control

    async def remove(self, user_id: UUID) -> None:
        await self._run("delete from users where id = %(user_id)s", user_id=user_id)
        self._signals.figures_changed()

    async def lock_platform_owner(self, user_id: UUID) -> bool:
        return await self._exists(
            """
            select 1 from users
            where id = %(user_id)s and is_platform_owner and deactivated_at is null and anonymized_at is null for share""",
            user_id=user_id,
        )
