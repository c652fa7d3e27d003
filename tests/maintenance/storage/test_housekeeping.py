"""Leases, and the deletion of obsolete rows only."""

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from adapters.postgres.engine.pool import Pool
from adapters.postgres.maintenance.housekeeping import LOCK_UNVERIFIED, SWEEPS
from adapters.postgres.storage import Postgres, Transaction
from core.accounts import events
from core.accounts.model.accounts import AccountOrigin
from core.accounts.model.email_queue import EmailOutcome, OneTimeToken, TokenPurpose
from core.authentication.model.recovery import AccountRecovery
from core.authentication.model.tokens import SigningKey
from core.kernel.causes import SYSTEM
from core.kernel.values import Email, digest
from core.maintenance import housekeeping
from core.maintenance.model import housekeeping as housekeeping_model
from core.maintenance.model import housekeeping as model_housekeeping
from core.maintenance.model.housekeeping import Sweep
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import add_member, add_organization, run_concurrently, run_during, run_sql
from tests.support.connections import add_connection, add_login
from tests.support.rows import ADA, DAY, EVE, HOUR, MICROSECOND, NOW, SECOND, account, add, begin, in_another_task, mail, session, within
from tests.support.services import add_plan, add_service

# Leases


async def test_a_lease_has_one_holder_until_it_ends(storage: Postgres) -> None:
    first, second = uuid4(), uuid4()

    async def take(holder: UUID, now: datetime, name: str = "work") -> bool:
        return await within(storage, lambda tx: tx.leases.take(name, holder, now, now + HOUR))

    assert await take(first, NOW)
    assert not await take(second, NOW)
    assert await take(second, NOW, "other work")
    assert await take(first, NOW + HOUR - SECOND)  # extends the lease
    assert not await take(second, NOW + HOUR)  # so it has not ended
    assert await take(second, NOW + 2 * HOUR - SECOND)
    assert not await take(first, NOW + 2 * HOUR)


async def test_one_of_ten_holders_gets_a_lease(storage: Postgres) -> None:
    first_results = await run_concurrently(10, lambda _: within(storage, lambda tx: tx.leases.take("work", uuid4(), NOW, NOW + HOUR)))
    assert sum(first_results) == 1
    second_results = await run_concurrently(
        10, lambda _: within(storage, lambda tx: tx.leases.take("work", uuid4(), NOW + HOUR, NOW + DAY))
    )
    assert sum(second_results) == 1


async def test_a_lease_is_refused_without_waiting_while_a_batch_of_its_holder_runs(storage: Postgres) -> None:
    async def ask() -> bool:
        return await within(storage, lambda tx: tx.leases.take("work", uuid4(), NOW + HOUR, NOW + DAY))

    first, second = uuid4(), uuid4()
    await within(storage, lambda tx: tx.leases.take("work", first, NOW, NOW + HOUR))
    for holder in (first, second):  # it has ended for the two holders, so the first extends it, and the second takes it
        async with storage.transaction(by=SYSTEM) as tx:
            assert await tx.leases.take("work", holder, NOW + HOUR, NOW + HOUR)
            assert not await in_another_task(ask)
    assert await ask()


# Sweeps


async def add_events(pool: Pool, name: str, created_at: datetime, count: int = 1) -> None:
    columns = "id, name, target_id, data, created_at"
    values = "select gen_random_uuid(), %s, 'x', '{}', %s from generate_series(1, %s)"
    await run_sql(pool, f"insert into events ({columns}) {values}", name, created_at, count)


async def add_rates(pool: Pool, expires_at: datetime, count: int = 1) -> None:
    values = "select gen_random_uuid(), '{}', 0, %s from generate_series(1, %s)"
    await run_sql(pool, f"insert into rates (client, tats, wait, expires_at) {values}", expires_at, count)


async def fill_for_sweeping(storage: Postgres, pool: Pool, old: datetime, fresh: datetime) -> None:
    """Add to every table a row that is obsolete at `old`, and a row that is not obsolete before `fresh`."""
    await add(storage, user := account())
    async with storage.transaction(by=SYSTEM) as tx:
        for time in (old, fresh):
            await tx.one_time_tokens.add(
                OneTimeToken(digest(str(time)), TokenPurpose.VERIFY_EMAIL, user.id, ADA, created_at=NOW, expires_at=time)
            )
            await tx.sessions.begin(session(user.id, expires_at=time, ends_at=fresh), digest(f"expires {time}"))
            await tx.sessions.begin(ended_session := session(user.id, expires_at=fresh + DAY, ends_at=fresh + DAY), digest(f"ends {time}"))
            await tx.sessions.end(ended_session.id, time)
            await tx.signing_keys.add(SigningKey(str(time), b"pem", NOW, None))
            await tx.signing_keys.retire_all(time)
            finished_email = mail()
            await tx.email_queue.add(finished_email)
            await tx.email_queue.finish(finished_email, EmailOutcome.SENT, time)
            await tx.accounts.add(account(f"unverified-{time.microsecond}@example.com", email_verified_at=None, created_at=time))
            await tx.accounts.add(pending := account(f"pending-{time.microsecond}@example.com"))
            await tx.mfa.save_pending_secret(pending.id, "SECRET", time)
            recovery = AccountRecovery(
                id=uuid4(), user_id=pending.id, org_id=None, issuer_id=uuid4(), code_salt=b"salt", created_at=NOW, expires_at=time
            )
            await tx.recoveries.put(recovery, b"hash")
            await tx.accounts.add(confirmed := account(f"confirmed-{time.microsecond}@example.com"))
            await tx.mfa.save_pending_secret(confirmed.id, "SECRET", time)
            await tx.mfa.use_step(confirmed.id, time, 1)
        await tx.email_queue.add(mail())
        await tx.signing_keys.add(SigningKey("active", b"pem", NOW, None))
    await add_plan(pool, await add_service(pool, org := await add_organization(pool, "acme")))
    customer = "insert into billing_customers (org_id, idempotency_key, customer_id, created_at) values (%s, %s, 'cus_acme', %s)"
    await run_sql(pool, customer, org, uuid4(), NOW)
    for time in (old, fresh):
        await add_rates(pool, time)
        charge = "insert into sign_in_charges (sign_in_hash, client, bucket, period, expires_at) values (%s, %s, %s, %s, %s)"
        await run_sql(pool, charge, b"browser", "client", "login", 6.0, time)
        statement = (
            "insert into guesses (secret, subject, failures, refused, started_at, expires_at) values ('password', %s, 1, false, %s, %s)"
        )
        await run_sql(pool, statement, str(time).encode(), NOW, time)
        await add_events(pool, "x", time)
        change = """
            insert into email_changes (id, user_id, session_id, old_email, new_email, requested_at, expires_at)
            values (%s, %s, %s, 'old@example.com', 'new@example.com', %s, %s)"""
        await run_sql(pool, change, uuid4(), user.id, uuid4(), time, time)
        notice = """
            insert into security_notices (id, user_id, kind, address, created_at, undo_until)
            values (%s, %s, 'password_changed', 'ada@example.com', %s, %s)"""
        await run_sql(pool, notice, uuid4(), user.id, time, time)
        former = "insert into former_mfa (id, user_id, secret, setup_at, enabled_at, removed_at) values (%s, %s, 'x', %s, %s, %s)"
        await run_sql(pool, former, uuid4(), user.id, time, time, time)
        former_passkey = """
            insert into former_passkeys (id, user_id, name, credential_id, public_key, algorithm, rp_id, sign_count, aaguid,
                                         backup_eligible, backed_up, transports, created_at, removed_at)
            values (%s, %s, 'Key', 'x', 'x', -7, 'sso.example.com', 0, gen_random_uuid(), true, true, '{}', %s, %s)"""
        await run_sql(pool, former_passkey, uuid4(), user.id, time, time)
        await run_sql(pool, "insert into used_passkey_challenges values (%s, %s)", str(time).encode(), time)
        flow = """
            insert into sign_in_flows (id, target, request, wants_fresh, keeps_trust, proofs, begun_at, expires_at)
            values (%s, 'page', '', false, true, '[]', %s, %s)"""
        await run_sql(pool, flow, uuid4(), NOW, time)
        kept = """
            insert into kept_forms (id, session_id, path, label, fields, created_at, expires_at)
            select %s, id, '/app', 'Change.', 'x', %s, %s from sessions
            where user_id = %s and ended_at is null and expires_at > %s limit 1"""
        await run_sql(pool, kept, uuid4(), NOW, time, user.id, NOW - HOUR)
        await run_sql(pool, "insert into sent_forms (form_hash, expires_at) values (%s, %s)", digest(str(time)), time)
        code = """
            insert into authorization_codes (code_hash, user_id, browser_session_id, created_at, expires_at)
            select %s, user_id, id, %s, %s from sessions where user_id = %s and ended_at is null and expires_at > %s limit 1"""
        await run_sql(pool, code, digest(str(time)), NOW, time, user.id, NOW - HOUR)
        assertion = "insert into client_assertions (client_id, jti_hash, expires_at) values (%s, %s, %s)"
        await run_sql(pool, assertion, uuid4(), digest(str(time)), time)
        pushed = "insert into pushed_requests (request_hash, parameters, created_at, expires_at) values (%s, 'state=a', %s, %s)"
        await run_sql(pool, pushed, digest(str(time)), NOW, time)
        credential = """
            insert into credentials (id, client_id, kind, name, secret_hash, expires_at, created_by, created_at)
            values (%s, %s, 'secret', 'Main', 'x', %s, %s, %s)"""
        await run_sql(pool, credential, uuid4(), uuid4(), time, uuid4(), NOW)
        token = """
            insert into registration_tokens (id, org_id, name, prefix, token_hash, uses_left, expires_at, created_by, created_at,
                                             last_used_at)
            select %s, id, 'Agents', 'gthr_a', %s, %s, %s, %s, %s, %s from organizations limit 1"""
        for name, uses, expires_at, used_at in (("used", 0, None, time), ("expired", 1, time, None), ("live", 1, None, time)):
            await run_sql(pool, token, uuid4(), digest(f"{name} {time}"), uses, expires_at, uuid4(), NOW, used_at)
        device = """
            insert into device_codes (device_code_hash, user_code_hash, org_id, service_id, status, interval_seconds, created_at,
                                      expires_at)
            select %s, %s, org_id, id, 'pending', 5, %s, %s from services"""
        await run_sql(pool, device, digest(f"device {time}"), digest(f"user {time}"), NOW, time)
        logout = "insert into saml_logouts (id, browser_hash, created_at, expires_at) values (%s, %s, %s, %s)"
        await run_sql(pool, logout, uuid4(), digest(str(time)), NOW, time)
        await run_sql(pool, "insert into deleted_organizations (id, deleted_at) values (%s, %s)", uuid4(), time)
        await run_sql(pool, "insert into deleted_services (id, deleted_at) values (%s, %s)", uuid4(), time)
        delivery = """
            insert into webhook_deliveries (id, org_id, webhook_id, event_type, payload, status, due_at, created_at, updated_at)
            values (%s, %s, %s, 'user.invited', '{}', 'done', %s, %s, %s)"""
        await run_sql(pool, delivery, uuid4(), uuid4(), uuid4(), time, time, time)
        notice = """
            insert into logout_notices (id, org_id, service_id, user_id, session_id, status, due_at, created_at)
            values (%s, %s, %s, %s, %s, 'due', %s, %s)"""
        await run_sql(pool, notice, *(uuid4() for _ in range(5)), time, time)
        checkout = """
            insert into billing_checkouts (id, org_id, service_id, user_id, plan_id, price_id, created_at)
            select %s, v.org_id, v.id, %s, p.id, 'price_x', %s from services v join plans p on p.service_id = v.id"""
        await run_sql(pool, checkout, uuid4(), user.id, time)
        facts = "insert into billing_facts (provider_subscription_id, org_id, ended, heard_at) values (%s, %s, %s, %s)"
        await run_sql(pool, facts, f"over {time}", uuid4(), True, time)
        await run_sql(pool, facts, f"unassigned {time}", None, False, time)
        await run_sql(pool, facts, f"ours {time}", uuid4(), False, time)
        method = "insert into billing_payment_methods (payment_method_id, customer_id, said_at, heard_at) values (%s, %s, %s, %s)"
        for name, customer_id in (("detached", None), ("unassigned", f"cus {time}"), ("ours", "cus_acme")):
            await run_sql(pool, method, f"{name} {time}", customer_id, NOW, time)
        await run_sql(pool, "insert into billing_deleted_customers (customer_id, heard_at) values (%s, %s)", f"gone {time}", time)
        await run_sql(pool, "insert into deleted_webhooks (id, deleted_at) values (%s, %s)", uuid4(), time)
        connection = await add_connection(storage, org, f"okta-{time.microsecond}")
        key = """
            insert into connection_keys (id, org_id, connection_id, state, certificate, private_key, valid_from, valid_until, created_at,
                                         kept_until)
            values (%s, %s, %s, %s, 'pem', 'x', %s, %s, %s, %s)"""
        used = "insert into used_provider_messages (org_id, connection_id, message_hash, expires_at) values (%s, %s, %s, %s)"
        await run_sql(pool, used, org, connection.id, digest(str(time)), time)
        link = """
            insert into setup_links (id, org_id, name, kind, parts, token_hash, expires_at, created_by, created_at)
            select %s, id, 'Globex', 'embedded', '{domain}', %s, %s, %s, %s from organizations limit 1"""
        await run_sql(pool, link, uuid4(), digest(str(time)), time, uuid4(), NOW)
        for state, kept_until in (("previous", time), ("active", None)):
            await run_sql(pool, key, uuid4(), org, connection.id, state, time, time, time, kept_until)
        await add_login(storage, connection, user.id, ends_at=time)
        await run_sql(pool, "insert into removed_siem_configurations (id, org_id, removed_at) values (%s, %s, %s)", uuid4(), uuid4(), time)


SWEPT_TABLES = {
    Sweep.ONE_TIME_TOKENS: ("one_time_tokens", 1),
    Sweep.SIGN_IN_FLOWS: ("sign_in_flows", 1),
    Sweep.ACCOUNT_RECOVERIES: ("account_recoveries", 1),
    Sweep.KEPT_FORMS: ("kept_forms", 1),
    Sweep.SENT_FORMS: ("sent_forms", 1),
    Sweep.DEVICE_CODES: ("device_codes", 1),
    Sweep.AUTHORIZATION_CODES: ("authorization_codes", 1),
    Sweep.PUSHED_REQUESTS: ("pushed_requests", 1),
    Sweep.CLIENT_ASSERTIONS: ("client_assertions", 1),
    Sweep.USED_PROVIDER_MESSAGES: ("used_provider_messages", 1),
    Sweep.SAML_LOGOUTS: ("saml_logouts", 1),
    Sweep.SIGNING_KEYS: ("signing_keys", 1),
    Sweep.SESSIONS: ("sessions", 2),
    Sweep.RATES: ("rates", 1),
    Sweep.SIGN_IN_CHARGES: ("sign_in_charges", 1),
    Sweep.ATTEMPT_LIMITS: ("guesses", 1),
    Sweep.MAILS: ("mails", 1),
    Sweep.EMAIL_CHANGES: ("email_changes", 1),
    Sweep.SECURITY_NOTICES: ("security_notices", 1),
    Sweep.FORMER_MFA: ("former_mfa", 1),
    Sweep.FORMER_PASSKEYS: ("former_passkeys", 1),
    Sweep.PASSKEY_CHALLENGES: ("used_passkey_challenges", 1),
    Sweep.MFA_SETUPS: ("mfa", 1),
    Sweep.CREDENTIALS: ("credentials", 1),
    Sweep.REGISTRATION_TOKENS: ("registration_tokens", 2),
    Sweep.SETUP_LINKS: ("setup_links", 1),
    Sweep.EVENTS: ("events", 1),
    Sweep.UNVERIFIED_ACCOUNTS: ("users", 1),
    Sweep.CHECKOUTS: ("billing_checkouts", 1),
    Sweep.BILLING_FACTS: ("billing_facts", 2),
    Sweep.PAYMENT_METHODS: ("billing_payment_methods", 2),
    Sweep.DELETED_CUSTOMERS: ("billing_deleted_customers", 1),
    Sweep.DELETED_SERVICES: ("deleted_services", 1),
    Sweep.DELETED_ORGANIZATIONS: ("deleted_organizations", 1),
    Sweep.WEBHOOK_DELIVERIES: ("webhook_deliveries", 1),
    Sweep.LOGOUT_NOTICES: ("logout_notices", 1),
    Sweep.DELETED_WEBHOOKS: ("deleted_webhooks", 1),
    Sweep.CONNECTION_LOGINS: ("connection_logins", 1),
    Sweep.PREVIOUS_CONNECTION_KEYS: ("connection_keys", 1),
    Sweep.SIEM_QUEUES: ("removed_siem_configurations", 1),
}


def test_every_sweep_is_tested() -> None:
    # All other tables are tested with logins, flows, privacy, webhooks, SIEMs, SAML and DPoP.
    with_own_statements = {Sweep.LOG_REDACTIONS, Sweep.DPOP_PROOFS}
    with_secrets = {Sweep.FLOW_SECRETS, Sweep.FORMER_WEBHOOK_SECRETS, Sweep.PREVIOUS_SAML_KEYS}
    tested_elsewhere = {Sweep.LOGIN_TOTALS, Sweep.FAILED_LOGINS, Sweep.SIEM_BACKLOGS, *with_secrets, *with_own_statements}
    assert SWEPT_TABLES.keys() | tested_elsewhere == SWEEPS.keys() | with_own_statements == set(Sweep)


@pytest.mark.parametrize("kind", SWEPT_TABLES)
async def test_a_sweep_deletes_obsolete_rows_and_no_others(storage: Postgres, pool: Pool, kind: Sweep) -> None:
    await fill_for_sweeping(storage, pool, NOW - MICROSECOND, NOW)
    table, expected = SWEPT_TABLES[kind]
    query = sql.SQL("select count(*) from {}").format(sql.Identifier(table))

    async def count() -> int:
        async with pool.connection() as connection:
            return int((await (await connection.execute(query)).fetchall())[0][0])

    before = await count()
    assert await within(storage, lambda tx: tx.housekeeping.sweep(kind, NOW, 100)) == expected
    assert await count() == before - expected
    assert await within(storage, lambda tx: tx.housekeeping.sweep(kind, NOW, 100)) == 0
    assert await within(storage, lambda tx: tx.housekeeping.sweep(kind, NOW + 2 * DAY, 1)) == 1


async def test_the_refresh_tokens_of_a_deleted_session_are_deleted(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    await begin(storage, user.id, "old", expires_at=NOW - DAY)
    kept_session = await begin(storage, user.id, "kept")
    await within(storage, lambda tx: tx.refresh_tokens.rotate(digest("kept"), digest("next"), NOW, NOW + DAY))
    await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.SESSIONS, NOW, 100))
    # A rotated token stays as long as its session, so that its reuse is detected (security N-9).
    assert set(await run_sql(pool, "select session_id, generation from refresh_tokens")) == {(kept_session.id, 1), (kept_session.id, 2)}


async def test_only_unverified_accounts_without_any_use_are_deleted(storage: Postgres, pool: Pool) -> None:
    """These accounts registered themselves with a password, were never verified, and have no membership (security A-7).

    No service may have a record about them.
    """
    old = {"email_verified_at": None, "created_at": NOW - 8 * DAY}
    org = await add_organization(pool, "acme")
    kept_accounts = {
        "verified": account("verified@example.com", created_at=NOW - 8 * DAY),
        "young": account("young@example.com", email_verified_at=None, created_at=NOW - 6 * DAY),
        "member": account("member@example.com", **old),
        "owner": account("owner@example.com", **old, is_platform_owner=True),
        "scim": account("scim@example.com", **old, origin=AccountOrigin.SCIM, origin_org_id=org),
        "api": account("api@example.com", **old, origin=AccountOrigin.API_KEY, origin_org_id=org),
        "sign-up": account("sign-up@example.com", **old, origin=AccountOrigin.SIGN_UP, origin_org_id=org),
        "passwordless": account("passwordless@example.com", **old, password_hash=None),
        "user": account("user@example.com", **old),
        "end user": account("end-user@example.com", **old),
        "subscriber": account("subscriber@example.com", **old),
        "linked": account("linked@example.com", **old),
    }
    await add(storage, *kept_accounts.values(), account("never@example.com", **old))
    await add_member(pool, org, kept_accounts["member"].id)
    # Records of a deleted service or organization count, too.
    insert_service_user = (
        "insert into service_users (service_id, user_id, org_id, email, deactivated, created_at) values (%s, %s, %s, %s, false, now())"
    )
    await run_sql(pool, insert_service_user, uuid4(), kept_accounts["user"].id, uuid4(), kept_accounts["user"].email)
    insert_end_user = "insert into end_users (org_id, user_id, email, deactivated, created_at) values (%s, %s, %s, false, now())"
    await run_sql(pool, insert_end_user, uuid4(), kept_accounts["end user"].id, kept_accounts["end user"].email)
    service = await add_service(pool, org)
    insert_subscription = """
        insert into subscriptions (id, org_id, service_id, user_id, plan_id, status, current_period_end, created_at, updated_at)
        values (gen_random_uuid(), %s, %s, %s, %s, 'expired', now(), now(), now())"""
    await run_sql(pool, insert_subscription, org, service, kept_accounts["subscriber"].id, await add_plan(pool, service))
    insert_identity = """
        insert into identities (id, user_id, provider, provider_user_id, linked_at)
        values (gen_random_uuid(), %s, 'codehost', '42', now())"""
    await run_sql(pool, insert_identity, kept_accounts["linked"].id)
    assert await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.UNVERIFIED_ACCOUNTS, NOW - 7 * DAY, 100)) == 1
    assert {email for (email,) in await run_sql(pool, "select email from users")} == {
        kept_account.email for kept_account in kept_accounts.values()
    }


async def test_an_account_that_changed_its_verified_address_is_not_deleted(storage: Postgres, pool: Pool) -> None:
    """The account was verified once. It must not be lost because its new address is not verified yet (security A-7, A-9)."""
    user = await add(storage, account(created_at=NOW - 400 * DAY, email_verified_at=NOW - 399 * DAY))
    await within(storage, lambda tx: tx.accounts.change_email(user.id, EVE, NOW - HOUR))
    assert await within(storage, lambda tx: tx.housekeeping.sweep(Sweep.UNVERIFIED_ACCOUNTS, NOW - 7 * DAY, 100)) == 0
    assert await run_sql(pool, "select email from users") == [(EVE,)]


async def test_a_sweep_skips_locked_accounts(storage: Postgres, pool: Pool) -> None:
    await add(storage, *(account(f"{number}@example.com", email_verified_at=None, created_at=NOW - 8 * DAY) for number in range(3)))
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.accounts.lock_by_email(Email("1@example.com"))
        count = await in_another_task(lambda: within(storage, lambda tx: tx.housekeeping.sweep(Sweep.UNVERIFIED_ACCOUNTS, NOW, 100)))
    assert count == 2
    assert await run_sql(pool, "select email from users") == [("1@example.com",)]


async def test_an_account_that_becomes_a_member_during_the_sweep_is_not_deleted(
    storage: Postgres, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep's statement starts before the membership is added, and locks the account after that."""
    user = await add(storage, account(email_verified_at=None, created_at=NOW - 8 * DAY))
    org = await add_organization(pool, "acme")
    waiting_statement = LOCK_UNVERIFIED.replace(" limit ", " and pg_advisory_xact_lock_shared(1) is not null limit ")
    assert waiting_statement != LOCK_UNVERIFIED
    monkeypatch.setattr("adapters.postgres.maintenance.housekeeping.LOCK_UNVERIFIED", waiting_statement)
    insert = """
        with added as (
            insert into memberships (id, org_id, user_id, role, created_at) values (gen_random_uuid(), %s, %s, 'member', now()))
        update organizations set member_count = member_count + 1"""
    changes: list[tuple[str, Any]] = [("select pg_advisory_xact_lock(1)", ()), (insert, (org, user.id))]
    sweep = Sweep.UNVERIFIED_ACCOUNTS
    assert await run_during(pool, changes, lambda: within(storage, lambda tx: tx.housekeeping.sweep(sweep, NOW, 100))) == 0
    assert await run_sql(pool, "select user_id from memberships") == [(user.id,)]
    assert await run_sql(pool, "select member_count from organizations") == [(1,)]


async def test_an_account_with_a_membership_cannot_be_deleted(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    await add_member(pool, await add_organization(pool, "acme"), user.id)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        await run_sql(pool, "delete from users")


# All kinds together


@pytest.mark.slow
async def test_housekeeping_deletes_all_kinds_in_bounded_batches(
    ports: Ports, storage: Postgres, pool: Pool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[tuple[Sweep, int]] = []
    original_sweep = type((await _open(storage)).housekeeping).sweep

    async def count_sweep(self: Any, kind: Sweep, before: datetime, limit: int) -> int:
        count = await original_sweep(self, kind, before, limit)
        assert count <= limit
        limits.append((kind, count))
        return count

    monkeypatch.setattr(type((await _open(storage)).housekeeping), "sweep", count_sweep)
    monkeypatch.setattr(model_housekeeping, "BATCH", 10)
    await add_events(pool, "x", NOW - 31 * DAY, count=35)
    await add_events(pool, "fresh", clock.now())
    await add_rates(pool, NOW - DAY, count=10)
    assert await housekeeping.sweep(ports, uuid4()) == {"rates": 10, "events": 35}
    assert [count for kind, count in limits if kind is Sweep.EVENTS] == [10, 10, 10, 5]
    assert [count for kind, count in limits if kind is Sweep.RATES] == [10, 0]
    assert await run_sql(pool, "select name from events") == [("fresh",)]
    assert {kind for kind, _ in limits} == SWEEPS.keys()


async def _open(storage: Postgres) -> Transaction:
    async with storage.transaction(by=SYSTEM) as tx:
        return tx


@pytest.mark.slow
async def test_only_one_process_sweeps(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    one, two = uuid4(), uuid4()
    assert await housekeeping.sweep(ports, one) == {}
    assert await housekeeping.sweep(ports, two) is None
    assert await housekeeping.sweep(ports, one) == {}
    clock.advance(housekeeping_model.LEASE)
    assert await housekeeping.sweep(ports, two) == {}
    assert await housekeeping.sweep(ports, one) is None


@pytest.mark.slow
async def test_one_of_five_parallel_processes_sweeps(ports: Ports, pool: Pool) -> None:
    await add_rates(pool, NOW - DAY, count=50)
    results = await run_concurrently(5, lambda _: housekeeping.sweep(ports, uuid4()))
    assert sorted(results, key=str) == sorted([{"rates": 50}, None, None, None, None], key=str)


@pytest.mark.slow
async def test_housekeeping_keeps_rows_that_are_still_needed(ports: Ports, storage: Postgres, pool: Pool, clock: FakeClock) -> None:
    user = await add(storage, account())
    new_session = await begin(storage, user.id, "token")
    await within(storage, lambda tx: tx.sessions.end(new_session.id, NOW))
    young = account("young@example.com", email_verified_at=None, created_at=NOW)
    await add(storage, young)
    await within(storage, lambda tx: tx.logins.record_success(replace(new_session, created_at=NOW - 1000 * DAY), "password"))
    async with storage.transaction(by=SYSTEM) as tx:
        tx.record(events.password_changed(user.id, "set"))
    clock.advance(23 * HOUR)
    assert await housekeeping.sweep(ports, uuid4()) == {}
    clock.advance(2 * HOUR)
    assert await housekeeping.sweep(ports, uuid4()) == {"sessions": 1}  # its tokens counted as reused for a day
    clock.advance(ports.policy.unverified_purge)
    assert await housekeeping.sweep(ports, uuid4()) == {"unverified_accounts": 1}
    clock.advance(400 * DAY)
    await housekeeping.sweep(ports, uuid4())
    assert await run_sql(pool, "select count(*) from login_events") == await run_sql(pool, "select count(*) from audit_log") == [(1,)]
