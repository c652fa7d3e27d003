"""Services, plans, API keys, API resources and sessions, inserted as the use cases leave them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.applications.model.users import EnrollmentOrigin
from core.authentication.model.sessions import Session
from core.kernel import uris
from core.kernel.callers import OrganizationStatus, ServiceContext
from core.kernel.causes import SYSTEM
from core.kernel.claims import Claims
from core.kernel.roles import Permission
from core.kernel.values import digest, new_id, new_secret
from ports import Ports
from ports.storage import Transaction
from tests.support.builders import SignedIn, one_factor, run_sql


async def add_service(pool: Pool, org: UUID, slug: str = "shop", service_type: str = "web", *, secret: str = "a client secret") -> UUID:
    """Add a service named after its slug, with a redirect URI and without plans."""
    service = new_id()
    insert = """
        insert into services (id, org_id, slug, name, service_type, client_id, client_secret_hash, redirect_uris, created_at, updated_at)
        values (%s, %s, %s, %s, %s, %s, %s, %s, now(), now())"""
    hashed = digest(secret) if service_type in ("web", "api") else None
    uris = [f"https://{slug}.example.com/callback"]
    await run_sql(pool, insert, service, org, slug, slug.title(), service_type, new_id(), hashed, uris)
    return service


async def add_plan(
    pool: Pool, service: UUID, name: str = "Gold", *, features: Iterable[str] = ("exports",), price: str | None = None
) -> UUID:
    """Add a plan for 9.99 euros. `price` is its price id at the payment provider."""
    plan = new_id()
    insert = """
        insert into plans (id, org_id, service_id, name, price_cents, currency, features, billing_price_id, created_at, updated_at)
        select %s, org_id, id, %s, 999, 'eur', %s, %s, now(), now() from services where id = %s"""
    await run_sql(pool, insert, plan, name, list(features), price, service)
    return plan


async def add_api_key(
    pool: Pool,
    service: UUID,
    permissions: Iterable[str] = tuple(Permission),
    *,
    expires_at: datetime | None = None,
    by: UUID | None = None,
) -> str:
    """Add an API key to the service, by default with all permissions, and created by the organization's owner."""
    key = f"sk_abcdef_{new_secret()}"
    insert = """
        insert into api_keys (id, org_id, service_id, name, prefix, key_hash, permissions, expires_at, created_by, created_at)
        select %s, org_id, id, 'Robot', 'sk_abcdef', %s, %s, %s,
               coalesce(%s, (select user_id from memberships m where m.org_id = v.org_id and m.role = 'owner'), %s), now()
        from services v where id = %s"""
    names = [str(permission) for permission in permissions]
    await run_sql(pool, insert, new_id(), digest(key), names, expires_at, by, new_id(), service)
    return key


async def add_service_role(
    pool: Pool, service: UUID, user: UUID | None = None, slug: str = "editor", *, at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
) -> UUID:
    """Add a service role with its own permission, give it to the user, and return its id."""
    role, permission = new_id(), f"{slug}:all"
    declare = "insert into service_permissions (org_id, service_id, name) select org_id, id, %s from services where id = %s"
    await run_sql(pool, declare, permission, service)
    insert = """
        insert into service_roles (id, org_id, service_id, slug, name, permissions, created_at, updated_at)
        select %s, org_id, id, %s, %s, %s, %s, %s from services where id = %s"""
    await run_sql(pool, insert, role, slug, slug.title(), [permission], at, at, service)
    if user is not None:
        give = "insert into service_role_users select org_id, service_id, id, %s, %s from service_roles where id = %s"
        await run_sql(pool, give, user, at, role)
    return role


async def enroll_user(tx: Transaction, service: UUID, user: UUID, at: datetime) -> bool:
    """Enroll the account in the service, as a sign-in does. Return whether the service admits it."""
    return await tx.end_users.enroll(service, user, at)


async def add_consent(pool: Pool, service: UUID, user: UUID, at: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
    """Let the user agree to the service's scopes `openid` and `profile`."""
    insert = """
        insert into consents (user_id, org_id, service_id, scope, granted_at)
        select %s, org_id, id, '{profile,openid}', %s from services where id = %s"""
    await run_sql(pool, insert, user, at, service)


async def add_service_user(ports: Ports, service: UUID, user: UUID, *, signed_in: bool = True) -> None:
    """Enroll the account in the service, as a login does, or the service's API key."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        if signed_in:
            assert await enroll_user(tx, service, user, ports.clock.now())
        else:
            context = await tx.services.context_by_id(service)
            assert context is not None
            assert await tx.assignments.add(context.org_id, service, [user], EnrollmentOrigin.API_KEY, ports.clock.now())


async def add_subscription(
    ports: Ports, pool: Pool, service: UUID, user: UUID, plan: UUID, status: str = "active", *, ends: datetime, provider: str | None = None
) -> UUID:
    """Add a subscription to a plan. `provider` is its id at the payment provider."""
    subscription = new_id()
    insert = """
        with added as (
            insert into subscriptions (id, org_id, service_id, user_id, plan_id, status, current_period_end, provider_subscription_id,
                                       created_at, updated_at)
            select %s, org_id, id, %s, %s, %s, %s, %s, %s, %s from services where id = %s returning service_id)
        update services s set subscription_count = subscription_count + 1 from added where s.id = added.service_id"""
    now = ports.clock.now()
    await run_sql(pool, insert, subscription, user, plan, status, ends, provider, now, now, service)
    return subscription


async def add_login(ports: Ports, pool: Pool, service: UUID, user: UUID, provider: str = "password", *, at: datetime | None = None) -> None:
    """Add the login event for a login to the service."""
    now, context = at or ports.clock.now(), await service_context(pool, service)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.logins.record_success(Session(new_id(), user, now, now, now, "203.0.113.9", "tests", service=context), provider)


async def service_context(pool: Pool, service: UUID) -> ServiceContext:
    """Return the service context for a sign-in to the service."""
    [row] = await run_sql(
        pool,
        """
        select v.id, v.slug, v.client_id, v.service_type in ('spa', 'mobile', 'desktop'), o.id, o.slug, o.status
        from services v join organizations o on o.id = v.org_id where v.id = %s""",
        service,
    )
    return ServiceContext(
        id=row[0],
        slug=row[1],
        client_id=row[2],
        is_public=row[3],
        org_id=row[4],
        org_slug=row[5],
        status=OrganizationStatus(row[6]),
    )


async def sign_in_to(ports: Ports, pool: Pool, service: UUID, account: Account) -> SignedIn:
    """Begin a session at the service as a login does, without hashing and without a login event."""
    now, refresh_token, context = ports.clock.now(), new_secret(), await service_context(pool, service)
    ends_at = now + ports.policy.session_absolute_ttl
    session = Session(
        id=new_id(),
        user_id=account.id,
        created_at=now,
        expires_at=now + ports.policy.refresh_token_ttl,
        ends_at=ends_at,
        address="203.0.113.9",
        agent="tests",
        service=context,
        proofs=one_factor(now),
    )
    async with ports.storage.transaction(by=SYSTEM) as tx:
        assert await enroll_user(tx, service, account.id, now)
        await tx.sessions.begin(session, digest(refresh_token))
    claims = Claims(
        user_id=account.id,
        session_id=session.id,
        email=account.email,
        email_verified=account.email_verified_at is not None,
        token_id=new_id(),
        issued_at=now,
        expires_at=now + ports.policy.access_token_ttl,
        org=context.org_slug,
        org_id=context.org_id,
        service=context.slug,
        client_id=context.client_id,
    )
    return SignedIn(session.id, ports.tokens.sign(claims), refresh_token)


# API resources

SCOPES: Final[Mapping[str, str]] = {"orders:read": "Read your orders", "orders:write": "Change your orders"}


async def verify_domain(pool: Pool, org: UUID, domain: str = "example.com") -> None:
    """Make this the organization's only domain, which is verified."""
    await run_sql(pool, "delete from domains where org_id = %s", org)
    sql = "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, %s, %s, now(), now())"
    await run_sql(pool, sql, org, domain, str(new_id()))


async def add_api_resource(
    pool: Pool,
    org: UUID,
    identifier: str = "https://api.example.com/",
    *,
    services: tuple[UUID, ...] = (),
    scopes: Mapping[str, str] = SCOPES,
) -> UUID:
    """Add an API resource that these services may ask for. Its host need not be verified."""
    resource = new_id()
    host = None if uris.is_on_loopback(identifier) else uris.host_of(identifier)
    await run_sql(
        pool,
        """
        insert into api_resources (id, org_id, identifier, canonical, host, name, scope_names, scope_descriptions, token_seconds,
                                   access_policy, created_at, updated_at)
        values (%s, %s, %s, %s, %s, 'Orders API', %s, %s, 600, 'anyone', now(), now())""",
        resource,
        org,
        identifier,
        uris.normalize(identifier),
        host,
        list(scopes),
        list(scopes.values()),
    )
    for service in services:
        await run_sql(
            pool,
            "insert into api_resource_clients (org_id, resource_id, service_id, own_scopes, created_at) values (%s, %s, %s, '{}', now())",
            org,
            resource,
            service,
        )
    return resource
