"""The rules for organizations, and the checks that use cases repeat under lock (security Z-5)."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

import pytest
import trio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication import sessions
from core.kernel.access import AccountGone, AddressNotVerified, NotOfThisOrganization, OrganizationNotFound, RoleInsufficient
from core.kernel.callers import Member, MembershipState, OrganizationContext, OrganizationStatus, Person, to_member
from core.kernel.errors import Limited, OrganizationNotActive, Refusal, SessionEnded
from core.kernel.roles import ADMIN, MEMBER, OWNER, Capability, RoleName, rights_of
from core.kernel.values import Slug, SlugInvalid, SlugReserved
from core.tenancy import organizations
from core.tenancy.model import organizations as model_organizations
from core.tenancy.model import organizations as organizations_model
from core.tenancy.model.organizations import EmptyOrganizationUpdate, Limit, LimitSource, Membership, Organization, Tier
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import add_account, add_member, add_organization, run_during, run_sql, sign_in
from tests.support.rows import in_another_task
from tests.tables import table

NOW = datetime(2026, 3, 14, tzinfo=UTC)
TIER = Tier(UUID(int=3), "free", "Free", 3, 100, 0)
ACME = Organization(
    id=UUID(int=1),
    slug=Slug("acme"),
    name="Acme",
    status=OrganizationStatus.SUSPENDED,
    tier=TIER,
    max_services=None,
    max_users=None,
    device_trust_days=30,
    personal_tokens=True,
    members_see_end_users=True,
    member_count=1,
    created_at=NOW,
    updated_at=NOW,
    approved_at=None,
    rejected_reason=None,
    suspended_reason=None,
)


@table(
    ("changes", "users", "services"),
    [
        ({}, Limit(100, LimitSource.TIER), Limit(3, LimitSource.TIER)),
        ({"max_users": 7}, Limit(7, LimitSource.ORGANIZATION), Limit(3, LimitSource.TIER)),
        ({"max_services": 8}, Limit(100, LimitSource.TIER), Limit(8, LimitSource.ORGANIZATION)),
        ({"max_users": 0, "max_services": 0}, Limit(0, LimitSource.ORGANIZATION), Limit(0, LimitSource.ORGANIZATION)),
        ({"tier": None}, Limit(5, LimitSource.DEFAULT), Limit(5, LimitSource.DEFAULT)),
        ({"tier": None, "max_users": 9}, Limit(9, LimitSource.ORGANIZATION), Limit(5, LimitSource.DEFAULT)),
        ({"tier": replace(TIER, default_max_users=0)}, Limit(0, LimitSource.TIER), Limit(3, LimitSource.TIER)),
    ],
)
def test_a_limit_comes_from_the_organization_the_tier_or_the_default(changes: dict[str, Any], users: Limit, services: Limit) -> None:
    """See decisions 154 and 155."""
    organization = replace(ACME, **changes)
    assert (organization.user_limit, organization.service_limit) == (users, services)


MEMBERSHIP = Membership(
    id=UUID(int=2), org_id=ACME.id, user_id=UUID(int=3), role=ADMIN, created_at=NOW, confirmed_at=NOW, rights=rights_of(ADMIN)
)


@table("role", [None, ADMIN])
def test_a_membership_state_has_the_role_and_the_status(role: RoleName | None) -> None:
    membership = None if role is None else MEMBERSHIP
    assert organizations_model.to_membership_state(ACME, membership) == MembershipState(
        ACME.id, "acme", OrganizationStatus.SUSPENDED, role, rights_of(role)
    )


def test_an_error_message_says_what_to_do() -> None:
    for refusal in (organizations_model.SlugTaken, EmptyOrganizationUpdate, AddressNotVerified):
        assert len((refusal.__doc__ or "").split()) > 6


# Changes between the HTTP edge's checks and the transaction


async def person_of(ports: Ports, account: Account, **changes: Any) -> Person:
    """Return the caller as the HTTP edge loaded them."""
    signed_in = await sign_in(ports, account)
    person = Person(user_id=account.id, email=account.email, email_verified=True, session_id=signed_in.session_id)
    return replace(person, **changes)


async def owner_of(ports: Ports, pool: Pool, org: UUID) -> Member:
    """Add an owner to the organization, and return the caller as the HTTP edge accepted them."""
    account = await add_account(ports, "owner@example.com", None)
    await add_member(pool, org, account.id, "owner")
    return to_member(await person_of(ports, account), OrganizationContext(org, "acme", OrganizationStatus.ACTIVE, OWNER, rights_of(OWNER)))


ACTIONS: dict[str, Callable[[Ports, Member], Awaitable[object]]] = {
    "update": lambda ports, caller: organizations.update(ports, caller, name="New"),
    "delete": organizations.delete,
    "select": sessions.select_organization,
}
CHANGES = {
    "demoted": ("update memberships set role = 'member'", RoleInsufficient),
    "removed": ("delete from memberships", NotOfThisOrganization),
    "suspended": ("update organizations set status = 'suspended'", OrganizationNotActive),
    "deleted": ("delete from organizations", OrganizationNotFound),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("act", ACTIONS)
async def test_permission_is_checked_again_in_the_transaction(ports: Ports, pool: Pool, act: str, change: str) -> None:
    org = await add_organization(pool, "acme")
    caller = await owner_of(ports, pool, org)
    statement, refusal = CHANGES[change]
    await run_sql(pool, statement)
    before = await run_sql(pool, "select name, status from organizations")
    if act == "select" and change == "demoted":
        membership, _ = await sessions.select_organization(ports, caller)  # allowed for every role
        assert membership.role == MEMBER
        return
    with pytest.raises(refusal):
        await ACTIONS[act](ports, caller)
    assert await run_sql(pool, "select name, status from organizations") == before
    assert await run_sql(pool, "select * from audit_log") == []
    assert await run_sql(pool, "select count(*) from refresh_tokens") == [(1,)]


SUSPENSION = ("update organizations set status = 'suspended'", OrganizationNotActive)
REMOVAL = ("delete from memberships", NotOfThisOrganization)


@pytest.mark.parametrize(("act", "change"), [("update", SUSPENSION), ("delete", SUSPENSION), *((act, REMOVAL) for act in ACTIONS)])
async def test_a_use_case_sees_a_concurrent_change_that_it_waited_for(
    ports: Ports, pool: Pool, act: str, change: tuple[str, type[Refusal]]
) -> None:
    """The change commits first.

    The use case sees it, although the HTTP edge accepted the caller before.
    """
    caller = await owner_of(ports, pool, await add_organization(pool, "acme"))
    statement, refusal = change
    with pytest.raises(refusal):
        await run_during(pool, [(statement, ())], lambda: ACTIONS[act](ports, caller))


async def test_an_address_unverified_during_the_request_cannot_create(ports: Ports, pool: Pool) -> None:
    caller = await person_of(ports, await add_account(ports))
    await run_sql(pool, "update users set email_verified_at = null")
    with pytest.raises(AddressNotVerified):
        await organizations.create(ports, caller, "acme", "Acme")
    assert await run_sql(pool, "select * from organizations") == await run_sql(pool, "select * from audit_log") == []


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ("update users set deactivated_at = now()", SessionEnded),
        ("update users set anonymized_at = now()", SessionEnded),
        ("update sessions set ended_at = now()", SessionEnded),
        ("delete from users", AccountGone),
    ],
)
async def test_an_account_that_ended_during_the_request_cannot_create(
    ports: Ports, pool: Pool, change: LiteralString, refusal: type[Refusal]
) -> None:
    caller = await person_of(ports, await add_account(ports))
    await run_sql(pool, change)
    with pytest.raises(refusal):
        await organizations.create(ports, caller, "acme", "Acme")
    assert await run_sql(pool, "select * from organizations") == []


async def test_the_owner_is_counted_as_a_member(ports: Ports, pool: Pool) -> None:
    organization, membership = await organizations.create(ports, await person_of(ports, await add_account(ports)), "acme", "Acme")
    async with ports.storage.reading() as read:
        assert await read.organizations.by_id(organization.id) == organization
        assert await read.organizations.by_member(membership.user_id) == [(organization, membership)]
    assert organization.member_count == 1


@pytest.mark.parametrize(("slug", "refusal"), [("Acme", SlugInvalid), ("api", SlugReserved)])
async def test_an_invalid_slug_is_refused_before_any_query(ports: Ports, slug: str, refusal: type[Exception]) -> None:
    person = Person(user_id=UUID(int=1), email=(await add_account(ports)).email, session_id=UUID(int=2))
    with pytest.raises(refusal):
        await organizations.create(ports, person, slug, "Acme")


async def test_without_the_initial_tier_the_default_limits_apply(ports: Ports, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_organizations, "INITIAL_TIER", "gone")
    organization, _ = await organizations.create(ports, await person_of(ports, await add_account(ports)), "acme", "Acme")
    assert (organization.tier, organization.user_limit) == (None, Limit(5, LimitSource.DEFAULT))


# Selecting


@pytest.mark.parametrize(
    "end",
    [
        "update sessions set ended_at = now()",
        "update sessions set expires_at = created_at",
        "delete from sessions",
    ],
)
async def test_an_ended_session_cannot_select(ports: Ports, pool: Pool, end: str) -> None:
    caller = await owner_of(ports, pool, await add_organization(pool, "acme"))
    await run_sql(pool, end)
    with pytest.raises(SessionEnded):
        await sessions.select_organization(ports, caller)
    assert await run_sql(pool, "select count(*) from refresh_tokens where generation > 1") == [(0,)]


async def test_an_organization_under_deletion_cannot_be_selected(ports: Ports, pool: Pool) -> None:
    caller = await owner_of(ports, pool, await add_organization(pool, "acme"))
    with pytest.raises(OrganizationNotFound):
        await run_during(pool, [("delete from organizations", ())], lambda: sessions.select_organization(ports, caller))
    assert await run_sql(pool, "select org_id from sessions") == [(None,)]


async def test_selecting_does_not_wait_for_changes_of_the_organization(ports: Ports, pool: Pool) -> None:
    """All members in a large organization may select it at the same time."""
    org = await add_organization(pool, "acme")
    caller = await owner_of(ports, pool, org)
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("select 1 from organizations for update")
        with trio.fail_after(5):
            membership, _ = await in_another_task(lambda: sessions.select_organization(ports, caller))
    assert membership.org_id == org


async def test_selecting_waits_for_a_concurrent_refresh_and_rotates_its_token(ports: Ports, pool: Pool) -> None:
    org = await add_organization(pool, "acme")
    caller = await owner_of(ports, pool, org)
    # A refresh's statements, without its commit.
    rotated = "update refresh_tokens set rotated_at = now()"
    insert = "insert into refresh_tokens (token_hash, session_id, generation, created_at) select 'next', id, 2, now() from sessions"
    membership, _ = await run_during(pool, [(rotated, ()), (insert, ())], lambda: sessions.select_organization(ports, caller))
    assert membership.org_id == org
    tokens = await run_sql(pool, "select generation, rotated_at is null from refresh_tokens order by generation")
    assert tokens == [(1, False), (2, False), (3, True)]


async def test_selecting_gives_up_after_too_many_lost_races(ports: Ports, pool: Pool) -> None:
    """A session with a refresh token wins at some point, so the test removes the token."""
    caller = await owner_of(ports, pool, await add_organization(pool, "acme"))
    await run_sql(pool, "delete from refresh_tokens")
    with pytest.raises(Limited):
        await sessions.select_organization(ports, caller)


async def test_a_selection_never_lengthens_a_session(ports: Ports, pool: Pool, clock: FakeClock) -> None:
    caller = await owner_of(ports, pool, await add_organization(pool, "acme"))
    at = [clock.now() + timedelta(seconds=seconds) for seconds in (90, 60)]
    await run_sql(pool, "update sessions set ends_at = %s, expires_at = %s", *at)
    _, pair = await sessions.select_organization(ports, caller)
    assert pair.expires_in == 90
    assert await run_sql(pool, "select expires_at = ends_at, ends_at from sessions") == [(True, at[0])]


@pytest.mark.parametrize("capability", [Capability.ORGANIZATION_VIEW, Capability.ORGANIZATION_OWN])
async def test_lock_organization_for_locks_organization_and_membership(ports: Ports, pool: Pool, capability: Capability) -> None:
    org = await add_organization(pool, "acme")
    caller = await owner_of(ports, pool, org)
    async with ports.storage.transaction(by=caller) as tx:
        organization, rights = await organizations.lock_organization_for(tx, caller, capability)
        assert (organization.id, rights) == (org, rights_of(OWNER))
        for table in ("organizations", "memberships"):
            free: list[Any] = []

            async def look(table: str = table, free: list[Any] = free) -> None:
                free += await run_sql(pool, f"select id from {table} for no key update skip locked")  # noqa: S608

            async with trio.open_nursery() as nursery:
                nursery.start_soon(look)
            assert free == []
