"""Clients that authenticate with a private key (private_key_jwt): RFC 7523 and its update on audiences, security O-9."""

import hmac
import json
from base64 import urlsafe_b64encode
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

import jwt
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from quart_trio import QuartTrio

from entrypoints.http.api.federation.oauth.token_endpoint import TOKEN
from ports import Ports
from tests.fakes.http_server import Answer as Reply
from tests.fakes.http_server import FakeServer, ReceivedRequest, in_json
from tests.fakes.outside import FakeClock
from tests.federation.api.cli import INVALID_CLIENT, oauth_error
from tests.federation.api.client_authentication.keys import (
    LEFT_OUT,
    ClientKey,
    assertion,
    client_key,
    proof,
    register,
    revoke,
    set_keys_uri,
)
from tests.federation.api.relying import SECRET, RelyingParty, add_relying_party, basic
from tests.support.browser import FakeBrowser
from tests.support.builders import BASE_URL, run_concurrently, with_loopback_sender
from tests.support.direct import change_ports
from tests.support.tenants import Tenant

INVALID_REQUEST = (400, "invalid_request", "BAD_REQUEST")


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
async def test_a_client_can_use_an_assertion_at_every_endpoint(relying_party: RelyingParty, algorithm: str) -> None:
    """The client's secret still works, so that it can change to keys without an interruption."""
    key = client_key(algorithm)
    await register(relying_party, client_key("ES256", "other"), key)
    first = await relying_party.exchange(await relying_party.code(), **proof(assertion(relying_party, key)))
    assert first.status == 200, first.text
    renewed = await relying_party.refresh(first.json["refresh_token"], **proof(assertion(relying_party, key, aud=[BASE_URL])))
    assert renewed.status == 200, renewed.text
    fields = {**proof(assertion(relying_party, key)), "client_id": str(relying_party.client_id)}
    assert (await relying_party.post("/auth/revoke", **fields, token=renewed.json["refresh_token"])).status == 200
    assert not await relying_party.is_live(renewed.json)
    answer = await relying_party.post("/auth/device/code", **proof(assertion(relying_party, key)))
    assert answer.status == 200, answer.text
    assert (await relying_party.exchange(await relying_party.code())).status == 200


async def test_assertions_with_wrong_claims_are_refused(relying_party: RelyingParty, clock: FakeClock) -> None:
    await register(relying_party)
    now = clock.now().timestamp()
    other = str(uuid4())
    findings = []
    table: tuple[tuple[int, dict[str, Any]], ...] = (
        *((401, {name: value}) for name in ("iss", "sub") for value in (other, LEFT_OUT, None, BASE_URL, [str(relying_party.client_id)])),
        *(
            (401, {"aud": audience})
            for audience in (LEFT_OUT, None, [], {}, "", other, f"{BASE_URL}/", f"{BASE_URL}{TOKEN}", BASE_URL.upper())
        ),
        *((401, {"aud": audience}) for audience in ([BASE_URL, "https://elsewhere.example"], [BASE_URL, BASE_URL], [[BASE_URL]], 5)),
        *(
            (401, {"exp": time})
            for time in (LEFT_OUT, None, "x", str(int(now) + 60), True, now - 31, now + 631, 1e300, 10**18, 10**400, -1)
        ),
        *((401, {name: value}) for name in ("iat", "nbf") for value in (now + 31, "x", None)),
        *((401, {"jti": value}) for value in (LEFT_OUT, None, "", 5, ["x"], "a\x00", "a" * 256)),
        *((200, {"exp": time}) for time in (now + 1, now + 629, now - 29, now + 60.5)),
        (401, {"iat": now - 600, "exp": now + 60}),
        (200, {"iat": LEFT_OUT}),
        (200, {"nbf": now + 29}),
        (200, {"jti": "a" * 255}),
    )
    for expected, changes in table:
        answer = await revoke(relying_party, assertion(relying_party, **changes))
        if answer.status != expected:
            findings.append((changes, answer.status, answer.text))
    assert findings == []


def forge(header: dict[str, Any], payload: bytes, sign: Any = lambda _: b"") -> str:
    """Return a token that a library for JWT would refuse to make."""
    signed = ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in (json.dumps(header).encode(), payload))
    return f"{signed}.{urlsafe_b64encode(sign(signed.encode())).rstrip(b'=').decode()}"


async def test_algorithms_keys_and_types_are_not_confused(relying_party: RelyingParty, clock: FakeClock) -> None:
    """These are refused: a symmetric algorithm with the public key or client secret, `none`, the sender's key, a different type."""
    rs, es = client_key("RS256", "rs"), client_key("ES256", "es")
    await register(relying_party, rs, es)
    good = assertion(relying_party, rs)
    payload = jwt.decode(good, options={"verify_signature": False})
    raw, pem = json.dumps(payload).encode(), json.dumps(rs.jwk).encode()
    stranger = ClientKey("rs", "RS256", rsa.generate_private_key(65537, 2048))
    forged = {
        "none": forge({"alg": "none"}, raw),
        "none in capitals": forge({"alg": "NONE", "kid": "rs"}, raw),
        "no algorithm": forge({"kid": "rs"}, raw),
        "HMAC with the public key": forge({"alg": "HS256", "kid": "rs"}, raw, lambda text: hmac.digest(pem, text, sha256)),
        "HMAC with the secret": forge({"alg": "HS256", "kid": "rs"}, raw, lambda text: hmac.digest(SECRET.encode(), text, sha256)),
        "another key under the same id": assertion(relying_party, stranger),
        "another algorithm of the same type": forge({"alg": "PS256", "kid": "rs"}, raw, lambda text: rs.private.sign(text, *_pkcs1())),
        "an algorithm that is not accepted": assertion(relying_party, rs, algorithm="RS512"),
        "the key of another type": assertion(relying_party, es, headers={"kid": "rs"}),
        "an unknown key": assertion(relying_party, rs, headers={"kid": "unknown"}),
        "a key in the token": assertion(relying_party, stranger, headers={"jwk": stranger.jwk}),
        "a key elsewhere": assertion(relying_party, stranger, headers={"jku": "https://evil.example/keys"}),
        "a critical extension": assertion(relying_party, rs, headers={"crit": ["exp"], "exp": 1}),
        "an access token by type": assertion(relying_party, rs, headers={"typ": "at+jwt"}),
        "a logout token by type": assertion(relying_party, rs, headers={"typ": "logout+jwt"}),
        "a pre-auth token by type": assertion(relying_party, rs, headers={"typ": "pre-auth+jwt"}),
        "an altered payload": good.replace(good.split(".")[1], urlsafe_b64encode(raw + b" ").rstrip(b"=").decode()),
        "no signature": good.rpartition(".")[0] + ".",
        "no claims": forge({"alg": "ES256", "kid": "es"}, b"[]"),
        "not a token": "x.y.z",
        "too long": good + "a" * 9000,
    }
    statuses = {name: (await revoke(relying_party, token)).status for name, token in forged.items()}
    assert {name: status for name, status in statuses.items() if status != 401 and name != "too long"} == {}
    assert statuses["too long"] == 400
    assert (await revoke(relying_party, good)).status == 200
    assert (await revoke(relying_party, assertion(relying_party, rs, headers={"typ": "jwt"}))).status == 200


def _pkcs1() -> tuple[Any, Any]:
    return padding.PKCS1v15(), hashes.SHA256()


@pytest.mark.slow
async def test_an_assertion_works_once_in_a_race(relying_party: RelyingParty, clock: FakeClock) -> None:
    await register(relying_party)
    code, signed = await relying_party.code(), assertion(relying_party)
    answers = await run_concurrently(20, lambda _: relying_party.exchange(code, **proof(signed)))
    assert sorted(answer.status for answer in answers) == [200] + [401] * 19
    assert await relying_party.is_live(next(answer.json for answer in answers if answer.status == 200))
    assert oauth_error(await revoke(relying_party, signed)) == INVALID_CLIENT
    clock.advance(timedelta(minutes=4))
    assert oauth_error(await revoke(relying_party, signed)) == INVALID_CLIENT


async def test_clients_may_use_the_same_ids(relying_party: RelyingParty, acme: Tenant, browser: FakeBrowser) -> None:
    other = await add_relying_party(acme, browser, "blog")
    for client in (relying_party, other):
        await register(client)
        assert (await revoke(client, assertion(client, jti="1"))).status == 200


async def test_an_assertion_of_another_client_is_refused(relying_party: RelyingParty, acme: Tenant, browser: FakeBrowser) -> None:
    """This holds even if both clients share a key, and if the request names the right client."""
    other = await add_relying_party(acme, browser, "blog")
    await register(relying_party)
    await register(other)
    code = await relying_party.code()
    for fields in (
        proof(assertion(other)),
        {**proof(assertion(other)), "client_id": str(relying_party.client_id)},
        proof(assertion(other, iss=str(relying_party.client_id))),
        proof(assertion(other, sub=str(relying_party.client_id))),
    ):
        answer = await relying_party.exchange(code, **fields)
        assert answer.json["error"] in ("invalid_client", "invalid_grant"), fields
    assert (await relying_party.exchange(code, **proof(assertion(relying_party)))).status == 200


async def test_our_own_tokens_are_no_assertions(relying_party: RelyingParty, ports: Ports) -> None:
    """This holds even for a client that publishes our keys as its own."""
    tokens = await relying_party.tokens()
    ours = [{name: value for name, value in key.items() if name != "use"} for key in ports.tokens.jwks()["keys"]]
    changes = {"jwks": {"keys": ours}}
    answer = await relying_party.api.patch(f"{relying_party.tenant.path}/services/shop", changes, token=relying_party.tenant.token("admin"))
    assert answer.status == 200
    for token in (tokens["access_token"], tokens["refresh_token"]):
        for client_id in (None, str(relying_party.client_id)):
            fields = {**proof(token), "client_id": client_id, "token": "x"}
            assert oauth_error(await relying_party.post("/auth/revoke", **fields)) == INVALID_CLIENT
    assert await relying_party.is_live(tokens)


async def test_a_switch_allows_the_token_endpoint_as_the_audience(relying_party: RelyingParty) -> None:
    audience = f"{BASE_URL}{TOKEN}"
    await register(relying_party, accepts_token_endpoint_audience=True)
    for accepted in (audience, [audience], BASE_URL):
        assert (await revoke(relying_party, assertion(relying_party, aud=accepted))).status == 200
    for other in (f"{audience}/", f"{BASE_URL}/auth/revoke", [audience, BASE_URL]):
        assert oauth_error(await revoke(relying_party, assertion(relying_party, aud=other))) == INVALID_CLIENT


async def test_credentials_are_sent_in_one_way(relying_party: RelyingParty) -> None:
    await register(relying_party)
    signed = assertion(relying_party)
    header = basic(relying_party.client_id, SECRET)
    for headers, fields in (
        ({}, {**proof(signed), "client_secret": SECRET}),
        (header, proof(signed)),
        ({}, {**proof(signed), "client_assertion_type": None}),
        ({}, {**proof(signed), "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:saml2-bearer"}),
        ({}, {**proof(signed), "client_assertion": None}),
    ):
        assert oauth_error(await relying_party.post("/auth/revoke", headers, **fields, token="x")) == INVALID_REQUEST
    assert (await revoke(relying_party, signed)).status == 200, "a refused request does not use it up"


async def test_a_client_without_keys_has_no_assertions(relying_party: RelyingParty, mobile_app: RelyingParty) -> None:
    for client in (relying_party, mobile_app):
        assert oauth_error(await revoke(client, assertion(client))) == INVALID_CLIENT
    await register(relying_party)
    path = f"{relying_party.tenant.path}/services/shop"
    await relying_party.api.patch(path, {"jwks": None}, token=relying_party.tenant.token("admin"))
    assert oauth_error(await revoke(relying_party, assertion(relying_party))) == INVALID_CLIENT


@pytest.mark.parametrize("edge", [{"rate_limit_factor": 1.0, "client_rate": 0.1}], indirect=True)
async def test_a_client_with_an_assertion_has_its_own_rate_limit(relying_party: RelyingParty) -> None:
    await register(relying_party)
    assert [(await revoke(relying_party, assertion(relying_party))).status for _ in range(3)] == [200, 200, 429]
    assert (await relying_party.post("/auth/revoke", token="x")).status == 200, "the limit of the address is another one"


# Keys at the client's URL


class KeyServer(FakeServer):
    """The client's own server."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[ClientKey] = [client_key()]
        self.failure: Reply | None = None
        self.requests: list[ReceivedRequest] = []

    def _reply(self, request: ReceivedRequest) -> Reply:
        self.requests.append(request)
        return self.failure or in_json({"keys": [key.jwk for key in self.keys]})


async def test_keys_are_fetched_and_cached(relying_party: RelyingParty, app: QuartTrio, ports: Ports, clock: FakeClock) -> None:
    """Keys are fetched again after an hour, and for an unknown key at most once a minute."""
    change_ports(app, client_keys=with_loopback_sender(ports).client_keys)
    with KeyServer() as server:
        await set_keys_uri(relying_party, f"{server.address}/keys")
        answers = await run_concurrently(5, lambda _: revoke(relying_party, assertion(relying_party)))
        assert [answer.status for answer in answers] == [200] * 5
        assert [(request.method, request.path) for request in server.requests] == [("GET", "/keys")]
        replaced = client_key("EdDSA", "two")
        server.keys = [replaced]
        assert (await revoke(relying_party, assertion(relying_party, replaced))).status == 200
        assert len(server.requests) == 2
        assert oauth_error(await revoke(relying_party, assertion(relying_party))) == INVALID_CLIENT, "the old key is gone"
        forged = client_key("ES256", "three")
        await run_concurrently(5, lambda _: revoke(relying_party, assertion(relying_party, forged)))
        assert len(server.requests) == 2
        clock.advance(timedelta(seconds=61))
        await run_concurrently(5, lambda _: revoke(relying_party, assertion(relying_party, forged)))
        assert len(server.requests) == 3
        clock.advance(timedelta(hours=1))
        assert (await revoke(relying_party, assertion(relying_party, replaced))).status == 200
        assert len(server.requests) == 4


@pytest.mark.parametrize(
    "failure",
    [
        Reply(500),
        Reply(404, b'{"keys": []}'),
        Reply(302, b"", {"Location": "/keys"}),
        Reply(200, b"not JSON"),
        Reply(200, b"[]"),
        Reply(200, b'{"keys": [1]}'),
        Reply(200, b'{"keys": [], "x": "' + b"x" * 70_000 + b'"}'),
    ],
)
async def test_keys_that_cannot_be_fetched_are_not_asked_for_again_at_once(
    relying_party: RelyingParty, app: QuartTrio, ports: Ports, clock: FakeClock, failure: Reply
) -> None:
    change_ports(app, client_keys=with_loopback_sender(ports).client_keys)
    with KeyServer() as server:
        server.failure = failure
        await set_keys_uri(relying_party, f"{server.address}/keys")
        for _ in range(3):
            assert oauth_error(await revoke(relying_party, assertion(relying_party))) == INVALID_CLIENT
        assert len(server.requests) == 1
        server.failure = None
        clock.advance(timedelta(seconds=61))
        assert (await revoke(relying_party, assertion(relying_party))).status == 200


async def test_keys_are_not_fetched_from_private_addresses(relying_party: RelyingParty) -> None:
    """By default, test ports allow the loopback interface; these ports do not (security W-1)."""
    with KeyServer() as server:
        await set_keys_uri(relying_party, f"{server.address}/keys")
        assert oauth_error(await revoke(relying_party, assertion(relying_party))) == INVALID_CLIENT
        assert server.requests == []
