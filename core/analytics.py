"""How many logins there are: for members of an organization, and for programs of a service (organizations.md sections 2.9 and 4.10;
identity.md section 4.5; decisions, points 10, 117 and 233 to 235).

What counts are successful logins to services that exist. Totals are kept for each day in UTC by those who sign in, so a range of any length
costs as much as there were days with logins in it, which is the life of the organization at most (security.md N-6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from core.errors import Invalid
from core.values import Batches

if TYPE_CHECKING:
    from core.access import Member, ServiceKey
    from core.providers import Provider
    from core.subscriptions import SubscriptionStatus
    from ports import Ports

BATCH = 500  # of the latest logins, which may be asked for in any number
RANGE: Final = timedelta(days=30)  # unless both ends are given; also how far back somebody counts as new or active


class RangeBackwards(Invalid):
    """The range ends before it begins. Give an end_date that is not before the start_date; without one it is today, in UTC."""


@dataclass(frozen=True, slots=True)
class Days:
    """A range of days in UTC, both ends included."""

    first: date
    last: date


@dataclass(frozen=True, slots=True)
class LoginsOfDay:
    """How many logins there were on a day."""

    day: date
    count: int


@dataclass(frozen=True, slots=True)
class LoginsOfService:
    """How many logins to a service there were."""

    service_id: UUID
    service_name: str
    count: int


@dataclass(frozen=True, slots=True)
class LoginsOfProvider:
    """How many logins through an identity provider there were."""

    provider: Provider
    count: int


@dataclass(frozen=True, slots=True)
class RecentLogin:
    """A login. Its `provider` is an identity provider, `password` or `saml`. Times are UTC."""

    id: UUID
    user_id: UUID
    service_id: UUID
    provider: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Use:
    """How much a service is used."""

    users: int
    new_users: int  # who began to use it lately
    active_users: int  # who signed in to it lately
    logins: int  # ever


@dataclass(frozen=True, slots=True)
class ServiceAnalytics:
    """What a service learns of its use."""

    use: Use
    by_day: Sequence[LoginsOfDay]
    by_provider: Sequence[LoginsOfProvider]
    subscriptions: Mapping[SubscriptionStatus, int]


def days(first: date | None, last: date | None, now: datetime) -> Days:
    """The range with these ends; one left out is today, or 30 days before the end (decisions, point 233). Raises RangeBackwards."""
    if last is None:
        last = now.astimezone(UTC).date()
    if first is None:
        first = last - min(RANGE, last - date.min)
    if first > last:
        raise RangeBackwards
    return Days(first, last)


async def by_day(ports: Ports, caller: Member, range_: Days) -> Sequence[LoginsOfDay]:
    """How many logins to the organization's services there were on each day that had any, the earliest first."""
    async with ports.storage.reading() as read:
        return await read.analytics.by_day(caller.acts_in.id, None, range_)


async def by_service(ports: Ports, caller: Member, range_: Days) -> Sequence[LoginsOfService]:
    """How many there were to each service that had any, most first."""
    async with ports.storage.reading() as read:
        return await read.analytics.by_service(caller.acts_in.id, range_)


async def by_provider(ports: Ports, caller: Member, range_: Days) -> Sequence[LoginsOfProvider]:
    """How many there were through each identity provider that had any, most first; passwords and SAML are none (decisions, point 234)."""
    async with ports.storage.reading() as read:
        return await read.analytics.by_provider(caller.acts_in.id, None, range_)


def recent(ports: Ports, caller: Member, limit: int) -> Batches[RecentLogin]:
    """The latest logins, at most so many, the newest first."""

    async def read(last: RecentLogin | None, count: int) -> Sequence[RecentLogin]:
        async with ports.storage.reading() as reading:
            return await reading.analytics.recent(caller.acts_in.id, last, count)

    return Batches(read, limit, size=BATCH)


async def of_service(ports: Ports, caller: ServiceKey, range_: Days) -> ServiceAnalytics:
    """The use of the service of a key: logins by day and by provider in the range; of users, subscriptions and all logins, as it is now."""
    now = ports.clock.now()
    org_id, service_id = caller.service.org_id, caller.service.id
    async with ports.storage.reading() as read:
        return ServiceAnalytics(
            use=await read.analytics.use(org_id, service_id, now - RANGE),
            by_day=await read.analytics.by_day(org_id, service_id, range_),
            by_provider=await read.analytics.by_provider(org_id, service_id, range_),
            subscriptions=await read.subscriptions.counts(org_id, service_id, now),
        )
