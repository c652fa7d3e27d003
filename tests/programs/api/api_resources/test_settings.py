"""API resources: creation, changes and deletion."""

from typing import Any
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.programs.model.api_resources import (
    MAX_RESOURCES,
    ApiResourceNotFound,
    IdentifierHostNotVerified,
    IdentifierInvalid,
    IdentifierTaken,
    IdentifierUrnInvalid,
    ImpliedScopeInvalid,
    NoApiResourceChanges,
    ResourceScopeReserved,
    ResourceScopesInvalid,
    TooManyApiResources,
)
from tests.support.builders import BASE_URL, Answer, run_concurrently, run_sql
from tests.support.services import add_api_resource, verify_domain
from tests.support.tenants import Tenant

READ, WRITE = ({"name": f"orders:{name}", "description": f"{name.title()} your orders", "implies": []} for name in ("read", "write"))
ORDERS = {"identifier": "https://API.example.com", "name": "Orders API", "scopes": [READ, WRITE], "token_seconds": 600}


def resources(tenant: Tenant) -> str:
    return f"{tenant.path}/api-resources"


async def create(tenant: Tenant, by: str = "admin", **changes: Any) -> Answer:
    return await tenant.api.post(resources(tenant), {**ORDERS, **changes}, token=tenant.token(by))


async def created(tenant: Tenant, **changes: Any) -> str:
    """Return a new API resource's path."""
    answer = await create(tenant, **changes)
    assert answer.status == 201, answer.text
    return f"{resources(tenant)}/{answer.json['id']}"


def message(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


@pytest.fixture
async def acme(acme: Tenant) -> Tenant:
    """The organization, with the verified domain example.com."""
    await verify_domain(acme.pool, acme.org)
    return acme


async def test_an_admin_creates_changes_and_deletes_a_resource(acme: Tenant) -> None:
    answer = await create(acme)
    assert answer.status == 201, answer.text
    resource = answer.json
    assert resource | {"id": "", "created_at": ""} == {
        **ORDERS,
        "id": "",
        "created_at": "",
        "policy": "anyone",
        "is_active": True,
    }
    path = f"{resources(acme)}/{resource['id']}"
    assert (await acme.api.get(path, token=acme.token("member"))).json == resource
    assert (await acme.api.get(resources(acme), token=acme.token("member"))).json == {"api_resources": [resource]}
    changes = {"name": "Orders", "scopes": [WRITE], "token_seconds": 3600}
    for _ in range(2):  # the second request changes nothing
        changed = await acme.api.patch(path, changes, token=acme.token("admin"))
        assert (changed.status, changed.json) == (200, resource | changes)
    assert (await acme.api.delete(path, token=acme.token("admin"))).status == 204
    assert message(await acme.api.get(path, token=acme.token("admin"))) == (404, ApiResourceNotFound.__doc__)
    about = {"identifier": "https://API.example.com", "name": "Orders API"}
    old, new = ({scope["name"]: scope["description"] for scope in scopes} for scopes in ([READ, WRITE], [WRITE]))
    details: list[dict[str, Any]] = [
        {**about, "scopes": ["orders:read", "orders:write"], "token_seconds": 600, "policy": "anyone"},
        {
            **about,
            "name": "Orders",
            "changes": {
                "name": {"old": "Orders API", "new": "Orders"},
                "token_seconds": {"old": 600, "new": 3600},
                "scopes": {"old": old, "new": new},
            },
        },
        {**about, "name": "Orders"},
    ]
    actions = ("api_resource.created", "api_resource.updated", "api_resource.deleted")
    assert await acme.recorded() == [
        (action, "api_resource", resource["id"], acme.people["admin"].id, each) for action, each in zip(actions, details, strict=True)
    ]
    await acme.actions()


async def test_a_scope_implies_others(acme: Tenant) -> None:
    path = await created(acme, scopes=[READ, WRITE | {"implies": ["orders:read"]}])
    await acme.recorded()
    assert (await acme.api.get(path, token=acme.token("member"))).json["scopes"][1]["implies"] == ["orders:read"]
    await acme.api.patch(path, {"scopes": [READ, WRITE]}, token=acme.token("admin"))
    event = (await acme.recorded())[-1]
    assert event[4]["changes"] == {"implied_scopes": {"old": {"orders:write": ["orders:read"]}, "new": {}}}


async def test_defaults(acme: Tenant) -> None:
    answer = await acme.api.post(resources(acme), {"identifier": "https://example.com/v1", "name": "API"}, token=acme.token("owner"))
    assert (answer.json["scopes"], answer.json["token_seconds"]) == ([], 900)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"identifier": "http://api.example.com/"}, IdentifierInvalid),
        ({"identifier": f"urn:gatehouse:{uuid4()}:orders"}, IdentifierUrnInvalid),
        ({"identifier": f"{BASE_URL.replace('http', 'https')}/api"}, IdentifierHostNotVerified),
        ({"identifier": f"{BASE_URL}/api"}, IdentifierInvalid),
        ({"identifier": "https://elsewhere.example/"}, IdentifierHostNotVerified),
        ({"identifier": "https://notexample.com/"}, IdentifierHostNotVerified),
        ({"identifier": "https://example.com.evil.example/"}, IdentifierHostNotVerified),
        ({"identifier": "https://com/"}, IdentifierHostNotVerified),
        ({"identifier": "https://192.0.2.1/"}, IdentifierHostNotVerified),
        ({"scopes": [READ, READ]}, ResourceScopesInvalid),
        ({"scopes": [{"name": "orders read", "description": "Read"}]}, ResourceScopesInvalid),
        ({"scopes": [READ | {"implies": ["orders:read"]}]}, ImpliedScopeInvalid),
        ({"scopes": [{"name": "openid", "description": "Sign in"}]}, ResourceScopeReserved),
    ],
)
async def test_wrong_settings_are_refused(acme: Tenant, changes: dict[str, Any], refusal: type[Exception]) -> None:
    assert message(await create(acme, **changes)) == (400, refusal.__doc__)
    assert await run_sql(acme.pool, "select 1 from api_resources") == []


@pytest.mark.parametrize(
    "changes",
    [
        {"token_seconds": 59},
        {"token_seconds": 3601},
        {"token_seconds": "600"},
        {"scopes": [{"name": "orders:read"}]},
        {"scopes": [{"name": "orders:read", "description": " "}]},
        {"scopes": [{"name": "orders:read", "description": "x" * 201}]},
        {"name": ""},
        {"identifier": None},
    ],
)
async def test_fields_have_limits(acme: Tenant, changes: dict[str, Any]) -> None:
    assert (await create(acme, **changes)).status == 400


async def test_a_urn_of_the_organization_needs_no_domain(acme: Tenant, other_tenant: Tenant) -> None:
    urn = f"urn:gatehouse:{other_tenant.org}:orders"
    assert (await create(other_tenant, identifier=urn)).status == 201
    assert message(await create(acme, identifier=urn)) == (400, IdentifierUrnInvalid.__doc__)


@pytest.mark.parametrize("again", ["https://api.example.com", "https://api.example.com/", "https://API.EXAMPLE.com:443/"])
async def test_two_spellings_are_one_identifier(acme: Tenant, again: str) -> None:
    await created(acme)
    assert message(await create(acme, identifier=again)) == (409, IdentifierTaken.__doc__)
    assert (await create(acme, identifier="https://api.example.com/v2")).status == 201


async def test_a_lost_domain_stops_its_resources_and_blocks_no_other_organization(acme: Tenant, other_tenant: Tenant, pool: Pool) -> None:
    """The identifier belongs to the host's verified owner (decision 300)."""
    path = await created(acme)
    assert message(await create(other_tenant)) == (400, IdentifierHostNotVerified.__doc__)
    await run_sql(pool, "update domains set verified_at = null")
    assert (await acme.api.get(path, token=acme.token("member"))).json["is_active"] is False
    assert message(await create(acme, identifier="https://example.com/v2")) == (400, IdentifierHostNotVerified.__doc__)
    await verify_domain(pool, other_tenant.org)
    twin = await created(other_tenant)
    assert (await other_tenant.api.get(twin, token=other_tenant.token("member"))).json["is_active"] is True
    assert (await acme.api.get(path, token=acme.token("member"))).json["is_active"] is False
    # A subdomain that another organization has verified belongs to that organization.
    await run_sql(pool, "delete from domains where org_id = %s", other_tenant.org)
    await verify_domain(pool, other_tenant.org, "api.example.com")
    await verify_domain(pool, acme.org)
    assert (await acme.api.get(path, token=acme.token("member"))).json["is_active"] is False
    assert message(await create(acme, identifier="https://x.api.example.com/")) == (400, IdentifierHostNotVerified.__doc__)


async def test_a_change_needs_a_field(acme: Tenant) -> None:
    path = await created(acme)
    assert message(await acme.api.patch(path, {}, token=acme.token("admin"))) == (400, NoApiResourceChanges.__doc__)
    assert message(await acme.api.patch(path, {"scopes": [READ, READ]}, token=acme.token("admin"))) == (400, ResourceScopesInvalid.__doc__)
    assert (await acme.api.patch(path, {"identifier": "https://example.com/v2"}, token=acme.token("admin"))).status == 400


async def test_an_organization_has_a_limited_number_of_resources(acme: Tenant, pool: Pool) -> None:
    for number in range(MAX_RESOURCES - 1):
        await add_api_resource(pool, acme.org, f"https://example.com/{number}")
    answers = await run_concurrently(3, lambda number: create(acme, identifier=f"https://example.com/a{number}"))
    assert sorted(answer.status for answer in answers) == [201, 400, 400]
    assert message(await create(acme)) == (400, TooManyApiResources.__doc__)


async def test_resources_of_other_organizations_do_not_exist(acme: Tenant, other_tenant: Tenant) -> None:
    path = await created(acme)
    foreign = path.replace(acme.path, other_tenant.path)
    for method, suffix, body in (
        ("GET", "", None),
        ("PATCH", "", {"name": "x"}),
        ("DELETE", "", None),
        ("GET", "/access", None),
        ("PUT", "/access", {"policy": "members"}),
        ("GET", "/assignments", None),
        ("GET", "/clients", None),
    ):
        answer = await other_tenant.api.call(method, foreign + suffix, body, token=other_tenant.token("owner"))
        assert message(answer) == (404, ApiResourceNotFound.__doc__), (method, suffix)
