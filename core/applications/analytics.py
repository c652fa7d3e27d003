"""Login analytics and the overview, for an organization's members and for a service's API keys.

Only successful logins count: logins to existing services, and members' logins to the platform. Every login adds to a
total per day (UTC). The cost therefore depends on how many days the range has, and not on how many logins (security
N-6).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.accounts.model.email_queue import NoticedSecret
from core.applications.model import analytics
from core.applications.model.plans import SubscriptionStatus
from core.kernel import access, callers
from core.kernel.roles import Capability
from core.kernel.values import Batches
from ports import Ports


@dataclass(frozen=True, slots=True)
class ServiceAnalytics:
    """All figures that an API key can read about its service."""

    usage: analytics.ServiceUsage
    by_day: Sequence[analytics.DailyLogins]
    by_provider: Sequence[analytics.ProviderLogins]
    subscriptions: Mapping[SubscriptionStatus, int]


async def count_by_day(
    ports: Ports, caller: callers.OrganizationCaller, date_range: analytics.DateRange
) -> Sequence[analytics.DailyLogins]:
    """Return how many logins there were per day, earliest first. Days without logins are left out."""
    async with ports.storage.reading() as read:
        return await read.analytics.by_day(caller.acts_in.id, None, date_range)


async def count_by_service(
    ports: Ports, caller: callers.OrganizationCaller, date_range: analytics.DateRange
) -> Sequence[analytics.ServiceLogins]:
    """Return how many logins there were per service, highest first. Services without logins are left out."""
    async with ports.storage.reading() as read:
        return await read.analytics.by_service(caller.acts_in.id, date_range)


async def count_by_provider(
    ports: Ports, caller: callers.OrganizationCaller, date_range: analytics.DateRange
) -> Sequence[analytics.ProviderLogins]:
    """Return how many logins there were per identity provider, highest first. Passwords and SAML do not count."""
    async with ports.storage.reading() as read:
        return await read.analytics.by_provider(caller.acts_in.id, None, date_range)


def list_recent_logins(ports: Ports, caller: callers.OrganizationCaller, limit: int) -> Batches[analytics.RecentLogin]:
    """Return the latest logins, newest first, at most `limit`. The result names users."""
    access.require_view(caller, Capability.END_USERS_VIEW)

    async def read_batch(last: analytics.RecentLogin | None, count: int) -> Sequence[analytics.RecentLogin]:
        async with ports.storage.reading() as read:
            return await read.analytics.recent(caller.acts_in.id, last, count)

    return Batches(read_batch, limit, size=analytics.RECENT_LOGINS_BATCH)


async def analyze_service(ports: Ports, caller: callers.ServiceKey, date_range: analytics.DateRange) -> ServiceAnalytics:
    """Return the figures for the API key's service.

    `date_range` applies to logins by day and by provider. All other figures are current.
    """
    now = ports.clock.now()
    org_id, service_id = caller.service.org_id, caller.service.id
    async with ports.storage.reading() as read:
        return ServiceAnalytics(
            usage=await read.analytics.usage(org_id, service_id, now - analytics.DEFAULT_RANGE),
            by_day=await read.analytics.by_day(org_id, service_id, date_range),
            by_provider=await read.analytics.by_provider(org_id, service_id, date_range),
            subscriptions=await read.subscriptions.counts(org_id, service_id, now),
        )


async def load_overview(ports: Ports, caller: callers.OrganizationCaller) -> analytics.Overview:
    """Return the organization's figures, its sign-ins in the last days, and the pending tasks that the caller can do."""
    now = ports.clock.now()
    days = analytics.compute_days(now)
    async with ports.storage.reading() as read:
        figures = await read.overview.figures(caller.acts_in.id, now)
        logins = await read.analytics.by_day(caller.acts_in.id, None, days)
    to_review = await list_to_review(ports, caller, analytics.MOST_COUNTED)
    return analytics.Overview(
        figures.members,
        figures.services,
        figures.has_sign_ins,
        analytics.fill_days(logins, days),
        analytics.select_tasks({**figures.tasks, **Counter(credential.task for credential in to_review)}, access.viewed_rights(caller)),
        to_review,
    )


async def list_to_review(ports: Ports, caller: callers.OrganizationCaller, limit: int) -> list[analytics.CredentialToReview]:
    """Return the credentials that the caller can replace because their creators have left or may no longer create them, oldest first."""
    rights = access.viewed_rights(caller)
    kinds = [kind for kind, task in analytics.REVIEWS.items() if task.capability in rights]
    if Capability.API_KEYS_VIEW not in rights:  # the other kinds are listed by the right to replace them
        kinds = [kind for kind in kinds if kind is not NoticedSecret.API_KEY]
    if not kinds:
        return []
    async with ports.storage.reading() as read:
        return await read.created_secrets.to_review(caller.acts_in.id, kinds, ports.clock.now(), limit)
