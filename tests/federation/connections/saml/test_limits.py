"""The rate limit on SAML sign-ins: a success gives back its charges, and every other response stays charged."""

from dataclasses import replace
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.rate_limits import AUTH
from entrypoints.http.app import Edge
from entrypoints.http.pages.federation.connections.sign_in import AGAIN, USUAL_FORM
from ports import Ports
from tests.federation.connections.people.conftest import DOMAIN
from tests.federation.connections.saml.saml_case import SamlCase, connect, read_request
from tests.support.browser import FakeBrowser, hidden_fields, leads_to
from tests.support.builders import Answer, add_organization, make_edge, run_concurrently, run_sql
from tests.support.direct import ask

pytestmark = pytest.mark.slow

UNSOLICITED = """update connections set settings = settings || '{"unsolicited": true}' where org_id is not null"""
SITE = "https://idp.example.com"


@pytest.fixture
def edge() -> Edge:
    """The documented limits: 20 at once, and 1 per second. The test clock stands still."""
    return make_edge(rate_limit_factor=1.0)


@pytest.fixture
async def saml_case(app: QuartTrio, ports: Ports, pool: Pool) -> SamlCase:
    org_id = await add_organization(pool, "acme")
    await run_sql(pool, DOMAIN, org_id, "example.com")
    saml_case = await connect(ports, org_id)
    await run_sql(pool, "update connections set state = 'active' where org_id is not null")
    return saml_case


def start_path(saml_case: SamlCase) -> str:
    return f"/auth/connections/{saml_case.connection.id}/start?next=/app"


async def begin(browser: FakeBrowser, saml_case: SamlCase, person: int) -> str:
    """Go to the identity provider, and return its response."""
    return respond(saml_case, person, await browser.open(start_path(saml_case), follows=False))


def respond(saml_case: SamlCase, person: int, way: Answer) -> str:
    """Return the identity provider's response to the request that this answer brings there."""
    name_id = f'<saml:NameID Format="urn:oasis:names:tc:SAML:2.0:nameid-format:persistent">{person}</saml:NameID>'
    return saml_case.respond(read_request(way).get("ID"), name_id=name_id, attributes=(("email", [f"user-{person}@example.com"]),))


async def post_first(app: QuartTrio, saml_case: SamlCase, text: str) -> Answer:
    """Post a response from the identity provider's site."""
    return await FakeBrowser(app, SITE).send(saml_case.acs, SAMLResponse=text)


async def sign_in(app: QuartTrio, saml_case: SamlCase, person: int) -> str:
    """Sign in from our page. Return where the user continues."""
    return await complete(app, saml_case, browser := FakeBrowser(app), await begin(browser, saml_case, person))


async def complete(app: QuartTrio, saml_case: SamlCase, browser: FakeBrowser, text: str) -> str:
    """Post a response in two steps. Return where the browser continues."""
    page = await post_first(app, saml_case, text)
    return leads_to(await browser.send(saml_case.acs, **hidden_fields(page)))


async def left(app: QuartTrio) -> int:
    """Use up this address's bucket. Return how many requests it allowed."""
    for count in range(100):
        if (await ask(app, "GET", "/auth/reset-password")).status == 429:
            return count
    raise AssertionError("there is no limit")


async def test_thirty_users_of_one_address_sign_in_in_the_same_second(app: QuartTrio, saml_case: SamlCase, pool: Pool) -> None:
    assert {await sign_in(app, saml_case, person) for person in range(30)} == {"/app"}
    assert set(await run_concurrently(6, lambda number: sign_in(app, saml_case, 30 + number))) == {"/app"}
    assert await run_sql(pool, "select 1 from sign_in_charges") == []
    assert await left(app) == AUTH.burst


async def start_from_provider(saml_case: SamlCase, browser: FakeBrowser, person: int) -> Answer:
    """Post a response without a request, as the second POST. Return the way to the identity provider, with our request."""
    return await browser.send(saml_case.acs, SAMLResponse=saml_case.unsolicited(f"_{person}"), **{AGAIN: "1"})


@pytest.mark.parametrize("is_known", [False, True])
async def test_thirty_users_of_one_address_come_from_their_identity_provider(
    app: QuartTrio, saml_case: SamlCase, pool: Pool, *, is_known: bool
) -> None:
    """In new browsers, and in browsers with a device cookie."""
    await run_sql(pool, UNSOLICITED)

    async def sign_in_from_provider(person: int) -> str:
        browser = FakeBrowser(app)
        if is_known:
            await browser.open("/app/sign-in")
        page = await post_first(app, saml_case, saml_case.unsolicited(f"_{person}"))
        return await complete(app, saml_case, browser, respond(saml_case, person, await browser.send(saml_case.acs, **hidden_fields(page))))

    assert {await sign_in_from_provider(person) for person in range(30)} == {"/app"}
    assert await run_sql(pool, "select 1 from sign_in_charges") == []
    assert await left(app) == AUTH.burst


@pytest.mark.parametrize("is_initiated", [False, True])
async def test_of_thirty_users_at_once_twenty_go_to_their_identity_provider_and_all_of_them_sign_in(
    app: QuartTrio, saml_case: SamlCase, pool: Pool, *, is_initiated: bool
) -> None:
    await run_sql(pool, UNSOLICITED)
    browsers = [FakeBrowser(app) for _ in range(30)]

    async def start(person: int) -> Answer:
        if is_initiated:
            return await start_from_provider(saml_case, browsers[person], person)
        return await browsers[person].open(start_path(saml_case), follows=False)

    async def come_back(person: int) -> str:
        return await complete(app, saml_case, browsers[person], respond(saml_case, person, ways[person]))

    ways = await run_concurrently(30, start)
    begun = [person for person, way in enumerate(ways) if way.status < 400]
    assert [way.status for way in ways].count(429) == 30 - AUTH.burst == 30 - len(begun)
    assert set(await run_concurrently(len(begun), lambda number: come_back(begun[number]))) == {"/app"}
    assert await left(app) == AUTH.burst


@pytest.mark.parametrize("is_replayed", [False, True])
async def test_of_thirty_unsolicited_responses_without_a_sign_in_twenty_lead_to_the_identity_provider(
    app: QuartTrio, saml_case: SamlCase, pool: Pool, *, is_replayed: bool
) -> None:
    await run_sql(pool, UNSOLICITED)
    statuses = [(await start_from_provider(saml_case, FakeBrowser(app), 1 if is_replayed else person)).status for person in range(30)]
    assert statuses == [303] * AUTH.burst + [429] * 10
    assert await run_sql(pool, "select count(*) from sign_in_flows") == [(AUTH.burst,)]


@pytest.mark.parametrize("way", ["second", "both", "stateless", "broken", "large"])
async def test_of_thirty_responses_that_sign_no_user_in_twenty_pass(app: QuartTrio, saml_case: SamlCase, pool: Pool, way: str) -> None:
    """No request beyond the limit is in the sign-in log."""
    browser = FakeBrowser(app)
    await browser.open("/app/sign-in")  # it has a device cookie
    await run_sql(pool, "delete from rates")
    texts = {"broken": "<", "large": "x" * USUAL_FORM}
    changes: dict[str, Any] = {"response_attributes": ""} if way == "stateless" else {}
    statuses = []
    for number in range(30):
        fields = {"SAMLResponse": texts.get(way) or saml_case.respond(f"_{number}", **changes), AGAIN: "1"}
        if way == "both":
            fields = hidden_fields(await post_first(app, saml_case, fields["SAMLResponse"]))
        statuses.append((await browser.send(saml_case.acs, **fields)).status)
    assert statuses == [400] * AUTH.burst + [429] * 10
    recorded = AUTH.burst if way in ("second", "both", "stateless") else 0
    assert await run_sql(pool, "select coalesce(sum(attempts), 0)::int from login_events") == [(recorded,)]


async def test_a_first_post_of_usual_size_is_not_charged(app: QuartTrio, saml_case: SamlCase) -> None:
    assert {(await post_first(app, saml_case, "x")).status for _ in range(30)} == {200}
    assert await left(app) == AUTH.burst
    assert (await post_first(app, saml_case, "x")).status == 200
    assert (await post_first(app, saml_case, "x" * USUAL_FORM)).status == 429


async def test_a_response_that_comes_ten_times_is_charged_nine_times(app: QuartTrio, saml_case: SamlCase) -> None:
    browser = FakeBrowser(app)
    text = await begin(browser, saml_case, 1)

    async def post(_: int) -> int:
        return (await browser.send(saml_case.acs, SAMLResponse=text, **{AGAIN: "1"})).status

    assert sorted(await run_concurrently(10, post)) == [303, *[400] * 9]
    assert await left(app) == AUTH.burst - 9


async def test_a_sign_in_gives_back_nothing_of_responses_that_failed(app: QuartTrio, saml_case: SamlCase) -> None:
    """The first response has a wrong signature, and two responses end no provider request."""
    browser = FakeBrowser(app)
    stranger = replace(saml_case, provider=replace(saml_case.provider, certificate=saml_case.provider.attacker))
    for text in (await begin(browser, stranger, 1), saml_case.respond("_x"), saml_case.unsolicited()):
        page = await post_first(app, saml_case, text)
        assert (await browser.send(saml_case.acs, **hidden_fields(page))).status == 400
    assert await complete(app, saml_case, browser, await begin(browser, saml_case, 1)) == "/app"
    assert await left(app) == AUTH.burst - 3
