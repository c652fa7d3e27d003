"""An application's claims, from its document to its tokens."""

from typing import Any, Final

import pytest
from psycopg.types.json import Jsonb

from adapters.postgres.engine.pool import Pool
from core.accounts.model.accounts import Account
from core.authentication.model.openid import Scope
from core.kernel.values import new_id
from tests.fakes.outside import FakeClock
from tests.federation.api.openid.client import OpenIdClient
from tests.federation.api.relying import SECRET, claims
from tests.support.builders import EMAIL, Answer, add_member, run_sql
from tests.support.refusals import BAD, refused
from tests.support.tenants import Tenant

SCOPE: Final = "openid profile email roles groups permissions"
EMPTY: Final = {"names": {}, "prefix": {}, "fixed": {}, "values": {}, "groups": {"which": "all", "value": "name"}, "access_token": []}


@pytest.fixture
async def application(signed_in: OpenIdClient, user: Account, acme: Tenant) -> OpenIdClient:
    """An application with OpenID Connect. The application's user is an admin in the organization, and has agreed to everything."""
    await signed_in.agree_before(user, *Scope)
    await add_member(acme.pool, acme.org, user.id, "admin", confirmed=True)
    return signed_in


def path(acme: Tenant) -> str:
    return f"{acme.path}/services/shop/claims"


async def put(acme: Tenant, document: dict[str, Any], version: int = 0, role: str = "owner") -> Answer:
    return await acme.api.call("PUT", path(acme), {**document, "version": version}, token=acme.token(role))


async def introspect(client: OpenIdClient, token: str) -> dict[str, Any]:
    answer = await client.party.post("/auth/introspect", client_id=str(client.party.client_id), client_secret=SECRET, token=token)
    assert answer.status == 200, answer.text
    body: dict[str, Any] = answer.json
    return body


async def test_an_application_gets_the_claims_of_its_document(application: OpenIdClient, acme: Tenant) -> None:
    before = await application.tokens(scope=SCOPE)
    assert "preferred_username" not in await application.userinfo(before)
    document: dict[str, Any] = {
        "names": {"roles": "https://hasura.io/roles"},
        "prefix": {"roles": "acme:"},
        "fixed": {"tenant": "acme"},
        "values": {"preferred_username": {"sources": ["preferred_username", "email_local_part"]}},
        "groups": {"which": "assigned", "value": "external_id"},
        "access_token": ["roles", "tenant"],
    }
    assert (await put(acme, document)).status == 200
    expected = {"https://hasura.io/roles": ["acme:admin"], "tenant": "acme", "preferred_username": EMAIL.partition("@")[0]}
    userinfo = await application.userinfo(before)
    assert expected.items() <= userinfo.items(), "as of now"
    assert "roles" not in userinfo
    in_access_token = {name: value for name, value in expected.items() if name != "preferred_username"}
    shown = await introspect(application, before["access_token"])
    assert {name: shown.get(name) for name in in_access_token} == in_access_token, shown
    assert "tenant" not in claims(before)
    for tokens in (await application.refresh(before), await application.tokens(scope=SCOPE)):
        assert expected.items() <= (await application.id_claims(tokens)).items()
        access = claims(tokens)
        assert in_access_token.items() <= access.items()
        assert "preferred_username" not in access
        assert (await introspect(application, tokens["refresh_token"]))["tenant"] == "acme"


async def test_the_consent_page_names_facts_that_the_organization_keeps(shop: OpenIdClient, signed_in: OpenIdClient, acme: Tenant) -> None:
    text = "See facts that <bdi>Acme</bdi> keeps about you"
    assert text not in (await signed_in.open(scope="openid org")).text
    await put(acme, {"values": {"department": {"sources": ["directory:department"], "scope": "org"}}})
    assert text in (await signed_in.open(scope="openid org")).text
    assert text not in (await signed_in.open(scope="openid email")).text


async def test_a_refresh_can_leave_scopes_out(application: OpenIdClient, acme: Tenant) -> None:
    await put(acme, {"access_token": ["roles"]})
    tokens = await application.tokens(scope=SCOPE)
    assert claims(tokens)["roles"] == ["admin"]
    narrowed = (await application.party.refresh(tokens["refresh_token"], scope="openid email")).json
    assert "roles" not in claims(narrowed)
    assert "roles" not in await introspect(application, narrowed["access_token"])
    wide = (await application.party.refresh(narrowed["refresh_token"])).json
    assert claims(wide)["roles"] == ["admin"]


async def test_the_scopes_for_groups_and_permissions_give_empty_lists_without_any(application: OpenIdClient) -> None:
    tokens = await application.tokens(scope=SCOPE)
    assert tokens["scope"].split() == ["openid", "profile", "email", "roles", "permissions", "groups"]
    for shown in (await application.id_claims(tokens), await application.userinfo(await application.refresh(tokens))):
        assert (shown["permissions"], shown["groups"]) == ([], [])


async def test_tokens_have_the_groups_roles_and_permissions_of_now(
    application: OpenIdClient, acme: Tenant, user: Account, pool: Pool, other_tenant: Tenant
) -> None:
    service = application.party.service
    ids = [new_id() for _ in range(5)]
    group = "insert into groups values (%s, %s, %s, lower(%s), null, %s, null, 0, now(), now(), now())"
    for id_, tenant, name in ((ids[0], acme, "Staff"), (ids[1], acme, "Ops"), (ids[2], other_tenant, "Theirs")):
        await run_sql(pool, group, id_, tenant.org, name, name, f"x-{name}")
        await run_sql(pool, "insert into group_members values (%s, %s, %s, now())", tenant.org, id_, user.id)
    await run_sql(pool, "insert into service_groups_assigned values (%s, %s, %s, now())", acme.org, service, ids[1])
    role = "insert into service_roles values (%s, %s, %s, %s, 'R', null, %s, now(), now())"
    for id_, slug, permissions in ((ids[3], "editor", ["docs:write", "docs:read"]), (ids[4], "auditor", ["docs:read"])):
        await run_sql(pool, role, id_, acme.org, service, slug, permissions)
        await run_sql(pool, "insert into service_role_users values (%s, %s, %s, %s, now())", acme.org, service, id_, user.id)
    clerk = new_id()
    await run_sql(pool, role, clerk, acme.org, service, "clerk", ["docs:print", "docs:read"])
    for id_, given in ((ids[1], clerk), (ids[0], clerk), (ids[1], ids[3])):  # Ops gives also a role that the user has alone
        await run_sql(pool, "insert into service_role_groups values (%s, %s, %s, %s, now())", acme.org, service, given, id_)
    await run_sql(pool, "update services set authorization_version = 1 where id = %s", service)
    roles, permissions = ["admin", "auditor", "clerk", "editor"], ["docs:print", "docs:read", "docs:write"]
    expected = {"groups": ["Ops", "Staff"], "roles": roles, "permissions": permissions}
    tokens = await application.tokens(scope=SCOPE)
    for shown in (
        await application.id_claims(tokens),
        await application.userinfo(tokens),
        await application.id_claims(await application.refresh(tokens)),
    ):
        assert {name: shown[name] for name in expected} == expected
    by_name = await application.tokens(scope="openid", claims='{"id_token": {"groups": null}}')
    assert (await application.id_claims(by_name))["groups"] == ["Ops", "Staff"]
    assert "groups" not in await application.userinfo(by_name)
    document = {"groups": {"which": "assigned", "value": "external_id"}, "access_token": ["groups", "permissions"]}
    assert (await put(acme, document)).status == 200
    tokens = await application.tokens(scope=SCOPE)
    of_tokens = {"groups": ["x-Ops"], "permissions": expected["permissions"]}
    for shown in (claims(tokens), await introspect(application, tokens["access_token"])):
        assert {name: shown[name] for name in of_tokens} == of_tokens
    await run_sql(pool, "delete from group_members where group_id in (%s, %s)", ids[0], ids[1])
    await run_sql(pool, "delete from service_role_users where role_id = %s", ids[3])
    userinfo = await application.userinfo(tokens)
    assert (userinfo["groups"], userinfo["permissions"], userinfo["roles"]) == ([], ["docs:read"], ["admin", "auditor"])
    assert (await introspect(application, tokens["access_token"]))["groups"] == []


async def test_the_directory_and_the_attributes_of_the_organization_are_sources(
    application: OpenIdClient, acme: Tenant, user: Account, pool: Pool, clock: FakeClock
) -> None:
    await run_sql(
        pool,
        "insert into scim_users (org_id, user_id, provisioned, updated_at, external_id, attributes) values (%s, %s, false, %s, 'a-1', %s)",
        *(acme.org, user.id, clock.now(), '{"department": "Research", "manager": {"value": "7", "displayName": "Charles"}}'),
    )
    sources = {
        "department": "directory:department",
        "login": "directory:userName",
        "number": "directory:externalId",
        "boss": "directory:managerName",
    }
    await put(acme, {"values": {name: {"sources": [source]} for name, source in sources.items()}})
    shown = await application.id_claims(await application.tokens(scope=SCOPE))
    assert {name: shown[name] for name in sources} == {"department": "Research", "login": EMAIL, "number": "a-1", "boss": "Charles"}


async def test_attributes_of_groups_are_sources_of_users_without_an_own_value(
    application: OpenIdClient, acme: Tenant, user: Account, pool: Pool, other_tenant: Tenant
) -> None:
    declare = "insert into organization_attributes values (%s, %s, 'A', %s, '{admin}', %s, 1, now())"
    for org in (acme.org, other_tenant.org):
        for name, kind, merge in (("site", "text", "first"), ("tools", "list", "union")):
            await run_sql(pool, declare, org, name, kind, merge)
    group = "insert into groups values (%s, %s, %s, lower(%s), null, null, null, 0, now(), now(), now())"
    groups = (
        (acme.org, "Ops", {"site": "Oslo", "tools": ["ssh"]}),
        (acme.org, "Core", {"tools": ["git", "ssh"]}),
        (other_tenant.org, "A", {"site": "Theirs", "tools": ["x"]}),
    )
    for org, name, values in groups:
        id_ = new_id()
        await run_sql(pool, group, id_, org, name, name)
        await run_sql(pool, "insert into group_members values (%s, %s, %s, now())", org, id_, user.id)
        await run_sql(pool, "insert into group_attribute_values values (%s, %s, %s, now())", id_, org, Jsonb(values))
    sources = {"site": {"sources": ["attribute:site"]}, "tools": {"sources": ["attribute:tools"]}}
    assert (await put(acme, {"values": sources, "access_token": ["tools"]})).status == 200
    tokens = await application.tokens(scope=SCOPE)
    expected: dict[str, Any] = {"site": "Oslo", "tools": ["git", "ssh"]}
    for shown in (await application.id_claims(tokens), await application.userinfo(tokens)):
        assert {name: shown[name] for name in sources} == expected
    assert claims(tokens)["tools"] == ["git", "ssh"]
    await run_sql(pool, "insert into attribute_values values (%s, %s, %s, now())", acme.org, user.id, Jsonb({"site": "Delft"}))
    await run_sql(pool, "delete from group_members where group_id = (select id from groups where name = 'Core')")
    expected = {"site": "Delft", "tools": ["ssh"]}
    assert expected.items() <= (await application.userinfo(tokens)).items(), "as of now"
    assert (await introspect(application, tokens["access_token"]))["tools"] == ["ssh"]
    assert claims(tokens)["tools"] == ["git", "ssh"], "kept until the refresh"
    refreshed = await application.refresh(tokens)
    assert expected.items() <= (await application.id_claims(refreshed)).items()
    assert claims(refreshed)["tools"] == ["ssh"]


async def test_claims_are_read_replaced_and_removed(shop: OpenIdClient, acme: Tenant) -> None:
    assert (await acme.api.get(path(acme), token=acme.token("member"))).json == {**EMPTY, "version": 0, "changed_at": None}
    first = (await put(acme, {"fixed": {"tenant": "acme"}})).json
    assert first.items() >= {**EMPTY, "fixed": {"tenant": "acme"}}.items()
    assert first["version"] > 0
    assert first["changed_at"] is not None
    assert refused(await put(acme, {})) == (409, "CONFLICT"), "the version is not the newest"
    again = await put(acme, {"fixed": {"tenant": "acme"}}, first["version"])
    assert again.json == first, "nothing changed"
    second = (await put(acme, {"fixed": {"tenant": "b"}}, first["version"])).json
    assert second["version"] > first["version"]
    assert (await acme.api.get(path(acme), token=acme.token("owner"))).json == second
    for _ in range(2):
        assert (await acme.api.delete(path(acme), token=acme.token("owner"))).status == 204
    assert (await acme.api.get(path(acme), token=acme.token("owner"))).json["version"] == 0
    rows = await run_sql(acme.pool, "select details -> 'changes' from audit_log where action = 'service.claims.updated'")
    changes = [row[0]["fixed"] for row in rows]
    assert sorted(changes, key=str) == [
        {"new": None, "old": {"tenant": "b"}},
        {"new": {"tenant": "acme"}, "old": None},
        {"new": {"tenant": "b"}, "old": {"tenant": "acme"}},
    ]


async def test_a_wrong_document_is_refused(shop: OpenIdClient, acme: Tenant) -> None:
    refused_documents: tuple[dict[str, Any], ...] = (
        {"fixed": {"sub": "x"}},
        {"fixed": {"x": 1.5}},
        {"fixed": {"x": None}},
        {"fixed": {"x": {"y": 1}}},
        {"values": {"x": {"sources": ["unknown"]}}},
        {"values": {"x": {}}},
        {"groups": {"which": "some"}},
        {"access_token": ["email"]},
        {"names": ["groups"]},
        {"names": {"groups": "\x00"}},
        {"values": {"x": {"sources": ["attribute:unknown"]}}},
    )
    for document in refused_documents:
        assert refused(await put(acme, document)) == BAD, document
    assert await run_sql(acme.pool, "select count(*) from service_claims") == [(0,)]


async def test_a_preview_shows_the_claims_before_and_after_and_stores_nothing(application: OpenIdClient, acme: Tenant) -> None:
    await put(acme, {"fixed": {"tenant": "acme"}})
    document: dict[str, Any] = {"fixed": {"tenant": "b"}, "access_token": ["tenant"]}
    answer = await acme.api.post(f"{path(acme)}/preview", document, token=acme.token("owner"))
    assert answer.status == 200, answer.text
    before, after = answer.json["before"], answer.json["after"]
    assert (before["id_token"]["tenant"], before["access_token"]) == ("acme", {})
    assert (after["id_token"]["tenant"], after["userinfo"]["tenant"], after["access_token"]) == ("b", "b", {"tenant": "b"})
    assert (await acme.api.get(path(acme), token=acme.token("owner"))).json["fixed"] == {"tenant": "acme"}
    assert refused(await acme.api.post(f"{path(acme)}/preview", {"fixed": {"sub": "b"}}, token=acme.token("owner"))) == BAD
    await application.configure(redirect_uris=[])
    assert (await acme.api.post(f"{path(acme)}/preview", document, token=acme.token("owner"))).json == {"before": None, "after": None}


async def test_a_stored_document_of_other_rules_stops_no_sign_in_and_gives_no_wrong_claim(
    application: OpenIdClient, acme: Tenant, user: Account
) -> None:
    """Documents were stored before a rule, by a later release, or with an attribute that is gone."""
    await run_sql(acme.pool, """update users set profile_details = '{"preferred_username": "owner@acme.example"}' where id = %s""", user.id)
    assert (await put(acme, {"fixed": {"tenant": "acme"}})).status == 200
    stale: dict[str, Any] = {
        "names": {"preferred_username": "email", "email": "mail", "roles": "sub"},
        "fixed": {"org_id": "another", "tenant": "acme", "long": "x" * 5000},
        "values": {
            "email_verified": {"sources": ["name"]},
            "nickname": {"sources": ["preferred_username"], "scope": "later"},
            "cost": {"sources": ["attribute:gone"]},
        },
        "groups": {"which": "later", "value": "later"},
        "access_token": ["roles", "gone"],
    }
    before = await application.tokens(scope=SCOPE)
    await run_sql(acme.pool, "update service_claims set document = %s", Jsonb(stale))
    for tokens in (await application.refresh(before), await application.tokens(scope=SCOPE)):
        for found in (await application.id_claims(tokens), await application.userinfo(tokens)):
            assert (found["mail"], found["tenant"], found["email_verified"]) == (EMAIL, "acme", True)
            assert (found["sub"], found["roles"]) == (str(user.id), ["admin"])
            assert not {"email", "org_id", "nickname", "cost", "long"} & found.keys()
        assert claims(tokens)["roles"] == ["admin"]
    shown = await acme.api.get(f"{acme.path}/services/shop/claims", token=acme.token("owner"))
    assert (shown.status, shown.json["names"]) == (200, {"email": "mail"}), "the parts that count"
