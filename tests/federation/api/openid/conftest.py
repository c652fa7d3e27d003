"""A user's browser, an application that asks for OpenID Connect, and the browser's session."""

import pytest

from core.accounts.model.accounts import Account
from tests.federation.api.openid.client import OpenIdClient
from tests.federation.api.relying import add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser
from tests.support.tenants import Tenant


@pytest.fixture
async def shop(acme: Tenant, browser: FakeBrowser) -> OpenIdClient:
    """An application. The browser has no session."""
    return OpenIdClient(await add_relying_party(acme, browser))


@pytest.fixture
async def signed_in(shop: OpenIdClient, user: Account) -> OpenIdClient:
    """The application, with a session of `user` in the browser, who signed in with a password and has not agreed to anything."""
    await sign_in_browser(shop.party, user, provider="password")
    return shop
