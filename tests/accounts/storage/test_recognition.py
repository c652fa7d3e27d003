"""People come and are recognised by their devices, and it is judged how unusual that is (identity.md section 2.5; decisions, points 78, 79,
81, 83 to 85; security.md S-5)."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from adapters.postgres.engine.pool import Pool
from core.accounts import devices
from core.accounts.accounts_rules import Account
from core.accounts.devices_rules import Device, DeviceMatch, DeviceType, Location, PresentedDevice
from core.kernel.principals import Anonymous
from ports import Ports
from tests.fakes.outside import FakeClock, FakeGeoIp
from tests.support.builders import FIREFOX, add_account, add_member, everyone, run_sql
from tests.support.rows import DAY, HOUR, MICROSECOND, session

NEWER_FIREFOX = FIREFOX.replace("121", "122")
CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36"
WEBKIT = "AppleWebKit/605.1.15 (KHTML, like Gecko)"
IPHONE = f"Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) {WEBKIT} Version/17.1 Mobile/15E148 Safari/604.1"
SILENT = PresentedDevice()
LISBON, OSLO = Location("Lisbon", "PT"), Location(None, "NO")


@dataclass(slots=True)
class Visitor:
    """Somebody who signs in, as far as devices are concerned."""

    ports: Ports
    pool: Pool
    clock: FakeClock
    account: Account
    said: dict[str, Any] = field(default_factory=lambda: {"address": "203.0.113.9", "agent": FIREFOX})

    async def come(
        self, client: PresentedDevice = SILENT, org: UUID | None = None, *, second_factor: bool = False, trust: bool = False, **said: Any
    ) -> tuple[DeviceMatch, str | None]:
        """A sign-in and its record."""
        now = self.clock.now()
        caller = Anonymous(**{**self.said, **said})
        look = devices.fingerprint(self.ports, caller, client)
        async with self.ports.storage.transaction(by=caller) as tx:
            await tx.accounts.lock(self.account.id)
            arrival = await devices.match_device(tx, self.account.id, look, org, now)
            token = await devices.remember_device(tx, arrival, now, second_factor=second_factor, trust=trust)
            await tx.logins.record_success(
                session(self.account.id, created_at=now, device_id=arrival.device.id), "password", arrival.device
            )
        return arrival, token

    async def look(self, client: PresentedDevice = SILENT, org: UUID | None = None, **said: Any) -> DeviceMatch:
        """How it would be to come now."""
        caller = Anonymous(**{**self.said, **said})
        look = devices.fingerprint(self.ports, caller, client)
        async with self.ports.storage.transaction(by=caller) as tx:
            await tx.accounts.lock(self.account.id)
            return await devices.match_device(tx, self.account.id, look, org, self.clock.now())

    async def fail(self, times: int = 1) -> None:
        self.clock.advance(MICROSECOND)  # what counts is what came after the last success
        async with self.ports.storage.autocommit() as count:
            for _ in range(times):
                await count.logins.record_failure(self.account.id, "password", self.clock.now(), None, None)

    async def devices(self) -> list[Device]:
        async with self.ports.storage.reading() as read:
            seen = await read.devices.of_user(self.account.id, self.account.id, None, self.clock.now(), None, 100)
        return [one.device for one in seen]


def is_new(arrival: DeviceMatch) -> bool:
    return "new_device" in arrival.device.risk.factors


@pytest.fixture
async def ada(ports: Ports, pool: Pool, clock: FakeClock) -> Visitor:
    return Visitor(ports, pool, clock, await add_account(ports, password=None))


# Which device it is


async def test_a_new_device_is_kept_as_it_came(ada: Visitor, clock: FakeClock, geoip: FakeGeoIp) -> None:
    geoip.known["203.0.113.9"] = LISBON
    arrival, token = await ada.come()
    assert (is_new(arrival), arrival.is_trusted, token) == (True, False, None)
    assert arrival.device.location == LISBON
    [kept] = await ada.devices()
    assert kept == arrival.device
    assert (kept.name, kept.device_type, kept.client_hash) == ("Firefox on Linux", DeviceType.BROWSER, None)
    assert (kept.browser, kept.browser_version, kept.os, kept.os_version) == ("Firefox", "121.0", "Linux", None)
    assert (kept.last_ip, kept.location, kept.risk) == ("203.0.113.9", LISBON, arrival.device.risk)
    assert kept.created_at == kept.last_used_at == kept.updated_at == clock.now()
    assert (kept.mfa_at, kept.trust_hash, kept.trust_expires_at, kept.revoked_at) == (None, None, None, None)


async def test_asking_alone_keeps_nothing(ada: Visitor) -> None:
    assert is_new(await ada.look())
    assert await ada.devices() == []


async def test_a_device_that_comes_again_is_the_same_one_with_what_it_says_now(ada: Visitor, clock: FakeClock, geoip: FakeGeoIp) -> None:
    first, _ = await ada.come()
    clock.advance(HOUR)
    geoip.known["198.51.100.1"] = OSLO
    again, _ = await ada.come(agent=NEWER_FIREFOX, address="198.51.100.1")
    assert (is_new(again), again.device.id, again.device.location) == (False, first.device.id, OSLO)
    [kept] = await ada.devices()
    assert kept == again.device
    assert (kept.browser_version, kept.last_ip, kept.location, kept.risk) == ("122.0", "198.51.100.1", OSLO, again.device.risk)
    assert (kept.created_at, kept.last_used_at) == (first.device.created_at, clock.now())


async def test_another_browser_system_or_kind_is_another_device(ada: Visitor) -> None:
    for client, agent in (
        (SILENT, FIREFOX),
        (SILENT, CHROME),
        (SILENT, IPHONE),
        (PresentedDevice(device_type=DeviceType.DESKTOP), FIREFOX),
        (SILENT, None),
    ):
        assert is_new((await ada.come(client, agent=agent))[0])
        assert not is_new((await ada.come(client, agent=agent))[0])
    assert {(one.name, one.device_type.value) for one in await ada.devices()} == {
        ("Firefox on Linux", "browser"),
        ("Chrome on Linux", "browser"),
        ("Mobile Safari on iOS", "mobile"),
        ("Firefox on Linux", "desktop"),
        ("Unknown browser on unknown system", "browser"),
    }


async def test_an_id_tells_devices_apart_that_say_the_same(ada: Visitor) -> None:
    home, work = PresentedDevice(device_id="a" * 200), PresentedDevice(device_id="b")
    assert is_new((await ada.come())[0])
    for client in (home, work):
        assert is_new((await ada.come(client))[0])
        again, _ = await ada.come(client, agent=CHROME)
        assert not is_new(again)
        assert again.device.name == "Firefox on Linux", "a device keeps its name"
    assert len(await ada.devices()) == 3


@pytest.mark.parametrize("device_id", ["", "a" * 201])
async def test_an_id_of_no_use_is_as_none(ada: Visitor, device_id: str) -> None:
    first, _ = await ada.come()
    assert (await ada.look(PresentedDevice(device_id=device_id))).device.id == first.device.id


async def test_the_same_id_with_two_people_is_two_devices(ada: Visitor) -> None:
    eve = Visitor(ada.ports, ada.pool, ada.clock, await add_account(ada.ports, "eve@example.com", None))
    client = PresentedDevice(device_id="shared")
    assert (await ada.come(client))[0].device.id != (await eve.come(client))[0].device.id


async def test_who_signs_in_may_say_what_the_device_is_called_and_what_it_is(ada: Visitor) -> None:
    named, _ = await ada.come(PresentedDevice(device_id="a", name="Laptop", device_type=DeviceType.CLI))
    assert (named.device.name, named.device.device_type) == ("Laptop", DeviceType.CLI)
    again, _ = await ada.come(PresentedDevice(device_id="a"))
    assert (again.device.name, again.device.device_type) == ("Laptop", DeviceType.CLI), "a guess is no better than what was told"
    renamed, _ = await ada.come(PresentedDevice(device_id="a", name="Old laptop", device_type=DeviceType.DESKTOP))
    assert (
        [(one.name, one.device_type) for one in await ada.devices()]
        == [("Old laptop", DeviceType.DESKTOP)]
        == [(renamed.device.name, renamed.device.device_type)]
    )


async def test_the_name_of_a_new_device_is_100_characters_at_most(ada: Visitor) -> None:
    arrival, _ = await ada.come(agent="bot " * 120)
    assert 0 < len(arrival.device.name) <= 100


async def test_a_revoked_device_comes_back_as_a_new_one(ada: Visitor, clock: FakeClock) -> None:
    client = PresentedDevice(device_id="a")
    first, token = await ada.come(client, second_factor=True, trust=True)
    async with ada.ports.storage.transaction(by=Anonymous()) as tx:
        await tx.devices.revoke(ada.account.id, first.device.id, clock.now())
    again, _ = await ada.come(PresentedDevice(device_id="a", token=token))
    assert (is_new(again), again.is_trusted) == (True, False)
    assert again.device.id != first.device.id


@pytest.mark.slow
@pytest.mark.parametrize("client", [PresentedDevice(device_id="a"), SILENT], ids=["with an id", "without"])
async def test_first_logins_at_once_from_one_device_make_one_device(ada: Visitor, client: PresentedDevice) -> None:
    arrivals = await everyone(20, lambda _: ada.come(client))
    assert sorted(is_new(arrival) for arrival, _ in arrivals) == [False] * 19 + [True]
    assert len(await ada.devices()) == 1


# Whether it is trusted


async def test_a_device_is_trusted_by_its_token_after_the_second_factor_was_shown(ada: Visitor, clock: FakeClock) -> None:
    _, token = await ada.come(second_factor=True, trust=True)
    assert token is not None
    assert len(token) == 43, "256 bits"
    [kept] = await ada.devices()
    assert (kept.mfa_at, kept.trust_expires_at) == (clock.now(), clock.now() + 90 * DAY)
    assert token.encode() not in (kept.trust_hash or b"")
    arrival, another = await ada.come(PresentedDevice(token=token))
    assert (arrival.is_trusted, is_new(arrival), another) == (True, False, None)
    for other in (
        SILENT,
        PresentedDevice(token="x" * 43),
        PresentedDevice(token=token[:-1]),
        PresentedDevice(token=token + "x"),
        PresentedDevice(token=""),
    ):
        assert not (await ada.look(other)).is_trusted
    assert (await ada.look(PresentedDevice(token=token, device_id="another"), agent=CHROME)).is_trusted, (
        "the token alone says which device it is"
    )


@pytest.mark.parametrize(("second_factor", "trust"), [(False, False), (True, False), (False, True)])
async def test_there_is_no_token_without_both_the_second_factor_and_the_wish(ada: Visitor, second_factor: bool, trust: bool) -> None:
    assert (await ada.come(second_factor=second_factor, trust=trust))[1] is None
    [kept] = await ada.devices()
    assert kept.trust_hash is None
    assert (kept.mfa_at is not None) is second_factor


async def test_trust_is_of_one_account(ada: Visitor) -> None:
    _, token = await ada.come(second_factor=True, trust=True)
    eve = Visitor(ada.ports, ada.pool, ada.clock, await add_account(ada.ports, "eve@example.com", None))
    arrival, _ = await eve.come(PresentedDevice(token=token))
    assert (is_new(arrival), arrival.is_trusted) == (True, False)


async def test_a_new_token_takes_the_place_of_the_old_one(ada: Visitor) -> None:
    _, old = await ada.come(second_factor=True, trust=True)
    _, new = await ada.come(PresentedDevice(token=old), second_factor=True, trust=True)
    assert old != new
    assert not (await ada.look(PresentedDevice(token=old))).is_trusted
    assert (await ada.look(PresentedDevice(token=new))).is_trusted


async def test_trust_lasts_30_days_from_the_last_second_factor_and_the_token_90_from_when_it_was_given(
    ada: Visitor, clock: FakeClock
) -> None:
    _, token = await ada.come(second_factor=True, trust=True)
    client = PresentedDevice(token=token)
    clock.advance(30 * DAY - MICROSECOND)
    assert (await ada.look(client)).is_trusted
    clock.advance(MICROSECOND)
    assert not (await ada.look(client)).is_trusted
    assert not is_new(await ada.look(client)), "it is known still"
    for _ in range(2):
        await ada.come(client, second_factor=True)
        assert (await ada.look(client)).is_trusted, "the second factor was shown again"
        clock.advance(30 * DAY - MICROSECOND)
        assert (await ada.look(client)).is_trusted
        clock.advance(MICROSECOND)
    await ada.come(client, second_factor=True)
    assert not (await ada.look(client)).is_trusted, "the token is 90 days old"


async def test_a_sign_in_without_the_second_factor_extends_nothing(ada: Visitor, clock: FakeClock) -> None:
    _, token = await ada.come(second_factor=True, trust=True)
    clock.advance(29 * DAY)
    assert (await ada.come(PresentedDevice(token=token)))[0].is_trusted
    clock.advance(DAY)
    assert not (await ada.look(PresentedDevice(token=token))).is_trusted


async def test_the_shortest_period_of_the_persons_organizations_holds(
    ada: Visitor, clock: FakeClock, pool: Pool, acme: UUID, twin: UUID
) -> None:
    await run_sql(pool, "update organizations set device_trust_days = case slug when 'acme' then 5 else 60 end")
    _, token = await ada.come(second_factor=True, trust=True)
    client = PresentedDevice(token=token)
    clock.advance(5 * DAY)
    assert (await ada.look(client)).is_trusted
    assert (await ada.look(client, twin)).is_trusted
    assert not (await ada.look(client, acme)).is_trusted, "it asks for this of whoever signs in to its services"
    clock.advance(26 * DAY)
    assert not (await ada.look(client)).is_trusted
    assert (await ada.look(client, twin)).is_trusted
    await add_member(pool, twin, ada.account.id, confirmed=True)
    assert (await ada.look(client)).is_trusted
    await add_member(pool, acme, ada.account.id, confirmed=True)
    assert not (await ada.look(client)).is_trusted


async def test_trust_counts_for_nothing_when_the_risk_is_high(ada: Visitor, geoip: FakeGeoIp) -> None:
    _, token = await ada.come(second_factor=True, trust=True)
    client = PresentedDevice(token=token)
    await ada.fail(3)
    assert (await ada.look(client)).is_trusted
    assert (await ada.look(client)).device.risk.score == 60
    await ada.fail()
    assert (await ada.look(client)).device.risk.score == 80
    assert not (await ada.look(client)).is_trusted
    await ada.come(client, second_factor=True)
    assert (await ada.look(client)).is_trusted, "after a success the failures are forgotten"


# How unusual it is


async def test_the_first_login_comes_from_a_new_device_and_an_unknown_place(ada: Visitor, geoip: FakeGeoIp) -> None:
    assert (await ada.look()).device.risk.factors == ("new_device",)
    geoip.known["203.0.113.9"] = LISBON
    arrival, _ = await ada.come()
    assert (arrival.device.risk.score, arrival.device.risk.factors) == (50, ("new_device", "unknown_location"))
    again, _ = await ada.come()
    assert (again.device.risk.score, again.device.risk.factors) == (0, ())


async def test_another_city_is_unknown_until_somebody_was_there(ada: Visitor, geoip: FakeGeoIp) -> None:
    geoip.known.update({"203.0.113.9": LISBON, "198.51.100.1": OSLO, "198.51.100.2": Location("Oslo", "NO")})
    await ada.come()
    for address in ("198.51.100.1", "198.51.100.2"):
        assert (await ada.come(address=address))[0].device.risk.factors == ("unknown_location",)
        assert (await ada.come(address=address))[0].device.risk.factors == ()
    assert (await ada.look(address="192.0.2.1")).device.risk.factors == (), "nobody knows where that is"


async def test_an_hour_is_unusual_after_ten_logins_at_others(ada: Visitor, clock: FakeClock) -> None:
    for _ in range(9):
        await ada.come()
    clock.advance(timedelta(hours=3))
    assert (await ada.look()).device.risk.factors == ()
    clock.advance(-timedelta(hours=3))
    await ada.come()
    assert (await ada.look()).device.risk.factors == ()
    clock.advance(timedelta(hours=3))
    arrival, _ = await ada.come()
    assert (arrival.device.risk.score, arrival.device.risk.factors) == (10, ("unusual_time",))
    assert (await ada.look()).device.risk.factors == ()


async def test_failed_attempts_add_up_to_the_most_there_is(ada: Visitor) -> None:
    await ada.come()
    scores = []
    for _ in range(7):
        await ada.fail()
        scores.append((await ada.look()).device.risk.score)
    assert scores == [20, 40, 60, 80, 100, 100, 100]


async def test_the_record_of_a_login_has_its_risk_and_its_place(ada: Visitor, geoip: FakeGeoIp, pool: Pool) -> None:
    geoip.known["203.0.113.9"] = LISBON
    await ada.come()
    assert await run_sql(pool, "select risk_score, risk_factors, city, country from login_events") == [
        (50, ["new_device", "unknown_location"], "Lisbon", "PT")
    ]
