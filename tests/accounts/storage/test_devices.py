"""Statements about devices: fields, order, conditions, and that other devices do not change."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

import pytest

from adapters.postgres.engine.pool import Pool
from adapters.postgres.storage import Postgres
from core.accounts.model.attempt_limits import AttemptLimit
from core.accounts.model.devices import Device, DeviceType, KnownBy, KnownDevice, LoginRisk
from core.kernel.causes import SYSTEM
from core.kernel.values import Email, digest
from tests.accounts.storage.locations import LISBON, MINUTE, PORTUGAL, find_device_of, fingerprint
from tests.support.builders import add_member, make_device, run_sql
from tests.support.rows import ADA, DAY, EVE, HOUR, MICROSECOND, NOW, SECOND, begin, within


def device(user: UUID, **changes: Any) -> Device:
    return make_device(user, NOW - DAY, **{"last_used_at": NOW - HOUR, **changes})


def full_device(user: UUID, **changes: Any) -> Device:
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


async def save_devices(storage: Postgres, *devices: Device) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for device in devices:
            await tx.devices.add(device)


async def update_devices(storage: Postgres, *devices: Device) -> None:
    async with storage.transaction(by=SYSTEM) as tx:
        for device in devices:
            await tx.devices.update(device)


async def revoke(storage: Postgres, device: Device) -> None:
    await within(storage, lambda tx: tx.devices.revoke(device.user_id, device.id, NOW))


async def find_device(storage: Postgres, device: Device) -> Device | None:
    async with storage.reading() as read:
        listed_device = await read.devices.by_id(device.id, uuid4(), None, NOW)
    return None if listed_device is None else listed_device.device


async def list_devices(
    storage: Postgres, user: UUID, session: UUID | None = None, org: UUID | None = None, now: datetime = NOW
) -> list[Any]:
    async with storage.reading() as read:
        return await read.devices.of_user(user, session or uuid4(), org, now, None, 100)


# Saving


async def test_every_field_of_a_device_is_stored_and_comes_back(storage: Postgres, user: UUID) -> None:
    rich, bare = full_device(user), device(user, location=PORTUGAL)
    await save_devices(storage, rich, bare)
    assert await find_device(storage, rich) == rich
    assert await find_device(storage, bare) == bare
    assert [listed_device.device for listed_device in await list_devices(storage, user)] == [rich, bare]


async def test_an_update_saves_all_but_the_owner_the_client_and_the_creation_time(storage: Postgres, user: UUID, eve: UUID) -> None:
    bare, rich = device(user), full_device(user, client_hash=digest("other"), trust_hash=digest("another"))
    other_devices = device(user), device(eve)
    await save_devices(storage, bare, *other_devices)
    await update_devices(storage, replace(rich, id=bare.id))
    assert await find_device(storage, bare) == replace(rich, id=bare.id, client_hash=None, created_at=bare.created_at)
    for other in other_devices:
        assert await find_device(storage, other) == other


async def test_devices_of_other_users_and_revoked_ones_are_not_updated(storage: Postgres, user: UUID, eve: UUID) -> None:
    one, revoked = device(user), device(user)
    await save_devices(storage, one, revoked)
    await revoke(storage, revoked)
    await update_devices(
        storage, replace(one, user_id=eve, name="Eve's"), replace(revoked, name="Back", trust_hash=digest("x"), trust_expires_at=NOW)
    )
    assert await find_device(storage, one) == one
    assert await find_device(storage, revoked) == replace(revoked, revoked_at=NOW, updated_at=NOW)


async def find_match(
    storage: Postgres, user: UUID, token: str | None = None, client: str | None = None, org: UUID | None = None, **description: Any
) -> KnownDevice:
    presented = fingerprint(token, client, **description)
    return await within(storage, lambda tx: find_device_of(tx, user, presented, org, NOW))


async def test_the_trust_token_matches_before_the_client_id(storage: Postgres, user: UUID) -> None:
    trusted_device, client_device = (
        full_device(user, last_used_at=NOW - DAY),
        full_device(user, client_hash=digest("known"), trust_hash=None, trust_expires_at=None),
    )
    await save_devices(storage, trusted_device, client_device, device(user))
    assert (await find_match(storage, user, "trust", "known")).device == trusted_device
    assert (await find_match(storage, user, "trust")).device == trusted_device
    assert (await find_match(storage, user, "other", "known")).device == client_device
    assert (await find_match(storage, user, client="known", browser="Chrome", os="Windows")).device == client_device


async def test_a_client_with_an_id_does_not_match_by_its_user_agent(storage: Postgres, user: UUID) -> None:
    await save_devices(storage, device(user))
    assert (await find_match(storage, user, client="unknown")).device is None


async def test_a_client_without_an_id_matches_by_browser_system_and_type(storage: Postgres, user: UUID) -> None:
    one = device(user, browser_version="121.0", os_version="6.1")
    # A device with a client id does not match by its User-Agent header, which any client can send.
    await save_devices(storage, one, device(user, client_hash=digest("client"), last_used_at=NOW))
    assert (await find_match(storage, user)).device == one
    for other in ({"browser": "Chrome"}, {"os": "Windows"}, {"device_type": DeviceType.DESKTOP}):
        assert (await find_match(storage, user, **other)).device is None


async def test_of_several_equal_devices_the_most_recently_used_matches(storage: Postgres, user: UUID) -> None:
    latest = device(user, last_used_at=NOW - SECOND)
    await save_devices(storage, device(user, last_used_at=NOW - DAY), latest, device(user, last_used_at=NOW - HOUR))
    assert (await find_match(storage, user)).device == latest


async def test_revoked_devices_and_those_of_other_users_do_not_match(storage: Postgres, user: UUID, eve: UUID) -> None:
    other_users, revoked = full_device(eve), full_device(user, client_hash=digest("gone"), trust_hash=digest("gone"))
    await save_devices(storage, other_users, device(eve), revoked)
    await revoke(storage, revoked)
    for token, client in (("trust", None), (None, "client"), ("gone", None), (None, "gone"), (None, None)):
        assert (await find_match(storage, user, token, client)).device is None
    restored = full_device(user, client_hash=digest("gone"), trust_hash=digest("new"))
    await save_devices(storage, restored)
    assert (await find_match(storage, user, client="gone")).device == restored, "the client of a revoked device gets a new device"


async def test_only_a_confirmed_membership_makes_the_user_a_member(
    storage: Postgres, pool: Pool, user: UUID, eve: UUID, acme: UUID, other_tenant: UUID
) -> None:
    await add_member(pool, acme, eve, confirmed=True)
    await add_member(pool, acme, user)
    assert not (await find_match(storage, user)).is_member
    await add_member(pool, other_tenant, user, confirmed=True)
    assert (await find_match(storage, user)).is_member


async def test_the_trust_period_is_the_shortest_of_the_organizations(
    storage: Postgres, pool: Pool, user: UUID, eve: UUID, acme: UUID, other_tenant: UUID
) -> None:
    one = full_device(user, mfa_at=NOW, trust_expires_at=NOW + 90 * DAY)
    await save_devices(storage, one)

    async def period(org: UUID | None = None) -> int:
        days = (await find_match(storage, user, org=org)).trust_days_there
        # Lists use the same period.
        for now, is_trusted in ((NOW + days * DAY - MICROSECOND, True), (NOW + days * DAY, False)):
            [listed_device] = await list_devices(storage, user, org=org, now=now)
            async with storage.reading() as read:
                assert await read.devices.by_id(one.id, uuid4(), org, now) == listed_device
            assert listed_device.trusted is is_trusted
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
    policy = (
        "insert into sign_in_policies (id, org_id, rules, changed_at) values (%s, %s, jsonb_build_object('device_trust_days', 3), now())"
    )
    await run_sql(pool, policy, uuid4(), acme)
    await run_sql(pool, "update organizations set sign_in_policy_version = 1 where id = %s", acme)
    assert await period() == 3, "a sign-in policy shortens the period"


# Reading


async def test_a_list_has_the_users_active_devices_the_most_recently_used_first(storage: Postgres, user: UUID, eve: UUID) -> None:
    ids = sorted(uuid4() for _ in range(2))
    first, second, third = device(user, last_used_at=NOW), device(user, id=ids[1]), device(user, id=ids[0])
    revoked = device(user)
    await save_devices(storage, third, revoked, first, second, device(eve))
    await revoke(storage, revoked)
    listed_devices = await list_devices(storage, user)
    assert [one.device for one in listed_devices] == [first, second, third]
    async with storage.reading() as read:
        session = uuid4()
        assert await read.devices.of_user(user, session, None, NOW, None, 2) == listed_devices[:2]
        for position, one in enumerate(listed_devices):
            assert await read.devices.of_user(user, session, None, NOW, one.device, 100) == listed_devices[position + 1 :]
        assert await read.devices.of_user(uuid4(), session, None, NOW, None, 100) == []


async def test_the_current_device_is_that_of_the_session(storage: Postgres, user: UUID) -> None:
    one, other = device(user, last_used_at=NOW), device(user)
    await save_devices(storage, one, other)
    without_device = await begin(storage, user, "a")
    with_device = await begin(storage, user, "b", device_id=other.id)
    for session, current in ((without_device.id, [False, False]), (with_device.id, [False, True]), (uuid4(), [False, False])):
        assert [listed_device.is_current for listed_device in await list_devices(storage, user, session)] == current
        async with storage.reading() as read:
            for target, expected in zip((one, other), current, strict=True):
                listed_device = await read.devices.by_id(target.id, session, None, NOW)
                assert listed_device is not None
                assert listed_device.is_current is expected


async def test_devices_of_all_users_are_found_by_id_revoked_or_not(storage: Postgres, user: UUID, eve: UUID) -> None:
    one, other_users = device(user), full_device(eve)
    await save_devices(storage, one, other_users)
    await revoke(storage, other_users)
    assert await find_device(storage, one) == one
    stored_device = await find_device(storage, other_users)
    assert stored_device is not None
    assert (stored_device.user_id, stored_device.revoked_at) == (eve, NOW)
    assert await find_device(storage, device(user)) is None


async def test_password_attempts_from_a_known_device_are_counted_for_the_device(storage: Postgres, user: UUID, eve: UUID) -> None:
    one, other_users, revoked = (
        full_device(user),
        full_device(eve, trust_hash=digest("eves")),
        full_device(user, client_hash=None, trust_hash=digest("gone")),
    )
    await save_devices(storage, one, other_users, revoked)
    await revoke(storage, revoked)

    async def subject_of(address: Email, token: str | None, at: datetime = NOW, client: str | None = None) -> tuple[UUID | None, bytes]:
        async with storage.autocommit() as count:
            known = KnownBy(None if token is None else digest(token), None if client is None else digest(client))
            attempt = await count.attempt_limits.count_password_attempt(address, known, AttemptLimit(100, DAY), at)
        assert attempt.blocked_until is None
        return (None if attempt.account is None else attempt.account.id), attempt.subject

    at_the_device, at_the_account = (user, sha256(one.id.bytes).digest()), (user, digest(ADA))
    assert await subject_of(ADA, "trust") == at_the_device
    assert await subject_of(ADA, "trust", NOW + 3 * MINUTE - MICROSECOND) == at_the_device
    assert await subject_of(ADA, "trust", NOW + 3 * MINUTE) == at_the_account
    assert await subject_of(ADA, "trust", NOW + 3 * MINUTE, client="client") == at_the_device
    assert await subject_of(ADA, None, client="client") == at_the_device
    assert await subject_of(ADA, None, client="unknown") == at_the_account
    for token in ("eves", "gone", "unknown", "", None):
        assert await subject_of(ADA, token) == at_the_account
    assert await subject_of(EVE, "trust") == (eve, digest(EVE))
    unknown = Email("unknown@example.com")
    assert await subject_of(unknown, "trust") == (None, digest(unknown))


# Changes


UNTRUSTED: dict[str, Any] = {"trust_hash": None, "trust_expires_at": None, "mfa_at": None}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda tx, user, id_: tx.devices.rename(user, id_, "Work", NOW), {"name": "Work", "updated_at": NOW}),
        (lambda tx, user, id_: tx.devices.revoke(user, id_, NOW), {"revoked_at": NOW, "updated_at": NOW, **UNTRUSTED}),
    ],
    ids=["rename", "revoke"],
)
async def test_a_change_affects_one_device_of_one_user(
    storage: Postgres, user: UUID, eve: UUID, change: Callable[..., Any], expected: dict[str, Any]
) -> None:
    one, second, other_users = full_device(user), device(user), device(eve)
    await save_devices(storage, one, second, other_users)
    await within(storage, lambda tx: change(tx, eve, one.id))
    assert await find_device(storage, one) == one, "the device belongs to another user"
    await within(storage, lambda tx: change(tx, user, one.id))
    assert await find_device(storage, one) == replace(one, **expected)
    for other in (second, other_users):
        assert await find_device(storage, other) == other


async def test_a_revoked_device_does_not_change(storage: Postgres, user: UUID) -> None:
    one = full_device(user)
    await save_devices(storage, one)
    await revoke(storage, one)
    revoked = await find_device(storage, one)
    await within(storage, lambda tx: tx.devices.rename(user, one.id, "Work", NOW + HOUR))
    await within(storage, lambda tx: tx.devices.revoke(user, one.id, NOW + HOUR))
    assert await find_device(storage, one) == revoked


async def test_distrusting_ends_the_trust_of_all_devices_of_the_user(storage: Postgres, user: UUID, eve: UUID) -> None:
    trusted, verified, untrusted = full_device(user), device(user, mfa_at=NOW), device(user)
    other_users = full_device(eve, trust_hash=digest("eves"))
    await save_devices(storage, trusted, verified, untrusted, other_users)
    await within(storage, lambda tx: tx.devices.distrust(user, NOW))
    assert await find_device(storage, trusted) == replace(trusted, updated_at=NOW, **UNTRUSTED)
    assert await find_device(storage, verified) == replace(verified, updated_at=NOW, **UNTRUSTED)
    assert await find_device(storage, untrusted) == untrusted
    assert await find_device(storage, other_users) == other_users


# Client ids


async def test_a_device_is_found_by_its_client_id(storage: Postgres, user: UUID, eve: UUID) -> None:
    one, other, other_users, revoked = full_device(user), full_device(user), full_device(eve), full_device(user)
    client, other_client, revoked_client = digest("client"), digest("another"), digest("gone")
    other, other_users, revoked = [
        replace(original, client_hash=hash_, trust_hash=None, trust_expires_at=None)
        for original, hash_ in ((other, other_client), (other_users, client), (revoked, revoked_client))
    ]
    await save_devices(storage, one, other, other_users, revoked, device(user))
    await revoke(storage, revoked)
    for target, hash_, expected in (
        (user, client, one),
        (eve, client, other_users),
        (eve, other_client, None),
        (user, revoked_client, None),
        (user, b"", None),
    ):
        assert await within(storage, lambda tx, target=target, hash_=hash_: tx.devices.by_client(target, hash_)) == expected  # type: ignore[misc]
