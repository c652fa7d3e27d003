"""Every statement about email address changes: fields, conditions, and reserved old addresses."""

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres, Transaction
from core.accounts.model.accounts import EmailChange, EmailTaken
from core.accounts.model.email_queue import EmailKind, new_email
from core.kernel.causes import SYSTEM
from core.kernel.roles import MEMBER
from core.kernel.values import Email
from core.provisioning.model.profiles import ScimProfile
from core.provisioning.model.users import UserNameTaken
from core.tenancy.model.organizations import Membership
from tests.support.builders import add_organization, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, MICROSECOND, NOW, account, add, within

NEW = Email("lovelace@example.com")


def change(user_id: UUID, **values: Any) -> EmailChange:
    plain = EmailChange(
        id=uuid4(),
        user_id=user_id,
        session_id=uuid4(),
        old_email=ADA,
        new_email=NEW,
        requested_at=NOW,
        expires_at=NOW + DAY,
        undo_until=NOW + 3 * DAY,
    )
    return replace(plain, **values)


async def add_change(tx: Transaction, user_id: UUID, **values: Any) -> EmailChange:
    added = change(user_id, **values)
    await tx.email_changes.add(added)
    return added


async def pending_email(tx: Transaction, user_id: UUID, now: datetime) -> Email | None:
    own = await tx.accounts.own_profile(user_id, now)
    assert own is not None
    return own.pending_email


async def test_every_query_returns_every_field(storage: Postgres) -> None:
    user = await add(storage, account())
    ended = {"proved_at": NOW + HOUR, "cancelled_at": NOW + 2 * HOUR, "undone_at": NOW + 3 * HOUR}
    async with storage.transaction(by=SYSTEM) as tx:
        first = await add_change(tx, user.id, undo_until=None, **ended)
        pending = await add_change(tx, user.id)
        assert await tx.email_changes.by_id(first.id) == first
        assert await tx.email_changes.by_id(uuid4()) is None
        assert await tx.email_changes.pending(user.id, NOW) == pending
        assert await tx.email_changes.first_since(user.id, pending.requested_at) == pending, "the first one cannot be undone"
        assert await tx.email_changes.first_since(user.id, pending.requested_at + MICROSECOND) is None


async def test_a_change_is_pending_until_it_is_proved_canceled_or_expired(storage: Postgres) -> None:
    await add(storage, user := account(), eve := account(EVE))
    async with storage.transaction(by=SYSTEM) as tx:
        changes = tx.email_changes
        await add_change(tx, user.id, proved_at=NOW)
        pending = await add_change(tx, user.id)
        assert await changes.pending(eve.id, NOW) is None
        assert await pending_email(tx, eve.id, NOW) is None
        assert await pending_email(tx, user.id, NOW + DAY - MICROSECOND) == pending.new_email
        assert await pending_email(tx, user.id, NOW + DAY) is None
        assert await changes.pending(user.id, NOW + DAY - MICROSECOND) == pending
        assert await changes.pending(user.id, NOW + DAY) is None
        await changes.cancel_pending(eve.id, NOW)
        await changes.cancel_pending(user.id, NOW + HOUR)
        assert await changes.by_id(pending.id) == replace(pending, cancelled_at=NOW + HOUR)
        assert await changes.pending(user.id, NOW) is None
        assert await pending_email(tx, user.id, NOW) is None
        proved = await add_change(tx, user.id)
        await changes.mark_proved(proved.id, NOW + HOUR)
        assert await changes.by_id(proved.id) == replace(proved, proved_at=NOW + HOUR)
        assert await changes.pending(user.id, NOW) is None
        assert await pending_email(tx, user.id, NOW) is None


async def test_an_undo_ends_the_change_and_all_later_ones_of_the_user(storage: Postgres) -> None:
    """Later means added later: the request times may be equal or reversed."""
    await add(storage, user := account(), eve := account(EVE))
    async with storage.transaction(by=SYSTEM) as tx:
        changes = tx.email_changes
        earlier = await add_change(tx, user.id, requested_at=NOW + HOUR, proved_at=NOW)
        undone = await add_change(tx, user.id, proved_at=NOW)
        undone_before = await add_change(tx, user.id, undone_at=NOW - HOUR, cancelled_at=NOW - HOUR)
        later = await add_change(tx, user.id, requested_at=NOW - HOUR)
        other = await add_change(tx, eve.id)
        await changes.undo(undone, NOW)
        assert await changes.by_id(undone.id) == replace(undone, undone_at=NOW)
        assert await changes.by_id(later.id) == replace(later, undone_at=NOW, cancelled_at=NOW)
        for same in (earlier, undone_before, other):
            assert await changes.by_id(same.id) == same


async def test_an_undo_link_works_for_a_change_that_is_not_undone_until_its_time(storage: Postgres) -> None:
    await add(storage, user := account(), eve := account(EVE))
    async with storage.transaction(by=SYSTEM) as tx:
        changes = tx.email_changes
        await add_change(tx, user.id, undo_until=NOW)
        first = await add_change(tx, user.id, undo_until=NOW + HOUR, cancelled_at=NOW)
        last = await add_change(tx, user.id, undo_until=NOW + HOUR, proved_at=NOW)
        await add_change(tx, user.id, undone_at=NOW)
        await add_change(tx, user.id, undo_until=None)
        await add_change(tx, eve.id)
        assert (await changes.first_undoable(user.id, NOW), await changes.last_undoable(user.id, NOW)) == (first, last)
        over = NOW + HOUR
        assert (await changes.first_undoable(user.id, over), await changes.last_undoable(user.id, over)) == (None, None)


async def test_an_organizations_change_ends_all_changes_of_the_user(storage: Postgres) -> None:
    await add(storage, user := account(), eve := account(EVE))
    async with storage.transaction(by=SYSTEM) as tx:
        changes = tx.email_changes
        proved = await add_change(tx, user.id, proved_at=NOW)
        over = await add_change(tx, user.id, undo_until=NOW - HOUR, cancelled_at=NOW - DAY)
        unverified = await add_change(tx, user.id, undo_until=None)
        other = await add_change(tx, eve.id)
        await changes.end_all(user.id, NOW)
        assert await changes.by_id(proved.id) == replace(proved, undo_until=NOW)
        assert await changes.by_id(unverified.id) == replace(unverified, cancelled_at=NOW)
        for same in (over, other):
            assert await changes.by_id(same.id) == same


async def test_the_nth_newest_request(storage: Postgres) -> None:
    await add(storage, user := account(), eve := account(EVE))
    async with storage.transaction(by=SYSTEM) as tx:
        await add_change(tx, eve.id)
        for hour in (1, 2, 3):
            await add_change(tx, user.id, requested_at=NOW + hour * HOUR)
        assert [await tx.email_changes.nth_newest_at(user.id, number) for number in (1, 3, 4)] == [NOW + 3 * HOUR, NOW + HOUR, None]


async def provision(tx: Transaction, org: UUID) -> None:
    newcomer = account(created_at=NOW)
    membership = Membership(id=uuid4(), org_id=org, user_id=newcomer.id, role=MEMBER, created_at=NOW, confirmed_at=NOW)
    await tx.scim_users.provision(newcomer, membership, ScimProfile())


async def test_no_statement_gives_a_reserved_address_to_another_account(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(NEW), eve := account(EVE))
    org = await add_organization(pool, "acme")
    reserving = await within(storage, lambda tx: add_change(tx, user.id, proved_at=NOW))

    async def reserved() -> list[bool]:
        async with storage.transaction(by=SYSTEM) as tx:
            return [await tx.email_changes.is_reserved(ADA, NOW), await tx.email_changes.is_taken(ADA, eve.id, NOW)]

    with pytest.raises(EmailTaken):
        await within(storage, lambda tx: tx.accounts.add(account(created_at=NOW)))
    assert not await within(storage, lambda tx: tx.accounts.add_if_free(account(created_at=NOW)))
    with pytest.raises(UserNameTaken):
        await within(storage, lambda tx: provision(tx, org))
    with pytest.raises(EmailTaken):
        await within(storage, lambda tx: tx.accounts.change_email(eve.id, ADA, NOW))
    assert await run_sql(pool, "select email from users order by email") == [(EVE,), (NEW,)]
    assert await run_sql(pool, "select 1 from memberships union all select 1 from scim_users") == []
    assert await reserved() == [True, True]
    async with storage.transaction(by=SYSTEM) as tx:
        assert not await tx.email_changes.is_taken(ADA, user.id, NOW), "its former account can have it again"
        assert await tx.email_changes.is_taken(EVE, user.id, NOW)
    for ended in ("undone_at = now()", "undone_at = null, undo_until = null", f"undo_until = '{NOW}'"):
        await run_sql(pool, f"update email_changes set {ended}")  # noqa: S608
        assert await reserved() == [False, False], ended
    await within(storage, lambda tx: tx.accounts.add(account(created_at=NOW)))
    assert await run_sql(pool, "select count(*) from users where email = %s", reserving.old_email) == [(1,)]


async def test_a_pending_change_reserves_nothing_from_its_own_account(storage: Postgres) -> None:
    user = await add(storage, account())
    async with storage.transaction(by=SYSTEM) as tx:
        await add_change(tx, user.id)
        assert not await tx.email_changes.is_reserved(ADA, NOW)
        await tx.accounts.change_email(user.id, NEW, NOW)
        assert await tx.email_changes.is_reserved(ADA, NOW)
        await tx.accounts.change_email(user.id, ADA, NOW)


async def test_only_a_password_set_since_a_time_is_dropped(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    query = "select password_hash from users"
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.accounts.drop_password_set_since(user.id, NOW - DAY, NOW)  # set before the column existed
        await tx.accounts.set_password(user.id, "set", NOW)
        await tx.accounts.rehash_password(user.id, "rehashed", NOW + DAY)
        await tx.accounts.drop_password_set_since(user.id, NOW + MICROSECOND, NOW)
    assert await run_sql(pool, query) == [("rehashed",)]
    await within(storage, lambda tx: tx.accounts.drop_password_set_since(user.id, NOW, NOW))
    assert await run_sql(pool, query) == [(None,)]


async def test_the_emails_about_a_change_are_deleted_with_it(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    async with storage.transaction(by=SYSTEM) as tx:
        added = await add_change(tx, user.id)
        await tx.email_queue.add(new_email(EmailKind.CONFIRM_EMAIL_CHANGE, NEW, NOW, email_change_id=added.id))
        await tx.email_queue.add(new_email(EmailKind.PASSWORD_CHANGED, ADA, NOW))
        claimed = await tx.email_queue.claim(NOW, NOW + HOUR, 10)
        assert {email.kind: email.email_change_id for email in claimed} == {
            EmailKind.CONFIRM_EMAIL_CHANGE: added.id,
            EmailKind.PASSWORD_CHANGED: None,
        }
    await within(storage, lambda tx: tx.privacy.remove_sign_in_methods(user.id))
    assert await run_sql(pool, "select kind from mails") == [("password_changed",)]
