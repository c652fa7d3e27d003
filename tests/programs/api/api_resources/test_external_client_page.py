"""The page about an API resource's external clients."""

import json
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.roles import ADMIN
from core.programs.model.client_policy import NO_EXTERNAL_CLIENTS, PRESETS, ClientHostInvalid, ExternalClientsOfAnyone, check_policy
from ports import Ports
from tests import ROOT
from tests.support.browser import FakeBrowser, leads_to
from tests.support.builders import PASSWORD, add_account, add_member, add_organization, run_sql
from tests.support.services import add_api_resource

STORED = """
    select external_admit, external_hosts, external_scopes, external_token_endpoint_audience, external_registration, access_policy
    from api_resources"""
SCOPES = {f"scope:{name}": "yes" for name in ("orders:read", "orders:write", "profile", "email")}


@pytest.fixture
async def admin(app: QuartTrio, ports: Ports, pool: Pool) -> FakeBrowser:
    """A browser for an admin at acme, which has an API resource."""
    acme = await add_organization(pool, "acme")
    await add_member(pool, acme, (await add_account(ports, "ada@example.com", PASSWORD)).id, ADMIN, confirmed=True)
    browser = FakeBrowser(app)
    await browser.sign_in("ada@example.com", PASSWORD)
    return browser


@pytest.fixture
async def path(admin: FakeBrowser, pool: Pool) -> str:
    [(acme,)] = await run_sql(pool, "select id from organizations")
    return f"/app/organizations/acme/api-resources/{await add_api_resource(pool, acme)}/external-clients"


async def test_an_admin_switches_well_known_clients_on(admin: FakeBrowser, pool: Pool, path: str) -> None:
    async def save(**fields: str) -> tuple[Any, ...]:
        assert leads_to(await admin.submit(path, path, **fields)) == path
        [stored] = await run_sql(pool, STORED)
        return stored

    all_hosts = [host for preset in PRESETS for host in preset.hosts]
    presets = {f"preset:{preset.name}": "yes" for preset in PRESETS}
    assert "Switch on for Claude, ChatGPT" in (await admin.open(path)).text
    assert await save(admit="none", access="members", **presets, **SCOPES) == ("none", all_hosts, None, True, False, "anyone")
    assert await save(admit="listed", access="members", **presets, **SCOPES) == ("listed", all_hosts, None, True, False, "members")
    page = (await admin.open(path)).text
    assert page.count('"yes" checked') == len(presets) + len(SCOPES), "the box of a preset stands for all that it sets"
    assert "Switch on for" not in page
    fields = {"admit": "listed", "preset:claude": "yes", "scope:orders:read": "yes", "scope:email": "yes", "registration": "yes"}
    hosts = "app.example.com\n\nhttps://Bücher.example/oauth/client.json"
    expected = ["claude.ai", "claude.com", "app.example.com", "xn--bcher-kva.example"]
    assert await save(**fields, hosts=hosts) == ("listed", expected, ["orders:read", "email"], False, True, "members")
    page = (await admin.open(path)).text
    assert "xn--bcher-kva.example</textarea>" in page
    body = {"admit": "listed", "hosts": expected, "scopes": ["orders:read", "email"], "accepts_token_endpoint_audience": False}
    assert json.dumps({**body, "registration": True}) in unescape(page), "the request under Show as curl"
    assert await save(admit="none", hosts="app.example.com") == ("none", ["app.example.com"], [], False, False, "members")
    assert "They are off" in (await admin.open(path)).text


async def test_the_page_warns_of_clients_and_users_that_are_strangers(admin: FakeBrowser, path: str) -> None:
    warnings = "also one that an attacker published", "Clients that registered themselves can ask", "Everyone who signs up can connect"
    answer = await admin.submit(path, path, admit="listed", hosts="app.example.com", **SCOPES)
    assert (answer.status, str(ExternalClientsOfAnyone.__doc__) in answer.text) == (400, True)
    for fields, shown in (
        ({"admit": "listed", "access": "anyone", "registration": "yes"}, warnings[1:]),
        ({"admit": "any"}, (warnings[0], warnings[2])),
        ({"admit": "listed", "access": "members"}, ()),
        ({"admit": "none", "registration": "yes"}, ()),
    ):
        assert leads_to(await admin.submit(path, path, hosts="app.example.com", **fields, **SCOPES)) == path
        page = (await admin.open(path)).text
        assert tuple(warning for warning in warnings if warning in page) == shown, fields


async def test_a_viewer_sees_every_switch(admin: FakeBrowser, pool: Pool, path: str) -> None:
    fields = {"hosts": "app.example.com", "access": "members", "registration": "yes", "accepts_token_endpoint_audience": "yes"}
    assert leads_to(await admin.submit(path, path, admit="listed", **fields, **SCOPES)) == path
    await run_sql(pool, "update memberships set role = 'member'")
    page = " ".join((await admin.open(path)).text.split())
    for shown in (
        "<dd>app.example.com</dd>",
        "the token endpoint</dt><dd>Yes",
        "registered themselves</dt><dd>Yes",
        "Your users cannot see",
    ):
        assert shown in page


async def test_a_wrong_host_is_refused_beside_its_field(admin: FakeBrowser, path: str) -> None:
    answer = await admin.submit(path, path, admit="listed", hosts="*.example.com", **SCOPES)
    assert (answer.status, f'id="hosts-error">{ClientHostInvalid.__doc__}' in answer.text) == (400, True)
    assert "*.example.com</textarea>" in answer.text


def test_the_guides_have_the_presets() -> None:
    guide, steps = ((ROOT / "docs" / "guides" / f"{name}.md").read_text("utf-8") for name in ("assistants", "connect-assistants"))
    for preset in PRESETS:
        assert (f'"hosts": {json.dumps(preset.hosts)}' in steps, f"check *{preset.label}*" in " ".join(steps.split())) == (True, True)
        hosts = ", ".join(f"`{host}`" for host in preset.hosts)
        besides = "`accepts_token_endpoint_audience` " if preset.accepts_token_endpoint_audience else ""
        assert f"| {preset.label} | {hosts} | {besides}|" in guide


def test_the_hosts_of_presets_are_valid() -> None:
    hosts = tuple(host for preset in PRESETS for host in preset.hosts)
    assert check_policy(replace(NO_EXTERNAL_CLIENTS, hosts=hosts), ()).hosts == hosts
