"""An application with an API resource, and the browser session of a user who has agreed to nothing."""

import pytest

from core.accounts.model.accounts import Account
from tests.federation.api.relying import add_relying_party, sign_in_browser
from tests.federation.api.resources.orders import OrdersClient
from tests.support.browser import FakeBrowser
from tests.support.services import add_api_resource, verify_domain
from tests.support.tenants import Tenant


@pytest.fixture
async def orders(acme: Tenant, browser: FakeBrowser, user: Account) -> OrdersClient:
    party = await add_relying_party(acme, browser)
    await sign_in_browser(party, user, provider="password")
    await verify_domain(acme.pool, acme.org)
    return OrdersClient(party, await add_api_resource(acme.pool, acme.org, services=(party.service,)))
