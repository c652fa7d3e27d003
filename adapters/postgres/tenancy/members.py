"""Memberships."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import HAS_SECOND_FACTOR, HELD_FACTORS, PASSWORD_ALONE, asked_parameters, protection, to_protection
from adapters.postgres.engine import records, statements
from adapters.postgres.kernel import roles
from adapters.postgres.kernel.roles import holds, is_admin
from core.accounts.model.protection import NOTHING_ASKED, AskedStrength, HeldFactor
from core.kernel.roles import Capability, RoleName
from core.kernel.values import Email, Page
from core.tenancy.model import organizations
from core.tenancy.model.members import AlreadyMember, ListedMember, MemberAccount, MemberFilter, MemberOrder, MembersPage, MemberState

# For a membership `m` in the organization `o`
MEMBERSHIP: Final = records.Record(
    organizations.Membership,
    "m",
    rights=roles.rights_columns("m", "o"),
    role_label=roles.role_label("m"),
    group_roles=records.Column(sql=roles.group_roles("m", "o"), read=tuple),
)
# For this membership's user `u`. The organization does not learn an unconfirmed member's name.
LISTED: Final = records.Record(
    ListedMember, "u", email=Email, name="case when m.confirmed_at is not null then u.name end", membership=MEMBERSHIP.as_field()
)
STORED: Final = records.Record(organizations.Membership, "m", rights=None, role_label=None, group_roles=None)
INSERT: Final = STORED.insert("memberships", "promoted_by")
# Callers append SQL for the organization's id.
CONFIRM: Final = "update memberships set confirmed_at = %(now)s where user_id = %(user_id)s and confirmed_at is null and org_id = "

# Keeps the names of the members `leaving`, who have the columns of memberships and leave %(now)s. An anonymized account has no name.
REMEMBER: Final = """
    insert into former_members (org_id, user_id, email, name, left_at)
    select l.org_id, l.user_id, u.email, case when l.confirmed_at is not null then u.name end, %(now)s
    from leaving l join users u on u.id = l.user_id and u.anonymized_at is null
    on conflict (org_id, user_id) do update set email = excluded.email, name = excluded.name, left_at = excluded.left_at"""
FORGET: Final = "delete from former_members where org_id = %(org_id)s and user_id = "  # callers append SQL for the ids


_WITHOUT_MFA: Final = f"""
    m.confirmed_at is not null and exists (select 1 from users u where u.id = m.user_id and not ({HAS_SECOND_FACTOR}))"""
STATES: Final[Mapping[MemberState, LiteralString]] = {
    MemberState.UNCONFIRMED: "m.confirmed_at is null",
    MemberState.WITHOUT_MFA: _WITHOUT_MFA,
    MemberState.ADMINS_WITHOUT_MFA: f"{is_admin('m', '%(org_id)s')} and {_WITHOUT_MFA}",
    MemberState.ADMINS_WITH_PASSWORD_ALONE: f"""
        {is_admin("m", "%(org_id)s")} and m.confirmed_at is not null
        and exists (select 1 from users u where u.id = m.user_id and {PASSWORD_ALONE})""",
}
# Only a text with this length is an id. A search by a different text reads the addresses from an index that has no user
# ids.
ID_LENGTH: Final = 36
MATCHING: Final[Mapping[bool, LiteralString]] = {
    False: "and strpos(m.email, %(search)s) > 0",
    True: "and (strpos(m.email, %(search)s) > 0 or m.user_id::text = %(search)s)",
}
ORDERS: Final[Mapping[MemberOrder, LiteralString]] = {MemberOrder.JOINED: "m.created_at", MemberOrder.EMAIL: "m.email"}
# A member's last sign-in to the platform itself, or through a connection, that the organization sees (decision 220).
LAST_AT_PLATFORM: Final = """
    select l.created_at from login_events l join organizations o on o.id = m.org_id and o.approved_at is not null
    where l.user_id = m.user_id and l.success and (l.org_id is null or l.org_id = m.org_id) and l.service_id is null
      and l.seen_by = 'all'
      and l.created_at >= m.confirmed_at
    order by l.created_at desc limit 1"""

_ASKED: Final = f"(case when {is_admin('m', 'm.org_id')} then %(asked_of_admins)s::int else %(asked_of_members)s::int end)"
_PROTECTION: Final = protection(_ASKED)
# The facts that an organization sees about the account `u` of its member `m`. They need the parameters of `asked_parameters`.
FACTS: Final = f"""
    case when m.confirmed_at is not null then u.email_verified_at is not null end,
    case when m.confirmed_at is not null then {HAS_SECOND_FACTOR} end,
    greatest(
        (select max(s.last_login_at) from service_users s where s.org_id = m.org_id and s.user_id = m.user_id),
        ({LAST_AT_PLATFORM})),
    case when m.confirmed_at is not null then {_PROTECTION} end,
    case when m.confirmed_at is not null then {HELD_FACTORS} end"""
ACCOUNT: Final = f"{FACTS}, {LISTED.columns}"


def to_account(row: statements.Row) -> MemberAccount:
    return MemberAccount(LISTED.read(row[5:]), *row[:3], **to_protection(row[3:5]))


def _conditions(selected: MemberFilter) -> LiteralString:
    of_role = "and m.role = %(role)s" if selected.role is not None else ""
    matching = MATCHING[len(selected.search) == ID_LENGTH] if selected.search is not None else ""
    in_state = "" if selected.state is None else f"and {STATES[selected.state]}"
    protected = "" if selected.protection is None else f"and {_of_account(f'{_PROTECTION} = %(protection)s')}"
    holds = "" if selected.factor is None else f"and {_of_account(_HOLDS[selected.factor is HeldFactor.NONE])}"
    return f"{of_role} {matching} {in_state} {protected} {holds}".strip()


_HOLDS: Final[Mapping[bool, LiteralString]] = {True: f"{HELD_FACTORS} = '{{}}'", False: f"%(factor)s = any({HELD_FACTORS})"}


def _of_account(condition: LiteralString) -> LiteralString:
    """Return the condition for a confirmed member `m` whose account fulfills a condition (security R-9)."""
    return f"m.confirmed_at is not null and exists (select 1 from users u where u.id = m.user_id and {condition})"


def _filter_parameters(selected: MemberFilter) -> dict[str, object]:
    values = {"role": selected.role, "search": selected.search, "protection": selected.protection, "factor": selected.factor}
    return values | asked_parameters(selected.asked)


class Members(statements.Repository):
    """Implements `ports.storage.tenancy.organizations.Members` and `Confirmations`."""

    constraints: ClassVar = {"memberships_org_user_key": AlreadyMember}

    async def page(
        self, org_id: UUID, selected: MemberFilter, page: Page, *, order: MemberOrder = MemberOrder.JOINED
    ) -> MembersPage | None:
        # Keep a statement per list kind: a combined statement would get a single query plan, in
        # which no index gives the order. The page comes before the join, so that only its members
        # are joined, but not the members on earlier pages. The outer join returns a row with the
        # total and the limits if the page is empty. Emails are stored in lower case, and strpos
        # needs no escaped wildcards.
        conditions = _conditions(selected)
        counted = f"(select count(*) from memberships m where m.org_id = %(org_id)s {conditions})"
        total = counted if conditions else "o.member_count"
        by = ORDERS[order]
        sql = f"""
            with page as (
                select m.* from memberships m
                where m.org_id = %(org_id)s {conditions} order by {by}, m.id limit %(limit)s offset %(offset)s)
            select {LISTED.columns}, {total}, o.max_users, t.default_max_users
            from organizations o
            left join tiers t on t.id = o.tier_id
            left join (page m join users u on u.id = m.user_id) on true
            where o.id = %(org_id)s order by {by}, m.id"""
        values = _filter_parameters(selected)
        rows = await self._rows(sql, org_id=org_id, **values, limit=page.limit, offset=page.offset)
        if not rows:
            return None
        count, own_limit, tier_limit = rows[0][LISTED.width :]
        return MembersPage(
            [LISTED.read(row) for row in rows if row[0] is not None], count, organizations.effective_limit(own_limit, tier_limit)
        )

    async def exists(self, org_id: UUID, user_id: UUID) -> bool:
        sql = "select 1 from memberships where org_id = %(org_id)s and user_id = %(user_id)s"
        return await self._exists(sql, org_id=org_id, user_id=user_id)

    async def account(self, org_id: UUID, user_id: UUID, asked: AskedStrength = NOTHING_ASKED) -> MemberAccount | None:
        return (await self.accounts(org_id, [user_id], asked)).get(user_id)

    async def accounts(self, org_id: UUID, user_ids: Collection[UUID], asked: AskedStrength = NOTHING_ASKED) -> dict[UUID, MemberAccount]:
        sql = f"""
            select {ACCOUNT} from memberships m join users u on u.id = m.user_id join organizations o on o.id = m.org_id
            where m.org_id = %(org_id)s and m.user_id = any(%(user_ids)s)"""
        rows = await self._all(to_account, sql, org_id=org_id, user_ids=list(user_ids), **asked_parameters(asked))
        return {account.member.user_id: account for account in rows}

    async def accounts_of(
        self, org_id: UUID, members: Collection[ListedMember], asked: AskedStrength = NOTHING_ASKED
    ) -> dict[UUID, MemberAccount]:
        sql = f"""
            select m.user_id, {FACTS} from memberships m join users u on u.id = m.user_id
            where m.org_id = %(org_id)s and m.user_id = any(%(user_ids)s)"""
        listed = {member.user_id: member for member in members}
        rows = await self._rows(sql, org_id=org_id, user_ids=list(listed), **asked_parameters(asked))
        return {user_id: MemberAccount(listed[user_id], *facts[:3], **to_protection(facts[3:])) for user_id, *facts in rows}

    async def batch(self, org_id: UUID, selected: MemberFilter, last: organizations.Membership | None, limit: int) -> list[MemberAccount]:
        later = "and (m.created_at, m.id) > (%(created_at)s, %(id)s)" if last is not None else ""
        sql = f"""
            with page as materialized (
                select m.* from memberships m where m.org_id = %(org_id)s {_conditions(selected)} {later}
                order by m.created_at, m.id limit %(limit)s)
            select {ACCOUNT} from page m join users u on u.id = m.user_id join organizations o on o.id = m.org_id
            order by m.created_at, m.id"""
        values = {**_filter_parameters(selected), "limit": limit}
        start = {} if last is None else {"created_at": last.created_at, "id": last.id}
        return await self._all(to_account, sql, org_id=org_id, **values, **start)

    async def lock(self, org_id: UUID, user_id: UUID) -> organizations.Membership | None:
        sql = f"""
            select {MEMBERSHIP.columns} from memberships m join organizations o on o.id = m.org_id
            where m.org_id = %(org_id)s and m.user_id = %(user_id)s for no key update of m"""
        return await self._one(MEMBERSHIP.read, sql, org_id=org_id, user_id=user_id)

    async def admin_addresses(self, org_id: UUID, right: Capability = Capability.MEMBERS_MANAGE) -> list[Email]:
        sql = f"""
            select u.email from memberships m join users u on u.id = m.user_id
            where m.org_id = %(org_id)s and {holds(right, "m", "%(org_id)s")} and m.confirmed_at is not null
              and u.deactivated_at is null and u.anonymized_at is null
            order by u.id"""
        return await self._all(lambda row: Email(row[0]), sql, org_id=org_id)

    async def add(self, membership: organizations.Membership, *, promoted_by: UUID | None = None) -> None:
        sql = f"""
            with added as ({INSERT} returning org_id),
            returned as ({FORGET} %(user_id)s),
            restored as (
                update scim_users set membership_id = null, joined_at = null, email = null
                where org_id = %(org_id)s and user_id = %(user_id)s),
            ended as (
                update service_accounts set ends_at = least(ends_at, %(created_at)s)
                where org_id = %(org_id)s and owner_id = %(user_id)s and ends_at is not null)
            update organizations o set member_count = member_count + 1, members_changed_at = %(created_at)s
            from added where o.id = added.org_id"""
        await self._run(sql, **STORED.values(membership), promoted_by=promoted_by)

    async def set_role(self, org_id: UUID, user_id: UUID, role: RoleName, *, promoted_by: UUID | None = None) -> None:
        sql = """
            update memberships set role = %(role)s, promoted_by = %(promoted_by)s
            where org_id = %(org_id)s and user_id = %(user_id)s"""
        await self._run(sql, org_id=org_id, user_id=user_id, role=role, promoted_by=promoted_by)

    async def undo_promotions(self, org_id: UUID, account_id: UUID) -> list[tuple[UUID, RoleName]]:
        # Only roles above member have `promoted_by`. A service account makes no owners. The
        # condition keeps the owner if a later release has a bug.
        sql = """
            with promoted as materialized (
                select id, user_id, role from memberships
                where org_id = %(org_id)s and promoted_by = %(account_id)s and role <> 'owner'
                order by user_id for no key update)
            update memberships m set role = 'member', promoted_by = null from promoted p
            where m.id = p.id returning p.user_id, p.role"""
        return await self._all(lambda row: (row[0], row[1]), sql, org_id=org_id, account_id=account_id)

    async def remove(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        # The directory forgets the user, and cannot restore them.
        sql = f"""
            with leaving as (
                delete from memberships where org_id = %(org_id)s and user_id = %(user_id)s returning *),
            remembered as ({REMEMBER}),
            forgotten as (
                delete from scim_users where org_id = %(org_id)s and user_id = %(user_id)s)
            update organizations o set member_count = member_count - 1, members_changed_at = %(now)s
            from leaving where o.id = leaving.org_id"""
        await self._run(sql, org_id=org_id, user_id=user_id, now=now)

    async def confirm(self, org_id: UUID, user_id: UUID, now: datetime) -> None:
        await self._run(CONFIRM + "%(org_id)s", org_id=org_id, user_id=user_id, now=now)
