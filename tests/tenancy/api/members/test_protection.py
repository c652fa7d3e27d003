"""The protection of accounts against a stolen password: the same three states in lists, on pages, in exports and in tasks."""

import json
from typing import Any

import pytest
from lxml import html

from adapters.postgres.engine.pool import Pool
from core.accounts.model.protection import HeldFactor, Protection
from core.kernel.roles import ADMIN, MEMBER
from tests.support.browser import FakeBrowser, main_of
from tests.support.builders import PASSWORD, add_account, add_member, run_sql
from tests.support.passkeys.users import add_passkeys
from tests.support.services import add_service, add_service_user
from tests.support.tenants import Tenant

MEMBERS = "/app/organizations/acme/members"
# The columns of an account, its factors and its protection without a policy, if a second factor is asked, and if a passkey is asked
ACCOUNTS: dict[str, tuple[dict[str, Any], list[str], tuple[str, ...]]] = {
    "password": ({}, [], ("password_alone", "missing", "missing")),
    "app": ({"mfa_enabled_at": "2026-01-01"}, ["app"], ("protected", "protected", "missing")),
    "passkey beside": ({"passkey_count": 1}, ["passkey"], ("password_alone", "password_alone", "password_alone")),
    "passkey second": ({"passkey_count": 1, "passkey_second_at": "2026-01-01"}, ["passkey"], ("protected",) * 3),
    "passkey alone": ({"passkey_count": 1, "password_hash": None}, ["passkey"], ("protected",) * 3),
    "key second": ({"security_key_count": 1, "passkey_second_at": "2026-01-01"}, ["key"], ("protected",) * 3),
    "provider": ({"password_hash": None}, [], ("protected", "missing", "missing")),
    "everything": (
        {"passkey_count": 1, "security_key_count": 2, "passkey_second_at": "2026-01-01", "mfa_enabled_at": "2026-01-01"},
        ["passkey", "app", "key"],
        ("protected",) * 3,
    ),
}
POLICIES: tuple[dict[str, Any], ...] = ({}, {"second_factor": ["everyone"]}, {"phishing_resistant": ["everyone"]})


@pytest.fixture
async def people(acme: Tenant, pool: Pool) -> dict[str, str]:
    """The ids of confirmed members with these accounts, who also use an application, and of a member who has not confirmed."""
    shop, ids = await add_service(pool, acme.org, "shop"), {}
    await run_sql(pool, "delete from memberships where role = 'member'")
    await run_sql(pool, "update users set passkey_count = 1, password_hash = null")  # the owner and the admin
    for name, (columns, _, _) in ACCOUNTS.items():
        account = await add_account(acme.ports, f"{name.replace(' ', '-')}@example.com", PASSWORD)
        for column, value in columns.items():
            await run_sql(pool, f"update users set {column} = %s where id = %s", value, account.id)  # noqa: S608
        await add_member(pool, acme.org, account.id, MEMBER, confirmed=True)
        await add_service_user(acme.ports, shop, account.id)
        ids[name] = str(account.id)
    unconfirmed = await add_account(acme.ports, "unconfirmed@example.com", PASSWORD)
    await add_member(pool, acme.org, unconfirmed.id, ADMIN)
    ids["unconfirmed"] = str(unconfirmed.id)
    return ids


async def ask(acme: Tenant, pool: Pool, rules: dict[str, Any]) -> None:
    await run_sql(pool, "delete from sign_in_policies")
    sql = "insert into sign_in_policies (id, org_id, rules, changed_at) values (gen_random_uuid(), %s, %s::jsonb, now())"
    await run_sql(pool, sql, acme.org, json.dumps(rules))


async def export(acme: Tenant, query: str = "") -> dict[str, tuple[Any, Any]]:
    answer = await acme.api.get(f"{acme.path}/members/export?format=jsonl{query}", token=acme.token("owner"))
    assert answer.status == 200, answer.text
    lines = [json.loads(line) for line in answer.text.splitlines()]
    return {line["user_id"]: (line["protection"], line["factors"]) for line in lines}


async def test_every_account_has_the_same_state_everywhere(acme: Tenant, people: dict[str, str], pool: Pool) -> None:
    for number, rules in enumerate(POLICIES):
        await ask(acme, pool, rules)
        expected = {people[name]: (states[number], factors) for name, (_, factors, states) in ACCOUNTS.items()}
        exported = await export(acme)
        assert {id_: exported[id_] for id_ in expected} == expected, rules
        assert exported[people["unconfirmed"]] == (None, None), "an unconfirmed membership shows nothing (security R-9)"
        users = (await acme.api.get(f"{acme.path}/users", token=acme.token("owner"))).json["users"]
        assert {user["id"]: (user["protection"], user["factors"]) for user in users} == expected, rules
        for name in ("password", "passkey beside", "unconfirmed"):
            member = (await acme.api.get(f"{acme.path}/members/{people[name]}", token=acme.token("owner"))).json
            assert (member["protection"], member["factors"]) == expected.get(people[name], (None, None)), (name, rules)


async def test_the_filters_select_what_the_list_shows(acme: Tenant, people: dict[str, str], pool: Pool) -> None:
    for rules in POLICIES:
        await ask(acme, pool, rules)
        everyone = {id_: facts for id_, facts in (await export(acme)).items() if facts[0] is not None}
        for protection in Protection:
            selected = {id_ for id_, facts in everyone.items() if facts[0] == protection}
            assert (await export(acme, f"&protection={protection}")).keys() == selected, (protection, rules)
        for factor in HeldFactor:
            selected = {id_ for id_, facts in everyone.items() if (factor in facts[1] if factor != HeldFactor.NONE else not facts[1])}
            assert (await export(acme, f"&factor={factor}")).keys() == selected, factor
    listed = await acme.api.get(f"{acme.path}/members?protection=missing&factor=app", token=acme.token("admin"))
    assert [each["user"]["id"] for each in listed.json["members"]] == [people["app"]]
    await run_sql(pool, "update memberships set role = 'member' where user_id = %s", acme.people["admin"].id)
    assert (await acme.api.get(f"{acme.path}/members?factor=none", token=acme.token("admin"))).status == 403


async def test_the_rules_for_admins_count_for_admins(acme: Tenant, people: dict[str, str], pool: Pool) -> None:
    await ask(acme, pool, {"second_factor": ["admins"]})
    await run_sql(pool, "update memberships set role = 'admin' where user_id = %s", people["password"])
    states = {id_: facts[0] for id_, facts in (await export(acme)).items()}
    assert (states[people["password"]], states[people["passkey beside"]]) == ("missing", "password_alone")
    users = (await acme.api.get(f"{acme.path}/users", token=acme.token("owner"))).json["users"]
    assert {user["id"]: user["protection"] for user in users}[people["password"]] == "missing"


async def test_pages_and_tasks_name_the_state(acme: Tenant, people: dict[str, str], pool: Pool, browser: FakeBrowser) -> None:
    owner = await add_account(acme.ports, "grace@example.com", PASSWORD)
    await add_member(pool, acme.org, owner.id, ADMIN, confirmed=True)
    await browser.sign_in(owner.email, PASSWORD)
    text = main_of(await browser.open(MEMBERS))
    assert ("Password alone signs in" in text, "Protected" in text, "Asked for and missing" in text) == (True, True, True), "as options"
    filtered = main_of(await browser.open(f"{MEMBERS}?protection=password_alone&factor=passkey"))
    assert ("passkey-beside@example.com" in filtered, "passkey-second@example.com" in filtered) == (True, False)
    page = main_of(await browser.open(f"{MEMBERS}/{people['passkey beside']}"))
    assert ("Password alone signs in" in page, "Passkey" in page) == (True, True)
    overview = main_of(await browser.open("/app/organizations/acme"))
    assert f'href="{MEMBERS}?state=admins_with_password_alone"' in overview
    assert owner.email in main_of(await browser.open(f"{MEMBERS}?state=admins_with_password_alone"))
    await run_sql(pool, "update users set passkey_second_at = now(), passkey_count = 1 where id = %s", owner.id)
    assert "admins_with_password_alone" not in main_of(await browser.open("/app/organizations/acme"))


async def test_the_security_page_has_the_state_and_one_button_that_protects(
    acme: Tenant, people: dict[str, str], pool: Pool, browser: FakeBrowser
) -> None:
    account = await add_account(acme.ports, "grace@example.com", PASSWORD)
    await add_member(pool, acme.org, account.id, MEMBER, confirmed=True)
    await browser.sign_in(account.email, PASSWORD)

    async def row() -> str:
        page = await browser.open("/app/account/security")
        [found] = html.document_fromstring(page.text).xpath("//li[@id='protection']")
        return " ".join(found.text_content().split())

    assert "Password alone signs in If your password is stolen" in await row()
    await add_passkeys(pool, account.id, "gatehouse.test")
    assert (await row()).endswith(("Ask for the passkey", "Remove the password"))
    await run_sql(pool, "update users set passkey_second_at = now() where id = %s", account.id)
    assert "Protected" in await row()
