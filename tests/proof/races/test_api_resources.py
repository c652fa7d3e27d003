"""Grants for an API resource that end while they are used."""

import pytest

from core.accounts.model.accounts import Account
from tests.federation.api.relying import add_relying_party, sign_in_browser
from tests.federation.api.resources.orders import OrdersClient
from tests.support.browser import FakeBrowser
from tests.support.builders import Answer, run_concurrently
from tests.support.services import add_api_resource, verify_domain
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow


@pytest.fixture
async def orders(acme: Tenant, browser: FakeBrowser, user: Account) -> OrdersClient:
    party = await add_relying_party(acme, browser)
    await sign_in_browser(party, user, provider="password")
    await verify_domain(acme.pool, acme.org)
    return OrdersClient(party, await add_api_resource(acme.pool, acme.org, services=(party.service,)))


@pytest.mark.parametrize("path", ["", "/clients/{client_id}"])
async def test_no_grant_outlives_its_end(orders: OrdersClient, acme: Tenant, path: str) -> None:
    """Twenty sessions are refreshed while the API resource, or the application on its list, is removed."""
    pairs = [await orders.tokens() for _ in range(19)]
    url = f"{acme.path}/api-resources/{orders.resource}{path.format(client_id=orders.party.client_id)}"

    async def act(number: int) -> Answer:
        if number == len(pairs):
            return await acme.api.delete(url, token=acme.token("admin"))
        return await orders.refresh(pairs[number])

    answers = await run_concurrently(len(pairs) + 1, act)
    assert sorted({answer.status for answer in answers} - {200, 400}) == [204]
    refreshed = [answer.json for answer in answers if answer.status == 200]
    for pair in refreshed:
        assert (await orders.refresh(pair)).json["error"] == "invalid_grant"
