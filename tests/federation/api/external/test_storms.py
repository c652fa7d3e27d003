"""Access of external clients that ends while it is used or given."""

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
    """The path of the external clients of the API resource."""
    [(resource,)] = await run_sql(client.tenant.pool, "select id from api_resources")
    return f"{client.tenant.path}/api-resources/{resource}/external-clients"


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
    """Users agree to a new client while an admin switches external clients off."""
    tenant, parties = client.tenant, []
    desk = await add_relying_party(tenant, client.browser, "desk")
    for number in range(USERS):
        browser = FakeBrowser(app)
        account = await add_account(tenant.ports, f"user{number}@example.com")
        desk.browser = browser
        await sign_in_browser(desk, account, provider="password", is_known=False)
        parties.append(ExternalParty(tenant, browser, client.server, client.address, client.redirect_uri))
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
            assert (await client.exchange(fields["code"])).status in (400, 403)
