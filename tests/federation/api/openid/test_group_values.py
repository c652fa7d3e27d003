"""Group values in claims, while admins change them."""

from typing import Any

import pytest

from core.accounts.model.accounts import Account
from core.authentication.model.openid import Scope
from tests.federation.api.openid.client import OpenIdClient
from tests.support.builders import Answer, add_member, run_concurrently
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin

pytestmark = pytest.mark.slow


async def call(acme: Tenant, method: str, path: str, body: Any = None) -> Answer:
    return await acme.api.call(method, f"{acme.path}{path}", body, token=acme.token("owner"))


async def test_values_of_a_group_that_change_during_sign_ins_are_those_of_one_moment(
    acme: Tenant, signed_in: OpenIdClient, user: Account
) -> None:
    """A token has all the group's values or none, even if the attribute is deleted at the same time. No sign-in fails."""
    await signed_in.agree_before(user, *Scope)
    await add_member(acme.pool, acme.org, user.id, confirmed=True)
    groups = GroupAdmin(acme, "owner")
    group = await groups.create("Sales")
    assert (await groups.add(group, user.id)).status == 204
    for name in ("site", "team"):
        assert (await call(acme, "POST", "/attributes", {"name": name, "label": name, "kind": "text", "writers": ["admin"]})).status == 201
    values = {name: {"sources": [f"attribute:{name}"]} for name in ("site", "team")}
    assert (await call(acme, "PUT", "/services/shop/claims", {"values": values, "version": 0})).status == 200
    path = f"/groups/{group}/attributes"
    refreshing = [await signed_in.tokens(scope="openid profile") for _ in range(4)]
    found = list[dict[str, Any]]()

    async def act(number: int) -> int:
        if number < 8:
            value = None if number % 2 else f"v{number}"
            return (await call(acme, "PATCH", path, {"values": {"site": value, "team": value}})).status
        tokens = await signed_in.refresh(refreshing[number - 8])
        found.append(await signed_in.id_claims(tokens))
        found.append(await signed_in.userinfo(tokens))
        return 200

    assert {*await run_concurrently(12, act)} == {200}
    for each in found:
        assert each.get("site") == each.get("team"), "both values are of one change"
    assert (await call(acme, "PATCH", path, {"values": {"site": "Delft", "team": "Delft"}})).status == 200
    assert (await groups.call("DELETE", f"/{group}")).status == 204
    tokens = await signed_in.refresh(await signed_in.tokens(scope="openid profile"))
    assert not {"site", "team"} & (await signed_in.id_claims(tokens)).keys(), "the values ended with the group"
