"""Tests of every statement on sessions, refresh tokens and login records: fields, conditions, and that other users' rows stay.

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
import trio

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.authentication.sessions_rules import Grant, LiveSessions, RefreshTokenState, RotatedSession
from core.billing.subscriptions_rules import Entitlement, SubscriptionStatus
from core.kernel.principals import SYSTEM, MembershipState, OrganizationContext, OrganizationStatus, Role, SessionContext
from core.kernel.values import digest
from ports import Ports
from tests.support.builders import add_member, add_organization, run_concurrently, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, NOW, SECOND, account, add, begin, until_blocked, within
from tests.support.services import add_plan, add_service, add_subscription, service_context


async def test_every_field_of_a_session_is_stored_but_not_its_token(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    how = {"provider": "codehost", "grant": Grant.DEVICE_CODE}
    new_session = await begin(storage, user.id, "token", impersonator_id=eve.id, impersonator_session_id=(behind := uuid4()), **how)
    columns = "id, user_id, impersonator_id, impersonator_session_id, created_at, expires_at, ends_at, address, agent, org_id, ended_at"
    assert await run_sql(pool, f"select {columns} from sessions") == [  # noqa: S608
        (new_session.id, user.id, eve.id, behind, NOW - HOUR, NOW + 30 * DAY, NOW + 90 * DAY, "203.0.113.9", "tests", None, None)
    ]
    assert await run_sql(pool, "select provider, grant_type from sessions") == [("codehost", "device_code")]
    tokens = await run_sql(pool, "select token_hash, session_id, generation, rotated_at, created_at from refresh_tokens")
    assert tokens == [(digest("token"), new_session.id, 1, None, NOW - HOUR)]


async def test_the_session_context_has_all_facts_of_a_request(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account(is_platform_owner=True))
    new_session = await begin(storage, user.id, "token")
    org = await add_organization(pool, "acme", "suspended")
    other_tenant = await add_organization(pool, "twin")
    await add_member(pool, org, user.id, "admin")
    plain = SessionContext(user_id=user.id, email=ADA, email_verified_at=NOW, is_platform_owner=True, organization=None)
    async with storage.reading() as read:
        load = read.sessions.load_session_context
        assert await load(new_session.id, user.id, None, NOW) == plain
        assert await load(new_session.id, user.id, uuid4(), NOW) == plain
        assert await load(new_session.id, user.id, org, NOW) == replace(
            plain,
            organization=OrganizationContext(org, "acme", OrganizationStatus.SUSPENDED, Role.ADMIN),
        )
        elsewhere = await load(new_session.id, user.id, other_tenant, NOW)
        assert elsewhere is not None
        assert elsewhere.organization is None, "a membership of another organization does not count"


async def test_the_session_context_needs_the_users_own_session(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE, is_platform_owner=True))
    mine, hers = await begin(storage, user.id, "ada"), await begin(storage, eve.id, "eve")
    org = await add_organization(pool, "acme")
    await add_member(pool, org, eve.id, "owner")
    async with storage.reading() as read:
        assert await read.sessions.load_session_context(hers.id, user.id, None, NOW) is None
        assert await read.sessions.load_session_context(mine.id, eve.id, None, NOW) is None
        assert await read.sessions.load_session_context(uuid4(), user.id, None, NOW) is None
        found = await read.sessions.load_session_context(mine.id, user.id, org, NOW)
    assert found is not None
    assert (found.organization, found.is_platform_owner) == (None, False)


@pytest.mark.parametrize(
    "end",
    [
        "update sessions set ended_at = %(now)s",
        "update sessions set expires_at = %(now)s",
        "update users set deactivated_at = %(now)s",
        "update users set anonymized_at = %(now)s",
        "delete from users",
        "delete from sessions",
    ],
)
async def test_a_session_that_is_not_live_has_no_context(storage: Postgres, pool: Pool, end: str) -> None:
    user = await add(storage, account())
    new_session = await begin(storage, user.id, "token")
    async with storage.reading() as read:
        assert await read.sessions.load_session_context(new_session.id, user.id, None, NOW)
    async with pool.connection() as connection:
        await connection.execute(end, {"now": NOW})
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.load_session_context(new_session.id, user.id, None, NOW) is None
        assert await tx.sessions.rotate(digest("token"), digest("next"), NOW, NOW + 30 * DAY) is None
        presented = await tx.sessions.explain_refresh_token(digest("token"), NOW)
    assert presented is None or not presented.session_is_live


async def test_the_context_in_an_organization_has_the_role(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    new_session = await begin(storage, user.id, "token")
    org, other_tenant = await add_organization(pool, "acme", "pending"), await add_organization(pool, "twin", "rejected")
    await add_member(pool, org, user.id, "admin")
    await add_member(pool, org, eve.id, "owner")
    await add_member(pool, other_tenant, eve.id, "owner")
    context = OrganizationContext(org, "acme", OrganizationStatus.PENDING, Role.ADMIN)
    here = MembershipState(org, "acme", OrganizationStatus.PENDING, Role.ADMIN, confirmed=False)
    there = MembershipState(other_tenant, "twin", OrganizationStatus.REJECTED, None, confirmed=False)
    async with storage.reading() as read:
        plain = await read.sessions.load_session_context(new_session.id, user.id, None, NOW)
        assert plain is not None
        for token_org, organization in ((None, None), (org, context), (other_tenant, None), (uuid4(), None)):
            for slug, acts_in in (("acme", here), ("twin", there), ("Acme", None), ("acm_", None), ("", None)):
                found = await read.sessions.load_session_context_in(slug, new_session.id, user.id, token_org, NOW)
                assert found == replace(plain, organization=organization, acts_in=acts_in), (slug, token_org)


async def test_the_context_in_an_organization_tells_if_the_membership_is_confirmed(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    new_session = await begin(storage, user.id, "token")
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    for organization, person in ((org, user), (org, eve), (other_tenant, user)):
        await add_member(pool, organization, person.id)
    confirmed = "update memberships set confirmed_at = %s where (org_id, user_id) = (%s, %s)"
    found = []
    for organization, person in ((org, eve), (other_tenant, user), (org, user)):
        await run_sql(pool, confirmed, NOW, organization, person.id)
        async with storage.reading() as read:
            context = await read.sessions.load_session_context_in("acme", new_session.id, user.id, None, NOW)
        found.append(context is not None and context.acts_in is not None and context.acts_in.confirmed)
    assert found == [False, False, True]


async def test_the_context_in_an_organization_needs_the_users_own_session(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    mine, hers = await begin(storage, user.id, "ada"), await begin(storage, eve.id, "eve")
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id, "owner")
    async with storage.reading() as read:
        for session_id, user_id in ((hers.id, user.id), (mine.id, eve.id), (uuid4(), user.id)):
            assert await read.sessions.load_session_context_in("acme", session_id, user_id, org, NOW) is None


# Impersonations


async def test_the_session_context_has_the_impersonator(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), support := account(EVE, is_platform_owner=True))
    behind, own = await begin(storage, user.id, "token", impersonator_id=support.id), await begin(storage, user.id, "own")
    await add_organization(pool, "acme")
    async with storage.reading() as read:
        for session, impersonator_id in ((behind, support.id), (own, None)):
            found = await read.sessions.load_session_context(session.id, user.id, None, NOW)
            inside = await read.sessions.load_session_context_in("acme", session.id, user.id, None, NOW)
            assert found is not None
            assert inside is not None
            assert found.impersonator_id == inside.impersonator_id == impersonator_id


@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        ("select 1", True),
        ("update users set is_platform_owner = false where email = 'eve@example.com'", False),
        ("update users set deactivated_at = now() where email = 'eve@example.com'", False),
        ("update users set anonymized_at = now() where email = 'eve@example.com'", False),
        ("delete from users where email = 'eve@example.com'", False),
        ("update users set is_platform_owner = true where email = 'ada@example.com'", False),
        ("update users set is_platform_owner = false where email = 'other@example.com'", True),
        ("update users set is_platform_owner = not is_platform_owner where email = 'third@example.com'", True),
    ],
)
async def test_an_impersonation_ends_when_the_impersonator_is_demoted(storage: Postgres, pool: Pool, change: str, goes_on: bool) -> None:
    await add(storage, user := account(), support := account(EVE, is_platform_owner=True))
    other, third = account("other@example.com", is_platform_owner=True), account("third@example.com")
    await add(storage, other, third)
    behind, own = await begin(storage, user.id, "token", impersonator_id=support.id), await begin(storage, user.id, "own")
    await begin(storage, user.id, "another's", impersonator_id=other.id)  # another user's change has no effect
    await add_organization(pool, "acme")
    await run_sql(pool, change)
    async with storage.transaction(by=SYSTEM) as tx:
        assert (await tx.sessions.load_session_context(behind.id, user.id, None, NOW) is not None) == goes_on
        assert (await tx.sessions.load_session_context_in("acme", behind.id, user.id, None, NOW) is not None) == goes_on
        assert (await tx.sessions.rotate(digest("token"), digest("next"), NOW, NOW + DAY) is not None) == goes_on
        # The user's own session is not affected.
        assert await tx.sessions.load_session_context(own.id, user.id, None, NOW)
        assert await tx.sessions.load_session_context_in("acme", own.id, user.id, None, NOW)
        assert await tx.sessions.rotate(digest("own"), digest("own next"), NOW, NOW + DAY)


@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        ("select %(behind)s, %(beside)s, %(now)s", True),
        ("update sessions set ended_at = %(now)s where id = %(behind)s", False),
        ("update sessions set expires_at = %(now)s where id = %(behind)s", False),
        ("update sessions set expires_at = %(now)s + interval '1 microsecond' where id = %(behind)s", True),
        ("delete from sessions where id = %(behind)s", False),
        ("update sessions set ended_at = %(now)s where id = %(beside)s", True),
        ("update sessions set impersonator_session_id = null where impersonator_id is not null", False),
        ("update sessions set impersonator_session_id = id where impersonator_id is not null", False),
    ],
)
async def test_an_impersonation_ends_with_the_session_that_started_it(storage: Postgres, pool: Pool, change: str, goes_on: bool) -> None:
    support, other = account(EVE, is_platform_owner=True), account("other@example.com", is_platform_owner=True)
    await add(storage, user := account(), support, other)
    shop = await add_service(pool, await add_organization(pool, "acme"))
    context = await service_context(pool, shop)
    await use(storage, shop, user.id)
    behind, beside = await begin(storage, support.id, "behind"), await begin(storage, support.id, "beside")
    await begin(storage, other.id, "another's")
    by = {"impersonator_id": support.id, "impersonator_session_id": behind.id}
    plain = await begin(storage, user.id, "plain", **by)
    of_shop = await begin(storage, user.id, "of shop", service=context, **by)
    async with pool.connection() as connection:
        await connection.execute(change, {"behind": behind.id, "beside": beside.id, "now": NOW})
    async with storage.transaction(by=SYSTEM) as tx:
        assert (await tx.sessions.load_session_context(plain.id, user.id, None, NOW) is not None) == goes_on
        assert (await tx.sessions.load_session_context_in("acme", plain.id, user.id, None, NOW) is not None) == goes_on
        assert (await tx.sessions.load_application_session_context(context.client_id, of_shop.id, user.id, NOW) is not None) == goes_on
        for token in ("plain", "of shop"):
            assert (await tx.sessions.rotate(digest(token), digest(f"next {token}"), NOW, NOW + DAY) is not None) == goes_on


async def test_a_rotation_keeps_the_impersonator_and_the_end(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), support := account(EVE, is_platform_owner=True))
    behind = await begin(storage, user.id, "token", impersonator_id=support.id, expires_at=NOW + HOUR, ends_at=NOW + HOUR)
    await within(storage, lambda tx: tx.sessions.rotate(digest("token"), digest("next"), NOW, NOW + 30 * DAY))
    stored = await run_sql(pool, "select id, impersonator_id, expires_at, ends_at from sessions where user_id = %s", user.id)
    assert stored == [(behind.id, support.id, NOW + HOUR, NOW + HOUR)]


# Rotation


async def test_a_rotation_returns_the_session_and_adds_a_successor(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    new_session, other = await begin(storage, user.id, "first"), await begin(storage, eve.id, "eve")
    org = await add_organization(pool, "acme")
    await add_organization(pool, "twin")
    await add_member(pool, org, user.id)
    await run_sql(pool, "update sessions set org_id = %s where id = %s", org, new_session.id)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.rotate(digest("unknown"), digest("next"), NOW, NOW + DAY) is None
        assert await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + 31 * DAY) == RotatedSession(
            session_id=new_session.id,
            user_id=user.id,
            email=ADA,
            email_verified_at=NOW,
            ends_at=NOW + 90 * DAY,
            impersonator_id=None,
            org_id=org,
            org_slug="acme",
            service=None,
            entitlement=Entitlement(),
        )
        assert await tx.sessions.rotate(digest("first"), digest("third"), NOW, NOW + DAY) is None
    tokens = await run_sql(
        pool, "select token_hash, session_id, generation, rotated_at, created_at from refresh_tokens order by generation, 2"
    )
    assert sorted(tokens, key=str) == sorted(
        [
            (digest("eve"), other.id, 1, None, NOW - HOUR),
            (digest("first"), new_session.id, 1, NOW, NOW - HOUR),
            (digest("second"), new_session.id, 2, None, NOW),
        ],
        key=str,
    )
    lives = await run_sql(pool, "select id, expires_at from sessions")
    assert set(lives) == {(new_session.id, NOW + 31 * DAY), (other.id, NOW + 30 * DAY)}


async def test_a_rotation_never_outlives_the_absolute_end(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    await begin(storage, user.id, "first")
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + 365 * DAY)
    assert await run_sql(pool, "select expires_at = ends_at from sessions") == [(True,)]


@pytest.mark.parametrize(
    ("status", "member", "passes"),
    [("active", True, True), ("active", False, False), ("suspended", True, False), ("pending", True, False), ("rejected", True, False)],
)
async def test_a_rotation_needs_an_active_organization_and_a_membership(
    storage: Postgres, pool: Pool, status: str, member: bool, passes: bool
) -> None:
    await add(storage, user := account(), eve := account(EVE))
    new_session = await begin(storage, user.id, "first")
    org, other_tenant = await add_organization(pool, "acme", status), await add_organization(pool, "twin")
    await add_member(pool, other_tenant, user.id, "owner")  # a membership of another organization does not help
    await add_member(pool, org, eve.id)  # nor does another user's membership
    if member:
        await add_member(pool, org, user.id, "admin")
    await run_sql(pool, "update sessions set org_id = %s", org)
    async with storage.transaction(by=SYSTEM) as tx:
        rotated = await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + DAY)
        assert (rotated is not None) == passes
        if not passes:
            assert await tx.sessions.explain_refresh_token(digest("first"), NOW) == RefreshTokenState(
                session_id=new_session.id,
                rotated_at=None,
                is_previous=False,
                session_is_live=True,
                org_id=org,
                organization_status=OrganizationStatus(status),
                role=Role.ADMIN if member else None,
                service_id=None,
                may_use_service=False,
                fits=True,
            )


async def test_the_state_of_a_used_token_explains_the_refusal(storage: Postgres) -> None:
    user = await add(storage, account())
    new_session = await begin(storage, user.id, "1")
    async with storage.transaction(by=SYSTEM) as tx:
        for number in (1, 2):
            assert await tx.sessions.rotate(digest(f"{number}"), digest(f"{number + 1}"), NOW + number * SECOND, NOW + DAY)
        known = [await tx.sessions.explain_refresh_token(digest(f"{number}"), NOW + 3 * SECOND) for number in (1, 2, 3, 4)]
    plain = RefreshTokenState(
        session_id=new_session.id,
        rotated_at=None,
        is_previous=False,
        session_is_live=True,
        org_id=None,
        organization_status=None,
        role=None,
        service_id=None,
        may_use_service=False,
        fits=True,
    )
    assert known == [
        replace(plain, rotated_at=NOW + SECOND),
        replace(plain, rotated_at=NOW + 2 * SECOND, is_previous=True),
        plain,
        None,
    ]


async def test_of_twenty_concurrent_rotations_of_one_token_one_succeeds(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    await begin(storage, user.id, "first")

    async def rotate(number: int) -> bool:
        async with storage.transaction(by=SYSTEM) as tx:
            return await tx.sessions.rotate(digest("first"), digest(f"next {number}"), NOW, NOW + DAY) is not None

    assert sum(await run_concurrently(20, rotate)) == 1
    assert await run_sql(pool, "select generation from refresh_tokens order by 1") == [(1,), (2,)]


async def test_an_end_that_waits_for_a_rotation_ends_its_successor_too(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    new_session = await begin(storage, user.id, "first")
    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + DAY)
        nursery.start_soon(within, storage, lambda tx: tx.sessions.end(new_session.id, NOW))
        await until_blocked(pool)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.rotate(digest("second"), digest("third"), NOW, NOW + DAY) is None


async def test_a_rotation_that_waits_for_an_end_adds_no_successor(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    new_session = await begin(storage, user.id, "first")
    outcome: list[object] = []

    async def rotate() -> None:
        async with storage.transaction(by=SYSTEM) as tx:
            outcome.append(await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + DAY))

    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        await tx.sessions.end(new_session.id, NOW)
        nursery.start_soon(rotate)
        await until_blocked(pool)
    assert outcome == [None]
    assert await run_sql(pool, "select count(*) from refresh_tokens where token_hash = %s", digest("second")) == [(0,)]


async def test_ending_sessions_affects_only_the_named_user(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    one, two, three = [await begin(storage, user.id, f"ada {number}") for number in range(3)]
    hers = await begin(storage, eve.id, "eve")

    async def ended() -> set[tuple[Any, ...]]:
        return set(await run_sql(pool, "select id, ended_at from sessions where ended_at is not null"))

    await within(storage, lambda tx: tx.sessions.end(one.id, NOW))
    assert await ended() == {(one.id, NOW)}
    await within(storage, lambda tx: tx.sessions.end_others(user.id, two.id, NOW + SECOND))
    assert await ended() == {(one.id, NOW), (three.id, NOW + SECOND)}  # the first end stays
    await within(storage, lambda tx: tx.sessions.end_all(user.id, NOW + 2 * SECOND))
    assert await ended() == {(one.id, NOW), (three.id, NOW + SECOND), (two.id, NOW + 2 * SECOND)}
    await within(storage, lambda tx: tx.sessions.end_others(eve.id, hers.id, NOW))
    assert hers.id not in {found[0] for found in await ended()}


async def test_only_sessions_of_the_user_in_the_organization_end(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    for number, (person, where) in enumerate([(user, org), (user, org), (user, other_tenant), (user, None), (eve, org)]):
        new_session = await begin(storage, person.id, f"{number}")
        await run_sql(pool, "update sessions set org_id = %s where id = %s", where, new_session.id)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.end_in_organization(uuid4(), [user.id], NOW) == 0
        assert await tx.sessions.end_in_organization(org, [user.id], NOW) == 2
        assert await tx.sessions.end_in_organization(org, [user.id], NOW + SECOND) == 0
    ended = await run_sql(pool, "select user_id, org_id, ended_at from sessions where ended_at is not null")
    assert ended == [(user.id, org, NOW)] * 2


async def test_the_count_of_live_sessions_matches_those_that_end(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    shop, gone, other = [await add_service(pool, org, slug) for org, slug in ((acme, "shop"), (acme, "gone"), (other_tenant, "shop"))]
    contexts = {service: await service_context(pool, service) for service in (shop, gone, other)}
    live = [
        await begin(storage, user.id, "of a service", service=contexts[shop], created_at=NOW - 3 * HOUR),
        await begin(storage, user.id, "of a service again", service=contexts[shop], created_at=NOW - 2 * HOUR),
        selected := await begin(storage, user.id, "selected", created_at=NOW - 4 * HOUR),
    ]
    await run_sql(pool, "update sessions set org_id = %s where id = %s", acme, selected.id)
    for token, target, service, expires_at in (
        ("lapsed", user.id, shop, NOW),
        ("of a service that is gone", user.id, gone, NOW + DAY),
        ("elsewhere", user.id, other, NOW + DAY),
        ("hers", eve.id, shop, NOW + DAY),
    ):
        await begin(storage, target, token, service=contexts[service], expires_at=expires_at)
    await begin(storage, user.id, "of the platform")
    over = await begin(storage, user.id, "over", service=contexts[shop])
    await within(storage, lambda tx: tx.sessions.end(over.id, NOW - SECOND))
    await run_sql(pool, "delete from services where id = %s", gone)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.count_live_in(acme, user.id, NOW) == LiveSessions(3, NOW - 2 * HOUR)
        assert await tx.sessions.count_live_in(acme, eve.id, NOW) == LiveSessions(1, NOW - HOUR)
        assert await tx.sessions.count_live_in(uuid4(), user.id, NOW) == LiveSessions(0, None)
        assert await tx.sessions.end_in_organization(acme, [user.id], NOW) == 3
        assert await tx.sessions.count_live_in(acme, user.id, NOW) == LiveSessions(0, None)
        assert await tx.sessions.count_live_in(other_tenant, user.id, NOW) == LiveSessions(1, NOW - HOUR)
    ended = await run_sql(pool, "select id from sessions where ended_at = %s", NOW)
    assert {row[0] for row in ended} == {session.id for session in live}


# Sessions of applications


async def use(storage: Postgres, service: UUID, *users: UUID) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for user in users:
            assert await tx.end_users.enroll(service, user, NOW, signed_in=True)


async def test_a_session_of_a_service_is_stored_with_the_service_and_organization(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    shop = await add_service(pool, org := await add_organization(pool, "acme"))
    new_session = await begin(storage, user.id, "token", service=await service_context(pool, shop))
    assert await run_sql(pool, "select id, user_id, service_id, org_id from sessions") == [(new_session.id, user.id, shop, org)]


@pytest.mark.parametrize("status", OrganizationStatus)
@pytest.mark.parametrize("uses", [True, False])
async def test_the_context_of_an_application_session_has_all_facts_of_a_request(
    storage: Postgres, pool: Pool, status: OrganizationStatus, uses: bool
) -> None:
    await add(storage, user := account(is_platform_owner=True), eve := account(EVE))
    org, other_tenant = await add_organization(pool, "acme", status), await add_organization(pool, "twin")
    shop, wiki, other = [await add_service(pool, where, slug) for where, slug in ((org, "shop"), (org, "wiki"), (other_tenant, "shop"))]
    context = await service_context(pool, shop)
    new_session = await begin(storage, user.id, "token", service=context)
    # Other users of the service and other services of the user do not count.
    await use(storage, shop, eve.id)
    for service in (wiki, other):
        await use(storage, service, user.id)
    if uses:
        await use(storage, shop, user.id)
    async with storage.reading() as read:
        assert await read.sessions.load_application_session_context(context.client_id, new_session.id, user.id, NOW) == SessionContext(
            user_id=user.id,
            email=ADA,
            email_verified_at=NOW,
            is_platform_owner=True,
            organization=None,
            service=context,
            uses_service=uses,
        )
    assert (context.id, context.org_id, context.org_slug, context.slug, context.status) == (shop, org, "acme", "shop", status)


async def test_a_session_is_only_valid_with_tokens_of_its_kind_and_service(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    acme, other_tenant = [await add_organization(pool, slug) for slug in ("acme", "twin")]
    shop, wiki, other = [
        await service_context(pool, await add_service(pool, org, slug))
        for org, slug in ((acme, "shop"), (acme, "wiki"), (other_tenant, "shop"))
    ]
    for org in (acme, other_tenant):
        await add_member(pool, org, user.id, "owner")
    for service in (shop, wiki, other):
        await use(storage, service.id, user.id, eve.id)
    in_shop, plain = await begin(storage, user.id, "shop", service=shop), await begin(storage, user.id, "plain")
    hers = await begin(storage, eve.id, "hers", service=shop)
    selected = await begin(storage, user.id, "selected")
    await run_sql(pool, "update sessions set org_id = %s where id = %s", acme, selected.id)
    async with storage.reading() as read:
        assert await read.sessions.load_application_session_context(shop.client_id, in_shop.id, user.id, NOW)
        for client_id, session_id, user_id in (
            (wiki.client_id, in_shop.id, user.id),
            (other.client_id, in_shop.id, user.id),
            (uuid4(), in_shop.id, user.id),
            (shop.id, in_shop.id, user.id),
            (shop.client_id, plain.id, user.id),
            (shop.client_id, selected.id, user.id),
            (shop.client_id, hers.id, user.id),
            (shop.client_id, in_shop.id, eve.id),
            (shop.client_id, uuid4(), user.id),
        ):
            assert await read.sessions.load_application_session_context(client_id, session_id, user_id, NOW) is None
        for claimed in (None, acme, other_tenant):
            assert await read.sessions.load_session_context(in_shop.id, user.id, claimed, NOW) is None
            assert await read.sessions.load_session_context_in("acme", in_shop.id, user.id, claimed, NOW) is None


@pytest.mark.parametrize(
    "end",
    [
        "update sessions set ended_at = %(now)s",
        "update sessions set expires_at = %(now)s",
        "update users set deactivated_at = %(now)s where email = 'ada@example.com'",
        "update users set anonymized_at = %(now)s where email = 'ada@example.com'",
        "update users set is_platform_owner = false where email = 'eve@example.com'",
        "delete from sessions",
        "delete from services",
        "delete from organizations",
    ],
)
async def test_an_application_session_that_is_not_live_has_no_context(storage: Postgres, pool: Pool, end: str) -> None:
    await add(storage, user := account(), support := account(EVE, is_platform_owner=True))
    shop = await add_service(pool, await add_organization(pool, "acme"))
    context = await service_context(pool, shop)
    await use(storage, shop, user.id)
    new_session = await begin(storage, user.id, "token", service=context, impersonator_id=support.id)
    async with storage.reading() as read:
        found = await read.sessions.load_application_session_context(context.client_id, new_session.id, user.id, NOW)
    assert found is not None
    assert found.impersonator_id == support.id
    async with pool.connection() as connection:
        await connection.execute(end, {"now": NOW})
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.load_application_session_context(context.client_id, new_session.id, user.id, NOW) is None
        assert await tx.sessions.rotate(digest("token"), digest("next"), NOW, NOW + DAY) is None


async def test_a_rotation_keeps_the_service(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    shop = await add_service(pool, org := await add_organization(pool, "acme"))
    context = await service_context(pool, shop)
    await use(storage, shop, user.id)
    new_session = await begin(storage, user.id, "first", service=context)
    rotated = await within(storage, lambda tx: tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + 31 * DAY))
    assert rotated == RotatedSession(
        session_id=new_session.id,
        user_id=user.id,
        email=ADA,
        email_verified_at=NOW,
        ends_at=NOW + 90 * DAY,
        impersonator_id=None,
        org_id=org,
        org_slug="acme",
        service=context,
        entitlement=Entitlement(),
    )
    assert await run_sql(pool, "select service_id, org_id, expires_at from sessions") == [(shop, org, NOW + 31 * DAY)]


async def test_a_rotation_returns_the_entitlement_to_the_service(storage: Postgres, pool: Pool, ports: Ports) -> None:
    await add(storage, user := account(), eve := account(EVE))
    shop, other = [await add_service(pool, org, slug) for org in [await add_organization(pool, "acme")] for slug in ("shop", "other")]
    gold, removed = [await add_plan(pool, shop, name, features=[name]) for name in ("Gold", "Free")]
    await run_sql(pool, "update plans set removed_at = now() where id = %s", removed)
    await add_plan(pool, other, "Free", features=["other"])
    await use(storage, shop, user.id)
    await begin(storage, user.id, "0", service=await service_context(pool, shop))
    entitlements: list[Entitlement] = []

    async def rotate() -> None:
        old, new = digest(str(len(entitlements))), digest(str(len(entitlements) + 1))
        async with storage.transaction(by=SYSTEM) as tx:
            rotated = await tx.sessions.rotate(old, new, NOW, NOW + DAY)
            assert rotated is not None
            assert rotated.entitlement == await tx.subscriptions.entitlement(shop, user.id, NOW)
        entitlements.append(rotated.entitlement)

    await add_subscription(ports, pool, shop, eve.id, gold, ends=NOW + DAY)
    await rotate()
    await add_plan(pool, shop, "Free", features=["free"])
    await rotate()
    subscription = await add_subscription(ports, pool, shop, user.id, gold, ends=NOW + DAY)
    await rotate()
    await run_sql(pool, "update subscriptions set current_period_end = %s where id = %s", NOW, subscription)
    await rotate()
    assert entitlements == [
        Entitlement(),
        Entitlement("Free", None, ("free",)),
        Entitlement("Gold", SubscriptionStatus.ACTIVE, ("Gold",)),
        Entitlement("Gold", SubscriptionStatus.EXPIRED, ("Gold",)),
    ]


@pytest.mark.parametrize(
    ("status", "uses", "member", "there", "passes"),
    [
        ("active", True, False, True, True),
        ("active", True, True, True, True),
        ("active", False, True, True, False),  # a membership does not make the user a user of the service
        ("suspended", True, True, True, False),
        ("pending", True, True, True, False),
        ("rejected", True, True, True, False),
        ("active", True, True, False, False),
    ],
)
async def test_a_rotation_needs_an_active_organization_an_existing_service_and_its_user(
    storage: Postgres, pool: Pool, status: str, uses: bool, member: bool, there: bool, passes: bool
) -> None:
    await add(storage, user := account(), eve := account(EVE))
    org, other_tenant = await add_organization(pool, "acme", status), await add_organization(pool, "twin")
    shop, wiki, other = [await add_service(pool, where, slug) for where, slug in ((org, "shop"), (org, "wiki"), (other_tenant, "shop"))]
    new_session = await begin(storage, user.id, "first", service=await service_context(pool, shop))
    await use(storage, shop, eve.id)
    for service in (wiki, other):
        await use(storage, service, user.id)
    if uses:
        await use(storage, shop, user.id)
    if member:
        await add_member(pool, org, user.id, "admin")
    if not there:
        await run_sql(pool, "delete from services where id = %s", shop)
    async with storage.transaction(by=SYSTEM) as tx:
        rotated = await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + DAY)
        assert (rotated is not None) == passes
        if not passes:
            assert await tx.sessions.explain_refresh_token(digest("first"), NOW) == RefreshTokenState(
                session_id=new_session.id,
                rotated_at=None,
                is_previous=False,
                session_is_live=True,
                org_id=org,
                organization_status=OrganizationStatus(status),
                role=Role.ADMIN if member else None,
                service_id=shop,
                may_use_service=uses and there,
                fits=True,
            )


async def test_a_rotation_that_waits_for_a_revocation_adds_no_successor(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    shop = await add_service(pool, org := await add_organization(pool, "acme"))
    await use(storage, shop, user.id)
    await begin(storage, user.id, "first", service=await service_context(pool, shop))
    outcome: list[object] = []

    async def rotate() -> None:
        async with storage.transaction(by=SYSTEM) as tx:
            outcome.append(await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + DAY))

    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.end_in_organization(org, [user.id], NOW) == 1
        nursery.start_soon(rotate)
        await until_blocked(pool)
    assert outcome == [None]
    assert await run_sql(pool, "select count(*) from refresh_tokens") == [(1,)]


async def test_a_revocation_that_waits_for_a_rotation_ends_its_successor_too(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    shop = await add_service(pool, org := await add_organization(pool, "acme"))
    await use(storage, shop, user.id)
    await begin(storage, user.id, "first", service=await service_context(pool, shop))
    revoked: list[int] = []

    async def revoke() -> None:
        async with storage.transaction(by=SYSTEM) as tx:
            revoked.append(await tx.sessions.end_in_organization(org, [user.id], NOW))

    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.rotate(digest("first"), digest("second"), NOW, NOW + DAY)
        nursery.start_soon(revoke)
        await until_blocked(pool)
    assert revoked == [1]
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.rotate(digest("second"), digest("third"), NOW, NOW + DAY) is None


# Removal


async def test_sessions_and_their_tokens_are_removed_even_ended_ones(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    org = await add_organization(pool, "acme")
    shop, second = [await service_context(pool, await add_service(pool, org, slug)) for slug in ("shop", "second")]
    new_session = {
        (target.id, service): await begin(storage, target.id, f"{target.id} {service}", service=service)
        for target in (user, eve)
        for service in (None, shop, second)
    }
    await within(storage, lambda tx: tx.sessions.end(new_session[user.id, shop].id, NOW))

    async def left() -> set[UUID]:
        rows = await run_sql(pool, "select s.id from sessions s join refresh_tokens t on t.session_id = s.id")
        return {id_ for (id_,) in rows}

    await within(storage, lambda tx: tx.sessions.remove(user.id, shop.id))
    assert await left() == {one.id for whose, one in new_session.items() if whose != (user.id, shop)}
    await within(storage, lambda tx: tx.sessions.remove(user.id))
    assert await left() == {one.id for (target, _), one in new_session.items() if target == eve.id}
    assert await run_sql(pool, "select count(*) from sessions") == [(3,)]


async def test_a_removal_that_waits_for_a_rotation_removes_its_successor_too(storage: Postgres, pool: Pool) -> None:
    """A rotation locks the token and then the session. A removal that locked the session first would deadlock."""
    user = await add(storage, account())
    new_session = await begin(storage, user.id, "first")
    succeeding = "insert into refresh_tokens (token_hash, session_id, generation, created_at) values (%s, %s, 2, now())"
    async with trio.open_nursery() as nursery, pool.connection() as connection, connection.transaction():
        await connection.execute("update refresh_tokens set rotated_at = now()")
        nursery.start_soon(within, storage, lambda tx: tx.sessions.remove(user.id))
        await until_blocked(pool)
        await connection.execute("update sessions set expires_at = expires_at + interval '1 day'")
        await connection.execute(succeeding, (digest("second"), new_session.id))
    assert await run_sql(pool, "select count(*) from sessions") == await run_sql(pool, "select count(*) from refresh_tokens") == [(0,)]


# Selecting an organization


async def test_a_selection_sets_the_organization_and_replaces_the_token(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    new_session, other, hers = [
        await begin(storage, who, token) for who, token in ((user.id, "first"), (user.id, "other"), (eve.id, "eve"))
    ]
    org = await add_organization(pool, "acme")
    ends_at = await within(storage, lambda tx: tx.sessions.select_organization(new_session.id, org, digest("second"), NOW, NOW + 31 * DAY))
    assert ends_at == NOW + 90 * DAY
    assert set(await run_sql(pool, "select id, org_id, expires_at, ends_at from sessions")) == {
        (new_session.id, org, NOW + 31 * DAY, NOW + 90 * DAY),
        (other.id, None, NOW + 30 * DAY, NOW + 90 * DAY),
        (hers.id, None, NOW + 30 * DAY, NOW + 90 * DAY),
    }
    assert set(await run_sql(pool, "select token_hash, session_id, generation, rotated_at, created_at from refresh_tokens")) == {
        (digest("first"), new_session.id, 1, NOW, NOW - HOUR),
        (digest("second"), new_session.id, 2, None, NOW),
        (digest("other"), other.id, 1, None, NOW - HOUR),
        (digest("eve"), hers.id, 1, None, NOW - HOUR),
    }


async def test_a_selection_never_outlives_the_absolute_end(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    new_session = await begin(storage, user.id, "first", ends_at=NOW + DAY, expires_at=NOW + HOUR)
    org = await add_organization(pool, "acme")
    assert (
        await within(storage, lambda tx: tx.sessions.select_organization(new_session.id, org, digest("second"), NOW, NOW + 31 * DAY))
        == NOW + DAY
    )
    assert await run_sql(pool, "select expires_at = ends_at from sessions") == [(True,)]


@pytest.mark.parametrize("end", ["ended_at", "expires_at"])
async def test_a_session_that_is_not_live_cannot_select(storage: Postgres, pool: Pool, end: str) -> None:
    user = await add(storage, account())
    new_session = await begin(storage, user.id, "first")
    org = await add_organization(pool, "acme")
    await run_sql(pool, f"update sessions set {end} = %s", NOW)  # noqa: S608
    for session_id in (new_session.id, uuid4()):
        async with storage.transaction(by=SYSTEM) as tx:
            assert await tx.sessions.select_organization(session_id, org, digest("second"), NOW, NOW + DAY) is None
    assert await run_sql(pool, "select org_id from sessions") == [(None,)]
    assert await run_sql(pool, "select generation, rotated_at from refresh_tokens") == [(1, None)]


@pytest.mark.slow
async def test_concurrent_selections_and_rotations_form_one_chain_of_tokens(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    new_session = await begin(storage, user.id, "first")
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id)

    async def act(number: int) -> bool:
        async with storage.transaction(by=SYSTEM) as tx:
            new = digest(f"next {number}")
            if number % 2:
                return await tx.sessions.rotate(digest("first"), new, NOW, NOW + DAY) is not None
            return await tx.sessions.select_organization(new_session.id, org, new, NOW, NOW + DAY) is not None

    won = sum(await run_concurrently(20, act))
    generations = await run_sql(pool, "select generation, rotated_at is null from refresh_tokens order by 1")
    assert generations == [(number, number == won + 1) for number in range(1, won + 2)]
    assert won >= 1


# Login records


async def test_every_field_of_a_login_is_stored(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    new_session = await begin(storage, user.id, "token")
    await within(storage, lambda tx: tx.logins.record_success(new_session, "websuite"))
    async with storage.autocommit() as count:
        await count.logins.record_failure(user.id, "password", NOW + SECOND, "2001:db8::1", None)
    query = "select user_id, session_id, provider, success, address, agent, created_at, org_id from login_events order by created_at"
    assert await run_sql(pool, query) == [
        (user.id, new_session.id, "websuite", True, new_session.address, new_session.agent, new_session.created_at, None),
        (user.id, None, "password", False, "2001:db8::1", None, NOW + SECOND, None),
    ]


async def test_recording_a_failed_login_leaves_the_connection_synchronous(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    async with pool.connection() as connection:
        before = await connection.row("show synchronous_commit")
    async with storage.autocommit() as count:
        await count.logins.record_failure(user.id, "password", NOW, None, None)
    async with pool.connection() as connection:
        assert await connection.row("show synchronous_commit") == before


async def test_a_live_session_of_the_user_has_an_absolute_end(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    new_session, hers = await begin(storage, user.id, "ada"), await begin(storage, eve.id, "eve", ends_at=NOW + DAY)
    async with storage.transaction(by=SYSTEM) as tx:
        ends_at = tx.sessions.ends_at
        assert await ends_at(new_session.id, user.id, NOW) == NOW + 90 * DAY
        assert await ends_at(hers.id, eve.id, NOW) == NOW + DAY
        for session_id, user_id in ((hers.id, user.id), (new_session.id, eve.id), (uuid4(), user.id)):
            assert await ends_at(session_id, user_id, NOW) is None


@pytest.mark.parametrize("column", ["ended_at", "expires_at"])
async def test_a_session_that_is_not_live_has_no_absolute_end(storage: Postgres, pool: Pool, column: str) -> None:
    user = await add(storage, account())
    new_session = await begin(storage, user.id, "ada")
    await run_sql(pool, f"update sessions set {column} = %s", NOW)  # noqa: S608
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.ends_at(new_session.id, user.id, NOW) is None
