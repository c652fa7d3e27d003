"""Figures for charts, for organizations and for the platform (decision 450)."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from pydantic import Field
from quart import Blueprint

from core.applications import figures
from core.applications.model.figures import FigurePeriod, FigureRange, FigureSpan, SignInFigures, TrafficFigures, TrafficKind, UserFigures
from core.kernel.roles import Capability
from entrypoints.http import kit
from entrypoints.http.api.applications.analytics import ResponseDay

routes = Blueprint("figures", __name__)

_EACH = "One number for each hour or day."


class FigureQuery(kit.Query):
    """The range for the figures."""

    range: FigureRange = Field(
        default=FigureRange.MONTH,
        description="The range, which ends now. `24h` has figures by hour. `7d`, `30d` and `90d` have figures by day.",
    )


class FigureAxisResponse(kit.ResponseModel):
    """The hours or days in the figures."""

    unit: FigureSpan = Field(description="`hour` or `day`.")
    starts: list[kit.Timestamp] = Field(
        description="The start of every hour or day, in UTC, earliest first. The last hour or day is not over."
    )


class SeriesResponse(kit.ResponseModel):
    """Numbers with the same name, such as a method or a result."""

    name: str = Field(description="The method, result or outcome.", examples=["password"])
    counts: list[int] = Field(description=_EACH)


class ApplicationSeriesResponse(kit.ResponseModel):
    """The sign-ins to an application."""

    service_id: UUID | None = Field(description="The id of the application, or null.")
    service_name: str | None = Field(description="The name of the application, or null.")
    is_platform: bool = Field(
        description="Whether these are members' sign-ins to Gatehouse itself. An entry without an id that is not about "
        "the platform has all other applications."
    )
    counts: list[int] = Field(description=_EACH)


class SignInFiguresResponse(FigureAxisResponse):
    """Sign-ins by result, by method and by application."""

    by_result: list[SeriesResponse] | None = Field(
        description="Sign-ins and failed attempts: `success`, and the reasons of the sign-in log. Null if you may not read the sign-in log."
    )
    by_method: list[SeriesResponse] = Field(description="Successful sign-ins by method, the most frequent first.")
    by_application: list[ApplicationSeriesResponse] = Field(
        description="Successful sign-ins by application: the five most frequent applications, and all other applications "
        "together. Empty for the platform."
    )


class WeeklyUsersResponse(kit.ResponseModel):
    """The active users in a week."""

    monday: ResponseDay = Field(description="The first day of the week, in UTC.")
    active: int = Field(description="The number of users who signed in during this week.")


class PopulationResponse(kit.ResponseModel):
    """How many users there were on a day, and how many have a second factor or a passkey."""

    date: ResponseDay = Field(description="The day, in UTC.")
    users: int = Field(description="How many members are confirmed, or for the platform how many users are active.")
    second_factor: int = Field(description="The number of them that have a second factor.")
    passkeys: int = Field(description="The number of them that have a passkey.")
    password_alone: int = Field(description="The number of users whose password alone signs in, also beside a passkey.")
    organizations: int | None = Field(description="How many organizations the platform has. Null for an organization.")


class UserFiguresResponse(FigureAxisResponse):
    """Active users, new users, and second factors."""

    active: list[int] = Field(description=f"The number of users who signed in. {_EACH}")
    new: list[int] = Field(
        description="The number of them that joined on this day: as a member, or at their first sign-in to an application. For the "
        f"platform, their account was created on this day. {_EACH}"
    )
    weeks: list[WeeklyUsersResponse] = Field(description="The active users per week in the range, at least four weeks, earliest first.")
    populations: list[PopulationResponse] | None = Field(
        description="The members and their second factors, for the days on which they were counted. Null if you may not manage members."
    )


class TrafficFiguresResponse(FigureAxisResponse):
    """Requests by outcome, with their duration."""

    by_outcome: list[SeriesResponse] = Field(
        description="Webhook attempts are `delivered` or `failed`. SCIM requests are `accepted`, `refused` (status 4xx) or `failed` (5xx)."
    )
    average_milliseconds: list[int | None] = Field(description="The average duration of an attempt. Null without an attempt. 0 for SCIM.")
    slowest_milliseconds: list[int | None] = Field(description="The longest duration of an attempt. Null without an attempt. 0 for SCIM.")


@routes.get("/api/organizations/<org_slug>/analytics/sign-ins")
@kit.member(Capability.ANALYTICS_VIEW)
async def get_sign_ins(org_slug: str, query_args: FigureQuery) -> SignInFiguresResponse:
    """Get the sign-ins by result, method and application.

    Successful sign-ins by day are the same as in `login-trends`. Sign-ins by hour and failures are counted every few
    minutes. Failures are the same as in the sign-in log.
    """
    return _to_sign_ins(await figures.load_sign_ins(kit.ports(), kit.acting(), query_args.range))


@routes.get("/api/organizations/<org_slug>/analytics/users")
@kit.member(Capability.ANALYTICS_VIEW)
async def get_users(org_slug: str, query_args: FigureQuery) -> UserFiguresResponse:
    """Get the active users, the new users, and how many users have second factors.

    A user is active who signs in to the organization's applications, or as a member to Gatehouse. The figures are
    counted every few minutes, and second factors once an hour.
    """
    return _to_users(await figures.load_users(kit.ports(), kit.acting(), query_args.range))


@routes.get("/api/organizations/<org_slug>/analytics/webhook-attempts")
@kit.member(Capability.WEBHOOKS_MANAGE)
async def get_webhook_attempts(org_slug: str, query_args: FigureQuery) -> TrafficFiguresResponse:
    """Get the attempts to deliver to webhooks, by outcome, with their duration.

    An attempt counts when it ends.
    """
    return _to_traffic(await figures.load_traffic(kit.ports(), kit.acting(), TrafficKind.WEBHOOK, query_args.range))


@routes.get("/api/organizations/<org_slug>/analytics/scim-requests")
@kit.member(Capability.INTEGRATIONS_MANAGE)
async def get_scim_requests(org_slug: str, query_args: FigureQuery) -> TrafficFiguresResponse:
    """Get the directory's SCIM requests, by outcome.

    Requests without a valid token are not counted.
    """
    return _to_traffic(await figures.load_traffic(kit.ports(), kit.acting(), TrafficKind.SCIM, query_args.range))


@routes.get("/api/platform/analytics/sign-ins")
@kit.platform_owner(Capability.PLATFORM_INSTALLATION_VIEW)
async def get_all_sign_ins(query_args: FigureQuery) -> SignInFiguresResponse:
    """Get the whole installation's sign-ins, by result and method.

    A sign-in on the way to an application counts twice: on Gatehouse's own pages, and at the
    application.
    """
    return _to_sign_ins(await figures.load_sign_ins(kit.ports(), None, query_args.range))


@routes.get("/api/platform/analytics/users")
@kit.platform_owner(Capability.PLATFORM_INSTALLATION_VIEW)
async def get_all_users(query_args: FigureQuery) -> UserFiguresResponse:
    """Get the whole installation's active users, and how many users have second factors.

    It also has the new users, and how many organizations there are.
    """
    return _to_users(await figures.load_users(kit.ports(), None, query_args.range))


@routes.get("/api/platform/analytics/webhook-attempts")
@kit.platform_owner(Capability.PLATFORM_INSTALLATION_VIEW)
async def get_all_webhook_attempts(query_args: FigureQuery) -> TrafficFiguresResponse:
    """Get the attempts to deliver to all organizations' webhooks, by outcome, with their duration.

    An attempt counts when it ends.
    """
    return _to_traffic(await figures.load_traffic(kit.ports(), None, TrafficKind.WEBHOOK, query_args.range))


@routes.get("/api/platform/analytics/scim-requests")
@kit.platform_owner(Capability.PLATFORM_INSTALLATION_VIEW)
async def get_all_scim_requests(query_args: FigureQuery) -> TrafficFiguresResponse:
    """Get the SCIM requests from all organizations' directories, by outcome.

    Requests without a valid token are not counted.
    """
    return _to_traffic(await figures.load_traffic(kit.ports(), None, TrafficKind.SCIM, query_args.range))


def _series(counts: Mapping[str, Sequence[int]]) -> list[SeriesResponse]:
    return [SeriesResponse(name=name, counts=list(of_name)) for name, of_name in counts.items()]


def _axis(period: FigurePeriod) -> FigureAxisResponse:
    return FigureAxisResponse(unit=period.span, starts=period.starts)


def _to_sign_ins(loaded: SignInFigures) -> SignInFiguresResponse:
    return SignInFiguresResponse(
        **dict(_axis(loaded.period)),
        by_result=None if loaded.by_result is None else _series(loaded.by_result),
        by_method=_series(loaded.by_method),
        by_application=ApplicationSeriesResponse.list_of(loaded.by_application),
    )


def _to_users(loaded: UserFigures) -> UserFiguresResponse:
    return UserFiguresResponse(
        **dict(_axis(loaded.period)),
        active=list(loaded.active),
        new=list(loaded.new),
        weeks=WeeklyUsersResponse.list_of(loaded.weeks),
        populations=None if loaded.populations is None else [PopulationResponse.of(each, date=each.day) for each in loaded.populations],
    )


def _to_traffic(loaded: TrafficFigures) -> TrafficFiguresResponse:
    return TrafficFiguresResponse(
        **dict(_axis(loaded.period)),
        by_outcome=_series(loaded.outcomes),
        average_milliseconds=list(loaded.average),
        slowest_milliseconds=list(loaded.slowest),
    )
