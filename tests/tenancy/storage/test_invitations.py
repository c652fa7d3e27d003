"""Storage for invitations: every field, status, order and lock, in a single organization only."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.accounts import DELETED_ACCOUNT, AccountSummary
from core.kernel.causes import SYSTEM
from core.kernel.roles import ADMIN, MEMBER, OWNER, ROLES, RoleName
from core.kernel.values import Email, Page, digest
from core.tenancy.model.invitations import Invitation, InvitationAlreadySent, InvitationStatus, ListedInvitation, ReceivedInvitation
from tests.support.builders import add_organization, run_concurrently, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, MICROSECOND, NOW, SECOND, account, add, in_another_task, is_locked, within

ALL = Page(1, 50)
PENDING, EXPIRED = InvitationStatus.PENDING, InvitationStatus.EXPIRED
FINAL = [status for status in InvitationStatus if status is not PENDING]


def invitation(org: UUID, email: str = ADA, **changes: Any) -> Invitation:
    id_ = uuid4()
    default = Invitation(
        id=id_,
        org_id=org,
        email=Email(email),
        role=ADMIN,
        invited_by=uuid4(),
        status=PENDING,
        token_hash=digest(str(id_)),
        expires_at=NOW + HOUR,
        created_at=NOW - DAY,
    )
    return replace(default, **changes)


async def invite(storage: Postgres, *invitations: Invitation) -> Invitation:
    async with storage.transaction(by=SYSTEM) as tx:
        for invitation in invitations:
            await tx.invitations.add(invitation)
    return invitations[0]


async def end(storage: Postgres, invitation: Invitation, status: InvitationStatus) -> bool:
    return await within(storage, lambda tx: tx.invitations.end(invitation.org_id, invitation.id, status, NOW))


async def add_organizations(pool: Pool) -> tuple[UUID, UUID]:
    """Add two organizations."""
    return await add_organization(pool, "acme"), await add_organization(pool, "acme-two")


async def statuses(pool: Pool) -> dict[UUID, str]:
    return dict(await run_sql(pool, "select id, status from invitations"))


@pytest.mark.parametrize("role", [ADMIN, MEMBER])
async def test_every_field_of_an_invitation_is_read_back_by_every_query(storage: Postgres, pool: Pool, role: RoleName) -> None:
    grace = await add(storage, account("grace@example.com"))
    org = await add_organization(pool, "acme")
    one = await invite(storage, invitation(org, role=role, invited_by=grace.id))
    offer = ReceivedInvitation(one, "acme", "Acme", grace.email)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.invitations.by_id(org, one.id) == one
        assert await tx.invitations.by_token(org, one.token_hash) == one
        assert await tx.invitations.pending(org, ADA) == one
        assert await tx.invitations.received_by_token(one.token_hash, NOW) == offer
        assert await tx.invitations.received_by(ADA, NOW) == [offer]
    async with storage.reading() as read:
        result = await read.invitations.page(org, None, ALL, NOW)
    assert (result.items, result.total) == ([ListedInvitation(one, AccountSummary(str(grace.id), grace.email, False, grace.created_at))], 1)


async def test_a_deleted_inviter_is_a_placeholder(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    one = await invite(storage, invitation(org))
    async with storage.reading() as read:
        assert (await read.invitations.page(org, None, ALL, NOW)).items == [ListedInvitation(one, DELETED_ACCOUNT)]
        assert await read.invitations.received_by(ADA, NOW) == [ReceivedInvitation(one, "acme", "Acme", None)]


async def test_the_database_refuses_an_invitation_of_an_owner(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    with pytest.raises(psycopg.errors.CheckViolation):
        await invite(storage, invitation(org, role=OWNER))


async def test_an_invitation_is_found_in_its_organization_only(storage: Postgres, pool: Pool) -> None:
    org, other = await add_organizations(pool)
    one = await invite(storage, invitation(org))
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.invitations.by_id(other, one.id) is None
        assert await tx.invitations.by_token(other, one.token_hash) is None
        assert await tx.invitations.pending(other, ADA) is None
        assert (await tx.invitations.page(other, None, ALL, NOW)).items == []
        assert await tx.invitations.nth_newest(other, 1) is None
        assert not await tx.invitations.end(other, one.id, InvitationStatus.CANCELLED, NOW)
        assert await tx.invitations.cancel_from(other, one.invited_by, frozenset(ROLES), NOW) == []
    assert await statuses(pool) == {one.id: "pending"}


async def test_an_invitation_is_found_by_its_own_id_token_and_address_only(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    await invite(storage, invitation(org))
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.invitations.by_id(org, uuid4()) is None
        assert await tx.invitations.by_token(org, digest("x")) is None
        assert await tx.invitations.received_by_token(digest("x"), NOW) is None
        assert await tx.invitations.pending(org, EVE) is None
        assert await tx.invitations.received_by(EVE, NOW) == []


async def test_several_invitations_are_found_while_they_are_pending(storage: Postgres, pool: Pool) -> None:
    org, other = await add_organizations(pool)
    one = await invite(storage, invitation(org), invitation(org, EVE, created_at=NOW))
    ended, foreign = await invite(storage, invitation(org, "grace@example.com")), await invite(storage, invitation(other))
    assert await end(storage, ended, InvitationStatus.CANCELLED)
    async with storage.reading() as read:
        assert await read.invitations.pending_of(org, [one.id, ended.id, foreign.id, uuid4()]) == [one]
        assert await read.invitations.pending_of(org, []) == []


async def test_an_address_has_one_pending_invitation_in_an_organization(storage: Postgres, pool: Pool) -> None:
    org, other = await add_organizations(pool)
    one = await invite(storage, invitation(org), invitation(other), invitation(org, EVE))
    with pytest.raises(InvitationAlreadySent):
        await invite(storage, invitation(org))
    assert await end(storage, one, InvitationStatus.CANCELLED)
    await invite(storage, invitation(org))


# Status


@pytest.mark.parametrize("status", FINAL)
async def test_every_query_returns_a_final_status(storage: Postgres, pool: Pool, status: InvitationStatus) -> None:
    org = await add_organization(pool, "acme")
    one = await invite(storage, invitation(org))
    assert await end(storage, one, status)
    expected = replace(one, status=status)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.invitations.by_id(org, one.id) == expected
        assert await tx.invitations.by_token(org, one.token_hash) == expected
        assert await tx.invitations.pending(org, ADA) is None
        assert await tx.invitations.received_by(ADA, NOW) == []
        assert await tx.invitations.received_by_token(one.token_hash, NOW) == ReceivedInvitation(expected, "acme", "Acme", None)
        assert (await tx.invitations.page(org, status, ALL, NOW)).items == [ListedInvitation(expected, DELETED_ACCOUNT)]
        assert (await tx.invitations.page(org, PENDING, ALL, NOW)).items == []
    assert await run_sql(pool, "select ended_at from invitations") == [(NOW,)]


async def test_a_final_status_is_final(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    for first in FINAL:
        one = await invite(storage, invitation(org))
        assert await end(storage, one, first)
        for second in FINAL:
            assert not await end(storage, one, second), (first, second)
        assert (await statuses(pool))[one.id] == first


async def test_one_of_many_concurrent_calls_ends_an_invitation(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    one = await invite(storage, invitation(org), invitation(org, EVE))
    won = await run_concurrently(20, lambda number: end(storage, one, FINAL[number % len(FINAL)]))
    assert sorted(won) == [False] * 19 + [True]
    assert list((await statuses(pool)).values()).count("pending") == 1


async def test_an_invitation_past_its_expiry_reads_as_expired_and_is_stored_as_pending(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    expired = await invite(storage, invitation(org, expires_at=NOW))
    pending = await invite(storage, invitation(org, EVE, expires_at=NOW + MICROSECOND))
    expected = replace(expired, status=EXPIRED)
    async with storage.transaction(by=SYSTEM) as tx:
        assert (await tx.invitations.page(org, EXPIRED, ALL, NOW)).items == [ListedInvitation(expected, DELETED_ACCOUNT)]
        assert (await tx.invitations.page(org, PENDING, ALL, NOW)).items == [ListedInvitation(pending, DELETED_ACCOUNT)]
        offer = await tx.invitations.received_by_token(expired.token_hash, NOW)
        assert offer is not None
        assert offer.invitation == expected
        assert await tx.invitations.received_by(ADA, NOW) == []
        assert len(await tx.invitations.received_by(EVE, NOW)) == 1
        assert await tx.invitations.by_id(org, expired.id) == expired
        assert await tx.invitations.by_token(org, expired.token_hash) == expired
        assert await tx.invitations.pending(org, ADA) == expired


# Pages and lists


async def test_pages_are_newest_first_and_have_the_total(storage: Postgres, pool: Pool) -> None:
    org, other = await add_organizations(pool)
    invitations = [invitation(org, f"{age}@example.com", created_at=NOW - age * SECOND) for age in (3, 1, 5, 2, 4)]
    await invite(storage, *invitations, invitation(other))
    newest = sorted(invitations, key=lambda one: one.created_at, reverse=True)
    async with storage.reading() as read:
        for number, expected in ((1, newest[:2]), (2, newest[2:4]), (3, newest[4:]), (4, [])):
            result = await read.invitations.page(org, None, Page(number, 2), NOW)
            assert ([item.invitation for item in result.items], result.total) == (expected, 5)


async def test_a_search_looks_at_the_addresses_of_one_organization(storage: Postgres, pool: Pool) -> None:
    org, other = await add_organizations(pool)
    grace, ada = invitation(org, "grace@example.com"), invitation(org, "ada@example.com", expires_at=NOW)
    await invite(storage, grace, ada, invitation(other, "grace@example.org"))
    async with storage.reading() as read:
        for search, status, expected in (("grace", None, [grace]), ("ada", PENDING, []), ("ada@", EXPIRED, [ada]), ("100%", None, [])):
            result = await read.invitations.page(org, status, ALL, NOW, search=search)
            assert ([item.invitation.id for item in result.items], result.total) == ([one.id for one in expected], len(expected))


async def test_a_page_can_have_one_role_only(storage: Postgres, pool: Pool) -> None:
    org, other = await add_organizations(pool)
    await invite(storage, invitation(org, ADA, role=ADMIN), invitation(org, EVE, role=MEMBER), invitation(other, role=MEMBER))
    async with storage.reading() as read:
        for role, email in ((ADMIN, ADA), (MEMBER, EVE)):
            for status in (None, PENDING):
                result = await read.invitations.page(org, status, ALL, NOW, role=role)
                assert ([each.invitation.email for each in result.items], result.total) == ([email], 1)
        assert (await read.invitations.page(org, PENDING, ALL, NOW, search="ada", role=MEMBER)).total == 0


async def test_a_page_filtered_by_status_counts_that_status_only(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    invitations = [invitation(org, f"{number}@example.com") for number in range(5)]
    await invite(storage, *invitations)
    await end(storage, invitations[0], InvitationStatus.CANCELLED)
    async with storage.reading() as read:
        assert (await read.invitations.page(org, PENDING, Page(1, 3), NOW)).total == 4
        assert (await read.invitations.page(org, InvitationStatus.CANCELLED, Page(1, 3), NOW)).total == 1
        assert (await read.invitations.page(org, InvitationStatus.ACCEPTED, Page(1, 3), NOW)).total == 0


async def test_expired_invitations_have_one_order_before_and_after_the_sweep(storage: Postgres, pool: Pool) -> None:
    org, other = await add_organizations(pool)
    invitations = [invitation(org, f"{age}@example.com", created_at=NOW - age * SECOND, expires_at=NOW) for age in range(7)]
    await invite(storage, *invitations, invitation(org, EVE), invitation(other, expires_at=NOW))
    for swept in (invitations[1], invitations[2], invitations[5]):
        assert await end(storage, swept, EXPIRED)
    async with storage.reading() as read:
        for number, expected in ((1, invitations[:3]), (2, invitations[3:6]), (3, invitations[6:]), (4, [])):
            result = await read.invitations.page(org, EXPIRED, Page(number, 3), NOW)
            assert [item.invitation for item in result.items] == [replace(one, status=EXPIRED) for one in expected]
            assert result.total == 7


async def test_a_recipient_gets_the_invitations_of_all_organizations_newest_first(storage: Postgres, pool: Pool) -> None:
    org, other = await add_organizations(pool)
    await invite(storage, invitation(org, created_at=NOW - 2 * DAY), invitation(other, created_at=NOW - DAY), invitation(other, EVE))
    async with storage.reading() as read:
        assert [offer.organization_slug for offer in await read.invitations.received_by(ADA, NOW)] == ["acme-two", "acme"]


async def test_the_nth_newest_counts_invitations_of_every_status(storage: Postgres, pool: Pool) -> None:
    org, other = await add_organizations(pool)
    invitations = [invitation(org, f"{age}@example.com", created_at=NOW - age * SECOND) for age in (3, 1, 2)]
    await invite(storage, *invitations, invitation(other, created_at=NOW))
    await end(storage, invitations[1], InvitationStatus.CANCELLED)
    async with storage.transaction(by=SYSTEM) as tx:
        assert [await tx.invitations.nth_newest(org, n) for n in (1, 2, 3, 4)] == [NOW - SECOND, NOW - 2 * SECOND, NOW - 3 * SECOND, None]


# Locks


async def test_the_lock_by_token_locks_only_its_organization(storage: Postgres, pool: Pool) -> None:
    org, other = await add_organizations(pool)
    one = await invite(storage, invitation(org))
    await end(storage, one, InvitationStatus.CANCELLED)  # any status
    await invite(storage, invitation(other))
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.organizations.lock_by_invitation_token(digest("x")) is None
        locked_org = await tx.organizations.lock_by_invitation_token(one.token_hash)
        assert locked_org == await tx.organizations.by_id(org)
        assert await is_locked(pool, "organizations", "id = %s", org)
        assert not await is_locked(pool, "organizations", "id = %s", other)


# Cancellation and expiry


async def test_cancel_from_cancels_only_the_named_roles_of_the_inviter(storage: Postgres, pool: Pool) -> None:
    org, other = await add_organizations(pool)
    grace = uuid4()
    canceled = await invite(storage, invitation(org, "1@example.com", invited_by=grace))
    kept_invitations = [
        invitation(org, "2@example.com", invited_by=grace, role=MEMBER),
        invitation(org, "3@example.com"),
        invitation(other, "4@example.com", invited_by=grace),
    ]
    await invite(storage, *kept_invitations)
    accepted = await invite(storage, invitation(org, "5@example.com", invited_by=grace))
    await end(storage, accepted, InvitationStatus.ACCEPTED)
    result = await within(storage, lambda tx: tx.invitations.cancel_from(org, grace, [ADMIN], NOW))
    assert result == [replace(canceled, status=InvitationStatus.CANCELLED)]
    assert await statuses(pool) == {
        canceled.id: "cancelled",
        accepted.id: "accepted",
        **{kept_invitation.id: "pending" for kept_invitation in kept_invitations},
    }
    assert await within(storage, lambda tx: tx.invitations.cancel_from(org, grace, [ADMIN], NOW)) == []


async def test_expire_takes_the_oldest_first_up_to_the_limit(storage: Postgres, pool: Pool) -> None:
    org, other = await add_organizations(pool)
    expired = [invitation((org, other)[age % 2], f"{age}@example.com", expires_at=NOW - age * SECOND) for age in (2, 0, 4, 1, 3)]
    pending = invitation(org, "in-time@example.com", expires_at=NOW + MICROSECOND)
    await invite(storage, *expired, pending)
    await end(storage, expired[2], InvitationStatus.CANCELLED)
    first = await within(storage, lambda tx: tx.invitations.expire(NOW, 3))
    assert {one.id for one in first} == {expired[4].id, expired[0].id, expired[3].id}
    assert all(one.status is EXPIRED for one in first)
    assert [one.id for one in await within(storage, lambda tx: tx.invitations.expire(NOW, 3))] == [expired[1].id]
    assert await within(storage, lambda tx: tx.invitations.expire(NOW, 3)) == []
    assert (await statuses(pool))[pending.id] == "pending"


async def test_expire_skips_locked_invitations(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    busy, idle = invitation(org, expires_at=NOW), invitation(org, EVE, expires_at=NOW)
    await invite(storage, busy, idle)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.invitations.end(org, busy.id, InvitationStatus.REJECTED, NOW)
        expired_invitations = await in_another_task(lambda: within(storage, lambda tx: tx.invitations.expire(NOW, 10)))
    assert [one.id for one in expired_invitations] == [idle.id]
    assert (await statuses(pool))[busy.id] == "rejected"


async def test_concurrent_sweeps_expire_each_invitation_once(storage: Postgres, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    await invite(storage, *(invitation(org, f"{number}@example.com", expires_at=NOW) for number in range(40)))
    batches = await run_concurrently(8, lambda _: within(storage, lambda tx: tx.invitations.expire(NOW, 10)))
    ids = [one.id for batch in batches for one in batch]
    assert len(ids) == len(set(ids))
    remaining = await within(storage, lambda tx: tx.invitations.expire(NOW, 40))
    assert len(ids) + len(remaining) == 40


async def test_invitations_are_deleted_with_their_organization(storage: Postgres, pool: Pool) -> None:
    org, other = await add_organizations(pool)
    await invite(storage, invitation(org))
    kept_invitation = await invite(storage, invitation(other))
    await within(storage, lambda tx: tx.organizations.delete(org, NOW))
    assert await statuses(pool) == {kept_invitation.id: "pending"}


@pytest.mark.parametrize("role", ["owner", "boss", ""])
async def test_an_invitation_offers_only_a_role_that_may_be_given(pool: Pool, storage: Postgres, role: str) -> None:
    org, _ = await add_organizations(pool)
    await invite(storage, *[invitation(org, f"{each}@example.com", role=each.name) for each in (ROLES[ADMIN], ROLES[MEMBER])])
    with pytest.raises(psycopg.errors.IntegrityError):
        await run_sql(pool, "update invitations set role = %s", role)
