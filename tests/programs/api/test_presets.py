"""Presets for scopes and permissions, and whole event areas: links and boxes that work without scripts."""

import re
from collections.abc import Mapping

import pytest

from adapters.postgres.engine.pool import Pool
from core.kernel.api_scopes import ApiScope, Area
from core.kernel.roles import Permission
from core.programs.model.service_accounts import possible_scopes
from entrypoints.http.base.rendering.labels import label
from entrypoints.http.pages.eventing.webhooks import GROUPS
from tests.federation.api.relying import add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser, form_token, leads_to
from tests.support.builders import Answer, run_sql
from tests.support.tenants import Tenant

ORGANIZATION = "/app/organizations/acme"
SCOPES = list(possible_scopes(of_platform=False))


@pytest.fixture
async def owner(acme: Tenant, browser: FakeBrowser) -> FakeBrowser:
    await sign_in_browser(await add_relying_party(acme, browser), acme.people["owner"])
    return browser


def checked(page: Answer, prefix: str) -> set[str]:
    return set(re.findall(rf'name="{prefix}([^"]+)"[^>]* checked', page.text))


def links(page: Answer) -> Mapping[str, str]:
    """Return the presets' queries by label. They lead to the fieldset with the boxes."""
    presets = re.findall(r'<a href="(\?[^"#]*)#([^"]+)" data-checks="[^"]*">([^<]+)</a>', page.text)
    assert all(f'<fieldset class="choices" id="{anchor}"' in page.text for _, anchor, _ in presets)
    return {label: href for href, _, label in presets}


async def test_a_preset_checks_the_permissions_of_an_api_key(owner: FakeBrowser) -> None:
    path = f"{ORGANIZATION}/applications/shop/api-keys/new"
    presets = links(await owner.open(path))
    assert list(presets) == ["Read only", "Everything", "Users", "Subscriptions", "Analytics", "Application", "Roles", "Access"]
    expected = {
        "Read only": {permission for permission in Permission if permission.startswith("read:")},
        "Everything": set(Permission),
        "Users": {Permission.READ_USERS, Permission.WRITE_USERS, Permission.DELETE_USERS},
        "Application": {Permission.READ_SERVICE, Permission.WRITE_SERVICE},
    }
    for name, permissions in expected.items():
        assert checked(await owner.open(path + presets[name]), "permission:") == permissions
    assert checked(await owner.open(f"{path}?preset=%3Cb%3E"), "permission:") == set()


async def test_a_preset_checks_the_scopes_of_a_token_of_an_organization(owner: FakeBrowser) -> None:
    path = "/app/account/personal-tokens/new"
    presets = links(await owner.open(f"{path}?org_slug=acme"))
    page = await owner.open(path + presets["Read only"].replace("&amp;", "&"))
    assert checked(page, "scope:") == {scope for scope in SCOPES if scope.endswith(":read")}
    assert '<input type="hidden" name="org_slug" value="acme">' in page.text
    assert links(await owner.open(path)).keys() == {"Read only", "Everything", "Your own account"}


async def test_a_preset_checks_the_scopes_of_a_service_account_instead_of_all(owner: FakeBrowser, acme: Tenant, pool: Pool) -> None:
    path = f"{ORGANIZATION}/service-accounts"
    page = await owner.open(f"{path}/new")
    assert re.search(r'name="all_scopes"[^>]* checked', page.text)
    presets = links(page)
    page = await owner.open(f"{path}/new{presets['Members']}")
    assert checked(page, "scope:") == {ApiScope.MEMBERS_READ, ApiScope.MEMBERS_WRITE}
    assert not re.search(r'name="all_scopes"[^>]* checked', page.text)
    assert {name for name in presets if name not in ("Read only", "Everything")} >= {"Applications", "API keys", "Audit log"}
    one = leads_to(
        await owner.send(
            f"{path}/new", form_token=form_token(page), name="Robot", role="member", owner_id=acme.id("owner"), all_scopes="yes"
        )
    ).removesuffix("/credentials")
    assert checked(await owner.open(f"{one}?preset=read"), "scope:") == {scope for scope in SCOPES if scope.endswith(":read")}
    assert await run_sql(pool, "select scopes from service_accounts") == [(None,)], "a preset is not saved"


def test_every_area_has_a_label_without_underscores() -> None:

    assert not [area for area in Area if "_" in label(area) or "latform" in label(area)]


async def test_a_box_stands_for_all_events_of_an_area(owner: FakeBrowser, pool: Pool) -> None:
    path = f"{ORGANIZATION}/webhooks"
    page = await owner.open(f"{path}/new")
    of_members = [kind.name for kind in GROUPS["User management"]]
    assert f"All of them ({len(of_members)})" in page.text
    fields = {"name": "CRM", "url": "https://crm.example/in", "event:user.invited": "yes", "all-of:User management": "yes"}
    await owner.send(f"{path}/new", form_token=form_token(page), **fields)
    [(webhook_id, events)] = await run_sql(pool, "select id, events from webhooks")
    assert sorted(events) == sorted({"user.invited", *of_members})
    page = await owner.open(f"{path}/{webhook_id}")
    assert checked(page, "all-of:") == {"User management"}
    assert f'<span class="quiet">{len(of_members)} of {len(of_members)}</span>' in page.text
    assert checked(page, "event:") == {"user.invited"} - set(of_members)


async def test_a_webhook_can_get_all_events(owner: FakeBrowser, pool: Pool) -> None:
    """The boxes for whole groups select them, and its page sends a box per event."""
    path = f"{ORGANIZATION}/webhooks/new"
    areas = {f"all-of:{area}": "yes" for area in GROUPS}
    page = await owner.open(path)
    await owner.send(path, form_token=form_token(page), name="All", url="https://crm.example/in", **areas)
    [(webhook_id, events)] = await run_sql(pool, "select id, events from webhooks")
    assert set(events) == {kind.name for kinds in GROUPS.values() for kind in kinds if not kind.by_choice}
    page = await owner.open(f"{ORGANIZATION}/webhooks/{webhook_id}")
    boxes = dict.fromkeys(re.findall(r'<input id="[^"]*" name="([^"]+)" type="checkbox" value="yes" checked', page.text), "yes")
    saved = {"form_token": form_token(page), "name": "Every event", "url": "https://crm.example/in", **boxes}
    assert (await owner.send(f"{ORGANIZATION}/webhooks/{webhook_id}", **saved)).status == 303
    assert await run_sql(pool, "select name, cardinality(events) from webhooks") == [("Every event", len(events))]


async def test_a_frequent_event_is_chosen_only_by_itself(owner: FakeBrowser, pool: Pool) -> None:
    path = f"{ORGANIZATION}/webhooks"
    page = await owner.open(f"{path}/new")
    usual = [kind.name for kind in GROUPS["Authentication"] if not kind.by_choice]
    assert f"All of them ({len(usual)})" in page.text
    fields = {"url": "https://crm.example/in", "all-of:Authentication": "yes"}
    await owner.send(f"{path}/new", form_token=form_token(page), name="CRM", **fields)
    [(webhook_id, events)] = await run_sql(pool, "select id, events from webhooks")
    assert (sorted(events), "user.login.failed" in events) == (sorted(usual), False)
    page = await owner.open(f"{path}/{webhook_id}")
    assert (checked(page, "all-of:"), checked(page, "event:")) == ({"Authentication"}, set())
    fields |= {"name": "CRM", "event:user.login.failed": "yes"}
    await owner.send(f"{path}/{webhook_id}", form_token=form_token(page), **fields)
    page = await owner.open(f"{path}/{webhook_id}")
    assert (checked(page, "all-of:"), checked(page, "event:")) == ({"Authentication"}, {"user.login.failed"})


async def test_an_unknown_area_is_no_event(owner: FakeBrowser) -> None:
    path = f"{ORGANIZATION}/webhooks/new"
    page = await owner.open(path)
    fields = {"name": "CRM", "url": "https://crm.example/in", "all-of:<b>": "yes"}
    answer = await owner.send(path, form_token=form_token(page), **fields)
    assert (answer.status, "at least one event type" in answer.text, "<b>" in answer.text) == (400, True, False)
