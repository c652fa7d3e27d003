"""How many logins there are: for members (organizations.md section 4.10) and for programs (identity.md section 4.5)."""

import re
from datetime import date
from typing import Annotated, Any
from uuid import UUID

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema
from quart import Blueprint, Response
from quart_schema import document_response, validate_querystring, validate_response

from core.applications import analytics, analytics_rules
from core.applications.analytics_rules import DailyLogins, DateRange, ProviderLogins, RecentLogin
from core.billing.subscriptions_rules import SubscriptionStatus
from core.kernel.principals import Capability, Permission
from core.kernel.providers import Provider
from entrypoints.http.edge.access import member, service_key
from entrypoints.http.edge.bodies import ResponseModel, Timestamp
from entrypoints.http.edge.context import acting_key, acting_member, ports
from entrypoints.http.edge.openapi import refuses
from entrypoints.http.edge.queries import Query, RecentLimit
from entrypoints.http.edge.streaming import streamed

routes = Blueprint("analytics", __name__)

_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _day(value: Any) -> date:
    try:
        if not isinstance(value, str) or not _DAY.fullmatch(value):
            raise ValueError
        return date.fromisoformat(value)
    except ValueError:
        raise ValueError("it must be a day, written YYYY-MM-DD") from None


GivenDay = Annotated[date, BeforeValidator(_day), WithJsonSchema({"type": "string", "format": "date"})]
# In an answer; the framework's own form of a day is that of HTTP headers.
Day = Annotated[date, PlainSerializer(date.isoformat, return_type=str), WithJsonSchema({"type": "string", "format": "date"})]


class RangeQuery(Query):
    """Which days, in UTC, both included. The range ends today and begins 30 days before its end unless something else is given."""

    start_date: GivenDay | None = None
    end_date: GivenDay | None = None

    def wanted(self) -> DateRange:
        return analytics_rules.days(self.start_date, self.end_date, ports().clock.now())


class DayShown(ResponseModel):
    """How many logins there were on a day, in UTC."""

    date: Day
    count: int


class ServiceCount(ResponseModel):
    """How many logins to a service there were."""

    service_id: UUID
    service_name: str
    count: int


class ProviderCount(ResponseModel):
    """How many logins through an identity provider there were."""

    provider: Provider
    count: int


@routes.get("/api/organizations/<org_slug>/analytics/login-trends")
@member(Capability.ANALYTICS_VIEW)
@refuses(400)
@validate_querystring(RangeQuery)
@validate_response(list[DayShown])
async def login_trends(org_slug: str, query_args: RangeQuery) -> list[DayShown]:
    """Count the logins to the organization's services on each day. DateRange without logins are left out."""
    return [_of_day(one) for one in await analytics.by_day(ports(), acting_member(), query_args.wanted())]


@routes.get("/api/organizations/<org_slug>/analytics/logins-by-service")
@member(Capability.ANALYTICS_VIEW)
@refuses(400)
@validate_querystring(RangeQuery)
@validate_response(list[ServiceCount])
async def logins_by_service(org_slug: str, query_args: RangeQuery) -> list[ServiceCount]:
    """Count the logins to each service, most first. Services without logins are left out."""
    found = await analytics.by_service(ports(), acting_member(), query_args.wanted())
    return [ServiceCount(service_id=one.service_id, service_name=one.service_name, count=one.count) for one in found]


@routes.get("/api/organizations/<org_slug>/analytics/logins-by-provider")
@member(Capability.ANALYTICS_VIEW)
@refuses(400)
@validate_querystring(RangeQuery)
@validate_response(list[ProviderCount])
async def logins_by_provider(org_slug: str, query_args: RangeQuery) -> list[ProviderCount]:
    """Count the logins through each identity provider, most first. Logins by password or SAML are not among them."""
    return [_of_provider(one) for one in await analytics.by_provider(ports(), acting_member(), query_args.wanted())]


class RecentQuery(Query):
    """How many logins."""

    limit: RecentLimit = 10


class LoginShown(ResponseModel):
    """A login. `provider` is an identity provider, `password` or `saml`."""

    id: UUID
    user_id: UUID
    service_id: UUID
    provider: str
    created_at: Timestamp


@routes.get("/api/organizations/<org_slug>/analytics/recent-logins")
@member(Capability.ANALYTICS_VIEW)
@refuses(400)
@validate_querystring(RecentQuery)
@document_response(list[LoginShown])
async def recent_logins(org_slug: str, query_args: RecentQuery) -> Response:
    """List the latest logins to the organization's services, the newest first."""
    return await streamed(analytics.recent(ports(), acting_member(), query_args.limit), _login)


class SubscriptionCounts(ResponseModel):
    """How many subscriptions have which status now."""

    active: int
    cancelled: int
    expired: int
    past_due: int


class ServiceAnalytics(ResponseModel):
    """The use of a service.

    `total_users` use it now; `new_users_30d` of them began to in the last 30 days, and `active_users_30d` of them have signed in to it in
    the last 30 days. `total_logins` is of all time, whatever the range; `login_trends` and `logins_by_provider` are of the range.
    """

    total_users: int
    new_users_30d: int
    active_users_30d: int
    total_logins: int
    login_trends: list[DayShown]
    logins_by_provider: list[ProviderCount]
    subscriptions_by_status: SubscriptionCounts


@routes.get("/api/service/analytics")
@service_key(Permission.READ_ANALYTICS)
@refuses(400)
@validate_querystring(RangeQuery)
@validate_response(ServiceAnalytics)
async def of_service(query_args: RangeQuery) -> ServiceAnalytics:
    """Show how the service is used. The range is that of the trends and providers; all other figures are as of now."""
    found = await analytics.of_service(ports(), acting_key(), query_args.wanted())
    return ServiceAnalytics(
        total_users=found.use.users,
        new_users_30d=found.use.new_users,
        active_users_30d=found.use.active_users,
        total_logins=found.use.logins,
        login_trends=[_of_day(one) for one in found.by_day],
        logins_by_provider=[_of_provider(one) for one in found.by_provider],
        subscriptions_by_status=SubscriptionCounts(**{status.value: found.subscriptions[status] for status in SubscriptionStatus}),
    )


def _of_day(one: DailyLogins) -> DayShown:
    return DayShown(date=one.day, count=one.count)


def _of_provider(one: ProviderLogins) -> ProviderCount:
    return ProviderCount(provider=one.provider, count=one.count)


def _login(one: RecentLogin) -> LoginShown:
    return LoginShown(id=one.id, user_id=one.user_id, service_id=one.service_id, provider=one.provider, created_at=one.created_at)
