"""Every statement about devices: each field, order and condition, and that other devices do not change.

The module is longer than 400 lines, because its tests share fixtures and helpers.
"""

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.conninfo import make_conninfo

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.accounts.attempt_limits_rules import AttemptLimit, SecretKind
from core.accounts.devices_rules import Device, DeviceFingerprint, DeviceType, KnownDevice, Location, ParsedUserAgent
from core.accounts.risk import LoginHistory, LoginRisk
from core.kernel.principals import SYSTEM
from core.kernel.values import Email, digest
from tests.fakes.outside import FakeClock
from tests.support.builders import add_member, make_device, make_vault, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, MICROSECOND, NOW, SECOND, account, add, begin, within

LISBON, PORTO, PORTUGAL, OSLO = Location("Lisbon", "PT"), Location("Porto", "PT"), Location(None, "PT"), Location("Oslo", "NO")
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def user(storage: Postgres) -> UUID:
    return (await add(storage, account())).id


@pytest.fixture
async def eve(storage: Postgres) -> UUID:
    return (await add(storage, account(EVE))).id


def device(user: UUID, **changes: Any) -> Device:
    return make_device(user, NOW - DAY, **{"last_used_at": NOW - HOUR, **changes})


def full(user: UUID, **changes: Any) -> Device:
    """Return a device with a value in every column."""
    return device(
        user,
        **{
            "client_hash": digest("client"),
            "name": "My phone",
            "device_type": DeviceType.MOBILE,
            "browser": "Mobile Safari",
            "browser_version": "17.1",
            "os": "iOS",
            "os_version": "17.2",
            "last_used_at": NOW - MINUTE,
            "last_ip": "203.0.113.9",
            "location": LISBON,
            "risk": LoginRisk(50, ("new_device", "unknown_location")),
            "mfa_at": NOW - 2 * MINUTE,
            "trust_hash": digest("trust"),
            "trust_expires_at": NOW + 3 * MINUTE,
            "created_at": NOW - 4 * MINUTE,
            "updated_at": NOW - 5 * MINUTE,
            **changes,
        },
    )


async def save(storage: Postgres, *devices: Device) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for one in devices:
            await tx.devices.save(one)


async def revoke(storage: Postgres, one: Device) -> None:
    await within(storage, lambda tx: tx.devices.revoke(one.user_id, one.id, NOW))


async def stored(storage: Postgres, one: Device) -> Device | None:
    async with storage.reading() as read:
        listed_device = await read.devices.by_id(one.id, uuid4(), None, NOW)
    return None if listed_device is None else listed_device.device


async def listed(storage: Postgres, user: UUID, session: UUID | None = None, org: UUID | None = None, now: datetime = NOW) -> list[Any]:
    async with storage.reading() as read:
        return await read.devices.of_user(user, session or uuid4(), org, now, None, 100)


# Saving


async def test_every_field_of_a_device_is_stored_and_comes_back(storage: Postgres, user: UUID) -> None:
    rich, bare = full(user), device(user, location=PORTUGAL)
    await save(storage, rich, bare)
    assert await stored(storage, rich) == rich
    assert await stored(storage, bare) == bare
    assert [listed_device.device for listed_device in await listed(storage, user)] == [rich, bare]


async def test_saving_updates_all_but_the_owner_the_client_and_the_creation_time(storage: Postgres, user: UUID, eve: UUID) -> None:
    bare, rich = device(user), full(user, client_hash=digest("other"), trust_hash=digest("another"))
    others = device(user), device(eve)
    await save(storage, bare, *others)
    await save(storage, replace(rich, id=bare.id))
    assert await stored(storage, bare) == replace(rich, id=bare.id, client_hash=None, created_at=bare.created_at)
    for one in others:
        assert await stored(storage, one) == one


async def test_devices_of_other_users_and_revoked_ones_are_not_saved(storage: Postgres, user: UUID, eve: UUID) -> None:
    one, gone = device(user), device(user)
    await save(storage, one, gone)
    await revoke(storage, gone)
    await save(storage, replace(one, user_id=eve, name="Eve's"), replace(gone, name="Back", trust_hash=digest("x"), trust_expires_at=NOW))
    assert await stored(storage, one) == one
    assert await stored(storage, gone) == replace(gone, revoked_at=NOW, updated_at=NOW)


# Matching


def fingerprint(
    token: str | None = None,
    client: str | None = None,
    location: Location | None = None,
    browser: str = "Firefox",
    os: str = "Linux",
    device_type: DeviceType = DeviceType.BROWSER,
) -> DeviceFingerprint:
    """Return the fingerprint of a device with these properties."""
    return DeviceFingerprint(
        trust_hash=None if token is None else digest(token),
        client_hash=None if client is None else digest(client),
        name=None,
        declared_type=None,
        user_agent=ParsedUserAgent(browser, None, os, None, device_type),
        address=None,
        location=location,
    )


async def find_match(
    storage: Postgres, user: UUID, token: str | None = None, client: str | None = None, org: UUID | None = None, **said: Any
) -> KnownDevice:
    return await within(storage, lambda tx: tx.devices.find_match(user, fingerprint(token, client, **said), org, NOW))


async def test_the_trust_token_matches_before_the_client_id(storage: Postgres, user: UUID) -> None:
    trusted, known = full(user, last_used_at=NOW - DAY), full(user, client_hash=digest("known"), trust_hash=None, trust_expires_at=None)
    await save(storage, trusted, known, device(user))
    assert (await find_match(storage, user, "trust", "known")).device == trusted
    assert (await find_match(storage, user, "trust")).device == trusted
    assert (await find_match(storage, user, "other", "known")).device == known
    assert (await find_match(storage, user, client="known", browser="Chrome", os="Windows")).device == known


async def test_a_client_with_an_id_does_not_match_by_its_user_agent(storage: Postgres, user: UUID) -> None:
    await save(storage, device(user))
    assert (await find_match(storage, user, client="unknown")).device is None


async def test_a_client_without_an_id_matches_by_browser_system_and_type(storage: Postgres, user: UUID) -> None:
    one = device(user, browser_version="121.0", os_version="6.1")
    # A device with a client id does not match by its User-Agent header, which any client can send.
    await save(storage, one, device(user, client_hash=digest("client"), last_used_at=NOW))
    assert (await find_match(storage, user)).device == one
    for other in ({"browser": "Chrome"}, {"os": "Windows"}, {"device_type": DeviceType.DESKTOP}):
        assert (await find_match(storage, user, **other)).device is None


async def test_of_several_equal_devices_the_most_recently_used_matches(storage: Postgres, user: UUID) -> None:
    latest = device(user, last_used_at=NOW - SECOND)
    await save(storage, device(user, last_used_at=NOW - DAY), latest, device(user, last_used_at=NOW - HOUR))
    assert (await find_match(storage, user)).device == latest


async def test_revoked_devices_and_those_of_other_users_do_not_match(storage: Postgres, user: UUID, eve: UUID) -> None:
    other_users, gone = full(eve), full(user, client_hash=digest("gone"), trust_hash=digest("gone"))
    await save(storage, other_users, device(eve), gone)
    await revoke(storage, gone)
    for token, client in (("trust", None), (None, "client"), ("gone", None), (None, "gone"), (None, None)):
        assert (await find_match(storage, user, token, client)).device is None
    back = full(user, client_hash=digest("gone"), trust_hash=digest("new"))
    await save(storage, back)
    assert (await find_match(storage, user, client="gone")).device == back, "the client of a revoked device gets a new device"


async def test_the_trust_period_is_the_shortest_of_the_organizations(
    storage: Postgres, pool: Pool, user: UUID, eve: UUID, acme: UUID, other_tenant: UUID
) -> None:
    one = full(user, mfa_at=NOW, trust_expires_at=NOW + 90 * DAY)
    await save(storage, one)

    async def period(org: UUID | None = None) -> int:
        days = (await find_match(storage, user, org=org)).trust_days
        # Lists use the same period.
        for when, remembered in ((NOW + days * DAY - MICROSECOND, True), (NOW + days * DAY, False)):
            [listed_device] = await listed(storage, user, org=org, now=when)
            async with storage.reading() as read:
                assert await read.devices.by_id(one.id, uuid4(), org, when) == listed_device
            assert listed_device.trusted is remembered
        return days

    async def set_days(org: UUID, days: int) -> None:
        await run_sql(pool, "update organizations set device_trust_days = %s where id = %s", days, org)

    await set_days(acme, 7)
    await set_days(other_tenant, 60)
    assert await period() == 30
    assert await period(acme) == 7
    assert await period(other_tenant) == 60
    await add_member(pool, acme, eve, confirmed=True)
    await add_member(pool, acme, user)
    assert await period() == 30, "an unconfirmed membership does not count (security R-5)"
    await add_member(pool, other_tenant, user, confirmed=True)
    assert await period() == 60
    assert await period(acme) == 7
    await run_sql(pool, "update memberships set confirmed_at = now()")
    assert await period() == 7
    assert await period(other_tenant) == 7


# Reading


async def test_a_list_has_the_users_active_devices_the_most_recently_used_first(storage: Postgres, user: UUID, eve: UUID) -> None:
    ids = sorted(uuid4() for _ in range(2))
    first, second, third = device(user, last_used_at=NOW), device(user, id=ids[1]), device(user, id=ids[0])
    gone = device(user)
    await save(storage, third, gone, first, second, device(eve))
    await revoke(storage, gone)
    listed_device = await listed(storage, user)
    assert [one.device for one in listed_device] == [first, second, third]
    async with storage.reading() as read:
        session = uuid4()
        assert await read.devices.of_user(user, session, None, NOW, None, 2) == listed_device[:2]
        for position, one in enumerate(listed_device):
            assert await read.devices.of_user(user, session, None, NOW, one.device, 100) == listed_device[position + 1 :]
        assert await read.devices.of_user(uuid4(), session, None, NOW, None, 100) == []


async def test_the_current_device_is_that_of_the_session(storage: Postgres, user: UUID) -> None:
    one, other = device(user, last_used_at=NOW), device(user)
    await save(storage, one, other)
    without = await begin(storage, user, "a")
    with_other = await begin(storage, user, "b", device_id=other.id)
    for session, current in ((without.id, [False, False]), (with_other.id, [False, True]), (uuid4(), [False, False])):
        assert [listed_device.is_current for listed_device in await listed(storage, user, session)] == current
        async with storage.reading() as read:
            for which, expected in zip((one, other), current, strict=True):
                listed_device = await read.devices.by_id(which.id, session, None, NOW)
                assert listed_device is not None
                assert listed_device.is_current is expected


async def test_devices_of_all_users_are_found_by_id_revoked_or_not(storage: Postgres, user: UUID, eve: UUID) -> None:
    one, other_users = device(user), full(eve)
    await save(storage, one, other_users)
    await revoke(storage, other_users)
    assert await stored(storage, one) == one
    stored_device = await stored(storage, other_users)
    assert stored_device is not None
    assert (stored_device.user_id, stored_device.revoked_at) == (eve, NOW)
    assert await stored(storage, device(user)) is None


async def test_password_attempts_from_a_trusted_device_are_counted_for_the_device(storage: Postgres, user: UUID, eve: UUID) -> None:
    one, other_users, gone = full(user), full(eve, trust_hash=digest("hers")), full(user, client_hash=None, trust_hash=digest("gone"))
    await save(storage, one, other_users, gone)
    await revoke(storage, gone)

    async def counted(address: Email, token: str | None, at: datetime = NOW) -> tuple[UUID | None, SecretKind, bytes]:
        async with storage.autocommit() as count:
            attempt = await count.attempt_limits.count_password_attempt(
                address, None if token is None else digest(token), AttemptLimit(100, DAY), at
            )
        assert attempt.blocked_until is None
        return (None if attempt.account is None else attempt.account.id), attempt.secret, attempt.subject

    at_the_device, at_the_account = (SecretKind.PASSWORD_ON_TRUSTED_DEVICE, digest("trust")), (SecretKind.PASSWORD, digest(ADA))
    assert await counted(ADA, "trust") == (user, *at_the_device)
    assert await counted(ADA, "trust", NOW + 3 * MINUTE - MICROSECOND) == (user, *at_the_device)
    assert await counted(ADA, "trust", NOW + 3 * MINUTE) == (user, *at_the_account)
    for token in ("hers", "gone", "unknown", "", None):
        assert await counted(ADA, token) == (user, *at_the_account)
    assert await counted(EVE, "trust") == (eve, SecretKind.PASSWORD, digest(EVE))
    unknown = Email("nobody@example.com")
    assert await counted(unknown, "trust") == (None, SecretKind.PASSWORD, digest(unknown))


# Changes


UNTRUSTED: dict[str, Any] = {"trust_hash": None, "trust_expires_at": None, "mfa_at": None}


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (lambda tx, user, id_: tx.devices.rename(user, id_, "Work", NOW), {"name": "Work", "updated_at": NOW}),
        (lambda tx, user, id_: tx.devices.revoke(user, id_, NOW), {"revoked_at": NOW, "updated_at": NOW, **UNTRUSTED}),
    ],
    ids=["rename", "revoke"],
)
async def test_a_change_affects_one_device_of_one_user(
    storage: Postgres, user: UUID, eve: UUID, change: Callable[..., Any], changed: dict[str, Any]
) -> None:
    one, second, other_users = full(user), device(user), device(eve)
    await save(storage, one, second, other_users)
    await within(storage, lambda tx: change(tx, eve, one.id))
    assert await stored(storage, one) == one, "the device belongs to another user"
    await within(storage, lambda tx: change(tx, user, one.id))
    assert await stored(storage, one) == replace(one, **changed)
    for other in (second, other_users):
        assert await stored(storage, other) == other


async def test_a_revoked_device_does_not_change(storage: Postgres, user: UUID) -> None:
    one = full(user)
    await save(storage, one)
    await revoke(storage, one)
    revoked = await stored(storage, one)
    await within(storage, lambda tx: tx.devices.rename(user, one.id, "Work", NOW + HOUR))
    await within(storage, lambda tx: tx.devices.revoke(user, one.id, NOW + HOUR))
    assert await stored(storage, one) == revoked


async def test_distrusting_ends_the_trust_of_all_devices_of_the_user(storage: Postgres, user: UUID, eve: UUID) -> None:
    trusted, shown, plain = full(user), device(user, mfa_at=NOW), device(user)
    other_users = full(eve, trust_hash=digest("hers"))
    await save(storage, trusted, shown, plain, other_users)
    await within(storage, lambda tx: tx.devices.distrust(user, NOW))
    assert await stored(storage, trusted) == replace(trusted, updated_at=NOW, **UNTRUSTED)
    assert await stored(storage, shown) == replace(shown, updated_at=NOW, **UNTRUSTED)
    assert await stored(storage, plain) == plain
    assert await stored(storage, other_users) == other_users


# Client ids and earlier logins


async def test_a_device_is_found_by_its_client_id(storage: Postgres, user: UUID, eve: UUID) -> None:
    one, other, other_users, gone = full(user), full(user), full(eve), full(user)
    client, others, gones = digest("client"), digest("another"), digest("gone")
    other, other_users, gone = [
        replace(kept, client_hash=hash_, trust_hash=None, trust_expires_at=None)
        for kept, hash_ in ((other, others), (other_users, client), (gone, gones))
    ]
    await save(storage, one, other, other_users, gone, device(user))
    await revoke(storage, gone)
    for target, hash_, expected in (
        (user, client, one),
        (eve, client, other_users),
        (eve, others, None),
        (user, gones, None),
        (user, b"", None),
    ):
        assert await within(storage, lambda tx, target=target, hash_=hash_: tx.devices.by_client(target, hash_)) == expected  # type: ignore[misc]


async def record(pool: Pool, user: UUID, at: datetime, *, success: bool = True, location: Location | None = None) -> None:
    await run_sql(
        pool,
        "insert into login_events (id, user_id, provider, success, created_at, city, country) values (%s, %s, 'password', %s, %s, %s, %s)",
        uuid4(),
        user,
        success,
        at,
        location.city if location else None,
        location.country if location else None,
    )


async def history(storage: Postgres, user: UUID, location: Location | None = None, now: datetime = NOW) -> LoginHistory:
    return (await within(storage, lambda tx: tx.devices.find_match(user, fingerprint(location=location), None, now))).history


NOTHING = LoginHistory(failures=0, logins=0, at_this_hour=False, known_location=False)


async def test_a_user_without_logins_has_no_history(storage: Postgres, pool: Pool, user: UUID, eve: UUID) -> None:
    await record(pool, eve, NOW - HOUR, location=LISBON)
    await record(pool, eve, NOW - SECOND, success=False)
    assert await history(storage, user, LISBON) == NOTHING
    assert await history(storage, user) == NOTHING


async def test_failures_count_since_the_last_success_within_24_hours(storage: Postgres, pool: Pool, user: UUID) -> None:
    async def failures() -> int:
        return (await history(storage, user)).failures

    for at in (NOW - DAY, NOW - DAY + MICROSECOND, NOW - HOUR):
        await record(pool, user, at, success=False)
    assert await failures() == 2, "the first one is older than 24 hours"
    await record(pool, user, NOW - 2 * HOUR)
    assert await failures() == 1
    await record(pool, user, NOW - 3 * HOUR)
    assert await failures() == 1, "only the last success counts"
    await record(pool, user, NOW - MINUTE)
    assert await failures() == 0
    for _ in range(7):
        await record(pool, user, NOW - SECOND, success=False)
    assert await failures() == 5, "further failures are not counted"


async def test_successful_logins_of_30_days_are_counted(storage: Postgres, pool: Pool, user: UUID) -> None:
    await record(pool, user, NOW - 30 * DAY)
    await record(pool, user, NOW - DAY, success=False)
    assert await history(storage, user) == NOTHING
    await record(pool, user, NOW - 30 * DAY + MICROSECOND)
    assert await history(storage, user) == replace(NOTHING, logins=1, at_this_hour=True)
    for _ in range(12):
        await record(pool, user, NOW - 2 * DAY)
    assert (await history(storage, user)).logins == 10, "further logins are not counted"


@pytest.mark.parametrize(
    ("minutes", "same"),
    [(-10, False), (-9, True), (0, True), (50, True), (51, False), (12 * 60, False)],
)
async def test_hours_are_in_utc_in_any_time_zone_of_the_database(
    conninfo: str, clock: FakeClock, user: UUID, minutes: int, same: bool
) -> None:
    nepal = make_conninfo(conninfo, options="-c TimeZone=Asia/Kathmandu")  # UTC+5:45
    async with aclosing(Pool(nepal, size=1)) as pool:
        storage = Postgres(pool, make_vault(), clock)
        await record(pool, user, NOW - 3 * DAY + minutes * MINUTE)  # NOW is 9 minutes and 26 seconds past the hour
        assert (await history(storage, user)).at_this_hour is same
        assert (await history(storage, user, now=NOW + DAY)).at_this_hour is same


async def test_a_location_is_known_after_a_successful_login_there(storage: Postgres, pool: Pool, user: UUID, eve: UUID) -> None:
    async def is_known(location: Location | None) -> bool:
        return (await history(storage, user, location)).known_location

    await record(pool, user, NOW - 3000 * DAY, location=LISBON)
    await record(pool, user, NOW - HOUR, location=OSLO, success=False)
    await record(pool, eve, NOW - HOUR, location=PORTO)
    await record(pool, user, NOW - HOUR)
    assert await is_known(LISBON)
    for other in (OSLO, PORTO, PORTUGAL, Location("Lisbon", "US"), None):
        assert not await is_known(other), other
    await record(pool, user, NOW - HOUR, location=PORTUGAL)
    assert await is_known(PORTUGAL)
    assert not await is_known(PORTO)
