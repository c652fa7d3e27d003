"""The logs about second factors and exports, for the user and platform owners (security M-6)."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from quart import Blueprint, Response

from core.accounts import platform
from core.accounts.model.mfa import MfaEvent
from core.privacy import personal_data
from entrypoints.http.api.account_logs import to_own_mfa_event, to_own_privacy_event
from entrypoints.http.base.context import ports, signed_in
from entrypoints.http.base.rendering.labels import LABELS
from entrypoints.http.edge.access import page_session, platform_page
from entrypoints.http.edge.queries import PageQuery
from entrypoints.http.pages.console import console_page, neighbors, shows

routes = Blueprint("account_log_pages", __name__)

PERSON: Final = "/app/platform/people/<user_id>"
API: Final = "/api/platform/users/<user_id>"
ENTRIES: Final[Mapping[str, str]] = {**LABELS[MfaEvent], "user_exported": "Data exported", "user_anonymized": "Data anonymized"}


@routes.get("/app/account/two-factor/log")
@page_session
@shows("GET /api/user/mfa/events")
async def show_own_second_factor_log(query_args: PageQuery) -> Response:
    """List the codes that you entered, and the changes to your second factor."""
    result = await personal_data.list_mfa_log(ports(), signed_in().user_id, query_args.page_request())
    entries = [to_own_mfa_event(entry) for entry in result.items]
    return await console_page("accounts/second_factor_log.html", entries=entries, labels=ENTRIES, **neighbors(query_args, result.total))


@routes.get("/app/account/exports")
@page_session
@shows("GET /api/user/privacy-log")
async def show_own_exports(query_args: PageQuery) -> Response:
    """List the exports of your data."""
    user = signed_in()
    result = await personal_data.list_privacy_log(ports(), user.user_id, query_args.page_request())
    entries = [to_own_privacy_event(entry, user.user_id) for entry in result.items]
    return await console_page("accounts/exports.html", entries=entries, **neighbors(query_args, result.total))


@routes.get(f"{PERSON}/log")
@platform_page
@shows(f"GET {API}/mfa/events", f"GET {API}/privacy-log")
async def show_logs_of_person(user_id: UUID, query_args: PageQuery) -> Response:
    """List the codes that a person entered, the changes to their second factor, and their data exports."""
    account, page = await platform.find_user(ports(), user_id), query_args.page_request()
    codes = await personal_data.list_mfa_log(ports(), account.id, page)
    exports = await personal_data.list_privacy_log(ports(), account.id, page)
    return await console_page(
        "platform/person_log.html",
        person=account,
        path=f"/app/platform/people/{account.id}",
        codes=codes.items,
        exports=exports.items,
        labels=ENTRIES,
        **neighbors(query_args, max(codes.total, exports.total)),
    )
