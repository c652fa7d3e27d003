"""External clients, which are rows in `services` with an address."""

from datetime import datetime
from typing import Final
from uuid import UUID

from adapters.postgres.applications.service_access import may_use_resource
from adapters.postgres.applications.services import CLIENT, INSERT, SERVICE, STORED, to_client
from adapters.postgres.engine import statements
from adapters.postgres.engine.records import Record
from adapters.postgres.kernel.shared_sql import REGISTERED
from core.applications.model.services import Service
from core.federation.oauth.model import external_clients

# For an external client `v`
UNUSED: Final = f"""
    not {REGISTERED} and v.document_fetched_at < %(before)s
    and not exists (select from login_events l where l.service_id = v.id and l.created_at >= %(before)s)
    and not exists (select from authorization_codes c where c.service_id = v.id and c.expires_at > %(now)s)
    and not exists (select from sessions s join service_users u on u.user_id = s.user_id and u.service_id = v.id
                    where s.service_id = v.id and s.ended_at is null and s.expires_at > %(now)s)"""

# Keeps only failures after the document was fetched successfully. The first such failure may be unknown.
LATER_FAILURES: Final = """
    document_failing_since = case when document_failing_since > %(document_fetched_at)s then document_failing_since
        when document_failed_at > %(document_fetched_at)s then document_failed_at end,
    document_failed_at = case when document_failed_at > %(document_fetched_at)s then document_failed_at end"""
UNUSED_CLIENT: Final = Record(external_clients.UnusedClient, "v")


class ExternalClients(statements.Repository):
    """Implements `ports.storage.federation.oauth.ExternalClients`."""

    async def standing(self, org_id: UUID, service_id: UUID, resource_id: UUID, user_id: UUID) -> tuple[bool, Service | None]:
        sql = f"""
            select {may_use_resource("r", "%(user_id)s")}, v.id is not null, {SERVICE.columns}
            from api_resources r left join services v on v.org_id = r.org_id and v.id = %(service_id)s
            where r.org_id = %(org_id)s and r.id = %(resource_id)s"""
        values = {"org_id": org_id, "service_id": service_id, "resource_id": resource_id, "user_id": user_id}
        found = await self._one(lambda row: (bool(row[0]), SERVICE.read(row[2:]) if row[1] else None), sql, **values)
        return found or (False, None)

    async def of_secret(self, client_uri: str, secret_hash: bytes, now: datetime) -> external_clients.IdentifiedClient | None:
        sql = f"""
            with granted as (
                select service_id, expires_at > %(now)s as is_live, api_resource_id from authorization_codes
                where code_hash = %(secret_hash)s
                union all
                select s.service_id, s.ended_at is null and s.expires_at > %(now)s, s.api_resource_id
                from refresh_tokens t join sessions s on s.id = t.session_id where t.token_hash = %(secret_hash)s
                union all
                select service_id, expires_at > %(now)s, api_resource_id from device_codes where device_code_hash = %(secret_hash)s)
            select client.*, granted.is_live, coalesce(r.external_token_endpoint_audience, false) from granted
            join lateral ({CLIENT} where v.id = granted.service_id and v.client_uri = %(client_uri)s) client on true
            left join api_resources r on r.id = granted.api_resource_id"""
        return await self._one(
            lambda row: external_clients.IdentifiedClient(*to_client(row), *row[-2:]),
            sql,
            client_uri=client_uri,
            secret_hash=secret_hash,
            now=now,
        )

    async def is_known(self, client_uri: str, registered_at: datetime) -> bool:
        # The index is on the time.
        sql = "select 1 from services where client_uri = %(client_uri)s and document_fetched_at = %(registered_at)s limit 1"
        return await self._exists(sql, client_uri=client_uri, registered_at=registered_at)

    async def has_consents(self, org_id: UUID, service_id: UUID) -> bool:
        sql = "select 1 from consents where org_id = %(org_id)s and service_id = %(service_id)s limit 1"
        return await self._exists(sql, org_id=org_id, service_id=service_id)

    async def accepts_token_endpoint(self, org_id: UUID, identifier: str) -> bool:
        sql = """
            select 1 from api_resources
            where org_id = %(org_id)s and identifier = %(identifier)s and external_token_endpoint_audience"""
        return await self._exists(sql, org_id=org_id, identifier=identifier)

    async def find_unused(
        self, last: external_clients.UnusedClient | None, before: datetime, now: datetime
    ) -> external_clients.UnusedClient | None:
        # A condition on the row, so that the index on the time leads to the next row.
        later = "" if last is None else "and (v.document_fetched_at, v.id) > (%(fetched_at)s, %(last_id)s)"
        sql = f"select {UNUSED_CLIENT.columns} from services v where {UNUSED} {later} order by v.document_fetched_at, v.id limit 1"
        values = {} if last is None else {"fetched_at": last.document_fetched_at, "last_id": last.id}
        return await self._one(UNUSED_CLIENT.read, sql, before=before, now=now, **values)

    async def lock_unused(self, client: external_clients.UnusedClient, before: datetime, now: datetime) -> bool:
        sql = f"select 1 from services v where v.org_id = %(org_id)s and v.id = %(service_id)s and {UNUSED} for update of v"
        return await self._exists(sql, org_id=client.org_id, service_id=client.id, before=before, now=now)

    async def note_failure(self, org_id: UUID, service_id: UUID, now: datetime) -> None:
        sql = """
            update services set document_failing_since = coalesce(document_failing_since, %(now)s),
                document_failed_at = greatest(document_failed_at, %(now)s)
            where org_id = %(org_id)s and id = %(service_id)s and document_fetched_at < %(now)s"""
        await self._run(sql, org_id=org_id, service_id=service_id, now=now)

    async def note_success(self, org_id: UUID, service_id: UUID, fetched_at: datetime) -> None:
        sql = f"""
            update services set {LATER_FAILURES}
            where org_id = %(org_id)s and id = %(service_id)s and document_failing_since <= %(document_fetched_at)s"""
        await self._run(sql, org_id=org_id, service_id=service_id, document_fetched_at=fetched_at)

    def is_stored(self, service: Service, resource_id: UUID) -> statements.Answer[bool]:
        sql = """
            select 1 from services v join api_resource_clients c on c.service_id = v.id and c.resource_id = %(resource_id)s
            where v.org_id = %(org_id)s and v.id = %(id)s and v.document_fetched_at >= %(fetched_at)s"""
        return self._exists(sql, org_id=service.org_id, id=service.id, resource_id=resource_id, fetched_at=service.document_fetched_at)

    async def save(self, service: Service, resource_id: UUID, now: datetime) -> tuple[bool, Service | None]:
        # Users who sign in with the same document change nothing, so no user waits for an earlier user.
        await self._write(f"{INSERT} on conflict do nothing", **STORED.values(service))
        sql = f"""
            with former as (
                select {STORED.columns} from services v
                where org_id = %(org_id)s and id = %(id)s and document_fetched_at < %(document_fetched_at)s for update),
            changed as (update services set
                name = %(name)s, service_type = %(service_type)s, redirect_uris = %(redirect_uris)s, jwks = %(jwks)s,
                jwks_uri = %(jwks_uri)s, client_authentication = %(client_authentication)s, uses_device_flow = %(uses_device_flow)s,
                document_fetched_at = %(document_fetched_at)s, updated_at = %(now)s,
                {LATER_FAILURES}
                where org_id = %(org_id)s and id = (select id from former))
             table former"""
        former = await self._one(STORED.read, sql, **STORED.values(service), now=now)
        sql = """
            insert into api_resource_clients (org_id, resource_id, service_id, own_scopes, created_at)
            select org_id, %(resource_id)s, id, '{}', %(now)s from services where org_id = %(org_id)s and id = %(id)s for key share
            on conflict do nothing returning 1"""
        is_new = await self._exists(sql, org_id=service.org_id, id=service.id, resource_id=resource_id, now=now)
        return is_new, former
