"""The facts that authorize a request: a live session or impersonation, and the user, organization or service around it.

The aliases are `s` for the session, `u` for its user, `i` for its impersonator, and `p` for the session in which the
impersonator started it. `%(now)s` is the time. A statement that needs only some conditions says why.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Final
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT_IS_USABLE, HAS_SECOND_FACTOR, OWN_PROFILE
from adapters.postgres.applications.services import CONTEXT
from adapters.postgres.authentication import openid
from adapters.postgres.authentication.openid import grant_columns, user_facts_sql
from adapters.postgres.authentication.policy_passes import STATE
from adapters.postgres.authentication.sign_in_proofs import SECOND_AT, STRENGTH, proof_columns
from adapters.postgres.engine import records, statements
from adapters.postgres.kernel.roles import rights_columns
from core.accounts.model.profiles import OwnProfile
from core.authentication.model.openid import OpenIdGrant, UserFacts
from core.kernel import callers
from core.kernel.access import OrganizationNotFound
from core.kernel.proofs import Strength
from core.kernel.sign_in_age import LastSignIn
from core.kernel.values import Email

SESSION_NOT_ENDED: Final = "s.ended_at is null and s.expires_at > %(now)s"
IMPERSONATOR_JOIN: Final = """
    left join (users i join sessions p on p.user_id = i.id) on p.id = s.impersonator_session_id and i.id = s.impersonator_id"""
# An impersonation lives only while the impersonator is a platform owner and the session in which
# they started it is live (security I-3). This condition needs IMPERSONATOR_JOIN.
MAY_IMPERSONATE: Final = """
    (s.impersonator_id is null
     or i.is_platform_owner and i.deactivated_at is null and i.anonymized_at is null and not u.is_platform_owner
        and p.ended_at is null and p.expires_at > %(now)s)"""
SESSION_IS_LIVE: Final = f"{SESSION_NOT_ENDED} and {ACCOUNT_IS_USABLE} and {MAY_IMPERSONATE}"


# Every request reads two strengths, and calling the enumeration takes longer.
STRENGTHS: Final = tuple(Strength).__getitem__
# A restricted session gives only what its organization gives anyway, so the account's second factor is not asked for.
ASKS_SECOND: Final = f"{HAS_SECOND_FACTOR} and s.restricted_to is null"
# A sign-in at an identity provider counts as the user's own only if the provider asked them, or if the account has no password. The sign-in
# that approved a device code may have been another person's idea.
SIGN_IN: Final = records.Record(
    LastSignIn,
    "s",
    at="case when s.impersonator_id is null then coalesce(s.authenticated_at, s.created_at) end",
    is_proof="""
        (coalesce(s.fresh, true) or u.password_hash is null)
        and (s.grant_type is distinct from 'device_code' or coalesce(s.authenticated_at > s.created_at, false))""",
    strength=records.Column(sql=f"case when s.mfa_missing then 1 else {STRENGTH} end", read=STRENGTHS),
    required=records.Column(sql=f"case when {ASKS_SECOND} then 2 else 1 end", read=STRENGTHS),
    second_at=f"case when {ASKS_SECOND} then {SECOND_AT} end",
)
# An owner who needs a recovery has no power over the platform: the mailbox alone may have signed in (security A-13).
IS_OWNER: Final = "u.is_platform_owner and u.recovery_required_at is null"
ORGANIZATION: Final = records.Record(
    callers.OrganizationContext,
    "o",
    status=callers.OrganizationStatus,
    role="m.role",
    rights=rights_columns("m", "o"),
)
MEMBERSHIP: Final = records.Record(
    callers.MembershipState,
    "a",
    status=callers.OrganizationStatus,
    role="am.role",
    rights=rights_columns("am", "a"),
    confirmed="am.confirmed_at is not null",
    policy=STATE,
)


def session_context(**further: records.Description) -> records.Record[callers.SessionContext]:
    """Return the record for a session `s` and its user `u`. The fields `further` differ by session kind."""
    own: dict[str, records.Description] = {
        "user_id": "u.id",
        "email": Email,
        "impersonator_id": "s.impersonator_id",
        "is_platform_owner": IS_OWNER,
        "restricted_to": "s.restricted_to",
    }
    others = dict.fromkeys(("organization", "acts_in", "service", "uses_service", "mfa_missing", "impersonated_in", "time_zone"))
    return records.Record(callers.SessionContext, "u", **{**others, **own, "sign_in": SIGN_IN.as_field(if_any="at"), **further})


OF_USER: Final[Mapping[str, records.Description]] = {
    "organization": ORGANIZATION.as_field(if_any="id"),
    "mfa_missing": f"s.mfa_missing and {HAS_SECOND_FACTOR}",
    "impersonated_in": "s.impersonated_in",
}
SESSION_CONTEXT: Final = session_context(**OF_USER)
BROWSER_CONTEXT: Final = session_context(**OF_USER, time_zone="u.zoneinfo")
SESSION_CONTEXT_IN: Final = session_context(**OF_USER, acts_in=MEMBERSHIP.as_field(if_any="id"))
APPLICATION_SESSION: Final = session_context(organization="null", uses_service="r.user_id is not null", service=CONTEXT.as_field())
SESSION_JOINS: Final = f"""
    from sessions s
    join users u on u.id = s.user_id
    {IMPERSONATOR_JOIN}
    left join (organizations o join memberships m on m.org_id = o.id) on o.id = %(org_id)s and m.user_id = u.id"""
IS_LIVE_SESSION_OF_TOKEN: Final = f"""
    where s.id = %(session_id)s and s.user_id = %(user_id)s and {SESSION_IS_LIVE}"""
# A token without a service is valid only for a session without a service.
NOT_OF_SERVICE: Final = " and s.service_id is null"
LOAD_SESSION_CONTEXT: Final = f"select {SESSION_CONTEXT.columns} {SESSION_JOINS} {IS_LIVE_SESSION_OF_TOKEN} {NOT_OF_SERVICE}"
LOAD_SESSION_CONTEXT_IN: Final = f"""
    select {SESSION_CONTEXT_IN.columns} {SESSION_JOINS}
    left join organizations a on a.slug = %(slug)s
    left join memberships am on am.org_id = a.id and am.user_id = u.id
    {IS_LIVE_SESSION_OF_TOKEN} {NOT_OF_SERVICE}"""
LOAD_WITH_PROFILE: Final = f"""
    select {SESSION_CONTEXT.columns}, {OWN_PROFILE.columns} {SESSION_JOINS} {IS_LIVE_SESSION_OF_TOKEN} {NOT_OF_SERVICE}"""
# The session must belong to the service in the token's audience, and the service must exist.
APPLICATION_SESSION_TABLES: Final = f"""
    from sessions s
    join users u on u.id = s.user_id
    join (services v join organizations vo on vo.id = v.org_id) on v.id = s.service_id and v.client_id = %(client_id)s
    {IMPERSONATOR_JOIN}
    left join service_users r on r.service_id = v.id and r.user_id = u.id"""
APPLICATION_SESSION_JOINS: Final = APPLICATION_SESSION_TABLES + IS_LIVE_SESSION_OF_TOKEN
LOAD_APPLICATION_SESSION: Final = f"select {APPLICATION_SESSION.columns} {APPLICATION_SESSION_JOINS}"
LOAD_APPLICATION_SESSION_WITH_PROFILE: Final = f"select {APPLICATION_SESSION.columns}, {OWN_PROFILE.columns} {APPLICATION_SESSION_JOINS}"
# Only OpenID Connect sessions.
USERINFO: Final = f"{grant_columns('s')}, f.*"
FACTS: Final = f"join lateral ({user_facts_sql('s.user_id', 's.service_id')}) f on s.scope is not null"
LOAD_USERINFO: Final = f"""
    select {SESSION_CONTEXT.columns}, null, {USERINFO} {SESSION_JOINS} {FACTS} {IS_LIVE_SESSION_OF_TOKEN} {NOT_OF_SERVICE}"""
LOAD_USERINFO_OF_SERVICE: Final = f"""
    select {APPLICATION_SESSION.columns}, v.pkce_without_secret, {USERINFO}
    {APPLICATION_SESSION_TABLES} {FACTS} {IS_LIVE_SESSION_OF_TOKEN}"""
BROWSER_SESSION: Final = records.Record(callers.BrowserSession, "s", proofs=proof_columns("s"))
# The cookie's hash is the only key. No impersonation has a browser session.
LOAD_BROWSER_SESSION: Final = f"""
    select {BROWSER_CONTEXT.columns}, {BROWSER_SESSION.columns} {SESSION_JOINS}
    where s.browser_hash = %(browser_hash)s and {SESSION_NOT_ENDED}
      and {ACCOUNT_IS_USABLE} and s.impersonator_id is null {NOT_OF_SERVICE}"""


class SessionContexts(statements.Repository):
    """Implements `ports.storage.authentication.sessions.SessionContextsRead`."""

    async def load(self, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime) -> callers.SessionContext | None:
        return await self._one(SESSION_CONTEXT.read, LOAD_SESSION_CONTEXT, session_id=session_id, user_id=user_id, org_id=org_id, now=now)

    async def load_in(
        self, slug: str, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime
    ) -> callers.SessionContext | None:
        return await self._one(
            SESSION_CONTEXT_IN.read, LOAD_SESSION_CONTEXT_IN, slug=slug, session_id=session_id, user_id=user_id, org_id=org_id, now=now
        )

    async def load_of_application(self, client_id: UUID, session_id: UUID, user_id: UUID, now: datetime) -> callers.SessionContext | None:
        return await self._one(
            APPLICATION_SESSION.read, LOAD_APPLICATION_SESSION, client_id=client_id, session_id=session_id, user_id=user_id, now=now
        )

    async def load_with_profile(
        self, client_id: UUID | None, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime
    ) -> tuple[callers.SessionContext, OwnProfile] | None:
        record, statement = (
            (SESSION_CONTEXT, LOAD_WITH_PROFILE) if client_id is None else (APPLICATION_SESSION, LOAD_APPLICATION_SESSION_WITH_PROFILE)
        )
        return await self._one(
            lambda row: (record.read(row), OWN_PROFILE.read(row[record.width :])),
            statement,
            client_id=client_id,
            session_id=session_id,
            user_id=user_id,
            org_id=org_id,
            now=now,
        )

    async def load_userinfo(
        self, client_id: UUID | None, session_id: UUID, user_id: UUID, now: datetime
    ) -> tuple[callers.SessionContext, OpenIdGrant, UserFacts, bool] | None:
        record, statement = (SESSION_CONTEXT, LOAD_USERINFO) if client_id is None else (APPLICATION_SESSION, LOAD_USERINFO_OF_SERVICE)

        def to_userinfo(row: statements.Row) -> tuple[callers.SessionContext, OpenIdGrant, UserFacts, bool]:
            context, pkce_without_secret, further = record.read(row), row[record.width], row[record.width + 1 :]
            grant = openid.to_grant(further)
            assert grant is not None, "the statement selects only sessions with a grant"
            authenticates = context.service is not None and not context.service.is_public and not pkce_without_secret
            return context, grant, openid.USER_FACTS.read(further[openid.GRANT_WIDTH :]), authenticates

        return await self._one(to_userinfo, statement, client_id=client_id, session_id=session_id, user_id=user_id, org_id=None, now=now)

    async def load_of_browser(self, browser_hash: bytes, now: datetime) -> tuple[callers.BrowserSession, callers.SessionContext] | None:
        return await self._one(
            lambda row: (BROWSER_SESSION.read(row[BROWSER_CONTEXT.width :]), BROWSER_CONTEXT.read(row)),
            LOAD_BROWSER_SESSION,
            browser_hash=browser_hash,
            org_id=None,
            now=now,
        )


LOAD_IMPERSONATION: Final = f"""
    select {SESSION_CONTEXT.columns}, s.id {SESSION_JOINS}
    where s.impersonator_session_id = %(session_id)s and {SESSION_IS_LIVE} {NOT_OF_SERVICE}
    order by s.created_at desc, s.id desc limit 1"""


class Impersonations(statements.Repository):
    """Implements `ports.storage.authentication.sessions.Impersonations`."""

    constraints: ClassVar = {"impersonated_organizations_org_id_fkey": OrganizationNotFound}

    async def load(self, session_id: UUID, now: datetime) -> tuple[UUID, callers.SessionContext] | None:
        return await self._one(
            lambda row: (row[SESSION_CONTEXT.width], SESSION_CONTEXT.read(row)),
            LOAD_IMPERSONATION,
            session_id=session_id,
            org_id=None,
            now=now,
        )

    async def started_in(self, session_id: UUID) -> UUID | None:
        sql = "select impersonator_session_id from sessions where id = %(session_id)s"
        return await self._one(lambda row: row[0], sql, session_id=session_id)

    async def begin_in(self, session_id: UUID, org_id: UUID) -> datetime | None:
        sql = """
            with begun as (
                insert into impersonated_organizations (session_id, org_id) values (%(session_id)s, %(org_id)s)
                on conflict do nothing returning session_id)
            select s.ends_at from begun join sessions s on s.id = begun.session_id"""
        return await self._one(lambda row: row[0], sql, session_id=session_id, org_id=org_id)

    async def end(self, user_id: UUID, now: datetime) -> None:
        sql = """
            update sessions set ended_at = %(now)s
            where (impersonator_id = %(user_id)s or user_id = %(user_id)s and impersonator_id is not null) and ended_at is null"""
        await self._run(sql, user_id=user_id, now=now)
