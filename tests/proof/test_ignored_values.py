"""Headers, parameters, members and values that standards tell servers to ignore, and the few beside them that stay refused.

A table row is a request, with the section that says so. Connections have rows in `tests/proof/wire`.
"""

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.federation.oauth.model import openid_requests
from core.federation.oauth.model.authorization import Authorization, AuthorizationRequest
from core.federation.oauth.model.end_session import END_SESSION_PATH
from core.federation.saml.model.messages import new_message_id
from core.kernel.proofs import Acr
from entrypoints.http.base.rendering.assets import asset_url
from ports import Ports
from tests.fakes.client_documents import GRANTS
from tests.federation.api.client_authentication.keys import assertion, client_key, register, revoke
from tests.federation.api.dpop import BoundClient
from tests.federation.api.external.conftest import client, open_client, server
from tests.federation.api.external.external import ExternalParty
from tests.federation.api.relying import PKCE, RelyingParty, add_relying_party, authorize, sign_in_browser
from tests.federation.api.resources.orders import ORDERS, READ
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, EMAIL, PASSWORD, sign_in
from tests.support.direct import ask
from tests.support.saml import SamlApplication, authn_request, redirect_url, service_provider_metadata
from tests.support.saml.browser import SamlBrowser
from tests.support.scim import PATCH_URN, Directory
from tests.support.tenants import Tenant

__all__ = ["client", "open_client", "server"]  # the fixtures

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
ASSET: Final = asset_url("console.css")
LOGIN: Final = json.dumps({"email": EMAIL, "password": PASSWORD}).encode()
BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class World:
    """The parties that send the requests."""

    app: QuartTrio
    party: RelyingParty
    directory: Directory
    saml: SamlApplication
    browser: SamlBrowser
    token: str  # a user's access token at the API

    async def get(self, path: str, *headers: tuple[str, str]) -> int:
        return await self.send("GET", path, None, *headers)

    async def send(self, method: str, path: str, body: bytes | None, *headers: tuple[str, str]) -> int:
        sent = [(name.encode(), value.encode()) for name, value in headers]
        return (await ask(self.app, method, path, headers=sent, body=body)).status

    async def user(self, *headers: tuple[str, str]) -> int:
        """Call the API as the user."""
        return await self.get("/api/user", ("Authorization", f"Bearer {self.token}"), *headers)

    async def login(self, body: bytes = LOGIN, type_: str = JSON, *headers: tuple[str, str]) -> int:
        return await self.send("POST", "/api/auth/login", body, ("Content-Type", type_), *headers)

    async def authorize(self, **parameters: str) -> str:
        """Return an authorization request's error, or "code"."""
        answer = await authorize(self.party, **parameters)
        return answer.get("error") or next(name for name in answer if name == "code")

    async def exchange(self, *, headers: dict[str, str] | None = None, **fields: str | None) -> int:
        """Return a token request's status."""
        code = (await authorize(self.party))["code"]
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self.party.redirect_uri}
        credentials = {"client_id": str(self.party.client_id), "client_secret": self.party.secret}
        return (await self.party.post("/auth/token", headers or {}, **{**form, **credentials, **fields})).status

    async def post(self, path: str, **fields: str) -> int:
        """Return the status for another request by the client."""
        credentials = {"client_id": str(self.party.client_id), "client_secret": self.party.secret}
        return (await self.party.post(path, **{**credentials, **fields})).status

    async def authenticate(self, *, headers: dict[str, Any] | None = None, **claims: Any) -> int:
        """Return the status for a request that is authenticated with an assertion."""
        return (await revoke(self.party, assertion(self.party, headers=headers, **claims))).status

    async def set_keys(self, *keys: dict[str, Any]) -> int:
        path = f"{self.party.tenant.path}/services/{self.party.slug}"
        changes = {"jwks": {"keys": [client_key().jwk, *keys], "x_unknown": 1}}
        return (await self.party.api.patch(path, changes, token=self.party.tenant.token("admin"))).status

    async def prove(self, **changes: Any) -> int:
        """Return the status for a refresh with a DPoP proof."""
        client = BoundClient(self.party)
        tokens = await client.tokens()
        headers = {"DPoP": client.proof("POST", "/auth/token", **changes)}
        credentials = {"client_id": str(self.party.client_id), "client_secret": self.party.secret}
        fields = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], **credentials}
        return (await self.party.post("/auth/token", headers, **fields)).status

    async def present(self, scheme: str) -> int:
        """Call the UserInfo endpoint with a bound token."""
        client = BoundClient(self.party)
        await client.learn_nonce()
        token = (await client.exchange((await authorize(self.party, scope="openid"))["code"])).json["access_token"]
        proof = client.proof("GET", "/auth/userinfo", token)
        return await self.get("/auth/userinfo", ("Authorization", f"{scheme} {token}"), ("DPoP", proof))

    async def change_user(self, *operations: dict[str, Any]) -> int:
        user = await self.directory.create_user()
        return (await self.directory.patch(user["id"], *operations)).status

    async def provision(self, method: str, path: str, body: Any, type_: str = "application/scim+json", *headers: tuple[str, str]) -> int:
        raw, token = json.dumps(body).encode(), ("Authorization", f"Bearer {self.directory.token}")
        return await self.send(method, f"/scim/v2{path}", raw, ("Content-Type", type_), token, *headers)

    async def create_user(self, **attributes: Any) -> int:
        return (await self.directory.try_create_user(**attributes)).status

    async def start_sign_on(self, inside: str = "", **attributes: str) -> bool:
        path = await self.browser.start_sign_on(self.saml, ID=new_message_id(), inside=inside, **attributes)
        return path.startswith(f"{self.saml.path}/authenticate")

    async def start_sign_on_with(self, **parameters: str) -> int:
        """Return the status for a sign-on with these parameters beside the message."""
        message = authn_request(self.saml, self.party.tenant.ports.clock.now())
        return await self.get(redirect_url(f"{self.saml.path}/sso", message, **parameters))

    async def read_metadata(self, *elements: str) -> list[str]:
        """Return the problems in a service provider's metadata with these elements."""
        path, metadata = (
            f"{self.party.tenant.path}/services/{self.party.slug}/saml/metadata",
            service_provider_metadata(*elements, entity_id="urn:till"),
        )
        answer = await self.party.api.post(path, {"metadata": metadata}, token=self.party.tenant.token("admin"))
        return [problem["code"] for problem in answer.json["problems"]]


Row = tuple[str, str, Callable[[World], Awaitable[Any]], Any]  # what is sent, the section, the request, and its result

HTTP: Final[Sequence[Row]] = [
    ("Upgrade: h2c", "RFC 9110 7.8", lambda w: w.login(LOGIN, JSON, ("Upgrade", "h2c"), ("HTTP2-Settings", "AAMAAABk")), 200),
    ("Upgrade: websocket", "RFC 9110 7.8", lambda w: w.get("/app/sign-in", ("Upgrade", "websocket"), ("Connection", "Upgrade")), 200),
    ("Upgrade: TLS/1.3", "RFC 9110 7.8", lambda w: w.user(("Upgrade", "TLS/1.3, foo/2")), 200),
    ("a byte order mark", "RFC 8259 8.1", lambda w: w.login(BOM + LOGIN), 200),
    ("two byte order marks", "RFC 8259 8.1", lambda w: w.login(BOM + BOM + LOGIN), 400),
    ("a charset of JSON", "RFC 8259 11", lambda w: w.login(LOGIN, "application/json; charset=UTF-8"), 200),
    ("another charset of JSON", "RFC 8259 11", lambda w: w.login(LOGIN, 'application/json;charset="utf-16"'), 200),
    ("parameters of a type", "RFC 6838 4.3", lambda w: w.login(LOGIN, 'Application/JSON; profile="https://a.example/b";v=1'), 200),
    ("an unknown field", "RFC 9110 5.1", lambda w: w.user(("X-Unknown", "x"), ("Sec-Unknown", "?1")), 200),
    ("unknown directives", "RFC 9111 5.2.3", lambda w: w.user(("Cache-Control", 'max-age=0, community="UCI", x'), ("Pragma", "x")), 200),
    ("unknown cookies", "RFC 6265 5.4", lambda w: w.user(("Cookie", "_ga=GA1.2.3; $Version=1; x; =y"), ("Cookie", "b=c")), 200),
    ("an unknown Accept", "RFC 9110 12.4.1", lambda w: w.user(("Accept", "application/vnd.other+xml;q=0.5, x/y")), 200),
    ("no acceptable language", "RFC 9110 12.4.1", lambda w: w.get("/app/sign-in", ("Accept-Language", "xx, *;q=0")), 200),
    ("an unknown charset", "RFC 9110 12.5.2", lambda w: w.get("/app/sign-in", ("Accept-Charset", "utf-7")), 200),
    ("an unknown coding", "RFC 9110 12.5.3", lambda w: w.user(("Accept-Encoding", "zstd;q=x, foo")), 200),
    ("an unknown preference", "RFC 7240 2", lambda w: w.login(LOGIN, JSON, ("Prefer", "respond-async, foo=bar; x")), 200),
    ("another expectation", "RFC 9110 10.1.1", lambda w: w.login(LOGIN, JSON, ("Expect", "100-continue, foo")), 200),
    ("TE and Trailer", "RFC 9110 10.1.4", lambda w: w.login(LOGIN, JSON, ("TE", "trailers, deflate"), ("Trailer", "X-Sum")), 200),
    ("an unknown range unit", "RFC 9110 14.2", lambda w: w.get(ASSET, ("Range", "lines=0-1")), 200),
    ("a range of a response", "RFC 9110 14.2", lambda w: w.user(("Range", "bytes=0-1"), ("If-Range", '"x"')), 200),
    ("a malformed range", "RFC 9110 14.2", lambda w: w.get(ASSET, ("Range", "bytes=9-1,x"), ("If-Range", "x")), 200),
    ("a malformed validator", "RFC 9110 13.1.2", lambda w: w.get(ASSET, ("If-None-Match", "x, W/, \"y")), 200),
    ("a malformed date", "RFC 9110 13.1.3", lambda w: w.get(ASSET, ("If-Modified-Since", "yesterday")), 200),
    ("a validator without one", "RFC 9110 13.1.2", lambda w: w.user(("If-None-Match", 'W/"x", "y", z')), 200),
    ("a date beside a validator", "RFC 9110 13.1.3", lambda w: w.get(
        ASSET, ("If-None-Match", '"x"'), ("If-Modified-Since", "Wed, 01 Jan 2098 00:00:00 GMT")), 200),
    ("a scheme in lower case", "RFC 9110 11.1", lambda w: w.get("/api/user", ("Authorization", f"bEARER   {w.token}")), 200),
    ("another scheme on a page", "RFC 9110 11.6.2", lambda w: w.get("/app/sign-in", ("Authorization", "Basic eDp5")), 200),
    ("the scheme of a proxy", "RFC 9110 11.7.2", lambda w: w.user(("Proxy-Authorization", "Basic eDp5")), 200),
]  # fmt: skip

OAUTH: Final[Sequence[Row]] = [
    ("an unknown parameter", "RFC 6749 3.1", lambda w: w.authorize(extra="x", audience="y"), "code"),
    ("empty parameters", "RFC 6749 3.1", lambda w: w.authorize(
        response_mode="", prompt="", max_age="", nonce="", code_challenge="", code_challenge_method="", request="", request_uri="",
        claims="", login_hint="", resource="", dpop_jkt="", acr_values="", id_token_hint="", registration=""), "code"),
    ("unknown scopes", "OpenID Connect Core 3.1.2.1", lambda w: w.authorize(scope="openid read:things openid"), "code"),
    ("an unknown display", "OpenID Connect Core 3.1.2.1", lambda w: w.authorize(display="hologram"), "code"),
    ("unknown languages", "OpenID Connect Core 3.1.2.1", lambda w: w.authorize(ui_locales="xx tlh", claims_locales="xx"), "code"),
    ("unknown classes", "OpenID Connect Core 3.1.2.1", lambda w: w.authorize(acr_values="urn:x 0 phr"), "code"),
    ("an unknown prompt", "Initiating User Registration 4.1", lambda w: w.authorize(prompt="dance"), "invalid_request"),
    ("an unknown response mode", "OAuth 2.0 Multiple Response Types 2.1", lambda w: w.authorize(response_mode="x"), "invalid_request"),
    ("unknown claims", "OpenID Connect Core 5.5", lambda w: w.authorize(claims=json.dumps(
        {"x": 1, "id_token": {"verified_claims": [{"x": 1}], "y": 5, "email": {"essential": True, "x": 2}}, "userinfo": {"z": "a"}}
    )), "code"),
    ("a malformed claim", "OpenID Connect Core 5.5.1", lambda w: w.authorize(claims='{"id_token":{"acr":5}}'), "invalid_request"),
    ("an unknown parameter of a token request", "RFC 6749 3.2", lambda w: w.exchange(audience="x", extra="y"), 200),
    ("empty parameters of a token request", "RFC 6749 3.2", lambda w: w.exchange(
        scope="", resource="", refresh_token="", device_code="", client_assertion="", client_assertion_type="", code_verifier=""), 200),
    ("a repeated parameter", "RFC 6749 3.2", lambda w: w.send(
        "POST", "/auth/token", b"grant_type=refresh_token&refresh_token=x&refresh_token=x", ("Content-Type", FORM)), 400),
    ("a charset of a form", "RFC 6749 B", lambda w: w.exchange(headers={"Content-Type": f"{FORM}; charset=UTF-8"}), 200),
    ("a scheme in upper case", "RFC 9110 11.1", lambda w: w.exchange(
        client_id=None, client_secret=None,
        headers={"Authorization": "BASIC  " + b64encode(f"{w.party.client_id}:{w.party.secret}".encode()).decode()}), 200),
    ("a type hint of revocation", "RFC 7009 2.1", lambda w: w.post("/auth/revoke", token="x", token_type_hint="saml", extra="y"), 200),
    ("a type hint of introspection", "RFC 7662 2.1", lambda w: w.post("/auth/introspect", token="x", token_type_hint="y", z="a"), 200),
    ("pushed parameters", "RFC 9126 2.1", lambda w: w.post(
        "/auth/par", response_type="code", redirect_uri=w.party.redirect_uri, extra="x", display="hologram", nonce="", prompt=""), 201),
    ("parameters of a device", "RFC 8628 3.1", lambda w: w.post("/auth/device/code", scope="openid x", extra="y"), 200),
    ("parameters of a logout", "RP-Initiated Logout 2", lambda w: w.get(f"{END_SESSION_PATH}?ui_locales=xx&extra=y&state="), 200),
]  # fmt: skip

JOSE: Final[Sequence[Row]] = [
    ("unknown claims", "RFC 7519 4", lambda w: w.authenticate(extra={"a": [1]}, sub_jwk=None, nbf=0), 200),
    ("unknown header members", "RFC 7515 4", lambda w: w.authenticate(headers={"x_extra": [1], "cty": "JWT", "x5t": "x"}), 200),
    ("a critical member", "RFC 7515 4.1.11", lambda w: w.authenticate(headers={"crit": ["x_extra"], "x_extra": 1}), 401),
    ("a type in full", "RFC 7515 4.1.9", lambda w: w.authenticate(headers={"typ": "application/jwt"}), 200),
    ("unknown members of keys", "RFC 7517 4", lambda w: w.set_keys({**client_key(kid="two").jwk, "x5t": "y", "x_unknown": [1]}), 200),
    ("keys of other types", "RFC 7517 5", lambda w: w.set_keys({"kty": "AKP", "alg": "ML-DSA-44", "pub": "x"}), 200),
    ("keys for encryption", "RFC 7517 5", lambda w: w.set_keys({**client_key(kid="two").jwk, "use": "enc", "alg": "ECDH-ES"}), 200),
    ("unknown claims of a proof", "RFC 9449 4.2", lambda w: w.prove(extra="x", exp="never"), 200),
    ("unknown header members of a proof", "RFC 9449 4.2", lambda w: w.prove(headers={"kid": "x", "extra": 1}), 200),
    ("a type of a proof in full", "RFC 7515 4.1.9", lambda w: w.prove(headers={"typ": "application/DPoP+jwt"}), 200),
    ("a scheme of bound tokens in lower case", "RFC 9110 11.1", lambda w: w.present("dpop"), 200),
    ("a critical member of a proof", "RFC 7515 4.1.11", lambda w: w.prove(headers={"crit": ["extra"], "extra": 1}), 400),
]  # fmt: skip

PROVISIONING: Final[Sequence[Row]] = [
    ("unknown attributes", "RFC 7643 3.3", lambda w: w.create_user(favoriteColor="blue", nickName="g", id="x", meta={"version": "x"}), 201),
    ("an unknown extension", "RFC 7643 3.3", lambda w: w.create_user(**{"urn:example:2.0:User": {"badge": 7}}), 201),
    ("a path of an unknown extension", "RFC 7644 3.5.2", lambda w: w.provision(
        "PATCH", w.directory.group_path,
        {"schemas": [PATCH_URN], "Operations": [{"op": "replace", "path": "urn:ietf:params:scim:schemas:core:2.0:Group:externalId",
                                                 "value": "x", "extra": 1}]}), 200),
    ("unknown attributes in a change", "RFC 7643 3.3", lambda w: w.change_user(
        {"op": "Replace", "value": {"favoriteColor": "blue", "title": "x", "urn:example:2.0:User": {"badge": 7}}}), 200),
    ("unknown attributes in a projection", "RFC 7644 3.9", lambda w: w.provision(
        "GET", "/Users?attributes=userName,favoriteColor,urn:example:2.0:User:badge", {}), 200),
    ("another JSON type", "RFC 7644 3.1", lambda w: w.provision("POST", "/Users", {"userName": "g@acme.example"}, JSON), 201),
    ("parameters of a type", "RFC 7644 3.8", lambda w: w.provision(
        "POST", "/Users", {"userName": "g@acme.example"}, "application/scim+json; charset=utf-8; v=2", ("Prefer", "return=minimal")), 201),
    ("unknown parameters", "RFC 7644 3.9", lambda w: w.provision("GET", "/Users?extra=x", {}), 200),
]  # fmt: skip

DEFLATE: Final = "urn:oasis:names:tc:SAML:2.0:bindings:URL-Encoding:DEFLATE"
EXTENSION: Final = '<samlp:Extensions><x:Hint xmlns:x="urn:example">1</x:Hint></samlp:Extensions>'

SLO: Final = (
    '<md:SingleLogoutService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect" Location="https://shop.example.com/slo"/>'
)
SERVICE: Final = '<md:ManageNameIDService Binding="urn:x" Location="https://shop.example.com/names" x:y="1" xmlns:x="urn:example"/>'

SAML: Final[Sequence[Row]] = [
    ("extensions", "SAML core 3.2.1", lambda w: w.start_sign_on(EXTENSION), True),
    ("extensions of metadata", "SAML metadata 2.4.1", lambda w: w.read_metadata(EXTENSION.replace("samlp:", "md:"), SLO, SERVICE), []),
    ("an unknown consent", "SAML core 8.4", lambda w: w.start_sign_on(Consent="urn:example:consent"), True),
    ("a provider name", "SAML core 3.4.1", lambda w: w.start_sign_on(ProviderName="x", AttributeConsumingServiceIndex="7"), True),
    ("unknown parameters", "SAML bindings 3.4.4", lambda w: w.start_sign_on_with(extra="x", SAMLEncoding=DEFLATE), 302),
    ("scoping", "SAML core 3.4.1.2", lambda w: w.start_sign_on('<samlp:Scoping ProxyCount="0"/>'), True),
]

ROWS: Final = [row for table in (HTTP, OAUTH, JOSE, PROVISIONING, SAML) for row in table]


@pytest.fixture
async def world(
    app: QuartTrio, ports: Ports, acme: Tenant, browser: SamlBrowser, user: Account, directory: Directory, shop: SamlApplication
) -> World:
    party = await add_relying_party(acme, FakeBrowser(app), "till")
    await sign_in_browser(party, user)
    await register(party)
    return World(app, party, directory, shop, browser, (await sign_in(ports, user)).access_token)


@pytest.mark.parametrize(("send", "expected"), [row[2:] for row in ROWS], ids=[f"{row[0]} ({row[1]})" for row in ROWS])
async def test_standards_decide_what_is_ignored(world: World, send: Callable[[World], Awaitable[Any]], expected: Any) -> None:
    assert await send(world) == expected


async def register_with(client: ExternalParty, **members: Any) -> str:
    """Register the client, or publish its document, with these members, and return the response to its request."""
    if client.address.startswith("https:"):
        client.server.publish("/more", **members)
        client.address = client.server.address_of("/more")
    else:
        await client.become_registered(**members)
    return next(name for name in await client.authorize() if name in ("code", "error"))


async def authorize_external(client: ExternalParty, **parameters: str) -> str:
    answer = await client.authorize(**parameters)
    return answer.get("error") or next(name for name in answer if name == "code")


async def post_external(client: ExternalParty, path: str, **fields: str) -> int:
    await client.code()  # a consent, without which the client is not stored
    return (await client.post(path, **{"resource": ORDERS, "scope": READ, **PKCE, **fields})).status


ExternalRow = tuple[str, str, Callable[[ExternalParty], Awaitable[Any]], Any]

EXTERNAL: Final[Sequence[ExternalRow]] = [
    ("unknown parameters", "RFC 6749 3.1", lambda c: authorize_external(c, extra="x", audience="y", display="z", ui_locales="xx"), "code"),
    ("empty parameters", "RFC 6749 3.1", lambda c: authorize_external(
        c, response_mode="", prompt="", max_age="", nonce="", request="", request_uri="", claims="", dpop_jkt="", acr_values=""), "code"),
    ("unknown scopes", "OpenID Connect Core 3.1.2.1", lambda c: authorize_external(c, scope=f"openid {READ} read:things groups"), "code"),
    ("an unknown prompt", "Initiating User Registration 4.1", lambda c: authorize_external(c, prompt="dance"), "invalid_request"),
    ("unknown metadata", "RFC 7591 2", lambda c: register_with(
        c, x_unknown=[1], software_id="x", software_version=2, contacts="me", tos_uri=5, **{"client_name#de": "Helfer"}), "code"),
    ("unknown grants and response types", "RFC 7591 2", lambda c: register_with(
        c, grant_types=["authorization_code", "urn:x", "implicit"], response_types=["code", "id_token token"]), "code"),
    ("unknown parameters of a push", "RFC 9126 2.1", lambda c: post_external(
        c, "/auth/par", response_type="code", redirect_uri=c.redirect_uri, extra="x", nonce="", prompt=""), 201),
    ("unknown parameters of a device", "RFC 8628 3.1", lambda c: post_external(c, "/auth/device/code", extra="y", nonce=""), 200),
    ("a type hint of revocation", "RFC 7009 2.1", lambda c: post_external(c, "/auth/revoke", token="x", token_type_hint="saml"), 200),
]  # fmt: skip


@pytest.mark.parametrize("is_registered", [False, True])
@pytest.mark.parametrize(("send", "expected"), [row[2:] for row in EXTERNAL], ids=[f"{row[0]} ({row[1]})" for row in EXTERNAL])
async def test_external_clients_send_more_than_we_know(
    open_client: ExternalParty, send: Callable[[ExternalParty], Awaitable[Any]], expected: Any, is_registered: bool
) -> None:
    await open_client.set_policy(registration=True)
    if is_registered:
        await open_client.become_registered(grant_types=GRANTS)
    assert await send(open_client) == expected


async def test_token_requests_of_external_clients_may_have_more(open_client: ExternalParty) -> None:
    more = {"audience": "x", "extra": "y", "scope": "", "refresh_token": "", "device_code": "", "client_assertion": "", "client_secret": ""}
    await open_client.set_policy(registration=True)
    for _ in ("a document", "a registration"):
        answer = await open_client.exchange(await open_client.code(), **more)
        assert answer.status == 200, answer.text
        assert (await open_client.post("/auth/revoke", token=answer.json["access_token"], token_type_hint="saml")).status == 200
        await open_client.become_registered()


def test_an_unknown_class_does_not_hide_a_known_one() -> None:
    """Classes are in the order of preference (OpenID Connect Core section 3.1.2.1), and unknown classes have no place in it."""

    def preferred(classes: str) -> Acr | None:
        request = AuthorizationRequest(response_type="code", scope="openid", acr_values=classes)
        return openid_requests.parse(Authorization(request, None, None, None), BASE_URL, None).wished_acr

    assert [preferred(classes) for classes in ("urn:x mfa", "mfa pwd", "urn:x pwd mfa", "urn:x")] == [Acr.MFA, Acr.MFA, None, None]
