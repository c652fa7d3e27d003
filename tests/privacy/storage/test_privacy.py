"""Tests for the privacy storage: control over users, and anonymization."""

from datetime import datetime
from uuid import UUID, uuid4

import pytest
import trio

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.accounts import Account, EmailTaken
from core.kernel.callers import Person
from core.kernel.causes import System
from core.kernel.values import Email
from core.privacy.model.personal_data import ANONYMIZED, MembershipControl
from core.tenancy.model.invitations import InvitationStatus
from tests.support.builders import add_member, add_organization, run_sql
from tests.support.rows import ADA, DAY, EVE, NOW, account, add, is_locked, until_blocked, within
from tests.support.services import add_service, enroll_user

PLACEHOLDER = Email("anonymized-1@deleted.local")


@pytest.fixture
async def user(storage: Postgres) -> Account:
    return await add(storage, account(ADA))


@pytest.fixture
async def eve(storage: Postgres) -> Account:
    return await add(storage, account(EVE))


async def invite(pool: Pool, org: UUID, email: str = ADA, status: str = "pending", expires_at: datetime = NOW + DAY) -> UUID:
    id_, ended_at = uuid4(), None if status == "pending" else NOW - DAY
    insert = """
        insert into invitations (id, org_id, email, role, invited_by, status, token_hash, expires_at, created_at, ended_at)
        values (%s, %s, %s, 'member', %s, %s, %s, %s, %s, %s)"""
    await run_sql(pool, insert, id_, org, email, uuid4(), status, id_.bytes, expires_at, NOW - DAY, ended_at)
    return id_


async def test_the_controls_over_a_user_match_ownership_and_confirmation(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, user: Account, eve: Account
) -> None:
    owned, unconfirmed, alone = [await add_organization(pool, slug) for slug in ("owned", "unconfirmed", "alone")]
    for org, role, confirmed in ((acme, "admin", True), (owned, "owner", True), (unconfirmed, "owner", False)):
        await add_member(pool, org, eve.id, role)
        await add_member(pool, org, user.id, confirmed=confirmed)
    await add_member(pool, other_tenant, user.id, confirmed=True)
    await add_member(pool, alone, eve.id, "owner")
    async with storage.reading() as read:
        controls = await read.privacy.list_membership_controls(user.id, eve.id)
        assert [belonging.org_id for belonging in controls if belonging.gives_control] == [owned]
        assert not any(belonging.gives_control for belonging in await read.privacy.list_membership_controls(eve.id, user.id))
        assert controls == sorted(
            [
                MembershipControl(acme, True, False),
                MembershipControl(owned, True, True),
                MembershipControl(unconfirmed, False, True),
                MembershipControl(other_tenant, True, False),
            ],
            key=lambda belonging: belonging.org_id,
        )
        assert await read.privacy.list_membership_controls(uuid4(), eve.id) == []


async def test_an_anonymization_involves_organizations_by_membership_and_invitation(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, user: Account
) -> None:
    third, fourth = await add_organization(pool, "third"), await add_organization(pool, "fourth")
    for org in (acme, third):
        await add_member(pool, org, user.id)
    for org, email, status in ((acme, ADA, "pending"), (other_tenant, ADA, "pending"), (fourth, ADA, "rejected"), (fourth, EVE, "pending")):
        await invite(pool, org, email, status)
    assert await within(storage, lambda tx: tx.privacy.list_involved_organizations(user.id)) == sorted([acme, other_tenant, third])


async def test_organizations_are_locked_until_the_transaction_ends(storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID) -> None:
    third = await add_organization(pool, "third")
    async with storage.transaction(by=System()) as tx:
        await tx.privacy.lock_organizations([other_tenant, acme])
        for org, expects_lock in ((acme, True), (other_tenant, True), (third, False)):
            assert await is_locked(pool, "organizations", "id = %s", org) is expects_lock


async def test_memberships_are_locked_until_the_transaction_ends(
    storage: Postgres, pool: Pool, acme: UUID, user: Account, eve: Account
) -> None:
    for person in (user, eve):
        await add_member(pool, acme, person.id)
    async with storage.transaction(by=System()) as tx:
        await tx.privacy.lock_memberships(user.id)
        assert await is_locked(pool, "memberships", "user_id = %s", user.id)
        assert not await is_locked(pool, "memberships", "user_id = %s", eve.id)


async def test_the_new_address_is_copied_to_all_lists(storage: Postgres, pool: Pool, acme: UUID, user: Account) -> None:
    service = await add_service(pool, acme)
    await within(storage, lambda tx: enroll_user(tx, service, user.id, NOW))
    await within(storage, lambda tx: tx.privacy.replace_email(user.id, PLACEHOLDER, NOW))
    account = await within(storage, lambda tx: tx.accounts.by_id(user.id))
    assert account is not None
    assert (account.email, account.anonymized_at, account.password_hash, account.email_verified_at) == (PLACEHOLDER, NOW, None, None)
    assert (account.created_at, account.first_verified_at, account.is_usable) == (user.created_at, user.first_verified_at, False)
    for relation in ("service_users", "end_users"):
        assert await run_sql(pool, f"select email from {relation}") == [(PLACEHOLDER,)]  # noqa: S608


async def test_a_taken_placeholder_is_refused(storage: Postgres, user: Account, eve: Account) -> None:
    with pytest.raises(EmailTaken):
        await within(storage, lambda tx: tx.privacy.replace_email(user.id, eve.email, NOW))
    assert await within(storage, lambda tx: tx.accounts.by_id(user.id)) == user


async def test_other_transactions_that_add_rows_of_the_account_wait(storage: Postgres, pool: Pool, user: Account) -> None:
    login = "insert into login_events (id, user_id, provider, success, created_at) values (%s, %s, 'password', false, now())"
    finished = trio.Event()

    async def write() -> None:
        await run_sql(pool, login, uuid4(), user.id)
        finished.set()

    async with trio.open_nursery() as nursery, storage.transaction(by=System()) as tx:
        await tx.privacy.replace_email(user.id, PLACEHOLDER, NOW)
        nursery.start_soon(write)
        await until_blocked(pool)
        assert not finished.is_set()
    assert finished.is_set()


async def test_invitations_end_only_in_locked_organizations(
    storage: Postgres, pool: Pool, acme: UUID, other_tenant: UUID, user: Account
) -> None:
    third = await add_organization(pool, "third")
    pending_id, expired_id, answered_id = (
        await invite(pool, acme),
        await invite(pool, other_tenant, expires_at=NOW),
        await invite(pool, third, status="rejected"),
    )
    unheld = await invite(pool, third)
    other = await invite(pool, acme, EVE)
    ended_ids = await within(
        storage,
        lambda tx: tx.privacy.end_invitations(user.id, user.email, PLACEHOLDER, [acme, other_tenant], NOW),
    )
    assert {invitation.id: (invitation.email, invitation.status) for invitation in ended_ids} == {
        pending_id: (PLACEHOLDER, InvitationStatus.CANCELLED),
        expired_id: (PLACEHOLDER, InvitationStatus.EXPIRED),
    }
    rows = await run_sql(pool, "select id, email, status, ended_at from invitations")
    assert {id_: rest for id_, *rest in rows} == {
        pending_id: [PLACEHOLDER, "cancelled", NOW],
        expired_id: [PLACEHOLDER, "expired", NOW],
        answered_id: [PLACEHOLDER, "rejected", NOW - DAY],
        unheld: [ADA, "pending", None],
        other: [EVE, "pending", None],
    }


async def test_the_privacy_log_outlives_accounts(storage: Postgres, pool: Pool, user: Account, eve: Account) -> None:
    caller = Person(user_id=eve.id, email=eve.email, session_id=uuid4(), address="203.0.113.9", agent="tests")
    await within(storage, lambda tx: tx.privacy.log(ANONYMIZED, user.id, caller, NOW))
    for person in (user, eve):
        await within(storage, lambda tx, user_id=person.id: tx.accounts.remove(user_id))  # type: ignore[misc]
    columns = "event_type, user_id, actor_id, address, agent, created_at"
    assert await run_sql(pool, f"select {columns} from privacy_log") == [  # noqa: S608
        ("user_anonymized", user.id, eve.id, "203.0.113.9", "tests", NOW)
    ]
