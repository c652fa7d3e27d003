"""The devices of the signed-in user, and how logins create them (decisions 78, 80, 81, 84; security A-8, I-4, M-6, S-5, Z-5).

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

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
    impersonate,
    make_device,
    run_concurrently,
    run_during,
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
    """A user with devices and a session."""

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
            location=Location("Lisbon", "PT"),
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
        """Make the session one of this device, or of none."""
        await run_sql(
            self.pool, "update sessions set device_id = %s where id = %s", device and device.id, (session or self.session).session_id
        )

    async def start_session(self, device: Device) -> SignedIn:
        """Start another session on this device."""
        session = await sign_in(self.ports, self.account)
        await self.use(device, session)
        return session

    async def listed(self, token: str | None = None) -> list[dict[str, Any]]:
        answer = await self.api.get(DEVICES, token=token or self.token)
        assert answer.status == 200, answer.text
        body = answer.json
        assert list(body) == ["devices", "total"]
        assert body["total"] == len(body["devices"])
        devices: list[dict[str, Any]] = body["devices"]
        return devices

    async def find(self, device: object, token: str | None = None) -> Answer:
        return await self.api.get(f"{DEVICES}/{id_of(device)}", token=token or self.token)

    async def rename(self, device: object, name: Any = "Work", token: str | None = None) -> Answer:
        return await self.api.patch(f"{DEVICES}/{id_of(device)}", {"name": name}, token=token or self.token)

    async def revoke(self, device: object, token: str | None = None) -> Answer:
        return await self.api.delete(f"{DEVICES}/{id_of(device)}", token=token or self.token)

    async def works(self, session: SignedIn) -> bool:
        """Return whether the session's access token works."""
        return (await self.api.get("/api/user", token=session.access_token)).status == 200

    async def stored(self) -> list[tuple[Any, ...]]:
        return await run_sql(self.pool, "select id, name, revoked_at, trust_hash, updated_at from devices order by id")


def id_of(device: object) -> object:
    return device.id if isinstance(device, Device) else device


async def owner(api: Api, ports: Ports, pool: Pool, email: str) -> Owner:
    account = await add_account(ports, email, None)
    return Owner(api, ports, pool, account, await sign_in(ports, account))


@pytest.fixture
async def user(api: Api, ports: Ports, pool: Pool) -> Owner:
    return await owner(api, ports, pool, EMAIL)


@pytest.fixture
async def other_user(api: Api, ports: Ports, pool: Pool) -> Owner:
    return await owner(api, ports, pool, "eve@example.com")


# Reading


async def test_the_list_has_a_summary_of_each_device(user: Owner, clock: FakeClock) -> None:
    device = await user.add()
    [shown] = await user.listed()
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


async def test_a_device_has_all_details(user: Owner) -> None:
    device = await user.add()
    shown = (await user.find(device)).json
    [listed] = await user.listed()
    assert list(shown) == DETAILS
    assert shown == {
        **listed,
        "browser_version": "17.1",
        "os_version": "17.2",
        "last_location": {"city": "Lisbon", "country": "PT"},
        "risk_score": 0.35,
    }


async def test_unknown_details_are_null(user: Owner) -> None:
    device = await user.add(browser_version=None, os_version=None, location=None, last_ip=None, risk=LoginRisk(0, ()))
    shown = (await user.find(device)).json
    assert [shown[name] for name in ("browser_version", "os_version", "last_location", "last_ip")] == [None] * 4
    assert shown["risk_score"] == 0.0
    country = await user.add(location=Location(None, "JP"))
    assert (await user.find(country)).json["last_location"] == {"city": None, "country": "JP"}


async def test_the_most_recently_used_device_comes_first(user: Owner, clock: FakeClock) -> None:
    ages = [3, 1, 2]
    devices = {age: await user.add(last_used_at=clock.now() - age * DAY) for age in ages}
    assert [shown["id"] for shown in await user.listed()] == [str(devices[age].id) for age in sorted(ages)]


async def test_a_user_without_devices_has_an_empty_list(user: Owner, other_user: Owner) -> None:
    await other_user.add()
    assert (await user.api.get(DEVICES, token=user.token)).json == {"devices": [], "total": 0}


@pytest.mark.slow
async def test_a_long_list_is_complete(user: Owner, pool: Pool) -> None:
    device = await user.add()
    copies = """
        insert into devices (id, user_id, name, device_type, browser, os, last_used_at, risk_score, risk_factors, created_at, updated_at)
        select gen_random_uuid(), user_id, name, device_type, browser, os, last_used_at - n / 2 * interval '1 s', 0, '{}', created_at,
               updated_at
        from devices, generate_series(1, 1200) n where id = %s"""
    await run_sql(pool, copies, device.id)
    shown = await user.listed()
    assert len({one["id"] for one in shown}) == len(shown) == 1201
    assert [one["last_used_at"] for one in shown] == sorted((one["last_used_at"] for one in shown), reverse=True)


async def test_the_current_device_is_that_of_the_caller_session(user: Owner) -> None:
    here, there = await user.add(), await user.add()
    await user.use(here)
    other = await user.start_session(there)
    for token, current in ((user.token, here), (other.access_token, there)):
        assert [shown["id"] for shown in await user.listed(token) if shown["is_current"]] == [str(current.id)]
        for device in (here, there):
            assert (await user.find(device, token)).json["is_current"] is (device is current)


async def test_a_device_is_shown_as_trusted_until_the_trust_ends(user: Owner, clock: FakeClock) -> None:
    device = await user.add_trusted()
    for advance, trusted in ((timedelta(0), True), (30 * DAY - MINUTE, True), (MINUTE, False)):
        clock.advance(advance)
        user.session = await sign_in(user.ports, user.account)
        assert [shown["trusted"] for shown in await user.listed()] == [trusted]
        assert (await user.find(device)).json["trusted"] is trusted


# Renaming


async def test_a_device_is_renamed(user: Owner, clock: FakeClock) -> None:
    device, other = await user.add_trusted(), await user.add()
    clock.advance(MINUTE)
    answer = await user.rename(device, "  Work phone ")
    assert answer.status == 200
    assert list(answer.json) == ["id", "name", "device_type", "updated_at"]
    assert answer.json == {"id": str(device.id), "name": "Work phone", "device_type": "mobile", "updated_at": rfc3339(clock.now())}
    assert (await user.find(device)).json["name"] == "Work phone"
    assert (await user.find(other)).json["name"] == "My phone"
    assert (await user.find(device)).json["trusted"]


async def test_the_current_device_can_be_renamed(user: Owner) -> None:
    device = await user.add()
    await user.use(device)
    assert (await user.rename(device, "x" * 100)).json["name"] == "x" * 100


async def test_an_invalid_name_is_refused(user: Owner) -> None:
    device = await user.add()
    before = await user.stored()
    for name in ("", "   ", "x" * 101, 5, None, ["a"], "a\nb", "a\u202eb"):
        assert refused(await user.rename(device, name)) == BAD, name
    assert refused(await user.api.patch(f"{DEVICES}/{device.id}", {}, token=user.token)) == BAD
    assert await user.stored() == before


# Revoking


async def test_revoking_a_device_ends_its_sessions_refresh_tokens_and_trust(user: Owner, clock: FakeClock) -> None:
    here, lost = await user.add(), await user.add_trusted()
    await user.use(here)
    sessions = [await user.start_session(lost) for _ in range(2)]
    elsewhere = await sign_in(user.ports, user.account)
    answer = await user.revoke(lost)
    assert (answer.status, list(answer.json)) == (200, ["message"])
    for session in sessions:
        assert refused(await user.api.get("/api/user", token=session.access_token)) == UNAUTHORIZED
        assert refused(await user.api.post("/api/auth/refresh", {"refresh_token": session.refresh_token})) == UNAUTHORIZED
    for session in (user.session, elsewhere):
        assert await user.works(session)
    async with user.ports.storage.autocommit() as count:
        attempt = await count.attempt_limits.count_password_attempt(
            user.account.email, digest("trust"), AttemptLimit(10, MINUTE), clock.now()
        )
    assert attempt.secret is SecretKind.PASSWORD
    assert [shown["id"] for shown in await user.listed()] == [str(here.id)]


async def test_a_revoked_device_cannot_be_read_or_renamed(user: Owner) -> None:
    device = await user.add()
    await user.revoke(device)
    before = await user.stored()
    assert refused(await user.find(device)) == MISSING
    assert refused(await user.rename(device)) == MISSING
    assert await user.stored() == before


async def test_revoking_a_revoked_device_succeeds_and_changes_nothing(user: Owner, clock: FakeClock) -> None:
    device = await user.add_trusted()
    first = await user.revoke(device)
    before = await user.stored()
    clock.advance(MINUTE)
    again = await user.revoke(device)
    assert (again.status, again.json) == (200, first.json)
    assert await user.stored() == before


async def test_the_current_device_cannot_be_revoked(user: Owner) -> None:
    device = await user.add_trusted()
    await user.use(device)
    before = await user.stored()
    answer = await user.revoke(device)
    assert refused(answer) == BAD
    assert "Sign out" in answer.json["error"]
    assert await user.stored() == before
    assert await user.works(user.session)


# Access


async def test_devices_of_other_users_are_forbidden_and_unknown_ones_not_found(user: Owner, other_user: Owner) -> None:
    other_device, gone = await other_user.add_trusted(), await other_user.add()
    await other_user.revoke(gone)
    session = await other_user.start_session(other_device)
    before = await other_user.stored()
    for device, refusal in (
        (other_device, FORBIDDEN),
        (gone, FORBIDDEN),
        (uuid4(), MISSING),
        ("x", MISSING),
        (str(other_device.id).upper(), MISSING),
    ):
        for act in (user.find, user.rename, user.revoke):
            assert refused(await act(device)) == refusal
        # The device is checked before the body (decision 16).
        assert refused(await user.rename(device, 5)) == refusal
    assert await other_user.stored() == before
    assert await other_user.works(session)


CALLS: dict[str, Callable[[Owner, Device, str], Any]] = {
    "list": lambda owner, device, token: owner.api.get(DEVICES, token=token),
    "find": lambda owner, device, token: owner.find(device, token),
    "rename": lambda owner, device, token: owner.rename(device, "Work", token),
    "revoke": lambda owner, device, token: owner.revoke(device, token),
}
READS = ("list", "find")


async def test_every_endpoint_requires_a_token(user: Owner) -> None:
    device = await user.add()
    for name, call in CALLS.items():
        assert refused(await call(user, device, "nonsense")) == (401, "JWT_ERROR"), name
    assert len(await user.listed()) == 1


async def test_an_application_can_only_read(user: Owner, pool: Pool) -> None:
    device = await user.add()
    service = await add_service(pool, await add_organization(pool, "acme"))
    token = (await sign_in_to(user.ports, pool, service, user.account)).access_token
    before = await user.stored()
    statuses = {name: (await call(user, device, token)).status for name, call in CALLS.items()}
    assert statuses == {name: 200 if name in READS else 403 for name in CALLS}
    assert await user.stored() == before


async def test_an_application_sees_trust_by_the_period_of_its_organization(user: Owner, pool: Pool, clock: FakeClock) -> None:
    device, acme = await user.add_trusted(), await add_organization(pool, "acme")
    await run_sql(pool, "update organizations set device_trust_days = 1")
    service = await add_service(pool, acme)
    clock.advance(2 * DAY)
    user.session = await sign_in(user.ports, user.account)
    token = (await sign_in_to(user.ports, pool, service, user.account)).access_token
    assert [one["trusted"] for one in await user.listed()] == [True]
    assert [one["trusted"] for one in await user.listed(token)] == [False]
    assert (await user.find(device, token)).json["trusted"] is False


async def test_an_impersonator_can_only_read(user: Owner) -> None:
    device = await user.add()
    token = await impersonate(user.ports, await add_platform_owner(user.ports), user.account)
    before = await user.stored()
    statuses = {name: (await call(user, device, token)).status for name, call in CALLS.items()}
    assert statuses == {name: 200 if name in READS else 403 for name in CALLS}
    assert await user.stored() == before


# Races


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(5))
async def test_of_two_devices_that_revoke_each_other_one_remains(user: Owner, attempt: int) -> None:
    devices = [await user.add(), await user.add()]
    sessions = [await user.start_session(device) for device in devices]
    answers = await run_concurrently(2, lambda one: user.revoke(devices[1 - one], sessions[one].access_token))
    assert sorted(answer.status for answer in answers) == [200, 401]
    assert sorted([await user.works(session) for session in sessions]) == [False, True]


@pytest.mark.parametrize("call", ["rename", "revoke"])
async def test_a_change_by_a_session_that_ends_during_the_request_is_refused(user: Owner, pool: Pool, call: str) -> None:
    device = await user.add()
    changes = [
        ("select 1 from users where id = %s for update", (user.account.id,)),
        ("update sessions set ended_at = now() where id = %s", (user.session.session_id,)),
    ]
    before = await user.stored()
    assert refused(await run_during(pool, changes, lambda: CALLS[call](user, device, user.token))) == UNAUTHORIZED
    assert await user.stored() == before


@pytest.mark.slow
async def test_concurrent_revocations_of_a_device_all_succeed(user: Owner) -> None:
    device = await user.add_trusted()
    answers = await run_concurrently(20, lambda _: user.revoke(device))
    assert {answer.status for answer in answers} == {200}
    assert await user.listed() == []


# Devices of logins


@dataclass(slots=True)
class Logins:
    """Sign-ins of a user."""

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
async def logins(api: Api, ports: Ports, pool: Pool) -> Logins:
    await add_account(ports)
    return Logins(api, pool)


async def test_a_login_adds_its_device(logins: Logins, clock: FakeClock) -> None:
    [device] = await logins.devices(await logins.login())
    assert (device["name"], device["device_type"], device["browser"], device["os"]) == ("Firefox on Linux", "browser", "Firefox", "Linux")
    assert (device["is_current"], device["trusted"]) == (True, False)
    assert device["created_at"] == device["last_used_at"] == rfc3339(clock.now())


async def test_a_login_from_a_known_device_adds_none(logins: Logins, clock: FakeClock) -> None:
    first, clients = await logins.login(), ("one", "two")
    clock.advance(MINUTE)
    again = await logins.login()
    [device] = await logins.devices(again)
    assert device["last_used_at"] == rfc3339(clock.now())
    for tokens in (first, again):
        assert [one["is_current"] for one in await logins.devices(tokens)] == [True]
    for client in clients:
        for _ in range(2):
            tokens = await logins.login(device_id=client)
    assert len(await logins.devices(tokens)) == 3
    assert sum(one["is_current"] for one in await logins.devices(tokens)) == 1


async def test_client_ids_are_stored_hashed(logins: Logins) -> None:
    await logins.login(device_id="the id of this client")
    [(stored,)] = await run_sql(logins.pool, "select client_hash from devices")
    assert stored == digest("the id of this client")


@pytest.mark.parametrize(
    "header", [{"User-Agent": "x" * 5000}, {"User-Agent": "\x1b[2J"}, {"X-Device-Id": "x" * 5000}, {"X-Device-Id": "é"}]
)
async def test_unusual_headers_do_not_prevent_a_login(logins: Logins, header: dict[str, str]) -> None:
    answer = await logins.api.post("/api/auth/login", {"email": EMAIL, "password": PASSWORD}, headers=header)
    assert answer.status == 200
    assert len(await logins.devices(answer.json)) == 1


@pytest.mark.slow
async def test_concurrent_first_logins_of_one_client_add_one_device(logins: Logins) -> None:
    tokens = await run_concurrently(8, lambda _: logins.login(device_id="the client"))  # more would exceed the attempt limit
    assert [one["is_current"] for one in await logins.devices(tokens[0])] == [True]


async def test_a_login_stores_its_risk_with_the_device_and_the_login_event(logins: Logins) -> None:
    tokens = await logins.login()
    [device] = await logins.devices(tokens)
    assert (await logins.api.get(f"{DEVICES}/{device['id']}", token=tokens["access_token"])).json["risk_score"] == 0.3
    await logins.api.post("/api/auth/login", {"email": EMAIL, "password": "wrong password"})
    assert await run_sql(logins.pool, "select risk_score, risk_factors from login_events where success") == [(30, ["new_device"])]


@dataclass(slots=True)
class TrustedUser:
    """A user with a second factor, and a trusted device."""

    logins: Logins
    account: Account
    app: Authenticator
    clock: FakeClock

    async def trust(self, **more: Any) -> str:
        """Sign in with the second factor, and return the trust token of the device."""
        tokens = await self.logins.login()
        assert tokens["mfa_required"]
        verified = await self.logins.verify(tokens["access_token"], self.app.code(), trust_device=True, **more)
        self.clock.advance(timedelta(seconds=90))  # the next code is a new one
        return str(verified["device_token"])

    async def is_trusted(self, token: str) -> bool:
        return "mfa_required" not in await self.logins.login(device_token=token)


@pytest.fixture
async def trusted_user(api: Api, ports: Ports, pool: Pool, clock: FakeClock) -> TrustedUser:
    account = await add_account(ports)
    return TrustedUser(Logins(api, pool), account, await add_mfa(ports, account), clock)


async def test_a_trusted_device_skips_the_second_factor_and_has_the_requested_name(trusted_user: TrustedUser) -> None:
    token = await trusted_user.trust(device_name="  Laptop ")
    assert re.fullmatch(r"[\w-]{43}", token)
    tokens = await trusted_user.logins.login(device_token=token)
    [device] = await trusted_user.logins.devices(tokens)
    assert (device["name"], device["trusted"], device["is_current"]) == ("Laptop", True, True)
    assert not await trusted_user.is_trusted("x" * 43)


async def test_a_device_is_not_trusted_unless_requested(trusted_user: TrustedUser) -> None:
    tokens = await trusted_user.logins.login()
    verified = await trusted_user.logins.verify(tokens["access_token"], trusted_user.app.code())
    assert "device_token" not in verified
    [device] = await trusted_user.logins.devices(verified)
    assert not device["trusted"]


async def test_trust_ends_when_the_device_is_revoked(trusted_user: TrustedUser, ports: Ports) -> None:
    token = await trusted_user.trust()
    elsewhere = await sign_in(ports, trusted_user.account)
    [device] = (await trusted_user.logins.api.get(DEVICES, token=elsewhere.access_token)).json["devices"]
    assert (await trusted_user.logins.api.delete(f"{DEVICES}/{device['id']}", token=elsewhere.access_token)).status == 200
    assert not await trusted_user.is_trusted(token)


async def test_trust_ends_after_the_trust_period(trusted_user: TrustedUser) -> None:
    token = await trusted_user.trust()
    trusted_user.clock.advance(30 * DAY - timedelta(seconds=91))
    assert await trusted_user.is_trusted(token)
    trusted_user.clock.advance(timedelta(seconds=1))
    assert not await trusted_user.is_trusted(token)


async def test_a_password_change_ends_the_trust_of_all_devices(trusted_user: TrustedUser) -> None:
    token = await trusted_user.trust()
    tokens = await trusted_user.logins.login(device_token=token)
    change = {"current_password": PASSWORD, "new_password": NEW_PASSWORD}
    answer = await trusted_user.logins.api.post("/api/user/change-password", change, token=tokens["access_token"])
    assert answer.status == 200, answer.text
    assert [one["trusted"] for one in await trusted_user.logins.devices(tokens)] == [False]
    assert (await trusted_user.logins.login(password=NEW_PASSWORD, device_token=token))["mfa_required"]


async def test_turning_the_second_factor_off_ends_all_trust(trusted_user: TrustedUser) -> None:
    token = await trusted_user.trust()
    tokens = await trusted_user.logins.login(device_token=token)
    assert (await trusted_user.logins.api.delete("/api/user/mfa", token=tokens["access_token"])).status == 200
    assert [one["trusted"] for one in await trusted_user.logins.devices(tokens)] == [False]
    assert await run_sql(trusted_user.logins.pool, "select 1 from devices where trust_hash is not null") == []
