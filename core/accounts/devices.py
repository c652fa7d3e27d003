"""Devices: from where people sign in, and which of them are trusted (identity.md sections 2.5 and 4.3; decisions, points 78 to 85;
security.md S-5).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from core.accounts import risk
from core.accounts.own_account import lock_own_account
from core.kernel.errors import refuse
from core.kernel.values import Batches, digest, new_id, new_secret

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from core.accounts.risk import LoginRisk
    from core.kernel.principals import Caller, Person
    from ports import Ports
    from ports.storage import Reading, Transaction
from core.accounts.devices_rules import (
    CLIENT_ID_LENGTH,
    NAME_LENGTH,
    TRUST_TOKEN_TTL,
    DeviceMatch,
    PresentedDevice,
    Device,
    DeviceIsCurrent,
    DeviceNotFound,
    DeviceOfAnotherUser,
    DeviceFingerprint,
    ListedDevice,
    _hash_of,
    trust_hash_of,
)

# At sign-in


def fingerprint(ports: Ports, caller: Caller, client: PresentedDevice) -> DeviceFingerprint:
    """See what somebody comes from. It takes a few milliseconds, for which no account should be locked."""
    return DeviceFingerprint(
        trust_hash=trust_hash_of(client),
        client_hash=_hash_of(client.device_id, CLIENT_ID_LENGTH),
        name=client.name,
        declared_type=client.device_type,
        agent=ports.user_agents.parse(caller.agent),
        address=caller.address,
        location=ports.geoip.of(caller.address),
    )


async def match_device(tx: Transaction, user_id: UUID, look: DeviceFingerprint, org_id: UUID | None, now: datetime) -> DeviceMatch:
    """Recognise the device that somebody comes from, and judge how unusual their coming is. Only asks; the account is locked.

    A device is recognised by its trust token, else by the id that the client keeps, else, where the client keeps none, by what it says of
    itself (decisions, point 78). `org_id` is the organization of the service that is signed in to, None without one: its trust period
    counts beside those of the organizations that the person is a member of.
    """
    recognised = await tx.devices.find_match(user_id, look, org_id, now)
    known = recognised.device
    assessed = risk.assess(recognised.history, is_new_device=known is None, location_is_known=look.location is not None)
    device = new_device(user_id, look, assessed, now) if known is None else refresh_device(known, look, assessed, now)
    trusted = device.has_trust_token(look.trust_hash) and device.remembers_second_factor(recognised.trust_days, now) and not assessed.is_high
    return DeviceMatch(device, trusted)


def new_device(user_id: UUID, look: DeviceFingerprint, risk: LoginRisk, now: datetime) -> Device:
    """One that was not seen with this person before."""
    return Device(
        id=new_id(),
        user_id=user_id,
        client_hash=look.client_hash,
        name=look.name or f"{look.agent.browser} on {look.agent.os}"[:NAME_LENGTH],
        device_type=look.device_type,
        browser=look.agent.browser,
        browser_version=look.agent.browser_version,
        os=look.agent.os,
        os_version=look.agent.os_version,
        last_used_at=now,
        last_ip=look.address,
        location=look.location,
        risk=risk,
        mfa_at=None,
        trust_hash=None,
        trust_expires_at=None,
        created_at=now,
        updated_at=now,
    )


def refresh_device(device: Device, look: DeviceFingerprint, risk: LoginRisk, now: datetime) -> Device:
    """A device that is there, with what there is to see of it now."""
    return replace(
        device,
        name=look.name or device.name,
        # What kind of device it is was guessed when it first came, unless it was told; only what is told now can say better.
        device_type=look.declared_type or device.device_type,
        browser=look.agent.browser,
        browser_version=look.agent.browser_version,
        os=look.agent.os,
        os_version=look.agent.os_version,
        last_used_at=now,
        last_ip=look.address,
        location=look.location,
        risk=risk,
    )


async def remember_device(tx: Transaction, arrival: DeviceMatch, now: datetime, *, second_factor: bool = False, trust: bool = False) -> str | None:
    """Keep the device as one that was signed in from just now; the account is locked since the arrival.

    `second_factor` says that it was shown just now. With `trust` as well there is a new trust token in the location of an older one, and it is
    returned, once; without a second factor there is nothing to remember (identity.md section 4.3).
    """
    device, token = arrival.device, None
    if second_factor:
        device = replace(device, mfa_at=now)
        if trust:
            token = new_secret()
            device = replace(device, trust_hash=digest(token), trust_expires_at=now + TRUST_TOKEN_TTL)
    await tx.devices.save(device)
    return token


# What people do with their own


def list_own(ports: Ports, caller: Person) -> Batches[ListedDevice]:
    """All that are not revoked, the one that was used last first."""
    now, org_id = ports.clock.now(), _org_of(caller)

    async def read_on(last: ListedDevice | None, limit: int) -> Sequence[ListedDevice]:
        async with ports.storage.reading() as read:
            after = None if last is None else last.device
            return await read.devices.of_user(caller.user_id, caller.session_id, org_id, now, after, limit)

    return Batches(read_on)


async def find(ports: Ports, caller: Person, device_id: UUID) -> ListedDevice:
    """One of them. Raises DeviceNotFound, DeviceOfAnother."""
    async with ports.storage.reading() as read:
        seen = await _own(read, caller, device_id, ports.clock.now())
    if seen.device.revoked_at is not None:
        raise DeviceNotFound
    return seen


async def rename(ports: Ports, caller: Person, device_id: UUID, name: str) -> Device:
    """Give it another name. Raises DeviceNotFound, DeviceOfAnother, SessionEnded."""
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        device = (await _enter(tx, caller, device_id, now)).device
        if device.revoked_at is not None:
            raise DeviceNotFound
        await tx.devices.rename(caller.user_id, device.id, name, now)
    return replace(device, name=name, updated_at=now)


async def revoke(ports: Ports, caller: Person, device_id: UUID) -> None:
    """End the device's sessions, refresh tokens and trust (security.md S-5). One that was revoked before stays so (decisions, point 80).

    Raises DeviceNotFound, DeviceOfAnother, DeviceIsCurrent, SessionEnded.
    """
    now = ports.clock.now()
    async with ports.storage.transaction(by=caller) as tx:
        seen = await _enter(tx, caller, device_id, now)
        if seen.device.revoked_at is not None:
            return
        if seen.is_current:
            raise DeviceIsCurrent
        await tx.devices.revoke(caller.user_id, seen.device.id, now)
        await tx.sessions.end_on_device(caller.user_id, seen.device.id, now)


async def _enter(tx: Transaction, caller: Person, device_id: UUID, now: datetime) -> ListedDevice:
    """The device, with the account locked and the caller's session alive still: devices may be revoking each other."""
    await lock_own_account(tx, caller, now)
    return await _own(tx, caller, device_id, now)


async def _own(read: Reading | Transaction, caller: Person, device_id: UUID, now: datetime) -> ListedDevice:
    seen = await read.devices.by_id(device_id, caller.session_id, _org_of(caller), now) or refuse(DeviceNotFound)
    if seen.device.user_id != caller.user_id:
        raise DeviceOfAnotherUser
    return seen


def _org_of(caller: Person) -> UUID | None:
    return None if caller.service is None else caller.service.org_id
