"""Personal access tokens, and the sessions that back them."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.authentication.live_sessions import ACCOUNT_IS_USABLE, SESSION_NOT_ENDED
from adapters.postgres.engine.statements import Repository, Row
from core.authentication.model.personal_tokens import MemberPersonalToken, PersonalToken, PersonalTokenRecord
from core.kernel.api_scopes import ApiScope
from core.kernel.callers import MembershipState, OrganizationStatus, PersonalTokenContext, SessionContext
from core.kernel.causes import Caller
from core.kernel.roles import Role
from core.kernel.values import Email, Page, PageResult

# In the order in which `to_personal_token` reads them. The aliases are those of `live_sessions`.
COLUMNS: Final = """
    t.session_id, s.user_id, t.name, t.prefix, t.scopes, t.org_id, o.slug, o.name, t.created_at, t.expires_at, t.last_used_at"""
COLUMN_COUNT: Final = 11
LIVE: Final = f"{SESSION_NOT_ENDED} and {ACCOUNT_IS_USABLE}"
TABLES: Final = """
    personal_tokens t join sessions s on s.id = t.session_id join users u on u.id = s.user_id
    left join organizations o on o.id = t.org_id"""
IN_ORGANIZATION: Final = f"{TABLES} where t.org_id = %(org_id)s and {LIVE}"


def to_personal_token(row: Row) -> PersonalToken:
    return PersonalToken(
        id=row[0],
        user_id=row[1],
        name=row[2],
        prefix=row[3],
        scopes=tuple(ApiScope(name) for name in row[4]),
        org_id=row[5],
        org_slug=row[6],
        org_name=row[7],
        created_at=row[8],
        expires_at=row[9],
        last_used_at=row[10],
    )


def to_member_token(row: Row) -> MemberPersonalToken:
    return MemberPersonalToken(to_personal_token(row), Email(row[COLUMN_COUNT]), row[COLUMN_COUNT + 1])


def to_record(row: Row) -> PersonalTokenRecord:
    token_id, prefix, scopes, org_id, token_hash, last_used_at, user_id, email, verified_at, is_platform_owner = row[:10]
    id_, slug, status, role, confirmed, is_allowed = row[10:]
    acts_in = None
    if id_ is not None:
        acts_in = MembershipState(id_, slug, OrganizationStatus(status), None if role is None else Role(role), confirmed)
    return PersonalTokenRecord(
        token=PersonalTokenContext(token_id, prefix, frozenset(ApiScope(scope) for scope in scopes), org_id),
        token_hash=token_hash,
        last_used_at=last_used_at,
        session=SessionContext(user_id, Email(email), verified_at, is_platform_owner, organization=None, acts_in=acts_in),
        is_allowed=bool(is_allowed),
    )


class PersonalTokens(Repository):
    """Implements `ports.storage.authentication.PersonalTokens` and `PersonalTokenUse`."""

    async def load_record(self, token_hash: bytes, slug: str | None, now: datetime) -> PersonalTokenRecord | None:
        return await self._one(
            to_record,
            f"""
            select t.session_id, t.prefix, t.scopes, t.org_id, t.token_hash, t.last_used_at,
                   u.id, u.email, u.email_verified_at, u.is_platform_owner,
                   a.id, a.slug, a.status, m.role, m.confirmed_at is not null, a.personal_tokens
            from personal_tokens t join sessions s on s.id = t.session_id join users u on u.id = s.user_id
            left join organizations a on a.slug = %(slug)s
            left join memberships m on m.org_id = a.id and m.user_id = u.id
            where t.token_hash = %(token_hash)s and {LIVE}""",
            token_hash=token_hash,
            slug=slug,
            now=now,
        )

    async def of_user(self, user_id: UUID, now: datetime) -> list[PersonalToken]:
        return await self._all(
            to_personal_token,
            f"select {COLUMNS} from {TABLES} where s.user_id = %(user_id)s and {LIVE} order by t.created_at desc, t.session_id desc",
            user_id=user_id,
            now=now,
        )

    async def page(self, org_id: UUID, page: Page, now: datetime) -> PageResult[MemberPersonalToken]:
        # The outer join returns one row with the total if the page is empty.
        rows = await self._all(
            lambda row: row,
            f"""
            select counted.total, p.*
            from (select count(*) as total from {IN_ORGANIZATION}) counted
            left join (select {COLUMNS}, u.email, u.name from {IN_ORGANIZATION}
                       order by t.created_at desc, t.session_id desc limit %(limit)s offset %(offset)s)
                as p (id, user_id, token_name, prefix, scopes, org_id, slug, org_name, created_at, expires_at, last_used_at, email, name)
                on true
            order by p.created_at desc, p.id desc""",
            org_id=org_id,
            now=now,
            limit=page.limit,
            offset=page.offset,
        )
        return PageResult([to_member_token(row[1:]) for row in rows if row[1] is not None], rows[0][0])

    async def count_live(self, user_id: UUID, now: datetime) -> int:
        count = await self._one(
            lambda row: int(row[0]),
            f"select count(*) from sessions s where s.user_id = %(user_id)s and s.personal_token and {SESSION_NOT_ENDED}",
            user_id=user_id,
            now=now,
        )
        return count or 0

    async def add(self, token: PersonalToken, token_hash: bytes, caller: Caller) -> None:
        await self._run(
            """
            with begun as (
                insert into sessions (id, user_id, org_id, created_at, expires_at, ends_at, address, agent, personal_token)
                values (%(id)s, %(user_id)s, %(org_id)s, %(created_at)s, %(expires_at)s, %(expires_at)s, %(address)s, %(agent)s, true)
                returning id)
            insert into personal_tokens (session_id, org_id, token_hash, name, prefix, scopes, created_at, expires_at)
            select id, %(org_id)s, %(token_hash)s, %(name)s, %(prefix)s, %(scopes)s, %(created_at)s, %(expires_at)s from begun""",
            id=token.id,
            user_id=token.user_id,
            org_id=token.org_id,
            created_at=token.created_at,
            expires_at=token.expires_at,
            address=caller.address,
            agent=caller.agent,
            token_hash=token_hash,
            name=token.name,
            prefix=token.prefix,
            scopes=[scope.value for scope in token.scopes],
        )

    async def user_in_organization(self, org_id: UUID, token_id: UUID, now: datetime) -> UUID | None:
        return await self._one(
            lambda row: row[0],
            f"select s.user_id from {IN_ORGANIZATION} and t.session_id = %(token_id)s",
            org_id=org_id,
            token_id=token_id,
            now=now,
        )

    async def end(self, user_id: UUID, token_id: UUID, now: datetime) -> PersonalToken | None:
        return await self._one(
            to_personal_token,
            f"""
            with ended as (
                update sessions s set ended_at = %(now)s
                where s.id = %(token_id)s and s.user_id = %(user_id)s and s.personal_token and {SESSION_NOT_ENDED}
                returning s.id, s.user_id)
            select {COLUMNS} from ended s join personal_tokens t on t.session_id = s.id left join organizations o on o.id = t.org_id""",
            user_id=user_id,
            token_id=token_id,
            now=now,
        )

    async def record_use(self, token_id: UUID, now: datetime, before: datetime) -> None:
        await self._run(
            """
            update personal_tokens set last_used_at = %(now)s
            where session_id = %(token_id)s and (last_used_at is null or last_used_at <= %(before)s)""",
            token_id=token_id,
            now=now,
            before=before,
        )
