"""The statements on a user's session list and on browser sessions."""

from dataclasses import replace
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.accounts import Account
from core.authentication.model.sessions import LiveSession
from core.kernel.callers import BrowserSession, SessionContext
from core.kernel.proofs import Method, Proof
from core.kernel.values import digest
from tests.support.builders import add_organization, one_factor, run_sql
from tests.support.connections import add_connection
from tests.support.rows import ADA, EVE, HOUR, NOW, SECOND, SIGN_IN, account, add, begin, session, within
from tests.support.services import add_service


@pytest.fixture
async def user(storage: Postgres) -> Account:
    return await add(storage, account(), account(EVE, is_platform_owner=True))


async def live_of(storage: Postgres, person: Account, limit: int = 10) -> tuple[list[LiveSession], int]:
    async with storage.reading() as read:
        page = await read.sessions.list_live(person.id, limit, NOW)
    return [*page.items], page.total


async def test_the_list_has_every_field_of_a_live_session(storage: Postgres, pool: Pool, user: Account) -> None:
    org = await add_organization(pool, "acme")
    service = await add_service(pool, org, "shop")
    default = session(user.id)
    await within(storage, lambda tx: tx.sessions.begin_in_browser(default, digest("cookie")))
    of_service = await begin(storage, user.id, "service", created_at=NOW - 2 * HOUR)
    await run_sql(pool, "update sessions set service_id = %s, org_id = %s where id = %s", service, org, of_service.id)
    okta = await add_connection(storage, org)
    proof = Proof(Method.CONNECTION, NOW, connection=okta.id, org=org)
    through_okta = await begin(storage, user.id, "okta", created_at=NOW - 5 * HOUR, proofs=(proof,))
    in_org = await begin(storage, user.id, "org", created_at=NOW - 3 * HOUR, address=None, agent=None)
    await run_sql(pool, "update sessions set org_id = %s where id = %s", org, in_org.id)
    [(eve,)] = await run_sql(pool, "select id from users where email = %s", EVE)
    support = await begin(storage, user.id, "support", created_at=NOW - 4 * HOUR, impersonator_id=eve)
    common = LiveSession(default.id, NOW - HOUR, default.expires_at, "203.0.113.9", "tests", None, None, by_support=False, in_browser=True)
    other = replace(common, in_browser=False)
    assert await live_of(storage, user) == (
        [
            common,
            replace(other, id=of_service.id, created_at=NOW - 2 * HOUR, organization="Acme", service="Shop"),
            replace(other, id=in_org.id, created_at=NOW - 3 * HOUR, organization="Acme", address=None, agent=None),
            replace(other, id=support.id, created_at=NOW - 4 * HOUR, by_support=True),
            replace(other, id=through_okta.id, created_at=NOW - 5 * HOUR, connection="Okta"),
        ],
        5,
    )


@pytest.mark.parametrize(
    "change",
    [
        "update sessions set ended_at = now()",
        "update sessions set expires_at = '2026-03-14T15:09:26.535897Z'",
        "update sessions set user_id = (select id from users where email = 'eve@example.com')",
        "update sessions set service_id = gen_random_uuid()",  # from a deleted service
    ],
)
async def test_sessions_that_are_not_live_are_not_listed(storage: Postgres, pool: Pool, user: Account, change: str) -> None:
    await begin(storage, user.id, "token")
    assert (await live_of(storage, user))[1] == 1
    await run_sql(pool, change)
    assert await live_of(storage, user) == ([], 0)


@pytest.mark.parametrize(
    "change",
    [
        "update users set is_platform_owner = false where email = 'eve@example.com'",
        "update users set is_platform_owner = true",
        "update users set deactivated_at = now() where email = 'eve@example.com'",
        "update sessions set ended_at = now() where impersonator_id is null",
    ],
)
async def test_an_impersonation_is_listed_only_while_it_is_live(storage: Postgres, pool: Pool, user: Account, change: str) -> None:
    [(eve,)] = await run_sql(pool, "select id from users where email = %s", EVE)
    await begin(storage, user.id, "support", impersonator_id=eve)
    assert (await live_of(storage, user))[1] == 1
    await run_sql(pool, change)
    assert await live_of(storage, user) == ([], 0)


async def test_only_the_newest_sessions_are_listed_and_all_are_counted(storage: Postgres, user: Account) -> None:
    new_session = [await begin(storage, user.id, f"token {number}", created_at=NOW - number * HOUR) for number in range(1, 4)]
    items, total = await live_of(storage, user, 2)
    assert ([item.id for item in items], total) == ([new_session[0].id, new_session[1].id], 3)


async def test_only_a_live_session_of_the_user_can_be_ended(storage: Postgres, pool: Pool, user: Account) -> None:
    [(eve,)] = await run_sql(pool, "select id from users where email = %s", EVE)
    own_session, other = await begin(storage, user.id, "mine"), await begin(storage, user.id, "other")
    expired_session, eves_session = await begin(storage, user.id, "lapsed", expires_at=NOW), await begin(storage, eve, "hers")
    for session_id in (eves_session.id, expired_session.id, uuid4()):
        assert not await within(storage, lambda tx, id_=session_id: tx.sessions.end_one(user.id, id_, NOW))  # type: ignore[misc]
    assert await within(storage, lambda tx: tx.sessions.end_one(user.id, own_session.id, NOW))
    assert not await within(storage, lambda tx: tx.sessions.end_one(user.id, own_session.id, NOW + SECOND)), "it has already ended"
    assert await run_sql(pool, "select id, ended_at from sessions where ended_at is not null") == [(own_session.id, NOW)]
    assert [one.id for one in (await live_of(storage, user))[0]] == [other.id]


# Browsers


async def test_a_cookie_identifies_a_session_without_tokens(storage: Postgres, pool: Pool, user: Account) -> None:
    new_session = session(user.id, proofs=one_factor(NOW - HOUR, "codehost"))
    await within(storage, lambda tx: tx.sessions.begin_in_browser(new_session, digest("cookie")))
    assert await run_sql(pool, "select count(*) from refresh_tokens") == [(0,)]
    context = SessionContext(user_id=user.id, email=ADA, email_verified_at=NOW, is_platform_owner=False, organization=None, sign_in=SIGN_IN)
    expected = BrowserSession(new_session.id, None, one_factor(new_session.created_at, "codehost"))
    async with storage.reading() as read:
        assert await read.session_contexts.load_of_browser(digest("cookie"), NOW) == (expected, context)
        assert await read.session_contexts.load_of_browser(digest("another"), NOW) is None
        assert await read.session_contexts.load_of_browser(digest("cookie"), new_session.expires_at) is None
    await run_sql(pool, "update users set zoneinfo = 'Europe/Berlin' where id = %s", user.id)
    async with storage.reading() as read:
        in_berlin = replace(context, time_zone="Europe/Berlin")
        assert await read.session_contexts.load_of_browser(digest("cookie"), NOW) == (expected, in_berlin)


@pytest.mark.parametrize(
    "change",
    [
        "update sessions set ended_at = now()",
        "update users set deactivated_at = now()",
        "update users set anonymized_at = now()",
        "update sessions set impersonator_id = (select id from users where email = 'eve@example.com')",
        "update sessions set service_id = gen_random_uuid()",
    ],
)
async def test_the_cookie_of_a_session_that_is_not_live_is_refused(storage: Postgres, pool: Pool, user: Account, change: str) -> None:
    await within(storage, lambda tx: tx.sessions.begin_in_browser(session(user.id), digest("cookie")))
    await run_sql(pool, change)
    async with storage.reading() as read:
        assert await read.session_contexts.load_of_browser(digest("cookie"), NOW) is None
