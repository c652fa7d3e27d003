"""Storage for linked identities. The providers' tokens are encrypted."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine import statements
from adapters.postgres.engine.locks import SUBJECTS
from core.accounts.model.security_notices import AddedSignInMethod
from core.applications.model.users import LinkedIdentity
from core.authentication.model import identities
from core.kernel import connections
from core.kernel.values import Email
from ports.crypto import SecretContext

# A user's identities in a single context. %(service_id)s is null for the account itself.
OF_CONTEXT: Final = "user_id = %(user_id)s and service_id is not distinct from %(service_id)s"


def access_token_context(row: str) -> SecretContext:
    return SecretContext("identities", row, "access_token")


def refresh_token_context(row: str) -> SecretContext:
    return SecretContext("identities", row, "refresh_token")


class Identities(statements.SealingRepository):
    """Implements `ports.storage.authentication.credentials.Identities`."""

    def _to_token(self, row: statements.Row) -> identities.ProviderToken:
        name, sealed, expires_at, scopes, can_be_renewed = row
        access_token = self._vault.open(sealed, access_token_context(str(name))).decode()
        return identities.ProviderToken(access_token, expires_at, tuple(scopes or ()), can_be_renewed=can_be_renewed)

    async def list_of_user(self, user_id: UUID, service_id: UUID | None) -> list[LinkedIdentity]:
        sql = f"select provider, provider_user_id, email, linked_at from identities where {OF_CONTEXT} order by linked_at, id"
        return await self._all(lambda row: LinkedIdentity(*row), sql, user_id=user_id, service_id=service_id)

    async def list_providers(self, user_id: UUID) -> list[connections.ConnectionSlug]:
        sql = "select distinct provider from identities where user_id = %(user_id)s order by provider"
        return await self._all(lambda row: row[0], sql, user_id=user_id)

    async def list_places(self, user_id: UUID) -> list[identities.LinkedPlace]:
        sql = """
            select i.provider, v.org_id, v.id, v.name, exists (
                select from service_connections x join connections c on c.id = x.connection_id
                where x.org_id = v.org_id and x.service_id = v.id and c.slug = i.provider and x.client_id is not null)
            from identities i left join services v on v.id = i.service_id left join organizations o on o.id = v.org_id
            where i.user_id = %(user_id)s and (i.service_id is null or o.status = 'active')
            order by i.service_id is not null, i.linked_at, i.id"""
        return await self._all(lambda row: identities.LinkedPlace(*row), sql, user_id=user_id)

    async def list_added(self, user_id: UUID, since: datetime) -> list[AddedSignInMethod]:
        # If the sign-up did not verify the present address, the linked accounts may belong to a squatter. If it verified another
        # address, a thief may have changed the address, so the account of the sign-up is the owner's and not recent.
        sql = """
            select (array_agg(i.id order by i.linked_at, i.id))[1], i.provider, min(i.linked_at),
                   min(i.linked_at) > %(since)s and (min(i.linked_at) > u.created_at or u.first_verified_at > u.created_at),
                   u.email_verified_at > u.created_at
            from identities i join users u on u.id = i.user_id
            where i.user_id = %(user_id)s
            group by i.provider, i.issuer, i.provider_user_id, u.created_at, u.email_verified_at, u.first_verified_at
            having min(i.linked_at) > u.created_at or u.email_verified_at > u.created_at
            order by min(i.linked_at), 1"""
        return await self._all(
            lambda row: AddedSignInMethod(row[0], row[1], row[2], is_recent=row[3], signed_up_unproven=row[4]),
            sql,
            user_id=user_id,
            since=since,
        )

    async def load_provider_token(
        self, user_id: UUID, service_id: UUID | None, provider: connections.ConnectionSlug
    ) -> identities.ProviderToken | None:
        sql = f"""
            select id, access_token, token_expires_at, scopes, refresh_token is not null from identities
            where {OF_CONTEXT} and provider = %(provider)s and access_token is not null"""
        return await self._one(self._to_token, sql, user_id=user_id, service_id=service_id, provider=provider)

    async def lock_subject(self, provider: connections.ConnectionSlug, issuer: str, subject: str) -> None:
        # If two lock numbers collide, no harm is done: a sign-in then waits for an unrelated
        # sign-in.
        await self._run(f"select pg_advisory_xact_lock({SUBJECTS}, hashtext(%(name)s))", name=f"{provider} {issuer} {subject}")

    async def match(
        self, provider: connections.ConnectionSlug, issuer: str, subject: str, service_id: UUID | None
    ) -> identities.IdentityMatch | None:
        sql = """
            select id, user_id, service_id is not distinct from %(service_id)s as here from identities
            where provider = %(provider)s and issuer = %(issuer)s and provider_user_id = %(subject)s
            order by here desc, linked_at, id limit 1"""
        return await self._one(
            lambda row: identities.IdentityMatch(*row), sql, provider=provider, issuer=issuer, subject=subject, service_id=service_id
        )

    async def add(self, identity: identities.Identity) -> bool:
        # The foreign key holds the service until the transaction ends.
        return await self._exists(
            """
            insert into identities (id, user_id, service_id, provider, issuer, provider_user_id, email, linked_at, access_token,
                                    refresh_token, token_expires_at, scopes)
            select %(id)s, %(user_id)s, %(service_id)s, %(provider)s, %(issuer)s, %(subject)s, %(email)s, %(linked_at)s, %(access_token)s,
                   %(refresh_token)s, %(token_expires_at)s, %(scopes)s
            where %(service_id)s::uuid is null or exists (select 1 from services where id = %(service_id)s for key share)
            on conflict do nothing returning 1""",
            id=identity.id,
            user_id=identity.user_id,
            service_id=identity.service_id,
            provider=identity.provider,
            issuer=identity.issuer,
            subject=identity.subject,
            email=identity.email,
            linked_at=identity.linked_at,
            **self._sealed(identity.id, identity.tokens),
        )

    async def update_tokens(self, identity_id: UUID, email: Email | None, tokens: connections.ProviderTokens) -> None:
        sql = """
            update identities set email = coalesce(%(email)s, email), access_token = %(access_token)s,
                                  refresh_token = coalesce(%(refresh_token)s, refresh_token), token_expires_at = %(token_expires_at)s,
                                  scopes = %(scopes)s, renewing_until = null
            where id = %(id)s"""
        await self._run(sql, id=identity_id, email=email, **self._sealed(identity_id, tokens))

    async def claim_renewal(
        self, user_id: UUID, service_id: UUID | None, provider: connections.ConnectionSlug, now: datetime, until: datetime
    ) -> identities.TokenRenewal | None:
        return await self._one(
            lambda row: identities.TokenRenewal(row[0], self._vault.open(row[1], refresh_token_context(str(row[0]))).decode(), until),
            f"""
            update identities set renewing_until = %(until)s
            where {OF_CONTEXT} and provider = %(provider)s and token_expires_at <= %(now)s and refresh_token is not null
              and (renewing_until is null or renewing_until <= %(now)s)
            returning id, refresh_token""",
            user_id=user_id,
            service_id=service_id,
            provider=provider,
            now=now,
            until=until,
        )

    async def complete_renewal(self, renewal: identities.TokenRenewal, tokens: connections.ProviderTokens) -> bool:
        sql = """
            update identities set access_token = %(access_token)s, refresh_token = %(refresh_token)s,
                                  token_expires_at = %(token_expires_at)s, renewing_until = null,
                                  scopes = case when cardinality(%(scopes)s::text[]) = 0 then scopes else %(scopes)s end
            where id = %(id)s and renewing_until = %(until)s returning 1"""
        return await self._exists(sql, id=renewal.identity_id, until=renewal.until, **self._sealed(renewal.identity_id, tokens))

    async def release_renewal(self, renewal: identities.TokenRenewal) -> None:
        sql = "update identities set renewing_until = null where id = %(id)s and renewing_until = %(until)s"
        await self._run(sql, id=renewal.identity_id, until=renewal.until)

    def _sealed(self, identity_id: UUID, tokens: connections.ProviderTokens) -> dict[str, object]:
        """Return the column values for these tokens, encrypted for this identity."""
        row, access, refresh = str(identity_id), tokens.access_token, tokens.refresh_token
        return {
            "access_token": self._vault.seal(access.encode(), access_token_context(row)),
            "refresh_token": None if refresh is None else self._vault.seal(refresh.encode(), refresh_token_context(row)),
            "token_expires_at": tokens.expires_at,
            "scopes": list(tokens.scopes),
        }

    async def remove_all(self, user_id: UUID) -> None:
        await self._run("delete from identities where user_id = %(user_id)s", user_id=user_id)

    async def remove_added(self, user_id: UUID, identity_id: UUID) -> None:
        sql = """
            delete from identities i using identities a
            where a.id = %(identity_id)s and a.user_id = %(user_id)s and i.user_id = a.user_id
              and (i.provider, i.issuer, i.provider_user_id) = (a.provider, a.issuer, a.provider_user_id)"""
        await self._run(sql, user_id=user_id, identity_id=identity_id)

    async def remove_linked_since(self, user_id: UUID, since: datetime) -> list[connections.ConnectionSlug]:
        sql = "delete from identities where user_id = %(user_id)s and linked_at >= %(since)s returning provider"
        return await self._all(lambda row: row[0], sql, user_id=user_id, since=since)

    async def remove(self, user_id: UUID, service_id: UUID, provider: connections.ConnectionSlug) -> bool:
        sql = f"delete from identities where {OF_CONTEXT} and provider = %(provider)s"
        return await self._run(sql, user_id=user_id, service_id=service_id, provider=provider) == 1

    async def remove_everywhere(self, user_id: UUID, provider: connections.ConnectionSlug, notice_id: UUID | None) -> list[UUID | None]:
        sql = """
            with removed as (
                delete from identities where user_id = %(user_id)s and provider = %(provider)s
                returning id, service_id, provider, issuer, provider_user_id, email, linked_at),
            kept as (
                update security_notices set unlinked = (select jsonb_agg(to_jsonb(r)) from removed r) where id = %(notice_id)s)
            select service_id from removed"""
        return await self._all(lambda row: row[0], sql, user_id=user_id, provider=provider, notice_id=notice_id)

    async def link_again(self, user_id: UUID, since: datetime) -> list[connections.ConnectionSlug]:
        sql = """
            insert into identities (id, user_id, service_id, provider, issuer, provider_user_id, email, linked_at)
            select i.id, n.user_id, i.service_id, i.provider, i.issuer, i.provider_user_id, i.email, i.linked_at
            from security_notices n cross join jsonb_to_recordset(n.unlinked) as i (
                id uuid, service_id uuid, provider text, issuer text, provider_user_id text, email text, linked_at timestamptz)
            where n.user_id = %(user_id)s and n.created_at >= %(since)s and i.linked_at < %(since)s
              and (i.service_id is null or exists (select 1 from services s where s.id = i.service_id for key share))
            on conflict do nothing returning provider"""
        return await self._all(lambda row: row[0], sql, user_id=user_id, since=since)
