"""The statements about authorization codes: their fields, their conditions, and single use.

Covers security O-3 and O-4.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.authentication.model.openid import OpenIdGrant, ResourceGrant
from core.federation.oauth.model.authorization import CODE_TTL, AuthorizationCode, PresentedCode, RedeemedAuthorizationCode
from core.kernel.callers import BrowserSession, ServiceContext
from core.kernel.causes import SYSTEM
from core.kernel.values import digest
from core.maintenance.model.housekeeping import Sweep
from tests.support.builders import make_device, one_factor, run_concurrently, run_sql
from tests.support.rows import DAY, HOUR, MICROSECOND, NOW, SECOND, account, add, begin, session, within
from tests.support.services import add_api_resource

CODE: Final = digest("code")
REDIRECT_URI: Final = "https://shop.example.com/callback"


@dataclass(frozen=True, slots=True)
class StoredCode:
    """An issued code for a service or the platform's frontend, in a user's browser session."""

    storage: Postgres
    service: ServiceContext | None
    code: AuthorizationCode

    async def redeem(self, **changes: Any) -> RedeemedAuthorizationCode | None:
        """Redeem the code with its own values and these changes."""
        defaults = {
            "code_hash": CODE,
            "service": self.service,
            "redirect_uri": REDIRECT_URI,
            "challenge": "challenge",
            "session_id": uuid4(),
            "now": NOW,
            "registered": True,
            "key_thumbprint": None,
        }
        values = {**defaults, **changes}
        names = ("code_hash", "service", "redirect_uri", "challenge", "registered")
        code = PresentedCode(*(values[name] for name in names))
        async with self.storage.transaction(by=SYSTEM) as tx:
            return await tx.authorization_codes.redeem(code, values["session_id"], values["now"], key_thumbprint=values["key_thumbprint"])

    async def started_session(self, service: ServiceContext | None) -> UUID | None:
        """Return the session that the code was redeemed for, as this service sees it."""
        return await within(self.storage, lambda tx: tx.authorization_codes.session_started_by(CODE, service))

    async def locked_account(self, service: ServiceContext | None, code_hash: bytes = CODE) -> UUID | None:
        """Return the id of the account that this service locks by a code."""
        async with self.storage.transaction(by=SYSTEM) as tx:
            locked = await tx.authorization_codes.lock_account(code_hash, service)
        return None if locked is None else locked.id


async def store_code(storage: Postgres, service: ServiceContext | None, **changes: Any) -> StoredCode:
    user = await add(storage, account(email_verified_at=None))
    browser = session(user.id, proofs=one_factor(NOW - HOUR, "websuite"))
    await within(storage, lambda tx: tx.sessions.begin_in_browser(browser, digest("cookie")))
    code = AuthorizationCode(
        service=service,
        user_id=user.id,
        browser_session_id=browser.id,
        redirect_uri=REDIRECT_URI,
        code_challenge="challenge",
        created_at=NOW,
        expires_at=NOW + CODE_TTL,
    )
    stored_code = StoredCode(storage, service, replace(code, **changes))
    assert await within(storage, lambda tx: tx.authorization_codes.add(stored_code.code, CODE))
    return stored_code


@pytest.fixture
async def stored_code(storage: Postgres, shop: ServiceContext) -> StoredCode:
    return await store_code(storage, shop)


async def test_every_field_of_a_code_is_stored_but_not_the_code_itself(stored_code: StoredCode, shop: ServiceContext, pool: Pool) -> None:
    columns = "code_hash, org_id, service_id, user_id, browser_session_id, redirect_uri, code_challenge, created_at, expires_at, session_id"
    code = stored_code.code
    assert await run_sql(pool, f"select {columns} from authorization_codes") == [  # noqa: S608
        (CODE, shop.org_id, shop.id, code.user_id, code.browser_session_id, REDIRECT_URI, "challenge", NOW, NOW + CODE_TTL, None)
    ]


async def test_a_code_is_no_older_than_the_client_of_its_resource(storage: Postgres, pool: Pool, acme: UUID, shop: ServiceContext) -> None:
    """Another user's sign-in can store an external client after this code got its time, and older grants are ended."""
    orders = await add_api_resource(pool, acme, services=(shop.id,))
    await run_sql(pool, "update api_resource_clients set created_at = %s", NOW + HOUR)
    grant = OpenIdGrant((), resource="https://api.example.com/", api=ResourceGrant(orders, (), None))
    stored = await store_code(storage, shop, openid=grant)
    later = replace(stored.code, created_at=NOW + 2 * HOUR, expires_at=NOW + 3 * HOUR)
    assert await within(storage, lambda tx: tx.authorization_codes.add(later, digest("later")))
    assert await run_sql(pool, "select created_at from authorization_codes order by 1") == [(NOW + HOUR,), (NOW + 2 * HOUR,)]


async def test_redeeming_returns_the_browser_session(stored_code: StoredCode, pool: Pool) -> None:
    device = make_device(stored_code.code.user_id, NOW)
    await within(stored_code.storage, lambda tx: tx.devices.add(device))
    await run_sql(pool, "update sessions set device_id = %s", device.id)
    browser = BrowserSession(stored_code.code.browser_session_id, device.id, one_factor(NOW - HOUR, "websuite"))
    assert await stored_code.redeem() == RedeemedAuthorizationCode(address="203.0.113.9", agent="tests", browser=browser)


async def test_a_code_locks_its_account_if_it_is_usable(stored_code: StoredCode, shop: ServiceContext, pool: Pool) -> None:
    assert await stored_code.locked_account(shop, digest("another")) is None
    assert await stored_code.locked_account(shop) == stored_code.code.user_id
    assert await stored_code.redeem()
    assert await stored_code.locked_account(shop) == stored_code.code.user_id, "a second use ends the session of the first"
    for column in ("deactivated_at", "anonymized_at"):
        await run_sql(pool, f"update users set {column} = now()")  # noqa: S608
        assert await stored_code.locked_account(shop) is None
        await run_sql(pool, f"update users set {column} = null")  # noqa: S608


async def test_another_application_does_not_find_a_code(stored_code: StoredCode, desk: ServiceContext, foreign: ServiceContext) -> None:
    for other in (desk, foreign, replace(foreign, id=stored_code.code.service.id if stored_code.code.service else uuid4()), None):
        assert await stored_code.locked_account(other) is None
        assert not await stored_code.redeem(service=other)
    assert await stored_code.redeem(), "the refused attempts did not use it up"
    for other in (desk, foreign, None):
        assert await stored_code.started_session(other) is None


async def test_a_deleted_service_gets_no_code(
    storage: Postgres, pool: Pool, stored_code: StoredCode, shop: ServiceContext, other_tenant: UUID
) -> None:
    for service in (replace(shop, id=uuid4()), replace(shop, org_id=other_tenant)):
        code = replace(stored_code.code, service=service)
        assert not await within(storage, lambda tx, code=code: tx.authorization_codes.add(code, digest("other")))  # type: ignore[misc]
    assert await run_sql(pool, "select count(*) from authorization_codes") == [(1,)]


async def test_of_parallel_redemptions_one_wins_and_the_others_see_its_session(stored_code: StoredCode, shop: ServiceContext) -> None:
    async def redeem(_: int) -> UUID | None:
        session_id = uuid4()
        return session_id if await stored_code.redeem(session_id=session_id) else None

    [won] = [session_id for session_id in await run_concurrently(20, redeem) if session_id is not None]
    assert await stored_code.started_session(shop) == won


async def test_a_second_redemption_finds_the_session_of_the_first(stored_code: StoredCode, shop: ServiceContext, pool: Pool) -> None:
    assert await stored_code.started_session(shop) is None
    first = await begin(stored_code.storage, stored_code.code.user_id, "refresh")
    assert await stored_code.redeem(session_id=first.id)
    # With any values, and at any time, while the code is stored.
    for changes in ({}, {"challenge": "wrong"}, {"redirect_uri": None, "registered": False}, {"now": NOW + HOUR}):
        assert not await stored_code.redeem(**changes)
        assert await stored_code.started_session(shop) == first.id
    await within(stored_code.storage, lambda tx: tx.sessions.end(first.id, NOW + SECOND))
    assert await run_sql(pool, "select id, ended_at from sessions where browser_hash is null") == [(first.id, NOW + SECOND)]


async def test_only_the_redemption_of_a_code_enrolls_its_user(stored_code: StoredCode, shop: ServiceContext, pool: Pool) -> None:
    async def enroll(session_id: UUID) -> tuple[bool, bool]:
        async with stored_code.storage.transaction(by=SYSTEM) as tx:
            is_enrolled, found = tx.authorization_codes.enroll_redeemer(CODE, shop.id, session_id, NOW)
        return await is_enrolled, await found is not None

    session_id = uuid4()
    assert not (await enroll(session_id))[0], "the code is unused"
    assert await stored_code.redeem(session_id=session_id)
    assert not (await enroll(uuid4()))[0], "another session"
    assert await run_sql(pool, "select * from service_users") == []
    assert await enroll(session_id) == (True, True)
    assert await run_sql(pool, "select user_id, service_id from service_users") == [(stored_code.code.user_id, shop.id)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"code_hash": digest("another")},
        {"redirect_uri": "https://shop.example.com/Callback"},
        {"redirect_uri": None},
        {"redirect_uri": None, "registered": False},
        {"challenge": "another"},
        {"challenge": None},
        {"now": NOW + CODE_TTL},
        {"now": NOW + 31 * DAY},
    ],
    ids=str,
)
async def test_a_code_works_only_with_the_values_of_its_request(stored_code: StoredCode, wrong: Mapping[str, Any]) -> None:
    assert not await stored_code.redeem(**wrong)
    assert await stored_code.redeem(now=NOW + CODE_TTL - MICROSECOND), "the refused attempts did not use it up"


async def test_a_code_without_a_challenge_matches_no_verifier(storage: Postgres, shop: ServiceContext) -> None:
    stored_code = await store_code(storage, shop, code_challenge=None)
    assert not await stored_code.redeem(challenge="challenge")
    assert await stored_code.redeem(challenge=None)


@pytest.mark.parametrize(
    ("redirect_uri", "registered", "good"),
    [(REDIRECT_URI, True, True), ("https://elsewhere.example/", False, False), (None, True, True), (None, False, True)],
)
async def test_a_request_without_redirect_uri_allows_a_registered_one(
    storage: Postgres, shop: ServiceContext, redirect_uri: str | None, registered: bool, good: bool
) -> None:
    stored_code = await store_code(storage, shop, redirect_uri=None)
    assert (await stored_code.redeem(redirect_uri=redirect_uri, registered=registered) is not None) is good


async def test_a_code_of_the_frontend_belongs_to_no_service(storage: Postgres, shop: ServiceContext) -> None:
    stored_code = await store_code(storage, None)
    assert await stored_code.locked_account(shop) is None
    assert not await stored_code.redeem(service=shop)
    assert await stored_code.locked_account(None) is not None
    assert await stored_code.redeem()
    assert await stored_code.started_session(shop) is None
    assert await stored_code.started_session(None) is not None


@pytest.mark.parametrize("end", ["ended_at = created_at", f"expires_at = '{NOW.isoformat()}'"])
async def test_a_code_is_void_after_its_browser_session_ends(stored_code: StoredCode, pool: Pool, end: str) -> None:
    await run_sql(pool, f"update sessions set {end}")  # noqa: S608
    assert not await stored_code.redeem()


async def test_expired_codes_are_deleted_used_or_not(stored_code: StoredCode, shop: ServiceContext) -> None:
    assert await stored_code.redeem()

    async def sweep(now: datetime) -> int:
        return await within(stored_code.storage, lambda tx: tx.housekeeping.sweep(Sweep.AUTHORIZATION_CODES, now, 100))

    assert await sweep(NOW + CODE_TTL) == 0
    assert await stored_code.started_session(shop) is not None, "a second redemption must be recognized until then"
    assert await sweep(NOW + CODE_TTL + SECOND) == 1
    assert await stored_code.locked_account(shop) is None


@pytest.mark.parametrize("table", ["services", "sessions", "users"])
async def test_a_code_is_deleted_with_its_service_its_session_and_its_user(stored_code: StoredCode, pool: Pool, table: str) -> None:
    assert stored_code.code.expires_at > NOW
    await run_sql(pool, f"delete from {table}")  # noqa: S608
    assert await run_sql(pool, "select * from authorization_codes") == []
