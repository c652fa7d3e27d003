"""The second factors that count where a sign-in policy allows only some methods (security SP-3)."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.proof.policy.world import ALLOWED, STATES, World, new_world, outcome_of
from tests.support.builders import PASSWORD, Answer, Api
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PasskeyUser

TO_SHOP: Final[Mapping[str, str]] = {"org_slug": "acme", "service_slug": "shop"}
DEVICE: Final = {"X-Device-Id": "a device id of 22 letters"}
WAYS: Final = ("code", "key", "backup code", "device trusted by a code", "device trusted by a key")


class Holder:
    """Ada with an app, security keys or the two together, and backup codes."""

    def __init__(self, world: World, key: PasskeyUser | None) -> None:
        self.world, self.key = world, key
        self.shop_refuses_keys = False
        self.backup_codes = list(world.authenticator.backup_codes) if world.authenticator is not None else []

    @classmethod
    async def create(cls, world: World, *, has_app: bool, has_key: bool) -> "Holder":
        await world.enter(STATES["bare"])
        key = PasskeyUser(world.api, world.token) if has_key else None
        codes = (await key.add_key(second_factor=True))["backup_codes"] if key is not None else []
        world.authenticator = await add_mfa(world.ports, world.ada) if has_app else None
        holder = cls(world, key)
        holder.backup_codes = holder.backup_codes or codes
        return holder

    def can(self, way: str) -> bool:
        """Return whether the account has this way's factor."""
        return way == "backup code" or (self.key is not None if way.endswith("key") else self.world.authenticator is not None)

    async def sign_in(self, way: str, target: Mapping[str, str]) -> Answer:
        """Sign in with the password and this way, to the platform or an application."""
        by_device = way.startswith("device")
        body = {"email": self.world.ada.email, "password": PASSWORD, **target}
        if by_device:
            trusted = await self._verify(way.removeprefix("device trusted by a "), {"trust_device": True}, await self._login({}), {})
            body["device_token"] = trusted.json["device_token"]
        first = await self.world.api.post("/api/auth/login", body, headers=DEVICE)
        return first if by_device else await self._verify(way, {}, first, target)

    async def _login(self, target: Mapping[str, str]) -> Answer:
        body = {"email": self.world.ada.email, "password": PASSWORD, **target}
        return await self.world.api.post("/api/auth/login", body, headers=DEVICE)

    async def _verify(self, way: str, more: Mapping[str, Any], login: Answer, target: Mapping[str, str]) -> Answer:
        proof: dict[str, Any]
        if way == "key":
            assert self.key is not None
            if "passkey_options" not in login.json:
                assert self.shop_refuses_keys, "the policy accepts keys"
                assert target == TO_SHOP, "the platform accepts all second factors"
                return login
            proof = {"passkey": self.key.authenticator.get(login.json["passkey_options"])}
        elif way == "backup code":
            proof = {"code": self.backup_codes.pop()}
        else:
            assert self.world.authenticator is not None
            self.world.clock.advance(timedelta(minutes=1))
            proof = {"code": self.world.authenticator.code()}
        return await self.world.api.post("/api/auth/mfa/verify", {**proof, **more}, token=login.json["access_token"], headers=DEVICE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factors", "second_method", "accepted"),
    [
        ({"app"}, "totp", {"code", "backup code", "device trusted by a code"}),
        ({"app"}, "passkey", set[str]()),
        ({"key"}, "passkey", {"key", "backup code", "device trusted by a key"}),
        ({"key"}, "totp", set[str]()),
        # The device does not say by which factor it was trusted.
        ({"app", "key"}, "totp", {"code", "backup code"}),
        ({"app", "key"}, "passkey", {"key", "backup code"}),
    ],
)
async def test_what_stands_for_a_second_factor_counts_only_if_the_policy_allows_this_factor(
    api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, factors: set[str], second_method: str, accepted: set[str]
) -> None:
    world = await new_world(api, app, ports, pool, clock)
    holder = await Holder.create(world, has_app="app" in factors, has_key="key" in factors)
    await world.put({"methods": ["password", second_method], "second_factor": ["everyone"]})
    holder.shop_refuses_keys = second_method == "totp"
    found = dict[str, set[str]]()
    for way in filter(holder.can, WAYS):
        session = await holder.sign_in(way, {})
        assert session.status == 200, (way, session.text)
        members = await api.get("/api/organizations/acme/members", token=session.json["access_token"])
        at_shop = await holder.sign_in(way, TO_SHOP)
        found[way] = {outcome_of(members), "asked for the factor" if "mfa_required" in at_shop.text else outcome_of(at_shop)}
    assert {way for way, outcomes in found.items() if outcomes == {ALLOWED}} == accepted, found
    assert all(ALLOWED not in outcomes for way, outcomes in found.items() if way not in accepted), found
