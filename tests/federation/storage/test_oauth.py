"""Every statement about authorization codes: each field, each condition, and single use (security O-3, O-4)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.federation.oauth.authorization_rules import CODE_TTL, AuthorizationCode, IssuedCode
from core.kernel.principals import BrowserSession, ServiceContext
from core.kernel.values import digest
from core.maintenance.housekeeping_rules import Sweep
from tests.support.builders import everyone, make_device, run_sql
from tests.support.rows import ADA, DAY, HOUR, MICROSECOND, NOW, SECOND, account, add, begin, session, within

CODE: Final = digest("code")
BACK: Final = "https://shop.example.com/callback"


@dataclass(frozen=True, slots=True)
class Given:
    """An issued code of a service or of the platform's frontend, in the browser session of a user."""

    storage: Postgres
    service: ServiceContext | None
    code: AuthorizationCode

    async def redeem(self, **changes: Any) -> bool:
        """Redeem the code with its own values and these changes."""
        usual = {
            "code_hash": CODE,
            "service": self.service,
            "redirect_uri": BACK,
            "challenge": "challenge",
            "session_id": uuid4(),
            "now": NOW,
            "registered": True,
        }
        return await within(self.storage, lambda tx: tx.authorization_codes.redeem(**{**usual, **changes}))

    async def became(self, service: ServiceContext | None) -> UUID | None:
        """Return the session that the code was redeemed for, as this service sees it."""
        return await within(self.storage, lambda tx: tx.authorization_codes.session_started_by(CODE, service))

    async def find(self, service: ServiceContext | None, code_hash: bytes = CODE) -> IssuedCode | None:
        async with self.storage.reading() as read:
            return await read.authorization_codes.find(code_hash, service)


async def give(storage: Postgres, service: ServiceContext | None, **changes: Any) -> Given:
    ada = await add(storage, account(email_verified_at=None))
    browser = session(ada.id, provider="websuite")
    await within(storage, lambda tx: tx.sessions.begin_in_browser(browser, digest("cookie")))
    code = AuthorizationCode(
        service=service,
        user_id=ada.id,
        browser_session_id=browser.id,
        redirect_uri=BACK,
        code_challenge="challenge",
        created_at=NOW,
        expires_at=NOW + CODE_TTL,
    )
    given = Given(storage, service, replace(code, **changes))
    assert await within(storage, lambda tx: tx.authorization_codes.add(given.code, CODE))
    return given


@pytest.fixture
async def given(storage: Postgres, shop: ServiceContext) -> Given:
    return await give(storage, shop)


async def test_every_field_of_a_code_is_stored_but_not_the_code_itself(given: Given, shop: ServiceContext, pool: Pool) -> None:
    columns = "code_hash, org_id, service_id, user_id, browser_session_id, redirect_uri, code_challenge, created_at, expires_at, session_id"
    code = given.code
    assert await run_sql(pool, f"select {columns} from authorization_codes") == [  # noqa: S608
        (CODE, shop.org_id, shop.id, code.user_id, code.browser_session_id, BACK, "challenge", NOW, NOW + CODE_TTL, None)
    ]


async def test_find_returns_the_user_and_the_browser_session(given: Given, shop: ServiceContext, pool: Pool) -> None:
    device = make_device(given.code.user_id, NOW)
    await within(given.storage, lambda tx: tx.devices.save(device))
    await run_sql(pool, "update sessions set device_id = %s", device.id)
    begun = BrowserSession(given.code.browser_session_id, "websuite", device.id, NOW - HOUR)
    found = IssuedCode(given.code.user_id, ADA, email_verified=False, address="203.0.113.9", agent="tests", browser=begun)
    assert await given.find(shop) == found
    assert await given.find(shop, digest("another")) is None


async def test_another_application_does_not_find_a_code(given: Given, desk: ServiceContext, foreign: ServiceContext) -> None:
    for other in (desk, foreign, replace(foreign, id=given.code.service.id if given.code.service else uuid4()), None):
        assert await given.find(other) is None
        assert not await given.redeem(service=other)
    assert await given.redeem(), "the refused attempts did not use it up"
    for other in (desk, foreign, None):
        assert await given.became(other) is None


async def test_a_deleted_service_gets_no_code(
    storage: Postgres, pool: Pool, given: Given, shop: ServiceContext, twin: UUID
) -> None:
    for service in (replace(shop, id=uuid4()), replace(shop, org_id=twin)):
        code = replace(given.code, service=service)
        assert not await within(storage, lambda tx, code=code: tx.authorization_codes.add(code, digest("other")))  # type: ignore[misc]
    assert await run_sql(pool, "select count(*) from authorization_codes") == [(1,)]


async def test_of_parallel_redemptions_one_wins_and_the_others_see_its_session(given: Given, shop: ServiceContext) -> None:
    async def redeem(_: int) -> UUID | None:
        session_id = uuid4()
        return session_id if await given.redeem(session_id=session_id) else None

    [won] = [session_id for session_id in await everyone(20, redeem) if session_id is not None]
    assert await given.became(shop) == won


async def test_a_second_redemption_finds_the_session_of_the_first(given: Given, shop: ServiceContext, pool: Pool) -> None:
    assert await given.became(shop) is None
    first = await begin(given.storage, given.code.user_id, "refresh")
    assert await given.redeem(session_id=first.id)
    # With any values, and at any time, while the code is stored.
    for again in ({}, {"challenge": "wrong"}, {"redirect_uri": None, "registered": False}, {"now": NOW + HOUR}):
        assert not await given.redeem(**again)
        assert await given.became(shop) == first.id
    await within(given.storage, lambda tx: tx.sessions.end(first.id, NOW + SECOND))
    assert await run_sql(pool, "select id, ended_at from sessions where browser_hash is null") == [(first.id, NOW + SECOND)]


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
async def test_a_code_works_only_with_the_values_of_its_request(given: Given, wrong: Mapping[str, Any]) -> None:
    assert not await given.redeem(**wrong)
    assert await given.redeem(now=NOW + CODE_TTL - MICROSECOND), "the refused attempts did not use it up"


async def test_a_code_without_a_challenge_matches_no_verifier(storage: Postgres, shop: ServiceContext) -> None:
    given = await give(storage, shop, code_challenge=None)
    assert not await given.redeem(challenge="challenge")
    assert await given.redeem(challenge=None)


@pytest.mark.parametrize(
    ("named", "registered", "good"),
    [(BACK, True, True), ("https://elsewhere.example/", False, False), (None, True, True), (None, False, True)],
)
async def test_a_request_without_redirect_uri_allows_a_registered_one(
    storage: Postgres, shop: ServiceContext, named: str | None, registered: bool, good: bool
) -> None:
    given = await give(storage, shop, redirect_uri=None)
    assert await given.redeem(redirect_uri=named, registered=registered) is good


async def test_a_code_of_the_frontend_belongs_to_no_service(storage: Postgres, shop: ServiceContext) -> None:
    given = await give(storage, None)
    assert await given.find(shop) is None
    assert not await given.redeem(service=shop)
    assert await given.find(None) is not None
    assert await given.redeem()
    assert await given.became(shop) is None
    assert await given.became(None) is not None


@pytest.mark.parametrize("over", ["ended_at = created_at", f"expires_at = '{NOW.isoformat()}'"])
async def test_a_code_is_void_after_its_browser_session_ends(given: Given, pool: Pool, over: str) -> None:
    await run_sql(pool, f"update sessions set {over}")  # noqa: S608
    assert not await given.redeem()


async def test_expired_codes_are_deleted_used_or_not(given: Given, shop: ServiceContext) -> None:
    assert await given.redeem()

    async def sweep(now: datetime) -> int:
        return await within(given.storage, lambda tx: tx.housekeeping.sweep(Sweep.AUTHORIZATION_CODES, now, 100))

    assert await sweep(NOW + CODE_TTL) == 0
    assert await given.became(shop) is not None, "a second redemption must be recognized until then"
    assert await sweep(NOW + CODE_TTL + SECOND) == 1
    assert await given.find(shop) is None


@pytest.mark.parametrize("gone", ["services", "sessions", "users"])
async def test_a_code_is_deleted_with_its_service_its_session_and_its_user(given: Given, pool: Pool, gone: str) -> None:
    assert given.code.expires_at > NOW
    await run_sql(pool, f"delete from {gone}")  # noqa: S608
    assert await run_sql(pool, "select * from authorization_codes") == []
