"""Statements on application sessions and their refresh tokens."""

from uuid import uuid4

import pytest
import trio

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.profiles import OwnProfile
from core.applications.model.plans import Entitlement, SubscriptionStatus
from core.authentication.model.sessions import RefreshTokenState, RotatedSession, TokenSubject
from core.kernel.callers import OrganizationStatus, SessionContext
from core.kernel.causes import SYSTEM
from core.kernel.roles import ADMIN
from core.kernel.values import digest
from ports import Ports
from tests.authentication.storage.end_users import enroll
from tests.support.builders import add_member, add_organization, run_sql
from tests.support.rows import ADA, DAY, EVE, NOW, SIGN_IN, account, add, begin, until_blocked, within
from tests.support.services import add_plan, add_service, add_subscription, service_context


async def test_a_session_of_a_service_is_stored_with_the_service_and_organization(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    shop = await add_service(pool, org := await add_organization(pool, "acme"))
    session = await begin(storage, user.id, "token", service=await service_context(pool, shop))
    assert await run_sql(pool, "select id, user_id, service_id, org_id from sessions") == [(session.id, user.id, shop, org)]


@pytest.mark.parametrize("status", OrganizationStatus)
@pytest.mark.parametrize("is_user", [True, False])
async def test_the_context_of_an_application_session_has_all_facts_of_a_request(
    storage: Postgres, pool: Pool, status: OrganizationStatus, is_user: bool
) -> None:
    await add(storage, user := account(is_platform_owner=True), eve := account(EVE))
    org, other_tenant = await add_organization(pool, "acme", status), await add_organization(pool, "twin")
    shop, wiki, other = [await add_service(pool, org_id, slug) for org_id, slug in ((org, "shop"), (org, "wiki"), (other_tenant, "shop"))]
    context = await service_context(pool, shop)
    session = await begin(storage, user.id, "token", service=context)
    # Other users of the service and other services of the user do not count.
    await enroll(storage, shop, eve.id)
    for service in (wiki, other):
        await enroll(storage, service, user.id)
    if is_user:
        await enroll(storage, shop, user.id)
    async with storage.reading() as read:
        assert await read.session_contexts.load_of_application(context.client_id, session.id, user.id, NOW) == SessionContext(
            user_id=user.id,
            email=ADA,
            email_verified_at=NOW,
            is_platform_owner=True,
            organization=None,
            service=context,
            uses_service=is_user,
            sign_in=SIGN_IN,
        )
        loaded = await read.session_contexts.load_with_profile(context.client_id, session.id, user.id, None, NOW)
        assert loaded == (
            await read.session_contexts.load_of_application(context.client_id, session.id, user.id, NOW),
            OwnProfile(ADA, None, user.profile),
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
        await enroll(storage, service.id, user.id, eve.id)
    in_shop, own_session = await begin(storage, user.id, "shop", service=shop), await begin(storage, user.id, "own")
    eves_session = await begin(storage, eve.id, "hers", service=shop)
    with_organization = await begin(storage, user.id, "selected")
    await run_sql(pool, "update sessions set org_id = %s where id = %s", acme, with_organization.id)
    async with storage.reading() as read:
        assert await read.session_contexts.load_of_application(shop.client_id, in_shop.id, user.id, NOW)
        for client_id, session_id, user_id in (
            (wiki.client_id, in_shop.id, user.id),
            (other.client_id, in_shop.id, user.id),
            (uuid4(), in_shop.id, user.id),
            (shop.id, in_shop.id, user.id),
            (shop.client_id, own_session.id, user.id),
            (shop.client_id, with_organization.id, user.id),
            (shop.client_id, eves_session.id, user.id),
            (shop.client_id, in_shop.id, eve.id),
            (shop.client_id, uuid4(), user.id),
        ):
            assert await read.session_contexts.load_of_application(client_id, session_id, user_id, NOW) is None
            assert await read.session_contexts.load_with_profile(client_id, session_id, user_id, None, NOW) is None
        for org_id in (None, acme, other_tenant):
            assert await read.session_contexts.load(in_shop.id, user.id, org_id, NOW) is None
            assert await read.session_contexts.load_with_profile(None, in_shop.id, user.id, org_id, NOW) is None
            assert await read.session_contexts.load_in("acme", in_shop.id, user.id, org_id, NOW) is None


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
    await enroll(storage, shop, user.id)
    session = await begin(storage, user.id, "token", service=context, impersonator_id=support.id)
    async with storage.reading() as read:
        context_before = await read.session_contexts.load_of_application(context.client_id, session.id, user.id, NOW)
    assert context_before is not None
    assert context_before.impersonator_id == support.id
    async with pool.connection() as connection:
        await connection.execute(end, {"now": NOW})
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.session_contexts.load_of_application(context.client_id, session.id, user.id, NOW) is None
        assert await tx.session_contexts.load_with_profile(context.client_id, session.id, user.id, None, NOW) is None
        assert await tx.refresh_tokens.rotate(digest("token"), digest("next"), NOW, NOW + DAY) is None


async def test_a_rotation_keeps_the_service(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    shop = await add_service(pool, org := await add_organization(pool, "acme"))
    context = await service_context(pool, shop)
    await enroll(storage, shop, user.id)
    session = await begin(storage, user.id, "first", service=context)
    rotation = await within(storage, lambda tx: tx.refresh_tokens.rotate(digest("first"), digest("second"), NOW, NOW + 31 * DAY))
    assert rotation == RotatedSession(
        TokenSubject(
            session_id=session.id,
            user_id=user.id,
            email=ADA,
            email_verified=True,
            ends_at=NOW + 90 * DAY,
            impersonator_id=None,
            org_id=org,
            org_slug="acme",
            service=context,
            entitlement=Entitlement(),
            proofs=(),
        )
    )
    assert await run_sql(pool, "select service_id, org_id, expires_at from sessions") == [(shop, org, NOW + 31 * DAY)]


async def test_a_rotation_returns_the_entitlement_to_the_service(storage: Postgres, pool: Pool, ports: Ports) -> None:
    await add(storage, user := account(), eve := account(EVE))
    shop, other = [await add_service(pool, org, slug) for org in [await add_organization(pool, "acme")] for slug in ("shop", "other")]
    gold, removed_plan = [await add_plan(pool, shop, name, features=[name]) for name in ("Gold", "Free")]
    await run_sql(pool, "update plans set removed_at = now() where id = %s", removed_plan)
    await add_plan(pool, other, "Free", features=["other"])
    await enroll(storage, shop, user.id)
    await begin(storage, user.id, "0", service=await service_context(pool, shop))
    entitlements: list[Entitlement] = []

    async def rotate() -> None:
        old, new = digest(str(len(entitlements))), digest(str(len(entitlements) + 1))
        async with storage.transaction(by=SYSTEM) as tx:
            rotation = await tx.refresh_tokens.rotate(old, new, NOW, NOW + DAY)
            assert rotation is not None
            assert rotation.subject.entitlement == await tx.subscriptions.entitlement(shop, user.id, NOW)
        entitlements.append(rotation.subject.entitlement)

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
    ("status", "is_user", "is_member", "service_exists", "is_allowed"),
    [
        ("active", True, False, True, True),
        ("active", True, True, True, True),
        ("active", False, True, True, False),  # a membership does not make the user a service user
        ("suspended", True, True, True, False),
        ("pending", True, True, True, False),
        ("rejected", True, True, True, False),
        ("active", True, True, False, False),
    ],
)
async def test_a_rotation_needs_an_active_organization_an_existing_service_and_its_user(
    storage: Postgres, pool: Pool, status: str, is_user: bool, is_member: bool, service_exists: bool, is_allowed: bool
) -> None:
    await add(storage, user := account(), eve := account(EVE))
    org, other_tenant = await add_organization(pool, "acme", status), await add_organization(pool, "twin")
    shop, wiki, other = [await add_service(pool, org_id, slug) for org_id, slug in ((org, "shop"), (org, "wiki"), (other_tenant, "shop"))]
    session = await begin(storage, user.id, "first", service=await service_context(pool, shop))
    await enroll(storage, shop, eve.id)
    for service in (wiki, other):
        await enroll(storage, service, user.id)
    if is_user:
        await enroll(storage, shop, user.id)
    if is_member:
        await add_member(pool, org, user.id, "admin")
    if not service_exists:
        await run_sql(pool, "delete from services where id = %s", shop)
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
                service_id=shop,
                may_use_service=is_user and service_exists,
                fits=True,
                policy_is_met=True,
            )


async def test_a_rotation_that_waits_for_a_revocation_adds_no_successor(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    shop = await add_service(pool, org := await add_organization(pool, "acme"))
    await enroll(storage, shop, user.id)
    await begin(storage, user.id, "first", service=await service_context(pool, shop))
    outcome: list[object] = []

    async def rotate() -> None:
        async with storage.transaction(by=SYSTEM) as tx:
            outcome.append(await tx.refresh_tokens.rotate(digest("first"), digest("second"), NOW, NOW + DAY))

    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        assert await tx.organization_sessions.end(org, [user.id], NOW) == 1
        nursery.start_soon(rotate)
        await until_blocked(pool)
    assert outcome == [None]
    assert await run_sql(pool, "select count(*) from refresh_tokens") == [(1,)]


async def test_a_revocation_that_waits_for_a_rotation_ends_its_successor_too(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account())
    shop = await add_service(pool, org := await add_organization(pool, "acme"))
    await enroll(storage, shop, user.id)
    await begin(storage, user.id, "first", service=await service_context(pool, shop))
    counts: list[int] = []

    async def revoke() -> None:
        async with storage.transaction(by=SYSTEM) as tx:
            counts.append(await tx.organization_sessions.end(org, [user.id], NOW))

    async with trio.open_nursery() as nursery, storage.transaction(by=SYSTEM) as tx:
        assert await tx.refresh_tokens.rotate(digest("first"), digest("second"), NOW, NOW + DAY)
        nursery.start_soon(revoke)
        await until_blocked(pool)
    assert counts == [1]
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.refresh_tokens.rotate(digest("second"), digest("third"), NOW, NOW + DAY) is None
