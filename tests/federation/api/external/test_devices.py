"""External clients on devices without a browser."""

from datetime import timedelta
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.kernel.display import format_day
from tests.fakes.http_server import in_json
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import CODE, VERIFY
from tests.federation.api.client_authentication.keys import client_key
from tests.federation.api.external.external import ExternalParty, assertion
from tests.federation.api.relying import PKCE, TOKEN, VERIFIER, add_relying_party, claims, sign_in_browser
from tests.federation.api.resources.orders import ORDERS, READ, WRITE, error
from tests.federation.api.resources.test_introspection import introspect, program
from tests.support.browser import FakeBrowser
from tests.support.builders import Answer, add_account, run_sql, sign_in

DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"


class Device:
    """A device that runs the client, and the browser of a user who has not agreed to it."""

    def __init__(self, client: ExternalParty, browser: FakeBrowser, codes: dict[str, Any]) -> None:
        self.client, self.browser, self.codes = client, browser, codes

    async def open(self) -> Answer:
        return await self.browser.submit(VERIFY, VERIFY, user_code=self.codes["user_code"])

    async def decide(self, action: str = "approve") -> Answer:
        return await self.browser.submit(VERIFY, VERIFY, user_code=self.codes["user_code"], action=action)

    async def poll(self, **changes: str | None) -> Answer:
        await run_sql(self.client.tenant.pool, "update device_codes set polled_at = null")
        fields = {"device_code": self.codes["device_code"], "code_verifier": VERIFIER}
        return await self.client.post(TOKEN, **{"grant_type": DEVICE_GRANT, **fields, **changes})


async def begin(client: ExternalParty, browser: FakeBrowser, **changes: str) -> Device:
    answer = await client.post(CODE, **{"scope": READ, "resource": ORDERS, **PKCE, **changes})
    assert answer.status == 200, answer.text
    return Device(client, browser, answer.json)


@pytest.fixture
async def other_browser(client: ExternalParty, app: QuartTrio) -> FakeBrowser:
    """Another user's browser. The first user has agreed to the client, so that it is stored."""
    assert error(await client.post(CODE, scope=READ, resource=ORDERS, **PKCE)) == "invalid_client", "it is not stored"
    await client.code()
    desk = await add_relying_party(client.tenant, FakeBrowser(app), "desk")
    await sign_in_browser(desk, await add_account(client.tenant.ports, "device@example.com"), provider="password", is_known=False)
    return desk.browser


async def test_a_stored_client_runs_on_a_device(client: ExternalParty, other_browser: FakeBrowser) -> None:
    """The page names the host, like the consent page, and an approval is the consent to these scopes alone."""
    await client.set_policy(scopes=(READ,))
    device = await begin(client, other_browser, scope=f"{READ} {WRITE}")
    assert error(await device.poll()) == "authorization_pending"
    page = await device.open()
    for text in (f"runs an application of <strong><bdi>{client.host}</bdi></strong> called “<bdi>Assistant</bdi>”", "Read your orders"):
        assert text in page.text, text
    assert "Change your orders" not in page.text
    done = await device.decide()
    assert "it can act at <bdi>Acme</bdi> as you" in done.text
    assert "Assistant" not in done.text
    assert error(await device.poll(code_verifier="another-verifier-that-this-program-does-not-know-01")) == "invalid_grant"
    answer = await device.poll()
    assert answer.status == 200, answer.text
    token = claims(answer.json)
    assert (token["client_id"], token["aud"], token["scope"]) == (client.address, ORDERS, READ)
    assert error(await device.poll()) == "invalid_grant", "a device code works once"
    assert (await client.refresh(answer.json)).status == 200
    here, client.browser = client.browser, other_browser
    assert (await client.open()).status == 200, "no redirect URI was part of the approval"
    client.browser = here
    assert len(client.server.requests) == 1, "a device fetches no document"


async def test_a_client_with_keys_signs_on_a_device_too(client: ExternalParty, other_browser: FakeBrowser) -> None:
    """Otherwise any program could get tokens in its host's name."""
    client.server.answers["/keys"] = in_json({"keys": [client_key().jwk]})
    await run_sql(
        client.tenant.pool,
        "update services set service_type = 'web', jwks_uri = %s where client_uri is not null",
        client.server.address_of("/keys", "keys.example"),
    )
    for fields in ({}, assertion(client, client_key("ES256", "forged"))):
        assert error(await client.post(CODE, scope=READ, resource=ORDERS, **PKCE, **fields)) == "invalid_client"
    assert error(await client.post(CODE, scope=READ, resource=ORDERS, **assertion(client))) == "invalid_request", "PKCE is required"
    device = await begin(client, other_browser, **assertion(client))
    await device.decide()
    assert error(await device.poll()) == "invalid_client"
    assert error(await device.poll(client_id=None)) == "invalid_grant"
    answer = await device.poll(**assertion(client))
    assert answer.status == 200, answer.text
    assert error(await client.refresh(answer.json)) == "invalid_client"
    assert error(await client.refresh(answer.json, client_id=None)) == "invalid_client"
    assert (await client.refresh(answer.json, **assertion(client))).status == 200
    assert [request.path for request in client.server.requests] == ["/client", "/keys"], "an unknown key is no reason to ask again so soon"


@pytest.mark.parametrize("moment", ["before the codes", "before the approval", "before the tokens"])
async def test_a_device_gets_nothing_after_the_policy_has_ended(client: ExternalParty, other_browser: FakeBrowser, moment: str) -> None:
    [(resource,)] = await run_sql(client.tenant.pool, "select id from api_resources")

    async def end() -> None:
        path = f"{client.tenant.path}/api-resources/{resource}/external-clients"
        assert (await client.api.call("PUT", path, {"admit": "none"}, token=client.tenant.token("admin"))).status == 200

    if moment == "before the codes":
        await end()
        assert error(await client.post(CODE, scope=READ, resource=ORDERS, **PKCE)) == "invalid_client"
        return
    device = await begin(client, other_browser)
    if moment == "before the approval":
        await end()
    await device.decide()
    if moment == "before the tokens":
        await end()
    answer = await device.poll()
    assert answer.status in (400, 403), answer.text
    assert await run_sql(client.tenant.pool, "select 1 from sessions where grant_type = 'device_code' and ended_at is null") == []


async def test_no_grant_outlives_its_document_by_more_than_seven_days(
    client: ExternalParty, other_browser: FakeBrowser, app: QuartTrio, user: Account, clock: FakeClock
) -> None:
    """If a fetch has failed. Requests without a page fetch nothing, so without that they go on. A user who is new gets nothing."""
    tokens = await client.tokens()
    [(resource,)] = await run_sql(client.tenant.pool, "select id from api_resources")
    api, document = await program(client.tenant, resource), client.server.answers.pop("/client")
    clock.advance(timedelta(days=8))
    first_failure = clock.now()
    assert (await client.open()).status == 303
    clock.advance(timedelta(days=7, minutes=-1))
    tokens = (await client.refresh(tokens)).json
    desk = await add_relying_party(client.tenant, FakeBrowser(app), "kiosk")
    await sign_in_browser(desk, user, provider="password", is_known=False)
    client.browser = desk.browser
    device = await begin(client, desk.browser)
    await device.decide()
    new, waiting = await begin(client, other_browser), await begin(client, desk.browser)
    assert f"could not be fetched since {format_day(first_failure)}. Try again when it is available." in (await new.decide()).text
    assert error(await new.poll()) == "authorization_pending"
    assert (await introspect(api, tokens["access_token"]))["active"] is True
    clock.advance(timedelta(minutes=1))
    tokens = (await client.refresh(tokens)).json
    assert (await introspect(api, tokens["access_token"]))["active"] is True, "one failure alone ends nothing"
    assert (await client.open()).status == 400
    assert (await introspect(api, tokens["access_token"])) == {"active": False}
    assert "could not be fetched since" in (await waiting.decide()).text
    answers = {
        "invalid_grant": [await client.refresh(tokens), await device.poll()],
        "unauthorized_client": [await client.post(CODE, scope=READ, resource=ORDERS, **PKCE)],
    }
    for code, refused in answers.items():
        for answer in refused:
            assert error(answer) == code, answer.text
            assert f"could not be fetched since {format_day(first_failure)}." in answer.json["error_description"]
    assert (await client.refresh(tokens, client_id=None)).status == 400, "a client that does not name itself has no other rule"
    assert (await device.poll(client_id=None)).status in (400, 403)
    client.server.answers["/client"] = document
    assert (await client.open()).status == 303
    assert (await introspect(api, tokens["access_token"]))["active"] is True
    assert (await client.refresh(tokens)).status == 200
    assert (await device.poll()).status == 200


async def test_a_denied_device_and_one_of_a_suspended_organization_get_nothing(
    client: ExternalParty, other_browser: FakeBrowser, user: Account
) -> None:
    denied, device = await begin(client, other_browser), await begin(client, other_browser)
    assert "has no access to <bdi>Acme</bdi>" in (await denied.decide("deny")).text
    assert error(await denied.poll()) == "access_denied"
    await device.decide()
    await run_sql(client.tenant.pool, "update organizations set status = 'suspended' where id = %s", client.tenant.org)
    assert (await device.poll()).status in (400, 403)
    own = (await sign_in(client.tenant.ports, user)).access_token
    assert (await client.api.get("/api/user", token=own)).status == 200
