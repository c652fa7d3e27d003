"""Login analytics and the overview: for an organization's members, and for a service's API keys."""

import re
from datetime import date
from typing import Annotated, Any
from uuid import UUID

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema
from quart import Blueprint, Response
from quart_schema import document_response

from core.applications import analytics
from core.applications.model.analytics import DailyLogins, DateRange, PendingTask, resolve_range
from core.applications.model.plans import SubscriptionStatus
from core.kernel import roles
from core.kernel.proofs import OWN_FIRST_METHODS
from entrypoints.http import kit
from entrypoints.http.api.authentication.connections import ProviderSlug
from entrypoints.http.edge.queries import RecentLimit

routes = Blueprint("analytics", __name__)

_METHODS = ", ".join(f"`{method}`" for method in sorted(OWN_FIRST_METHODS))
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _parse_day(value: Any) -> date:
    try:
        if not isinstance(value, str) or not _DAY.fullmatch(value):
            raise ValueError
        return date.fromisoformat(value)
    except ValueError:
        raise ValueError("it must be a day, written YYYY-MM-DD") from None


_DAY_SCHEMA = WithJsonSchema({"type": "string", "format": "date"})
QueryDay = Annotated[date, BeforeValidator(_parse_day), _DAY_SCHEMA]
# Serialized explicitly, because the framework formats days as in HTTP headers.
ResponseDay = Annotated[date, PlainSerializer(date.isoformat, return_type=str), _DAY_SCHEMA]


class DateRangeQuery(kit.Query):
    """A range of days in UTC, including the first and the last day."""

    start_date: QueryDay | None = Field(default=None, description="The first day, in UTC. By default 30 days before `end_date`.")
    end_date: QueryDay | None = Field(default=None, description="The last day, in UTC. By default today.")

    def date_range(self) -> DateRange:
        return resolve_range(self.start_date, self.end_date, kit.ports().clock.now())


class DailyLoginsResponse(kit.ResponseModel):
    """How many logins there were on a day."""

    date: ResponseDay = Field(description="The day, in UTC.")
    count: int = Field(description="The number of logins on this day.")


class ServiceLoginsResponse(kit.ResponseModel):
    """How many logins there were to a service."""

    service_id: UUID = Field(description="The id of the service.")
    service_name: str = Field(description="The name of the service.")
    count: int = Field(description="The number of logins to this service.")


class ProviderLoginsResponse(kit.ResponseModel):
    """How many logins there were through an identity provider."""

    provider: ProviderSlug = Field(description="The identity provider.")
    count: int = Field(description="The number of logins through this identity provider.")


@routes.get("/api/organizations/<org_slug>/analytics/login-trends")
@kit.member(roles.Capability.ANALYTICS_VIEW)
async def count_logins_by_day(org_slug: str, query_args: DateRangeQuery) -> list[DailyLoginsResponse]:
    """Count logins by day.

    Counts the successful logins by any method: to all the organization's services, and its members' logins to Gatehouse
    itself. Days without logins are left out. The earliest day comes first.
    """
    days = await analytics.count_by_day(kit.ports(), kit.acting(), query_args.date_range())
    return [_to_daily_logins(logins) for logins in days]


@routes.get("/api/organizations/<org_slug>/analytics/logins-by-service")
@kit.member(roles.Capability.ANALYTICS_VIEW)
async def count_logins_by_service(org_slug: str, query_args: DateRangeQuery) -> list[ServiceLoginsResponse]:
    """Count logins by service.

    Services without logins in the range and deleted services are left out. The highest count comes
    first.
    """
    services = await analytics.count_by_service(kit.ports(), kit.acting(), query_args.date_range())
    return ServiceLoginsResponse.list_of(services)


@routes.get("/api/organizations/<org_slug>/analytics/logins-by-provider")
@kit.member(roles.Capability.ANALYTICS_VIEW)
async def count_logins_by_provider(org_slug: str, query_args: DateRangeQuery) -> list[ProviderLoginsResponse]:
    """Count logins by identity provider.

    Members' logins to Gatehouse itself are included, logins by password or SAML are not. Providers without logins in
    the range are left out. The highest count comes first.
    """
    providers = await analytics.count_by_provider(kit.ports(), kit.acting(), query_args.date_range())
    return ProviderLoginsResponse.list_of(providers)


class RecentLoginsQuery(kit.Query):
    """How many logins to return."""

    limit: RecentLimit = 10


class RecentLoginResponse(kit.ResponseModel):
    """A login to a service, or a member's login to Gatehouse itself."""

    id: UUID = Field(description="The id of the login.")
    user_id: UUID = Field(description="The id of the user who signed in.")
    service_id: UUID | None = Field(description="The service's id. Null for a member's login to Gatehouse itself.")
    provider: str = Field(description=f"The identity provider, {_METHODS} or `saml`.")
    created_at: kit.Timestamp = Field(description="The time of the login, in UTC.")


@routes.get("/api/organizations/<org_slug>/analytics/recent-logins")
@kit.member(roles.Capability.ANALYTICS_VIEW)
@document_response(list[RecentLoginResponse])
async def list_recent_logins(org_slug: str, query_args: RecentLoginsQuery) -> Response:
    """List recent logins.

    Returns the latest successful logins to the organization's services, and its members' logins to Gatehouse itself,
    newest first. A large limit is allowed: the response is streamed. 403 if your role does not see the organization's
    end users.
    """
    return await kit.stream_list(analytics.list_recent_logins(kit.ports(), kit.acting(), query_args.limit), RecentLoginResponse.of)


class SubscriptionCountsResponse(kit.ResponseModel):
    """How many subscriptions there are, by their current status."""

    active: int = Field(description="The number of active subscriptions.")
    cancelled: int = Field(description="The number of canceled subscriptions.")
    expired: int = Field(description="The number of expired subscriptions.")
    past_due: int = Field(description="The number of past due subscriptions.")


class ServiceAnalyticsResponse(kit.ResponseModel):
    """A service's usage."""

    total_users: int = Field(description="How many users the service has.")
    new_users_30d: int = Field(description="The number of users who first used the service in the last 30 days.")
    active_users_30d: int = Field(description="The number of users who signed in to the service in the last 30 days.")
    total_logins: int = Field(description="How many logins there were at all times, regardless of the range.")
    login_trends: list[DailyLoginsResponse] = Field(description="The logins by day in the range. Days without logins are left out.")
    logins_by_provider: list[ProviderLoginsResponse] = Field(description="The logins by identity provider in the range.")
    subscriptions_by_status: SubscriptionCountsResponse = Field(description="The number of subscriptions by their current status.")


@routes.get("/api/service/analytics")
@kit.service_key(roles.Permission.READ_ANALYTICS)
async def get_service_analytics(query_args: DateRangeQuery) -> ServiceAnalyticsResponse:
    """Get the service's usage.

    The range applies to `login_trends` and `logins_by_provider`. All other figures are current.
    """
    figures = await analytics.analyze_service(kit.ports(), kit.acting_key(), query_args.date_range())
    return ServiceAnalyticsResponse(
        total_users=figures.usage.users,
        new_users_30d=figures.usage.new_users,
        active_users_30d=figures.usage.active_users,
        total_logins=figures.usage.logins,
        login_trends=[_to_daily_logins(logins) for logins in figures.by_day],
        logins_by_provider=ProviderLoginsResponse.list_of(figures.by_provider),
        subscriptions_by_status=SubscriptionCountsResponse(
            **{status.value: figures.subscriptions[status] for status in SubscriptionStatus}
        ),
    )


def _to_daily_logins(logins: DailyLogins) -> DailyLoginsResponse:
    return DailyLoginsResponse(date=logins.day, count=logins.count)


class PendingTaskResponse(kit.ResponseModel):
    """A task that waits for an admin of the organization."""

    task: PendingTask = Field(
        description="`domain_unverified`: set the DNS record of the domain. `invitations_pending`: invitations have no answer yet. "
        "`admins_without_mfa`: admins have no authenticator app. `admins_with_password_alone`: the password alone signs in to accounts of "
        "admins. `certificates_expiring`: SAML certificates expire within 30 days, or have "
        "expired. `connections_failing`: users cannot sign in through a connection. `connection_certificates_expiring`: a certificate "
        "of a connection expires within 30 days, or has expired. `connections_without_domain`: no verified domain leads to an active "
        "connection, and it has no users yet, or the organization has no verified domain. `service_accounts_ending`: they end within 72 "
        "hours, because their owners have left. `webhooks_failing`: the last attempt of these "
        "webhooks failed. `group_roles_stopped`: groups give their roles no longer, because the member who gave them lost the right to. "
        "`siem_paused`: forwarding to the SIEM is turned off. `siem_failing`: the SIEM does not accept entries. `api_keys_to_review`, "
        "`scim_tokens_to_review` and `registration_tokens_to_review`: their creators have left, or may no longer create them. Replace "
        "them."
    )
    count: int = Field(description="The number of objects that the task is about. At most 100 are counted.", examples=[2])


class OverviewResponse(kit.ResponseModel):
    """An organization's overview."""

    members: int = Field(description="The number of members.", examples=[12])
    services: int = Field(description="The number of services.", examples=[3])
    sign_ins: list[DailyLoginsResponse] = Field(
        description="The sign-ins of the last 30 days, as in `GET .../analytics/login-trends`. The last day is today, in UTC. Days without "
        "sign-ins have the count 0."
    )
    pending_tasks: list[PendingTaskResponse] = Field(description="The tasks that your role can do. The most important tasks come first.")


@routes.get("/api/organizations/<org_slug>/overview")
@kit.member(roles.Capability.ANALYTICS_VIEW)
async def get_overview(org_slug: str) -> OverviewResponse:
    """Return the organization's overview: figures, sign-ins in 30 days, and pending tasks.

    A task is something that an admin should look at, such as a domain without a DNS record or a
    webhook that fails.
    """
    loaded = await analytics.load_overview(kit.ports(), kit.acting())
    return OverviewResponse(
        members=loaded.members,
        services=loaded.services,
        sign_ins=[DailyLoginsResponse(date=each.day, count=each.count) for each in loaded.sign_ins],
        pending_tasks=[PendingTaskResponse(task=task, count=count) for task, count in loaded.tasks.items()],
    )
