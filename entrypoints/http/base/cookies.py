"""The cookies that our own pages use. Scripts and forms on other sites cannot use them (security G-2).

Routes under /api and /scim read no cookies.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from quart import Response, after_this_request, g, request
from werkzeug.http import dump_cookie

from core.accounts.model.devices import TRUST_TOKEN_TTL
from core.federation.saml.model.sign_on import LOGOUT_TTL, STATE_TTL
from core.kernel.page_paths import ENROLL_PATH
from core.kernel.values import digest, new_secret
from core.setup.model.links import MAX_DAYS
from entrypoints.http.base import context

MAX_ENROLLMENT: Final = 2000  # characters; a longer path is not kept

SAML: Final = "saml"
MAX_SIGN_ONS: Final = 20  # sign-on cookies that a browser keeps
_SIGN_ON = re.compile(rf"{SAML}-[0-9a-f]{{16}}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")  # our secrets' format


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie. A value that does not have its format is ignored."""

    kind: str
    age: timedelta
    format: re.Pattern[str] = _SECRET

    def read(self) -> str | None:
        """Return the value, or None."""
        value = request.cookies.get(cookie_name(self.kind))
        return value if value is not None and self.format.fullmatch(value) else None

    def set(self, response: Response, value: str, until: datetime | None = None) -> None:
        """Set the value, for `age` or until this time, in UTC."""
        _set(response, self.kind, value, self.age if until is None else until - context.ports().clock.now())

    def clear(self, response: Response) -> None:
        """Remove the value."""
        _set(response, self.kind, "", timedelta(0))


SESSION: Final = Cookie("session", timedelta(0))  # the browser session's secret. Set it `until` the session expires
DEVICE: Final = Cookie("device", timedelta(days=400))  # the browser's id. Browsers keep cookies no longer
TRUST: Final = Cookie("trust", TRUST_TOKEN_TTL)  # the device's trust token. Without it, the next sign-in needs the second factor
NOTICE: Final = Cookie("notice", timedelta(seconds=60), re.compile(".*"))  # the notice that the next page shows, by its name
# The path of the page that asked the user to set up a factor. The account pages lead back to this page.
ENROLLMENT: Final = Cookie("enrollment", timedelta(hours=1), re.compile(rf"{ENROLL_PATH}\?[A-Za-z0-9._~%&=+*-]+"))
LOGOUT: Final = Cookie("saml-logout", LOGOUT_TTL)  # the secret for the single logout in progress
PROVIDER_LOGOUT: Final = Cookie("provider-logout", LOGOUT_TTL)  # the secret for the sign-out that goes on at an identity provider
SETUP: Final = Cookie("setup", timedelta(days=MAX_DAYS))  # the opened set-up link's secret. The server ends the link, not the cookie


def sign_on(state: str) -> Cookie:
    """Return the cookie for the SAML sign-on with this state. Every sign-on has a separate cookie."""
    return Cookie(f"{SAML}-{digest(state).hex()[:16]}", STATE_TTL)


def cookie_name(kind: str) -> str:
    """Return a cookie's name. With https it has a prefix that makes browsers accept the cookie only from this host."""
    return f"__Host-gatehouse-{kind}" if _is_https() else f"gatehouse-{kind}"


def browser_id() -> str:
    """Return the browser's device id, or a new id. The response sets it, or extends its life, even if it is an error."""
    if "browser_id" not in g:
        g.browser_id = DEVICE.read() or new_secret()
        after_this_request(_keep_device_cookie)
    return str(g.browser_id)


async def _keep_device_cookie(response: Any) -> Any:
    DEVICE.set(response, g.browser_id)
    return response


def forget_old_sign_ons(state: str, response: Response) -> Response:
    """Remove the oldest cookies of unfinished sign-ons, but keep the sign-on with this state, so that request headers stay short.

    Browsers send the oldest cookie first (RFC 6265 section 5.4). Call this also in requests that set no cookie. If a
    form on another site starts a sign-on, the browser sends that request without the existing cookies, so they cannot
    be counted there.
    """
    current, prefix = sign_on(state).kind, cookie_name(SAML).removesuffix(SAML)
    kinds = [name.removeprefix(prefix) for name in request.cookies if name.startswith(prefix)]
    others = [kind for kind in kinds if _SIGN_ON.fullmatch(kind) and kind != current]
    for kind in others[: max(0, len(others) + 1 - MAX_SIGN_ONS)]:
        Cookie(kind, STATE_TTL).clear(response)
    return response


def _is_https() -> bool:
    return context.app_context().origin.startswith("https://")


def _set(response: Response, kind: str, value: str, age: timedelta) -> None:
    seconds = max(0, int(age.total_seconds()))
    # All browsers know Max-Age, so Expires is not computed.
    cookie = dump_cookie(cookie_name(kind), value, seconds, path="/", secure=_is_https(), httponly=True, samesite="Lax", sync_expires=False)
    response.headers.add("Set-Cookie", cookie)
