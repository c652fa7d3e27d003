"""Sign-ins while an admin deactivates the connection, or requires it: no session is left that the new state refuses."""

from urllib.parse import urlencode

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import OWNER
from core.kernel.values import Email
from ports import Ports
from tests.federation.connections.people.conftest import House
from tests.support.browser import FakeBrowser
from tests.support.builders import PASSWORD, Api, add_account, add_member, run_concurrently, run_sql, sign_in

API = "/api/organizations/acme"
ADMIN = 4  # tasks, out of eight that begin at once

pytestmark = pytest.mark.slow


@pytest.fixture
async def token(house: House, ports: Ports, pool: Pool) -> str:
    """Return the access token for an owner with an address outside the organization's domains."""
    owner = await add_account(ports, "owner@elsewhere.example")
    await add_member(pool, house.org, owner.id, OWNER, confirmed=True)
    return (await sign_in(ports, owner, house.org)).access_token


async def test_sign_ins_during_a_deactivation_leave_no_session(house: House, api: Api, pool: Pool, token: str) -> None:
    live = "select count(*) from sessions s join users u on u.id = s.user_id where s.ended_at is null and u.email = 'ada@example.com'"
    house.issuer.claims = {"email_verified": True}

    async def act(number: int) -> int:
        if number == ADMIN:
            return (await api.post(f"{API}/connections/okta/deactivate", {}, token=token)).status
        browser, connection = FakeBrowser(house.app), f"/auth/connections/{house.connection.id}"
        answer = await browser.open(f"{connection}/start")
        if answer.status == 302:
            answer = await browser.open(f"{connection}/callback?{urlencode(house.issuer.authorize(answer.headers['Location']))}")
        return answer.status

    for _ in range(5):
        answers = await run_concurrently(8, act)
        assert answers[ADMIN] == 200
        assert {*answers} <= {200, 303, 403, 404, 409}, answers
        assert await run_sql(pool, live) == [(0,)]
        assert (await api.post(f"{API}/connections/okta/activate", {}, token=token)).status == 200
    assert (await house.arrive()).status == 303
    assert await run_sql(pool, live) == [(1,)]


async def test_sign_ins_while_the_connection_becomes_required_open_nothing(
    house: House, api: Api, ports: Ports, pool: Pool, token: str
) -> None:
    user = await add_account(ports, "ada@example.com")
    await add_member(pool, house.org, user.id, confirmed=True)
    browsers = [FakeBrowser(house.app) for _ in range(8)]
    required = {"required_connections": {"example.com": "okta"}, "version": 0}

    async def act(number: int) -> int:
        if number == ADMIN:
            answer = await api.call("PUT", f"{API}/sign-in-policy", required, token=token)
            assert answer.status == 200, answer.text
            return answer.status
        await browsers[number].sign_in(Email("ada@example.com"), PASSWORD)
        return (await browsers[number].open("/app/organizations/acme")).status

    answers = await run_concurrently(8, act)
    assert answers[ADMIN] == 200
    assert {*answers} <= {200, 303}
    opened = [(await browser.open("/app/organizations/acme")).status for number, browser in enumerate(browsers) if number != ADMIN]
    assert opened == [303] * 7, "a page that was open before is refused, too"
