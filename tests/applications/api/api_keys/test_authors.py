"""The pages for API keys and SCIM tokens show the creator."""

import re

import pytest

from adapters.postgres.engine.pool import Pool
from tests.applications.api.api_keys.shop import Shop
from tests.federation.api.relying import add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser
from tests.support.builders import run_sql
from tests.support.tenants import Tenant

KEYS, DIRECTORY = "/app/organizations/acme/applications/shop/api-keys", "/app/organizations/acme/directory"


async def authors(browser: FakeBrowser, path: str) -> list[str]:
    answer = await browser.open(path)
    assert answer.status == 200, answer.text
    assert '<td data-label="Created"><time' in answer.text
    return re.findall(r'<p class="quiet">by <bdi>([^<]+)</bdi></p>', answer.text)


@pytest.mark.parametrize("reader", ["owner", "admin", "member"])
async def test_readers_of_the_audit_log_see_who_created_a_credential(
    shop: Shop, acme: Tenant, pool: Pool, browser: FakeBrowser, reader: str
) -> None:
    await shop.add_key("admin")
    await acme.api.call("POST", f"{acme.path}/scim-tokens", {"name": "Okta"}, token=acme.token("owner"))
    await sign_in_browser(await add_relying_party(acme, browser, "portal"), acme.people[reader])
    sees = reader != "member"
    assert await authors(browser, KEYS) == ([acme.people["admin"].email] if sees else [])
    if not sees:
        return
    assert await authors(browser, DIRECTORY) == [acme.people["owner"].email]
    await run_sql(pool, "update api_keys set created_by = gen_random_uuid()")
    assert await authors(browser, KEYS) == ["a former user"]
