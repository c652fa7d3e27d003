"""Where the console begins for members whose organizations wait, are active or are suspended."""

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.callers import OrganizationStatus
from core.kernel.roles import OWNER
from ports import Ports
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import PASSWORD, add_account, add_member, add_organization

OWN = "/app/account/organizations"


@pytest.fixture
async def owner(app: QuartTrio, ports: Ports, pool: Pool) -> FakeBrowser:
    """A browser for the owner of three organizations. The first two by name are not active."""
    user = await add_account(ports, "zoe@example.com", PASSWORD)
    for slug, status in (
        ("alpha", OrganizationStatus.PENDING),
        ("beta", OrganizationStatus.SUSPENDED),
        ("gamma", OrganizationStatus.ACTIVE),
    ):
        organization = await add_organization(pool, slug, status)
        await add_member(pool, organization, user.id, OWNER, confirmed=True)
    browser = FakeBrowser(app)
    await browser.sign_in("zoe@example.com", PASSWORD)
    return browser


async def test_the_console_begins_in_an_active_organization_and_offers_no_other(owner: FakeBrowser) -> None:
    assert leads_to(await owner.open("/app")) == "/app/organizations/gamma"
    listed = (await owner.open(OWN)).text
    assert "waiting for approval" in listed
    assert "suspended" in listed
    assert [slug for slug in ("alpha", "beta", "gamma") if f'href="/app/organizations/{slug}"' in listed] == ["gamma"]


async def test_without_an_active_organization_the_console_begins_with_the_list(owner: FakeBrowser, pool: Pool) -> None:
    async with pool.connection() as connection:
        await connection.execute("update organizations set status = 'suspended', suspended_reason = 'a test' where slug = 'gamma'")
    assert leads_to(await owner.open("/app")) == OWN


async def test_a_page_with_a_wrong_filter_leads_to_the_page_without_it(owner: FakeBrowser) -> None:
    path = "/app/organizations/gamma/members"
    answer = await owner.open(f"{path}?role=king")
    assert answer.status == 400
    assert f'href="{path}"' in answer.text
