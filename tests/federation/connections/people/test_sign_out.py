"""A sign-in through a connection ends, at either side."""

from urllib.parse import urlencode

import pytest

from adapters.postgres.engine.pool import Pool
from tests.federation.connections.people.conftest import House
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import Api, run_sql

OWN_ORGANIZATIONS = "/app/account/organizations"


async def test_a_sign_in_ends_at_both_sides(house: House, api: Api, pool: Pool) -> None:
    first, second = FakeBrowser(house.app), FakeBrowser(house.app)
    await house.arrive(first, sid="s1")
    await house.arrive(second, sid="s2")
    path = f"/auth/connections/{house.connection.id}"
    raw = urlencode({"logout_token": house.issuer.logout_token()}).encode()
    reported = await api.call("POST", f"{path}/backchannel-logout", raw=raw, headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert reported.status == 200, reported.text
    assert [(await each.open(OWN_ORGANIZATIONS)).status for each in (first, second)] == [303, 200]
    assert f"url={path}/sign-out" in (await second.submit("/app/sign-out", OWN_ORGANIZATIONS)).text
    url = leads_to(await second.open(f"{path}/sign-out"))
    assert url.startswith(f"{house.issuer.url}/logout?")
    assert "id_token_hint=" in url
    assert await run_sql(pool, "select count(*) from sessions where ended_at is null") == [(0,)]


@pytest.mark.slow
async def test_an_id_token_with_thousands_of_groups_signs_in_and_is_left_out_of_the_sign_out(house: House) -> None:
    """With the ID token, the URL for the sign-out would be too long. A logout token's size does not depend on the groups."""
    browser = FakeBrowser(house.app)
    groups = [f"/departments/of/the/company/{number:04}" for number in range(4_000)]
    assert leads_to(await house.arrive(browser, groups=groups, sid="s1")) == "/app"
    await browser.submit("/app/sign-out", OWN_ORGANIZATIONS)
    url = leads_to(await browser.open(f"/auth/connections/{house.connection.id}/sign-out"))
    assert (url.startswith(f"{house.issuer.url}/logout?"), "id_token_hint=" in url) == (True, False)
