"""The account's security page: the ways to sign in, the devices, the sessions and the latest sign-ins.

It leads to the forms in `account` and `access`.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeVar

from pydantic import Field
from quart import Blueprint, Response

from core.accounts import devices, mfa, passkey_waits, passkeys
from core.accounts.model.passkeys import MAX_PASSKEYS, PasskeyKind, PasskeyWait
from core.authentication import identities, sessions, sign_in_log
from core.authentication.model.sign_in_log import MAX_LISTED, SignIn
from core.kernel.page_paths import SECURITY_PATH
from core.kernel.values import Page
from core.tenancy import sign_in_policies
from entrypoints.http import kit
from entrypoints.http.edge.queries import Limit
from entrypoints.http.pages import console
from entrypoints.http.pages.accounts import access
from entrypoints.http.pages.accounts.passkeys import DELETED, passkey_values, signals_of
from entrypoints.http.pages.console_forms import Form
from entrypoints.http.pages.policy_forms import own_policy_values

routes = Blueprint("account_security", __name__)

TEMPLATE: Final = "accounts/security.html"
SHOWN: Final = 5  # devices and sessions, until the user asks for all
SHOWN_ALL: Final = 25  # on a page with all items, which stays below 100 KB with the longest names
SHOWN_SIGN_INS: Final = 10
SHOWN_POLICIES: Final = 10
T = TypeVar("T")


class SecurityQuery(kit.PageQuery):
    """The list that the page shows completely, and its page."""

    full: Literal["devices", "sessions"] | None = Field(default=None, description="Show all `devices` or `sessions`, not only five.")
    limit: Limit = SHOWN_ALL

    def part(self, name: str, items: Sequence[T]) -> Sequence[T]:
        """Return the items on the page from the list with this name."""
        start = self.page_request().offset
        return items[start : start + self.limit] if self.full == name else items[:SHOWN]


async def security_values(_: Form, query: SecurityQuery | None = None) -> dict[str, Any]:
    """Return the values for the security page. The current device and session come first in their lists."""
    user, query = kit.signed_in(), query or SecurityQuery()
    own, second_factor = await passkeys.load_own(kit.ports(), user), await mfa.get_status(kit.ports(), user)
    own_devices = sorted(await devices.list_own(kit.ports(), user).next_batch(), key=lambda device: not device.is_current)
    live = await sessions.list_own(kit.ports(), user)
    own_sessions = sorted(live.items, key=lambda session: session.id != user.session_id)
    sign_ins = await sign_in_log.list_own(kit.ports(), user, Page(1, SHOWN_SIGN_INS))
    policies = own_policy_values(await sign_in_policies.list_of_user(kit.ports(), user)) if query.full is None else []
    wait = PasskeyWait.of(own.account, kit.ports().clock.now())
    return {
        "wait": wait,
        "is_wait_over": wait is not None and kit.ports().clock.now() >= wait.over_at,
        "can_wait": bool(own.usable) and wait is None and await passkey_waits.needs_recovery(kit.ports(), user) is False,
        "policies": policies[:SHOWN_POLICIES],
        "policy_count": len(policies),
        "protection": await sign_in_policies.load_own_protection(kit.ports(), user),
        "has_password": own.account.password_hash is not None,
        "passkeys": [passkey_values(each, own) for each in own.passkeys],
        "can_drop_password": any(each.kind is PasskeyKind.PASSKEY and each.user_verified for each in own.usable),
        "has_host": own.rp_id is not None,
        "is_full": len(own.passkeys) >= MAX_PASSKEYS,
        "second_since": second_factor.passkey_at,
        # An impersonator's browser is not the user's browser. A page with all devices or sessions is long enough.
        "signals": None
        if user.impersonator_id is not None or query.full is not None
        else signals_of(own, has_deleted=kit.cookies.NOTICE.read() in DELETED),
        "linked": [kit.ports().policy.provider_names[provider] for provider in await identities.list_sign_in_providers(kit.ports(), user)],
        "since": second_factor.enabled_at,
        "app_since": second_factor.totp_at,
        "codes": second_factor.backup_codes,
        "devices": [access.device_values(each) for each in query.part("devices", own_devices)],
        "device_count": len(own_devices),
        "trusted": sum(device.trusted for device in own_devices),
        "sessions": [access.session_values(each, user.session_id) for each in query.part("sessions", own_sessions)],
        "listed_sessions": len(own_sessions),
        "session_count": live.total,
        "full": query.full,
        "pages": console.neighbors(query, len(own_devices if query.full == "devices" else own_sessions)),
        "sign_ins": [_sign_in_values(each) for each in sign_ins.items],
    }


def _sign_in_values(sign_in: SignIn) -> dict[str, Any]:
    device = kit.ports().user_agents.parse(sign_in.agent) if sign_in.agent else None
    return {
        "reason": None if sign_in.success else kit.failure_label(sign_in),
        "attempts": sign_in.attempts,
        "method": kit.label(sign_in.provider, kit.sign_in_methods()),
        "application": kit.application_of(sign_in),
        "location": ", ".join(filter(None, (sign_in.city, sign_in.country))),
        "address": sign_in.address,
        "device": device and f"{device.browser} on {device.os}",
        "at": sign_in.created_at,
    }


@routes.get(SECURITY_PATH)
@kit.page_session
@console.shows(
    "GET /api/user/sign-ins",
    "GET /api/user/devices",
    "GET /api/user/passkeys",
    "GET /api/user/mfa/status",
    "POST /api/user/mfa/setup",
    "POST /api/user/mfa/verify",
    "POST /api/user/mfa/backup-codes/regenerate",
)
async def show_security(query_args: SecurityQuery) -> Response:
    """Show how you sign in, your devices, your sessions and your latest sign-ins."""
    return await console.console_page(TEMPLATE, **await security_values({}, query_args))


@routes.get(f"{SECURITY_PATH}/sign-ins")
@kit.page_session
@console.shows("GET /api/user/sign-ins")
async def show_own_sign_ins(query_args: kit.PageQuery) -> Response:
    """List the sign-ins to your account, and the failed attempts, in the last 90 days."""
    page = await sign_in_log.list_own(kit.ports(), kit.signed_in(), query_args.page_request())
    return await console.console_page(
        "accounts/sign_ins.html",
        sign_ins=[_sign_in_values(each) for each in page.items],
        is_cut=page.total >= MAX_LISTED,
        **console.neighbors(query_args, page.total),
    )
