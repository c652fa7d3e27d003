"""Services, which are the applications of organizations."""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Final, LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb

from adapters.postgres.billing.subscriptions import entitlement, to_entitlement
from adapters.postgres.engine.locks import SERVICES
from adapters.postgres.engine.statements import DeferredRow, Repository, Row
from adapters.postgres.kernel.rate_limits import charge_parameters, charge_sql
from adapters.postgres.maintenance.deferred_deletion import delete_logins_sql
from core.applications.model.client_settings import ClientSettings
from core.applications.model.services import CLIENT_SETTINGS, Service, ServiceOrder, ServiceSlugTaken, ServiceSummary, ServiceType
from core.applications.model.users import AccessPolicy, AccessSettings
from core.authentication.model.sessions import NO_ENTITLEMENT
from core.billing.model.subscriptions import Entitlement
from core.kernel.callers import OrganizationStatus, ServiceContext
from core.kernel.rate_limits import Bucket
from core.kernel.values import Slug

# Columns of `services v` and `organizations vo`, in the order in which `to_context` reads them
CONTEXT: Final = (
    "v.id, v.slug, v.client_id, v.service_type, vo.id, vo.slug, vo.status, "
    "v.access_token_seconds, v.refresh_token_seconds, v.enterprise, v.required_acr, "
    "v.require_pushed_authorization_requests, v.dpop_bound_access_tokens, v.always_ask_consent"
)
CONTEXT_WIDTH: Final = 14
# Columns of `services v`, in the order in which `to_service` reads them
COLUMNS: Final = (
    "v.id, v.org_id, v.slug, v.name, v.service_type, v.client_id, v.client_secret_hash, v.codehost_scopes, v.websuite_scopes, "
    "v.officesuite_scopes, v.redirect_uris, v.device_activation_uri, v.subscription_count, v.created_at, v.updated_at, "
    "v.pkce_without_secret, v.access_policy, v.saml_self_enrolled, v.launch_url, v.email_sign_in, "
    "v.is_trusted, v.id_token_claims, v.post_logout_redirect_uris, v.backchannel_logout_uri, "
    "v.former_secret_hash, v.former_secret_expires_at, v.jwks, v.jwks_uri, v.accepts_token_endpoint_audience, "
    "v.access_token_seconds, v.refresh_token_seconds, v.enterprise, v.required_acr, "
    "v.require_pushed_authorization_requests, v.dpop_bound_access_tokens, v.always_ask_consent, v.credential_id"
)
COLUMN_COUNT: Final = 37
CLIENT: Final = f"select {COLUMNS}, {CONTEXT} from organizations vo join services v on v.org_id = vo.id"
PROVEN_CLIENT: Final = """
    from client where client_secret_hash = any(%(secret_hashes)s)
    or (former_secret_hash = any(%(secret_hashes)s) and former_secret_expires_at > %(now)s)"""
# Selects users `r` of a service who use no other service of its organization. Keep the limit: it
# makes the planner look up each user by index. With a plain join it may read all users of the
# organization.
NO_OTHER: Final = """
    (select o.user_id from service_users o
     where o.org_id = %(org_id)s and o.user_id = r.user_id and o.service_id <> %(service_id)s limit 1) is null"""

BEFORE_ALL: Final = UUID(int=0)  # not the id of any user, and less than all of them


def to_context(row: Row) -> ServiceContext:
    return ServiceContext(
        id=row[0],
        slug=row[1],
        client_id=row[2],
        is_public=ServiceType(row[3]).is_public,
        org_id=row[4],
        org_slug=row[5],
        status=OrganizationStatus(row[6]),
        access_token_seconds=row[7],
        refresh_token_seconds=row[8],
        enterprise=row[9],
        requires_second_factor=row[10] is not None,
        require_pushed_authorization_requests=row[11],
        dpop_bound_access_tokens=row[12],
        always_ask_consent=row[13],
    )


def to_service(row: Row) -> Service:
    return Service(
        id=row[0],
        org_id=row[1],
        slug=Slug(row[2]),
        name=row[3],
        service_type=ServiceType(row[4]),
        client_id=row[5],
        credential_id=row[36],
        client_secret_hash=row[6],
        codehost_scopes=_scopes(row[7]),
        websuite_scopes=_scopes(row[8]),
        officesuite_scopes=_scopes(row[9]),
        redirect_uris=tuple(row[10]),
        device_activation_uri=row[11],
        subscription_count=row[12],
        created_at=row[13],
        updated_at=row[14],
        pkce_without_secret=row[15],
        access=AccessSettings(AccessPolicy(row[16]), row[17], row[18]),
        email_sign_in=row[19],
        is_trusted=row[20],
        id_token_claims=row[21],
        post_logout_redirect_uris=tuple(row[22]),
        backchannel_logout_uri=row[23],
        former_secret_hash=row[24],
        former_secret_expires_at=row[25],
        client=ClientSettings(
            jwks=None if row[26] is None else tuple(row[26]),
            jwks_uri=row[27],
            accepts_token_endpoint_audience=row[28],
            access_token_seconds=row[29],
            refresh_token_seconds=row[30],
            enterprise=row[31],
            required_acr=row[32],
            require_pushed_authorization_requests=row[33],
            dpop_bound_access_tokens=row[34],
            always_ask_consent=row[35],
        ),
    )


def _scopes(value: list[str] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


def to_service_summary(row: Row) -> ServiceSummary:
    return ServiceSummary(to_service(row), row[COLUMN_COUNT])


def to_client(row: Row) -> tuple[Service, ServiceContext]:
    return to_service(row), to_context(row[COLUMN_COUNT:])


def context_and_entitlement_sql(user_id: LiteralString) -> LiteralString:
    """Return a query for the service with the id `service_id`, and for the plan that this user has there."""
    return f"""
        select {CONTEXT}, n.name, n.status, n.features from services v join organizations vo on vo.id = v.org_id
        left join lateral ({entitlement("v.id", user_id)}) n on true where v.id = %(service_id)s"""


def to_context_and_entitlement(row: Row) -> tuple[ServiceContext, Entitlement]:
    return to_context(row), NO_ENTITLEMENT if row[CONTEXT_WIDTH] is None else to_entitlement(row[CONTEXT_WIDTH:])


class Services(Repository):
    """Implements `ports.storage.applications.Services`."""

    constraints: ClassVar = {"services_org_slug_key": ServiceSlugTaken}

    async def by_slug(self, org_id: UUID, slug: str) -> Service | None:
        return await self._one(
            to_service, f"select {COLUMNS} from services v where v.org_id = %(org_id)s and v.slug = %(slug)s", org_id=org_id, slug=slug
        )

    async def by_id(self, org_id: UUID, service_id: UUID) -> Service | None:
        return await self._one(
            to_service,
            f"select {COLUMNS} from services v where v.org_id = %(org_id)s and v.id = %(service_id)s",
            org_id=org_id,
            service_id=service_id,
        )

    async def context_by_slug(self, org_slug: str, slug: str) -> ServiceContext | None:
        return await self._one(
            to_context,
            f"""
            select {CONTEXT} from organizations vo join services v on v.org_id = vo.id
            where vo.slug = %(org_slug)s and v.slug = %(slug)s""",
            org_slug=org_slug,
            slug=slug,
        )

    async def context_by_id(self, service_id: UUID) -> ServiceContext | None:
        return await self._one(
            to_context,
            f"select {CONTEXT} from services v join organizations vo on vo.id = v.org_id where v.id = %(service_id)s",
            service_id=service_id,
        )

    def context_and_entitlement_deferred(
        self, service_id: UUID, user_id: UUID, now: datetime
    ) -> DeferredRow[tuple[ServiceContext, Entitlement]]:
        return self._one_deferred(
            to_context_and_entitlement,
            context_and_entitlement_sql("%(user_id)s"),
            service_id=service_id,
            user_id=user_id,
            now=now,
        )

    async def client_by_slug(self, org_slug: str, slug: str) -> tuple[Service, ServiceContext] | None:
        return await self._one(to_client, f"{CLIENT} where vo.slug = %(org_slug)s and v.slug = %(slug)s", org_slug=org_slug, slug=slug)

    async def by_client_id(self, client_id: UUID) -> tuple[Service, ServiceContext] | None:
        return await self._one(to_client, f"{CLIENT} where v.client_id = %(client_id)s", client_id=client_id)

    async def charge_client(
        self, client_id: UUID, secret_hashes: Sequence[bytes], buckets: tuple[Bucket, ...], now: datetime
    ) -> tuple[Service, ServiceContext, float | None] | None:
        return await self._one(
            lambda row: (*to_client(row), row[COLUMN_COUNT + CONTEXT_WIDTH]),
            f"""
            with client as ({CLIENT} where v.client_id = %(client_id)s),
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
        service_type: ServiceType | None,
        after: Service | None,
        limit: int,
        offset: int,
        *,
        search: str | None = None,
        order: ServiceOrder = ServiceOrder.CREATED,
    ) -> list[ServiceSummary]:
        of_type = "and v.service_type = %(service_type)s" if service_type is not None else ""
        matching = "and (strpos(lower(v.name), %(search)s) > 0 or strpos(v.slug, %(search)s) > 0)" if search else ""
        # Only this organization's services are read and sorted. Its tier limits their number.
        position: LiteralString = "v.created_at" if order is ServiceOrder.CREATED else "lower(v.name)"
        start: LiteralString = "%(created_at)s" if order is ServiceOrder.CREATED else "lower(%(name)s)"
        later = f"and ({position}, v.id) > ({start}, %(id)s)" if after is not None else ""
        return await self._all(
            to_service_summary,
            f"""
            select {COLUMNS}, (select count(*) from plans p where p.service_id = v.id and p.removed_at is null)
            from services v where v.org_id = %(org_id)s {of_type} {matching} {later}
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

    async def with_policy(self, org_id: UUID, policy: AccessPolicy) -> list[Service]:
        return await self._all(
            to_service,
            f"select {COLUMNS} from services v where v.org_id = %(org_id)s and v.access_policy = %(policy)s order by v.created_at, v.id",
            org_id=org_id,
            policy=policy,
        )

    async def count(self, org_id: UUID) -> int:
        return await self._one(lambda row: int(row[0]), "select count(*) from services where org_id = %(org_id)s", org_id=org_id) or 0

    async def add(self, service: Service) -> None:
        await self._run(
            """
            insert into services (id, org_id, slug, client_id, created_at, name, service_type, client_secret_hash, codehost_scopes,
                                  websuite_scopes, officesuite_scopes, redirect_uris, device_activation_uri, updated_at,
                                  pkce_without_secret, access_policy, saml_self_enrolled, launch_url, email_sign_in,
                                  is_trusted, id_token_claims, post_logout_redirect_uris, backchannel_logout_uri, former_secret_hash,
                                  former_secret_expires_at, jwks, jwks_uri, accepts_token_endpoint_audience, access_token_seconds,
                                  refresh_token_seconds, enterprise, required_acr, require_pushed_authorization_requests,
                                  dpop_bound_access_tokens, always_ask_consent, credential_id)
            values (%(id)s, %(org_id)s, %(slug)s, %(client_id)s, %(created_at)s, %(name)s, %(service_type)s, %(client_secret_hash)s,
                    %(codehost_scopes)s, %(websuite_scopes)s, %(officesuite_scopes)s, %(redirect_uris)s, %(device_activation_uri)s,
                    %(updated_at)s, %(pkce_without_secret)s, %(access_policy)s, %(saml_self_enrolled)s, %(launch_url)s,
                    %(email_sign_in)s, %(is_trusted)s, %(id_token_claims)s, %(post_logout_redirect_uris)s, %(backchannel_logout_uri)s,
                    %(former_secret_hash)s, %(former_secret_expires_at)s, %(jwks)s, %(jwks_uri)s, %(accepts_token_endpoint_audience)s,
                    %(access_token_seconds)s, %(refresh_token_seconds)s, %(enterprise)s, %(required_acr)s,
                    %(require_pushed_authorization_requests)s, %(dpop_bound_access_tokens)s, %(always_ask_consent)s, %(credential_id)s)""",
            slug=service.slug,
            client_id=service.client_id,
            created_at=service.created_at,
            **_changeable(service),
        )

    async def save(self, service: Service) -> None:
        await self._run(
            """
            update services set
                name = %(name)s, service_type = %(service_type)s, client_secret_hash = %(client_secret_hash)s,
                codehost_scopes = %(codehost_scopes)s, websuite_scopes = %(websuite_scopes)s, officesuite_scopes = %(officesuite_scopes)s,
                redirect_uris = %(redirect_uris)s, device_activation_uri = %(device_activation_uri)s, updated_at = %(updated_at)s,
                pkce_without_secret = %(pkce_without_secret)s, access_policy = %(access_policy)s,
                saml_self_enrolled = %(saml_self_enrolled)s, launch_url = %(launch_url)s, email_sign_in = %(email_sign_in)s,
                is_trusted = %(is_trusted)s, id_token_claims = %(id_token_claims)s,
                post_logout_redirect_uris = %(post_logout_redirect_uris)s, backchannel_logout_uri = %(backchannel_logout_uri)s,
                former_secret_hash = %(former_secret_hash)s, former_secret_expires_at = %(former_secret_expires_at)s,
                jwks = %(jwks)s, jwks_uri = %(jwks_uri)s, accepts_token_endpoint_audience = %(accepts_token_endpoint_audience)s,
                access_token_seconds = %(access_token_seconds)s, refresh_token_seconds = %(refresh_token_seconds)s,
                enterprise = %(enterprise)s, required_acr = %(required_acr)s, credential_id = %(credential_id)s,
                require_pushed_authorization_requests = %(require_pushed_authorization_requests)s,
                dpop_bound_access_tokens = %(dpop_bound_access_tokens)s, always_ask_consent = %(always_ask_consent)s
            where org_id = %(org_id)s and id = %(id)s""",
            **_changeable(service),
        )

    async def delete(self, org_id: UUID, service_id: UUID, now: datetime) -> None:
        # Wait for sign-ins in progress, which share this lock (`EndUsers.enroll_deferred`). During the
        # deletion, sign-ins to another service with the same hash find no service either. This is
        # very rare.
        await self._write(f"select pg_advisory_xact_lock({SERVICES}, hashtext(%(service_id)s::text))", service_id=service_id)
        await self._run(
            """
            with gone as (delete from services where org_id = %(org_id)s and id = %(service_id)s returning id)
            insert into deleted_services (id, deleted_at) select id, %(now)s from gone""",
            org_id=org_id,
            service_id=service_id,
            now=now,
        )

    async def lock_users(self, org_id: UUID, service_id: UUID, after: UUID | None, limit: int) -> UUID | None:
        # Lock order: service_users, then end_users. A change of an account's email address uses the
        # same order.
        return await self._one(
            lambda row: row[0],
            f"""
            with r as materialized (
                select user_id from service_users
                where org_id = %(org_id)s and service_id = %(service_id)s and user_id > %(after)s
                order by user_id limit %(limit)s for update),
            held as materialized (
                select 1 from r join end_users e on e.org_id = %(org_id)s and e.user_id = r.user_id where {NO_OTHER} for update of e)
            select user_id from r cross join (select count(*) from held) h order by user_id desc limit 1""",
            org_id=org_id,
            service_id=service_id,
            after=after or BEFORE_ALL,
            limit=limit,
        )

    async def remove_users(self, org_id: UUID, service_id: UUID, after: UUID | None, until: UUID) -> int:
        removed_end_users = await self._one(
            lambda row: int(row[0]),
            f"""
            with r as (
                delete from service_users
                where org_id = %(org_id)s and service_id = %(service_id)s and user_id > %(after)s and user_id <= %(until)s
                returning user_id),
            withdrawn as (
                delete from consents c using r where c.org_id = %(org_id)s and c.service_id = %(service_id)s and c.user_id = r.user_id),
            forgotten as (
                delete from end_users e using r where e.org_id = %(org_id)s and e.user_id = r.user_id and {NO_OTHER} returning 1)
            select count(*) from forgotten""",
            org_id=org_id,
            service_id=service_id,
            after=after or BEFORE_ALL,
            until=until,
        )
        return removed_end_users or 0

    async def remove_totals(self, org_id: UUID, service_id: UUID, end_users: int) -> None:
        await self._run(
            """
            with counted as (update end_user_totals set total = total - %(end_users)s where org_id = %(org_id)s)
            delete from login_totals where org_id = %(org_id)s and service_id = %(service_id)s""",
            org_id=org_id,
            service_id=service_id,
            end_users=end_users,
        )

    async def purge(self, service_id: UUID, limit: int) -> None:
        await self._run(
            f"{delete_logins_sql('select %(service_id)s::uuid as id')} select 1 from records", service_id=service_id, limit=limit
        )


def _changeable(service: Service) -> dict[str, object]:
    return {
        "id": service.id,
        "org_id": service.org_id,
        "name": service.name,
        "service_type": service.service_type,
        "client_secret_hash": service.client_secret_hash,
        "credential_id": service.credential_id,
        "codehost_scopes": _array(service.codehost_scopes),
        "websuite_scopes": _array(service.websuite_scopes),
        "officesuite_scopes": _array(service.officesuite_scopes),
        "redirect_uris": _array(service.redirect_uris),
        "device_activation_uri": service.device_activation_uri,
        "updated_at": service.updated_at,
        "pkce_without_secret": service.pkce_without_secret,
        "access_policy": service.access.policy,
        "saml_self_enrolled": service.access.saml_self_enrolled,
        "launch_url": service.access.launch_url,
        "email_sign_in": service.email_sign_in,
        "is_trusted": service.is_trusted,
        "id_token_claims": service.id_token_claims,
        "post_logout_redirect_uris": list(service.post_logout_redirect_uris),
        "backchannel_logout_uri": service.backchannel_logout_uri,
        "former_secret_hash": service.former_secret_hash,
        "former_secret_expires_at": service.former_secret_expires_at,
        **{name: getattr(service.client, name) for name in CLIENT_SETTINGS},
        "jwks": None if service.client.jwks is None else Jsonb(service.client.jwks),
    }


def _array(values: tuple[str, ...] | None) -> list[str] | None:
    return None if values is None else list(values)
