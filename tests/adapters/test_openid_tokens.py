"""Access tokens with our own audience, and with OpenID Connect scopes (security J-2, J-3)."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from adapters.crypto import JwtTokens
from core.kernel.claims import Accepts
from core.kernel.errors import WrongToken
from tests.adapters.access_tokens import (
    BASE_URL,
    CLAIMS,
    HEADER,
    KEY,
    NOW,
    PAYLOAD,
    SERVICE_CLAIMS,
    SERVICE_PAYLOAD,
    TOKENS,
    forged,
    refused,
    unb64,
    without,
)

USERINFO = f"{BASE_URL}/auth/userinfo"
AUTHENTICATED: dict[str, Any] = {"auth_time": NOW - timedelta(hours=1), "acr": "mfa", "amr": ("pwd", "otp", "mfa")}


def test_both_spellings_of_our_audience_are_accepted_and_a_setting_chooses_the_one_of_new_tokens() -> None:
    """Processes from two releases can serve side by side."""
    earlier = JwtTokens(BASE_URL, api_audience=False)
    earlier.use([KEY], NOW)
    token = earlier.sign(CLAIMS)
    assert json.loads(unb64(token.split(".")[1])) == PAYLOAD | {"aud": BASE_URL}
    for reader in (TOKENS, earlier):
        assert reader.read(token, NOW) == reader.read(TOKENS.sign(CLAIMS), NOW) == CLAIMS
    assert earlier.sign(SERVICE_CLAIMS).split(".")[1] == TOKENS.sign(SERVICE_CLAIMS).split(".")[1]


def test_a_token_with_a_scope_is_for_the_userinfo_endpoint_or_the_requested_resource() -> None:
    for claims in (CLAIMS, SERVICE_CLAIMS):
        for audience in (USERINFO, f"{BASE_URL}/api"):
            token = TOKENS.sign(replace(claims, scope=("openid", "email"), audience=audience, **AUTHENTICATED))
            payload = json.loads(unb64(token.split(".")[1]))
            assert (payload["aud"], payload["scope"]) == (audience, "openid email")
            authentication = {name: payload[name] for name in ("auth_time", "acr", "amr")}
            assert authentication == {"auth_time": int(NOW.timestamp()) - 3600, "acr": "mfa", "amr": ["pwd", "otp", "mfa"]}
            read = TOKENS.read(token, NOW)
            assert (read.client_id, read.audience, read.scope) == (claims.client_id, audience, ("openid", "email"))


def test_a_token_for_another_resource_is_refused_unless_the_caller_takes_any() -> None:
    token = TOKENS.sign(replace(SERVICE_CLAIMS, scope=("openid",), audience="https://api.example"))
    with pytest.raises(WrongToken):
        TOKENS.read(token, NOW)
    assert TOKENS.read(token, NOW, accepts=Accepts.RESOURCES).audience == "https://api.example"


def test_a_token_for_an_api_resource_has_a_client_also_without_a_scope() -> None:
    for audience in ("https://api.example/", f"urn:gatehouse:{SERVICE_CLAIMS.org_id}:orders"):
        claims = replace(SERVICE_CLAIMS, audience=audience)
        token = TOKENS.sign(claims)
        with pytest.raises(WrongToken):
            TOKENS.read(token, NOW)
        read = TOKENS.read(token, NOW, accepts=Accepts.RESOURCES)
        assert (read.client_id, read.audience, read.scope) == (SERVICE_CLAIMS.client_id, audience, ())
        for client_id in ("frontend", "shop", None):
            assert refused(forged(HEADER, SERVICE_PAYLOAD | {"aud": audience, "client_id": client_id})), client_id
    for audience in (USERINFO, f"{BASE_URL}/api", BASE_URL):
        assert refused(forged(HEADER, SERVICE_PAYLOAD | {"aud": audience})), audience


def test_the_client_of_a_token_with_a_scope_and_the_service_need_each_other() -> None:
    platform, service = ({**payload, "aud": USERINFO, "scope": "openid"} for payload in (PAYLOAD, SERVICE_PAYLOAD))
    assert TOKENS.read(forged(HEADER, platform), NOW).client_id is None
    assert TOKENS.read(forged(HEADER, service), NOW).client_id == SERVICE_CLAIMS.client_id
    assert refused(forged(HEADER, platform | {"service": "shop"}))
    assert refused(forged(HEADER, platform | {"client_id": service["client_id"]}))
    assert refused(forged(HEADER, service | {"client_id": "frontend"}))
    for client_id in ("", "shop", None, 5, ["frontend"], service["client_id"].upper()):
        assert refused(forged(HEADER, service | {"client_id": client_id})), client_id
    for name in ("client_id", "aud", "service", "org", "org_id"):
        assert refused(forged(HEADER, without(service, name))), name
    for scope in (None, 5, ["openid"]):
        assert refused(forged(HEADER, service | {"scope": scope})), scope
