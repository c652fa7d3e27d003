"""External clients at the endpoints for programs: they are found by the code or token that they present."""

from datetime import timedelta
from uuid import uuid4

import pytest

from core.accounts.model.accounts import Account
from tests.fakes.http_server import Answer as Published
from tests.fakes.http_server import in_json
from tests.fakes.outside import FakeClock
from tests.federation.api.client_authentication.keys import client_key
from tests.federation.api.external.external import ExternalParty, assertion
from tests.federation.api.relying import PKCE, redirect_parts
from tests.federation.api.resources.orders import ORDERS, READ
from tests.support.builders import BASE_URL, Answer, run_sql, sign_in
from tests.support.services import add_api_resource, verify_domain
from tests.support.tenants import Tenant

OTHER = "https://api.example.com/other"


def error(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


@pytest.fixture
def signing(client: ExternalParty) -> ExternalParty:
    """The client with a key at its own URL."""
    client.server.publish(jwks_uri=client.server.address_of("/keys", "keys.example"))
    client.server.answers["/keys"] = in_json({"keys": [client_key().jwk]})
    return client


def fetched_keys(client: ExternalParty) -> int:
    return sum(request.path == "/keys" for request in client.server.requests)


async def test_a_public_client_refreshes_and_revokes_its_tokens(client: ExternalParty) -> None:
    tokens = await client.tokens()
    refreshed = await client.refresh(tokens)
    assert refreshed.status == 200, refreshed.text
    assert error(await client.refresh(tokens)) == (400, "invalid_grant"), "the token was used"
    assert (await client.post("/auth/revoke", token=tokens["access_token"])).status == 200
    assert error(await client.refresh(refreshed.json)) == (400, "invalid_grant")
    assert (await client.post("/auth/revoke", token="unknown")).status == 200
    assert error(await client.post("/auth/introspect", token=tokens["access_token"])) == (401, "invalid_client")


async def test_a_client_with_keys_must_sign_each_request(signing: ExternalParty) -> None:
    code = await signing.code()
    assert error(await signing.exchange(code)) == (401, "invalid_client")
    answer = await signing.exchange(code, **assertion(signing))
    assert answer.status == 200, answer.text
    tokens = answer.json
    assert error(await signing.refresh(tokens)) == (401, "invalid_client")
    refreshed = await signing.refresh(tokens, **assertion(signing), client_id=None)
    assert refreshed.status == 200, refreshed.text
    state = await signing.post("/auth/introspect", token=refreshed.json["access_token"], **assertion(signing))
    assert (state.json["active"], state.json["client_id"], state.json["aud"]) == (True, signing.address, ORDERS)
    refresh_state = await signing.post("/auth/introspect", token=refreshed.json["refresh_token"], **assertion(signing))
    assert (refresh_state.json["active"], refresh_state.json["client_id"]) == (True, signing.address)
    assert fetched_keys(signing) == 1


async def test_an_assertion_is_about_this_client_and_this_server(signing: ExternalParty) -> None:
    code = await signing.code()
    other = signing.server.address_of("/other")
    for changes in (
        {"iss": other},
        {"sub": str(uuid4())},
        {"aud": "https://elsewhere.example"},
        {"aud": f"{BASE_URL}/auth/token"},
        {"aud": [BASE_URL, "https://elsewhere.example"]},
        {"exp": 1},
    ):
        assert error(await signing.exchange(code, **assertion(signing, **changes))) == (401, "invalid_client"), changes
    assert error(await signing.exchange(code, **assertion(signing, client_key("ES256", "other")))) == (401, "invalid_client")
    await add_api_resource(signing.tenant.pool, signing.tenant.org, OTHER)
    await signing.set_policy()
    other_code, allow = await signing.code(resource=OTHER), "update api_resources set external_token_endpoint_audience = true"
    await run_sql(signing.tenant.pool, f"{allow} where identifier = %s", OTHER)
    for_endpoint = assertion(signing, aud=f"{BASE_URL}/auth/token")
    assert error(await signing.exchange(code, **for_endpoint)) == (401, "invalid_client"), "the API resource of the code decides"
    answer = await signing.exchange(other_code, resource=OTHER, **for_endpoint)
    assert answer.status == 200
    assert (await signing.refresh(answer.json, **assertion(signing, aud=f"{BASE_URL}/auth/token"))).status == 200


async def test_an_assertion_works_once_in_all_organizations(signing: ExternalParty, other_tenant: Tenant) -> None:
    await verify_domain(other_tenant.pool, other_tenant.org, "other.example")
    resource = "https://api.other.example/"
    await add_api_resource(other_tenant.pool, other_tenant.org, resource)
    await signing.set_policy()
    codes, fields = (await signing.code(), await signing.code(resource=resource)), assertion(signing)
    assert (await signing.exchange(codes[0], **fields)).status == 200
    assert error(await signing.exchange(codes[1], resource=resource, **fields)) == (401, "invalid_client")
    assert (await signing.exchange(codes[1], resource=resource, **assertion(signing))).status == 200


async def test_keys_are_fetched_only_for_a_live_code_or_grant(signing: ExternalParty, clock: FakeClock) -> None:
    """For an unknown key, they are fetched at most once a minute."""
    for fields in ({"code": "unknown"}, {"refresh_token": "unknown"}):
        answer = await signing.post("/auth/token", **fields, **assertion(signing))
        assert error(answer) == (400, "invalid_grant")
    assert error(await signing.post("/auth/par", resource=ORDERS, **assertion(signing))) == (401, "invalid_client")
    code = await signing.code()
    clock.advance(timedelta(seconds=61))
    assert error(await signing.exchange(code, **assertion(signing))) == (401, "invalid_client"), "the code has expired"
    assert fetched_keys(signing) == 0
    code = await signing.code()
    for number in range(5):
        assert (await signing.exchange(code, **assertion(signing, client_key("ES256", f"unknown {number}")))).status == 401
    assert fetched_keys(signing) == 2
    tokens = (await signing.exchange(code, **assertion(signing))).json
    assert (await signing.refresh(tokens, **assertion(signing))).status == 200
    for days in (100, 0):  # the session expires, and then its refresh token is a used token
        clock.advance(timedelta(days=days))
        assert (await signing.refresh(tokens, **assertion(signing))).status in (400, 401)
    assert fetched_keys(signing) == 2


async def test_keys_of_one_document_open_no_other(signing: ExternalParty) -> None:
    """The other client has the same redirect URI, and its own key."""
    code = await signing.code()
    other = ExternalParty(signing.tenant, signing.browser, signing.server, "", signing.redirect_uri)
    other.address = signing.server.publish("/other", redirect_uris=[signing.redirect_uri], jwks={"keys": [client_key("ES256", "two").jwk]})
    await other.code()
    stolen = await other.exchange(code, **assertion(other, client_key("ES256", "two")))
    assert error(stolen) == (400, "invalid_grant")
    forged = await signing.exchange(code, **assertion(signing, client_key("ES256", "two")))
    assert error(forged) == (401, "invalid_client")
    assert (await signing.exchange(code, **assertion(signing))).status == 200


async def test_a_new_key_at_the_same_address_works_without_a_new_consent(signing: ExternalParty) -> None:
    tokens = (await signing.exchange(await signing.code(), **assertion(signing))).json
    signing.server.answers["/keys"] = in_json({"keys": [client_key("EdDSA", "two").jwk]})
    assert (await signing.refresh(tokens, **assertion(signing, client_key("EdDSA", "two")))).status == 200
    assert (await signing.open()).status == 303


async def test_no_shared_secret_opens_anything(client: ExternalParty) -> None:
    code = await client.code()
    for secret in ("secret", client.address):
        assert error(await client.exchange(code, client_secret=secret)) == (401, "invalid_client")
    assert error(await client.exchange(code, code_verifier=None)) == (400, "invalid_grant")
    assert error(await client.post("/auth/token", grant_type="client_credentials", resource=ORDERS)) in (
        (400, "unauthorized_client"),
        (401, "invalid_client"),
    )
    assert (await client.exchange(code)).status == 200


async def test_a_client_gets_no_tokens_for_itself(signing: ExternalParty) -> None:
    await signing.code()
    for resource in (ORDERS, f"{BASE_URL}/access/v1"):
        answer = await signing.post("/auth/token", grant_type="client_credentials", resource=resource, **assertion(signing))
        assert error(answer) in ((400, "unauthorized_client"), (401, "invalid_client")), resource


async def test_the_id_of_the_stored_client_is_no_second_name(client: ExternalParty) -> None:
    await client.code()
    [(client_id,)] = await run_sql(client.tenant.pool, "select client_id from services where client_uri is not null")
    assert (await client.open(client_id=str(client_id))).status == 404
    code = await client.code()
    assert error(await client.exchange(code, client_id=str(client_id))) == (401, "invalid_client")


async def test_a_resource_swapped_between_code_and_token_is_refused(client: ExternalParty) -> None:
    code = await client.code()
    assert error(await client.exchange(code, resource="https://elsewhere.example/")) == (400, "invalid_target")


async def test_ending_the_policy_ends_the_next_refresh(client: ExternalParty) -> None:
    tokens = await client.tokens()
    await run_sql(client.tenant.pool, "delete from api_resource_clients")
    assert error(await client.refresh(tokens))[1] in ("invalid_grant", "invalid_target")


async def test_ending_the_consent_ends_the_next_refresh(client: ExternalParty, user: Account) -> None:
    tokens = await client.tokens()
    own = (await sign_in(client.tenant.ports, user)).access_token
    [consent] = (await client.api.get("/api/user/consents", token=own)).json["consents"]
    assert consent["name"] == "Assistant"
    await client.api.call("DELETE", f"/api/user/consents/{consent['service_id']}", token=own)
    assert error(await client.refresh(tokens)) == (400, "invalid_grant")
    assert (await client.open()).status == 200


async def test_a_code_that_waits_is_no_longer_valid_when_the_policy_ends(client: ExternalParty) -> None:
    """By an error that the client knows (RFC 6749 section 5.2)."""
    code = await client.code()
    await client.set_policy("none")
    await run_sql(client.tenant.pool, "delete from api_resource_clients")
    assert error(await client.exchange(code)) == (400, "invalid_grant")


async def test_a_stored_client_pushes_its_requests(client: ExternalParty) -> None:
    pushed = {"redirect_uri": client.redirect_uri, "response_type": "code", "scope": READ, "resource": ORDERS, **PKCE}
    assert error(await client.post("/auth/par", **pushed)) == (401, "invalid_client"), "it is not stored"
    await client.code()
    refused = await client.post("/auth/par", **{**pushed, "redirect_uri": "https://other.example/callback"})
    assert error(refused) == (400, "invalid_request")
    answer = await client.post("/auth/par", **pushed)
    assert answer.status == 201, answer.text
    request_uri = answer.json["request_uri"]
    response = await client.browser.open(f"/auth/authorize?client_id={client.address}&request_uri={request_uri}")
    assert "code" in redirect_parts(response)[1]


async def test_token_requests_fetch_no_document(client: ExternalParty, clock: FakeClock) -> None:
    tokens = await client.tokens()
    client.server.answers["/client"] = Published(500)
    clock.advance(timedelta(days=1))
    count = len(client.server.requests)
    refreshed = await client.refresh(tokens)
    assert refreshed.status == 200
    pushed = {"redirect_uri": client.redirect_uri, "response_type": "code", "scope": READ, "resource": ORDERS, **PKCE}
    assert (await client.post("/auth/par", **pushed)).status == 201
    assert (await client.post("/auth/device/code", scope=READ, resource=ORDERS, **PKCE)).status == 200
    assert (await client.post("/auth/revoke", token=refreshed.json["refresh_token"])).status == 200
    assert len(client.server.requests) == count


async def test_userinfo_refuses_tokens_for_an_api(client: ExternalParty) -> None:
    tokens = await client.tokens(scope=f"openid {READ}")
    assert (await client.api.get("/auth/userinfo", token=tokens["access_token"])).status == 401


async def test_metadata_say_that_addresses_are_client_ids(client: ExternalParty) -> None:
    for path in ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"):
        metadata = (await client.api.get(path)).json
        assert metadata["client_id_metadata_document_supported"] is True
        assert {"none", "private_key_jwt"} <= set(metadata["token_endpoint_auth_methods_supported"])


async def test_a_client_signs_its_user_out_by_its_id_token(client: ExternalParty) -> None:
    tokens = await client.tokens(scope=f"openid {READ}")
    answer = await client.browser.open(f"/auth/end-session?id_token_hint={tokens['id_token']}&client_id={client.address}")
    assert answer.status in (200, 303), answer.text
    assert not await client.browser.is_in()
