"""Personal access tokens, and the sessions that back them."""

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT_IS_USABLE
from adapters.postgres.authentication import session_contexts
from adapters.postgres.authentication.session_contexts import SESSION_NOT_ENDED
from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Record
from core.authentication.model import tokens
from core.kernel import callers, values
from core.kernel.api_scopes import ApiScope
from core.kernel.causes import Caller

PERSONAL_TOKEN: Final = Record(
    tokens.PersonalToken,
    "t",
    id="t.session_id",
    user_id="s.user_id",
    scopes=lambda names: tuple(map(ApiScope, names)),
    org_slug="o.slug",
    org_name="o.name",
)
PERSONAL_TOKEN_RECORD: Final = Record(
    tokens.PersonalTokenRecord,
    "t",
    token=Record(callers.PersonalTokenContext, "t", id="t.session_id", scopes=lambda names: frozenset(map(ApiScope, names))).as_field(),
    session=session_contexts.session_context(
        organization="null", acts_in=session_contexts.MEMBERSHIP.as_field(if_any="id"), impersonator_id=None, sign_in=None
    ).as_field(),
    is_allowed="coalesce(a.personal_tokens, false)",
)
LIVE: Final = f"{SESSION_NOT_ENDED} and {ACCOUNT_IS_USABLE}"
TABLES: Final = """
    personal_tokens t join sessions s on s.id = t.session_id join users u on u.id = s.user_id
    left join organizations o on o.id = t.org_id"""
IN_ORGANIZATION: Final = f"{TABLES} where t.org_id = %(org_id)s and {LIVE}"


def to_member_token(row: statements.Row) -> tokens.MemberPersonalToken:
    return tokens.MemberPersonalToken(PERSONAL_TOKEN.read(row), values.Email(row[PERSONAL_TOKEN.width]), row[PERSONAL_TOKEN.width + 1])


class PersonalTokens(statements.Repository):
    """Implements `ports.storage.authentication.credentials.PersonalTokens` and `PersonalTokenUse`."""

    async def load_record(self, token_hash: bytes, slug: str | None, now: datetime) -> tokens.PersonalTokenRecord | None:
        sql = f"""
            select {PERSONAL_TOKEN_RECORD.columns}
            from personal_tokens t join sessions s on s.id = t.session_id join users u on u.id = s.user_id
            left join organizations a on a.slug = %(slug)s
            left join memberships am on am.org_id = a.id and am.user_id = u.id
            where t.token_hash = %(token_hash)s and {LIVE}"""
        return await self._one(PERSONAL_TOKEN_RECORD.read, sql, token_hash=token_hash, slug=slug, now=now)

    async def of_user(self, user_id: UUID, now: datetime) -> list[tokens.PersonalToken]:
        sql = f"""
            select {PERSONAL_TOKEN.columns} from {TABLES}
            where s.user_id = %(user_id)s and {LIVE} order by t.created_at desc, t.session_id desc"""
        return await self._all(PERSONAL_TOKEN.read, sql, user_id=user_id, now=now)

    async def page(self, org_id: UUID, page: values.Page, now: datetime) -> values.PageResult[tokens.MemberPersonalToken]:
        columns: LiteralString = f"{PERSONAL_TOKEN.columns}, u.email, u.name"
        newest: LiteralString = "t.created_at desc, t.session_id desc"
        return await self._counted_page(to_member_token, columns, f"from {IN_ORGANIZATION}", newest, page, org_id=org_id, now=now)

    async def count_live(self, user_id: UUID, now: datetime) -> int:
        sql = f"select count(*) from sessions s where s.user_id = %(user_id)s and s.personal_token and {SESSION_NOT_ENDED}"
        return await self._count(sql, user_id=user_id, now=now)

    async def add(self, token: tokens.PersonalToken, token_hash: bytes, caller: Caller) -> None:
        sql = """
            with begun as (
                insert into sessions (id, user_id, org_id, created_at, expires_at, ends_at, address, agent, personal_token, proofs,
                                      strength, restricted_to, risk_is_high)
                select %(session_id)s, %(user_id)s, %(org_id)s, %(created_at)s, %(expires_at)s, %(expires_at)s, %(address)s, %(agent)s,
                       true, s.proofs, s.strength, s.restricted_to, coalesce(s.risk_is_high, false)
                from (select) as token left join sessions s on s.id = %(of_session)s and s.user_id = %(user_id)s
                returning id)
            insert into personal_tokens (session_id, org_id, token_hash, name, prefix, scopes, created_at, expires_at)
            select id, %(org_id)s, %(token_hash)s, %(name)s, %(prefix)s, %(scopes)s, %(created_at)s, %(expires_at)s from begun"""
        await self._run(
            sql,
            **PERSONAL_TOKEN.values(token),
            user_id=token.user_id,
            of_session=caller.session_id if isinstance(caller, callers.Person) else None,
            address=caller.address,
            agent=caller.agent,
            token_hash=token_hash,
        )

    async def user_in_organization(self, org_id: UUID, token_id: UUID, now: datetime) -> UUID | None:
        sql = f"select s.user_id from {IN_ORGANIZATION} and t.session_id = %(token_id)s"
        return await self._one(lambda row: row[0], sql, org_id=org_id, token_id=token_id, now=now)

    async def end(self, user_id: UUID, token_id: UUID, now: datetime) -> tokens.PersonalToken | None:
        sql = f"""
            with ended as (
                update sessions s set ended_at = %(now)s
                where s.id = %(token_id)s and s.user_id = %(user_id)s and s.personal_token and {SESSION_NOT_ENDED}
                returning s.id, s.user_id)
            select {PERSONAL_TOKEN.columns}
            from ended s join personal_tokens t on t.session_id = s.id left join organizations o on o.id = t.org_id"""
        return await self._one(PERSONAL_TOKEN.read, sql, user_id=user_id, token_id=token_id, now=now)

    async def record_use(self, token_id: UUID, now: datetime, before: datetime) -> None:
        sql = """
            update personal_tokens set last_used_at = %(now)s
            where session_id = %(token_id)s and (last_used_at is null or last_used_at <= %(before)s)"""
        await self._run(sql, token_id=token_id, now=now, before=before)
