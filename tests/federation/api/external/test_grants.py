"""Users' grants to external clients: admins list and end grants, users see and end grants, and the policy ends grants."""

from datetime import timedelta
from typing import Any

import pytest

from core.accounts.model.accounts import Account
from core.federation.oauth.model.consents import ExternalGrantNotFound
from core.programs.model.api_resources import ApiResourceNotFound
from tests.fakes.outside import FakeClock
from tests.federation.api.external.external import ExternalParty
from tests.federation.api.external.test_devices import begin
from tests.federation.api.relying import add_relying_party, claims, sign_in_browser
from tests.federation.api.resources.orders import READ, WRITE, error
from tests.federation.api.resources.test_introspection import introspect, program
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import EMAIL, run_sql, sign_in
from tests.support.programs import Program
from tests.support.tenants import Tenant

NAME = "Assistant"  # in the document


class Assistant:
    """An external client that a user has connected to acme's API resource."""

    def __init__(self, client: ExternalParty, user: Account, tokens: dict[str, Any], ids: tuple[Any, ...]) -> None:
        self.client, self.user, self.tokens, self.tenant = client, user, tokens, client.tenant
        self.resource, self.service = ids
        self.program: Program | None = None  # for the API resource
        self.path = f"{self.tenant.path}/api-resources/{self.resource}/external-clients"
        self.grant = f"{self.path}/grants/{user.id}/{self.service}"

    async def grants(self, query: str = "") -> list[dict[str, Any]]:
        answer = await self.tenant.api.get(f"{self.path}/grants{query}", token=self.tenant.token("admin"))
        assert answer.status == 200, answer.text
        grants: list[dict[str, Any]] = answer.json["grants"]
        return grants

    async def is_live(self) -> bool:
        """Return whether the client can refresh its token."""
        answer = await self.client.refresh(self.tokens)
        if answer.status == 200:
            self.tokens = answer.json
        return answer.status == 200

    async def is_active(self) -> bool:
        """Return what introspection tells the API resource about the access token."""
        self.program = self.program or await program(self.tenant, self.resource)
        return bool((await introspect(self.program, self.tokens["access_token"]))["active"])

    async def admit(self, **policy: Any) -> None:
        answer = await self.tenant.api.call("PUT", self.path, policy, token=self.tenant.token("admin"))
        assert answer.status == 200, answer.text


@pytest.fixture
async def assistant(client: ExternalParty, user: Account) -> Assistant:
    tokens = await client.tokens()
    [ids] = await run_sql(client.tenant.pool, "select r.id, v.id from api_resources r, services v where v.client_uri is not null")
    return Assistant(client, user, tokens, ids)


async def test_an_admin_lists_and_ends_a_grant(assistant: Assistant, other_tenant: Tenant) -> None:
    tenant, client = assistant.tenant, assistant.client
    [grant] = await assistant.grants()
    assert grant == {
        "user_id": str(assistant.user.id),
        "email": EMAIL,
        "client_id": str(assistant.service),
        "client_uri": client.address,
        "client_name": NAME,
        "scopes": [READ],
        "granted_at": grant["granted_at"],
        "last_used_at": grant["granted_at"],  # the clock stands still
    }
    assert (await assistant.grants(f"?search={EMAIL[:3]}"), await assistant.grants("?search=unknown@")) == ([grant], [])
    assert (await assistant.is_live(), await assistant.is_active()) == (True, True)
    foreign = assistant.grant.replace(tenant.path, other_tenant.path)
    answer = await other_tenant.api.call("DELETE", foreign, token=other_tenant.token("owner"))
    assert (answer.status, answer.json["error"]) == (404, ApiResourceNotFound.__doc__)
    assert (await tenant.api.call("DELETE", assistant.grant, token=tenant.token("admin"))).status == 204
    assert await assistant.grants() == []
    assert (await assistant.is_live(), await assistant.is_active()) == (False, False)
    answer = await tenant.api.call("DELETE", assistant.grant, token=tenant.token("admin"))
    assert (answer.status, answer.json["error"]) == (404, ExternalGrantNotFound.__doc__)
    details = {
        "identifier": "https://api.example.com/",
        "name": "Orders API",
        "api_resource_id": str(assistant.resource),
        "client": client.address,
        "client_name": NAME,
        "scopes": [READ],
    }
    admin = tenant.people["admin"].id
    assert ("api_resource.grant.ended", "user", str(assistant.user.id), admin, details) in await tenant.recorded()
    assert (await client.open()).status == 200, "the user is asked again"


async def test_a_user_sees_and_ends_a_grant(assistant: Assistant) -> None:
    tenant, client = assistant.tenant, assistant.client
    token = (await sign_in(tenant.ports, assistant.user)).access_token
    [consent] = (await tenant.api.get("/api/user/consents", token=token)).json["consents"]
    assert (consent["client_uri"], consent["name"], consent["last_used_at"]) == (client.address, NAME, consent["granted_at"])
    one = f"/app/account/consents/{assistant.service}"
    for path in ("/app/account/consents", one):
        page = (await client.browser.open(path)).text
        for text in (f"<bdi>{client.host}</bdi>", f"calls itself <bdi>{NAME}</bdi>", "ast used"):
            assert text in page, (path, text)
    assert leads_to(await client.browser.submit(f"{one}/withdraw", one)) == "/app/account/consents"
    assert not await assistant.is_live()
    assert await assistant.grants() == []


async def test_a_client_that_the_policy_no_longer_admits_gets_no_token(assistant: Assistant, clock: FakeClock) -> None:
    """Nothing from before works again when the policy admits it later and a user signs in: an admin may have ended leaked tokens."""
    await assistant.admit(admit="listed", hosts=[assistant.client.host, "chatgpt.com"])
    assert await assistant.is_live()
    await assistant.admit(admit="any")
    assert await assistant.is_live()
    client, device = assistant.client, await begin(assistant.client, assistant.client.browser)
    await device.decide()
    code = await client.code()
    await assistant.admit(admit="listed", hosts=["chatgpt.com"])
    assert (await assistant.is_live(), await assistant.is_active()) == (False, False)
    assert len(await assistant.grants()) == 1, "admins still see it"
    clock.advance(timedelta(seconds=1))
    await assistant.admit(admit="any")
    tokens = await client.tokens()
    assert (await assistant.is_live(), await assistant.is_active()) == (False, False)
    assert [error(await client.exchange(code)), error(await device.poll())] == ["invalid_grant", "access_denied"]
    assistant.tokens = tokens
    assert (await assistant.is_live(), await assistant.is_active()) == (True, True)


async def test_a_scope_that_the_policy_no_longer_gives_is_in_no_further_token(client: ExternalParty, user: Account) -> None:
    """A scope that another scope implies stays with it."""
    tokens = await client.tokens(scope=f"{READ} {WRITE}")
    [ids] = await run_sql(client.tenant.pool, "select r.id, v.id from api_resources r, services v where v.client_uri is not null")
    assistant = Assistant(client, user, tokens, ids)
    for scopes, implications, expected in (
        ([WRITE], '{"orders:write": ["orders:read"]}', f"{READ} {WRITE}"),
        ([WRITE], "{}", WRITE),
        ([], "{}", None),
        (None, "{}", f"{READ} {WRITE}"),
    ):
        await assistant.admit(admit="any", scopes=scopes)
        await run_sql(client.tenant.pool, "update api_resources set scope_implications = %s::jsonb", implications)
        assert await assistant.is_live()
        assert claims(assistant.tokens).get("scope") == expected


async def test_data_of_the_user_that_the_policy_no_longer_gives_end_with_the_next_answer(client: ExternalParty, user: Account) -> None:
    scope = f"openid profile email {READ}"
    tokens, code = await client.tokens(scope=scope), await client.code(scope=scope)
    [ids] = await run_sql(client.tenant.pool, "select r.id, v.id from api_resources r, services v where v.client_uri is not null")
    assistant = Assistant(client, user, tokens, ids)
    api = await program(client.tenant, ids[0])
    for scopes, given in ((None, True), ([READ], False)):
        await assistant.admit(admit="any", scopes=scopes)
        answers = [(await introspect(api, assistant.tokens["access_token"])).get("username")]
        assert await assistant.is_live()
        refreshed = claims(assistant.tokens) | claims({"access_token": assistant.tokens["id_token"]})
        assert [*answers, refreshed.get("email")] == [EMAIL if given else None] * 2, scopes
    late = (await client.exchange(code)).json
    assert "email" not in {*claims(late), *claims({"access_token": late["id_token"]})}


async def test_the_page_lists_and_ends_grants(assistant: Assistant, browser: FakeBrowser) -> None:
    tenant = assistant.tenant
    page = f"/app/organizations/acme/api-resources/{assistant.resource}/external-clients"
    await sign_in_browser(await add_relying_party(tenant, browser, "desk"), tenant.people["admin"], provider="password")
    shown = (await browser.open(page)).text
    for text in (EMAIL, f"<bdi>{assistant.client.host}</bdi>", f"calls itself <bdi>{NAME}</bdi>", READ, f"for {EMAIL}</span>"):
        assert text in shown, text
    end = f"{page}/grants/{assistant.user.id}/{assistant.service}/end"
    assert leads_to(await browser.submit(end, page)) == page
    assert "No user has connected a client yet" in (await browser.open(page)).text
    assert not await assistant.is_live()
