"""The rights that an active connection takes: its identity provider can act as any of its users (security S-12)."""

from collections.abc import Mapping
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from core.federation.connections.model.connections import ConnectionNeedsAdmin, ConnectionState
from core.federation.connections.model.settings import SamlSettings
from core.kernel.api_scopes import ApiScope
from core.kernel.causes import SYSTEM
from core.kernel.connections import RequiredConnection
from core.kernel.roles import ADMIN, GRANTABLE, ROLES, Capability, RoleName
from core.kernel.sign_in_policy.rules import Rules
from core.kernel.values import Domain
from core.tenancy.model.sign_in_policies import SignInPolicy
from tests.support.browser import FakeBrowser, main_of
from tests.support.builders import Answer, add_account, run_sql
from tests.support.connections import LINK, add_connection
from tests.support.personal_tokens import add_personal_token
from tests.support.programs import add_credential, add_service_account
from tests.support.rows import NOW
from tests.support.saml import new_certificate
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

PAGES: Final = "/app/organizations/acme/connections"
OF_ADMINS: Final = ROLES[ADMIN].rights - {Capability.ORGANIZATION_VIEW}
SAML: Final[Mapping[str, Any]] = {"entity_id": "https://adfs.example/id", "sso_url": "https://adfs.example/sso", "signs_requests": False}
ACTIVATE: Final = 'action="/app/organizations/acme/connections/okta/activate"'


async def try_to_trust(acme: Tenant, token: str, value: str = "other") -> list[Answer]:
    """Activate okta, and let the active connection adfs trust changed values."""
    okta, adfs = f"{acme.path}/connections/okta", f"{acme.path}/connections/adfs"
    pem = (await new_certificate(NOW, value)).certificate
    await run_sql(acme.pool, "update connections set state = 'inactive' where slug = 'okta'")
    version = {"version": (await acme.api.get(okta, token=token)).json["version"]}
    return [
        await acme.api.post(f"{okta}/activate", version, token=token),
        await acme.api.patch(adfs, {"saml": {**SAML, "sso_url": f"https://adfs.example/{value}"}}, token=token),
        await acme.api.patch(adfs, {"mapping": {"email": value}}, token=token),
        await acme.api.post(f"{adfs}/certificates", {"certificate": pem}, token=token),
    ]


async def add_connections(acme: Tenant) -> None:
    okta = await add_connection(acme.ports.storage, acme.org)
    await acme.api.call("PUT", f"{acme.path}/connections/{okta.slug}/client-secret", {"client_secret": "x" * 20}, token=acme.token("owner"))
    await add_connection(acme.ports.storage, acme.org, "adfs", settings=SamlSettings(**SAML))
    pem = {"certificate": (await new_certificate(NOW)).certificate}
    assert (await acme.api.post(f"{acme.path}/connections/adfs/certificates", pem, token=acme.token("owner"))).status == 201


async def trusted(acme: Tenant) -> list[tuple[Any, ...]]:
    sql = """
        select c.slug, c.state, c.settings::text, c.mapping::text, (select count(*) from connection_certificates where connection_id = c.id)
        from connections c order by c.slug"""
    return await run_sql(acme.pool, sql)


async def test_an_identity_provider_is_trusted_only_with_each_right_of_an_admin(acme: Tenant, app: QuartTrio) -> None:
    await add_connections(acme)
    role = {"slug": "integrator", "name": "Integrator", "capabilities": sorted(OF_ADMINS)}
    assert (await acme.api.post(f"{acme.path}/roles", role, token=acme.token("owner"))).status == 201
    await acme.join("integrator", await add_account(acme.ports, "integrator@acme.example"), RoleName("integrator"))
    granted = sorted(OF_ADMINS & GRANTABLE.keys())
    robot = await add_service_account(acme.pool, acme.org, acme.people["owner"].id, "integrator", granted=granted)
    program = await (await add_credential(acme.pool, acme.api, robot, acme.org)).token()
    browser = FakeBrowser(app)
    await browser.sign_in("integrator@acme.example")
    await run_sql(acme.pool, "update connections set state = 'inactive' where slug = 'okta'")
    before = await trusted(acme)
    for missing in sorted(OF_ADMINS - {Capability.INTEGRATIONS_MANAGE}):
        await run_sql(acme.pool, "update organization_roles set capabilities = %s", sorted(OF_ADMINS - {missing}))
        for token in (acme.token("integrator"), program):
            for answer in await try_to_trust(acme, token):
                assert (answer.status, answer.json["error"]) == (403, ConnectionNeedsAdmin.__doc__), missing
    okta, adfs, keys, mapping = [main_of(await browser.open(f"{PAGES}/{path}")) for path in ("okta", "adfs", "adfs/keys", "adfs/mapping")]
    assert (ACTIVATE in okta, "Import metadata" in adfs, "Add certificate" in keys, "Save mapping" in mapping) == (False,) * 4
    assert all("Ask an admin or the owner." in page for page in (okta, adfs, keys, mapping))
    assert (await browser.submit(f"{PAGES}/okta/activate", f"{PAGES}/okta")).status == 403
    assert await trusted(acme) == before
    # To prepare a connection, to rename it, and to take power from it, integrations.manage is enough.
    opened_before = {"name": "Other", "entity_id": "https://idp.other.example", "sso_url": "https://idp.other.example/sso"}
    assert (await browser.submit(f"{PAGES}/adfs", f"{PAGES}/adfs", **opened_before)).status == 403
    await browser.submit(f"{PAGES}/adfs", f"{PAGES}/adfs", name="Renamed")
    assert await trusted(acme) == before
    assert await run_sql(acme.pool, "select name from connections where slug = 'adfs'") == [("Renamed",)]
    deactivated = await acme.api.post(f"{acme.path}/connections/adfs/deactivate", {}, token=acme.token("integrator"))
    prepared = await acme.api.patch(f"{acme.path}/connections/adfs", {"mapping": {"email": "mail"}}, token=acme.token("integrator"))
    assert (deactivated.status, prepared.status) == (200, 200)
    await run_sql(acme.pool, "update connections set state = 'active' where slug = 'adfs'")
    await run_sql(acme.pool, "update organization_roles set capabilities = %s", sorted(OF_ADMINS))
    assert ACTIVATE in main_of(await browser.open(f"{PAGES}/okta"))
    for value, token in (("first", acme.token("integrator")), ("second", program)):
        assert [answer.status for answer in await try_to_trust(acme, token, value)] == [200, 200, 200, 201]
    for grant in granted:
        await run_sql(acme.pool, "update service_accounts set granted = %s", [each for each in granted if each != grant])
        for answer in await try_to_trust(acme, program):
            assert (answer.status, grant in answer.json["error"] or grant == "integrations.manage") == (403, True), "an admin could use it"


async def test_a_required_connection_is_not_broken_without_each_right_of_an_admin(acme: Tenant) -> None:
    """A wrong secret, key or certificate would lock out the users that a sign-in policy sends there, also the owner."""
    await add_connections(acme)
    owner, integrator = acme.token("owner"), RoleName("integrator")
    role = {"slug": integrator, "name": "Integrator", "capabilities": ["integrations.manage"]}
    assert (await acme.api.post(f"{acme.path}/roles", role, token=owner)).status == 201
    await acme.join("integrator", await add_account(acme.ports, "integrator@acme.example"), integrator)
    okta, adfs = f"{acme.path}/connections/okta", f"{acme.path}/connections/adfs"
    other = {"certificate": (await new_certificate(NOW, "other")).certificate}
    fingerprint = (await acme.api.post(f"{adfs}/certificates", other, token=owner)).json["fingerprint"]
    for _ in range(2):
        assert (await acme.api.post(f"{adfs}/keys", token=owner)).status == 201

    async def replace_all(name: str) -> list[int]:
        token, secret = acme.token(name), {"client_secret": "y" * 20}
        answers = [
            await acme.api.call("PUT", f"{okta}/client-secret", secret, token=token),
            await acme.api.post(f"{adfs}/keys/activate", token=token),
            await acme.api.delete(f"{adfs}/certificates/{fingerprint}", token=token),
        ]
        return [answer.status for answer in answers]

    async with acme.ports.storage.transaction(by=SYSTEM) as tx:
        found = [await tx.connections.by_slug(acme.org, slug) for slug in ("okta", "adfs")]
        required = {Domain(f"{each.slug}.example"): RequiredConnection(each.id, each.slug) for each in found if each is not None}
        policy = SignInPolicy(org_id=acme.org, rules=Rules(required_connections=required), changed_at=NOW)
        await tx.sign_in_policies.put(policy)
    assert await replace_all("integrator") == [403, 403, 403]
    await run_sql(acme.pool, "delete from sign_in_policies")
    assert await replace_all("integrator") == [204, 200, 204]


async def test_a_token_with_scopes_gives_no_identity_provider_more_than_it_has(acme: Tenant) -> None:
    """The connection remains when the token has ended (security J-7)."""
    await add_connections(acme)
    granted = sorted(OF_ADMINS & GRANTABLE.keys())
    robot = await add_service_account(acme.pool, acme.org, acme.people["owner"].id, ADMIN, granted=granted)
    narrow = await (await add_credential(acme.pool, acme.api, robot, acme.org)).token(scope="integrations:read integrations:write")
    for answer in await try_to_trust(acme, narrow):
        assert (answer.status, "members:write" in answer.json["error"]) == (403, True)


async def test_a_program_unlinks_no_member_without_the_grants_and_scopes_of_their_rights(acme: Tenant) -> None:
    """Otherwise, it could let an inactive connection trust another key afterwards, with which its holder signs in as this member."""
    connection = await add_connection(acme.ports.storage, acme.org, "adfs", settings=SamlSettings(), state=ConnectionState.INACTIVE)
    scopes = (ApiScope.INTEGRATIONS_READ, ApiScope.INTEGRATIONS_WRITE)
    admin = acme.people["admin"]
    robot = await add_service_account(acme.pool, acme.org, admin.id, ADMIN, granted=[Capability.INTEGRATIONS_MANAGE])
    narrow, wide = [(await add_personal_token(acme.ports, admin, acme.org, each)).text for each in (scopes, None)]
    granted_little = await (await add_credential(acme.pool, acme.api, robot, acme.org)).token()
    path, certificate = f"{acme.path}/connections/adfs", {"certificate": (await new_certificate(NOW)).certificate}
    for token, statuses in ((narrow, [403, 204, 403]), (granted_little, [403, 204, 403]), (wide, [201, 204, 204])):
        people = [acme.people[name] for name in ("member", "admin")]
        for person in people:
            await run_sql(acme.pool, LINK, acme.org, connection.id, person.id, str(person.id))
        added = await acme.api.post(f"{path}/certificates", certificate, token=token)
        unlinked = [await acme.api.delete(f"{path}/people/{person.id}", token=token) for person in people]
        assert [answer.status for answer in (added, *unlinked)] == statuses, added.text
