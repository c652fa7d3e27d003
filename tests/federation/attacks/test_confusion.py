"""Every kind of token in the place of every other kind (RFC 8725 sections 2.8 and 3.11, RFC 9700 section 2.2; security J-2, J-8, O-9).

One table says what every place accepts. Everything else is refused there and changes no row.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import pytest

from core.accounts.model.accounts import Account
from core.kernel.values import new_secret
from tests.fakes.outside import FakeClock
from tests.federation.api.client_authentication.keys import assertion, client_key, proof, register
from tests.federation.api.client_authentication.pipelines import Issuer, trust
from tests.federation.api.dpop import BoundClient
from tests.federation.api.end_session.applications import logout_token
from tests.federation.api.openid.client import next_of
from tests.federation.api.relying import SECRET, RelyingParty, authorize, openid_tokens, path_of, sign_in_browser
from tests.federation.attacks.test_resources import tokens_for
from tests.federation.attacks.world import is_code, unchanged
from tests.programs.service_accounts import create, try_add_credential
from tests.proof.access.belongings import wait_for_code
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, run_sql, sign_in
from tests.support.mfa import Authenticator
from tests.support.personal_tokens import add_personal_token
from tests.support.programs import Program, add_credential
from tests.support.services import add_api_resource, verify_domain
from tests.support.tenants import Tenant

pytestmark = pytest.mark.slow

ORDERS: Final = "https://api.example.com/"
OTHER: Final = "https://api.example.com/v2"
GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"


class Kit:
    """Makes tokens of every kind for one victim, and offers them in every place."""

    def __init__(
        self,
        shop: RelyingParty,
        user: Account,
        factor: Authenticator,
        robot: Program,
        orders_api: Program,
        issuer: Issuer,
        clock: FakeClock,
    ) -> None:
        self.shop, self.user, self.factor = shop, user, factor
        self.robot, self.orders_api, self.issuer, self.clock = robot, orders_api, issuer, clock

    # Kinds

    async def access_token(self) -> str:
        return str((await openid_tokens(self.shop))["access_token"])

    async def access_token_for_the_api(self) -> str:
        return str((await openid_tokens(self.shop, resource=f"{BASE_URL}/api"))["access_token"])

    async def access_token_without_openid(self) -> str:
        return str((await self.shop.tokens())["access_token"])

    async def access_token_for_an_api_resource(self) -> str:
        return str((await tokens_for(self.shop, ORDERS, "orders:read"))["access_token"])

    async def access_token_for_an_api_resource_with_openid(self) -> str:
        return str((await tokens_for(self.shop, ORDERS, "openid orders:read"))["access_token"])

    async def access_token_for_an_api_resource_without_scope(self) -> str:
        return str((await tokens_for(self.shop, ORDERS, None))["access_token"])

    async def access_token_for_another_api_resource(self) -> str:
        return str((await tokens_for(self.shop, OTHER, "orders:read"))["access_token"])

    async def refresh_token_for_an_api_resource(self) -> str:
        return str((await tokens_for(self.shop, ORDERS, "orders:read"))["refresh_token"])

    async def platform_access_token(self) -> str:
        return (await sign_in(self.shop.tenant.ports, self.shop.tenant.people["owner"], self.shop.tenant.org)).access_token

    async def id_token(self) -> str:
        return str((await openid_tokens(self.shop))["id_token"])

    async def id_token_with_the_type_of_access_tokens(self) -> str:
        return relabeled(await self.id_token(), "at+jwt")

    async def access_token_with_the_type_of_id_tokens(self) -> str:
        return relabeled(await self.access_token(), "JWT")

    async def refresh_token(self) -> str:
        return str((await openid_tokens(self.shop))["refresh_token"])

    async def code(self) -> str:
        return (await authorize(self.shop))["code"]

    async def device_code(self) -> str:
        answer = await self.shop.post("/auth/device/code", client_id=str(self.shop.client_id), client_secret=SECRET)
        return str(answer.json["device_code"])

    async def logout_token(self) -> str:
        return logout_token(self.shop, await openid_tokens(self.shop))

    async def client_assertion(self) -> str:
        return assertion(self.shop)

    async def client_secret(self) -> str:
        return SECRET

    async def token_of_a_service_account(self) -> str:
        return await self.robot.token()

    async def token_of_a_service_account_for_an_api_resource(self) -> str:
        return await self.robot.token(resource=ORDERS)

    async def token_of_an_application_for_itself(self, resource: str = ORDERS) -> str:
        fields = {"client_id": str(self.shop.client_id), "client_secret": SECRET, "resource": resource}
        return str((await self.shop.post("/auth/token", grant_type="client_credentials", **fields)).json["access_token"])

    async def token_of_an_application_for_itself_at_another_api_resource(self) -> str:
        return await self.token_of_an_application_for_itself(OTHER)

    async def token_of_an_application_for_its_permissions(self) -> str:
        return await self.token_of_an_application_for_itself(f"{BASE_URL}/access/v1")

    async def secret_of_an_api_resource(self) -> str:
        return self.orders_api.secret

    async def secret_of_a_service_account(self) -> str:
        return self.robot.secret

    async def assertion_of_a_service_account(self) -> str:
        return assertion(self.shop, client_key("EdDSA", "robot"), iss=str(self.robot.client_id), sub=str(self.robot.client_id))

    async def token_of_a_pipeline(self) -> str:
        return self.issuer.token(self.clock)

    async def personal_token_of_an_organization(self) -> str:
        return await self._personal_token(self.shop.tenant.org)

    async def personal_token_of_the_own_account(self) -> str:
        return await self._personal_token(None)

    async def _personal_token(self, org: UUID | None) -> str:
        token = await add_personal_token(self.shop.tenant.ports, self.shop.tenant.people["owner"], org)
        await run_sql(self.shop.tenant.pool, "update personal_tokens set last_used_at = created_at")  # a use writes nothing for a minute
        return token.text

    async def key_proof(self) -> str:
        """Return a DPoP proof for the place that takes DPoP proofs."""
        client = BoundClient(self.shop)
        await client.learn_nonce()
        return client.proof("POST", "/auth/token")

    async def pre_auth_token(self) -> str:
        return await wait_for_code(self.shop.tenant.ports, self.user)

    async def flow(self) -> str:
        """Return the id of a flow that the browser began before it had its session."""
        device = self.shop.browser.cookies.setdefault("gatehouse-device", new_secret())
        earlier = FakeBrowser(self.shop.browser._app)
        earlier.cookies["gatehouse-device"] = device
        return next_of(await earlier.open(path_of(self.shop, prompt="login"))).rpartition("/")[2]

    async def cookie(self) -> str:
        await sign_in_browser(self.shop, self.user, second_factor=True)
        return self.shop.browser.cookies["gatehouse-session"]

    # Places

    async def own_profile(self, token: str) -> bool:
        return (await self.shop.api.get("/api/user", token=token)).status == 200

    async def api_of_the_organization(self, token: str) -> bool:
        return (await self.shop.api.get(self.shop.tenant.path, token=token)).status == 200

    async def userinfo(self, token: str) -> bool:
        return (await self.shop.api.get("/auth/userinfo", token=token)).status == 200

    async def userinfo_in_a_form(self, token: str) -> bool:
        return (await self.shop.post("/auth/userinfo", access_token=token)).status == 200

    async def userinfo_in_the_query(self, token: str) -> bool:
        return (await self.shop.api.call("GET", f"/auth/userinfo?access_token={token}")).status == 200

    async def hint_of_an_authorization(self, token: str) -> bool:
        return is_code(await self.shop.browser.open(path_of(self.shop, prompt="none", id_token_hint=token)))

    async def hint_of_a_logout(self, token: str) -> bool:
        page = await self.shop.browser.open(f"/auth/end-session?id_token_hint={token}")
        return "Stay signed in" not in page.text

    async def asked(self, token: str) -> bool:
        """Send the parameter `asked`, which earlier versions had."""
        return is_code(await self.shop.browser.open(path_of(self.shop, prompt="login", asked=token)))

    async def flow_of_a_sign_in(self, token: str) -> bool:
        return is_code(await self.shop.browser.open(f"/app/flow/{quote(token, safe='')}"))

    async def refresh(self, token: str) -> bool:
        return (await self.shop.refresh(token)).status == 200

    async def code_of_an_exchange(self, token: str) -> bool:
        return (await self.shop.exchange(token)).status == 200

    async def device_code_of_a_poll(self, token: str) -> bool:
        answer = await self.shop.post("/auth/token", grant_type=GRANT, device_code=token, client_id=str(self.shop.client_id))
        return bool(answer.json["error"] == "authorization_pending")

    async def assertion_of_a_client(self, token: str) -> bool:
        return bool((await self.shop.post("/auth/token", **proof(token), code="unknown")).json["error"] == "invalid_grant")

    async def secret_of_a_client(self, token: str) -> bool:
        fields = {"client_id": str(self.shop.client_id), "client_secret": token}
        return (await self.shop.post("/auth/revoke", **fields, token="unknown")).status == 200

    async def secret_of_a_program(self, token: str) -> bool:
        return (await self.robot.ask(client_secret=token)).status == 200

    async def assertion_of_a_program(self, token: str) -> bool:
        return (await self.robot.ask(**{**proof(token), "client_id": str(self.robot.client_id)})).status == 200

    async def introspection_by_a_program(self, token: str) -> bool:
        fields = {"client_id": str(self.robot.client_id), "client_secret": self.robot.secret}
        answer = await self.shop.post("/auth/introspect", **fields, token=token)
        assert answer.status == 200, answer.text
        return bool(answer.json["active"])

    async def revocation_by_a_program(self, token: str) -> bool:
        """Return whether a session ended. Programs' tokens end with their credential, not separately."""
        before = await self._live_sessions()
        fields = {"client_id": str(self.robot.client_id), "client_secret": self.robot.secret}
        await self.shop.post("/auth/revoke", **fields, token=token)
        return bool(await self._live_sessions() != before)

    async def proof_of_a_key(self, token: str) -> bool:
        answer = await self.shop.post("/auth/token", {"DPoP": token}, grant_type="refresh_token", refresh_token="unknown")
        return bool(answer.json["error"] == "invalid_grant")

    async def revocation(self, token: str) -> bool:
        """Return whether a session ended. A program's token is refused, because it has no session."""
        before = await self._live_sessions()
        fields = {"client_id": str(self.shop.client_id), "client_secret": SECRET}
        answer = await self.shop.post("/auth/revoke", **fields, token=token)
        assert answer.status == 200 or answer.json["error"] == "unsupported_token_type", answer.text
        return bool(await self._live_sessions() != before)

    async def introspection(self, token: str) -> bool:
        fields = {"client_id": str(self.shop.client_id), "client_secret": SECRET}
        answer = await self.shop.post("/auth/introspect", **fields, token=token)
        assert answer.status == 200, answer.text
        return bool(answer.json["active"])

    async def introspection_by_an_api_resource(self, token: str) -> bool:
        fields = {"client_id": str(self.orders_api.client_id), "client_secret": self.orders_api.secret}
        answer = await self.shop.post("/auth/introspect", **fields, token=token)
        assert answer.status == 200, answer.text
        return bool(answer.json["active"])

    async def secret_at_the_introspection_of_an_api_resource(self, token: str) -> bool:
        fields = {"client_id": str(self.orders_api.client_id), "client_secret": token}
        return (await self.shop.post("/auth/introspect", **fields, token="unknown")).status == 200

    async def question_about_a_permission(self, token: str) -> bool:
        body = {"subject": {"type": "user", "id": "x"}, "action": {"name": "x"}, "resource": {"type": "x", "id": "x"}}
        return (await self.shop.api.post("/access/v1/evaluation", body, token=token)).status == 200

    async def second_step_of_a_sign_in(self, token: str) -> bool:
        return (await self.shop.api.post("/api/auth/mfa/verify", {"code": self.factor.code()}, token=token)).status == 200

    async def session_cookie(self, token: str) -> bool:
        browser = FakeBrowser(self.shop.browser._app)
        browser.cookies["gatehouse-session"] = token
        return await browser.is_in()

    async def _live_sessions(self) -> Any:
        return await run_sql(self.shop.tenant.pool, "select count(*) from sessions where ended_at is null")


def relabeled(token: str, type_: str) -> str:
    """Return the token with another type in its header, which its signature covers."""
    header, _, rest = token.partition(".")
    members = json.loads(urlsafe_b64decode(header + "=" * (-len(header) % 4))) | {"typ": type_}
    return f"{urlsafe_b64encode(json.dumps(members).encode()).rstrip(b'=').decode()}.{rest}"


Kind = Callable[[Kit], Awaitable[str]]
Place = Callable[[Kit, str], Awaitable[bool]]
KINDS: Final[tuple[Kind, ...]] = (
    Kit.access_token,
    Kit.access_token_for_the_api,
    Kit.access_token_without_openid,
    Kit.access_token_for_an_api_resource,
    Kit.access_token_for_an_api_resource_with_openid,
    Kit.access_token_for_an_api_resource_without_scope,
    Kit.access_token_for_another_api_resource,
    Kit.refresh_token_for_an_api_resource,
    Kit.platform_access_token,
    Kit.id_token,
    Kit.id_token_with_the_type_of_access_tokens,
    Kit.access_token_with_the_type_of_id_tokens,
    Kit.refresh_token,
    Kit.code,
    Kit.device_code,
    Kit.logout_token,
    Kit.client_assertion,
    Kit.client_secret,
    Kit.token_of_a_service_account,
    Kit.token_of_a_service_account_for_an_api_resource,
    Kit.token_of_an_application_for_itself,
    Kit.token_of_an_application_for_itself_at_another_api_resource,
    Kit.token_of_an_application_for_its_permissions,
    Kit.secret_of_an_api_resource,
    Kit.secret_of_a_service_account,
    Kit.assertion_of_a_service_account,
    Kit.token_of_a_pipeline,
    Kit.personal_token_of_an_organization,
    Kit.personal_token_of_the_own_account,
    Kit.key_proof,
    Kit.pre_auth_token,
    Kit.flow,
    Kit.cookie,
)
_OF_APPLICATIONS: Final[set[Kind]] = {Kit.access_token, Kit.access_token_for_the_api, Kit.access_token_without_openid}
_FOR_API_RESOURCES: Final[set[Kind]] = {
    Kit.access_token_for_an_api_resource,
    Kit.access_token_for_an_api_resource_with_openid,
    Kit.access_token_for_an_api_resource_without_scope,
}
_OF_ITSELF: Final[set[Kind]] = {
    Kit.token_of_an_application_for_itself,
    Kit.token_of_an_application_for_itself_at_another_api_resource,
}
_REFRESH_TOKENS: Final[set[Kind]] = {Kit.refresh_token, Kit.refresh_token_for_an_api_resource}
ACCEPTED: Final[dict[Place, set[Kind]]] = {
    Kit.own_profile: {*_OF_APPLICATIONS, Kit.platform_access_token, Kit.personal_token_of_the_own_account},
    Kit.api_of_the_organization: {
        Kit.platform_access_token,
        Kit.token_of_a_service_account,
        Kit.personal_token_of_an_organization,
    },
    Kit.userinfo: {Kit.access_token},
    Kit.userinfo_in_a_form: {Kit.access_token},
    Kit.userinfo_in_the_query: set(),
    Kit.hint_of_an_authorization: {Kit.id_token},
    Kit.hint_of_a_logout: {Kit.id_token},
    Kit.asked: set(),
    Kit.flow_of_a_sign_in: {Kit.flow},
    Kit.refresh: _REFRESH_TOKENS,
    Kit.code_of_an_exchange: {Kit.code},
    Kit.device_code_of_a_poll: {Kit.device_code},
    Kit.assertion_of_a_client: {Kit.client_assertion},
    Kit.secret_of_a_client: {Kit.client_secret},
    Kit.secret_of_a_program: {Kit.secret_of_a_service_account},
    Kit.assertion_of_a_program: {Kit.assertion_of_a_service_account, Kit.token_of_a_pipeline},
    Kit.introspection_by_a_program: {Kit.token_of_a_service_account, Kit.token_of_a_service_account_for_an_api_resource},
    Kit.revocation_by_a_program: set(),
    Kit.proof_of_a_key: {Kit.key_proof},
    Kit.revocation: {*_OF_APPLICATIONS, *_FOR_API_RESOURCES, Kit.access_token_for_another_api_resource, *_REFRESH_TOKENS},
    Kit.introspection: {
        *_OF_APPLICATIONS,
        *_FOR_API_RESOURCES,
        *_OF_ITSELF,
        Kit.token_of_an_application_for_its_permissions,
        Kit.access_token_for_another_api_resource,
        *_REFRESH_TOKENS,
    },
    Kit.introspection_by_an_api_resource: {
        *_FOR_API_RESOURCES,
        Kit.token_of_an_application_for_itself,
        Kit.token_of_a_service_account_for_an_api_resource,
    },
    Kit.secret_at_the_introspection_of_an_api_resource: {Kit.secret_of_an_api_resource},
    Kit.question_about_a_permission: {Kit.token_of_an_application_for_its_permissions},
    Kit.second_step_of_a_sign_in: {Kit.pre_auth_token},
    Kit.session_cookie: {Kit.cookie},
}


@pytest.fixture
async def kit(shop: RelyingParty, user: Account, factor: Authenticator, issuer: Issuer, clock: FakeClock) -> Kit:
    await register(shop)
    await sign_in_browser(shop, user, second_factor=True)
    tenant, pool = shop.tenant, shop.tenant.pool
    await verify_domain(pool, tenant.org)
    resource, _ = [await add_api_resource(pool, tenant.org, identifier, services=(shop.service,)) for identifier in (ORDERS, OTHER)]
    await run_sql(pool, "update api_resource_clients set own_scopes = '{orders:read,orders:write}'")
    orders_api = await add_credential(pool, tenant.api, resource, tenant.org)
    kit = Kit(shop, user, factor, await add_robot(tenant, resource, issuer), orders_api, issuer, clock)
    await kit.introspection_by_an_api_resource("unknown")  # so that the credential's next use writes nothing
    return kit


async def add_robot(tenant: Tenant, resource: UUID, issuer: Issuer) -> Program:
    """Add a service account with every kind of credential, and an API resource's scopes."""
    account = await create(tenant)
    secret = (await try_add_credential(tenant, account)).json
    await try_add_credential(tenant, account, kind="key", public_key=client_key("EdDSA", "robot").jwk)
    await trust(tenant, account, issuer.address)
    scopes = "select id, org_id, scope_names from api_resources where id = %s"
    [(_, org, names)] = await run_sql(tenant.pool, scopes, resource)
    account_id = UUID(account.rpartition("/")[2])
    await run_sql(tenant.pool, "insert into api_resource_service_accounts values (%s, %s, %s, %s, now())", org, resource, account_id, names)
    return Program(tenant.api, account_id, secret["secret"], UUID(secret["id"]))


async def test_every_token_is_refused_in_the_place_of_every_other_one(kit: Kit) -> None:
    tokens = {kind: await kind(kit) for kind in KINDS}
    findings = []
    for place, accepted in ACCEPTED.items():
        async with unchanged(kit.shop.tenant.pool, ends_flow=place is Kit.asked):  # every request begins a flow, and the oldest flow ends
            for kind, token in tokens.items():
                if kind not in accepted and await place(kit, token):
                    findings.append(f"{kind.__name__} as {place.__name__}")
    assert findings == []


async def test_every_token_is_accepted_in_its_own_place(kit: Kit) -> None:
    """Without this test, the table would prove nothing."""
    findings = []
    for place, accepted in ACCEPTED.items():
        for kind in KINDS:
            if kind in accepted and not await place(kit, await kind(kit)):
                findings.append(f"{kind.__name__} as {place.__name__}")
            if "gatehouse-session" not in kit.shop.browser.cookies:  # the logout has ended it
                await kit.cookie()
    assert findings == []


async def test_our_own_keys_as_those_of_a_client_make_no_token_of_ours_an_assertion(kit: Kit) -> None:
    """Then the signature fits, and `typ` is an assertion's type, or absent (RFC 7523 section 3)."""
    shop = kit.shop
    jwks = (await shop.api.get("/.well-known/jwks.json")).json
    answer = await shop.api.patch(f"{shop.tenant.path}/services/{shop.slug}", {"jwks": jwks}, token=shop.tenant.token("admin"))
    assert answer.status == 200, answer.text
    tokens = {kind: await kind(kit) for kind in KINDS if kind is not Kit.client_assertion}
    async with unchanged(shop.tenant.pool):
        for kind, token in tokens.items():
            for client_id in (None, str(shop.client_id)):
                answer = await shop.post("/auth/token", **{**proof(token), "client_id": client_id}, code="unknown")
                assert (answer.status, answer.json["error"]) == (401, "invalid_client"), kind.__name__
