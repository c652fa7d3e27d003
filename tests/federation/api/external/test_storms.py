"""External clients' access that begins or ends while it is used."""

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from tests.federation.api.external.external import ExternalParty
from tests.federation.api.relying import add_relying_party, redirect_parts, sign_in_browser
from tests.support.browser import FakeBrowser
from tests.support.builders import Answer, add_account, run_concurrently, run_sql

pytestmark = pytest.mark.slow
USERS = 8


@pytest.fixture
async def path(client: ExternalParty) -> str:
    """The path for the API resource's external clients."""
    [(resource,)] = await run_sql(client.tenant.pool, "select id from api_resources")
    return f"{client.tenant.path}/api-resources/{resource}/external-clients"


async def add_users(client: ExternalParty, app: QuartTrio, count: int) -> list[ExternalParty]:
    """Add users who have agreed to nothing, with a browser per user."""
    parties = []
    desk = await add_relying_party(client.tenant, client.browser, "desk")
    for number in range(count):
        desk.browser = FakeBrowser(app)
        account = await add_account(client.tenant.ports, f"user{number}@example.com")
        await sign_in_browser(desk, account, provider="password", is_known=False)
        parties.append(ExternalParty(client.tenant, desk.browser, client.server, client.address, client.redirect_uri))
    return parties


async def test_twenty_first_consents_at_once_make_one_client(client: ExternalParty, app: QuartTrio) -> None:
    parties = await add_users(client, app, 20)
    pages = await run_concurrently(20, lambda number: parties[number].open())
    assert {page.status for page in pages} == {200}
    assert len(client.server.requests) == 1
    answers = await run_concurrently(20, lambda number: parties[number].browser.answer(pages[number], "continue"))
    codes = [redirect_parts(answer)[1]["code"] for answer in answers]
    for table in ("services where client_uri is not null", "api_resource_clients", "audit_log where action = 'external_client.added'"):
        assert await run_sql(client.tenant.pool, f"select count(*) from {table}") == [(1,)], table  # noqa: S608
    tokens = await run_concurrently(20, lambda number: client.exchange(codes[number]))
    assert {answer.status for answer in tokens} == {200}


async def test_no_session_outlives_the_end_of_its_grant(client: ExternalParty, user: Account, path: str) -> None:
    pairs = [await client.tokens() for _ in range(12)]
    [(service,)] = await run_sql(client.tenant.pool, "select id from services where client_uri is not null")

    async def act(number: int) -> Answer:
        if number == len(pairs):
            return await client.api.call("DELETE", f"{path}/grants/{user.id}/{service}", token=client.tenant.token("admin"))
        return await client.refresh(pairs[number])

    answers = await run_concurrently(len(pairs) + 1, act)
    assert answers[-1].status == 204
    assert {answer.status for answer in answers[:-1]} <= {200, 400}
    for pair in [answer.json for answer in answers if answer.status == 200]:
        assert (await client.refresh(pair)).json["error"] == "invalid_grant"


@pytest.mark.parametrize("place", [0, USERS])
async def test_no_consent_outlives_the_end_of_the_policy(client: ExternalParty, app: QuartTrio, path: str, place: int) -> None:
    """Users agree to a new client while an admin switches external clients off. A code is issued before, or not at all."""
    tenant, parties = client.tenant, await add_users(client, app, USERS)
    pages = [await party.open() for party in parties]
    assert {page.status for page in pages} == {200}

    async def act(number: int) -> Answer:
        if number == place:
            return await tenant.api.call("PUT", path, {"admit": "none"}, token=tenant.token("admin"))
        user = number - (number > place)
        return await parties[user].browser.answer(pages[user], "continue")

    answers = await run_concurrently(USERS + 1, act)
    assert answers.pop(place).status == 200
    rows = "select 1 from api_resource_clients c join services v on v.id = c.service_id where v.client_uri is not null"
    assert await run_sql(tenant.pool, rows) == []
    for answer in answers:
        if answer.status == 303 and "code" in (fields := redirect_parts(answer)[1]):
            assert (await client.exchange(fields["code"])).status == 400
    assert (await client.open()).status == 403
