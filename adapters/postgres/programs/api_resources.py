"""The organizations' API resources, their clients, and the users that are assigned to them."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.applications.service_access import may_use_resource
from adapters.postgres.engine import records
from adapters.postgres.engine.statements import Repository, matching_email
from adapters.postgres.kernel.connections import verified_owner
from adapters.postgres.kernel.shared_sql import REGISTERED
from core.applications.model.users import AccessPolicy
from core.kernel import values
from core.programs.model import api_resources, client_policy
from core.programs.model.service_accounts import AccountResource
from core.tenancy.model.groups import AssignedGroup


def is_active(resource: LiteralString) -> LiteralString:
    """Return an SQL condition that is true if a resource's organization has its identifier's host, for this row in `api_resources`."""
    return f"({resource}.host is null or {verified_owner(f'{resource}.host')} is not distinct from {resource}.org_id)"


def access_sql(resource: LiteralString, scope: LiteralString) -> LiteralString:
    """Return SQL for the access that these scopes give at a row in `api_resources`, as `to_resource_access` reads it."""
    return f"""
        jsonb_build_array({resource}.id, {resource}.name, {resource}.identifier, (
            select coalesce(jsonb_agg(jsonb_build_array(s.name, s.description) order by s.position), '[]')
            from unnest({resource}.scope_names, {resource}.scope_descriptions) with ordinality s (name, description, position)
            where s.name = any({scope})))"""


EXTERNAL_CLIENTS: Final = records.Record(
    client_policy.ExternalClientPolicy,
    "r",
    admit=records.Column(sql="r.external_admit", read=client_policy.ClientAdmission),
    hosts=records.Column(sql="r.external_hosts", read=tuple),
    scopes=records.Column(sql="r.external_scopes", read=tuple),
    accepts_token_endpoint_audience=records.Column(sql="r.external_token_endpoint_audience"),
    registration="r.external_registration",
)
COLUMNS: Final[Mapping[str, records.Description]] = {
    "scopes": records.Columns(
        "r.scope_names, r.scope_descriptions, r.scope_implications",
        3,
        lambda row: tuple(
            api_resources.ResourceScope(name, text, tuple(row[2].get(name, ()))) for name, text in zip(*row[:2], strict=True)
        ),
        lambda scopes: {
            "scope_names": [scope.name for scope in scopes],
            "scope_descriptions": [scope.description for scope in scopes],
            "scope_implications": Jsonb({scope.name: scope.implies for scope in scopes if scope.implies}),
        },
    ),
    "policy": records.Column(sql="r.access_policy", read=AccessPolicy),
    "external_clients": EXTERNAL_CLIENTS.as_field(),
}
API_RESOURCE: Final = records.Record(api_resources.ApiResource, "r", **COLUMNS, is_active=is_active("r"))
STORED: Final = records.Record(api_resources.ApiResource, "r", **COLUMNS, is_active=None)  # its table alone
FIXED: Final = ("id", "org_id", "identifier", "created_at")  # they never change
SCOPES: Final = records.Column(sql="c.own_scopes", read=tuple)
CLIENT: Final = records.Record(api_resources.ResourceClient, "c", client_id="v.client_id", slug="v.slug", name="v.name", scopes=SCOPES)
OF_CLIENTS: Final = f"""
    from api_resource_clients c join services v on v.id = c.service_id and v.org_id = c.org_id
    where c.org_id = %(org_id)s and c.resource_id = %(resource_id)s and {REGISTERED}"""
# Scheme, host and port in an external client's address, or null for a client that registered itself
ORIGIN: Final = "substring(v.client_uri from '^https://[^/]+')"
# The scopes that applications and service accounts get for themselves
PROGRAM_GRANTS: Final = """
    select c.org_id, c.resource_id, c.own_scopes, v.client_id from api_resource_clients c join services v on v.id = c.service_id
    union all select org_id, resource_id, own_scopes, service_account_id from api_resource_service_accounts"""
ACCOUNT_RESOURCE: Final = records.Record(AccountResource, "c", identifier="r.identifier", name="r.name", scopes=SCOPES)
ACCOUNT_RESOURCES: Final = f"""
    select {ACCOUNT_RESOURCE.columns}
    from api_resource_service_accounts c join api_resources r on r.id = c.resource_id and r.org_id = c.org_id
    where c.org_id = %(org_id)s and c.service_account_id = %(account_id)s"""
ASSIGNED: Final = """
    from api_resource_assignments a join users u on u.id = a.user_id
    where a.org_id = %(org_id)s and a.resource_id = %(resource_id)s"""


def to_resource_access(value: list[Any]) -> api_resources.ResourceAccess:
    """Return the access in a JSON array with id, name, identifier, and a scope array with descriptions."""
    id_, name, identifier, scopes = value
    return api_resources.ResourceAccess(UUID(id_), name, identifier, tuple(api_resources.ResourceScope(*scope) for scope in scopes))


class ApiResources(Repository):
    """Implements `ports.storage.programs.ApiResources`."""

    constraints: ClassVar = {
        "api_resources_identifier_key": api_resources.IdentifierTaken,
        "api_resources_without_host": api_resources.IdentifierTaken,
    }

    async def of_org(self, org_id: UUID) -> list[api_resources.ApiResource]:
        sql = f"select {API_RESOURCE.columns} from api_resources r where r.org_id = %(org_id)s order by r.created_at, r.id"
        return await self._all(API_RESOURCE.read, sql, org_id=org_id)

    async def by_id(self, org_id: UUID, resource_id: UUID) -> api_resources.ApiResource | None:
        sql = f"select {API_RESOURCE.columns} from api_resources r where r.org_id = %(org_id)s and r.id = %(resource_id)s"
        return await self._one(API_RESOURCE.read, sql, org_id=org_id, resource_id=resource_id)

    async def count(self, org_id: UUID) -> int:
        return await self._count("select count(*) from api_resources where org_id = %(org_id)s", org_id=org_id)

    async def requested(self, service_id: UUID, canonical: str) -> api_resources.ApiResource | None:
        sql = f"""
            select {API_RESOURCE.columns} from api_resource_clients c join api_resources r on r.id = c.resource_id and r.org_id = c.org_id
            where c.service_id = %(service_id)s and r.canonical = %(canonical)s and {is_active("r")}"""
        return await self._one(API_RESOURCE.read, sql, service_id=service_id, canonical=canonical)

    async def find_for_external(self, canonical: str) -> api_resources.ExternalTarget | None:
        sql = f"""
            select {API_RESOURCE.columns}, o.slug, o.sign_in_policy_version is not null
            from api_resources r join organizations o on o.id = r.org_id
            where r.canonical = %(canonical)s and o.status = 'active' and {is_active("r")}"""
        return await self._one(lambda row: api_resources.ExternalTarget(API_RESOURCE.read(row), row[-2], row[-1]), sql, canonical=canonical)

    async def lock(self, org_id: UUID, resource_id: UUID) -> api_resources.ApiResource | None:
        sql = f"""
            select {API_RESOURCE.columns} from api_resources r
            where r.org_id = %(org_id)s and r.id = %(resource_id)s for share of r"""
        return await self._one(API_RESOURCE.read, sql, org_id=org_id, resource_id=resource_id)

    async def may_use(self, org_id: UUID, resource_id: UUID, user_id: UUID) -> bool:
        sql = f"""
            select 1 from api_resources r
            where r.org_id = %(org_id)s and r.id = %(resource_id)s and {may_use_resource("r", "%(user_id)s")}"""
        return await self._exists(sql, org_id=org_id, resource_id=resource_id, user_id=user_id)

    async def clients(self, org_id: UUID, resource_id: UUID, page: values.Page) -> values.PageResult[api_resources.ResourceClient]:
        return await self._counted_page(
            CLIENT.read, CLIENT.columns, OF_CLIENTS, "lower(v.name), v.id", page, org_id=org_id, resource_id=resource_id
        )

    async def client(self, org_id: UUID, resource_id: UUID, client_id: UUID) -> api_resources.ResourceClient | None:
        sql = f"select {CLIENT.columns} {OF_CLIENTS} and v.client_id = %(client_id)s"
        return await self._one(CLIENT.read, sql, org_id=org_id, resource_id=resource_id, client_id=client_id)

    async def granted_to(self, org_id: UUID, client_id: UUID, canonical: str) -> tuple[api_resources.ApiResource, tuple[str, ...]] | None:
        sql = f"""
            select g.own_scopes, {API_RESOURCE.columns}
            from api_resources r
            join ({PROGRAM_GRANTS}) g on g.org_id = r.org_id and g.resource_id = r.id
            where r.org_id = %(org_id)s and r.canonical = %(canonical)s and g.client_id = %(client_id)s and {is_active("r")}"""
        return await self._one(
            lambda row: (API_RESOURCE.read(row[1:]), tuple(row[0])), sql, org_id=org_id, client_id=client_id, canonical=canonical
        )

    async def of_account(self, org_id: UUID, account_id: UUID) -> list[AccountResource]:
        sql = f"{ACCOUNT_RESOURCES} order by lower(r.name), r.id"
        return await self._all(ACCOUNT_RESOURCE.read, sql, org_id=org_id, account_id=account_id)

    async def granted_to_account(self, org_id: UUID, resource_id: UUID, account_id: UUID) -> AccountResource | None:
        sql = f"{ACCOUNT_RESOURCES} and r.id = %(resource_id)s"
        return await self._one(ACCOUNT_RESOURCE.read, sql, org_id=org_id, resource_id=resource_id, account_id=account_id)

    async def save_account(self, org_id: UUID, account_id: UUID, resource: AccountResource, now: datetime) -> None:
        sql = """
            insert into api_resource_service_accounts (org_id, resource_id, service_account_id, own_scopes, created_at)
            values (%(org_id)s, %(resource_id)s, %(account_id)s, %(own_scopes)s, %(now)s)
            on conflict (resource_id, service_account_id) do update set own_scopes = excluded.own_scopes"""
        await self._run(
            sql, org_id=org_id, resource_id=resource.resource_id, account_id=account_id, own_scopes=list(resource.scopes), now=now
        )

    async def remove_account(self, org_id: UUID, resource_id: UUID, account_id: UUID) -> bool:
        sql = """
            delete from api_resource_service_accounts
            where org_id = %(org_id)s and resource_id = %(resource_id)s and service_account_id = %(account_id)s returning 1"""
        return await self._exists(sql, org_id=org_id, resource_id=resource_id, account_id=account_id)

    async def assignments(
        self, org_id: UUID, resource_id: UUID, page: values.Page, *, search: str | None = None
    ) -> values.PageResult[api_resources.ResourceAssignment]:
        return await self._counted_page(
            lambda row: api_resources.ResourceAssignment(row[0], values.Email(row[1]), row[2]),
            "a.user_id, u.email, a.created_at",
            f"{ASSIGNED} {matching_email('u.email', search)}",
            "a.created_at, a.user_id",
            page,
            org_id=org_id,
            resource_id=resource_id,
            search=search,
        )

    async def add(self, resource: api_resources.ApiResource, identifier: api_resources.ResourceIdentifier) -> None:
        sql = STORED.insert("api_resources", "canonical", "host")
        await self._run(sql, **STORED.values(resource), canonical=identifier.canonical, host=identifier.host)

    async def save(self, resource: api_resources.ApiResource) -> None:
        sql = f"""
            with narrowed as (
                update api_resource_clients set own_scopes = array(
                    select name from unnest(%(scope_names)s::text[]) with ordinality s (name, position)
                    where name = any(own_scopes) order by position)
                where org_id = %(org_id)s and resource_id = %(id)s and not own_scopes <@ %(scope_names)s::text[]),
            narrowed_accounts as (
                update api_resource_service_accounts set own_scopes = array(
                    select name from unnest(%(scope_names)s::text[]) with ordinality s (name, position)
                    where name = any(own_scopes) order by position)
                where org_id = %(org_id)s and resource_id = %(id)s and not own_scopes <@ %(scope_names)s::text[])
            update api_resources set {STORED.assignments(without=FIXED)} where org_id = %(org_id)s and id = %(id)s"""
        await self._run(sql, **STORED.values(resource))

    async def remove(self, org_id: UUID, resource_id: UUID) -> None:
        sql = """
            with removed as (delete from api_resources where org_id = %(org_id)s and id = %(id)s returning id)
            delete from credentials c using removed where c.client_id = removed.id"""
        await self._run(sql, org_id=org_id, id=resource_id)

    async def save_client(self, org_id: UUID, resource_id: UUID, client: api_resources.ResourceClient) -> None:
        sql = """
            insert into api_resource_clients (org_id, resource_id, service_id, own_scopes, created_at)
            values (%(org_id)s, %(resource_id)s, %(service_id)s, %(own_scopes)s, %(created_at)s)
            on conflict (resource_id, service_id) do update set own_scopes = excluded.own_scopes"""
        await self._run(sql, org_id=org_id, resource_id=resource_id, **CLIENT.values(client))

    async def remove_client(self, org_id: UUID, resource_id: UUID, service_id: UUID) -> None:
        sql = """
            delete from api_resource_clients
            where org_id = %(org_id)s and resource_id = %(resource_id)s and service_id = %(service_id)s"""
        await self._run(sql, org_id=org_id, resource_id=resource_id, service_id=service_id)

    async def origins_of_external_clients(self, org_id: UUID, resource_id: UUID) -> list[str | None]:
        sql = f"""
            select distinct {ORIGIN} from api_resource_clients c join services v on v.id = c.service_id and v.org_id = c.org_id
            where c.org_id = %(org_id)s and c.resource_id = %(resource_id)s and not {REGISTERED}"""
        return await self._all(lambda row: row[0], sql, org_id=org_id, resource_id=resource_id)

    async def remove_external_clients(self, org_id: UUID, resource_id: UUID, origins: Collection[str | None]) -> None:
        sql = f"""
            delete from api_resource_clients c using services v
            where c.org_id = %(org_id)s and c.resource_id = %(resource_id)s and v.id = c.service_id and v.org_id = c.org_id
              and not {REGISTERED} and coalesce({ORIGIN}, '') = any(%(origins)s)"""
        await self._run(sql, org_id=org_id, resource_id=resource_id, origins=[origin or "" for origin in origins])

    async def groups(self, org_id: UUID, resource_id: UUID) -> list[AssignedGroup]:
        sql = """
            select g.id, g.name, g.member_count, a.assigned_at from api_resource_groups_assigned a join groups g on g.id = a.group_id
            where a.org_id = %(org_id)s and a.resource_id = %(resource_id)s order by g.name_key"""
        return await self._all(lambda row: AssignedGroup(*row), sql, org_id=org_id, resource_id=resource_id)

    async def assign_group(self, org_id: UUID, resource_id: UUID, group_id: UUID, now: datetime) -> bool:
        sql = """
            insert into api_resource_groups_assigned (org_id, resource_id, group_id, assigned_at)
            values (%(org_id)s, %(resource_id)s, %(group_id)s, %(now)s) on conflict do nothing returning 1"""
        return await self._exists(sql, org_id=org_id, resource_id=resource_id, group_id=group_id, now=now)

    async def unassign_group(self, org_id: UUID, resource_id: UUID, group_id: UUID) -> bool:
        sql = """
            delete from api_resource_groups_assigned
            where org_id = %(org_id)s and resource_id = %(resource_id)s and group_id = %(group_id)s returning 1"""
        return await self._exists(sql, org_id=org_id, resource_id=resource_id, group_id=group_id)

    async def assign(self, org_id: UUID, resource_id: UUID, user_id: UUID, now: datetime) -> bool:
        sql = """
            insert into api_resource_assignments (org_id, resource_id, user_id, created_at)
            values (%(org_id)s, %(resource_id)s, %(user_id)s, %(now)s)
            on conflict do nothing returning 1"""
        return await self._exists(sql, org_id=org_id, resource_id=resource_id, user_id=user_id, now=now)

    async def unassign(self, org_id: UUID, resource_id: UUID, user_id: UUID) -> bool:
        sql = """
            delete from api_resource_assignments
            where org_id = %(org_id)s and resource_id = %(resource_id)s and user_id = %(user_id)s returning 1"""
        return await self._exists(sql, org_id=org_id, resource_id=resource_id, user_id=user_id)
