"""One's own devices over HTTP, and how logins come to have them (identity.md sections 2.5 and 4.3; decisions, points 78 to 85, 150 and 151;
security.md A-8, B-5, I-4, J-9, M-6, S-5 and Z-5)."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts.accounts_rules import Account
from core.accounts.attempt_limits_rules import AttemptLimit, SecretKind
from core.accounts.devices_rules import Device, DeviceType, Location
from core.accounts.risk import LoginRisk
from core.kernel.principals import SYSTEM
from core.kernel.values import digest, rfc3339
from ports import Ports
from tests.fakes.outside import FakeClock
from tests.support.builders import (
    EMAIL,
    FIREFOX,
    NEW_PASSWORD,
    PASSWORD,
    Answer,
    Api,
    SignedIn,
    add_account,
    add_organization,
    add_platform_owner,
    everyone,
    impersonate,
    make_device,
    meanwhile,
    run_sql,
    sign_in,
)
from tests.support.mfa import Authenticator, add_mfa
from tests.support.refusals import BAD, FORBIDDEN, MISSING, UNAUTHORIZED, refused
from tests.support.services import add_service, sign_in_to

DEVICES = "/api/user/devices"
SUMMARY = ["id", "name", "device_type", "browser", "os", "last_used_at", "last_ip", "is_current", "trusted", "created_at"]
DETAILS = [*SUMMARY, "browser_version", "os_version", "last_location", "risk_score"]
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


@dataclass(slots=True)
class Owner:
    """Somebody with devices, and a session of one of them, if it is said which."""

    api: Api
    ports: Ports
    pool: Pool
    account: Account
    session: SignedIn

    @property
    def token(self) -> str:
        return self.session.access_token

    async def add(self, **changes: Any) -> Device:
        now = self.ports.clock.now()
        plain = make_device(
            self.account.id,
            now - DAY,
            name="My phone",
            device_type=DeviceType.MOBILE,
            browser="Mobile Safari",
            browser_version="17.1",
            os="iOS",
            os_version="17.2",
            last_used_at=now - MINUTE,
            last_ip="203.0.113.9",
            place=Location("Lisbon", "PT"),
            risk=LoginRisk(35, ("new_device",)),
        )
        device = replace(plain, **changes)
        async with self.ports.storage.transaction(by=SYSTEM) as tx:
            await tx.devices.save(device)
        return device

    async def add_trusted(self, token: str = "trust", **changes: Any) -> Device:
        now = self.ports.clock.now()
        return await self.add(mfa_at=now, trust_hash=digest(token), trust_expires_at=now + 90 * DAY, **changes)

    async def use(self, device: Device | None, session: SignedIn | None = None) -> None:
        """Have the session be one of this device."""
        await run_sql(
            self.pool, "update sessions set device_id = %s where id = %s", device and device.id, (session or self.session).session_id
        )

    async def begin(self, device: Device) -> SignedIn:
        """Another session, of this device."""
        session = await sign_in(self.ports, self.account)
        await self.use(device, session)
        return session

    async def listed(self, token: str | None = None) -> list[dict[str, Any]]:
        answer = await self.api.get(DEVICES, token=token or self.token)
        assert answer.status == 200, answer.text
        found = answer.json
        assert list(found) == ["devices", "total"]
        assert found["total"] == len(found["devices"])
        devices: list[dict[str, Any]] = found["devices"]
        return devices

    async def find(self, device: object, token: str | None = None) -> Answer:
        return await self.api.get(f"{DEVICES}/{id_of(device)}", token=token or self.token)

    async def rename(self, device: object, name: Any = "Work", token: str | None = None) -> Answer:
        return await self.api.patch(f"{DEVICES}/{id_of(device)}", {"name": name}, token=token or self.token)

    async def revoke(self, device: object, token: str | None = None) -> Answer:
        return await self.api.delete(f"{DEVICES}/{id_of(device)}", token=token or self.token)

    async def works(self, session: SignedIn) -> bool:
        """Whether its access token is good still."""
        return (await self.api.get("/api/user", token=session.access_token)).status == 200

    async def stored(self) -> list[tuple[Any, ...]]:
        return await run_sql(self.pool, "select id, name, revoked_at, trust_hash, updated_at from devices order by id")


def id_of(device: object) -> object:
    return device.id if isinstance(device, Device) else device


async def owner(api: Api, ports: Ports, pool: Pool, email: str) -> Owner:
    account = await add_account(ports, email, None)
    return Owner(api, ports, pool, account, await sign_in(ports, account))


@pytest.fixture
async def ada(api: Api, ports: Ports, pool: Pool) -> Owner:
    return await owner(api, ports, pool, EMAIL)


@pytest.fixture
async def eve(api: Api, ports: Ports, pool: Pool) -> Owner:
    return await owner(api, ports, pool, "eve@example.com")


# Looking at them


async def test_a_device_is_listed_with_what_a_summary_has(ada: Owner, clock: FakeClock) -> None:
    device = await ada.add()
    [shown] = await ada.listed()
    assert list(shown) == SUMMARY
    assert shown == {
        "id": str(device.id),
        "name": "My phone",
        "device_type": "mobile",
        "browser": "Mobile Safari",
        "os": "iOS",
        "last_used_at": rfc3339(clock.now() - MINUTE),
        "last_ip": "203.0.113.9",
        "is_current": False,
        "trusted": False,
        "created_at": rfc3339(clock.now() - DAY),
    }


async def test_one_device_is_shown_with_all_there_is(ada: Owner) -> None:
    device = await ada.add()
    shown = (await ada.find(device)).json
    [listed] = await ada.listed()
    assert list(shown) == DETAILS
    assert shown == {
        **listed,
        "browser_version": "17.1",
        "os_version": "17.2",
        "last_location": {"city": "Lisbon", "country": "PT"},
        "risk_score": 0.35,
    }


async def test_what_is_not_known_of_a_device_is_null(ada: Owner) -> None:
    device = await ada.add(browser_version=None, os_version=None, place=None, last_ip=None, risk=LoginRisk(0, ()))
    shown = (await ada.find(device)).json
    assert [shown[name] for name in ("browser_version", "os_version", "last_location", "last_ip")] == [None] * 4
    assert shown["risk_score"] == 0.0
    country = await ada.add(place=Location(None, "JP"))
    assert (await ada.find(country)).json["last_location"] == {"city": None, "country": "JP"}


async def test_the_device_that_was_used_last_comes_first(ada: Owner, clock: FakeClock) -> None:
    ages = [3, 1, 2]
    devices = {age: await ada.add(last_used_at=clock.now() - age * DAY) for age in ages}
    assert [shown["id"] for shown in await ada.listed()] == [str(devices[age].id) for age in sorted(ages)]


async def test_who_has_no_devices_has_an_empty_list(ada: Owner, eve: Owner) -> None:
    await eve.add()
    assert (await ada.api.get(DEVICES, token=ada.token)).json == {"devices": [], "total": 0}


@pytest.mark.slow
async def test_a_list_of_any_length_is_told_to_its_end(ada: Owner, pool: Pool) -> None:
    device = await ada.add()
    copies = """
        insert into devices (id, user_id, name, device_type, browser, os, last_used_at, risk_score, risk_factors, created_at, updated_at)
        select gen_random_uuid(), user_id, name, device_type, browser, os, last_used_at - n / 2 * interval '1 s', 0, '{}', created_at,
               updated_at
        from devices, generate_series(1, 1200) n where id = %s"""
    await run_sql(pool, copies, device.id)
    shown = await ada.listed()
    assert len({one["id"] for one in shown}) == len(shown) == 1201
    assert [one["last_used_at"] for one in shown] == sorted((one["last_used_at"] for one in shown), reverse=True)


async def test_the_current_device_is_that_of_the_session_that_asks(ada: Owner) -> None:
    here, there = await ada.add(), await ada.add()
    await ada.use(here)
    other = await ada.begin(there)
    for token, current in ((ada.token, here), (other.access_token, there)):
        assert [shown["id"] for shown in await ada.listed(token) if shown["is_current"]] == [str(current.id)]
        for device in (here, there):
            assert (await ada.find(device, token)).json["is_current"] is (device is current)


async def test_a_device_is_shown_as_trusted_for_as_long_as_it_is(ada: Owner, clock: FakeClock) -> None:
    device = await ada.add_trusted()
    for advance, trusted in ((timedelta(0), True), (30 * DAY - MINUTE, True), (MINUTE, False)):
        clock.advance(advance)
        ada.session = await sign_in(ada.ports, ada.account)
        assert [shown["trusted"] for shown in await ada.listed()] == [trusted]
        assert (await ada.find(device)).json["trusted"] is trusted


# Naming them


async def test_a_device_gets_another_name(ada: Owner, clock: FakeClock) -> None:
    device, other = await ada.add_trusted(), await ada.add()
    clock.advance(MINUTE)
    answer = await ada.rename(device, "  Work phone ")
    assert answer.status == 200
    assert list(answer.json) == ["id", "name", "device_type", "updated_at"]
    assert answer.json == {"id": str(device.id), "name": "Work phone", "device_type": "mobile", "updated_at": rfc3339(clock.now())}
    assert (await ada.find(device)).json["name"] == "Work phone"
    assert (await ada.find(other)).json["name"] == "My phone"
    assert (await ada.find(device)).json["trusted"]


async def test_the_device_in_use_may_be_named_too(ada: Owner) -> None:
    device = await ada.add()
    await ada.use(device)
    assert (await ada.rename(device, "x" * 100)).json["name"] == "x" * 100


@pytest.mark.parametrize("name", ["", "   ", "x" * 101, 5, None, ["a"], "a\nb", "a\u202eb"])
async def test_what_cannot_be_a_name_is_refused(ada: Owner, name: Any) -> None:
    device = await ada.add()
    before = await ada.stored()
    assert refused(await ada.rename(device, name)) == BAD
    assert refused(await ada.api.patch(f"{DEVICES}/{device.id}", {}, token=ada.token)) == BAD
    assert await ada.stored() == before


# Revoking them


async def test_revoking_a_device_ends_its_sessions_its_refresh_tokens_and_its_trust(ada: Owner, clock: FakeClock) -> None:
    here, lost = await ada.add(), await ada.add_trusted()
    await ada.use(here)
    sessions = [await ada.begin(lost) for _ in range(2)]
    elsewhere = await sign_in(ada.ports, ada.account)
    answer = await ada.revoke(lost)
    assert (answer.status, list(answer.json)) == (200, ["message"])
    for session in sessions:
        assert refused(await ada.api.get("/api/user", token=session.access_token)) == UNAUTHORIZED
        assert refused(await ada.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})) == UNAUTHORIZED
    for session in (ada.session, elsewhere):
        assert await ada.works(session)
    async with ada.ports.storage.autocommit() as count:
        guess = await count.attempt_limits.count_password_attempt(ada.account.email, digest("trust"), AttemptLimit(10, MINUTE), clock.now())
    assert guess.secret is SecretKind.PASSWORD
    assert [shown["id"] for shown in await ada.listed()] == [str(here.id)]


async def test_a_revoked_device_is_neither_found_nor_named(ada: Owner) -> None:
    device = await ada.add()
    await ada.revoke(device)
    before = await ada.stored()
    assert refused(await ada.find(device)) == MISSING
    assert refused(await ada.rename(device)) == MISSING
    assert await ada.stored() == before


async def test_revoking_a_revoked_device_changes_nothing_and_succeeds(ada: Owner, clock: FakeClock) -> None:
    device = await ada.add_trusted()
    first = await ada.revoke(device)
    before = await ada.stored()
    clock.advance(MINUTE)
    again = await ada.revoke(device)
    assert (again.status, again.json) == (200, first.json)
    assert await ada.stored() == before


async def test_the_device_in_use_is_not_revoked(ada: Owner) -> None:
    device = await ada.add_trusted()
    await ada.use(device)
    before = await ada.stored()
    answer = await ada.revoke(device)
    assert refused(answer) == BAD
    assert "Sign out" in answer.json["error"]
    assert await ada.stored() == before
    assert await ada.works(ada.session)


# What is not theirs, or not there


async def test_a_device_of_somebody_else_is_forbidden_and_an_unknown_one_is_not_there(ada: Owner, eve: Owner) -> None:
    hers, gone = await eve.add_trusted(), await eve.add()
    await eve.revoke(gone)
    session = await eve.begin(hers)
    before = await eve.stored()
    for device, refusal in ((hers, FORBIDDEN), (gone, FORBIDDEN), (uuid4(), MISSING), ("x", MISSING), (str(hers.id).upper(), MISSING)):
        for act in (ada.find, ada.rename, ada.revoke):
            assert refused(await act(device)) == refusal
        # That is told before the body is looked at (decisions, point 16).
        assert refused(await ada.rename(device, 5)) == refusal
    assert await eve.stored() == before
    assert await eve.works(session)


CALLS: dict[str, Callable[[Owner, Device, str], Any]] = {
    "list": lambda owner, device, token: owner.api.get(DEVICES, token=token),
    "find": lambda owner, device, token: owner.find(device, token),
    "rename": lambda owner, device, token: owner.rename(device, "Work", token),
    "revoke": lambda owner, device, token: owner.revoke(device, token),
}
READS = ("list", "find")


@pytest.mark.parametrize("call", CALLS)
async def test_nobody_gets_in_without_a_token(ada: Owner, call: str) -> None:
    device = await ada.add()
    assert refused(await CALLS[call](ada, device, "nonsense")) == (401, "JWT_ERROR")
    assert len(await ada.listed()) == 1


@pytest.mark.parametrize("call", CALLS)
async def test_an_application_may_look_and_change_nothing(ada: Owner, pool: Pool, call: str) -> None:
    device = await ada.add()
    service = await add_service(pool, await add_organization(pool, "acme"))
    token = (await sign_in_to(ada.ports, pool, service, ada.account)).access_token
    before = await ada.stored()
    answer = await CALLS[call](ada, device, token)
    assert answer.status == (200 if call in READS else 403)
    assert await ada.stored() == before


async def test_an_application_sees_the_trust_that_its_organization_lets_there_be(ada: Owner, pool: Pool, clock: FakeClock) -> None:
    device, acme = await ada.add_trusted(), await add_organization(pool, "acme")
    await run_sql(pool, "update organizations set device_trust_days = 1")
    service = await add_service(pool, acme)
    clock.advance(2 * DAY)
    ada.session = await sign_in(ada.ports, ada.account)
    token = (await sign_in_to(ada.ports, pool, service, ada.account)).access_token
    assert [one["trusted"] for one in await ada.listed()] == [True]
    assert [one["trusted"] for one in await ada.listed(token)] == [False]
    assert (await ada.find(device, token)).json["trusted"] is False


@pytest.mark.parametrize("call", CALLS)
async def test_who_impersonates_may_look_and_change_nothing(ada: Owner, call: str) -> None:
    device = await ada.add()
    token = await impersonate(ada.ports, await add_platform_owner(ada.ports), ada.account)
    before = await ada.stored()
    answer = await CALLS[call](ada, device, token)
    assert answer.status == (200 if call in READS else 403)
    assert await ada.stored() == before


# At once


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(5))
async def test_of_two_devices_that_revoke_each_other_one_remains(ada: Owner, attempt: int) -> None:
    devices = [await ada.add(), await ada.add()]
    sessions = [await ada.begin(device) for device in devices]
    answers = await everyone(2, lambda one: ada.revoke(devices[1 - one], sessions[one].access_token))
    assert sorted(answer.status for answer in answers) == [200, 401]
    assert sorted([await ada.works(session) for session in sessions]) == [False, True]


@pytest.mark.parametrize("call", ["rename", "revoke"])
async def test_a_change_by_a_session_that_is_ended_meanwhile_is_refused(ada: Owner, pool: Pool, call: str) -> None:
    device = await ada.add()
    changes = [
        ("select 1 from users where id = %s for update", (ada.account.id,)),
        ("update sessions set ended_at = now() where id = %s", (ada.session.session_id,)),
    ]
    before = await ada.stored()
    assert refused(await meanwhile(pool, changes, lambda: CALLS[call](ada, device, ada.token))) == UNAUTHORIZED
    assert await ada.stored() == before


@pytest.mark.slow
async def test_a_device_revoked_by_many_at_once_is_revoked_once(ada: Owner) -> None:
    device = await ada.add_trusted()
    answers = await everyone(20, lambda _: ada.revoke(device))
    assert {answer.status for answer in answers} == {200}
    assert await ada.listed() == []


# How logins come to have them


@dataclass(slots=True)
class Way:
    """How Ada signs in."""

    api: Api
    pool: Pool

    async def login(self, agent: str | None = FIREFOX, device_id: str | None = None, **fields: Any) -> dict[str, Any]:
        headers = {name: value for name, value in {"User-Agent": agent, "X-Device-Id": device_id}.items() if value is not None}
        answer = await self.api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD, **fields}, headers=headers)
        assert answer.status == 200, answer.text
        tokens: dict[str, Any] = answer.json
        return tokens

    async def verify(self, token: str, code: str, device_id: str | None = None, **fields: Any) -> dict[str, Any]:
        headers = {"User-Agent": FIREFOX, **({} if device_id is None else {"X-Device-Id": device_id})}
        answer = await self.api.post("/api/auth/mfa/verify", {"code": code, **fields}, token=token, headers=headers)
        assert answer.status == 200, answer.text
        tokens: dict[str, Any] = answer.json
        return tokens

    async def devices(self, tokens: dict[str, Any]) -> list[dict[str, Any]]:
        answer = await self.api.get(DEVICES, token=tokens["access_token"])
        assert answer.status == 200, answer.text
        devices: list[dict[str, Any]] = answer.json["devices"]
        return devices


@pytest.fixture
async def way(api: Api, ports: Ports, pool: Pool) -> Way:
    await add_account(ports)
    return Way(api, pool)


async def test_a_login_makes_its_device_known_and_current(way: Way, clock: FakeClock) -> None:
    [device] = await way.devices(await way.login())
    assert (device["name"], device["device_type"], device["browser"], device["os"]) == ("Firefox on Linux", "browser", "Firefox", "Linux")
    assert (device["is_current"], device["trusted"]) == (True, False)
    assert device["created_at"] == device["last_used_at"] == rfc3339(clock.now())


async def test_a_login_from_a_known_device_uses_it_again(way: Way, clock: FakeClock) -> None:
    first, clients = await way.login(), ("one", "two")
    clock.advance(MINUTE)
    again = await way.login()
    [device] = await way.devices(again)
    assert device["last_used_at"] == rfc3339(clock.now())
    for tokens in (first, again):
        assert [one["is_current"] for one in await way.devices(tokens)] == [True]
    for client in clients:
        for _ in range(2):
            tokens = await way.login(device_id=client)
    assert len(await way.devices(tokens)) == 3
    assert sum(one["is_current"] for one in await way.devices(tokens)) == 1


async def test_the_ids_of_clients_are_not_stored_as_they_are(way: Way) -> None:
    await way.login(device_id="the id of this client")
    [(stored,)] = await run_sql(way.pool, "select client_hash from devices")
    assert stored == digest("the id of this client")


@pytest.mark.parametrize(
    "header", [{"User-Agent": "x" * 5000}, {"User-Agent": "\x1b[2J"}, {"X-Device-Id": "x" * 5000}, {"X-Device-Id": "é"}]
)
async def test_no_header_keeps_anybody_from_signing_in(way: Way, header: dict[str, str]) -> None:
    answer = await way.api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD}, headers=header)
    assert answer.status == 200
    assert len(await way.devices(answer.json)) == 1


@pytest.mark.slow
async def test_first_logins_at_once_from_one_client_make_one_device(way: Way) -> None:
    found = await everyone(8, lambda _: way.login(device_id="the client"))  # more at once are guesses
    assert [one["is_current"] for one in await way.devices(found[0])] == [True]


async def test_the_risk_of_a_login_is_that_of_its_device_and_of_its_record(way: Way) -> None:
    tokens = await way.login()
    [device] = await way.devices(tokens)
    assert (await way.api.get(f"{DEVICES}/{device['id']}", token=tokens["access_token"])).json["risk_score"] == 0.3
    await way.api.post("/api/auth/login", {"email": EMAIL, "password": "wrong password"})
    assert await run_sql(way.pool, "select risk_score, risk_factors from login_events where success") == [(30, ["new_device"])]


@dataclass(slots=True)
class Trusting:
    """Ada, with a second factor, and a device that has shown it."""

    way: Way
    account: Account
    app: Authenticator
    clock: FakeClock

    async def trust(self, **more: Any) -> str:
        """The token of the device."""
        tokens = await self.way.login()
        assert tokens["mfa_required"]
        verified = await self.way.verify(tokens["access_token"], self.app.code(), trust_device=True, **more)
        self.clock.advance(timedelta(seconds=90))  # the next code is a new one
        return str(verified["device_token"])

    async def is_trusted(self, token: str) -> bool:
        return "mfa_required" not in await self.way.login(device_token=token)


@pytest.fixture
async def trusting(api: Api, ports: Ports, pool: Pool, clock: FakeClock) -> Trusting:
    account = await add_account(ports)
    return Trusting(Way(api, pool), account, await add_mfa(ports, account), clock)


async def test_a_trusted_device_is_not_asked_for_the_second_factor_and_is_named_as_said(trusting: Trusting) -> None:
    token = await trusting.trust(device_name="  Laptop ")
    assert re.fullmatch(r"[\w-]{43}", token)
    tokens = await trusting.way.login(device_token=token)
    [device] = await trusting.way.devices(tokens)
    assert (device["name"], device["trusted"], device["is_current"]) == ("Laptop", True, True)
    assert not await trusting.is_trusted("x" * 43)


async def test_without_the_wish_the_device_is_not_trusted(trusting: Trusting) -> None:
    tokens = await trusting.way.login()
    verified = await trusting.way.verify(tokens["access_token"], trusting.app.code())
    assert "device_token" not in verified
    [device] = await trusting.way.devices(verified)
    assert not device["trusted"]


async def test_trust_ends_when_the_device_is_revoked(trusting: Trusting, ports: Ports) -> None:
    token = await trusting.trust()
    elsewhere = await sign_in(ports, trusting.account)
    [device] = (await trusting.way.api.get(DEVICES, token=elsewhere.access_token)).json["devices"]
    assert (await trusting.way.api.delete(f"{DEVICES}/{device['id']}", token=elsewhere.access_token)).status == 200
    assert not await trusting.is_trusted(token)


async def test_trust_ends_after_the_period_of_the_organizations(trusting: Trusting) -> None:
    token = await trusting.trust()
    trusting.clock.advance(30 * DAY - timedelta(seconds=91))
    assert await trusting.is_trusted(token)
    trusting.clock.advance(timedelta(seconds=1))
    assert not await trusting.is_trusted(token)


async def test_a_password_change_ends_all_trust_that_of_the_device_in_use_too(trusting: Trusting) -> None:
    token = await trusting.trust()
    tokens = await trusting.way.login(device_token=token)
    change = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    answer = await trusting.way.api.post("/api/user/change-password", change, token=tokens["access_token"])
    assert answer.status == 200, answer.text
    assert [one["trusted"] for one in await trusting.way.devices(tokens)] == [False]
    assert (await trusting.way.login(password=NEW_PASSWORD, device_token=token))["mfa_required"]


async def test_switching_the_second_factor_off_ends_all_trust(trusting: Trusting) -> None:
    token = await trusting.trust()
    tokens = await trusting.way.login(device_token=token)
    assert (await trusting.way.api.delete("/api/user/mfa", token=tokens["access_token"])).status == 200
    assert [one["trusted"] for one in await trusting.way.devices(tokens)] == [False]
    assert await run_sql(trusting.way.pool, "select 1 from devices where trust_hash is not null") == []
