"""The users that an organization's directory knows, and the group."""

from collections.abc import Collection
from dataclasses import asdict
from datetime import datetime
from typing import ClassVar
from uuid import UUID

from adapters.postgres.accounts.accounts import INSERT, columns
from adapters.postgres.applications.service_access import is_blocked
from adapters.postgres.engine.statements import DeferredRow, Repository, Row
from adapters.postgres.provisioning.filters import condition
from adapters.postgres.provisioning.user_queries import BY_ID, NON_MEMBERS, PAGE, filtered_page, group_members_of, known
from core.accounts.accounts_rules import Account
from core.kernel.principals import Role
from core.kernel.values import Email, PageResult
from core.provisioning.filters import ScimFilter
from core.provisioning.groups_rules import GroupMember
from core.provisioning.tokens_rules import ScimTokenInvalid
from core.provisioning.users_rules import ScimProfile, ScimUser, UserNameTaken
from core.tenancy.organizations_rules import Membership


def to_group_member(row: Row) -> GroupMember:
    return GroupMember(row[0], None if row[1] is None else Role(row[1]), row[2], row[3])


def to_user(row: Row) -> ScimUser:
    return ScimUser(
        id=row[0],
        email=Email(row[1]),
        profile=ScimProfile(*row[2:7]),
        active=row[7],
        created_at=row[8],
        updated_at=row[9],
        role=None if row[10] is None else Role(row[10]),
        deactivated_here=row[11],
        whole_account=row[12],
        is_platform_owner=row[13],
        is_anonymized=row[14],
    )


class ScimUsers(Repository):
    """Implements the port ScimUsers."""

    constraints: ClassVar = {
        "users_email_key": UserNameTaken,
        # The organization was deleted, with its tokens, before it could be locked.
        "memberships_org_id_fkey": ScimTokenInvalid,
        "scim_users_org_id_fkey": ScimTokenInvalid,
    }

    async def page(self, org_id: UUID, filter_: ScimFilter | None, offset: int, limit: int) -> PageResult[ScimUser]:
        statement, values = PAGE, dict[str, object]()
        if filter_ is not None:
            of_members, values = condition(filter_, "u.email")
            of_others, _ = condition(filter_, "k.email")
            statement = filtered_page(of_members, of_others)
        rows = await self._all(lambda row: row, statement, org_id=org_id, offset=offset, limit=limit, **values)
        return PageResult([to_user(row[1:]) for row in rows if row[1] is not None], rows[0][0])

    async def by_id(self, org_id: UUID, user_id: UUID) -> ScimUser | None:
        return await self._one(to_user, BY_ID, org_id=org_id, user_id=user_id)

    async def is_blocked(self, org_id: UUID, user_id: UUID) -> bool:
        return await self._exists(
            f"select 1 where {is_blocked('%(org_id)s', '%(user_id)s')}",
            org_id=org_id,
            user_id=user_id,
        )

    async def group_ids(self, org_id: UUID, after: UUID | None, limit: int) -> list[UUID]:
        later = "" if after is None else "and k.user_id > %(after)s"
        page = f"where k.role is not null {later} order by k.user_id limit %(limit)s"
        return await self._all(
            lambda row: row[0],
            f"select k.user_id from {known(page)} k order by k.user_id limit %(limit)s",
            org_id=org_id,
            after=after,
            limit=limit,
        )

    async def group_members(self, org_id: UUID, user_ids: Collection[UUID]) -> list[GroupMember]:
        return await self._all(to_group_member, group_members_of("k.user_id = any(%(user_ids)s)"), org_id=org_id, user_ids=list(user_ids))

    async def all_group_members(self, org_id: UUID, after: UUID | None, limit: int) -> list[GroupMember]:
        later = "true" if after is None else "k.user_id > %(after)s"
        page = f"{group_members_of(f'{later} order by k.user_id limit %(limit)s')} order by k.user_id limit %(limit)s"
        return await self._all(to_group_member, page, org_id=org_id, after=after, limit=limit)

    async def platform_owners(self, user_ids: Collection[UUID]) -> set[UUID]:
        return set(
            await self._all(
                lambda row: UUID(str(row[0])),
                "select id from users where id = any(%(user_ids)s) and is_platform_owner",
                user_ids=list(user_ids),
            )
        )

    async def lock(self, org_id: UUID, user_ids: Collection[UUID]) -> None:
        await self._run(
            """
            with held as materialized (
                select user_id from memberships where org_id = %(org_id)s and user_id = any(%(user_ids)s)
                order by user_id for no key update)
            select 1 from users u, (select count(*) from held) before
            where u.id = any(%(user_ids)s) order by u.id for no key update of u""",
            org_id=org_id,
            user_ids=list(user_ids),
        )

    def count_non_members_deferred(self, org_id: UUID) -> DeferredRow[int]:
        return self._one_deferred(lambda row: int(row[0]), f"select {NON_MEMBERS}", org_id=org_id)

    def claim_email_deferred(self, org_id: UUID, user_id: UUID, email: Email) -> DeferredRow[bool]:
        return self._one_deferred(
            lambda row: bool(row[0]),
            """
            with namesakes as materialized (
                select user_id, deactivated_at from scim_users
                where org_id = %(org_id)s and email = %(email)s and user_id <> %(user_id)s for update),
            forgotten as (
                delete from scim_users where org_id = %(org_id)s
                and user_id = any(array(select user_id from namesakes where deactivated_at is null)))
            select exists (select 1 from namesakes where deactivated_at is not null)""",
            org_id=org_id,
            user_id=user_id,
            email=email,
        )

    async def provision(self, account: Account, membership: Membership, profile: ScimProfile) -> None:
        # One statement, because the organization is locked: other requests of the directory wait.
        await self._run(
            f"""
            with new_account as ({INSERT} returning users.id),
            joined as (
                insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
                select %(membership_id)s, %(org_id)s, id, %(role)s, %(created_at)s, %(confirmed_at)s from new_account
                returning org_id),
            counted as (
                update organizations o set member_count = member_count + 1, members_changed_at = %(created_at)s
                from joined where o.id = joined.org_id)
            insert into scim_users (org_id, user_id, external_id, formatted, given_name, family_name, display_name, provisioned,
                                    updated_at)
            select %(org_id)s, id, %(external_id)s, %(formatted)s, %(given_name)s, %(family_name)s, %(display_name)s, true, %(created_at)s
            from new_account""",
            **columns(account),
            membership_id=membership.id,
            org_id=membership.org_id,
            role=membership.role,
            confirmed_at=membership.confirmed_at,
            **asdict(profile),
        )
        self._signals.figures_changed()

    async def save_profile(self, org_id: UUID, user_id: UUID, profile: ScimProfile, email: Email, now: datetime) -> None:
        await self._run(
            """
            insert into scim_users as s (org_id, user_id, external_id, formatted, given_name, family_name, display_name, provisioned,
                                         updated_at)
            values (%(org_id)s, %(user_id)s, %(external_id)s, %(formatted)s, %(given_name)s, %(family_name)s, %(display_name)s, false,
                    %(now)s)
            on conflict (org_id, user_id) do update set
                external_id = excluded.external_id, formatted = excluded.formatted, given_name = excluded.given_name,
                family_name = excluded.family_name, display_name = excluded.display_name, updated_at = excluded.updated_at,
                email = case when s.membership_id is not null then %(email)s end""",
            org_id=org_id,
            user_id=user_id,
            email=email,
            now=now,
            **asdict(profile),
        )

    async def deactivate(self, org_id: UUID, user_id: UUID, now: datetime, *, whole_account: bool) -> None:
        # A user outside the group stays outside. A second deactivation keeps the membership that
        # the first one suspended.
        await self._run(
            """
            with ended as (
                delete from memberships where org_id = %(org_id)s and user_id = %(user_id)s
                returning id, org_id, user_id, role, created_at, confirmed_at),
            counted as (
                update organizations o set member_count = member_count - 1 from ended where o.id = ended.org_id)
            insert into scim_users as s (org_id, user_id, provisioned, deactivated_at, whole_account, membership_id, joined_at, role,
                                         confirmed_at, email, updated_at)
            select %(org_id)s, %(user_id)s, coalesce(b.provisioned, false), %(now)s, %(whole_account)s, coalesce(a.id, b.membership_id),
                   coalesce(a.created_at, b.joined_at), coalesce(a.role, b.role), coalesce(a.confirmed_at, b.confirmed_at),
                   case when a.id is null then b.email else u.email end, %(now)s
            from users u left join ended a on true
            left join scim_users b on b.org_id = %(org_id)s and b.user_id = %(user_id)s
            where u.id = %(user_id)s
            on conflict (org_id, user_id) do update set
                deactivated_at = excluded.deactivated_at, whole_account = excluded.whole_account,
                membership_id = excluded.membership_id, joined_at = excluded.joined_at, role = excluded.role,
                confirmed_at = excluded.confirmed_at, email = excluded.email, updated_at = excluded.updated_at""",
            org_id=org_id,
            user_id=user_id,
            whole_account=whole_account,
            now=now,
        )

    async def reactivate(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        # The directory forgets a user outside the group if it did not provision them, or if a
        # member who joined by an invitation has the same userName now.
        await self._run(
            """
            with deactivated as (
                select s.org_id, s.user_id, s.membership_id, s.role, s.joined_at, s.confirmed_at,
                       s.provisioned and not exists (
                           select 1 from users u join memberships m on m.user_id = u.id and m.org_id = s.org_id
                           where u.email = s.email and u.id <> s.user_id) as is_known
                from scim_users s
                where s.org_id = %(org_id)s and s.user_id = %(user_id)s and s.deactivated_at is not null for no key update of s),
            restored as (
                insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
                select membership_id, org_id, user_id, role, joined_at, confirmed_at from deactivated where role is not null
                returning org_id),
            counted as (
                update organizations o set member_count = member_count + 1 from restored where o.id = restored.org_id),
            forgotten as (
                delete from scim_users s using deactivated a
                where s.org_id = a.org_id and s.user_id = a.user_id and a.role is null and not a.is_known)
            update scim_users s set
                deactivated_at = null, whole_account = false, role = null, confirmed_at = null,
                membership_id = case when a.role is null then a.membership_id end,
                joined_at = case when a.role is null then a.joined_at end, email = case when a.role is null then s.email end,
                updated_at = %(now)s
            from deactivated a
            where s.org_id = a.org_id and s.user_id = a.user_id and (a.role is not null or a.is_known)""",
            org_id=org_id,
            user_id=user_id,
            now=now,
        )

    async def reopen_accounts(self, org_id: UUID, now: datetime) -> None:
        # Lock order: accounts by id, then service_users by (user_id, service_id). The path that
        # reopens a single account uses the same order.
        account_ids = await self._all(
            lambda row: row[0],
            """
            select u.id from users u
            where u.id in (select user_id from scim_users where org_id = %(org_id)s and whole_account)
            order by u.id for no key update""",
            org_id=org_id,
        )
        if account_ids:
            await self._run(
                """
                with held as materialized (
                    select 1 from service_users where user_id = any(%(user_ids)s) order by user_id, service_id for no key update)
                update users set deactivated_at = null, updated_at = %(now)s
                from (select count(*) from held) before where id = any(%(user_ids)s)""",
                user_ids=account_ids,
                now=now,
            )
            self._signals.figures_changed()

    async def forget(self, org_id: UUID, user_id: UUID) -> None:
        await self._run("delete from scim_users where org_id = %(org_id)s and user_id = %(user_id)s", org_id=org_id, user_id=user_id)

    async def block(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        await self.forget(org_id, user_id)
        await self._run(
            """
            insert into scim_users (org_id, user_id, provisioned, deactivated_at, updated_at)
            values (%(org_id)s, %(user_id)s, false, %(now)s, %(now)s)""",
            org_id=org_id,
            user_id=user_id,
            now=now,
        )

    async def restore_members(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> None:
        await self._run(
            """
            with joining as (
                select s.org_id, s.user_id, s.deactivated_at is not null as waits,
                       case when u.origin = 'scim' and u.origin_org_id = s.org_id then %(now)s::timestamptz end as confirmed_at
                from scim_users s join users u on u.id = s.user_id
                where s.org_id = %(org_id)s and s.user_id = any(%(user_ids)s) and u.anonymized_at is null),
            added as (
                insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
                select gen_random_uuid(), org_id, user_id, 'member', %(now)s, confirmed_at from joining where not waits
                returning org_id),
            counted as (
                update organizations o set
                    member_count = member_count + (select count(*) from added)::int, members_changed_at = %(now)s
                where o.id = %(org_id)s)
            update scim_users s set
                role = case when c.waits then 'member' end, confirmed_at = case when c.waits then c.confirmed_at end,
                membership_id = case when c.waits then s.membership_id end, joined_at = case when c.waits then s.joined_at end,
                email = case when c.waits then s.email end, updated_at = %(now)s
            from joining c where s.org_id = c.org_id and s.user_id = c.user_id""",
            org_id=org_id,
            user_ids=list(user_ids),
            now=now,
        )

    async def remove_members(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> None:
        # A deactivated user stays deactivated and known until the directory changes that. The
        # confirmation belongs to the membership and ends with it.
        await self._run(
            """
            with leaving as (
                delete from memberships where org_id = %(org_id)s and user_id = any(%(user_ids)s)
                returning org_id, user_id, id, created_at),
            counted as (
                update organizations o set
                    member_count = member_count - (select count(*) from leaving)::int, members_changed_at = %(now)s
                where o.id = %(org_id)s),
            known as (
                update scim_users s set membership_id = g.id, joined_at = g.created_at, email = u.email, updated_at = %(now)s
                from leaving g join users u on u.id = g.user_id
                where s.org_id = g.org_id and s.user_id = g.user_id and s.provisioned),
            unknown as (
                delete from scim_users s using leaving g where s.org_id = g.org_id and s.user_id = g.user_id and not s.provisioned),
            suspended as (
                update scim_users s set role = null, confirmed_at = null
                where s.org_id = %(org_id)s and s.user_id = any(%(user_ids)s) and s.membership_id is not null)
            select 1""",
            org_id=org_id,
            user_ids=list(user_ids),
            now=now,
        )
