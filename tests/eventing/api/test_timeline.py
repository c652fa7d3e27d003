"""The timeline on a person's page: sign-ins, devices and changes, which only their logs' readers see."""

import re
from datetime import timedelta
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.authentication.model.login import LoginFailure
from core.kernel.callers import Person
from core.kernel.event_catalog import EVENT_KINDS, Event
from core.kernel.roles import ADMIN, MEMBER
from core.kernel.values import Email
from entrypoints.http.pages.timeline import MOST
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.browser import FakeBrowser
from tests.support.builders import add_account, add_member, run_sql
from tests.support.rows import failed_login
from tests.support.services import add_login, add_service, add_service_user

ROOT = "/app/organizations/acme"
HOSTILE = "<script>alert(1)</script>"


def entries(html: str) -> list[str]:
    """Return the texts of the timeline entries."""
    listed = re.search(r'<ol class="timeline">.*?</ol>', html, re.DOTALL)
    items = re.findall(r"<li .*?</li>", listed.group() if listed else "", re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", re.sub(r'<span class="unseen">[^<]*</span>', "", entry)).split()) for entry in items]


@pytest.fixture
async def kai(owner_browser: FakeBrowser, ports: Ports, pool: Pool, clock: FakeClock) -> UUID:
    """A member who signed in, failed, and got another role, and who uses an application with a hostile name."""
    ((org, owner),) = await run_sql(pool, "select org_id, user_id from memberships")
    await run_sql(pool, "update organizations set approved_at = created_at")
    kai = (await add_account(ports, "kai@example.com")).id
    await add_member(pool, org, kai, confirmed=True)
    await run_sql(pool, "update memberships set confirmed_at = %s", clock.now() - timedelta(days=1))
    shop = await add_service(pool, org, "shop")
    await run_sql(pool, "update services set name = %s", HOSTILE)
    await add_service_user(ports, shop, kai)
    now = clock.now()
    await add_login(ports, pool, shop, kai, at=now - timedelta(minutes=3))
    async with ports.storage.autocommit() as statements:
        await statements.failed_logins.record_failure(
            failed_login(kai, reason=LoginFailure.MFA, at=now - timedelta(minutes=2), address="203.0.113.9")
        )
    caller = Person(user_id=owner, email=Email("ada@example.com"), session_id=UUID(int=5), address="203.0.113.9", agent="tests")
    details = {"old_role": "member", "new_role": "admin"}
    async with ports.storage.transaction(by=caller, in_session=False) as tx:
        tx.record(Event(EVENT_KINDS["user.role_updated"], str(kai), org_id=org, details=details))
    return kai


@pytest.mark.parametrize("page", ["members", "users"])
async def test_the_page_of_a_person_has_their_sign_ins_and_changes_newest_first(owner_browser: FakeBrowser, kai: UUID, page: str) -> None:
    answer = await owner_browser.open(f"{ROOT}/{page}/{kai}")
    change, failure, success = entries(answer.text)
    assert change.startswith("ada@example.com changed kai@example.com from member to admin just now")
    assert failure.startswith("Could not sign in to Gatehouse: Wrong second factor 2 minutes ago")
    assert success.startswith(f"Signed in to {HOSTILE.replace('<', '&lt;').replace('>', '&gt;')} 3 minutes ago · Password")
    assert "<script>alert" not in answer.text


async def test_the_timeline_shows_how_long_the_account_was_blocked(owner_browser: FakeBrowser, pool: Pool, kai: UUID) -> None:
    await run_sql(pool, "update login_events set reason = 'locked', blocked_seconds = 45 where not success")
    _, failure, _ = entries((await owner_browser.open(f"{ROOT}/members/{kai}")).text)
    assert failure.startswith("Could not sign in to Gatehouse: Blocked for 45 s after wrong attempts 2 minutes ago")


async def test_the_timeline_has_a_limit(owner_browser: FakeBrowser, ports: Ports, pool: Pool, clock: FakeClock, kai: UUID) -> None:
    ((shop,),) = await run_sql(pool, "select id from services")
    for minutes in range(MOST):
        await add_login(ports, pool, shop, kai, at=clock.now() - timedelta(minutes=minutes))
    assert len(entries((await owner_browser.open(f"{ROOT}/members/{kai}")).text)) == MOST


async def test_only_readers_of_the_logs_see_a_timeline(owner_browser: FakeBrowser, pool: Pool, kai: UUID) -> None:
    for role, sees in ((ADMIN, True), (MEMBER, False)):
        await run_sql(pool, "update memberships set role = %s where user_id <> %s", role, kai)
        page = await owner_browser.open(f"{ROOT}/users/{kai}")
        assert (page.status, "Timeline" in page.text, bool(entries(page.text))) == (200, sees, sees)


async def test_an_organization_sees_nothing_of_others(owner_browser: FakeBrowser, ports: Ports, pool: Pool, kai: UUID) -> None:
    """The same rule as for the sign-in log (decision 220)."""
    ((org,),) = await run_sql(
        pool,
        """
        insert into organizations (id, slug, name, status, member_count, approved_at, created_at, updated_at)
        select gen_random_uuid(), 'other', 'Other', 'active', 0, created_at, created_at, updated_at from organizations returning id""",
    )
    other = await add_service(pool, org, "other")
    await add_service_user(ports, other, kai)
    await add_login(ports, pool, other, kai)
    assert len(entries((await owner_browser.open(f"{ROOT}/members/{kai}")).text)) == 3


async def test_platform_owners_see_devices_too(browser: FakeBrowser, ports: Ports, kai: UUID) -> None:
    owner = await add_account(ports, "steward@platform.example", is_platform_owner=True)
    await browser.sign_in("kai@example.com")
    browser.cookies.clear()
    await browser.sign_in(owner.email)
    lines = entries((await browser.open(f"/app/platform/people/{kai}")).text)
    assert any(entry.startswith("New device: ") for entry in lines)
    assert any(entry.startswith("Signed in to Gatehouse") for entry in lines)
