"""A provider of tokens that expire early, and clients that link accounts."""

from collections.abc import Iterator

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.kernel.connections import CODEHOST
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.fakes.provider import FakeProvider, Person
from tests.federation.api.social.links.clients import DESK, SHOP, TOKEN_LIFETIME, ApiClient, open_ticket, other_browser
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.builders import Api, sign_in
from tests.support.services import add_service
from tests.support.tenants import Tenant


@pytest.fixture(params=[CODEHOST])
def provider(request: pytest.FixtureRequest, clock: FakeClock) -> Iterator[FakeProvider]:
    with FakeProvider(request.param, now=lambda: clock.now().timestamp()) as running:
        running.expires_in = int(TOKEN_LIFETIME.total_seconds())
        yield running


@pytest.fixture
async def api_client(api: Api, ports: Ports, user: Account, provider: FakeProvider) -> ApiClient:
    return ApiClient(api, (await sign_in(ports, user)).access_token, provider.provider)


@pytest.fixture
async def linked_client(
    provider_sign_in: ProviderSignIn, api_client: ApiClient, app: QuartTrio, acme: Tenant, other_tenant: Tenant
) -> ApiClient:
    """The client for a user with an identity that has another address, and is also linked at two organizations' services."""
    await add_service(provider_sign_in.pool, acme.org)
    await add_service(provider_sign_in.pool, other_tenant.org, "desk")
    provider_sign_in.provider.person = Person(email="x@codehost.example")
    assert (await provider_sign_in.browser.open(await open_ticket(provider_sign_in, await api_client.start_link()))).status == 303
    await provider_sign_in.browser.submit("/app/sign-out")
    for service in (SHOP, DESK):
        await other_browser(provider_sign_in, app).sign_in(**service)
    return api_client
