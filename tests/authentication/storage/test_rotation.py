"""Statements that replace a refresh token: rotations, and organization selections."""

from dataclasses import replace
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.applications.model.plans import Entitlement
from core.authentication.model.sessions import RefreshTokenState, RotatedSession, TokenSubject
from core.kernel.callers import OrganizationStatus
from core.kernel.causes import SYSTEM
from core.kernel.roles import ADMIN
from core.kernel.values import digest
from tests.support.builders import add_member, add_organization, run_concurrently, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, NOW, SECOND, account, add, begin, within


async def test_a_rotation_keeps_the_impersonator_and_the_end(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), support := account(EVE, is_platform_owner=True))
    session = await begin(storage, user.id, "token", impersonator_id=support.id, expires_at=NOW + HOUR, ends_at=NOW + HOUR)
    await within(storage, lambda tx: tx.refresh_tokens.rotate(digest("token"), digest("next"), NOW, NOW + 30 * DAY))
    rows = await run_sql(pool, "select id, impersonator_id, expires_at, ends_at from sessions where user_id = %s", user.id)
    assert rows == [(session.id, support.id, NOW + HOUR, NOW + HOUR)]


async def test_a_rotation_returns_the_session_and_adds_a_successor(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    session, other = await begin(storage, user.id, "first"), await begin(storage, eve.id, "eve")
    org = await add_organization(pool, "acme")
    await add_organization(pool, "twin")
    await add_member(pool, org, user.id)
    await run_sql(pool, "update sessions set org_id = %s where id = %s", org, session.id)
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.refresh_tokens.rotate(digest("unknown"), digest("next"), NOW, NOW + DAY) is None
        assert await tx.refresh_tokens.rotate(digest("first"), digest("second"), NOW, NOW + 31 * DAY) == RotatedSession(
            TokenSubject(
                session_id=session.id,
                user_id=user.id,
                email=ADA,
                email_verified=True,
                ends_at=NOW + 90 * DAY,
                impersonator_id=None,
                org_id=org,
                org_slug="acme",
                service=None,
                entitlement=Entitlement(),
                proofs=(),
            )
        )
        assert await tx.refresh_tokens.rotate(digest("first"), digest("third"), NOW, NOW + DAY) is None
    tokens = await run_sql(
        pool, "select token_hash, session_id, generation, rotated_at, created_at from refresh_tokens order by generation, 2"
    )
    assert sorted(tokens, key=str) == sorted(
        [
            (digest("eve"), other.id, 1, None, NOW - HOUR),
            (digest("first"), session.id, 1, NOW, NOW - HOUR),
            (digest("second"), session.id, 2, None, NOW),
        ],
        key=str,
    )
    expiries = await run_sql(pool, "select id, expires_at from sessions")
    assert set(expiries) == {(session.id, NOW + 31 * DAY), (other.id, NOW + 30 * DAY)}


async def test_a_rotation_never_outlives_the_absolute_end(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    await begin(storage, user.id, "first")
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.refresh_tokens.rotate(digest("first"), digest("second"), NOW, NOW + 365 * DAY)
    assert await run_sql(pool, "select expires_at = ends_at from sessions") == [(True,)]


@pytest.mark.parametrize(
    ("status", "is_member", "is_allowed"),
    [("active", True, True), ("active", False, False), ("suspended", True, False), ("pending", True, False), ("rejected", True, False)],
)
async def test_a_rotation_needs_an_active_organization_and_a_membership(
    storage: Postgres, pool: Pool, status: str, is_member: bool, is_allowed: bool
) -> None:
    await add(storage, user := account(), eve := account(EVE))
    session = await begin(storage, user.id, "first")
    org, other_tenant = await add_organization(pool, "acme", status), await add_organization(pool, "twin")
    await add_member(pool, other_tenant, user.id, "owner")  # a membership in another organization does not help
    await add_member(pool, org, eve.id)  # nor does another user's membership
    if is_member:
        await add_member(pool, org, user.id, "admin")
    await run_sql(pool, "update sessions set org_id = %s", org)
    async with storage.transaction(by=SYSTEM) as tx:
        rotation = await tx.refresh_tokens.rotate(digest("first"), digest("second"), NOW, NOW + DAY)
        assert (rotation is not None) == is_allowed
        if not is_allowed:
            assert await tx.refresh_tokens.explain(digest("first"), NOW) == RefreshTokenState(
                session_id=session.id,
                user_id=user.id,
                rotated_at=None,
                is_previous=False,
                session_is_live=True,
                org_id=org,
                organization_status=OrganizationStatus(status),
                role=ADMIN if is_member else None,
                service_id=None,
                may_use_service=False,
                fits=True,
                policy_is_met=True,
            )


async def test_the_state_of_a_used_token_explains_the_refusal(storage: Postgres) -> None:
    user = await add(storage, account())
    session = await begin(storage, user.id, "1")
    async with storage.transaction(by=SYSTEM) as tx:
        for number in (1, 2):
            assert await tx.refresh_tokens.rotate(digest(f"{number}"), digest(f"{number + 1}"), NOW + number * SECOND, NOW + DAY)
        states = [await tx.refresh_tokens.explain(digest(f"{number}"), NOW + 3 * SECOND) for number in (1, 2, 3, 4)]
    current = RefreshTokenState(
        session_id=session.id,
        user_id=user.id,
        rotated_at=None,
        is_previous=False,
        session_is_live=True,
        org_id=None,
        organization_status=None,
        role=None,
        service_id=None,
        may_use_service=False,
        fits=True,
        policy_is_met=True,
    )
    assert states == [
        replace(current, rotated_at=NOW + SECOND),
        replace(current, rotated_at=NOW + 2 * SECOND, is_previous=True),
        current,
        None,
    ]


async def test_of_twenty_concurrent_rotations_of_one_token_one_succeeds(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    await begin(storage, user.id, "first")

    async def rotate(number: int) -> bool:
        async with storage.transaction(by=SYSTEM) as tx:
            return await tx.refresh_tokens.rotate(digest("first"), digest(f"next {number}"), NOW, NOW + DAY) is not None

    assert sum(await run_concurrently(20, rotate)) == 1
    assert await run_sql(pool, "select generation from refresh_tokens order by 1") == [(1,), (2,)]


# Selecting an organization


async def test_a_selection_sets_the_organization_and_replaces_the_token(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    session, other, eves_session = [
        await begin(storage, user_id, token) for user_id, token in ((user.id, "first"), (user.id, "other"), (eve.id, "eve"))
    ]
    org = await add_organization(pool, "acme")
    ends_at = await within(
        storage, lambda tx: tx.refresh_tokens.select_organization(session.id, org, digest("second"), NOW, NOW + 31 * DAY)
    )
    assert ends_at == NOW + 90 * DAY
    assert set(await run_sql(pool, "select id, org_id, expires_at, ends_at from sessions")) == {
        (session.id, org, NOW + 31 * DAY, NOW + 90 * DAY),
        (other.id, None, NOW + 30 * DAY, NOW + 90 * DAY),
        (eves_session.id, None, NOW + 30 * DAY, NOW + 90 * DAY),
    }
    assert set(await run_sql(pool, "select token_hash, session_id, generation, rotated_at, created_at from refresh_tokens")) == {
        (digest("first"), session.id, 1, NOW, NOW - HOUR),
        (digest("second"), session.id, 2, None, NOW),
        (digest("other"), other.id, 1, None, NOW - HOUR),
        (digest("eve"), eves_session.id, 1, None, NOW - HOUR),
    }


async def test_a_selection_never_outlives_the_absolute_end(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    session = await begin(storage, user.id, "first", ends_at=NOW + DAY, expires_at=NOW + HOUR)
    org = await add_organization(pool, "acme")
    assert (
        await within(storage, lambda tx: tx.refresh_tokens.select_organization(session.id, org, digest("second"), NOW, NOW + 31 * DAY))
        == NOW + DAY
    )
    assert await run_sql(pool, "select expires_at = ends_at from sessions") == [(True,)]


@pytest.mark.parametrize("end", ["ended_at", "expires_at"])
async def test_a_session_that_is_not_live_cannot_select(storage: Postgres, pool: Pool, end: str) -> None:
    user = await add(storage, account())
    session = await begin(storage, user.id, "first")
    org = await add_organization(pool, "acme")
    await run_sql(pool, f"update sessions set {end} = %s", NOW)  # noqa: S608
    for session_id in (session.id, uuid4()):
        async with storage.transaction(by=SYSTEM) as tx:
            assert await tx.refresh_tokens.select_organization(session_id, org, digest("second"), NOW, NOW + DAY) is None
    assert await run_sql(pool, "select org_id from sessions") == [(None,)]
    assert await run_sql(pool, "select generation, rotated_at from refresh_tokens") == [(1, None)]


@pytest.mark.slow
async def test_concurrent_selections_and_rotations_form_one_chain_of_tokens(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    session = await begin(storage, user.id, "first")
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id)

    async def act(number: int) -> bool:
        async with storage.transaction(by=SYSTEM) as tx:
            new = digest(f"next {number}")
            if number % 2:
                return await tx.refresh_tokens.rotate(digest("first"), new, NOW, NOW + DAY) is not None
            return await tx.refresh_tokens.select_organization(session.id, org, new, NOW, NOW + DAY) is not None

    winners = sum(await run_concurrently(20, act))
    generations = await run_sql(pool, "select generation, rotated_at is null from refresh_tokens order by 1")
    assert generations == [(number, number == winners + 1) for number in range(1, winners + 2)]
    assert winners >= 1
