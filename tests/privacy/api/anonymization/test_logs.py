"""How log entries and former addresses are redacted."""

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.accounts.model.email_queue import EmailKind, new_email
from core.kernel.causes import SYSTEM
from core.kernel.roles import MEMBER
from core.kernel.values import Email
from core.tenancy import events
from core.tenancy.model.invitations import InvitationStatus
from ports import Ports
from tests.accounts.email_changes import change_email
from tests.fakes.outside import FakeClock
from tests.privacy.api.anonymization.data import (
    DELETED_TABLES,
    FORMER_EMAIL,
    KEPT_TABLES,
    USER_ADDRESS,
    add_all_data,
    anonymize,
    change_account_email,
    columns_with,
    count_rows,
    end_undo_links,
)
from tests.support.builders import EMAIL, Api, add_account, add_invitation, mark_created_by, run_sql, sign_in
from tests.support.platform import Platform
from tests.support.services import add_service
from tests.support.tenants import Tenant


async def test_entries_of_other_users_stay(api: Api, pool: Pool, acme: Tenant, user: Account) -> None:
    await add_all_data(acme, acme.people["admin"], await add_service(pool, acme.org))
    admin = acme.people["admin"].id
    await acme.add_pending_invitation("admin", "guest@example.com", MEMBER)
    counts = await count_rows(pool, admin, *DELETED_TABLES, *KEPT_TABLES)
    sessions = await run_sql(pool, "select * from sessions where user_id = %s order by id", admin)
    await anonymize(api, user.id, acme.token("owner"))
    assert await count_rows(pool, admin, *DELETED_TABLES, *KEPT_TABLES) == counts
    assert await run_sql(pool, "select * from sessions where user_id = %s order by id", admin) == sessions
    assert await run_sql(pool, "select address from login_events where user_id = %s", admin) == [(USER_ADDRESS,)]
    assert await run_sql(pool, "select 1 from audit_log where agent = 'anonymized'") == []


async def test_entries_of_actions_by_email_links_are_redacted(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, other_tenant: Tenant, user: Account
) -> None:
    """These entries have no actor, but an address."""
    insert = """
        insert into audit_log (id, org_id, action, target_type, target_id, address, agent, details, created_at)
        values (gen_random_uuid(), %s, %s, 'user', %s, %s, 'a browser', '{}', now())"""
    for org, action in (
        (acme.org, "user.joined"),
        (acme.org, "security.password.changed"),
        (None, "security.password.changed"),
        (acme.org, "user.email_changed"),
    ):
        await run_sql(pool, insert, org, action, str(user.id), USER_ADDRESS)
    await run_sql(pool, insert, acme.org, "user.removed", str(user.id), None)  # an act by the service itself
    response = await other_tenant.invite(EMAIL)
    assert (await api.post("/api/invitations/decline", {"token": response["token"]})).status == 200
    await run_sql(pool, "update audit_log set address = %s where action = 'invitation.declined'", USER_ADDRESS)
    await anonymize(api, user.id, acme.token("owner"))
    entries = "select action, address from audit_log where actor_id is null order by action, address"
    assert await run_sql(pool, entries) == [
        ("invitation.declined", "0.0.0.0"),  # noqa: S104
        ("security.password.changed", "0.0.0.0"),  # noqa: S104
        ("security.password.changed", "0.0.0.0"),  # noqa: S104
        ("user.email_changed", "0.0.0.0"),  # noqa: S104
        ("user.joined", "0.0.0.0"),  # noqa: S104
        ("user.removed", None),
    ]


async def test_entries_of_the_users_actions_on_others_are_redacted(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, user: Account, platform: Platform
) -> None:
    """The user was a platform owner, and impersonated a user, removed a second factor and anonymized a user."""
    victim = await add_account(ports, "victim@example.com", None)
    await run_sql(pool, "update users set is_platform_owner = true where id = %s", user.id)
    await anonymize(api, victim.id, acme.token("ada"))
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
    await anonymize(api, user.id, platform.token)
    redacted = [("0.0.0.0", "anonymized")]  # noqa: S104
    assert await run_sql(pool, "select distinct address, agent from mfa_events") == redacted
    assert await run_sql(pool, "select distinct address, agent from audit_log where impersonator_id = %s", user.id) == redacted
    assert await run_sql(pool, "select distinct address, agent from privacy_log where actor_id = %s", user.id) == redacted
    [(address, agent, ended_at)] = await run_sql(pool, "select address, agent, ended_at from sessions where id = %s", session)
    assert [(address, agent)] == redacted
    assert ended_at is not None


async def test_former_and_pending_addresses_are_removed_too(
    api: Api, ports: Ports, pool: Pool, clock: FakeClock, acme: Tenant, other_tenant: Tenant
) -> None:
    """In entries and events about answered invitations, in pending invitations, in address changes, and in emails."""
    user = await add_account(ports, FORMER_EMAIL)
    await acme.join("ada", user)
    invitation = await add_invitation(ports, acme.org, FORMER_EMAIL)
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.invitations.end(acme.org, invitation.id, InvitationStatus.ACCEPTED, clock.now())
        tx.record(events.invitation_accepted(invitation, user.id))
    for address in ("countess@example.com", EMAIL):
        answer = await change_email(api, ports, (await sign_in(ports, user)).access_token, address)
        assert answer.status == 200, answer.text
    pending = "pending@example.com"
    assert (await api.patch("/api/user", {"email": pending}, token=(await sign_in(ports, user)).access_token)).status == 200
    responses = [await other_tenant.invite(address) for address in (FORMER_EMAIL, "countess@example.com", EMAIL)]
    for address in (FORMER_EMAIL, "countess@example.com"):
        assert {"mails.address", "former_addresses.email", "audit_log.details", "events.data"} <= await columns_with(pool, address)
    assert await columns_with(pool, pending) == {"mails.address", "email_changes.new_email"}
    await end_undo_links(pool)
    await mark_created_by(pool, acme.org, user.id)
    await anonymize(api, user.id, acme.token("owner"))
    for address in (FORMER_EMAIL, "countess@example.com", EMAIL, pending):
        assert await columns_with(pool, address) == set()
    query = "select status from invitations where org_id = %s"
    assert await run_sql(pool, query, other_tenant.org) == [("cancelled",)] * 3
    assert (await other_tenant.actions())["invitation.revoked"] == 3
    for response in responses:
        assert (await api.post("/api/invitations/accept", {"token": response["token"]})).status == 400


async def test_a_former_address_that_another_account_has_now_stays(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, other_tenant: Tenant, user: Account
) -> None:
    await change_account_email(ports, user, FORMER_EMAIL, "ada.king@example.com")
    await add_account(ports, FORMER_EMAIL)
    responses = [await other_tenant.invite(address) for address in (FORMER_EMAIL, EMAIL)]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.email_queue.add(new_email(EmailKind.PASSWORD_CHANGED, Email(FORMER_EMAIL), ports.clock.now()))
    async with ports.storage.transaction(by=SYSTEM) as tx:
        assert await tx.privacy.list_involved_organizations(user.id) == sorted([acme.org, other_tenant.org])
    await anonymize(api, user.id, acme.token("owner"))
    assert (await other_tenant.statuses())[FORMER_EMAIL] == "pending"
    assert await columns_with(pool, EMAIL) == set()
    assert await columns_with(pool, FORMER_EMAIL) == {
        "users.email",
        "invitations.email",
        "audit_log.details",
        "events.data",
        "mails.address",
    }
    assert [(await api.post("/api/invitations/accept", {"token": response["token"]})).status for response in responses] == [200, 400]


async def test_former_addresses_are_deleted_with_the_account(ports: Ports, pool: Pool) -> None:
    user = await add_account(ports, FORMER_EMAIL)
    await change_account_email(ports, user, EMAIL, FORMER_EMAIL, EMAIL, EMAIL)
    query = "select user_id, email, until from former_addresses order by email"
    now = ports.clock.now()
    assert await run_sql(pool, query) == [(user.id, FORMER_EMAIL, now), (user.id, EMAIL, now)]
    async with ports.storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.remove(user.id)
    assert await run_sql(pool, query) == []


# Entries without an actor


@pytest.mark.parametrize(
    "case", ["member", "former member", "former member with a new address", "member, and the address belongs to a new account"]
)
async def test_the_address_of_an_acceptance_is_redacted(
    api: Api, ports: Ports, pool: Pool, acme: Tenant, other_tenant: Tenant, platform: Platform, case: str
) -> None:
    """The invitation was accepted with the token, without a session."""
    response = await other_tenant.invite(EMAIL)
    user = await add_account(ports, EMAIL)
    assert (await api.post("/api/invitations/accept", {"token": response["token"]})).status == 200
    await run_sql(pool, "update audit_log set address = %s, agent = 'a browser'", USER_ADDRESS)
    if case.startswith("former"):
        await run_sql(pool, "delete from memberships where user_id = %s", user.id)
    if case not in ("member", "former member"):
        await change_account_email(ports, user, FORMER_EMAIL)
    if case == "member, and the address belongs to a new account":
        await add_account(ports, EMAIL)
    await anonymize(api, user.id, platform.token)
    entries = "select action, address, agent from audit_log where org_id = %s and actor_id is null order by action"
    assert [entry for entry in await run_sql(pool, entries, other_tenant.org) if entry[0] != "user.anonymized"] == [
        ("invitation.accepted", "0.0.0.0", "anonymized"),  # noqa: S104
        ("user.joined", "0.0.0.0", "anonymized"),  # noqa: S104
    ]
    assert await run_sql(pool, "select address from audit_log where action = 'user.invited'") == [(USER_ADDRESS,)]


async def test_the_address_of_a_declined_invitation_is_redacted_for_every_entry(
    api: Api, pool: Pool, acme: Tenant, other_tenant: Tenant, user: Account
) -> None:
    response = await other_tenant.invite(EMAIL)
    assert (await api.post("/api/invitations/decline", {"token": response["token"]})).status == 200
    await run_sql(pool, "update audit_log set address = %s, details = '{}' where action = 'invitation.declined'", USER_ADDRESS)
    await anonymize(api, user.id, acme.token("owner"))
    assert await run_sql(pool, "select address, details from audit_log where action = 'invitation.declined'") == [("0.0.0.0", {})]  # noqa: S104
