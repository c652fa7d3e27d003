"""An API key's creator needs rights for all its permissions (security K-2)."""

from collections.abc import Collection

from core.applications.model.api_keys import NEEDED_RIGHTS, grantable_permissions
from core.kernel.roles import ADMIN, CUSTOMIZABLE, GRANTABLE, ROLES, Capability, Permission, RoleName
from tests.applications.api.api_keys.shop import Shop
from tests.federation.api.relying import add_relying_party, sign_in_browser
from tests.support.browser import FakeBrowser, form_token
from tests.support.builders import Answer, add_account, run_sql
from tests.support.programs import add_credential, add_service_account

ROLE = RoleName("keeper")
KEYS = {Capability.API_KEYS_MANAGE, Capability.API_KEYS_VIEW, Capability.SERVICES_VIEW}


async def add_keeper(shop: Shop) -> None:
    acme = shop.tenant
    body = {"slug": ROLE, "name": "Keeper", "capabilities": sorted(KEYS)}
    assert (await acme.api.post(f"{acme.path}/roles", body, token=acme.token("owner"))).status == 201
    await acme.join("keeper", await add_account(acme.ports, "keeper@acme.example"), ROLE)


async def give(shop: Shop, rights: Collection[Capability]) -> None:
    await run_sql(shop.tenant.pool, "update organization_roles set capabilities = %s", sorted(rights))


async def create(shop: Shop, *permissions: Permission) -> Answer:
    return await shop.create({"name": "Robot", "permissions": permissions}, "keeper")


async def test_a_member_creates_no_key_that_can_do_more_than_they_can(shop: Shop) -> None:
    assert NEEDED_RIGHTS.keys() == set(Permission)
    await add_keeper(shop)
    for permission, needed in NEEDED_RIGHTS.items():
        await give(shop, KEYS | needed)
        assert (await create(shop, permission)).status == 201, permission
        for missing in needed:
            await give(shop, CUSTOMIZABLE - {missing})
            for permissions in ((permission,), (*set(Permission) - {permission}, permission)):
                answer = await create(shop, *permissions)
                assert (answer.status, missing.value in answer.json["error"]) == (403, True), (permission, missing, answer.text)
    assert len(await shop.ids()) == len(Permission)
    await give(shop, CUSTOMIZABLE)
    assert (await create(shop, *Permission)).status == 201


async def test_the_page_offers_the_permissions_that_the_member_can_give(shop: Shop, browser: FakeBrowser) -> None:
    await add_keeper(shop)
    rights = frozenset({*KEYS, Capability.END_USERS_MANAGE})
    await give(shop, rights)
    await sign_in_browser(await add_relying_party(shop.tenant, browser, "other"), shop.tenant.people["keeper"])
    path = "/app/organizations/acme/applications/shop/api-keys/new"
    page = await browser.open(f"{path}?preset=all")
    offered = {permission for permission in Permission if f'name="permission:{permission}"' in page.text}
    assert offered == set(grantable_permissions(rights))
    assert page.text.count(" checked") == len(offered)
    fields = {"name": "Robot", "permission:write:roles": "yes", "form_token": form_token(page)}
    refused = await browser.send(path, **fields)
    assert (refused.status, "service_roles.assign" in refused.text, await shop.ids()) == (403, True, [])


async def test_a_service_account_needs_the_granted_capabilities_because_the_key_remains(shop: Shop) -> None:
    acme = shop.tenant
    changing = sorted({right for needed in NEEDED_RIGHTS.values() for right in needed} & GRANTABLE.keys())
    for missing in (None, *changing):
        granted = [Capability.API_KEYS_MANAGE, *(right for right in changing if right != missing)]
        account = await add_service_account(acme.pool, acme.org, acme.people["owner"].id, ADMIN, granted=granted, name=f"Without {missing}")
        token = await (await add_credential(acme.pool, acme.api, account, acme.org)).token()
        for permission, needed in NEEDED_RIGHTS.items():
            assert needed <= ROLES[ADMIN].rights
            answer = await acme.api.post(shop.path, {"name": "Robot", "permissions": [permission]}, token=token)
            assert answer.status == (403 if missing in needed else 201), (permission, missing, answer.text)
            assert missing not in needed or str(missing) in answer.json["error"]
