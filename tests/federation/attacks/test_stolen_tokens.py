"""Access and refresh tokens in the wrong hands (RFC 9700 sections 4.6, 4.9, 4.10, 4.14 and 4.15; security J-3, J-9, S-1 and S-2)."""

from datetime import timedelta
from typing import Any, Final

import jwt
import pytest

from core.accounts.model.accounts import Account
from core.kernel.roles import ADMIN
from tests.fakes.outside import FakeClock
from tests.federation.api.relying import RelyingParty, give_consent, openid_tokens
from tests.federation.attacks.world import unchanged
from tests.support.builders import BASE_URL, run_concurrently

USERINFO: Final = f"{BASE_URL}/auth/userinfo"


def decoded(token: str) -> dict[str, Any]:
    claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return claims


async def test_a_token_is_for_one_audience_which_others_can_check(shop: RelyingParty) -> None:
    """A resource server that gets a token for another audience cannot use it here, nor anywhere else (section 4.10.2)."""
    at_userinfo = (await openid_tokens(shop))["access_token"]
    at_the_api = (await openid_tokens(shop, resource=f"{BASE_URL}/api"))["access_token"]
    without = (await shop.tokens())["access_token"]
    audiences = [decoded(token)["aud"] for token in (at_userinfo, at_the_api, without)]
    assert audiences == [USERINFO, f"{BASE_URL}/api", str(shop.client_id)]
    async with unchanged(shop.tenant.pool):
        assert (await shop.api.get("/auth/userinfo", token=at_the_api)).status == 401
        assert (await shop.api.get("/auth/userinfo", token=without)).status == 403


async def test_a_token_of_an_application_manages_nothing(shop: RelyingParty, user: Account) -> None:
    """This holds even if its user is an admin, and with the API as the resource (section 4.9)."""
    await shop.tenant.join("ada", user, ADMIN)
    tokens = [await openid_tokens(shop), await openid_tokens(shop, resource=f"{BASE_URL}/api"), await shop.tokens()]
    path, api = shop.tenant.path, shop.api
    findings = []
    async with unchanged(shop.tenant.pool):
        for pair in tokens:
            token = pair["access_token"]
            for answer in (
                await api.get(path, token=token),
                await api.get(f"{path}/members", token=token),
                await api.post(f"{path}/services", {"slug": "x", "name": "X", "service_type": "web"}, token=token),
                await api.get("/api/user/consents", token=token),
                await api.delete(f"/api/user/consents/{shop.service}", token=token),
                await api.post("/api/user/change-password", {"current_password": "x", "new_password": "y"}, token=token),
                await api.get("/api/organizations", token=token),
                await api.post("/auth/device/verify", {"user_code": "BCDF-GHJK", "action": "approve"}, token=token),
            ):
                if answer.status != 403:
                    findings.append((decoded(token)["aud"], answer.status, answer.text))
    assert findings == []


async def test_a_refresh_token_is_bound_to_its_client(shop: RelyingParty, till: RelyingParty, evil: RelyingParty) -> None:
    """No thief uses it up or ends it."""
    for owner in (shop, till):
        token = (await openid_tokens(owner))["refresh_token"]
        async with unchanged(shop.tenant.pool):
            for thief in (shop, till, evil):
                if thief is not owner:
                    assert (await thief.refresh(token)).json["error"] == "invalid_grant"
                    assert (await thief.post("/auth/revoke", **credentials(thief), token=token)).status == 200
            if owner.secret:
                assert (await owner.refresh(token, client_id=None, client_secret=None)).json["error"] == "invalid_client"
                assert (await owner.refresh(token, client_secret=None)).json["error"] == "invalid_client"
        assert (await owner.refresh(token)).status == 200


def credentials(client: RelyingParty) -> dict[str, str | None]:
    return {"client_id": str(client.client_id), "client_secret": client.secret}


@pytest.mark.parametrize("scope", ["openid email", "openid profile email offline_access org roles", "openid roles", "openid unknown"])
async def test_a_refresh_cannot_widen_the_scope(shop: RelyingParty, scope: str) -> None:
    tokens = await openid_tokens(shop)
    async with unchanged(shop.tenant.pool):
        assert (await shop.refresh(tokens["refresh_token"], scope=scope)).json["error"] == "invalid_scope"
    answer = await shop.refresh(tokens["refresh_token"], scope="openid")
    assert (answer.status, answer.json["scope"]) == (200, "openid")
    assert (await shop.api.get("/auth/userinfo", token=answer.json["access_token"])).json.keys() == {"sub"}


async def test_a_refresh_cannot_change_the_resource(shop: RelyingParty) -> None:
    tokens = await openid_tokens(shop)
    async with unchanged(shop.tenant.pool):
        for resource in (f"{BASE_URL}/api", "https://elsewhere.example", BASE_URL):
            assert (await shop.refresh(tokens["refresh_token"], resource=resource)).json["error"] == "invalid_target"
    assert (await shop.refresh(tokens["refresh_token"])).status == 200


async def test_a_stolen_refresh_token_ends_with_its_second_use(till: RelyingParty, clock: FakeClock) -> None:
    """The token belongs to a public client: the thief and the user cannot both go on (section 4.14.2)."""
    stolen = (await openid_tokens(till))["refresh_token"]
    by_thief = (await till.refresh(stolen)).json
    clock.advance(timedelta(seconds=11))  # after the time in which two tabs may race
    assert (await till.refresh(stolen)).json["error"] == "invalid_grant"
    assert (await till.refresh(by_thief["refresh_token"])).json["error"] == "invalid_grant"
    assert (await till.api.get("/auth/userinfo", token=by_thief["access_token"])).status == 401


async def test_of_many_thieves_one_gets_tokens(till: RelyingParty) -> None:
    stolen = (await openid_tokens(till))["refresh_token"]
    answers = await run_concurrently(8, lambda _: till.refresh(stolen))
    assert sorted(answer.status for answer in answers) == [200] + [400] * 7


async def test_a_client_is_never_taken_for_a_person(shop: RelyingParty, user: Account) -> None:
    """Client ids are random, and programs' tokens have their own `token_use` (section 4.15)."""
    async with unchanged(shop.tenant.pool):
        fields = {"grant_type": "client_credentials", "scope": "openid", **credentials(shop)}
        assert (await shop.post("/auth/token", **fields)).json["error"] == "invalid_target", "an application gets none for our API"
        for grant in ("password", "urn:ietf:params:oauth:grant-type:jwt-bearer", "implicit", ""):
            fields = {"grant_type": grant, "scope": "openid", "username": user.email, "password": "x", **credentials(shop)}
            assert (await shop.post("/auth/token", **fields)).json["error"] in ("unsupported_grant_type", "invalid_request"), grant
    claims = decoded((await openid_tokens(shop))["access_token"])
    assert (claims["sub"], claims["client_id"]) == (str(user.id), str(shop.client_id))


async def test_nothing_is_left_of_a_token_whose_consent_is_withdrawn(shop: RelyingParty, user: Account) -> None:
    tokens = await openid_tokens(shop, scope="openid offline_access")
    page = "/app/account/consents"
    await shop.browser.submit(f"{page}/{shop.service}/withdraw", f"{page}/{shop.service}")
    assert (await shop.api.get("/auth/userinfo", token=tokens["access_token"])).status == 401
    assert (await shop.refresh(tokens["refresh_token"])).json["error"] == "invalid_grant"
    await give_consent(shop, user)
    assert (await shop.api.get("/auth/userinfo", token=tokens["access_token"])).status == 401
