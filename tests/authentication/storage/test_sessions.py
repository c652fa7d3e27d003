"""Statements that store sessions and load a request's context."""

from dataclasses import replace
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.accounts import new_email_change
from core.accounts.model.profiles import NO_PROFILE, OwnProfile
from core.authentication.model.sessions import Grant
from core.kernel.callers import MembershipState, OrganizationContext, OrganizationStatus, SessionContext
from core.kernel.causes import SYSTEM
from core.kernel.roles import ADMIN, rights_of
from core.kernel.values import Email, digest
from tests.accounts.profiles import FULL_PROFILE
from tests.authentication.storage.end_users import enroll
from tests.support.builders import add_member, add_organization, one_factor, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, NOW, SIGN_IN, account, add, begin
from tests.support.services import add_service, service_context


async def test_every_field_of_a_session_is_stored_but_not_its_token(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    fields = {"proofs": one_factor(NOW - HOUR, "codehost"), "grant": Grant.DEVICE_CODE}
    impersonator_session_id = uuid4()
    session = await begin(storage, user.id, "token", impersonator_id=eve.id, impersonator_session_id=impersonator_session_id, **fields)
    columns = "id, user_id, impersonator_id, impersonator_session_id, created_at, expires_at, ends_at, address, agent, org_id, ended_at"
    assert await run_sql(pool, f"select {columns} from sessions") == [  # noqa: S608
        (
            session.id,
            user.id,
            eve.id,
            impersonator_session_id,
            NOW - HOUR,
            NOW + 30 * DAY,
            NOW + 90 * DAY,
            "203.0.113.9",
            "tests",
            None,
            None,
        )
    ]
    assert await run_sql(pool, "select proofs -> 0 ->> 'provider', grant_type from sessions") == [("codehost", "device_code")]
    tokens = await run_sql(pool, "select token_hash, session_id, generation, rotated_at, created_at from refresh_tokens")
    assert tokens == [(digest("token"), session.id, 1, None, NOW - HOUR)]


async def test_the_session_context_has_all_facts_of_a_request(storage: Postgres, pool: Pool) -> None:
    user = await add(storage, account(is_platform_owner=True))
    session = await begin(storage, user.id, "token")
    org = await add_organization(pool, "acme", "suspended")
    other_tenant = await add_organization(pool, "twin")
    await add_member(pool, org, user.id, "admin")
    without_organization = SessionContext(
        user_id=user.id, email=ADA, email_verified_at=NOW, is_platform_owner=True, organization=None, sign_in=SIGN_IN
    )
    async with storage.reading() as read:
        load = read.session_contexts.load
        assert await load(session.id, user.id, None, NOW) == without_organization
        assert await load(session.id, user.id, uuid4(), NOW) == without_organization
        assert await load(session.id, user.id, org, NOW) == replace(
            without_organization,
            organization=OrganizationContext(org, "acme", OrganizationStatus.SUSPENDED, ADMIN, rights_of(ADMIN)),
        )
        context = await load(session.id, user.id, other_tenant, NOW)
        assert context is not None
        assert context.organization is None, "a membership of another organization does not count"


async def test_a_profile_is_read_with_the_session_context(storage: Postgres, pool: Pool) -> None:
    full = account(profile=FULL_PROFILE)
    await add(storage, full, eve := account(EVE))
    adas_session, eves_session = await begin(storage, full.id, "ada"), await begin(storage, eve.id, "eve")
    org = await add_organization(pool, "acme")
    await add_member(pool, org, full.id)
    async with storage.transaction(by=SYSTEM) as tx:
        await tx.email_changes.add(new_email_change(full, full.email, adas_session.id, Email("new@example.com"), DAY, NOW))
    async with storage.reading() as read:
        sessions = read.session_contexts
        for org_id in (None, org):
            context = await sessions.load(adas_session.id, full.id, org_id, NOW)
            own = OwnProfile(ADA, Email("new@example.com"), full.profile)
            assert await sessions.load_with_profile(None, adas_session.id, full.id, org_id, NOW) == (context, own)
        context = await sessions.load(eves_session.id, eve.id, None, NOW)
        assert await sessions.load_with_profile(None, eves_session.id, eve.id, None, NOW) == (context, OwnProfile(EVE, None, NO_PROFILE))
        assert await sessions.load_with_profile(None, eves_session.id, full.id, None, NOW) is None
        assert await sessions.load_with_profile(None, adas_session.id, eve.id, None, NOW) is None
        assert await sessions.load_with_profile(uuid4(), adas_session.id, full.id, None, NOW) is None
        assert await sessions.load_with_profile(None, adas_session.id, full.id, None, adas_session.expires_at) is None


async def test_the_session_context_needs_the_users_own_session(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE, is_platform_owner=True))
    adas_session, eves_session = await begin(storage, user.id, "ada"), await begin(storage, eve.id, "eve")
    org = await add_organization(pool, "acme")
    await add_member(pool, org, eve.id, "owner")
    async with storage.reading() as read:
        assert await read.session_contexts.load(eves_session.id, user.id, None, NOW) is None
        assert await read.session_contexts.load(adas_session.id, eve.id, None, NOW) is None
        assert await read.session_contexts.load(uuid4(), user.id, None, NOW) is None
        context = await read.session_contexts.load(adas_session.id, user.id, org, NOW)
    assert context is not None
    assert (context.organization, context.is_platform_owner) == (None, False)


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
    session = await begin(storage, user.id, "token")
    async with storage.reading() as read:
        assert await read.session_contexts.load(session.id, user.id, None, NOW)
        assert await read.session_contexts.load_with_profile(None, session.id, user.id, None, NOW)
    async with pool.connection() as connection:
        await connection.execute(end, {"now": NOW})
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.session_contexts.load(session.id, user.id, None, NOW) is None
        assert await tx.session_contexts.load_with_profile(None, session.id, user.id, None, NOW) is None
        assert await tx.refresh_tokens.rotate(digest("token"), digest("next"), NOW, NOW + 30 * DAY) is None
        state = await tx.refresh_tokens.explain(digest("token"), NOW)
    assert state is None or not state.session_is_live


async def test_the_context_in_an_organization_has_the_role(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    session = await begin(storage, user.id, "token")
    org, other_tenant = await add_organization(pool, "acme", "pending"), await add_organization(pool, "twin", "rejected")
    await add_member(pool, org, user.id, "admin")
    await add_member(pool, org, eve.id, "owner")
    await add_member(pool, other_tenant, eve.id, "owner")
    acme = OrganizationContext(org, "acme", OrganizationStatus.PENDING, ADMIN, rights_of(ADMIN))
    acme_state = MembershipState(org, "acme", OrganizationStatus.PENDING, ADMIN, rights_of(ADMIN), confirmed=False)
    twin_state = MembershipState(other_tenant, "twin", OrganizationStatus.REJECTED, None, rights_of(None), confirmed=False)
    async with storage.reading() as read:
        without_organization = await read.session_contexts.load(session.id, user.id, None, NOW)
        assert without_organization is not None
        for token_org, organization in ((None, None), (org, acme), (other_tenant, None), (uuid4(), None)):
            for slug, acts_in in (("acme", acme_state), ("twin", twin_state), ("Acme", None), ("acm_", None), ("", None)):
                context = await read.session_contexts.load_in(slug, session.id, user.id, token_org, NOW)
                assert context == replace(without_organization, organization=organization, acts_in=acts_in), (slug, token_org)


async def test_the_context_in_an_organization_tells_if_the_membership_is_confirmed(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    session = await begin(storage, user.id, "token")
    org, other_tenant = await add_organization(pool, "acme"), await add_organization(pool, "twin")
    for org_id, member in ((org, user), (org, eve), (other_tenant, user)):
        await add_member(pool, org_id, member.id)
    confirm = "update memberships set confirmed_at = %s where (org_id, user_id) = (%s, %s)"
    states = []
    for org_id, member in ((org, eve), (other_tenant, user), (org, user)):
        await run_sql(pool, confirm, NOW, org_id, member.id)
        async with storage.reading() as read:
            context = await read.session_contexts.load_in("acme", session.id, user.id, None, NOW)
        states.append(context is not None and context.acts_in is not None and context.acts_in.confirmed)
    assert states == [False, False, True]


async def test_the_context_in_an_organization_needs_the_users_own_session(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    adas_session, eves_session = await begin(storage, user.id, "ada"), await begin(storage, eve.id, "eve")
    org = await add_organization(pool, "acme")
    await add_member(pool, org, user.id, "owner")
    async with storage.reading() as read:
        for session_id, user_id in ((eves_session.id, user.id), (adas_session.id, eve.id), (uuid4(), user.id)):
            assert await read.session_contexts.load_in("acme", session_id, user_id, org, NOW) is None


# Impersonations


async def test_the_session_context_has_the_impersonator(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), support := account(EVE, is_platform_owner=True))
    session, own_session = await begin(storage, user.id, "token", impersonator_id=support.id), await begin(storage, user.id, "own")
    await add_organization(pool, "acme")
    async with storage.reading() as read:
        for session_id, impersonator_id in ((session.id, support.id), (own_session.id, None)):
            context = await read.session_contexts.load(session_id, user.id, None, NOW)
            context_in_acme = await read.session_contexts.load_in("acme", session_id, user.id, None, NOW)
            assert context is not None
            assert context_in_acme is not None
            assert context.impersonator_id == context_in_acme.impersonator_id == impersonator_id


@pytest.mark.parametrize(
    ("change", "is_live"),
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
async def test_an_impersonation_ends_when_the_impersonator_is_demoted(storage: Postgres, pool: Pool, change: str, is_live: bool) -> None:
    await add(storage, user := account(), support := account(EVE, is_platform_owner=True))
    other, third = account("other@example.com", is_platform_owner=True), account("third@example.com")
    await add(storage, other, third)
    session, own_session = await begin(storage, user.id, "token", impersonator_id=support.id), await begin(storage, user.id, "own")
    await begin(storage, user.id, "another's", impersonator_id=other.id)  # another user's change has no effect
    await add_organization(pool, "acme")
    await run_sql(pool, change)
    async with storage.transaction(by=SYSTEM) as tx:
        assert (await tx.session_contexts.load(session.id, user.id, None, NOW) is not None) == is_live
        assert (await tx.session_contexts.load_in("acme", session.id, user.id, None, NOW) is not None) == is_live
        assert (await tx.refresh_tokens.rotate(digest("token"), digest("next"), NOW, NOW + DAY) is not None) == is_live
        # The user's own session is not affected.
        assert await tx.session_contexts.load(own_session.id, user.id, None, NOW)
        assert await tx.session_contexts.load_in("acme", own_session.id, user.id, None, NOW)
        assert await tx.refresh_tokens.rotate(digest("own"), digest("own next"), NOW, NOW + DAY)


@pytest.mark.parametrize(
    ("change", "is_live"),
    [
        ("select %(session)s, %(parallel)s, %(now)s", True),
        ("update sessions set ended_at = %(now)s where id = %(session)s", False),
        ("update sessions set expires_at = %(now)s where id = %(session)s", False),
        ("update sessions set expires_at = %(now)s + interval '1 microsecond' where id = %(session)s", True),
        ("delete from sessions where id = %(session)s", False),
        ("update sessions set ended_at = %(now)s where id = %(parallel)s", True),
        ("update sessions set impersonator_session_id = null where impersonator_id is not null", False),
        ("update sessions set impersonator_session_id = id where impersonator_id is not null", False),
    ],
)
async def test_an_impersonation_ends_with_the_session_that_started_it(storage: Postgres, pool: Pool, change: str, is_live: bool) -> None:
    support, other = account(EVE, is_platform_owner=True), account("other@example.com", is_platform_owner=True)
    await add(storage, user := account(), support, other)
    shop = await add_service(pool, await add_organization(pool, "acme"))
    context = await service_context(pool, shop)
    await enroll(storage, shop, user.id)
    session, parallel = await begin(storage, support.id, "session"), await begin(storage, support.id, "parallel")
    await begin(storage, other.id, "another's")
    by = {"impersonator_id": support.id, "impersonator_session_id": session.id}
    impersonation = await begin(storage, user.id, "plain", **by)
    in_shop = await begin(storage, user.id, "of shop", service=context, **by)
    async with pool.connection() as connection:
        await connection.execute(change, {"session": session.id, "parallel": parallel.id, "now": NOW})
    async with storage.transaction(by=SYSTEM) as tx:
        assert (await tx.session_contexts.load(impersonation.id, user.id, None, NOW) is not None) == is_live
        assert (await tx.session_contexts.load_in("acme", impersonation.id, user.id, None, NOW) is not None) == is_live
        assert (await tx.session_contexts.load_of_application(context.client_id, in_shop.id, user.id, NOW) is not None) == is_live
        for token in ("plain", "of shop"):
            assert (await tx.refresh_tokens.rotate(digest(token), digest(f"next {token}"), NOW, NOW + DAY) is not None) == is_live


async def test_a_live_session_of_the_user_has_an_absolute_end(storage: Postgres, pool: Pool) -> None:
    await add(storage, user := account(), eve := account(EVE))
    session, eves_session = await begin(storage, user.id, "ada"), await begin(storage, eve.id, "eve", ends_at=NOW + DAY)
    async with storage.transaction(by=SYSTEM) as tx:
        ends_at = tx.sessions.ends_at
        assert await ends_at(session.id, user.id, NOW) == NOW + 90 * DAY
        assert await ends_at(eves_session.id, eve.id, NOW) == NOW + DAY
        for session_id, user_id in ((eves_session.id, user.id), (session.id, eve.id), (uuid4(), user.id)):
            assert await ends_at(session_id, user_id, NOW) is None


@pytest.mark.parametrize("column", ["ended_at", "expires_at"])
async def test_a_session_that_is_not_live_has_no_absolute_end(storage: Postgres, pool: Pool, column: str) -> None:
    user = await add(storage, account())
    session = await begin(storage, user.id, "ada")
    await run_sql(pool, f"update sessions set {column} = %s", NOW)  # noqa: S608
    async with storage.transaction(by=SYSTEM) as tx:
        assert await tx.sessions.ends_at(session.id, user.id, NOW) is None
