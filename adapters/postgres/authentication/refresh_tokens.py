"""Storage for refresh tokens, and for the sessions that tokens belong to."""

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.accounts.accounts import ACCOUNT_IS_USABLE
from adapters.postgres.applications.plans import ENTITLEMENT, entitlement
from adapters.postgres.applications.service_access import may_use
from adapters.postgres.applications.services import CONTEXT
from adapters.postgres.authentication import openid
from adapters.postgres.authentication.openid import grant_columns, resource_facts, resource_is_usable, stored_grant
from adapters.postgres.authentication.policy_passes import POLICY_MET
from adapters.postgres.authentication.session_contexts import IMPERSONATOR_JOIN, SESSION_IS_LIVE, SESSION_NOT_ENDED
from adapters.postgres.authentication.sessions import HAS_REQUIRED_FACTOR
from adapters.postgres.authentication.sign_in_proofs import proof_columns
from adapters.postgres.engine import records, statements
from core.authentication.model import sessions
from core.authentication.model.openid import NO_GRANT, OpenIdGrant
from core.kernel.callers import OrganizationStatus
from core.kernel.values import Email

# The conditions below are about a session `s` and its service `v`, which may be missing.
SERVICE_JOIN: Final = "left join services v on v.id = s.service_id"
# Whether the application can prove who it is. External clients have keys and no secret.
IS_CONFIDENTIAL: Final = "(v.client_secret_hash is not null or v.jwks is not null or v.jwks_uri is not null)"
# Whether the presenter may use the token. A named presenter must be the session's application. A token that an
# authorization code gave to a confidential application needs the client secret. An external client with keys signs in
# the device flow, too: only its keys prove its host.
PRESENTER_MAY_USE: Final = f"""
    ((not %(is_named)s or s.service_id is not distinct from %(named_service_id)s)
     and (s.grant_type is distinct from 'authorization_code' and v.client_uri is null or %(is_authenticated)s or not {IS_CONFIDENTIAL}))"""
# The rule in `core.authentication.service_access`, in a statement that rotates a token.
MAY_USE_SERVICE: Final = f"""
    exists (select 1 from service_users r
            where r.service_id = v.id and r.user_id = s.user_id and {may_use("v", "r.user_id")} and {HAS_REQUIRED_FACTOR})"""
# Whether a refresh token's presenter has the key that the token is bound to, and any key if the service demands a key
# (RFC 9449 section 5).
PRESENTER_HAS_KEY: Final = """
    ((s.key_thumbprint is null or s.key_thumbprint = %(key_thumbprint)s::text)
     and (%(key_thumbprint)s::text is not null or v.dpop_bound_access_tokens is not true))"""
# Whether the session's refresh token stays the same. If a service has bound tokens only, its
# refresh tokens are useless without their key or its credentials, so they are not rotated (FAPI 2.0
# section 5.3.2.1). Sessions that are older than the setting may be bound to neither.
IS_NOT_ROTATED: Final = f"""
    (v.dpop_bound_access_tokens
     and (s.key_thumbprint is not null
          or s.grant_type = 'authorization_code' and {IS_CONFIDENTIAL} and not v.pkce_without_secret))"""


def subject(*, service: records.Description, entitlement: records.Description) -> records.Record[sessions.TokenSubject]:
    """Return the record for the tokens' subject: a rotation's row `e`, and the facts about its service."""
    return records.Record(
        sessions.TokenSubject,
        "e",
        session_id="e.id",
        email=Email,
        email_verified="e.email_verified_at is not null",
        org_slug="coalesce(e.slug, '')",
        service=service,
        entitlement=entitlement,
        proofs=proof_columns("e"),
        openid=None,
        key_thumbprint=None,
    )


SUBJECT: Final = subject(service=CONTEXT.as_field(if_any="id"), entitlement=ENTITLEMENT.as_field())
SUBJECT_PLAIN: Final = subject(service=None, entitlement=None)
ROTATED: Final = records.Record(
    sessions.RotatedSession,
    "e",
    subject=SUBJECT.as_field(),
    openid=records.Columns(grant_columns("e"), openid.GRANT_WIDTH, openid.to_grant),
    facts=openid.user_facts(openid.further_sql(openid.asks_for_groups("e"))).as_field(if_any="email"),
    keeps_refresh_token="e.rotated_at is null",  # noqa: S106  (a condition)
)
# For a session without a service and without a grant
ROTATED_PLAIN: Final = records.Record(
    sessions.RotatedSession, "e", subject=SUBJECT_PLAIN.as_field(), openid=None, facts=None, keeps_refresh_token=None
)
INTROSPECTED_WIDTH: Final = 8
TO_FACTS: Final = openid.USER_FACTS.if_any("email")
# The facts for the claims in the answer, which only an application with a claims document has
FACTS_OF_SESSION: Final = openid.user_facts_sql("s.user_id", "s.service_id", condition="v.claims_version is not null")
REFRESH_TOKEN_STATE: Final = records.Record(
    sessions.RefreshTokenState,
    "s",
    session_id="s.id",
    user_id="s.user_id",
    rotated_at="t.rotated_at",
    is_previous="t.generation + 1 = (select max(generation) from refresh_tokens where session_id = s.id)",
    session_is_live=f"{SESSION_NOT_ENDED} and {ACCOUNT_IS_USABLE}",
    organization_status=records.Column(sql="o.status", read=OrganizationStatus),
    role="m.role",
    may_use_service=MAY_USE_SERVICE,
    fits=PRESENTER_MAY_USE,
    policy_is_met=POLICY_MET,
    has_key=PRESENTER_HAS_KEY,
)


def _rotation(spent: LiteralString, of_spent: LiteralString, expires_at: LiteralString, of_session: LiteralString) -> LiteralString:
    """Return the statement that rotates a refresh token, up to the `select` that reads its result `e`.

    `spent` updates the token, and `of_spent` names its further columns. `expires_at` and `of_session` belong to the session.
    """
    # The token's row decides which concurrent call wins. The session's row is updated too: after a
    # wait for a concurrent end of the session, PostgreSQL checks the condition again, so that an
    # ended session gets no new token. The same statement reads all claims for the new tokens,
    # because the old token is used up when it returns.
    return f"""
        with spent as (
            {spent}
            returning t.session_id, t.generation, t.rotated_at, u.email, u.email_verified_at, o.slug {of_spent}),
        extended as (
            update sessions s set expires_at = least(%(expires_at)s, s.ends_at {expires_at}),
                key_thumbprint = coalesce(s.key_thumbprint, case when %(binds_refresh_token)s then %(key_thumbprint)s end)
            from spent where s.id = spent.session_id and s.ended_at is null
            returning s.id, s.user_id, spent.email, spent.email_verified_at, s.ends_at, s.impersonator_id, s.org_id, spent.slug,
                      spent.generation, spent.rotated_at, s.proofs{of_session}),
        succeeding as (
            insert into refresh_tokens (token_hash, session_id, generation, created_at)
            select %(new_hash)s, id, generation + 1, %(now)s from extended where rotated_at is not null)"""


_IS_MEMBER: Final = "exists (select 1 from memberships m where m.org_id = s.org_id and m.user_id = s.user_id)"
ROTATE: Final = (
    _rotation(
        f"""
            update refresh_tokens t set rotated_at = case when {IS_NOT_ROTATED} then null else %(now)s end
            from sessions s join users u on u.id = s.user_id
            left join organizations o on o.id = s.org_id
            {IMPERSONATOR_JOIN}
            {SERVICE_JOIN}
            where t.token_hash = %(old_hash)s and t.rotated_at is null and s.id = t.session_id
              and {SESSION_IS_LIVE} and {PRESENTER_MAY_USE} and {PRESENTER_HAS_KEY}
              and (s.org_id is null or o.status = 'active' and case when s.service_id is null
                   then {_IS_MEMBER}
                   else {MAY_USE_SERVICE} and {resource_is_usable("s")} end)
              and {POLICY_MET}""",
        ", v.refresh_token_seconds",
        ", %(now)s + make_interval(secs => spent.refresh_token_seconds)",
        f", s.service_id, s.created_at, {stored_grant('s')}",
    )
    + f"""
        select {ROTATED.columns}
        from extended e left join (services v join organizations vo on vo.id = v.org_id) on v.id = e.service_id
        left join lateral ({entitlement("v.id", "e.user_id")}) n on true
        left join users u on u.id = e.user_id and e.scope is not null
        left join memberships m on m.org_id = v.org_id and m.user_id = u.id"""
)
# The same statement for a session without a service and without a grant: then the service tables cannot have a row for it, and a statement
# with all these tables takes three times as long.
ROTATE_PLAIN: Final = (
    _rotation(
        f"""
            update refresh_tokens t set rotated_at = %(now)s
            from sessions s join users u on u.id = s.user_id
            left join organizations o on o.id = s.org_id
            {IMPERSONATOR_JOIN}
            where t.token_hash = %(old_hash)s and t.rotated_at is null and s.id = t.session_id
              and s.service_id is null and s.scope is null and s.api_resource_id is null and s.asked_scope is null
              and {SESSION_IS_LIVE} and (s.key_thumbprint is null or s.key_thumbprint = %(key_thumbprint)s::text)
              and (s.org_id is null or o.status = 'active' and {_IS_MEMBER})
              and {POLICY_MET}""",
        "",
        "",
        "",
    )
    + f" select {ROTATED_PLAIN.columns} from extended e"
)


def to_introspected_session(row: statements.Row) -> sessions.IntrospectedSession:
    id_, user_id, email, expires_at, scope, api, created_at, restricted_to = row[:INTROSPECTED_WIDTH]
    return sessions.IntrospectedSession(
        id=id_,
        user_id=user_id,
        email=Email(email),
        expires_at=expires_at,
        openid=OpenIdGrant(openid.to_scope(scope, api)),
        api_scope=None if api is None else tuple(api[2:]),
        refresh_token_created_at=created_at,
        facts=None if (facts := TO_FACTS(row[INTROSPECTED_WIDTH:])) is None else facts.seen_by(restricted_to),
    )


def _presenter_values(presenter: sessions.Presenter) -> dict[str, object]:
    return {
        "is_named": presenter.is_named,
        "named_service_id": presenter.service_id,
        "is_authenticated": presenter.is_authenticated,
        "key_thumbprint": None if presenter.key is None else presenter.key.thumbprint,
        "binds_refresh_token": presenter.key is not None and presenter.key.binds_refresh_token,
    }


class RefreshTokens(statements.Repository):
    """Implements `ports.storage.authentication.sessions.RefreshTokens` and `RefreshTokenRotation`."""

    async def introspect(
        self, service_id: UUID | None, session_id: UUID | None, refresh_hash: bytes, now: datetime, *, api_resource_id: UUID | None = None
    ) -> sessions.IntrospectedSession | None:
        of_client: LiteralString = "s.service_id = %(service_id)s" if api_resource_id is None else "s.api_resource_id = %(api_resource_id)s"
        return await self._one(
            to_introspected_session,
            f"""
            select s.id, s.user_id, u.email, s.expires_at, s.scope, {resource_facts("s", "s.user_id")},
                   t.created_at, s.restricted_to, f.*
            from sessions s join users u on u.id = s.user_id join organizations o on o.id = s.org_id
            {IMPERSONATOR_JOIN}
            {SERVICE_JOIN}
            left join refresh_tokens t on t.session_id = s.id and t.token_hash = %(refresh_hash)s
            left join lateral ({FACTS_OF_SESSION}) f on true
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

    async def grant(self, token_hash: bytes, now: datetime) -> OpenIdGrant | None:
        return await self._one(
            lambda row: openid.to_grant(row) or NO_GRANT,
            f"select {grant_columns('s')} from refresh_tokens t join sessions s on s.id = t.session_id where t.token_hash = %(token_hash)s",
            token_hash=token_hash,
            now=now,
        )

    async def rotate(
        self,
        old_hash: bytes,
        new_hash: bytes,
        now: datetime,
        expires_at: datetime,
        presenter: sessions.Presenter = sessions.UNNAMED_PRESENTER,
    ) -> sessions.RotatedSession | None:
        values = {"old_hash": old_hash, "new_hash": new_hash, "now": now, "expires_at": expires_at, **_presenter_values(presenter)}
        if presenter.service_id is None and (rotated := await self._one(ROTATED_PLAIN.read, ROTATE_PLAIN, **values)) is not None:
            return rotated
        return await self._one(ROTATED.read, ROTATE, **values)

    async def explain(
        self, token_hash: bytes, now: datetime, presenter: sessions.Presenter = sessions.UNNAMED_PRESENTER
    ) -> sessions.RefreshTokenState | None:
        # MAY_IMPERSONATE is missing: `rotate` has already refused the token. The second use of a
        # token must also end an impersonation that is not live now.
        sql = f"""
            select {REFRESH_TOKEN_STATE.columns}
            from refresh_tokens t join sessions s on s.id = t.session_id join users u on u.id = s.user_id
            left join organizations o on o.id = s.org_id
            left join memberships m on m.org_id = s.org_id and m.user_id = s.user_id
            {SERVICE_JOIN}
            where t.token_hash = %(token_hash)s"""
        return await self._one(REFRESH_TOKEN_STATE.read, sql, token_hash=token_hash, now=now, **_presenter_values(presenter))

    async def revoke(self, session_id: UUID | None, refresh_hash: bytes, presenter: sessions.Presenter, now: datetime) -> bool | None:
        # Here and in further statements that end sessions, the expiry is not checked: ending an
        # expired session changes nothing for its user.
        sql = f"""
            with found as (
                select s.id, {PRESENTER_MAY_USE} as fits from sessions s {SERVICE_JOIN}
                where (s.id = %(session_id)s or s.id = (select session_id from refresh_tokens where token_hash = %(refresh_hash)s))
                  and s.ended_at is null),
            ended as (
                update sessions s set ended_at = %(now)s from found where s.id = found.id and found.fits and s.ended_at is null)
            select fits from found"""
        return await self._one(
            lambda row: bool(row[0]), sql, session_id=session_id, refresh_hash=refresh_hash, now=now, **_presenter_values(presenter)
        )

    async def select_organization(
        self, session_id: UUID, org_id: UUID, new_hash: bytes, now: datetime, expires_at: datetime
    ) -> datetime | None:
        # Lock order: refresh token, then session, as in `rotate`. If two calls are concurrent, the
        # second call finds the token rotated. ACCOUNT_IS_USABLE and MAY_IMPERSONATE are missing:
        # the edge has just checked the caller's session, and the new tokens are checked at every
        # use.
        sql = f"""
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
            select ends_at from selected"""
        return await self._one(
            lambda row: row[0], sql, session_id=session_id, org_id=org_id, new_hash=new_hash, now=now, expires_at=expires_at
        )
