"""Applications with a user who is signed in in the browser, for modules that override `browser` with a FakeBrowser."""

import pytest

from core.accounts.model.accounts import Account
from tests.federation.api.relying import RelyingParty, add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser
from tests.support.tenants import Tenant


@pytest.fixture
async def relying_party(acme: Tenant, browser: FakeBrowser, user: Account) -> RelyingParty:
    application = await add_relying_party(acme, browser)
    await sign_in_browser(application, user)
    return application


@pytest.fixture
async def mobile_app(acme: Tenant, browser: FakeBrowser, user: Account) -> RelyingParty:
    application = await add_relying_party(acme, browser, "till", "mobile")
    await sign_in_browser(application, user)
    return application
