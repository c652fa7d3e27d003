"""Storage of sessions and refresh tokens.

The module is longer than 400 lines because one class implements the port. The conditions of a live session are in `live_sessions`.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import OWN_PROFILE, to_own_profile
from adapters.postgres.applications.service_access import may_use
from adapters.postgres.applications.services import CONTEXT, CONTEXT_WIDTH, to_context
from adapters.postgres.authentication.live_sessions import (
    ACCOUNT_IS_USABLE,
    IMPERSONATOR_JOIN,
    MAY_IMPERSONATE,
    SESSION_IS_LIVE,
    SESSION_NOT_ENDED,
)
from adapters.postgres.authentication.openid import (
    GRANT_WIDTH,
    USER_FACTS,
    grant_columns,
    grant_parameters,
    resource_facts,
    resource_is_usable,
    stored_grant,
    to_grant,
    to_scope,
    to_user_facts,
    user_facts_sql,
)
from adapters.postgres.billing.subscriptions import ENTITLEMENT_WIDTH, entitlement, to_entitlement
from adapters.postgres.engine.statements import DeferredRow, Repository, Row
from core.accounts.model.profiles import OwnProfile
from core.authentication.model.openid import NO_GRANT, Authentication, OpenIdGrant, UserFacts
from core.authentication.model.reauthentication import Reauthentication
from core.authentication.model.sessions import (
    NO_ENTITLEMENT,
    UNNAMED_PRESENTER,
    IntrospectedSession,
    LiveSession,
    LiveSessions,
    Presenter,
    RefreshTokenState,
    RotatedSession,
    Session,
)
from core.kernel.access import OrganizationNotFound
from core.kernel.callers import BrowserSession, MembershipState, OrganizationContext, OrganizationStatus, Person, SessionContext
from core.kernel.errors import SessionEnded
from core.kernel.roles import Role
from core.kernel.sign_in_age import SignInFacts
from core.kernel.values import Email, PageResult

# The columns of `to_sign_in`. A sign-in at an identity provider counts as one of the user only if the provider asked them, or if
# the account has no password. The sign-in that approved a device code may have been another person's idea.
SIGN_IN: Final = """
    case when s.impersonator_id is null then coalesce(s.authenticated_at, s.created_at) end,
    (coalesce(s.fresh, true) or u.password_hash is null)
        and (s.grant_type is distinct from 'device_code' or coalesce(s.authenticated_at > s.created_at, false)),
    coalesce(s.second_factor, false) and not s.mfa_missing,
    u.mfa_enabled_at is not null"""
SIGN_IN_WIDTH: Final = 4
SESSION_CONTEXT: Final = f"""
    select u.id, u.email, u.email_verified_at, u.is_platform_owner, s.impersonator_id, o.id, o.slug, o.status, m.role,
           s.mfa_missing and u.mfa_enabled_at is not null, s.impersonated_in, {SIGN_IN}"""
SESSION_CONTEXT_WIDTH: Final = 11 + SIGN_IN_WIDTH
SESSION_JOINS: Final = f"""
    from sessions s
    join users u on u.id = s.user_id
    {IMPERSONATOR_JOIN}
    left join (organizations o join memberships m on m.org_id = o.id) on o.id = %(org_id)s and m.user_id = u.id"""
IS_LIVE_SESSION_OF_TOKEN: Final = f"""
    where s.id = %(session_id)s and s.user_id = %(user_id)s and {SESSION_IS_LIVE}"""
# A token without a service is valid only for a session without a service.
NOT_OF_SERVICE: Final = " and s.service_id is null"
# Lists and counts of sessions leave out those that back personal access tokens, which have their own list.
NOT_OF_PERSONAL_TOKEN: Final = "not s.personal_token"  # noqa: S105  (a condition)
LOAD_SESSION_CONTEXT_IN: Final = f"""
    {SESSION_CONTEXT}, a.id, a.slug, a.status, am.role, am.confirmed_at is not null {SESSION_JOINS}
    left join organizations a on a.slug = %(slug)s
    left join memberships am on am.org_id = a.id and am.user_id = u.id
    {IS_LIVE_SESSION_OF_TOKEN} {NOT_OF_SERVICE}"""
LOAD_WITH_PROFILE: Final = f"{SESSION_CONTEXT}, {OWN_PROFILE} {SESSION_JOINS} {IS_LIVE_SESSION_OF_TOKEN} {NOT_OF_SERVICE}"
# The session must be of the service in the token's audience, and the service must exist.
APPLICATION_SESSION_CONTEXT: Final = f"""
    select u.id, u.email, u.email_verified_at, u.is_platform_owner, s.impersonator_id, r.user_id is not null, {SIGN_IN}, {CONTEXT}"""
APPLICATION_SESSION_WIDTH: Final = 6 + SIGN_IN_WIDTH + CONTEXT_WIDTH
APPLICATION_SESSION_TABLES: Final = f"""
    from sessions s
    join users u on u.id = s.user_id
    join (services v join organizations vo on vo.id = v.org_id) on v.id = s.service_id and v.client_id = %(client_id)s
    {IMPERSONATOR_JOIN}
    left join service_users r on r.service_id = v.id and r.user_id = u.id"""
APPLICATION_SESSION_JOINS: Final = APPLICATION_SESSION_TABLES + IS_LIVE_SESSION_OF_TOKEN
LOAD_APPLICATION_SESSION: Final = APPLICATION_SESSION_CONTEXT + APPLICATION_SESSION_JOINS
LOAD_APPLICATION_SESSION_WITH_PROFILE: Final = f"{APPLICATION_SESSION_CONTEXT}, {OWN_PROFILE} {APPLICATION_SESSION_JOINS}"

# Only sessions of OpenID Connect.
USERINFO: Final = f"{grant_columns('s')}, f.*"
FACTS: Final = f"join lateral ({user_facts_sql('s.user_id', 's.service_id')}) f on s.scope is not null"
LOAD_USERINFO: Final = f"{SESSION_CONTEXT}, null, {USERINFO} {SESSION_JOINS} {FACTS} {IS_LIVE_SESSION_OF_TOKEN} {NOT_OF_SERVICE}"
LOAD_USERINFO_OF_SERVICE: Final = (
    f"{APPLICATION_SESSION_CONTEXT}, v.pkce_without_secret, {USERINFO} {APPLICATION_SESSION_TABLES} {FACTS} {IS_LIVE_SESSION_OF_TOKEN}"
)

# SESSION_IS_LIVE with one exception: a session that this transaction itself has ended still counts
# as live, for example if users end all their sessions in an organization.
REQUIRE_LIVE: Final = f"""
    select raise_unless(exists (
        select 1
        from sessions s
        join users u on u.id = s.user_id
        {IMPERSONATOR_JOIN}
        where s.id = %(session_id)s and s.user_id = %(user_id)s and s.expires_at > %(now)s
          and (s.ended_at is null or s.xmin = pg_current_xact_id()::xid)
          and {ACCOUNT_IS_USABLE} and {MAY_IMPERSONATE}
        for share of s), 'session_is_live')"""

# The sessions that selected the organization, and those of its services. Sessions of deleted
# services are not live. ACCOUNT_IS_USABLE and MAY_IMPERSONATE are missing, because these sessions
# are only ended and counted.
LIVES_IN_ORGANIZATION: Final = f"""
    s.org_id = %(org_id)s and {SESSION_NOT_ENDED}
    and (s.service_id is null or exists (select 1 from services v where v.id = s.service_id))"""

# Deny the approved device codes `d` of the sessions `a` that approved them. Callers add further
# conditions.
DENY: Final = """
    update device_codes d set status = 'denied', session_id = null from sessions a where d.status = 'approved' and a.id = d.session_id"""

# Whether the presenter may use the token. A named presenter must be the application of the session.
# A token that an authorization code gave to a confidential application needs the client secret.
PRESENTER_MAY_USE: Final = """
    ((not %(is_named)s or s.service_id is not distinct from %(named_service_id)s)
     and (s.grant_type is distinct from 'authorization_code' or %(is_authenticated)s
          or not exists (select 1 from services c where c.id = s.service_id and c.client_secret_hash is not null)))"""

# Whether the session has the second factor that its service may require.
HAS_REQUIRED_FACTOR: Final = "(v.required_acr is null or coalesce(s.second_factor, false))"
# The rule of `core.authentication.service_access`, in a statement that rotates a token.
MAY_USE_SERVICE: Final = f"""
    exists (select 1 from services v join service_users r on r.service_id = v.id
            where v.id = s.service_id and r.user_id = s.user_id and {may_use("v", "r.user_id")} and {HAS_REQUIRED_FACTOR})"""

# Whether the presenter of a refresh token has the key that the token is bound to, and any key if the
# service demands one (RFC 9449 section 5).
PRESENTER_HAS_KEY: Final = """
    ((s.key_thumbprint is null or s.key_thumbprint = %(key_thumbprint)s::text)
     and (%(key_thumbprint)s::text is not null
          or not exists (select 1 from services b where b.id = s.service_id and b.dpop_bound_access_tokens)))"""

# Whether the refresh token of the session stays the same. If a service has bound tokens only, its
# refresh tokens are useless without their key or its credentials, so they are not rotated (FAPI 2.0
# section 5.3.2.1). Sessions that are older than the setting may be bound to neither.
IS_NOT_ROTATED: Final = """
    exists (select 1 from services k where k.id = s.service_id and k.dpop_bound_access_tokens
            and (s.key_thumbprint is not null
                 or s.grant_type = 'authorization_code' and k.client_secret_hash is not null and not k.pkce_without_secret))"""

# Facts for an ID token, if the session is one of OpenID Connect and the application wants them there.
FACTS_OF_USER: Final = user_facts_sql("%(user_id)s", "%(service_id)s")

BEGIN: Final = """
    insert into sessions (id, user_id, impersonator_id, impersonator_session_id, impersonated_in, service_id, org_id, device_id,
                          created_at, expires_at, ends_at, address, agent, provider, grant_type, browser_hash, authenticated_at,
                          second_factor, fresh, browser_session_id, key_thumbprint, scope, id_token_claims, userinfo_claims,
                          resource, api_resource_id, api_scope, asked_scope)
    values (%(id)s, %(user_id)s, %(impersonator_id)s, %(impersonator_session_id)s, %(impersonated_in)s, %(service_id)s, %(org_id)s,
            %(device_id)s, %(created_at)s, %(expires_at)s, %(ends_at)s, %(address)s, %(agent)s, %(provider)s, %(grant)s,
            %(browser_hash)s, %(authenticated_at)s, %(second_factor)s, %(is_fresh)s, %(browser_session_id)s,
            %(key_thumbprint)s, %(scope)s::text[], %(id_token_claims)s::text[], %(userinfo_claims)s::text[], %(resource)s,
            %(api_resource_id)s, %(api_scope)s::text[], %(asked_scope)s::text[])"""
START_ROTATION: Final = """
    insert into refresh_tokens (token_hash, session_id, generation, created_at) select %(refresh_hash)s, id, 1, created_at from begun"""
# The hash of the cookie is the only key. No impersonation has a browser session.
LOAD_BROWSER_SESSION: Final = f"""
    {SESSION_CONTEXT}, s.id, s.provider, s.device_id, coalesce(s.authenticated_at, s.created_at), s.second_factor, s.fresh {SESSION_JOINS}
    where s.browser_hash = %(browser_hash)s and {SESSION_NOT_ENDED}
      and {ACCOUNT_IS_USABLE} and s.impersonator_id is null {NOT_OF_SERVICE}"""
LOAD_IMPERSONATION: Final = f"""
    {SESSION_CONTEXT}, s.id {SESSION_JOINS}
    where s.impersonator_session_id = %(session_id)s and {SESSION_IS_LIVE} {NOT_OF_SERVICE}
    order by s.created_at desc, s.id desc limit 1"""
# All sessions that a request could still use. ACCOUNT_IS_USABLE is missing because users list only
# their own sessions, and the account of the caller is usable.
LIST_LIVE_SESSIONS: Final = f"""
    select count(*) over (), s.id, s.created_at, s.expires_at, s.address, s.agent, o.name, v.name, s.impersonator_id is not null,
           s.browser_hash is not null
    from sessions s
    join users u on u.id = s.user_id
    {IMPERSONATOR_JOIN}
    left join organizations o on o.id = s.org_id
    left join services v on v.id = s.service_id
    where s.user_id = %(user_id)s and {SESSION_NOT_ENDED} and {NOT_OF_PERSONAL_TOKEN} and {MAY_IMPERSONATE}
      and (s.service_id is null or v.id is not null)
    order by s.created_at desc, s.id desc limit %(limit)s"""


def to_sign_in(row: Row) -> SignInFacts | None:
    return None if row[0] is None else SignInFacts(*row[:SIGN_IN_WIDTH])


def to_introspected_session(row: Row) -> IntrospectedSession:
    id_, user_id, email, expires_at, scope, api_scope, created_at = row
    shows_email = OpenIdGrant(to_scope(scope)).shows_email
    return IntrospectedSession(id_, user_id, Email(email), expires_at, (*(scope or ()), *(api_scope or ())), shows_email, created_at)


def to_session_context(row: Row) -> SessionContext:
    return SessionContext(
        user_id=row[0],
        email=Email(row[1]),
        email_verified_at=row[2],
        is_platform_owner=row[3],
        impersonator_id=row[4],
        organization=None if row[5] is None else OrganizationContext(row[5], row[6], OrganizationStatus(row[7]), Role(row[8])),
        mfa_missing=row[9],
        impersonated_in=row[10],
        sign_in=to_sign_in(row[11:]),
    )


def to_session_context_in_organization(row: Row) -> SessionContext:
    id_, slug, status, role, confirmed = row[SESSION_CONTEXT_WIDTH:]
    if id_ is None:
        return to_session_context(row)
    acts_in = MembershipState(id_, slug, OrganizationStatus(status), None if role is None else Role(role), confirmed)
    return replace(to_session_context(row), acts_in=acts_in)


def to_application_session_context(row: Row) -> SessionContext:
    return SessionContext(
        user_id=row[0],
        email=Email(row[1]),
        email_verified_at=row[2],
        is_platform_owner=row[3],
        organization=None,
        impersonator_id=row[4],
        uses_service=row[5],
        sign_in=to_sign_in(row[6:]),
        service=to_context(row[6 + SIGN_IN_WIDTH : APPLICATION_SESSION_WIDTH]),
    )


def to_rotated_session(row: Row) -> RotatedSession:
    grant, context = row[11:], row[11 + GRANT_WIDTH :]
    plan, facts = context[CONTEXT_WIDTH:], context[CONTEXT_WIDTH + ENTITLEMENT_WIDTH :]
    return RotatedSession(
        session_id=row[0],
        user_id=row[1],
        email=Email(row[2]),
        email_verified_at=row[3],
        ends_at=row[4],
        impersonator_id=row[5],
        org_id=row[6],
        org_slug=row[7],
        service=None if context[0] is None else to_context(context),
        entitlement=NO_ENTITLEMENT if plan[0] is None else to_entitlement(plan),
        authentication=None if row[5] is not None else Authentication(*row[8:11]),
        openid=to_grant(grant),
        facts=None if facts[0] is None else to_user_facts(facts),
        keeps_refresh_token=row[-1],
    )


def to_refresh_token_state(row: Row) -> RefreshTokenState:
    return RefreshTokenState(
        session_id=row[0],
        rotated_at=row[1],
        is_previous=row[2],
        session_is_live=row[3],
        org_id=row[4],
        organization_status=None if row[5] is None else OrganizationStatus(row[5]),
        role=None if row[6] is None else Role(row[6]),
        service_id=row[7],
        may_use_service=row[8],
        fits=row[9],
        has_key=row[10],
    )


def _presenter_values(presenter: Presenter) -> dict[str, object]:
    return {
        "is_named": presenter.is_named,
        "named_service_id": presenter.service_id,
        "is_authenticated": presenter.is_authenticated,
        "key_thumbprint": None if presenter.key is None else presenter.key.thumbprint,
        "binds_refresh_token": presenter.key is not None and presenter.key.binds_refresh_token,
    }


def session_parameters(session: Session) -> dict[str, object]:
    """Return the parameters of BEGIN, except `browser_hash`."""
    return {
        "id": session.id,
        "user_id": session.user_id,
        "impersonator_id": session.impersonator_id,
        "impersonator_session_id": session.impersonator_session_id,
        "impersonated_in": session.impersonated_in,
        "service_id": session.service.id if session.service else None,
        "org_id": session.service.org_id if session.service else session.org_id,
        "device_id": session.device_id,
        "created_at": session.created_at,
        "expires_at": session.expires_at,
        "ends_at": session.ends_at,
        "address": session.address,
        "agent": session.agent,
        "provider": session.provider,
        "grant": session.grant,
        "authenticated_at": session.authenticated_at,
        "second_factor": session.second_factor,
        "is_fresh": session.is_fresh,
        "browser_session_id": session.browser_session_id,
        "key_thumbprint": session.key_thumbprint,
        **grant_parameters(session.openid),
    }


class Sessions(Repository):
    """Implements `ports.storage.authentication.Sessions` and `RefreshTokenRotation`."""

    constraints: ClassVar = {"impersonated_organizations_org_id_fkey": OrganizationNotFound, "session_is_live": SessionEnded}

    async def load_session_context(self, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime) -> SessionContext | None:
        return await self._one(
            to_session_context,
            SESSION_CONTEXT + SESSION_JOINS + IS_LIVE_SESSION_OF_TOKEN + NOT_OF_SERVICE,
            session_id=session_id,
            user_id=user_id,
            org_id=org_id,
            now=now,
        )

    async def load_session_context_in(
        self, slug: str, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime
    ) -> SessionContext | None:
        return await self._one(
            to_session_context_in_organization,
            LOAD_SESSION_CONTEXT_IN,
            slug=slug,
            session_id=session_id,
            user_id=user_id,
            org_id=org_id,
            now=now,
        )

    async def load_application_session_context(
        self, client_id: UUID, session_id: UUID, user_id: UUID, now: datetime
    ) -> SessionContext | None:
        return await self._one(
            to_application_session_context, LOAD_APPLICATION_SESSION, client_id=client_id, session_id=session_id, user_id=user_id, now=now
        )

    async def load_with_profile(
        self, client_id: UUID | None, session_id: UUID, user_id: UUID, org_id: UUID | None, now: datetime
    ) -> tuple[SessionContext, OwnProfile] | None:
        if client_id is None:
            return await self._one(
                lambda row: (to_session_context(row), to_own_profile(row[SESSION_CONTEXT_WIDTH:])),
                LOAD_WITH_PROFILE,
                session_id=session_id,
                user_id=user_id,
                org_id=org_id,
                now=now,
            )
        return await self._one(
            lambda row: (to_application_session_context(row), to_own_profile(row[APPLICATION_SESSION_WIDTH:])),
            LOAD_APPLICATION_SESSION_WITH_PROFILE,
            client_id=client_id,
            session_id=session_id,
            user_id=user_id,
            now=now,
        )

    async def introspect(
        self, service_id: UUID | None, session_id: UUID | None, refresh_hash: bytes, now: datetime, *, api_resource_id: UUID | None = None
    ) -> IntrospectedSession | None:
        of_client: LiteralString = "s.service_id = %(service_id)s" if api_resource_id is None else "s.api_resource_id = %(api_resource_id)s"
        return await self._one(
            to_introspected_session,
            f"""
            select s.id, s.user_id, u.email, s.expires_at, s.scope, ({resource_facts("s", "s.user_id")})[2:], t.created_at
            from sessions s join users u on u.id = s.user_id join organizations o on o.id = s.org_id
            {IMPERSONATOR_JOIN}
            left join refresh_tokens t on t.session_id = s.id and t.token_hash = %(refresh_hash)s
            where s.id = coalesce(%(session_id)s, (
                    select r.session_id from refresh_tokens r where r.token_hash = %(refresh_hash)s and r.rotated_at is null))
              and {of_client} and o.status = 'active' and {SESSION_IS_LIVE} and {MAY_USE_SERVICE}
              and {resource_is_usable("s")}""",
            service_id=service_id,
            api_resource_id=api_resource_id,
            session_id=session_id,
            refresh_hash=refresh_hash,
            now=now,
        )

    async def load_userinfo(
        self, client_id: UUID | None, session_id: UUID, user_id: UUID, now: datetime
    ) -> tuple[SessionContext, OpenIdGrant, UserFacts, bool] | None:
        statement, width = (
            (LOAD_USERINFO, SESSION_CONTEXT_WIDTH) if client_id is None else (LOAD_USERINFO_OF_SERVICE, APPLICATION_SESSION_WIDTH)
        )
        to_context = to_session_context if client_id is None else to_application_session_context

        def to_userinfo(row: Row) -> tuple[SessionContext, OpenIdGrant, UserFacts, bool]:
            context, grant = to_context(row), to_grant(row[width + 1 :])
            assert grant is not None, "the statement selects only sessions with a grant"
            authenticates = context.service is not None and not context.service.is_public and not row[width]
            return context, grant, to_user_facts(row[width + 1 + GRANT_WIDTH :]), authenticates

        return await self._one(to_userinfo, statement, client_id=client_id, session_id=session_id, user_id=user_id, org_id=None, now=now)

    async def grant_of_refresh_token(self, token_hash: bytes) -> OpenIdGrant | None:
        return await self._one(
            lambda row: to_grant(row) or NO_GRANT,
            f"select {grant_columns('s')} from refresh_tokens t join sessions s on s.id = t.session_id where t.token_hash = %(token_hash)s",
            token_hash=token_hash,
        )

    async def load_browser_session(self, browser_hash: bytes, now: datetime) -> tuple[BrowserSession, SessionContext] | None:
        return await self._one(
            lambda row: (BrowserSession(*row[SESSION_CONTEXT_WIDTH:]), to_session_context(row)),
            LOAD_BROWSER_SESSION,
            browser_hash=browser_hash,
            org_id=None,
            now=now,
        )

    async def load_impersonation(self, session_id: UUID, now: datetime) -> tuple[UUID, SessionContext] | None:
        return await self._one(
            lambda row: (row[SESSION_CONTEXT_WIDTH], to_session_context(row)),
            LOAD_IMPERSONATION,
            session_id=session_id,
            org_id=None,
            now=now,
        )

    async def require_live(self, person: Person, now: datetime) -> None:
        """Lock the user's session until the transaction ends. `Storage.transaction` uses this.

        It is sent with the next statement, which raises SessionEnded if the session is not live.
        """
        await self._write(REQUIRE_LIVE, session_id=person.session_id, user_id=person.user_id, now=now)

    async def is_of_browser(self, session_id: UUID, user_id: UUID, client_id: UUID | None, browser_hash: bytes) -> bool:
        return await self._exists(
            """
            select 1 from sessions s
            join sessions b on b.id = s.browser_session_id and b.user_id = s.user_id and b.browser_hash = %(browser_hash)s
            left join services v on v.id = s.service_id
            where s.id = %(session_id)s and s.user_id = %(user_id)s
              and v.client_id is not distinct from %(client_id)s and (s.service_id is null) = (%(client_id)s::uuid is null)""",
            session_id=session_id,
            user_id=user_id,
            client_id=client_id,
            browser_hash=browser_hash,
        )

    async def load_start(self, session_id: UUID, user_id: UUID) -> tuple[datetime, UUID | None, bool] | None:
        return await self._one(
            lambda row: (row[0], row[1], row[2]),
            """
            select created_at, device_id, coalesce(second_factor, false) from sessions
            where id = %(session_id)s and user_id = %(user_id)s""",
            session_id=session_id,
            user_id=user_id,
        )

    async def load_factors(self, session_id: UUID, user_id: UUID) -> BrowserSession | None:
        return await self._one(
            lambda row: BrowserSession(session_id, *row),
            """
            select provider, device_id, coalesce(authenticated_at, created_at), second_factor, fresh
            from sessions where id = %(session_id)s and user_id = %(user_id)s""",
            session_id=session_id,
            user_id=user_id,
        )

    async def user_facts(self, user_id: UUID, service_id: UUID, now: datetime) -> UserFacts | None:
        return await self._one(to_user_facts, FACTS_OF_USER, user_id=user_id, service_id=service_id, now=now)

    async def list_live(self, user_id: UUID, limit: int, now: datetime) -> PageResult[LiveSession]:
        rows = await self._all(lambda row: row, LIST_LIVE_SESSIONS, user_id=user_id, limit=limit, now=now)
        return PageResult([LiveSession(*row[1:]) for row in rows], rows[0][0] if rows else 0)

    async def count_live_in(self, org_id: UUID, user_id: UUID, now: datetime) -> LiveSessions:
        counts = await self._one(
            lambda row: LiveSessions(*row),
            f"""
            select count(*), max(s.created_at) from sessions s
            where {LIVES_IN_ORGANIZATION} and s.user_id = %(user_id)s and {NOT_OF_PERSONAL_TOKEN}""",
            org_id=org_id,
            user_id=user_id,
            now=now,
        )
        assert counts is not None, "count(*) always returns a row"
        return counts

    def user_facts_deferred(self, user_id: UUID, service_id: UUID | None, now: datetime) -> DeferredRow[UserFacts]:
        return self._one_deferred(to_user_facts, FACTS_OF_USER, user_id=user_id, service_id=service_id, now=now)

    async def begin(self, session: Session, refresh_hash: bytes) -> None:
        await self._write(
            f"""
            with begun as ({BEGIN} returning id, created_at)
            {START_ROTATION}""",
            **session_parameters(session),
            refresh_hash=refresh_hash,
            browser_hash=None,
        )

    async def begin_in_browser(self, session: Session, browser_hash: bytes) -> None:
        await self._write(BEGIN, **session_parameters(session), browser_hash=browser_hash)

    async def rotate(
        self, old_hash: bytes, new_hash: bytes, now: datetime, expires_at: datetime, presenter: Presenter = UNNAMED_PRESENTER
    ) -> RotatedSession | None:
        # The row of the token decides which concurrent call wins. The row of the session is updated
        # too: after a wait for a concurrent end of the session, PostgreSQL checks the condition
        # again, so that an ended session gets no new token. The same statement reads all claims of
        # the new tokens, because the old token is used up when it returns.
        return await self._one(
            to_rotated_session,
            f"""
            with spent as (
                update refresh_tokens t set rotated_at = case when not {IS_NOT_ROTATED} then %(now)s end
                from sessions s join users u on u.id = s.user_id
                left join organizations o on o.id = s.org_id
                {IMPERSONATOR_JOIN}
                where t.token_hash = %(old_hash)s and t.rotated_at is null and s.id = t.session_id
                  and {SESSION_IS_LIVE} and {PRESENTER_MAY_USE} and {PRESENTER_HAS_KEY}
                  and (s.org_id is null or o.status = 'active' and case when s.service_id is null
                       then exists (select 1 from memberships m where m.org_id = s.org_id and m.user_id = s.user_id)
                       else {MAY_USE_SERVICE} and {resource_is_usable("s")} end)
                returning t.session_id, t.generation, t.rotated_at, u.email, u.email_verified_at, o.slug),
            extended as (
                update sessions s set expires_at = least(%(expires_at)s, s.ends_at, (
                    select %(now)s + make_interval(secs => v.refresh_token_seconds) from services v where v.id = s.service_id)),
                    key_thumbprint = coalesce(s.key_thumbprint, case when %(binds_refresh_token)s then %(key_thumbprint)s end)
                from spent where s.id = spent.session_id and s.ended_at is null
                returning s.id, s.user_id, spent.email, spent.email_verified_at, s.ends_at, s.impersonator_id, s.org_id, spent.slug,
                          s.service_id, spent.generation, spent.rotated_at, coalesce(s.authenticated_at, s.created_at) as authenticated_at,
                          s.provider, s.second_factor, {stored_grant("s")}),
            succeeding as (
                insert into refresh_tokens (token_hash, session_id, generation, created_at)
                select %(new_hash)s, id, generation + 1, %(now)s from extended where rotated_at is not null)
            select e.id, e.user_id, e.email, e.email_verified_at, e.ends_at, e.impersonator_id, e.org_id, e.slug,
                   e.authenticated_at, e.provider, e.second_factor, {grant_columns("e")}, {CONTEXT}, n.name, n.status, n.features,
                   {USER_FACTS}, e.rotated_at is null
            from extended e left join (services v join organizations vo on vo.id = v.org_id) on v.id = e.service_id
            left join lateral ({entitlement("v.id", "e.user_id")}) n on true
            left join users u on u.id = e.user_id and e.scope is not null
            left join memberships m on m.org_id = v.org_id and m.user_id = u.id""",
            old_hash=old_hash,
            new_hash=new_hash,
            now=now,
            expires_at=expires_at,
            **_presenter_values(presenter),
        )

    async def ends_at(self, session_id: UUID, user_id: UUID, now: datetime) -> datetime | None:
        # ACCOUNT_IS_USABLE and MAY_IMPERSONATE are missing: the caller has locked the account, and
        # its user is a platform owner, who cannot be impersonated.
        return await self._one(
            lambda row: row[0],
            f"select s.ends_at from sessions s where s.id = %(session_id)s and s.user_id = %(user_id)s and {SESSION_NOT_ENDED}",
            session_id=session_id,
            user_id=user_id,
            now=now,
        )

    async def explain_refresh_token(
        self, token_hash: bytes, now: datetime, presenter: Presenter = UNNAMED_PRESENTER
    ) -> RefreshTokenState | None:
        # MAY_IMPERSONATE is missing: `rotate` has already refused the token. The second use of a
        # token must also end an impersonation that is not live now.
        return await self._one(
            to_refresh_token_state,
            f"""
            select s.id, t.rotated_at,
                   t.generation + 1 = (select max(generation) from refresh_tokens where session_id = s.id),
                   {SESSION_NOT_ENDED} and {ACCOUNT_IS_USABLE},
                   s.org_id, o.status, m.role, s.service_id,
                   {MAY_USE_SERVICE}, {PRESENTER_MAY_USE}, {PRESENTER_HAS_KEY}
            from refresh_tokens t join sessions s on s.id = t.session_id join users u on u.id = s.user_id
            left join organizations o on o.id = s.org_id
            left join memberships m on m.org_id = s.org_id and m.user_id = s.user_id
            where t.token_hash = %(token_hash)s""",
            token_hash=token_hash,
            now=now,
            **_presenter_values(presenter),
        )

    async def revoke(self, session_id: UUID | None, refresh_hash: bytes, presenter: Presenter, now: datetime) -> bool | None:
        # Here and in other statements that end sessions, the expiry is not checked: ending an
        # expired session changes nothing for its user.
        return await self._one(
            lambda row: bool(row[0]),
            f"""
            with found as (
                select s.id, {PRESENTER_MAY_USE} as fits from sessions s
                where (s.id = %(session_id)s or s.id = (select session_id from refresh_tokens where token_hash = %(refresh_hash)s))
                  and s.ended_at is null),
            ended as (
                update sessions s set ended_at = %(now)s from found where s.id = found.id and found.fits and s.ended_at is null)
            select fits from found""",
            session_id=session_id,
            refresh_hash=refresh_hash,
            now=now,
            **_presenter_values(presenter),
        )

    async def end(self, session_id: UUID, now: datetime) -> None:
        await self._run(
            "update sessions set ended_at = %(now)s where id = %(session_id)s and ended_at is null", session_id=session_id, now=now
        )

    async def replace_in_browser(self, browser_hash: bytes, successor: UUID, now: datetime) -> None:
        await self._run(
            """
            select 1 from users u where u.id = (
                select s.user_id from sessions s where s.browser_hash = %(browser_hash)s and s.ended_at is null)
            for no key update""",
            browser_hash=browser_hash,
        )
        # A trigger ends the sessions of applications that still belong to the old session when the
        # statement is done.
        await self._run(
            """
            with moved as (
                update sessions a set browser_session_id = n.id
                from sessions s join sessions n on n.id = %(successor)s and n.user_id = s.user_id
                where s.browser_hash = %(browser_hash)s and s.ended_at is null and a.browser_session_id = s.id and a.ended_at is null)
            update sessions set ended_at = %(now)s where browser_hash = %(browser_hash)s and ended_at is null""",
            browser_hash=browser_hash,
            successor=successor,
            now=now,
        )

    async def end_all(self, user_id: UUID, now: datetime) -> None:
        await self._run("update sessions set ended_at = %(now)s where user_id = %(user_id)s and ended_at is null", user_id=user_id, now=now)

    async def end_one(self, user_id: UUID, session_id: UUID, now: datetime) -> bool:
        ended = await self._run(
            f"""
            update sessions s set ended_at = %(now)s
            where s.id = %(session_id)s and s.user_id = %(user_id)s and {SESSION_NOT_ENDED} and {NOT_OF_PERSONAL_TOKEN}""",
            session_id=session_id,
            user_id=user_id,
            now=now,
        )
        return ended > 0

    async def end_others(self, user_id: UUID, kept: UUID, now: datetime) -> None:
        await self._run(
            "update sessions set ended_at = %(now)s where user_id = %(user_id)s and id <> %(kept)s and ended_at is null",
            user_id=user_id,
            kept=kept,
            now=now,
        )

    async def end_personal_tokens(self, user_id: UUID, now: datetime) -> None:
        await self._run(
            "update sessions set ended_at = %(now)s where user_id = %(user_id)s and personal_token and ended_at is null",
            user_id=user_id,
            now=now,
        )

    async def require_mfa_again(self, user_id: UUID, except_session_id: UUID) -> None:
        await self._run(
            """
            update sessions set mfa_missing = id <> %(except_session_id)s, second_factor = second_factor or id = %(except_session_id)s
            where user_id = %(user_id)s and ended_at is null and service_id is null
              and (mfa_missing <> (id <> %(except_session_id)s) or id = %(except_session_id)s)""",
            user_id=user_id,
            except_session_id=except_session_id,
        )

    async def browser_of(self, session_id: UUID, user_id: UUID) -> UUID | None:
        return await self._one(
            lambda row: row[0],
            """
            select case when browser_hash is null then browser_session_id else id end
            from sessions where id = %(session_id)s and user_id = %(user_id)s""",
            session_id=session_id,
            user_id=user_id,
        )

    async def reauthenticate(self, session_id: UUID, user_id: UUID, sign_in: Reauthentication) -> None:
        # Without a method, only the second factor was verified, and the sign-in stays as old as it is.
        await self._run(
            """
            update sessions set
                authenticated_at = case when %(method)s::text is null then authenticated_at else %(at)s end,
                provider = coalesce(%(method)s, provider),
                fresh = case when %(method)s::text is null then fresh else %(is_fresh)s end,
                second_factor = %(second_factor)s, mfa_missing = mfa_missing and not %(second_factor)s
            where id = %(session_id)s and user_id = %(user_id)s""",
            session_id=session_id,
            user_id=user_id,
            method=sign_in.method,
            at=sign_in.at,
            is_fresh=sign_in.is_fresh,
            second_factor=sign_in.second_factor,
        )

    async def begin_impersonation_in(self, session_id: UUID, org_id: UUID) -> datetime | None:
        return await self._one(
            lambda row: row[0],
            """
            with begun as (
                insert into impersonated_organizations (session_id, org_id) values (%(session_id)s, %(org_id)s)
                on conflict do nothing returning session_id)
            select s.ends_at from begun join sessions s on s.id = begun.session_id""",
            session_id=session_id,
            org_id=org_id,
        )

    async def end_impersonations(self, user_id: UUID, now: datetime) -> None:
        await self._run(
            """
            update sessions set ended_at = %(now)s
            where (impersonator_id = %(user_id)s or user_id = %(user_id)s and impersonator_id is not null) and ended_at is null""",
            user_id=user_id,
            now=now,
        )

    async def end_on_device(self, user_id: UUID, device_id: UUID, now: datetime) -> None:
        await self._run(
            f"""
            update sessions s set ended_at = %(now)s
            where s.user_id = %(user_id)s and s.device_id = %(device_id)s and {SESSION_NOT_ENDED}""",
            user_id=user_id,
            device_id=device_id,
            now=now,
        )

    async def end_in_organization(self, org_id: UUID, user_ids: Collection[UUID], now: datetime) -> int:
        # Keep the codes that were exchanged, so that a second use still ends the session (security
        # O-4).
        ended = await self._one(
            lambda row: int(row[0]),
            f"""
            with codes as (
                delete from authorization_codes where org_id = %(org_id)s and user_id = any(%(user_ids)s) and session_id is null),
            approvals as ({DENY} and d.org_id = %(org_id)s and a.user_id = any(%(user_ids)s)),
            sign_ons as (
                update saml_sign_ons set user_id = null, session_id = null, ticket_hash = null
                where org_id = %(org_id)s and user_id = any(%(user_ids)s)),
            ended as (
                update sessions s set ended_at = %(now)s where {LIVES_IN_ORGANIZATION} and s.user_id = any(%(user_ids)s)
                returning s.personal_token)
            select count(*) from ended s where {NOT_OF_PERSONAL_TOKEN}""",
            org_id=org_id,
            user_ids=list(user_ids),
            now=now,
        )
        return ended or 0

    async def end_consented(self, org_id: UUID, service_id: UUID, user_id: UUID, now: datetime) -> None:
        # Keep the codes that were exchanged, as in `end_in_organization`.
        await self._run(
            f"""
            with codes as (
                delete from authorization_codes
                where org_id = %(org_id)s and service_id = %(service_id)s and user_id = %(user_id)s
                  and (scope is not null or api_resource_id is not null) and session_id is null),
            approvals as (
                {DENY} and d.org_id = %(org_id)s and d.service_id = %(service_id)s
                and (d.scope is not null or d.api_resource_id is not null) and a.user_id = %(user_id)s)
            update sessions set ended_at = %(now)s
            where org_id = %(org_id)s and service_id = %(service_id)s and user_id = %(user_id)s
              and (scope is not null or api_resource_id is not null) and ended_at is null""",
            org_id=org_id,
            service_id=service_id,
            user_id=user_id,
            now=now,
        )

    async def end_without_access(self, org_id: UUID, service_id: UUID, user_ids: Collection[UUID] | None, now: datetime) -> None:
        # Sessions have no index by service, so look them up by user.
        users = "%(user_ids)s::uuid[]" if user_ids is not None else "array(select r.user_id from service_users r where r.service_id = v.id)"
        await self._run(
            f"""
            update sessions s set ended_at = %(now)s from services v
            where v.org_id = %(org_id)s and v.id = %(service_id)s and s.user_id = any({users}) and s.org_id = v.org_id
              and s.service_id = v.id and s.scope is not null and s.ended_at is null
              and not ({may_use("v", "s.user_id")} and {HAS_REQUIRED_FACTOR})""",
            org_id=org_id,
            service_id=service_id,
            user_ids=None if user_ids is None else list(user_ids),
            now=now,
        )

    async def remove(self, user_id: UUID, now: datetime, service_id: UUID | None = None) -> None:
        # Lock order: refresh tokens, then sessions, as in `rotate`. A statement that waited for a
        # rotation does not see the token that the rotation inserted, so the statement is repeated
        # until it deletes nothing.
        of_service = "" if service_id is None else "and s.service_id = %(service_id)s"
        values = {"user_id": user_id, "service_id": service_id}
        while await self._run(
            f"delete from refresh_tokens t using sessions s where s.user_id = %(user_id)s and t.session_id = s.id {of_service}", **values
        ):
            pass
        if service_id is not None:  # otherwise foreign keys delete the codes with the browser sessions that issued them
            await self._run(
                f"""
                with codes as (delete from authorization_codes where service_id = %(service_id)s and user_id = %(user_id)s)
                {DENY} and d.service_id = %(service_id)s and a.user_id = %(user_id)s""",
                **values,
            )
        # End them first, so that applications get their notices.
        await self._run(
            f"update sessions s set ended_at = %(now)s where s.user_id = %(user_id)s and s.ended_at is null {of_service}", now=now, **values
        )
        await self._run(f"delete from sessions s where s.user_id = %(user_id)s {of_service}", **values)

    async def select_organization(
        self, session_id: UUID, org_id: UUID, new_hash: bytes, now: datetime, expires_at: datetime
    ) -> datetime | None:
        # Lock order: refresh token, then session, as in `rotate`. The second of two concurrent
        # calls finds the token rotated. ACCOUNT_IS_USABLE and MAY_IMPERSONATE are missing: the edge
        # has just checked the caller's session, and every use of the new tokens checks it again.
        return await self._one(
            lambda row: row[0],
            f"""
            with spent as (
                update refresh_tokens t set rotated_at = %(now)s from sessions s
                where t.session_id = %(session_id)s and t.rotated_at is null and s.id = t.session_id
                  and {SESSION_NOT_ENDED}
                returning t.session_id, t.generation),
            selected as (
                update sessions s set org_id = %(org_id)s, expires_at = least(%(expires_at)s, s.ends_at)
                from spent where s.id = spent.session_id and s.ended_at is null
                returning s.id, s.ends_at, spent.generation),
            succeeding as (
                insert into refresh_tokens (token_hash, session_id, generation, created_at)
                select %(new_hash)s, id, generation + 1, %(now)s from selected)
            select ends_at from selected""",
            session_id=session_id,
            org_id=org_id,
            new_hash=new_hash,
            now=now,
            expires_at=expires_at,
        )
