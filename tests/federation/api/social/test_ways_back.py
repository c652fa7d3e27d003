"""Errors in a sign-in in progress: the page leads back to it. Statuses stay."""

import re
from html import unescape
from uuid import UUID

import pytest

from core.kernel.connections import CODEHOST
from core.kernel.page_paths import IDENTITIES_PATH
from ports import Ports
from tests.fakes.http_server import TRAP
from tests.fakes.provider import Person
from tests.federation.api.social.links.clients import open_ticket
from tests.federation.provider_sign_in import ProviderSignIn, flow_in
from tests.support.browser import ACCOUNT, HOME, FakeBrowser, action_of, hidden_fields, leads_to
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, Answer, add_account, run_sql
from tests.support.tenants import Tenant

AUTHORIZE = "/auth/authorize?org=acme&service=shop&redirect_uri=https://shop.example.com/callback&response_type=code"
codehost = pytest.mark.parametrize("provider", [CODEHOST], indirect=True)


def leads_back(page: Answer, path: str) -> bool:
    return f'href="{path}">Back to the sign-in</a>' in page.text


async def fail(provider_sign_in: ProviderSignIn, ports: Ports, case: str, flow: str) -> tuple[int, Answer]:
    """Return the expected status, and the answer after a provider request that fails."""
    user = await add_account(ports)
    if case == "the address has an account":
        provider_sign_in.provider.person = Person(email_verified=False)
    callback = await provider_sign_in.start(flow=flow)
    if case == "the account is closed":
        await run_sql(provider_sign_in.pool, "update users set deactivated_at = now() where id = %s", user.id)
    if case == "the answer is malformed":
        callback = callback.replace("code=", "code=%00")
    return {"the address has an account": 409, "the account is closed": 401}.get(case, 400), await provider_sign_in.browser.open(callback)


@codehost
@pytest.mark.parametrize("case", ["the address has an account", "the account is closed", "the answer is malformed"])
async def test_a_failed_provider_request_leads_back_to_the_sign_in_page(
    provider_sign_in: ProviderSignIn, ports: Ports, acme: Tenant, shop: UUID, case: str
) -> None:
    sign_in = action_of(await provider_sign_in.browser.open(AUTHORIZE))
    status, page = await fail(provider_sign_in, ports, case, flow_in(sign_in))
    assert (page.status, leads_back(page, sign_in)) == (status, True), page.text
    assert action_of(await provider_sign_in.browser.open(sign_in)) == sign_in
    assert await provider_sign_in.start(flow=flow_in(sign_in)), "another provider request can start"


@codehost
@pytest.mark.parametrize(("error", "status"), [("access_denied", 400), (TRAP, 500)])
async def test_a_refusal_at_the_provider_leads_back_to_a_page_of_ours(provider_sign_in: ProviderSignIn, error: str, status: int) -> None:
    provider_sign_in.provider.refuses = error
    page = await provider_sign_in.complete(next=ACCOUNT)
    [(flow,)] = await run_sql(provider_sign_in.pool, "select id from sign_in_flows")
    assert (page.status, leads_back(page, f"/app/flow/{flow}/sign-in")) == (status, True)


@codehost
async def test_a_refusal_to_link_leads_back_to_the_linked_accounts(provider_sign_in: ProviderSignIn, ports: Ports) -> None:
    await add_account(ports)
    browser = provider_sign_in.browser
    await browser.sign_in()
    page = await browser.submit(f"{IDENTITIES_PATH}/{provider_sign_in.name}/link", IDENTITIES_PATH)
    provider_sign_in.provider.refuses = "access_denied"
    refused = await browser.open(await open_ticket(provider_sign_in, page.headers["Refresh"].partition("; url=")[2]))
    assert (refused.status, f'href="{IDENTITIES_PATH}">Back to linked accounts</a>' in refused.text) == (400, True)


async def test_a_form_that_has_expired_leads_back(browser: FakeBrowser, ports: Ports, acme: Tenant, shop: UUID) -> None:
    sign_in = action_of(await browser.open(AUTHORIZE))
    for path, back in ((sign_in, sign_in.removesuffix("/sign-in")), ("/app/sign-in", "/app/sign-in")):
        refused = await browser.send(path, form_token="x", email=EMAIL, password=PASSWORD)
        assert (refused.status, leads_back(refused, back)) == (403, True), path


@pytest.mark.parametrize("edge", [{"rate_limit_factor": 1.0}], indirect=True)
async def test_too_many_requests_lead_back(browser: FakeBrowser, ports: Ports, acme: Tenant, shop: UUID) -> None:
    sign_in = action_of(await browser.open(AUTHORIZE))
    for _ in range(10):
        await browser.send(sign_in)
    limited = await browser.send(sign_in)
    assert (limited.status, leads_back(limited, sign_in)) == (429, True)


def _stay(question: Answer) -> str:
    [path] = re.findall(r'href="([^"]+)">Stay signed in', question.text)
    return unescape(str(path))


async def test_the_session_of_another_user_ends_only_if_they_agree(provider_sign_in: ProviderSignIn, ports: Ports) -> None:
    grace = await add_account(ports, "grace@example.com")
    assert leads_to(await provider_sign_in.browser.sign_in("grace@example.com", PASSWORD)) == HOME
    before = await provider_sign_in.snapshot()
    question = await provider_sign_in.complete(next="/app/account/devices")
    assert (question.status, "grace@example.com" in question.text, EMAIL in question.text) == (200, True, True)
    stay = await provider_sign_in.browser.open(_stay(question), follows=False)
    assert leads_to(stay) == "/app/account/devices"
    question = await provider_sign_in.complete(next="/app/account/devices")
    assert await provider_sign_in.snapshot() == before, "any page can send a browser to a provider that asks nothing"
    start = await provider_sign_in.browser.fill(question, start=hidden_fields(question)["start"])
    assert await provider_sign_in.user_id() is None
    away = await provider_sign_in.browser.open(leads_to(start), follows=False)
    callback = provider_sign_in.provider.authorize(away.headers["Location"]).removeprefix(BASE_URL)
    assert leads_to(await provider_sign_in.come_back(callback)) == "/app/account/devices"
    assert await provider_sign_in.user_id() not in (None, grace.id)
    assert await run_sql(provider_sign_in.pool, "select count(*) from sessions where ended_at is null") == [(1,)]
