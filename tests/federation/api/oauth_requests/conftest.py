"""A user's browser, and the application that it comes from."""

import pytest

from tests.federation.api.relying import RelyingParty, add_relying_party
from tests.support.browser import FakeBrowser
from tests.support.tenants import Tenant


@pytest.fixture
async def relying_party(acme: Tenant, browser: FakeBrowser) -> RelyingParty:
    return await add_relying_party(acme, browser)


@pytest.fixture
async def mobile_app(acme: Tenant, browser: FakeBrowser) -> RelyingParty:
    application = await add_relying_party(acme, browser, service_type="mobile")
    await application.set_redirect_uris(
        "https://shop.example.com/callback", "com.example.shop:/back", "http://127.0.0.1/back", "http://[::1]/b"
    )
    return application
