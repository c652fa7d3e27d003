"""The users' consents to applications (OpenID Connect Core section 3.1.2.4), and their grants to external clients at API resources."""

from collections.abc import Collection
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine import records
from adapters.postgres.engine.statements import Repository, matching_email
from adapters.postgres.programs.api_resources import access_sql, to_resource_access
from core.authentication.model import agreements, openid
from core.federation.oauth.model import consents
from core.kernel import values
from core.programs.model.api_resources import add_implied

# The access to API resources that the user `c.user_id` agreed to for the application `c.service_id`
API_ACCESS: Final = f"""
    (select jsonb_agg({access_sql("r", "a.scope")} order by lower(r.name), r.id)
     from api_consents a join api_resources r on r.id = a.resource_id and r.org_id = a.org_id
     where a.user_id = c.user_id and a.service_id = c.service_id)"""


ORGANIZATION: Final = "coalesce(b.product_name, o.name)"
CONSENT: Final = records.Record(
    consents.Consent,
    "c",
    service_id="v.id",
    service_slug="v.slug",
    service="v.name",
    org_id="o.id",
    org_slug="o.slug",
    organization=ORGANIZATION,
    logo_url="b.logo_url",
    scope=records.Column(read=lambda names: openid.in_order(map(openid.Scope, names))),
    granted_at="""
        greatest(c.granted_at, (
            select max(a.granted_at) from api_consents a where a.user_id = c.user_id and a.service_id = c.service_id))""",
    last_sign_in_at="u.last_login_at",
    last_used_at="""
        (select max(t.created_at) from sessions s join refresh_tokens t on t.session_id = s.id
         where s.user_id = c.user_id and s.service_id = c.service_id)""",
    client_uri="v.client_uri",
    apis=records.Columns(API_ACCESS, 1, lambda row: tuple(map(to_resource_access, row[0] or ()))),
)


def _select(table: LiteralString) -> LiteralString:
    return f"""
        select {CONSENT.columns}
        from {table} c join services v on v.org_id = c.org_id and v.id = c.service_id join organizations o on o.id = c.org_id
        left join branding b on b.org_id = c.org_id
        left join service_users u on u.org_id = c.org_id and u.service_id = c.service_id and u.user_id = c.user_id"""


class Consents(Repository):
    """Implements `ports.storage.federation.oauth.Consents`."""

    async def agreement(self, org_id: UUID, service_id: UUID, user_id: UUID, resource_id: UUID | None) -> agreements.Agreement:
        agreement = await self._one(
            lambda row: agreements.Agreement(
                frozenset(map(openid.Scope, row[0])), None if row[1] is None else add_implied(row[1], row[2]), frozenset(row[3]), row[4]
            ),
            """
            select c.scope, a.scope, r.scope_implications, c.redirect_uris, c.client_authentication from consents c
            left join api_consents a on a.user_id = c.user_id and a.service_id = c.service_id and a.resource_id = %(resource_id)s
            left join api_resources r on r.id = a.resource_id
            where c.org_id = %(org_id)s and c.service_id = %(service_id)s and c.user_id = %(user_id)s""",
            org_id=org_id,
            service_id=service_id,
            user_id=user_id,
            resource_id=resource_id,
        )
        return agreement or agreements.Agreement(frozenset())

    async def of_user(self, user_id: UUID, limit: int) -> list[consents.Consent]:
        newest = "(select * from consents where user_id = %(user_id)s order by granted_at desc, service_id limit %(limit)s)"
        sql = f"{_select(newest)} order by {ORGANIZATION}, v.name, v.id"
        return await self._all(CONSENT.read, sql, user_id=user_id, limit=limit)

    async def by_service(self, user_id: UUID, service_id: UUID) -> consents.Consent | None:
        sql = f"{_select('consents')} where c.user_id = %(user_id)s and c.service_id = %(service_id)s"
        return await self._one(CONSENT.read, sql, user_id=user_id, service_id=service_id)

    async def add(
        self,
        org_id: UUID,
        service_id: UUID,
        user_id: UUID,
        scope: Collection[openid.Scope],
        now: datetime,
        client: agreements.ClientFacts | None = None,
    ) -> bool:
        # The lock waits for a running deletion of the service, after which the foreign key would
        # fail.
        sql = """
            insert into consents as c (user_id, org_id, service_id, scope, redirect_uris, client_authentication, granted_at)
            select %(user_id)s, org_id, id, %(scope)s::text[], %(redirect_uris)s::text[], %(client_authentication)s, %(now)s
            from services
            where org_id = %(org_id)s and id = %(service_id)s for key share
            on conflict (user_id, service_id) do update set
                scope = array(select unnest(c.scope) union select unnest(excluded.scope)),
                redirect_uris = array(select unnest(c.redirect_uris) union select unnest(excluded.redirect_uris)),
                client_authentication = excluded.client_authentication, granted_at = excluded.granted_at
            where not (c.scope @> excluded.scope and c.redirect_uris @> excluded.redirect_uris
                       and c.client_authentication is not distinct from excluded.client_authentication)
            returning 1"""
        return await self._exists(
            sql,
            org_id=org_id,
            service_id=service_id,
            user_id=user_id,
            scope=sorted({*scope}),
            redirect_uris=[] if client is None or client.redirect_uri is None else [client.redirect_uri],
            client_authentication=None if client is None else client.authentication,
            now=now,
        )

    async def add_api(self, org_id: UUID, service_id: UUID, user_id: UUID, grant: openid.ResourceGrant, now: datetime) -> bool:
        # The lock waits for a running deletion of the API resource, after which the foreign key
        # would fail.
        sql = """
            insert into api_consents as a (user_id, org_id, service_id, resource_id, scope, granted_at)
            select %(user_id)s, org_id, %(service_id)s, id, %(scope)s::text[], %(now)s from api_resources
            where org_id = %(org_id)s and id = %(resource_id)s for key share
            on conflict (user_id, service_id, resource_id) do update set
                scope = array(select unnest(a.scope) union select unnest(excluded.scope)), granted_at = excluded.granted_at
            where not a.scope @> excluded.scope
            returning 1"""
        return await self._exists(
            sql, org_id=org_id, service_id=service_id, user_id=user_id, resource_id=grant.id, scope=list(grant.scope), now=now
        )

    async def remove(self, user_id: UUID, service_id: UUID) -> consents.Consent | None:
        sql = f"""
            with withdrawn as (
                delete from consents c using services v
                where v.id = %(service_id)s and c.org_id = v.org_id and c.service_id = v.id and c.user_id = %(user_id)s
                returning c.*)
            {_select("withdrawn")}"""
        return await self._one(CONSENT.read, sql, user_id=user_id, service_id=service_id)

    async def remove_in_organization(self, org_id: UUID, user_id: UUID) -> None:
        await self._run("delete from consents where org_id = %(org_id)s and user_id = %(user_id)s", org_id=org_id, user_id=user_id)


GRANT: Final = records.Record(
    consents.ExternalGrant,
    "a",
    email=records.Column(sql="u.email", read=values.Email),
    client_id="v.client_id",
    client_uri="v.client_uri",
    client_name="v.name",
    scopes=records.Column(
        sql="""
            array(select s.name from unnest(r.scope_names) with ordinality s (name, position)
                  where s.name = any(a.scope) order by s.position)""",
        read=tuple,
    ),
    last_used_at="""
        (select max(t.created_at) from sessions s join refresh_tokens t on t.session_id = s.id
         where s.user_id = a.user_id and s.service_id = a.service_id and s.api_resource_id = a.resource_id)""",
)


def _granted(table: LiteralString) -> LiteralString:
    return f"""
        from {table} a join services v on v.org_id = a.org_id and v.id = a.service_id and v.client_uri is not null
        join users u on u.id = a.user_id join api_resources r on r.org_id = a.org_id and r.id = a.resource_id
        where a.org_id = %(org_id)s and a.resource_id = %(resource_id)s"""


ONE: Final = "a.user_id = %(user_id)s and v.client_id = %(client_id)s"


class ExternalGrants(Repository):
    """Implements `ports.storage.federation.oauth.ExternalGrants`."""

    async def page(
        self, org_id: UUID, resource_id: UUID, page: values.Page, *, search: str | None = None
    ) -> values.PageResult[consents.ExternalGrant]:
        listed, order = f"{_granted('api_consents')} {matching_email('u.email', search)}", "u.email, v.client_uri, v.id"
        return await self._counted_page(
            GRANT.read, GRANT.columns, listed, order, page, org_id=org_id, resource_id=resource_id, search=search
        )

    async def find(self, org_id: UUID, resource_id: UUID, user_id: UUID, client_id: UUID) -> consents.ExternalGrant | None:
        sql = f"select {GRANT.columns} {_granted('api_consents')} and {ONE}"
        return await self._one(GRANT.read, sql, org_id=org_id, resource_id=resource_id, user_id=user_id, client_id=client_id)

    async def remove(self, org_id: UUID, resource_id: UUID, user_id: UUID, client_id: UUID) -> consents.ExternalGrant | None:
        sql = f"""
            with removed as (
                delete from api_consents a using services v
                where a.org_id = %(org_id)s and a.resource_id = %(resource_id)s and v.id = a.service_id and {ONE}
                returning a.*)
            select {GRANT.columns} {_granted("removed")}"""
        grant = await self._one(GRANT.read, sql, org_id=org_id, resource_id=resource_id, user_id=user_id, client_id=client_id)
        if grant is not None:
            sql = """
                delete from consents c where c.org_id = %(org_id)s and c.user_id = %(user_id)s and c.service_id = %(service_id)s
                  and not exists (select 1 from api_consents where user_id = c.user_id and service_id = c.service_id)"""
            await self._run(sql, org_id=org_id, user_id=user_id, service_id=grant.service_id)
        return grant
