"""A victim who uses an honest application, and the attacker's application in another organization."""

import pytest

from core.accounts.model.accounts import Account
from tests.federation.api.relying import RelyingParty, add_relying_party, give_consent, sign_in_browser
from tests.support.browser import FakeBrowser
from tests.support.tenants import Tenant


@pytest.fixture
async def shop(acme: Tenant, browser: FakeBrowser, user: Account) -> RelyingParty:
    """The honest application. The victim is signed in and has agreed to all scopes."""
    application = await add_relying_party(acme, browser)
    await sign_in_browser(application, user, provider="password")
    await give_consent(application, user)
    return application


@pytest.fixture
async def evil(other_tenant: Tenant, browser: FakeBrowser) -> RelyingParty:
    """The attacker's application. The victim has never used it."""
    return await add_relying_party(other_tenant, browser, "evil")


@pytest.fixture
async def till(acme: Tenant, browser: FakeBrowser, shop: RelyingParty, user: Account) -> RelyingParty:
    """The honest organization's native application: a public client."""
    application = await add_relying_party(acme, browser, "till", "mobile")
    await give_consent(application, user)
    return application
