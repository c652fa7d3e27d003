"""The rate limit of responses at our ACS: a sign-in that succeeds gives back its charge, and every other response stays charged."""

from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.rate_limits import AUTH
from entrypoints.http.app import Edge
from entrypoints.http.pages.federation.connections.acs import AGAIN, USUAL_FORM
from ports import Ports
from tests.federation.connections.people.conftest import DOMAIN
from tests.federation.connections.saml.visits import SamlVisits, connect, read_request
from tests.support.browser import FakeBrowser, hidden_fields, leads_to
from tests.support.builders import Answer, add_organization, make_edge, run_concurrently, run_sql
from tests.support.direct import ask

pytestmark = pytest.mark.slow

SITE = "https://idp.example.com"


@pytest.fixture
def edge() -> Edge:
    """The documented limits: 20 at once, and one a second. The clock of the tests stands still."""
    return make_edge(rate_limit_factor=1.0)


@pytest.fixture
async def visits(app: QuartTrio, ports: Ports, pool: Pool) -> SamlVisits:
    org_id = await add_organization(pool, "acme")
    await run_sql(pool, DOMAIN, org_id, "example.com")
    visits = await connect(ports, org_id)
    await run_sql(pool, "update connections set state = 'active' where org_id is not null")
    return visits


async def begin(browser: FakeBrowser, visits: SamlVisits, person: int) -> str:
    """Go to the identity provider, and return its response."""
    request_id = read_request(await browser.open(f"/auth/connections/{visits.connection.id}/start?next=/app")).get("ID")
    name_id = f'<saml:NameID Format="urn:oasis:names:tc:SAML:2.0:nameid-format:persistent">{person}</saml:NameID>'
    return visits.respond(request_id, name_id=name_id, attributes=(("email", [f"user-{person}@example.com"]),))


async def post_first(app: QuartTrio, visits: SamlVisits, text: str) -> Answer:
    """Post a response from the site of the identity provider."""
    return await FakeBrowser(app, SITE).send(visits.acs, SAMLResponse=text)


async def left(app: QuartTrio) -> int:
    """Use up the bucket of this address. Return how many requests it allowed."""
    for count in range(100):
        if (await ask(app, "GET", "/auth/reset-password")).status == 429:
            return count
    raise AssertionError("there is no limit")


async def test_thirty_users_of_one_address_sign_in_in_the_same_second(app: QuartTrio, visits: SamlVisits, pool: Pool) -> None:
    async def sign_in(person: int) -> str:
        browser = FakeBrowser(app)
        page = await post_first(app, visits, await begin(browser, visits, person))
        return leads_to(await browser.send(visits.acs, **hidden_fields(page)))

    assert {await sign_in(person) for person in range(30)} == {"/app"}
    assert set(await run_concurrently(6, lambda number: sign_in(30 + number))) == {"/app"}
    assert await run_sql(pool, "select 1 from sign_in_charges") == []
    assert await left(app) == AUTH.burst


@pytest.mark.parametrize("way", ["first", "second", "both", "stateless", "broken", "large"])
async def test_of_thirty_responses_that_sign_no_user_in_twenty_pass(app: QuartTrio, visits: SamlVisits, pool: Pool, way: str) -> None:
    """No request beyond the limit is in the sign-in log."""
    browser = FakeBrowser(app)
    await browser.open("/app/sign-in")  # it has a device cookie
    await run_sql(pool, "delete from rates")
    texts = {"broken": "<", "large": "x" * USUAL_FORM}
    changes: dict[str, Any] = {"response_attributes": ""} if way == "stateless" else {}
    statuses = []
    for number in range(30):
        text = texts.get(way) or visits.respond(f"_{number}", **changes)
        if way in ("first", "both"):
            statuses.append((page := await post_first(app, visits, text)).status)
            if way == "both" and page.status == 200:
                statuses[-1] = (await browser.send(visits.acs, **hidden_fields(page))).status
        else:
            statuses.append((await browser.send(visits.acs, SAMLResponse=text, **{AGAIN: "1"})).status)
    assert statuses == [200 if way == "first" else 400] * AUTH.burst + [429] * 10
    recorded = AUTH.burst if way in ("second", "both", "stateless") else 0
    assert await run_sql(pool, "select coalesce(sum(attempts), 0)::int from login_events") == [(recorded,)]


async def test_the_charge_of_a_first_post_pays_one_second_post_of_its_address(app: QuartTrio, visits: SamlVisits, pool: Pool) -> None:
    browsers = [FakeBrowser(app) for _ in range(10)]
    for browser in browsers:
        await browser.open("/app/sign-in")
    page = await post_first(app, visits, visits.respond("_x"))
    await run_sql(pool, "delete from rates")

    async def post_second(number: int) -> int:
        return (await browsers[number].send(visits.acs, **hidden_fields(page))).status

    assert await run_concurrently(10, post_second) == [400] * 10
    assert await left(app) == AUTH.burst - 9
    await post_first(app, visits, visits.respond("_x"))
    await run_sql(pool, "delete from rates")
    await run_sql(pool, "update sign_in_charges set client = '198.51.100.7'")
    assert await post_second(0) == 400
    assert await left(app) == AUTH.burst - 1


async def test_a_first_post_that_is_refused_pays_nothing(app: QuartTrio, visits: SamlVisits, pool: Pool) -> None:
    assert await left(app) == AUTH.burst
    assert (await post_first(app, visits, visits.respond("_x"))).status == 429
    assert await run_sql(pool, "select 1 from sign_in_charges") == []
