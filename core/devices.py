"""Devices: from where people sign in, and which of them are trusted (identity.md sections 2.5 and 4.3; decisions, points 78 to 85;
security.md S-5).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from uuid import UUID

from core import risk
from core.access import enter
from core.errors import Forbidden, Invalid, NotFound, refuse
from core.values import Batches, digest, new_id, new_secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from core.access import Caller, Person
    from core.risk import History, Risk
    from ports import Ports
    from ports.storage import Reading, Transaction

CLIENT_ID_LENGTH = 200  # characters; an id that is longer is not looked at
TRUST_TOKEN_LENGTH = 200  # as is a trust token, of which ours are shorter
TRUST_TOKEN_TTL: Final = timedelta(days=90)  # identity.md section 5, rule 3
TRUST_DAYS = 30  # where no organization says for how long
NAME_LENGTH = 100


class DeviceNotFound(NotFound):
    """There is no such device."""


class DeviceOfAnother(Forbidden):
    """This device belongs to somebody else."""


class DeviceIsCurrent(Invalid):
    """You are using this device. Sign out to end its session."""


class DeviceType(StrEnum):
    """What kind of a client it is (decisions, point 79)."""

    BROWSER = "browser"
    MOBILE = "mobile"
    DESKTOP = "desktop"
    CLI = "cli"


@dataclass(frozen=True, slots=True)
class ParsedAgent:
    """What a User-Agent header says; what it does not say is called unknown."""

    browser: str
    browser_version: str | None
    os: str
    os_version: str | None
    device_type: DeviceType


@dataclass(frozen=True, slots=True)
class Place:
    """Where an address is: a city by its English name, if it is known, and a country by its code (ISO 3166-1)."""

    city: str | None
    country: str


@dataclass(frozen=True, slots=True)
class Client:
    """What a sign-in shows of its device.

    `device_id` is an id that the client keeps, in the header X-Device-Id or a cookie of our pages; `token` a trust token. `name` and
    `device_type` are given where somebody has named the device, and where the way of signing in tells what it is.
    """

    device_id: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    name: str | None = None
    device_type: DeviceType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """From where somebody signs in. Times are UTC; `risk` is that of the last login, `place` and `last_ip` where it came from.

    `client_hash` is the SHA-256 of the id that the client keeps; without one it is recognised by what it says of itself. `mfa_at` is when
    somebody last showed the second factor on it. `trust_hash` is the SHA-256 of its trust token, which is none from `trust_expires_at` on.
    """

    id: UUID
    user_id: UUID
    client_hash: bytes | None
    name: str
    device_type: DeviceType
    browser: str
    browser_version: str | None
    os: str
    os_version: str | None
    last_used_at: datetime
    last_ip: str | None
    place: Place | None
    risk: Risk
    mfa_at: datetime | None
    trust_hash: bytes | None
    trust_expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    revoked_at: datetime | None = None

    def is_trusted_with(self, trust_hash: bytes | None) -> bool:
        """Whether this is the SHA-256 of its trust token; whether that counts still is another question."""
        return trust_hash is not None and self.trust_hash is not None and hmac.compare_digest(trust_hash, self.trust_hash)

    def remembers(self, trust_days: int, now: datetime) -> bool:
        """Whether the second factor that was shown on it counts still, for whoever has its trust token: while the token lives and so many
        days have not gone by (decisions, point 81)."""
        return (
            self.revoked_at is None
            and self.trust_expires_at is not None
            and now < self.trust_expires_at
            and self.mfa_at is not None
            and now < self.mfa_at + timedelta(days=trust_days)
        )


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to see of a device that somebody comes from: SHA-256 of its trust token and of the id that the client keeps, what it
    says of itself, and where it is. `name` and `told_type` are those of `Client`."""

    trust_hash: bytes | None
    client_hash: bytes | None
    name: str | None
    told_type: DeviceType | None
    agent: ParsedAgent
    address: str | None
    place: Place | None

    @property
    def device_type(self) -> DeviceType:
        """What kind of a client it is, as well as can be seen."""
        return self.told_type or self.agent.device_type


@dataclass(frozen=True, slots=True)
class Recognised:
    """What one statement knows of who comes: the device, if it is one that is there; for how many days the second factor may be remembered,
    which is the shortest period of the person's organizations; and the person's earlier logins."""

    device: Device | None
    trust_days: int
    history: History


@dataclass(frozen=True, slots=True)
class Seen:
    """A device, as somebody's list shows it."""

    device: Device
    is_current: bool  # the one of the session that asks
    trusted: bool  # whether whoever has its trust token is not asked for the second factor


@dataclass(frozen=True, slots=True)
class Arrival:
    """Somebody signs in from a device, as it will be. `is_trusted`: its trust token was shown, and is honoured now."""

    device: Device
    is_trusted: bool


# At sign-in


def look(ports: Ports, caller: Caller, client: Client) -> Look:
    """See what somebody comes from. It takes a few milliseconds, for which no account should be locked."""
    return Look(
        trust_hash=trust_hash_of(client),
        client_hash=_hash_of(client.device_id, CLIENT_ID_LENGTH),
        name=client.name,
        told_type=client.device_type,
        agent=ports.agents.parse(caller.agent),
        address=caller.address,
        place=ports.places.of(caller.address),
    )


async def arrive(tx: Transaction, user_id: UUID, look: Look, org_id: UUID | None, now: datetime) -> Arrival:
    """Recognise the device that somebody comes from, and judge how unusual their coming is. Only asks; the account is locked.

    A device is recognised by its trust token, else by the id that the client keeps, else, where the client keeps none, by what it says of
    itself (decisions, point 78). `org_id` is the organization of the service that is signed in to, None without one: its trust period
    counts beside those of the organizations that the person is a member of.
    """
    recognised = await tx.devices.recognise(user_id, look, org_id, now)
    known = recognised.device
    assessed = risk.assess(recognised.history, is_new_device=known is None, place_is_known=look.place is not None)
    device = new_device(user_id, look, assessed, now) if known is None else used_again(known, look, assessed, now)
    trusted = device.is_trusted_with(look.trust_hash) and device.remembers(recognised.trust_days, now) and not assessed.is_high
    return Arrival(device, trusted)


def new_device(user_id: UUID, look: Look, risk: Risk, now: datetime) -> Device:
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
        place=look.place,
        risk=risk,
        mfa_at=None,
        trust_hash=None,
        trust_expires_at=None,
        created_at=now,
        updated_at=now,
    )


def used_again(device: Device, look: Look, risk: Risk, now: datetime) -> Device:
    """A device that is there, with what there is to see of it now."""
    return replace(
        device,
        name=look.name or device.name,
        # What kind of device it is was guessed when it first came, unless it was told; only what is told now can say better.
        device_type=look.told_type or device.device_type,
        browser=look.agent.browser,
        browser_version=look.agent.browser_version,
        os=look.agent.os,
        os_version=look.agent.os_version,
        last_used_at=now,
        last_ip=look.address,
        place=look.place,
        risk=risk,
    )


async def welcome(tx: Transaction, arrival: Arrival, now: datetime, *, second_factor: bool = False, trust: bool = False) -> str | None:
    """Keep the device as one that was signed in from just now; the account is locked since the arrival.

    `second_factor` says that it was shown just now. With `trust` as well there is a new trust token in the place of an older one, and it is
    returned, once; without a second factor there is nothing to remember (identity.md section 4.3).
    """
    device, token = arrival.device, None
    if second_factor:
        device = replace(device, mfa_at=now)
        if trust:
            token = new_secret()
            device = replace(device, trust_hash=digest(token), trust_expires_at=now + TRUST_TOKEN_TTL)
    await tx.devices.keep(device)
    return token


def trust_hash_of(client: Client) -> bytes | None:
    """By what the device is known that brings a trust token."""
    return _hash_of(client.token, TRUST_TOKEN_LENGTH)


def _hash_of(secret: str | None, longest: int) -> bytes | None:
    return digest(secret) if secret and len(secret) <= longest else None


# What people do with their own


def listed(ports: Ports, caller: Person) -> Batches[Seen]:
    """All that are not revoked, the one that was used last first."""
    now, org_id = ports.clock.now(), _org_of(caller)

    async def read_on(last: Seen | None, limit: int) -> Sequence[Seen]:
        async with ports.storage.reading() as read:
            after = None if last is None else last.device
            return await read.devices.of_person(caller.user_id, caller.session_id, org_id, now, after, limit)

    return Batches(read_on)


async def find(ports: Ports, caller: Person, device_id: UUID) -> Seen:
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
        await tx.sessions.end_of_device(caller.user_id, seen.device.id, now)


async def _enter(tx: Transaction, caller: Person, device_id: UUID, now: datetime) -> Seen:
    """The device, with the account locked and the caller's session alive still: devices may be revoking each other."""
    await enter(tx, caller, now)
    return await _own(tx, caller, device_id, now)


async def _own(read: Reading | Transaction, caller: Person, device_id: UUID, now: datetime) -> Seen:
    seen = await read.devices.by_id(device_id, caller.session_id, _org_of(caller), now) or refuse(DeviceNotFound)
    if seen.device.user_id != caller.user_id:
        raise DeviceOfAnother
    return seen


def _org_of(caller: Person) -> UUID | None:
    return None if caller.service is None else caller.service.org_id
