"""Codes in the wrong hands: injection, and PKCE that an attacker removes (RFC 9700 sections 4.5 and 4.8, RFC 7636; security O-3, O-4)."""

from base64 import urlsafe_b64encode
from datetime import timedelta
from hashlib import sha256
from typing import Final

import jwt
import pytest
from quart_trio import QuartTrio

from core.accounts.model.accounts import Account
from core.federation.oauth.model.authorization import s256_challenge
from tests.fakes.outside import FakeClock
from tests.federation.api.relying import (
    PKCE,
    SECRET,
    VERIFIER,
    RelyingParty,
    answer_fields,
    authorize,
    claims,
    give_consent,
    openid_tokens,
    path_of,
    sign_in_browser,
)
from tests.federation.attacks.world import unchanged
from tests.support.browser import FakeBrowser
from tests.support.builders import add_account, run_sql

OTHER: Final = "a-verifier-of-the-attackers-own-program-0123456789"
CHALLENGE: Final = PKCE["code_challenge"]


@pytest.mark.slow
async def test_a_stolen_code_is_worth_nothing_without_the_client_and_its_verifier(
    shop: RelyingParty, till: RelyingParty, evil: RelyingParty
) -> None:
    """No attempt uses it up, so that a thief cannot lock the user out either."""
    findings = []
    for owner, challenge in ((shop, {}), (shop, PKCE), (till, PKCE)):
        verifier = VERIFIER if challenge else None
        code = (await authorize(owner, **challenge))["code"]
        attempts: dict[str, tuple[RelyingParty, dict[str, str | None]]] = {
            "by another client": (evil, {"redirect_uri": owner.redirect_uri, "code_verifier": verifier}),
            "by another client of the organization": (
                till if owner is shop else shop,
                {"redirect_uri": owner.redirect_uri, "code_verifier": verifier},
            ),
            "with the id of the client and another secret": (owner, {"client_secret": "another", "code_verifier": verifier}),
            "as a client that it is not": (
                evil,
                {"client_id": str(owner.client_id), "client_secret": "x", "code_verifier": verifier},
            ),
            "with another verifier": (owner, {"code_verifier": OTHER}),
            "with the challenge as the verifier": (owner, {"code_verifier": CHALLENGE}),
            "with a verifier that is too short": (owner, {"code_verifier": VERIFIER[:42]}),
            "with a verifier that is too long": (owner, {"code_verifier": VERIFIER * 3}),
            "with an empty redirect URI": (owner, {"redirect_uri": "", "code_verifier": verifier}),
        }
        if challenge:
            attempts["without the verifier"] = (owner, {"code_verifier": None})
            attempts["with an empty verifier"] = (owner, {"code_verifier": ""})
        else:
            attempts["without the secret"] = (owner, {"client_secret": None})
            attempts["with a verifier instead of the secret"] = (owner, {"client_secret": None, "code_verifier": VERIFIER})
        async with unchanged(shop.tenant.pool):
            for name, (client, changes) in attempts.items():
                answer = await client.exchange(code, **changes)
                if answer.status not in (400, 401) or answer.json["error"] not in ("invalid_grant", "invalid_client", "invalid_request"):
                    findings.append((owner.slug, challenge, name, answer.status, answer.text))
        assert (await owner.exchange(code, code_verifier=verifier)).status == 200, "the owner can still use it"
    assert findings == []


@pytest.mark.parametrize(
    "dropped",
    [
        {"code_challenge": None, "code_challenge_method": None},
        {"code_challenge": None},
        {"code_challenge_method": None},
        {"code_challenge": VERIFIER, "code_challenge_method": "plain"},
        {"code_challenge_method": "plain"},
        {"code_challenge_method": "s256"},
        {"code_challenge_method": "S512"},
        {"code_challenge": "", "code_challenge_method": "S256"},
        {"code_challenge": CHALLENGE + "="},
        {"code_challenge": urlsafe_b64encode(b"x" * 33).decode()},
    ],
)
async def test_a_public_client_cannot_be_talked_out_of_pkce(till: RelyingParty, dropped: dict[str, str | None]) -> None:
    async with unchanged(till.tenant.pool):
        answer = await till.browser.open(path_of(till, **{**PKCE, **dropped}))
        fields = answer_fields(answer)
        assert ("code" in fields, fields["error"]) == (False, "invalid_request")


async def test_a_challenge_that_an_attacker_removes_is_noticed_at_the_exchange(shop: RelyingParty) -> None:
    """A confidential client sent a challenge. The client's verifier then has no challenge (RFC 9700 section 4.8.2)."""
    code = (await authorize(shop))["code"]
    async with unchanged(shop.tenant.pool):
        assert (await shop.exchange(code, code_verifier=VERIFIER)).json["error"] == "invalid_grant"


async def test_a_challenge_that_an_attacker_replaces_is_noticed_at_the_exchange(shop: RelyingParty) -> None:
    code = (await authorize(shop, code_challenge=s256_challenge(OTHER), code_challenge_method="S256"))["code"]
    async with unchanged(shop.tenant.pool):
        assert (await shop.exchange(code, code_verifier=VERIFIER)).json["error"] == "invalid_grant"


async def test_an_injected_code_brings_the_nonce_of_its_own_request(shop: RelyingParty, app: QuartTrio, user: Account) -> None:
    """The attacker puts the victim's code into their own session. The client sees a nonce that it did not send (section 4.5.3.2)."""
    victim = (await authorize(shop, nonce="of the victim"))["code"]
    attacker = await add_account(shop.tenant.ports, "eve@example.com")
    own = RelyingParty(shop.tenant, FakeBrowser(app), shop.service, shop.slug, shop.client_id, shop.redirect_uri, SECRET)
    await sign_in_browser(own, attacker)
    await give_consent(own, attacker)
    await authorize(own, nonce="of the attacker")
    tokens = (await shop.exchange(victim, nonce="of the attacker")).json
    id_token = jwt.decode(tokens["id_token"], options={"verify_signature": False})
    assert (id_token["nonce"], id_token["sub"]) == ("of the victim", str(user.id))


async def test_a_code_works_once_and_a_replay_ends_what_it_gave(shop: RelyingParty) -> None:
    code = (await authorize(shop))["code"]
    tokens = (await shop.exchange(code)).json
    assert (await shop.exchange(code)).json["error"] == "invalid_grant"
    assert (await shop.api.get("/auth/userinfo", token=tokens["access_token"])).status == 401
    assert (await shop.refresh(tokens["refresh_token"])).json["error"] == "invalid_grant"


async def test_a_replay_by_another_client_ends_nothing(shop: RelyingParty, evil: RelyingParty, till: RelyingParty) -> None:
    code = (await authorize(shop))["code"]
    tokens = (await shop.exchange(code)).json
    async with unchanged(shop.tenant.pool):
        for thief in (evil, till):
            assert (await thief.exchange(code, redirect_uri=shop.redirect_uri)).json["error"] == "invalid_grant"
    assert (await shop.api.get("/auth/userinfo", token=tokens["access_token"])).status == 200


async def test_a_code_lives_at_most_a_minute(shop: RelyingParty, clock: FakeClock) -> None:
    code = (await authorize(shop))["code"]
    clock.advance(timedelta(seconds=60))
    async with unchanged(shop.tenant.pool):
        assert (await shop.exchange(code)).json["error"] == "invalid_grant"


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ("update sessions set ended_at = now() where browser_hash is not null", (400, "invalid_grant")),
        ("update users set deactivated_at = now()", (400, "invalid_grant")),
        ("delete from services", (401, "invalid_client")),
        ("update organizations set status = 'suspended'", (403, "access_denied")),
    ],
)
async def test_a_code_ends_with_its_session_user_application_or_organization(
    shop: RelyingParty, change: str, refusal: tuple[int, str]
) -> None:
    code = (await authorize(shop))["code"]
    await run_sql(shop.tenant.pool, change)
    async with unchanged(shop.tenant.pool):
        answer = await shop.exchange(code)
        assert (answer.status, answer.json["error"]) == refusal


async def test_an_attacker_cannot_make_up_parameters_of_the_exchange(shop: RelyingParty) -> None:
    """Scope, user and claims come from the authorization request."""
    code = (await authorize(shop))["code"]
    more = {"scope": "openid email roles offline_access", "sub": "someone", "username": "eve@example.com", "claims": "{}", "acr": "mfa"}
    tokens = (await shop.exchange(code, **more)).json
    assert tokens["scope"] == "openid"
    id_token = jwt.decode(tokens["id_token"], options={"verify_signature": False})
    assert {"email", "roles", "name"}.isdisjoint(id_token)
    assert id_token["acr"] == "pwd"


async def test_each_exchange_gives_tokens_of_its_own_session(shop: RelyingParty) -> None:
    """Tokens from two exchanges cannot be mixed: `at_hash` and `sid` bind them (sections 4.5 and 4.6)."""
    pairs = [await openid_tokens(shop), await openid_tokens(shop)]
    bindings = []
    for tokens in pairs:
        id_token = jwt.decode(tokens["id_token"], options={"verify_signature": False})
        left_half = sha256(tokens["access_token"].encode()).digest()[:16]
        assert (id_token["sid"], id_token["at_hash"]) == (claims(tokens)["sid"], urlsafe_b64encode(left_half).rstrip(b"=").decode())
        bindings.append((id_token["sid"], id_token["at_hash"]))
    assert all(first != second for first, second in zip(*bindings, strict=True))
