"""What users granted external clients at API resources."""

from typing import Final, LiteralString
from uuid import UUID

from adapters.postgres.engine.records import Column, Record
from adapters.postgres.engine.statements import Repository, matching_email
from core.federation.oauth.model.external_grants import ExternalGrant
from core.kernel.values import Email, Page, PageResult

GRANT: Final = Record(
    ExternalGrant,
    "a",
    email=Column(sql="u.email", read=Email),
    client_id="v.client_id",
    client_uri="v.client_uri",
    client_name="v.name",
    scopes=Column(
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

    async def page(self, org_id: UUID, resource_id: UUID, page: Page, *, search: str | None = None) -> PageResult[ExternalGrant]:
        listed, order = f"{_granted('api_consents')} {matching_email('u.email', search)}", "u.email, v.client_uri, v.id"
        return await self._counted_page(
            GRANT.read, GRANT.columns, listed, order, page, org_id=org_id, resource_id=resource_id, search=search
        )

    async def find(self, org_id: UUID, resource_id: UUID, user_id: UUID, client_id: UUID) -> ExternalGrant | None:
        sql = f"select {GRANT.columns} {_granted('api_consents')} and {ONE}"
        return await self._one(GRANT.read, sql, org_id=org_id, resource_id=resource_id, user_id=user_id, client_id=client_id)

    async def remove(self, org_id: UUID, resource_id: UUID, user_id: UUID, client_id: UUID) -> ExternalGrant | None:
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
