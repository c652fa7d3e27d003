"""The rate limit on sign-ins at platform providers, as at connections: an answer counts only if it fails."""

from collections.abc import Sequence

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.rate_limits import AUTH
from entrypoints.http.app import Edge
from tests.fakes.provider import FakeProvider
from tests.federation.connections.openid.test_limits import left
from tests.federation.provider_sign_in import ProviderSignIn
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import Answer, make_edge, run_concurrently

pytestmark = pytest.mark.slow


@pytest.fixture
def edge() -> Edge:
    """The documented limits: 20 at once, and 1 per second. The test clock stands still."""
    return make_edge(rate_limit_factor=1.0)


async def test_each_sign_in_that_could_start_can_end(app: QuartTrio, provider: FakeProvider, pool: Pool) -> None:
    """Thirty browsers share an address, and twenty go to the provider at once. Then all tokens are taken."""
    sign_ins = [ProviderSignIn(FakeBrowser(app), provider, pool) for _ in range(30)]
    await sign_ins[0].sign_in()  # creates the account
    ways: Sequence[Answer] = await run_concurrently(
        30, lambda number: sign_ins[number].browser.open(f"/auth/{provider.provider}?next=/app")
    )
    begun = [(sign_in, way) for sign_in, way in zip(sign_ins, ways, strict=True) if way.status == 302]
    assert [way.status for way in ways].count(429) == 30 - AUTH.burst == 30 - len(begun)
    for sign_in, way in begun:
        callback = provider.authorize(way.headers["Location"]).removeprefix("http://localhost")
        assert leads_to(await sign_in.come_back(callback)) == "/app"
    assert await left(app) == AUTH.burst


async def test_an_answer_that_fails_or_ends_no_provider_request_takes_a_token(app: QuartTrio, provider: FakeProvider, pool: Pool) -> None:
    sign_in = ProviderSignIn(FakeBrowser(app), provider, pool)
    provider.refuses = "access_denied"
    assert (await sign_in.complete()).status == 400
    provider.refuses = None
    assert (await sign_in.come_back(f"/auth/{provider.provider}/callback?state=x&code=x")).status == 400
    await sign_in.sign_in()
    assert await left(app) == AUTH.burst - 2
    statuses = [(await sign_in.come_back(f"/auth/{provider.provider}/callback?state=x&code=x")).status for _ in range(2)]
    assert statuses == [429, 429]
