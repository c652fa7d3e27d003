"""Users' consent to an application that uses an API resource (OpenID Connect Core section 3.1.2.4, decision 301)."""

from typing import Any

import pytest

from core.accounts.model.accounts import Account
from tests.federation.api.relying import add_relying_party, answer_fields, claims
from tests.federation.api.resources.orders import ORDERS, READ, WRITE, OrdersClient, error, seen
from tests.support.browser import action_of, hidden_fields, leads_to, step_of
from tests.support.builders import add_member, run_sql, sign_in
from tests.support.services import add_api_resource
from tests.support.tenants import Tenant


async def asks(orders: OrdersClient, **changes: str | None) -> bool:
    """Return whether a page asks the user, who does not answer."""
    return (await orders.open(**changes)).status == 200


async def listed(orders: OrdersClient, user: Account) -> list[dict[str, Any]]:
    token = (await sign_in(orders.party.tenant.ports, user)).access_token
    consents: list[dict[str, Any]] = (await orders.party.api.get("/api/user/consents", token=token)).json["consents"]
    return consents


async def test_a_user_agrees_once_to_each_scope_by_its_description(orders: OrdersClient) -> None:
    page = await orders.open(scope=f"{READ} {WRITE}")
    for text in ("Orders API", "Read your orders", "Change your orders", "You can stop sharing"):
        assert text in page.text, text
    assert "Recognize you by" not in page.text, "without openid"
    both = await orders.open(scope=f"openid {READ}")
    assert "Recognize you when you sign in again" in both.text
    assert "Change your orders" not in both.text
    await orders.authorize()
    assert not await asks(orders)
    assert not await asks(orders, scope=None), "fewer scopes"
    assert await asks(orders, scope=f"{READ} {WRITE}")
    assert await asks(orders, scope=f"openid {READ}")
    assert error(await orders.open(scope=WRITE, prompt="none")) == "consent_required"
    await orders.authorize(scope=WRITE)
    assert not await asks(orders, scope=f"{READ} {WRITE}")
    assert await asks(orders, prompt="consent")


async def test_a_scope_is_granted_with_those_that_it_implies(orders: OrdersClient) -> None:
    """A consent counts for scopes that an admin lets it imply later. A token that was issued before does not get them."""
    before = await orders.tokens(scope=WRITE)
    assert claims(before)["scope"] == WRITE
    await orders.change("""update api_resources set scope_implications = '{"orders:write": ["orders:read"]}' where id = %s""")
    assert not await asks(orders, scope=READ)
    assert seen(await orders.refreshed(before))[1] == WRITE
    assert seen(await orders.tokens(scope=WRITE))[1:3] == (f"{READ} {WRITE}", f"{READ} {WRITE}")
    assert seen(await orders.tokens(scope=READ))[1] == READ
    await orders.change("update api_consents set scope = '{orders:read}' where resource_id = %s")
    page = await orders.open(scope=WRITE)
    for text in ("Read your orders", "Change your orders"):
        assert text in page.text, text


async def test_a_request_without_scopes_asks_for_the_api_itself(orders: OrdersClient) -> None:
    page = await orders.open(scope=None)
    assert "It will be able to use" in page.text
    await orders.authorize(scope=None)
    assert not await asks(orders, scope=None)
    assert await asks(orders)


async def test_a_user_who_cancels_gives_nothing(orders: OrdersClient, user: Account) -> None:
    page = await orders.open()
    answer = await orders.party.browser.answer(page, "refuse")
    assert answer_fields(answer)["error"] == "access_denied"
    assert await listed(orders, user) == []


@pytest.mark.parametrize("step", ["consent", "select", "confirm"])
async def test_an_answer_counts_only_for_what_its_page_asked(orders: OrdersClient, user: Account, step: str) -> None:
    """This holds even if the answer is sent to another step."""
    page = await orders.open(scope=f"{READ} {WRITE}")
    await orders.change("update api_resources set scope_names = '{orders:read}', scope_descriptions = '{Read}' where id = %s")
    narrow = await orders.open(scope=f"{READ} {WRITE}")
    await orders.change(
        "update api_resources set scope_names = '{orders:read,orders:write}', scope_descriptions = '{Read,Write}' where id = %s"
    )
    browser, shown = orders.party.browser, hidden_fields(narrow) | {"answer": "continue"}
    again = await browser.send(step_of(narrow, step), **shown)
    if step == "consent":
        assert (again.status, "asks for something else" in again.text, "Write" in again.text) == (403, True, True)
    else:
        assert leads_to(again) == action_of(narrow)
    assert await listed(orders, user) == []
    fields = answer_fields(await browser.send(action_of(narrow), **hidden_fields(page) | {"answer": "continue"}))
    assert "code" in fields, "the same question"


async def test_a_consent_is_for_one_application_and_one_resource(orders: OrdersClient, acme: Tenant) -> None:
    other = OrdersClient(await add_relying_party(acme, orders.party.browser, "blog"), orders.resource)
    await orders.change("insert into api_resource_clients select org_id, %s, id, '{}', now() from services where slug = 'blog'")
    await add_api_resource(acme.pool, acme.org, "https://api.example.com/v2", services=(orders.party.service,))
    await orders.authorize()
    assert not await asks(orders)
    assert await asks(orders, resource="https://api.example.com/v2")
    assert await asks(other)


async def test_a_consent_is_listed_and_withdrawn(orders: OrdersClient, user: Account, acme: Tenant) -> None:
    """Sessions and codes end with it, even without `openid`."""
    tokens = await orders.tokens(scope=f"{READ} {WRITE}")
    with_openid = await orders.tokens(scope=f"openid {READ}")
    code = await orders.code()
    [consent] = await listed(orders, user)
    resource = {"id": str(orders.resource), "identifier": ORDERS, "name": "Orders API"}
    scopes = [{"name": READ, "description": "Read your orders"}, {"name": WRITE, "description": "Change your orders"}]
    assert (consent["scopes"], consent["api_resources"]) == (["openid"], [{**resource, "scopes": scopes}])
    session = await sign_in(acme.ports, user)
    path = f"/api/user/consents/{consent['service_id']}"
    assert (await acme.api.delete(path, token=session.access_token)).status == 204
    assert await listed(orders, user) == []
    assert await run_sql(acme.pool, "select 1 from api_consents") == []
    assert error(await orders.party.exchange(code)) == "invalid_grant"
    for pair in (tokens, with_openid):
        assert error(await orders.refresh(pair)) == "invalid_grant"
    assert await asks(orders)
    records = [(entry["action"], entry["details"]) for entry in await acme.log() if entry["action"].startswith("consent.")]
    about = {"service_slug": "shop", "service_name": "Shop", "service_id": str(orders.party.service)}
    both = [{"identifier": ORDERS, "scopes": [READ, WRITE]}]
    assert records == [
        ("consent.granted", {**about, "scopes": [], "api_resources": both}),
        ("consent.granted", {**about, "scopes": ["openid"], "api_resources": [{"identifier": ORDERS, "scopes": [READ]}]}),
        ("consent.withdrawn", {**about, "scopes": ["openid"], "api_resources": both}),
    ]


async def test_the_pages_of_the_account_show_the_access(orders: OrdersClient) -> None:
    await orders.authorize()
    page = await orders.party.browser.open(f"/app/account/consents/{orders.party.service}")
    for text in ("by your email address", "Orders API", "it can:", "Read your orders"):
        assert text in page.text, text
    assert "Change your orders" not in page.text


async def test_a_removed_scope_and_a_deleted_resource_leave_the_list(orders: OrdersClient, user: Account) -> None:
    await orders.authorize(scope=f"{READ} {WRITE}")
    await orders.change("update api_resources set scope_names = '{orders:write}', scope_descriptions = '{Edit}' where id = %s")
    [consent] = await listed(orders, user)
    assert consent["api_resources"][0]["scopes"] == [{"name": WRITE, "description": "Edit"}]
    await orders.change("delete from api_resources where id = %s")
    [consent] = await listed(orders, user)
    assert consent["api_resources"] == []


async def test_confirmed_members_of_a_trusted_application_are_not_asked(orders: OrdersClient, user: Account, acme: Tenant) -> None:
    await run_sql(acme.pool, "update services set is_trusted = true")
    assert await asks(orders)
    await add_member(acme.pool, acme.org, user.id, confirmed=True)
    assert not await asks(orders)
    assert not await asks(orders, scope=None)
    assert await listed(orders, user) == []


@pytest.mark.parametrize("scope", [READ, f"openid {READ}"])
async def test_a_withdrawal_during_the_request_counts(orders: OrdersClient, scope: str) -> None:
    await orders.authorize(scope=scope)
    await orders.change("update api_consents set scope = '{}' where resource_id = %s")
    assert await asks(orders, scope=scope)
