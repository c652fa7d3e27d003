"""Values for path variables, with which requests pass all access checks.

There is an organization with a member, and a user who may do everything.
"""

import re
from typing import Final
from uuid import uuid4

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.kernel.claims import PreAuthClaims
from core.kernel.roles import Permission
from core.kernel.values import digest, new_id, new_secret
from core.programs.model.registration_tokens import new_token as new_registration_token
from ports import Ports
from tests.support.builders import add_account, sign_in

PATH_VALUES: Final = {
    "org_slug": "acme",
    "org_id": str(uuid4()),
    "user_id": str(uuid4()),
    "service_slug": "shop",
    "role_name": "auditor",
    "attribute_name": "cost_center",
    "service_id": str(uuid4()),
    "plan_id": str(uuid4()),
    "role_slug": "editor",
    "permission_name": "documents:read",
    "api_key_id": str(uuid4()),
    "token_id": str(uuid4()),
    "webhook_id": str(uuid4()),
    "resource_id": str(uuid4()),
    "client_id": str(uuid4()),
    "device_id": str(uuid4()),
    "account_id": str(uuid4()),
    "platform_account_id": str(uuid4()),
    "provider": "codehost",
    "group_id": str(uuid4()),
    "connection_slug": "okta",
    "pushed_group_id": str(uuid4()),  # the directory's group
}
API_KEY: Final = f"sk_abcdef_{new_secret()}"  # the key with that id, which has all permissions for the service
SCIM_TOKEN: Final = f"scim_live_abcdef_{new_secret()}"  # for the organization
REGISTRATION_TOKEN: Final = new_registration_token()[0]  # the organization's token
NOTHING: Final = "nothing-there"


def filled(path: str) -> str:
    """Replace `<name>` or `{name}` in a path by its value.

    Unknown names get a value that does not exist.
    """
    if path.startswith(("/api/platform/service-accounts/", "/app/platform/service-accounts/")):
        path = path.replace("account_id", "platform_account_id")
    if path.startswith("/scim/"):
        path = path.replace("group_id", "pushed_group_id")
    return re.sub(r"[<{](?:[a-z]+:)?([a-z_]+)[>}]", lambda match: PATH_VALUES.get(match[1], NOTHING), path)


async def add_ruler(ports: Ports, pool: Pool) -> tuple[Account, str]:
    """Add a platform owner who also owns the organization in PATH_VALUES.

    Return the account and an access token.
    """
    account = await add_account(ports, is_platform_owner=True)
    await restore(pool, account)
    return account, (await sign_in(ports, account)).access_token


def pre_auth_token(ports: Ports, account: Account) -> str:
    """Return a pre-auth token without a pending sign-in. It passes the access check."""
    now = ports.clock.now()
    claims = PreAuthClaims(id=new_id(), user_id=account.id, issued_at=now, expires_at=now + ports.policy.pre_auth_ttl)
    return ports.tokens.sign_pre_auth(claims)


async def restore(pool: Pool, ruler: Account) -> None:
    """Restore the organization as active, with the ruler as its owner, a member, a service, and a plan.

    The member uses the service and has a subscription. The service has an API key, and the ruler a
    device.
    """
    statement = """
        with risen as (delete from deleted_organizations where id = %(org_id)s),
        service_risen as (delete from deleted_services where id = %(service_id)s),
        webhook_risen as (delete from deleted_webhooks where id = %(webhook_id)s),
        there as (
            insert into organizations (id, slug, name, status, tier_id, member_count, created_at, updated_at)
            select %(org_id)s, %(org_slug)s, 'Acme', 'active', id, 2, now(), now() from tiers where name = 'free'
            on conflict (id) do update set status = 'active'
            returning id),
        known as (
            insert into users (id, email, origin, created_at, updated_at)
            values (%(user_id)s, 'member@acme.example', 'platform', now(), now())
            on conflict (id)
            do update set email = excluded.email, anonymized_at = null, deactivated_at = null, platform_deactivated_at = null),
        unprovisioned as (delete from scim_users where org_id = %(org_id)s),
        provisioning as (
            insert into scim_tokens (id, org_id, name, prefix, token_hash, created_by, created_at, directory_groups)
            select %(token_id)s, id, 'Directory', 'scim_live_abcdef', %(scim_hash)s, %(ruler)s, now(), true from there
            on conflict (id) do update set directory_groups = true),
        connected as (
            insert into connections (id, org_id, slug, protocol, name, state, settings, mapping, created_at)
            select gen_random_uuid(), id, %(connection_slug)s, 'oidc', 'Okta', 'draft', '{"issuer": "", "client_id": ""}', '{}', now()
            from there on conflict (org_id, slug) do nothing),
        open_to_clients as (
            insert into registration_tokens (id, org_id, name, prefix, token_hash, uses_left, created_by, created_at)
            select gen_random_uuid(), id, 'Clients', 'gthr_abcdef', %(registration_hash)s, 1000, %(ruler)s, now() from there
            on conflict (token_hash) do update set uses_left = 1000),
        grouped as (
            insert into groups (id, org_id, name, name_key, scim_token_id, created_at, updated_at, members_changed_at)
            select %(group_id)s::uuid, id, 'By hand', 'by hand', null, now(), now(), now() from there
            union all select %(pushed_group_id)s::uuid, id, 'Pushed', 'pushed', %(token_id)s::uuid, now(), now(), now() from there
            on conflict (id) do nothing),
        serving as (
            insert into services (id, org_id, slug, name, service_type, client_id, client_secret_hash, redirect_uris, created_at,
                                  updated_at)
            select %(service_id)s, id, %(service_slug)s, 'Shop', 'web', %(client_id)s, 'x', '{}', now(), now() from there
            on conflict (id) do update set service_type = 'web', client_secret_hash = 'x'
            returning id, org_id),
        planned as (
            insert into plans (id, org_id, service_id, name, price_cents, currency, features, created_at, updated_at)
            select %(plan_id)s, org_id, id, 'Gold', 999, 'eur', '{}', now(), now() from serving
            on conflict (id) do update set removed_at = null),
        declared as (
            insert into service_permissions (org_id, service_id, name) select org_id, id, %(permission_name)s from serving
            on conflict (service_id, name) do nothing),
        enabled as (
            insert into service_roles (id, org_id, service_id, slug, name, permissions, created_at, updated_at)
            select gen_random_uuid(), org_id, id, %(role_slug)s, 'Editor', '{}', now(), now() from serving
            on conflict (service_id, slug) do nothing),
        keyed as (
            insert into api_keys (id, org_id, service_id, name, prefix, key_hash, permissions, created_by, created_at)
            select %(api_key_id)s, org_id, id, 'Robot', 'sk_abcdef', %(key_hash)s, %(permissions)s, %(ruler)s, now() from serving
            on conflict (id) do nothing),
        protected as (
            insert into api_resources (id, org_id, identifier, canonical, name, scope_names, scope_descriptions, token_seconds,
                                       access_policy, created_at, updated_at)
            select %(resource_id)s, id, urn, urn, 'Orders', '{read}', '{Read all}', 600, 'anyone', now(), now()
            from there cross join lateral (select 'urn:gatehouse:' || id || ':orders' as urn) named
            on conflict (id) do nothing),
        automated as (
            insert into service_accounts (id, org_id, name, owner_id, role, created_by, created_at, updated_at)
            select %(account_id)s::uuid, id, 'Robot', %(ruler)s::uuid, 'admin', %(ruler)s::uuid, now(), now() from there
            union all select %(platform_account_id)s::uuid, null, 'Robot', %(ruler)s::uuid, null, %(ruler)s::uuid, now(), now()
            on conflict (id) do nothing),
        hooked as (
            insert into webhooks (id, org_id, name, url, events, is_active, secret, created_at, updated_at)
            select %(webhook_id)s, id, 'Hook', 'https://hooks.acme.example', '{user.invited}', true, '', now(), now() from there
            on conflict (id) do update set is_active = true),
        ruled as (
            insert into organization_roles (id, org_id, slug, name, description, capabilities, created_at, updated_at)
            select gen_random_uuid(), id, %(role_name)s, 'Auditor', '', '{audit.view}', now(), now() from there
            on conflict (org_id, slug) do update set name = 'Auditor'),
        described as (
            insert into organization_attributes (org_id, name, label, kind, writers, merge, position, created_at)
            select id, %(attribute_name)s, 'Cost center', 'text', '{admin}', 'first', 0, now() from there
            on conflict (org_id, name) do nothing),
        used as (
            insert into service_users (service_id, user_id, org_id, email, deactivated, created_at)
            select id, %(user_id)s, org_id, 'member@acme.example', false, now() from serving
            on conflict (service_id, user_id) do nothing),
        known_to as (
            insert into end_users (org_id, user_id, email, deactivated, created_at)
            select id, %(user_id)s, 'member@acme.example', false, now() from there
            on conflict (org_id, user_id) do nothing),
        carried as (
            insert into devices (id, user_id, name, device_type, browser, os, last_used_at, risk_score, risk_factors, created_at,
                                 updated_at)
            values (%(device_id)s, %(ruler)s, 'Phone', 'mobile', 'Mobile Safari', 'iOS', now(), 0, '{}', now(), now())
            on conflict (id) do update set revoked_at = null),
        subscribed as (
            insert into subscriptions (id, org_id, service_id, user_id, plan_id, status, current_period_end, created_at, updated_at)
            select gen_random_uuid(), org_id, id, %(user_id)s, %(plan_id)s, 'active', now() + interval '30 days', now(), now() from serving
            on conflict do nothing)
        select id from there"""
    # A separate statement, because a trigger reads the member's address.
    memberships = """
        insert into memberships (id, org_id, user_id, role, created_at, confirmed_at)
        select gen_random_uuid(), %(org_id)s, of.user_id, of.role, now(), now()
        from (values (%(ruler)s::uuid, 'owner'), (%(user_id)s::uuid, 'member')) as of (user_id, role)
        on conflict (org_id, user_id) do nothing"""
    async with pool.connection() as connection:
        permissions = [permission.value for permission in Permission]
        await connection.execute(
            statement,
            {
                **PATH_VALUES,
                "ruler": ruler.id,
                "key_hash": digest(API_KEY),
                "scim_hash": digest(SCIM_TOKEN),
                "registration_hash": digest(REGISTRATION_TOKEN),
                "permissions": permissions,
            },
        )
        await connection.execute(memberships, {**PATH_VALUES, "ruler": ruler.id})
