"""Clients that register themselves, without an initial access token (RFC 7591): nothing is stored before the first consent."""

from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from lxml import html
from quart_trio import QuartTrio

from entrypoints.http.base.context import app_context
from tests.fakes.outside import FakeClock
from tests.federation.api.external.external import LOCAL, REGISTER, ExternalParty
from tests.federation.api.relying import PKCE, VERIFIER, claims, redirect_parts
from tests.federation.api.resources.orders import ORDERS, READ
from tests.federation.attacks.world import unchanged
from tests.support.builders import BASE_URL, Answer, Api, run_concurrently, run_sql
from tests.support.direct import change_ports

METADATA_PATHS = ("/.well-known/openid-configuration", "/.well-known/oauth-authorization-server")
CURSOR = "cursor://anysphere.cursor-mcp/oauth/callback"
DEVICE_CODE = "urn:ietf:params:oauth:grant-type:device_code"


def error(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


@pytest.mark.parametrize("path", METADATA_PATHS)
async def test_metadata_name_the_endpoint_only_if_clients_may_register_themselves(api: Api, path: str) -> None:
    assert "registration_endpoint" not in (await api.get(path)).json


async def test_without_the_setting_a_client_is_refused_with_words(client: ExternalParty) -> None:
    async with unchanged(client.tenant.pool):
        answer = await client.register()
    assert error(answer) == (401, "invalid_token")
    assert "initial access token" in answer.json["error_description"]
    assert answer.headers["WWW-Authenticate"] == "Bearer"


async def test_the_response_has_everything_that_was_registered(open_client: ExternalParty) -> None:
    async with unchanged(open_client.tenant.pool):
        answer = await open_client.register(
            client_name="  My   assistant ",
            grant_types=["authorization_code", "refresh_token", "implicit", DEVICE_CODE],
            response_types=["code", "token"],
            token_endpoint_auth_method="none",
            logo_uri="https://client.example/logo.png",
            scope="everything",
        )
    assert answer.status == 201, answer.text
    assert (answer.headers["Cache-Control"], answer.headers["Content-Type"]) == ("no-store", "application/json")
    body = answer.json
    client_id = body.pop("client_id")
    assert client_id.startswith("registered:")
    assert len(client_id) <= 2_000
    assert body == {
        "client_id_issued_at": int(open_client.tenant.ports.clock.now().timestamp()),
        "client_name": "My assistant",
        "redirect_uris": [open_client.redirect_uri],
        "application_type": "web",
        "grant_types": ["authorization_code", "refresh_token", DEVICE_CODE],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    for path in METADATA_PATHS:
        assert (await open_client.api.get(path)).json["registration_endpoint"] == f"{BASE_URL}{REGISTER}"


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({"redirect_uris": None}, "invalid_redirect_uri"),
        ({"redirect_uris": ["http://client.example/callback"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["javascript:alert(1)"]}, "invalid_redirect_uri"),
        ({"redirect_uris": [CURSOR, "intent://example.com/"]}, "invalid_redirect_uri"),
        ({"redirect_uris": [CURSOR], "application_type": "web"}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://client.example/callback#fragment"]}, "invalid_redirect_uri"),
        ({"redirect_uris": [LOCAL], "application_type": "web"}, "invalid_redirect_uri"),
        ({"redirect_uris": ["com.example.app:/callback"], "application_type": "web"}, "invalid_redirect_uri"),
        ({"application_type": "service"}, "invalid_client_metadata"),
        ({"application_type": ["web"]}, "invalid_client_metadata"),
        ({"client_name": None}, "invalid_client_metadata"),
        ({"client_name": "pay\u202epal"}, "invalid_client_metadata"),
        ({"grant_types": ["client_credentials"]}, "invalid_client_metadata"),
        ({"grant_types": "authorization_code"}, "invalid_client_metadata"),
        ({"response_types": ["token"]}, "invalid_client_metadata"),
        ({"software_statement": "eyJhbGciOiJub25lIn0.e30."}, "unapproved_software_statement"),
        *(({"token_endpoint_auth_method": name}, "invalid_client_metadata") for name in ("client_secret_basic", "private_key_jwt", "x", 5)),
        ({"jwks": {"keys": []}, "jwks_uri": "https://client.example/keys"}, "invalid_client_metadata"),
    ],
)
async def test_metadata_that_are_not_valid_are_refused_by_their_error(
    open_client: ExternalParty, metadata: dict[str, Any], code: str
) -> None:
    answer = await open_client.register(**metadata)
    assert error(answer) == (400, code), answer.text


async def test_metadata_that_no_request_could_carry_are_refused(open_client: ExternalParty) -> None:
    """Compression shortens similar addresses, but not random addresses. Requests take up to 2,048 characters in a parameter."""
    start = open_client.redirect_uri
    longest = f"{start}/{'x' * (2047 - len(start))}"
    answer = await open_client.register(redirect_uris=[longest])
    assert answer.status == 201, answer.text
    assert (await open_client.open(client_id=answer.json["client_id"], redirect_uri=longest)).status == 403, "it is understood"
    answer = await open_client.register(redirect_uris=[start, f"{longest}x"])
    assert error(answer) == (400, "invalid_redirect_uri")
    assert "more than 2048 characters" in answer.json["error_description"]
    many = [f"{start}/{number:02}{'x' * (2045 - len(start))}" for number in range(50)]
    for count, status in ((31, 201), (33, 400)):
        answer = await open_client.register(redirect_uris=many[:count])
        assert answer.status == status, answer.text
        if status == 201:
            assert (await open_client.open(client_id=answer.json["client_id"], redirect_uri=many[0])).status == 403, "it opens again"
    assert "too long" in answer.json["error_description"]
    similar = [f"https://client.example/callback/{number}" for number in range(50)]
    answer = await open_client.register(redirect_uris=similar)
    assert answer.status == 201, answer.text
    answer = await open_client.register(redirect_uris=[f"https://client.example/{sha256(uri.encode()).hexdigest()}" for uri in similar])
    assert error(answer) == (400, "invalid_client_metadata")
    assert "too long" in answer.json["error_description"]


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        ({"redirect_uris": [LOCAL]}, "native"),
        ({"redirect_uris": [CURSOR]}, "native"),
        ({"redirect_uris": [CURSOR, LOCAL, "https://www.cursor.com/agents/mcp/oauth/callback"]}, "native"),
        ({"redirect_uris": [LOCAL, "com.example.app:/callback"], "application_type": "native"}, "native"),
        ({"redirect_uris": ["https://vscode.dev/redirect", "http://127.0.0.1/"], "application_type": "native"}, "native"),
        ({"application_type": "web"}, "web"),
        ({"application_type": "native"}, "native"),
    ],
)
async def test_the_application_type_is_honored(open_client: ExternalParty, metadata: dict[str, Any], kind: str) -> None:
    answer = await open_client.register(**metadata)
    assert (answer.status, answer.json["application_type"]) == (201, kind)


async def test_a_client_that_registered_itself_gets_tokens_after_the_consent(registered: ExternalParty) -> None:
    page = await registered.open()
    assert page.status == 200
    for text in ("that registered itself as", "Assistant", "client.example", "Any application can use this name", "Read your orders"):
        assert text in page.text, text
    assert await registered.stored() == [], "before the consent nothing is stored"
    tokens = await registered.tokens(scope=f"openid {READ}")
    assert await registered.stored() == [(registered.address, "Assistant", "spa")]
    token = claims(tokens)
    assert (token["client_id"], token["aud"], token["scope"]) == (registered.address, ORDERS, READ)
    assert claims({"access_token": tokens["id_token"]})["aud"] == registered.address
    assert (await registered.open()).status == 303, "the user agreed before"
    refreshed = await registered.refresh(tokens)
    assert refreshed.status == 200, refreshed.text
    assert (await registered.post("/auth/revoke", token=refreshed.json["access_token"])).status == 200
    assert error(await registered.refresh(refreshed.json)) == (400, "invalid_grant")


async def test_before_the_sign_in_the_page_has_nothing_that_the_client_chose(registered: ExternalParty) -> None:
    registered.browser.cookies.clear()
    page = await registered.open()
    assert page.status == 200
    assert "Self-registered application" in page.text
    assert "Assistant" not in page.text
    assert (await registered.open(redirect_uri="https://other.example/callback")).status == 200, "nothing is sent there"


async def test_a_native_client_listens_on_any_port_and_asks_each_time(registered: ExternalParty) -> None:
    await registered.become_registered(redirect_uris=["http://127.0.0.1/callback"], application_type="native")
    registered.redirect_uri = LOCAL
    tokens = await registered.tokens()
    assert claims(tokens)["client_id"] == registered.address
    assert (await registered.open()).status == 200
    assert (await registered.stored())[0][2] == "desktop"


async def test_a_client_with_a_scheme_without_a_dot_signs_in_with_pkce(registered: ExternalParty) -> None:
    await registered.become_registered(redirect_uris=[CURSOR])
    registered.redirect_uri = CURSOR
    page = await registered.open(code_challenge=None, code_challenge_method=None)
    assert "code_challenge" in page.text + page.headers.get("Location", ""), "PKCE is required"
    tokens = await registered.tokens()
    assert claims(tokens)["client_id"] == registered.address
    assert (await registered.open()).status == 200, "any program can claim the scheme, so each sign-in asks"
    assert (await registered.stored())[0][2] == "desktop"


def link_of(page: Answer) -> tuple[str, dict[str, str]]:
    """Return the address and the parameters of the button that takes the user back to the client."""
    [link] = html.document_fromstring(page.text).xpath("//a[contains(@class, 'button')]/@href")
    parts = urlsplit(link)
    return link.partition("?")[0], dict(parse_qsl(parts.query))


@pytest.mark.parametrize("redirect_uri", [LOCAL, "http://[::1]:8000/callback", CURSOR, "com.example.app:/callback"])
async def test_errors_go_to_programs_on_the_device_by_a_page_with_the_reason(registered: ExternalParty, redirect_uri: str) -> None:
    await registered.become_registered(redirect_uris=[redirect_uri])
    registered.redirect_uri = redirect_uri
    for changes, status, error_code, reason in (
        ({"code_challenge": None, "code_challenge_method": None}, 400, "invalid_request", "code_challenge"),
        ({"scope": "nothing"}, 400, "invalid_scope", "has none of these scopes"),
        ({"prompt": "none"}, 400, "consent_required", "must agree first"),
        ({"resource": None}, 400, "invalid_target", "asked for no API"),
        ({"resource": "https://elsewhere.example/"}, 400, "invalid_target", "asked for no API"),
    ):
        page = await registered.open(**changes)
        assert (page.status, reason in unescape(page.text)) == (status, True), (changes, page.text)
        address, fields = link_of(page)
        assert (address, fields["error"], fields["state"], fields["iss"]) == (redirect_uri, error_code, "af0ifjsldkj", BASE_URL), changes
    page = await registered.open()
    declined = await registered.browser.answer(page, "cancel")
    assert declined.status == 303, "a user who declined goes back at once"
    assert redirect_parts(declined)[1]["error"] == "access_denied"


async def test_errors_go_to_websites_by_redirect_once_the_user_is_signed_in(registered: ExternalParty) -> None:
    for changes, error_code in (
        ({"code_challenge": None, "code_challenge_method": None}, "invalid_request"),
        ({"prompt": "none"}, "consent_required"),
    ):
        answer = await registered.open(**changes)
        address, fields = redirect_parts(answer)
        assert (answer.status, address, fields["error"], fields["state"]) == (303, registered.redirect_uri, error_code, "af0ifjsldkj")
    registered.browser.cookies.clear()
    # Anyone can register any address, so without a session nothing leads there by itself (RFC 9700 section 4.11.2).
    for changes, error_code in ((({"scope": "nothing"}), "invalid_scope"), ({"prompt": "none"}, "login_required")):
        page = await registered.open(**changes)
        assert page.status == 400
        address, fields = link_of(page)
        assert (address, fields["error"]) == (registered.redirect_uri, error_code)
    for redirect_uri in ("https://other.example/callback", None):
        page = await registered.open(scope="nothing", redirect_uri=redirect_uri)
        assert (page.status, "other.example" in page.text) == (400, False)


async def test_a_client_that_is_not_admitted_is_told_by_a_page_with_the_reason(registered: ExternalParty) -> None:
    await registered.set_policy("none")
    page = await registered.open()
    assert (page.status, link_of(page)[0], link_of(page)[1]["error"]) == (403, registered.redirect_uri, "unauthorized_client")


async def test_policy_and_resource_decide(registered: ExternalParty) -> None:
    for admit, hosts, registration in (("none", (), True), ("any", (), False), ("listed", ("client.example",), False)):
        await registered.set_policy(admit, hosts, registration=registration)
        answer = await registered.open()
        assert answer.status == 403
        assert "registered themselves" in answer.text
    for resource in (None, "https://elsewhere.example/"):
        answer = await registered.open(resource=resource)
        assert answer.status == 400
        assert "asked for no API" in answer.text
    await registered.set_policy("any", scopes=(READ,), registration=True)
    assert (await registered.tokens())["scope"] == READ


async def test_only_registered_redirect_uris_get_an_answer(registered: ExternalParty) -> None:
    wrong = "did not register this redirect URI"
    for uri, problem in (("https://client.example/callback/", wrong), ("https://other.example/callback", wrong), (None, "redirect_uri")):
        answer = await registered.open(redirect_uri=uri)
        assert answer.status == 400
        assert problem in answer.text


async def test_a_client_id_works_for_a_day_and_a_stored_client_goes_on(registered: ExternalParty, clock: FakeClock) -> None:
    early = registered.address
    await registered.become_registered(client_name="Late assistant")
    late = registered.address
    clock.advance(timedelta(hours=23, minutes=59))
    tokens = await registered.tokens()
    page = await registered.open(client_id=early)
    assert page.status == 200
    clock.advance(timedelta(minutes=1))
    assert (await registered.open()).status == 303
    assert (await registered.refresh(tokens)).status == 200
    assert error(await registered.exchange("wrong")) == (400, "invalid_grant")
    refused = await registered.browser.answer(page, "continue")
    assert refused.status == 400
    assert "more than 24 hours ago" in refused.text
    registered.address = early
    answer = await registered.open()
    assert answer.status == 400
    assert "more than 24 hours ago" in answer.text
    assert error(await registered.exchange("wrong")) == (401, "invalid_client")
    assert [row[0] for row in await registered.stored()] == [late]


async def test_twenty_first_consents_at_once_store_one_client(registered: ExternalParty) -> None:
    page = await registered.open()
    await run_concurrently(20, lambda _: registered.browser.answer(page, "continue"))
    answers = await run_concurrently(20, lambda _: registered.open())
    assert {answer.status for answer in answers} == {303}
    assert len(await registered.stored()) == 1


async def test_only_a_stored_client_pushes_requests_and_runs_on_a_device(registered: ExternalParty) -> None:
    pushed = {"redirect_uri": registered.redirect_uri, "response_type": "code", "scope": READ, "resource": ORDERS, **PKCE}
    device = {"scope": READ, "resource": ORDERS, **PKCE}
    for path, fields in (("/auth/par", pushed), ("/auth/device/code", device)):
        assert error(await registered.post(path, **fields)) == (401, "invalid_client")
    await registered.code()
    assert (await registered.post("/auth/par", **pushed)).status == 201
    assert error(await registered.post("/auth/device/code", **device)) == (400, "unauthorized_client"), "it did not register this grant"
    await registered.become_registered(grant_types=["authorization_code", DEVICE_CODE])
    await registered.code()
    codes = await registered.post("/auth/device/code", **device)
    assert codes.status == 200, codes.text
    poll = await registered.post("/auth/token", grant_type=DEVICE_CODE, device_code=codes.json["device_code"], code_verifier=VERIFIER)
    assert error(poll) == (400, "authorization_pending")


async def test_the_pages_of_the_user_and_of_admins_name_it_as_self_registered(registered: ExternalParty) -> None:
    await registered.tokens()
    for path in ("/app/account/consents", "/app/account", "/app/account/security"):
        assert "Self-registered application" in (await registered.browser.open(path)).text, path
    [(client_id, service_id)] = await run_sql(registered.tenant.pool, "select client_uri, id from services where client_uri is not null")
    page = await registered.browser.open(f"/app/account/consents/{service_id}")
    assert "which calls itself <bdi>Assistant</bdi>" in page.text
    [(resource,)] = await run_sql(registered.tenant.pool, "select id from api_resources")
    grants = f"{registered.tenant.path}/api-resources/{resource}/external-clients/grants"
    [grant] = (await registered.api.get(grants, token=registered.tenant.token("admin"))).json["grants"]
    assert (grant["client_uri"], grant["client_name"]) == (client_id, "Assistant")
    [event] = await run_sql(registered.tenant.pool, "select details from audit_log where action = 'external_client.added'")
    assert registered.address.startswith(event[0]["client"].removesuffix("..."))
    assert len(event[0]["client"]) < 100


async def test_when_the_setting_is_off_again_only_stored_clients_go_on(app: QuartTrio, registered: ExternalParty) -> None:
    stored, tokens = registered.address, await registered.tokens()
    await registered.become_registered()
    change_ports(app, policy=replace(app_context(app).ports.policy, client_registration=False))
    answer = await registered.open()
    assert answer.status == 400
    assert "no longer register themselves" in answer.text
    registered.address = stored
    assert (await registered.open()).status == 303
    assert (await registered.refresh(tokens)).status == 200
