"""Required connections: saving the rule, the users that it would lock out, what cannot be removed then, and the break glass list."""

import re
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.federation.connections.model.connections import ConnectionState, OrganizationConnection
from core.kernel.proofs import Method, Proof, first_proof
from ports import Ports
from tests.support.browser import FakeBrowser
from tests.support.builders import Answer, add_account, add_member, one_factor, run_sql
from tests.support.connections import add_connection
from tests.support.connections.proofs import connection_proof, write_proofs
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import RP_ID, add_passkeys
from tests.support.services import add_service
from tests.support.tenants import Tenant
from tests.tenancy.api.policy.policies import load, path_of, preview, save, try_preview
from tests.tenancy.api.policy.test_pages import PAGE
from tests.tenancy.api.policy.test_pages import preview as preview_page
from tests.tenancy.api.policy.test_pages import save as save_page
from tests.tenancy.api.test_roles import add_role

DOMAIN: Final = "acme.example"  # all members' addresses have it
BY_DOMAIN: Final = {"required_connections": {DOMAIN: "okta"}}
LOCKED_OUT: Final = "First sign in through this connection, or list yourself for break glass"


@pytest.fixture
async def okta(acme: Tenant, ports: Ports, pool: Pool) -> OrganizationConnection:
    """The owner has come through it."""
    return await set_up(ports, pool, acme.org, acme.people["owner"].id)


async def set_up(ports: Ports, pool: Pool, org: UUID, owner: UUID) -> OrganizationConnection:
    """Add a connection and a verified domain. The owner has come through the connection."""
    sql = "insert into domains (org_id, domain, challenge, verified_at, created_at) values (%s, %s, 'challenge', now(), now())"
    await run_sql(pool, sql, org, DOMAIN)
    connection, now = await add_connection(ports.storage, org), ports.clock.now()
    passkey = Proof(Method.PASSKEY, now, user_verified=True, phishing_resistant=True)
    await write_proofs(pool, owner, (passkey, connection_proof(org, now, connection=connection.id)))
    await know(pool, connection, owner)
    return connection


async def know(pool: Pool, connection: OrganizationConnection, user_id: UUID) -> None:
    sql = """
        insert into connection_identities (org_id, connection_id, user_id, subject, linked_at, last_used_at)
        values (%s, %s, %s, %s, now(), now())"""
    await run_sql(pool, sql, connection.org_id, connection.id, user_id, str(user_id))


async def put_list(acme: Tenant, *names: str, by: str = "owner") -> Answer:
    body = {"user_ids": [str(acme.people[name].id) for name in names]}
    return await acme.api.call("PUT", f"{path_of(acme)}/break-glass", body, token=acme.token(by))


async def test_a_connection_is_required_by_its_slug_for_verified_domains(acme: Tenant, okta: OrganizationConnection, ports: Ports) -> None:
    saved = await save(acme, BY_DOMAIN)
    assert (saved.status, saved.json["required_connections"]) == (200, {DOMAIN: "okta"})
    assert (await load(acme))["in_force"]["required_connections"] == {DOMAIN: "okta"}
    [entry] = [entry for entry in await acme.log() if entry["action"] == "organization.sign_in_policy.updated"]
    assert entry["details"]["changes"] == {"required_connections": {"old": None, "new": {DOMAIN: "okta"}}}
    await add_connection(ports.storage, acme.org, "draft", state=ConnectionState.DRAFT)
    for rules, problem in (
        ({"acme.org": "okta"}, "acme.org is no verified domain of the organization. Verify it first."),
        ({"-": "okta"}, "'-': The domain is not valid"),
        ({DOMAIN: "draft"}, "'draft' is no active connection of the organization. Choose an active one."),
        ({DOMAIN: "codehost"}, "'codehost' is no active connection of the organization. Choose an active one."),
    ):
        for refused in (await save(acme, {"required_connections": rules}), await try_preview(acme, {"required_connections": rules})):
            assert (refused.status, problem in refused.json["error"]) == (400, True), refused.text


async def test_a_rule_that_would_lock_its_author_out_is_refused(
    acme: Tenant, okta: OrganizationConnection, ports: Ports, pool: Pool
) -> None:
    """The admin has never come through the connection."""
    await add_service(pool, acme.org, "shop")
    for rules, service in ((BY_DOMAIN, None), ({"required_connection": "okta"}, "shop")):
        refused = await save(acme, rules, service, by="admin")
        assert (refused.status, LOCKED_OUT in refused.json["error"]) == (400, True), refused.text
    await know(pool, okta, acme.people["admin"].id)
    assert (await save(acme, BY_DOMAIN, by="admin")).status == 400, "the present session did not come through it"
    assert (await put_list(acme, "admin")).status == 200
    assert (await save(acme, BY_DOMAIN, by="admin")).status == 200
    removed = await put_list(acme, "owner", by="admin")
    assert (removed.status, LOCKED_OUT in removed.json["error"]) == (400, True)
    assert (await put_list(acme, "owner")).status == 200, "the owner came through the connection"


async def test_an_author_whom_the_provider_did_not_ask_takes_the_rule_back(acme: Tenant, okta: OrganizationConnection, pool: Pool) -> None:
    """The password stands beside the sign-in there."""
    owner = acme.people["owner"].id
    asked = connection_proof(acme.org, acme.ports.clock.now(), connection=okta.id)
    await write_proofs(pool, owner, (first_proof("password", asked.at), replace(asked, is_fresh=False)))
    await run_sql(pool, "update users set password_hash = 'a hash' where id = %s", owner)
    assert (await save(acme, BY_DOMAIN)).status == 200
    assert (await put_list(acme, "owner")).status == 200
    assert (await put_list(acme)).status == 200
    assert (await save(acme, {})).status == 200


async def test_a_preview_names_the_members_whom_the_connection_does_not_know(
    acme: Tenant, okta: OrganizationConnection, ports: Ports, pool: Pool
) -> None:
    contractor = await add_account(ports, "contractor@elsewhere.org")
    await add_member(pool, acme.org, contractor.id, confirmed=True)
    seen = await preview(acme, BY_DOMAIN)
    assert {person["email"]: person["missing"] for person in seen["people"]} == {
        acme.people[name].email: "required_connection" for name in ("admin", "member")
    }
    assert seen["members"] == {"concerned": 3, "meets": 1, "stopped_now": 2, "stopped_later": 0, "is_exact": True}
    assert seen["lacks_break_glass"]
    assert (await put_list(acme, "admin")).status == 200
    seen = await preview(acme, BY_DOMAIN)
    assert ([person["email"] for person in seen["people"]], seen["lacks_break_glass"]) == ([acme.people["member"].email], False)
    await know(pool, okta, contractor.id)
    assert (await preview(acme, BY_DOMAIN))["members"]["concerned"] == 4, "a known user needs the connection with any address"


async def test_what_a_policy_requires_cannot_be_removed(acme: Tenant, okta: OrganizationConnection, pool: Pool) -> None:
    await add_service(pool, acme.org, "shop")
    paths: list[tuple[str, str]] = [
        ("DELETE", "/connections/okta"),
        ("POST", "/connections/okta/deactivate"),
        ("DELETE", f"/domains/{DOMAIN}"),
    ]
    for rules, service, blocked in ((BY_DOMAIN, None, paths), ({"required_connection": "okta"}, "shop", paths[:2])):
        assert (await save(acme, rules, service)).status == 200
        answers = [await acme.api.call(method, acme.path + path, token=acme.token("owner")) for method, path in blocked]
        assert [answer.status for answer in answers] == [409] * len(blocked), [answer.text for answer in answers]
        assert (await save(acme, {}, service)).status == 200
    answers = [await acme.api.call(method, acme.path + path, token=acme.token("owner")) for method, path in reversed(paths)]
    assert all(answer.status < 300 for answer in answers), [answer.text for answer in answers]


async def test_only_confirmed_owners_and_admins_are_listed_for_break_glass(acme: Tenant, pool: Pool) -> None:
    assert (await add_role(acme, "auditor", ["audit.view"])).status == 201, "a member without this role is still no admin"
    assert (await put_list(acme, "owner", "admin")).status == 200
    assert (await put_list(acme, "member")).status == 400
    await run_sql(pool, "update memberships set confirmed_at = null where user_id = %s", acme.people["admin"].id)
    assert (await put_list(acme, "admin")).status == 400
    await run_sql(pool, "update memberships set confirmed_at = now(), role = 'member' where user_id = %s", acme.people["admin"].id)

    async def listed() -> dict[str, Any]:
        answer = await acme.api.get(f"{path_of(acme)}/break-glass", token=acme.token("owner"))
        return {user["email"]: user["is_admin"] for user in answer.json["users"]}

    assert await listed() == {acme.people["owner"].email: True, acme.people["admin"].email: False}
    assert (await acme.api.post(f"{acme.path}/leave", token=acme.token("admin"))).status < 300
    assert await listed() == {acme.people["owner"].email: True}


@pytest.mark.parametrize("factor_rule", [{"phishing_resistant": ["admins"], "grace_days": 14}, {"second_factor": ["high_risk"]}], ids=str)
@pytest.mark.parametrize("is_of_application", [False, True])
async def test_listed_users_have_the_factors_that_the_policy_asks_for(
    acme: Tenant, okta: OrganizationConnection, pool: Pool, factor_rule: dict[str, Any], is_of_application: bool
) -> None:
    """Rules that start later, or ask at a high risk, count, too: the list and the policy are saved in either order."""
    admin = acme.people["admin"]
    await add_service(pool, acme.org, "shop")
    rules = {**factor_rule, **({"required_connection": "okta"} if is_of_application else BY_DOMAIN)}
    service = "shop" if is_of_application else None
    needed = f"For break glass, {admin.email} needs the factors"
    assert (await put_list(acme, "admin")).status == 200, "no policy asks for them yet"
    assert (await save(acme, factor_rule, service)).status == 200, "no connection is required"
    assert (await save(acme, {}, service)).status == 200
    refused = await save(acme, rules, service)
    assert (refused.status, needed in refused.json["error"]) == (400, True), refused.text
    assert (await put_list(acme)).status == 200
    saved = await save(acme, rules, service)
    assert saved.status == 200, saved.text
    refused = await put_list(acme, "admin")
    assert (refused.status, needed in refused.json["error"]) == (400, True), refused.text
    await add_passkeys(pool, admin.id, RP_ID)
    assert (await put_list(acme, "admin")).status == 200


async def test_settings_of_applications_ask_listed_users_for_factors(acme: Tenant, okta: OrganizationConnection, pool: Pool) -> None:
    """The refusal names no user: a program may change settings, and may not see members."""
    admin, path, token = acme.people["admin"], f"{acme.path}/services", acme.token("owner")
    await add_service(pool, acme.org, "shop")
    assert (await save(acme, BY_DOMAIN)).status == 200
    assert (await put_list(acme, "admin")).status == 200
    new = {"slug": "store", "name": "Store", "service_type": "web", "required_acr": "mfa"}
    for method, to, body in (("PATCH", f"{path}/shop", {"required_acr": "mfa"}), ("POST", path, new)):
        refused = await acme.api.call(method, to, body, token=token)
        assert (refused.status, "A user on the list of break glass lacks the factors" in refused.json["error"]) == (400, True), refused.text
    await add_mfa(acme.ports, admin)
    assert (await acme.api.patch(f"{path}/shop", {"required_acr": "mfa"}, token=token)).status == 200


async def test_the_pages_save_the_rules_and_the_list_and_show_refusals(owner_browser: FakeBrowser, ports: Ports, pool: Pool) -> None:
    [(org, owner)] = await run_sql(pool, "select org_id, user_id from memberships")
    await set_up(ports, pool, org, owner)
    await run_sql(pool, "update users set email = 'owner@acme.example' where id = %s", owner)
    every_method, rule = {"method:connection": "yes"}, {f"connection:{DOMAIN}": "okta"}
    shown = await preview_page(owner_browser, **every_method, **rule)
    assert (shown.status, "No owner or admin is listed for break glass" in shown.text) == (200, True)
    assert (await save_page(owner_browser, **every_method, **rule)).status == 303
    await add_service(pool, org, "shop")
    of_shop = "/app/organizations/acme/applications/shop/sign-in-policy"
    assert (await save_page(owner_browser, of_shop, **every_method, required_connection="okta")).status == 303
    for page in (PAGE, of_shop):
        assert '<option value="okta" selected>' in (await owner_browser.open(page)).text, page
    glass = f"{PAGE}/break-glass"
    assert (await owner_browser.submit(glass, glass, person_1=str(owner), person_3=str(owner))).status == 303
    assert re.findall('<option value="([^"]+)" selected', (await owner_browser.open(glass)).text) == [str(owner)]
    member = await add_account(ports, "member@acme.example")
    await add_member(pool, org, member.id, confirmed=True)
    refused = await owner_browser.submit(glass, glass, person_1=str(member.id))
    assert (refused.status, "Only owners and admins" in refused.text) == (400, True)
    await write_proofs(pool, owner, one_factor(ports.clock.now()))
    refused = await owner_browser.submit(glass, glass, person_1="")
    assert (refused.status, LOCKED_OUT in refused.text) == (400, True)
    assert (await save_page(owner_browser, **every_method)).status == 303, "without the rule, the list may be empty"
