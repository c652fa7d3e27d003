"""Every way that the API or the page offers to confirm an old sign-in is enough for the act, whatever the user's policies accept."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from html import unescape
from itertools import product
from typing import Any, Final

import pytest
from quart_trio import QuartTrio

from adapters.postgres.engine.pool import Pool
from core.kernel.causes import SYSTEM
from core.kernel.proofs import Method, Proof
from core.kernel.values import base64url
from ports import Ports
from tests.fakes.outside import FakeClock, FakeMailTransport, FakeMetrics
from tests.proof.policy.world import STATES, World, new_world
from tests.support.browser import form_token, hidden_fields, leads_to, main_of
from tests.support.builders import PASSWORD, Answer, Api, add_member, add_organization, deliver, run_sql, sign_in
from tests.support.direct import change_ports
from tests.support.mfa import add_mfa
from tests.support.passkeys.users import PASSKEYS, PasskeyUser

REAUTHENTICATE: Final = "/api/auth/reauthenticate"
PAGE: Final = "/app/reauthenticate"
NEW_PASSKEY: Final = "/app/account/passkeys/new"
SAVE_POLICY: Final = "/app/organizations/acme/sign-in-policy"
POLICIES: Final[Mapping[str, dict[str, Any]]] = {
    "passkey": {"methods": ["passkey"]},
    "phr": {"phishing_resistant": ["everyone"]},
    "password and app": {"methods": ["password", "totp"], "second_factor": ["everyone"]},
    "password and key": {"methods": ["password", "passkey"], "second_factor": ["everyone"]},
    "email and app": {"methods": ["email", "totp"], "second_factor": ["everyone"]},
    "email": {"methods": ["email"]},
    "none": {},
}
KEYS: Final = ("passkey", "security key")
# How a button for these keys is named
LABELS: Final = {
    ("passkey",): "Use a passkey",
    ("security key",): "Use your security key",
    KEYS: "Use a passkey or security key",
}
SECOND, NO_CODES = "second", "no codes"
# What the account has beside its password and mailbox: SECOND makes its keys a second factor beside an app, and without an app they are a
# second factor in any case. With NO_CODES, no backup code is left.
ACCOUNTS: Final = (
    ("app", *KEYS, SECOND),
    ("app", *KEYS),
    ("app", *KEYS, NO_CODES),
    ("app", "passkey"),
    ("app", "security key"),
    KEYS,
    (*KEYS, NO_CODES),
    ("security key",),
    ("security key", NO_CODES),
    ("app",),
    ("passkey",),
    (),
)
# A way has a confirmation's fields, with the factor in it. `passkey` has a value from KEYS, and `code` a method.
Way = frozenset[tuple[str, str]]
ALONE: Final = frozenset({("passkey", "passkey")})


def _without_needless(ways: Collection[Way]) -> set[Way]:
    """Return the ways, less those that add a first factor to a passkey which is enough alone."""
    return {way for way in ways if not (ALONE in ways and way > ALONE)}


class Confirming:
    """Ada with a password and some more factors, who acts with old sign-ins."""

    def __init__(self, world: World, has: Collection[str], sent: FakeMailTransport) -> None:
        self.world, self.has, self.sent = world, has, sent
        self.keys: dict[str, PasskeyUser] = {}
        self.codes: list[str] = []

    @classmethod
    async def create(cls, world: World, has: Collection[str], sent: FakeMailTransport) -> "Confirming":
        ada = cls(world, has, sent)
        await world.enter(STATES["bare"])
        ada.keys = {name: PasskeyUser(world.api, world.token) for name in KEYS if name in has}
        if "passkey" in has:
            await ada.keys["passkey"].add()
        if "security key" in has:
            is_second = SECOND in has or "app" not in has
            ada.codes = (await ada.keys["security key"].add_key(second_factor=True))["backup_codes"]
            if not is_second:
                await run_sql(world.pool, "update users set passkey_second_at = null")
        if "app" in has:
            world.authenticator = await add_mfa(world.ports, world.ada)
            ada.codes = list(world.authenticator.backup_codes)
        return ada

    def proofs(self, age: timedelta) -> tuple[Proof, ...]:
        """Return a sign-in with this age and all factors."""
        at = self.world.clock.now() - age
        proofs = [Proof(Method.PASSWORD, at), Proof(Method.EMAIL, at)]
        proofs += [Proof(Method.TOTP, at)] if "app" in self.has else []
        is_full = "passkey" in self.has
        proofs += [Proof(Method.PASSKEY, at, user_verified=is_full, phishing_resistant=is_full)] if self.keys else []
        return tuple(proofs)

    async def begin(self, age: timedelta) -> None:
        """Begin an API session and a browser session, with a sign-in that has this age and all factors."""
        world = self.world
        world.clock.advance(timedelta(hours=1))  # so that no attempt or email limit counts
        await run_sql(world.pool, "delete from rates")
        await run_sql(world.pool, "update backup_codes set used_at = %s", world.clock.now() if NO_CODES in self.has else None)
        world.session = await sign_in(world.ports, world.ada, world.org)
        for session_id in (world.session.session_id, await world.open_browser()):
            async with world.ports.storage.transaction(by=SYSTEM) as tx:
                await tx.session_sign_ins.reauthenticate(session_id, world.ada.id, self.proofs(age))

    async def act(self) -> Answer:
        """Change a factor, which needs a fresh sign-in that all policies accept."""
        return await self.world.api.post(f"{PASSKEYS}/options", token=self.world.token)

    async def act_again(self) -> Answer:
        """Act after a confirmation. An account with a passkey can need two confirmations, because the API does not know the act (PK-12)."""
        answer = await self.act()
        if answer.status == 401 and "passkey" in self.has:
            await self.confirm(min(await self.list_ways(), key=sorted))
            answer = await self.act()
        return answer

    async def invite(self) -> Answer:
        """Invite an admin to Acme, which needs a recent sign-in that the policy accepts."""
        body = {"email": f"{self.world.clock.now().timestamp()}@example.com", "role": "admin"}
        return await self.world.api.post("/api/organizations/acme/invitations", body, token=self.world.token)

    async def list_ways(self) -> set[Way]:
        """Return every way that the API offers: a method with a second factor. The ceremony names the keys that it takes."""
        offered = (await self.world.api.get(REAUTHENTICATE, token=self.world.token)).json
        fields = {"password": "password", "email": "email_code", "totp": "code", "backup_code": "code"}
        seconds = offered["second_methods"] if offered["needs_second_factor"] else [""]
        firsts = offered["methods"] if offered["needs_first_factor"] else [""]
        keys, ways = await self._list_keys(), set[Way]()
        if "passkey" in firsts:  # a security key among them is a second factor, if the API names a second factor
            ways |= {Way({("passkey", key)}) for key in (KEYS[:1] if "passkey" in seconds else keys)}
        for first, second in product([name for name in firsts if name != "passkey"], seconds):
            way = Way((fields[name], name) for name in (first, second) if name in fields)
            ways |= {way | {("passkey", key)} for key in keys} if second == "passkey" else {way}
        return ways

    async def _list_keys(self) -> list[str]:
        """Return the keys that the API's ceremony takes."""
        options = (await self.world.api.post(f"{REAUTHENTICATE}/passkey/options", token=self.world.token)).json.get("publicKey", {})
        return self._keys_in(options)

    def _keys_in(self, options: Mapping[str, Any]) -> list[str]:
        taken = {each["id"] for each in options.get("allowCredentials", [])}
        return [name for name, user in self.keys.items() if any(base64url(one.id) in taken for one in user.authenticator.credentials)]

    async def confirm(self, way: Way) -> None:
        """Confirm over the API."""
        world = self.world
        fields: dict[str, Any] = await self._fill(way, f"{REAUTHENTICATE}/email")
        if "passkey" in fields:
            options = await world.api.post(f"{REAUTHENTICATE}/passkey/options", token=world.token)
            fields["passkey"] = self.keys[fields["passkey"]].authenticator.get(options.json["publicKey"])
        answer = await world.api.post(REAUTHENTICATE, fields, token=world.token)
        assert answer.status == 200, (way, answer.text)

    async def _fill(self, way: Way, email_path: str, **form: str) -> dict[str, str]:
        """Return a way's fields with their secrets. The value of `passkey` stays the key's name."""
        world, fields = self.world, dict(way)
        world.clock.advance(timedelta(minutes=1))
        if "password" in fields:
            fields["password"] = PASSWORD
        if "email_code" in fields:
            await (world.browser.send(email_path, **form) if form else world.api.post(email_path, token=world.token))
            await deliver(world.ports)
            fields["email_code"] = re.findall("^([0-9]{6})$", self.sent.emails[-1].text, re.MULTILINE)[0]
        if fields.get("code") == Method.TOTP:
            assert world.authenticator is not None, "she has an app"
            fields["code"] = world.authenticator.code()
        if fields.get("code") == Method.BACKUP_CODE:
            fields["code"] = self.codes[0]
        return fields

    # On the page

    async def read_ways(self, path: str) -> dict[Way, Mapping[str, Any] | None]:
        """Return every way that the page's forms take, with its ceremony's options, if any."""
        ways = dict[Way, Mapping[str, Any] | None]()
        for more in ("", "&emailed=yes"):
            page = main_of(await self.world.browser.open(path + more))
            for form in re.findall(f'<form method="post" action="{PAGE}">(.*?)</form>', page, re.DOTALL):
                firsts = {(name, name) for name in ("password", "email") if f'name="{name.replace("email", "email_code")}"' in form}
                first = Way((name.replace("email", "email_code"), value) for name, value in firsts)
                found = re.search(r'data-passkey="get" data-options="([^"]*)"', form)
                options = json.loads(unescape(found[1])) if found else {}
                keys = self._keys_in(options)
                assert re.findall(r"<button[^>]* data-passkey[^>]*>([^<]*)<", form) == [LABELS[each] for each in [tuple(keys)] if each]
                seconds: list[Way] = [Way({("passkey", key)}) for key in keys]
                if 'name="code"' in form:
                    marks = {Method.TOTP: "Code from your authenticator app", Method.BACKUP_CODE: "ABCD-2345"}
                    seconds += [Way({("code", code.value)}) for code, mark in marks.items() if mark in form]
                ways |= {first | second: options for second in seconds or [Way()]}
        return ways

    async def confirm_on_page(self, path: str, way: Way) -> Answer:
        """Confirm with a way that the page takes, and return the page after the answer."""
        browser, page = self.world.browser, await self.world.browser.open(path)
        fields: dict[str, Any] = await self._fill(way, f"{PAGE}/email", **hidden_fields(page))
        if "passkey" in fields:
            options = (await self.read_ways(path))[way]
            assert options is not None, "it has a ceremony"
            fields["credential"] = json.dumps(self.keys[fields.pop("passkey")].authenticator.get(options))
        answer = await browser.send(PAGE, **{**hidden_fields(page), **fields})
        return await browser.open(leads_to(answer)) if answer.status == 303 else answer

    async def begin_act(self, act: str) -> str:
        """Act in the browser, and return the page's path to which this leads."""
        browser = self.world.browser
        if act == "factors":
            return leads_to(await browser.open(NEW_PASSKEY))
        token = form_token(await browser.open("/app/account"))
        return leads_to(await browser.send(SAVE_POLICY, form_token=token, version="0"))


@pytest.fixture
async def world(api: Api, app: QuartTrio, ports: Ports, pool: Pool, clock: FakeClock) -> World:
    change_ports(app, policy=replace(ports.policy, email_sign_in=True))
    return await new_world(api, app, ports, pool, clock)


@pytest.fixture
async def ada(world: World, sent: FakeMailTransport) -> Confirming:
    return await Confirming.create(world, ACCOUNTS[0], sent)


AGES: Final = (timedelta(minutes=20), timedelta(minutes=70))


@pytest.mark.slow
@pytest.mark.parametrize("has", ACCOUNTS, ids=lambda has: ", ".join(has) or "a password alone")
async def test_each_offered_way_is_enough_for_the_act(world: World, sent: FakeMailTransport, has: Collection[str]) -> None:
    """The API and the page about the account's factors offer the same ways, but the page asks at once for the account's passkey."""
    ada, wrong = await Confirming.create(world, has, sent), dict[str, object]()
    for (name, document), age in product(POLICIES.items(), AGES):
        await world.put(document)
        await ada.begin(age)
        ways = await ada.list_ways()
        assert ways, "she can meet it"
        assert ALONE in ways or "passkey" not in has or "passkey" not in document.get("methods", ["passkey"]), name
        on_page = await ada.read_ways(await ada.begin_act("factors"))
        if "passkey" not in has and _without_needless(ways) != _without_needless(on_page.keys()):
            wrong[f"{name} after {age}: the page differs"] = (ways, on_page.keys())
        for way in ways:
            await ada.begin(age)
            assert (await ada.act()).status == 401, "the sign-in is too old"
            await ada.confirm(way)
            if (await (ada.act() if way == ALONE else ada.act_again())).status != 200:  # a passkey is enough for account and policies
                wrong[f"{name} after {age}"] = way
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.parametrize("act", ["factors", "organization"])
@pytest.mark.parametrize("has", ACCOUNTS, ids=lambda has: ", ".join(has) or "a password alone")
async def test_each_way_on_the_page_is_enough_for_the_act(world: World, sent: FakeMailTransport, has: Collection[str], act: str) -> None:
    """An act in the organization changes no factor, and its policy was met by the old sign-in."""
    ada, wrong = await Confirming.create(world, has, sent), dict[str, object]()
    for name, document in POLICIES.items():
        await world.put(document)
        await ada.begin(timedelta(minutes=65))
        path = await ada.begin_act(act)
        if not path.startswith(PAGE):
            assert path.startswith("/app/enroll"), path
            continue
        ways = await ada.read_ways(path)
        assert ways, "the page has a way"
        is_alike = act == "organization" or "passkey" not in has
        if is_alike and _without_needless(ways.keys()) != _without_needless(await ada.list_ways()):
            wrong[f"{name}: the API differs"] = (ways, await ada.list_ways())
        for way in ways:
            await ada.begin(timedelta(minutes=65))
            answer = await ada.confirm_on_page(await ada.begin_act(act), way)
            if act == "factors" and "passkey" in has and answer.status == 200:  # a policy asks for more than the account's passkey
                again = await ada.begin_act(act)
                answer = await ada.confirm_on_page(again, min(await ada.read_ways(again), key=sorted))
            if not (leads_to(answer) == NEW_PASSKEY if act == "factors" else "You can continue with what you asked for." in answer.text):
                wrong[f"{name}, {sorted(way)}"] = answer.status
    assert not wrong, wrong


async def test_the_page_counts_no_decision(ada: Confirming) -> None:
    """The metric has the decisions about requests, not about what a page offers."""
    await ada.world.put(POLICIES["password and key"])
    await ada.begin(timedelta(minutes=65))
    path, metrics = await ada.begin_act("organization"), ada.world.ports.metrics
    assert isinstance(metrics, FakeMetrics)
    metrics.policy_decisions.clear()
    await ada.world.browser.open(path)
    assert not metrics.policy_decisions


TWO_POLICIES: Final = [("passkey", "password and app"), ("phr", "password and key"), ("email", "password and app")]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [*TWO_POLICIES, *((second, first) for first, second in TWO_POLICIES)])
async def test_each_way_is_enough_in_the_organization_of_the_token(ada: Confirming, first: str, second: str) -> None:
    """Another organization's policy may accept none of these ways."""
    world, wrong = ada.world, list[Way]()
    await run_sql(world.pool, "update memberships set role = 'owner'")
    other = await add_organization(world.pool, "globex")
    await add_member(world.pool, other, world.ada.id, confirmed=True)
    await world.put(POLICIES[first])
    await world.put(POLICIES[second], org=other)
    await ada.begin(timedelta(minutes=65))
    for way in await ada.list_ways():
        await ada.begin(timedelta(minutes=65))
        assert (await ada.invite()).status == 401, "the sign-in is too old"
        await ada.confirm(way)
        wrong += [] if (await ada.invite()).status == 200 else [way]
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), TWO_POLICIES)
async def test_with_two_organizations_no_confirmation_is_in_vain(ada: Confirming, first: str, second: str) -> None:
    """A confirmation is for a policy that the sign-in did not meet, or for the account's passkey, so three confirmations are enough."""
    world = ada.world
    other = await add_organization(world.pool, "globex")
    await add_member(world.pool, other, world.ada.id, confirmed=True)
    await world.put(POLICIES[first])
    await world.put(POLICIES[second], org=other)
    await ada.begin(timedelta(minutes=20))
    used = list[Way]()
    while (answer := await ada.act()).status == 401 and len(used) < 4:
        used.append(min(await ada.list_ways(), key=sorted))
        await ada.confirm(used[-1])
    assert (answer.status, len(used)) == (200, len({*used})), used


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
        await tx.session_sign_ins.reauthenticate(session_id, world.ada.id, ada.proofs(timedelta(minutes=65)))
    page = main_of(await world.browser.open(await ada.begin_act("organization")))
    assert "not recently enough for this" in page
    offered = {mark for mark in ('name="password"', 'name="code"', 'data-passkey="get"') if mark in page}
    every = {'name="password"', 'name="code"', 'data-passkey="get"'}
    by_passkey = {'data-passkey="get"'}
    accepted = {"passkey": by_passkey, "phr": by_passkey, "password and app": every - by_passkey}
    if not has_key:  # the passkey stands for the password, too
        accepted["password and key"] = by_passkey
    assert offered == accepted.get(name, every)
