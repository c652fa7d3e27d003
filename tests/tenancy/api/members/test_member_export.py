"""The export of an organization's members."""

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.api_scopes import ApiScope
from tests.fakes.outside import FakeClock
from tests.federation.api.relying import add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser
from tests.support.builders import add_account, add_member, run_sql
from tests.support.personal_tokens import add_personal_token
from tests.support.services import add_service
from tests.support.tenants import Tenant
from tests.tenancy.groups import GroupAdmin

NOTHING: dict[str, Any] = {"groups": [], "application_roles": [], "attributes": {}}
PAGE = "/app/organizations/acme/members"


async def export(tenant: Tenant, query: str = "") -> list[dict[str, Any]]:
    answer = await tenant.api.get(f"{tenant.path}/members/export?format=jsonl{query}", token=tenant.token("owner"))
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/x-ndjson"), answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_the_export_has_all_members_with_their_accounts(
    acme: Tenant, other_tenant: Tenant, pool: Pool, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.tenancy.members.EXPORT_BATCH", 2)
    await run_sql(pool, "update users set name = '=Ada' where id = %s", acme.id("admin"))
    await run_sql(pool, "update users set mfa_enabled_at = %s where id = %s", clock.now(), acme.id("member"))
    clock.advance(timedelta(minutes=1))
    invited = await add_account(acme.ports, "invited@example.com")
    await add_member(pool, acme.org, invited.id)
    lines = await export(acme)
    details = [(await acme.api.get(f"{acme.path}/members/{line['user_id']}", token=acme.token("admin"))).json for line in lines]
    assert lines == [
        {
            "user_id": each["user"]["id"],
            "email": each["user"]["email"],
            "name": each["user"]["name"],
            "role": each["membership"]["role"],
            "joined_at": each["membership"]["created_at"],
            **{name: each[name] for name in ("confirmed_at", "email_verified", "mfa_enabled", "last_login_at")},
            "roles": each["membership"]["roles"],
            **NOTHING,
            **{name: each[name] for name in ("protection", "factors")},
        }
        for each in details
    ]
    listed = (await acme.api.get(f"{acme.path}/members", token=acme.token("admin"))).json["members"]
    assert [line["user_id"] for line in lines] == [each["user"]["id"] for each in listed]
    assert {line["email"] for line in lines}.isdisjoint({line["email"] for line in await export(other_tenant)})
    assert lines[-1] | {"joined_at": None, "user_id": None} == {
        **dict.fromkeys(("user_id", "name", "joined_at", "confirmed_at", "email_verified", "mfa_enabled", "last_login_at")),
        **{"email": "invited@example.com", "role": "member", "roles": ["member"], "protection": None, "factors": None, **NOTHING},
    }
    for query, emails in (
        ("&role=admin", [acme.people["admin"].email]),
        ("&search=INVITED@", ["invited@example.com"]),
        ("&state=unconfirmed", ["invited@example.com"]),
        ("&state=without_mfa&role=member", []),
        ("&search=nobody", []),
    ):
        assert [line["email"] for line in await export(acme, query)] == emails, query


async def test_the_export_has_groups_roles_and_attributes(acme: Tenant, other_tenant: Tenant, browser: FakeBrowser) -> None:
    owner, groups = acme.token("owner"), GroupAdmin(acme, "owner")
    shop = f"{acme.path}/services/shop"
    await add_service(acme.pool, acme.org, "shop")
    for path, body in (
        ("/roles", {"slug": "auditor", "name": "Auditor", "capabilities": ["audit.view"]}),
        ("/attributes", {"name": "cost_center", "label": "Cost center", "kind": "text", "writers": ["admin"]}),
        ("/services/shop/roles", {"slug": "editor", "name": "Editor", "permissions": []}),
        ("/services/shop/roles", {"slug": "viewer", "name": "Viewer", "permissions": []}),
    ):
        answer = await acme.api.post(f"{acme.path}{path}", body, token=owner)
        assert answer.status in (200, 201), answer.text
    auditors, sales = await groups.create("Auditors, internal"), await groups.create("Sales")
    for group in (auditors, sales):
        assert (await groups.add(group, acme.id("member"))).status == 204
    for path, value in (
        (f"{acme.path}/groups/{auditors}/role", {"role": "auditor"}),
        (f"{shop}/roles/viewer/groups/{sales}", None),
        (f"{shop}/roles/editor/users/{acme.id('member')}", None),
    ):
        assert (await acme.api.call("PUT", path, value, token=owner)).status in (200, 204), path
    values = {"values": {"cost_center": "=4711"}}
    changed = await acme.api.patch(f"{acme.path}/members/{acme.id('member')}/attributes", values, token=owner)
    assert changed.status == 200, changed.text
    expected = {
        "roles": ["member", "auditor"],
        "groups": ["Auditors, internal", "Sales"],
        "application_roles": [{"service_slug": "shop", "role": slug} for slug in ("editor", "viewer")],
        "attributes": {"cost_center": "=4711"},
    }
    lines = {line["email"]: {name: line[name] for name in expected} for line in await export(acme)}
    assert lines.pop(acme.people["member"].email) == expected
    assert all(line == NOTHING | {"roles": line["roles"]} for line in lines.values())
    assert all(line["groups"] == [] for line in await export(other_tenant))
    await sign_in_browser(await add_relying_party(acme, browser, "other"), acme.people["admin"])
    file = await browser.open(f"{PAGE}/export?role=member&search={acme.people['member'].email}&format=csv")
    [row] = csv.DictReader(io.StringIO(file.text))
    assert {name: json.loads(row[name]) for name in expected} == expected
    token = (await add_personal_token(acme.ports, acme.people["owner"], acme.org, (ApiScope.MEMBERS_READ,))).text
    limited = await acme.api.get(f"{acme.path}/members/export?format=jsonl&search={acme.people['member'].email}", token=token)
    less = expected | {"groups": [], "application_roles": []}  # the token lacks end_users:read
    assert {name: json.loads(limited.text)[name] for name in expected} == less
    await run_sql(acme.pool, "update memberships set confirmed_at = null where user_id = %s", acme.people["member"].id)
    [line] = await export(acme, f"&search={acme.people['member'].email}")
    assert (line["roles"], [each["role"] for each in line["application_roles"]], line["groups"]) == (
        ["member"],
        ["editor"],
        expected["groups"],
    ), "groups give no roles before the member has confirmed the membership"


async def test_the_file_of_the_page_is_csv_that_no_spreadsheet_runs(acme: Tenant, pool: Pool, browser: FakeBrowser) -> None:
    await run_sql(pool, "update users set name = '=1+1' where id = %s", acme.id("admin"))
    await sign_in_browser(await add_relying_party(acme, browser), acme.people["admin"])
    assert f'href="{PAGE}/export?role=admin&amp;format=csv"' in (await browser.open(f"{PAGE}?role=admin&sort=email&page=1")).text
    answer = await browser.open(f"{PAGE}/export?role=admin&format=csv")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="members-acme.csv"'
    [row] = csv.DictReader(io.StringIO(answer.text))
    assert (row["name"], row["role"], row["mfa_enabled"]) == ("'=1+1", "admin", "false")
    assert row["user_id"] == acme.id("admin")


async def test_members_without_the_right_see_no_button_and_no_file(acme: Tenant, browser: FakeBrowser) -> None:
    await sign_in_browser(await add_relying_party(acme, browser), acme.people["member"])
    assert "/members/export" not in (await browser.open(PAGE)).text
    assert (await browser.open(f"{PAGE}/export")).status == 403
