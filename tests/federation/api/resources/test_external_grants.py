"""Grants of users to external clients: admins list and end them, users see and end them, and the policy ends them."""

from typing import Any

import pytest

from core.accounts.model.accounts import Account
from core.federation.oauth.model.external_grants import ExternalGrantNotFound
from core.programs.model.api_resources import ApiResourceNotFound
from tests.federation.api.relying import add_relying_party, sign_in_browser
from tests.federation.api.resources.orders import READ, OrdersClient
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import EMAIL, run_sql, sign_in
from tests.support.services import add_api_resource, verify_domain
from tests.support.tenants import Tenant

CLAUDE = "https://claude.ai/oauth/client"


class Assistant:
    """An external client that a user has connected to an API resource of acme."""

    def __init__(self, orders: OrdersClient, user: Account, tokens: dict[str, Any]) -> None:
        self.orders, self.user, self.tokens, self.tenant = orders, user, tokens, orders.party.tenant
        self.path = f"{self.tenant.path}/api-resources/{orders.resource}/external-clients"
        self.grant = f"{self.path}/grants/{user.id}/{orders.party.client_id}"

    async def mark(self, address: str | None) -> None:
        await run_sql(self.tenant.pool, "update services set client_uri = %s", address)

    async def grants(self, query: str = "") -> list[dict[str, Any]]:
        answer = await self.tenant.api.get(f"{self.path}/grants{query}", token=self.tenant.token("admin"))
        assert answer.status == 200, answer.text
        grants: list[dict[str, Any]] = answer.json["grants"]
        return grants

    async def is_live(self) -> bool:
        """Return whether the client can refresh its token. It does so as a registered application with the same rows."""
        await self.mark(None)
        answer = await self.orders.refresh(self.tokens)
        await self.mark(CLAUDE)
        if answer.status == 200:
            self.tokens = answer.json
        return answer.status == 200

    async def admit(self, **policy: Any) -> None:
        answer = await self.tenant.api.call("PUT", self.path, policy, token=self.tenant.token("admin"))
        assert answer.status == 200, answer.text


@pytest.fixture
async def assistant(acme: Tenant, browser: FakeBrowser, user: Account) -> Assistant:
    party = await add_relying_party(acme, browser, service_type="spa")
    await sign_in_browser(party, user, provider="password")
    await verify_domain(acme.pool, acme.org)
    orders = OrdersClient(party, await add_api_resource(acme.pool, acme.org, services=(party.service,)))
    assistant = Assistant(orders, user, await orders.tokens())
    await assistant.mark(CLAUDE)
    return assistant


async def test_an_admin_lists_and_ends_a_grant(assistant: Assistant, other_tenant: Tenant) -> None:
    tenant, orders = assistant.tenant, assistant.orders
    [grant] = await assistant.grants()
    assert grant == {
        "user_id": str(assistant.user.id),
        "email": EMAIL,
        "client_id": str(orders.party.client_id),
        "client_uri": CLAUDE,
        "client_name": "Shop",
        "scopes": [READ],
        "granted_at": grant["granted_at"],
        "last_used_at": grant["granted_at"],  # the clock stands still
    }
    assert (await assistant.grants(f"?search={EMAIL[:3]}"), await assistant.grants("?search=nobody@")) == ([grant], [])
    assert await assistant.is_live()
    foreign = assistant.grant.replace(tenant.path, other_tenant.path)
    answer = await other_tenant.api.call("DELETE", foreign, token=other_tenant.token("owner"))
    assert (answer.status, answer.json["error"]) == (404, ApiResourceNotFound.__doc__)
    assert (await tenant.api.call("DELETE", assistant.grant, token=tenant.token("admin"))).status == 204
    assert await assistant.grants() == []
    assert not await assistant.is_live()
    answer = await tenant.api.call("DELETE", assistant.grant, token=tenant.token("admin"))
    assert (answer.status, answer.json["error"]) == (404, ExternalGrantNotFound.__doc__)
    details = {
        "identifier": "https://api.example.com/",
        "name": "Orders API",
        "api_resource_id": str(orders.resource),
        "client": CLAUDE,
        "client_name": "Shop",
        "scopes": [READ],
    }
    admin = tenant.people["admin"].id
    assert (await tenant.recorded())[-1] == ("api_resource.grant.ended", "user", str(assistant.user.id), admin, details)
    await assistant.mark(None)
    assert (await orders.open()).status == 200, "the user is asked again"


async def test_a_user_sees_and_ends_a_grant(assistant: Assistant) -> None:
    tenant, party = assistant.tenant, assistant.orders.party
    token = (await sign_in(tenant.ports, assistant.user)).access_token
    [consent] = (await tenant.api.get("/api/user/consents", token=token)).json["consents"]
    assert (consent["client_uri"], consent["name"], consent["last_used_at"]) == (CLAUDE, "Shop", consent["granted_at"])
    one = f"/app/account/consents/{party.service}"
    for path in ("/app/account/consents", one):
        page = (await party.browser.open(path)).text
        for text in ("<bdi>claude.ai</bdi>", "calls itself <bdi>Shop</bdi>", "ast used"):
            assert text in page, (path, text)
    assert leads_to(await party.browser.submit(f"{one}/withdraw", one)) == "/app/account/consents"
    assert not await assistant.is_live()
    assert await assistant.grants() == []


async def test_a_client_that_the_policy_no_longer_admits_gets_no_token(assistant: Assistant) -> None:
    await assistant.admit(admit="listed", hosts=["claude.ai", "chatgpt.com"])
    assert await assistant.is_live()
    await assistant.admit(admit="any")
    assert await assistant.is_live()
    await assistant.admit(admit="listed", hosts=["chatgpt.com"])
    assert not await assistant.is_live()
    assert len(await assistant.grants()) == 1, "admins still see it"


async def test_the_page_lists_and_ends_grants(assistant: Assistant, browser: FakeBrowser) -> None:
    tenant = assistant.tenant
    page = f"/app/organizations/acme/api-resources/{assistant.orders.resource}/external-clients"
    await sign_in_browser(assistant.orders.party, tenant.people["admin"], provider="password")
    shown = (await browser.open(page)).text
    for text in (EMAIL, "<bdi>claude.ai</bdi>", "calls itself <bdi>Shop</bdi>", READ, f"for {EMAIL}</span>"):
        assert text in shown, text
    end = f"{page}/grants/{assistant.user.id}/{assistant.orders.party.client_id}/end"
    assert leads_to(await browser.submit(end, page)) == page
    assert "No user has connected a client yet" in (await browser.open(page)).text
    assert not await assistant.is_live()
