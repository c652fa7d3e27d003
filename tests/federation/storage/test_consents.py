"""The statements about consents, and what an application with a consent reads about its user (OpenID Connect Core section 5.3)."""

from dataclasses import replace
from typing import Final
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.authentication.model.openid import OpenIdGrant, RequestedClaims, Scope
from core.authentication.model.sessions import NO_ENTITLEMENT
from core.federation.oauth.model.consents import Consent
from core.kernel.callers import ServiceContext
from core.kernel.roles import ADMIN
from tests.support.builders import add_member, run_concurrently, run_during, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, MICROSECOND, NOW, account, add, begin, within
from tests.support.services import enroll_user

OPENID, EMAIL, PROFILE, ORG = Scope.OPENID, Scope.EMAIL, Scope.PROFILE, Scope.ORG
LATER: Final = NOW + HOUR


async def agree(storage: Postgres, service: ServiceContext, user_id: UUID, *scope: Scope, org_id: UUID | None = None) -> bool:
    return await within(storage, lambda tx: tx.consents.add(org_id or service.org_id, service.id, user_id, scope, NOW))


async def scope_of(storage: Postgres, service: ServiceContext, user_id: UUID, *, org_id: UUID | None = None) -> frozenset[Scope]:
    async with storage.reading() as read:
        return (await read.consents.agreement(org_id or service.org_id, service.id, user_id, None)).scope


@pytest.fixture
async def user_id(storage: Postgres) -> UUID:
    return (await add(storage, account())).id


# Consents


async def test_consents_add_up_and_keep_the_time_of_the_last_new_scope(
    storage: Postgres, pool: Pool, shop: ServiceContext, user_id: UUID
) -> None:
    for scope, at, is_new in (
        ((OPENID,), NOW, True),
        ((OPENID,), LATER, False),
        ((EMAIL, OPENID), LATER, True),
        ((EMAIL,), LATER + HOUR, False),
    ):
        assert await within(storage, lambda tx: tx.consents.add(shop.org_id, shop.id, user_id, scope, at)) == is_new  # noqa: B023
    assert await scope_of(storage, shop, user_id) == {OPENID, EMAIL}
    rows = await run_sql(pool, "select user_id, org_id, service_id, cardinality(scope), granted_at from consents")
    assert rows == [(user_id, shop.org_id, shop.id, 2, LATER)]


async def test_a_consent_is_found_with_its_names(storage: Postgres, pool: Pool, shop: ServiceContext, user_id: UUID) -> None:
    await agree(storage, shop, user_id, EMAIL, OPENID)
    [(service, organization)] = await run_sql(
        pool, "select v.name, o.name from services v join organizations o on o.id = v.org_id where v.id = %s", shop.id
    )
    expected = Consent(
        service_id=shop.id,
        service_slug=shop.slug,
        service=service,
        org_id=shop.org_id,
        org_slug=shop.org_slug,
        organization=organization,
        logo_url=None,
        scope=(OPENID, EMAIL),
        granted_at=NOW,
    )
    async with storage.reading() as read:
        assert await read.consents.by_service(user_id, shop.id) == expected
        assert await read.consents.of_user(user_id, 10) == [expected]
    branding = "insert into branding (org_id, logo_url, product_name, updated_at) values (%s, 'https://acme.example/a.png', 'Suite', now())"
    await run_sql(pool, branding, shop.org_id)
    async with storage.reading() as read:
        shown = await read.consents.by_service(user_id, shop.id)
    assert shown is not None
    assert shown == replace(expected, organization="Suite", logo_url="https://acme.example/a.png")
    sign_in = """
        insert into service_users (service_id, user_id, org_id, email, deactivated, created_at, last_login_at)
        select %s, id, %s, email, deactivated, now(), %s from users where id = %s"""
    await run_sql(pool, sign_in, shop.id, shop.org_id, LATER, user_id)
    async with storage.reading() as read:
        assert await read.consents.by_service(user_id, shop.id) == replace(shown, last_sign_in_at=LATER)


async def test_a_consent_is_for_one_user_one_service_and_its_organization(
    storage: Postgres, shop: ServiceContext, desk: ServiceContext, foreign: ServiceContext, user_id: UUID
) -> None:
    eve = (await add(storage, account(EVE))).id
    await agree(storage, shop, user_id, OPENID)
    assert not await agree(storage, shop, user_id, OPENID, PROFILE, org_id=foreign.org_id), "a service of another organization"
    assert await scope_of(storage, shop, user_id) == {OPENID}
    assert await scope_of(storage, shop, user_id, org_id=foreign.org_id) == frozenset()
    for service, user in ((desk, user_id), (foreign, user_id), (shop, eve)):
        assert await scope_of(storage, service, user) == frozenset()
        async with storage.reading() as read:
            assert await read.consents.by_service(user, service.id) is None
        assert await within(storage, lambda tx: tx.consents.remove(user, service.id)) is None  # noqa: B023
    assert await scope_of(storage, shop, user_id) == {OPENID}


async def test_the_list_of_a_user_is_in_order_and_limited(
    pool: Pool, storage: Postgres, shop: ServiceContext, desk: ServiceContext, foreign: ServiceContext, user_id: UUID
) -> None:
    for service in (foreign, shop, desk):
        await agree(storage, service, user_id, OPENID)
    await run_sql(pool, "update consents set granted_at = granted_at - interval '1 day' where service_id = %s", shop.id)
    async with storage.reading() as read:
        listed = await read.consents.of_user(user_id, 10)
        assert [(one.organization, one.service) for one in listed] == sorted((one.organization, one.service) for one in listed)
        assert {one.service_id for one in listed} == {shop.id, desk.id, foreign.id}
        newest = await read.consents.of_user(user_id, 2)
        assert newest == [one for one in listed if one.service_id != shop.id]


async def test_a_removed_consent_is_returned_once(storage: Postgres, shop: ServiceContext, user_id: UUID) -> None:
    await agree(storage, shop, user_id, OPENID, ORG)

    async def withdraw(_: int) -> Consent | None:
        return await within(storage, lambda tx: tx.consents.remove(user_id, shop.id))

    removed = [one for one in await run_concurrently(4, withdraw) if one is not None]
    assert [(one.service_id, one.scope) for one in removed] == [(shop.id, (OPENID, ORG))]
    assert await scope_of(storage, shop, user_id) == frozenset()
    assert await agree(storage, shop, user_id, OPENID), "the next one is new again"


async def test_concurrent_consents_lose_no_scope(storage: Postgres, pool: Pool, shop: ServiceContext, user_id: UUID) -> None:
    """Even without the lock on the account, which the callers hold."""
    scopes = [*Scope] * 3
    results = await run_concurrently(len(scopes), lambda number: agree(storage, shop, user_id, OPENID, scopes[number]))
    assert await scope_of(storage, shop, user_id) == set(Scope)
    assert await run_sql(pool, "select count(*), sum(cardinality(scope)) from consents") == [(1, len(Scope))]
    assert 1 <= results.count(True) <= len(Scope), "each scope is new once"


async def test_a_service_that_is_deleted_during_the_consent_gets_none(
    storage: Postgres, pool: Pool, shop: ServiceContext, user_id: UUID
) -> None:
    changes = [("delete from services where id = %s", (shop.id,))]
    assert not await run_during(pool, changes, lambda: agree(storage, shop, user_id, OPENID))
    assert await run_sql(pool, "select * from consents") == []


# Confirmed members


async def test_only_confirmed_members_of_the_organization_count(
    storage: Postgres, pool: Pool, shop: ServiceContext, foreign: ServiceContext, user_id: UUID
) -> None:
    eve = (await add(storage, account(EVE))).id

    async def confirmed() -> list[bool]:
        async with storage.reading() as read:
            return [await read.end_users.is_confirmed_member(org, user) for org in (shop.org_id, foreign.org_id) for user in (user_id, eve)]

    assert await confirmed() == [False, False, False, False]
    await within(storage, lambda tx: enroll_user(tx, shop.id, user_id, NOW))
    await add_member(pool, shop.org_id, user_id)
    assert await confirmed() == [False, False, False, False], "an end user, and a member added by an admin"
    await add_member(pool, foreign.org_id, eve, confirmed=True)
    assert await confirmed() == [False, False, False, True]
    await within(storage, lambda tx: tx.members.confirm(shop.org_id, user_id, NOW))
    assert await confirmed() == [True, False, False, True]


# What an application reads

GRANT: Final = OpenIdGrant((OPENID, EMAIL), RequestedClaims(("name",), ("picture",)))


async def load(storage: Postgres, client_id: UUID | None, session_id: UUID, user_id: UUID) -> object:
    async with storage.reading() as read:
        return await read.session_contexts.load_userinfo(client_id, session_id, user_id, NOW)


async def test_userinfo_reads_the_session_the_grant_and_the_facts(
    storage: Postgres, pool: Pool, shop: ServiceContext, user_id: UUID
) -> None:
    await within(storage, lambda tx: enroll_user(tx, shop.id, user_id, NOW))
    session = await begin(storage, user_id, "token", service=shop, openid=GRANT)
    async with storage.reading() as read:
        loaded = await read.session_contexts.load_userinfo(shop.client_id, session.id, user_id, NOW)
    assert loaded is not None
    context, grant, facts, authenticates = loaded
    assert authenticates is not shop.is_public
    assert (context.user_id, context.service, context.uses_service, grant) == (user_id, shop, True, GRANT)
    assert (facts.email, facts.email_verified, facts.org, facts.org_id) == (ADA, True, shop.org_slug, shop.org_id)
    assert (facts.role, facts.entitlement) == (None, NO_ENTITLEMENT)
    await add_member(pool, shop.org_id, user_id, "admin")
    await run_sql(pool, "update users set name = 'Ada', email_verified_at = null where id = %s", user_id)
    async with storage.reading() as read:
        loaded = await read.session_contexts.load_userinfo(shop.client_id, session.id, user_id, NOW)
    assert loaded is not None
    assert (loaded[2].role, loaded[2].profile.name, loaded[2].email_verified) == (ADMIN, "Ada", False), "as they are now"


async def test_userinfo_is_of_one_session_of_one_user_at_one_client(
    storage: Postgres, pool: Pool, shop: ServiceContext, desk: ServiceContext, foreign: ServiceContext, user_id: UUID
) -> None:
    eve = (await add(storage, account(EVE))).id
    session = await begin(storage, user_id, "token", service=shop, openid=GRANT)
    own = await begin(storage, user_id, "own", openid=GRANT)
    plain = await begin(storage, user_id, "plain", service=shop)
    for client_id, session_id, user in (
        (desk.client_id, session.id, user_id),
        (foreign.client_id, session.id, user_id),
        (None, session.id, user_id),
        (uuid4(), session.id, user_id),
        (shop.client_id, own.id, user_id),
        (shop.client_id, uuid4(), user_id),
        (shop.client_id, session.id, eve),
        (shop.client_id, plain.id, user_id),  # without OpenID Connect
    ):
        assert await load(storage, client_id, session_id, user) is None, (client_id, session_id, user)
    assert await load(storage, None, own.id, user_id) is not None
    assert await load(storage, shop.client_id, session.id, user_id) is not None


@pytest.mark.parametrize(
    "ending",
    [
        "update sessions set ended_at = created_at",
        "update sessions set expires_at = %(now)s",
        "update users set deactivated_at = created_at",
        "update users set anonymized_at = created_at",
        "delete from services",
    ],
)
async def test_userinfo_needs_a_live_session(storage: Postgres, pool: Pool, shop: ServiceContext, user_id: UUID, ending: str) -> None:
    session = await begin(storage, user_id, "token", service=shop, openid=GRANT, expires_at=NOW + MICROSECOND, ends_at=NOW + DAY)
    assert await load(storage, shop.client_id, session.id, user_id) is not None
    async with pool.connection() as connection:
        await connection.execute(ending, {"now": NOW})
    assert await load(storage, shop.client_id, session.id, user_id) is None
