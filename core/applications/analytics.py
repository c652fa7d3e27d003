"""How many logins there are: for members of an organization, and for programs of a service (organizations.md sections 2.9 and 4.10;
identity.md section 4.5; decisions, points 10, 117 and 233 to 235).

What counts are successful logins to services that exist. Totals are kept for each day in UTC by those who sign in, so a range of any length
costs as much as there were days with logins in it, which is the life of the organization at most (security.md N-6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.kernel.values import Batches

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core.billing.subscriptions_rules import SubscriptionStatus
    from core.kernel.principals import Member, ServiceKey
    from ports import Ports
from core.applications.analytics_rules import BATCH, RANGE, Days, LoginsOfDay, LoginsOfProvider, LoginsOfService, RecentLogin, Use


@dataclass(frozen=True, slots=True)
class ServiceAnalytics:
    """What a service learns of its use."""

    use: Use
    by_day: Sequence[LoginsOfDay]
    by_provider: Sequence[LoginsOfProvider]
    subscriptions: Mapping[SubscriptionStatus, int]


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
