"""The pages for the sign-in logs of organization and platform: list and export."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from quart import Blueprint, Response, request

from core.authentication import sign_in_log
from core.authentication.model.sign_in_log import MAX_LISTED, SignIn
from core.eventing.model.audit import Period
from core.kernel.callers import Member
from core.kernel.roles import Capability
from core.kernel.values import PageResult
from entrypoints.http import kit
from entrypoints.http.api.authentication.sign_in_log import FILE, SignInExportQuery, SignInFilters, SignInQuery, stream_sign_ins
from entrypoints.http.api.eventing import audit
from entrypoints.http.pages import console

routes = Blueprint("sign_in_log_pages", __name__)

LOG: Final = "/app/organizations/<org_slug>/sign-ins"
PLATFORM_LOG: Final = "/app/platform/sign-ins"
API: Final = "/api/organizations/<org_slug>/sign-ins"
PLATFORM_API: Final = "/api/platform/sign-ins"
RESULTS: Final = [("", "All results"), ("true", "Signed in"), ("false", "Failed")]
PERIODS: Final = [("", "All time"), (Period.HOUR, "Last hour"), (Period.DAY, "Last 24 hours"), (Period.WEEK, "Last 7 days")]
REASONS: Final = [("", "All reasons"), *((str(value), text) for value, text in kit.FAILURE_REASONS.items())]


async def _list_page(sign_ins: PageResult[SignIn], query: SignInQuery, path: str, *, is_platform: bool) -> Response:
    chosen = {name: request.args.get(name, "") for name in SignInFilters.model_fields}
    devices = [kit.ports().user_agents.parse(each.agent) if each.agent else None for each in sign_ins.items]
    return await console.console_page(
        "authentication/sign_in_log.html",
        sign_ins=list(zip(sign_ins.items, devices, strict=True)),
        is_cut=sign_ins.total >= MAX_LISTED,
        chosen=chosen,
        is_filtered=any(chosen.values()),
        results=RESULTS,
        reasons=REASONS,
        periods=PERIODS,
        narrowed=_narrowed(chosen, sign_ins.items),
        failure_label=kit.failure_label,
        application_of=kit.application_of,
        days=kit.ports().policy.failed_logins_kept.days,
        files={format_: console.with_query(page=None, limit=None, format=format_) for format_ in ("csv", "jsonl")},
        path=path,
        is_platform=is_platform,
        **console.neighbors(query, sign_ins.total),
    )


def _narrowed(chosen: Mapping[str, str], sign_ins: Sequence[SignIn]) -> list[tuple[str, str]]:
    """Return the id filters, which have no form field. Every filter has the query that removes it."""
    first = sign_ins[0] if sign_ins else None
    person = (first and first.email) or "one user"
    application = (first and first.service_name) or "one application"
    connection = (first and first.connection_name) or "one connection"
    filters = [("Person", "user_id", person), ("Application", "service_id", application), ("Connection", "connection", connection)]
    return [(f"{title}: {text}", console.with_query(page=None, **{name: None})) for title, name, text in filters if chosen[name]]


async def failure_values(member: Member | None, user_id: UUID) -> dict[str, Any]:
    """Return the values for `_latest_failure.html` on a page about a user, of the organization or, without a member, of the platform."""
    is_shown = member is None or Capability.SIGN_INS_VIEW in member.acts_in.rights
    return {
        "failure": await sign_in_log.latest_failure(kit.ports(), member, user_id) if is_shown else None,
        "failure_label": kit.failure_label,
        "application_of": kit.application_of,
        "sign_ins_path": PLATFORM_LOG if member is None else console.organization_path("/sign-ins"),
    }


@routes.get(LOG)
@kit.member_page(Capability.SIGN_INS_VIEW)
@console.shows(f"GET {API}", f"GET {API}/export")
async def show_sign_ins(org_slug: str, query_args: SignInQuery) -> Response:
    """List an organization's sign-in log."""
    sign_ins = await sign_in_log.list_sign_ins(kit.ports(), kit.acting_member(), query_args.to_filter(), query_args.page_request())
    return await _list_page(sign_ins, query_args, console.organization_path("/sign-ins"), is_platform=False)


@routes.get(f"{LOG}/export")
@kit.member_page(Capability.SIGN_INS_VIEW)
@kit.describes(FILE, content_type=audit.CSV, other_content_types=(audit.JSON_LINES,), api=[f"GET {API}/export"])
async def export_sign_ins(org_slug: str, query_args: SignInExportQuery) -> Response:
    """Export the attempts in an organization's sign-in log that match the filters."""
    batches = await sign_in_log.export(kit.ports(), kit.acting_member(), query_args.to_filter())
    return await stream_sign_ins(batches, query_args.format, f"sign-ins-{org_slug}")


@routes.get(PLATFORM_LOG)
@kit.platform_page
@console.shows(f"GET {PLATFORM_API}", f"GET {PLATFORM_API}/export")
async def show_all_sign_ins(query_args: SignInQuery) -> Response:
    """List the platform's sign-in log."""
    sign_ins = await sign_in_log.list_sign_ins(kit.ports(), None, query_args.to_filter(), query_args.page_request())
    return await _list_page(sign_ins, query_args, PLATFORM_LOG, is_platform=True)


@routes.get(f"{PLATFORM_LOG}/export")
@kit.platform_page
@kit.describes(FILE, content_type=audit.CSV, other_content_types=(audit.JSON_LINES,), api=[f"GET {PLATFORM_API}/export"])
async def export_all_sign_ins(query_args: SignInExportQuery) -> Response:
    """Export the attempts in the platform's sign-in log that match the filters."""
    return await stream_sign_ins(await sign_in_log.export(kit.ports(), None, query_args.to_filter()), query_args.format, "sign-ins")
