"""Attacks on bound tokens, with a test per subsection in RFC 9449 section 11 that applies to a server.

11.4 (untrusted code) and 11.10 (hash agility) ask nothing from a server: there is one hash, SHA-256.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import jwt
import pytest

from adapters.postgres.engine.pool import Pool
from core.authentication.model.dpop import PROOF_ALGORITHMS
from tests.fakes.outside import FakeClock
from tests.federation.api.client_authentication.keys import ClientKey, assertion, proof, register
from tests.federation.api.dpop import BoundClient
from tests.federation.api.relying import PKCE, TOKEN, VERIFIER, RelyingParty
from tests.federation.attacks.world import unchanged
from tests.support.builders import BASE_URL
from tests.support.dpop import LEFT_OUT, proof_key

USER = "/api/user"


@pytest.fixture
async def victim(shop: RelyingParty) -> BoundClient:
    """The honest application, with its key and a nonce."""
    client = BoundClient(shop)
    await client.learn_nonce()
    return client


def stolen(client: BoundClient, **changes: Any) -> BoundClient:
    """Return the client as the attacker has it: everything but the key."""
    return replace(client, key=proof_key(name="of the attacker"), **changes)


async def test_a_captured_request_cannot_be_replayed(victim: BoundClient, pool: Pool, clock: FakeClock) -> None:
    """RFC 9449 section 11.1 describes this attack. The replay fails at the same resource and at another, now and later."""
    token = (await victim.tokens())["access_token"]
    headers = {"Authorization": f"DPoP {token}", "DPoP": victim.proof("GET", USER, token)}
    api = victim.party.api
    assert (await api.call("GET", USER, headers=headers)).status == 200
    async with unchanged(pool):
        for seconds in (0, 1, 29, 30, 30, 86_400):
            clock.advance(timedelta(seconds=seconds))
            assert (await api.call("GET", USER, headers=headers)).status == 401
            assert (await api.call("GET", "/auth/userinfo", headers=headers)).status == 401


async def test_proofs_that_are_made_in_advance_are_useless(victim: BoundClient, clock: FakeClock) -> None:
    """RFC 9449 section 11.2 describes this attack. An attacker who can use the key for a moment would need future nonces."""
    token = (await victim.tokens())["access_token"]
    later = clock.now() + timedelta(hours=1)
    prepared = [
        victim.proof("GET", USER, token, iat=int(later.timestamp())),
        victim.proof("GET", USER, token, iat=int(later.timestamp()), nonce=LEFT_OUT),
    ]
    clock.advance(timedelta(minutes=10))
    for text in prepared:
        answer = await victim.party.api.call("GET", USER, headers={"Authorization": f"DPoP {token}", "DPoP": text})
        assert (answer.status, "use_dpop_nonce" in answer.headers["WWW-Authenticate"]) == (401, True)


async def test_no_request_gets_by_without_a_nonce(victim: BoundClient) -> None:
    """RFC 9449 section 11.3 describes this attack."""
    token = (await victim.tokens())["access_token"]
    for nonce in (LEFT_OUT, "", None, 1, [victim.nonce], f"{victim.nonce} ", str(victim.nonce).swapcase()):
        answer = await victim.get(USER, token, nonce=nonce)
        assert answer.status == 401, nonce


async def test_other_tokens_that_the_key_has_signed_are_no_proofs(victim: BoundClient) -> None:
    """RFC 9449 section 11.5 describes this attack. An application may use the same key for everything."""
    party, key = victim.party, victim.key
    await register(party, ClientKey("one", "ES256", key.private))
    own = [
        assertion(party, ClientKey("one", "ES256", key.private)),
        victim.proof("POST", TOKEN, headers={"typ": "JWT"}),
        victim.proof("POST", TOKEN, headers={"typ": LEFT_OUT}),
        victim.proof("POST", TOKEN, headers={"typ": "at+jwt"}),
    ]
    for text in own:
        answer = await party.post(TOKEN, {"DPoP": text}, grant_type="refresh_token", refresh_token="x")
        assert (answer.status, answer.json["error"]) == (400, "invalid_dpop_proof")
    for text in (
        victim.proof("POST", TOKEN),
        victim.proof("POST", "/auth/revoke", iss=str(party.client_id), sub=str(party.client_id), aud=BASE_URL),
    ):
        answer = await party.post("/auth/revoke", **proof(text), token="unknown")
        assert (answer.status, answer.json["error"]) == (401, "invalid_client")
    as_token = await party.api.get(USER, token=victim.proof("GET", USER))
    assert as_token.status == 401


async def test_only_strong_asymmetric_signatures_are_accepted(victim: BoundClient) -> None:
    """RFC 9449 section 11.6 describes this attack. The public key is in the header, so a symmetric algorithm could be keyed with it."""
    assert not any(name.startswith("HS") or name == "none" for name in PROOF_ALGORITHMS)
    payload = victim.proof("POST", TOKEN).split(".")[1]
    for algorithm in ("HS256", "none"):
        secret: Any = None if algorithm == "none" else "x" * 32
        forged = jwt.encode({}, secret, algorithm, {"typ": "dpop+jwt", "jwk": victim.key.jwk})
        text = ".".join((forged.split(".")[0], payload, forged.split(".")[2]))
        answer = await victim.party.post(TOKEN, {"DPoP": text}, grant_type="refresh_token", refresh_token="x")
        assert (answer.status, answer.json["error"]) == (400, "invalid_dpop_proof")


async def test_a_proof_for_one_request_opens_no_other_one(victim: BoundClient, pool: Pool) -> None:
    """RFC 9449 section 11.7 describes this attack.

    The proof covers the method, the URL and the token; it does not cover the body, which TLS protects.
    """
    token = (await victim.tokens())["access_token"]
    async with unchanged(pool):
        for method, path in (("PATCH", USER), ("GET", "/api/user/devices"), ("DELETE", f"{USER}/"), ("POST", "/auth/userinfo")):
            headers = {"Authorization": f"DPoP {token}", "DPoP": victim.proof("GET", USER, token)}
            assert (await victim.party.api.call(method, path, {} if method != "GET" else None, headers=headers)).status in (401, 405)


async def test_a_stolen_access_token_is_useless_without_its_key(victim: BoundClient, pool: Pool) -> None:
    """RFC 9449 section 11.8 describes this attack.

    The thief fails with a bearer token, with the attacker's key, and with the victim's key copied into the header.
    """
    tokens = await victim.tokens()
    token, attacker = tokens["access_token"], stolen(victim)
    copied = attacker.proof("GET", USER, token, headers={"jwk": victim.key.jwk})
    api = victim.party.api
    async with unchanged(pool):
        assert (await api.get(USER, token=token)).status == 401
        assert (await attacker.get(USER, token)).status == 401
        assert (await api.call("GET", USER, headers={"Authorization": f"DPoP {token}", "DPoP": copied})).status == 401
        assert (
            await api.call("GET", USER, headers={"Authorization": f"Bearer {token}", "DPoP": victim.proof("GET", USER, token)})
        ).status == 401
    assert (await victim.get(USER, token)).status == 200


async def test_a_stolen_code_is_useless_without_the_key_of_its_request(till: RelyingParty, pool: Pool) -> None:
    """RFC 9449 section 11.9 describes this attack.

    This holds even with the PKCE verifier, as for an attacker who sees the application's requests.
    """
    victim = BoundClient(till)
    await victim.learn_nonce()
    fields = {"client_id": str(till.client_id), "redirect_uri": till.redirect_uri, "scope": "openid", "response_type": "code", **PKCE}
    request_uri = (await victim.post("/auth/par", **fields)).json["request_uri"]
    answer = await till.browser.open(f"/auth/authorize?client_id={till.client_id}&request_uri={request_uri}")
    code = answer.headers["Location"].partition("code=")[2].partition("&")[0]
    async with unchanged(pool):
        assert (await stolen(victim).exchange(code, code_verifier=VERIFIER)).status == 400
        assert (await till.exchange(code, code_verifier=VERIFIER)).status == 400
    assert (await victim.exchange(code, code_verifier=VERIFIER)).status == 200


async def test_the_key_of_a_proof_authenticates_no_client(victim: BoundClient, evil: RelyingParty) -> None:
    """RFC 9449 section 11.11 describes this attack. A proof says that the presenter has a key, and nothing about who they are."""
    code = await victim.party.code()
    assert (await victim.exchange(code, client_secret=None)).status == 401
    other = BoundClient(evil, nonce=victim.nonce)
    assert (await other.exchange(code)).status == 400
    tokens = await victim.exchange(code)
    assert tokens.status == 200
    assert (await other.refresh(tokens.json["refresh_token"])).status in (400, 401)
    assert (await victim.get(USER, tokens.json["access_token"])).status == 200
