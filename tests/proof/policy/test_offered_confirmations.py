"""Each way that the API offers to confirm an old sign-in is enough for the act, whatever the policies of the user accept."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.causes import SYSTEM
from core.kernel.proofs import Method
from core.kernel.values import base64url
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport
from tests.proof.policy.world import STATES, State, World, new_world
from tests.support.browser import form_token, leads_to, main_of
from tests.support.builders import PASSWORD, Answer, Api, add_member, add_organization, deliver, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PASSKEYS, PasskeyUser

REAUTHENTICATE: Final = "/api/auth/reauthenticate"
POLICIES: Final[Mapping[str, dict[str, Any]]] = {
    "passkey": {"methods": ["passkey"]},
    "phr": {"phishing_resistant": ["everyone"]},
    "password and app": {"methods": ["password", "totp"], "second_factor": ["everyone"]},
    "password and key": {"methods": ["password", "passkey"], "second_factor": ["everyone"]},
    "email and app": {"methods": ["email", "totp"], "second_factor": ["everyone"]},
    "email": {"methods": ["email"]},
    "none": {},
}
EVERY: Final = State((), (Method.PASSWORD, Method.EMAIL, Method.TOTP, Method.PASSKEY))
KEYS: Final = ("passkey", "security key")
Ways = list[dict[str, str]]  # each with the fields of a confirmation. The value of `passkey` is one of KEYS, and the others are empty


class Confirming:
    """Ada with a password, an app, a passkey and a security key, who acts with old sign-ins."""

    def __init__(self, world: World, keys: Mapping[str, PasskeyUser], sent: FakeMailTransport) -> None:
        self.world, self.keys, self.sent = world, keys, sent

    async def begin(self, age: timedelta) -> None:
        """Begin a session with a sign-in of this age with all factors."""
        world = self.world
        world.clock.advance(timedelta(hours=1))  # so that no limit of attempts or emails counts
        await run_sql(world.pool, "delete from rates")
        world.session = await sign_in(world.ports, world.ada, world.org)
        async with world.ports.storage.transaction(by=SYSTEM) as tx:
            await tx.session_sign_ins.reauthenticate(world.session.session_id, world.ada.id, EVERY.proofs(world.clock.now() - age))

    async def act(self) -> Answer:
        """Change a factor, which needs a fresh sign-in that all policies accept."""
        return await self.world.api.post(f"{PASSKEYS}/options", token=self.world.token)

    async def list_ways(self) -> Ways:
        """Return each way that the API offers, which is one method with one second factor. The ceremony names the keys that it takes."""
        offered = (await self.world.api.get(REAUTHENTICATE, token=self.world.token)).json
        fields = {"password": "password", "email": "email_code", "totp": "code"}
        seconds = [name for name in offered["second_methods"] if name != "backup_code"] if offered["needs_second_factor"] else [""]
        firsts = offered["methods"] if offered["needs_first_factor"] else [""]
        keys, ways = await self._list_keys(), Ways()
        if "passkey" in firsts:  # a security key among them is a second factor, if the API names one
            ways += [{"passkey": key} for key in (KEYS[:1] if "passkey" in seconds else keys)]
        for first, second in product([name for name in firsts if name != "passkey"], seconds):
            way = {fields.get(name, name): "" for name in (first, second) if name}
            ways += [{**way, "passkey": key} for key in keys] if second == "passkey" else [way]
        return ways

    async def _list_keys(self) -> list[str]:
        """Return the keys that the ceremony of the API takes."""
        options = (await self.world.api.post(f"{REAUTHENTICATE}/passkey/options", token=self.world.token)).json.get("publicKey", {})
        taken = {each["id"] for each in options.get("allowCredentials", [])}
        return [name for name in KEYS if any(base64url(one.id) in taken for one in self.keys[name].authenticator.credentials)]

    async def confirm(self, way: Mapping[str, str]) -> None:
        """Confirm with these fields."""
        world, body = self.world, dict[str, Any](way)
        world.clock.advance(timedelta(minutes=1))
        assert world.authenticator is not None, "she has an app"
        if "password" in body:
            body["password"] = PASSWORD
        if "email_code" in body:
            await world.api.post(f"{REAUTHENTICATE}/email", token=world.token)
            await deliver(world.ports)
            body["email_code"] = re.findall("^([0-9]{6})$", self.sent.emails[-1].text, re.MULTILINE)[0]
        if "code" in body:
            body["code"] = world.authenticator.code()
        if "passkey" in body:
            options = await world.api.post(f"{REAUTHENTICATE}/passkey/options", token=world.token)
            body["passkey"] = self.keys[way["passkey"]].authenticator.get(options.json["publicKey"])
        answer = await world.api.post(REAUTHENTICATE, body, token=world.token)
        assert answer.status == 200, (way, answer.text)


@pytest.fixture
async def ada(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock, sent: FakeMailTransport) -> Confirming:
    change_ports(app, policy=replace(ports.policy, email_sign_in=True))
    world = await new_world(api, app, ports, pool, clock)
    await world.enter(STATES["bare"])
    keys = {name: PasskeyUser(api, world.token) for name in KEYS}
    await keys["passkey"].add()
    await keys["security key"].add_key(second_factor=True)
    world.authenticator = await add_mfa(ports, world.ada)
    return Confirming(world, keys, sent)


@pytest.mark.slow
async def test_each_offered_way_is_enough_for_the_act(ada: Confirming) -> None:
    wrong = dict[str, object]()
    for (name, document), age in product(POLICIES.items(), (timedelta(minutes=20), timedelta(minutes=70))):
        await ada.world.put(document)
        await ada.begin(age)
        ways = await ada.list_ways()
        assert ways, "she can meet it"
        for way in ways:
            await ada.begin(age)
            assert (await ada.act()).status == 401, "the sign-in is too old"
            await ada.confirm(way)
            if (await ada.act()).status != 200:
                wrong[f"{name} after {age}"] = way
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [("passkey", "password and app"), ("phr", "password and key"), ("email", "password and app")])
async def test_with_two_organizations_no_confirmation_is_in_vain(ada: Confirming, first: str, second: str) -> None:
    """Each confirmation is of a policy that the sign-in did not meet yet, so that two are enough."""
    world = ada.world
    other = await add_organization(world.pool, "globex")
    await add_member(world.pool, other, world.ada.id, confirmed=True)
    await world.put(POLICIES[first])
    await world.put(POLICIES[second], org=other)
    await ada.begin(timedelta(minutes=20))
    policies = list[str]()
    while (answer := await ada.act()).status == 401 and len(policies) < 3:
        policies.append(answer.json["organization"])
        await ada.confirm((await ada.list_ways())[0])
    assert (answer.status, len(policies)) == (200, len({*policies})), policies


@pytest.mark.slow
@pytest.mark.parametrize("has_key", [True, False], ids=["with a security key", "without one"])
@pytest.mark.parametrize("name", [name for name, document in POLICIES.items() if "email" not in name])
async def test_the_page_for_an_old_sign_in_offers_what_the_organization_accepts(ada: Confirming, name: str, has_key: bool) -> None:
    """An act in the organization changes no factor, and its policy was met by the old sign-in."""
    world = ada.world
    if not has_key:
        await run_sql(world.pool, "delete from passkeys where kind = 'security_key'")
        await run_sql(world.pool, "update users set passkey_second_at = null")
    await world.put(POLICIES[name])
    session_id = await world.open_browser()
    async with world.ports.storage.transaction(by=SYSTEM) as tx:
        old = EVERY.proofs(world.clock.now() - timedelta(minutes=65))
        await tx.session_sign_ins.reauthenticate(session_id, world.ada.id, old)
    token = form_token(await world.browser.open("/app/account"))
    asks = leads_to(await world.browser.send("/app/organizations/acme/sign-in-policy", form_token=token, version="0"))
    page = main_of(await world.browser.open(asks))
    assert "not recently enough for this" in page
    offered = {mark for mark in ('name="password"', 'name="code"', 'data-passkey="get"') if mark in page}
    every = {'name="password"', 'name="code"', 'data-passkey="get"'}
    by_passkey = {'data-passkey="get"'}
    accepted = {"passkey": by_passkey, "phr": by_passkey, "password and app": every - by_passkey}
    if not has_key:  # the passkey stands for the password, too
        accepted["password and key"] = by_passkey
    assert offered == accepted.get(name, every)
