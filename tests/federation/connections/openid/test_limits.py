"""The rate limit on OpenID Connect sign-ins: a success gives back its charges, and every other answer stays charged."""

from dataclasses import dataclass
from urllib.parse import urlencode

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.rate_limits import AUTH
from entrypoints.http.app import Edge
from ports import Ports
from tests.fakes.openid_issuers import FakeIssuer, OpenIdIssuers
from tests.federation.connections.openid.test_checks import connect, reach_loopback
from tests.federation.connections.people.conftest import DOMAIN
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import Answer, add_organization, make_edge, run_concurrently, run_sql
from tests.support.direct import ask

pytestmark = pytest.mark.slow


@pytest.fixture
def edge() -> Edge:
    """The documented limits: 20 at once, and 1 per second. The test clock stands still."""
    return make_edge(rate_limit_factor=1.0)


@dataclass(frozen=True, slots=True)
class SignIns:
    """A connection, its identity provider, and the ways there and back."""

    path: str
    issuer: FakeIssuer

    async def start(self, browser: FakeBrowser) -> Answer:
        return await browser.open(f"{self.path}/start?next=/app", follows=False)

    async def start_by_form(self, browser: FakeBrowser) -> Answer:
        """Start as the identity provider does, with a form."""
        to_get = await browser.send(f"{self.path}/initiate", iss=self.issuer.url)
        return await browser.open(leads_to(to_get), follows=False)

    async def come_back(self, browser: FakeBrowser, way: Answer) -> Answer:
        answer = self.issuer.authorize(str(way.headers["Location"]))
        return await browser.open(f"{self.path}/callback?{urlencode(answer)}", follows=False)


@pytest.fixture
async def sign_ins(app: QuartTrio, ports: Ports, pool: Pool, server: OpenIdIssuers) -> SignIns:
    reach_loopback(app, ports)
    org_id = await add_organization(pool, "acme")
    await run_sql(pool, DOMAIN, org_id, "example.com")
    issuer, connection = await connect(ports, org_id, server)
    issuer.claims = {"email_verified": True}
    return SignIns(f"/auth/connections/{connection.id}", issuer)


async def left(app: QuartTrio) -> int:
    """Use up this address's bucket. Return how many requests it allowed."""
    for count in range(100):
        if (await ask(app, "GET", "/auth/reset-password")).status == 429:
            return count
    raise AssertionError("there is no limit")


async def test_thirty_sign_ins_of_one_address_succeed_in_the_same_second(app: QuartTrio, sign_ins: SignIns) -> None:
    """The identity provider initiates half the sign-ins."""
    for number in range(30):
        browser = FakeBrowser(app)
        way = await (sign_ins.start_by_form if number % 2 else sign_ins.start)(browser)
        assert leads_to(await sign_ins.come_back(browser, way)) == "/app"
    assert await left(app) == AUTH.burst


async def test_of_thirty_at_once_twenty_go_to_their_identity_provider_and_all_of_them_sign_in(app: QuartTrio, sign_ins: SignIns) -> None:
    browsers = [FakeBrowser(app) for _ in range(30)]
    first = FakeBrowser(app)
    assert leads_to(await sign_ins.come_back(first, await sign_ins.start(first))) == "/app"
    ways = await run_concurrently(30, lambda number: sign_ins.start(browsers[number]))
    begun = [number for number, way in enumerate(ways) if way.status < 400]
    assert [way.status for way in ways].count(429) == 30 - AUTH.burst == 30 - len(begun)
    ends = await run_concurrently(len(begun), lambda number: sign_ins.come_back(browsers[begun[number]], ways[begun[number]]))
    assert {leads_to(end) for end in ends} == {"/app"}
    assert await left(app) == AUTH.burst


async def test_a_sign_in_gives_back_nothing_of_answers_that_failed(app: QuartTrio, sign_ins: SignIns) -> None:
    """The first answer is an error from the identity provider, and the second answer ends no provider request."""
    browser = FakeBrowser(app)
    sign_ins.issuer.refuses = "access_denied"
    assert (await sign_ins.come_back(browser, await sign_ins.start(browser))).status == 400
    sign_ins.issuer.refuses = None
    assert (await browser.open(f"{sign_ins.path}/callback?state=x&code=x")).status == 400
    assert leads_to(await sign_ins.come_back(browser, await sign_ins.start(browser))) == "/app"
    assert await left(app) == AUTH.burst - 2


async def test_of_thirty_answers_without_a_provider_request_twenty_pass(app: QuartTrio, sign_ins: SignIns) -> None:
    browser = FakeBrowser(app)
    await browser.open("/app/sign-in")
    statuses = [(await browser.open(f"{sign_ins.path}/callback?state=x{number}&code=x")).status for number in range(30)]
    assert statuses == [400] * AUTH.burst + [429] * 10
