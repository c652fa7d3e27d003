"""The device flow for an organization's API resource (RFC 8628, RFC 8707, decision 301)."""

import pytest

from core.accounts.model.accounts import Account
from core.programs.model.api_resources import NoAccessToResource
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import VERIFY, DeviceClient, oauth_error
from tests.federation.api.resources.orders import ORDERS, READ, WRITE, OrdersClient, error, seen
from tests.support.browser import form_token
from tests.support.builders import BASE_URL, run_sql, sign_in
from tests.support.services import service_context


@pytest.fixture
async def cli(orders: OrdersClient, clock: FakeClock) -> DeviceClient:
    tenant = orders.party.tenant
    return DeviceClient(tenant.api, tenant.pool, clock, await service_context(tenant.pool, orders.party.service))


@pytest.fixture
async def token(orders: OrdersClient, user: Account) -> str:
    return (await sign_in(orders.party.tenant.ports, user)).access_token


@pytest.mark.parametrize("scope", [f"{READ} {WRITE}", f"openid {READ}", ""])
async def test_a_device_gets_tokens_for_the_api(cli: DeviceClient, orders: OrdersClient, token: str, scope: str) -> None:
    await cli.begin(scope=scope, resource="https://api.example.com:443")
    assert (await cli.decide(token)).status == 200
    answer = await cli.poll(resource="https://API.example.com")
    assert answer.status == 200, answer.text
    tokens = answer.json
    of_api = scope.removeprefix("openid ")
    assert seen(tokens) == (ORDERS, of_api or None, scope or None, 600)
    assert ("id_token" in tokens) == scope.startswith("openid")
    refreshed = await orders.party.refresh(tokens["refresh_token"], client_secret=None)
    assert seen(refreshed.json) == seen(tokens)
    assert (await cli.api.get("/api/user", token=tokens["access_token"])).status == 401


async def test_the_page_describes_the_access_and_the_approval_is_a_consent(cli: DeviceClient, orders: OrdersClient, token: str) -> None:
    user_code = await cli.begin(scope=READ, resource=ORDERS)
    form = await orders.party.browser.open(VERIFY)
    page = await orders.party.browser.send(VERIFY, form_token=form_token(form), user_code=user_code)
    for text in ("Orders API", "Read your orders"):
        assert text in page.text, page.text
    assert "Change your orders" not in page.text
    await cli.decide(token)
    [consent] = (await cli.api.get("/api/user/consents", token=token)).json["consents"]
    assert [scope["name"] for scope in consent["api_resources"][0]["scopes"]] == [READ]
    tokens = (await cli.poll()).json
    assert (await cli.api.delete(f"/api/user/consents/{consent['service_id']}", token=token)).status == 204
    assert error(await orders.party.refresh(tokens["refresh_token"], client_secret=None)) == "invalid_grant"


async def test_unknown_resources_and_scopes_are_refused(cli: DeviceClient) -> None:
    client_id = str(cli.service.client_id)
    for resource in (f"{ORDERS}v2", "https://api.example.org/", "x", f"{BASE_URL}/api"):
        refusal = await cli.request_codes(client_id=client_id, scope="openid", resource=resource)
        assert oauth_error(refusal) == (400, "invalid_target", "BAD_REQUEST"), resource
    refusal = await cli.request_codes(client_id=client_id, scope="unknown", resource=ORDERS)
    assert oauth_error(refusal) == (400, "invalid_scope", "BAD_REQUEST")
    assert await run_sql(cli.pool, "select count(*) from device_codes") == [(0,)]


async def test_a_poll_names_the_granted_resource_or_none(cli: DeviceClient, token: str) -> None:
    await cli.begin(scope=READ, resource=ORDERS)
    await cli.decide(token)
    for other in (f"{ORDERS}v2", f"{BASE_URL}/api", f"{BASE_URL}/auth/userinfo", "x"):
        assert error(await cli.poll_after_interval(resource=other)) == "invalid_target", other
    assert (await cli.poll_after_interval()).status == 200


async def test_a_code_without_the_resource_never_gets_it(cli: DeviceClient, token: str) -> None:
    for scope in ("", "openid"):
        await cli.begin(scope=scope)
        await cli.decide(token)
        assert error(await cli.poll_after_interval(resource=ORDERS)) == "invalid_target"


async def test_a_user_without_access_cannot_approve(cli: DeviceClient, orders: OrdersClient, token: str) -> None:
    await orders.change("update api_resources set access_policy = 'assigned' where id = %s")
    await cli.begin(scope=READ, resource=ORDERS)
    answer = await cli.decide(token)
    assert (answer.status, answer.json["error"]) == (403, NoAccessToResource.__doc__)
    form = await orders.party.browser.open(VERIFY)
    fields = {"form_token": form_token(form), "user_code": cli.codes["user_code"], "action": "approve"}
    assert (await orders.party.browser.send(VERIFY, **fields)).status == 403
    assert error(await cli.poll()) == "authorization_pending"


LOSSES = (
    "update api_resources set access_policy = 'assigned' where id = %s",
    "delete from api_resources where id = %s",
    "delete from api_resource_clients where resource_id = %s",
    "update domains set verified_at = null where org_id = (select org_id from api_resources where id = %s)",
)


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lost_access_ends_the_approval(cli: DeviceClient, orders: OrdersClient, token: str, loss: str) -> None:
    await cli.begin(scope=READ, resource=ORDERS)
    await cli.decide(token)
    await orders.change(loss)
    assert error(await cli.poll()) == "access_denied"
    assert await run_sql(cli.pool, "select count(*) from sessions where service_id is not null") == [(0,)]


async def test_a_resource_that_was_deleted_before_the_approval_gives_nothing(cli: DeviceClient, orders: OrdersClient, token: str) -> None:
    await cli.begin(scope=READ, resource=ORDERS)
    await orders.change("delete from api_resources where id = %s")
    await cli.decide(token)
    assert error(await cli.poll()) == "access_denied"
