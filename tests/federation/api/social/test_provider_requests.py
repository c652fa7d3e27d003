"""Provider requests in a sign-in that an application waits for (security O-1, O-5; OpenID Connect Core section 3.1.2.1)."""

from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMetrics
from tests.federation.api.social.requests import REDIRECT_URI, SHOP
from tests.federation.provider_sign_in import ProviderSignIn, flow_in
from tests.support.browser import FakeBrowser, action_of, has_ended, is_step, leads_to
from tests.support.builders import run_sql
from tests.support.direct import change_ports
from tests.support.mfa import add_mfa
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

REQUEST: Final = {**SHOP, "response_type": "code", "scope": "openid", "redirect_uri": REDIRECT_URI, "state": "xyz"}
STATE_UNKNOWN, NOT_OPEN = "started in another browser", "no longer open"


async def begin(sign_in: ProviderSignIn, **changes: str) -> str:
    """Send the application's request to the sign-in page. Return its flow id."""
    page = await sign_in.browser.open(f"/auth/authorize?{urlencode({**REQUEST, **changes})}")
    assert is_step(action_of(page), "sign-in")
    return flow_in(action_of(page))


async def agree(sign_in: ProviderSignIn, flow: str) -> dict[str, list[str]]:
    """Agree on the flow's page. Return the response to the application."""
    page = await sign_in.browser.open(f"/app/flow/{flow}")
    assert is_step(action_of(page), "consent"), page.text
    address, _, query = leads_to(await sign_in.browser.answer(page, "continue")).partition("?")
    assert address == REDIRECT_URI
    return parse_qs(query)


# A fresh sign-in


@pytest.mark.parametrize("asks", [{"prompt": "login"}, {"max_age": "0"}], ids=["prompt", "max_age"])
async def test_in_a_flow_that_has_been_open_for_hours_the_provider_must_ask_again(
    provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID, clock: FakeClock, asks: dict[str, str]
) -> None:
    """The user signed in at the provider after the flow began, but before this request: another person may be at the browser now."""
    provider = provider_sign_in.provider
    flow = await begin(provider_sign_in, **asks)
    clock.advance(timedelta(hours=2))
    provider.signed_in_at = clock.now().timestamp()
    clock.advance(timedelta(hours=3))
    provider.reauthenticates = False
    before = await provider_sign_in.snapshot()
    page = await provider_sign_in.complete(flow=flow)
    assert (page.status, await provider_sign_in.user_id()) == (400, None)
    assert await provider_sign_in.snapshot() == before
    assert is_step(action_of(await provider_sign_in.browser.open(f"/app/flow/{flow}")), "sign-in"), "the flow goes on"
    provider.reauthenticates = True
    assert leads_to(await provider_sign_in.complete(flow=flow)) == f"/app/flow/{flow}"
    assert "code" in await agree(provider_sign_in, flow)


async def test_a_fresh_sign_in_at_the_provider_answers_one_flow(
    provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID, clock: FakeClock
) -> None:
    """The second flow began after the sign-in in the first flow."""
    provider_sign_in.provider.signed_in_at = clock.now().timestamp()
    flow = await begin(provider_sign_in, prompt="login")
    await provider_sign_in.sign_in(flow=flow)
    clock.advance(timedelta(minutes=1))
    other = await begin(provider_sign_in, prompt="login", state="other")
    assert "code" in await agree(provider_sign_in, flow)
    assert is_step(action_of(await provider_sign_in.browser.open(f"/app/flow/{other}")), "sign-in")


# Tabs


async def test_of_two_provider_requests_of_one_flow_the_newer_one_signs_in(
    provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID, metrics: FakeMetrics
) -> None:
    """The requests run in two tabs. The older request comes back to a page that goes on, and does not disturb the newer request."""
    flow = await begin(provider_sign_in)
    older, newer = [await provider_sign_in.start(flow=flow) for _ in range(2)]
    before = await provider_sign_in.snapshot()
    page = await provider_sign_in.come_back(older)
    assert (page.status, STATE_UNKNOWN in page.text, 'href="/app/account"' in page.text) == (400, True, True)
    assert await provider_sign_in.snapshot() == before
    assert metrics.login_failures == {"state": 1}
    assert leads_to(await provider_sign_in.come_back(newer)) == f"/app/flow/{flow}"
    assert (await provider_sign_in.come_back(older)).status == 400
    assert (await agree(provider_sign_in, flow))["state"] == ["xyz"]
    assert provider_sign_in.provider.counted["/token"] == 1


async def test_two_flows_of_one_browser_have_provider_requests_of_their_own(
    provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID
) -> None:
    flows = [await begin(provider_sign_in, state=state) for state in ("a", "b")]
    callbacks = [await provider_sign_in.start(flow=flow) for flow in flows]
    for flow, callback in zip(flows, callbacks, strict=True):
        assert leads_to(await provider_sign_in.come_back(callback)) == f"/app/flow/{flow}"
    assert (await agree(provider_sign_in, flows[1]))["state"] == ["b"]
    assert parse_qs(urlsplit(leads_to(await provider_sign_in.browser.open(f"/app/flow/{flows[0]}"))).query)["state"] == ["a"]


# Other users' flows, and flows that have ended


async def test_another_browser_neither_starts_nor_ends_a_provider_request_of_a_flow(
    provider_sign_in: ProviderSignIn, app: QuartTrio, acme: Tenant, shop: UUID
) -> None:
    """The thieves have the flow's address, or send the victim the way back from their own sign-in."""
    thief = ProviderSignIn(FakeBrowser(app), provider_sign_in.provider, provider_sign_in.pool)
    own = await begin(thief)
    flow = await begin(provider_sign_in)
    callback, way_back_of_thief = await provider_sign_in.start(flow=flow), await thief.start(flow=own)
    before = await provider_sign_in.snapshot()
    stolen = await thief.browser.open(f"/auth/{thief.name}?flow={flow}")
    assert (has_ended(stolen), "Shop" in stolen.text) == (True, False)
    for answer in (await thief.come_back(callback), await provider_sign_in.come_back(way_back_of_thief)):
        assert (answer.status, STATE_UNKNOWN in answer.text) == (400, True)
    assert await provider_sign_in.snapshot() == before
    assert (await thief.user_id(), await provider_sign_in.user_id()) == (None, None)
    assert leads_to(await provider_sign_in.come_back(callback)) == f"/app/flow/{flow}", "the thief did not use it up"


async def test_a_flow_that_has_ended_starts_no_provider_request_and_ends_none(
    provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID, clock: FakeClock
) -> None:
    flow = await begin(provider_sign_in)
    late = await provider_sign_in.start(flow=flow)
    await run_sql(provider_sign_in.pool, "update sign_in_flows set closed_at = %s", clock.now())
    before = await provider_sign_in.snapshot()
    assert (await provider_sign_in.come_back(late)).status == 400
    for name in (flow, "unknown", "0", "a b", flow[:-1]):
        answer = await provider_sign_in.browser.open(f"/auth/{provider_sign_in.name}?{urlencode({'flow': name})}")
        assert (has_ended(answer), NOT_OPEN in answer.text) == (True, True), name
    assert await provider_sign_in.snapshot() == before
    assert await provider_sign_in.user_id() is None


async def test_a_deleted_application_ends_its_provider_requests(provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID) -> None:
    flow = await begin(provider_sign_in)
    callback = await provider_sign_in.start(flow=flow)
    await run_sql(provider_sign_in.pool, "delete from services where id = %s", shop)
    before = await provider_sign_in.snapshot()
    answer = await provider_sign_in.browser.open(f"/auth/{provider_sign_in.name}?flow={flow}")
    assert (has_ended(answer), NOT_OPEN in answer.text) == (True, True)
    assert (await provider_sign_in.come_back(callback)).status == 404
    assert await provider_sign_in.snapshot() == before
    assert await provider_sign_in.user_id() is None
    page = await provider_sign_in.browser.open(f"/app/flow/{flow}")
    assert (page.status, NOT_OPEN in page.text, 'href="/app">Continue' in page.text) == (200, True, True)


async def test_a_flow_that_ends_while_its_browser_comes_back_ends_on_a_page_that_goes_on(
    provider_sign_in: ProviderSignIn, app: QuartTrio, acme: Tenant, shop: UUID, ports: Ports, user: Account
) -> None:
    """In another tab, between the two requests to our database.

    The account has a second factor, so the flow would keep the first factor.
    """
    await provider_sign_in.sign_in()
    assert await provider_sign_in.user_id() == user.id
    await add_mfa(ports, user)
    provider_sign_in.browser.cookies.pop("gatehouse-session")
    callback = await provider_sign_in.start(flow=await begin(provider_sign_in))

    class EndingFlows:
        def __getattr__(self, name: str) -> object:
            return getattr(ports.openid_providers, name)

        async def exchange(self, *arguments: Any) -> object:
            await run_sql(provider_sign_in.pool, "update sign_in_flows set closed_at = begun_at")
            return await ports.openid_providers.exchange(*arguments)

    change_ports(app, openid_providers=EndingFlows())
    page = await provider_sign_in.come_back(callback)
    assert (has_ended(page), await provider_sign_in.user_id()) == (True, None)


async def test_a_refused_request_does_not_hide_that_the_user_refused(provider_sign_in: ProviderSignIn, acme: Tenant, shop: UUID) -> None:
    callback = await provider_sign_in.start(flow=await begin(provider_sign_in))
    await run_sql(provider_sign_in.pool, "update services set redirect_uris = '{https://other.example}' where id = %s", shop)
    state = parse_qs(urlsplit(callback).query)["state"][0]
    answer = await provider_sign_in.come_back(
        f"/auth/{provider_sign_in.name}/callback?{urlencode({'state': state, 'error': 'access_denied'})}"
    )
    assert (answer.status, "did not get permission" in answer.text) == (400, True)
