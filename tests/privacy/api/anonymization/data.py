"""Requests that anonymize an account, and the personal data that they delete or redact."""

import re
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from adapters.postgres.engine.pool import Pool
from core.accounts import email_changes
from core.accounts.model.accounts import Account
from core.accounts.model.email_queue import EmailKind, OneTimeToken, TokenPurpose, new_email
from core.kernel.causes import SYSTEM
from core.kernel.values import Email, digest, new_secret
from ports import Ports
from tests.support.builders import Answer, Api, run_sql, sign_in
from tests.support.connections import add_connection
from tests.support.personal_tokens import add_personal_token
from tests.support.services import add_api_resource, add_plan, add_service_role, add_service_user, add_subscription, sign_in_to
from tests.support.tenants import Tenant

USER_ADDRESS: Final = "203.0.113.9"
FORMER_EMAIL: Final = "ada.byron@example.com"
PLACEHOLDER: Final = re.compile(r"anonymized-\d{16}@deleted\.local")
DELETED_TABLES: Final = (
    "sessions",
    "mfa",
    "backup_codes",
    "identities",
    "connection_identities",
    "passkeys",
    "former_passkeys",
    "devices",
    "sign_in_flows",
    "one_time_tokens",
    "email_changes",
    "consents",
    "api_consents",
    "api_resource_assignments",
    "group_members",
    "end_user_blocks",
    "former_members",
    "service_role_users",
    "attribute_values",
)
KEPT_TABLES: Final = ("memberships", "login_events", "mfa_events", "subscriptions", "service_users", "end_users")


async def request_anonymization(api: Api, user_id: object, token: str | None) -> Answer:
    return await api.delete(f"/api/privacy/forget/{user_id}", token=token, headers={"User-Agent": "the owner's browser"})


async def anonymize(api: Api, user_id: object, token: str) -> None:
    answer = await request_anonymization(api, user_id, token)
    assert answer.status == 200, answer.text


async def account_row(pool: Pool, user_id: UUID) -> dict[str, Any]:
    columns = (
        *("email", "email_verified_at", "password_hash", "mfa_enabled_at", "passkey_handle", "anonymized_at", "created_at"),
        *("name", "picture", "locale", "zoneinfo", "profile_details"),
    )
    [values] = await run_sql(pool, f"select {', '.join(columns)} from users where id = %s", user_id)  # noqa: S608
    return dict(zip(columns, values, strict=True))


async def columns_with(pool: Pool, text: str) -> set[str]:
    """Return the tables and columns in the whole database that contain this text."""
    columns = await run_sql(
        pool,
        """
        select table_name, column_name from information_schema.columns
        where table_schema = 'public' and data_type in ('text', 'json', 'jsonb', 'ARRAY')""",
    )
    names = set()
    for table, column in columns:
        if await run_sql(pool, f"select 1 from {table} where strpos({column}::text, %s) > 0 limit 1", text):  # noqa: S608
            names.add(f"{table}.{column}")
    return names


async def count_rows(pool: Pool, user_id: UUID, *tables: str) -> dict[str, int]:
    """Return how many rows the user has, per table."""
    counts = {}
    for table in tables:
        [(counts[table],)] = await run_sql(pool, f"select count(*) from {table} where user_id = %s", user_id)  # noqa: S608
    return counts


async def add_all_data(tenant: Tenant, account: Account, service: UUID) -> None:
    """Add data of every kind that an account can have."""
    pool, ports = tenant.pool, tenant.ports
    now, until = ports.clock.now(), ports.clock.now() + timedelta(hours=1)
    await add_service_user(ports, service, account.id)
    plan = await add_plan(pool, service)
    await add_subscription(ports, pool, service, account.id, plan, ends=until)
    await run_sql(pool, "update users set mfa_enabled_at = now() where id = %s", account.id)
    session = (await sign_in(ports, account)).session_id
    await sign_in_to(ports, pool, service, account)
    await add_personal_token(ports, account, tenant.org, name="Ada's export")
    await run_sql(pool, "update sessions set key_thumbprint = 'key of Ada' where service_id = %s", service)
    resource = await add_api_resource(pool, tenant.org, services=(service,))
    await add_service_role(pool, service, account.id)
    connection = await add_connection(ports.storage, tenant.org)
    statements = {
        """
        insert into connection_identities (user_id, org_id, connection_id, subject, email, linked_at, last_used_at)
        values (%s, %s, %s, 'ada-at-okta', 'ada@example.com', now(), now())""": (tenant.org, connection.id),
        "insert into mfa (user_id, secret, setup_at) values (%s, 'secret', now())": (),
        "insert into backup_codes (user_id, code_hash) values (%s, 'one'), (%s, 'two')": (account.id,),
        """
        insert into identities (id, user_id, service_id, provider, provider_user_id, email, access_token, linked_at)
        values (gen_random_uuid(), %s, %s, 'codehost', 'ada-at-codehost', 'ada@example.com', 'token', now())""": (service,),
        """
        insert into passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid, backup_eligible, created_at, rp_id,
                              algorithm)
        values (gen_random_uuid(), %s, 'Key', 'credential', 'key', 0, gen_random_uuid(), true, now(), 'gatehouse.test', -7)""": (),
        """
        insert into former_passkeys (id, user_id, name, credential_id, public_key, algorithm, rp_id, sign_count, aaguid, backup_eligible,
                                     backed_up, transports, created_at, removed_at)
        values (gen_random_uuid(), %s, 'Former key', 'former', 'key', -7, 'gatehouse.test', 0, gen_random_uuid(), true, true, '{}', now(),
                now())""": (),
        "update users set passkey_count = 1, passkey_handle = decode(repeat('ab', 64), 'hex') where id = %s": (),
        """
        insert into devices (id, user_id, name, device_type, browser, os, last_used_at, last_ip, city, country, risk_score,
                             risk_factors, trust_hash, trust_expires_at, created_at, updated_at)
        values (gen_random_uuid(), %s, 'Ada''s laptop', 'browser', 'Firefox', 'Linux', now(), '203.0.113.9', 'London', 'GB', 0, '{}',
                'trust', now() + interval '90 days', now(), now())""": (),
        """
        insert into sign_in_flows (id, target, request, wants_fresh, keeps_trust, user_id, proofs, begun_at, expires_at)
        values (gen_random_uuid(), 'page', '/', false, true, %s, '[]', now(), now())""": (),
        """
        insert into sign_in_flows (id, target, request, wants_fresh, keeps_trust, proofs, challenge, challenge_email, begun_at, expires_at)
        select gen_random_uuid(), 'page', '/', false, true, '[]', '{"agent": "Ada''s browser", "city": "London"}', email, now(), now()
        from users where id = %s""": (),
        """
        insert into login_events (
            id, user_id, service_id, org_id, provider, success, address, agent, city, country, created_at, request_id)
        select gen_random_uuid(), %s, %s, %s, 'password', false, '203.0.113.9', 'Ada''s browser', 'London', 'GB', now(),
               'Ada''s browser'""": (*(service, tenant.org),),
        """
        insert into email_changes (id, user_id, session_id, old_email, new_email, requested_at, expires_at)
        values (gen_random_uuid(), %s, %s, 'ada@example.com', 'ada@elsewhere.example', now(), now())""": (session,),
        "insert into consents (user_id, service_id, org_id, scope, granted_at) values (%s, %s, %s, '{openid}', now())": (
            *(service, tenant.org),
        ),
        "insert into api_consents (user_id, service_id, org_id, resource_id, scope, granted_at) values (%s, %s, %s, %s, '{x}', now())": (
            *(service, tenant.org, resource),
        ),
        """
        insert into former_members (user_id, org_id, email, name, left_at)
        values (%s, %s, 'ada@example.com', 'Ada', now())""": (tenant.org,),
        "insert into end_user_blocks (user_id, org_id, email, since) values (%s, %s, 'ada@example.com', now())": (tenant.org,),
        "insert into api_resource_assignments (user_id, org_id, resource_id, created_at) values (%s, %s, %s, now())": (
            *(tenant.org, resource),
        ),
        """
        insert into attribute_values (user_id, org_id, attributes, changed_at)
        values (%s, %s, '{"team": "Ada''s team"}', now())""": (tenant.org,),
        "insert into group_members (user_id, org_id, group_id, added_at) values (%s, %s, gen_random_uuid(), now())": (tenant.org,),
        """
        insert into mfa_events (id, user_id, event_type, success, address, agent, created_at)
        values (gen_random_uuid(), %s, 'mfa_verify_success', true, '203.0.113.9', 'Ada''s browser', now())""": (),
    }
    for statement, parameters in statements.items():
        await run_sql(pool, statement, account.id, *parameters)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for purpose in TokenPurpose:
            await tx.one_time_tokens.add(
                OneTimeToken(digest(new_secret()), purpose, account.id, account.email, created_at=now, expires_at=until)
            )
        await tx.email_queue.add(new_email(EmailKind.RESET_PASSWORD, account.email, now))


async def change_account_email(ports: Ports, account: Account, *addresses: str) -> None:
    """Change the account's address several times, as an organization does."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for address in addresses:
            locked_account = await tx.accounts.lock(account.id)
            assert locked_account is not None
            await email_changes.change_at_once(tx, locked_account, Email(address), ports.clock.now())


async def end_undo_links(pool: Pool) -> None:
    """Let the links expire that could undo a change to an account, which would only be closed."""
    await run_sql(pool, "update security_notices set undo_until = created_at")
