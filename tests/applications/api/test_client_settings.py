"""Service settings for OAuth clients: keys, lifetimes, enterprise rules (security O-9)."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from core.applications.model.client_settings import thumbprint
from tests.applications.api.services import URI, Workshop, body_of
from tests.federation.api.client_authentication.keys import client_key
from tests.support.builders import run_sql
from tests.support.refusals import BAD, refused
from tests.support.tenants import Tenant

KEY = client_key("ES256").jwk
SETTINGS: dict[str, Any] = {
    "jwks": {"keys": [client_key("RS256", "rs").jwk, KEY, client_key("EdDSA", "ed").jwk]},
    "accepts_token_endpoint_audience": True,
    "access_token_seconds": 60,
    "refresh_token_seconds": 30 * 86400,
    "required_acr": "mfa",
    "require_pushed_authorization_requests": True,
    "dpop_bound_access_tokens": True,
    "initiate_login_uri": "https://shop.example/login",
    "always_ask_consent": True,
    "logo_uri": "https://shop.example/logo.png",
    "policy_uri": "https://shop.example/privacy",
    "tos_uri": "https://shop.example/terms",
}


@pytest.fixture
async def shops(acme: Tenant) -> Workshop:
    """A service named shop."""
    shops = Workshop(acme)
    await shops.add_service(redirect_uris=[URI])
    await run_sql(acme.pool, "delete from audit_log")
    await run_sql(acme.pool, "delete from audit_totals")
    return shops


async def test_settings_are_stored_returned_and_recorded(shops: Workshop, acme: Tenant) -> None:
    created = (await shops.add_service(slug="other", **SETTINGS, redirect_uris=[URI]))["service"]
    assert {name: created[name] for name in SETTINGS} == SETTINGS
    before = (await shops.get()).json
    assert body_of(await shops.update("admin", **SETTINGS)) == {**SETTINGS, **before} == (await shops.get()).json
    assert body_of(await shops.update("admin", **SETTINGS)) == {**SETTINGS, **before}, "nothing changes, and nothing is recorded"
    cleared = {name: False if value is True else None for name, value in SETTINGS.items()}
    assert body_of(await shops.update("admin", **cleared, jwks_uri="https://shop.example/keys")) == {
        **before,
        "jwks_uri": "https://shop.example/keys",
    }
    first, second = (entry["details"]["changes"] for entry in await acme.log() if entry["action"] == "service.updated")
    assert first["jwks"] == {"old": None, "new": [thumbprint(key) for key in SETTINGS["jwks"]["keys"]]}
    assert second["jwks"] == {"old": first["jwks"]["new"], "new": None}
    assert second["jwks_uri"] == {"old": None, "new": "https://shop.example/keys"}
    assert first["required_acr"] == {"old": None, "new": "mfa"}


async def test_each_changed_setting_of_openid_connect_is_recorded(shops: Workshop, acme: Tenant) -> None:
    settings: dict[str, Any] = {
        "is_trusted": True,
        "id_token_claims": False,
        "post_logout_redirect_uris": [URI],
        "backchannel_logout_uri": "https://shop.example/logout",
    }
    await shops.update("admin", **settings)
    [entry] = await acme.log()
    assert {name: change["new"] for name, change in entry["details"]["changes"].items()} == settings


async def test_only_the_public_members_of_keys_are_kept(shops: Workshop) -> None:
    answer = body_of(await shops.update("admin", jwks={"keys": [{**KEY, "x5c": ["a"], "key_ops": ["verify"], "note": 5}]}))
    assert answer["jwks"] == {"keys": [KEY]}


def rsa_jwk(bits: int) -> dict[str, Any]:
    return dict(RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, bits).public_key(), as_dict=True))


def ec_jwk(curve: ec.EllipticCurve) -> dict[str, Any]:
    return dict(ECAlgorithm.to_jwk(ec.generate_private_key(curve).public_key(), as_dict=True))


@pytest.mark.slow
async def test_invalid_settings_are_refused(shops: Workshop, acme: Tenant) -> None:
    before = await shops.stored_rows()
    private = {**KEY, "d": "AAAA"}
    keys: list[Any] = [
        [],
        [private],
        [KEY, private],
        [{"kty": "oct", "k": "AAAA"}],
        [{"kty": "oct"}],
        [KEY, KEY],
        [{**client_key("ES256", str(number)).jwk} for number in range(21)],
        [{name: value for name, value in KEY.items() if name != "x"}],
        *([{**KEY, name: value}] for name in ("x", "kid", "alg", "use") for value in (5, None, ["a"], "")),
        *([{**KEY, "kid": kid}] for kid in (" ", "\u00a0", "\u200b", "\ufeff", "a" * 256)),
        *([{**KEY, "alg": algorithm}] for algorithm in ("none", "HS256", "RS256", "ES512")),
        [{**KEY, "use": "enc"}],
        [{**KEY, "kty": "ec"}],
        [{**KEY, "kty": ["EC"]}],
        [{**KEY, "x": KEY["y"]}],
        [{**KEY, "x": "a b"}],
        [ec_jwk(ec.SECP384R1())],
        [ec_jwk(ec.SECP256K1())],
        [rsa_jwk(1024)],
        [{"kty": "RSA", "e": "AQAB", "n": "AA"}],
        [{"kty": "RSA", "e": client_key("RS256").jwk["n"], "n": client_key("RS256").jwk["n"]}],
        [{"kty": "OKP", "crv": "X25519", "x": client_key("EdDSA").jwk["x"]}],
        [5],
        ["a"],
        {},
    ]
    uris = [
        "",
        "http://shop.example/keys",
        "https://ada@shop.example/",
        "https://shop.example/#x",
        "/keys",
        "https://",
        "https://a/" + "a" * 2040,
        *(f"https://shop.example:{port}/keys" for port in (22, 25, 80, 444, 8443)),
    ]
    refusals = []
    table: tuple[dict[str, Any], ...] = (
        *({"jwks": {"keys": value}} for value in keys),
        *({"jwks": value} for value in ([], "x", [KEY], {"key": [KEY]})),
        *({"jwks_uri": uri} for uri in uris),
        {"jwks_uri": "https://shop.example/keys", "jwks": {"keys": [KEY]}},
        *({name: value} for name in ("access_token_seconds", "refresh_token_seconds") for value in (0, 59, -1, "60", 60.5, True, 10**12)),
        {"access_token_seconds": 901},
        {"refresh_token_seconds": 30 * 86400 + 1},
        *({"required_acr": value} for value in ("pwd", "", "MFA", ["mfa"], True)),
        *({name: value} for name in ("enterprise", "accepts_token_endpoint_audience") for value in (None, "true", 1)),
        {"enterprise": True, "accepts_token_endpoint_audience": True},
        {"enterprise": True, "pkce_without_secret": True},
        {"enterprise": True, "redirect_uris": ["http://localhost/callback"]},
        {"enterprise": True, "redirect_uris": ["HTTP://localhost/callback"]},
        *({"service_type": kind, "jwks": {"keys": [KEY]}} for kind in ("spa", "mobile", "desktop")),
        {"service_type": "mobile", "jwks_uri": "https://shop.example/keys"},
    )
    for changes in table:
        for answer in (await shops.update("admin", **changes), await shops.create(slug="other", **changes)):
            if refused(answer) != BAD:
                refusals.append((changes, answer.status, answer.text))
    assert refusals == []
    assert await shops.stored_rows() == before
    assert await acme.log() == []


async def test_rules_hold_for_settings_that_stay(shops: Workshop) -> None:
    await shops.update("admin", enterprise=True)
    assert refused(await shops.update("admin", redirect_uris=["http://127.0.0.1/"])) == BAD
    assert refused(await shops.update("admin", accepts_token_endpoint_audience=True)) == BAD
    assert refused(await shops.update("admin", pkce_without_secret=True)) == BAD
    await shops.update("admin", jwks={"keys": [KEY]})
    assert refused(await shops.update("admin", jwks_uri="https://shop.example/keys")) == BAD
    assert "jwks" not in body_of(await shops.update("admin", service_type="spa")), "a public client loses its keys"
