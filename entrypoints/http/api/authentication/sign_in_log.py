"""The sign-in logs for organizations and for the platform (decision 220)."""

from dataclasses import asdict
from typing import Final
from uuid import UUID

from pydantic import Field
from quart import Blueprint, Response

from core.authentication import sign_in_log
from core.authentication.model.sign_in_log import SignIn, SignInFilter
from core.eventing.model.audit import Period
from core.kernel.roles import Capability
from core.kernel.values import Batches, rfc3339
from entrypoints.http import kit
from entrypoints.http.api.eventing import audit

routes = Blueprint("sign_in_log", __name__)

FILE: Final = {200: "The attempts, newest first."}


class SignInResponse(kit.ResponseModel):
    """A sign-in, or a failed attempt."""

    id: UUID = Field(description="The id of the attempt.")
    created_at: kit.Timestamp = Field(description="When it happened. Attempts at unknown accounts are counted by minute.")
    success: bool = Field(description="Whether the user signed in.")
    reason: str | None = Field(
        description="Why it failed: `credentials`, `locked`, `email_code`, `mfa`, `unverified`, `closed`, `access`, `policy`, "
        "`directory`, `blocked`, `saml`, `provider`, `state`, `address`, `authorization_code` or `device_code`. `unknown_account` "
        "stands for all reasons if the account is no confirmed member of the organization and no user of the application, or does not "
        "exist. `many` counts the rest of a minute with many attempts. Null for a success, and for failures before this log.",
        examples=["credentials"],
    )
    blocked_seconds: int | None = Field(
        description="How long the account was still blocked after wrong attempts, if the reason is `locked`.", examples=[30]
    )
    attempts: int = Field(
        description="How many attempts there were. Attempts at unknown accounts are counted by network and minute. For an"
        " account, 20 failures in an hour are listed, and the newest failure counts the rest."
    )
    request_id: str | None = Field(description="The id of the request, which the response has in X-Request-Id. Null for counted attempts.")
    user_id: UUID | None = Field(description="The id of the user, or null for an unknown account.")
    user_email: str | None = Field(description="The email address that the user has today, or null for an unknown or former user.")
    org_id: UUID | None = Field(description="The id of the application's organization, or null for the platform itself.")
    service_id: UUID | None = Field(description="The id of the application, or null for the platform itself.")
    service_name: str | None = Field(description="The application's name, or an external client's host, or null.")
    provider: str = Field(description="The method, such as `password`. Empty at unknown accounts.", examples=["password", "websuite"])
    ip_address: str | None = Field(
        description="The client's IP address. At unknown accounts, the IPv4 address or the IPv6 network (/64), or null "
        "for many. In an organization's log, a platform owner has no address, agent and place."
    )
    user_agent: str | None = Field(description="The User-Agent header of the client, or null at unknown accounts.")
    geo_country: str | None = Field(description="The country of the IP address (ISO 3166-1), if known.")
    geo_city: str | None = Field(description="The city of the IP address, if known.")
    connection: str | None = Field(
        description="The slug of the organization's connection through which the user came. Null for other ways, for "
        "other organizations' connections, and for removed connections.",
        examples=["okta"],
    )
    connection_name: str | None = Field(description="The name of that connection.", examples=["Okta"])
    fault: str | None = Field(description="Why the answer of the identity provider was refused.", examples=["audience"])
    seconds_off: int | None = Field(
        description="If the answer was refused because of a time in it: by how many seconds this time is ahead of the clock of Gatehouse. "
        "Negative if it has passed.",
        examples=[-95],
    )
    received: list[str] = Field(
        description="The names of the claims or attributes that came through the connection, at most 50. Their values are never stored. "
        "`_claim_names`, `hasgroups` and `http://schemas.microsoft.com/claims/groups.link` say that the groups were left out."
    )


class SignInListResponse(kit.ResponseModel):
    """A page of the sign-in log."""

    sign_ins: list[SignInResponse] = Field(description="The attempts, newest first.")
    pagination: kit.Pagination = Field(
        description="The position of this page. The newest 1,000 attempts that match have pages, and `total` counts no more."
    )


class SignInFilters(kit.Query):
    """The sign-in log's filters. An attempt must match all filters."""

    user_id: kit.Id | None = Field(default=None, description="Only attempts of this user.")
    email: kit.Text | None = Field(
        default=None,
        description="Only attempts by the user with this address: a confirmed member, a user of your applications, or a "
        "user that your directory knows. On the platform, any user. The whole address, in any case.",
        examples=["ada@example.com"],
    )
    service_id: kit.Id | None = Field(default=None, description="Only attempts at this application.")
    connection: kit.Text | None = Field(
        default=None,
        description="Only attempts through the connection with this slug. On the platform, with this id.",
        examples=["okta"],
    )
    success: kit.Flag | None = Field(default=None, description="Only sign-ins (`true`) or failures (`false`).")
    reason: kit.Text | None = Field(default=None, description="Only failures with this reason.", examples=["credentials"])
    request_id: kit.Text | None = Field(default=None, description="Only the failure in the request with this id.")
    period: Period | None = Field(default=None, description="Only attempts of the last hour (`1h`), 24 hours (`24h`) or 7 days (`7d`).")
    since: kit.DateTime | None = Field(default=None, description="Only attempts of this time and later.", examples=["2026-03-01T00:00:00Z"])
    until: kit.DateTime | None = Field(default=None, description="Only attempts before this time.", examples=["2026-04-01T00:00:00Z"])

    def to_filter(self) -> SignInFilter:
        filters = {name: getattr(self, name) for name in SignInFilters.model_fields if name != "period"}
        if self.period is not None:
            start = kit.ports().clock.now() - self.period.length
            filters["since"] = start if self.since is None else max(start, self.since)
        return SignInFilter(**filters)


class SignInQuery(SignInFilters, kit.PageQuery):
    """The sign-in log's filters, and the page. An attempt must match all filters."""


class SignInExportQuery(SignInFilters):
    """The sign-in log's filters, and the format. An attempt must match all filters."""

    format: audit.ExportFormat = Field(
        default=audit.ExportFormat.CSV, description="The format: `csv`, or `jsonl` for one JSON object per line."
    )


@routes.get("/api/organizations/<org_slug>/sign-ins")
@kit.member(Capability.SIGN_INS_VIEW)
async def list_sign_ins(org_slug: str, query_args: SignInQuery) -> SignInListResponse:
    """List the organization's sign-in log.

    It has the sign-ins and failed attempts at the organization's applications, and its confirmed members' attempts at
    the platform itself. Failures are kept for 90 days, unless the operator set another period. Filters can be combined.
    """
    page = await sign_in_log.list_sign_ins(kit.ports(), kit.acting(), query_args.to_filter(), query_args.page_request())
    return SignInListResponse(sign_ins=[_to_response(each) for each in page.items], pagination=query_args.pagination(page.total))


@routes.get("/api/organizations/<org_slug>/sign-ins/export")
@kit.member(Capability.SIGN_INS_VIEW)
@kit.describes(FILE, content_type=audit.CSV, other_content_types=(audit.JSON_LINES,))
async def export(org_slug: str, query_args: SignInExportQuery) -> Response:
    """Export the organization's sign-in log.

    The export has all attempts that match, newest first. A JSON line has the list's fields. In CSV, a cell that a
    spreadsheet would run as a formula has an apostrophe before it.
    """
    batches = await sign_in_log.export(kit.ports(), kit.acting(), query_args.to_filter())
    return await stream_sign_ins(batches, query_args.format, f"sign-ins-{org_slug}")


@routes.get("/api/platform/sign-ins")
@kit.platform_owner(Capability.PLATFORM_SIGN_INS_VIEW)
async def list_all(query_args: SignInQuery) -> SignInListResponse:
    """List the platform's sign-in log.

    It has all sign-ins and failed attempts, also attempts at accounts that the application's organization does not
    know.
    """
    page = await sign_in_log.list_sign_ins(kit.ports(), None, query_args.to_filter(), query_args.page_request())
    return SignInListResponse(sign_ins=[_to_response(each) for each in page.items], pagination=query_args.pagination(page.total))


@routes.get("/api/platform/sign-ins/export")
@kit.platform_owner(Capability.PLATFORM_SIGN_INS_VIEW)
@kit.describes(FILE, content_type=audit.CSV, other_content_types=(audit.JSON_LINES,))
async def export_all(query_args: SignInExportQuery) -> Response:
    """Export the platform's sign-in log.

    The formats are the same as for an organization's export.
    """
    return await stream_sign_ins(await sign_in_log.export(kit.ports(), None, query_args.to_filter()), query_args.format, "sign-ins")


class OwnSignInResponse(kit.ResponseModel):
    """A sign-in to your account, or a failed attempt."""

    id: UUID = Field(description="The id of the attempt.")
    created_at: kit.Timestamp = Field(description="When it happened.")
    success: bool = Field(description="Whether the attempt signed in.")
    reason: str | None = Field(
        description="Why it failed, as in the sign-in log of an organization. Null for a success.",
        examples=["credentials"],
    )
    blocked_seconds: int | None = Field(
        description="How long the account was still blocked after wrong attempts, if the reason is `locked`.", examples=[30]
    )
    attempts: int = Field(
        description="How many attempts there were. 20 failures in an hour are listed, and the newest failure counts the rest."
    )
    service_name: str | None = Field(
        description="The application's name, or an external client's host. Null for the platform itself, and for a deleted application.",
        examples=["Shop"],
    )
    provider: str = Field(description="The method, such as `password`.", examples=["password", "websuite"])
    ip_address: str | None = Field(description="The IP address of the client, or null.", examples=["203.0.113.9"])
    user_agent: str | None = Field(description="The User-Agent header of the client, or null.")
    geo_country: str | None = Field(description="The country of the IP address (ISO 3166-1), if known.", examples=["PT"])
    geo_city: str | None = Field(description="The city of the IP address, if known.", examples=["Lisbon"])


class OwnSignInListResponse(kit.ResponseModel):
    """A page of the sign-ins to your account."""

    sign_ins: list[OwnSignInResponse] = Field(description="The attempts of the last 90 days, newest first.")
    pagination: kit.Pagination = Field(description="The position of this page. The newest 1,000 have pages, and `total` counts no more.")


@routes.get("/api/user/sign-ins")
@kit.person
async def list_own(query_args: kit.PageQuery) -> OwnSignInListResponse:
    """List the sign-ins to your account, and the failed attempts.

    They are from the last 90 days, at all applications and at the platform itself. A sign-in to an application in a
    browser is listed twice: as a sign-in to the platform, and when the application gets its session. Applications'
    tokens are refused.
    """
    page = await sign_in_log.list_own(kit.ports(), kit.signed_in(), query_args.page_request())
    sign_ins = [
        OwnSignInResponse.of(each, ip_address=each.address, user_agent=each.agent, geo_country=each.country, geo_city=each.city)
        for each in page.items
    ]
    return OwnSignInListResponse(sign_ins=sign_ins, pagination=query_args.pagination(page.total))


async def stream_sign_ins(batches: Batches[SignIn], format_: audit.ExportFormat, name: str) -> Response:
    """Return all attempts as a streamed file with this name. The format's extension is added."""
    return await audit.stream_file(batches, format_, name, tuple(SignInResponse.model_fields), _cells, _to_response)


def _cells(sign_in: SignIn) -> list[str]:
    values = [getattr(_to_response(sign_in), name) for name in SignInResponse.model_fields]
    values[1:3] = rfc3339(sign_in.created_at), str(sign_in.success).lower()
    return ["" if value is None else str(value) for value in values]


def _to_response(sign_in: SignIn) -> SignInResponse:
    names = {"email": "user_email", "address": "ip_address", "agent": "user_agent", "city": "geo_city", "country": "geo_country"}
    return SignInResponse(**{names.get(name, name): value for name, value in asdict(sign_in).items()})
