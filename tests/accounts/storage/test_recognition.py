"""Matching and trusting devices, and login risk (decisions 78, 79, 83; security S-5)."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from ipaddress import ip_network
from typing import Any
from uuid import UUID

import pytest

from adapters.anonymizers import AnonymizerNetworks
from adapters.postgres.engine.pool import Pool
from core.accounts import devices
from core.accounts.model.accounts import Account
from core.accounts.model.devices import Device, DeviceMatch, DeviceType, Location, PresentedDevice
from core.kernel.causes import Anonymous
from ports import Ports
from tests.fakes.outside import FakeClock, FakeGeoIp
from tests.support.builders import FIREFOX, add_account, add_member, run_concurrently, run_sql
from tests.support.rows import DAY, HOUR, MICROSECOND, failed_login, session

NEWER_FIREFOX = FIREFOX.replace("121", "122")
CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36"
WEBKIT = "AppleWebKit/605.1.15 (KHTML, like Gecko)"
IPHONE = f"Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) {WEBKIT} Version/17.1 Mobile/15E148 Safari/604.1"
SILENT = PresentedDevice()
LISBON, OSLO = Location("Lisbon", "PT"), Location(None, "NO")


@dataclass(slots=True)
class DeviceUser:
    """A user's sign-ins, reduced to their devices."""

    ports: Ports
    pool: Pool
    clock: FakeClock
    account: Account
    properties: dict[str, Any] = field(default_factory=lambda: {"address": "203.0.113.9", "agent": FIREFOX})

    async def sign_in(
        self,
        client: PresentedDevice = SILENT,
        org: UUID | None = None,
        *,
        second_factor: bool = False,
        trust: bool = False,
        **properties: Any,
    ) -> tuple[DeviceMatch, str | None]:
        """Sign in, and record the login."""
        now = self.clock.now()
        caller = Anonymous(**{**self.properties, **properties})
        fingerprint = devices.fingerprint(self.ports, caller, client)
        async with self.ports.storage.transaction(by=caller) as tx:
            await tx.accounts.lock(self.account.id)
            match = await devices.match_device(tx, self.account.id, fingerprint, org, now)
            token = await devices.remember_device(tx, match, ("password",), now, second_factor=second_factor, trust=trust)
            await tx.logins.record_success(session(self.account.id, created_at=now, device_id=match.device.id), "password", match.device)
        return match, token

    async def match(self, client: PresentedDevice = SILENT, org: UUID | None = None, **properties: Any) -> DeviceMatch:
        """Match a sign-in's device without storing anything."""
        caller = Anonymous(**{**self.properties, **properties})
        fingerprint = devices.fingerprint(self.ports, caller, client)
        async with self.ports.storage.transaction(by=caller) as tx:
            await tx.accounts.lock(self.account.id)
            return await devices.match_device(tx, self.account.id, fingerprint, org, self.clock.now())

    async def fail(self, times: int = 1) -> None:
        self.clock.advance(MICROSECOND)  # only failures after the last success count
        async with self.ports.storage.autocommit() as count:
            for _ in range(times):
                failure = failed_login(self.account.id, at=self.clock.now())
                await count.failed_logins.record_failure(failure)

    async def devices(self) -> list[Device]:
        async with self.ports.storage.reading() as read:
            listed_devices = await read.devices.of_user(self.account.id, self.account.id, None, self.clock.now(), None, 100)
        return [one.device for one in listed_devices]


def is_new(match: DeviceMatch) -> bool:
    return "new_device" in match.device.risk.factors


@pytest.fixture
async def user(ports: Ports, pool: Pool, clock: FakeClock) -> DeviceUser:
    return DeviceUser(ports, pool, clock, await add_account(ports, password=None))


# Matching


async def test_a_new_device_is_stored(user: DeviceUser, clock: FakeClock, geoip: FakeGeoIp) -> None:
    geoip.known["203.0.113.9"] = LISBON
    match, token = await user.sign_in()
    assert (is_new(match), match.is_trusted, token) == (True, False, None)
    assert match.device.location == LISBON
    [device] = await user.devices()
    assert device == replace(match.device, methods=("password",))
    assert (device.name, device.device_type, device.client_hash) == ("Firefox on Linux", DeviceType.BROWSER, None)
    assert (device.browser, device.browser_version, device.os, device.os_version) == ("Firefox", "121.0", "Linux", None)
    assert (device.last_ip, device.location, device.risk) == ("203.0.113.9", LISBON, match.device.risk)
    assert device.created_at == device.last_used_at == device.updated_at == clock.now()
    assert (device.mfa_at, device.trust_hash, device.trust_expires_at, device.revoked_at) == (None, None, None, None)


async def test_matching_stores_nothing(user: DeviceUser) -> None:
    assert is_new(await user.match())
    assert await user.devices() == []


async def test_a_known_device_is_updated(user: DeviceUser, clock: FakeClock, geoip: FakeGeoIp) -> None:
    first, _ = await user.sign_in()
    clock.advance(HOUR)
    geoip.known["198.51.100.1"] = OSLO
    second_sign_in, _ = await user.sign_in(agent=NEWER_FIREFOX, address="198.51.100.1")
    assert (is_new(second_sign_in), second_sign_in.device.id, second_sign_in.device.location) == (False, first.device.id, OSLO)
    [device] = await user.devices()
    assert device == second_sign_in.device
    assert (device.browser_version, device.last_ip, device.location, device.risk) == (
        "122.0",
        "198.51.100.1",
        OSLO,
        second_sign_in.device.risk,
    )
    assert (device.created_at, device.last_used_at) == (first.device.created_at, clock.now())


async def test_another_browser_system_or_type_is_another_device(user: DeviceUser) -> None:
    for client, agent in (
        (SILENT, FIREFOX),
        (SILENT, CHROME),
        (SILENT, IPHONE),
        (PresentedDevice(device_type=DeviceType.DESKTOP), FIREFOX),
        (SILENT, None),
    ):
        assert is_new((await user.sign_in(client, agent=agent))[0])
        assert not is_new((await user.sign_in(client, agent=agent))[0])
    assert {(one.name, one.device_type.value) for one in await user.devices()} == {
        ("Firefox on Linux", "browser"),
        ("Chrome on Linux", "browser"),
        ("Mobile Safari on iOS", "mobile"),
        ("Firefox on Linux", "desktop"),
        ("Unknown browser on unknown system", "browser"),
    }


async def test_client_ids_distinguish_equal_devices(user: DeviceUser) -> None:
    home, work = PresentedDevice(device_id="a" * 200), PresentedDevice(device_id="b")
    assert is_new((await user.sign_in())[0])
    for client in (home, work):
        assert is_new((await user.sign_in(client))[0])
        second_sign_in, _ = await user.sign_in(client, agent=CHROME)
        assert not is_new(second_sign_in)
        assert second_sign_in.device.name == "Firefox on Linux", "a device keeps its name"
    assert len(await user.devices()) == 3


@pytest.mark.parametrize("device_id", ["", "a" * 201])
async def test_an_invalid_client_id_is_ignored(user: DeviceUser, device_id: str) -> None:
    first, _ = await user.sign_in()
    assert (await user.match(PresentedDevice(device_id=device_id))).device.id == first.device.id


async def test_a_client_id_of_two_users_is_two_devices(user: DeviceUser) -> None:
    other_user = DeviceUser(user.ports, user.pool, user.clock, await add_account(user.ports, "eve@example.com", None))
    client = PresentedDevice(device_id="shared")
    assert (await user.sign_in(client))[0].device.id != (await other_user.sign_in(client))[0].device.id


async def test_a_sign_in_can_name_the_device_and_declare_its_type(user: DeviceUser) -> None:
    match, _ = await user.sign_in(PresentedDevice(device_id="a", name="Laptop", device_type=DeviceType.CLI))
    assert (match.device.name, match.device.device_type) == ("Laptop", DeviceType.CLI)
    second_sign_in, _ = await user.sign_in(PresentedDevice(device_id="a"))
    assert (second_sign_in.device.name, second_sign_in.device.device_type) == ("Laptop", DeviceType.CLI), (
        "a derived type does not replace a declared one"
    )
    renamed, _ = await user.sign_in(PresentedDevice(device_id="a", name="Old laptop", device_type=DeviceType.DESKTOP))
    assert (
        [(one.name, one.device_type) for one in await user.devices()]
        == [("Old laptop", DeviceType.DESKTOP)]
        == [(renamed.device.name, renamed.device.device_type)]
    )


async def test_the_name_of_a_new_device_has_at_most_100_characters(user: DeviceUser) -> None:
    match, _ = await user.sign_in(agent="bot " * 120)
    assert 0 < len(match.device.name) <= 100


async def test_a_revoked_device_returns_as_a_new_one(user: DeviceUser, clock: FakeClock) -> None:
    client = PresentedDevice(device_id="a")
    first, token = await user.sign_in(client, second_factor=True, trust=True)
    async with user.ports.storage.transaction(by=Anonymous()) as tx:
        await tx.devices.revoke(user.account.id, first.device.id, clock.now())
    second_sign_in, _ = await user.sign_in(PresentedDevice(device_id="a", token=token))
    assert (is_new(second_sign_in), second_sign_in.is_trusted) == (True, False)
    assert second_sign_in.device.id != first.device.id


@pytest.mark.slow
@pytest.mark.parametrize("client", [PresentedDevice(device_id="a"), SILENT], ids=["with an id", "without"])
async def test_concurrent_first_logins_of_one_device_add_one_device(user: DeviceUser, client: PresentedDevice) -> None:
    sign_ins = await run_concurrently(20, lambda _: user.sign_in(client))
    assert sorted(is_new(match) for match, _ in sign_ins) == [False] * 19 + [True]
    assert len(await user.devices()) == 1


# Trust


async def test_a_device_is_trusted_by_its_token_after_the_second_factor(user: DeviceUser, clock: FakeClock) -> None:
    _, token = await user.sign_in(second_factor=True, trust=True)
    assert token is not None
    assert len(token) == 43, "256 bits"
    [device] = await user.devices()
    assert (device.mfa_at, device.trust_expires_at) == (clock.now(), clock.now() + 90 * DAY)
    assert token.encode() not in (device.trust_hash or b"")
    match, another = await user.sign_in(PresentedDevice(token=token))
    assert (match.is_trusted, is_new(match), another) == (True, False, None)
    for other in (
        SILENT,
        PresentedDevice(token="x" * 43),
        PresentedDevice(token=token[:-1]),
        PresentedDevice(token=token + "x"),
        PresentedDevice(token=""),
    ):
        assert not (await user.match(other)).is_trusted
    assert (await user.match(PresentedDevice(token=token, device_id="another"), agent=CHROME)).is_trusted, (
        "the token alone identifies the device"
    )


@pytest.mark.parametrize(("second_factor", "trust"), [(False, False), (True, False), (False, True)])
async def test_a_token_needs_the_second_factor_and_the_request(user: DeviceUser, second_factor: bool, trust: bool) -> None:
    assert (await user.sign_in(second_factor=second_factor, trust=trust))[1] is None
    [device] = await user.devices()
    assert device.trust_hash is None
    assert (device.mfa_at is not None) is second_factor


async def test_trust_belongs_to_one_account(user: DeviceUser) -> None:
    _, token = await user.sign_in(second_factor=True, trust=True)
    other_user = DeviceUser(user.ports, user.pool, user.clock, await add_account(user.ports, "eve@example.com", None))
    match, _ = await other_user.sign_in(PresentedDevice(token=token))
    assert (is_new(match), match.is_trusted) == (True, False)


async def test_a_new_token_replaces_the_old_one(user: DeviceUser) -> None:
    _, old = await user.sign_in(second_factor=True, trust=True)
    _, new = await user.sign_in(PresentedDevice(token=old), second_factor=True, trust=True)
    assert old != new
    assert not (await user.match(PresentedDevice(token=old))).is_trusted
    assert (await user.match(PresentedDevice(token=new))).is_trusted


async def test_trust_lasts_30_days_from_the_second_factor_and_the_token_90_days(user: DeviceUser, clock: FakeClock) -> None:
    _, token = await user.sign_in(second_factor=True, trust=True)
    client = PresentedDevice(token=token)
    clock.advance(30 * DAY - MICROSECOND)
    assert (await user.match(client)).is_trusted
    clock.advance(MICROSECOND)
    assert not (await user.match(client)).is_trusted
    assert not is_new(await user.match(client)), "the device is still known"
    for _ in range(2):
        await user.sign_in(client, second_factor=True)
        assert (await user.match(client)).is_trusted, "the second factor was verified again"
        clock.advance(30 * DAY - MICROSECOND)
        assert (await user.match(client)).is_trusted
        clock.advance(MICROSECOND)
    await user.sign_in(client, second_factor=True)
    assert not (await user.match(client)).is_trusted, "the token is 90 days old"


async def test_a_sign_in_without_the_second_factor_does_not_extend_trust(user: DeviceUser, clock: FakeClock) -> None:
    _, token = await user.sign_in(second_factor=True, trust=True)
    clock.advance(29 * DAY)
    assert (await user.sign_in(PresentedDevice(token=token)))[0].is_trusted
    clock.advance(DAY)
    assert not (await user.match(PresentedDevice(token=token))).is_trusted


async def test_the_shortest_period_of_the_organizations_counts(
    user: DeviceUser, clock: FakeClock, pool: Pool, acme: UUID, other_tenant: UUID
) -> None:
    await run_sql(pool, "update organizations set device_trust_days = case slug when 'acme' then 5 else 60 end")
    _, token = await user.sign_in(second_factor=True, trust=True)
    client = PresentedDevice(token=token)
    clock.advance(5 * DAY)
    assert (await user.match(client)).is_trusted
    assert (await user.match(client, other_tenant)).is_trusted_there
    assert not (await user.match(client, acme)).is_trusted_there, "its period applies to sign-ins to its services"
    clock.advance(26 * DAY)
    assert not (await user.match(client)).is_trusted
    assert (await user.match(client, other_tenant)).is_trusted_there
    await add_member(pool, other_tenant, user.account.id, confirmed=True)
    assert (await user.match(client)).is_trusted
    await add_member(pool, acme, user.account.id, confirmed=True)
    assert not (await user.match(client)).is_trusted


async def test_a_high_risk_overrides_trust(user: DeviceUser, geoip: FakeGeoIp) -> None:
    _, token = await user.sign_in(second_factor=True, trust=True)
    client = PresentedDevice(token=token)
    await user.fail(3)
    assert (await user.match(client)).is_trusted
    assert (await user.match(client)).device.risk.score == 60
    await user.fail()
    assert (await user.match(client)).device.risk.score == 80
    assert not (await user.match(client)).is_trusted
    await user.sign_in(client, second_factor=True)
    assert (await user.match(client)).is_trusted, "a success resets the failures"


# Risk


async def test_the_first_login_has_a_new_device_and_an_unknown_location(user: DeviceUser, geoip: FakeGeoIp) -> None:
    assert (await user.match()).device.risk.factors == ("new_device",)
    geoip.known["203.0.113.9"] = LISBON
    match, _ = await user.sign_in()
    assert (match.device.risk.score, match.device.risk.factors) == (50, ("new_device", "unknown_location"))
    second_sign_in, _ = await user.sign_in()
    assert (second_sign_in.device.risk.score, second_sign_in.device.risk.factors) == (0, ())


async def test_a_vpn_or_proxy_adds_to_the_risk(user: DeviceUser) -> None:
    await user.sign_in()
    user.ports = replace(user.ports, anonymizers=AnonymizerNetworks([ip_network("198.51.100.0/24")]))
    user.clock.advance(HOUR)
    assert (await user.match()).device.risk.factors == ()
    match, _ = await user.sign_in(address="198.51.100.7")
    assert (match.device.risk.score, match.device.risk.factors) == (10, ("vpn_or_proxy",))
    assert (await user.devices())[0].risk == match.device.risk
    logins = "select risk_score, risk_factors from login_events order by created_at desc limit 1"
    assert await run_sql(user.pool, logins) == [(10, ["vpn_or_proxy"])]


async def test_another_city_is_unknown_until_a_login_there(user: DeviceUser, geoip: FakeGeoIp) -> None:
    geoip.known.update({"203.0.113.9": LISBON, "198.51.100.1": OSLO, "198.51.100.2": Location("Oslo", "NO")})
    await user.sign_in()
    for address in ("198.51.100.1", "198.51.100.2"):
        assert (await user.sign_in(address=address))[0].device.risk.factors == ("unknown_location",)
        assert (await user.sign_in(address=address))[0].device.risk.factors == ()
    assert (await user.match(address="192.0.2.1")).device.risk.factors == (), "the location is unknown"


async def test_an_hour_is_unusual_after_ten_logins_at_other_hours(user: DeviceUser, clock: FakeClock) -> None:
    for _ in range(9):
        await user.sign_in()
    clock.advance(timedelta(hours=3))
    assert (await user.match()).device.risk.factors == ()
    clock.advance(-timedelta(hours=3))
    await user.sign_in()
    assert (await user.match()).device.risk.factors == ()
    clock.advance(timedelta(hours=3))
    match, _ = await user.sign_in()
    assert (match.device.risk.score, match.device.risk.factors) == (10, ("unusual_time",))
    assert (await user.match()).device.risk.factors == ()


async def test_failed_attempts_add_up_to_100(user: DeviceUser) -> None:
    await user.sign_in()
    scores = []
    for _ in range(7):
        await user.fail()
        scores.append((await user.match()).device.risk.score)
    assert scores == [20, 40, 60, 80, 100, 100, 100]


async def test_the_login_event_has_the_risk_and_the_location(user: DeviceUser, geoip: FakeGeoIp, pool: Pool) -> None:
    geoip.known["203.0.113.9"] = LISBON
    await user.sign_in()
    assert await run_sql(pool, "select risk_score, risk_factors, city, country from login_events") == [
        (50, ["new_device", "unknown_location"], "Lisbon", "PT")
    ]
