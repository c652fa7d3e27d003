"""The logs about second factors and exports, for the user and platform owners (security M-6)."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from quart import Blueprint, Response

from core.accounts import platform
from core.accounts.model.mfa import MfaEvent
from core.privacy import personal_data
from entrypoints.http import kit
from entrypoints.http.api import account_logs
from entrypoints.http.pages import console

routes = Blueprint("account_log_pages", __name__)

PERSON: Final = "/app/platform/people/<user_id>"
API: Final = "/api/platform/users/<user_id>"
ENTRIES: Final[Mapping[str, str]] = {**kit.LABELS[MfaEvent], "user_exported": "Data exported", "user_anonymized": "Data anonymized"}


@routes.get("/app/account/two-factor/log")
@kit.page_session
@console.shows("GET /api/user/mfa/events")
async def show_own_second_factor_log(query_args: kit.PageQuery) -> Response:
    """List the codes that you entered, and the changes to your second factor."""
    result = await personal_data.list_mfa_log(kit.ports(), kit.signed_in().user_id, query_args.page_request())
    entries = [account_logs.to_own_mfa_event(entry) for entry in result.items]
    return await console.console_page(
        "accounts/second_factor_log.html", entries=entries, labels=ENTRIES, **console.neighbors(query_args, result.total)
    )


@routes.get("/app/account/exports")
@kit.page_session
@console.shows("GET /api/user/privacy-log")
async def show_own_exports(query_args: kit.PageQuery) -> Response:
    """List the exports of your data."""
    user = kit.signed_in()
    result = await personal_data.list_privacy_log(kit.ports(), user.user_id, query_args.page_request())
    entries = [account_logs.to_own_privacy_event(entry, user.user_id) for entry in result.items]
    return await console.console_page("accounts/exports.html", entries=entries, **console.neighbors(query_args, result.total))


@routes.get(f"{PERSON}/log")
@kit.platform_page
@console.shows(f"GET {API}/mfa/events", f"GET {API}/privacy-log")
async def show_logs_of_person(user_id: UUID, query_args: kit.PageQuery) -> Response:
    """List the codes that a person entered, the changes to their second factor, and their data exports."""
    account, page = await platform.find_user(kit.ports(), user_id), query_args.page_request()
    codes = await personal_data.list_mfa_log(kit.ports(), account.id, page)
    exports = await personal_data.list_privacy_log(kit.ports(), account.id, page)
    return await console.console_page(
        "platform/person_log.html",
        person=account,
        path=f"/app/platform/people/{account.id}",
        codes=codes.items,
        exports=exports.items,
        labels=ENTRIES,
        **console.neighbors(query_args, max(codes.total, exports.total)),
    )
