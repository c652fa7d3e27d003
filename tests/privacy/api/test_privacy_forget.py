"""Tests of anonymization (decisions 48, 53, 65, 143, 144, 147, 148; security A-4, B-5, I-4, J-9, R-5, Y-2).

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

import re
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.privacy import Privacy
from core import privacy, privacy_rules
from core.accounts import accounts
from core.accounts.accounts_rules import Account
from core.accounts.email_queue_rules import EmailKind, new_email
from core.accounts.one_time_tokens import TokenPurpose
from core.kernel.errors import StorageDown
from core.kernel.principals import SYSTEM
from core.kernel.values import Email, digest, new_id, new_secret
from core.maintenance import housekeeping, log_redaction, log_redaction_rules
from core.tenancy import events
from core.tenancy.invitations_rules import InvitationStatus
from ports import Ports
from tests.applications.api.service_users import check_counts, open_shop
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.support.builders import (
    EMAIL,
    PASSWORD,
    Answer,
    Api,
    add_account,
    add_invitation,
    add_member,
    deliver,
    impersonate,
    run_concurrently,
    run_sql,
    sign_in,
)
from tests.support.platform import NOWHERE, Platform
from tests.support.refusals import FORBIDDEN, MISSING, UNAUTHORIZED, refused
from tests.support.services import add_plan, add_service, add_service_user, add_subscription, sign_in_to
from tests.support.tenants import Tenant, Tenants
from tests.support.webhooks import add_webhook

ADDRESS: Final = "203.0.113.9"  # the user's address
PLACEHOLDER: Final = re.compile(r"anonymized-\d{16}@deleted\.local")


async def forget(api: Api, user_id: object, token: str | None) -> Answer:
    return await api.delete(f"/api/privacy/forget/{user_id}", token=token, headers={"User-Agent": "the owner's browser"})


async def forgotten(api: Api, user_id: object, token: str) -> None:
    answer = await forget(api, user_id, token)
    assert answer.status == 200, answer.text


@pytest.fixture
async def user(ports: Ports, acme: Tenant) -> Account:
    """A confirmed member of one organization, and of no other."""
    account = await add_account(ports, EMAIL)
    await acme.join("ada", account)
    return account


async def row(pool: Pool, user_id: UUID) -> dict[str, Any]:
    columns = ("email", "email_verified_at", "password_hash", "mfa_enabled_at", "anonymized_at", "created_at")
    [found] = await run_sql(pool, f"select {', '.join(columns)} from users where id = %s", user_id)  # noqa: S608
    return dict(zip(columns, found, strict=True))


async def mentions(pool: Pool, text: str) -> set[str]:
    """Return the tables and columns of the whole database that contain this text."""
    columns = await run_sql(
        pool,
        """
        select table_name, column_name from information_schema.columns
        where table_schema = 'public' and data_type in ('text', 'json', 'jsonb', 'ARRAY')""",
    )
    found = set()
    for table, column in columns:
        if await run_sql(pool, f"select 1 from {table} where strpos({column}::text, %s) > 0 limit 1", text):  # noqa: S608
            found.add(f"{table}.{column}")
    return found


async def count(pool: Pool, user_id: UUID, *tables: str) -> dict[str, int]:
    """Return the number of the user's rows in each table."""
    counts = {}
    for table in tables:
        [(counts[table],)] = await run_sql(pool, f"select count(*) from {table} where user_id = %s", user_id)  # noqa: S608
    return counts


DELETED_ACCOUNT: Final = (
    "sessions",
    "mfa",
    "backup_codes",
    "identities",
    "passkeys",
    "devices",
    "pre_auths",
    "link_tickets",
    "one_time_tokens",
)
KEPT: Final = ("memberships", "login_events", "mfa_events", "subscriptions", "service_users", "end_users")


async def live(tenant: Tenant, account: Account, service: UUID) -> None:
    """Add data of every kind that an account can have."""
    pool, ports = tenant.pool, tenant.ports
    now, until = ports.clock.now(), ports.clock.now() + timedelta(hours=1)
    await add_service_user(ports, service, account.id)
    plan = await add_plan(pool, service)
    await add_subscription(ports, pool, service, account.id, plan, ends=until)
    await run_sql(pool, "update users set mfa_enabled_at = now() where id = %s", account.id)
    session = (await sign_in(ports, account)).session_id
    await sign_in_to(ports, pool, service, account)
    statements = {
        "insert into mfa (user_id, secret, setup_at, codes_salt) values (%s, 'secret', now(), 'salt')": (),
        "insert into backup_codes (user_id, code_hash) values (%s, 'one'), (%s, 'two')": (account.id,),
        """
        insert into identities (id, user_id, service_id, provider, provider_user_id, email, access_token, linked_at)
        values (gen_random_uuid(), %s, %s, 'codehost', 'ada-at-codehost', 'ada@example.com', 'token', now())""": (service,),
        """
        insert into passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid, backup_eligible, created_at)
        values (gen_random_uuid(), %s, 'Key', 'credential', 'key', 0, gen_random_uuid(), true, now())""": (),
        """
        insert into devices (id, user_id, name, device_type, browser, os, last_used_at, last_ip, city, country, risk_score,
                             risk_factors, trust_hash, trust_expires_at, created_at, updated_at)
        values (gen_random_uuid(), %s, 'Ada''s laptop', 'browser', 'Firefox', 'Linux', now(), '203.0.113.9', 'London', 'GB', 0, '{}',
                'trust', now() + interval '90 days', now(), now())""": (),
        """
        insert into pre_auths (id, user_id, provider, created_at, expires_at, issuer, provider_user_id, identity_email, known_elsewhere,
                               access_token)
        values (gen_random_uuid(), %s, 'websuite', now(), now() + interval '10 minutes', '', 'ada-at-websuite', 'ada@example.com', false,
                'token')""": (),
        """
        insert into link_tickets (token_hash, user_id, session_id, provider, created_at, expires_at)
        values ('ticket', %s, %s, 'codehost', now(), now() + interval '1 minute')""": (session,),
        """
        insert into login_events (id, user_id, service_id, org_id, provider, success, address, agent, city, country, created_at)
        select gen_random_uuid(), %s, %s, %s, 'password', false, '203.0.113.9', 'Ada''s browser', 'London', 'GB', now()""": (
            *(service, tenant.org),
        ),
        """
        insert into mfa_events (id, user_id, event_type, success, address, agent, created_at)
        values (gen_random_uuid(), %s, 'mfa_verify_success', true, '203.0.113.9', 'Ada''s browser', now())""": (),
    }
    for statement, parameters in statements.items():
        await run_sql(pool, statement, account.id, *parameters)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for purpose in TokenPurpose:
            await tx.one_time_tokens.add(digest(new_secret()), purpose, account.id, account.email, created_at=now, expires_at=until)
        await tx.email_queue.add(new_email(EmailKind.RESET_PASSWORD, account.email, now))


# Effects


@pytest.mark.slow
async def test_nothing_stays_that_identifies_the_user_or_lets_them_sign_in(
    api: Api, ports: Ports, pool: Pool, clock: FakeClock, sent: FakeMailTransport, acme: Tenant, other_tenant: Tenant, user: Account
) -> None:
    # Actions of the user inside and outside an organization
    passwords = {"current_password": PASSWORD, "new_password": "another good password"}
    assert (await api.post("/api/user/change-password", passwords, token=acme.token("ada"))).status == 200
    # Invitations to the address: one answered, one pending in another organization
    answered = await add_invitation(ports, acme.org, EMAIL)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.invitations.end(acme.org, answered.id, InvitationStatus.ACCEPTED, clock.now())
        tx.record(events.invitation_accepted(answered, user.id))
    await other_tenant.invite(EMAIL)
    shop = await open_shop(acme)
    await live(acme, user, shop.id)
    await run_sql(pool, "update audit_log set address = %s", ADDRESS)  # the test client has no address
    before = await row(pool, user.id)
    counts = await count(pool, user.id, *KEPT)
    assert 0 not in {**counts, **await count(pool, user.id, *DELETED_ACCOUNT)}.values()
    entries = await run_sql(pool, "select id, action, actor_id, target_id, created_at from audit_log order by id")
    assert await mentions(pool, EMAIL) >= {"users.email", "service_users.email", "end_users.email", "mails.address", "invitations.email"}
    now = clock.now()

    answer = await forget(api, user.id, acme.token("owner"))
    assert (answer.status, answer.json) == (200, {"success": True, "message": "The user is anonymized.", "user_id": str(user.id)})

    after = await row(pool, user.id)
    assert PLACEHOLDER.fullmatch(after["email"])
    assert after["email"] == privacy_rules.placeholder_at(now)
    assert (after["email_verified_at"], after["password_hash"], after["mfa_enabled_at"]) == (None, None, None)
    assert (after["anonymized_at"], after["created_at"]) == (now, before["created_at"])
    assert await mentions(pool, EMAIL) == set()
    assert await count(pool, user.id, *DELETED_ACCOUNT) == dict.fromkeys(DELETED_ACCOUNT, 0)
    assert await count(pool, user.id, *KEPT) == counts
    assert await run_sql(pool, "select distinct address, agent, city, country from login_events where user_id = %s", user.id) == [
        ("0.0.0.0", "anonymized", None, None)  # noqa: S104
    ]
    assert await run_sql(pool, "select distinct address, agent from mfa_events where user_id = %s", user.id) == [("0.0.0.0", "anonymized")]  # noqa: S104
    assert await run_sql(pool, "select distinct address, agent from audit_log where actor_id = %s", user.id) == [("0.0.0.0", "anonymized")]  # noqa: S104
    kept = await run_sql(pool, "select id, action, actor_id, target_id, created_at from audit_log order by id")
    assert set(entries) < set(kept), "entries stay"
    for text in ("Ada's", "London", "ada-at-codehost", "ada-at-websuite"):
        assert await mentions(pool, text) == set()
    await check_counts(pool)
    await deliver(ports)
    assert sent.emails == []


async def test_stored_webhook_deliveries_lose_the_address(api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account) -> None:
    await add_webhook(ports, acme.org, "https://hooks.example.com/")
    await acme.set_role("owner", "ada", "admin")
    await acme.invite("guest@example.com", by="ada")
    await run_sql(pool, "update webhook_deliveries set response_body = payload::text")  # the receiver repeats the content
    [(before,)] = await run_sql(pool, "select payload from webhook_deliveries")
    assert before["actor_email"] == EMAIL
    await forgotten(api, user.id, acme.token("owner"))
    assert await run_sql(pool, "select payload, response_body from webhook_deliveries") == [({**before, "actor_email": None}, None)]


async def test_an_anonymization_is_recorded_once(
    api: Api, pool: Pool, acme: Tenant, other_tenant: Tenant, user: Account, platform: Platform
) -> None:
    """In the privacy log, and for every organization that the user is a member of, confirmed or not."""
    await add_member(pool, other_tenant.org, user.id)
    await forgotten(api, user.id, platform.token)
    first = await row(pool, user.id)
    platform.clock.advance(timedelta(minutes=1))
    await forgotten(api, user.id, platform.token)
    assert await row(pool, user.id) == first
    assert await run_sql(pool, "select event_type, user_id, actor_id, agent, created_at from privacy_log") == [
        ("user_anonymized", user.id, platform.account.id, "the owner's browser", first["anonymized_at"])
    ]
    for tenant in (acme, other_tenant):
        assert await tenant.recorded() == [("user.anonymized", "user", str(user.id), platform.account.id, {})]
        assert await tenant.webhook_events() == [("user.anonymized", str(user.id), {})]
    assert await run_sql(pool, "select action from audit_log where org_id is null") == []


async def test_nobody_can_sign_in_to_the_account(api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account) -> None:
    service = await add_service(pool, acme.org)
    plain, of_service = await sign_in(ports, user), await sign_in_to(ports, pool, service, user)
    await forgotten(api, user.id, acme.token("owner"))
    placeholder = (await row(pool, user.id))["email"]
    for tokens in (plain, of_service):
        assert (await api.get("/api/user", token=tokens.access_token)).status == 401
        assert (await api.post("/api/auth/refresh", {"refresh_token": tokens.refresh_token})).status == 401
    for address in (EMAIL, placeholder):
        assert refused(await api.login(address)) == UNAUTHORIZED
        assert (await api.post("/api/auth/forgot-password", {"email": address})).status == 200
    await deliver(ports)
    assert await run_sql(pool, "select 1 from one_time_tokens where user_id = %s", user.id) == []


async def test_the_old_address_is_free_and_gives_no_access_to_the_old_id(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account
) -> None:
    await forgotten(api, user.id, acme.token("owner"))
    assert (await api.post("/api/auth/register", {"email": EMAIL, "password": PASSWORD})).status == 200
    [(newcomer,)] = await run_sql(pool, "select id from users where email = %s", EMAIL)
    assert newcomer != user.id
    await run_sql(pool, "update users set email_verified_at = now(), first_verified_at = now() where id = %s", newcomer)
    token = (await api.login()).json["access_token"]
    assert (await api.get("/api/user", token=token)).json["id"] == str(newcomer)
    assert refused(await api.get(f"{acme.path}/members", token=token)) == FORBIDDEN
    assert refused(await api.get(f"/api/privacy/export/{user.id}", token=token)) == FORBIDDEN


async def test_lists_of_members_and_end_users_show_the_placeholder(api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account) -> None:
    shop = await open_shop(acme)
    await add_service_user(ports, shop.id, user.id)
    await forgotten(api, user.id, acme.token("owner"))
    placeholder = (await row(pool, user.id))["email"]
    for path, items in ((f"{acme.path}/members", "members"), (f"{acme.path}/users", "users")):
        answer = await api.get(path, token=acme.token("owner"))
        assert answer.status == 200, answer.text
        assert placeholder in answer.text, items
        assert EMAIL not in answer.text
    assert await shop.stored_emails() == [placeholder]


async def test_a_later_export_is_redacted(api: Api, acme: Tenant, user: Account) -> None:
    await api.login()
    await forgotten(api, user.id, acme.token("owner"))
    package = (await api.get(f"/api/privacy/export/{user.id}", token=acme.token("owner"))).json
    assert (package["user_id"], package["memberships"][0]["organization_slug"]) == (str(user.id), "acme")
    assert PLACEHOLDER.fullmatch(package["email"])


async def test_invitations_to_the_address_end_in_every_organization(
    api: Api, ports: Ports, pool: Pool, clock: FakeClock, acme: Tenant, other_tenant: Tenant, tenants: Tenants, user: Account
) -> None:
    third = await tenants.add("third")
    late = await add_invitation(ports, third.org, EMAIL, expires_at=clock.now())
    response = await other_tenant.invite(EMAIL)
    await forgotten(api, user.id, acme.token("owner"))
    placeholder = (await row(pool, user.id))["email"]
    assert await other_tenant.statuses() == {placeholder: "cancelled"}
    assert await third.statuses() == {placeholder: "expired"}
    assert (await api.post("/api/invitations/accept", {"token": response["token"]})).status == 400
    # The event says that it ended, but not who ended it and why.
    details = {"invited_email": placeholder, "role": "member"}
    invitation = response["invitation"]["id"]
    assert await other_tenant.recorded() == [
        ("user.invited", "user", invitation, other_tenant.people["owner"].id, details),
        ("invitation.revoked", "invitation", invitation, None, details),
    ]
    assert await other_tenant.webhook_events() == [("user.invited", invitation, details), ("invitation.revoked", invitation, details)]
    assert (await other_tenant.entry("invitation.revoked"))["address"] is None
    assert await third.recorded() == [("invitation.expired", "invitation", str(late.id), None, details)]
    # The address can be invited again.
    assert (await other_tenant.invite(EMAIL))["invitation"]["id"] != invitation


async def test_invitations_that_the_user_sent_stay(api: Api, acme: Tenant, user: Account) -> None:
    await acme.set_role("owner", "ada", "admin")
    await acme.invite("guest@example.com", by="ada")
    await forgotten(api, user.id, acme.token("owner"))
    assert await acme.statuses() == {"guest@example.com": "pending"}


async def test_emails_to_other_users_stay(api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account) -> None:
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for address in (EMAIL, "eve@example.com"):
            await tx.email_queue.add(new_email(EmailKind.PASSWORD_CHANGED, Email(address), ports.clock.now()))
    await forgotten(api, user.id, acme.token("owner"))
    assert await run_sql(pool, "select address from mails") == [("eve@example.com",)]


async def test_entries_of_other_users_stay(api: Api, pool: Pool, acme: Tenant, user: Account) -> None:
    await live(acme, acme.people["admin"], await add_service(pool, acme.org))
    admin = acme.people["admin"].id
    await acme.invite("guest@example.com", by="admin")
    counts = await count(pool, admin, *DELETED_ACCOUNT, *KEPT)
    sessions = await run_sql(pool, "select * from sessions where user_id = %s order by id", admin)
    await forgotten(api, user.id, acme.token("owner"))
    assert await count(pool, admin, *DELETED_ACCOUNT, *KEPT) == counts
    assert await run_sql(pool, "select * from sessions where user_id = %s order by id", admin) == sessions
    assert await run_sql(pool, "select address from login_events where user_id = %s", admin) == [(ADDRESS,)]
    assert await run_sql(pool, "select 1 from audit_log where agent = 'anonymized'") == []


async def test_entries_of_actions_by_email_links_are_redacted(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, other_tenant: Tenant, user: Account
) -> None:
    """These entries have no actor, but an address."""
    insert = """
        insert into audit_log (id, org_id, action, target_type, target_id, address, agent, details, created_at)
        values (gen_random_uuid(), %s, %s, 'user', %s, %s, 'a browser', '{}', now())"""
    for org, action in ((acme.org, "user.joined"), (acme.org, "security.password.changed"), (None, "security.password.changed")):
        await run_sql(pool, insert, org, action, str(user.id), ADDRESS)
    await run_sql(pool, insert, acme.org, "user.removed", str(user.id), None)  # an action of the service itself
    response = await other_tenant.invite(EMAIL)
    assert (await api.post("/api/invitations/decline", {"token": response["token"]})).status == 200
    await run_sql(pool, "update audit_log set address = %s where action = 'invitation.declined'", ADDRESS)
    await forgotten(api, user.id, acme.token("owner"))
    entries = "select action, address from audit_log where actor_id is null order by action, address"
    assert await run_sql(pool, entries) == [
        ("invitation.declined", "0.0.0.0"),  # noqa: S104
        ("security.password.changed", "0.0.0.0"),  # noqa: S104
        ("security.password.changed", "0.0.0.0"),  # noqa: S104
        ("user.joined", "0.0.0.0"),  # noqa: S104
        ("user.removed", None),
    ]


async def test_entries_of_the_users_actions_on_others_are_redacted(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account, platform: Platform
) -> None:
    """The user was a platform owner, and impersonated a user, removed a second factor and anonymized a user."""
    victim = await add_account(ports, "victim@example.com", None)
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", user.id)
    await forgotten(api, victim.id, acme.token("ada"))
    session = (await sign_in(ports, acme.people["admin"], impersonator=user)).session_id
    insert_mfa = """
        insert into mfa_events (id, user_id, event_type, success, actor_id, impersonator_id, address, agent, created_at)
        values (gen_random_uuid(), %s, 'mfa_disabled', true, %s, %s, '203.0.113.9', 'a browser', now())"""
    for actor, impersonator in ((user.id, None), (None, user.id)):
        await run_sql(pool, insert_mfa, acme.people["admin"].id, actor, impersonator)
    insert = """
        insert into audit_log (id, org_id, action, target_type, target_id, actor_id, impersonator_id, address, agent, details, created_at)
        values (gen_random_uuid(), %s, 'organization.updated', 'organization', 'x', %s, %s, '203.0.113.9', 'a browser', '{}', now())"""
    await run_sql(pool, insert, acme.org, acme.people["admin"].id, user.id)
    await run_sql(pool, "update users set is_platform_owner = false where id = %s", user.id)
    await forgotten(api, user.id, platform.token)
    blank = [("0.0.0.0", "anonymized")]  # noqa: S104
    assert await run_sql(pool, "select distinct address, agent from mfa_events") == blank
    assert await run_sql(pool, "select distinct address, agent from audit_log where impersonator_id = %s", user.id) == blank
    assert await run_sql(pool, "select distinct address, agent from privacy_log where actor_id = %s", user.id) == blank
    [(address, agent, ended)] = await run_sql(pool, "select address, agent, ended_at from sessions where id = %s", session)
    assert [(address, agent)] == blank
    assert ended is not None


# Former addresses


FORMER: Final = "ada.byron@example.com"


async def change_account_email(ports: Ports, account: Account, *addresses: str) -> None:
    """Change the account's address several times."""
    async with ports.storage.transaction(by=SYSTEM) as tx:
        for address in addresses:
            locked = await tx.accounts.lock(account.id)
            assert locked is not None
            await accounts.change_account_email(tx, locked, Email(address), ports.clock.now())


async def test_former_addresses_are_removed_too(
    api: Api, ports: Ports, pool: Pool, clock: FakeClock, acme: Tenant, other_tenant: Tenant
) -> None:
    """In entries and events of answered invitations, in pending invitations, and in emails."""
    user = await add_account(ports, FORMER)
    await acme.join("ada", user)
    answered = await add_invitation(ports, acme.org, FORMER)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.invitations.end(acme.org, answered.id, InvitationStatus.ACCEPTED, clock.now())
        tx.record(events.invitation_accepted(answered, user.id))
    for address in ("countess@example.com", EMAIL):
        changed = await api.patch("/api/user", {"email": address}, token=(await sign_in(ports, user)).access_token)
        assert changed.status == 200, changed.text
    responses = [await other_tenant.invite(address) for address in (FORMER, "countess@example.com", EMAIL)]
    for address in (FORMER, "countess@example.com"):
        assert {"mails.address", "former_addresses.email", "audit_log.details", "events.data"} <= await mentions(pool, address)
    await forgotten(api, user.id, acme.token("owner"))
    for address in (FORMER, "countess@example.com", EMAIL):
        assert await mentions(pool, address) == set()
    ended = "select status from invitations where org_id = %s"
    assert await run_sql(pool, ended, other_tenant.org) == [("cancelled",)] * 3
    assert (await other_tenant.actions())["invitation.revoked"] == 3
    for one in responses:
        assert (await api.post("/api/invitations/accept", {"token": one["token"]})).status == 400


async def test_a_former_address_that_another_account_has_now_stays(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, other_tenant: Tenant, user: Account
) -> None:
    await change_account_email(ports, user, FORMER, "ada.king@example.com")
    await add_account(ports, FORMER)
    responses = [await other_tenant.invite(address) for address in (FORMER, EMAIL)]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.add(new_email(EmailKind.PASSWORD_CHANGED, Email(FORMER), ports.clock.now()))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        assert await tx.privacy.list_involved_organizations(user.id) == sorted([acme.org, other_tenant.org])
    await forgotten(api, user.id, acme.token("owner"))
    assert (await other_tenant.statuses())[FORMER] == "pending"
    assert await mentions(pool, EMAIL) == set()
    assert await mentions(pool, FORMER) == {"users.email", "invitations.email", "audit_log.details", "events.data", "mails.address"}
    assert [(await api.post("/api/invitations/accept", {"token": one["token"]})).status for one in responses] == [200, 400]


async def test_former_addresses_are_deleted_with_the_account(ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, FORMER)
    await change_account_email(ports, user, EMAIL, FORMER, EMAIL, EMAIL)
    known = "select user_id, email, until from former_addresses order by email"
    now = ports.clock.now()
    assert await run_sql(pool, known) == [(user.id, FORMER, now), (user.id, EMAIL, now)]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.remove(user.id)
    assert await run_sql(pool, known) == []


# Entries without an actor


@pytest.mark.parametrize("case", ["member", "left", "left, with another address", "still there, but the address is another's"])
async def test_the_address_of_an_acceptance_is_redacted(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, other_tenant: Tenant, platform: Platform, case: str
) -> None:
    """The invitation was accepted with the token, without a session."""
    response = await other_tenant.invite(EMAIL)
    user = await add_account(ports, EMAIL)
    assert (await api.post("/api/invitations/accept", {"token": response["token"]})).status == 200
    await run_sql(pool, "update audit_log set address = %s, agent = 'a browser'", ADDRESS)
    if case.startswith("left"):
        await run_sql(pool, "delete from memberships where user_id = %s", user.id)
    if case not in ("member", "left"):
        await change_account_email(ports, user, FORMER)
    if case.startswith("still"):
        await add_account(ports, EMAIL)
    await forgotten(api, user.id, platform.token)
    entries = "select action, address, agent from audit_log where org_id = %s and actor_id is null order by action"
    assert [entry for entry in await run_sql(pool, entries, other_tenant.org) if entry[0] != "user.anonymized"] == [
        ("invitation.accepted", "0.0.0.0", "anonymized"),  # noqa: S104
        ("user.joined", "0.0.0.0", "anonymized"),  # noqa: S104
    ]
    assert await run_sql(pool, "select address from audit_log where action = 'user.invited'") == [(ADDRESS,)]


async def test_the_address_of_a_declined_invitation_is_redacted_for_every_entry(
    api: Api, pool: Pool, acme: Tenant, other_tenant: Tenant, user: Account
) -> None:
    response = await other_tenant.invite(EMAIL)
    assert (await api.post("/api/invitations/decline", {"token": response["token"]})).status == 200
    await run_sql(pool, "update audit_log set address = %s, details = '{}' where action = 'invitation.declined'", ADDRESS)
    await forgotten(api, user.id, acme.token("owner"))
    assert await run_sql(pool, "select address, details from audit_log where action = 'invitation.declined'") == [("0.0.0.0", {})]  # noqa: S104


# Logs that are too long for one transaction


ENTRIES: Final = 23  # of each log
AT_HOME: Final = "203.0.113.77"


@pytest.fixture
async def long_logs(pool: Pool, acme: Tenant, user: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add more entries of the user to every log than one batch redacts."""
    monkeypatch.setattr(log_redaction_rules, "FIRST", 3)
    monkeypatch.setattr(log_redaction, "BATCH", 7)
    monkeypatch.setattr(housekeeping, "BATCH", 5)
    mfa = "insert into mfa_events (id, user_id, actor_id, impersonator_id, event_type, success, address, agent, created_at)"
    audit = """
        insert into audit_log
            (id, org_id, action, target_type, target_id, actor_id, impersonator_id, address, agent, details, created_at) """
    someone, mine, admin = "gen_random_uuid()", f"'{user.id}'", f"'{acme.people['admin'].id}'"
    where = f"'{AT_HOME}', 'a browser'"
    # Three entries with the same time
    many = f"now() - number / 3 * interval '1 second' from generate_series(1, {ENTRIES}) number"
    statements = (
        f"""
        insert into login_events (id, user_id, provider, success, address, agent, city, country, created_at)
        select {someone}, {mine}, 'password', true, {where}, 'London', 'GB', {many}""",
        f"{mfa} select {someone}, {mine}, null, null, 'mfa_verify_success', true, {where}, {many}",
        f"{mfa} select {someone}, {admin}, {mine}, null, 'mfa_disabled', true, {where}, {many}",
        f"{mfa} select {someone}, {admin}, null, {mine}, 'mfa_disabled', true, {where}, {many}",
        f"{audit} select {someone}, '{acme.org}', 'x', 'user', 'x', {mine}, null, {where}, '{{}}', {many}",
        f"{audit} select {someone}, '{acme.org}', 'x', 'user', 'x', {admin}, {mine}, {where}, '{{}}', {many}",
        f"{audit} select {someone}, null, 'security.password.changed', 'user', {mine}, null, null, {where}, '{{}}', {many}",
        f"""
        insert into privacy_log (id, event_type, user_id, actor_id, address, agent, created_at)
        select {someone}, 'user_anonymized', {someone}, {mine}, {where}, {many}""",
        # Entries of other users
        f"""
        insert into login_events (id, user_id, provider, success, address, agent, created_at)
        values ({someone}, {admin}, 'password', true, '198.51.100.7', 'a browser', now())""",  # noqa: S608
        f"{audit} values ({someone}, '{acme.org}', 'x', 'user', 'x', {admin}, null, '198.51.100.7', 'a browser', '{{}}', now())",
    )
    for statement in statements:
        await run_sql(pool, statement)


async def shown(pool: Pool) -> int:
    """Return the number of log entries that still have the user's address."""
    counts = [
        (await run_sql(pool, f"select count(*) from {table} where address = %s", AT_HOME))[0][0]  # noqa: S608
        for table in ("login_events", "mfa_events", "audit_log", "privacy_log")
    ]
    return sum(counts)


async def check_redacted(pool: Pool) -> None:
    for text in (AT_HOME, "London"):
        assert await mentions(pool, text) == set()
    assert await mentions(pool, "198.51.100.7") == {"login_events.address", "audit_log.address"}
    assert await run_sql(pool, "select * from blankings") == []


@pytest.mark.slow
async def test_long_logs_are_redacted_before_the_response(api: Api, pool: Pool, acme: Tenant, user: Account, long_logs: None) -> None:
    assert await shown(pool) == ENTRIES * len(log_redaction_rules.PersonalLog)
    await forgotten(api, user.id, acme.token("owner"))
    await check_redacted(pool)
    sizes = await run_sql(pool, "select count(*) from login_events group by xmin")
    assert max(size for (size,) in sizes) <= log_redaction_rules.BATCH, "each transaction is short"


@pytest.fixture
async def cut_off(api: Api, acme: Tenant, user: Account, long_logs: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anonymize the user in a process that crashes right after the commit."""

    async def ends(*_: object) -> None:
        raise StorageDown

    with monkeypatch.context() as patch:
        patch.setattr(log_redaction, "finish", ends)
        assert (await forget(api, user.id, acme.token("owner"))).status == 500


@pytest.mark.slow
async def test_the_account_is_anonymized_before_its_logs_are_redacted(
    api: Api, pool: Pool, acme: Tenant, user: Account, cut_off: None
) -> None:
    assert await mentions(pool, EMAIL) == set()
    assert await count(pool, user.id, *DELETED_ACCOUNT) == dict.fromkeys(DELETED_ACCOUNT, 0)
    assert await shown(pool) == (ENTRIES - log_redaction_rules.FIRST) * len(log_redaction_rules.PersonalLog)


@pytest.mark.slow
async def test_the_housekeeper_redacts_the_rest_after_a_crash(ports: Ports, pool: Pool, cut_off: None) -> None:
    rest = await shown(pool)
    assert await housekeeping.sweep(ports, new_id()) == {"blankings": rest}
    await check_redacted(pool)
    assert await housekeeping.sweep(ports, new_id()) is None, "another process holds the lease"


@pytest.mark.slow
async def test_a_second_request_redacts_the_rest(api: Api, pool: Pool, acme: Tenant, user: Account, cut_off: None) -> None:
    before = await row(pool, user.id)
    await forgotten(api, user.id, acme.token("owner"))
    await check_redacted(pool)
    assert await row(pool, user.id) == before
    assert len(await acme.webhook_events()) == 1


@pytest.mark.slow
async def test_the_rest_is_redacted_even_if_the_account_is_deleted(ports: Ports, pool: Pool, user: Account, cut_off: None) -> None:
    await run_sql(pool, "delete from memberships where user_id = %s", user.id)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await accounts.delete_account(tx, user.id)
    assert await shown(pool) > 0
    assert await housekeeping.sweep(ports, new_id()) is not None
    await check_redacted(pool)


@pytest.mark.slow
async def test_an_export_before_the_redaction_ends_is_redacted(
    api: Api, pool: Pool, platform: Platform, user: Account, cut_off: None
) -> None:
    answer = await api.get(f"/api/privacy/export/{user.id}", token=platform.token)
    assert await shown(pool) > 0
    assert len(answer.json["login_events"]) == answer.json["login_events_count"] == ENTRIES
    keys = ("ip_address", "user_agent", "geo_city", "geo_country")
    assert {tuple(login[key] for key in keys) for login in answer.json["login_events"]} == {("0.0.0.0", "anonymized", None, None)}  # noqa: S104


@pytest.mark.slow
async def test_concurrent_requests_redact_each_entry_once(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account, monkeypatch: pytest.MonkeyPatch, cut_off: None
) -> None:
    rest, done = await shown(pool), 0
    redact = Privacy.redact

    async def counted(self: Privacy, user_id: UUID, log: log_redaction_rules.PersonalLog, limit: int) -> int:
        nonlocal done
        found = await redact(self, user_id, log, limit)
        done += found
        return found

    monkeypatch.setattr(Privacy, "redact", counted)

    async def act(number: int) -> object:
        return await housekeeping.sweep(ports, new_id()) if number % 4 == 0 else (await forget(api, user.id, acme.token("owner"))).status

    answers = await run_concurrently(12, act)
    assert [answer for answer in answers if isinstance(answer, int)] == [200] * 9
    await check_redacted(pool)
    assert done == rest


async def test_placeholders_differ_at_the_same_time(api: Api, ports: Ports, pool: Pool, platform: Platform) -> None:
    people = [await add_account(ports, f"n{number}@example.com", None) for number in range(3)]
    for account in people:  # the clock does not move
        await forgotten(api, account.id, platform.token)
    assert {(await row(pool, account.id))["email"] for account in people} == {
        privacy_rules.placeholder_at(ports.clock.now() + number * timedelta(microseconds=1)) for number in range(3)
    }


async def test_without_a_free_placeholder_the_request_is_limited(
    api: Api, pool: Pool, platform: Platform, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privacy, "MAX_LOST_RACES", 1)
    first, second = [await add_account(ports, f"n{number}@example.com", None) for number in range(2)]
    await forgotten(api, first.id, platform.token)
    answer = await forget(api, second.id, platform.token)
    assert refused(answer) == (429, "RATE_LIMIT_EXCEEDED")
    assert answer.headers["Retry-After"] == "1"
    assert (await row(pool, second.id))["email"] == "n1@example.com"


# Access


async def test_owners_can_anonymize_themselves(api: Api, pool: Pool, acme: Tenant) -> None:
    owner = acme.people["owner"]
    await forgotten(api, owner.id, acme.token("owner"))
    assert (await acme.roles())["owner"] == "owner"
    assert PLACEHOLDER.fullmatch((await row(pool, owner.id))["email"])
    assert (await forget(api, owner.id, acme.token("owner"))).status == 401
    # The records of it do not contain the address again.
    for log in ("audit_log", "privacy_log"):
        assert await run_sql(pool, f"select actor_id, address, agent from {log}") == [(owner.id, "0.0.0.0", "anonymized")]  # noqa: S104, S608


async def test_the_owner_of_all_the_users_organizations_can_anonymize_them(
    api: Api, pool: Pool, acme: Tenant, other_tenant: Tenant, user: Account
) -> None:
    await other_tenant.join("ada", user)
    assert refused(await forget(api, user.id, acme.token("owner"))) == FORBIDDEN
    await run_sql(pool, "delete from memberships where org_id = %s and role = 'owner'", other_tenant.org)
    await add_member(pool, other_tenant.org, acme.people["owner"].id, "owner", confirmed=True)
    await forgotten(api, user.id, acme.token("owner"))
    assert [len(await tenant.webhook_events()) for tenant in (acme, other_tenant)] == [1, 1]


@pytest.mark.parametrize("status", ["pending", "suspended", "rejected"])
async def test_the_status_of_the_organization_does_not_matter(api: Api, acme: Tenant, user: Account, status: str) -> None:
    await acme.set_status(status)
    await forgotten(api, user.id, acme.token("owner"))


async def test_an_anonymized_account_stays_as_it_is_for_owners_too(api: Api, pool: Pool, acme: Tenant, user: Account) -> None:
    await forgotten(api, user.id, acme.token("owner"))
    first = await row(pool, user.id)
    await forgotten(api, user.id, acme.token("owner"))
    assert await row(pool, user.id) == first
    assert len(await acme.webhook_events()) == 1
    assert await run_sql(pool, "select count(*) from privacy_log") == [(1,)]


@pytest.mark.parametrize("whose", ["self", "stranger", "member", "admin", "foreign owner"])
@pytest.mark.parametrize("target", ["known", "without memberships", "unknown", "no id"])
async def test_others_are_refused_without_learning_if_the_user_exists(
    api: Api, ports: Ports, acme: Tenant, other_tenant: Tenant, tenants: Tenants, user: Account, whose: str, target: str
) -> None:
    loner = await add_account(ports, "loner@example.com", None)
    match whose:
        case "self":
            token = acme.token("ada") if target == "known" else (await sign_in(ports, loner)).access_token
        case "stranger":
            token = (await sign_in(ports, await add_account(ports, "stranger@example.com", None))).access_token
        case "foreign owner":
            token = other_tenant.token("owner")
        case _:
            token = acme.token(whose)
    before = await tenants.everything()
    ids = {"known": user.id, "without memberships": loner.id, "unknown": NOWHERE, "no id": "ada"}
    answer = await forget(api, ids[target], token)
    assert refused(answer) == FORBIDDEN
    assert answer.json["error"] == privacy_rules.AnonymizationNotAllowed.__doc__
    assert await tenants.everything() == before


async def test_the_owner_of_an_organization_with_an_unconfirmed_membership_is_refused(
    api: Api, pool: Pool, acme: Tenant, user: Account, tenants: Tenants
) -> None:
    await run_sql(pool, "update memberships set confirmed_at = null where user_id = %s", user.id)
    before = await tenants.everything()
    assert refused(await forget(api, user.id, acme.token("owner"))) == FORBIDDEN
    assert await tenants.everything() == before


async def test_every_membership_must_be_confirmed(api: Api, pool: Pool, acme: Tenant, other_tenant: Tenant, user: Account) -> None:
    await run_sql(pool, "delete from memberships where org_id = %s and role = 'owner'", other_tenant.org)
    await add_member(pool, other_tenant.org, acme.people["owner"].id, "owner", confirmed=True)
    await add_member(pool, other_tenant.org, user.id)
    assert refused(await forget(api, user.id, acme.token("owner"))) == FORBIDDEN


async def test_an_owner_cannot_anonymize_an_end_user_without_a_membership(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, platform: Platform
) -> None:
    account = await add_account(ports, EMAIL)
    await add_service_user(ports, await add_service(pool, acme.org), account.id)
    assert refused(await forget(api, account.id, acme.token("owner"))) == FORBIDDEN
    await forgotten(api, account.id, platform.token)
    assert await run_sql(pool, "select count(*) from privacy_log") == [(1,)]
    assert await acme.webhook_events() == []


@pytest.mark.parametrize("by", ["owner", "platform", "self"])
async def test_platform_owners_must_be_demoted_first(
    api: Api, pool: Pool, acme: Tenant, user: Account, platform: Platform, tenants: Tenants, by: str
) -> None:
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", user.id)
    before = await tenants.everything()
    answer = await forget(api, user.id, {"owner": acme.token("owner"), "platform": platform.token, "self": acme.token("ada")}[by])
    assert refused(answer) == FORBIDDEN
    assert answer.json["error"] == privacy_rules.CannotAnonymizePlatformOwner.__doc__
    assert await tenants.everything() == before
    await run_sql(pool, "update users set is_platform_owner = false where id = %s", user.id)
    await forgotten(api, user.id, platform.token)


@pytest.mark.parametrize("target", [str(UUID(int=7)), "ada"])
async def test_only_platform_owners_learn_that_a_user_does_not_exist(platform: Platform, target: str) -> None:
    assert refused(await forget(platform.api, target, platform.token)) == MISSING


async def test_without_a_token_it_is_refused(api: Api) -> None:
    assert refused(await forget(api, uuid4(), None)) == UNAUTHORIZED


@pytest.mark.parametrize("target", ["owner", "ada"])
async def test_an_impersonator_is_refused(api: Api, ports: Ports, acme: Tenant, user: Account, platform: Platform, target: str) -> None:
    token = await impersonate(ports, platform.account, acme.people["owner"])
    assert refused(await forget(api, acme.id(target), token)) == FORBIDDEN


@pytest.mark.parametrize("holder", ["owner", "platform"])
async def test_applications_are_refused_for_every_user(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account, platform: Platform, holder: str
) -> None:
    account = platform.account if holder == "platform" else acme.people["owner"]
    token = (await sign_in_to(ports, pool, await add_service(pool, acme.org), account)).access_token
    for target in (user.id, account.id, NOWHERE):
        assert refused(await forget(api, target, token)) == FORBIDDEN
