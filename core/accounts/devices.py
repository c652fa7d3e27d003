"""The devices that users sign in from, and which of them are trusted (security S-5)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from core.accounts.model import devices
from core.accounts.own_account import lock_own_account
from core.kernel import values
from core.kernel.callers import Person
from core.kernel.causes import Caller
from core.kernel.errors import refuse
from ports import Ports, storage

# At sign-in


def fingerprint(ports: Ports, caller: Caller, client: devices.PresentedDevice) -> devices.DeviceFingerprint:
    """Collect the properties of the device behind a request. This takes a few milliseconds, so call it before locking an account."""
    return devices.DeviceFingerprint(
        trust_hash=devices.trust_hash_of(client),
        client_hash=devices.client_hash_of(client),
        name=client.name,
        declared_type=client.device_type,
        user_agent=ports.user_agents.parse(caller.agent),
        address=caller.address,
        location=ports.geoip.locate(caller.address),
        is_anonymized=ports.anonymizers.has(caller.address),
        needs_second_factor=client.needs_second_factor,
    )


async def match_device(
    tx: storage.Transaction, user_id: UUID, fingerprint: devices.DeviceFingerprint, org_id: UUID | None, now: datetime
) -> devices.DeviceMatch:
    """Match a sign-in that began at no connection to a device, as `to_match` does. The account is locked."""
    return to_match(user_id, fingerprint, await tx.devices.find_match(user_id, fingerprint, org_id, now), now)


def to_match(
    user_id: UUID, fingerprint: devices.DeviceFingerprint, known: devices.KnownDevice | None, now: datetime
) -> devices.DeviceMatch:
    """Match a sign-in to a known device of the user, or to a new device, and assess the risk.

    Nothing is stored.

    A device is matched by its trust token, else by the client's device id, else, for clients without an id, by browser, operating system
    and type. If the last sign-in from a device had a high risk and no second factor, the device counts as new for the risk. The trust
    periods of the user's organizations apply. At a service, the trust period of its organization counts, too, if any.

    To store the match, lock the account before the device is found.
    """
    assert known is not None, "the trust period always has a row"
    is_new, was_unproved = known.device is None, known.device is not None and known.device.is_unproved
    assessment = devices.assess(
        known.history,
        is_new_device=is_new or was_unproved,
        location_is_known=fingerprint.location is not None,
        is_anonymized=fingerprint.is_anonymized,
    )
    if known.device is None:
        device = new_device(user_id, fingerprint, assessment, now)
    else:
        device = refresh_device(known.device, fingerprint, assessment, now)
    can_skip = device.has_trust_token(fingerprint.trust_hash) and not assessment.is_high and not fingerprint.needs_second_factor
    return devices.DeviceMatch(
        device,
        is_trusted=can_skip and device.remembers_second_factor(known.trust_days, now),
        is_trusted_there=can_skip and device.remembers_second_factor(known.trust_days_there, now),
        is_new=is_new,
        was_unproved=was_unproved,
        has_recovery=known.has_recovery,
        is_member=known.is_member,
    )


def new_device(user_id: UUID, fingerprint: devices.DeviceFingerprint, risk: devices.LoginRisk, now: datetime) -> devices.Device:
    """Return a device that this user has not used before."""
    user_agent = fingerprint.user_agent
    return devices.Device(
        id=values.new_id(),
        user_id=user_id,
        client_hash=fingerprint.client_hash,
        name=fingerprint.name or f"{user_agent.browser} on {user_agent.os}"[: devices.NAME_LENGTH],
        device_type=fingerprint.device_type,
        browser=user_agent.browser,
        browser_version=user_agent.browser_version,
        os=user_agent.os,
        os_version=user_agent.os_version,
        last_used_at=now,
        last_ip=fingerprint.address,
        location=fingerprint.location,
        risk=risk,
        mfa_at=None,
        trust_hash=None,
        trust_expires_at=None,
        created_at=now,
        updated_at=now,
    )


def refresh_device(
    device: devices.Device, fingerprint: devices.DeviceFingerprint, risk: devices.LoginRisk, now: datetime
) -> devices.Device:
    """Return a known device with the values from a new sign-in."""
    user_agent = fingerprint.user_agent
    return replace(
        device,
        name=fingerprint.name or device.name,
        # The stored type was declared or derived when the device was new. Only a declared type may
        # replace it.
        device_type=fingerprint.declared_type or device.device_type,
        browser=user_agent.browser,
        browser_version=user_agent.browser_version,
        os=user_agent.os,
        os_version=user_agent.os_version,
        last_used_at=now,
        last_ip=fingerprint.address,
        location=fingerprint.location,
        risk=risk,
    )


async def remember_device(
    tx: storage.Transaction,
    match: devices.DeviceMatch,
    methods: tuple[str, ...],
    now: datetime,
    *,
    second_factor: bool = False,
    trust: bool = False,
) -> str | None:
    """Store the device that a successful sign-in used.

    The account has been locked since `match_device`.

    `methods` are the methods used in this sign-in. `second_factor` means that it was verified on this device. If
    `trust` is also set, return a new trust token, which replaces any earlier token.
    """
    device, token = match.device, None
    if second_factor and trust:
        token = values.new_secret()
        device = replace(device, trust_hash=values.digest(token), trust_expires_at=now + devices.TRUST_TOKEN_TTL)
    save = tx.devices.add if match.is_new else tx.devices.update
    await save(replace(device, methods=methods, mfa_at=now if second_factor else device.mfa_at))
    return token


# The caller's own devices


def list_own(ports: Ports, caller: Person) -> values.Batches[devices.ListedDevice]:
    """Return the caller's devices that are not revoked, the most recently used first."""
    now, org_id = ports.clock.now(), _org_of(caller)

    async def read_batch(last: devices.ListedDevice | None, limit: int) -> Sequence[devices.ListedDevice]:
        async with ports.storage.reading() as read:
            after = None if last is None else last.device
            return await read.devices.of_user(caller.user_id, caller.session_id, org_id, now, after, limit)

    return values.Batches(read_batch)


async def find(ports: Ports, caller: Person, device_id: UUID) -> devices.ListedDevice:
    """Return the caller's device."""
    async with ports.storage.reading() as read:
        listed = await _own_device(read, caller, device_id, ports.clock.now())
    if listed.device.revoked_at is not None:
        raise devices.DeviceNotFound
    return listed


async def rename(ports: Ports, caller: Person, device_id: UUID, name: str) -> devices.Device:
    """Rename the caller's device."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        device = (await _lock_own_device(tx, caller, device_id, now)).device
        if device.revoked_at is not None:
            raise devices.DeviceNotFound
        await tx.devices.rename(caller.user_id, device.id, name, now)
    return replace(device, name=name, updated_at=now)


async def revoke(ports: Ports, caller: Person, device_id: UUID) -> None:
    """End the device's sessions, refresh tokens and trust (security S-5).

    A device that is already revoked stays revoked.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        listed = await _lock_own_device(tx, caller, device_id, now)
        if listed.device.revoked_at is not None:
            return
        if listed.is_current:
            raise devices.DeviceIsCurrent
        await tx.devices.revoke(caller.user_id, listed.device.id, now)
        await tx.sessions.end_on_device(caller.user_id, listed.device.id, now)


async def _lock_own_device(tx: storage.Transaction, caller: Person, device_id: UUID, now: datetime) -> devices.ListedDevice:
    """Lock the caller's account and return the device.

    If two devices revoke each other at once, the second waits for the lock. By then, its session has ended.
    """
    await lock_own_account(tx, caller, now)
    return await _own_device(tx, caller, device_id, now)


async def _own_device(read: storage.Reading | storage.Transaction, caller: Person, device_id: UUID, now: datetime) -> devices.ListedDevice:
    listed = await read.devices.by_id(device_id, caller.session_id, _org_of(caller), now) or refuse(devices.DeviceNotFound)
    if listed.device.user_id != caller.user_id:
        raise devices.DeviceOfAnotherUser
    return listed


def _org_of(caller: Person) -> UUID | None:
    return None if caller.service is None else caller.service.org_id
