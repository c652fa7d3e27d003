"""An admin activates the connection that they looked at, and no later version (security S-12)."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import pytest
from quart_trio import QuartTrio

from core.federation.connections import metadata
from core.federation.connections.model.connections import ConnectionChanged, ConnectionChangedByOthers, ConnectionState
from core.federation.connections.model.settings import OidcSettings, SamlSettings
from core.kernel.roles import ADMIN
from tests.fakes.http_server import Answer as Published
from tests.federation.connections.saml.test_metadata import MetadataServer
from tests.support.browser import FakeBrowser, hidden_fields
from tests.support.builders import Answer, add_account, run_concurrently, run_sql, with_loopback_sender
from tests.support.connections import add_connection
from tests.support.rows import NOW
from tests.support.saml import identity_provider_metadata, new_certificate
from tests.support.tenants import Tenant
from tests.tenancy.groups import add_group

pytestmark = pytest.mark.slow

PAGES: Final = "/app/organizations/acme/connections"
DRAFT: Final[Mapping[str, Any]] = {"state": ConnectionState.DRAFT, "first_activated_at": None}
OIDC: Final[Mapping[str, Any]] = {"issuer": "https://okta.example", "client_id": "gatehouse"}
ENTITY_ID: Final = "https://adfs.example/id"
SAML: Final[Mapping[str, Any]] = {"entity_id": ENTITY_ID, "sso_url": "https://adfs.example/sso", "signs_requests": False}


@dataclass(slots=True)
class World:
    """Two complete drafts, an admin with a browser, and a member with `integrations.manage` and `groups.manage` alone."""

    acme: Tenant
    admin: FakeBrowser
    publisher: MetadataServer
    group: UUID
    pems: list[str] = field(default_factory=list)

    async def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, by: str = "member") -> Answer:
        answer = await self.acme.api.call(method, f"{self.acme.path}/connections{path}", body, token=self.acme.token(by))
        assert by == "admin" or answer.status < 300, answer.text
        return answer

    async def prepare(self) -> None:
        await run_sql(self.acme.pool, "delete from connections where org_id is not null")
        await run_sql(self.acme.pool, "delete from connection_health")
        storage, saml = self.acme.ports.storage, SamlSettings(**SAML, metadata_url=f"{self.publisher.address}/metadata")
        await add_connection(storage, self.acme.org, settings=OidcSettings(**OIDC), **DRAFT)
        await add_connection(storage, self.acme.org, "adfs", settings=saml, **DRAFT)
        await self.call("PUT", "/okta/client-secret", {"client_secret": "x" * 20})
        await self.call("POST", "/adfs/groups", {"group_id": str(self.group), "value": "staff"})
        for pem in self.pems[:2]:
            await self.call("POST", "/adfs/certificates", {"certificate": pem})

    async def state(self, slug: str) -> str:
        [(state,)] = await run_sql(self.acme.pool, "select state from connections where org_id is not null and slug = %s", slug)
        return str(state)

    async def version(self, slug: str) -> str:
        return str((await self.call("GET", f"/{slug}", by="admin")).json["version"])

    async def activate(self, slug: str, **body: str) -> Answer:
        return await self.call("POST", f"/{slug}/activate", body, by="admin")

    async def refetch(self, *certificates: str) -> None:
        """Send a response with an unknown signature, so that the metadata with these certificates are fetched."""
        sso = {"HTTP-Redirect": SAML["sso_url"]}
        self.publisher.answer = Published(200, identity_provider_metadata(ENTITY_ID, sso=sso, slo=None, certificates=certificates).encode())
        async with self.acme.ports.storage.reading() as read:
            connection = await read.connections.by_slug(self.acme.org, "adfs")
        assert connection is not None
        assert isinstance(connection.settings, SamlSettings)
        assert await metadata.refetch(with_loopback_sender(self.acme.ports), connection, connection.settings)


async def replace_okta(world: World) -> None:
    await world.call("DELETE", "/okta")
    await world.call("POST", "", {"slug": "okta", "name": "Okta", "oidc": {**OIDC, "issuer": "https://other.example"}})
    await world.call("PUT", "/okta/client-secret", {"client_secret": "x" * 20})


async def change_issuer(world: World) -> None:
    await world.call("PATCH", "/okta", {"oidc": {**OIDC, "issuer": "https://other.example"}})
    await world.call("PUT", "/okta/client-secret", {"client_secret": "y" * 20})  # the earlier secret has gone with its issuer


async def remove_group(world: World) -> None:
    [mapped] = (await world.call("GET", "/adfs/groups")).json["groups"]
    await world.call("DELETE", f"/adfs/groups/{mapped['id']}")


async def remove_certificate(world: World) -> None:
    [first, _] = (await world.call("GET", "/adfs")).json["certificates"]
    await world.call("DELETE", f"/adfs/certificates/{first['fingerprint']}")


# Changes by a member with `integrations.manage`, or by the identity provider, between the look and the click
CHANGES: Final[Mapping[str, tuple[str, Callable[[World], Awaitable[object]]]]] = {
    "the issuer": ("okta", change_issuer),
    "the trust in addresses": ("okta", lambda world: world.call("PATCH", "/okta", {"oidc": {**OIDC, "trusts_email": True}})),
    "the mapping": ("okta", lambda world: world.call("PATCH", "/okta", {"mapping": {"email": "mail"}})),
    "another connection": ("okta", replace_okta),
    "the sign-in URL": ("adfs", lambda world: world.call("PATCH", "/adfs", {"saml": {**SAML, "sso_url": "https://other.example/sso"}})),
    "one more group": ("okta", lambda world: world.call("POST", "/okta/groups", {"group_id": str(world.group)})),
    "one group fewer": ("adfs", remove_group),
    "one more certificate": ("adfs", lambda world: world.call("POST", "/adfs/certificates", {"certificate": world.pems[2]})),
    "one certificate fewer": ("adfs", remove_certificate),
    "imported metadata": ("adfs", lambda world: world.call("POST", "/adfs/metadata", {"metadata": identity_provider_metadata()})),
    "fetched metadata with another certificate": ("adfs", lambda world: world.refetch(world.pems[2])),
}
UNCHANGED: Final[Mapping[str, tuple[str, Callable[[World], Awaitable[object]]]]] = {
    "the name": ("okta", lambda world: world.call("PATCH", "/okta", {"name": "Renamed"})),
    "the client secret": ("okta", lambda world: world.call("PUT", "/okta/client-secret", {"client_secret": "y" * 20})),
    "a key of ours": ("adfs", lambda world: world.call("POST", "/adfs/keys", {})),
    "fetched metadata with the same certificates": ("adfs", lambda world: world.refetch(*world.pems[:2])),
}


@pytest.fixture
async def world(acme: Tenant, app: QuartTrio) -> AsyncIterator[World]:
    role = {"slug": "integrator", "name": "Integrator", "capabilities": ["integrations.manage", "groups.manage"]}
    assert (await acme.api.post(f"{acme.path}/roles", role, token=acme.token("owner"))).status == 201
    assert (await acme.set_role("owner", "member", "integrator")).status == 200
    await acme.join("ada", await add_account(acme.ports, "ada@acme.example"), ADMIN)
    browser = FakeBrowser(app)
    await browser.sign_in("ada@acme.example")
    with MetadataServer() as publisher:
        group = await add_group(acme.pool, acme.org)
        pems = [(await new_certificate(NOW, name)).certificate for name in ("first", "second", "third")]
        yield World(acme, browser, publisher, group, pems)


def visible(page: Answer) -> str:
    return re.sub(r'<input type="hidden"[^>]*>|nonce="[^"]*"', "", page.text)


async def test_a_connection_that_changed_since_the_look_is_not_activated(world: World) -> None:
    wrong = list[str]()
    for name, (slug, change) in CHANGES.items():
        await world.prepare()
        page = f"{PAGES}/{slug}"
        await world.admin.open(page)  # with the last activation's notice
        shown = await world.admin.open(page)
        assert visible(await world.admin.open(page)) == visible(shown), "only a change makes a difference"
        opened, version = hidden_fields(shown), await world.version(slug)
        await change(world)
        if visible(await world.admin.open(page)) == visible(shown):
            wrong.append(f"{name}: the page does not show it")
        by_page = await world.admin.send(f"{page}/activate", **opened)
        by_api = await world.activate(slug, version=version)
        if (by_api.status, by_api.json.get("error")) != (409, ConnectionChanged.__doc__):
            wrong.append(f"{name}, by the API: {by_api.text}")
        if by_page.status != 409 or (ConnectionChanged.__doc__ or "") not in by_page.text or await world.state(slug) != "draft":
            wrong.append(f"{name}, by the page: {by_page.status}")
        # The refused page shows the present values, and its form activates these.
        elif (await world.admin.send(f"{page}/activate", **hidden_fields(by_page))).status != 303 or await world.state(slug) != "active":
            wrong.append(f"{name}: not activated after another look")
    assert not wrong, "\n".join(wrong)


async def test_a_page_with_values_that_are_not_stored_activates_nothing(world: World) -> None:
    """The page's version would belong to the stored values."""
    await world.prepare()
    for slug, typed in (("okta", {"issuer": "https://other.example", "scopes": '"'}), ("adfs", {"entity_id": ENTITY_ID, "sso_url": "x"})):
        page = f"{PAGES}/{slug}"
        shown = await world.admin.open(page)
        assert "/activate" in shown.text
        refused = await world.admin.send(page, form_token=hidden_fields(shown)["form_token"], name="Renamed", **typed)
        assert (refused.status, "/activate" in refused.text) == (400, False)


async def test_a_change_that_lets_no_other_user_in_leaves_the_version(world: World) -> None:
    for name, (slug, change) in UNCHANGED.items():
        await world.prepare()
        version = await world.version(slug)
        await change(world)
        for _ in range(2):  # a repeated request does not activate again
            answer = await world.activate(slug, version=version)
            assert (answer.status, answer.json["state"], answer.json["version"]) == (200, "active", version), name
    await world.prepare()
    await world.call("PATCH", "/okta", {"mapping": {"email": "mail"}})
    refused = await world.activate("okta")
    assert (refused.status, refused.json["error"]) == (409, ConnectionChangedByOthers.__doc__)


async def test_a_version_is_needed_only_if_others_changed_the_connection_since_its_last_activation(world: World) -> None:
    await world.prepare()  # the member has set the client secret
    assert (await world.activate("okta")).status == 409
    assert await world.state("okta") == "draft"
    assert (await world.activate("okta", version=await world.version("okta"))).status == 200
    await world.call("POST", "/okta/deactivate", {})
    assert (await world.activate("okta")).status == 200, "no value was changed"
    for by, status in (("admin", 200), ("member", 409), ("admin", 409)):
        await world.call("POST", "/okta/deactivate", {})
        body = {"oidc": {**OIDC, "client_id": f"{by}-{status}"}}
        assert (await world.call("PATCH", "/okta", body, by=by)).status == 200
        assert (await world.activate("okta")).status == status, "the change of the member counts, also after one of the admin"
    await world.admin.open(f"{PAGES}/okta")
    by_page = await world.admin.submit(f"{PAGES}/okta/activate", f"{PAGES}/okta")  # a form without the version
    assert (by_page.status, "Others have changed this connection" in by_page.text, "admin-409" in by_page.text) == (409, True, True)
    assert (await world.admin.send(f"{PAGES}/okta/activate", **hidden_fields(by_page))).status == 303
    own = {"slug": "own", "name": "Own", "oidc": OIDC}
    await world.acme.api.post(f"{world.acme.path}/connections", own, token=world.acme.token("admin"))
    await world.call("PUT", "/own/client-secret", {"client_secret": "x" * 20}, by="admin")
    assert (await world.activate("own")).status == 200, "the caller has created it"
    await world.call("POST", "/own/deactivate", {})
    await world.call("POST", "/own/groups", {"group_id": str(world.group)})
    assert (await world.activate("own")).status == 409, "others decide which groups its users get"


async def test_of_changes_and_activations_at_once_none_activates_a_change(world: World) -> None:
    activate = f"{world.acme.path}/connections/okta/activate"
    for _ in range(3):
        await world.prepare()
        seen = {"version": await world.version("okta")}

        async def act(number: int, body: Mapping[str, str] = seen) -> Answer:
            if number % 2:
                return await world.acme.api.post(activate, body, token=world.acme.token("admin"))
            settings = {"oidc": {**OIDC, "issuer": f"https://other-{number}.example"}}
            return await world.acme.api.patch(activate.removesuffix("/activate"), settings, token=world.acme.token("member"))

        answers = await run_concurrently(20, act)
        assert {answer.status for answer in answers} <= {200, 403, 409}, [answer.text for answer in answers]
        [(state, issuer)] = await run_sql(world.acme.pool, "select state, settings->>'issuer' from connections where slug = 'okta'")
        assert (state == "active") == (issuer == OIDC["issuer"]), (state, issuer)
