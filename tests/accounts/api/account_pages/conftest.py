"""A signed-in user's browser."""

from uuid import UUID

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from tests.accounts.api.account_pages.paths import device_of
from tests.support.browser import HOME, FakeBrowser, leads_to
from tests.support.builders import Api


@pytest.fixture
async def browser(app: QuartTrio, user: Account) -> FakeBrowser:
    """A browser with a session."""
    browser = FakeBrowser(app)
    assert leads_to(await browser.sign_in()) == HOME
    return browser


@pytest.fixture
async def other_device(browser: FakeBrowser, api: Api, pool: Pool) -> tuple[UUID, str]:
    """Another device of the user, and the access token for its session."""
    token = (await api.login(headers={"User-Agent": "curl/8.5.0"})).json["access_token"]
    return await device_of(pool, "curl on unknown system"), token
