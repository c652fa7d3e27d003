"""Services, which are the organizations' applications, and their claims documents."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.applications.plans import ENTITLEMENT, entitlement
from adapters.postgres.applications.service_users import TAKE_ROLES
from adapters.postgres.engine import records, statements
from adapters.postgres.engine.locks import SERVICES
from adapters.postgres.kernel.rate_limits import charge_parameters, charge_sql
from adapters.postgres.kernel.shared_sql import REGISTERED
from adapters.postgres.maintenance.housekeeping import OF_SERVICES
from adapters.postgres.tenancy.groups import leave_groups
from core.applications.model import services, users
from core.applications.model.client_settings import SELF_REGISTERED
from core.applications.model.plans import Entitlement
from core.kernel import callers
from core.kernel.proofs import Strength
from core.kernel.rate_limits import Bucket
from core.kernel.values import Slug

# For a service `v`, which may be missing: the strength that it requires from every sign-in
REQUIRED_STRENGTH: Final = "case v.required_acr when 'phr' then 3 when 'mfa' then 2 else 1 end"
# For `services v` and `organizations vo`
CONTEXT: Final = records.Record(
    callers.ServiceContext,
    "v",
    is_public=records.Column(sql="v.service_type", read=lambda service_type: services.ServiceType(service_type).is_public),
    org_id="vo.id",
    org_slug="vo.slug",
    status=records.Column(sql="vo.status", read=callers.OrganizationStatus),
    has_sign_in_policy="vo.sign_in_policy_version is not null",
    required_strength=records.Column(sql=REQUIRED_STRENGTH, read=tuple(Strength).__getitem__),
)
ACCESS: Final = records.Record(users.AccessSettings, "v", policy=records.Column(sql="v.access_policy", read=users.AccessPolicy))
COLUMNS: Final[Mapping[str, records.Description]] = {
    "slug": Slug,
    "service_type": services.ServiceType,
    "redirect_uris": tuple,
    "post_logout_redirect_uris": tuple,
    "access": ACCESS.as_field(),
    "jwks": records.Column(read=tuple, write=Jsonb),
}
CONNECTION_SCOPES: Final = records.Column(
    sql="""
    (select jsonb_object_agg(c.slug, x.scopes)
     from service_connections x join connections c on c.id = x.connection_id and c.org_id is null
     where x.service_id = v.id and x.scopes is not null)""",
    read=lambda scopes: {slug: tuple(each) for slug, each in scopes.items()},
)
SERVICE: Final = records.Record(services.Service, "v", **COLUMNS, connection_scopes=CONNECTION_SCOPES)
STORED: Final = records.Record(services.Service, "v", **COLUMNS, connection_scopes=None)  # its table alone
# The name of a service `v` in logs and figures: for an external client its host, because such a client chooses its own name. A client that
# registered itself has no host.
LOGGED_NAME: Final = f"""
    case when {REGISTERED} then v.name
    else coalesce(lower(substring(v.client_uri from '^https://([^/]+)')), '{SELF_REGISTERED}') end"""
# These columns never change, or separate statements count them.
FIXED: Final = ("id", "org_id", "slug", "client_id", "created_at", "subscription_count", "registered_with")
INSERT: Final = STORED.insert("services")
UPDATE: Final = f"update services set {STORED.assignments(without=FIXED)} where org_id = %(org_id)s and id = %(id)s"
# Follows a query `saved` with INSERT or UPDATE.
PUT_SCOPES: Final = """
    insert into service_connections (service_id, connection_id, org_id, scopes)
    select saved.id, c.id, saved.org_id, case when s.key is not null then array(select jsonb_array_elements_text(s.value)) end
    from saved join connections c on c.org_id is null left join jsonb_each(%(connection_scopes)s) s on s.key = c.slug
    left join service_connections x on x.service_id = saved.id and x.connection_id = c.id
    where s.key is not null or x.scopes is not null
    on conflict (service_id, connection_id) do update set scopes = excluded.scopes"""
SELECT: Final = f"select {SERVICE.columns} from services v"
CLIENT: Final = f"select {SERVICE.columns}, {CONTEXT.columns} from organizations vo join services v on v.org_id = vo.id"
PROVEN_CLIENT: Final = """
    from client where client_secret_hash = any(%(secret_hashes)s)
    or (former_secret_hash = any(%(secret_hashes)s) and former_secret_expires_at > %(now)s)"""
# Selects users `r` at a service who use no other service in its organization. Keep the limit: it
# makes the planner look up users by index. With a plain join it may read all users in the
# organization.
NO_OTHER: Final = """
    (select o.user_id from service_users o
     where o.org_id = %(org_id)s and o.user_id = r.user_id and o.service_id <> %(service_id)s limit 1) is null"""

BEFORE_ALL: Final = UUID(int=0)  # not a user's id, and less than all user ids


def to_client(row: statements.Row) -> tuple[services.Service, callers.ServiceContext]:
    return SERVICE.read(row), CONTEXT.read(row[SERVICE.width :])


def context_and_entitlement_sql(user_id: LiteralString) -> LiteralString:
    """Return a query for the service with the id `service_id`, and for the plan that this user has there."""
    return f"""
        select {CONTEXT.columns}, {ENTITLEMENT.columns} from services v join organizations vo on vo.id = v.org_id
        left join lateral ({entitlement("v.id", user_id)}) n on true where v.id = %(service_id)s"""


def to_context_and_entitlement(row: statements.Row) -> tuple[callers.ServiceContext, Entitlement]:
    return CONTEXT.read(row), ENTITLEMENT.read(row[CONTEXT.width :])


class Services(statements.Repository):
    """Implements `ports.storage.applications.services.Services`."""

    constraints: ClassVar = {"services_org_slug_key": services.ServiceSlugTaken}

    async def by_slug(self, org_id: UUID, slug: str) -> services.Service | None:
        return await self._one(
            SERVICE.read, f"{SELECT} where v.org_id = %(org_id)s and v.slug = %(slug)s and {REGISTERED}", org_id=org_id, slug=slug
        )

    async def by_id(self, org_id: UUID, service_id: UUID) -> services.Service | None:
        sql = f"{SELECT} where v.org_id = %(org_id)s and v.id = %(service_id)s"
        return await self._one(SERVICE.read, sql, org_id=org_id, service_id=service_id)

    async def context_by_slug(self, org_slug: str, slug: str) -> callers.ServiceContext | None:
        sql = f"""
            select {CONTEXT.columns} from organizations vo join services v on v.org_id = vo.id
            where vo.slug = %(org_slug)s and v.slug = %(slug)s and {REGISTERED}"""
        return await self._one(CONTEXT.read, sql, org_slug=org_slug, slug=slug)

    async def context_by_id(self, service_id: UUID) -> callers.ServiceContext | None:
        sql = f"select {CONTEXT.columns} from services v join organizations vo on vo.id = v.org_id where v.id = %(service_id)s"
        return await self._one(CONTEXT.read, sql, service_id=service_id)

    def context_and_entitlement(
        self, service_id: UUID, user_id: UUID, now: datetime
    ) -> statements.Answer[tuple[callers.ServiceContext, Entitlement] | None]:
        return self._one(
            to_context_and_entitlement, context_and_entitlement_sql("%(user_id)s"), service_id=service_id, user_id=user_id, now=now
        )

    async def client_by_id(self, org_id: UUID, service_id: UUID) -> tuple[services.Service, callers.ServiceContext] | None:
        sql = f"{CLIENT} where vo.id = %(org_id)s and v.id = %(service_id)s"
        return await self._one(to_client, sql, org_id=org_id, service_id=service_id)

    async def client_by_slug(self, org_slug: str, slug: str) -> tuple[services.Service, callers.ServiceContext] | None:
        return await self._one(
            to_client, f"{CLIENT} where vo.slug = %(org_slug)s and v.slug = %(slug)s and {REGISTERED}", org_slug=org_slug, slug=slug
        )

    async def by_client_id(self, client_id: UUID) -> tuple[services.Service, callers.ServiceContext] | None:
        return await self._one(to_client, f"{CLIENT} where v.client_id = %(client_id)s and {REGISTERED}", client_id=client_id)

    async def charge_client(
        self, client_id: UUID, secret_hashes: Sequence[bytes], buckets: tuple[Bucket, ...], now: datetime
    ) -> tuple[services.Service, callers.ServiceContext, float | None] | None:
        return await self._one(
            lambda row: (*to_client(row), row[-1]),
            f"""
            with client as ({CLIENT} where v.client_id = %(client_id)s and {REGISTERED}),
            charged as ({charge_sql(len(buckets), PROVEN_CLIENT)})
            select client.*, charged.wait from client left join charged on true""",
            client_id=client_id,
            secret_hashes=list(secret_hashes),
            now=now,
            **charge_parameters(f"client {client_id}", buckets, now),
        )

    async def list_after(
        self,
        org_id: UUID,
        service_type: services.ServiceType | None,
        after: services.Service | None,
        limit: int,
        offset: int,
        *,
        search: str | None = None,
        order: services.ServiceOrder = services.ServiceOrder.CREATED,
    ) -> list[services.ServiceSummary]:
        of_type = "and v.service_type = %(service_type)s" if service_type is not None else ""
        found = "strpos(lower(v.name), %(search)s) > 0 or strpos(v.slug, %(search)s) > 0 or v.client_id::text = %(search)s"
        matching = f"and ({found})" if search else ""
        # Only this organization's services are read and sorted. The organization's tier limits the
        # number of services.
        position: LiteralString = "v.created_at" if order is services.ServiceOrder.CREATED else "lower(v.name)"
        start: LiteralString = "%(created_at)s" if order is services.ServiceOrder.CREATED else "lower(%(name)s)"
        later = f"and ({position}, v.id) > ({start}, %(id)s)" if after is not None else ""
        return await self._all(
            lambda row: services.ServiceSummary(SERVICE.read(row), row[SERVICE.width]),
            f"""
            select {SERVICE.columns}, (select count(*) from plans p where p.service_id = v.id and p.removed_at is null)
            from services v where v.org_id = %(org_id)s and {REGISTERED} {of_type} {matching} {later}
            order by {position}, v.id limit %(limit)s offset %(offset)s""",
            org_id=org_id,
            service_type=service_type,
            search=search,
            created_at=after.created_at if after else None,
            name=after.name if after else None,
            id=after.id if after else None,
            limit=limit,
            offset=offset,
        )

    async def with_policy(self, org_id: UUID, policy: users.AccessPolicy) -> list[services.Service]:
        sql = f"{SELECT} where v.org_id = %(org_id)s and v.access_policy = %(policy)s and {REGISTERED} order by v.created_at, v.id"
        return await self._all(SERVICE.read, sql, org_id=org_id, policy=policy)

    async def of_group(self, org_id: UUID, group_id: UUID) -> list[services.Service]:
        sql = f"""
            {SELECT} where v.org_id = %(org_id)s and v.id in (
                select service_id from service_groups_assigned where org_id = %(org_id)s and group_id = %(group_id)s)
            order by lower(v.name), v.id"""
        return await self._all(SERVICE.read, sql, org_id=org_id, group_id=group_id)

    async def count(self, org_id: UUID) -> int:
        return await self._count(f"select count(*) from services v where v.org_id = %(org_id)s and {REGISTERED}", org_id=org_id)

    async def has_origin(self, org_id: UUID, origin: str) -> bool:
        sql = f"""
            select exists (
                select 1 from services v, unnest(array_append(v.redirect_uris, v.launch_url)) url
                where v.org_id = %(org_id)s and {REGISTERED} and (lower(url) = %(origin)s or starts_with(lower(url), %(origin)s || '/')))"""
        return await self._one(lambda row: bool(row[0]), sql, org_id=org_id, origin=origin) or False

    async def add(self, service: services.Service) -> None:
        await self._put(INSERT, service)

    async def save(self, service: services.Service) -> None:
        await self._put(UPDATE, service)

    async def _put(self, statement: LiteralString, service: services.Service) -> None:
        scopes = Jsonb({slug: list(each) for slug, each in (service.connection_scopes or {}).items()})
        sql = f"with saved as ({statement} returning id, org_id) {PUT_SCOPES}"
        await self._run(sql, **STORED.values(service), connection_scopes=scopes)

    async def delete(self, org_id: UUID, service_id: UUID, now: datetime | None) -> None:
        # Wait for sign-ins in progress, which share this lock (`EndUsers.enroll`). During the
        # deletion, sign-ins to another service with the same hash find no service either. Two
        # services with the same hash are very rare.
        await self._write(f"select pg_advisory_xact_lock({SERVICES}, hashtext(%(service_id)s::text))", service_id=service_id)
        sql = """
            with gone as (delete from services where org_id = %(org_id)s and id = %(service_id)s returning id)
            insert into deleted_services (id, deleted_at) select id, %(now)s from gone where %(now)s::timestamptz is not null"""
        await self._run(sql, org_id=org_id, service_id=service_id, now=now)

    async def lock_users(self, org_id: UUID, service_id: UUID, after: UUID | None, limit: int) -> UUID | None:
        # Lock order: service_users, then end_users. A change to an account's email address uses the
        # same order.
        sql = f"""
            with r as materialized (
                select user_id from service_users
                where org_id = %(org_id)s and service_id = %(service_id)s and user_id > %(after)s
                order by user_id limit %(limit)s for update),
            held as materialized (
                select 1 from r join end_users e on e.org_id = %(org_id)s and e.user_id = r.user_id where {NO_OTHER} for update of e)
            select user_id from r cross join (select count(*) from held) h order by user_id desc limit 1"""
        return await self._one(lambda row: row[0], sql, org_id=org_id, service_id=service_id, after=after or BEFORE_ALL, limit=limit)

    async def remove_users(self, org_id: UUID, service_id: UUID, after: UUID | None, until: UUID) -> int:
        sql = f"""
            with r as (
                delete from service_users
                where org_id = %(org_id)s and service_id = %(service_id)s and user_id > %(after)s and user_id <= %(until)s
                returning user_id),
            withdrawn as (
                delete from consents c using r where c.org_id = %(org_id)s and c.service_id = %(service_id)s and c.user_id = r.user_id),
            gone as (
                delete from end_users e using r where e.org_id = %(org_id)s and e.user_id = r.user_id and {NO_OTHER}
                returning e.org_id, e.user_id),
            roleless as ({TAKE_ROLES}),
            ungrouped as ({leave_groups("gone")})
            select count(*) from gone"""
        return await self._count(sql, org_id=org_id, service_id=service_id, after=after or BEFORE_ALL, until=until)

    async def remove_totals(self, org_id: UUID, service_id: UUID, end_users: int) -> None:
        sql = """
            with counted as (update end_user_totals set total = total - %(end_users)s where org_id = %(org_id)s),
            figures as (delete from sign_in_figures where org_id = %(org_id)s and service_id = %(service_id)s)
            delete from login_totals where org_id = %(org_id)s and service_id = %(service_id)s"""
        await self._run(sql, org_id=org_id, service_id=service_id, end_users=end_users)

    async def purge(self, service_id: UUID, limit: int) -> None:
        sql = f"{OF_SERVICES.delete_sql('select %(service_id)s::uuid as id')} select 1 from records"
        await self._run(sql, service_id=service_id, limit=limit)


class ServiceClaims(statements.Repository):
    """Implements `ports.storage.applications.services.ServiceClaims`."""

    async def find(self, org_id: UUID, service_id: UUID) -> services.StoredClaims | None:
        sql = """
            select c.document, v.claims_version, c.changed_at from service_claims c join services v on v.id = c.service_id
            where c.org_id = %(org_id)s and c.service_id = %(service_id)s"""
        return await self._one(lambda row: services.StoredClaims(*row), sql, org_id=org_id, service_id=service_id)

    async def service_with_source(self, org_id: UUID, source: str) -> str | None:
        sql = """
            select v.name from services v
            left join service_claims c on c.service_id = v.id
            left join saml_configurations s on s.service_id = v.id
            where v.org_id = %(org_id)s and (s.attribute_mapping ? %(source)s or jsonb_path_exists(
                c.document, '$.values.*.sources[*] ? (@ == $source)', jsonb_build_object('source', %(source)s::text)))
            order by v.slug limit 1"""
        return await self._one(lambda row: row[0], sql, org_id=org_id, source=source)

    async def put(self, org_id: UUID, service_id: UUID, document: Mapping[str, Any], sources: Sequence[str], now: datetime) -> int:
        sql = """
            with changed as (
                update services set claims_version = nextval('service_claim_versions')
                where org_id = %(org_id)s and id = %(service_id)s returning id, org_id, claims_version),
            stored as (
                insert into service_claims (service_id, org_id, document, sources, changed_at)
                select id, org_id, %(document)s, %(sources)s::text[], %(now)s from changed
                on conflict (service_id) do update
                set document = excluded.document, sources = excluded.sources, changed_at = excluded.changed_at)
            select claims_version from changed"""
        return await self._count(sql, org_id=org_id, service_id=service_id, document=Jsonb(dict(document)), sources=list(sources), now=now)

    async def remove(self, org_id: UUID, service_id: UUID) -> bool:
        sql = """
            with changed as (
                update services set claims_version = null where org_id = %(org_id)s and id = %(service_id)s and claims_version is not null),
            removed as (
                delete from service_claims where org_id = %(org_id)s and service_id = %(service_id)s returning 1)
            select 1 from removed"""
        return await self._exists(sql, org_id=org_id, service_id=service_id)
