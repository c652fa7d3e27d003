"""Every statement about devices: each field, each order, each condition, and that it touches nobody else's."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.engine.storage import Postgres
from core.accounts.attempt_limits_rules import AttemptLimit, SecretKind
from core.accounts.devices_rules import Device, DeviceFingerprint, DeviceType, KnownDevice, Location, ParsedUserAgent
from core.accounts.risk import LoginHistory, LoginRisk
from core.kernel.principals import SYSTEM
from core.kernel.values import Email, digest
from tests.support.builders import add_member, make_device, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, MICROSECOND, NOW, SECOND, account, add, begin, within

LISBON, PORTO, PORTUGAL, OSLO = Location("Lisbon", "PT"), Location("Porto", "PT"), Location(None, "PT"), Location("Oslo", "NO")
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def ada(storage: Postgres) -> UUID:
    return (await add(storage, account())).id


@pytest.fixture
async def eve(storage: Postgres) -> UUID:
    return (await add(storage, account(EVE))).id


def device(user: UUID, **changes: Any) -> Device:
    return make_device(user, NOW - DAY, **{"last_used_at": NOW - HOUR, **changes})


def full(user: UUID, **changes: Any) -> Device:
    """One with something to lose in every column."""
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


async def keep(storage: Postgres, *devices: Device) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for one in devices:
            await tx.devices.save(one)


async def revoke(storage: Postgres, one: Device) -> None:
    await within(storage, lambda tx: tx.devices.revoke(one.user_id, one.id, NOW))


async def stored(storage: Postgres, one: Device) -> Device | None:
    async with storage.reading() as read:
        seen = await read.devices.by_id(one.id, uuid4(), None, NOW)
    return None if seen is None else seen.device


async def listed(storage: Postgres, user: UUID, session: UUID | None = None, org: UUID | None = None, now: datetime = NOW) -> list[Any]:
    async with storage.reading() as read:
        return await read.devices.of_user(user, session or uuid4(), org, now, None, 100)


# Keeping them


async def test_every_field_of_a_device_is_stored_and_comes_back(storage: Postgres, ada: UUID) -> None:
    rich, bare = full(ada), device(ada, location=PORTUGAL)
    await keep(storage, rich, bare)
    assert await stored(storage, rich) == rich
    assert await stored(storage, bare) == bare
    assert [seen.device for seen in await listed(storage, ada)] == [rich, bare]


async def test_what_is_kept_again_is_all_but_the_owner_the_client_and_the_first_time(storage: Postgres, ada: UUID, eve: UUID) -> None:
    bare, rich = device(ada), full(ada, client_hash=digest("other"), trust_hash=digest("another"))
    others = device(ada), device(eve)
    await keep(storage, bare, *others)
    await keep(storage, replace(rich, id=bare.id))
    assert await stored(storage, bare) == replace(rich, id=bare.id, client_hash=None, created_at=bare.created_at)
    for one in others:
        assert await stored(storage, one) == one


async def test_nobody_keeps_the_device_of_somebody_else_or_a_revoked_one(storage: Postgres, ada: UUID, eve: UUID) -> None:
    one, gone = device(ada), device(ada)
    await keep(storage, one, gone)
    await revoke(storage, gone)
    await keep(storage, replace(one, user_id=eve, name="Eve's"), replace(gone, name="Back", trust_hash=digest("x"), trust_expires_at=NOW))
    assert await stored(storage, one) == one
    assert await stored(storage, gone) == replace(gone, revoked_at=NOW, updated_at=NOW)


# Recognising them


def seen(
    token: str | None = None,
    client: str | None = None,
    location: Location | None = None,
    browser: str = "Firefox",
    os: str = "Linux",
    device_type: DeviceType = DeviceType.BROWSER,
) -> DeviceFingerprint:
    """What is seen of a device that shows this."""
    return DeviceFingerprint(
        trust_hash=None if token is None else digest(token),
        client_hash=None if client is None else digest(client),
        name=None,
        declared_type=None,
        user_agent=ParsedUserAgent(browser, None, os, None, device_type),
        address=None,
        location=location,
    )


async def recognised(
    storage: Postgres, user: UUID, token: str | None = None, client: str | None = None, org: UUID | None = None, **said: Any
) -> KnownDevice:
    return await within(storage, lambda tx: tx.devices.find_match(user, seen(token, client, **said), org, NOW))


async def test_a_device_is_recognised_by_its_trust_token_before_its_clients_id(storage: Postgres, ada: UUID) -> None:
    trusted, known = full(ada, last_used_at=NOW - DAY), full(ada, client_hash=digest("known"), trust_hash=None, trust_expires_at=None)
    await keep(storage, trusted, known, device(ada))
    assert (await recognised(storage, ada, "trust", "known")).device == trusted
    assert (await recognised(storage, ada, "trust")).device == trusted
    assert (await recognised(storage, ada, "other", "known")).device == known
    assert (await recognised(storage, ada, client="known", browser="Chrome", os="Windows")).device == known


async def test_a_client_with_an_id_is_recognised_by_nothing_else(storage: Postgres, ada: UUID) -> None:
    await keep(storage, device(ada))
    assert (await recognised(storage, ada, client="unknown")).device is None


async def test_without_an_id_a_device_is_recognised_by_what_it_says_of_itself(storage: Postgres, ada: UUID) -> None:
    one = device(ada, browser_version="121.0", os_version="6.1")
    # Anybody could say what these do, so their clients' ids are asked for.
    await keep(storage, one, device(ada, client_hash=digest("client"), last_used_at=NOW))
    assert (await recognised(storage, ada)).device == one
    for other in ({"browser": "Chrome"}, {"os": "Windows"}, {"device_type": DeviceType.DESKTOP}):
        assert (await recognised(storage, ada, **other)).device is None


async def test_of_several_that_say_the_same_it_is_the_one_that_was_used_last(storage: Postgres, ada: UUID) -> None:
    latest = device(ada, last_used_at=NOW - SECOND)
    await keep(storage, device(ada, last_used_at=NOW - DAY), latest, device(ada, last_used_at=NOW - HOUR))
    assert (await recognised(storage, ada)).device == latest


async def test_revoked_devices_and_those_of_others_are_not_recognised(storage: Postgres, ada: UUID, eve: UUID) -> None:
    hers, gone = full(eve), full(ada, client_hash=digest("gone"), trust_hash=digest("gone"))
    await keep(storage, hers, device(eve), gone)
    await revoke(storage, gone)
    for token, client in (("trust", None), (None, "client"), ("gone", None), (None, "gone"), (None, None)):
        assert (await recognised(storage, ada, token, client)).device is None
    back = full(ada, client_hash=digest("gone"), trust_hash=digest("new"))
    await keep(storage, back)
    assert (await recognised(storage, ada, client="gone")).device == back, "the client of a revoked device comes back as another one"


async def test_the_period_is_the_shortest_of_the_persons_organizations_and_that_of_the_service(
    storage: Postgres, pool: Pool, ada: UUID, eve: UUID, acme: UUID, twin: UUID
) -> None:
    one = full(ada, mfa_at=NOW, trust_expires_at=NOW + 90 * DAY)
    await keep(storage, one)

    async def period(org: UUID | None = None) -> int:
        days = (await recognised(storage, ada, org=org)).trust_days
        # The lists go by the same.
        for when, remembered in ((NOW + days * DAY - MICROSECOND, True), (NOW + days * DAY, False)):
            [seen] = await listed(storage, ada, org=org, now=when)
            async with storage.reading() as read:
                assert await read.devices.by_id(one.id, uuid4(), org, when) == seen
            assert seen.trusted is remembered
        return days

    async def set_days(org: UUID, days: int) -> None:
        await run_sql(pool, "update organizations set device_trust_days = %s where id = %s", days, org)

    await set_days(acme, 7)
    await set_days(twin, 60)
    assert await period() == 30
    assert await period(acme) == 7
    assert await period(twin) == 60
    await add_member(pool, acme, eve, confirmed=True)
    await add_member(pool, acme, ada)
    assert await period() == 30, "a membership that is not confirmed has no say (security.md R-5)"
    await add_member(pool, twin, ada, confirmed=True)
    assert await period() == 60
    assert await period(acme) == 7
    await run_sql(pool, "update memberships set confirmed_at = now()")
    assert await period() == 7
    assert await period(twin) == 7


# Looking at them


async def test_a_person_sees_their_own_that_are_not_revoked_the_one_that_was_used_last_first(
    storage: Postgres, ada: UUID, eve: UUID
) -> None:
    ids = sorted(uuid4() for _ in range(2))
    first, second, third = device(ada, last_used_at=NOW), device(ada, id=ids[1]), device(ada, id=ids[0])
    gone = device(ada)
    await keep(storage, third, gone, first, second, device(eve))
    await revoke(storage, gone)
    seen = await listed(storage, ada)
    assert [one.device for one in seen] == [first, second, third]
    async with storage.reading() as read:
        session = uuid4()
        assert await read.devices.of_user(ada, session, None, NOW, None, 2) == seen[:2]
        for location, one in enumerate(seen):
            assert await read.devices.of_user(ada, session, None, NOW, one.device, 100) == seen[location + 1 :]
        assert await read.devices.of_user(uuid4(), session, None, NOW, None, 100) == []


async def test_the_current_device_is_that_of_the_session(storage: Postgres, ada: UUID) -> None:
    one, other = device(ada, last_used_at=NOW), device(ada)
    await keep(storage, one, other)
    without = await begin(storage, ada, "a")
    with_other = await begin(storage, ada, "b", device_id=other.id)
    for session, current in ((without.id, [False, False]), (with_other.id, [False, True]), (uuid4(), [False, False])):
        assert [seen.is_current for seen in await listed(storage, ada, session)] == current
        async with storage.reading() as read:
            for which, expected in zip((one, other), current, strict=True):
                seen = await read.devices.by_id(which.id, session, None, NOW)
                assert seen is not None
                assert seen.is_current is expected


async def test_a_device_is_found_whosever_it_is_revoked_or_not(storage: Postgres, ada: UUID, eve: UUID) -> None:
    one, hers = device(ada), full(eve)
    await keep(storage, one, hers)
    await revoke(storage, hers)
    assert await stored(storage, one) == one
    found = await stored(storage, hers)
    assert found is not None
    assert (found.user_id, found.revoked_at) == (eve, NOW)
    assert await stored(storage, device(ada)) is None


async def test_a_guess_at_a_password_counts_at_the_device_that_its_account_trusts(storage: Postgres, ada: UUID, eve: UUID) -> None:
    one, hers, gone = full(ada), full(eve, trust_hash=digest("hers")), full(ada, client_hash=None, trust_hash=digest("gone"))
    await keep(storage, one, hers, gone)
    await revoke(storage, gone)

    async def counted(address: Email, token: str | None, at: datetime = NOW) -> tuple[UUID | None, SecretKind, bytes]:
        async with storage.autocommit() as count:
            guess = await count.attempt_limits.count_password_attempt(
                address, None if token is None else digest(token), AttemptLimit(100, DAY), at
            )
        assert guess.blocked_until is None
        return (None if guess.account is None else guess.account.id), guess.secret, guess.subject

    at_the_device, at_the_account = (SecretKind.PASSWORD_ON_TRUSTED_DEVICE, digest("trust")), (SecretKind.PASSWORD, digest(ADA))
    assert await counted(ADA, "trust") == (ada, *at_the_device)
    assert await counted(ADA, "trust", NOW + 3 * MINUTE - MICROSECOND) == (ada, *at_the_device)
    assert await counted(ADA, "trust", NOW + 3 * MINUTE) == (ada, *at_the_account)
    for token in ("hers", "gone", "unknown", "", None):
        assert await counted(ADA, token) == (ada, *at_the_account)
    assert await counted(EVE, "trust") == (eve, SecretKind.PASSWORD, digest(EVE))
    nobody = Email("nobody@example.com")
    assert await counted(nobody, "trust") == (None, SecretKind.PASSWORD, digest(nobody))


# Changing them


UNTRUSTED: dict[str, Any] = {"trust_hash": None, "trust_expires_at": None, "mfa_at": None}


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (lambda tx, user, id_: tx.devices.rename(user, id_, "Work", NOW), {"name": "Work", "updated_at": NOW}),
        (lambda tx, user, id_: tx.devices.revoke(user, id_, NOW), {"revoked_at": NOW, "updated_at": NOW, **UNTRUSTED}),
    ],
    ids=["rename", "revoke"],
)
async def test_a_change_is_one_devices_of_one_person(
    storage: Postgres, ada: UUID, eve: UUID, change: Callable[..., Any], changed: dict[str, Any]
) -> None:
    one, second, hers = full(ada), device(ada), device(eve)
    await keep(storage, one, second, hers)
    await within(storage, lambda tx: change(tx, eve, one.id))
    assert await stored(storage, one) == one, "it is not hers"
    await within(storage, lambda tx: change(tx, ada, one.id))
    assert await stored(storage, one) == replace(one, **changed)
    for other in (second, hers):
        assert await stored(storage, other) == other


async def test_a_revoked_device_stays_as_it_is(storage: Postgres, ada: UUID) -> None:
    one = full(ada)
    await keep(storage, one)
    await revoke(storage, one)
    revoked = await stored(storage, one)
    await within(storage, lambda tx: tx.devices.rename(ada, one.id, "Work", NOW + HOUR))
    await within(storage, lambda tx: tx.devices.revoke(ada, one.id, NOW + HOUR))
    assert await stored(storage, one) == revoked


async def test_all_device_trust_of_a_person_ends_at_once(storage: Postgres, ada: UUID, eve: UUID) -> None:
    trusted, shown, plain = full(ada), device(ada, mfa_at=NOW), device(ada)
    hers = full(eve, trust_hash=digest("hers"))
    await keep(storage, trusted, shown, plain, hers)
    await within(storage, lambda tx: tx.devices.distrust(ada, NOW))
    assert await stored(storage, trusted) == replace(trusted, updated_at=NOW, **UNTRUSTED)
    assert await stored(storage, shown) == replace(shown, updated_at=NOW, **UNTRUSTED)
    assert await stored(storage, plain) == plain
    assert await stored(storage, hers) == hers


# What earlier logins say


async def test_a_device_is_found_by_its_client(storage: Postgres, ada: UUID, eve: UUID) -> None:
    one, other, hers, gone = full(ada), full(ada), full(eve), full(ada)
    client, others, gones = digest("client"), digest("another"), digest("gone")
    other, hers, gone = [
        replace(kept, client_hash=hash_, trust_hash=None, trust_expires_at=None)
        for kept, hash_ in ((other, others), (hers, client), (gone, gones))
    ]
    await keep(storage, one, other, hers, gone, device(ada))
    await revoke(storage, gone)
    for user, hash_, found in ((ada, client, one), (eve, client, hers), (eve, others, None), (ada, gones, None), (ada, b"", None)):
        assert await within(storage, lambda tx, user=user, hash_=hash_: tx.devices.by_client(user, hash_)) == found  # type: ignore[misc]


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
    return (await within(storage, lambda tx: tx.devices.find_match(user, seen(location=location), None, now))).history


NOTHING = LoginHistory(failures=0, logins=0, at_this_hour=False, known_location=False)


async def test_who_never_signed_in_has_no_history(storage: Postgres, pool: Pool, ada: UUID, eve: UUID) -> None:
    await record(pool, eve, NOW - HOUR, location=LISBON)
    await record(pool, eve, NOW - SECOND, success=False)
    assert await history(storage, ada, LISBON) == NOTHING
    assert await history(storage, ada) == NOTHING


async def test_failures_count_since_the_last_success_within_24_hours(storage: Postgres, pool: Pool, ada: UUID) -> None:
    async def failures() -> int:
        return (await history(storage, ada)).failures

    for at in (NOW - DAY, NOW - DAY + MICROSECOND, NOW - HOUR):
        await record(pool, ada, at, success=False)
    assert await failures() == 2, "the first one was too long ago"
    await record(pool, ada, NOW - 2 * HOUR)
    assert await failures() == 1
    await record(pool, ada, NOW - 3 * HOUR)
    assert await failures() == 1, "it is the last success that counts"
    await record(pool, ada, NOW - MINUTE)
    assert await failures() == 0
    for _ in range(7):
        await record(pool, ada, NOW - SECOND, success=False)
    assert await failures() == 5, "more than that change nothing"


async def test_successes_of_the_last_30_days_make_a_habit(storage: Postgres, pool: Pool, ada: UUID) -> None:
    await record(pool, ada, NOW - 30 * DAY)
    await record(pool, ada, NOW - DAY, success=False)
    assert await history(storage, ada) == NOTHING
    await record(pool, ada, NOW - 30 * DAY + MICROSECOND)
    assert await history(storage, ada) == replace(NOTHING, logins=1, at_this_hour=True)
    for _ in range(12):
        await record(pool, ada, NOW - 2 * DAY)
    assert (await history(storage, ada)).logins == 10, "more than that change nothing"


@pytest.mark.parametrize(
    ("minutes", "same"),
    [(-10, False), (-9, True), (0, True), (50, True), (51, False), (12 * 60, False)],
)
async def test_an_hour_is_one_of_the_clock_in_utc_whatever_the_database_thinks(
    storage: Postgres, pool: Pool, ada: UUID, minutes: int, same: bool
) -> None:
    await run_sql(pool, "set timezone = 'Asia/Kathmandu'")  # five hours and three quarters ahead
    await record(pool, ada, NOW - 3 * DAY + minutes * MINUTE)  # NOW is 9 minutes and 26 seconds past
    assert (await history(storage, ada)).at_this_hour is same
    assert (await history(storage, ada, now=NOW + DAY)).at_this_hour is same
    await run_sql(pool, "reset timezone")


async def test_a_place_is_known_from_any_earlier_success_there(storage: Postgres, pool: Pool, ada: UUID, eve: UUID) -> None:
    async def been(location: Location | None) -> bool:
        return (await history(storage, ada, location)).known_location

    await record(pool, ada, NOW - 3000 * DAY, location=LISBON)
    await record(pool, ada, NOW - HOUR, location=OSLO, success=False)
    await record(pool, eve, NOW - HOUR, location=PORTO)
    await record(pool, ada, NOW - HOUR)
    assert await been(LISBON)
    for other in (OSLO, PORTO, PORTUGAL, Location("Lisbon", "US"), None):
        assert not await been(other), other
    await record(pool, ada, NOW - HOUR, location=PORTUGAL)
    assert await been(PORTUGAL)
    assert not await been(PORTO)
