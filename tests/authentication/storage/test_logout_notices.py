"""The notices that ended OpenID Connect sessions queue for their applications (Back-Channel Logout 1.0, security S-9)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.authentication.model.sessions import Presenter
from core.kernel.values import digest, new_id
from core.maintenance.model.housekeeping import Sweep
from ports.storage import Transaction
from ports.storage.authentication.sessions import OrganizationSessions, RefreshTokens, Sessions
from tests.support.builders import add_organization, run_sql
from tests.support.rows import EVE, HOUR, NOW, account, add, begin, within
from tests.support.services import add_plan, add_service, enroll_user

URI: Final = "https://shop.example.com/logout"


@dataclass(frozen=True, slots=True)
class Case:
    """An OpenID Connect session, the browser session in which its user authorized it, and the user's second session."""

    storage: Postgres
    pool: Pool
    user_id: UUID
    org_id: UUID
    service_id: UUID
    device_id: UUID
    session_id: UUID
    browser_id: UUID
    successor: UUID  # another user's browser session

    async def notices(self) -> list[UUID]:
        return [id_ for (id_,) in await run_sql(self.pool, "select session_id from logout_notices order by id")]


async def begin_openid(case_pool: Pool, storage: Postgres, user_id: UUID, service: UUID, token: str, scope: str = "openid") -> UUID:
    session = await begin(storage, user_id, token)
    await run_sql(
        case_pool,
        "update sessions s set service_id = v.id, org_id = v.org_id, scope = %s from services v where s.id = %s and v.id = %s",
        scope.split() or None,
        session.id,
        service,
    )
    return session.id


@pytest.fixture
async def case(storage: Postgres, pool: Pool) -> Case:
    await add(storage, user := account(), eve := account(EVE))
    org = await add_organization(pool, "acme")
    service = await add_service(pool, org, "shop")
    await run_sql(pool, "update services set backchannel_logout_uri = %s, access_policy = 'assigned'", URI)
    device = uuid4()
    browser, successor = await begin(storage, user.id, "browser"), await begin(storage, eve.id, "successor")
    for session, cookie in ((browser, "cookie"), (successor, "other cookie")):
        await run_sql(pool, "update sessions set browser_hash = %s where id = %s", digest(cookie), session.id)
    session_id = await begin_openid(pool, storage, user.id, service, "openid")
    await run_sql(pool, "update sessions set browser_session_id = %s, device_id = %s where id = %s", browser.id, device, session_id)
    await run_sql(
        pool,
        """
        insert into saml_sessions (session_id, org_id, service_id, session_index, name_id, name_id_format, former_names, created_at)
        values (%s, %s, %s, 'x', 'x', 'x', '{}', %s)""",
        browser.id,
        org,
        service,
        NOW,
    )
    return Case(storage, pool, user.id, org, service, device, session_id, browser.id, successor.id)


End = Callable[[Transaction, Case], Awaitable[object]]
# Every method that ends sessions.
ENDS: Final[dict[str, End]] = {
    "end": lambda tx, case: tx.sessions.end(case.session_id, NOW),
    "end the browser's": lambda tx, case: tx.sessions.end(case.browser_id, NOW),
    "replace_in_browser": lambda tx, case: tx.sessions.replace_in_browser(digest("cookie"), case.successor, NOW),
    "end_all": lambda tx, case: tx.sessions.end_all(case.user_id, NOW),
    "end_one": lambda tx, case: tx.sessions.end_one(case.user_id, case.session_id, NOW),
    "end_others": lambda tx, case: tx.sessions.end_others(case.user_id, case.browser_id, NOW),
    "end_on_device": lambda tx, case: tx.sessions.end_on_device(case.user_id, case.device_id, NOW),
    "end_in_organization": lambda tx, case: tx.organization_sessions.end(case.org_id, [case.user_id], NOW),
    "revoke": lambda tx, case: tx.refresh_tokens.revoke(None, digest("openid"), Presenter(is_authenticated=True), NOW),
    "end_consented": lambda tx, case: tx.organization_sessions.end_consented(case.org_id, case.service_id, case.user_id, NOW),
    "end_without_access": lambda tx, case: tx.organization_sessions.end_without_access(case.org_id, [case.service_id], [case.user_id], NOW),
    "remove": lambda tx, case: tx.sessions.remove(case.user_id, NOW),
    "remove those of a service": lambda tx, case: tx.sessions.remove(case.user_id, NOW, case.service_id),
    "end_sessions_at": lambda tx, case: tx.saml_logouts.end_sessions_at(case.org_id, case.service_id, case.user_id, NOW),
}


def test_every_method_that_ends_sessions_is_in_the_table() -> None:
    # Impersonations and personal access tokens have no OpenID Connect sessions.
    ports = (Sessions, OrganizationSessions, RefreshTokens)
    methods = {name for port in ports for name in vars(port) if name.startswith(("end", "remove", "revoke", "replace"))}
    assert methods - {"ends_at", "end_personal_tokens"} == ENDS.keys() & methods


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_the_application_gets_one_notice(case: Case, end: End) -> None:
    for _ in range(2):  # a session ends once
        await within(case.storage, lambda tx: end(tx, case))
    assert await case.notices() == [case.session_id]
    [row] = await run_sql(case.pool, "select org_id, service_id, user_id, status, due_at, claims, created_at from logout_notices")
    assert row == (case.org_id, case.service_id, case.user_id, "due", NOW, 0, NOW)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_no_notice_without_an_address_or_without_openid(case: Case, end: End) -> None:
    other = await add_service(case.pool, case.org_id, "silent")
    await begin_openid(case.pool, case.storage, case.user_id, other, "silent")
    await begin_openid(case.pool, case.storage, case.user_id, case.service_id, "plain", "")
    await run_sql(case.pool, "update services set backchannel_logout_uri = null")
    await within(case.storage, lambda tx: end(tx, case))
    assert await case.notices() == []


async def test_a_rollback_removes_the_notice(case: Case) -> None:
    async def end_and_fail(tx: Transaction) -> None:
        await tx.sessions.end_all(case.user_id, NOW)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await within(case.storage, end_and_fail)
    assert await case.notices() == []


async def test_a_session_that_expired_sends_nothing(case: Case) -> None:
    await run_sql(case.pool, "update sessions set expires_at = %s", NOW - 48 * HOUR)
    assert await within(case.storage, lambda tx: tx.housekeeping.sweep(Sweep.SESSIONS, NOW - HOUR, 100)) == 3
    assert await case.notices() == []


async def test_users_who_keep_their_access_keep_their_sessions(case: Case) -> None:
    async def lose_access(user_ids: list[UUID] | None) -> list[UUID]:
        await within(case.storage, lambda tx: tx.organization_sessions.end_without_access(case.org_id, [case.service_id], user_ids, NOW))
        return await case.notices()

    assert await lose_access(None) == [], "not one of its users"
    await run_sql(case.pool, "update services set access_policy = 'anyone'")
    await within(case.storage, lambda tx: enroll_user(tx, case.service_id, case.user_id, NOW))
    assert await lose_access([case.user_id]) == await lose_access(None) == []
    await run_sql(case.pool, "update services set access_policy = 'assigned'")
    assert await lose_access(None) == [case.session_id]


@pytest.mark.parametrize("names_users", [True, False])
async def test_a_subscription_of_another_user_gives_no_access(case: Case, names_users: bool) -> None:
    plan = await add_plan(case.pool, case.service_id)
    await run_sql(case.pool, "update services set access_policy = 'anyone'")
    await within(case.storage, lambda tx: enroll_user(tx, case.service_id, case.user_id, NOW))
    await run_sql(case.pool, "update services set access_policy = 'assigned'")
    insert = """
        insert into subscriptions (id, org_id, service_id, user_id, plan_id, status, current_period_end, created_at, updated_at)
        select gen_random_uuid(), %s, %s, user_id, %s, 'active', %s, created_at, created_at from sessions where id = %s"""
    await run_sql(case.pool, insert, case.org_id, case.service_id, plan, NOW + HOUR, case.successor)
    users = [case.user_id] if names_users else None
    await within(case.storage, lambda tx: tx.organization_sessions.end_without_access(case.org_id, [case.service_id], users, NOW))
    assert await case.notices() == [case.session_id]


async def test_only_sessions_of_the_ended_browser_end_with_it(case: Case) -> None:
    rows = {}
    for token, scope, browser in (
        ("offline", "openid offline_access", case.browser_id),
        ("elsewhere", "openid", new_id()),
        ("unbound", "openid", None),
    ):
        rows[token] = await begin_openid(case.pool, case.storage, case.user_id, case.service_id, token, scope)
        await run_sql(case.pool, "update sessions set browser_session_id = %s where id = %s", browser, rows[token])
    await within(case.storage, lambda tx: tx.sessions.end(case.browser_id, NOW))
    ended = {id_ for (id_,) in await run_sql(case.pool, "select id from sessions where ended_at is not null")}
    assert ended == {case.browser_id, case.session_id}
