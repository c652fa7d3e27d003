"""An API resource's external clients."""

from collections import Counter
from typing import Any

import pytest

from core.programs.model.client_policy import (
    AccessWasChosen,
    ClientHostInvalid,
    ClientHostsMissing,
    ClientScopeUnknown,
    ExternalClientsOfAnyone,
    TooManyClientHosts,
)
from tests.programs.api.api_resources.test_access import Orders, message
from tests.support.services import add_api_resource
from tests.support.tenants import Tenant

NONE: dict[str, Any] = {"admit": "none", "hosts": [], "scopes": None, "accepts_token_endpoint_audience": False, "registration": False}
CHATGPT = {
    "admit": "listed",
    "hosts": ["chatgpt.com", "xn--bcher-kva.example:8443"],
    "scopes": ["orders:read"],
    "accepts_token_endpoint_audience": True,
    "registration": True,
}
SWITCH = {**CHATGPT, "access": "anyone"}


@pytest.fixture
async def orders(acme: Tenant) -> Orders:
    return Orders(acme, await add_api_resource(acme.pool, acme.org))


async def test_an_admin_admits_external_clients(orders: Orders, acme: Tenant) -> None:
    assert await orders.listed("external-clients") == NONE
    for _ in range(2):  # the second request changes nothing
        answer = await orders.call("PUT", "external-clients", {**SWITCH, "hosts": ["ChatGPT.com:443", "bücher.example:8443"]})
        assert (answer.status, answer.json) == (200, CHATGPT)
    assert await orders.listed("external-clients") == CHATGPT
    [event] = await acme.recorded()
    changes = {name: {"old": NONE[name], "new": value} for name, value in CHATGPT.items()}
    assert event == (
        "api_resource.external_clients.updated",
        "api_resource",
        str(orders.id),
        acme.people["admin"].id,
        orders.details(changes=changes),
    )
    await acme.actions()
    answer = await orders.call("PUT", "external-clients", {"admit": "any"})
    assert (answer.status, answer.json) == (200, {**NONE, "admit": "any"})


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"hosts": ["https://claude.ai"]}, ClientHostInvalid),
        ({"hosts": ["*.claude.ai"]}, ClientHostInvalid),
        ({"hosts": [f"{number}.example" for number in range(51)]}, TooManyClientHosts),
        ({"hosts": []}, ClientHostsMissing),
        ({"access": None}, ExternalClientsOfAnyone),
        ({"scopes": ["orders:delete"]}, ClientScopeUnknown),
        ({"scopes": ["orders:read", "orders:read"]}, ClientScopeUnknown),
    ],
)
async def test_a_wrong_policy_is_refused(orders: Orders, changes: dict[str, Any], refusal: type[Exception]) -> None:
    assert message(await orders.call("PUT", "external-clients", {**SWITCH, **changes})) == (400, refusal.__doc__)
    for body in ({}, {"admit": "all"}, {"admit": "listed", "hosts": "claude.ai"}):
        assert (await orders.call("PUT", "external-clients", body)).status == 400
    assert await orders.listed("external-clients") == NONE


async def test_a_switch_replaces_no_access_that_was_chosen_before(orders: Orders) -> None:
    """A page that was opened before can still say `members`."""
    await orders.call("PUT", "external-clients", {**SWITCH, "access": "assigned"})
    before = await orders.listed("external-clients"), await orders.listed("access")
    for access in ("members", "anyone"):
        answer = await orders.call("PUT", "external-clients", {**SWITCH, "hosts": ["other.example"], "access": access})
        assert message(answer) == (409, AccessWasChosen.__doc__)
    assert (await orders.listed("external-clients"), await orders.listed("access")) == before
    for same in ("assigned", None):
        assert (await orders.call("PUT", "external-clients", {**SWITCH, "access": same})).status == 200


async def test_external_clients_lose_a_scope_with_the_resource(orders: Orders) -> None:
    await orders.call("PUT", "external-clients", {**SWITCH, "scopes": ["orders:write", "orders:read"]})
    assert (await orders.listed("external-clients"))["scopes"] == ["orders:read", "orders:write"]
    await orders.tenant.api.patch(
        orders.path, {"scopes": [{"name": "orders:write", "description": "Change your orders"}]}, token=orders.tenant.token("admin")
    )
    assert (await orders.listed("external-clients"))["scopes"] == ["orders:write"]


async def test_the_switch_can_replace_the_access_policy(orders: Orders, acme: Tenant) -> None:
    """Without it, the answer that everyone who signs up may connect a client is missing. A switch that is already on needs no answer."""
    of_clients, of_access, recorded = "api_resource.external_clients.updated", "api_resource.access.updated", Counter[str]()
    for access, policy, actions in (
        ("anyone", "anyone", [of_clients]),
        ("anyone", "anyone", []),
        (None, "anyone", [of_clients]),
        ("members", "members", [of_clients, of_access]),
        ("members", "members", []),  # a tool that keeps the document sends it again
        (None, "members", [of_clients]),
    ):
        body = {**CHATGPT, "access": access, "registration": access is None}
        assert (await orders.call("PUT", "external-clients", body)).status == 200, access
        assert await orders.listed("access") == {"policy": policy}
        recorded.update(actions)
        assert await acme.actions() == recorded
